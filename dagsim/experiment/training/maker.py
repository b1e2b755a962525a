"""Kernels of an experiment by seed, for agents to play."""

from __future__ import annotations

from dagsim.config.schema import Config
from dagsim.experiment.scenario import scenario_of
from dagsim.systems.cluster.kernel import ClusterKernel

__all__ = ["Maker"]


class Maker:
    """Makes simulations of ``config``: the same seed gives the same jobs. Can be sent to another process."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._scenario = scenario_of(config)

    def __call__(self, seed: int) -> ClusterKernel:
        kernel = self._scenario.kernel(seed)
        assert isinstance(kernel, ClusterKernel)
        return kernel
