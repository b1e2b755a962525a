"""The scenario that a configuration describes."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from dagsim.config.schema import Config
from dagsim.systems.seam import Scenario

if TYPE_CHECKING:
    from dagsim.systems.cluster.scenario import ClusterScenario

__all__ = ["cluster_scenario_of", "scenario_of"]


def scenario_of(config: Config) -> Scenario:
    """The scenario that builds the kernels of ``config``, in every command alike.

    Raises:
        InputError: The cluster cannot be made.
    """
    return cluster_scenario_of(config) if config.system.kind == "cluster" else cast(Scenario, config.system)


def cluster_scenario_of(config: Config) -> ClusterScenario:
    """The scenario of a configuration of the GPU cluster.

    Raises:
        InputError: It is of another system, or the cluster cannot be made.
    """
    from dagsim.systems.cluster.scenario import ClusterScenario

    return ClusterScenario(
        config.build_cluster(),
        config.workload,
        runtime=config.runtime,
        setup=config.setup,
        network=config.network,
        preemption=config.preemption,
        disturbances=config.disturbances,
        estimates=config.estimates,
        outages=config.cluster.from_trace,
        queues=config.queues,
        engine=config.engine,
    )
