"""Pollux's simulator as published, to compare the kernel's elastic tasks with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from dagsim.families.elastic.stepping import ElasticPolicy, EqualNodes, SteppedJob
from dagsim.families.elastic.training_jobs import ElasticJob


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
