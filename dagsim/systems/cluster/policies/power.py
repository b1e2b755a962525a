"""Power-aware scheduling: least energy within a bound on the slowdown, or within a cap on the power drawn."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from math import inf

from dagsim.errors import require
from dagsim.metrics.utilization import DEFAULT_POWER
from dagsim.model import Decision, Start
from dagsim.model.arithmetic import ordered_sum
from dagsim.systems.cluster.api import ClusterState, ClusterView, DemandClass, TaskState
from dagsim.systems.cluster.policies.orders import by_seconds, width
from dagsim.systems.cluster.policies.placement import PlacementRule, placing, start_of


def busy_watts(view: ClusterView) -> list[float]:
    """Difference between the busy and idle watts of a GPU of each type. 0 for CPU machines."""
    watts = [None if gpu is None else DEFAULT_POWER.of(gpu) for gpu in view.gpu_types]
    return [0.0 if gpu_watts is None else gpu_watts.busy - gpu_watts.idle for gpu_watts in watts]


class EnergySaver:
    """Shortest first, each task where it needs the least energy without being too slow. A task may
    use types where it takes at most ``slowdown`` times its least seconds, and goes to the one of
    those with room that needs the least energy: seconds x GPUs x (busy - idle watts). If none of
    them has room it waits, as long as anything is still pending. Uses estimates; not preemptive.
    O(groups x types) per decision; the tasks of a group have the same demand and the same ratios
    of speed (bounded-slowdown energy saving as in Auxo and Zeus; You et al., NSDI 2023).

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
        if pair is None and not view.pending:  # the types it may use have left for good
            pair = view.typed_queue(by_seconds).first_fit()
        yield from start_of(self._place, view, *pair or (None,))


class PowerCap:
    """Shortest pair of task and GPU type first, below a power cap. No task starts that would lift
    the busy watts of all GPUs above ``watts``. A task that alone draws more starts when nothing
    else runs. Uses estimates; not preemptive. O(types x log n) per decision.

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


class _Shortest:
    """Ready tasks by seconds, grouped by demand class and ratios of speed. Each group knows the
    types that it may use.
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
        """Return the shortest task with room on a type it may use, and the type with the least
        energy.
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
