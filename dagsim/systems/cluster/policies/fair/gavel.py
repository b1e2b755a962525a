"""Gavel: how much of its time each task should spend on each GPU type, by a linear program, and rounds that see to
it."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from math import inf
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from dagsim.errors import ConfigError
from dagsim.model import Decision, Preempt, Start, Wait
from dagsim.systems.cluster.api import ClusterState, ClusterView, DemandClass, Queue, Run, TaskState
from dagsim.systems.cluster.policies.orders.static import by_rank, width
from dagsim.systems.cluster.policies.placement.rule import PlacementRule, placing

__all__ = ["Gavel", "Objective", "shares"]

Objective: TypeAlias = Literal["max-min", "makespan", "cost"]
_Key: TypeAlias = tuple[int, int]
"""Job number and task."""

PRICE_PER_HOUR = {"A100-80": 5.0, "A100-40": 3.7, "V100-32": 2.5, "V100-16": 2.5, "P100": 1.5, "K80": 0.5, "T4": 0.35}
"""Dollars per GPU and hour, as public clouds asked in 2023; other types cost as much as a V100."""


class Gavel:
    """Rounds in which tasks get their shares of time on each type, by a linear program. It makes the least normalised
    throughput greatest (``max-min``), lets all end soonest (``makespan``), or buys most throughput with dollars
    (``cost``). In rounds of ``round_s`` those run that lag most behind their share: highest share / share of its time
    had there so far. Between rounds what fits is started in that order.

    The program has the running tasks and the ``window`` oldest ready ones, each asking for its GPUs at once; the others
    wait. Alike tasks share a row of it, and a program seen before is not solved again. Clairvoyant, preemptive. Costly
    by definition: a program of kinds x types variables, some ms (Narayanan et al., OSDI 2020, sections 3 and 4).

    Raises:
        ConfigError: Another objective, or a round that takes no time.
    """

    def __init__(
        self,
        objective: Objective = "max-min",
        round_s: float = 360.0,
        window: int = 40,
        placement: str | PlacementRule = "best-fit",
    ) -> None:
        if objective not in ("max-min", "makespan", "cost"):
            raise ConfigError(f"gavel: objective must be max-min, makespan or cost, got {objective!r}")
        if not round_s > 0:
            raise ConfigError(f"gavel: round_s must be positive, got {round_s!r}")
        self.objective: Objective = objective
        self.round_s = round_s
        self.window = window
        self._place = placing(placement).place
        self._next_s = 0.0
        self._had: dict[_Key, dict[int, float]] = {}
        """Seconds each task has had on each type."""
        self._since: dict[_Key, float] = {}
        """When each task was first thought of."""
        self._counted: dict[int, tuple[_Key, int]] = {}
        """Task and type of the runs under way whose time is counted."""
        self._counted_s = 0.0
        """Until when it is."""
        self._new: dict[int, tuple[_Key, int]] = {}
        """Task and type of the runs that started since: they count from the next decision on."""
        self._gone: list[int] = []
        """Runs that ended since: they count until the next decision."""

    def started(self, run: Run, now: float) -> None:
        """Take in a run."""
        if run.id not in self._counted:
            self._new[run.id] = _key(run.task), run.type

    def ended(self, run: Run, now: float) -> None:
        """Let go of a run."""
        if self._new.pop(run.id, None) is None:
            self._gone.append(run.id)

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        view.follow(self)
        waiting = view.index(Gavel, lambda: _Waiting(view.machines))
        self._count(view)
        task = waiting.without_gpus.first_fit()
        placement = None if task is None else self._place(view, task)
        if task is not None and placement is not None:
            yield Start(task, placement)
            return
        ready = waiting.oldest(self.window)
        competing = view.now >= self._next_s
        if competing:
            self._next_s = view.now + self.round_s
            self._forget(view)
        if not ready:
            return
        if competing or any(view.fits(each) for each in ready):
            chosen = self._chosen(view, ready)
            if competing:
                yield from self._make_way(view, chosen)
            started = False
            full: set[tuple[DemandClass, int]] = set()
            for pair in chosen:
                again = waiting.get(pair.key)
                if again is None or (again.demand, pair.type) in full:
                    continue
                placement = self._place(view, again, pair.type)
                if placement is None:
                    full.add((again.demand, pair.type))
                else:
                    started = True
                    yield Start(again, placement)
            if not started and not view.running:
                some = next((each for each in waiting.oldest() if view.fits(each)), None)
                placement = None if some is None else self._place(view, some)
                if some is not None and placement is not None:
                    yield Start(some, placement)
        if waiting.oldest(1):
            yield Wait(self._next_s)

    def _make_way(self, view: ClusterView, chosen: list[_Pair]) -> Iterator[Decision]:
        """Stop the runs that are not to run on their type in this round."""
        kept, free = set(), [float(view.machines.idle_gpus(type_)) for type_ in range(len(view.gpu_types))]
        for run in view.running.values():
            free[run.type] += run.gpus
        for pair in chosen:
            if pair.gpus <= free[pair.type] + 1e-9:
                free[pair.type] -= pair.gpus
                kept.add((pair.key, pair.type))
        for run in list(view.running.values()):
            asks = run.task.demand.demand.gpus
            if asks and (_key(run.task), run.type) not in kept and run.started_s < view.now:
                yield Preempt(run.id)

    def _chosen(self, view: ClusterView, ready: list[TaskState]) -> list[_Pair]:
        """Pairs of task and type, who lags most behind first; each task once."""
        runs = {run.task: run for run in view.running.values() if run.task.demand.demand.gpus}
        tasks = list(dict.fromkeys(chain(runs, ready)))
        left_s = np.array([task.seconds for task in tasks])
        if self.objective == "makespan":
            left_s *= np.array([_left(runs.get(task), view.now) for task in tasks])[:, None]
        types = view.gpu_types
        capacity = [0.0] * len(types)
        for machine in view.machines.list:
            if machine.up:
                capacity[machine.type] += machine.gpus
        price = [PRICE_PER_HOUR.get(gpu.name, 2.5) if gpu else 0.0 for gpu in types]
        gpus = np.array([width(task) for task in tasks])
        share = shares(left_s, gpus, np.array(capacity), self.objective, np.array(price))
        pairs: list[_Pair] = []
        for task, shared, asked in zip(tasks, share.tolist(), gpus.tolist(), strict=True):
            key = _key(task)
            had = self._had.get(key, {})
            total = view.now - self._since.setdefault(key, view.now) or 1.0
            for type_ in task.demand.types:
                if shared[type_] > 1e-6:
                    lag = shared[type_] / (had.get(type_, 0.0) / total + 1e-3)
                    pairs.append(_Pair(-lag, task.order, type_, key, asked))
        seen: set[_Key] = set()
        return [pair for pair in sorted(pairs) if not (pair.key in seen or seen.add(pair.key))]  # type: ignore[func-returns-value]

    def _count(self, view: ClusterView) -> None:
        """Add up what the tasks have had until now."""
        now = view.now
        for key, type_ in self._counted.values():
            had = self._had.setdefault(key, {})
            had[type_] = had.get(type_, 0.0) + now - self._counted_s
        for id_ in self._gone:
            del self._counted[id_]
        self._counted |= self._new
        self._counted_s = now
        self._new.clear()
        self._gone.clear()

    def _forget(self, view: ClusterView) -> None:
        """Let go of the tasks of jobs that have left."""
        for known in (self._had, self._since):
            for key in [key for key in known if key[0] not in view.jobs]:
                del known[key]


class _Pair(NamedTuple):
    lag: float
    order: int
    type: int
    key: _Key
    gpus: float


class _Waiting:
    """Ready tasks, and those that ask for no GPU. A task that was preempted has several pieces."""

    def __init__(self, machines: ClusterState) -> None:
        self._tasks: dict[_Key, list[TaskState]] = {}
        self._sorted: list[_Key] = []
        """The keys of these, last first, so that those that go stand at the end."""
        self.without_gpus = Queue(by_rank, machines)

    def push(self, task: TaskState) -> None:
        if not task.demand.demand.gpus:
            self.without_gpus.push(task)
            return
        key = _key(task)
        if key not in self._tasks:
            self._tasks[key] = []
            insort(self._sorted, key, key=_last_first)
        self._tasks[key].append(task)

    def get(self, key: _Key) -> TaskState | None:
        """A piece of that task that waits."""
        pieces = self._tasks.get(key)
        if pieces is None:
            return None
        if pieces[0].waiting:
            return pieces[0]
        pieces = [task for task in pieces if task.waiting]
        if pieces:
            self._tasks[key] = pieces
            return pieces[0]
        del self._tasks[key], self._sorted[bisect_left(self._sorted, _last_first(key), key=_last_first)]
        return None

    def oldest(self, count: int | None = None) -> list[TaskState]:
        """The first ``count`` by arrival, one piece of each; or all."""
        found: list[TaskState] = []
        place = len(self._sorted) - 1
        while place >= 0 and (count is None or len(found) < count):
            task = self.get(self._sorted[place])
            if task is not None:
                found.append(task)
            place -= 1
        return found


def _last_first(key: _Key) -> _Key:
    return -key[0], -key[1]


def shares(
    left_s: np.ndarray, gpus: np.ndarray, capacity: np.ndarray, objective: Objective, price: np.ndarray
) -> np.ndarray:
    """(tasks, types) float64: the share of its time that each task should run on each type.

    ``left_s`` (tasks, types) are the seconds each would still take there alone, ``inf`` where it may not run; ``gpus``
    (tasks,) what it asks for at once, ``capacity`` (types,) the GPUs there are, ``price`` (types,) what one costs.
    Shares of a task add up to at most 1, the GPUs they take to at most the capacity. Tasks that are alike, as many
    GPUs wide and as much faster on one type than on another, get the same shares: the program has a row for each kind.
    """
    left_s = np.maximum(left_s, 1e-9)
    if objective == "makespan":
        rate = 1.0 / left_s
        progress = rate / max(rate.max(), 1e-300)
    else:  # throughput, normalised by that on the fastest type: the same however much is left
        progress = np.round(left_s.min(axis=1, keepdims=True) / left_s, 9)
    kinds, kind, count = np.unique(np.column_stack([gpus, progress]), axis=0, return_inverse=True, return_counts=True)
    dear = tuple(price.tolist()) if objective == "cost" else None
    found = _solved(tuple(map(tuple, kinds.tolist())), tuple(count.tolist()), tuple(capacity.tolist()), dear)
    return np.array(found)[kind.ravel()]


@lru_cache(maxsize=4096)
def _solved(
    kinds: tuple[tuple[float, ...], ...],
    count: tuple[int, ...],
    capacity: tuple[float, ...],
    price: tuple[float, ...] | None,
) -> tuple[tuple[float, ...], ...]:
    """The shares of a task of each kind (its GPUs, then its progress on each type; 0 where it may not run) of which
    there are ``count``: the least progress at its highest, or with a ``price`` the most progress for money."""
    from scipy.optimize import linprog

    table = np.array(kinds)
    gpus, progress = table[:, 0], table[:, 1:]
    rows, types = len(kinds), len(capacity)
    times = np.array(count, float)[:, None]
    one_each = np.kron(np.eye(rows), np.ones(types))
    room = np.tile(np.eye(types), rows) * np.repeat(gpus * times[:, 0], types)
    upper, bound = np.concatenate([one_each, room]), np.concatenate([np.ones(rows), capacity])
    most = (progress.ravel() > 0).astype(float)
    if price is not None:
        goal = -(times * progress / np.maximum(gpus[:, None] * np.array(price), 1e-9)).ravel()
    else:
        upper = np.block([[upper, np.zeros((len(upper), 1))], [-one_each * progress.ravel(), np.ones((rows, 1))]])
        bound = np.concatenate([bound, np.zeros(rows)])
        most = np.append(most, inf)
        # The least level first; what is left over goes to whoever can use it, so that nothing idles.
        total = times * progress
        goal = np.append(-1e-4 * total.ravel() / max(total.sum(), 1e-9), -1.0)
    found = linprog(goal, A_ub=upper, b_ub=bound, bounds=np.column_stack([np.zeros(len(most)), most]), method="highs")
    if found.x is None:
        return ((0.0,) * types,) * rows
    flat: list[float] = found.x.tolist()
    return tuple(tuple(flat[row * types : (row + 1) * types]) for row in range(rows))


def _left(run: Run | None, now: float) -> float:
    """The fraction of a task's work that is left, by the estimates."""
    if run is None:
        return 1.0
    return min(max(run.estimated_end_s(now) - now, 1e-6) / max(run.estimate_s, 1e-6), 1.0)


def _key(task: TaskState) -> _Key:
    return task.job.number, task.index
