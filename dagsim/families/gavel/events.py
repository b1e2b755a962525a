"""A policy based on Gavel (OSDI 2020). A linear program computes which share of its time each task
should spend on each GPU type, and rounds approximate these shares. Tasks can also start between
rounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from math import inf
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from dagsim.errors import ConfigError, require
from dagsim.families.gavel.gpu_prices import CLOUD_PRICES, price_of
from dagsim.model import Decision, Preempt, Start, Wait
from dagsim.systems.cluster.api import ClusterView, DemandClass, Run, TaskState
from dagsim.systems.cluster.policies.orders import width
from dagsim.systems.cluster.policies.placement import PlacementRule, placing, start_of
from dagsim.systems.cluster.policies.waiting_tasks import WaitingTasks

Objective: TypeAlias = Literal["max-min", "makespan", "cost"]
_Key: TypeAlias = int
"""``TaskState.order``: the job and the task, the same for all pieces."""
_Kind: TypeAlias = tuple[float, ...]
"""Tasks of a kind: the GPUs they need at once, then their progress on each type (0 where they may
not run).
"""
_Pair: TypeAlias = tuple[float, _Key, int, float]
"""Task and type: minus the lag of the task behind its share there, its key, the type, the GPUs it
needs.
"""
_Had: TypeAlias = list[float]
"""Seconds by type."""
_Shared: TypeAlias = tuple[tuple[int, float], ...]
"""Types, each with the share of its time that a task should spend there."""
_USED = 1e-6
"""Shares up to this are rounding errors."""


class GavelEvents:
    """Runs tasks in rounds that give each task the share of time on each GPU type that a linear
    program computes.

    ``objective`` is one of three:

    - ``max-min`` maximises the lowest normalised throughput,
    - ``makespan`` minimises the time until all tasks have ended,
    - ``cost`` maximises the throughput per dollar.

    In each round of ``round_s`` seconds, the tasks that are furthest behind their shares run. These
    are the tasks with the highest ratio of their share to the fraction of time that they have spent
    on the type so far. Between rounds, tasks that fit start in the same order.

    The program includes the running tasks and the ``window`` oldest ready tasks, and each task
    needs all its GPUs at the same time. Other tasks wait. Tasks of the same kind share a row in the
    program, and a program that has been solved before is not solved again. The policy uses
    estimates, and is preemptive. It is costly by definition: a program with kinds x types variables
    takes some milliseconds (based on Narayanan et al., OSDI 2020, sections 3 and 4).

    Raises:
        ConfigError: The objective is unknown, or ``round_s`` is not positive.
    """

    forgets = "when its rounds began, and how long each task had run on each type"

    def __init__(
        self,
        objective: Objective = "max-min",
        round_s: float = 360.0,
        window: int = 40,
        placement: str | PlacementRule = "best-fit",
    ) -> None:
        if objective not in ("max-min", "makespan", "cost"):
            raise ConfigError(f"gavel-events: objective must be max-min, makespan or cost, got {objective!r}")
        require(round_s > 0, "gavel-events: round_s must be positive", round_s)
        require(window >= 1, "gavel-events: window must be 1 or more", window)
        self.objective: Objective = objective
        self.round_s = round_s
        self.window = window
        self._place = placing(placement).place
        self._next_s = 0.0
        self._had: dict[_Key, _Had] = {}
        """Seconds that each task has spent on each type."""
        self._since: dict[_Key, float] = {}
        """Time at which each task first competed."""
        self._remembered = 0
        """Number of entries in ``_had`` and ``_since`` after the last removal of tasks whose jobs
        have left.
        """
        self._rivals: dict[TaskState, _Rival] = {}
        """The tasks that compete, and some that did before."""
        self._counted: dict[int, tuple[_Had, int]] = {}
        """For each counted run, the seconds of its task by type, and its type."""
        self._counted_s = 0.0
        """Time until which the seconds of runs are counted."""
        self._new: dict[int, tuple[_Key, int]] = {}
        """Task and type of the runs that have started since the last decision. They count from the
        next one onwards."""
        self._gone: list[int] = []
        """Runs that have ended since the last decision. They count until the next one."""

    def started(self, run: Run, now: float) -> None:
        """Record that a run has started."""
        if run.id not in self._counted:
            self._new[run.id] = run.task.order, run.type

    def ended(self, run: Run, now: float) -> None:
        """Record that a run has ended."""
        if self._new.pop(run.id, None) is None:
            self._gone.append(run.id)

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        view.follow(self)
        waiting = view.index(GavelEvents, lambda: WaitingTasks(view.machines))
        self._count(view)
        if start := start_of(self._place, view, waiting.without_gpus.first_fit()):
            yield from start
            return
        ready = waiting.oldest(self.window)
        competing = view.now >= self._next_s
        if competing:
            self._next_s = view.now + self.round_s
            self._forget(view)
        if not ready:
            return
        if competing or any(map(view.machines.fits, {waiting.demand: None for waiting in ready})):
            chosen = self._chosen(view, ready) if competing else self._chosen(view, ready, waiting)
            if competing:
                yield from self._make_way(view, chosen)
            started = yield from self._start(view, waiting, chosen)
            if not started and not view.running:
                yield from start_of(self._place, view, waiting.first_fit(view))
        if waiting.oldest(1):
            yield Wait(self._next_s)

    def _start(self, view: ClusterView, waiting: WaitingTasks, chosen: list[_Pair]) -> Generator[Decision, None, bool]:
        """Start the chosen tasks that fit on their type. Return True if any task has started."""
        started = False
        full: set[tuple[DemandClass, int]] = set()
        for _, key, type_, _ in chosen:
            again = waiting.get(key)
            if again is None or (again.demand, type_) in full:
                continue
            placement = self._place(view, again, type_)
            if placement is None:
                full.add((again.demand, type_))
            else:
                started = True
                yield Start(again, placement)
        return started

    def _make_way(self, view: ClusterView, chosen: list[_Pair]) -> Iterator[Decision]:
        """Stop the runs that should not be running on their type in this round."""
        kept, free = set(), [float(view.machines.idle_gpus(type_)) for type_ in range(len(view.gpu_types))]
        for run in view.running.values():
            free[run.type] += run.gpus
        for _, key, type_, gpus in chosen:
            if gpus <= free[type_] + 1e-9:
                free[type_] -= gpus
                kept.add((key, type_))
        for run in list(view.running.values()):
            asks = run.task.demand.demand.gpus
            if asks and (run.task.order, run.type) not in kept and run.started_s < view.now:
                yield Preempt(run.id)

    def _chosen(self, view: ClusterView, ready: list[TaskState], waiting: WaitingTasks | None = None) -> list[_Pair]:
        """Return, for each task, the type on which it is furthest behind its share. The task that
        is furthest behind comes first. If ``waiting`` is given, return only tasks in ``waiting``
        that would fit.
        """
        now, since = view.now, self._since
        runs = {run.task: run for run in view.running.values() if run.task.demand.demand.gpus}
        tasks = list(dict.fromkeys(chain(runs, ready)))
        rivals = self._compete(tasks)
        for rival in rivals:
            since.setdefault(rival.key, now)
        pairs: dict[_Key, _Pair] = {}
        parts = None if waiting is None else waiting.fitting([rival.key for rival in rivals], view.machines)
        if parts is not None and not parts:
            return []
        for rival, shared in zip(rivals, self._shares(view, tasks, runs), strict=True):
            key = rival.key
            if parts is not None and key not in parts:
                continue
            total_s = now - since[key] or 1.0
            had, best_pair = self._had.get(key), pairs.get(key)
            for type_, share in shared:
                if type_ in rival.types:
                    lag = share / ((had[type_] if had else 0.0) / total_s + 1e-3)
                    pair = (-lag, key, type_, rival.gpus)
                    if best_pair is None or pair < best_pair:
                        best_pair = pairs[key] = pair
        return sorted(pairs.values())

    def _compete(self, tasks: list[TaskState]) -> list[_Rival]:
        """Return the facts about each task that competes for GPUs."""
        if len(self._rivals) > 4 * len(tasks):  # drop old entries, most of which belong to preempted tasks
            self._rivals = {task: self._rivals[task] for task in tasks if task in self._rivals}
        rival_of, rivals = self._rivals, []
        for task in tasks:
            rival = rival_of.get(task)
            if rival is None:
                gpus = width(task)
                kind = by_throughput(task.seconds, gpus)
                rival = rival_of[task] = _Rival(task.order, task.demand.types, gpus, kind)
            rivals.append(rival)
        return rivals

    def _shares(self, view: ClusterView, tasks: list[TaskState], runs: dict[TaskState, Run]) -> list[_Shared]:
        """Return each task's shares on the machines that are up."""
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
            kinds = [self._rivals[task].kind for task in tasks]
        price = [price_of(gpu.name, CLOUD_PRICES) if gpu else 0.0 for gpu in types]
        return _used_shares(kinds, capacity, price if self.objective == "cost" else None)

    def _count(self, view: ClusterView) -> None:
        """Add to the counters the time that the counted runs have taken since the last call."""
        now, until_s = view.now, self._counted_s
        for had, type_ in self._counted.values():
            had[type_] = had[type_] + now - until_s
        for id_ in self._gone:
            del self._counted[id_]
        for id_, (key, type_) in self._new.items():
            self._counted[id_] = self._had.setdefault(key, [0.0] * len(view.gpu_types)), type_
        self._counted_s = now
        self._new.clear()
        self._gone.clear()

    def _forget(self, view: ClusterView) -> None:
        """Drop the entries of tasks whose jobs have left, if these could outnumber the other
        entries."""
        if len(self._had) + len(self._since) > 2 * self._remembered:
            for entries in (self._had, self._since):
                for key in [key for key in entries if key >> 32 not in view.jobs]:
                    del entries[key]
            self._remembered = len(self._had) + len(self._since)


