"""The kernel's clock against SimPy's own: the same model on ``simpy.Environment`` writes the same log."""

from __future__ import annotations

import pytest
import simpy

from dagsim.model import Cluster, Edge, Job, Kind, Node, Task, TaskGraph, gpu_type
from dagsim.model.streams import stream
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.policies import POLICIES


def stock(jobs: list[Job], gpus: int) -> list[tuple[int, float, int, int]]:
    """First come, first served among the ready one-GPU tasks, by plain SimPy processes."""
    env, log, ready, free = simpy.Environment(), [], [], gpus
    missing = [[len(parents) for parents in job.graph.parents] for job in jobs]
    left = [len(job.tasks) for job in jobs]

    def arrive(number: int, job: Job) -> simpy.events.ProcessGenerator:
        yield env.timeout(job.arrival_s)
        log.append((Kind.ARRIVED, env.now, number, -1))
        ready.extend((number, task) for task, parents in enumerate(missing[number]) if not parents)

    def work(number: int, task: int) -> simpy.events.ProcessGenerator:
        nonlocal free
        yield env.timeout(jobs[number].tasks[task].work)
        free += 1
        log.append((Kind.FINISHED, env.now, number, task))
        for child in jobs[number].graph.children[task]:
            missing[number][child] -= 1
            if not missing[number][child]:
                ready.append((number, child))
        left[number] -= 1
        if not left[number]:
            log.append((Kind.COMPLETED, env.now, number, -1))

    for number, job in enumerate(jobs):
        env.process(arrive(number, job))
    while env.peek() < float("inf"):
        now = env.peek()
        while env.peek() == now:
            env.step()
        while ready and free:
            number, task = min(ready)
            ready.remove((number, task))
            free -= 1
            log.append((Kind.STARTED, env.now, number, task))
            env.process(work(number, task))
    return log


@pytest.mark.parametrize("seed", range(5))
def test_stock_simpy_writes_the_same_log(seed: int) -> None:
    # Multiples of 1/1024 are exact in binary, so that now + delay is exact.
    rng = stream(seed, "stock")
    jobs, at = [], 1 / 1024
    for number in range(40):
        count = int(rng.integers(1, 5))
        tasks = tuple(Task(f"t{index}", float(rng.integers(1, 40)) / 8) for index in range(count))
        edges = [Edge(parent, child) for child in range(count) for parent in range(child) if rng.random() < 0.4]
        jobs.append(Job(f"j{number}", TaskGraph(tasks, tuple(edges)), at))
        at += float(rng.integers(1, 16)) / 8 + 1 / 1024
    schedule = ClusterKernel(Cluster((Node("n", gpu_type("T4"), 3),)), jobs).run(POLICIES.create("fifo-fit"))
    rows = [(row.kind, row.time_s, row.job, row.task) for row in schedule.log]
    assert rows == stock(jobs, 3)
