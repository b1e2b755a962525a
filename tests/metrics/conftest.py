"""Schedules for the tests of metrics: written by hand, and at random."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from support.drawn_schedules import schedule_of, shared_gpus  # noqa: F401  fixtures
from support.written_schedules import ScheduleWriter

from dagsim.model import Cluster, JobFacts, Kind
from dagsim.model.log import Record, Schedule


@pytest.fixture(scope="session")
def plan_of() -> type[ScheduleWriter]:
    return ScheduleWriter


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

    def held_on(kind: Kind, job: int, task: int, run: int, node: int, gpus: list[int], share: float) -> Record:
        mask = sum(1 << gpu for gpu in gpus)
        return Record(kind, now, job, task, run, node, instances=1, gpus=mask, value=share * len(gpus))

    def end(run: int, kind: Kind) -> None:
        job, task, held = running.pop(run)
        for node, (gpus, share) in held.items():
            for gpu in gpus:
                free[node][gpu] += share
            append(held_on(kind, job, task, run, node, gpus, share))
        if kind != Kind.FINISHED:
            waiting.append((job, task))
            return
        left[job] -= 1
        if not left[job]:
            append(Record(Kind.COMPLETED, now, job))

    def arrive() -> None:
        job, tasks = len(schedule.jobs), int(rng.integers(1, 3))
        ideal_s = float(rng.integers(0, 64)) / 16
        deadline_s = now + float(rng.integers(1, 100)) if rng.random() < 0.5 else None
        tenant, priority, weight = f"team{rng.integers(3)}", float(rng.integers(3)), float(rng.integers(1, 3))
        names = tuple(f"task{index}" for index in range(tasks))
        facts = JobFacts(f"job{job}", now, priority, tenant, deadline_s, weight, ideal_s, ideal_s, 1.0, names)
        schedule.arrived(facts)
        append(Record(Kind.ARRIVED, now, job))
        if rng.random() < 0.1:
            append(Record(Kind.REJECTED, now, job, value=float(rng.integers(1, 4))))
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
            append(held_on(Kind.STARTED, job, task, runs, node, gpus, share))
        runs += 1

    def toggle(node: int) -> None:
        append(Record(Kind.DOWN if up[node] else Kind.UP, now, node=node))
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
