"""Sweep folders: run folders of many cells.

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
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from dagsim.config import yaml
from dagsim.errors import RunFolderError
from dagsim.experiment.folder import RunFolder
from dagsim.experiment.journal import Metrics, RunLine
from dagsim.experiment.record import CLOCKED, TABLES
from dagsim.experiment.sweep.cells import Cell
from dagsim.experiment.sweep.described import Sweep, read_sweep
from dagsim.experiment.sweep.work import CellFailure, CellRecord
from dagsim.files import append, replaced
from dagsim.metrics import to_csv

__all__ = ["CellLine", "SweepFolder", "is_sweep"]

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
                root, name, command, config, argv=argv, seeds=seeds, policies=labels, plan={"sweep": described}
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


def _write(path: Path, text: str, *, durable: bool = False) -> None:
    with replaced(path, durable=durable) as temporary:
        temporary.write_text(text, encoding="utf-8")