class _Rival(NamedTuple):
    """The properties of a task that competes for GPUs, which never change."""

    key: _Key
    types: tuple[int, ...]
    gpus: float
    kind: _Kind


def by_throughput(seconds: tuple[float, ...], gpus: float) -> _Kind:
    """Return the kind of a task, which consists of its throughputs on all types relative to its
    fastest type, to 9 decimals. The kind does not depend on the remaining work.
    """
    left_s = [max(each_s, 1e-9) for each_s in seconds]
    best_s = min(left_s)
    return (gpus, *[round(best_s / each_s * 1e9) / 1e9 for each_s in left_s])


def by_rate(left_s: np.ndarray, gpus: Sequence[float]) -> list[_Kind]:
    """Return the kinds of tasks by their rates relative to the highest rate of all. ``left_s``,
    (tasks, types), is inf where a task may not run.
    """
    rate = 1.0 / np.maximum(left_s, 1e-9)
    progress = rate / max(rate.max(), 1e-300)
    return [(asked, *row) for asked, row in zip(gpus, progress.tolist(), strict=True)]


def shares(
    kinds: Sequence[_Kind], capacity: Sequence[float], price: Sequence[float] | None = None
) -> list[tuple[float, ...]]:
    """Return the share of its time that each task should spend on each type, for tasks of these
    ``kinds``.

    ``capacity`` is the number of GPUs of each type, and ``price`` is the cost of one GPU of each
    type. A task's shares add up to at most 1, and the GPUs that all shares use add up to at most
    the capacity. Tasks of the same kind get equal shares, because the program has one row per kind.
    """
    share = _by_kind(kinds, capacity, price)
    return [share[kind] for kind in kinds]


