"""Lower bounds against enumerated optima and against schedules: ``python scripts/validate_bound.py [--json]``.

- On ``--instances`` small random instances (shares of GPUs, gangs, independent instances, DAGs, two GPU types, several
  nodes) every schedule that can be best is enumerated. No bound may lie above the optimum, and the one that
  ``dagsim bound`` prints must be at least 98 % of it.
- On ``--scenarios`` random scenarios with all features of the kernel (``dagsim.testing.random_case``: failures,
  networks, set-ups, preemption, CPUs and memory), no bound may lie above the sum of completion times under a policy of
  the package. Policies that stop runs are compared with the bound that includes such schedules.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from statistics import fmean
from typing import NamedTuple

import command
import numpy as np

from dagsim import simulate
from dagsim.errors import InputError
from dagsim.families.bounds.bound import scenario_bound
from dagsim.families.bounds.lagrangian import lagrangian
from dagsim.families.bounds.relaxation import relaxation_of
from dagsim.model import Cluster, Edge, Job, Node, Task, TaskGraph, gpu_type
from dagsim.report.terminal import counted
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.testing import random_case
from dagsim.testing.cases import Case
from dagsim.workload.arrays import JobArrays

_EVERY = 20
"""Every 20th scenario is also solved by the integer program, which takes seconds."""
POLICIES = (
    "fifo",
    "fifo-fit",
    "sjf",
    "srpt-work",
    "sjf-cp",
    "easy",
    "heft",
    "eft-wait[theta=0.7,order=work]",
    "random",
)
PREEMPTIVE = ("srtf", "las", "tiresias")


class Check(NamedTuple):
    """A bound beside the sum of completion times that it must not exceed."""

    name: str
    bound_s: float
    kind: str
    sum_s: float
    best: bool = False
    """True for the bound that the command prints, of a small case."""

    @property
    def ratio(self) -> float:
        """Bound over sum."""
        return self.bound_s / self.sum_s if self.sum_s else 1.0

    @property
    def holds(self) -> bool:
        """True if the bound is not above the sum."""
        return self.bound_s <= self.sum_s * (1 + 1e-12)


def instance(seed: int) -> Case:
    """A random instance of at most five runs, with whole or arbitrary seconds."""
    rng = np.random.default_rng(seed)
    whole, pooled = rng.random() < 0.6, rng.random() < 0.6
    nodes = []
    for name in ("A100-40", "T4")[: 1 + int(rng.random() < 0.7)]:
        for number in range(1 if pooled else 2):
            nodes.append(Node(f"{name}-{number}", gpu_type(name), int(rng.integers(1, 4)), 64.0, 256.0))
    jobs, left, arrival_s = list[Job](), 5, 0.0
    while left:
        count = int(rng.integers(1, min(left, 3) + 1))
        tasks = []
        for at in range(count):
            work = float(rng.integers(1, 9)) * 2 if whole else float(rng.lognormal(1.2, 0.8))
            gang = pooled and rng.random() < 0.25
            instances = int(rng.integers(2, 4)) if gang else 1 + int(rng.random() < 0.2 and left > count)
            left -= 1 if gang else instances
            gpus = float(rng.choice((0.5, 1, 1, 1, 2)))
            speeds = (
                {"A100-40": float(rng.choice((1, 2))), "T4": 1.0} if rng.random() < 0.8 else {"A100-40": 1.0, "T4": 2.0}
            )
            tasks.append(Task(f"t{at}", work, instances, gang, gpus, speeds=speeds))
            if left <= 0:
                break
        edges = [Edge(one, other) for other in range(len(tasks)) for one in range(other) if rng.random() < 0.6]
        jobs.append(Job(f"j{len(jobs)}", TaskGraph(tuple(tasks), tuple(edges)), arrival_s))
        left = max(left, 0)
        arrival_s += float(rng.integers(0, 5)) if whole else float(rng.exponential(2.0))
    return Case(Cluster(tuple(nodes)), jobs)


class _Run(NamedTuple):
    """A copy of a task that is to be placed once, on one node, or on one node that takes a whole gang."""

    job: int
    parents: tuple[tuple[int, int], ...]
    name: tuple[int, int]
    gpus: float
    seconds: list[float]
    """By node; inf where it does not fit."""


def least_sum(case: Case) -> float:
    """The least sum over jobs of completion minus arrival, by trying every order of all runs on all nodes.

    Each run in turn starts as early as it can beside the runs before it. Some order gives every schedule in which no
    run can start earlier alone, and one of these is best, because the sum only grows with completions. Jobs that cannot
    run count nothing. The seconds of a run are its work over its speed.
    """
    runs, arrivals = _runs(case)
    search = _Search(runs, [float(node.gpus) for node in case.cluster.nodes], arrivals)
    search.extend([], [])
    return search.least_s


def _runs(case: Case) -> tuple[list[_Run], list[float]]:
    runs, arrivals = [], []
    for number, job in enumerate(case.jobs):
        mine = []
        for index, task in enumerate(job.tasks):
            width = task.gpus * (task.instances if task.gang else 1)
            seconds = [
                inf
                if task.speeds is None or node.gpu is None or not _holds(task, node.gpus)
                else task.work / task.speeds[node.gpu.name]
                for node in case.cluster.nodes
            ]
            parents = tuple((number, parent) for parent in job.graph.parents[index])
            for _ in range(1 if task.gang else task.instances):
                mine.append(_Run(number, parents, (number, index), width, seconds))
        possible = all(min(run.seconds) < inf for run in mine)
        arrivals.append(job.arrival_s)
        runs += mine if possible else []
    return runs, arrivals


def _holds(task: Task, gpus: int) -> bool:
    """True if a node of ``gpus`` GPUs holds an instance, or the whole gang."""
    count = task.instances if task.gang else 1
    per_gpu = int(1 / task.gpus) if task.gpus < 1 else 1
    return gpus * per_gpu >= count if task.gpus < 1 else gpus >= task.gpus * count


class _Search:
    """The search over all orders; ``least_s`` is the least sum so far."""

    def __init__(self, runs: list[_Run], gpus: list[float], arrivals: list[float]) -> None:
        self.runs, self.gpus, self.arrivals = runs, gpus, arrivals
        self.least_s = inf if runs else 0.0

    def extend(self, placed: list[tuple[int, int, float, float]], order: list[int]) -> None:
        """Place one more run, in every way; ``placed`` has run, node, start and end of those before."""
        ends: dict[int, float] = {}
        for number, _, _, end_s in placed:
            job = self.runs[number].job
            ends[job] = max(ends.get(job, 0.0), end_s)
        if sum(end_s - self.arrivals[job] for job, end_s in ends.items()) >= self.least_s:
            return
        if len(order) == len(self.runs):
            self.least_s = sum(end_s - self.arrivals[job] for job, end_s in ends.items())
            return
        left = {self.runs[number].name for number in range(len(self.runs)) if number not in order}
        tried = set()
        for number, run in enumerate(self.runs):
            if number in order or run.name in tried or left & set(run.parents):
                continue
            tried.add(run.name)  # copies of a task are alike
            ready_s = max(
                [self.arrivals[run.job], *(end for one, _, _, end in placed if self.runs[one].name in run.parents)]
            )
            for node, seconds in enumerate(run.seconds):
                if seconds < inf:
                    start_s = self._start(placed, node, run.gpus, ready_s, seconds)
                    self.extend([*placed, (number, node, start_s, start_s + seconds)], [*order, number])

    def _start(
        self, placed: list[tuple[int, int, float, float]], node: int, gpus: float, ready_s: float, seconds: float
    ) -> float:
        """The earliest start from which the node has room for all of the run."""
        mine = [(start_s, end_s, self.runs[one].gpus) for one, at, start_s, end_s in placed if at == node]
        for start_s in sorted({ready_s, *(end_s for _, end_s, _ in mine if end_s > ready_s)}):
            during = [start_s, *(begin_s for begin_s, _, _ in mine if start_s < begin_s < start_s + seconds)]
            used = [sum(held for begin_s, end_s, held in mine if begin_s <= at < end_s) for at in during]
            if max(used) + gpus <= self.gpus[node] + 1e-9:
                return start_s
        raise AssertionError("a node is empty after its last run")


def against_optimum(seeds: range) -> Iterator[Check]:
    """The bounds of small instances beside their optima: the best bound, and the Lagrangian ones."""
    for seed in seeds:
        case = instance(seed)
        optimum_s = least_sum(case)
        if not optimum_s:
            continue
        best = scenario_bound(ClusterScenario(case.cluster, case.jobs), 0)
        problem = relaxation_of(JobArrays.of(case.jobs), case.cluster, Recorded())
        yield Check(f"instance {seed}", best.bound_s, best.kind, optimum_s, best=True)
        for breaks in (False, True):
            bound_s = lagrangian(problem, preemptive=breaks).bound_s
            yield Check(f"instance {seed}", bound_s, "with breaks" if breaks else "lagrangian", optimum_s)


def against_policies(seeds: range) -> Iterator[Check]:
    """The bounds of random scenarios beside the sums under two policies each; every other scenario has policies that
    stop runs, and the bound that includes them.
    """
    for seed in seeds:
        case = random_case(seed)
        scenario = ClusterScenario(case.cluster, case.jobs, **case.models)
        preemptive = seed % 2 == 1
        names = PREEMPTIVE if preemptive else POLICIES
        try:
            least = scenario_bound(scenario, case.seed, preemptive=preemptive, program=seed % _EVERY == 0)
        except InputError:  # no job can run
            continue
        for policy in (names[(seed // 2 + step) % len(names)] for step in (0, 1)):
            summary = simulate(case.jobs, case.cluster, policy, case.seed, **case.models).summary
            if summary.jobs_completed == least.jobs:
                sum_s = summary.jct_s.mean * summary.jobs_completed
                yield Check(f"scenario {seed}, {policy}", least.bound_s, least.kind, sum_s)


def _by_kind(checks: list[Check]) -> dict[str, list[Check]]:
    kinds = dict.fromkeys(check.kind for check in checks)
    return {kind: [check for check in checks if check.kind == kind] for kind in kinds}


def _work(options: command.Options, say: command.Say) -> dict[str, list[Check]]:
    watch = counted("validating", not options.json, "bounds", every=1)
    optima = list(watch(against_optimum(range(options.first, options.first + options.instances))))
    policies = list(watch(against_policies(range(options.first, options.first + options.scenarios))))
    for title, checks in {**_by_kind(optima), "policies": policies}.items():
        of = [check.ratio for check in checks] or [float("nan")]
        say(
            f"{title}: {len(checks)} bounds, bound / sum mean {fmean(of):.4f}, least {min(of):.4f}, most {max(of):.12f}"
        )
    for check in (*optima, *policies):
        if not check.holds:
            say(f"ABOVE: {check.name}: {check.kind} bound {check.bound_s!r} s, sum {check.sum_s!r} s")
    return {"optima": optima, "policies": policies}


def tight(check: Check) -> bool:
    """True unless the best bound of an instance is more than 2 % below its optimum."""
    return not check.best or check.ratio >= 0.98


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--instances", type=int, default=200, help="small instances to enumerate (default 200)")
    parser.add_argument("--scenarios", type=int, default=1000, help="random scenarios to play (default 1000)")
    parser.add_argument("--first", type=int, default=0, help="first seed of both (default 0)")
    return command.run(
        parser,
        _work,
        holds=lambda parts: all(check.holds and tight(check) for checks in parts.values() for check in checks),
        convert=lambda parts: {
            name: [{**check._asdict(), "ratio": check.ratio, "holds": check.holds} for check in checks]
            for name, checks in parts.items()
        },
    )


if __name__ == "__main__":
    raise SystemExit(main())
