"""Schedules for the tests of metrics: written by hand, and at random."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pytest
from support.drawn_schedules import schedule_of, shared_gpus  # noqa: F401  fixtures

from dagsim.model import Cluster, JobFacts, Kind, RejectReason
from dagsim.model.log import LogRow, Schedule, ScheduleLog


class Plan:
    """A schedule written down by hand: what happened, in any order; the log sorts it by time."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.jobs: list[JobFacts] = []
        self.rows: list[LogRow] = []
        self.runs = 0

    def job(
        self, arrival_s: float = 0.0, *, ideal_s: float = 1.0, completed_s: float | None = None, **facts: Any
    ) -> int:
        """A job that arrives, and completes if a time is given."""
        number = len(self.jobs)
        defaults: dict[str, Any] = {
            "id": f"job{number}",
            "priority": 0.0,
            "tenant": "",
            "deadline_s": None,
            "weight": 1.0,
            "ideal_gpu_s": ideal_s,
            "gpus": 1.0,
            "tasks": ("train", "test"),
        }
        self.jobs.append(JobFacts(arrival_s=arrival_s, ideal_s=ideal_s, **{**defaults, **facts}))
        self.row(Kind.ARRIVED, arrival_s, number)
        if completed_s is not None:
            self.row(Kind.COMPLETED, completed_s, number)
        return number

    def reject(self, job: int, time_s: float, reason: RejectReason) -> None:
        self.row(Kind.REJECTED, time_s, job, value=float(reason))

    def run(
        self,
        job: int,
        start_s: float,
        end_s: float | None,
        on: Mapping[int, Iterable[int]] | None = None,
        *,
        task: int = 0,
        held: float | None = None,
        outcome: Kind = Kind.FINISHED,
        computing_s: float | None = None,
    ) -> int:
        """A run that holds GPUs on nodes, ``{node: GPUs}``; it still runs if it has no end."""
        run, self.runs = self.runs, self.runs + 1
        for node, gpus in (on if on is not None else {0: (0,)}).items():
            mask = sum(1 << gpu for gpu in gpus)
            value = float(mask.bit_count()) if held is None else held
            for kind, time_s in ((Kind.STARTED, start_s), (Kind.COMPUTING, computing_s), (outcome, end_s)):
                if time_s is not None:
                    self.rows.append((kind, time_s, job, task, run, node, 1, mask, value))
        return run

    def down(self, node: int, start_s: float, end_s: float | None = None) -> None:
        self.row(Kind.DOWN, start_s, node=node)
        if end_s is not None:
            self.row(Kind.UP, end_s, node=node)

    def row(self, kind: Kind, time_s: float, job: int = -1, *, node: int = -1, value: float = 0.0) -> None:
        self.rows.append((kind, time_s, job, -1, -1, node, 0, 0, value))

    def schedule(self, **rest: Any) -> Schedule:
        log = ScheduleLog()
        last = {Kind.COMPLETED: 1, Kind.REJECTED: 1}  # written before the runs by ``job``, but the end of them
        for row in sorted(self.rows, key=lambda row: (row[1], last.get(Kind(row[0]), 0))):
            log.append(row)
        return Schedule(self.cluster, self.jobs, log, **rest)


@pytest.fixture(scope="session")
def plan_of() -> type[Plan]:
    return Plan


@pytest.fixture(scope="session")
def random_schedule() -> Callable[..., Schedule]:
    return _random_schedule


def _random_schedule(seed: int, steps: int = 60, *, finish: bool = False) -> Schedule:
    """Jobs of one or two tasks that start, stop, fail and share GPUs at random, on nodes that go down at random.

    Times are in sixteenths, so that sums are exact. With ``finish``, what is open at the end is finished.
    """
    rng = np.random.default_rng(seed)
    cluster = Cluster.of({"A100-40": 3, "T4": 4}, per_node=2)
    schedule = Schedule(cluster)
    append, sizes = schedule.log.append, [node.gpus for node in cluster.nodes]
    free = [[1.0] * size for size in sizes]
    up = [True] * len(sizes)
    waiting: list[tuple[int, int]] = []
    left: dict[int, int] = {}
    running: dict[int, tuple[int, int, dict[int, tuple[list[int], float]]]] = {}
    now, runs = 0.0, 0

    def end(run: int, kind: Kind) -> None:
        job, task, held = running.pop(run)
        for node, (gpus, share) in held.items():
            for gpu in gpus:
                free[node][gpu] += share
            append((kind, now, job, task, run, node, 1, sum(1 << gpu for gpu in gpus), share * len(gpus)))
        if kind != Kind.FINISHED:
            waiting.append((job, task))
            return
        left[job] -= 1
        if not left[job]:
            append((Kind.COMPLETED, now, job, -1, -1, -1, 0, 0, 0.0))

    def arrive() -> None:
        job, tasks = len(schedule.jobs), int(rng.integers(1, 3))
        ideal_s = float(rng.integers(0, 64)) / 16
        deadline_s = now + float(rng.integers(1, 100)) if rng.random() < 0.5 else None
        tenant, priority, weight = f"team{rng.integers(3)}", float(rng.integers(3)), float(rng.integers(1, 3))
        names = tuple(f"task{index}" for index in range(tasks))
        facts = JobFacts(f"job{job}", now, priority, tenant, deadline_s, weight, ideal_s, ideal_s, 1.0, names)
        schedule.arrived(facts)
        append((Kind.ARRIVED, now, job, -1, -1, -1, 0, 0, 0.0))
        if rng.random() < 0.1:
            append((Kind.REJECTED, now, job, -1, -1, -1, 0, 0, float(rng.integers(1, 4))))
            return
        left[job] = tasks
        waiting.extend((job, task) for task in range(tasks))

    def start() -> None:
        nonlocal runs
        share = float(rng.choice([0.25, 0.5, 1.0, 1.0]))
        held: dict[int, tuple[list[int], float]] = {}
        for node in rng.permutation(len(sizes))[: rng.integers(1, 3)].tolist():
            gpus = [gpu for gpu, room in enumerate(free[node]) if up[node] and room >= share][: rng.integers(1, 3)]
            if gpus:
                held[node] = (gpus, share)
        if not held:
            return
        job, task = waiting.pop(int(rng.integers(len(waiting))))
        running[runs] = (job, task, held)
        for node, (gpus, share) in held.items():
            for gpu in gpus:
                free[node][gpu] -= share
            append((Kind.STARTED, now, job, task, runs, node, 1, sum(1 << gpu for gpu in gpus), share * len(gpus)))
        runs += 1

    def toggle(node: int) -> None:
        append((Kind.DOWN if up[node] else Kind.UP, now, -1, -1, -1, node, 0, 0, 0.0))
        up[node] = not up[node]
        for run in [run for run, (_, _, held) in running.items() if node in held and not up[node]]:
            end(run, Kind.FAILED)

    for _ in range(steps):
        now += float(rng.integers(0, 48)) / 16
        match rng.integers(8):
            case 0 | 1:
                arrive()
            case 2 | 3 | 4 if waiting:
                start()
            case 5 | 6 if running:
                run = int(rng.choice(list(running)))
                end(run, Kind.FINISHED if rng.random() < 0.7 else Kind.PREEMPTED)
            case 7:
                toggle(int(rng.integers(len(sizes))))
    while finish and (waiting or running):
        now += 1.0
        for node in range(len(sizes)):
            if not up[node]:
                toggle(node)
        for run in list(running):
            end(run, Kind.FINISHED)
        while waiting and any(room == 1.0 for node in free for room in node):
            start()
    schedule.ended_s = now
    return schedule
