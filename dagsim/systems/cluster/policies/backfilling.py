"""Backfilling policies: the oldest task holds a reservation, and other tasks may overtake it if
they do not delay it. The ready tasks are stored as columns in groups, so that the first task that
meets a condition is found without a loop over all tasks.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import merge, nsmallest
from math import ceil, floor, inf, log2, log10
from typing import NamedTuple, TypeAlias

import numpy as np

from dagsim.errors import require
from dagsim.model import Decision, Placement, Start
from dagsim.model.arithmetic import bits, ordered_sum
from dagsim.systems.cluster.api import (
    ALL,
    MICRO,
    ClusterState,
    ClusterView,
    DemandClass,
    ExpectedFree,
    NodeState,
    Run,
    TaskState,
)
from dagsim.systems.cluster.policies.batch_mode import NEARLY, Key, Ready, allowed, free, held, size
from dagsim.systems.cluster.policies.formulas import slowed
from dagsim.systems.cluster.policies.look_ahead import Profile
from dagsim.systems.cluster.policies.orders import by_arrival, slowness, width
from dagsim.systems.cluster.policies.placement import PlacementRule, placing

RankColumn: TypeAlias = Callable[["AlikeTasks", float], np.ndarray]
"""Ranks all tasks of a group at once: (tasks,) float64, smaller first."""


class AlikeTasks:
    """A group of waiting tasks with equal demands, equal speed ratios between types, and the same
    number of waiting instances. At any given time, all of them would go to the same type and need
    the same resources there.
    """

    def __init__(self, task: TaskState) -> None:
        self.demand = task.demand
        self.waiting = task.waiting
        best_s = task.best_s or 1.0
        self.ratios = tuple([seconds / best_s if task.best_s else float(seconds == inf) for seconds in task.seconds])
        self.types = sorted(task.demand.types, key=task.seconds.__getitem__)
        """The types that may run them, fastest first."""
        self.tasks: list[TaskState] = []
        self._columns = np.zeros((4 + len(task.seconds), 8))

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def best_s(self) -> np.ndarray:
        """Seconds on the fastest type. Shape (tasks,), float64."""
        return self._columns[0, : len(self.tasks)]

    @property
    def order(self) -> np.ndarray:
        """Order of arrival. Shape (tasks,), float64."""
        return self._columns[1, : len(self.tasks)]

    @property
    def ready_s(self) -> np.ndarray:
        """Time at which each task became ready. Shape (tasks,), float64."""
        return self._columns[2, : len(self.tasks)]

    @property
    def per_second(self) -> np.ndarray:
        """1 / seconds on the fastest type. Shape (tasks,), float64."""
        return self._columns[3, : len(self.tasks)]

    def ends_s(self, now: float, type_: int) -> np.ndarray:
        """Return the time at which each task would end if it started now on a GPU type. Shape
        (tasks,), float64.
        """
        ends_s: np.ndarray = now + self._columns[4 + type_, : len(self.tasks)]
        return ends_s

    def room(self, machines: ClusterState) -> int | None:
        """Return the fastest type on which a task of the group fits now; None if there is none."""
        return next((type_ for type_ in self.types if machines.fits_on(self.demand, type_)), None)

    def first(
        self, rank: RankColumn, now: float, type_: int = 0, until_s: float = inf
    ) -> tuple[float, int, TaskState] | None:
        """Return the first task by ``(rank, order)`` among those that would end by ``until_s`` if
        they started now on a GPU type.
        """
        ranks = rank(self, now)
        if until_s < inf:
            ranks = np.where(self.ends_s(now, type_) <= until_s, ranks, inf)
        place = int(ranks.argmin())
        least = float(ranks[place])
        if least == inf:
            return None
        if rank is not by_order:
            ranks = ranks == least
            if np.count_nonzero(ranks) > 1:
                equal = np.flatnonzero(ranks)
                place = int(equal[self.order[equal].argmin()])
        return least, self.tasks[place].order, self.tasks[place]

    def add(self, task: TaskState) -> None:
        """Append a task."""
        place = len(self.tasks)
        if place == self._columns.shape[1]:
            self._columns = np.concatenate([self._columns, np.zeros_like(self._columns)], axis=1)
        self._columns[:, place] = task.best_s, task.order, task.ready_s, slowness(task.best_s), *task.seconds
        self.tasks.append(task)

    def remove(self, place: int) -> TaskState | None:
        """Remove the task at ``place``. Return the task that takes its place, if any."""
        last = self.tasks.pop()
        if place == len(self.tasks):
            return None
        self.tasks[place] = last
        self._columns[:, place] = self._columns[:, len(self.tasks)]
        return last


def by_order(group: AlikeTasks, _: float) -> np.ndarray:
    """Rank tasks first come, first served."""
    return group.order


class Backlog:
    """An index of the ready tasks in groups (``ClusterView.index``). Costs O(1) per added task and
    per started run.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[DemandClass, tuple[float, ...], int], AlikeTasks] = {}
        self._place: dict[TaskState, tuple[AlikeTasks, int]] = {}
        self._demands: dict[DemandClass, None] = {}

    def push(self, task: TaskState) -> None:
        """Add a task that became ready."""
        best_s = task.best_s
        profile = tuple([round(seconds / best_s, 9) for seconds in task.seconds]) if best_s else ()
        key = (task.demand, profile, 0 if task.demand.gang else task.waiting)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = AlikeTasks(task)
            self._demands[task.demand] = None
        self._place[task] = group, len(group)
        group.add(task)

    def started(self, run: Run, now: float) -> None:
        """Record that some instances of a task have started. Remove the task from its group, or
        move it to another group.
        """
        task = run.task
        if task not in self._place:  # the task was started before this index existed
            return
        group, place = self._place.pop(task)
        moved = group.remove(place)
        if moved is not None:
            self._place[moved] = group, place
        if task.waiting:
            self.push(task)

    def groups(self) -> Iterator[AlikeTasks]:
        """Yield the groups that are not empty."""
        return (group for group in self._groups.values() if group.tasks)

    def fits(self, machines: ClusterState) -> bool:
        """Return True if the tasks of any group fit now."""
        fits = machines.fits
        return any(fits(demand) for demand in self._demands)


