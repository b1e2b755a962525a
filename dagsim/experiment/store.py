"""The store: a folder that contains a plan, its finished cells, and their results.

    results/20261120T193000Z-eval-sjf-s0-3fa9c1/
    ├── config.yaml       the configuration; `dagsim eval --config config.yaml` writes the same tables, byte for byte
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
    ├── aside/            logs of finished simulations whose later steps failed, for the next invocation
    ├── schedules/        the schedule of each policy and seed: NNN.npy (its log), NNN.json.gz (its jobs);
    │                     for a large run NNN.npz (both, in columns), without rows in the two tables
    └── plots/

The cells of a grid finish in any order, so the folder of a sweep (`whatif` and `plan` create sweeps
as well) has this layout:

    results/sweep-NAME/
    ├── sweep.yaml        the grid, with every value and its label; `dagsim sweep` on the folder continues it
    ├── cells/ID.json     a finished cell: its value on each axis, policy, seed, workload, every metric
    ├── cells/ID.*        with `keep: jobs` also jobs.csv.gz; with `keep: log` also tasks.csv.gz and the schedule;
    │                     with `keep: series` (`whatif`, `plan`) values of each job
    ├── progress.jsonl    a line for each event, to show progress; only this file and timing.jsonl
    │                     contain clock times
    ├── results.csv       at the end: a row for each cell, sorted by ID
    └── runs.jsonl, timing.jsonl, summary.json
                          at the end: the cells, stored like the runs of a run folder

Only one process writes. A cell is stored either completely or not at all, because its line in
``runs.jsonl`` (or its file ``cells/ID.json``) is written last. ``runs.jsonl`` states the length of each
table with the rows of the run (``ends``), so a later writer can cut off what a killed process left
behind. Apart from clock times, an interrupted plan therefore ends with the same bytes as an
uninterrupted one.
"""

from __future__ import annotations

import os
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, get_args

from dagsim.config.dumping import dump_config
from dagsim.config.schema import Config, load_config
from dagsim.errors import CodeNotAllowed, ConfigError, InputError, RunFolderError
from dagsim.experiment.aside import LogsAside
from dagsim.experiment.cell import Cell
from dagsim.experiment.cell_run import (
    FAILURES,
    TIMING,
    CellRun,
    engine_of,
    listed_failures,
    listed_runs,
    summary_of,
)
from dagsim.experiment.folder_files import (
    check_shape,
    json_text,
    overwrite,
    read_json_file,
    read_lines,
    rename_free,
    unwritable,
    write_whole,
)
from dagsim.experiment.plan import Plan
from dagsim.experiment.provenance import KINDS, SCHEMA, changes
from dagsim.experiment.scenario import scenario_of, workload_label
from dagsim.experiment.schedule_files import read_schedule
from dagsim.family import Entry, family_entries
from dagsim.files import Lock, file_hash
from dagsim.metrics.standings import PolicyResult
from dagsim.model import Cluster
from dagsim.model.log import Schedule
from dagsim.own_code import allowed
from dagsim.sections import Foreign
from dagsim.spelling import nearest_file
from dagsim.systems.seam import EngineUse
from dagsim.text import count_of

if TYPE_CHECKING:
    from dagsim.experiment.grid_store import GridStore

RunState: TypeAlias = Literal["running", "done", "failed", "interrupted"]

LONGEST_NAME = 80
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
    **{kind: {None: _FILES} for kind in KINDS},
}
"""The types of values in the manifest (see ``check_shape``)."""
GRID = "sweep.yaml"


def is_sweep(path: Path) -> bool:
    """Return True if the run folder at ``path`` contains the cells of a grid."""
    return (path / GRID).is_file() and (path / "manifest.json").is_file()


def recorded_code(path: Path) -> dict[str, str]:
    """Return the code outside dagsim that was used by the run in the folder ``path``, as a mapping
    from names to the SHA-256 of the source (see ``own_code.Allowed``).

    Raises:
        RunFolderError: The manifest cannot be read.
    """
    facts = read_json_file(path / "manifest.json")
    return _recorded_code(facts if isinstance(facts, dict) else {})


def _recorded_code(facts: Mapping[str, Any]) -> dict[str, str]:
    code = facts.get("code")
    if not isinstance(code, dict):
        return {}
    return {name: str(fact.get("sha256")) for name, fact in code.items() if isinstance(fact, dict)}


