"""Run folders: everything a run was made of and what came out, in plain files.

    results/20261120T193000Z-eval-sjf-s0-3fa9c1/
    ├── config.yaml       the whole configuration; `dagsim eval --config` of it writes the same tables, byte for byte
    ├── command.txt       the command that was given
    ├── manifest.json     versions, commit, platform, seeds, hashes of configuration and trace
    ├── status.json       running, done, failed or interrupted; replaced as a whole, never half written
    ├── runs.jsonl        one line per policy and seed: every metric
    ├── timing.jsonl      the same lines with what the clock on the wall says
    ├── summary.json      per policy the mean of every metric over the seeds
    ├── comparison.csv    of several policies: ratios to the first, intervals, verdicts
    ├── jobs.csv.gz       one row per policy, seed and job
    ├── tasks.csv.gz      one row per policy, seed and run of a task
    ├── schedules/        the schedule of each policy and seed: NNN.npy (its log), NNN.json.gz (its jobs)
    └── plots/

A run that was stopped keeps what was finished.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import zlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from dagsim.config.schema import Config, config_hash, dump_config, load_config
from dagsim.errors import ConfigError, RunFolderError
from dagsim.experiment.manifest import SCHEMA, file_hash, manifest
from dagsim.experiment.run import Result, experiment_seeds
from dagsim.experiment.scenario import scenario_of
from dagsim.files import replaced
from dagsim.metrics import jobs_table, runs_table, to_csv
from dagsim.model import JobFacts
from dagsim.model.log import ScheduleLog
from dagsim.model.schedule import Schedule

__all__ = ["RunFolder", "RunLine", "State"]

State: TypeAlias = Literal["running", "done", "failed", "interrupted"]

Metrics: TypeAlias = dict[str, int | float | str | None]

_CLOCKED = "scheduler_us"
"""The one metric that a clock says, so that it is never the same twice; it is kept apart from the others."""


class RunLine(NamedTuple):
    """A finished run: one line of ``runs.jsonl`` and ``timing.jsonl``."""

    policy: str
    seed: int
    workload: dict[str, Any]
    metrics: Metrics


class RunFolder:
    """One run on disk; make it with ``create`` or read it with ``open``."""

    def __init__(self, path: Path, config: Config, manifest: dict[str, Any]) -> None:
        self.path = path
        self.config = config
        self.manifest = manifest

    @classmethod
    def create(
        cls,
        root: Path,
        command: str,
        config: Config,
        *,
        argv: Sequence[str],
        label: str | None = None,
        seeds: Sequence[int] | None = None,
        now: datetime | None = None,
    ) -> RunFolder:
        """A new folder below ``root``, its state ``running``; never one that is there already.

        ``label`` names what ran (default: the policy); ``seeds`` are those of the configuration unless given.

        Raises:
            RunFolderError: ``root`` cannot be written to.
        """
        created = now or datetime.now(UTC)
        digest = config_hash(config)
        ran = tuple(seeds or experiment_seeds(config))
        trace = config.trace_path()
        name = f"{created:%Y%m%dT%H%M%SZ}-{command}-{_slug(label or config.policy)}-s{config.seed}-{digest[:6]}"
        try:
            path = _fresh(root, name)
            folder = cls(path, config, manifest(command, created, digest, ran, trace))
            (path / "schedules").mkdir()
            _write(path / "config.yaml", dump_config(config))
            _write(path / "command.txt", shlex.join(argv) + "\n")
            _write(path / "manifest.json", _json(folder.manifest))
        except OSError as error:
            raise RunFolderError(f"{root}: cannot be written to: {error.strerror}") from None
        folder.mark("running")
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """The run folder at ``path``.

        Raises:
            RunFolderError: It is missing, damaged, of another version, or its configuration was changed afterwards.
        """
        if not path.is_dir():
            raise RunFolderError(f"{path}: no such run folder")
        facts = _read_json(path / "manifest.json")
        if not isinstance(facts, dict) or facts.get("schema") != SCHEMA:
            raise RunFolderError(f"{path / 'manifest.json'}: not of a run folder of this version (schema {SCHEMA})")
        try:
            config = load_config(path / "config.yaml")
        except ConfigError as error:
            raise RunFolderError(f"{path}: its configuration cannot be read:\n{error}") from None
        if file_hash(path / "config.yaml") != facts.get("config_sha256"):
            raise RunFolderError(f"{path / 'config.yaml'}: was changed after the run (its hash is not the manifest's)")
        return cls(path, config, facts)

    @property
    def state(self) -> State:
        """How the run stands, by ``status.json``."""
        status = _read_json(self.path / "status.json")
        if not isinstance(status, dict) or status.get("state") not in get_args(State):
            raise RunFolderError(f"{self.path / 'status.json'}: its state is none of {', '.join(get_args(State))}")
        state: State = status["state"]
        return state

    def mark(self, state: State, error: str | None = None) -> None:
        """Write ``status.json`` anew."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        status = {"state": state, "pid": os.getpid(), "updated": now, "error": error}
        _write(self.path / "status.json", _json(status))

    def add(self, result: Result) -> None:
        """Append a finished run to the tables and keep its schedule."""
        number, schedule = len(self.lines()), result.schedule
        who = {"policy": result.policy, "seed": result.seed}
        for name, table in (("jobs", jobs_table(schedule)), ("tasks", runs_table(schedule))):
            rows = len(next(iter(table.values())))
            whole = {key: [value] * rows for key, value in who.items()} | table
            text = to_csv(whole)
            _append_gzip(self.path / f"{name}.csv.gz", text.partition("\n")[2] if number else text)
        schedule.log.save(self.path / "schedules" / f"{number:03d}.npy")
        facts = {"fields": JobFacts._fields, "seed": schedule.seed, "ended_s": schedule.ended_s, "jobs": schedule.jobs}
        _append_gzip(self.path / "schedules" / f"{number:03d}.json.gz", json.dumps(facts))
        metrics = result.summary.to_dict()
        timing = {
            "wall_s": result.wall_s,
            "decision_s": schedule.decision_s,
            "decisions": schedule.decisions,
            _CLOCKED: metrics.pop(_CLOCKED),
        }
        _append(self.path / "timing.jsonl", json.dumps(who | timing))
        _append(self.path / "runs.jsonl", json.dumps(who | {"workload": result.workload, "metrics": metrics}))

    def finish(self, state: State = "done", error: str | None = None) -> None:
        """Write the summary of all runs so far, and how it ended."""
        _write(self.path / "summary.json", _json(summary_of(self.lines())))
        self.mark(state, error)

    def lines(self) -> list[RunLine]:
        """The finished runs, in order.

        Raises:
            RunFolderError: They cannot be read.
        """
        runs, timing = (_read_lines(self.path / f"{name}.jsonl") for name in ("runs", "timing"))
        try:
            return [
                RunLine(run["policy"], run["seed"], run["workload"], run["metrics"] | {_CLOCKED: time[_CLOCKED]})
                for run, time in zip(runs, timing, strict=False)  # a run that was stopped may lack its last line
            ]
        except (TypeError, KeyError) as error:
            raise RunFolderError(
                f"{self.path}: runs.jsonl and timing.jsonl are not of this version ({error})"
            ) from None

    def to_dict(self) -> dict[str, Any]:
        """All that a program wants to know of the run, safe for JSON."""
        lines = self.lines()
        return {
            "run": str(self.path),
            "state": self.state,
            "summary": summary_of(lines),
            "runs": [line._asdict() for line in lines],
        }

    def schedule(self, number: int) -> Schedule:
        """The schedule of finished run ``number``.

        Raises:
            RunFolderError: It is missing or damaged.
        """
        path = self.path / "schedules" / f"{number:03d}.json.gz"
        try:
            facts = json.loads(gzip.decompress(path.read_bytes()))
            if tuple(facts["fields"]) != JobFacts._fields:
                raise RunFolderError(f"{path}: of another version (its fields are {', '.join(facts['fields'])})")
            jobs = [JobFacts._make((*fact[:-1], tuple(fact[-1]))) for fact in facts["jobs"]]
            seed, ended_s = facts["seed"], facts["ended_s"]
        except RunFolderError:
            raise
        except (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError) as error:
            raise RunFolderError(f"{path}: not a readable list of jobs ({error})") from None
        log = ScheduleLog.load(path.with_name(f"{number:03d}.npy"))
        return Schedule(scenario_of(self.config).cluster, jobs, log, seed, ended_s=ended_s)


