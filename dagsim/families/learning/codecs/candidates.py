"""The codec ``candidates``. Its choices are waiting, and all pairs of a ready task and a GPU type
on which the task fits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from copy import deepcopy
from heapq import nsmallest
from itertools import islice
from math import exp, inf, log, log1p
from operator import add
from struct import Struct
from typing import TypeAlias

import numpy as np

from dagsim.families.learning.codecs.codec import CandidatesConfig, Observation
from dagsim.families.learning.codecs.pool import QUEUE, SCALE_S, STATIC, UNITS, WIDTHS, Group, Pool, ReadyTask
from dagsim.model import Decision, Start
from dagsim.model.arithmetic import whole_sum
from dagsim.systems.cluster.api import NEVER_S, ClusterState, ClusterView, DemandClass, ExpectedFree, TaskState
from dagsim.systems.cluster.policies.placement import placing

_GPU = ("free", "capacity", "pressure", "mean_slowdown", "ahead_1", "ahead_2", "ahead_3", "ahead_4")
_FREE, _MEAN_SLOWDOWN = _GPU.index("free"), _GPU.index("mean_slowdown")
_PROBES = (1.0, 2.0, 4.0, 8.0)
"""The numbers of idle GPUs for which ``sorted`` shows the times."""
_MOVING = (
    "age", "job_age", "eta_best", "finish_on_best", "finish_elsewhere", "free_after", "shorter", "advantage",
    "job_left", "job_tasks_left",
)  # fmt: skip
_PRESENT = ("ready", "running", "jobs", "work")

_CLIP = 3.0
"""Bound on the absolute value of logarithms of ratios."""
_LOWEST, _HIGHEST = exp(-_CLIP), exp(_CLIP)
_INSTANT_S = 1e-9
"""The time that replaces 0 s in ratios."""
_WITHIN_S = (60.0, 300.0, 900.0, 3600.0)
"""The horizons of ``cdf``, in seconds."""
_DEFAULT = CandidatesConfig()
_FLOAT32 = np.dtype(np.float32)
_GPU_ROW, _MOVING_ROW, _PRESENT_ROW = (Struct(f"{len(names)}f") for names in (_GPU, _MOVING, _PRESENT))

Offer: TypeAlias = tuple[ReadyTask, list[int]]
"""A task that can be chosen, and the types on which it fits."""


class Candidates:
    """Choices of a task and a GPU type.

    Similar ready tasks form a group. Each group offers its shortest task, and the task with the
    shortest path to the end of its job, on every type on which they fit.
    ``CandidatesConfig.select`` can offer the tasks in a window instead. Waiting is a choice as long
    as there are future events.

    Because of the groups, there are few choices even if the queue is long. All times are given as
    logarithms. Two features compare starting on this type with waiting for a better one:

    - ``finish_on_best`` is the logarithm of (expected wait for the task's fastest type + its
      seconds there) / seconds here, the ratio that EFT-wait compares with ``theta``;
    - ``finish_elsewhere`` is the same for the best of all other types.

    The codec reads only estimates, never true durations.

    Rows are packed one at a time as float32, not computed as arrays. There are only a few rows, and
    a single NumPy call takes as long as packing one of them. Cost per observation: O(groups x types
    + rows), independent of the number of ready tasks.
    """

    token_features: tuple[str, ...] = ("wait", *STATIC, *_MOVING, *(f"type_{name}" for name in _GPU))
    context_features: tuple[str, ...] = (
        *_PRESENT,
        *(f"{name}_{index}" for index in range(len(WIDTHS) + 1) for name in QUEUE),
        *(f"mean_{name}" for name in _GPU),
    )
    gpu_features: tuple[str, ...] = _GPU

    def __init__(self, config: CandidatesConfig = _DEFAULT, *, tail: bytes = b"") -> None:
        self.config = config
        self._tail = tail
        """Appended to every row, and as zeros to the row for waiting: columns added by a codec that
        wraps this one."""
        self._width = len(self.token_features) + len(tail) // 4
        self._wait = _WAIT + bytes(len(tail))
        self._place = placing(config.placement).place
        self._pool: Pool | None = None
        self._view: ClusterView | None = None
        self._quiet: tuple[int, int] | None = None
        """Numbers of releases and of ready tasks at the last time that nothing fitted."""
        self.rows: list[tuple[TaskState, int]] = []
        """Task and type of each row of the last observation, without the row for waiting."""

    def __deepcopy__(self, memo: object) -> Candidates:
        """Build a codec for a fork. It needs no copy of the state, because it reads everything from
        the fork's view."""
        return Candidates(self.config, tail=self._tail)

    def fork(self, view: ClusterView) -> Candidates:
        """Return the codec for a fork of the simulation, with the same order of rows."""
        twin = deepcopy(self)
        if self._pool is not None:
            twin._bind(view).arrange(self._pool, view.machines.classes)
        return twin

    def encode(self, view: ClusterView) -> Observation | None:
        """Encode the choices. Return ``None`` if no ready task fits."""
        pool = self._pool if self._pool is not None else self._bind(view)
        machines = view.machines
        if self._quiet == (machines.released, pool.pushed):
            return None
        pool.drop_gone(view.ready)
        offers = self._offers(view, machines, pool)
        self._view, self.rows = view, []
        if not offers:
            # With ``heads``, all groups have been checked, so nothing will fit until a task arrives or
            # GPUs are released.
            if self.config.select == "heads":
                self._quiet = machines.released, pool.pushed
            return None
        return self._observe(view, machines, pool, offers)

    def decode(self, view: ClusterView, choice: int) -> Iterable[Decision]:
        """Start the task of row ``choice`` on the row's type. The row after all pairs stands for
        waiting."""
        if choice >= len(self.rows):
            return ()
        task, type_ = self.rows[choice]
        placement = self._place(view, task, type_)
        return () if placement is None else (Start(task, placement),)

    def choice_of(self, decisions: Iterable[Decision]) -> int | None:
        """Return the row of the last observation that stands for the first decision, or ``None`` if
        there is none."""
        decision = next(iter(decisions), None)
        if decision is None:
            return len(self.rows) if self._view is not None and self._view.pending else None
        if isinstance(decision, Start) and self._view is not None:
            on = self._view.machines.list[decision.placement[0].node].type
            for row, (task, type_) in enumerate(self.rows):
                if task is decision.task and type_ == on:
                    return row
        return None

    def _bind(self, view: ClusterView) -> Pool:
        machines = view.machines
        gpus = [0.0] * len(machines.types)
        for machine in machines.list:
            gpus[machine.type] += machine.gpus
        self._pool = view.index(self, lambda: self._new_pool(view, [max(count, 1.0) for count in gpus]))
        return self._pool

    def _new_pool(self, view: ClusterView, capacity: list[float]) -> Pool:
        return Pool(capacity)

    def _offers(self, view: ClusterView, machines: ClusterState, pool: Pool) -> list[Offer]:
        """Return the tasks to choose from, with the types on which they fit."""
        groups: Sequence[Group | ReadyTask]
        if self.config.select == "heads":
            released = machines.released
            groups = [group for group in pool.groups if group.short and group.demand.blocked_at != released]
        else:
            groups = self._window(view, pool)
        rooms: dict[DemandClass, list[int]] = {}
        offers: list[Offer] = []
        for group in groups:
            demand = group.demand
            room = rooms.get(demand)
            if room is None:
                room = rooms[demand] = machines.types_with_room(demand)
            if room:
                for ready in group.heads():
                    offers.append((ready, room))
        return offers

    def _window(self, view: ClusterView, pool: Pool) -> list[ReadyTask]:
        """Return the oldest ready tasks. With ``mixed``, half of them are replaced by the shortest
        tasks."""
        window = self.config.window
        tasks = list(islice(view.ready, window if self.config.select == "oldest" else window // 2))
        if self.config.select == "mixed":
            tasks += nsmallest(window - len(tasks), view.ready, key=lambda task: (task.best_s, task.order, task.piece))
        return [pool.tasks[task] for task in dict.fromkeys(tasks)]

    def _observe(self, view: ClusterView, machines: ClusterState, pool: Pool, offers: list[Offer]) -> Observation:
        idle, expected = [levels.total() for levels in machines.by_gpus], view.expected_free
        gpu_rows = self._gpu_rows(pool, expected, idle)
        # round the values to the precision of the observation (float32)
        seen = [_GPU_ROW.unpack(row) for row in gpu_rows]
        tokens = self._tokens(view.now, pool, offers, expected, idle, [row + self._tail for row in gpu_rows], seen)
        rows = len(self.rows)
        if view.pending:
            rows += 1
            tokens.append(self._wait)
        numbers = bytearray().join([*tokens, *gpu_rows, *self._context(view, pool, seen)])
        begin = rows * len(self._wait)
        end = begin + len(idle) * _GPU_ROW.size
        return Observation(
            np.ndarray((rows, self._width), _FLOAT32, numbers),
            np.ndarray(len(self.context_features), _FLOAT32, numbers, end),
            np.ndarray((len(idle), len(_GPU)), _FLOAT32, numbers, begin),
        )

    def _tokens(
        self,
        now: float,
        pool: Pool,
        offers: list[Offer],
        expected: ExpectedFree,
        idle: list[int],
        type_rows: list[bytes],
        seen: list[tuple[float, ...]],
    ) -> list[bytes]:
        """Return each row in three parts: the columns that never change, the columns that change,
        and the columns of the type.
        """
        ahead, pack, capacity = self.config.look_ahead != "off", _MOVING_ROW.pack, pool.capacity
        ready_s, count = pool.best_s, len(pool.tasks)
        etas: dict[DemandClass, list[float]] = {}
        eta_best = on_best = elsewhere = 0.0
        tokens: list[bytes] = []
        for ready, room in offers:
            task, wide, seconds, slowdown = ready.task, ready.wide, ready.seconds, ready.slowdown
            job, demand = task.job, task.demand
            age, job_age = log1p((now - task.ready_s) / 60) / 5, log1p((now - job.job.arrival_s) / 60) / 5
            shorter = bisect_left(ready_s, ready.best_s) / count
            job_left, tasks_left = ready.job_left(), job.tasks_left / 8
            if ahead:
                eta = etas.get(demand)
                if eta is None:
                    eta = etas[demand] = eta_of(demand, room, expected, idle)
                finish = list(map(add, eta, seconds))
                best_s = finish[ready.best_type]
                first_s, second_s = sorted([*finish, inf])[:2]
                eta_best = log1p((best_s - ready.best_s) / 60) / 5
            for type_ in room:
                self.rows.append((task, type_))
                shown = seen[type_]
                if ahead:
                    on_best = log_ratio(best_s, seconds[type_])
                    elsewhere = log_ratio(second_s if finish[type_] == first_s else first_s, seconds[type_])
                moving = pack(
                    age,
                    job_age,
                    eta_best,
                    on_best,
                    elsewhere,
                    shown[_FREE] - wide / capacity[type_],
                    shorter,
                    slowdown[type_] - shown[_MEAN_SLOWDOWN],
                    job_left,
                    tasks_left,
                )
                tokens += ready.rows[type_], moving, type_rows[type_]
        return tokens

    def _gpu_rows(self, pool: Pool, expected: ExpectedFree, idle: list[int]) -> list[bytes]:
        """Return one row per type, with its free GPUs and with the tasks that wait for it."""
        pack, total, count, ahead = _GPU_ROW.pack, pool.gpus, len(pool.tasks), self._ahead(pool, expected, idle)
        return [
            pack(
                free / gpus,
                gpus / total,
                log1p(area / UNITS / gpus / SCALE_S),
                slower / UNITS / count,
                *ahead[at : at + 4],
            )
            for free, gpus, area, slower, at in zip(
                idle, pool.capacity, pool.area, pool.slowdown, range(0, len(ahead), 4), strict=True
            )
        ]

    def _ahead(self, pool: Pool, expected: ExpectedFree, idle: list[int]) -> Sequence[float]:
        """Return four values per type that describe when runs are expected to end, in the form
        selected by ``look_ahead``."""
        match self.config.look_ahead:
            case "sorted":
                waits = expected.free_in_each_s(_PROBES, idle)
            case "per_gpu":
                waits = [wait_s for type_ in range(len(idle)) for wait_s in expected.oldest_s(type_, 4)]
            case "cdf":
                return [
                    expected.free_within(wait_s, type_) / gpus
                    for type_, gpus in enumerate(pool.capacity)
                    for wait_s in _WITHIN_S
                ]
            case _:
                return (0.0,) * (4 * len(idle))
        return [log1p(wait_s / 60) / 5 if wait_s else 0.0 for wait_s in waits]

    def _context(self, view: ClusterView, pool: Pool, seen: list[tuple[float, ...]]) -> list[bytes]:
        """Return the state of the queue and of the cluster, followed by the means over the types,
        which are summed in float32.
        """
        work = log1p(whole_sum(pool.area) / UNITS / pool.gpus / SCALE_S)
        present = _PRESENT_ROW.pack(log1p(len(pool.tasks)), log1p(len(view.running)), log1p(len(view.jobs)), work)
        sums, pack, unpack = seen[0], _GPU_ROW.pack, _GPU_ROW.unpack
        for row in seen[1:]:
            sums = unpack(pack(*map(add, sums, row)))
        types = len(seen)
        return [present, *[width_class.packed for width_class in pool.classes], pack(*[term / types for term in sums])]


_WAIT = Struct("f").pack(1.0).ljust(4 * len(Candidates.token_features), b"\0")
"""The row for waiting."""


def eta_of(
    demand: DemandClass, room: list[int], expected: ExpectedFree, idle: list[int], never_s: float = NEVER_S
) -> list[float]:
    """Return in how many seconds the demand is expected to fit on each type
    (``ExpectedFree.eta_s``). This is 0 for the types in ``room``, on which it fits now, and
    ``never_s`` for types on which it is not expected to fit.
    """
    gpus = demand.demand.gpus * (demand.gang or 1)
    eta = [never_s] * len(idle)
    for type_ in demand.types:
        eta[type_] = 0.0 if type_ in room else expected.freed_in_s(gpus - idle[type_], type_, never_s)
    return eta


def log_ratio(seconds: float, here_s: float) -> float:
    """Return the clipped logarithm of ``seconds`` / ``here_s``."""
    ratio = (seconds if seconds > _INSTANT_S else _INSTANT_S) / (here_s if here_s > _INSTANT_S else _INSTANT_S)
    return -_CLIP if ratio < _LOWEST else _CLIP if ratio > _HIGHEST else log(ratio)
