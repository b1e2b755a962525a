"""Run folders: everything a run was made of and what came out, in plain files.

    results/20261120T193000Z-eval-sjf-s0-3fa9c1/
    ├── config.yaml       the whole configuration; `dagsim eval --config` of it writes the same tables, byte for byte
    ├── command.txt       the command that was given
    ├── manifest.json     versions, commit, platform, seeds, hashes of configuration and trace, engine
    ├── status.json       running, done, failed or interrupted; replaced as a whole, never half written
    ├── lock             held by the process that writes
    ├── runs.jsonl        one line per policy and seed: every metric, and where its rows in the tables end
    ├── timing.jsonl      the same lines with what the clock on the wall says
    ├── summary.json      per policy the mean of every metric over the seeds
    ├── comparison.csv    of several policies: ratios to the first, intervals, verdicts
    ├── failures.jsonl    of several policies: those that failed, and why
    ├── jobs.csv.gz       one row per policy, seed and job
    ├── tasks.csv.gz      one row per policy, seed and run of a task
    ├── schedules/        the schedule of each policy and seed: NNN.npy (its log), NNN.json.gz (its jobs);
    │                    of a large run NNN.npz (both, in columns), and it has no rows in the two tables
    └── plots/

A run that was stopped, in whatever way, keeps what was finished, and ``--resume`` goes on with it to the bytes of one
that was not (what a clock says aside). The line in ``runs.jsonl`` is written last: see ``journal``.

The journal of a run folder: which runs are finished, and where the rows of each end.

``runs.jsonl`` gets its line when everything else of a run is written: a run is listed or it is not. The line says how
long each table is with its rows (``ends``). So, whenever the process is killed, what is listed is complete, and what a
later writer finds behind it is cut off.

Sweep folders: run folders of many cells.

    results/sweep-NAME/
    ├── sweep.yaml        the grid, with every value and its label; `dagsim sweep` of the folder goes on with it
    ├── config.yaml       the base configuration, with what is set for all cells
    ├── command.txt, manifest.json, status.json, lock    as in every run folder
    ├── cells/ID.json     a finished cell: its place on each axis, policy, seed, workload, every metric
    ├── cells/ID.*        what else is kept of it: jobs.csv.gz, or with `keep: log` also tasks.csv.gz and its schedule
    ├── progress.jsonl    what happened when, one line each: for whoever watches; times of the clock are only here
    ├── results.csv       once it ended: a row for each cell, sorted by ID
    ├── runs.jsonl, timing.jsonl, summary.json           once it ended: the cells as the runs of a run folder
    └── plots/

Only one process writes. ``cells/ID.json`` is there whole (written, synced, renamed) or not at all, and nothing of it
depends on the order in which cells ended, on where they ran or on a clock. So a sweep that was stopped, in whatever
way, is started again to the bytes of one that was not (``progress.jsonl`` and ``timing.jsonl`` aside).

The manifest of a run: versions, commit, platform, and the hash of its trace."""

from __future__ import annotations

import errno
import gzip
import json
import os
import platform
import re
import shlex
import subprocess
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shutil import rmtree
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import dagsim
from dagsim.config import yaml
from dagsim.config.registered import Foreign
from dagsim.config.schema import Config, config_hash, dump_config, load_config
from dagsim.errors import CodeNotAllowed, ConfigError, RunFolderError
from dagsim.experiment.executors import CellFailure, CellRecord
from dagsim.experiment.kept_files import CLOCKED, FACTS, TABLES, RunRecord, jobs_from, run_record, unpacked_schedule
from dagsim.experiment.plan import Cell, Sweep, read_sweep
from dagsim.experiment.provenance import changes, provenance
from dagsim.experiment.scenario import experiment_seeds, scenario_of, workload_label
from dagsim.experiment.simulate import Result
from dagsim.files import Lock, append, cut, file_hash, replaced
from dagsim.metrics import to_csv
from dagsim.model.cluster import Cluster
from dagsim.model.log import Schedule, ScheduleLog
from dagsim.own_code import allowed
from dagsim.systems.cluster.engine import EngineUse

__all__ = [
    "READABLE",
    "SCHEMA",
    "CellLine",
    "Failure",
    "Journal",
    "Metrics",
    "RunFolder",
    "RunLine",
    "State",
    "SweepFolder",
    "code_commit",
    "is_sweep",
    "manifest",
    "recorded_code",
]


_LONGEST_NAME = 80

State: TypeAlias = Literal["running", "done", "failed", "interrupted"]


def recorded_code(path: Path) -> dict[str, str]:
    """SHA-256 of the source of each name of code outside dagsim that the run folder ``path`` used; see
    ``own_code.Allowed``.

    Raises:
        RunFolderError: Its manifest cannot be read.
    """
    facts = _read_json(path / "manifest.json")
    return _recorded_code(facts if isinstance(facts, dict) else {})


