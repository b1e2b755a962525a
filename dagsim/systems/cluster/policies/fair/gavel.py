"""Gavel: how much of its time each task should spend on each GPU type, by a linear program, and rounds that see to
it."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from itertools import chain
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from dagsim.errors import ConfigError
from dagsim.model import Decision, Preempt, Start, Wait
from dagsim.systems.cluster.api import ClusterState, ClusterView, Queue, Run, TaskState
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
    wait. Clairvoyant, preemptive. Costly by definition: a program of window x types variables, some ms (Narayanan et
    al., OSDI 2020, sections 3 and 4).

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
        if not ready:
            return
        if competing or any(view.fits(each) for each in ready):
            chosen = self._chosen(view, ready)
            if competing:
                yield from self._make_way(view, chosen)
            started = False
            for pair in chosen:
                again = waiting.get(pair.key)
                placement = None if again is None else self._place(view, again, pair.type)
                if again is not None and placement is not None:
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
        running = [run for run in view.running.values() if run.task.demand.demand.gpus]
        tasks = list(dict.fromkeys(chain((run.task for run in running), ready)))
        left_s = np.array([_left_s(task, running, view.now) for task in tasks])
        gpus = np.array([width(task) for task in tasks])
        types = view.gpu_types
        capacity = [sum(m.gpus for m in view.machines.list if m.type == t and m.up) for t in range(len(types))]
        price = [PRICE_PER_HOUR.get(gpu.name, 2.5) if gpu else 0.0 for gpu in types]
        share = shares(left_s, gpus, np.array(capacity, float), self.objective, np.array(price))
        pairs: list[_Pair] = []
        for number, task in enumerate(tasks):
            had = self._had.get(_key(task), {})
            total = view.now - self._since.setdefault(_key(task), view.now) or 1.0
            for type_ in task.demand.types:
                if share[number, type_] > 1e-6:
                    lag = share[number, type_] / (had.get(type_, 0.0) / total + 1e-3)
                    pairs.append(_Pair(-lag, task.order, type_, _key(task), float(gpus[number])))
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
        self.without_gpus = Queue(by_rank, machines)

    def push(self, task: TaskState) -> None:
        if task.demand.demand.gpus:
            self._tasks.setdefault(_key(task), []).append(task)
        else:
            self.without_gpus.push(task)

    def get(self, key: _Key) -> TaskState | None:
        """A piece of that task that waits."""
        pieces = [task for task in self._tasks.get(key, ()) if task.waiting]
        if pieces:
            self._tasks[key] = pieces
            return pieces[0]
        self._tasks.pop(key, None)
        return None

    def oldest(self, count: int | None = None) -> list[TaskState]:
        """The first ``count`` by arrival, one piece of each; or all."""
        keys = sorted(self._tasks) if count is None else nsmallest(count, self._tasks)
        return [task for key in keys if (task := self.get(key)) is not None]


def shares(
    left_s: np.ndarray, gpus: np.ndarray, capacity: np.ndarray, objective: Objective, price: np.ndarray
) -> np.ndarray:
    """(tasks, types) float64: the share of its time that each task should run on each type.

    ``left_s`` (tasks, types) are the seconds each would still take there alone, ``inf`` where it may not run; ``gpus``
    (tasks,) what it asks for at once, ``capacity`` (types,) the GPUs there are, ``price`` (types,) what one costs.
    Shares of a task add up to at most 1, the GPUs they take to at most the capacity.
    """
    from scipy.optimize import linprog

    count, types = left_s.shape
    left_s = np.maximum(left_s, 1e-9)
    best_s = left_s.min(axis=1, keepdims=True)
    speed = np.where(np.isfinite(left_s), best_s / left_s, 0.0)  # throughput, normalised by that on the fastest type
    rate = np.where(np.isfinite(left_s), 1.0 / np.maximum(left_s, 1e-9), 0.0)
    cells = count * types
    one_each = np.kron(np.eye(count), np.ones(types))
    room = np.tile(np.eye(types), count) * np.repeat(gpus, types)
    upper = np.concatenate([one_each, room])
    bound = np.concatenate([np.ones(count), capacity])
    bounds = [(0.0, 1.0 if np.isfinite(each) else 0.0) for each in left_s.ravel()]
    if objective == "cost":
        dear = np.maximum(gpus[:, None] * price[None, :], 1e-9)
        found = linprog(-(speed / dear).ravel(), A_ub=upper, b_ub=bound, bounds=bounds, method="highs")
        return np.zeros((count, types)) if found.x is None else found.x.reshape(count, types)
    progress = speed if objective == "max-min" else rate / rate.max()
    level = np.concatenate([-np.kron(np.eye(count), np.ones(types)) * progress.ravel(), np.ones((count, 1))], axis=1)
    upper = np.concatenate([np.concatenate([upper, np.zeros((len(upper), 1))], axis=1), level])
    bound = np.concatenate([bound, np.zeros(count)])
    # The least level first; what is left over goes to whoever can use it, so that nothing idles.
    goal = np.append(-1e-4 * progress.ravel() / max(progress.sum(), 1e-9), -1.0)
    found = linprog(goal, A_ub=upper, b_ub=bound, bounds=[*bounds, (0.0, None)], method="highs")
    return np.zeros((count, types)) if found.x is None else found.x[:cells].reshape(count, types)


def _left_s(task: TaskState, running: list[Run], now: float) -> np.ndarray:
    """Seconds the task still takes on each type, by the estimates."""
    seconds = np.array(task.seconds)
    run = next((run for run in running if run.task is task), None)
    if run is None:
        return seconds
    kept = max(run.estimated_end_s(now) - now, 1e-6) / max(run.estimate_s, 1e-6)
    return seconds * min(kept, 1.0)


def _key(task: TaskState) -> _Key:
    return task.job.number, task.index
