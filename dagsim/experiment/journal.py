"""The journal of a run folder: which runs are finished, and where the rows of each end.

``runs.jsonl`` gets its line when everything else of a run is written: a run is listed or it is not. The line says how
long each table is with its rows (``ends``). So, whenever the process is killed, what is listed is complete, and what a
later writer finds behind it is cut off.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from dagsim.errors import RunFolderError
from dagsim.experiment.record import CLOCKED, TABLES, RunRecord
from dagsim.files import append, cut
from dagsim.systems.cluster.engine import EngineUse

__all__ = ["Failure", "Journal", "Metrics", "RunLine"]

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
