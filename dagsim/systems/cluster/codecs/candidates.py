"""Candidates: every choice is a pair of a ready task and a GPU type with room for it, or to wait."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import islice
from math import log1p
from typing import Any

import numpy as np

from dagsim.model import Decision, Start
from dagsim.systems.cluster.api import NEVER_S, ClusterView, DemandClass, JobState, TaskState
from dagsim.systems.cluster.codecs.codec import Floats32, Observation
from dagsim.systems.cluster.codecs.config import CandidatesConfig
from dagsim.systems.cluster.codecs.pool import STATIC, WIDTHS, Pool
from dagsim.systems.cluster.policies.placement.rule import placing

__all__ = ["Candidates"]

_GPU = ("free", "capacity", "pressure", "mean_slowdown", "ahead_1", "ahead_2", "ahead_3", "ahead_4")
_PROBES = (1.0, 2.0, 4.0, 8.0)
"""Numbers of GPUs that ``sorted`` asks for."""
_MOVING = (
    "age",
    "job_age",
    "eta_best",
    "finish_on_best",
    "finish_elsewhere",
    "free_after",
    "shorter",
    "advantage",
    "job_left",
    "job_tasks_left",
)
_CLASSES = len(WIDTHS) + 1
_QUEUE = ("count", "shortest", "area")

_CLIP = 3.0
_WITHIN_S = (60.0, 300.0, 900.0, 3600.0)
"""The times that ``cdf`` counts until."""
_DEFAULT = CandidatesConfig()


class Candidates:
    """Choices at the level of task and GPU type: of each group of ready tasks that are alike, the shortest and the one
    nearest to the end of its job (or those in a window, ``CandidatesConfig.select``), on every type with room; and to
    wait, while anything is still to happen.

    Groups keep the number of choices small however many tasks wait. Times enter as logarithms; what decides between
    starting here and waiting for something better is spelled out: ``finish_on_best`` is the logarithm of (expected wait
    for the task's fastest type + its seconds there) / seconds here, which EFT-wait compares with ``theta``;
    ``finish_elsewhere`` the same for the best of all other types. Only estimates are read, never true durations.

    Cost per observation: O(groups x types) in Python and a few dozen array operations.
    """

    token_features: tuple[str, ...] = ("wait", *STATIC, *_MOVING, *(f"type_{name}" for name in _GPU))
    context_features: tuple[str, ...] = (
        "ready",
        "running",
        "jobs",
        "work",
        *(f"{name}_{index}" for index in range(_CLASSES) for name in _QUEUE),
        *(f"mean_{name}" for name in _GPU),
    )
    gpu_features: tuple[str, ...] = _GPU

    def __init__(self, config: CandidatesConfig = _DEFAULT) -> None:
        self.config = config
        self._place = placing(config.placement).place
        self._pool: Pool | None = None
        self._capacity: Any = None
        self._view: ClusterView | None = None
        self._waits = False
        self._quiet: tuple[int, int] | None = None
        """Releases and ready tasks so far when nothing fitted."""
        self._tasks: list[TaskState] = []
        self._types: list[int] = []

    def __deepcopy__(self, memo: object) -> Candidates:
        """A codec for a fork: all it knows it reads again from the fork's view."""
        return Candidates(self.config)

    def encode(self, view: ClusterView) -> Observation | None:
        """The choices; ``None`` if no ready task has room."""
        pool = self._pool if self._pool is not None else self._bind(view)
        machines = view.machines
        if self._quiet == (machines.released, pool.pushed):
            return None
        self._look(view, pool)
        tasks: list[TaskState] = []
        types: list[int] = []
        etas: list[list[float]] = []
        left: list[tuple[float, float]] = []
        known: dict[int, tuple[list[int], list[float]]] = {}
        for demand, heads in self._offered(view, pool):
            there = known.get(demand.number)
            if there is None:
                there = known[demand.number] = self._room(view, demand, pool.types)
            room, eta = there
            for task in heads if room else ():
                of_job = _log_left(task.job), task.job.tasks_left / 8
                for type_ in room:
                    tasks.append(task)
                    types.append(type_)
                    etas.append(eta)
                    left.append(of_job)
        self._view, self._waits = view, view.pending
        self._tasks, self._types = tasks, types
        if not tasks:
            if self.config.select == "heads":  # of every group: until a task comes or something is released, none fits
                self._quiet = machines.released, pool.pushed
            return None
        return self._observe(view, pool, etas, left)

    def decode(self, view: ClusterView, choice: int) -> tuple[Decision, ...]:
        """Start the task on the type; the last row, where there are more rows than pairs, waits."""
        if choice >= len(self._tasks):
            return ()
        task = self._tasks[choice]
        placement = self._place(view, task, self._types[choice])
        return () if placement is None else (Start(task, placement),)

    def _room(self, view: ClusterView, demand: DemandClass, types: int) -> tuple[list[int], list[float]]:
        """The types with room for the demand, and the seconds until each type has room (``ExpectedFree.eta_s``)."""
        fits_on, expected = view.machines.fits_on, view.expected_free
        room = [type_ for type_ in demand.types if fits_on(demand, type_)]
        gpus = demand.demand.gpus * (demand.gang or 1)
        eta = [NEVER_S] * types
        for type_ in demand.types if room else ():
            eta[type_] = 0.0 if type_ in room else expected.free_in_s(gpus, type_)
        return room, eta

    def _offered(self, view: ClusterView, pool: Pool) -> Iterator[tuple[DemandClass, Sequence[TaskState]]]:
        """The tasks to choose from, some with the same demand at a time."""
        if self.config.select == "heads":
            fits = view.machines.fits
            for (demand, _), group in pool.groups.items():
                if group[0] and fits(demand) and (heads := pool.heads(group)):
                    yield demand, heads
            return
        window = self.config.window
        tasks = list(islice(view.ready, window if self.config.select == "oldest" else window // 2))
        if self.config.select == "mixed":
            tasks += nsmallest(window - len(tasks), view.ready, key=lambda task: (task.best_s, task.order, task.piece))
        for task in dict.fromkeys(tasks):
            yield task.demand, (task,)

    @property
    def rows(self) -> list[tuple[TaskState, int]]:
        """Task and type of the rows of the last observation, without the one that waits."""
        return list(zip(self._tasks, self._types, strict=True))

    def choice_of(self, decisions: Iterable[Decision]) -> int | None:
        """The row of the last observation that the first decision stands for; ``None`` if there is none."""
        decision = next(iter(decisions), None)
        if decision is None:
            return len(self._tasks) if self._waits else None
        if isinstance(decision, Start) and self._view is not None:
            on = self._view.machines.list[decision.placement[0].node].type
            for row, (task, type_) in enumerate(zip(self._tasks, self._types, strict=True)):
                if task is decision.task and type_ == on:
                    return row
        return None

    def _bind(self, view: ClusterView) -> Pool:
        machines = view.machines
        types = len(machines.types)
        capacity = [sum(machine.gpus for machine in machines.list if machine.type == type_) for type_ in range(types)]
        self._capacity = np.maximum(np.array(capacity, float), 1.0)
        self._pool = view.index(self, lambda: Pool(types))
        return self._pool

    def _look(self, view: ClusterView, pool: Pool) -> None:
        for run in reversed(pool.new):
            if run.id in view.running and not run.task.waiting:
                pool.drop(run.task)
        pool.new.clear()

    def _observe(
        self, view: ClusterView, pool: Pool, etas: list[list[float]], left: list[tuple[float, float]]
    ) -> Observation:
        now, count, slot = view.now, len(self._tasks), pool.slot
        slots = np.array([slot[task] for task in self._tasks])
        types, rows = np.array(self._types), np.arange(count)
        alive = np.flatnonzero(pool.alive)
        queue = _Queue(pool, alive)
        gpus = self._gpus(view, pool, queue)
        tokens = np.zeros((count + self._waits, len(self.token_features)), np.float32)
        tokens[count:, 0] = 1.0
        fixed = len(STATIC) + 1
        tokens[:count, 1:fixed] = pool.rows[slots, types]
        moving = tokens[:count, fixed : fixed + len(_MOVING)]
        best_s, best = pool.best_s[slots], pool.best_type[slots]
        seconds = pool.seconds[slots]
        finish = np.array(etas) + seconds
        here_s = np.maximum(seconds[rows, types], 1e-9)
        on_best = finish[rows, best]
        finish[rows, types] = np.inf
        moving[:, 0] = np.log1p((now - pool.ready_s[slots]) / 60) / 5
        moving[:, 1] = np.log1p((now - pool.arrival_s[slots]) / 60) / 5
        if self.config.look_ahead != "off":
            moving[:, 2] = np.log1p((on_best - best_s) / 60) / 5
            moving[:, 3] = _clipped(np.log(np.maximum(on_best, 1e-9) / here_s))
            elsewhere = np.log(np.maximum(finish.min(axis=1), 1e-9) / here_s) if pool.types > 1 else _CLIP
            moving[:, 4] = _clipped(elsewhere)
        moving[:, 5] = gpus[types, 0] - pool.width[slots] / self._capacity[types]
        moving[:, 6] = np.sort(queue.best_s).searchsorted(best_s) / len(alive)
        moving[:, 7] = pool.slowdown[slots, types] - gpus[types, 3]
        moving[:, 8:] = left
        tokens[:count, fixed + len(_MOVING) :] = gpus[types]
        return Observation(tokens, self._context(view, queue, gpus), gpus)

    def _gpus(self, view: ClusterView, pool: Pool, queue: _Queue) -> Floats32:
        """(types, D): what is free of each type, and who waits for it."""
        machines, capacity = view.machines, self._capacity
        gpus = np.zeros((pool.types, len(_GPU)), np.float32)
        gpus[:, 0] = [machines.idle_gpus(type_) for type_ in range(pool.types)] / capacity
        gpus[:, 1] = capacity / capacity.sum()
        waiting = np.bincount(queue.best_type, queue.area, pool.types)
        gpus[:, 2] = np.log1p(waiting / capacity / 600)
        gpus[:, 3] = np.add.reduce(queue.slowdown) / len(queue.area)
        gpus[:, 4:] = self._ahead(view, pool.types)
        return gpus

    def _ahead(self, view: ClusterView, types: int) -> Any:
        """(types, 4): the expected ends of what runs on each type, as ``look_ahead`` says."""
        match self.config.look_ahead:
            case "sorted":
                free_in_s = view.expected_free.free_in_s
                etas = [[free_in_s(probe, type_) for probe in _PROBES] for type_ in range(types)]
                return np.log1p(np.array(etas) / 60) / 5
            case "per_gpu":
                ends = [view.expected_free.oldest_s(type_, 4) for type_ in range(types)]
                return np.log1p(np.array(ends) / 60) / 5
            case "cdf":
                within = [
                    [view.expected_free.free_within(wait_s, type_) for wait_s in _WITHIN_S] for type_ in range(types)
                ]
                return np.array(within) / self._capacity[:, None]
        return 0.0

    def _context(self, view: ClusterView, waiting: _Queue, gpus: Floats32) -> Floats32:
        context = np.zeros(len(self.context_features), np.float32)
        areas, classes, best_s = waiting.area, waiting.width_class, waiting.best_s
        total = self._capacity.sum()
        context[:4] = (
            log1p(len(areas)),
            log1p(len(view.running)),
            log1p(len(view.jobs)),
            log1p(areas.sum() / total / 600),
        )
        shortest = np.full(_CLASSES, np.inf)
        np.minimum.at(shortest, classes, best_s)
        queue = context[4 : 4 + _CLASSES * len(_QUEUE)].reshape(_CLASSES, len(_QUEUE))
        queue[:, 0] = np.log1p(np.bincount(classes, minlength=_CLASSES))
        queue[:, 1] = np.where(np.isfinite(shortest), np.log1p(shortest / 60) / 5, -1.0)
        queue[:, 2] = np.log1p(np.bincount(classes, areas, _CLASSES) / total / 600)
        context[4 + _CLASSES * len(_QUEUE) :] = gpus.mean(axis=0)
        return context


class _Queue:
    """Columns of the ready tasks that an observation sums up, in the order of their slots."""

    __slots__ = ("area", "best_s", "best_type", "slowdown", "width_class")

    def __init__(self, pool: Pool, alive: np.ndarray) -> None:
        self.area, self.best_s, self.best_type = pool.area[alive], pool.best_s[alive], pool.best_type[alive]
        self.slowdown, self.width_class = pool.slowdown[alive], pool.width_class[alive]


def _clipped(values: Any) -> Any:
    return np.minimum(np.maximum(values, -_CLIP), _CLIP)


def _log_left(job: JobState) -> float:
    """The job's seconds of unfinished tasks on their fastest types, as a logarithm."""
    return log1p(sum([task.best_s for task in job.tasks if task.unfinished]) / 600) / 3
