"""Executors. They run cells in processes on this machine (``--executor local:4``), on a Ray
cluster, or as Slurm jobs.

An executor runs the cells, but it writes no files. The process that calls it does.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import active_children, get_context
from multiprocessing.connection import wait as wait_for_processes
from pathlib import Path
from time import process_time
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from dagsim.config.schema import Config
from dagsim.errors import ConfigError, DagsimError, PluginError, RunFolderError, SimulationError
from dagsim.experiment.aside import log_of, played_from
from dagsim.experiment.cell import Cell
from dagsim.experiment.cell_run import CellRun, Keep, run_of
from dagsim.experiment.provenance import code_digest
from dagsim.experiment.scenario import scenario_of
from dagsim.experiment.simulate import Played, play_policy
from dagsim.processes import end_with_parent, kill_workers, leave_to_workers, starting
from dagsim.registry import Entry, Registry

OnProgress: TypeAlias = Callable[[int, int, int], None]
"""A function that is called with the index of an item in progress, the number of finished items,
and a count that the item reports (of its jobs).
"""
Wanted: TypeAlias = Callable[[Cell], bool]
"""A function that returns False for a cell that is no longer needed."""

_KILLS = 3
"""The run fails after this many workers have been killed without any cell being finished in
between.
"""


@dataclass(frozen=True, slots=True)
class CellWork:
    """A function object that runs cells. It is pickled and sent to workers, where traces must be at
    the configured paths.
    """

    keep: Keep = "log"
    raises: bool = False
    """True if an error in a policy is raised instead of being stored in the run."""
    named: bool = False
    """True if each run contains the id of the cell."""
    code: str | None = None
    """Digest of the simulation code, which must be the same in the worker, as must the files that a
    cell depends on. None skips these checks."""
    trace: str | None = None
    """Path of the trace on this machine, if it differs from the configured one."""
    aside: str | None = None
    """The folder in which the log of a finished simulation is saved if a later step of its run fails."""

    def __call__(self, cell: Cell, tell: Callable[[int], None]) -> CellRun:
        """Simulate ``cell``, and call ``tell`` from time to time with the number of jobs that have
        arrived.

        Raises:
            RunFolderError: The code here, or a file that the cell depends on, differs from the one of
                the calling process.
            InputError: As in ``run_policy``.
        """
        if self.code is not None:
            check_code(self.code)
        config, log = self._config(cell), None
        if self.code is not None and Cell(config, cell.policy, cell.seed, cell.label).id != cell.id:
            raise RunFolderError(
                "a file that the configuration or the policy names is missing on this worker, or differs from the one "
                "on the calling machine"
            )
        try:
            played = self._set_aside(cell) or play_policy(config, cell.policy, cell.seed, tell, name=cell.name)
            log = partial(log_of, played)
            run = run_of(played.outcome(config), self.keep)
        except Exception as error:
            lost = CellRun(cell.name, cell.seed) if log is None else log()
            if self.raises or not isinstance(error, SimulationError | PluginError):
                # Attach the log to the error, so that the code that catches the error can save it.
                error.__dict__["log"] = replace(lost, id=cell.id)
                raise
            run = replace(lost, error=f"{type(error).__name__}: {error}")
        return replace(run, at=cell.at, id=cell.id) if self.named else run

    def _set_aside(self, cell: Cell) -> Played | None:
        """Return the finished simulation of a cell if an earlier attempt saved its log. Otherwise,
        return None.
        """
        if self.aside is None or not Path(self.aside).is_dir():
            return None
        return played_from(Path(self.aside, cell.id), scenario_of(self._config(cell)).cluster)

    def _config(self, cell: Cell) -> Config:
        return cell.config if self.trace is None else with_trace_at(cell.config, self.trace)


def check_code(code: str) -> None:
    """Check by its digest that the simulation code is the same as on the calling machine.

    Raises:
        RunFolderError: The code differs.
    """
    if code != code_digest():
        raise RunFolderError("this worker and the calling machine have different versions of dagsim")


def with_trace_at(config: Config, path: str) -> Config:
    """Return ``config`` with its trace at another path, or ``config`` itself if it has no trace."""
    system = config.whole_system
    return config if system.trace_path is None else config.model_copy(update=system.read_from(path))


class CellExecutor(Protocol):
    """The interface of executors. An executor runs cells somewhere and returns the runs to the
    caller, in any order. It writes no files.
    """

    def run(
        self, work: CellWork, cells: Sequence[Cell], on_progress: OnProgress | None = None, wanted: Wanted | None = None
    ) -> Iterator[CellRun]:
        """Yield the run of every cell once, as it finishes. ``on_progress`` may be called for cells
        in progress. Cells that are no longer ``wanted`` may be left out.

        Raises:
            DagsimError: ``work`` raised this error, or all workers have been lost.
        """


EXECUTORS: Registry[Any] = Registry(
    "executor",
    [
        Entry("local", ".executors:Local", "processes on this machine: local, or local:4 for four processes"),
        Entry("ray", ".on_ray:OnRay", "a Ray cluster: ray, or ray://HOST:10001 (pip install -e '.[ray]')"),
        Entry("slurm", ".on_slurm:OnSlurm", "Slurm jobs: slurm, or slurm:partition=short,jobs=50 ('.[slurm]')"),
    ],
    group="dagsim.executors",
    home="dagsim.experiment",
    listing="dagsim list executors",
    method="run",
)
"""Every executor by name. It is called with the text that follows the name and a colon."""


def executor_for(text: str) -> CellExecutor:
    """Return the executor that ``--executor`` names.

    Raises:
        UnknownName: The executor does not exist.
        ConfigError: The text after the executor's name is wrong.
    """
    name, _, address = text.partition(":")
    make: Any = EXECUTORS.get(name)
    executor: CellExecutor = make(address)
    return executor


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Local:
    """An executor that runs cells in processes on this machine. ``address`` is the number of
    processes, by default one per core.

    Raises:
        ConfigError: ``address`` is not a number of processes.
    """

    def __init__(self, address: str = "") -> None:
        if address and not (address.isdecimal() and 1 <= int(address) <= 4096):
            raise ConfigError(f"--executor local:{address}: expected a number of processes from 1 to 4096")
        self.workers = int(address) if address else cores()

    def run(
        self, work: CellWork, cells: Sequence[Cell], on_progress: OnProgress | None = None, wanted: Wanted | None = None
    ) -> Iterator[CellRun]:
        """Yield the runs in the order of the cells."""
        return in_order(work, cells, self.workers, on_progress, wanted or (lambda cell: True))


Item = TypeVar("Item")
Result = TypeVar("Result")

_WORTH_S = 3.0
"""Workers are not started if less than this many seconds of work are left."""
_WARM_UP_S = 0.5
"""CPU seconds of the first item that are attributed to imports."""
_LISTEN_S = 0.05
"""Seconds between two readings of the workers' counts."""
_HELD_BYTES = 1 << 28
"""Maximum total size of pickled results that wait for their turn. Above this limit, workers get no
more items.
"""