def summary_of(lines: Iterable[RunLine]) -> dict[str, dict[str, Any]]:
    """Per policy the number of seeds and the mean of every number over them, ``None`` where any seed has none."""
    by_policy: dict[str, list[Metrics]] = {}
    for line in lines:
        by_policy.setdefault(line.policy, []).append(line.metrics)
    return {policy: {"seeds": len(rows), **_means(rows)} for policy, rows in by_policy.items()}


def _means(rows: list[Metrics]) -> dict[str, float | None]:
    names = dict.fromkeys(name for row in rows for name in row)
    means: dict[str, float | None] = {}
    for name in names:
        values = [row.get(name) for row in rows]
        if name == _CLOCKED or any(isinstance(value, str) for value in values):
            continue
        numbers = [value for value in values if isinstance(value, int | float)]
        means[name] = sum(numbers) / len(numbers) if len(numbers) == len(values) else None
    return means


def _fresh(root: Path, name: str) -> Path:
    """A new folder below ``root`` called ``name``, numbered if there is one already."""
    root.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        path = root / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
        else:
            return path


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-")[:40] or "run"


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path}: not readable as JSON ({error})") from None


def _read_lines(path: Path) -> list[Any]:
    if not path.exists():
        return []
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path}: not readable as lines of JSON ({error})") from None


def _write(path: Path, text: str) -> None:
    """Replace the file as a whole: a reader sees the old text or the new."""
    with replaced(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _append(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def _append_gzip(path: Path, text: str) -> None:
    """Append a gzip member without name and time, so that equal texts give equal bytes."""
    with path.open("ab") as file, gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
        packed.write(text.encode())
