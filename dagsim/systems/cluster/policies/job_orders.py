"""Non-preemptive policies that order whole jobs and start the critical path of a job first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from heapq import heappop, heappush
from itertools import islice
from typing import TypeAlias

import numpy as np

from dagsim.errors import require
from dagsim.model import Decision, Placement, Start
from dagsim.model.arithmetic import ordered_sum
from dagsim.systems.cluster.api import ClusterView, DemandClass, JobState, Key, NodeState, Run, TaskState
from dagsim.systems.cluster.policies.formulas import instance_work
from dagsim.systems.cluster.policies.orders import by_rank
from dagsim.systems.cluster.policies.placement import PlacementRule, alignment, fill, placing

JobKey: TypeAlias = Callable[[JobState], float]
"""Key of a job. Jobs with smaller keys come first."""

_Task: TypeAlias = tuple[float, int, int, TaskState]
"""Key of the task, order, piece, task."""
_Entry: TypeAlias = tuple[float, float, int, int, int]
"""Key of the job, then key, order and piece of its first task when the entry was made, and the
number of the job.
"""

Head: TypeAlias = tuple[_Entry, TaskState]
"""A task, preceded by its sort key."""


class JobQueue:
    """Ready tasks sorted by ``(job_key, task_key, order)`` within each demand class. The key of a
    job is recomputed when one of its tasks becomes ready, when ``rank_again`` is called after one
    of its runs has ended, and by ``refresh``. If keys are ``fixed``, they are never recomputed.

    Each demand class has a heap of jobs, sorted by key and first task, and a heap of tasks for each
    of these jobs. Adding or removing a task costs O(log n). Refreshing a job costs O(demand classes
    + log n), however many tasks it has, and a query costs O(demand classes).
    """

    def __init__(self, job_key: JobKey, task_key: Key, *, fixed: bool = False) -> None:
        self.job_key = job_key
        self._tell_key = getattr(job_key, "ended", None)
        """A key with internal state; it is notified when runs end and when jobs leave."""
        self._forget = getattr(job_key, "forget", None)
        self._task_key = task_key
        self._fixed = fixed
        self._tasks: dict[DemandClass, dict[int, list[_Task]]] = {}
        self._heaps: dict[DemandClass, list[_Entry]] = {}
        self._classes: dict[int, dict[DemandClass, None]] = {}
        """Demand classes in which each job may wait."""
        self._keys: dict[int, float] = {}
        self.pushed = 0
        """Number of tasks added so far."""
        self._moved: dict[JobState, None] = {}
        """Jobs with an ended run that have not been ranked again yet."""

    def push(self, task: TaskState) -> None:
        """Add a task that became ready."""
        self.pushed += 1
        self.refresh(task.job)
        number = task.job.number
        if number not in self._keys:
            self._keys[number] = self.job_key(task.job)
        tasks = self._tasks.setdefault(task.demand, {}).setdefault(number, [])
        self._classes.setdefault(number, {})[task.demand] = None
        entry = (self._task_key(task), task.order, task.piece, task)
        heappush(tasks, entry)
        if tasks[0] is entry:
            self._enter(task.demand, number)

    def ended(self, run: Run, now: float) -> None:
        """Record that the key of the run's job may have changed. The key is updated later, because
        the end of the run has not been entered in the task and the job yet.
        """
        self._moved[run.job] = None
        if self._tell_key is not None:
            self._tell_key(run)

    def rank_again(self) -> None:
        """Update the rank of each job with an ended run, and remove the finished jobs."""
        for job in self._moved:
            if job.tasks_left:
                self.refresh(job)
            else:
                self._keys.pop(job.number, None)
                if self._forget is not None:
                    self._forget(job)
        self._moved.clear()

    def refresh(self, job: JobState) -> bool:
        """Update the rank of a job whose key may have changed. Return True if the job is waiting.
        If keys are ``fixed``, do nothing.
        """
        number = job.number
        old_key = self._keys.get(number)
        classes = self._classes.get(number)
        if old_key is None or self._fixed or not classes:
            return False
        demands = [demand for demand in tuple(classes) if self._first(demand, number) is not None]
        if demands and (key := self.job_key(job)) != old_key:
            self._keys[number] = key
            for demand in demands:
                self._enter(demand, number)
        return bool(demands)

    def heads(self, fits: Callable[[DemandClass], bool]) -> list[TaskState]:
        """Return the first task of each demand class for which ``fits`` is true, in rank order."""
        first = [
            head
            for demand, heap in self._heaps.items()
            if heap and fits(demand) and (head := self.head(demand)) is not None
        ]
        first.sort()
        return [task for _, task in first]

    def head(self, demand: DemandClass) -> Head | None:
        """Return the first task of a demand class, with its sort key for comparisons between
        classes, or None if no task is waiting.
        """
        heap = self._heaps[demand]
        while heap:
            entry = heap[0]
            key, _, order, piece, number = entry
            task = self._first(demand, number)
            current = task is not None and self._keys[number] == key
            if task is not None and current and (task[1], task[2]) == (order, piece):
                return entry, task[3]
            heappop(heap)
            if current:  # the entry's task has started, so enter the job again with its next task
                self._enter(demand, number)
        return None

    def rivals(self, demand: DemandClass, job: int) -> list[tuple[float, int, int]]:
        """For each other job that waits in a demand class, return its key, the order of its first
        task there, and its number. The cost is O(jobs).
        """
        heads = [(number, self._first(demand, number)) for number in tuple(self._tasks[demand]) if number != job]
        return [(self._keys[number], head[1], number) for number, head in heads if head is not None]

    def classes(self, job: int | None = None) -> Iterable[DemandClass]:
        """Return the demand classes in which the job waits or, if no job is given, those in which
        any job waits. The result may include classes in which the job no longer waits.
        """
        return tuple(self._heaps) if job is None else tuple(self._classes.get(job, ()))

    def waiting(self) -> Set[int]:
        """Return the waiting jobs. The result may include jobs that are no longer waiting."""
        return self._classes.keys()

    def _enter(self, demand: DemandClass, number: int) -> None:
        """Insert the job into the heap of a demand class, with its first task there."""
        key, order, piece, _ = self._tasks[demand][number][0]
        heappush(self._heaps.setdefault(demand, []), (self._keys[number], key, order, piece, number))

    def _first(self, demand: DemandClass, number: int) -> _Task | None:
        """Return the first waiting task of a job in a demand class, or None if there is none."""
        tasks = self._tasks[demand].get(number)
        if tasks is None:
            return None
        while tasks and not tasks[0][3].waiting:
            heappop(tasks)
        if not tasks:
            del self._tasks[demand][number]
            self._leave(demand, number)
            return None
        return tasks[0]

    def _leave(self, demand: DemandClass, number: int) -> None:
        classes = self._classes[number]
        del classes[demand]
        if not classes:
            del self._classes[number]


_WIDE = 64
"""The sum over a job's tasks is stored if the job has at least this many tasks. For smaller jobs,
it is computed each time."""


class PathLeft:
    """A job key: the longest path, in seconds, from an unfinished task to the end of the job. The
    cost is O(1) after the first call for a job.
    """

    def __init__(self) -> None:
        self._longest_last: dict[int, list[TaskState]] = {}

    def __call__(self, job: JobState) -> float:
        tasks = self._longest_last.get(job.number)
        if tasks is None:
            tasks = self._longest_last[job.number] = sorted(job.tasks, key=_rank)
        while not tasks[-1].unfinished:
            tasks.pop()
        return tasks[-1].rank_s

    def ended(self, run: Run) -> None:
        """Do nothing. Finished tasks are skipped later, when they are last in the list."""

    def forget(self, job: JobState) -> None:
        """Remove the entries of a job that has left the system."""
        self._longest_last.pop(job.number, None)


class WorkLeft:
    """A job key: the estimated GPU-seconds of a job's unfinished instances. A task without GPUs
    counts as if it used one GPU.

    The GPU-seconds are added up in the order of the graph. For jobs with many tasks, running totals
    are stored. The end of a run then costs one NumPy pass over the later tasks.
    """

    def __init__(self) -> None:
        self._terms: dict[int, np.ndarray] = {}
        self._totals: dict[int, np.ndarray] = {}
        self._moved: dict[int, set[int]] = {}
        """For each wide job, the tasks with runs that ended since the last query."""

    def __call__(self, job: JobState) -> float:
        if len(job.tasks) < _WIDE:
            return ordered_sum([_work(task) for task in job.tasks])
        number = job.number
        terms = self._terms.get(number)
        if terms is None:
            terms = self._terms[number] = np.array([_work(task) for task in job.tasks])
            self._totals[number] = np.add.accumulate(terms)
            self._moved[number] = set()
        totals, moved = self._totals[number], self._moved[number]
        if moved:
            for index in moved:
                terms[index] = _work(job.tasks[index])
            first = min(moved)
            moved.clear()
            behind = terms[first:].copy()
            if first:
                behind[0] += totals[first - 1]
            # add from left to right, as ordered_sum does, so that the results are bit-identical
            np.add.accumulate(behind, out=totals[first:])
        return float(totals[-1])

    def ended(self, run: Run) -> None:
        """Record that a run has ended, because its task may now be done."""
        moved = self._moved.get(run.job.number)
        if moved is not None:
            moved.add(run.task.index)

    def forget(self, job: JobState) -> None:
        """Remove the entries of a job that has left the system."""
        for cache in (self._terms, self._totals, self._moved):
            cache.pop(job.number, None)


def _rank(task: TaskState) -> float:
    return task.rank_s


def _work(task: TaskState) -> float:
    return instance_work(task.best_s, task.unfinished, task.task.gpus)


class JobOrdered:
    """Start the first task that fits, sorted by ``(job key, longest path to the end)``. Repeat this
    until none fits. ``make_key`` creates the job key for one simulation. Whenever a run ends, its
    job is ranked again, unless the key is ``fixed``. The cost per decision is O(demand classes +
    log tasks). The counterpart in the compiled engine is ``compiled.job_keys``.
    """

    def __init__(
        self, make_key: Callable[[], JobKey], placement: str | PlacementRule = "best-fit", *, fixed: bool = False
    ) -> None:
        self.make_key = make_key
        self._fixed = fixed
        self.placement = placing(placement)
        self._place = self.placement.place

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        queue = view.index(self.make_key, lambda: JobQueue(self.make_key(), by_rank, fixed=self._fixed))
        queue.rank_again()
        for task in queue.heads(view.machines.fits):
            placement = self._place(view, task)
            if placement is not None:
                yield Start(task, placement)
                return


def scpt(placement: str | PlacementRule = "best-fit") -> JobOrdered:
    """Shortest critical path first: the job with the shortest remaining path to its end comes
    first. The policy uses estimates. Its time complexity is that of ``JobOrdered``.
    """
    return JobOrdered(PathLeft, placement)


def srpt_work(placement: str | PlacementRule = "best-fit") -> JobOrdered:
    """Shortest remaining work first: the job with the fewest remaining GPU-seconds comes first. The
    policy uses estimates. Its time complexity is that of ``JobOrdered``.
    """
    return JobOrdered(WorkLeft, placement)


def sjf_cp(placement: str | PlacementRule = "best-fit") -> JobOrdered:
    """Shortest job first by total work, with the critical path first within a job. A job's total
    work includes work that is already done (a baseline of Decima, Mao et al., SIGCOMM 2019). The
    policy uses estimates. Its time complexity is that of ``JobOrdered``.
    """
    return JobOrdered(total_work, placement, fixed=True)


def total_work() -> JobKey:
    """Return the key of ``sjf-cp``."""
    return by_total_work


def by_total_work(job: JobState) -> float:
    return ordered_sum([instance_work(task.best_s, task.task.instances, task.task.gpus) for task in job.tasks])


class Tetris:
    """Of all pairs of a ready task and a node, the one with the largest ``a - e p`` comes first
    (Grandl et al., SIGCOMM 2014).

    ``srpt`` is the weight of the remaining work ``p``, relative to the alignment ``a``.

    - ``a`` is the dot product of demand and free resources (GPUs, CPUs, memory), all as fractions
      of the node,
    - ``p`` is the remaining work of the task's job,
    - ``e = srpt x mean a / mean p`` over all pairs that could start now.

    The job with the least remaining work represents its demand class. Gangs are placed by best fit.
    The policy uses estimates (unless ``srpt`` is 0) and never preempts. The cost is O(demand
    classes x types) per decision.
    """

    def __init__(self, srpt: float = 1.0) -> None:
        require(srpt >= 0, "tetris: srpt must be 0 or more", srpt)
        self.srpt = srpt

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        queue = view.index(Tetris, lambda: JobQueue(WorkLeft(), by_rank))
        queue.rank_again()
        fitting = [(task, *_most_aligned(view, task)) for task in queue.heads(view.machines.fits)]
        if not fitting:
            return
        work = [queue.job_key(task.job) for task, _, _ in fitting]
        price = self.srpt * ordered_sum(aligned for _, aligned, _ in fitting) / (ordered_sum(work) or 1.0)
        scores = [aligned - price * left for (_, aligned, _), left in zip(fitting, work, strict=True)]
        task, _, machine = fitting[scores.index(max(scores))]
        placement = _place(view, task, machine)
        if placement is not None:
            yield Start(task, placement)


def _most_aligned(view: ClusterView, task: TaskState) -> tuple[float, NodeState | None]:
    """Return the largest dot product of the task's demand with the free resources of a node on
    which it fits, and that node.
    """
    demand, machines = task.demand, view.machines
    best: tuple[float, NodeState | None] = (0.0, None)
    for type_ in demand.types:
        for index in islice(machines.candidates(demand, type_, True), _NODES):
            machine = machines.list[index]
            if machine.room(demand):
                aligned = alignment(machine, demand.demand.gpus, demand.cpus, demand.memory)
                if best[1] is None or aligned > best[0]:
                    best = aligned, machine
    return best


def _place(view: ClusterView, task: TaskState, machine: NodeState | None) -> Placement | None:
    """Place the task on the machine. Use best fit for gangs, and for tasks that fit on none of the
    machines that were tried.
    """
    if machine is None or task.demand.gang:
        return view.fit(task)
    return fill(task, [machine])


_NODES = 16
"""Number of nodes of a type that are tried, emptiest first: their free resources have the largest
dot products.
"""
