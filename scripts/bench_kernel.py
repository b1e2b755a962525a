"""CPU time of the kernel: microseconds per task, compared with a bare ``heapq`` loop that makes the
same schedule.

    python scripts/bench_kernel.py [--tasks 100000] [--repeats 3] [--large] [--json]

The bare loop (``bare_fifo``) has no engine, no policy interface and no checks. It uses arrays of
numbers, three heaps (events, ready tasks, free GPUs) and one row per start and end. It decides like
``fifo``; the script asserts the same start, end and GPU for every task. Both run in turn in one
process, so that the ratio holds when the machine's speed drifts. The script prints the median.
``--large`` adds ten times as many tasks.

``bare_us``, ``kernel_us``, ``engine_us``, ``engine_4000_nodes_us`` and ``simpy_idiom_us`` measure the
same jobs, again in turn:

- the bare loop and the kernel;
- the compiled engine on one node and on 4,000 (full records, from columns; left out without numba);
- a model in the style of SimPy's documentation: a process per task, a resource, no records.

``custom_above_us`` is what a decision costs under a policy in Python that keeps to ``decide(view)``
(``InOrder``), above the policy's own code: the CPU time of the whole run, divided by the decisions,
less ``custom_own_us``, which is the time that the same code takes on a view that does nothing.
Arrivals, ends, the log and the methods of the view that the policy calls are therefore in
``custom_above_us``.
"""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Generator, Iterator
from heapq import heappop, heappush
from math import isclose
from statistics import median
from typing import Any

import command
import numpy as np
import simpy
from clock import cpu_s, in_turn, median_s
from simpy.events import Event

from dagsim.families.compiled.choice import plan_for
from dagsim.families.compiled.drive import whole_log as run_columns
from dagsim.families.compiled.jit import jitted
from dagsim.families.compiled.reading import EngineScenario, read_scenario
from dagsim.model import Cluster, Decision, Edge, Job, Kind, Placement, Start, Task, TaskGraph
from dagsim.model.log import Schedule
from dagsim.systems.cluster import Estimates, MovingDelay, NodeFailures, UniformNetwork
from dagsim.systems.cluster.models.kept_work import Preemption
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.workload.arrays import JobArrays

TASKS_PER_JOB = 8
GPUS = 32
MEAN_S = 100.0


