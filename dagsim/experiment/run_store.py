"""Run folders for runs that finish in a fixed order. The rows of each run are appended to common
tables (see ``store``).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dagsim.config.dumping import config_hash
from dagsim.config.schema import Config
from dagsim.errors import RunFolderError
from dagsim.experiment.cell import Cell
from dagsim.experiment.cell_run import FAILURES, RUNS, TABLES, TIMING, CellRun, run_of
from dagsim.experiment.folder_files import json_line, read_lines, slug, unwritable, whole_lines
from dagsim.experiment.plan import Plan
from dagsim.experiment.provenance import manifest
from dagsim.experiment.scenario import experiment_seeds
from dagsim.experiment.simulate import Outcome
from dagsim.experiment.store import LONGEST_NAME, Store
from dagsim.files import append, cut, why_unwritable
from dagsim.systems.policy_spec import labelled


class RunStore(Store):
    """The folder of a command that runs policies on seeds in a fixed order."""

    _holds = "schedules"
    _unit = "runs"

    def __init__(self, path: Path, config: Config, manifest: dict[str, Any]) -> None:
        super().__init__(path, config, manifest)
        self._ends: dict[str, int] | None = None
        """The length of each table after the last finished run, or None if it has not been read
        yet.
        """
        self._count = 0
        """The number of finished runs. It is valid once ``_ends`` has been read."""

    @classmethod
    def of_plan(cls, root: Path, plan: Plan, argv: Sequence[str]) -> RunStore:
        """Create the folder for a plan (see ``begin``)."""
        return cls.create(
            root,
            plan.command,
            plan.config,
            argv=argv,
            label=plan.label,
            seeds=plan.seeds,
            policies=plan.specs,
            plan=plan.about,
            name=plan.name,
        )

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
    ) -> RunStore:
        """Create a new folder below ``root``, in the state ``running``. An existing folder is never
        reused.

        ``label`` describes the run in the folder's name (default: the policy), and ``name`` is the
        user's name for the run. ``seeds`` default to the seeds in the configuration. ``policies``
        and ``plan`` (further arguments of the command) are stored for ``--resume``.

        Raises:
            RunFolderError: ``root`` cannot be written to, or ``name`` is not a single line of text.
        """
        if name is not None and not (
            name.strip() and name.isprintable() and len(name) <= LONGEST_NAME and not set(name) & set("/\\")
        ):
            raise RunFolderError(
                f"--name {name!r}: expected a line of text of at most {LONGEST_NAME} characters, without slashes (use "
                "--out for a folder)"
            )
        created = now or datetime.now(UTC)
        what = "-".join(map(slug, filter(None, (label or config.policy, name))))
        called = f"{created:%Y%m%dT%H%M%SZ}-{command}-{what}-s{config.seed}-{config_hash(config)[:6]}"
        named = dict(map(labelled, policies))
        facts = manifest(command, created, config, tuple(seeds or experiment_seeds(config)), tuple(named.values()))
        facts |= {"policies": list(named), "plan": dict(plan or {})}
        if own := {label: policy for label, policy in named.items() if label != policy}:
            facts["named"] = own
        if name is not None:
            facts["name"] = name
        try:
            store = cls._made(root / called, config, facts, argv, numbered=True)
        except OSError as error:
            raise RunFolderError(f"{root}: {why_unwritable(error)}") from None
        assert store is not None
        return store

    def plan(self) -> Plan:
        """Return the plan for which the folder was made."""
        facts, about = self.manifest, self.manifest["plan"] or {}
        policies = [name if (spec := self.spec_of(name)) == name else f"{name}={spec}" for name in facts["policies"]]
        return Plan.of(facts["command"], self.config, policies, facts["seeds"], about=about)

    def done(self, cells: Iterable[Cell]) -> dict[Cell, CellRun]:
        """Return the cells that are finished."""
        runs = {(run.policy, run.seed): run for run in self.lines()}
        return {cell: runs[key] for cell in cells if (key := (cell.label, cell.seed)) in runs}

    def keep(self, cell: Cell, run: CellRun) -> None:
        """Save a finished cell atomically."""
        try:
            self.add(run)
        except BaseException:
            self.aside.keep(replace(run, id=cell.id))
            raise
        self.aside.drop(cell.id)

    def add(self, run: CellRun | Outcome) -> None:
        """Append a finished run to the tables and save its schedule, atomically.

        Raises:
            RunFolderError: The run cannot be written.
        """
        run = run_of(run) if isinstance(run, Outcome) else run
        try:
            self._append(run)
        except BaseException as error:
            with suppress(OSError, RunFolderError):
                self._mend()
            if isinstance(error, OSError):
                raise unwritable(self.path, error) from None
            raise

    def _append(self, run: CellRun) -> None:
        ends, first = self._written(), self._count == 0
        stem = self.path / "schedules" / f"{self._count:03d}"
        after = dict(ends)
        for ending, content in run.schedule.items():
            stem.with_suffix(f".{ending}").write_bytes(content)
        for name, (head, rows) in run.tables.items():
            after[name] = append(self.path / name, head + rows if first else rows, ends[name])
        after[TIMING] = append(self.path / TIMING, json_line(run.timing), ends[TIMING])
        line = json_line(run.line | {"ends": {name: after[name] for name in TABLES}})
        after[RUNS] = append(self.path / RUNS, line, ends[RUNS])
        self._ends, self._count = after, self._count + 1

    def started(self, cells: int, done: int, to_run: int) -> None:
        """Do nothing, because runs are recorded in the order of the plan."""

    def _note_failure(self, cell: Cell, run: CellRun) -> None:
        path = self.path / FAILURES
        line = {"policy": cell.label, "seed": cell.seed, "error": run.error}
        append(path, json_line(line), path.stat().st_size if path.exists() else 0)

    def _list_cells(self, plan: Plan, state: str) -> None:
        """Do nothing, because the cells are already stored as runs."""

    def _count_done(self) -> int:
        return len(self.lines())

    def _due(self) -> int:
        return len(self.manifest["policies"]) * len(self.manifest["seeds"])

    def _command_on(self) -> str:
        return f"dagsim {self.manifest['command']} --resume {shlex.quote(str(self.path))}"

    def _mend(self) -> None:
        """Cut off everything after the last finished run.

        Raises:
            RunFolderError: Earlier data is missing.
            OSError: A file cannot be written.
        """
        self._ends = None
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
        """Return the number of bytes that each file had after the last finished run."""
        if self._ends is None:
            runs, timing = (whole_lines(self.path / name) for name in (RUNS, TIMING))
            count = min(len(runs), len(timing))
            lines = read_lines(self.path / RUNS)[:count]
            ends = lines[-1].get("ends") if lines else dict.fromkeys(TABLES, 0)
            if not isinstance(ends, dict) or set(ends) != set(TABLES):
                raise RunFolderError(f"{self.path / RUNS}: the last line does not state where the tables end")
            self._count = count
            self._ends = ends | {TIMING: sum(map(len, timing[:count])), RUNS: sum(map(len, runs[:count]))}
        return self._ends