def _recorded_code(facts: Mapping[str, Any]) -> dict[str, str]:
    code = facts.get("code")
    if not isinstance(code, dict):
        return {}
    return {name: str(fact.get("sha256")) for name, fact in code.items() if isinstance(fact, dict)}


class RunFolder:
    """One run on disk; make it with ``create`` or read it with ``open``."""

    def __init__(self, path: Path, config: Config, manifest: dict[str, Any]) -> None:
        self.path = path
        self.config = config
        self.manifest = manifest
        self.journal = Journal(path)
        self._lock = Lock(path / "lock")

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
        policies: Sequence[str] = (),
        plan: Mapping[str, Any] | None = None,
        name: str | None = None,
        now: datetime | None = None,
    ) -> RunFolder:
        """A new folder below ``root``, its state ``running``; never one that is there already.

        ``label`` says what ran (default: the policy), ``name`` is what the user calls it; ``seeds`` are those of the
        configuration unless given.
        ``policies`` and ``plan`` (whatever else the command must know again) are kept for ``--resume``.

        Raises:
            RunFolderError: ``root`` cannot be written to, or ``name`` is no line of text.
        """
        _check_name(name)
        created = now or datetime.now(UTC)
        digest = config_hash(config)
        ran = tuple(seeds or experiment_seeds(config))
        what = "-".join(map(_slug, filter(None, (label or config.policy, name))))
        called = f"{created:%Y%m%dT%H%M%SZ}-{command}-{what}-s{config.seed}-{digest[:6]}"
        unfinished = root / f".{called}.{os.getpid()}.part"
        facts = manifest(command, created, config, ran, policies)
        facts |= {"policies": list(policies), "plan": dict(plan or {})}
        if name is not None:
            facts["name"] = name
        folder = cls(unfinished, config, facts)
        try:
            (unfinished / "schedules").mkdir(parents=True)
            folder.claim()
            _write(unfinished / "config.yaml", dump_config(config))
            _write(unfinished / "command.txt", shlex.join(argv) + "\n")
            _write(unfinished / "manifest.json", _json(facts))
            folder.mark("running")
            folder.path = _renamed(unfinished, root / called)
        except OSError as error:
            with suppress(OSError):
                rmtree(unfinished)
            raise RunFolderError(f"{root}: cannot be written to: {error.strerror}") from None
        folder.journal = Journal(folder.path)
        folder._lock.path = folder.path / "lock"
        return folder

    @classmethod
    def claimed(
        cls,
        root: Path,
        name: str,
        command: str,
        config: Config,
        *,
        argv: Sequence[str],
        seeds: Sequence[int],
        policies: Sequence[str],
        specs: Sequence[str],
        plan: Mapping[str, Any],
    ) -> RunFolder:
        """The folder called ``name`` below ``root``, new or as ``command`` left it, to write to; its state is
        ``running``. What summed it up before is gone.

        Raises:
            RunFolderError: It is of another command, or another process writes to it.
            OSError: It cannot be written.
        """
        path = root / _slug(name, 80)
        before = _read_json(path / "manifest.json") if (path / "manifest.json").exists() else None
        if path.exists() and before is None and any(path.iterdir()) and not (path / "lock").exists():
            raise RunFolderError(f"{path}: is there already, and is no run folder; --out or --name names another place")
        if before is not None and before.get("command") != command:
            raise RunFolderError(f"{path}: is of dagsim {before.get('command')}; --name or --out names another place")
        path.mkdir(parents=True, exist_ok=True)
        created = datetime.now(UTC)
        facts = manifest(command, created, config, tuple(seeds), specs)
        facts |= {"policies": list(policies), "plan": dict(plan)}
        facts["created"] = facts["created"] if before is None else before["created"]
        folder = cls(path, config, facts)
        folder.claim()
        for old in ("runs.jsonl", "timing.jsonl", "summary.json"):
            (path / old).unlink(missing_ok=True)
        _write(path / "config.yaml", dump_config(config))
        _write(path / "command.txt", shlex.join(argv) + "\n")
        folder.mark("running")
        _write(path / "manifest.json", _json(facts))
        return folder

    @classmethod
    def open(cls, path: Path, *, own: bool = False) -> RunFolder:
        """The run folder at ``path``. Where its process was killed, what that left unfinished is cut off.

        The folder is data: code outside dagsim that its configuration names is imported only with ``own=True``, which
        it takes to run the experiment again.

        Raises:
            RunFolderError: It is missing, damaged, of another version, or its configuration was changed afterwards.
            CodeNotAllowed: It names code that this process may not import.
        """
        folder = cls.read(path, own=own)
        folder._tidy()
        return folder

    @classmethod
    def read(cls, path: Path, *, own: bool = False) -> RunFolder:
        """The run folder at ``path`` as it stands: nothing is written, and nobody is kept from writing.

        Raises:
            RunFolderError: As ``open``.
        """
        if not path.is_dir():
            raise RunFolderError(f"{path}: no such run folder")
        facts = _read_json(path / "manifest.json")
        if not isinstance(facts, dict) or facts.get("schema") not in READABLE:
            raise RunFolderError(
                f"{path / 'manifest.json'}: not of a run folder that this version reads (schema "
                f"{' or '.join(map(str, READABLE))}); run it anew: the command stands in command.txt"
            )
        names = allowed()
        own = own or (names is not None and names.everything)
        if own and names is not None:
            names.trust_recorded(path, _recorded_code(facts))
        file = path / "config.yaml"
        if file.is_file() and file_hash(file) != facts.get("config_sha256"):  # before any name in it is looked up
            raise RunFolderError(f"{file}: was changed after the run (its hash is not the manifest's)")
        try:
            config = load_config(file, own=own)
        except ConfigError as error:
            raise RunFolderError(f"{path}: its configuration cannot be read:\n{error}") from None
        return cls(path, config, facts)

    def _cluster(self) -> Cluster:
        """The machines of the experiment.

        Raises:
            CodeNotAllowed: Its system is code outside dagsim, which was not imported.
        """
        if isinstance(self.config.system, Foreign):
            raise CodeNotAllowed(
                f"{self.path}: its system {self.config.system.kind!r} is code outside dagsim, which was not imported; "
                "--allow-code imports it (docs/security.md)"
            )
        return scenario_of(self.config).cluster

    @property
    def name(self) -> str | None:
        """The name that the user gave it."""
        return self.manifest.get("name")

    @property
    def label(self) -> str:
        """The name that the user gave it, if any, and its workload."""
        workload = workload_label(self.config)
        return workload if self.name is None else f"{self.name}: {workload}"

    @property
    def state(self) -> State:
        """The state of the run, by ``status.json``."""
        status = _read_json(self.path / "status.json")
        if not isinstance(status, dict) or status.get("state") not in get_args(State):
            raise RunFolderError(f"{self.path / 'status.json'}: its state is none of {', '.join(get_args(State))}")
        state: State = status["state"]
        return state

    @property
    def dead(self) -> bool:
        """It says that it runs, but nobody holds its lock: its process was killed."""
        return self.state == "running" and self._lock.is_free()

    def claim(self) -> None:
        """Become the only writer of the folder, until it is marked as ended or this process is gone.

        Raises:
            RunFolderError: Another process writes to it.
            OSError: It cannot be written to.
        """
        if not self._lock.claim():
            pid = None
            with suppress(RunFolderError, AttributeError):
                pid = _read_json(self.path / "status.json").get("pid")
            raise RunFolderError(f"{self.path}: another process ({pid}) is writing to it; wait until it has ended")

    def resume(self) -> None:
        """Become its writer again, and cut off what the last one left unfinished.

        Raises:
            RunFolderError: Another process writes to it, it is of an older dagsim, its trace has changed since, or it
                cannot be written to.
        """
        if self.manifest["schema"] != SCHEMA or not self.manifest.get("policies"):
            raise RunFolderError(
                f"{self.path}: cannot be resumed: its manifest does not say which policies were to run (made by an "
                "older dagsim, or by a command that has no --resume); run it anew: the command stands in command.txt"
            )
        if changed := changes(self.manifest):
            raise RunFolderError(
                f"{self.path}: cannot be resumed: {'; '.join(changed)}. Bring the old file back, or start a new run"
            )
        self.check_trace()
        try:
            self.claim()
            self.journal.mend()
            self.journal.forget_failures()
            self.mark("running")
        except OSError as error:
            raise _unwritable(self.path, error) from None

    def check_trace(self) -> None:
        """Refuse to go on with other jobs.

        Raises:
            RunFolderError: Its trace is gone or has changed since it was begun.
        """
        trace = self.manifest["trace"]
        if trace is not None and (
            not Path(trace["path"]).exists() or file_hash(Path(trace["path"])) != trace["sha256"]
        ):
            raise RunFolderError(f"{self.path}: cannot be resumed: its trace {trace['path']} is gone or has changed")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Its writer for as long as the block runs; where that is stopped or fails, the state says so.

        Raises:
            RunFolderError: Another process writes to it, or it cannot be written to.
        """
        try:
            self.mark("running")
            yield
        except KeyboardInterrupt:
            self._give_up("interrupted")
            raise
        except OSError as error:
            failure = _unwritable(self.path, error)
            self._give_up("failed", str(failure))
            raise failure from None
        except Exception as error:
            if self._lock.held:
                self._give_up("failed", f"{type(error).__name__}: {error}")
            raise

    def _give_up(self, state: State, error: str | None = None) -> None:
        with suppress(OSError):
            self.mark(state, error)
        self._lock.release()

    def mark(self, state: State, error: str | None = None) -> None:
        """Write ``status.json`` anew; ``running`` claims the folder, any other state gives it back.

        Raises:
            RunFolderError: Another process writes to it.
            OSError: It cannot be written.
        """
        if state == "running":
            self.claim()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        text = _json({"state": state, "pid": os.getpid(), "updated": now, "error": error})
        path = self.path / "status.json"
        try:
            _write(path, text)
        except OSError:
            if not path.exists():
                raise
            _overwrite(path, text)
        if state != "running":
            self._lock.release()

    def add(self, result: Result | RunRecord) -> None:
        """Append a finished run to the tables and keep its schedule: all of it, or nothing.

        Raises:
            RunFolderError: It cannot be written.
        """
        record = result if isinstance(result, RunRecord) else run_record(result)
        try:
            self.journal.add(record)
        except OSError as error:
            raise _unwritable(self.path, error) from None

    def fail(self, failure: Failure) -> None:
        """Note a policy that failed.

        Raises:
            RunFolderError: It cannot be written.
        """
        try:
            self.journal.fail(failure)
        except OSError as error:
            raise _unwritable(self.path, error) from None

    def finish(self, state: State = "done", error: str | None = None) -> None:
        """Write the summary of all runs so far, and how it ended. Of what did not go well, as much as can be written.

        Raises:
            RunFolderError: It went well, and cannot be written.
        """
        try:
            _write(self.path / "summary.json", _json(summary_of(self.lines())))
            self._note_engine()
            self.mark(state, error)
        except (OSError, RunFolderError) as failure:
            if state == "done":
                text = f"{self.path}: cannot be written: {getattr(failure, 'strerror', None) or failure}"
                self.finish("failed", text)
                raise RunFolderError(text) from None
            self._give_up(state, error)

    def _note_engine(self) -> None:
        """Say in the manifest which engine was used, and why."""
        used = self.journal.engines()
        if used:
            self.manifest["engine"] = engine_of(used)
            _write(self.path / "manifest.json", _json(self.manifest))

    def lines(self) -> list[RunLine]:
        """The finished runs, in order.

        Raises:
            RunFolderError: They cannot be read.
        """
        return self.journal.lines()

    def failures(self) -> list[Failure]:
        """The policies that failed.

        Raises:
            RunFolderError: They cannot be read.
        """
        return self.journal.failures()

    def whole(self) -> list[RunLine]:
        """The finished runs of the policies that did not fail: what can be compared.

        Raises:
            RunFolderError: They cannot be read.
        """
        failed = {failure.policy for failure in self.failures()}
        return [line for line in self.lines() if line.policy not in failed]

    def _tidy(self) -> None:
        """Cut off what a process that was killed left unfinished; its state is then ``interrupted``."""
        with suppress(OSError, RunFolderError):  # a folder that is damaged or can only be read stays as it is
            if self.manifest["schema"] == SCHEMA and self.state == "running" and self._lock.claim():
                pid = _read_json(self.path / "status.json").get("pid")
                self.journal.mend()
                self.mark("interrupted", f"its process ({pid}) ended without a word")
        self._lock.release()

    def to_dict(self) -> dict[str, Any]:
        """All that a program wants to know of the run, safe for JSON."""
        lines = self.lines()
        return {
            "run": str(self.path),
            "state": self.state,
            "summary": summary_of(lines),
            **({"failures": [failure._asdict() for failure in failures]} if (failures := self.failures()) else {}),
            "runs": [line._asdict() for line in lines],
        }

    def schedule(self, number: int) -> Schedule:
        """The schedule of finished run ``number``.

        Raises:
            RunFolderError: It is missing or damaged.
        """
        path = self.path / "schedules" / f"{number:03d}.json.gz"
        if (columns := path.with_name(f"{number:03d}.npz")).exists():
            return unpacked_schedule(columns, self._cluster())
        try:
            facts = json.loads(gzip.decompress(path.read_bytes()))
            if tuple(facts["fields"]) != FACTS:
                raise RunFolderError(f"{path}: of another version (its fields are {', '.join(facts['fields'])})")
            jobs = jobs_from(facts)
            seed, ended_s = facts["seed"], facts["ended_s"]
        except RunFolderError:
            raise
        except (OSError, EOFError, zlib.error, ValueError, TypeError, LookupError) as error:
            raise RunFolderError(f"{path}: not a readable list of jobs ({error})") from None
        log = ScheduleLog.load(path.with_name(f"{number:03d}.npy"))
        return Schedule(self._cluster(), jobs, log, seed, ended_s=ended_s)


def engine_of(used: Mapping[str, EngineUse]) -> dict[str, str]:
    """The engines by policy as one entry of a manifest: what was asked for, what was used, and why."""
    asked = next(iter(used.values())).asked
    reasons: dict[tuple[str, str], list[str]] = {}
    for policy, use in used.items():
        reasons.setdefault((use.used, use.reason), []).append(policy)
    if len(reasons) == 1:
        ((engine, reason),) = reasons
        return {"asked": asked, "used": engine, "reason": reason}
    told = [f"{engine} for {', '.join(policies)}: {reason}" for (engine, reason), policies in reasons.items()]
    return {
        "asked": asked,
        "used": ", ".join(dict.fromkeys(each.used for each in used.values())),
        "reason": "; ".join(told),
    }


def summary_of(lines: Iterable[RunLine]) -> dict[str, dict[str, Any]]:
    """Per policy the number of seeds and the mean of every number. The mean is ``None`` where any seed has none."""
    by_policy: dict[str, list[Metrics]] = {}
    for line in lines:
        by_policy.setdefault(line.policy, []).append(line.metrics)
    return {policy: {"seeds": len(rows), **_means(rows)} for policy, rows in by_policy.items()}


def _means(rows: list[Metrics]) -> dict[str, float | None]:
    names = dict.fromkeys(name for row in rows for name in row)
    means: dict[str, float | None] = {}
    for name in names:
        values = [row.get(name) for row in rows]
        if name == CLOCKED or any(isinstance(value, str) for value in values):
            continue
        numbers = [value for value in values if isinstance(value, int | float)]
        means[name] = sum(numbers) / len(numbers) if len(numbers) == len(values) else None
    return means


def _renamed(folder: Path, wanted: Path) -> Path:
    """Give the folder the name that is ``wanted``, numbered if there is such a folder already; returns its new path."""
    number = 1
    while True:
        path = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            if not path.exists():
                folder.rename(path)
                return path
        except OSError as error:  # made by somebody else meanwhile
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        number += 1


def _check_name(name: str | None) -> None:
    if name is not None and not (name.strip() and name.isprintable() and len(name) <= _LONGEST_NAME):
        raise RunFolderError(f"--name {name!r}: expected a line of text of at most {_LONGEST_NAME} letters")


def _slug(text: str, most: int = 40) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")[:most] or "run"


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path}: not readable as JSON ({error})") from None


def _write(path: Path, text: str, *, durable: bool = False) -> None:
    """Replace the file as a whole: a reader sees the old text or the new."""
    with replaced(path, durable=durable) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _overwrite(path: Path, text: str) -> None:
    """Write over what is there: a full disk has no room for a second file."""
    with path.open("r+b") as file:
        file.write(text.encode())
        file.truncate()


def _unwritable(path: Path, error: OSError) -> RunFolderError:
    return RunFolderError(f"{error.filename or path}: cannot be written: {error.strerror or error}")


Metrics: TypeAlias = dict[str, int | float | str | None]

_RUNS, _TIMING, _FAILURES = "runs.jsonl", "timing.jsonl", "failures.jsonl"


class RunLine(NamedTuple):
    """A finished run: one line of ``runs.jsonl`` and ``timing.jsonl``."""

    policy: str
    seed: int
    workload: dict[str, Any]
    metrics: Metrics


class Failure(NamedTuple):
    """A policy that failed: one line of ``failures.jsonl``. Its further runs are left out."""

    policy: str
    seed: int
    error: str


class Journal:
    """The runs in the folder ``path``; one process writes, any may read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ends: dict[str, int] | None = None
        self._count = 0

    def lines(self) -> list[RunLine]:
        """The finished runs, in order; half a line at the end is none.

        Raises:
            RunFolderError: They cannot be read.
        """
        runs, timing = self._read(_RUNS), self._read(_TIMING)
        try:
            return [
                RunLine(run["policy"], run["seed"], run["workload"], run["metrics"] | {CLOCKED: time[CLOCKED]})
                for run, time in zip(runs, timing, strict=False)  # a run that was stopped may lack its last line
            ]
        except (TypeError, KeyError) as error:
            raise RunFolderError(
                f"{self.path}: runs.jsonl and timing.jsonl are not of this version ({error})"
            ) from None

    def engines(self) -> dict[str, EngineUse]:
        """The engine that each policy had in its first run; nothing of systems that have one only.

        Raises:
            RunFolderError: They cannot be read.
        """
        used: dict[str, EngineUse] = {}
        for line in self._read(_TIMING):
            if "engine" in line:
                used.setdefault(line["policy"], EngineUse(**line["engine"]))
        return used

    def failures(self) -> list[Failure]:
        """The policies that failed.

        Raises:
            RunFolderError: They cannot be read.
        """
        try:
            return [Failure(each["policy"], each["seed"], each["error"]) for each in self._read(_FAILURES)]
        except (TypeError, KeyError) as error:
            raise RunFolderError(f"{self.path / _FAILURES}: not of this version ({error})") from None

    def add(self, record: RunRecord) -> None:
        """Write a finished run, its line last.

        Raises:
            OSError: It cannot be written; nothing of it is kept.
        """
        ends = self._written()
        first = self._count == 0
        stem = self.path / "schedules" / f"{self._count:03d}"
        after = dict(ends)
        try:
            for ending, data in record.files:
                stem.with_suffix(f".{ending}").write_bytes(data)
            for name, head, rows in zip(TABLES, record.heads, record.rows, strict=True):
                after[name] = append(self.path / name, head + rows if first else rows, ends[name])
            after[_TIMING] = append(self.path / _TIMING, _line(record.timing), ends[_TIMING])
            line = _line(record.line | {"ends": {name: after[name] for name in TABLES}})
            after[_RUNS] = append(self.path / _RUNS, line, ends[_RUNS])
        except BaseException:
            with suppress(OSError, RunFolderError):
                self.mend()
            raise
        self._ends, self._count = after, self._count + 1

    def fail(self, failure: Failure) -> None:
        """Note a policy that failed.

        Raises:
            OSError: It cannot be written.
        """
        path = self.path / _FAILURES
        append(path, _line(failure._asdict()), path.stat().st_size if path.exists() else 0)

    def forget_failures(self) -> None:
        """Let every policy try again.

        Raises:
            OSError: It cannot be written.
        """
        (self.path / _FAILURES).unlink(missing_ok=True)

    def mend(self) -> None:
        """Cut off whatever lies behind the last finished run.

        Raises:
            RunFolderError: Something before it is missing.
            OSError: It cannot be written.
        """
        self._ends, self._count = None, 0
        ends = self._written()
        try:
            for name, size in ends.items():
                cut(self.path / name, size)
        except OSError as error:
            raise RunFolderError(f"{error.filename}: {error.strerror}; the run folder is damaged") from None
        for file in self.path.glob(".*.part"):
            file.unlink(missing_ok=True)
        for file in (self.path / "schedules").glob("*"):
            number = file.name.partition(".")[0]
            if number.isdigit() and int(number) >= self._count:
                file.unlink(missing_ok=True)

    def _written(self) -> dict[str, int]:
        """The length of each file with the last finished run."""
        if self._ends is None:
            runs, timing = (_whole_lines(self.path / name) for name in (_RUNS, _TIMING))
            runs = runs[: len(timing)]
            ends = json.loads(runs[-1]).get("ends") if runs else dict.fromkeys(TABLES, 0)
            if not isinstance(ends, dict) or set(ends) != set(TABLES):
                raise RunFolderError(f"{self.path / _RUNS}: of an older dagsim; nothing can be added to it")
            self._count = len(runs)
            self._ends = ends | {_TIMING: sum(map(len, timing[: len(runs)])), _RUNS: sum(map(len, runs))}
        return self._ends

    def _read(self, name: str) -> Iterable[Any]:
        path = self.path / name
        try:
            return [json.loads(line) for line in _whole_lines(path)]
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{path}: not readable as lines of JSON ({error})") from None


