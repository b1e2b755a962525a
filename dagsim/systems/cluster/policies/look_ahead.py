"""Policies that look ahead: earliest finish with waiting, integer programs, assignment, and
roll-outs.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush, nsmallest
from itertools import islice
from math import inf
from typing import TypeAlias

import numpy as np

from dagsim.errors import ConfigError, Stalled, require
from dagsim.model import Decision, Kind, Placement, Start
from dagsim.model.arithmetic import ordered_sum
from dagsim.registry import Registry
from dagsim.standard_streams import without_output
from dagsim.systems.cluster.api import (
    ClusterPolicy,
    ClusterState,
    ClusterView,
    DemandClass,
    Simulation,
    TaskState,
    TypedKey,
)
from dagsim.systems.cluster.policies.gpu_amounts import free_times
from dagsim.systems.cluster.policies.orders import width
from dagsim.systems.cluster.policies.placement import PlacementRule, placing, start_those


class EftWait:
    """Start the first pair of a task and a GPU type that fits, unless waiting is better. A pair is
    skipped if the task would finish sooner by waiting for its fastest type, that is, if ``eta +
    p_best < theta * p_here``. If all pairs are skipped, the policy waits.

    ``eta`` is the time until enough GPUs of the fastest type are expected to be free, according to
    the estimates of the runs there. ``theta`` below 1 makes waiting less likely. ``order`` states
    which pair comes first:

    - ``task``: the one with the shortest task on this type,
    - ``path``: the one with the shortest path to the end of the job, if the task starts on this
      type,
    - ``work``: the one whose job had the least work left when the task became ready.

    With these defaults, the policy performs best on average among 26 heuristics over ten workloads
    (``results/agents/matrix.csv``).

    On a cluster with a single GPU type, the order ``task`` is SJF. The policy uses estimates and
    never preempts. The cost is O(speed profiles x types) per decision, plus O(GPUs needed) per
    ``eta``. A speed profile is a set of tasks with the same speed ratios between types. The rule is
    a special case of TetriSched's plan-ahead (Tumanov et al., EuroSys 2016), in which a task has
    only one alternative to starting now.

    Raises:
        ConfigError: The order is unknown.
    """

    rehearses = False  # an index stores how much work each job had left, so no rehearsal can restore it

    def __init__(self, theta: float = 0.75, order: str = "work", placement: str | PlacementRule = "best-fit") -> None:
        require(theta >= 0, "eft-wait: theta must be 0 or more", theta)
        require(order in _ORDERS, f"eft-wait: order must be one of {', '.join(_ORDERS)}", order)
        self.theta = theta
        self.order = order
        self.forgets = "how much work each job had left when its task became ready" if order == "work" else ""
        self.placement = placing(placement)

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        profiles = view.index(self, lambda: _Profiles(view.machines, _ORDERS[self.order]))
        while True:
            pair = profiles.first(self, view)
            if pair is None:
                return
            task, type_ = pair
            placement = self.placement.place(view, task, type_)
            if placement is None:
                return
            yield Start(task, placement)

    def worth_waiting(
        self, view: ClusterView, task: TaskState, type_: int, etas: dict[_Place, float] | None = None
    ) -> bool:
        """Return True if the task would finish sooner by waiting for its fastest type than by
        starting on ``type_`` immediately. ``etas`` caches the expected waits at the current time.
        """
        best_s, threshold = task.best_s, self.theta * task.seconds[type_]
        if best_s >= threshold or best_s >= task.seconds[type_]:
            return False
        place = task.demand, task.seconds.index(best_s)
        eta_s = None if etas is None else etas.get(place)
        if eta_s is None:
            eta_s = self.eta_s(view, *place)
            if etas is not None:
                etas[place] = eta_s
        return eta_s + best_s < threshold

    def eta_s(self, view: ClusterView, demand: DemandClass, type_: int) -> float:
        """Return the seconds until ``type_`` is expected to have enough idle GPUs for ``demand``,
        regardless of how these are distributed over nodes.
        """
        machines = view.machines
        if machines.fits_on(demand, type_):
            return 0.0
        missing = demand.demand.gpus * (demand.gang or 1) - machines.idle_gpus(type_)
        for end_s, _, gpus in view.expected_free.ends(type_):
            missing -= gpus
            if missing <= 0:
                return max(end_s - view.now, 0.0)
        return inf


def _here(task: TaskState, type_: int) -> float:
    return task.seconds[type_]


def _path(task: TaskState, type_: int) -> float:
    return task.rank_s - task.best_s + task.seconds[type_]


def _work(task: TaskState, type_: int) -> float:
    return task.job.work_left_gpu_s() + width(task) * (task.seconds[type_] - task.best_s)


_ORDERS: dict[str, TypedKey] = {"task": _here, "path": _path, "work": _work}
_Place: TypeAlias = tuple[DemandClass, int]
_Heap: TypeAlias = list[tuple[float, int, TaskState]]


class _Profiles:
    """Ready tasks in groups with the same demand class, type and speed profile. Each group is
    sorted in two ways, by rank and by duration. If a task in a group is skipped, all longer tasks
    would be skipped as well. Only the first and the shortest task in a group therefore have to be
    checked.
    """

    def __init__(self, machines: ClusterState, key: TypedKey) -> None:
        self._machines = machines
        self._key = key
        self._groups: dict[_Place, dict[tuple[float, ...], tuple[_Heap, ...]]] = {}

    def push(self, task: TaskState) -> None:
        best_s, by_time = task.best_s, self._key is _here
        profile = tuple([round(s / best_s, 9) for s in task.seconds]) if best_s else ()
        for type_ in task.demand.types:
            groups = self._groups.setdefault((task.demand, type_), {})
            heaps = groups.get(profile)
            if heaps is None:
                heaps = groups[profile] = ([],) if by_time else ([], [])
            key = self._key(task, type_)
            heappush(heaps[0], (key, task.order, task))
            if not by_time:
                heappush(heaps[1], (task.seconds[type_], task.order, task))

    def first(self, policy: EftWait, view: ClusterView) -> tuple[TaskState, int] | None:
        """Return the first pair of a task and a type on which it fits and should start, instead of
        waiting for a type on which it is faster.
        """
        best: tuple[float, int, TaskState] | None = None
        on = -1
        fits_on = self._machines.fits_on
        etas: dict[_Place, float] = {}
        for (demand, type_), groups in self._groups.items():
            if not fits_on(demand, type_):
                continue
            for heaps in groups.values():
                for heap in heaps:
                    while heap and not heap[0][2].waiting:
                        heappop(heap)
                # written with ``not <``, because tasks define no other comparison
                if not heaps[0] or (best is not None and not heaps[0][0] < best):
                    continue
                for heap in heaps:
                    task = heap[0][2]
                    if not policy.worth_waiting(view, task, type_, etas):
                        entry = heap[0] if heap is heaps[0] else (self._key(task, type_), task.order, task)
                        if best is None or entry < best:
                            best, on = entry, type_
                        break
        return None if best is None else (best[2], on)


class PlanAhead:
    """Plan the starts of the ``window`` shortest ready tasks. There are ``slots`` possible start
    times for a task: now, and the next expected ends of runs. In a plan, each task starts at most
    once, on one type, and at no time do the tasks hold more GPUs than will be free. The plan
    minimises the sum of completion times. A task that is not in the plan counts as if it ended
    after all others. The policy starts those tasks that the plan starts now. All others are planned
    again when something changes.

    This is TetriSched's plan-ahead (Tumanov et al., EuroSys 2016) with exact start times. Instead
    of values stated in TetriSched's language (STRL), the rule is "the sooner the better". The
    policy uses estimates and never preempts. It is costly by definition, because an integer program
    with window x types x slots choices takes about 10 ms.

    Raises:
        ConfigError: ``window`` or ``slots`` is less than 1.
    """

    forgets = "at which events it had made its plans"

    def __init__(self, window: int = 10, slots: int = 5, placement: str | PlacementRule = "best-fit") -> None:
        if window < 1 or slots < 1:
            raise ConfigError(f"plan-ahead: window and slots must be 1 or more, got {window!r} and {slots!r}")
        self.window = window
        self.slots = slots
        self._place = placing(placement).place

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        if not any(view.fits(task) for task in view.ready):
            return
        tasks = nsmallest(self.window, view.ready, key=lambda task: (task.best_s, task.order, task.piece))
        yield from start_those(view, self._now(view, tasks), self._place)

    def _now(self, view: ClusterView, tasks: list[TaskState]) -> Iterator[tuple[TaskState, int]]:
        times = free_times(view)
        ends = sorted({time - view.now for type_times in times for time in type_times})
        starts = np.array(ends[: self.slots] if ends and ends[0] == 0 else [0.0, *ends[: self.slots - 1]])
        free = np.array(
            [[sum(time - view.now <= at for time in type_times) for at in starts] for type_times in times], float
        )
        seconds = np.array([task.seconds for task in tasks])
        gpus = np.array([width(task) if task.demand.demand.gpus else 0.0 for task in tasks])
        for task, type_, slot in plan_slots(seconds, gpus, starts, free):
            if slot == 0:
                yield tasks[task], type_


def plan_slots(
    seconds: np.ndarray, gpus: np.ndarray, starts: np.ndarray, free: np.ndarray
) -> list[tuple[int, int, int]]:
    """Return the triples of task, type and slot that minimise the sum of completion times, with the
    shortest tasks first.

    ``seconds`` (tasks, types), float64, is ``inf`` where a task may not run. ``gpus`` (tasks,)
    contains the number of GPUs that each task needs simultaneously. ``starts`` (slots,) contains
    the times of the slots, in increasing order. ``free`` (types, slots) contains the GPUs that are
    free at each of these times if nothing is started.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    choices = [
        (task, type_, slot)
        for task in range(len(seconds))
        for type_ in range(seconds.shape[1])
        for slot in range(len(starts))
        if np.isfinite(seconds[task, type_]) and gpus[task] <= free[type_, slot]
    ]
    if not choices:
        return []
    ends = np.array([starts[slot] + seconds[task, type_] for task, type_, slot in choices])
    late = 2 * ends.max() + 1.0
    rows, columns, values = [], [], []
    for column, (task, type_, slot) in enumerate(choices):
        rows.append(task)
        columns.append(column)
        values.append(1.0)
        for at in range(slot, len(starts)):
            if gpus[task] and starts[at] < ends[column]:
                rows.append(len(seconds) + type_ * len(starts) + at)
                columns.append(column)
                values.append(gpus[task])
    most = np.concatenate([np.ones(len(seconds)), free.ravel()])
    matrix = csr_array((values, (rows, columns)), shape=(len(most), len(choices)))
    with without_output():
        solution = milp(
            ends - late,
            constraints=LinearConstraint(matrix, ub=most),
            integrality=np.ones(len(choices)),
            bounds=Bounds(0, 1),
            options={"mip_rel_gap": 1e-3, "node_limit": 200},
        )
    if solution.x is None:
        return []
    chosen = [column for column, value in enumerate(solution.x) if value > 0.5]
    return [choices[column] for column in sorted(chosen, key=lambda column: (ends[column], column))]


