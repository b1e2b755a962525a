"""Random clusters and jobs for comparing two kernels, and a function that compares their schedules.
The jobs include ties, tasks without work, gangs and shares of GPUs, on which logs are most likely
to differ. ``scripts/check_engine.py`` compares the engines on them. They have only the features of
the compiled engine; ``cases.random_case`` draws cases with all features.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

from dagsim.metrics import summarize
from dagsim.model import Cluster, Edge, InFlight, Job, Node, Share, Task, TaskGraph, gpu_type
from dagsim.model.log import Schedule
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.cluster.state import JobState, Run
from dagsim.systems.seam import Conversation, drive

TYPES = ("A100-40", "V100-16", "T4")
_SOME = ("hrrn", "themis", "min-min", "sufferage")  # two policies of each of the kinds ``waits`` and ``mapping`` below
KINDS: Mapping[str, tuple[str, ...]] = {
    "strict": ("fifo",),
    "orders": ("fifo-fit", "ljf", "edf", "llf", "priority", "critical-path", "f1", "f2", "f3", "f4"),
    "typed": ("sjf", "saf", "wspt"),
    "waits": ("hrrn", "wfp3", "unicef", "themis"),
    "mapping": ("min-min", "max-min", "sufferage"),
    "jobs": ("srpt-work", "scpt", "sjf-cp"),
    "srtf": ("srtf", "srsf"),
    "las": ("las", "2d-las"),
    "easy": ("easy", "easy-sjf", "easy-lxf"),
    "middle": ("fifo", "priority", "sjf", *_SOME, "srpt-work", "srtf", "las", "2d-las", "easy", "easy-sjf", "easy-lxf"),
    "episodes": (),
    "relative": (),
}
"""Policies by the kind of their order. Those under ``middle`` are simulated from a state with
instances in flight and waiting jobs. ``episodes`` (with the codec ``candidates``) and ``relative``
make random choices, and compare observations and rewards as well."""


def random_cluster(rng: random.Random) -> Cluster:
    """Return a random cluster with nodes of a few types. Some clusters have a node with more GPUs
    than the log can name, or nodes without GPUs.
    """
    names = rng.sample(TYPES, rng.randint(1, 3))
    most = rng.choice((1, 2, 4, 8, 8, 70))
    nodes = []
    for number in range(rng.randint(1, 10)):
        gpus = rng.randint(1, most)
        nodes.append(Node(f"n{number}", gpu_type(rng.choice(names)), gpus, rng.choice((4.0, 8.0, 12.0 * gpus)), 128.0))
    for number in range(rng.choice((0, 0, 1, 2))):
        nodes.insert(rng.randint(0, len(nodes)), Node(f"c{number}", None, 0, rng.choice((4.0, 32.0)), 64.0))
    return Cluster(tuple(nodes))


def random_task(rng: random.Random, name: str, plain: bool) -> Task:
    """Return a task. If ``plain``, it requests only whole GPUs."""
    gpus = rng.choice((1, 1, 2, 4) if plain else (0, 0.1, 0.25, 0.3, 0.5, 0.5, 1, 1, 2, 4))
    gang = not plain and rng.random() < 0.25
    seconds = rng.choice((0.0, 10.0, 20.0, rng.expovariate(0.01), rng.expovariate(0.01)))
    return Task(
        name,
        seconds,
        instances=rng.choice((2, 3, 6, 10, 60 if rng.random() < 0.1 else 4) if gang else (1, 1, 1, 2, 3, 9)),
        gang=gang,
        gpus=gpus,
        cpus=0.0 if plain else rng.choice((0.0, 0.5, 1.0, 2.0, 4.0)),
        memory_gb=0.0 if plain else rng.choice((0.0, 4.0, 16.0)),
        gpu_types=rng.choice((("A100-40",), ("V100-16", "T4"))) if gpus and rng.random() < 0.1 else None,
        speeds={"A100-40": rng.choice((1.0, 2.0, 5.0)), "V100-16": rng.choice((1.0, 2.0))}
        if rng.random() < 0.6
        else None,
        estimate=seconds * rng.choice((0.5, 1.0, 1.0, 3.0)),
    )


def jobs_of(rng: random.Random) -> list[Job]:
    """Return jobs in order of arrival, many of which arrive simultaneously."""
    jobs, now, plain = [], 0.0, rng.random() < 0.3
    for number in range(rng.randint(1, 25)):
        now += rng.choice((0.0, 0.0, 10.0, rng.expovariate(1 / 20)))
        count = rng.randint(1, 6)
        tasks = tuple(random_task(rng, f"t{index}", plain) for index in range(count))
        pairs = [
            (parent, child)
            for child in range(count)
            for parent in rng.sample(range(child), min(child, rng.randint(0, 2)))
        ]
        # sometimes list children before their parents
        places = rng.sample(range(count), count) if rng.random() < 0.3 else range(count)
        edges = tuple(Edge(places[parent], places[child]) for parent, child in pairs)
        deadline_s = now + rng.choice((50.0, 300.0)) if rng.random() < 0.5 else None
        priority, weight = float(rng.randint(0, 2)), rng.choice((1.0, 1.0, 3.0))
        jobs.append(Job(f"j{number}", TaskGraph(tasks, edges), now, priority, "", deadline_s, weight))
    return jobs


def without_shares(job: Job) -> Job:
    """Return the job with whole GPUs instead of shares. On nodes with more GPUs than the log can
    name, the compiled engine supports only whole GPUs.
    """
    tasks = tuple(replace(task, gpus=ceil(task.gpus)) for task in job.graph.tasks)
    return replace(job, graph=TaskGraph(tasks, job.graph.edges))


def in_the_middle(rng: random.Random, cluster: Cluster, jobs: list[Job]) -> tuple[list[Job], float]:
    """Simulate the jobs until a random moment. Return this moment and the unfinished jobs, with the
    instances that are running then.
    """
    begins_s = rng.choice((10.0, 20.0, 30.0, rng.uniform(0.0, 1.5 * jobs[-1].arrival_s + 1.0)))
    kernel = ClusterScenario(cluster, jobs).kernel(0)
    drive(kernel, POLICIES.create(rng.choice(("fifo-fit", "ljf", "sjf"))), begins_s)
    runs = [run for run in kernel.running.values() if run.started_s < begins_s]
    there = [active for active in kernel.frontier.jobs.values() if active.job.arrival_s < begins_s]
    kept = [left_of(rng, active, [run for run in runs if run.task.job is active]) for active in there]
    return [*kept, *(job for job in jobs if job.arrival_s >= begins_s)], begins_s


def left_of(rng: random.Random, active: JobState, runs: Sequence[Run]) -> Job:
    """Return the unfinished part of a job with these runs in flight. Some of the runs are overdue."""
    graph = active.job.graph
    open_ = [index for index, task in enumerate(active.tasks) if task.unfinished]
    place = {index: number for number, index in enumerate(open_)}
    shorter = 0.1 if rng.random() < 0.1 else 1.0
    tasks = [
        replace(graph.tasks[index], instances=active.tasks[index].unfinished, work=shorter * graph.tasks[index].work)
        for index in open_
    ]
    edges = [Edge(place[one], place[other]) for one, other, _ in graph.edges if one in place and other in place]
    flights = []
    for run in runs:
        shares = tuple([Share(machine.index, count) for machine, count, *_ in run.held])
        flights.append(InFlight(run.started_s, shares, place[run.task.index]))
    return replace(active.job, graph=TaskGraph(tuple(tasks), tuple(edges)), in_flight=tuple(flights))


def compiled_schedule(cluster: Cluster, jobs: Sequence[Job], policy: str, *, seed: int = 0, **models: Any) -> Schedule:
    """Return the schedule of the compiled engine."""
    kernel = ClusterScenario(cluster, jobs, engine="compiled", **models).engaged(policy, seed).kernel
    Conversation(kernel)  # this call simulates to the end
    return kernel.schedule


def equal(one: Schedule, other: Schedule) -> bool:
    """Return True if two schedules and their metrics are equal in every byte."""
    same = one.log == other.log and one.jobs == other.jobs and one.seed == other.seed
    same = same and (one.begins_s, one.ended_s) == (other.begins_s, other.ended_s)
    return same and repr(summarize(one)) == repr(summarize(other))
