"""RLScheduler's commitment to one job: worked by hand, and beside a second implementation of its rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from support.log_reading import starts_in_order

from dagsim.errors import ConfigError
from dagsim.model import Cluster, Job, Node, Task, gpu_type
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.policies import POLICIES


def test_it_keeps_to_its_pick_whoever_comes(run, rows, order):
    # One GPU, held to 5. At 0 the queue is empty once 1 has started; 2 comes at 1 and is picked (20 s). 3 (1 s) comes
    # at 2 and would be shorter, but 2 goes first.
    jobs = rows((0, 5), (1, 20), (2, 1))
    assert order(run("committed[score=sjf]", jobs)) == ["1", "2", "3"]
    assert order(run("sjf", jobs)) == ["1", "3", "2"]


def test_the_next_is_picked_by_score_among_those_in_the_queue(run, rows, order):
    # 2 waits from 1 to 5; 3 (9 s) and 4 (2 s) enter meanwhile; then 4 is shorter.
    assert order(run("committed[score=sjf]", rows((0, 5), (1, 1), (2, 9), (3, 2)))) == ["1", "2", "4", "3"]
    assert order(run("committed", rows((0, 5), (1, 1), (2, 9), (3, 2)))) == ["1", "2", "3", "4"]


def test_backfilling_ends_before_the_shadow_time_not_at_it(run, rows, order):
    # 2 GPUs: 1 holds one to 5, 2 needs both at 5. 3 (4 s, at 1) would end at 5: not before. 4 (3 s) does.
    jobs = rows((0, 5, 1), (0, 4, 2), (1, 4, 1), (1, 3, 1))
    assert order(run("committed[backfill=true]", jobs, 2)) == ["1", "4", "2", "3"]
    assert order(run("committed", jobs, 2)) == ["1", "2", "3", "4"]


def test_the_soonest_is_picked_by_its_start_and_its_area(run, rows, order):
    # 3 GPUs, one held to 30. When 3 starts at 2, 4 (4 s) would fit at 30, and 5 (6 s on two) at 3.
    jobs = rows((0, 30, 1), (0, 2, 2), (0, 1, 2), (1, 4, 3), (1, 6, 2))
    assert order(run("committed[score=soonest]", jobs, 3)) == ["1", "2", "3", "5", "4"]
    assert order(run("committed[score=sjf]", jobs, 3)) == ["1", "2", "3", "4", "5"]


def test_the_soonest_is_picked_where_nothing_can_be_free():
    """A node without cores: a task of none is no part of the cluster's capacity of 0."""
    cluster = Cluster((Node("a", gpu_type("T4"), 1, 0, 0),))
    jobs = [Job.single("x", Task("t", 5, gpus=0, cpus=0)), Job.single("y", Task("t", 5, gpus=1, cpus=0))]
    schedule = ClusterKernel(cluster, jobs).run(POLICIES.create("committed[score=soonest]"))
    assert starts_in_order(schedule) == [0, 0]


def test_the_smallest_area_is_picked_not_the_shortest(run, rows, order):
    # 2 GPUs, held to 5 by 1. 2 waits; 3 takes 2 GPUs for 3 s (6), 4 takes one for 4 s (4), 5 one for 7 s (7). The
    # scores log-area are 0.95, 0.60 and 0.85.
    jobs = rows((0, 5, 2), (1, 9, 2), (2, 3, 2), (3, 4, 1), (4, 7, 1))
    assert order(run("committed[score=area]", jobs, 2)) == ["1", "2", "4", "3", "5"]
    assert order(run("committed[score=log-area]", jobs, 2)) == ["1", "2", "4", "5", "3"]
    assert order(run("committed[score=sjf]", jobs, 2)) == ["1", "2", "3", "4", "5"]


def test_of_two_tried_tasks_the_one_that_delays_less_is_picked(run, rows, order):
    # After eleven jobs that nobody waits for, there is a stretch of ten arrivals to expect. At 130, when 13 starts,
    # 14 (50 s) and 15 (1 s) are in the queue. Whatever comes next waits 1 s for 15, or 50 s for 14, and 15 does too.
    jobs = rows(*((10 * number, 1) for number in range(11)), (110, 20), (111, 100), (112, 50), (113, 1))
    assert order(run("committed[width=2]", jobs))[-2:] == ["15", "14"]
    assert order(run("committed", jobs))[-2:] == ["14", "15"]
    assert order(run("committed[width=2]", jobs[6:]))[-2:] == ["14", "15"]  # nothing to expect yet


class Asked(NamedTuple):
    """A job of the second implementation."""

    arrival_s: float
    seconds: float
    gpus: int


