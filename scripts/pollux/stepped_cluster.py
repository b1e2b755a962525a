"""Pollux's simulator, which advances all jobs by an interval and then allocates GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Protocol

from dagsim.families.elastic.genetic import Allocations, EqualNodes
from dagsim.families.elastic.goodput import BatchLimits, GoodputModel
from dagsim.families.elastic.training_jobs import ElasticJob, Training

MOST_REPLICAS = 64
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
        return 1 if profile.name == "ncf" else min(MOST_REPLICAS, batch // profile.limits.local_min)

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


class SteppedCluster(EqualNodes):
    """A cluster of equal nodes under a policy.

    Args:
        jobs: In order of the workload.
        policy: Allocates at the end of each interval.
        nodes, gpus_per_node: Size of the cluster.
        interval_s: Seconds between allocations.
        restart_s: Seconds that each start takes, the first included.
        interference: Share of its rate that a job on several nodes loses if another such job shares
            one of them.
    """

    def __init__(
        self,
        jobs: Sequence[ElasticJob],
        policy: ElasticPolicy,
        *,
        nodes: int = 16,
        gpus_per_node: int = 4,
        interval_s: int = 60,
        restart_s: int = 30,
        interference: float = 0.0,
    ) -> None:
        super().__init__(nodes, gpus_per_node)
        self.interval_s, self.restart_s, self.interference = interval_s, restart_s, interference
        self.now_s = 0
        self.jobs = {job.name: SteppedJob(job, policy.batch(job)) for job in jobs}
        self._policy = policy

    def run(self) -> dict[str, int]:
        """Play until all jobs are done; return their completion times (from arrival) by name."""
        while any(job.end_s is None for job in self.jobs.values()):
            self.step()
        return {name: int(job.end_s - job.job.arrival_s) for name, job in self.jobs.items() if job.end_s is not None}

    def step(self) -> None:
        """Advance by one interval, then allocate."""
        disturbed = self._disturbed() if self.interference else set()
        for name, job in self.jobs.items():
            if job.end_s is None:
                job.step(self.now_s, self.interval_s, self.interference if name in disturbed else 0.0)
        self.now_s += self.interval_s
        waiting = {
            name: job for name, job in self.jobs.items() if job.end_s is None and job.job.arrival_s <= self.now_s
        }
        self.allocations = {name: nodes for name, nodes in self.allocations.items() if name in waiting}
        if not waiting:
            return
        allocations = self._policy.allocate(self.now_s, waiting, self)
        for name, job in waiting.items():
            nodes = allocations.get(name, [])
            if nodes != self.allocations.get(name, []):
                job.place([len(list(replicas)) for _, replicas in groupby(nodes)], self.restart_s)
        self.allocations = allocations

    def _disturbed(self) -> set[str]:
        """Jobs on several nodes that share one with another such job."""
        distributed = {name: set(nodes) for name, nodes in self.allocations.items() if len(set(nodes)) > 1}
        crowds = Counter(node for nodes in distributed.values() for node in nodes)
        return {name for name, nodes in distributed.items() if any(crowds[node] > 1 for node in nodes)}