def in_order(
    work: Callable[[Item, Callable[[int], None]], Result],
    items: Sequence[Item],
    workers: int = 1,
    on_progress: OnProgress | None = None,
    wanted: Callable[[Item], bool] = lambda item: True,
) -> Iterator[Result]:
    """Yield, in order, the results of all items that are still ``wanted`` when it is their turn.

    This process begins the work itself, and starts workers when they clearly save time. The workers
    end when the iterator ends, or when this process ends for any reason. If a worker is killed, new
    workers continue with the remaining items.

    Raises:
        Exception: ``work`` raised this error for an item. It is raised when it is the item's turn.
        SimulationError: Workers were killed repeatedly.
    """
    index, kills, began = 0, 0, process_time()
    pool: _Pool[Item, Result] | None = None
    tell = on_progress or (lambda index, done, count: None)
    try:
        while index < len(items):
            left = len(items) - index
            # Use CPU time. Wall-clock time is longer when the cores are busy, so it would start
            # workers too early.
            spent_s = max(process_time() - began - _WARM_UP_S, 0.0)
            if pool is None and min(workers, left) > 1 and spent_s * left > _WORTH_S * max(index, 1):
                pool = _Pool(work, min(workers, left), telling=on_progress is not None)
            if pool is not None and pool.is_ready():
                try:
                    for following, result in pool.run(items, index, tell, wanted):
                        index, kills = following, 0
                        yield result
                    return
                except BrokenProcessPool:
                    error = pool.killed()
                    pool.end()
                    if (kills := kills + 1) == _KILLS:
                        raise error from None
                    # Meanwhile, do not run items in this process, because an item that exhausts the
                    # memory would kill this process as well.
                    pool = _Pool(work, min(workers, left), telling=on_progress is not None)
                    pool.wait()
                    continue
            if wanted(items[index]):
                yield work(items[index], lambda count, at=index: tell(at, at, count))  # type: ignore[misc]
            index += 1
    finally:
        if pool is not None:
            pool.end()


