"""Non-preemptive policies that start ready tasks in the order of a sort key (list scheduling)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf, log2, log10, nan, sqrt
from operator import attrgetter
from typing import Any

import numpy as np

from dagsim.errors import require
from dagsim.model import Decision, Start
from dagsim.systems.cluster.api import ClusterView, DemandClass, Key, TaskState, TypedKey
from dagsim.systems.cluster.policies.formulas import BLOCK, ROUNDING
from dagsim.systems.cluster.policies.placement import PlacementRule, placing


class Ordered:
    """Start the first task that fits, sorted by ``key``. Repeat this until none fits. With
    ``strict``, the first task blocks all later tasks until it fits. The cost per decision is O(log
    tasks + demand classes).

    With ``ageing``, this many units are added to the key for each second of simulated time before
    the task became ready. Tasks that have waited longer therefore move ahead of younger tasks.

    The compiled engine can run any order whose key also works on columns. It computes the keys of
    all tasks in one call (``compiled.list_scheduling.AllTasks``). To check this, it compares a
    sample of the results with the keys of single tasks.
    """

    def __init__(
        self, key: Key, placement: str | PlacementRule = "best-fit", *, strict: bool = False, ageing: float = 0.0
    ) -> None:
        def aged(task: TaskState) -> float:
            return ageing * task.ready_s + key(task)

        self.static_key = key
        self.key: Key = aged if ageing else key
        self.ageing = ageing
        self.strict = strict
        self.placement = placing(placement)
        self._place = self.placement.place

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        queue = view.queue(self.key)
        task = queue.first() if self.strict else queue.first_fit()
        if task is None:
            return ()
        placement = self._place(view, task)
        return () if placement is None else (Start(task, placement),)


class TypedOrdered:
    """Start the first pair of a task and a GPU type that fits, sorted by ``key``. Repeat this until
    none fits. This class is for orders that depend on where a task would run. The compiled engine
    runs such orders in the same way as ``Ordered``. The cost per decision is O(types x (log tasks +
    demand classes)).
    """

    def __init__(self, key: TypedKey, placement: str | PlacementRule = "best-fit") -> None:
        self.key = key
        self.placement = placing(placement)
        self._place = self.placement.place

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        pair = view.typed_queue(self.key).first_fit()
        if pair is None:
            return ()
        task, type_ = pair
        placement = self._place(view, task, type_)
        return () if placement is None else (Start(task, placement),)


by_arrival = attrgetter("order")
"""First come, first served."""


def fifo(placement: str | PlacementRule = "best-fit") -> Ordered:
    """First in, first out, strictly: the oldest task blocks all later tasks until it fits. The
    policy needs no estimates. The cost is O(log tasks) per decision.
    """
    return Ordered(by_arrival, placement, strict=True)


def fifo_fit(placement: str | PlacementRule = "best-fit") -> Ordered:
    """First in, first out among the tasks that fit; other tasks are skipped. The policy needs no
    estimates. The cost is O(log tasks) per decision.
    """
    return Ordered(by_arrival, placement)


def sjf(placement: str | PlacementRule = "best-fit") -> TypedOrdered:
    """Shortest job first: of all pairs of a ready task and a GPU type that fit, the one that takes
    the least time comes first. The policy uses estimates. The cost is O(types x log tasks) per
    decision.
    """
    return TypedOrdered(by_seconds, placement)


def critical_path(placement: str | PlacementRule = "best-fit") -> Ordered:
    """Highest level first: the ready task with the longest path to the end of its job comes first
    (Hu 1961; HLFET). The policy uses estimates. The cost is O(log tasks) per decision.
    """
    return Ordered(by_rank, placement)


def ljf(placement: str | PlacementRule = "best-fit") -> Ordered:
    """Longest job first (LPT): the ready task that takes longest on its fastest type comes first.
    This order aims at a short makespan. On m identical machines, the makespan is at most 4/3 -
    1/(3m) times the optimum (Graham 1969). The policy uses estimates. The cost is O(log tasks) per
    decision.
    """
    return Ordered(by_length, placement)


def saf(placement: str | PlacementRule = "best-fit") -> TypedOrdered:
    """Smallest area first: the pair of a ready task and a GPU type with the fewest GPU-seconds
    comes first. The policy uses estimates. The cost is O(types x log tasks) per decision.
    """
    return TypedOrdered(by_area, placement)


def wspt(placement: str | PlacementRule = "best-fit") -> TypedOrdered:
    """Weighted shortest processing time first: the pair of a ready task and a GPU type with the
    fewest seconds per unit of ``Job.weight`` comes first (Smith 1956). The policy uses estimates.
    The cost is O(types x log tasks) per decision.
    """
    return TypedOrdered(by_seconds_per_weight, placement)


def width(task: TaskState) -> float:
    """Return the number of GPUs that the task needs simultaneously: the GPUs of one instance or of
    the whole gang, or 1 for tasks without GPUs.
    """
    return task.demand.width


def by_seconds(task: TaskState, type_: int) -> float:
    return task.seconds[type_]


def by_rank(task: TaskState) -> float:
    return -task.rank_s


def by_length(task: TaskState) -> float:
    return -task.best_s


def by_area(task: TaskState, type_: int) -> float:
    return width(task) * task.seconds[type_]


def by_seconds_per_weight(task: TaskState, type_: int) -> float:
    return task.seconds[type_] / task.job.job.weight


def f1(placement: str | PlacementRule = "best-fit") -> Ordered:
    """The task with the smallest ``log10(r) n + 870 log10(s)`` comes first (Carastan-Santos and de
    Camargo, SC 2017). ``r`` is the duration on the fastest type, ``n`` the number of GPUs that
    start together, and ``s`` the arrival time of the job. The policy uses estimates. The cost is
    O(log tasks) per decision.
    """
    return Ordered(by_f1, placement)


def f2(placement: str | PlacementRule = "best-fit") -> Ordered:
    """The task with the smallest ``sqrt(r) n + 25600 log10(s)`` comes first (Carastan-Santos and de
    Camargo, SC 2017). ``r`` is the duration on the fastest type, ``n`` the number of GPUs that
    start together, and ``s`` the arrival time of the job. The policy uses estimates. The cost is
    O(log tasks) per decision.
    """
    return Ordered(by_f2, placement)


def f3(placement: str | PlacementRule = "best-fit") -> Ordered:
    """The task with the smallest ``r n + 6860000 log10(s)`` comes first (Carastan-Santos and de
    Camargo, SC 2017). ``r`` is the duration on the fastest type, ``n`` the number of GPUs that
    start together, and ``s`` the arrival time of the job. The policy uses estimates. The cost is
    O(log tasks) per decision.
    """
    return Ordered(by_f3, placement)


def f4(placement: str | PlacementRule = "best-fit") -> Ordered:
    """The task with the smallest ``r sqrt(n) + 530000 log10(s)`` comes first (Carastan-Santos and
    de Camargo, SC 2017). ``r`` is the duration on the fastest type, ``n`` the number of GPUs that
    start together, and ``s`` the arrival time of the job. The policy uses estimates. The cost is
    O(log tasks) per decision.
    """
    return Ordered(by_f4, placement)


def by_f1(task: TaskState) -> float:
    return _log10(task.best_s) * width(task) + 870 * _log_arrival(task)


def by_f2(task: TaskState) -> float:
    return _root(task.best_s) * width(task) + 25_600 * _log_arrival(task)


def by_f3(task: TaskState) -> float:
    return task.best_s * width(task) + 6_860_000 * _log_arrival(task)


def by_f4(task: TaskState) -> float:
    return task.best_s * _root(width(task)) + 530_000 * _log_arrival(task)


def _log_arrival(task: TaskState) -> float:
    return _log10(task.job.job.arrival_s)


def _log10(seconds: float) -> float:
    """Return the decimal logarithm of the seconds. A value below 0.1 s is treated as 0.1 s. The
    logarithms in a column are computed one by one, because NumPy's logarithms differ in the last
    bit.
    """
    if isinstance(seconds, np.ndarray):
        return np.array([log10(value) for value in np.maximum(seconds, 0.1).tolist()])
    return log10(max(seconds, 0.1))


def _root(value: float) -> float:
    """Return the square root of a number or of a column of numbers."""
    return np.sqrt(value) if isinstance(value, np.ndarray) else sqrt(value)


Rate = Callable[[TaskState], float]
"""The weight of one second of waiting. It must not change while the task waits."""

_SHORTEST_S = 1e-9
"""Number of seconds that is assumed for a task of zero length."""


class LongestWait:
    """Of the tasks that fit, start the one with the largest ``rate x seconds waited``. Repeat this
    until none fits. The wait starts when the task became ready, or at the time returned by
    ``since``. Ties are broken first come, first served. For each demand class that fits, a decision
    costs a NumPy pass over at most 512 waiting tasks, plus one comparison for each further 512
    tasks.

    The compiled engine runs this policy if ``rate`` and ``since`` also work on columns, as in
    ``Ordered``.
    """

    def __init__(self, rate: Rate, placement: str | PlacementRule = "best-fit", since: Rate | None = None) -> None:
        self.rate = rate
        self.since = since
        self.placement = placing(placement)
        self._place = self.placement.place

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        index = view.index(self, lambda: _Waits(self.rate, self.since or _ready_s))
        task = index.first(view)
        placement = None if task is None else self._place(view, task)
        if task is not None and placement is not None:
            yield Start(task, placement)


def hrrn(placement: str | PlacementRule = "best-fit") -> LongestWait:
    """Highest response ratio next: the task with the largest ``(wait + p) / p`` comes first, where
    ``p`` is the duration on the fastest type (Brinch Hansen 1971). The policy uses estimates. Its
    time complexity is that of ``LongestWait``.
    """
    return LongestWait(_per_second, placement)


def wfp3(placement: str | PlacementRule = "best-fit") -> LongestWait:
    """The task with the largest ``(wait / r)^3 n`` comes first (Tang et al., CLUSTER 2009). ``r``
    is the duration on the fastest type, and ``n`` is the number of GPUs that start together. The
    policy uses estimates. Its time complexity is that of ``LongestWait``.
    """
    return LongestWait(_wfp3, placement)


def unicef(placement: str | PlacementRule = "best-fit") -> LongestWait:
    """The task with the largest ``wait / (log2(n) r)`` comes first (Tang et al., CLUSTER 2009).
    ``r`` is the duration on the fastest type, and ``n`` is the number of GPUs that start together.
    Tasks with a single GPU come before all others. The policy uses estimates. Its time complexity
    is that of ``LongestWait``.
    """
    return LongestWait(_unicef, placement)


def priority(ageing: float = 0.0, placement: str | PlacementRule = "best-fit") -> Ordered:
    """The task with the highest ``Job.priority + ageing x seconds waited`` comes first. With
    ``ageing`` above 0, no task starves. All tasks age at the same rate, so the order of two tasks
    never changes. The policy needs no estimates. The cost is O(log tasks) per decision.

    Raises:
        ConfigError: ``ageing`` is negative.
    """
    require(ageing >= 0, "priority: ageing must be 0 or more", ageing)

    return Ordered(_by_priority, placement, ageing=ageing)


def _by_priority(task: TaskState) -> float:
    return -task.job.job.priority


def themis(placement: str | PlacementRule = "best-fit") -> LongestWait:
    """Finish-time fairness (based on Themis, Mahajan et al., NSDI 2020): the job that would end
    latest relative to its ideal time comes first. This is the job with the largest rho = (time in
    the system + remaining path) / critical path. Each job is assumed to have an equal share of the
    cluster. The number of jobs therefore multiplies every rho by the same factor, and does not
    affect the order. The auctions and leases of Themis are left out. The policy uses estimates and
    never preempts. Its time complexity is that of ``LongestWait``.
    """
    return LongestWait(_per_ideal_second, placement, _virtual_arrival)


def _ready_s(task: TaskState) -> float:
    return task.ready_s


def _virtual_arrival(task: TaskState) -> float:
    return task.job.job.arrival_s - task.rank_s


def _per_ideal_second(task: TaskState) -> Any:
    return slowness(task.job.ideal_s)


def slowness(seconds: Any) -> Any:
    """Return 1 / ``seconds``, for a number or for a column of numbers."""
    longer_s = np.maximum(seconds, _SHORTEST_S) if isinstance(seconds, np.ndarray) else max(seconds, _SHORTEST_S)
    return 1.0 / longer_s


def _per_second(task: TaskState) -> Any:
    return slowness(task.best_s)


def _wfp3(task: TaskState) -> Any:
    return np.cbrt(width(task)) * _per_second(task)  # the cube root of the formula, which gives the same order


def _unicef(task: TaskState) -> float:
    """Return the task's rate, which is multiplied by the seconds waited. The weights in a column
    are computed one by one, as in ``_log10``.
    """
    wide, per_second = width(task), _per_second(task)
    if isinstance(wide, np.ndarray):
        return np.array([_per_doubling(*pair) for pair in zip(per_second.tolist(), wide.tolist(), strict=True)])
    return _per_doubling(per_second, wide)


def _per_doubling(per_second: float, wide: float) -> float:
    asked = log2(max(wide, 1.0))
    return per_second / asked if asked else 1e100 * per_second


class _Waits:
    """Ready tasks in columns, with a set of columns for each demand class."""

    def __init__(self, rate: Rate, since: Rate) -> None:
        self._rate = rate
        self._since = since
        self.columns: dict[DemandClass, _Columns] = {}

    def push(self, task: TaskState) -> None:
        columns = self.columns.get(task.demand)
        if columns is None:
            columns = self.columns[task.demand] = _Columns()
        columns.append(task, self._rate(task), self._since(task))

    def first(self, view: ClusterView) -> TaskState | None:
        """Of the tasks that fit, return the one with the largest product of rate and wait. Return None if none fits."""
        best: tuple[float, int, TaskState] | None = None
        for demand, columns in self.columns.items():
            if view.machines.fits(demand):
                here = columns.first(view.now)
                if here is not None and (best is None or here < best):
                    best = here
        return None if best is None else best[2]


class _Columns:
    """The tasks in one demand class, divided into blocks. For each task, the time at which its wait
    began and its rate are stored.

    The first row in a block stays first until a row with a higher rate overtakes it. Only blocks in
    which this may have happened are searched again. Rows for tasks that are no longer waiting stay
    in a block until they make up half of all rows. The products of these rows are negative, so they
    come last.
    """

    def __init__(self) -> None:
        self._tasks: list[TaskState] = []
        self._since = np.empty(BLOCK)
        self._rates = np.empty(BLOCK)
        self._order = np.empty(BLOCK, np.int64)
        self._leader = np.full(1, -1)
        """First row of each block."""
        self._until = np.full(1, -inf)
        """Time until which that row is certain to stay first, for each block."""
        self._looked_s = np.full(1, nan)
        """Time of the last search of each block, unless it has changed since."""
        self._gone = 0

    def append(self, task: TaskState, rate: float, since: float) -> None:
        rows = len(self._tasks)
        if rows == len(self._since):
            self._since, self._rates = np.resize(self._since, 2 * rows), np.resize(self._rates, 2 * rows)
            self._order = np.resize(self._order, 2 * rows)
            blocks = 2 * len(self._until)
            self._leader, self._until = np.resize(self._leader, blocks), np.resize(self._until, blocks)
            self._looked_s = np.resize(self._looked_s, blocks)
            self._change(slice(blocks // 2, None))
        self._tasks.append(task)
        self._since[rows], self._rates[rows], self._order[rows] = since, rate, task.order
        self._change(rows // BLOCK)

    def first(self, now: float) -> tuple[float, int, TaskState] | None:
        """Return the largest product (negated), the order of the task with this product, and the
        task. Return ``None`` if no task is waiting.
        """
        while self._gone < len(self._tasks):
            blocks = -(-len(self._tasks) // BLOCK)
            for block in np.flatnonzero((self._until[:blocks] <= now) & (self._looked_s[:blocks] != now)).tolist():
                self._look_again(block, now)
            leaders = self._leader[:blocks]
            row = self._first_of(leaders, (now - self._since[leaders]) * self._rates[leaders])
            task = self._tasks[row]
            if task.waiting:
                return -float((now - self._since[row]) * self._rates[row]), task.order, task
            self._drop(row)
        return None

    def _look_again(self, block: int, now: float) -> None:
        """Find the row that is first in the block now, and the time until which it is certain to
        stay first.
        """
        begin, end = block * BLOCK, min((block + 1) * BLOCK, len(self._tasks))
        since, rates = self._since[begin:end], self._rates[begin:end]
        products = (now - since) * rates
        row = self._first_of(np.arange(begin, end), products)
        self._leader[block], self._looked_s[block] = row, now
        self._until[block] = _leads_until(row - begin, since, rates, products)

    def _first_of(self, rows: np.ndarray, products: np.ndarray) -> int:
        """Return the row with the largest product. Ties are broken first come, first served."""
        best = rows[np.flatnonzero(products == products.max())]
        if len(best) > 1:
            orders = self._order[best]
            best = best[orders == orders.min()]
        if len(best) > 1:  # a tie between several pieces of one task
            return int(min(best.tolist(), key=self._tasks.__getitem__))
        return int(best[0])

    def _change(self, blocks: int | slice) -> None:
        """Mark the blocks that have to be searched again."""
        self._until[blocks], self._looked_s[blocks] = -inf, nan

    def _drop(self, row: int) -> None:
        self._since[row] = self._rates[row] = -1.0
        self._change(row // BLOCK)
        self._gone += 1
        if 2 * self._gone > len(self._tasks):
            kept = np.flatnonzero(self._rates[: len(self._tasks)] >= 0)
            self._tasks = [self._tasks[place] for place in kept]
            self._since[: len(kept)], self._rates[: len(kept)] = self._since[kept], self._rates[kept]
            self._order[: len(kept)] = self._order[kept]
            self._change(slice(None))
            self._gone = 0


def _leads_until(leader: int, since: np.ndarray, rates: np.ndarray, products: np.ndarray) -> float:
    """Return the time until which the row with the largest product is certain to stay first, with
    an allowance for rounding errors.
    """
    since_s, rate = since[leader], rates[leader]
    faster, others = rates > rate, (rates != rate) | (since != since_s)
    farthest_s = float(np.abs(since).max())
    until = inf
    if faster.any():  # a row with a higher rate overtakes the leader when their products become equal
        gains = rates[faster] - rate
        cross_s = (rates[faster] * since[faster] - rate * since_s) / gains
        unsure_s = ROUNDING * rates[faster] * (np.abs(cross_s) + farthest_s) / gains
        until = float((cross_s - unsure_s).min())
    slower = others & ~faster
    if slower.any():  # a row with a lower rate falls further behind, but rounding errors grow with time
        gap = products[leader] - float(products[slower].max())
        until = min(until, gap / (ROUNDING * abs(rate)) - farthest_s)
    return until


def edf(placement: str | PlacementRule = "best-fit") -> Ordered:
    """Earliest deadline first (Jackson 1955; Liu and Layland 1973). The policy needs no estimates.
    The cost is O(log tasks) per decision.
    """
    return Ordered(by_deadline, placement)


def llf(placement: str | PlacementRule = "best-fit") -> Ordered:
    """Least laxity first: the task with the smallest ``deadline - now - path to the end of the
    job`` comes first. The path is computed with every task on its fastest type. ``now`` is the same
    for all tasks, so the order never changes. The policy uses estimates. The cost is O(log tasks)
    per decision.
    """
    return Ordered(by_laxity, placement)


def by_deadline(task: TaskState) -> float:
    deadline_s = task.job.job.deadline_s
    return inf if deadline_s is None else deadline_s


def by_laxity(task: TaskState) -> float:
    return by_deadline(task) - task.rank_s


def graham(order: object = (), placement: str | PlacementRule = "best-fit") -> Ordered:
    """List scheduling: of the ready tasks that fit, the one that comes first in the list ``order``
    starts first. No GPU stays idle while a task fits.

    ``order`` lists names of tasks, which apply to all jobs: ``graham[order=[t1,t3,t2]]``. Tasks
    that are not in the list come after those in the list, first come, first served. The policy
    needs no estimates and never preempts. The cost is O(log tasks) per decision. The makespan is at
    most 2 - 1/m times the optimum on m identical machines. Graham's anomalies (1966) may occur:
    more machines, shorter tasks or fewer edges can make the schedule longer.
    """
    names: tuple[object, ...] = order if isinstance(order, tuple) else (order,)
    place: dict[str, int] = {str(name): index for index, name in reversed([*enumerate(names)])}

    def by_list(task: TaskState) -> float:
        return place.get(task.task.name, len(place))

    return Ordered(by_list, placement)


class RandomFeasible:
    """Start a random pair of a ready task and a GPU type, chosen uniformly among all pairs that
    could start now. Repeat this until there are none. The policy draws from the simulation's random
    stream ``policy``. It needs no estimates. The cost is O(demand classes x types) per decision.
    """

    forgets = "how many random numbers had been drawn"
    rehearses = False  # no rehearsal, because the order of the tasks in the bags depends on earlier random numbers

    def __init__(self, placement: str | PlacementRule = "best-fit") -> None:
        self.placement = placing(placement)

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        bags = view.index(RandomFeasible, _Bags)
        rng = view.stream("policy")
        fits_on = view.machines.fits_on
        while True:
            fitting = [(demand, type_) for demand in bags.by_demand for type_ in demand.types if fits_on(demand, type_)]
            total = sum(len(bags.by_demand[demand]) for demand, _ in fitting)
            if not total:
                return
            demand, type_, at = _pick(bags, fitting, int(rng.integers(total)))
            bag = bags.by_demand[demand]
            task = bag[at]
            # The task has already started. Dropping it and drawing again keeps the choice uniform.
            if not task.waiting:
                bag[at] = bag[-1]
                bag.pop()
                continue
            placement = self.placement.place(view, task, type_)
            if placement is None:
                return
            yield Start(task, placement)


class _Bags:
    """The ready tasks of each demand class, in no particular order."""

    def __init__(self) -> None:
        self.by_demand: dict[DemandClass, list[TaskState]] = {}

    def push(self, task: TaskState) -> None:
        self.by_demand.setdefault(task.demand, []).append(task)


def _pick(bags: _Bags, fitting: list[tuple[DemandClass, int]], at: int) -> tuple[DemandClass, int, int]:
    """Number all pairs of a task and a type. Return the demand class of pair number ``at``, its
    type, and its index in the bag of that class.
    """
    for demand, type_ in fitting:
        size = len(bags.by_demand[demand])
        if at < size:
            return demand, type_, at
        at -= size
    raise AssertionError("more pairs were drawn than exist")