def dag_jobs(tasks: int, *, instances: int = 1, load: float = 0.9, bytes_: float = 0.0) -> list[Job]:
    """Random layered DAG jobs of single-GPU tasks with one or two parents each, Poisson arrivals at ``load``."""
    rng = random.Random(1)
    mean_gap_s = TASKS_PER_JOB * instances * MEAN_S / (load * GPUS)
    jobs, now = [], 0.0
    for number in range(tasks // TASKS_PER_JOB):
        now += rng.expovariate(1 / mean_gap_s)
        listed = tuple(Task(str(i), rng.expovariate(1 / MEAN_S), instances=instances) for i in range(TASKS_PER_JOB))
        edges = tuple(
            Edge(parent, child, bytes_)
            for child in range(1, TASKS_PER_JOB)
            for parent in rng.sample(range(child), min(child, rng.randint(1, 2)))
        )
        jobs.append(Job(f"j{number}", TaskGraph(listed, edges), now))
    return jobs


def single_jobs(tasks: int) -> list[Job]:
    """Independent single-GPU tasks that all arrive at once, so that every task is pending."""
    rng = random.Random(2)
    return [Job.single(f"j{number}", Task("t", rng.expovariate(1 / MEAN_S))) for number in range(tasks)]


def bare_fifo(jobs: list[Job]) -> list[tuple[float, int, int, int, int]]:
    """Make the schedule of ``fifo`` on one node with heaps only.

    Rows are (time, started or finished, job, task, GPU).
    """
    work = [[task.work for task in job.graph.tasks] for job in jobs]
    children = [job.graph.children for job in jobs]
    missing = [[len(parents) for parents in job.graph.parents] for job in jobs]
    arrivals = [job.arrival_s for job in jobs]
    events: list[tuple[float, int, int, int, int]] = []
    ready: list[tuple[int, int]] = []
    free = list(range(GPUS))
    rows: list[tuple[float, int, int, int, int]] = []
    arrived, started, count = 0, 0, len(jobs)
    while arrived < count or events:
        if arrived < count and (not events or arrivals[arrived] < events[0][0]):
            now = arrivals[arrived]
            for task, open_parents in enumerate(missing[arrived]):
                if not open_parents:
                    heappush(ready, (arrived, task))
            arrived += 1
        else:
            now, _, job, task, gpu = heappop(events)
            heappush(free, gpu)
            rows.append((now, 1, job, task, gpu))
            open_parents_of = missing[job]
            for child in children[job][task]:
                open_parents_of[child] -= 1
                if not open_parents_of[child]:
                    heappush(ready, (job, child))
        while free and ready:
            job, task = heappop(ready)
            gpu = heappop(free)
            rows.append((now, 0, job, task, gpu))
            heappush(events, (now + work[job][task], started, job, task, gpu))
            started += 1
    return rows


class InOrder:
    """A policy as a user writes it: start the ready tasks in their order, until one does not fit."""

    def decide(self, view: Any) -> Iterator[Decision]:
        for task in view.ready:
            placement = view.fit(task)
            if placement is None:
                return
            yield Start(task, placement)


class NoView:
    """A view of one task that always fits, for the time that ``InOrder`` itself takes."""

    ready = (None,)

    def fit(self, task: object) -> Placement:
        return ()


def custom(jobs: list[Job], tasks: int, repeats: int) -> dict[str, float]:
    """Microseconds per decision of a policy in Python: of the whole run, of its own code, and of the rest."""
    view = NoView()

    def own() -> None:
        decide = InOrder().decide
        for _ in range(tasks):
            for _decision in decide(view):
                pass

    ways: dict[str, Callable[[], object]] = {
        "custom_us": lambda: ClusterScenario(one_node(), jobs).kernel(0).run(InOrder()),
        "custom_own_us": own,
    }
    cost_us = {name: spent_s / tasks * 1e6 for name, spent_s in in_turn(ways, repeats).items()}
    return {**cost_us, "custom_above_us": cost_us["custom_us"] - cost_us["custom_own_us"]}


def one_node() -> Cluster:
    """Put all GPUs on one node, so that both loops take the lowest free GPU."""
    return Cluster.of({"V100": GPUS}, per_node=GPUS)


def simulate(jobs: list[Job], policy: str, cluster: Cluster | None = None, **models: object) -> Schedule:
    """Run once with full records."""
    simulation = ClusterScenario(cluster or one_node(), jobs, **models).kernel(0)  # type: ignore[arg-type]
    return simulation.run(POLICIES.create(policy))


def simpy_idiom(jobs: list[Job]) -> list[tuple[float, int, int]]:
    """Make the schedule of ``fifo`` with a process per task and a resource. Rows are (end, job,
    task).
    """
    env = simpy.Environment()
    gpus = simpy.PriorityResource(env, GPUS)
    missing = [[len(parents) for parents in job.graph.parents] for job in jobs]
    rows: list[tuple[float, int, int]] = []

    def execute(job: int, task: int) -> Generator[Event]:
        graph = jobs[job].graph
        with gpus.request(priority=(job, task)) as turn:  # type: ignore[arg-type]  # SimPy only compares it
            yield turn
            yield env.timeout(graph.tasks[task].work)
            rows.append((env.now, job, task))
            for child in graph.children[task]:
                missing[job][child] -= 1
                if not missing[job][child]:
                    env.process(execute(job, child))
            yield env.timeout(0)  # children queue up before the GPU goes to whoever is next

    def arrive() -> Generator[Event]:
        for number, job in enumerate(jobs):
            yield env.timeout(job.arrival_s - env.now)
            for task, parents in enumerate(job.graph.parents):
                if not parents:
                    env.process(execute(number, task))

    env.process(arrive())
    env.run()
    return rows


def same_schedule(schedule: Schedule, rows: list[tuple[float, int, int, int, int]]) -> bool:
    """True if every task started and ended at the same time on the same GPU in both."""
    log = [
        (row.time_s, int(row.kind == Kind.FINISHED), row.job, row.task, row.gpus.bit_length() - 1)
        for row in schedule.log
        if row.kind in (Kind.STARTED, Kind.FINISHED)
    ]
    return sorted(log) == sorted(rows)


def against_bare(tasks: int, repeats: int) -> dict[str, float]:
    """Run the DAG replay with kernel and bare loop in turn."""
    jobs = dag_jobs(tasks)
    assert same_schedule(simulate(jobs, "fifo"), bare_fifo(jobs)), "the bare loop made another schedule"
    pairs = [(cpu_s(lambda: bare_fifo(jobs)), cpu_s(lambda: simulate(jobs, "fifo"))) for _ in range(repeats)]
    return {
        "bare_us": median(bare_s for bare_s, _ in pairs) / tasks * 1e6,
        "kernel_us": median(kernel_s for _, kernel_s in pairs) / tasks * 1e6,
        "ratio": median(kernel_s / bare_s for bare_s, kernel_s in pairs),
    }


def same_ends(rows: list[tuple[float, int, int]], schedule: Schedule) -> bool:
    """True if every task ended at the same time in both, up to rounding of summed delays."""
    ended = {(job, task): time_s for time_s, job, task in rows}
    log = [row for row in schedule.log if row.kind == Kind.FINISHED]
    return len(log) == len(ended) and all(isclose(ended[row.job, row.task], row.time_s, rel_tol=1e-9) for row in log)


def side_by_side(tasks: int, repeats: int) -> dict[str, float]:
    """Run the DAG replay with every program that makes the same schedule."""
    jobs = dag_jobs(tasks)
    schedule = simulate(jobs, "fifo")
    assert same_ends(simpy_idiom(jobs), schedule), "the model of processes made another schedule"
    ways: dict[str, Callable[[], object]] = {
        "bare_us": lambda: bare_fifo(jobs),
        "kernel_us": lambda: simulate(jobs, "fifo"),
        "simpy_idiom_us": lambda: simpy_idiom(jobs),
    }
    if jitted():
        one, many = (scene_of(cluster, jobs) for cluster in (one_node(), Cluster.of({"V100": 32_000}, per_node=8)))
        assert compiled(one).tobytes() == schedule.log.rows().tobytes(), "the compiled engine made another schedule"
        ways["engine_us"], ways["engine_4000_nodes_us"] = lambda: compiled(one), lambda: compiled(many)
    return {name: spent_s / tasks * 1e6 for name, spent_s in in_turn(ways, repeats).items()}


def scene_of(cluster: Cluster, jobs: list[Job]) -> EngineScenario:
    """Return the jobs on the cluster as the compiled engine's columns."""
    return read_scenario(cluster, JobArrays.of(jobs), Recorded(), Estimates(), 0)


def compiled(scene: EngineScenario, policy: str = "fifo") -> np.ndarray:
    """Return the log of one run of the compiled engine."""
    return run_columns(scene, plan_for(policy, Preemption()))[0]


def bytes_per_task(tasks: int) -> float:
    """Peak memory of a run per task, including the jobs (created lazily, as by a reader)."""
    tracemalloc.start()
    jobs = iter(dag_jobs(tasks))
    ClusterScenario(one_node(), jobs).kernel(0).run(POLICIES.create("fifo"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / tasks


def measure(tasks: int, repeats: int, large: bool) -> dict[str, float]:
    """Return every figure by name."""
    out = side_by_side(tasks, repeats)
    sizes = {"": tasks, "_10x": 10 * tasks} if large else {"": tasks}
    for suffix, size in sizes.items():
        for name, value in against_bare(size, repeats if size == tasks else 1).items():
            out[f"dag_fifo{suffix}_{name}"] = value

    jobs, pending, wide = dag_jobs(tasks), single_jobs(tasks), dag_jobs(tasks // 10, instances=20)
    heavy, four = dag_jobs(tasks, bytes_=1e9), Cluster.of({"V100": GPUS})

    def middle(name: str, jobs: list[Job], policy: str = "fifo", count: int = tasks, **models: object) -> None:
        out[name] = median_s(lambda: simulate(jobs, policy, **models), repeats) / count * 1e6  # type: ignore[arg-type]

    for policy in ("fifo-fit", "sjf", "srtf", "eft-wait"):
        middle(f"dag_{policy}_us", jobs, policy)
    for policy in ("fifo", "sjf", "srtf"):
        middle(f"pending_{policy}_us", pending, policy)
    out |= custom(jobs, tasks, repeats)
    costs = [out[f"pending_{policy}_us"] for policy in ("fifo", "sjf", "srtf")]
    out["pending_spread"] = max(costs) / min(costs)
    middle("instances20_us_per_instance", wide, count=tasks // 10 * 20)
    out["instances20_share_of_single"] = out["instances20_us_per_instance"] / out["dag_fifo_kernel_us"]
    middle("setup_us", jobs, setup=MovingDelay(2.0), cluster=four)
    middle("network_us", heavy, network=UniformNetwork(), cluster=four)
    middle("failures_us", jobs, failures=(NodeFailures(1e5, 1e3),), cluster=four)
    out["bytes_per_task"] = bytes_per_task(tasks)
    return out


def _work(options: command.Options, say: command.Say) -> dict[str, float]:
    figures = measure(options.tasks, options.repeats, options.large)
    say(figures)
    return figures


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--tasks", type=int, default=100_000, help="tasks per run (default 100000)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each case (default 3)")
    parser.add_argument("--large", action="store_true", help="also ten times as many tasks")
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())