def _f1(seconds: float, amount: float, arrival_s: float) -> float:
    return log10(max(seconds, 1e-9)) * amount + 870 * log10(max(arrival_s, 1e-9))


def _unset_wait_s(arrival_s: float) -> float:
    """Return the waiting time of a job in RLScheduler's queue. Its start is still unset (-1) there,
    so the waiting time is negative.
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
"""Scores of the queue by seconds, GPUs or cores, and arrival of the job in s. The smallest goes first;
ties go first come, first served. F1, WFP3 and UNI use absolute arrival times. WFP3 and UNI are those
of RLScheduler's repository, which gave the published figures: their waiting time is negative, so
they are not the policies ``wfp3`` and ``unicef``.
"""
_SOONEST = "soonest"
_FUTURES = 8
_ARRIVALS = 10
"""Arrivals in each future."""
_SHORT_S = 10.0
"""The threshold of the bounded slowdown."""


class _Request(NamedTuple):
    """A task in the queue, with the values from which its score is computed. The smallest tuple is
    picked first.
    """

    score: float
    key: tuple[float, int]
    arrival_s: float
    seconds: float
    amount: float
    """GPUs, or cores."""


class _Recent(Ready):
    """The ready tasks and the latest arrivals, each arrival with its time in s, its duration in
    seconds, and its GPUs or cores.
    """

    def __init__(self) -> None:
        super().__init__()
        self.arrivals: deque[tuple[float, float, float]] = deque(maxlen=_FUTURES * _ARRIVALS + 1)

    def push(self, task: TaskState) -> None:
        super().push(task)
        self.arrivals.append((task.ready_s, task.best_s, size(task)))


def _fits_at_s(now: float, idle: float, ends: list[tuple[float, float]], amount: float) -> float:
    """Return the time at which ``amount`` is expected to be free. ``ends`` contains times and
    amounts in order of time.
    """
    at_s = now
    for end_s, freed in ends:
        if idle + NEARLY >= amount:
            break
        idle += freed
        at_s = end_s
    return at_s


class _Trial:
    """A look-ahead of a queue under the rules of ``Committed``, with estimates as durations. It
    lasts until all tasks in the queue and all tasks in a possible future have started.
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
        """Pick the task ``picked``, then continue in order of score, and return the cost."""
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
            if not self._advance():  # the task needs more than the nodes that are up have
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
        """Advance to the next arrival or end; arrivals come first. Return False if there is none."""
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
    as a task has started, the next one is picked from the queue. The picked task waits until it
    fits, even if better tasks arrive in the meantime. An arriving task only enters the queue while
    a picked task is waiting, or when the queue is empty.

    ``score`` determines the order of the queue: first come, first served, or by a formula.

    With ``backfill``, other tasks in the queue that fit may start in the meantime, oldest first.
    Their estimated end must be before (not at) the *shadow time*, which is determined when the task
    is picked: the time at which enough resources for it are expected to be free.

    Three scores are not in the paper. ``soonest`` is the time at which the task is expected to fit,
    plus the time that its work would take if the whole cluster worked on it. ``area`` is seconds
    times GPUs (or cores), and ``log-area`` is F1 without the age.

    With ``width`` above 1, as many of the tasks with the best scores are tried out in eight
    possible futures. In each future, the simulation of the queue continues with estimates while ten
    more tasks arrive, as in one of the last eight sequences of ten arrivals. The task with the
    smallest sum of bounded slowdowns (threshold 10 s) is picked. These trials count resources over
    all types together, so they are meant for clusters with one type, and for jobs with a single
    task.

    Uses estimates; not preemptive. Costs O(queue) per decision, or O(queue x runs) with
    ``soonest``. With ``width``, each pick costs O(width x queue x (queue + runs)).

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
        self._queued: dict[Key, None] = {}
        """The tasks in the queue. Other ready tasks have not entered it yet."""
        self._picked: Key | None = None
        self._shadow_s = 0.0
        self._ended: list[_Holding] = []
        """What the runs held that ended since the last decision."""

    def ended(self, run: Run, now: float) -> None:
        """Record what a run held that has just ended."""
        self._ended.append(_Holding.of(run, now))

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        view.follow(self)
        recent = view.index(Committed, _Recent)
        ready = recent.tasks
        # The rules of a site may have withdrawn tasks.
        self._queued = {key: None for key in self._queued if key in ready}
        # Among simultaneous events, arrivals come first, followed by one end after the other.
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

    def _pick(self, view: ClusterView, recent: _Recent, ended: list[_Holding]) -> None:
        queue = [recent.tasks[key] for key in self._queued]
        runs = sorted((run.estimated_end_s(view.now), run.id) for run in view.running.values())

        def ends_on(nodes: int) -> list[tuple[float, float]]:
            over = [(view.now, run.on(nodes)) for run in ended]
            return over + [(end_s, held(view.running[id_], nodes)) for end_s, id_ in runs]

        ends = ends_on(ALL)
        capacity = free(view, queue[0]) + ordered_sum([held(run) for run in view.running.values()])

        def fits_at_s(task: TaskState) -> float:
            nodes = allowed(view, task.demand)
            there = ends if nodes == ALL else ends_on(nodes)
            return _fits_at_s(view.now, _unheld(view, task, ended), there, size(task))

        def score(task: TaskState) -> float:
            if self.score == _SOONEST:
                return fits_at_s(task) + task.best_s * size(task) / capacity
            return SCORES[self.score](task.best_s, size(task), task.job.job.arrival_s)

        candidates = nsmallest(self.width, queue, key=lambda task: (score(task), task.order, task.piece))
        picked = candidates[0]
        if len(candidates) > 1 and (futures := self._futures(view, recent)):
            requests = [self._request(task) for task in queue]
            idle = free(view, picked) - ordered_sum([run.size for run in ended])

            def cost(task: TaskState) -> float:
                request = requests[queue.index(task)]
                trials = [_Trial(view.now, idle, ends, requests, future, self.backfill) for future in futures]
                # Equal slowdowns summed in a different order differ in the last bits. Rounding
                # makes the sums equal, so that the score decides.
                return round(ordered_sum([trial.play(request) for trial in trials]), 6)

            picked = min(candidates, key=cost)
        self._picked = (picked.order, picked.piece)
        self._shadow_s = fits_at_s(picked)

    def _request(self, task: TaskState) -> _Request:
        arrival_s, seconds, amount = task.job.job.arrival_s, task.best_s, size(task)
        score = SCORES[self.score](seconds, amount, arrival_s)
        return _Request(score, (task.order, task.piece), arrival_s, seconds, amount)

    def _futures(self, view: ClusterView, recent: _Recent) -> list[list[_Request]]:
        """Return possible future arrivals: the tasks that have not entered the queue yet, followed
        by one of the last sequences of arrivals, at the same intervals.
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

    def _fill(self, view: ClusterView, ready: dict[Key, TaskState], ended: list[_Holding]) -> Iterator[Decision]:
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

    def _room(self, view: ClusterView, task: TaskState, ended: list[_Holding]) -> Placement | None:
        """Return a placement for the task while the resources in ``ended`` still count as held."""
        if ended and _unheld(view, task, ended) + NEARLY < size(task):
            return None
        return self._place(view, task)

    def _leave(self, task: TaskState, ready: dict[Key, TaskState]) -> None:
        """Remove a started task from the queue if none of its instances is waiting."""
        if not task.waiting:
            key = (task.order, task.piece)
            del self._queued[key], ready[key]
            if self._picked == key:
                self._picked = None


class _Holding(NamedTuple):
    """What a run holds, or held until its end."""

    end_s: float
    """Its expected end."""
    size: float
    """GPUs, or cores if it holds no GPUs."""
    id: int
    by_node: tuple[tuple[int, float], ...]
    """These by the index of the node."""
    licences: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, run: Run, end_s: float) -> _Holding:
        """Return what a run holds."""
        by_node = tuple([(machine.index, held(run, machine.bit)) for machine, *_ in run.held])
        terms = run.task.demand.terms
        return cls(end_s, held(run), run.id, by_node, () if terms is None else terms.licences)

    def on(self, nodes: int) -> float:
        """Return the GPUs (or cores) on some nodes."""
        if nodes == ALL:
            return self.size
        return ordered_sum([amount for node, amount in self.by_node if nodes >> node & 1])


def _unheld(view: ClusterView, task: TaskState, ended: Sequence[_Holding]) -> float:
    """Return the number of free GPUs (or cores) on the nodes that a task may use, without those that
    ``ended`` counts as held.
    """
    nodes = allowed(view, task.demand)
    return free(view, task, nodes) - ordered_sum([run.on(nodes) for run in ended])


_EARLY_S = 1e-6


class Conservative:
    """Conservative backfilling: every ready task reserves the earliest start that the existing
    reservations allow, on the type where it would finish first, and starts at that time. When a run
    ends earlier than expected, or a node fails, returns or is drained for good, all reservations
    are made again in order of arrival, so that every task can move up (compression).

    Reservations count the GPUs, cores and memory of a type, regardless of how these are distributed
    over nodes, and licences. Where partitions and constraints allow some tasks only some nodes, the
    nodes are divided into *parts*, so that a task may use either all nodes of a part or none. A
    reservation is divided over the parts that its task may use, those first that the fewest tasks
    may use. Uses estimates; not preemptive. Costly by definition: O(reservations) per task that
    becomes ready, and the square of that when all reservations are made again (Mu'alem and
    Feitelson 2001).
    """

    forgets = "the reservations that it had made"

    def __init__(self, placement: str | PlacementRule = "best-fit") -> None:
        self._place = placing(placement).place
        self._parts: list[_Part] = []
        self._divided_by: dict[int, None] = {}
        """The bit sets of nodes by which the nodes are divided into parts."""
        self._licences: dict[str, Profile] = {}
        self._starts: dict[Key, tuple[float, int, _Shares]] = {}
        """Reservations of the waiting tasks: start time and type, and the amounts that they take of each
        part if there were several parts to choose from.
        """
        self._expected: dict[int, float] = {}
        """Expected ends of the runs that the reservations take into account."""
        self._new: dict[int, float] = {}
        """Expected ends of runs that started since then; they count from the next reserved start
        on.
        """
        self._early = False
        """True if a run has ended earlier than expected."""
        self._usable = -1
        """The nodes that are up and not drained for good, as a bit set."""

    def started(self, run: Run, now: float) -> None:
        """Add a run."""
        if run.id not in self._expected:
            self._new[run.id] = run.estimated_end_s(now)

    def ended(self, run: Run, now: float) -> None:
        """Record the end of a run, and whether it was early."""
        self._new.pop(run.id, None)
        if self._expected.pop(run.id, now) > now + _EARLY_S:
            self._early = True

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        view.follow(self)
        waiting = view.index(Conservative, Ready)
        # the site has withdrawn tasks
        self._early = self._early or any(key not in waiting.tasks for key in self._starts)
        new = sorted(waiting.tasks.keys() - self._starts.keys())
        for key in new:
            if (terms := waiting.tasks[key].demand.terms) is not None and terms.nodes not in self._divided_by:
                self._divided_by[terms.nodes] = None
                self._early = True
        self._look(view, waiting)
        for key in new:
            if key not in self._starts:
                self._reserve(view, key, waiting.tasks[key])
        yield from self._start_due(view, waiting)
        if not view.running and self._starts:
            self._renew(view, waiting)
            yield from self._start_due(view, waiting)

    def _start_due(self, view: ClusterView, waiting: Ready) -> Iterator[Decision]:
        due = [key for key, (start_s, *_) in self._starts.items() if start_s <= view.now + _EARLY_S]
        for key in sorted(due):
            task, (_, type_, shares) = waiting.tasks[key], self._starts[key]
            placement = None
            if shares:
                with view.machines.within(task.demand, sum(part.nodes for part, share in shares if any(share))):
                    placement = self._place(view, task, type_)
            if placement is None:
                placement = self._place(view, task, type_)
            if placement is not None:
                if shares:
                    demand = task.demand
                    one = (demand.demand.gpus, demand.cpus, demand.memory)
                    counts = [_instances(placement, part.nodes) for part, _ in shares]
                    taken = [tuple([amount * count for amount in one]) for count in counts]
                    self._early = self._early or taken != [share for _, share in shares]
                yield Start(task, placement)
                self._expected |= self._new
                self._new.clear()
                if not task.waiting:
                    del self._starts[key], waiting.tasks[key]

    def _look(self, view: ClusterView, waiting: Ready) -> None:
        """Make all reservations again if anything differs from what was expected."""
        usable = view.machines.usable(view.now)
        late = any(end_s < view.now - _EARLY_S for end_s in self._expected.values())
        if self._early or late or usable != self._usable or not self._parts:
            self._usable, self._early = usable, False
            self._renew(view, waiting)
        for profile in (*self._licences.values(), *(profile for part in self._parts for profile in part.profiles)):
            profile.forget(view.now)

    def _renew(self, view: ClusterView, waiting: Ready) -> None:
        now, machines = view.now, view.machines
        self._parts = self._divided(view)
        self._licences = {} if machines.site is None else {
            name: Profile(now, free) for name, free in machines.site.licences.items()
        }  # fmt: skip
        self._expected, self._new = {run.id: run.estimated_end_s(now) for run in view.running.values()}, {}
        part_of = {node: part for part in self._parts if part.nodes != ALL for node in bits(part.nodes)}
        for run in view.running.values():
            demand, end_s = run.task.demand, self._expected[run.id]
            if not self._divided_by:
                amounts = (run.gpus, demand.cpus * run.instances, demand.memory * run.instances)
                self._parts[run.type].release(end_s, amounts)
            else:
                for machine, count, *_ in run.held:
                    amounts = (demand.demand.gpus * count, demand.cpus * count, demand.memory * count)
                    part_of[machine.index].release(end_s, amounts)
            for name, count in () if demand.terms is None else demand.terms.licences:
                self._licences[name].release(end_s, count)
        self._starts = {}
        for key in sorted(waiting.tasks):
            self._reserve(view, key, waiting.tasks[key])

    def _divided(self, view: ClusterView) -> list[_Part]:
        """Divide the nodes that are up into parts, of one type each, without reservations. Parts that
        fewer tasks may use come first.
        """
        members: dict[tuple[int, tuple[int, ...]], list[NodeState]] = {}
        for type_ in range(len(view.machines.types)):
            members.setdefault((type_, tuple([0] * len(self._divided_by))), [])
        for machine in view.machines.list:
            if machine.up:
                may_use = tuple([nodes >> machine.index & 1 for nodes in self._divided_by])
                members.setdefault((machine.type, may_use), []).append(machine)
        parts = []
        for (type_, _), nodes in sorted(members.items(), key=_least_wanted):
            whole = sum(machine.bit for machine in nodes) if self._divided_by else ALL
            idle = view.machines.idle_gpus(type_) if whole == ALL else sum(machine.idle for machine in nodes)
            free = (idle, sum(machine.cpus for machine in nodes), sum(machine.memory for machine in nodes))
            sizes = [(one.node.gpus, one.node.cpus * MICRO, one.node.memory_gb * MICRO) for one in nodes]
            most = tuple([ordered_sum(amounts) for amounts in zip(*sizes, strict=True)]) or (0, 0, 0)
            parts.append(_Part(type_, whole, most, tuple([Profile(view.now, amount) for amount in free])))
        return parts

    def _open_parts(self, demand: DemandClass, type_: int) -> list[_Part]:
        nodes = ALL if demand.terms is None else demand.terms.nodes
        return [part for part in self._parts if part.type == type_ and part.nodes & nodes]

    def _reserve(self, view: ClusterView, key: Key, task: TaskState) -> None:
        best = _Reservation(inf, inf, -1)
        demand, count = task.demand, 1 if task.demand.gang else task.waiting
        together = demand.gang or count
        one = (demand.demand.gpus, demand.cpus, demand.memory)
        wanted = () if demand.terms is None else demand.terms.licences
        licences = [(self._licences[name], count) for name, count in wanted]
        asked = (width(task) * count if demand.demand.gpus else 0.0, demand.cpus * together, demand.memory * together)
        for type_ in demand.types:
            parts = self._open_parts(demand, type_)
            capacity = tuple([ordered_sum(amounts) for amounts in zip(*[part.most for part in parts], strict=True)])
            if not parts or any(amount and not most for amount, most in zip(asked, capacity, strict=True)):
                continue
            if view.machines.capacity(demand, type_, now=view.now) < (demand.gang or 1):
                continue
            pairs = [(amount, most) for amount, most in zip(asked, capacity, strict=True) if amount]
            rounds = max([ceil(amount / most) for amount, most in pairs], default=1)
            amounts = tuple([min(amount, most) for amount, most in zip(asked, capacity, strict=True)])
            seconds = task.seconds[type_] * rounds
            if len(parts) == 1:
                shares = [amounts]
                profiles, all_amounts = parts[0].profiles, amounts
                if licences:
                    profiles = (*profiles, *[profile for profile, _ in licences])
                    all_amounts = (*amounts, *[count for _, count in licences])
                start_s = _earliest(profiles, all_amounts, seconds)
            else:
                start_s, shares = _earliest_on(parts, one, -(-together // rounds), seconds, licences)
            best = min(best, _Reservation(start_s + seconds, start_s, type_, tuple(zip(parts, shares, strict=True))))
        self._starts[key] = best.start_s, best.type, best.shares if len(best.shares) > 1 else ()
        if best.end_s < inf:
            for part, share in best.shares:
                part.take(best.start_s, best.end_s, share)
            for profile, count in licences:
                profile.take(best.start_s, best.end_s, count)


def _least_wanted(item: tuple[tuple[int, tuple[int, ...]], Sequence[NodeState]]) -> tuple[int, int, int]:
    """Order parts of a type so that those that the fewest tasks may use come first, and then larger ones."""
    (type_, may_use), nodes = item
    return type_, may_use.count(1), -len(nodes)


class _Part(NamedTuple):
    """Some nodes of a type: all of them, or those that the same tasks may use."""

    type: int
    nodes: int
    """A bit set."""
    most: tuple[float, ...]
    """GPUs, and cores and memory in millionths, of the nodes that are up."""
    profiles: tuple[Profile, ...]
    """Their free amounts over time."""

    def release(self, time_s: float, amounts: Sequence[float]) -> None:
        """Make the amounts free from a time on."""
        for profile, amount in zip(self.profiles, amounts, strict=True):
            if amount:
                profile.release(time_s, amount)

    def take(self, start_s: float, end_s: float, amounts: Sequence[float]) -> None:
        """Reserve the amounts."""
        for profile, amount in zip(self.profiles, amounts, strict=True):
            if amount:
                profile.take(start_s, end_s, amount)

    def room(self, one: Sequence[float], start_s: float, end_s: float) -> int:
        """Return how many instances, each of which takes ``one``, fit from a time to another."""
        pairs = zip(self.profiles, one, strict=True)
        rooms = [floor((profile.least(start_s, end_s) + NEARLY) / amount) for profile, amount in pairs if amount]
        return max(min(rooms, default=_PLENTY), 0)


_Shares: TypeAlias = tuple[tuple[_Part, tuple[float, ...]], ...]


class _Reservation(NamedTuple):
    """A reservation: its end, start and type, and the amounts that it takes of each part."""

    end_s: float
    start_s: float
    type: int
    shares: _Shares = ()


def _earliest_on(
    parts: Sequence[_Part],
    one: Sequence[float],
    instances: int,
    seconds: float,
    licences: Sequence[tuple[Profile, int]],
) -> tuple[float, list[tuple[float, ...]]]:
    """Return the first time from which several parts together have room for all instances, each of
    which takes ``one``, and the amounts that these take of each part. The time is ``inf`` if there
    is none.
    """
    profiles = [profile for part in parts for profile in part.profiles] + [profile for profile, _ in licences]
    needed = [amount * instances - NEARLY for amount in one]
    by_resource = list(zip(*[part.profiles for part in parts], strict=True))
    for start_s in sorted({time_s for profile in profiles for time_s in profile.times}):
        at_once = [ordered_sum([profile.at(start_s) for profile in of]) for of in by_resource]
        if any(amount and free < least for amount, free, least in zip(one, at_once, needed, strict=True)):
            continue
        end_s = start_s + seconds
        if any(profile.least(start_s, end_s) < count for profile, count in licences):
            continue
        left, shares = instances, []
        for part in parts:
            taken = min(left, part.room(one, start_s, end_s))
            shares.append(tuple([amount * taken for amount in one]))
            left -= taken
        if not left:
            return start_s, shares
    return inf, [tuple([0.0] * len(one)) for _ in parts]


def _earliest(profiles: Sequence[Profile], amounts: Sequence[float], seconds: float) -> float:
    """Return the first time from which all amounts are free for ``seconds``; ``inf`` if there is
    none.
    """
    start_s = -inf
    while True:
        times_s = [
            profile.earliest(amount, seconds, start_s)
            for profile, amount in zip(profiles, amounts, strict=True)
            if amount or start_s == -inf
        ]
        if max(times_s, default=start_s) == start_s or start_s == inf:
            return start_s
        start_s = max(times_s)


_PLENTY = 1 << 90
"""More than any candidate takes."""


class FreeAmounts(NamedTuple):
    """Free GPUs, cores and GB of memory, all in millionths."""

    gpus: int
    cpus: int
    memory: int

    def exceed(self, extra: FreeAmounts) -> bool:
        """Return True if any amount is above that in ``extra``."""
        return self.gpus > extra.gpus or self.cpus > extra.cpus or self.memory > extra.memory


EVERYTHING, NOTHING = FreeAmounts(_PLENTY, _PLENTY, _PLENTY), FreeAmounts(-1, -1, -1)
"""The remaining resources if others may take everything, or if not even a task without GPUs may
start."""


class Shadow(NamedTuple):
    """The reservation for the oldest task: its time and type, and the resources of that type that
    are left over at that time on the nodes that are open to it.
    """

    time_s: float
    type: int
    extra: FreeAmounts
    nodes: int = ALL
    """The nodes of its partition that satisfy its constraint, as a bit set."""
    licences: tuple[tuple[str, float], ...] = ()
    """Number of licences left over at that time, of each kind that it needs."""


class Easy:
    """Start the oldest task. If it does not fit, start other tasks, ordered by ``rank``, that do
    not delay it. These tasks either end before its *shadow time*, when enough resources are
    expected to be free for it, or need no more than the *extra* resources at that time.

    The shadow time and the extra resources count the GPUs, cores and memory of one type that the
    oldest task requests, on the nodes that its partition and its constraint allow, regardless of
    how these are distributed over the nodes, and its licences. If tasks share a node, a candidate
    with a correct estimate never delays the oldest task. Uses estimates; not
    preemptive. Cost per decision: O(running log running), and a NumPy pass over the waiting tasks
    with each demand that fits but exceeds the extra resources (Lifka 1995; Mu'alem and Feitelson
    2001). Its counterpart in the compiled engine is ``compiled.easy``.
    """

    def __init__(self, rank: RankColumn, placement: str | PlacementRule = "best-fit") -> None:
        self.rank = rank
        self.placement = placing(placement)
        self._place = self.placement.place

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        head = view.queue(by_arrival).first()
        if head is None:
            return
        backlog = view.index(self, Backlog)
        task = head
        placement = self._place(view, head)
        if placement is None:
            if not backlog.fits(view.machines):
                return
            shadow = min([_reservation(view, view.expected_free, head, type_) for type_ in head.demand.types])
            filler = self._filler(view, backlog, head, shadow)
            if filler is None:
                return
            task, placement = filler
        yield Start(task, placement)

    def _filler(
        self, view: ClusterView, backlog: Backlog, head: TaskState, shadow: Shadow
    ) -> tuple[TaskState, Placement] | None:
        """Return the first task by rank that fits and does not delay ``head``, with its placement."""
        machines, now = view.machines, view.now
        stuck: set[AlikeTasks] = set()
        room: dict[DemandClass, list[int]] = {}
        while True:
            best: tuple[float, int, TaskState] | None = None
            chosen: AlikeTasks | None = None
            for group in backlog.groups():
                demand = group.demand
                types = room.get(demand)
                if types is None:
                    types = room[demand] = [type_ for type_ in demand.types if machines.fits_on(demand, type_)]
                if not types or group in stuck:
                    continue
                type_ = types[0] if len(types) == 1 else min(types, key=group.ratios.__getitem__)
                until_s = inf
                takes_time = group.ratios[type_] > 0  # tasks without work end as soon as they start
                if takes_time and self._exceeds(view, group, type_, shadow):
                    until_s = shadow.time_s
                first = group.first(self.rank, now, type_, until_s)
                if first is not None and (best is None or first[:2] < best[:2]):
                    best, chosen = first, group
            if best is None or chosen is None:
                return None
            task = best[2]
            placement = self._place(view, task)
            if placement is not None and self._delays(view, task, placement, shadow):
                placement = self._elsewhere(view, task, None, shadow)
            if placement is not None and task is not head and not self._delays(view, task, placement, shadow):
                return task, placement
            stuck.add(chosen)

    def _elsewhere(self, view: ClusterView, task: TaskState, type_: int | None, shadow: Shadow) -> Placement | None:
        """Return a placement outside the nodes of the reservation."""
        if shadow.nodes == ALL:
            return None
        with view.machines.within(task.demand, ~shadow.nodes):
            placement = self._place(view, task, type_)
        return placement if placement is not None and not _instances(placement, shadow.nodes) else None

    def _exceeds(self, view: ClusterView, group: AlikeTasks, type_: int, shadow: Shadow) -> bool:
        """Return True if a task in the group would take more than the resources that are left over."""
        if shadow.licences and _takes_licences(group.demand, shadow):
            return True
        if type_ != shadow.type:
            return False
        count = group.waiting
        if shadow.nodes == ALL:
            if not group.demand.gang and count > 1:
                placement = self._place(view, group.tasks[0], type_)
                count = 0 if placement is None else _instances(placement, ALL)
            return _amounts(group.demand, count).exceed(shadow.extra)
        if not group.demand.opened & shadow.nodes:
            return False
        if not _amounts(group.demand, count).exceed(shadow.extra):
            return False
        placement = self._place(view, group.tasks[0], type_)
        count = 0 if placement is None else _instances(placement, shadow.nodes)
        if not _amounts(group.demand, count).exceed(shadow.extra):
            return False
        within = group.demand.opened & ~shadow.nodes == 0
        return within or self._elsewhere(view, group.tasks[0], type_, shadow) is None

    def _delays(self, view: ClusterView, task: TaskState, placement: Placement, shadow: Shadow) -> bool:
        type_ = view.machines.list[placement[0].node].type
        if view.now + task.seconds[type_] <= shadow.time_s:
            return False
        if shadow.licences and _takes_licences(task.demand, shadow):
            return True
        return type_ == shadow.type and _amounts(task.demand, _instances(placement, shadow.nodes)).exceed(shadow.extra)


def easy(placement: str | PlacementRule = "best-fit") -> Easy:
    """EASY with candidates in order of arrival. Uses estimates. Cost: ``Easy`` (Lifka 1995)."""
    return Easy(by_order, placement)


def easy_sjf(placement: str | PlacementRule = "best-fit") -> Easy:
    """EASY with the shortest candidate first. Uses estimates. Cost: ``Easy`` (Tsafrir, Etsion and
    Feitelson 2007).
    """
    return Easy(shortest_first, placement)


def easy_lxf(placement: str | PlacementRule = "best-fit") -> Easy:
    """EASY with the most slowed-down candidate first. Uses estimates. Cost: ``Easy``."""
    return Easy(most_slowed_first, placement)


def shortest_first(group: AlikeTasks, _: float) -> np.ndarray:
    return group.best_s


def most_slowed_first(group: AlikeTasks, now: float) -> np.ndarray:
    ranks: np.ndarray = slowed(group.ready_s, now, group.per_second)
    return ranks


def _amounts(demand: DemandClass, count: int) -> FreeAmounts:
    """Return the amounts that this many instances of ``demand`` take."""
    return FreeAmounts(round(demand.demand.gpus * MICRO) * count, demand.cpus * count, demand.memory * count)


def _instances(placement: Placement, nodes: int) -> int:
    """Return the number of instances that a placement puts on some nodes."""
    return sum(share.instances for share in placement if nodes >> share.node & 1)


def _takes_licences(demand: DemandClass, shadow: Shadow) -> bool:
    """Return True if a task needs more licences than the reservation leaves over."""
    left = dict(shadow.licences)
    return demand.terms is not None and any(count > left.get(name, count) for name, count in demand.terms.licences)


def _reservation(view: ClusterView, expected: ExpectedFree, head: TaskState, type_: int) -> Shadow:
    """Return the reservation for ``head`` on ``type_``: the time at which it is expected to fit,
    and the resources left over at that time.
    """
    demand, machines, now, running = head.demand, view.machines, view.now, view.running
    nodes, licences = allowed(view, demand), () if demand.terms is None else demand.terms.licences
    count = demand.gang or 1
    up = [m for m in machines.list if m.type == type_ and m.up and nodes >> m.index & 1]
    idle = machines.idle_gpus(type_) if nodes == ALL else sum(machine.idle for machine in up)
    gpus = demand.demand.gpus * count - idle if demand.demand.gpus else -inf
    cpus = demand.cpus * count - sum(machine.cpus for machine in up) if demand.cpus else -_PLENTY
    memory = demand.memory * count - sum(machine.memory for machine in up) if demand.memory else -_PLENTY
    lacking = {name: wanted - machines.site.licences[name] for name, wanted in licences if machines.site is not None}
    ends = merge(*map(expected.ends, range(len(machines.types)))) if lacking else expected.ends(type_)
    lacks = gpus > 0 or cpus > 0 or memory > 0 or any(short > 0 for short in lacking.values())
    shadow_s = inf if lacks else now
    for end_s, id_, held_gpus in ends:
        if not lacks and end_s > shadow_s:
            break
        if lacks:
            shadow_s = max(end_s, now)
        run = running[id_]
        for name, own in () if run.task.demand.terms is None else run.task.demand.terms.licences:
            if name in lacking:
                lacking[name] -= own
        if run.type == type_:
            of, instances, freed = run.task.demand, run.instances, held_gpus
            if nodes != ALL:
                instances = sum(on_node for machine, on_node, *_ in run.held if nodes >> machine.index & 1)
                freed = of.demand.gpus * instances
            gpus -= freed
            cpus -= of.cpus * instances if demand.cpus else 0
            memory -= of.memory * instances if demand.memory else 0
        lacks = gpus > 0 or cpus > 0 or memory > 0 or any(short > 0 for short in lacking.values())
    if lacks:
        return Shadow(inf, type_, FreeAmounts(0, 0, 0), nodes)
    extra = FreeAmounts(round(-gpus * MICRO) if demand.demand.gpus else _PLENTY, -cpus, -memory)
    return Shadow(shadow_s, type_, extra, nodes, tuple([(name, -short) for name, short in lacking.items()]))


class EasyEvents:
    """EASY with one pass per event, as in PYSS and similar simulators. At each time, there is first
    one pass for every arriving task. During these passes, runs that end at that time, ahead of
    their estimates, still hold their resources. Then there is one pass for each of those ends. In
    contrast, ``easy`` decides once per point in time, based on the resources that are free after
    all simultaneous events.

    The return of a node is also an event.

    A pass starts the oldest tasks until one does not fit. Others overtake this task if they end by
    its *shadow time*, when enough resources are expected to be free for it, or if they need no more
    than the *extra* resources at that time. The pass counts GPUs (cores, for tasks without GPUs) on
    the nodes that the oldest task may use, over all types together, so it is meant for clusters
    with one type; and it counts the licences that the oldest task needs. Uses estimates; not
    preemptive. Costs O(running log running + queue) per event (Lifka 1995; Tsafrir, Etsion and
    Feitelson 2007, section 2).
    """

    forgets = "at which events it had looked at its queue"

    def __init__(self, placement: str | PlacementRule = "best-fit") -> None:
        self._place = placing(placement).place
        self._queue: dict[Key, None] = {}
        self._holding: dict[int, _Holding] = {}
        """Runs under way, by id."""
        self._up = -1
        self._ended: dict[int, _Holding] = {}
        """Runs that ended since the last decision."""

    def started(self, run: Run, now: float) -> None:
        """Add a run."""
        self._holding.setdefault(run.id, _Holding.of(run, run.estimated_end_s(now)))

    def ended(self, run: Run, now: float) -> None:
        """Keep the resources of an ended run as held until the next decision."""
        self._ended[run.id] = self._holding.pop(run.id)

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        view.follow(self)
        ready = view.index(EasyEvents, Ready).tasks
        ended = [holding for _, holding in sorted(self._ended.items())]
        self._ended.clear()
        gone = [key for key in self._queue if key not in ready]
        for key in gone:
            del self._queue[key]
        for key in sorted(ready.keys() - self._queue.keys()):
            self._queue[key] = None
            yield from self._pass(view, ready, _late(ended, view.now))
        for place in range(1, len(ended) + 1):
            yield from self._pass(view, ready, _late(ended[place:], view.now))
        up = sum(machine.bit for machine in view.machines.list if machine.up)
        site = view.machines.site
        # A node has come back, or the rules of the site allow other tasks to start.
        if up & ~self._up or gone or (site is not None and view.now in site.boundaries):
            yield from self._pass(view, ready, [])
        self._up = up

    def _pass(self, view: ClusterView, ready: dict[Key, TaskState], late: list[_Holding]) -> Iterator[Decision]:
        """Start the tasks that may start while the runs in ``late`` still hold their resources."""
        keys = iter(list(self._queue))
        head = None
        for key in keys:
            task = ready[key]
            placement = self._room(view, task, late)
            if placement is None:
                head = task
                break
            yield Start(task, placement)
            self._leave(key, ready)
        if head is None:
            return
        shadow, extra = self._shadow(view, head, late)
        for key in keys:
            task = ready[key]
            in_time = view.now + task.best_s <= shadow.time_s
            if not in_time and _takes_licences(task.demand, shadow):
                continue
            if in_time or shadow.nodes != ALL or size(task) <= extra + NEARLY:
                placement = self._room(view, task, late)
                takes = 0.0 if in_time or placement is None else _size_on(task, placement, shadow.nodes)
                if takes > extra + NEARLY:
                    with view.machines.within(task.demand, ~shadow.nodes):
                        placement, takes = self._room(view, task, late), 0.0
                    if placement is not None and _instances(placement, shadow.nodes):
                        continue
                if placement is not None:
                    yield Start(task, placement)
                    self._leave(key, ready)
                    extra -= takes

    def _shadow(self, view: ClusterView, head: TaskState, late: list[_Holding]) -> tuple[Shadow, float]:
        """Return the reservation for ``head``, whose amounts of each type are not used, and the GPUs
        (or cores) on its nodes that are left over at that time.
        """
        nodes, site = allowed(view, head.demand), view.machines.site
        wanted = () if head.demand.terms is None or site is None else head.demand.terms.licences
        left = {name: site.licences[name] - count for name, count in wanted if site is not None}
        idle = _unheld(view, head, late)
        shadow_s = view.now
        for run in sorted([*self._holding.values(), *late]):
            if idle + NEARLY >= size(head) and min(left.values(), default=0) >= 0 and run.end_s > shadow_s:
                break
            idle += run.on(nodes)
            shadow_s = max(run.end_s, view.now)
            for name, count in run.licences if left else ():
                if name in left:
                    left[name] += count
        return Shadow(shadow_s, -1, NOTHING, nodes, tuple(left.items())), idle - size(head)

    def _room(self, view: ClusterView, task: TaskState, late: list[_Holding]) -> Placement | None:
        if late and _unheld(view, task, late) + NEARLY < size(task):
            return None
        return self._place(view, task)

    def _leave(self, key: Key, ready: dict[Key, TaskState]) -> None:
        """Remove a started task from the queue if none of its instances is waiting."""
        if not ready[key].waiting:
            del self._queue[key], ready[key]


def _size_on(task: TaskState, placement: Placement, nodes: int) -> float:
    """Return the number of GPUs (or cores) that a placement takes on some nodes."""
    demand = task.demand
    if nodes == ALL:
        return size(task)
    return (demand.demand.gpus or demand.cpus / MICRO) * _instances(placement, nodes)


def _late(ended: list[_Holding], now: float) -> list[_Holding]:
    """Return the runs that ended ahead of their estimates."""
    return [run for run in ended if run.end_s > now]