_STUCK_S = 1e9


class Rollout:
    """One step of policy iteration (Bertsekas, Tsitsiklis and Wu 1997). The candidates are the
    decision to wait, and the ``width`` shortest pairs of a ready task and a GPU type that fit. Each
    candidate is tried out in a fork of the view, in which the policy ``base`` schedules the current
    jobs to their end. A fork uses estimates, and contains neither true durations nor future
    arrivals. The candidate with the smallest sum of completion times is carried out. In a tie, the
    policy waits.

    The policy uses estimates and never preempts. It is costly by definition, because each decision
    takes ``width`` + 1 simulations of the jobs in the system.

    Raises:
        ConfigError: ``width`` is less than 1, or ``base`` is preemptive.
    """

    def __init__(self, base: str = "eft-wait", width: int = 3, placement: str | PlacementRule = "best-fit") -> None:
        require(width >= 1, "rollout: width must be 1 or more", width)
        self.base = base
        self.width = width
        self._place = placing(placement).place
        _policies().create(base)

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        candidates = self._candidates(view)
        if not candidates:
            return
        tried: list[tuple[float, TaskState, Placement]] = []
        for task, placement in candidates:
            tried.append((self._cost(view, (task, placement)), task, placement))
        cost, task, placement = min(tried, key=lambda trial: trial[0])
        if cost < self._cost(view, None) * (1 - 1e-9) or not view.running:
            yield Start(task, placement)

    def _candidates(self, view: ClusterView) -> list[tuple[TaskState, Placement]]:
        fitting = (task for task in view.ready if view.fits(task))
        pairs = [
            (task.seconds[type_], task, type_)
            for task in nsmallest(self.width, fitting, key=lambda task: (task.best_s, task.order, task.piece))
            for type_ in task.demand.types
            if view.machines.fits_on(task.demand, type_)
        ]
        candidates = []
        for _, task, type_ in sorted(pairs, key=lambda pair: (pair[0], pair[1].order, pair[2]))[: self.width]:
            placement = self._place(view, task, type_)
            if placement is not None:
                candidates.append((task, placement))
        return candidates

    def _cost(self, view: ClusterView, start: tuple[TaskState, Placement] | None) -> float:
        """Return the sum of the completion times of the current jobs if this candidate is carried
        out now. If the candidate is the decision to wait, it lasts until the next run ends.
        """
        if start is None and not view.running:
            return inf
        fork = view.fork()
        written = len(fork.schedule.log)
        # the number of jobs that need nodes which are down for an unknown time
        stuck = _play(fork, _policies().create(self.base), start)
        rows, jobs = fork.schedule.log.since(written), fork.schedule.jobs
        done = [row[1] - jobs[row[2]].arrival_s for row in rows if row[0] == Kind.COMPLETED]
        return stuck * _STUCK_S + ordered_sum(done)


