"""The frontier, which consists of all waiting tasks, and indexes of policies, which sort the ready
tasks by a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from dagsim.model import Job
from dagsim.systems.cluster.forks import COPIED, EMPTY, Forked
from dagsim.systems.cluster.resources.cluster_state import ClusterState
from dagsim.systems.cluster.resources.nodes import DemandClass
from dagsim.systems.cluster.state import JobState, Live, Run, TaskState

SlotT = TypeVar("SlotT")

Key: TypeAlias = Callable[[TaskState], float]
"""Key of a ready task. Tasks with smaller keys come first. The key must not change while the task
waits."""
TypedKey: TypeAlias = Callable[[TaskState, int], float]
"""Key of a pair of a ready task and a GPU type (an index into ``ClusterState.types``). Pairs with
smaller keys come first."""

_Entry: TypeAlias = tuple[float, int, TaskState]


class Index(Protocol):
    """An index of the ready tasks, which the kernel keeps up to date for a policy."""

    def push(self, task: TaskState) -> None:
        """Add a task that became ready. The index itself has to drop tasks that have no ``waiting``
        instances.
        """


class RunIndex(Protocol):
    """An index of the current runs, which the kernel keeps up to date for a policy. An index need
    not define both of these methods. It may also define ``push``, and ``rated(run, now)``, which is
    called when the rate of a run changes.
    """

    def started(self, run: Run, now: float) -> None:
        """Add a run that has just started. Its machines are already occupied, and ``task.waiting``
        is already reduced.
        """

    def ended(self, run: Run, now: float) -> None:
        """Remove a run that has just finished, failed or been preempted. Its machines are already
        free again. Tasks that become ready as a result are pushed later, and ``run.task`` and
        ``run.job`` may not be updated yet.
        """


class _Heaps(Generic[SlotT]):
    """The ready tasks in one heap per slot, each heap sorted by ``(key, order)``. A started task
    stays in its heaps until it reaches the top.
    """

    __slots__ = ("_heaps", "_machines", "_quiet")

    def __init__(self, machines: ClusterState) -> None:
        self._machines = machines
        self._quiet = -1
        """The value of ``ClusterState.released`` when nothing fitted last time. Nothing will fit
        until this value changes or a task is added."""
        self._heaps: dict[SlotT, list[_Entry]] = {}

    def _first_fit(self, fits: Callable[[SlotT], bool]) -> tuple[TaskState, SlotT] | None:
        """Return the first task with a slot for which ``fits`` is true now, and this slot. Return
        None if there is none.
        """
        if self._quiet == self._machines.released:
            return None
        best: _Entry | None = None
        for slot, heap in self._heaps.items():
            while heap and not heap[0][2].waiting:
                heappop(heap)
            if heap and (best is None or heap[0] < best) and fits(slot):
                best, place = heap[0], slot
        if best is not None:
            return best[2], place
        self._quiet = self._machines.released
        return None


class Queue(_Heaps[DemandClass]):
    """Ready tasks sorted by ``(key, order)`` within each demand class. The first task that fits is
    thus found without visiting the other tasks.

    The cost is O(log tasks) for adding or removing a task, and O(demand classes) per query.
    """

    __slots__ = ("_key",)

    def __init__(self, key: Key, machines: ClusterState) -> None:
        super().__init__(machines)
        self._key = key

    def push(self, task: TaskState) -> None:
        """Add a task that became ready."""
        demand = task.demand
        heap = self._heaps.get(demand)
        if heap is None:
            heap = self._heaps[demand] = []
        heappush(heap, (self._key(task), task.order, task))
        self._quiet = -1

    def first(self) -> TaskState | None:
        """Return the first of all tasks, whether or not it fits now, or None if there are no tasks."""
        best: _Entry | None = None
        for heap in self._heaps.values():
            while heap and not heap[0][2].waiting:
                heappop(heap)
            if heap and (best is None or heap[0] < best):
                best = heap[0]
        return None if best is None else best[2]

    def first_fit(self) -> TaskState | None:
        """Return the first task among those that fit somewhere now, or None if none fits."""
        first = self._first_fit(self._machines.fits)
        return None if first is None else first[0]


class TypedQueue(_Heaps[tuple[DemandClass, int]]):
    """Pairs of a ready task and a GPU type, sorted by ``(key, order)`` within each demand class and
    type.
    """

    __slots__ = ("_key",)

    def __init__(self, key: TypedKey, machines: ClusterState) -> None:
        super().__init__(machines)
        self._key = key

    def push(self, task: TaskState) -> None:
        """Add a task that became ready, once for each type that it may run on."""
        for type_ in task.demand.types:
            slot = task.demand, type_
            heap = self._heaps.get(slot)
            if heap is None:
                heap = self._heaps[slot] = []
            heappush(heap, (self._key(task, type_), task.order, task))
        self._quiet = -1

    def first(self) -> tuple[TaskState, int] | None:
        """Return the first of all pairs, whether or not it fits now, or None if there are no pairs."""
        best: tuple[_Entry, int] | None = None
        for (_, type_), heap in self._heaps.items():
            while heap and not heap[0][2].waiting:
                heappop(heap)
            if heap and (best is None or heap[0] < best[0]):
                best = heap[0], type_
        return None if best is None else (best[0][2], best[1])

    def first_fit(self) -> tuple[TaskState, int] | None:
        """Return the first pair of a task and a type among those that fit now, or None if none fits."""
        first = self._first_fit(self._fits)
        return None if first is None else (first[0], first[1][1])

    def _fits(self, slot: tuple[DemandClass, int]) -> bool:
        return self._machines.fits(slot[0]) and self._machines.fits_on(*slot)


class Past(Protocol):
    """The events before the beginning of the simulation."""

    at_s: float
    """The time at which the simulation begins."""
    jobs: Sequence[Job]
    """The jobs of the simulation that arrived before the beginning."""
    is_whole: bool
    """True if all events before the beginning are known."""
    reminded: list[object]
    """Listeners that already remember the earlier events and therefore receive only the events at the beginning."""

    def tell(self, index: object) -> None:
        """Call the methods of an index for all events, in their original order and with their
        original times.
        """


class Frontier(Forked):
    """The jobs in the system, the ready tasks in the order in which they became ready, and the
    indexes of policies. Listeners are called for ready tasks, starts and ends.
    """

    __slots__ = {
        "_pushes": EMPTY,
        "ended": EMPTY,
        "indexes": EMPTY,
        "jobs": COPIED,
        "past": EMPTY,
        "rated": EMPTY,
        "ready": COPIED,
        "rejected": COPIED,
        "started": EMPTY,
        "unknown": COPIED,
    }

    def __init__(self) -> None:
        self.indexes: dict[object, Any] = {}
        """The indexes (``Index``, ``RunIndex`` or both), by the key that the policy chose."""
        self._pushes: list[Callable[[TaskState], None]] = []
        self.started: list[Callable[[Run, float], None]] = []
        """Called on each start."""
        self.ended: list[Callable[[Run, float], None]] = []
        """Called on each end."""
        self.rated: list[Callable[[Run, float], None]] = []
        """Called on each change of a rate."""
        self.past: Past | None = None
        """The events before the beginning of a simulation that begins in the middle."""
        self.unknown: dict[str, None] = {}
        """The ``remembers`` texts of listeners that would need jobs which had left, if these jobs are not known."""
        self.jobs: Live[int, JobState] = Live()
        self.ready: Live[TaskState, None] = Live()
        """Ready tasks, in the order in which they became ready."""
        self.rejected: list[JobState] = []
        """Jobs that have just arrived at a site and were rejected."""

    def add(self, task: TaskState, now: float) -> None:
        """Add a task that became ready, or a piece whose instances returned. When the last waiting
        instance of a task starts, the kernel removes the task from ``ready``, and the indexes drop
        it when they next encounter it.
        """
        task.ready_s = now
        self.ready[task] = None
        for push in self._pushes:
            push(task)

    def build(self, index: object, key: object, running: Iterable[Run], now: float) -> None:
        """Fill a new index with ready tasks and runs, and keep it up to date. An index built at the
        beginning receives the whole past. A later index receives only the tasks that are waiting or
        running.
        """
        self.indexes[key] = index
        push, started, ended, rated = (getattr(index, name, None) for name in ("push", "started", "ended", "rated"))
        if self.past is not None and self.past.at_s == now and ended is not None:
            self.past.tell(index)
        else:
            if push is not None:
                for task in self.ready:
                    push(task)
            if started is not None:
                for run in running:
                    started(run, run.started_s)
        if push is not None:
            self._pushes.append(push)
        if started is not None:
            self.started.append(started)
        if ended is not None:
            self.ended.append(ended)
        if rated is not None:
            self.rated.append(rated)

    def withdraw(self, tasks: Iterable[TaskState]) -> None:
        """Remove ready tasks that will never start. Indexes of ready tasks are rebuilt when they
        are next requested. Listeners are not rebuilt, because they store the past and would
        otherwise receive all runs again.
        """
        for task in tasks:
            task.waiting = 0
            del self.ready[task]
        gone = [key for key, index in self.indexes.items() if index is not key and hasattr(index, "push")]
        for key in gone:
            self.forget(key)

    def end_past(self) -> None:
        """Stop telling indexes about events from before the beginning. Called once the simulation
        time is past the beginning.
        """
        if self.past in self.indexes:
            self.forget(self.past)
        self.past = None

    def forget(self, key: object) -> None:
        """Stop sending events to an index."""
        index = self.indexes.pop(key)
        calls: dict[str, list[Any]] = {
            "push": self._pushes, "started": self.started, "ended": self.ended, "rated": self.rated
        }  # fmt: skip
        for name, listeners in calls.items():
            listeners[:] = [call for call in listeners if call != getattr(index, name, None)]

    def believe_estimates(self) -> None:
        """Use the estimated durations of tasks from now on. Forks for look-ahead call this."""
        everything = [task for job in self.jobs.values() for task in job.tasks]
        for task in (*everything, *(task for task in self.ready if task.piece)):
            task.believe_estimate()