class _Pool(Generic[Item, Result]):
    """A pool of processes, each of which works on one item at a time."""

    def __init__(self, work: Callable[[Item, Callable[[int], None]], Result], count: int, *, telling: bool) -> None:
        context = get_context("spawn")
        self._count = count
        self._counts = context.SimpleQueue()
        others = set(active_children())
        with starting():
            self._executor = ProcessPoolExecutor(
                count, context, _begin, (pickle.dumps(work), self._counts if telling else None)
            )
            # The executor starts a process whenever a task is submitted, so submit one task for
            # each worker.
            self._first = [self._executor.submit(_nothing) for _ in range(count)]
        leave_to_workers(self._executor)
        self._processes = set(active_children()) - others

    def is_ready(self) -> bool:
        """Return True once a worker has started up."""
        return any(future.done() for future in self._first)

    def wait(self) -> None:
        """Wait until a worker has started up, or has failed to do so."""
        wait(self._first, return_when=FIRST_COMPLETED)

    def run(
        self, items: Sequence[Item], first: int, tell: OnProgress, wanted: Callable[[Item], bool]
    ) -> Iterator[tuple[int, Result]]:
        """Yield the results of the items from ``first`` onwards, each with the index of the next
        item.

        Raises:
            BrokenProcessPool: A worker was killed.
        """
        following = first
        futures: dict[int, Future[bytes]] = {}
        for turn in range(first, len(items)):
            while turn == following or (turn in futures and not futures[turn].done()):
                while following < len(items) and self._has_room(futures.values()):
                    if wanted(items[following]):
                        futures[following] = self._executor.submit(_made, following, items[following])
                    following += 1
                if turn in futures:
                    wait([future for future in futures.values() if not future.done()], _LISTEN_S, FIRST_COMPLETED)
                self._pass_on(tell, turn)
            self._pass_on(tell, turn)
            if turn in futures:
                result: Result = pickle.loads(futures.pop(turn).result())
                if wanted(items[turn]):
                    yield turn + 1, result

    def _pass_on(self, tell: OnProgress, turn: int) -> None:
        while not self._counts.empty():
            index, count = self._counts.get()
            tell(index, turn, count)

    def killed(self) -> SimulationError:
        """Return the error to raise after a worker was killed."""
        ended = wait_for_processes([process.sentinel for process in self._processes], 5)
        first = [process for process in self._processes if process.sentinel in ended]
        # The executor only sends SIGTERM to the other processes, which they ignore, and since
        # Python 3.12 it then waits for them endlessly.
        for process in self._processes.difference(first):
            process.kill()
        # the executor's thread may have reaped a process without having stored its exit code yet
        kill_workers(self._executor)
        code = next((process.exitcode for process in first if process.exitcode), None)
        how = "" if code is None else f"signal {-code}; " if code < 0 else f"exit code {code}; "
        return SimulationError(
            f"a worker process was killed ({how}check that there is enough memory; a single worker needs the least)"
        )

    def end(self) -> None:
        """Kill every worker. Nothing is lost, because all finished results are in this process."""
        for process in self._processes:  # including processes that the executor no longer manages
            process.kill()
        kill_workers(self._executor)

    def _has_room(self, futures: Collection[Future[bytes]]) -> bool:
        """Return True if a worker is idle, and the results that wait for their turn leave enough
        memory for more.
        """
        done = [future for future in futures if future.done()]
        held = sum(len(future.result()) for future in done if future.exception() is None)
        return len(futures) - len(done) < self._count and held < _HELD_BYTES


_work: Callable[[Any, Callable[[int], None]], Any]
"""The work of this worker process."""
_counts: Any
"""The queue for counts, or None if the parent does not show progress."""


def _begin(pickled: bytes, counts: Any) -> None:
    global _work, _counts
    end_with_parent()
    # unpickling imports everything that a worker needs
    _work, _counts = pickle.loads(pickled), counts


def _nothing() -> None:
    """Do nothing. Submitting this function makes a worker start up."""


def _made(index: int, item: Any) -> bytes:
    try:
        return pickle.dumps(_work(item, lambda count: None if _counts is None else _counts.put((index, count))))
    except Exception as error:
        raise portable(error) from None


def portable(error: Exception) -> Exception:
    """Return the error itself or, if it cannot be pickled, a similar one."""
    try:
        sent: Exception = pickle.loads(pickle.dumps(error))
    except Exception:
        kind = type(error) if isinstance(error, DagsimError) else SimulationError
        sent = kind(f"{type(error).__name__}: {error}")
    sent.__cause__ = None
    return sent