def _whole_lines(path: Path) -> list[bytes]:
    """The lines with their ends; without the last if it has none: whoever wrote it was stopped."""
    if not path.exists():
        return []
    lines = path.read_bytes().splitlines(keepends=True)
    return lines if not lines or lines[-1].endswith(b"\n") else lines[:-1]


def _line(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


_SWEEP, _PROGRESS, _RESULTS = "sweep.yaml", "progress.jsonl", "results.csv"


class CellLine(NamedTuple):
    """A finished cell, as ``cells/ID.json`` holds it."""

    id: str
    at: dict[str, str]
    """The label of its value on each axis."""
    policy: str
    seed: int
    workload: dict[str, Any]
    metrics: Metrics


def is_sweep(path: Path) -> bool:
    """The run folder at ``path`` is that of a sweep."""
    return (path / _SWEEP).is_file() and (path / "manifest.json").is_file()


class SweepFolder:
    """The folder of one sweep; ``claim`` makes or takes it to write, ``open`` reads it."""

    def __init__(self, run: RunFolder, sweep: Sweep) -> None:
        self.run = run
        self.path = run.path
        self.sweep = sweep

    @classmethod
    def claim(
        cls, root: Path, sweep: Sweep, cells: Sequence[Cell], *, argv: Sequence[str], command: str = "sweep"
    ) -> SweepFolder:
        """The folder ``sweep-NAME`` below ``root``, new or as it was left, to write to. Of another ``command`` it is
        ``COMMAND-NAME``.

        Raises:
            RunFolderError: Another process writes to it, it is of something else, or it cannot be written.
            ConfigError: The base configuration cannot be.
        """
        config, labels = sweep.config(), list(dict.fromkeys(cell.label for cell in cells))
        seeds = sorted({cell.seed for cell in cells})
        described = {"name": sweep.name, "cells": len(cells)}
        name = f"{command}-{sweep.name}"
        try:
            run = RunFolder.claimed(
                root,
                name,
                command,
                config,
                argv=argv,
                seeds=seeds,
                policies=labels,
                specs=list(dict.fromkeys(cell.policy for cell in cells)),
                plan={"sweep": described},
            )
            folder = cls(run, sweep)
            (folder.path / "cells").mkdir(exist_ok=True)
            for part in (folder.path / "cells").glob(".*.part"):
                part.unlink()
            _write(folder.path / _SWEEP, yaml.dump(sweep.to_dict("config.yaml")))
            folder._trim()
        except OSError as error:
            raise RunFolderError(f"{error.filename or root}: cannot be written: {error.strerror or error}") from None
        return folder

    @classmethod
    def open(cls, path: Path) -> SweepFolder:
        """The sweep folder at ``path``.

        Raises:
            RunFolderError: It is missing, damaged or that of another command.
            ConfigError: Its ``sweep.yaml`` cannot be read.
        """
        return cls.of(RunFolder.open(path))

    @classmethod
    def of(cls, run: RunFolder) -> SweepFolder:
        """The sweep in a run folder that was opened, or is only read.

        Raises:
            RunFolderError: It is that of another command.
            ConfigError: Its ``sweep.yaml`` cannot be read.
        """
        if not is_sweep(run.path):
            raise RunFolderError(f"{run.path}: is no folder of a sweep: there is no {_SWEEP} in it")
        return cls(run, read_sweep(run.path / _SWEEP, run.manifest["plan"]["sweep"]["name"]))

    def done(self, cells: Iterable[Cell]) -> dict[str, CellLine]:
        """Those of the cells that are finished, by id.

        Raises:
            RunFolderError: One of them cannot be read.
        """
        return {cell.id: line for cell in cells if (line := self._line(cell.id)) is not None}

    def lines(self) -> list[CellLine]:
        """All finished cells in the folder, by id, also those that the grid no longer names.

        Raises:
            RunFolderError: One of them cannot be read.
        """
        ids = sorted(path.stem for path in (self.path / "cells").glob("*.json"))
        return [line for id_ in ids if (line := self._line(id_)) is not None]

    def keep(self, cell: Cell, record: CellRecord) -> None:
        """Keep a finished cell, all of it or nothing.

        Raises:
            RunFolderError: It cannot be written.
        """
        line = {"id": cell.id, "at": dict(cell.at), **record.line}
        try:
            for ending, content in record.files.items():
                with replaced(self.path / "cells" / f"{cell.id}.{ending}", durable=True) as temporary:
                    temporary.write_bytes(content)
            _write(self.path / "cells" / f"{cell.id}.json", json.dumps(line) + "\n", durable=True)
            self.tell("done", id=cell.id, label=cell.label, seed=cell.seed, **_clocked(record.timing))
        except OSError as error:
            raise RunFolderError(f"{error.filename or self.path}: cannot be written: {error.strerror}") from None

    def fail(self, cell: Cell, failure: CellFailure) -> None:
        """Note a cell that failed.

        Raises:
            RunFolderError: It cannot be written.
        """
        try:
            self.tell("failed", id=cell.id, label=cell.label, seed=cell.seed, error=failure.error)
        except OSError as error:
            raise RunFolderError(f"{self.path}: cannot be written: {error.strerror}") from None

    def tell(self, event: str, **facts: Any) -> None:
        """Append a line to ``progress.jsonl``.

        Raises:
            OSError: It cannot be written.
        """
        path = self.path / _PROGRESS
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"event": event, "time": time, **facts}).encode() + b"\n"
        append(path, line, path.stat().st_size if path.exists() else 0)

    def finish(self, cells: Sequence[Cell], state: str, error: str | None = None) -> dict[str, CellLine]:
        """Write what sums up the finished ones of the cells, and how it ended; returns them by id.

        Raises:
            RunFolderError: It cannot be written.
        """
        done = self.done(cells)
        lines = [(cell, done[cell.id]) for cell in cells if cell.id in done]
        times = self._times()
        ends = dict.fromkeys(TABLES, 0)  # it has no tables: nothing of them is to be cut off
        runs = [
            {"policy": cell.label, "seed": cell.seed, "workload": line.workload, "metrics": line.metrics, "ends": ends}
            for cell, line in lines
        ]
        timing = [
            {"policy": cell.label, "seed": cell.seed, "wall_s": None, CLOCKED: None, **times.get(cell.id, {})}
            for cell, _ in lines
        ]
        try:
            _write(self.path / _RESULTS, _table([line for _, line in lines]))
            _write(self.path / "timing.jsonl", "".join(json.dumps(each) + "\n" for each in timing))
            _write(self.path / "runs.jsonl", "".join(json.dumps(each) + "\n" for each in runs))
            self.tell("ended", state=state, done=len(lines), cells=len(cells))
        except OSError as failure:
            raise RunFolderError(f"{failure.filename}: cannot be written: {failure.strerror}") from None
        finally:
            self.run.finish(state, error)  # type: ignore[arg-type]
        return done

    def progress(self) -> list[dict[str, Any]]:
        """The lines of ``progress.jsonl``; half a line at the end is none.

        Raises:
            RunFolderError: It cannot be read.
        """
        path = self.path / _PROGRESS
        if not path.exists():
            return []
        try:
            return [json.loads(line) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{path}: not readable as lines of JSON ({error})") from None

    def _line(self, id_: str) -> CellLine | None:
        path = self.path / "cells" / f"{id_}.json"
        if not path.exists():
            return None
        try:
            given = json.loads(path.read_text(encoding="utf-8"))
            return CellLine(**{name: given[name] for name in CellLine._fields})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise RunFolderError(f"{path}: not readable as a cell ({error}); delete it, and it is run again") from None

    def _times(self) -> dict[str, dict[str, Any]]:
        """By the id of a cell what the clock said of it."""
        return {
            each["id"]: {name: each.get(name) for name in ("wall_s", CLOCKED)}
            for each in self.progress()
            if each.get("event") == "done"
        }

    def _trim(self) -> None:
        """Cut off half a line, which a process that was killed left behind."""
        path = self.path / _PROGRESS
        if path.exists():
            whole = path.read_bytes().rpartition(b"\n")
            append(path, b"", len(whole[0]) + len(whole[1]))


def run_lines(cells: Sequence[Cell], done: Mapping[str, CellLine]) -> list[RunLine]:
    """The finished cells as runs, called as their labels."""
    return [
        RunLine(cell.label, cell.seed, done[cell.id].workload, done[cell.id].metrics)
        for cell in cells
        if cell.id in done
    ]


def _clocked(timing: Mapping[str, Any]) -> dict[str, Any]:
    return {"wall_s": round(timing["wall_s"], 6), CLOCKED: timing[CLOCKED]}


def _table(lines: Sequence[CellLine]) -> str:
    """A row for each cell, sorted by id; a metric that a cell lacks is empty."""
    ordered = sorted(lines, key=lambda line: line.id)
    keys = list(dict.fromkeys(key for line in ordered for key in line.at))
    names = list(dict.fromkeys(name for line in ordered for name in line.metrics))
    table: dict[str, list[Any]] = {"id": [line.id for line in ordered]}
    table |= {key: [line.at.get(key) for line in ordered] for key in keys}
    table |= {"policy": [line.policy for line in ordered], "seed": [line.seed for line in ordered]}
    return to_csv(table | {name: [line.metrics.get(name) for line in ordered] for name in names})


SCHEMA = 2
"""The layout of run folders; 2 says where the rows of each run end, and which policies were to run."""

READABLE = (1, SCHEMA)
"""The layouts that can be read."""

_PACKAGES = ("numpy", "pandas", "pydantic", "scipy", "simpy", "torch", "gymnasium")


def manifest(
    command: str, created: datetime, config: Config, seeds: tuple[int, ...], policies: Iterable[str]
) -> dict[str, Any]:
    """The manifest of a run, as plain values for JSON.

    Raises:
        ConfigError: A file that decides the run is missing.
    """
    files = provenance(config, policies)
    trace = next(iter(files["traces"].values()), None)
    return {
        "schema": SCHEMA,
        "command": command,
        "created": created.isoformat(timespec="seconds"),
        "seeds": list(seeds),
        "config_sha256": config_hash(config),
        "trace": None if trace is None else {"path": trace["file"], "sha256": trace["sha256"]},
        **files,
        "git_commit": _commit(Path(__file__).parents[2]),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {"dagsim": dagsim.__version__}  # not by its distribution, whose name is another
        | {name: number for name in _PACKAGES if (number := _version(name))},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit(checkout: Path) -> str | None:
    """The commit that dagsim runs from, ``-dirty`` if files differ from it; ``None`` if it is no checkout."""
    return _git(checkout, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*") or None


def code_commit(checkout: Path) -> str | None:
    """The same, but ``-dirty`` only if the code differs: a script that makes a table writes into ``results/``."""
    commit = _git(checkout, "rev-parse", "HEAD")
    changed = _git(checkout, "status", "--porcelain", "--untracked-files=no", "--", "dagsim", "scripts", "configs")
    return commit and f"{commit}{'-dirty' if changed else ''}"


def _git(checkout: Path, *arguments: str) -> str | None:
    """The answer of git; ``None`` where it has none."""
    if not (checkout / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
