"""Power-aware policies. They save energy within a bound on the slowdown, stay below a power cap, or
shift work to the cheapest hours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from math import inf

from dagsim.errors import require
from dagsim.metrics.tariff import NIGHTS, Tariff, read_tariff
from dagsim.metrics.utilization import DEFAULT_POWER
from dagsim.model import Decision, Start, Wait
from dagsim.model.arithmetic import ordered_sum, whole_sum
from dagsim.systems.cluster.api import ClusterState, ClusterView, DemandClass, Queue, TaskState
from dagsim.systems.cluster.policies.history import DueTasks
from dagsim.systems.cluster.policies.orders import by_seconds, width
from dagsim.systems.cluster.policies.placement import PlacementRule, placing, start_of


def busy_watts(view: ClusterView) -> list[float]:
    """For each GPU type, return the difference in watts between a busy and an idle GPU. The value
    for CPU machines is 0.
    """
    watts = [None if gpu is None else DEFAULT_POWER.of(gpu) for gpu in view.gpu_types]
    return [0.0 if gpu_watts is None else gpu_watts.busy - gpu_watts.idle for gpu_watts in watts]


class EnergySaver:
    """The shortest task comes first. Each task runs where it needs the least energy without being
    too slow (bounded-slowdown energy saving as in Auxo and Zeus; You et al., NSDI 2023). A task may
    use types on which it takes at most ``slowdown`` times as long as on its fastest type. Of the
    types on which it fits now, it uses the one with the least energy, which is the product of
    seconds, GPUs and the difference between busy and idle watts. If it fits on none of these types,
    the task waits as long as an event is still pending. The policy uses estimates and never
    preempts. The cost is O(groups x types) per decision, where the tasks in a group have the same
    demand and the same speed ratios.

    Raises:
        ConfigError: ``slowdown`` is below 1.
    """

    def __init__(self, slowdown: float = 1.5, placement: str | PlacementRule = "best-fit") -> None:
        require(slowdown >= 1, "energy-saver: slowdown must be 1 or more", slowdown)
        self.slowdown = slowdown
        self._place = placing(placement).place
        self._watts: list[float] = []

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        if not self._watts:
            self._watts = busy_watts(view)
        groups = view.index(self, lambda: _Shortest(self.slowdown, self._watts, view.machines))
        pair = groups.first(view.machines)
        if pair is None and not view.pending:  # the nodes of all types that the task may use have left permanently
            pair = view.typed_queue(by_seconds).first_fit()
        yield from start_of(self._place, view, *pair or (None,))


class PowerCap:
    """Shortest job first under a power cap: the pair of a task and a GPU type with the shortest run
    comes first. A task does not start if the total power of all busy GPUs would then exceed
    ``watts``. A task that exceeds the cap by itself starts when nothing else is running. The policy
    uses estimates and never preempts. The cost is O(types x log tasks) per decision.

    Raises:
        ConfigError: ``watts`` is not positive.
    """

    def __init__(self, watts: float = 4000.0, placement: str | PlacementRule = "best-fit") -> None:
        require(watts > 0, "power-cap: watts must be positive", watts)
        self.watts = watts
        self._place = placing(placement).place
        self._busy: list[float] = []

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        if not self._busy:
            gpus = view.gpu_types
            self._busy = [0.0 if gpu is None else DEFAULT_POWER.of(gpu).busy for gpu in gpus]
        pair = view.typed_queue(by_seconds).first_fit()
        if pair is None:
            return
        task, type_ = pair
        placement = self._place(view, task, type_)
        if placement is None:
            return
        drawn = ordered_sum([run.gpus * self._busy[run.type] for run in view.running.values()])
        count = sum(share.instances for share in placement)
        if drawn + count * task.demand.demand.gpus * self._busy[type_] <= self.watts or not view.running:
            yield Start(task, placement)


class CheapHours:
    """First come, first served, but tasks with slack wait for cheaper hours (temporal shifting:
    Wiesner et al., Middleware 2021). A task books GPUs when it becomes ready. The booking is within
    the task's slack, at the time at which its energy costs least while enough GPUs are not booked
    yet. If there are several such times, the earliest is used. The slack ends at ``deadline`` minus
    the path to the end of the job. ``wait_s`` is the longest time in seconds that a task without a
    deadline waits. If it is above 0, it also limits the wait of tasks with a deadline. If all GPUs
    are booked throughout its slack, or if its GPUs are still occupied when its booking begins, a
    task starts as soon as it fits. If there are several such tasks, the one that may wait for the
    shortest time starts first.

    ``series`` is a CSV file with prices or carbon intensities (``dagsim.metrics.tariff``). Without
    a series, energy costs half as much at night (22 to 6 h). ``begins`` is the ISO date of time 0
    in a simulation with generated jobs (default: the first date in the series). With
    ``repeats=false``, a simulation that is longer than the series stops with an error. The policy
    uses estimates and never preempts. As long as GPUs are not scarce, the energy costs are the
    lowest possible. The cost is O((price changes within the slack + booked tasks) x booked tasks)
    per task, and O(log tasks) per decision.

    Raises:
        ConfigError: The series cannot be read, or ``wait_s`` is negative.
    """

    forgets = "the GPUs that tasks had booked"
    rehearses = False  # its memory cannot be restored, because an index contains the bookings

    def __init__(
        self,
        series: str = "",
        wait_s: float = 0.0,
        begins: str = "",
        repeats: bool = True,
        placement: str | PlacementRule = "best-fit",
    ) -> None:
        require(wait_s >= 0, "cheap-hours: wait_s must be 0 or more", wait_s)
        self.wait_s = wait_s
        self._begins = begins
        self._tariff = read_tariff(series, repeats) if series else NIGHTS
        self._place = placing(placement).place

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        plan = view.index(self, lambda: self._plan(view))
        while (task := plan.next(view.now)) is not None:
            plan.late.push(task)
        starts = start_of(self._place, view, plan.late.first_fit())
        yield from starts
        if plan.later and not starts:
            yield Wait(plan.later[0][0])

    def _plan(self, view: ClusterView) -> _Bookings:
        tariff = self._tariff.on_clock(view.now, self._begins)
        return _Bookings(tariff, self._latest_s, view.machines)

    def _latest_s(self, task: TaskState) -> float:
        """Return the latest time at which a task may start within its slack."""
        deadline_s = task.job.job.deadline_s
        if deadline_s is None:
            return task.ready_s + self.wait_s
        latest_s = max(task.ready_s, deadline_s - task.rank_s)
        return min(latest_s, task.ready_s + self.wait_s) if self.wait_s else latest_s


class _Bookings(DueTasks):
    """The tasks, sorted by their booked starts, and the number of GPUs that are booked at each
    time.
    """

    def __init__(self, tariff: Tariff, latest_s: Callable[[TaskState], float], machines: ClusterState) -> None:
        super().__init__(self._book, Queue(latest_s, machines))
        self._tariff = tariff
        self._latest_s = latest_s
        self._machines = machines
        self._booked: list[tuple[float, float, float, DemandClass]] = []
        """Start and end in s, GPUs, and demand class of each booked task."""
        self._most = 16

    def _book(self, task: TaskState) -> float:
        """Book the cheapest start within the slack of a task, and return it."""
        first_s, run_s = task.ready_s, task.best_s
        gpus = task.demand.demand.gpus * task.waiting
        # Past bookings are dropped only when the number of bookings has doubled, which costs O(1)
        # per task on average.
        if len(self._booked) > self._most:
            self._booked = [span for span in self._booked if span[1] > first_s]
            self._most = 2 * len(self._booked) + 16
        start_s = self._cheapest_s(task, first_s, max(first_s, self._latest_s(task)), run_s, gpus)
        if gpus and run_s > 0:
            self._booked.append((start_s, start_s + run_s, gpus, task.demand))
        return start_s

    def _cheapest_s(self, task: TaskState, first_s: float, last_s: float, run_s: float, gpus: float) -> float:
        tariff, types = self._tariff, set(task.demand.types)
        if not last_s > first_s or not run_s > 0:
            return first_s
        demand = task.demand
        able = whole_sum(self._machines.capacity(demand, type_) for type_ in demand.types) * demand.demand.gpus + 1e-9
        booked = [span for span in self._booked if gpus and span[1] > first_s and not types.isdisjoint(span[3].types)]
        # The cost is piecewise linear in the start time. It therefore has a minimum for which the
        # run starts or ends at a price change or next to another booking.
        starts = {first_s, last_s, *tariff.changes(first_s, last_s)}
        starts |= {time_s - run_s for time_s in tariff.changes(first_s + run_s, last_s + run_s)}
        starts |= {time_s for begin_s, end_s, _, _ in booked for time_s in (end_s, begin_s - run_s)}
        options = [start_s for start_s in starts if first_s <= start_s <= last_s]
        costs = {start_s: tariff.integral(start_s, start_s + run_s) for start_s in options}
        bound = 1e-9 * max(abs(cost) for cost in costs.values())
        chosen_s: float | None = None
        for start_s in sorted(options):
            if chosen_s is not None and not costs[start_s] < costs[chosen_s] - bound:
                continue
            if _peak(booked, start_s, start_s + run_s) + gpus <= able:
                chosen_s = start_s
        return first_s if chosen_s is None else chosen_s


def _peak(booked: list[tuple[float, float, float, DemandClass]], start_s: float, end_s: float) -> float:
    """Return the largest number of GPUs that are booked at any time in an interval."""
    changes: list[tuple[float, float]] = []
    for begin_s, until_s, gpus, _ in booked:
        if begin_s < end_s and until_s > start_s:
            changes += [(max(begin_s, start_s), gpus), (until_s, -gpus)]
    most = held = 0.0
    for _, change in sorted(changes):  # at equal times, process ends before starts
        held += change
        most = max(most, held)
    return most


class _Shortest:
    """Ready tasks sorted by seconds, in groups with the same demand class and speed ratios. Each
    group stores the types that its tasks may use.
    """

    def __init__(self, slowdown: float, watts: list[float], machines: ClusterState) -> None:
        self._machines = machines
        self._slowdown = slowdown
        self._watts = watts
        self._groups: dict[
            tuple[DemandClass, tuple[float, ...]], tuple[list[int], list[tuple[float, int, int, TaskState]]]
        ] = {}

    def push(self, task: TaskState) -> None:
        best_s = task.best_s or 1e-9
        key = (task.demand, tuple([round(seconds / best_s, 6) for seconds in task.seconds]))
        group = self._groups.get(key)
        if group is None:
            demand, room = task.demand, self._machines.capacity
            able = [type_ for type_ in demand.types if room(demand, type_) >= (demand.gang or 1)]
            least_s = min(task.seconds[type_] for type_ in able)
            allowed = [type_ for type_ in able if task.seconds[type_] <= self._slowdown * least_s]
            allowed.sort(key=lambda type_: (task.seconds[type_] * width(task) * self._watts[type_], type_))
            group = self._groups[key] = (allowed, [])
        heappush(group[1], (task.best_s, task.order, task.piece, task))

    def first(self, machines: ClusterState) -> tuple[TaskState, int] | None:
        """Return the shortest task that fits on a type that it may use, and the type on which it
        needs the least energy. Return None if no task fits.
        """
        best: tuple[float, int, int, TaskState] = (inf, 0, 0, None)  # type: ignore[assignment]
        on = -1
        for (demand, _), (allowed, heap) in self._groups.items():
            while heap and not heap[0][3].waiting:
                heappop(heap)
            if not heap or heap[0][:3] >= best[:3]:
                continue
            type_ = next((candidate for candidate in allowed if machines.fits_on(demand, candidate)), None)
            if type_ is not None:
                best, on = heap[0], type_
        return None if on < 0 else (best[3], on)
