"""Jobs as in Pollux's simulator: all jobs advance by one interval, then the policy allocates GPUs
again.

As published (Qiao et al., OSDI 2021, artifact): times are whole seconds, an arrival is noticed at
the next interval, and every change of a job's nodes costs 30 s during which it holds its GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from dagsim.families.elastic.goodput import BatchLimits, GoodputModel
from dagsim.families.elastic.training_jobs import ElasticJob, Training

Allocations = dict[str, list[int]]
"""Node of each replica, by job. Jobs without replicas may be absent."""


_MOST_REPLICAS = 64
"""Largest number of replicas that was measured."""


class SteppedJob:
    """A job in the simulator: its training, restarts and times, in whole seconds."""

    def __init__(self, job: ElasticJob, batch: int | None) -> None:
        self.job = job
        self.training = Training(job, batch)
        self.restart_left_s = 0
        self.attained_gpu_s = 0
        self.restarts = -1
        """Number of starts after the first, or -1 before that."""
        self.end_s: int | None = None

    @property
    def arrival_s(self) -> float:
        """Arrival time."""
        return self.job.arrival_s

    @property
    def limits(self) -> BatchLimits:
        """Batch sizes that its application may use."""
        return self.job.profile.limits

    @property
    def goodput(self) -> GoodputModel | None:
        """The model fitted to the job's iterations so far."""
        return self.training.goodput

    @property
    def largest_measured(self) -> int:
        """Largest number of replicas with which the job has run."""
        return self.training.largest_measured

    def most_replicas(self, batch: int) -> int:
        """Return the maximum number of GPUs for a batch, as the simulator limits it: 64, and 1 for
        ncf."""
        profile = self.job.profile
        return 1 if profile.name == "ncf" else min(_MOST_REPLICAS, batch // profile.limits.local_min)

    def place(self, placement: Sequence[int], restart_s: int) -> None:
        """Move to other GPUs; an empty placement stops the job."""
        self.training.place(placement)
        if placement:
            self.restart_left_s = restart_s
            self.restarts += 1

    def step(self, now_s: int, seconds: int, interference: float) -> None:
        """Train from ``now_s`` for ``seconds``."""
        training = self.training
        if not training.placement:
            return
        held_s = min(self.restart_left_s, seconds)
        self.restart_left_s -= held_s
        left_s = seconds - held_s
        while left_s > 0 and self.end_s is None:
            rate, until, _ = training.pace(interference)
            if training.progress + rate * left_s < until:
                training.advance(rate * left_s)
                left_s = 0
            else:
                left_s -= round((until - training.progress) / rate)
                training.end_epoch()
                if training.done:
                    self.end_s = now_s + seconds - left_s
        self.attained_gpu_s += (seconds - left_s) * training.replicas


class ElasticPolicy(Protocol):
    """Allocates GPUs to elastic jobs at the end of each interval."""

    def batch(self, job: ElasticJob) -> int | None:
        """Return the batch size of the job, or None to maximise its goodput."""

    def allocate(self, now_s: int, jobs: dict[str, SteppedJob], cluster: EqualNodes) -> Allocations:
        """Return the nodes of every job. A job whose list does not change continues undisturbed.

        Args:
            now_s: The current time.
            jobs: Jobs that have arrived and are not done, in order of the workload.
            cluster: Its size, and the current ``allocations``.
        """


class EqualNodes:
    """A cluster of equal nodes, and the current ``allocations``."""

    def __init__(self, nodes: int, gpus_per_node: int) -> None:
        self.nodes, self.gpus_per_node = nodes, gpus_per_node
        self.allocations: Allocations = {}

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return self.nodes * self.gpus_per_node

    def free_gpus(self, allocations: Allocations) -> Counter[int]:
        """Return the free GPUs of each node that has any, by node."""
        taken = Counter(node for replicas in allocations.values() for node in replicas)
        free = {node: self.gpus_per_node - taken[node] for node in range(self.nodes)}
        return Counter({node: count for node, count in free.items() if count > 0})
