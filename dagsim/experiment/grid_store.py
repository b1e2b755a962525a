"""Run folders for grids, whose cells may finish in any order (see ``store``)."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from dagsim.config import yaml
from dagsim.errors import RunFolderError
from dagsim.experiment.cell import Cell
from dagsim.experiment.cell_run import CLOCKED, RUNS, TABLES, TIMING, CellRun, cells_table
from dagsim.experiment.folder_files import (
    json_line,
    read_json_file,
    read_lines,
    slug,
    unwritable,
    whole_lines,
    write_whole,
)
from dagsim.experiment.plan import Plan
from dagsim.experiment.provenance import manifest
from dagsim.experiment.store import GRID, LONGEST_NAME, Store
from dagsim.experiment.sweep_grid import SweepGrid, read_grid
from dagsim.files import append, parsed_json, replaced

_CELLS, _PROGRESS = "cells", "progress.jsonl"


class GridStore(Store):
    """The folder of a sweep. ``whatif``, ``plan`` and other commands also create sweeps."""

    _holds = _CELLS
    _unit = "cells"

    @classmethod
    def of_plan(cls, root: Path, plan: Plan, argv: Sequence[str]) -> GridStore:
        """Create the folder for a grid, or continue in an existing folder (see ``begin``)."""
        assert plan.grid is not None
        path = root / f"{slug(f'{plan.command}-{plan.grid.name}', LONGEST_NAME)}"
        created = datetime.now(UTC)
        specs = list(dict.fromkeys(cell.policy for cell in plan.cells))
        facts = manifest(plan.command, created, plan.config, plan.seeds, specs)
        traces = {path: sha for cell in plan.cells for sha, path in filter(None, [cell.trace()])}
        facts |= {
            "traces": {str(path): {"file": str(path), "sha256": sha} for path, sha in traces.items()},
            "policies": list(plan.policies),
            "plan": {"sweep": {"name": plan.grid.name, "cells": len(plan.cells)}},
        }
        try:
            if not path.exists() or not any(path.iterdir()):
                store = cls._made(path, plan.config, facts, argv, numbered=False, **{GRID: _text_of(plan)})
                if store is not None:
                    return store
            return cls._taken(path, plan, facts, argv)
        except OSError as error:
            raise unwritable(root, error) from None

    @classmethod
    def _taken(cls, path: Path, plan: Plan, facts: dict[str, Any], argv: Sequence[str]) -> GridStore:
        """Open an existing folder of a grid. Delete the summaries that the previous invocation
        wrote.
        """
        before = read_json_file(path / "manifest.json") if (path / "manifest.json").exists() else None
        if before is None and not (path / "lock").exists():
            raise RunFolderError(
                f"{path}: already exists but is not a run folder; choose another place with --out or --name"
            )
        if before is not None and before.get("command") != plan.command:
            raise RunFolderError(f"{path}: was created by dagsim {before.get('command')}; use another --name or --out")
        if before is not None and before.get("code_sha256") != facts["code_sha256"]:
            raise RunFolderError(
                f"{path}: its cells come from another version of dagsim's code, so the sweep cannot be continued; "
                "use another --name or --out, or delete the folder"
            )
        facts["created"] = facts["created"] if before is None else before["created"]
        store = cls(path, plan.config, facts)
        store.claim()
        for summary in (RUNS, TIMING, "summary.json"):
            (path / summary).unlink(missing_ok=True)
        store.mark("running")
        (path / _CELLS).mkdir(exist_ok=True)
        for part in (path / _CELLS).glob(".*.part"):
            part.unlink()
        store._describe(argv, **{GRID: _text_of(plan)})
        progress = path / _PROGRESS
        if progress.exists():  # remove the incomplete line that a killed process may have left
            append(progress, b"", sum(map(len, whole_lines(progress))))
        return store

    @property
    def label(self) -> str:
        """The name of the sweep. It is used instead of the name of a workload, because the points
        of a sweep may have different workloads.
        """
        return f"sweep {self.sweep.name}"

    def as_grid(self) -> GridStore:
        """Return this folder, which contains a grid."""
        return self

    @cached_property
    def sweep(self) -> SweepGrid:
        """The grid of the sweep.

        Raises:
            ConfigError: The file ``sweep.yaml`` cannot be read.
        """
        return read_grid(self.path / GRID, self.manifest["plan"]["sweep"]["name"])

    def plan(self) -> Plan:
        """Return the plan for which the folder was made."""
        return Plan.of_grid(self.sweep, self.manifest["command"])

    def done(self, cells: Iterable[Cell]) -> dict[Cell, CellRun]:
        """Return the finished cells."""
        return {cell: run for cell in cells if (run := self._cell(cell.id)) is not None}

    def keep(self, cell: Cell, run: CellRun) -> None:
        """Save a finished cell atomically."""
        line = {"id": cell.id, "at": dict(cell.at), **run.line}
        try:
            for ending, content in run.named_files():
                with replaced(self.path / _CELLS / f"{cell.id}.{ending}", durable=True) as temporary:
                    temporary.write_bytes(content)
            write_whole(self.path / _CELLS / f"{cell.id}.json", json.dumps(line) + "\n", durable=True)
            times = {"wall_s": round(run.timing["wall_s"], 6), CLOCKED: run.timing[CLOCKED]}
            self._tell("done", id=cell.id, label=cell.label, seed=cell.seed, **times)
            self.aside.drop(cell.id)
        except OSError as error:
            raise unwritable(self.path, error) from None

    def cells(self) -> list[CellRun]:
        """Return all finished cells in the folder of a grid, sorted by id, including cells that are no
        longer part of the grid.

        Raises:
            RunFolderError: A cell cannot be read.
        """
        ids = sorted(path.stem for path in (self.path / _CELLS).glob("*.json"))
        return [run for id_ in ids if (run := self._cell(id_)) is not None]

    def started(self, cells: int, done: int, to_run: int) -> None:
        """Record in ``progress.jsonl`` that an invocation has begun to run cells."""
        self._tell("started", cells=cells, done=done, to_run=to_run)

    def _note_failure(self, cell: Cell, run: CellRun) -> None:
        self._tell("failed", id=cell.id, label=cell.label, seed=cell.seed, error=run.error)

    def _list_cells(self, plan: Plan, state: str) -> None:
        """Write the finished cells as a list of runs, named by their labels, and as a table."""
        done = self.done(plan.cells)
        times = {event["id"]: event for event in self.progress() if event.get("event") == "done"}
        ends = dict.fromkeys(TABLES, 0)  # the lengths of the tables, which are 0 because a grid has no tables
        runs, timing = bytearray(), bytearray()
        for cell, run in done.items():
            who, clock = {"policy": cell.label, "seed": cell.seed}, times.get(cell.id, {})
            runs += json_line(who | {"workload": run.workload, "metrics": run.metrics, "ends": ends})
            timing += json_line(who | {name: clock.get(name) for name in ("wall_s", CLOCKED)})
        write_whole(self.path / "results.csv", cells_table(list(done.values())))
        write_whole(self.path / TIMING, timing.decode())
        write_whole(self.path / RUNS, runs.decode())
        self._tell("ended", state=state, done=len(done), cells=len(plan.cells))

    def progress(self) -> list[dict[str, Any]]:
        """Return the events in ``progress.jsonl``, ignoring an incomplete last line.

        Raises:
            RunFolderError: The file cannot be read.
        """
        return read_lines(self.path / _PROGRESS)

    def _count_done(self) -> int:
        return len(self.cells())

    def _due(self) -> int:
        due: int = self.manifest["plan"]["sweep"]["cells"]
        return due

    def _command_on(self) -> str:
        if self.manifest["command"] == "sweep":
            return f"dagsim sweep {shlex.quote(str(self.path))}"
        return (self.path / "command.txt").read_text(encoding="utf-8").strip()

    def _mend(self) -> None:
        """Do nothing, because a cell exists either completely or not at all."""

    def _cell(self, id_: str) -> CellRun | None:
        path = self.path / _CELLS / f"{id_}.json"
        try:
            cell = parsed_json(path.read_text(encoding="utf-8"))
            return CellRun(
                cell["policy"], cell["seed"], cell["workload"], cell["metrics"], at=cell["at"], id=cell["id"]
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise RunFolderError(
                f"{path}: cannot be read as the result of a cell ({error}); delete the file to run the cell again"
            ) from None

    def _tell(self, event: str, **facts: Any) -> None:
        """Append a line to ``progress.jsonl``."""
        path = self.path / _PROGRESS
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        append(path, json_line({"event": event, "time": time, **facts}), path.stat().st_size if path.exists() else 0)


def _text_of(plan: Plan) -> str:
    """Return the grid of a plan as the text of ``sweep.yaml``."""
    assert plan.grid is not None
    return yaml.dump(plan.grid.to_dict("config.yaml"))