def run_folders(paths: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Return the paths without those that contain no run, which a shell includes in ``results/*``,
    and a sentence for each path that is left out. There is no sentence for files that dagsim itself
    stores beside run folders. If no path contains a run, all others are kept.
    """
    others = [path for path in paths if path.name not in _BESIDE or _is_run(path)]
    kept = [path for path in others if _is_run(path) or not path.exists()]
    if not kept:
        return others or list(paths), []
    return kept, [f"{_why_no_run(path)}; it is left out" for path in others if path not in kept]


def _is_run(path: Path) -> bool:
    return (path / "manifest.json").exists()


def _why_no_run(path: Path) -> str:
    """Return the reason why an existing path is not a run folder."""
    if path.is_file():
        return f"{path}: a file, not a run folder"
    inside = sorted(path.glob("*/manifest.json"))
    hint = f"; it contains {count_of(len(inside), 'run folder')}, such as {inside[-1].parent}" if inside else ""
    return f"{path}: not a run folder, because it has no manifest.json{hint}"


_BESIDE = ("seeds.yaml", "references")
"""The ledger of report seeds, and the searches of training runs for the best heuristic."""


class Store(ABC):
    """One run folder: a ``RunStore``, or a ``GridStore`` for the cells of a grid. To create a
    folder, use ``begin`` or ``RunStore.create``. To read one, use ``open`` or ``read``.
    """

    _holds: str
    """The subfolder for finished cells."""

    def __init__(self, path: Path, config: Config, manifest: dict[str, Any]) -> None:
        self.path, self.config, self.manifest = path, config, manifest
        self.ranked: Sequence[PolicyResult] = ()
        """The comparison of several policies after ``carry_out``, as in ``comparison.csv``."""
        self._lock = Lock(path / "lock")

    # Creating and opening

    @staticmethod
    def begin(root: Path, plan: Plan, *, argv: Sequence[str]) -> Store:
        """Return the folder for a plan below ``root``, ready for writing. The folder of a grid is
        called ``COMMAND-NAME`` and may already exist, whereas any other folder is always new.

        Raises:
            RunFolderError: Another process is writing to the folder, or the folder belongs to
                another command or cannot be written.
        """
        return _kind(plan.grid is not None).of_plan(root, plan, argv)

    @classmethod
    @abstractmethod
    def of_plan(cls, root: Path, plan: Plan, argv: Sequence[str]) -> Store:
        """Return the folder for ``plan``, as in ``begin``. A ``GridStore`` takes only grids, and a
        ``RunStore`` only other plans.
        """

    @classmethod
    def _made(
        cls, path: Path, config: Config, facts: dict[str, Any], argv: Sequence[str], *, numbered: bool, **files: str
    ) -> Self | None:
        """Create the folder under a temporary name, and rename it when it is complete. If the final
        name is taken, append a number to it if ``numbered`` is True. Otherwise, return None.
        """
        unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
        store = cls(unfinished, config, facts)
        try:
            if unfinished.exists():  # left by a killed process that had the same process ID
                rmtree(unfinished)
            (unfinished / cls._holds).mkdir(parents=True)
            store.claim()
            store._describe(argv, **files)
            store.mark("running")
            renamed = rename_free(unfinished, path, numbered=numbered)
        # Also catch exceptions that a signal raises, because nothing else would remove the folder.
        except BaseException:
            with suppress(OSError):
                rmtree(unfinished)
            raise
        if renamed is None:
            store._lock.release()
            rmtree(unfinished)
            return None
        store.path, store._lock.path = renamed, renamed / "lock"
        return store

    def _describe(self, argv: Sequence[str], **files: str) -> None:
        """Write the files that describe the plan, and additional files by name. The manifest is
        written last, because a folder with a manifest is a run folder.
        """
        write_whole(self.path / "config.yaml", dump_config(self.config))
        write_whole(self.path / "command.txt", shlex.join(argv) + "\n")
        for name, text in files.items():
            write_whole(self.path / name, text)
        write_whole(self.path / "manifest.json", json_text(self.manifest))

    @staticmethod
    def open(path: Path, *, own: bool = False) -> Store:
        """Open the run folder at ``path``. If the process that wrote to it was killed, remove the
        unfinished rows.

        The folder is treated as data. Code outside dagsim that its configuration names is only
        imported with ``own=True``, which is needed to run the experiment again.

        Raises:
            RunFolderError: The folder is missing, damaged or from another version, or its
                configuration has been changed.
            CodeNotAllowed: The folder names code that this process may not import.
        """
        store = Store.read(path, own=own)
        with suppress(OSError, RunFolderError):  # leave the folder as it is if it is damaged or read-only
            if store.state == "running" and store._lock.claim():
                pid = read_json_file(path / "status.json").get("pid")
                store._mend()
                store.mark("interrupted", f"its process ({pid}) ended without recording its state")
        store._lock.release()
        return store

    @staticmethod
    def read(path: Path, *, own: bool = False) -> Store:
        """Read the run folder at ``path`` without writing anything. Another process may be writing
        to it at the same time.

        Raises:
            RunFolderError: As in ``open``.
        """
        if not (path.is_file() or path.is_dir()):
            raise RunFolderError(f"{path}: no such run folder{nearest_file(path)}")
        if not _is_run(path):
            hint = "; give a folder that a command such as dagsim eval wrote to results/" if path.is_file() else ""
            raise RunFolderError(f"{_why_no_run(path)}{hint}")
        facts = read_json_file(path / "manifest.json")
        if not isinstance(facts, dict) or facts.get("schema") != SCHEMA:
            raise RunFolderError(
                f"{path / 'manifest.json'}: this version only reads run folders with schema {SCHEMA}; "
                "repeat the run with the command in command.txt"
            )
        check_shape(facts, _MANIFEST, path / "manifest.json")
        names = allowed()
        own = own or (names is not None and names.everything)
        if own and names is not None:
            names.trust_recorded(path, _recorded_code(facts))
        file = path / "config.yaml"
        # Compare the hash before looking up any name in the file.
        if file.is_file() and file_hash(file) != facts.get("config_sha256"):
            raise RunFolderError(f"{file}: was changed after the run (its hash differs from the manifest's)")
        try:
            config = load_config(file, own=own)
        except ConfigError as error:
            raise RunFolderError(
                f"{path}: the configuration of the run cannot be read: {'; '.join(error.args)}"
            ) from None
        return _kind(is_sweep(path))(path, config, facts)

    # What the folder contains

    @property
    def name(self) -> str | None:
        """The name that the user gave to the folder, or None."""
        return self.manifest.get("name")

    @property
    def label(self) -> str:
        """The name that the user gave to the folder, if any, and the workload."""
        workload = workload_label(self.config)
        return workload if self.name is None else f"{self.name}: {workload}"

    @property
    def state(self) -> RunState:
        """The state of the run according to ``status.json``."""
        status = read_json_file(self.path / "status.json")
        if not isinstance(status, dict) or status.get("state") not in get_args(RunState):
            raise RunFolderError(
                f"{self.path / 'status.json'}: the state must be one of {', '.join(get_args(RunState))}"
            )
        state: RunState = status["state"]
        return state

    def lines(self) -> list[CellRun]:
        """Return the finished runs, in order, ignoring an incomplete last line.

        Raises:
            RunFolderError: A file cannot be read.
        """
        return listed_runs(self.path)

    def line(self, number: int) -> CellRun:
        """Return the finished run with this number, counted from 0.

        Raises:
            InputError: The folder has no finished run with that number.
        """
        lines = self.lines()
        if number >= len(lines):
            raise InputError(f"{self.path}: there is no run {number}; finished runs: {len(lines)}, counted from 0")
        return lines[number]

    def spec_of(self, name: str) -> str:
        """Return the policy that the user called ``name``. If there is none, ``name`` is itself a
        policy, and is returned unchanged.
        """
        return str((self.manifest.get("named") or {}).get(name, name))

    def failures(self) -> list[CellRun]:
        """Return a record of each policy that failed, with its error.

        Raises:
            RunFolderError: The file cannot be read.
        """
        return listed_failures(self.path)

    def whole(self) -> list[CellRun]:
        """Return the finished runs of all policies that did not fail. These runs can be compared.

        Raises:
            RunFolderError: A file cannot be read.
        """
        failed = {failure.policy for failure in self.failures()}
        return [run for run in self.lines() if run.policy not in failed]

    def to_dict(self) -> dict[str, Any]:
        """Return the state, the summary and the runs as plain values for JSON."""
        lines, failures = self.lines(), self.failures()
        failed = [{"policy": run.policy, "seed": run.seed, "error": run.error} for run in failures]
        return {
            "run": str(self.path),
            "state": self.state,
            "summary": summary_of(lines),
            **({"failures": failed} if failed else {}),
            "runs": [run.line for run in lines],
        }

    def engines(self) -> dict[str, EngineUse]:
        """Return the engine of each policy's first run. The result is empty for systems that have
        only one engine.
        """
        used: dict[str, EngineUse] = {}
        for line in read_lines(self.path / TIMING):
            if "engine" in line:
                used.setdefault(line["policy"], EngineUse(**line["engine"]))
        return used

    def schedule(self, number: int) -> Schedule:
        """Return the schedule of the finished run with this number.

        Raises:
            RunFolderError: The schedule is missing or damaged.
        """
        return read_schedule(self.path / "schedules" / f"{number:03d}", self.cluster())

    def cluster(self) -> Cluster:
        """Return the machines of the experiment.

        Raises:
            CodeNotAllowed: The system's class is outside dagsim and was not imported.
        """
        if isinstance(self.config.system, Foreign):
            raise CodeNotAllowed(
                f"{self.path}: the system {self.config.kind!r} is code outside dagsim, which was not "
                "imported; give --allow-code to import it (docs/security.md)"
            )
        return scenario_of(self.config).cluster

    # The plan and the state of the folder

    def as_grid(self) -> GridStore:
        """Return this folder as the folder of a grid.

        Raises:
            RunFolderError: The folder belongs to another command.
        """
        raise RunFolderError(f"{self.path}: not the folder of a sweep, because it contains no {GRID}")

    @abstractmethod
    def plan(self) -> Plan:
        """Return the plan for which the folder was made.

        Raises:
            InputError: A file that the plan needs cannot be read.
        """

    @property
    def dead(self) -> bool:
        """True if the state is ``running`` but no process holds the lock, because the process was
        killed."""
        return self.state == "running" and self._lock.is_free()

    def claim(self) -> None:
        """Make this process the only writer of the folder, until the run is marked as ended or the
        process ends.

        Raises:
            RunFolderError: Another process writes to the folder.
            OSError: The folder cannot be written to.
        """
        if not self._lock.claim():
            pid = None
            with suppress(RunFolderError, AttributeError):
                pid = read_json_file(self.path / "status.json").get("pid")
            raise RunFolderError(f"{self.path}: another process ({pid}) is writing to it; wait until it has ended")

    def resume(self) -> None:
        """Make this process the writer of the interrupted run. Remove unfinished rows that the previous writer left.

        Raises:
            RunFolderError: Another process writes to the folder, an older version of dagsim created
                it, a file that determines the run has changed, or the folder cannot be written to.
        """
        if not self.manifest.get("policies"):
            raise RunFolderError(
                f"{self.path}: cannot be resumed, because its manifest does not list the policies to run and its "
                "command has no --resume; repeat the run with the command in command.txt"
            )
        self.check_unchanged()
        try:
            self.claim()
            self._mend()
            (self.path / FAILURES).unlink(missing_ok=True)  # forget failures, so that these policies are tried again
            self.mark("running")
        except OSError as error:
            raise unwritable(self.path, error) from None

    def check_unchanged(self) -> None:
        """Check that everything that determines the run is still the same.

        Raises:
            RunFolderError: The simulation code has changed, or a file such as the trace is missing
                or has changed since the run began.
        """
        if changed := changes(self.manifest):
            raise RunFolderError(
                f"{self.path}: cannot be resumed: {'; '.join(changed)}. Restore the old version, or start a new run"
            )
        self.check_trace()

    def check_trace(self) -> None:
        """Check that the trace is still the same.

        Raises:
            RunFolderError: The trace is missing or has changed since the run began.
        """
        trace = self.manifest["trace"]
        if trace is not None and (
            not Path(trace["path"]).exists() or file_hash(Path(trace["path"])) != trace["sha256"]
        ):
            raise RunFolderError(
                f"{self.path}: cannot be resumed, because the trace {trace['path']} is missing or has changed"
            )

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Add a note to any error raised in the block. The note states what has been kept, and
        which command continues the run.
        """
        try:
            yield
        except (KeyboardInterrupt, Exception) as error:
            note = self._note(stopped=isinstance(error, KeyboardInterrupt))
            if note and note not in getattr(error, "__notes__", ()):
                error.add_note(note)
            raise

    def _note(self, *, stopped: bool) -> str:
        """State what has been kept, and which command continues the run. The result is empty if
        nothing was kept.
        """
        if kept := self._kept_by_command():
            return (
                f"the {kept.summary} is kept in {self.path}; continue with: dagsim {kept.name} --resume "
                f"{shlex.quote(str(self.path))}"
            )
        try:
            count = self._count_done()
            again = self._command_on()
            logs = len(self.aside)
        except (OSError, ValueError, InputError, RunFolderError) as error:
            return f"{self.path}: its contents cannot be read: {error}"
        aside = f" and the logs of {logs} more" if logs else ""
        if not (count or logs or stopped):
            return ""
        return f"{count} finished {self._unit}{aside} are kept in {self.path}; continue with: {again}"

    def _kept_by_command(self) -> Entry | None:
        """Return the entry of the folder's command, if a family has registered one because the
        command stores its own progress in the folder instead of cells. Otherwise, return None."""
        entries = (entry for _, entry in family_entries("kept_by_command"))
        return next((entry for entry in entries if entry.name == self.manifest["command"]), None)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the folder's lock while the block is running. If the block fails or is interrupted,
        write this to ``status.json``.

        Raises:
            RunFolderError: Another process writes to the folder, or it cannot be written to.
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

    def _give_up(self, state: RunState, error: str | None = None) -> None:
        with suppress(OSError):
            self.mark(state, error)
        self._lock.release()

    def mark(self, state: RunState, error: str | None = None) -> None:
        """Write a new ``status.json``. The state ``running`` reserves the folder for this process,
        and any other state releases it.

        Raises:
            RunFolderError: Another process writes to the folder.
            OSError: The file cannot be written.
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

    def note(self, **facts: Any) -> None:
        """Change entries in the manifest. This is for runs whose seeds or length are only known
        later.

        Raises:
            RunFolderError: The manifest cannot be written.
        """
        self.manifest |= facts
        try:
            write_whole(self.path / "manifest.json", json_text(self.manifest))
        except OSError as error:
            raise unwritable(self.path, error) from None

    # Finished cells

    @abstractmethod
    def done(self, cells: Iterable[Cell]) -> dict[Cell, CellRun]:
        """Return the cells that are finished.

        Raises:
            RunFolderError: A cell cannot be read.
        """

    @abstractmethod
    def keep(self, cell: Cell, run: CellRun) -> None:
        """Save a finished cell atomically.

        Raises:
            RunFolderError: The cell cannot be written.
        """

    def fail(self, cell: Cell, run: CellRun) -> None:
        """Record that the policy of a cell failed. In a grid, the next invocation tries the cell
        again. In any other plan, the remaining runs of the policy are skipped.

        Raises:
            RunFolderError: The record cannot be written.
        """
        self.aside.keep(replace(run, id=cell.id))
        try:
            self._note_failure(cell, run)
        except OSError as error:
            raise unwritable(self.path, error) from None

    @abstractmethod
    def _note_failure(self, cell: Cell, run: CellRun) -> None:
        """Append the failure of a cell to a file."""

    @abstractmethod
    def started(self, cells: int, done: int, to_run: int) -> None:
        """Record that an invocation has begun to run cells.

        Raises:
            OSError: The record cannot be written.
        """

    @abstractmethod
    def _list_cells(self, plan: Plan, state: str) -> None:
        """List the finished cells as runs, for the summary."""

    @property
    @abstractmethod
    def _unit(self) -> str:
        """The word for finished cells in messages."""

    @abstractmethod
    def _count_done(self) -> int:
        """Return the number of finished cells."""

    @abstractmethod
    def _due(self) -> int:
        """Return the number of planned cells."""

    @abstractmethod
    def _command_on(self) -> str:
        """Return the command that continues the plan."""

    @abstractmethod
    def _mend(self) -> None:
        """Cut off everything after the last finished cell.

        Raises:
            RunFolderError: Data from a finished cell is missing.
            OSError: A file cannot be written.
        """

    @property
    def aside(self) -> LogsAside:
        """The logs of finished simulations whose later steps failed."""
        return LogsAside(self.path / "aside")

    def finish(self, state: RunState = "done", error: str | None = None, plan: Plan | None = None) -> None:
        """Write the summary of all runs and the final state. For a grid, ``plan`` selects the cells to
        list. After a failure, write as much as possible.

        Raises:
            RunFolderError: ``state`` is ``done``, and the summary cannot be written.
        """
        try:
            if plan is not None:
                self._list_cells(plan, state)
            write_whole(self.path / "summary.json", json_text(summary_of(self.lines())))
            noted: dict[str, Any] = {"engine": engine_of(used)} if (used := self.engines()) else {}
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

    def missing(self) -> str | None:
        """If the folder contains fewer runs than when it was finished, return a sentence such as
        ``contains only 3 of 8 runs``. Otherwise, return None.

        Raises:
            RunFolderError: The runs cannot be read.
        """
        if self.state != "done" or not self.manifest.get("policies") or self._kept_by_command():
            return None
        due, count = self._due(), len(self.lines())
        if count >= due:
            return None
        return (
            f"{self.path}: contains only {count} of {due} runs, although its state is done; {self._command_on()} "
            "runs the others"
        )


def _kind(is_grid: bool) -> type[Store]:
    """Return the class for a folder: ``GridStore`` if it contains a grid, and otherwise
    ``RunStore``.
    """
    if is_grid:
        from dagsim.experiment.grid_store import GridStore

        return GridStore
    from dagsim.experiment.run_store import RunStore

    return RunStore
