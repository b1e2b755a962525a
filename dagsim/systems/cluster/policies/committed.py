"""The queue rules of RLScheduler's environment, with any score."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from heapq import nsmallest
from math import inf, log2, log10
from typing import NamedTuple

from dagsim.errors import require
from dagsim.model import Decision, Placement, Start
from dagsim.model.arithmetic import ordered_sum
from dagsim.systems.cluster.api import ALL, ClusterView, Run, TaskState
from dagsim.systems.cluster.policies.gpu_amounts import (
    NEARLY,
    Holding,
    QueuedPiece,
    Ready,
    allowed_nodes,
    free,
    held,
    size,
    unheld,
)
from dagsim.systems.cluster.policies.placement import PlacementRule, placing


def _f1(seconds: float, amount: float, arrival_s: float) -> float:
    return log10(max(seconds, 1e-9)) * amount + 870 * log10(max(arrival_s, 1e-9))


def _unset_wait_s(arrival_s: float) -> float:
    """Return the waiting time of a job in RLScheduler's queue. In that environment, the start of a
    waiting job is still unset (-1), so the waiting time is negative.
    """
    return -1.0 - arrival_s


def _wfp3(seconds: float, amount: float, arrival_s: float) -> float:
    return -((_unset_wait_s(arrival_s) / max(seconds, 1e-9)) ** 3) * amount


def _uni(seconds: float, amount: float, arrival_s: float) -> float:
    return -(_unset_wait_s(arrival_s) + 1e-15) / (log2(amount + 1e-15) * max(seconds, 1e-9))


SCORES: dict[str, Callable[[float, float, float], float]] = {
    "fcfs": lambda _, __, arrival_s: arrival_s,
    "sjf": lambda seconds, _, __: seconds,
    "f1": _f1,
    "wfp3": _wfp3,
    "uni": _uni,
    "log-area": lambda seconds, amount, _: log10(max(seconds, 1e-9)) * amount,
    "area": lambda seconds, amount, _: seconds * amount,
}
"""Scores of the queue by seconds, GPUs or cores, and arrival of the job in s. The smallest goes
first; ties go first come, first served. F1, WFP3 and UNI use absolute arrival times. WFP3 and UNI
are those of RLScheduler's repository, which gave the published results: their waiting time is
negative, so they are not the policies ``wfp3`` and ``unicef``.
"""
_SOONEST = "soonest"
_FUTURES = 8
_ARRIVALS = 10
"""Number of arrivals in each future."""
_SHORT_S = 10.0
"""The threshold of the bounded slowdown."""


class _Request(NamedTuple):
    """A task in the queue, with the values from which its score is computed. The task whose tuple
    is smallest is picked first.
    """

    score: float
    key: tuple[float, int]
    arrival_s: float
    seconds: float
    amount: float
    """GPUs, or cores."""


class _Recent(Ready):
    """The ready tasks and the latest arrivals. An arrival consists of its time and its duration,
    both in seconds, and its number of GPUs or cores.
    """

    def __init__(self) -> None:
        super().__init__()
        self.arrivals: deque[tuple[float, float, float]] = deque(maxlen=_FUTURES * _ARRIVALS + 1)

    def push(self, task: TaskState) -> None:
        super().push(task)
        self.arrivals.append((task.ready_s, task.best_s, size(task)))


def _fits_at_s(now: float, idle: float, ends: list[tuple[float, float]], amount: float) -> float:
    """Return the time at which ``amount`` GPUs (or cores) are expected to be free. ``ends``
    contains, in order of time, the end of each run and the amount that it frees.
    """
    at_s = now
    for end_s, freed in ends:
        if idle + NEARLY >= amount:
            break
        idle += freed
        at_s = end_s
    return at_s


class _Trial:
    """A simulation of the queue under the rules of ``Committed``, in which tasks take their
    estimated durations. It ends when all tasks in the queue and all tasks in a possible future have
    started.
    """

    def __init__(
        self,
        now: float,
        idle: float,
        ends: list[tuple[float, float]],
        queue: list[_Request],
        future: list[_Request],
        backfill: bool,
    ) -> None:
        self.now, self.idle, self.backfill = now, idle, backfill
        self.ends, self.queue, self.future = list(ends), list(queue), future[::-1]
        self.cost = 0.0
        """Sum of the bounded slowdowns of the started tasks."""

    def play(self, picked: _Request) -> float:
        """Simulate the queue if ``picked`` is picked first and the other tasks follow in order of
        score. Return the cost.
        """
        while True:
            self._commit(picked)
            while not self.queue and self.future:
                self._advance()
            if not self.queue:
                return self.cost
            picked = min(self.queue)

    def _commit(self, picked: _Request) -> None:
        shadow_s = _fits_at_s(self.now, self.idle, self.ends, picked.amount)
        while self.idle + NEARLY < picked.amount:
            if self.backfill:
                for request in list(self.queue):
                    fits = request.amount <= self.idle + NEARLY and self.now + request.seconds < shadow_s
                    if fits and request is not picked:
                        self._start(request)
            if not self._advance():  # the nodes that are up are not enough for the task
                self.queue.remove(picked)
                return
        self._start(picked)

    def _start(self, request: _Request) -> None:
        self.queue.remove(request)
        self.idle -= request.amount
        insort(self.ends, (self.now + request.seconds, request.amount))
        slowdown = (self.now - request.arrival_s + request.seconds) / max(request.seconds, _SHORT_S)
        self.cost += max(1.0, slowdown)

    def _advance(self) -> bool:
        """Advance to the next arrival or end (arrivals come first). Return False if there is
        none.
        """
        if self.future and (not self.ends or self.future[-1].arrival_s <= self.ends[0][0]):
            self.now = max(self.now, self.future[-1].arrival_s)
            self.queue.append(self.future.pop())
        elif self.ends:
            end_s, amount = self.ends.pop(0)
            self.now = max(self.now, end_s)
            self.idle += amount
        else:
            return False
        return True


class Committed:
    """The queue rules of RLScheduler's environment (Zhang et al., SC 2020), with any score. As soon
    as a task has started, the policy picks the next one from the queue. The picked task waits until
    it fits, even if better tasks arrive in the meantime. An arriving task enters the queue only
    while a picked task is waiting, or when the queue is empty.

    ``score`` determines the order of the queue, which is first come, first served or given by a
    formula.

    With ``backfill``, other tasks in the queue may start in the meantime if they fit, oldest first.
    Their estimated end must be before (not at) the *shadow time*. This is the time at which enough
    resources for the picked task are expected to be free, and it is determined when the task is
    picked.

    Three scores are not from the paper. ``soonest`` is the time at which the task is expected to
    fit, plus the time that its work would take on the whole cluster. ``area`` is seconds times GPUs
    (or cores), and ``log-area`` is F1 without the age.

    If ``width`` is above 1, the ``width`` tasks with the best scores are simulated in eight
    possible futures. In each future, the queue is simulated with estimates while ten more tasks
    arrive. These tasks are copied from one of the last eight sequences of ten arrivals. The task
    with the smallest sum of bounded slowdowns (threshold 10 s) is picked. These simulations do not
    distinguish between GPU types, so they are meant for clusters with a single type, and for jobs
    with a single task.

    The policy uses estimates and never preempts. The cost is O(queue) per decision, or O(queue x
    runs) with ``soonest``. With ``width``, each pick costs O(width x queue x (queue + runs)).

    Raises:
        ConfigError: The score is neither ``soonest`` nor one of ``SCORES``, or ``width`` is less
            than 1, or above 1 with ``soonest``.
    """

    forgets = "which task it had picked, and which had entered the queue"

    def __init__(
        self, score: str = "fcfs", backfill: bool = False, width: int = 1, placement: str | PlacementRule = "best-fit"
    ) -> None:
        scores = (*SCORES, _SOONEST)
        require(score in scores, f"committed: score must be one of {', '.join(scores)}", score)
        require(width >= 1, "committed: width must be 1 or more", width)
        require(width == 1 or score != _SOONEST, "committed: width must be 1 with the score soonest", width)
        self.score = score
        self.backfill = backfill
        self.width = width
        self._place = placing(placement).place
        self._queued: dict[QueuedPiece, None] = {}
        """The tasks in the queue. Other ready tasks have not entered it yet."""
        self._picked: QueuedPiece | None = None
        self._shadow_s = 0.0
        self._ended: list[Holding] = []
        """Resources of the runs that ended since the last decision."""

    def ended(self, run: Run, now: float) -> None:
        """Record the resources of a run that has just ended."""
        self._ended.append(Holding.of(run, now))

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        view.follow(self)
        recent = view.index(Committed, _Recent)
        ready = recent.tasks
        # The site's rules may have removed tasks from the ready ones.
        self._queued = {key: None for key in self._queued if key in ready}
        # Handle simultaneous events in this order: arrivals, then ends in the order of run ids.
        ended = sorted(self._ended, key=lambda run: run.id)
        self._ended.clear()
        arrived = sorted(key for key in ready if key not in self._queued)
        while True:
            if self._picked is None or self._picked not in ready:
                if not self._queued and arrived:
                    self._queued[arrived.pop(0)] = None
                if not self._queued:
                    return
                self._pick(view, recent, ended)
            picked = ready[self._picked]  # type: ignore[index]
            placement = self._room(view, picked, ended)
            if placement is not None:
                yield Start(picked, placement)
                self._leave(picked, ready)
                continue
            yield from self._fill(view, ready, ended)
            if arrived:
                self._queued[arrived.pop(0)] = None
            elif ended:
                ended.pop(0)
            else:
                return

    def _pick(self, view: ClusterView, recent: _Recent, ended: list[Holding]) -> None:
        queue = [recent.tasks[key] for key in self._queued]
        runs = sorted((run.estimated_end_s(view.now), run.id) for run in view.running.values())

        def ends_on(nodes: int) -> list[tuple[float, float]]:
            over = [(view.now, run.on(nodes)) for run in ended]
            return over + [(end_s, held(view.running[id_], nodes)) for end_s, id_ in runs]

        ends = ends_on(ALL)
        capacity = free(view, queue[0]) + ordered_sum([held(run) for run in view.running.values()])

        def fits_at_s(task: TaskState) -> float:
            nodes = allowed_nodes(view, task.demand)
            there = ends if nodes == ALL else ends_on(nodes)
            return _fits_at_s(view.now, unheld(view, task, ended), there, size(task))

        def score(task: TaskState) -> float:
            if self.score == _SOONEST:
                return fits_at_s(task) + (task.best_s * size(task) / capacity if capacity else 0.0)
            return SCORES[self.score](task.best_s, size(task), task.job.job.arrival_s)

        candidates = nsmallest(self.width, queue, key=lambda task: (score(task), task.order, task.piece))
        picked = candidates[0]
        if len(candidates) > 1 and (futures := self._futures(view, recent)):
            requests = [self._request(task) for task in queue]
            idle = free(view, picked) - ordered_sum([run.size for run in ended])

            def cost(task: TaskState) -> float:
                request = requests[queue.index(task)]
                trials = [_Trial(view.now, idle, ends, requests, future, self.backfill) for future in futures]
                # The same slowdowns, added in a different order, give sums that differ in the last
                # bits. After rounding, such sums are equal, and the task with the better score is
                # picked.
                return round(ordered_sum([trial.play(request) for trial in trials]), 6)

            picked = min(candidates, key=cost)
        self._picked = (picked.order, picked.piece)
        self._shadow_s = fits_at_s(picked)

    def _request(self, task: TaskState) -> _Request:
        arrival_s, seconds, amount = task.job.job.arrival_s, task.best_s, size(task)
        score = SCORES[self.score](seconds, amount, arrival_s)
        return _Request(score, (task.order, task.piece), arrival_s, seconds, amount)

    def _futures(self, view: ClusterView, recent: _Recent) -> list[list[_Request]]:
        """Return lists of possible future arrivals. Each begins with the tasks that have not
        entered the queue yet, followed by one of the last sequences of arrivals with the same
        intervals.
        """
        entering = [self._request(task) for key, task in sorted(recent.tasks.items()) if key not in self._queued]
        arrivals = list(recent.arrivals)
        futures = []
        for first in range(len(arrivals) - _ARRIVALS, 0, -_ARRIVALS):
            since_s = arrivals[first - 1][0]
            future = list(entering)
            for place, (ready_s, seconds, amount) in enumerate(arrivals[first : first + _ARRIVALS]):
                arrival_s = view.now + ready_s - since_s
                score = SCORES[self.score](seconds, amount, arrival_s)
                future.append(_Request(score, (inf, place), arrival_s, seconds, amount))
            futures.append(future)
        return futures

    def _fill(self, view: ClusterView, ready: dict[QueuedPiece, TaskState], ended: list[Holding]) -> Iterator[Decision]:
        """Start the tasks that may overtake the picked task."""
        if not self.backfill:
            return
        for key in sorted(key for key in self._queued if key != self._picked):
            task = ready[key]
            if view.now + task.best_s < self._shadow_s:
                placement = self._room(view, task, ended)
                if placement is not None:
                    yield Start(task, placement)
                    self._leave(task, ready)

    def _room(self, view: ClusterView, task: TaskState, ended: list[Holding]) -> Placement | None:
        """Return a placement for the task, or None if it does not fit. The resources of the runs in
        ``ended`` still count as held.
        """
        if ended and unheld(view, task, ended) + NEARLY < size(task):
            return None
        return self._place(view, task)

    def _leave(self, task: TaskState, ready: dict[QueuedPiece, TaskState]) -> None:
        """Remove a started task from the queue if none of its instances is waiting."""
        if not task.waiting:
            key = (task.order, task.piece)
            del self._queued[key], ready[key]
            if self._picked == key:
                self._picked = None
