"""Backfilling reserves GPUs, cores and memory alike: random jobs on one node against a second, slow computation."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from support.log_reading import starts_in_order

from dagsim.model import Cluster, Job, Node, NodePartition, QueueTree, Request, Task, gpu_type
from dagsim.model.log import Kind
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import Conversation
from dagsim.testing import engine_cases

SIZE = (4, 12, 24)
"""GPUs, cores and GB of memory of the node."""


class Wish(NamedTuple):
    """A job by its arrival and seconds, and its GPUs, cores and GB of memory."""

    arrival_s: int
    seconds: int
    amounts: tuple[int, int, int]


def wishes(seed: int, kinds: tuple[int, ...]) -> list[Wish]:
    """Jobs that ask for some of the resources, each for up to the whole node."""
    rng = np.random.default_rng(seed)
    jobs, arrival_s = [], 0
    for _ in range(40):
        arrival_s += int(rng.integers(0, 4))
        asked = [
            int(rng.integers(0, most + 1)) if at in kinds and rng.random() < 0.7 else 0 for at, most in enumerate(SIZE)
        ]
        jobs.append(Wish(arrival_s, int(rng.integers(1, 12)), (asked[0], max(asked[1], not any(asked)), asked[2])))
    return jobs


def simulated(policy: str, jobs: list[Wish]) -> tuple[list[int], list[Job], Cluster]:
    cluster = Cluster((Node("n", gpu_type("T4"), SIZE[0], SIZE[1], SIZE[2]),))
    submitted = [
        Job.single(str(at), Task("t", wish.seconds, gpus=gpus, cpus=cpus, memory_gb=memory), wish.arrival_s)
        for at, wish in enumerate(jobs)
        for gpus, cpus, memory in [wish.amounts]
    ]
    times = starts_in_order(ClusterKernel(cluster, submitted).run(POLICIES.create(policy)))
    return [int(time_s) for time_s in times], submitted, cluster


def in_use(jobs: list[Wish], starts: dict[int, int], at_s: int) -> list[int]:
    """What the started jobs hold at a time."""
    holding = [jobs[job].amounts for job, start_s in starts.items() if start_s <= at_s < start_s + jobs[job].seconds]
    return [sum(amounts) for amounts in zip(*holding, strict=True)] or [0, 0, 0]


def fits(jobs: list[Wish], starts: dict[int, int], job: int, from_s: int) -> bool:
    """True if the job would find room throughout its run."""
    return all(
        all(
            used + asked <= most
            for used, asked, most in zip(in_use(jobs, starts, at_s), jobs[job].amounts, SIZE, strict=True)
        )
        for at_s in range(from_s, from_s + jobs[job].seconds)
    )


def conservative(jobs: list[Wish]) -> list[int]:
    """Each job in turn takes the first time that leaves all reservations before it as they are."""
    starts: dict[int, int] = {}
    for job, wish in enumerate(jobs):
        starts[job] = next(at_s for at_s in range(wish.arrival_s, 10_000) if fits(jobs, starts, job, at_s))
    return [starts[job] for job in range(len(jobs))]


def easy(jobs: list[Wish]) -> list[int]:
    """The oldest job has a reservation of what it asks for; others start if they leave it alone."""
    starts: dict[int, int] = {}
    for now in range(10_000):
        waiting = [job for job, wish in enumerate(jobs) if wish.arrival_s <= now and job not in starts]
        while waiting and fits_now(jobs, starts, waiting[0], now):
            starts[waiting.pop(0)] = now
        while waiting and (filler := filler_of(jobs, starts, waiting, now)) is not None:
            starts[filler] = now
            waiting.remove(filler)
        if len(starts) == len(jobs):
            return [starts[job] for job in range(len(jobs))]
    raise AssertionError("a job never started")


def fits_now(jobs: list[Wish], starts: dict[int, int], job: int, now: int) -> bool:
    return all(
        used + asked <= most
        for used, asked, most in zip(in_use(jobs, starts, now), jobs[job].amounts, SIZE, strict=True)
    )


def filler_of(jobs: list[Wish], starts: dict[int, int], waiting: list[int], now: int) -> int | None:
    head = jobs[waiting[0]].amounts
    counted = [at for at, asked in enumerate(head) if asked]
    shadow_s = next(at_s for at_s in range(now, 20_000) if fits_now(jobs, starts, waiting[0], at_s))
    used = in_use(jobs, starts, shadow_s)
    for job in waiting[1:]:
        spare = all(used[at] + head[at] + jobs[job].amounts[at] <= SIZE[at] for at in counted)
        if fits_now(jobs, starts, job, now) and (now + jobs[job].seconds <= shadow_s or spare):
            return job
    return None


@pytest.mark.parametrize("kinds", [(0,), (1,), (2,), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize(("policy", "expected"), [("conservative", conservative), ("easy", easy)])
def test_every_resource_is_reserved(policy: str, expected, kinds: tuple[int, ...]) -> None:
    for seed in range(12):
        jobs = wishes(seed, kinds)
        starts, submitted, cluster = simulated(policy, jobs)
        assert starts == expected(jobs), seed
        if policy == "easy":
            assert starts_in_order(engine_cases.compiled_schedule(cluster, submitted, "easy")) == starts


def test_a_job_of_much_memory_is_not_overtaken_for_ever() -> None:
    """Small jobs keep coming, each of a third of the memory and longer than the gap before the large one."""
    jobs = [Wish(0, 10, (0, 2, 15)), Wish(1, 10, (0, 2, 24)), *[Wish(2 + 4 * at, 10, (0, 1, 8)) for at in range(30)]]
    for policy in ("easy", "easy-sjf", "conservative"):
        starts, *_ = simulated(policy, jobs)
        assert starts[1] == 10
        assert all(later - earlier >= 0 for earlier, later in pairwise(starts[2:]))


def on_halls(
    policy: str, seed: int, least: Any = (0, 1, 0), most: Any = (4, 12, 24)
) -> tuple[list[Any], dict[int, tuple[float, float, int]]]:
    """Random jobs of partitions with one node each, of a partition of all nodes, and with licences, of which there
    are three: arrival, amounts, partition and licences of each job, and the start, end and node of each run.
    """
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(2, 4))
    names = [f"n{at}" for at in range(nodes)]
    parts = [*(NodePartition(f"p{at}", (name,)) for at, name in enumerate(names)), NodePartition("all", tuple(names))]
    jobs, submitted, arrival_s = [], [], 0
    for at in range(16):
        arrival_s += int(rng.integers(0, 12))
        amounts = tuple(int(rng.integers(low, high + 1)) for low, high in zip(least, most, strict=True))
        part, licences = (
            str(rng.choice([part.name for part in parts])),
            int(rng.integers(0, 4)) * int(rng.random() < 0.4),
        )
        jobs.append((arrival_s, amounts, part, licences))
        task = Task("t", int(rng.integers(5, 100)), gpus=amounts[0], cpus=amounts[1], memory_gb=amounts[2])
        request = Request(licences=(("solver", licences),)) if licences else None
        submitted.append(replace(Job.single(str(at), task, arrival_s), partition=part, request=request))
    cluster = Cluster(tuple(Node(name, gpu_type("T4"), *SIZE) for name in names))
    queues = QueueTree(partitions=tuple(parts), licences={"solver": 3})
    kernel = ClusterScenario(cluster, submitted, queues=queues).kernel(0)
    Conversation(kernel).follow(POLICIES.create(policy))
    runs: dict[int, tuple[float, float, int]] = {}
    for row in kernel.schedule.log:
        if row.kind == Kind.STARTED:
            runs[row.job] = row.time_s, np.inf, row.node
        elif row.kind == Kind.FINISHED:
            runs[row.job] = *runs[row.job][:1], row.time_s, row.node
    return jobs, runs


@pytest.mark.parametrize("policy", ["easy", "easy-sjf", "easy-lxf", "topology", "conservative", "easy-events"])
def test_nobody_delays_the_oldest_job_of_a_partition_or_one_that_waits_for_licences(policy: str) -> None:
    only_gpus = ((1, 0, 0), (4, 0, 0)) if policy == "easy-events" else ()  # it counts nothing else
    for seed in range(40):
        jobs, runs = on_halls(policy, seed, *only_gpus)
        assert len(runs) == len(jobs)

        def fits(job: int, beside: list[int], jobs: Any = jobs, runs: Any = runs) -> bool:
            _, amounts, part, licences = jobs[job]
            if licences + sum(jobs[other][3] for other in beside) > 3:
                return False
            on_node = [jobs[other][1] for other in beside if runs[other][2] == int(part[1:])]
            held = [sum(column) for column in zip(*on_node, amounts, strict=True)]
            return all(amount <= most for amount, most in zip(held, SIZE, strict=True))

        moments = {moment for run in runs.values() for moment in run[:2]} | {job[0] for job in jobs}
        for now in sorted(moments):
            oldest = next((at for at, job in enumerate(jobs) if job[0] <= now < runs[at][0]), None)
            if oldest is None or jobs[oldest][2] == "all":  # nodes of several partitions are counted together
                continue
            running = [at for at, run in runs.items() if run[0] <= now < run[1]]
            ends = sorted({now, *(runs[at][1] for at in running)})
            due_s = next(end_s for end_s in ends if fits(oldest, [at for at in running if runs[at][1] > end_s]))
            assert runs[oldest][0] <= due_s + 1e-6, f"seed {seed}, at {now}: job {oldest}"


def test_a_picked_task_that_needs_another_node_lets_others_overtake_it() -> None:
    """Nodes outside the partition of the picked task once counted as free for it: it was due at once, so that nobody
    could end before it.
    """
    cluster = Cluster((Node("a", gpu_type("T4"), 2), Node("b", gpu_type("T4"), 2)))
    queues = QueueTree(partitions=(NodePartition("pa", ("a",)), NodePartition("pb", ("b",))))
    rows = ((100, 2, "pa"), (50, 2, "pa"), (40, 2, "pb"), (40, 1, "pa"))  # seconds, GPUs, partition
    jobs = [
        replace(Job.single(str(at), Task("t", seconds, gpus=gpus), float(at)), partition=part)
        for at, (seconds, gpus, part) in enumerate(rows)
    ]
    kernel = ClusterScenario(cluster, jobs, queues=queues).kernel(0)
    Conversation(kernel).follow(POLICIES.create("committed[backfill=true]"))
    assert starts_in_order(kernel.schedule) == [0, 100, 2, 150]
