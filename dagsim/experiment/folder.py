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
"""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
import shlex
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from typing import Any, Literal, TypeAlias, get_args

from dagsim.config.schema import Config, config_hash, dump_config, load_config
from dagsim.errors import ConfigError, RunFolderError
from dagsim.experiment.columns import unpacked_schedule
from dagsim.experiment.facts import FACTS, jobs_from
from dagsim.experiment.journal import Failure, Journal, Metrics, RunLine
from dagsim.experiment.manifest import READABLE, SCHEMA, file_hash, manifest
from dagsim.experiment.record import CLOCKED, RunRecord, run_record
from dagsim.experiment.run import Result, experiment_seeds
from dagsim.experiment.scenario import scenario_of
from dagsim.files import Lock, replaced
from dagsim.model.log import Schedule, ScheduleLog
from dagsim.systems.cluster.engine import EngineUse

__all__ = ["RunFolder", "RunLine", "State"]

_LONGEST_NAME = 80

State: TypeAlias = Literal["running", "done", "failed", "interrupted"]


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
        trace = config.trace_path()
        what = "-".join(map(_slug, filter(None, (label or config.policy, name))))
        called = f"{created:%Y%m%dT%H%M%SZ}-{command}-{what}-s{config.seed}-{digest[:6]}"
        unfinished = root / f".{called}.{os.getpid()}.part"
        facts = manifest(command, created, digest, ran, trace) | {"policies": list(policies), "plan": dict(plan or {})}
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
        facts = manifest(command, created, config_hash(config), tuple(seeds), config.trace_path())
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
    def open(cls, path: Path) -> RunFolder:
        """The run folder at ``path``. Where its process was killed, what that left unfinished is cut off.

        Raises:
            RunFolderError: It is missing, damaged, of another version, or its configuration was changed afterwards.
        """
        folder = cls.read(path)
        folder._tidy()
        return folder

    @classmethod
    def read(cls, path: Path) -> RunFolder:
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
        try:
            config = load_config(path / "config.yaml")
        except ConfigError as error:
            raise RunFolderError(f"{path}: its configuration cannot be read:\n{error}") from None
        if file_hash(path / "config.yaml") != facts.get("config_sha256"):
            raise RunFolderError(f"{path / 'config.yaml'}: was changed after the run (its hash is not the manifest's)")
        return cls(path, config, facts)

    @property
    def name(self) -> str | None:
        """The name that the user gave it."""
        return self.manifest.get("name")

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
            return unpacked_schedule(columns, scenario_of(self.config).cluster)
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
        return Schedule(scenario_of(self.config).cluster, jobs, log, seed, ended_s=ended_s)


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


def _write(path: Path, text: str) -> None:
    """Replace the file as a whole: a reader sees the old text or the new."""
    with replaced(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _overwrite(path: Path, text: str) -> None:
    """Write over what is there: a full disk has no room for a second file."""
    with path.open("r+b") as file:
        file.write(text.encode())
        file.truncate()


def _unwritable(path: Path, error: OSError) -> RunFolderError:
    return RunFolderError(f"{error.filename or path}: cannot be written: {error.strerror or error}")