def _play(fork: Simulation, base: ClusterPolicy, start: tuple[TaskState, Placement] | None) -> int:
    """Carry out the candidate, and use the base policy for all further decisions. Return the number
    of jobs that it could not finish.
    """
    conversation = fork.decisions()
    view = next(conversation)
    try:
        if start is None:
            now = view.now
            while view.now == now:
                conversation.send(())
        else:
            task, placement = start
            conversation.send((Start(_same(view, task), placement),))
        while True:
            conversation.send(base.decide(view))
    except (StopIteration, Stalled):
        return len(view.jobs)


def _same(view: ClusterView, task: TaskState) -> TaskState:
    """Return the ready task of a fork that corresponds to ``task``."""
    place = task.order, task.piece
    return next(other for other in view.ready if (other.order, other.piece) == place)


def _policies() -> Registry[ClusterPolicy]:
    from dagsim.systems.cluster.policies import POLICIES

    return POLICIES


class AlloX:
    """Minimise the sum of completion times of ``window`` ready tasks (based on AlloX, Le et al.,
    EuroSys 2020; Bruno, Coffman and Sethi 1974). Each task is assigned to a lane and to a position
    in that lane's queue, counted from the end of the queue. A lane is a GPU of some type, or as
    many parallel GPUs as the task needs. A task at position k from the end delays k completions,
    including its own, by its duration on this lane. The whole queue also waits until the lane is
    free. On each lane that is free now, the first task is started. The problem is solved again
    whenever something has changed.

    ``window`` limits the number of tasks that are considered. A quarter of these are the tasks that
    have waited longest, so that no task starves. The others are the tasks with the least GPU time.
    The policy uses estimates and never preempts. It is costly by definition, because an assignment
    problem of size window x (lanes x places) takes about 1 ms.
    """

    def __init__(self, window: int = 24, placement: str | PlacementRule = "best-fit") -> None:
        require(window >= 1, "allox: window must be 1 or more", window)
        self.window = window
        self._place = placing(placement).place

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        if not any(view.fits(task) for task in view.ready):
            return
        oldest = islice(view.ready, self.window // 4)
        shortest = nsmallest(self.window, view.ready, key=_area)
        tasks = list(dict.fromkeys((*oldest, *shortest)))[: self.window]
        yield from start_those(view, self._first(view, tasks), self._place)

    def _first(self, view: ClusterView, tasks: list[TaskState]) -> Iterator[tuple[TaskState, int]]:
        """Yield the tasks on lanes that are free now, beginning with the first task on each lane.
        Later tasks follow, because they can use resources that stay free if a wide task in front of
        them does not fit.
        """
        lanes = [
            (type_, max(time - view.now, 0.0))
            for type_, times in enumerate(free_times(view))
            for time in (times or [view.now])
        ]
        types = range(len(view.gpu_types))
        on_types = np.array([[task.seconds[type_] * _share(task, type_) for type_ in types] for task in tasks])
        seconds = on_types[:, [type_ for type_, _ in lanes]]
        places = max(-(-2 * len(tasks) // len(lanes)), 2)
        queues = assign(seconds, np.array([wait_s for _, wait_s in lanes]), places)
        free = [
            (place, number, lanes[lane][0])
            for lane, queue in enumerate(queues)
            if lanes[lane][1] == 0.0
            for place, number in enumerate(queue)
        ]
        for _, number, type_ in sorted(free):
            yield tasks[number], type_


def assign(seconds: np.ndarray, wait_s: np.ndarray, places: int) -> list[list[int]]:
    """Assign tasks to lanes so that the sum of completion times is minimal. Return the tasks on
    each lane in their order.

    ``seconds`` (tasks, lanes), float64, is ``inf`` where a task may not run. ``wait_s`` (lanes,) is
    the time until each lane is free. There are up to ``places`` tasks per lane, or more if that is
    not enough for all tasks.
    """
    from scipy.optimize import linear_sum_assignment

    count, lanes = seconds.shape
    places = max(places, -(-count // lanes))
    cost = np.concatenate([seconds * place + wait_s for place in range(1, places + 1)], axis=1)
    rows, columns = linear_sum_assignment(np.where(np.isfinite(cost), cost, 1e15))
    queues: list[list[tuple[int, int]]] = [[] for _ in range(lanes)]
    for task, column in zip(rows.tolist(), columns.tolist(), strict=True):
        if cost[task, column] < inf:
            place, lane = divmod(column, lanes)
            queues[lane].append((-place, task))
    return [[task for _, task in sorted(queue)] for queue in queues]


def _area(task: TaskState) -> float:
    return width(task) * task.best_s


def _share(task: TaskState, type_: int) -> float:
    """Return the number of lanes that the task needs. Each lane is one GPU, so this is the task's
    number of GPUs.
    """
    return max(width(task), 1.0) if type_ in task.demand.types else inf
