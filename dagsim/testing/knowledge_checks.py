"""Checks of what a policy knows and changes: whether its decisions depend on true durations, by
simulating different durations with equal estimates, and whether it writes to live state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import zip_longest
from typing import Any

import numpy as np

from dagsim.errors import Stalled
from dagsim.model import Cluster, Decision, Job, Node, Task, TaskGraph, gpu_type
from dagsim.model.log import Schedule
from dagsim.model.streams import stream
from dagsim.systems.cluster import (
    ClusterKernel,
    ClusterPolicy,
    ClusterView,
    Estimates,
    Maintenance,
    Preemption,
)
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import decisions_of, stated

BLIND_UNTIL_S = 240.0
"""No task of ``blind_kernels`` ends before this time, so nothing reveals how long any of them
takes.
"""


def check_blind(make: Callable[[], ClusterPolicy]) -> None:
    """Raise an error if the decisions of the policy depend on true durations, unless its class sets
    ``clairvoyant = True``.

    The same jobs are simulated twice, with different true durations but equal estimates, until the
    first task ends.

    Raises:
        AssertionError: The two logs differ.
        IllegalDecision: The policy reads ``task.truth`` or ``run.ends_s``.
    """
    if stated(make(), "clairvoyant"):
        return
    for seed in range(3):
        logs = [_until_first_end(kernel, make()).log for kernel in blind_kernels(seed)]
        for one, other in zip_longest(*logs):
            assert one == other, (
                "the policy decides by what tasks really take: with other true durations behind equal estimates "
                f"it did {other!r} instead of {one!r}; use task.seconds, or declare clairvoyant = True in its class"
            )


def blind_kernels(seed: int) -> tuple[ClusterKernel, ClusterKernel]:
    """Return two kernels with equal jobs and estimates but different true durations, all above
    ``BLIND_UNTIL_S``.

    Tasks arrive in bursts, and nodes join one by one, so that a policy has to make choices although
    no task ends.
    """
    rng = stream(seed, "blind")
    cluster = Cluster(tuple(Node(f"n{n}", gpu_type(("A100-40", "T4")[n % 2]), 2, 32, 256) for n in range(6)))
    joining = tuple(Maintenance((node,), 0.0, 40.0 * node) for node in range(1, 6))
    claims = rng.uniform(500.0, 3_000.0, 24)
    arrivals_s = np.arange(len(claims)) // 6 * 30.0
    gpus = rng.choice((0.5, 1, 1, 2), len(claims))
    priorities = rng.integers(3, size=len(claims))

    def kernel(works: np.ndarray) -> ClusterKernel:
        jobs = []
        for number, work in enumerate(works.tolist()):
            speeds = {"A100-40": 2.0, "T4": (1.0, 2.5)[number % 2]}
            task = Task("t", work, gpus=float(gpus[number]), speeds=speeds, estimate=float(claims[number]))
            arrival_s, priority = float(arrivals_s[number]), float(priorities[number])
            jobs.append(
                Job(f"j{number}", TaskGraph((task,), ()), arrival_s, priority=priority, tenant=f"u{number % 3}")
            )
        # If a preempted run kept its work, the work that is left would reveal the run's true
        # duration to the policy.
        preemption = Preemption("restart", "restart")
        return ClusterScenario(
            cluster, jobs, preemption=preemption, failures=joining, estimates=Estimates("predicted")
        ).kernel(seed)

    return kernel(rng.uniform(700.0, 4_000.0, len(claims))), kernel(rng.uniform(700.0, 4_000.0, len(claims)))


def _until_first_end(kernel: ClusterKernel, policy: ClusterPolicy) -> Schedule:
    with suppress(Stalled):
        kernel.run(policy, BLIND_UNTIL_S)
    return kernel.schedule


class WatchedPolicy:
    """A wrapper for a policy that compares everything the view shows before and after each step of the
    policy's ``decide``.
    """

    def __init__(self, policy: ClusterPolicy) -> None:
        self.policy = policy
        self.name = stated(policy, "name") or type(policy).__name__
        self.clairvoyant = stated(policy, "clairvoyant")

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        """Yield the policy's decisions.

        Raises:
            AssertionError: The policy has changed something without making a decision.
        """
        before = _state(view)
        decisions = decisions_of(self.policy.decide(view), view.now)
        while True:
            decision = next(decisions, None)
            after = _state(view)
            changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
            assert not changed, (
                f"policy {self.name} writes into live state at {view.now:g} s: {', '.join(changed[:3])} changed during "
                "decide; a policy changes the simulation by decisions alone"
            )
            if decision is None:
                return
            yield decision
            before = _state(view)


def _state(view: ClusterView) -> dict[str, Any]:
    """Return, by name, everything that a view shows and that only the kernel may change."""
    jobs = [*view.jobs.values(), *view.applicants.values()]
    tasks = [task for job in jobs for task in job.tasks] + [task for task in view.ready if task.piece]
    state: dict[str, Any] = {"view.ready": list(view.ready), "view.running": list(view.running)}
    for job in jobs:
        state[f"job {job.job.id}"] = job.job, job.number, job.tasks_left, job.ideal_s, job.service_gpu_s
    for task in tasks:
        plain = [getattr(task, name) for name in type(task).__slots__ if name not in ("job", "demand")]
        state[f"task {task.name}, piece {task.piece}"] = plain
    for run in view.running.values():
        state[f"run {run.id}"] = run.instances, run.started_s, run.setup_s, run.computing_s, run.task, run.held
    for node in view.machines.list:
        state[f"node {node.node.name}"] = node.idle, node.free, node.cpus, node.memory, dict(node.shares), node.up
    return state