def _used_shares(kinds: Sequence[_Kind], capacity: Sequence[float], price: Sequence[float] | None) -> list[_Shared]:
    """Return the shares that ``shares`` computes, without those that are (almost) 0."""
    share = {kind: _used(by_type) for kind, by_type in _by_kind(kinds, capacity, price).items()}
    return [share[kind] for kind in kinds]


@lru_cache(maxsize=4096)
def _used(shares: tuple[float, ...]) -> _Shared:
    return tuple([(type_, share) for type_, share in enumerate(shares) if share > _USED])


def _by_kind(
    kinds: Sequence[_Kind], capacity: Sequence[float], price: Sequence[float] | None
) -> dict[_Kind, tuple[float, ...]]:
    count = Counter(kinds)
    rows = sorted(count)
    dear = None if price is None else tuple(price)
    kind_shares = _solved(tuple(rows), tuple([count[kind] for kind in rows]), tuple(capacity), dear)
    return dict(zip(rows, kind_shares, strict=True))


@lru_cache(maxsize=4096)
def _solved(
    kinds: tuple[_Kind, ...],
    count: tuple[int, ...],
    capacity: tuple[float, ...],
    price: tuple[float, ...] | None,
) -> tuple[tuple[float, ...], ...]:
    """Return the shares of a task of each kind, with ``count`` tasks per kind. Maximise the lowest
    progress or, with a ``price``, the progress per dollar.

    Unlike ``linear_programs``, which follows Gavel's published policies, this program has a row for
    each kind instead of each job, and takes any optimum. It is solved at events, and has to be fast.
    """
    # Use milp rather than linprog, which gives the same result but takes longer to check its input.
    from scipy.optimize import milp

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
        # First raise the lowest level as far as possible. Then give the remaining capacity to tasks
        # that can use it, so that nothing is idle.
        total = times * progress
        goal = np.append(-1e-4 * total.ravel() / max(total.sum(), 1e-9), -1.0)
    solution = milp(goal, constraints=(upper, -inf, bound), bounds=(0.0, most))
    if solution.x is None:
        return ((0.0,) * types,) * rows
    flat: list[float] = solution.x.tolist()
    return tuple(tuple(flat[row * types : (row + 1) * types]) for row in range(rows))


def _left(run: Run | None, now: float) -> float:
    """Return the fraction of a task's work that remains, according to the estimates."""
    if run is None:
        return 1.0
    return min(max(run.work_left_s(now), 1e-6) / max(run.estimate_s, 1e-6), 1.0)
