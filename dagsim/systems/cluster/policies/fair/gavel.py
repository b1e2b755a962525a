"""Gavel: how much of its time each task should spend on each GPU type, by a linear program, and rounds that see to
it."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from math import inf
from typing import Literal, TypeAlias

import numpy as np

from dagsim.errors import ConfigError
from dagsim.model import Decision, Preempt, Start, Wait
from dagsim.systems.cluster.api import ClusterState, ClusterView, DemandClass, Queue, Run, TaskState
from dagsim.systems.cluster.policies.orders.static import by_rank, width
from dagsim.systems.cluster.policies.placement.rule import PlacementRule, placing

__all__ = ["Gavel", "Objective", "by_rate", "by_throughput", "shares"]

Objective: TypeAlias = Literal["max-min", "makespan", "cost"]
_Key: TypeAlias = tuple[int, int]
"""Job number and task."""
_Kind: TypeAlias = tuple[float, ...]
"""Of tasks that are alike: GPUs asked for at once, then the progress on each type, 0 where they may not run."""
_Pair: TypeAlias = tuple[float, int, int, _Key, float]
"""Task and type: how far the task is ahead of its share there, its order, the type, its key, the GPUs it asks for."""
_NEVER: dict[int, float] = {}

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
        self._kinds: dict[TaskState, _Kind] = {}
        """The kinds of the tasks that competed last, by throughput."""
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
            chosen = self._chosen(view, ready, None if competing else waiting)
            if competing:
                yield from self._make_way(view, chosen)
            started = False
            full: set[tuple[DemandClass, int]] = set()
            for _, _, type_, key, _ in chosen:
                again = waiting.get(key)
                if again is None or (again.demand, type_) in full:
                    continue
                placement = self._place(view, again, type_)
                if placement is None:
                    full.add((again.demand, type_))
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
        for _, _, type_, key, gpus in chosen:
            if gpus <= free[type_] + 1e-9:
                free[type_] -= gpus
                kept.add((key, type_))
        for run in list(view.running.values()):
            asks = run.task.demand.demand.gpus
            if asks and (_key(run.task), run.type) not in kept and run.started_s < view.now:
                yield Preempt(run.id)

    def _chosen(self, view: ClusterView, ready: list[TaskState], waiting: _Waiting | None) -> list[_Pair]:
        """The pair of each task that lags most behind, who lags most first; if ``waiting`` is given, of those alone
        that wait in it and would fit."""
        now, since = view.now, self._since
        runs = {run.task: run for run in view.running.values() if run.task.demand.demand.gpus}
        tasks = list(dict.fromkeys(chain(runs, ready)))
        pairs: dict[_Key, _Pair] = {}
        for task, shared in zip(tasks, self._shares(view, tasks, runs), strict=True):
            key = _key(task)
            total_s = now - since.setdefault(key, now) or 1.0
            if waiting is not None and ((piece := waiting.get(key)) is None or not view.fits(piece)):
                continue
            had_s, known = self._had.get(key, _NEVER), pairs.get(key)
            for type_ in task.demand.types:
                if shared[type_] > 1e-6:
                    lag = shared[type_] / (had_s.get(type_, 0.0) / total_s + 1e-3)
                    pair = (-lag, task.order, type_, key, width(task))
                    if known is None or pair < known:
                        known = pairs[key] = pair
        return sorted(pairs.values())

    def _shares(self, view: ClusterView, tasks: list[TaskState], runs: dict[TaskState, Run]) -> list[tuple[float, ...]]:
        """The shares of each task by type, on the machines that are up."""
        types = view.gpu_types
        capacity = [0.0] * len(types)
        for machine in view.machines.list:
            if machine.up:
                capacity[machine.type] += machine.gpus
        if self.objective == "makespan":
            left_s = np.array([task.seconds for task in tasks])
            left_s *= np.array([_left(runs.get(task), view.now) for task in tasks])[:, None]
            kinds = by_rate(left_s, [width(task) for task in tasks])
        else:
            known = self._kinds
            self._kinds = {task: known.get(task) or by_throughput(task.seconds, width(task)) for task in tasks}
            kinds = list(self._kinds.values())
        price = [PRICE_PER_HOUR.get(gpu.name, 2.5) if gpu else 0.0 for gpu in types]
        return shares(kinds, capacity, price if self.objective == "cost" else None)

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


def by_throughput(seconds: tuple[float, ...], gpus: float) -> _Kind:
    """The kind of a task by throughput over that on its fastest type, to 9 decimals: the same however much is left."""
    left_s = [max(each_s, 1e-9) for each_s in seconds]
    best_s = min(left_s)
    return (gpus, *[round(best_s / each_s * 1e9) / 1e9 for each_s in left_s])


def by_rate(left_s: np.ndarray, gpus: Sequence[float]) -> list[_Kind]:
    """The kinds of tasks by how soon they end, over the soonest of all. ``left_s``: (tasks, types), inf: not there."""
    rate = 1.0 / np.maximum(left_s, 1e-9)
    progress = rate / max(rate.max(), 1e-300)
    return [(asked, *row) for asked, row in zip(gpus, progress.tolist(), strict=True)]


def shares(
    kinds: Sequence[_Kind], capacity: Sequence[float], price: Sequence[float] | None = None
) -> list[tuple[float, ...]]:
    """By task and type, the share of its time that each should run there, for tasks of these ``kinds``.

    ``capacity`` are the GPUs of each type, ``price`` what one costs. Shares of a task add up to at most 1, the GPUs
    they take to at most the capacity. Tasks of a kind get the same shares: the program has a row for each kind.
    """
    count = Counter(kinds)
    rows = sorted(count)
    dear = None if price is None else tuple(price)
    found = _solved(tuple(rows), tuple([count[kind] for kind in rows]), tuple(capacity), dear)
    share = dict(zip(rows, found, strict=True))
    return [share[kind] for kind in kinds]


@lru_cache(maxsize=4096)
def _solved(
    kinds: tuple[_Kind, ...],
    count: tuple[int, ...],
    capacity: tuple[float, ...],
    price: tuple[float, ...] | None,
) -> tuple[tuple[float, ...], ...]:
    """The shares of a task of each kind, of which there are ``count``: the least progress at its highest, or with a
    ``price`` the most progress for money."""
    from scipy.optimize import milp  # linprog gives the same, and takes longer to check what it is given

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
    found = milp(goal, constraints=(upper, -inf, bound), bounds=(0.0, most))
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
