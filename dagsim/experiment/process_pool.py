"""Worker processes that carry out work on items and return the results in order."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context
from multiprocessing.connection import wait as wait_for_processes
from time import process_time
from typing import Any, Generic, TypeAlias, TypeVar

from dagsim.errors import DagsimError, SimulationError
from dagsim.workers import end_with_parent, kill_workers, leave_to_workers, starting

OnProgress: TypeAlias = Callable[[int, int, int], None]
"""A function that is called with the index of an item in progress, the number of finished items,
and a count that the item reports (of its jobs).
"""
_KILLS = 3
"""The work fails after this many workers have been killed without any item being finished in
between.
"""

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
