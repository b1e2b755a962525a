"""How costs grow: CPU time of whole runs, as a multiple of a bare ``heapq`` loop on as many tasks.

    python scripts/bench_scale.py [--policy NAME ...] [--series NAME ...] [--largest N] [--workers N] [--json]
                                  [--out FILE]

Series, each for growing sizes: ``whole``, ``cpus`` and ``shares`` (nodes: whole GPUs; GPUs with CPUs and memory;
fractions of GPUs where CPUs are scarce), ``pending`` (tasks that all wait at the start), ``width`` (tasks side by
side in a job) and ``types`` (of GPU). A series is flat if no size takes more than twice the multiple of the smallest.
Without ``--policy`` nodes are measured under ``fifo-fit`` and ``sjf``, the rest under every policy that is not costly
by definition. The bare loop (``bare``) knows slots instead of nodes: two heaps, no policy, no records. Each run
is timed in the same process as its bare loop, so several processes (one for each core) measure the same multiples.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from heapq import heappop, heappush
from statistics import median
from typing import Any

import command
from clock import cpu_s, median_s

from dagsim.model import Cluster, Job, Task, TaskGraph
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario

Case = tuple[Cluster, list[Job], int]
"""The cluster, the jobs, and about how many tasks run at once."""

MEAN_S = 100.0
GPUS = 8
"""Number of GPUs of a node."""
TYPES = ("A100-40", "V100", "P100", "T4", "K80", "H100", "A10", "L4")


def arriving(tasks: list[Task], slots: int, load: float = 1.0) -> list[Job]:
    """Jobs of one task each, arriving at random so that about ``load`` of the slots are busy."""
    rng = random.Random(len(tasks))
    now, jobs = 0.0, []
    for number, task in enumerate(tasks):
        jobs.append(Job.single(f"j{number}", task, now))
        now += rng.expovariate(load * slots / MEAN_S)
    return jobs


def seconds(rng: random.Random) -> float:
    """Duration without a heavy tail: 50 % to 150 % of the mean."""
    return MEAN_S * (0.5 + rng.random())


def on_nodes(nodes: int, slots_per_node: int, room: dict[str, Any], **asked: Sequence[Any]) -> Case:
    """Tasks on nodes with CPUs and memory per GPU (``room``). Each asks for one of the given amounts."""
    rng, slots = random.Random(nodes), nodes * slots_per_node
    tasks = [
        Task("t", seconds(rng), **{name: rng.choice(amounts) for name, amounts in asked.items()})
        for _ in range(max(4_000, 3 * slots))
    ]
    return Cluster.of({"V100": nodes * GPUS}, per_node=GPUS, **room), arriving(tasks, slots), slots


def whole(nodes: int) -> Case:
    """Tasks of 1, 2 or 4 whole GPUs."""
    return on_nodes(nodes, GPUS // 2, {}, gpus=(1, 1, 2, 4))


def cpus(nodes: int) -> Case:
    """Whole GPUs with CPUs and memory. Each of the three may run out first."""
    room = {"cpus_per_gpu": 8.0, "memory_gb_per_gpu": 64.0}
    return on_nodes(nodes, GPUS // 2, room, gpus=(1, 1, 2, 4), cpus=(4, 8, 16), memory_gb=(16, 64))


def shares(nodes: int) -> Case:
    """Fractions of a GPU where CPUs run out first: many GPUs are partly used, few nodes have room."""
    room = {"cpus_per_gpu": 4.0, "memory_gb_per_gpu": 32.0}
    return on_nodes(nodes, GPUS, room, gpus=(0.1, 0.25, 0.3, 0.5), cpus=(2, 4, 6), memory_gb=(4, 16))


def pending(tasks: int) -> Case:
    """Tasks that all wait at the start, on 32 GPUs."""
    rng = random.Random(tasks)
    jobs = [Job.single(f"j{number}", Task("t", seconds(rng), gpus=rng.choice((1, 2)))) for number in range(tasks)]
    return Cluster.of({"V100": 16, "T4": 16}), jobs, 21


def width(tasks: int) -> Case:
    """Jobs with this many parallel tasks, and one task that waits for all of them."""
    rng = random.Random(tasks)
    jobs = []
    for number in range(max(1, 8_192 // tasks)):
        side = [Task(f"t{index}", seconds(rng)) for index in range(tasks - 1)]
        graph = TaskGraph.of([*side, Task("last", seconds(rng))], {"last": [task.name for task in side]})
        jobs.append(Job(f"j{number}", graph, number * tasks * MEAN_S / 32))
    return Cluster.of({"V100": 16, "T4": 16}), jobs, 32


def types(count: int) -> Case:
    """64 GPUs of this many types."""
    rng = random.Random(count)
    tasks = [Task("t", seconds(rng), gpus=rng.choice((1, 2))) for _ in range(8_000)]
    return Cluster.of(dict.fromkeys(TYPES[:count], 64 // count)), arriving(tasks, 40), 40


def bare(jobs: list[Job], slots: int) -> int:
    """Run all tasks, oldest first, on ``slots`` slots, and count their ends."""
    open_parents = [[len(parents) for parents in job.graph.parents] for job in jobs]
    events: list[tuple[float, int, int]] = []
    ready: list[tuple[int, int]] = []
    arrived, ended, count = 0, 0, len(jobs)
    while arrived < count or events:
        if arrived < count and (not events or jobs[arrived].arrival_s <= events[0][0]):
            now = jobs[arrived].arrival_s
            for task, parents in enumerate(open_parents[arrived]):
                if not parents:
                    heappush(ready, (arrived, task))
            arrived += 1
        else:
            now, job, task = heappop(events)
            ended += 1
            for child in jobs[job].graph.children[task]:
                open_parents[job][child] -= 1
                if not open_parents[job][child]:
                    heappush(ready, (job, child))
        while ready and len(events) < slots:
            job, task = heappop(ready)
            heappush(events, (now + jobs[job].graph.tasks[task].work, job, task))
    return ended


NODES = (8, 4_000)
SERIES: dict[str, tuple[Callable[[int], Case], tuple[int, ...]]] = {
    "whole": (whole, NODES),
    "cpus": (cpus, NODES),
    "shares": (shares, NODES),
    "pending": (pending, (1_000, 30_000)),
    "width": (width, (16, 4_096)),
    "types": (types, (1, 8)),
}
NODE_POLICIES = ("fifo-fit", "sjf")
"""The index of nodes is the same for all."""
ENOUGH_S = 0.25
"""CPU seconds of runs that give a steady multiple."""


def multiple(case: Case, policy: str, repeats: int) -> float:
    """CPU time of a run under the policy as a multiple of the bare loop: median of runs in turn.

    A short run is repeated until the runs have taken ``ENOUGH_S``, because its time alone says little.
    """
    cluster, jobs, slots = case
    ratios: list[float] = []
    spent_s = 0.0
    while len(ratios) < repeats or spent_s < ENOUGH_S:
        bare_s = median_s(lambda: bare(jobs, slots), 3)
        scenario = ClusterScenario(cluster, jobs)
        chosen = POLICIES.create(policy, seed=1)
        run_s = cpu_s(lambda scenario=scenario, chosen=chosen: scenario.kernel(1).run(chosen))  # type: ignore[misc]
        ratios.append(run_s / bare_s)
        spent_s += run_s
    return median(ratios)


def policies() -> list[str]:
    """Policies that are not costly by definition and need nothing that a workload may lack."""
    return [entry.name for entry in POLICIES.describe() if "costly" not in entry.tags and entry.name != "recorded"]


def share(series: str, size: int, names: Sequence[str], repeats: int) -> list[tuple[str, int, float]]:
    """Measure some policies at one size of a series: its name with that of the policy, the size and the multiple."""
    case = SERIES[series][0](size)
    return [(f"{series} {name}", size, round(multiple(case, name, repeats), 2)) for name in names]


def measured(options: command.Options) -> Iterator[tuple[str, int, float]]:
    """Yield the rows of ``share`` for all series. The workers measure different policies of one series and size."""
    with ProcessPoolExecutor(options.workers) as pool:
        for series in options.series or SERIES:
            sizes = SERIES[series][1]
            names = options.policy or (NODE_POLICIES if sizes is NODES else policies())
            for size in (size for size in sizes if size <= options.largest):
                parts = [names[first :: options.workers] for first in range(options.workers)]
                parts_of_case = partial(share, series, size, repeats=options.repeats)
                for rows in pool.map(parts_of_case, filter(None, parts)):
                    yield from rows


def growth(multiples: dict[int, float]) -> float:
    """Ratio of the largest multiple to that of the smallest size."""
    return max(multiples.values()) / multiples[min(multiples)]


def _work(options: command.Options, say: command.Say) -> dict[str, dict[int, float]]:
    multiples: dict[str, dict[int, float]] = {}
    for series, size, times in measured(options):
        multiples.setdefault(series, {})[size] = times
        say(f"{series:28} {size:9,} {times:9.1f} x bare")
    say("\nlargest over smallest, above 2:")
    for series, by_size in sorted(multiples.items(), key=lambda pair: -growth(pair[1])):
        if growth(by_size) > 2:
            say(f"{series:28} {growth(by_size):9.1f}")
    return multiples


def main() -> int:
    parser = command.arguments(__doc__, out=True)
    parser.add_argument("--policy", action="append", help="only this one; repeatable")
    parser.add_argument("--series", action="append", choices=list(SERIES), help="only this one; repeatable")
    parser.add_argument("--largest", type=int, default=1_000_000, help="leave out larger sizes")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--workers", type=command.at_least_one, default=os.cpu_count() or 1, help="processes")
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())
