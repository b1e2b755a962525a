"""Simulations of an experiment by seed, for agents to play."""

from __future__ import annotations

from collections import OrderedDict

from dagsim.config.schema import Config
from dagsim.model import Job
from dagsim.systems.cluster.jobs import JobStream
from dagsim.systems.cluster.kernel import ClusterKernel

__all__ = ["Maker"]

_KEPT = 16
"""Job sequences kept, as replicas ask for the same one again."""


class Maker:
    """Makes simulations of ``config``: the same seed gives the same jobs. Can be sent to another process."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._cluster = config.build_cluster()
        self._jobs: OrderedDict[int, list[Job]] = OrderedDict()

    def __call__(self, seed: int) -> ClusterKernel:
        config = self.config
        return ClusterKernel(
            self._cluster,
            self._known(seed),
            runtime=config.runtime,
            setup=config.setup,
            network=config.network,
            preemption=config.preemption,
            disturbances=config.disturbances,
            estimates=config.estimates,
            seed=seed,
        )

    def _known(self, seed: int) -> list[Job]:
        jobs = self._jobs.get(seed)
        if jobs is None:
            config = self.config
            jobs = self._jobs[seed] = list(JobStream(config.workload, self._cluster, config.runtime, seed).jobs())
            if len(self._jobs) > _KEPT:
                self._jobs.popitem(last=False)
        return jobs