Pick = Callable[[float, int, list[tuple[float, int]], list[Asked], list[Asked]], Asked]
"""The next job, by the time, the free GPUs, the ends of runs, the queue, and the jobs that have arrived."""


def starts_by_hand(
    coming: list[Asked],
    pick: Pick,
    backfill: bool,
    now: float,
    idle: int,
    runs: list[tuple[float, int]],
    *queued: Asked,
) -> dict[Asked, float]:
    """Start of each job by the rules of RLScheduler's environment."""
    started: dict[Asked, float] = {}
    arrived: list[Asked] = []
    queue, coming, runs = list(queued), list(coming), list(runs)

    def start(job: Asked) -> None:
        nonlocal idle
        queue.remove(job)
        started[job] = now
        idle -= job.gpus
        runs.append((now + job.seconds, job.gpus))

    def go_on() -> None:
        nonlocal idle, now
        if coming and (not runs or coming[0].arrival_s <= min(runs)[0]):
            now = max(now, coming[0].arrival_s)
            arrived.append(coming[0])
            queue.append(coming.pop(0))
        else:
            now, gpus = min(runs)
            runs.remove((now, gpus))
            idle += gpus

    while queue or coming:
        while not queue:
            go_on()
        picked = pick(now, idle, runs, queue, arrived)
        free_by = {end_s: idle + sum(gpus for other_s, gpus in runs if other_s <= end_s) for end_s, _ in runs}
        shadow_s = min([end_s for end_s, gpus in free_by.items() if gpus >= picked.gpus], default=now)
        while idle < picked.gpus:
            for job in list(queue) if backfill else ():
                if job != picked and job.gpus <= idle and now + job.seconds < shadow_s:
                    start(job)
            go_on()
        start(picked)
    return started


def area(job: Asked) -> float:
    return job.seconds * job.gpus


def after(first: Asked) -> Pick:
    """One job first, and then the smallest area."""
    return lambda now, idle, runs, queue, arrived: first if first in queue else min(queue, key=area)


def ahead(backfill: bool, width: int) -> Pick:
    """Of some jobs with the smallest areas, the one with the smallest slowdowns in eight futures of ten arrivals."""

    def pick(now: float, idle: int, runs: list[tuple[float, int]], queue: list[Asked], arrived: list[Asked]) -> Asked:
        stretches = [range(len(arrived) - 10 * back, len(arrived) - 10 * back + 10) for back in range(1, 9)]
        futures = [
            [arrived[at]._replace(arrival_s=now + arrived[at].arrival_s - arrived[ats[0] - 1].arrival_s) for at in ats]
            for ats in stretches
            if ats[0] >= 1
        ]

        def cost(candidate: Asked) -> float:
            slowdowns = [
                max(1.0, (start_s - job.arrival_s + job.seconds) / max(job.seconds, 10.0))
                for future in futures
                for job, start_s in starts_by_hand(future, after(candidate), backfill, now, idle, runs, *queue).items()
            ]
            return round(sum(slowdowns), 6)

        return min(sorted(queue, key=area)[:width], key=cost)

    return pick


@pytest.mark.parametrize("backfill", [False, True])
@pytest.mark.parametrize("width", [1, 4])
def test_it_starts_jobs_when_a_second_implementation_does(run, rows, backfill, width):
    deviations = 0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        jobs = [
            Asked(float(arrival_s), float(seconds), int(gpus))
            for arrival_s, seconds, gpus in zip(
                np.cumsum(rng.exponential(20, 100)), rng.lognormal(3, 1.5, 100), rng.integers(1, 5, 100), strict=True
            )
        ]
        expected = starts_by_hand(jobs, ahead(backfill, width), backfill, 0.0, 4, [])
        policy = f"committed[score=area,backfill={str(backfill).lower()},width={width}]"
        got = starts_in_order(run(policy, rows(*jobs), 4))
        assert dict(zip(jobs, got, strict=True)) == pytest.approx(expected)
        deviations += expected != starts_by_hand(jobs, ahead(backfill, 1), backfill, 0.0, 4, [])
    assert (deviations > 0) == (width > 1)


def test_other_scores_are_refused():
    with pytest.raises(
        ConfigError, match="score must be one of fcfs, sjf, f1, wfp3, uni, log-area, area, soonest, got"
    ):
        POLICIES.create("committed[score=f2]")


def test_a_width_that_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="committed: width must be 1 or more, got 0"):
        POLICIES.create("committed[width=0]")
    with pytest.raises(ConfigError, match="committed: width must be 1 with the score soonest, got 2"):
        POLICIES.create("committed[score=soonest,width=2]")
