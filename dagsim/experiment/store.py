"""The store: a folder that holds a plan, its finished cells, and their results.

    results/20261120T193000Z-eval-sjf-s0-3fa9c1/
    ├── config.yaml       the whole configuration; `dagsim eval --config` of it writes the same tables, byte for byte
    ├── command.txt       the command
    ├── manifest.json     versions, commit, platform, seeds, engine; hashes of configuration, own code, agents, traces
    ├── status.json       running, done, failed or interrupted; replaced as a whole, never half written
    ├── lock              held by the process that writes
    ├── runs.jsonl        one line per policy and seed: every metric, and where its rows in the tables end
    ├── timing.jsonl      the same lines with everything that depends on a clock
    ├── summary.json      for each policy, the mean of every metric over the seeds
    ├── comparison.csv    with several policies: ratios to the first, intervals, verdicts
    ├── failures.jsonl    with several policies: the failed ones, with their errors
    ├── jobs.csv.gz       one row per policy, seed and job
    ├── tasks.csv.gz      one row per policy, seed and run of a task
    ├── aside/            logs of simulations after which something failed, for the next start
    ├── schedules/        the schedule of each policy and seed: NNN.npy (its log), NNN.json.gz (its jobs);
    │                     for a large run NNN.npz (both, in columns), without rows in the two tables
    └── plots/

The cells of a grid end in any order, so the folder of a sweep (`whatif` and `plan` make sweeps, too) differs:

    results/sweep-NAME/
    ├── sweep.yaml        the grid, with every value and its label; `dagsim sweep` on the folder continues it
    ├── cells/ID.json     a finished cell: its value on each axis, policy, seed, workload, every metric
    ├── cells/ID.*        with `keep: jobs` also jobs.csv.gz; with `keep: log` also tasks.csv.gz and the schedule;
    │                     with `keep: series` (`whatif`, `plan`) values of each job
    ├── progress.jsonl    a line for each event, to show progress; only this file and timing.jsonl have clock times
    ├── results.csv       at the end: a row for each cell, sorted by ID
    └── runs.jsonl, timing.jsonl, summary.json           at the end: the cells as the runs of a run folder

Only one process writes. A cell is stored completely or not at all: the line in ``runs.jsonl``, or ``cells/ID.json``, is
written last. ``runs.jsonl`` states the length of each table with the rows of the run (``ends``), so a later writer can
cut off the remains of a killed process. A plan that was stopped in any way therefore ends with the same bytes as one
that was not, apart from clock times.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from shutil import rmtree
from typing import Any, Literal, TypeAlias, get_args

from dagsim.config import yaml
from dagsim.config.schema import Config, config_hash, dump_config, load_config
from dagsim.errors import CodeNotAllowed, ConfigError, InputError, RunFolderError
from dagsim.experiment.kept_files import (
    CLOCKED,
    FACTS_OF_LOG,
    TABLES,
    CellRun,
    cells_table,
    check_shape,
    engine_of,
    json_line,
    json_text,
    overwrite,
    read_json_file,
    read_lines,
    read_schedule,
    rename_free,
    run_of,
    slug,
    summary_of,
    unwritable,
    value_in,
    whole_lines,
    write_whole,
)
from dagsim.experiment.plan import Cell, Plan, SweepGrid, read_grid
from dagsim.experiment.provenance import SCHEMA, changes, manifest
from dagsim.experiment.scenario import experiment_seeds, scenario_of, workload_label
from dagsim.experiment.simulate import Outcome
from dagsim.files import Lock, append, cut, file_hash, parsed_json, replaced
from dagsim.metrics.standings import PolicyResult
from dagsim.model.cluster import Cluster
from dagsim.model.log import Schedule
from dagsim.own_code import allowed
from dagsim.sections import Foreign
from dagsim.systems.seam import EngineUse

State: TypeAlias = Literal["running", "done", "failed", "interrupted"]

_READABLE = (1, SCHEMA)
"""Layouts that can be read."""
_LONGEST_NAME = 80
_RUN = {"policy": str, "seed": int, "workload": dict, "metrics": dict, "engine": dict}
_FILES = {"file": str, "sha256": str}
_MANIFEST: dict[str, Any] = {
    **{
        "command": str,
        "created": str,
        "config_sha256": str,
        "code_sha256": str,
        "name": str,
        "plan": dict,
        "versions": dict,
    },
    **{"policies": [str], "seeds": [int], "trace": {"path": str, "sha256": str}},
    **{kind: {None: _FILES} for kind in ("code", "checkpoints", "traces")},
}
"""Types of values in a line and in the manifest (``check_shape``)."""
_GRID, _CELLS = "sweep.yaml", "cells"
_RUNS, _TIMING, _FAILURES, _PROGRESS = "runs.jsonl", "timing.jsonl", "failures.jsonl", "progress.jsonl"


def is_sweep(path: Path) -> bool:
    """True if the run folder at ``path`` holds the cells of a grid."""
    return (path / _GRID).is_file() and (path / "manifest.json").is_file()


def recorded_code(path: Path) -> dict[str, str]:
    """SHA-256 of the source of all code outside dagsim that the run folder ``path`` used, by name;
    see ``own_code.Allowed``.

    Raises:
        RunFolderError: Its manifest cannot be read.
    """
    facts = read_json_file(path / "manifest.json")
    return _recorded_code(facts if isinstance(facts, dict) else {})


def _recorded_code(facts: Mapping[str, Any]) -> dict[str, str]:
    code = facts.get("code")
    if not isinstance(code, dict):
        return {}
    return {name: str(fact.get("sha256")) for name, fact in code.items() if isinstance(fact, dict)}


class Store:
    """One run folder. Make it with ``create`` or ``begin``; read it with ``open`` or ``read``."""

    def __init__(self, path: Path, config: Config, manifest: dict[str, Any]) -> None:
        self.path = path
        self.config = config
        self.manifest = manifest
        self.ranked: Sequence[PolicyResult] = ()
        """The comparison of several policies after ``carry_out``, as in ``comparison.csv``."""
        self._lock = Lock(path / "lock")
        self._ends: dict[str, int] | None = None
        """Length of each table after the last finished run; None if not yet read."""
        self._count = 0
        """Number of finished runs, valid once ``_ends`` is read."""

    # Making and opening

    @classmethod
    def begin(cls, root: Path, plan: Plan, *, argv: Sequence[str]) -> Store:
        """Return the folder of a plan below ``root``, ready for writing. The folder of a grid is
        called ``COMMAND-NAME`` and may exist already; any other is always new.

        Raises:
            RunFolderError: Another process writes to it, it belongs to something else, or it cannot be written.
        """
        if plan.grid is None:
            return cls.create(
                root,
                plan.command,
                plan.config,
                argv=argv,
                label=plan.label,
                seeds=plan.seeds,
                policies=plan.policies,
                plan=plan.about,
                name=plan.name,
            )
        path = root / f"{slug(f'{plan.command}-{plan.grid.name}', _LONGEST_NAME)}"
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
                store = cls._made(path, plan.config, facts, argv, plan.grid, numbered=False)
                if store is not None:
                    return store
            return cls._taken(path, plan, facts, argv)
        except OSError as error:
            raise unwritable(root, error) from None

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
    ) -> Store:
        """Create a new folder below ``root``, in the state ``running``. An existing folder is never
        used.

        ``label`` describes the run in the folder's name (default: the policy); ``name`` is the
        user's name for it. ``seeds`` default to those of the configuration. ``policies`` and
        ``plan`` (further values of the command) are kept for ``--resume``.

        Raises:
            RunFolderError: ``root`` cannot be written to, or ``name`` is not a line of text.
        """
        if name is not None and not (name.strip() and name.isprintable() and len(name) <= _LONGEST_NAME):
            raise RunFolderError(f"--name {name!r}: expected a line of text of at most {_LONGEST_NAME} characters")
        created = now or datetime.now(UTC)
        what = "-".join(map(slug, filter(None, (label or config.policy, name))))
        called = f"{created:%Y%m%dT%H%M%SZ}-{command}-{what}-s{config.seed}-{config_hash(config)[:6]}"
        facts = manifest(command, created, config, tuple(seeds or experiment_seeds(config)), policies)
        facts |= {"policies": list(policies), "plan": dict(plan or {})}
        if name is not None:
            facts["name"] = name
        try:
            store = cls._made(root / called, config, facts, argv, None, numbered=True)
        except OSError as error:
            raise RunFolderError(f"{root}: cannot be written to: {error.strerror}") from None
        assert store is not None
        return store

    @classmethod
    def _made(
        cls,
        path: Path,
        config: Config,
        facts: dict[str, Any],
        argv: Sequence[str],
        grid: SweepGrid | None,
        *,
        numbered: bool,
    ) -> Store | None:
        """Create a folder, complete before it gets its name. If the name is taken, return a
        numbered name or None.
        """
        unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
        store = cls(unfinished, config, facts)
        try:
            if unfinished.exists():  # of a process that was killed: its number is ours now
                rmtree(unfinished)
            (unfinished / ("schedules" if grid is None else _CELLS)).mkdir(parents=True)
            store.claim()
            store._describe(argv, grid)
            store.mark("running")
            renamed = rename_free(unfinished, path, numbered=numbered)
        except BaseException:  # a signal as well: nobody would ever remove it
            with suppress(OSError):
                rmtree(unfinished)
            raise
        if renamed is None:
            store._lock.release()
            rmtree(unfinished)
            return None
        store.path, store._lock.path = renamed, renamed / "lock"
        return store

    @classmethod
    def _taken(cls, path: Path, plan: Plan, facts: dict[str, Any], argv: Sequence[str]) -> Store:
        """Open the existing folder of a grid, and delete the summaries of its previous start."""
        before = read_json_file(path / "manifest.json") if (path / "manifest.json").exists() else None
        if before is None and not (path / "lock").exists():
            raise RunFolderError(f"{path}: exists and is not a run folder; choose another place with --out or --name")
        if before is not None and before.get("command") != plan.command:
            raise RunFolderError(f"{path}: belongs to dagsim {before.get('command')}; use another --name or --out")
        if before is not None and before.get("code_sha256") != facts["code_sha256"]:
            raise RunFolderError(
                f"{path}: its cells were made by other code of dagsim and cannot be continued; use another --name or "
                "--out, or delete the folder"
            )
        facts["created"] = facts["created"] if before is None else before["created"]
        store = cls(path, plan.config, facts)
        store.claim()
        for summary in (_RUNS, _TIMING, "summary.json"):
            (path / summary).unlink(missing_ok=True)
        store.mark("running")
        (path / _CELLS).mkdir(exist_ok=True)
        for part in (path / _CELLS).glob(".*.part"):
            part.unlink()
        store._describe(argv, plan.grid)
        progress = path / _PROGRESS
        if progress.exists():  # a process that was killed may have left half a line
            append(progress, b"", sum(map(len, whole_lines(progress))))
        return store

    def _describe(self, argv: Sequence[str], grid: SweepGrid | None) -> None:
        """Write the files that describe the plan. The manifest is last, because it makes a folder a
        run folder.
        """
        write_whole(self.path / "config.yaml", dump_config(self.config))
        write_whole(self.path / "command.txt", shlex.join(argv) + "\n")
        if grid is not None:
            write_whole(self.path / _GRID, yaml.dump(grid.to_dict("config.yaml")))
        write_whole(self.path / "manifest.json", json_text(self.manifest))

    @classmethod
    def open(cls, path: Path, *, own: bool = False) -> Store:
        """Open the run folder at ``path``. If its process was killed, unfinished rows are cut off.

        The folder is data: code outside dagsim that its configuration names is imported only with
        ``own=True``, which is needed to run the experiment again.

        Raises:
            RunFolderError: It is missing, damaged, of another version, or its configuration was changed afterwards.
            CodeNotAllowed: It names code that this process may not import.
        """
        store = cls.read(path, own=own)
        with suppress(OSError, RunFolderError):  # a folder that is damaged or read-only stays as it is
            if store.manifest["schema"] == SCHEMA and store.state == "running" and store._lock.claim():
                pid = read_json_file(path / "status.json").get("pid")
                store._mend()
                store.mark("interrupted", f"its process ({pid}) ended without recording its state")
        store._lock.release()
        return store

    @classmethod
    def read(cls, path: Path, *, own: bool = False) -> Store:
        """Read the run folder at ``path`` as it is: nothing is written, and another process can
        write meanwhile.

        Raises:
            RunFolderError: As ``open``.
        """
        if not path.is_dir():
            raise RunFolderError(f"{path}: no such run folder")
        if not (path / "manifest.json").exists():
            raise RunFolderError(f"{path}: not a run folder, since it has no manifest.json")
        facts = read_json_file(path / "manifest.json")
        if not isinstance(facts, dict) or facts.get("schema") not in _READABLE:
            raise RunFolderError(
                f"{path / 'manifest.json'}: not of a run folder that this version reads (schema "
                f"{' or '.join(map(str, _READABLE))}); run it again: its command is in command.txt"
            )
        check_shape(facts, _MANIFEST, path / "manifest.json")
        names = allowed()
        own = own or (names is not None and names.everything)
        if own and names is not None:
            names.trust_recorded(path, _recorded_code(facts))
        file = path / "config.yaml"
        if file.is_file() and file_hash(file) != facts.get("config_sha256"):  # before any name in it is looked up
            raise RunFolderError(f"{file}: was changed after the run (its hash differs from the manifest's)")
        try:
            config = load_config(file, own=own)
        except ConfigError as error:
            raise RunFolderError(f"{path}: its configuration cannot be read: {'; '.join(error.args)}") from None
        return cls(path, config, facts)

    # Its plan and its state

    @property
    def name(self) -> str | None:
        """The user's name for it."""
        return self.manifest.get("name")

    @property
    def label(self) -> str:
        """The user's name for it, if any, and its workload."""
        workload = workload_label(self.config)
        return workload if self.name is None else f"{self.name}: {workload}"

    @cached_property
    def grid(self) -> SweepGrid | None:
        """The grid of a sweep; None for any other command.

        Raises:
            ConfigError: Its ``sweep.yaml`` cannot be read.
        """
        return read_grid(self.path / _GRID, self.manifest["plan"]["sweep"]["name"]) if is_sweep(self.path) else None

    @property
    def sweep(self) -> SweepGrid:
        """The grid of a sweep.

        Raises:
            RunFolderError: It is the folder of another command.
            ConfigError: Its ``sweep.yaml`` cannot be read.
        """
        if self.grid is None:
            raise RunFolderError(f"{self.path}: not the folder of a sweep: it contains no {_GRID}")
        return self.grid

    def plan(self) -> Plan:
        """The plan for which the folder was made.

        Raises:
            InputError: A file that the plan needs cannot be read.
        """
        command, grid = self.manifest["command"], self.grid
        if grid is not None:
            return Plan.of_grid(grid, command)
        about = self.manifest["plan"] or {}
        return Plan.of(command, self.config, self.manifest["policies"], self.manifest["seeds"], about=about)

    @property
    def state(self) -> State:
        """The state of the run according to ``status.json``."""
        status = read_json_file(self.path / "status.json")
        if not isinstance(status, dict) or status.get("state") not in get_args(State):
            raise RunFolderError(f"{self.path / 'status.json'}: its state is none of {', '.join(get_args(State))}")
        state: State = status["state"]
        return state

    @property
    def dead(self) -> bool:
        """True if the state is ``running`` but no process holds the lock: its process was killed."""
        return self.state == "running" and self._lock.is_free()

    def claim(self) -> None:
        """Become the only writer of the folder, until it is marked as ended or this process ends.

        Raises:
            RunFolderError: Another process writes to it.
            OSError: It cannot be written to.
        """
        if not self._lock.claim():
            pid = None
            with suppress(RunFolderError, AttributeError):
                pid = read_json_file(self.path / "status.json").get("pid")
            raise RunFolderError(f"{self.path}: another process ({pid}) is writing to it; wait until it has ended")

    def resume(self) -> None:
        """Become the writer again, and cut off unfinished rows of the last one.

        Raises:
            RunFolderError: Another process writes to it, an older dagsim made it, a file that determines the run has
                changed, or it cannot be written to.
        """
        if self.manifest["schema"] != SCHEMA or not self.manifest.get("policies"):
            raise RunFolderError(
                f"{self.path}: cannot be resumed: its manifest does not say which policies were to run (made by an "
                "older dagsim, or by a command that has no --resume); run it again: its command is in command.txt"
            )
        self.check_unchanged()
        try:
            self.claim()
            self._mend()
            (self.path / _FAILURES).unlink(missing_ok=True)  # every policy may try again
            self.mark("running")
        except OSError as error:
            raise unwritable(self.path, error) from None

    def check_unchanged(self) -> None:
        """Check that everything that determines the run is still the same.

        Raises:
            RunFolderError: The simulating code, the trace or another file has changed since the run began, or is gone.
        """
        if changed := changes(self.manifest):
            raise RunFolderError(
                f"{self.path}: cannot be resumed: {'; '.join(changed)}. Bring the old version back, or start a new run"
            )
        self.check_trace()

    def check_trace(self) -> None:
        """Check that the jobs are still the same.

        Raises:
            RunFolderError: The trace is gone or has changed since the run began.
        """
        trace = self.manifest["trace"]
        if trace is not None and (
            not Path(trace["path"]).exists() or file_hash(Path(trace["path"])) != trace["sha256"]
        ):
            raise RunFolderError(f"{self.path}: cannot be resumed: its trace {trace['path']} is gone or has changed")

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Add to any error of the block what the folder keeps and the command that goes on from there."""
        try:
            yield
        except (KeyboardInterrupt, Exception) as error:
            note = self._note(stopped=isinstance(error, KeyboardInterrupt))
            if note and note not in getattr(error, "__notes__", ()):
                error.add_note(note)
            raise

    def _note(self, *, stopped: bool) -> str:
        """Describe what the folder keeps, and name the command that goes on; empty if an error left nothing to keep."""
        command = self.manifest["command"]
        if command == "train":
            return (
                f"the training is kept in {self.path}; go on with: dagsim train --resume {shlex.quote(str(self.path))}"
            )
        try:
            what, count = ("runs", len(self.lines())) if self.grid is None else ("cells", len(self.cells()))
            logs = len(list(self.aside.glob(f"*{FACTS_OF_LOG}")))
            again = (self.path / "command.txt").read_text(encoding="utf-8").strip()
        except (OSError, ValueError, InputError, RunFolderError) as error:
            return f"{self.path}: what it keeps cannot be read: {error}"
        if self.grid is None or command == "sweep":
            again = f"dagsim {command} {'' if self.grid else '--resume '}{shlex.quote(str(self.path))}"
        aside = f" and the logs of {logs} more" if logs else ""
        if not (count or logs or stopped):
            return ""
        return f"{count} finished {what}{aside} are kept in {self.path}; go on with: {again}"

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the writer while the block runs. If the block is stopped or fails, the state records
        it.

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
            failure = unwritable(self.path, error)
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
        """Replace ``status.json``; ``running`` claims the folder, any other state gives it back.

        Raises:
            RunFolderError: Another process writes to it.
            OSError: It cannot be written.
        """
        if state == "running":
            self.claim()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        text = json_text({"state": state, "pid": os.getpid(), "updated": now, "error": error})
        path = self.path / "status.json"
        try:
            write_whole(path, text)
        except OSError:
            if not path.exists():
                raise
            overwrite(path, text)
        if state != "running":
            self._lock.release()

    def note_seeds(self, seeds: Sequence[int]) -> None:
        """Change the seeds in the manifest, for runs whose precision decides their number.

        Raises:
            RunFolderError: It cannot be written.
        """
        self.manifest["seeds"] = list(seeds)
        try:
            write_whole(self.path / "manifest.json", json_text(self.manifest))
        except OSError as error:
            raise unwritable(self.path, error) from None

    # Finished cells

    def done(self, cells: Iterable[Cell]) -> dict[Cell, CellRun]:
        """The cells that are finished.

        Raises:
            RunFolderError: One of them cannot be read.
        """
        if self.grid is not None:
            return {cell: run for cell in cells if (run := self._cell(cell.id)) is not None}
        runs = {(run.policy, run.seed): run for run in self.lines()}
        return {cell: runs[key] for cell in cells if (key := (cell.label, cell.seed)) in runs}

    def keep(self, cell: Cell, run: CellRun) -> None:
        """Save a finished cell atomically.

        Raises:
            RunFolderError: It cannot be written.
        """
        if self.grid is None:
            try:
                self.add(run)
            except BaseException:
                self.set_aside(replace(run, id=cell.id))
                raise
            self._drop_aside(cell)
            return
        line = {"id": cell.id, "at": dict(cell.at), **run.line}
        try:
            for ending, content in run.named_files():
                with replaced(self.path / _CELLS / f"{cell.id}.{ending}", durable=True) as temporary:
                    temporary.write_bytes(content)
            write_whole(self.path / _CELLS / f"{cell.id}.json", json.dumps(line) + "\n", durable=True)
            times = {"wall_s": round(run.timing["wall_s"], 6), CLOCKED: run.timing[CLOCKED]}
            self._tell("done", id=cell.id, label=cell.label, seed=cell.seed, **times)
            self._drop_aside(cell)
        except OSError as error:
            raise unwritable(self.path, error) from None

    @property
    def aside(self) -> Path:
        """The folder of logs of simulations after which something failed. The next start goes on from them."""
        return self.path / "aside"

    def set_aside(self, run: CellRun) -> None:
        """Keep the log of a run that cannot be finished, if there is one and the disk allows it."""
        if not {"npz", "npy"} & set(run.schedule) or not run.id:
            return
        with suppress(OSError):
            self.aside.mkdir(exist_ok=True)
            for ending, content in run.schedule.items():
                with replaced(self.aside / f"{run.id}.{ending}") as temporary:
                    temporary.write_bytes(content)
            facts = {"policy": run.policy, "seed": run.seed, "workload": run.workload, "timing": dict(run.timing)}
            write_whole(self.aside / f"{run.id}{FACTS_OF_LOG}", json_text(facts))

    def _drop_aside(self, cell: Cell) -> None:
        """Remove the log of a cell that is finished now."""
        with suppress(OSError):
            for path in self.aside.glob(f"{cell.id}.*"):
                path.unlink()
            if self.aside.exists() and not any(self.aside.iterdir()):
                self.aside.rmdir()

    def add(self, run: CellRun | Outcome) -> None:
        """Append a finished run to the tables and save its schedule, atomically.

        Raises:
            RunFolderError: It cannot be written.
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
        after[_TIMING] = append(self.path / _TIMING, json_line(run.timing), ends[_TIMING])
        line = json_line(run.line | {"ends": {name: after[name] for name in TABLES}})
        after[_RUNS] = append(self.path / _RUNS, line, ends[_RUNS])
        self._ends, self._count = after, self._count + 1

    def fail(self, cell: Cell, run: CellRun) -> None:
        """Record that the policy of a cell failed. In a grid, the next start tries the cell again;
        in any other plan, further runs of the policy are left out.

        Raises:
            RunFolderError: It cannot be written.
        """
        self.set_aside(replace(run, id=cell.id))
        try:
            if self.grid is not None:
                self._tell("failed", id=cell.id, label=cell.label, seed=cell.seed, error=run.error)
                return
            path = self.path / _FAILURES
            line = {"policy": cell.label, "seed": cell.seed, "error": run.error}
            append(path, json_line(line), path.stat().st_size if path.exists() else 0)
        except OSError as error:
            raise unwritable(self.path, error) from None

    def started(self, cells: int, done: int, to_run: int) -> None:
        """Record in ``progress.jsonl`` of a grid that a start has begun.

        Raises:
            OSError: It cannot be written.
        """
        if self.grid is not None:
            self._tell("started", cells=cells, done=done, to_run=to_run)

    def finish(self, state: State = "done", error: str | None = None, plan: Plan | None = None) -> None:
        """Write the summary of all runs, and how the run ended; for a grid, ``plan`` selects the
        cells to list. After a failure, write as much as possible.

        Raises:
            RunFolderError: ``state`` is ``done``, and the summary cannot be written.
        """
        try:
            if plan is not None and self.grid is not None:
                self._list_cells(plan, state)
            write_whole(self.path / "summary.json", json_text(summary_of(self.lines())))
            noted: dict[str, Any] = {"engine": engine_of(used)} if (used := self._engines()) else {}
            if known := dict.fromkeys(of["text"] for line in self.lines() if (of := line.workload.get("knowledge"))):
                noted["knowledge"] = list(known)
            if noted:
                self.manifest |= noted
                write_whole(self.path / "manifest.json", json_text(self.manifest))
            self.mark(state, error)
        except (OSError, RunFolderError) as failure:
            if state == "done":
                text = f"{self.path}: cannot be written: {getattr(failure, 'strerror', None) or failure}"
                self.finish("failed", text)
                raise RunFolderError(text) from None
            self._give_up(state, error)

    def _list_cells(self, plan: Plan, state: str) -> None:
        """Write the finished cells of a grid as runs, named by their labels, and as a table."""
        done = self.done(plan.cells)
        times = {event["id"]: event for event in self.progress() if event.get("event") == "done"}
        ends = dict.fromkeys(TABLES, 0)  # a grid has no tables to cut off
        runs, timing = bytearray(), bytearray()
        for cell, run in done.items():
            who, clock = {"policy": cell.label, "seed": cell.seed}, times.get(cell.id, {})
            runs += json_line(who | {"workload": run.workload, "metrics": run.metrics, "ends": ends})
            timing += json_line(who | {name: clock.get(name) for name in ("wall_s", CLOCKED)})
        write_whole(self.path / "results.csv", cells_table(list(done.values())))
        write_whole(self.path / _TIMING, timing.decode())
        write_whole(self.path / _RUNS, runs.decode())
        self._tell("ended", state=state, done=len(done), cells=len(plan.cells))

    # Reading

    def lines(self) -> list[CellRun]:
        """The finished runs, in order; an incomplete last line is ignored.

        Raises:
            RunFolderError: They cannot be read.
        """
        runs, timing = read_lines(self.path / _RUNS), read_lines(self.path / _TIMING)
        for file, lines in ((_RUNS, runs), (_TIMING, timing)):
            for number, run in enumerate(lines, 1):
                check_shape(run, _RUN, f"{self.path / file}:{number}")
        return [
            CellRun(
                value_in(run, "policy", _RUNS),
                value_in(run, "seed", _RUNS),
                value_in(run, "workload", _RUNS),
                value_in(run, "metrics", _RUNS) | {CLOCKED: value_in(time, CLOCKED, _TIMING)},
            )
            for run, time in zip(runs, timing, strict=False)  # the last run may lack its time
        ]

    def line(self, number: int) -> CellRun:
        """Finished run ``number``.

        Raises:
            InputError: The folder has no finished run of that number.
        """
        lines = self.lines()
        if number >= len(lines):
            raise InputError(f"{self.path}: there is no run {number}; finished runs: {len(lines)}, counted from 0")
        return lines[number]

    def cells(self) -> list[CellRun]:
        """All finished cells in the folder of a grid, by id, including cells that the grid no
        longer names.

        Raises:
            RunFolderError: One of them cannot be read.
        """
        ids = sorted(path.stem for path in (self.path / _CELLS).glob("*.json"))
        return [run for id_ in ids if (run := self._cell(id_)) is not None]

    def failures(self) -> list[CellRun]:
        """The policies that failed, each with its error.

        Raises:
            RunFolderError: They cannot be read.
        """
        return [
            CellRun(
                value_in(line, "policy", _FAILURES),
                value_in(line, "seed", _FAILURES),
                error=value_in(line, "error", _FAILURES),
            )
            for line in read_lines(self.path / _FAILURES)
        ]

    def whole(self) -> list[CellRun]:
        """The finished runs of the policies that did not fail, which can be compared.

        Raises:
            RunFolderError: They cannot be read.
        """
        failed = {failure.policy for failure in self.failures()}
        return [run for run in self.lines() if run.policy not in failed]

    def missing(self) -> str | None:
        """A sentence if the folder holds fewer runs than when it was finished, such as ``3 of 8
        runs are there``.

        Raises:
            RunFolderError: The runs cannot be read.
        """
        policies, seeds = self.manifest.get("policies") or (), self.manifest.get("seeds") or ()
        if self.state != "done" or not policies or self.manifest["command"] == "train":
            return None
        due = self.manifest["plan"]["sweep"]["cells"] if is_sweep(self.path) else len(policies) * len(seeds)
        count = len(self.lines())
        if count >= due:
            return None
        command = f"dagsim sweep {self.path}" if is_sweep(self.path) else None
        command = command or f"dagsim {self.manifest['command']} --resume {self.path}"
        return f"{self.path}: {count} of {due} runs are there, although its state is done; {command} runs the others"

    def progress(self) -> list[dict[str, Any]]:
        """The events in ``progress.jsonl`` of a grid; an incomplete last line is ignored.

        Raises:
            RunFolderError: They cannot be read.
        """
        return read_lines(self.path / _PROGRESS)

    def to_dict(self) -> dict[str, Any]:
        """Its state, summary and runs as plain values, safe for JSON."""
        lines, failures = self.lines(), self.failures()
        failed = [{"policy": run.policy, "seed": run.seed, "error": run.error} for run in failures]
        return {
            "run": str(self.path),
            "state": self.state,
            "summary": summary_of(lines),
            **({"failures": failed} if failed else {}),
            "runs": [run.line for run in lines],
        }

    def schedule(self, number: int) -> Schedule:
        """The schedule of finished run ``number``.

        Raises:
            RunFolderError: It is missing or damaged.
        """
        return read_schedule(self.path / "schedules" / f"{number:03d}", self._cluster())

    def _cluster(self) -> Cluster:
        """The machines of the experiment.

        Raises:
            CodeNotAllowed: Its system is code outside dagsim, which was not imported.
        """
        if isinstance(self.config.system, Foreign):
            raise CodeNotAllowed(
                f"{self.path}: its system {self.config.kind!r} is code outside dagsim, which was not imported; "
                "--allow-code imports it (docs/security.md)"
            )
        return scenario_of(self.config).cluster

    def _engines(self) -> dict[str, EngineUse]:
        """The engine of each policy's first run; empty for systems that have only one."""
        used: dict[str, EngineUse] = {}
        for line in read_lines(self.path / _TIMING):
            if "engine" in line:
                used.setdefault(line["policy"], EngineUse(**line["engine"]))
        return used

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
            raise RunFolderError(f"{path}: not readable as a cell ({error}); delete it to run it again") from None

    # Writing

    def _tell(self, event: str, **facts: Any) -> None:
        """Append a line to ``progress.jsonl``."""
        path = self.path / _PROGRESS
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        append(path, json_line({"event": event, "time": time, **facts}), path.stat().st_size if path.exists() else 0)

    def _mend(self) -> None:
        """Cut off everything after the last finished run.

        Raises:
            RunFolderError: Data before it is missing.
            OSError: It cannot be written.
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
        """Length of each file after the last finished run."""
        if self._ends is None:
            runs, timing = (whole_lines(self.path / name) for name in (_RUNS, _TIMING))
            count = min(len(runs), len(timing))
            lines = read_lines(self.path / _RUNS)[:count]
            ends = lines[-1].get("ends") if lines else dict.fromkeys(TABLES, 0)
            if not isinstance(ends, dict) or set(ends) != set(TABLES):
                raise RunFolderError(f"{self.path / _RUNS}: made by an older dagsim; no runs can be added to it")
            self._count = count
            self._ends = ends | {_TIMING: sum(map(len, timing[:count])), _RUNS: sum(map(len, runs[:count]))}
        return self._ends
