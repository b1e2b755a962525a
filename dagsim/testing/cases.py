"""Difficult random cases: small clusters and jobs on which schedulers tend to fail, with a kernel for
each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from dagsim.model import Admit, Cluster, Decision, Edge, Job, Node, Reject, Task, TaskGraph, gpu_type
from dagsim.model.arithmetic import DAY_S
from dagsim.model.log import Schedule
from dagsim.model.streams import stream
from dagsim.systems.cluster import (
    ClusterKernel,
    ClusterPolicy,
    ClusterView,
    Estimates,
    Maintenance,
    MovingDelay,
    NodeFailures,
    Preemption,
    UniformNetwork,
)
from dagsim.systems.cluster.models.failures import FailureModel, Outages
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import decisions_of, stated
from dagsim.testing.violations import as_recorded, stuck, violations


@dataclass(frozen=True, slots=True)
class Case:
    """A test case: a cluster, jobs, and the kernel's settings (``models``: failures, preemption and so
    on). With ``admission``, the policy must admit each job before it can run.
    """

    cluster: Cluster
    jobs: list[Job]
    models: dict[str, Any] = field(default_factory=dict)
    admission: bool = False
    seed: int = 0

    def kernel(self) -> ClusterKernel:
        """Return a kernel at time 0."""
        return ClusterScenario(self.cluster, self.jobs, admission=self.admission, **self.models).kernel(self.seed)

    def admitting(self, policy: ClusterPolicy) -> ClusterPolicy:
        """Return the policy, with a wrapper that admits jobs if the case requires admission."""
        return Admitting(policy, self.seed) if self.admission else policy

    def play(self, make: Callable[[], ClusterPolicy]) -> Schedule:
        """Return the complete schedule under a policy.

        Raises:
            IllegalDecision, Stalled: As in ``ClusterKernel.run``.
        """
        return self.kernel().run(self.admitting(make()))

    def drive(self, kernel: ClusterKernel, policy: ClusterPolicy) -> bool:
        """Run the kernel to the end. Return False if a ready task remains because the nodes that it
        needs have left the cluster.

        Raises:
            IllegalDecision, Stalled: A decision is illegal, or the policy waits although it could
                continue.
        """
        kernel.run(self.admitting(policy) if not isinstance(policy, Admitting) else policy)
        return not stuck(kernel.schedule, self.jobs)

    def faults(self, make: Callable[[], ClusterPolicy]) -> list[str]:
        """Return the faults in the schedule under a policy. They are found from the log alone.

        Raises:
            IllegalDecision, Stalled: As in ``drive``.
        """
        kernel = self.kernel()
        whole = self.drive(kernel, make())
        changing = ("failures", "setup", "network", "preemption")
        keeps_work = not any(self.models.get(name) for name in changing)
        return violations(kernel.schedule, self.jobs, seconds=as_recorded, keeps_work=keeps_work, whole=whole)


class Admitting:
    """A policy that admits, rejects or delays applicants, and leaves all other decisions to an inner
    policy that does not handle admission.
    """

    def __init__(self, policy: ClusterPolicy, seed: int) -> None:
        self.policy = policy
        self.name = stated(policy, "name") or type(policy).__name__
        self.clairvoyant = stated(policy, "clairvoyant")
        self._rng = stream(seed, "admitting")

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        """Decide on some applicants, then yield the decisions of the inner policy."""
        for number in list(view.applicants):
            draw = self._rng.random()
            if draw < 0.5 or not view.pending:
                yield Admit(number)
            elif draw < 0.6:
                yield Reject(number)
        yield from decisions_of(self.policy.decide(view), view.now)


def crowd(gpus: int = 2, jobs: int = 9) -> Case:
    """Return a case with far too few GPUs. Long jobs all arrive simultaneously, the longest first,
    and short jobs arrive while the long jobs are running. These jobs expose a policy that starts
    tasks before it checks later ones, and then tries to stop a run that it has just started.
    """
    cluster = Cluster((Node("n", gpu_type("T4"), gpus, 16, 64),))
    tasks = [Task("t", float(jobs - number), gpus=1 + number % gpus) for number in range(jobs)]
    first = [Job.single(f"j{number}", task, priority=number) for number, task in enumerate(tasks)]
    later = [Job.single(f"k{number}", Task("t", 0.5), 1.0 + number, priority=jobs) for number in range(jobs)]
    return Case(cluster, first + later)


def random_case(seed: int) -> Case:
    """Return a random case that may combine all features: DAGs, gangs, shares of GPUs, CPU-only
    tasks, CPUs and memory, bursts and equal times, two GPU types, networks, set-ups, wrong
    estimates, costly preemption and admission. Nodes may fail, be permanently removed, or all go
    down simultaneously.
    """
    rng = stream(seed, "case")
    cluster = _cluster(rng)
    jobs = list(_jobs(rng))
    models: dict[str, Any] = {"failures": _disturbances(rng, len(cluster.nodes))}
    if rng.random() < 0.25:
        models["setup"] = MovingDelay(float(rng.choice((0.5, 2.0))))
    if rng.random() < 0.25:
        models["network"] = UniformNetwork(float(rng.choice((0.5, 4.0))), float(rng.choice((0.0, 0.5))))
    if rng.random() < 0.25:
        models["preemption"] = Preemption(
            "resume" if rng.random() < 0.5 else "restart",
            "resume" if rng.random() < 0.5 else "restart",
            float(rng.choice((0.0, 1.0))),
            float(rng.choice((0.0, 0.1))),
        )
    if rng.random() < 0.3:
        models["estimates"] = Estimates(("noisy", "predicted", "hidden")[rng.integers(3)])
    return Case(cluster, jobs, models, admission=bool(rng.random() < 0.1), seed=seed)


def _cluster(rng: np.random.Generator) -> Cluster:
    nodes = []
    for index in range(int(rng.integers(1, 6))):
        kind = ("A100-40", "A100-40", "T4", "T4", "cpu")[rng.integers(5)]
        cpus, memory_gb = float(rng.choice((4, 8, 32))), float(rng.choice((16, 64, 256)))
        gpu = None if kind == "cpu" else gpu_type(kind)
        nodes.append(Node(f"n{index}", gpu, int(rng.choice((1, 2, 4, 8))) if gpu else 0, cpus, memory_gb))
    return Cluster(tuple(nodes))


def _jobs(rng: np.random.Generator) -> Iterator[Job]:
    arrival_s = 0.0
    plain = rng.random() < 0.3
    for number in range(int(rng.integers(1, 13))):
        arrival_s += float(rng.choice((0.0, 0.0, 0.5, 1.0, 3.0))) if rng.random() < 0.7 else float(rng.exponential(2.0))
        count = 1 if plain else int(rng.integers(1, 7))
        edges = [Edge(parent, child, 1e9) for child in range(count) for parent in range(child) if rng.random() < 0.35]
        tasks = tuple(_task(rng, at, plain) for at in range(count))
        deadline_s = arrival_s + float(rng.integers(1, 30)) if rng.random() < 0.3 else None
        yield Job(
            f"j{number}",
            TaskGraph(tasks, tuple(edges)),
            arrival_s,
            priority=float(rng.integers(3)),
            tenant=f"u{rng.integers(3)}",
            deadline_s=deadline_s,
            weight=float(rng.choice((1.0, 1.0, 2.0))),
        )


def _task(rng: np.random.Generator, at: int, plain: bool) -> Task:
    work = (
        float(rng.choice((0.0, 0.5, 1.0, 1.0, 2.0, 3.5, 10.0))) if rng.random() < 0.8 else float(rng.exponential(3.0))
    )
    gpus = float(rng.choice((1, 2)) if plain else rng.choice((0, 0.2, 0.25, 0.5, 1, 1, 1, 2, 4)))
    gang = bool(rng.random() < 0.3)
    types = (None, None, None, ("A100-40",), ("T4",), ("A100-40", "T4"))[rng.integers(6)]
    return Task(
        f"t{at}",
        work,
        instances=int(rng.choice((1, 1, 2, 3, 5))),
        gang=gang,
        gpus=gpus,
        cpus=0.0 if plain else float(rng.choice((0, 0, 0.5, 1, 3))),
        memory_gb=0.0 if plain else float(rng.choice((0, 0, 4, 16))),
        gpu_types=types if gpus and not plain else None,
        speeds={"A100-40": 2.0, "T4": float(rng.choice((0.5, 1.0)))} if gpus and rng.random() < 0.5 else None,
        estimate=work * float(rng.choice((1.0, 1.0, 2.0, 0.5))),
    )


def _disturbances(rng: np.random.Generator, nodes: int) -> tuple[FailureModel, ...]:
    models: list[FailureModel] = []
    if rng.random() < 0.35:
        models.append(NodeFailures(float(rng.choice((30.0, 100.0))), float(rng.choice((0.5, 5.0)))))
    if rng.random() < 0.2:  # all nodes go down simultaneously
        start_s = float(rng.choice((0.0, 1.0, 2.0)))
        models.append(Maintenance(tuple(range(nodes)), start_s, start_s + float(rng.choice((1.0, 7.0)))))
    if rng.random() < 0.3:
        windows = []
        for node in range(nodes):
            if rng.random() < 0.5:
                start_s = float(rng.choice((0.0, 1.0, 4.0)))
                windows.append((node, start_s, inf if rng.random() < 0.3 else start_s + float(rng.choice((1.0, 6.0)))))
        models.append(Outages(tuple(windows)))
    return tuple(models)


def patience() -> Case:
    """Return long and short tasks, wide and narrow, with every priority. A policy that never starts
    one of these tasks stalls.
    """
    cluster = Cluster((Node("n", gpu_type("T4"), 4, 16, 64), Node("m", gpu_type("T4"), 4, 16, 64)))
    lengths = (1.0, 30.0, 600.0, 7_200.0, DAY_S)
    jobs = [
        Job.single(
            f"j{number}",
            Task("t", length_s, gpus=(1, 4)[number % 2], instances=1 + number % 3 // 2, estimate=length_s),
            float(number // 3),
            priority=float(number % 3),
            tenant=f"u{number % 2}",
        )
        for number, length_s in enumerate((*lengths, *reversed(lengths)))
    ]
    return Case(cluster, jobs)
