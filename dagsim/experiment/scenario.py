"""The scenario that a configuration describes."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from dagsim.config.schema import Config
from dagsim.model.streams import stream
from dagsim.seeds import WINDOWS, seeds_of
from dagsim.systems.seam import Scenario
from dagsim.traces.trace_file import TraceFile

if TYPE_CHECKING:
    from dagsim.systems.cluster.scenario import ClusterScenario

__all__ = ["cluster_scenario_of", "experiment_seeds", "replicate_seeds", "scenario_of"]


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


def experiment_seeds(config: Config) -> tuple[int, ...]:
    """The seeds of an experiment: those of its replicates, or the numbers of the windows of its trace."""
    workload = config.workload
    if config.system.kind == "cluster" and isinstance(workload, TraceFile) and workload.window is not None:
        return seeds_of(WINDOWS, workload.windows or config.seeds)
    return replicate_seeds(config.seed, config.seeds)


def replicate_seeds(root: int, count: int) -> tuple[int, ...]:
    """The seeds of ``count`` replicates: ``root`` itself, so that one run is what it says, then numbers drawn from it.

    Never ``root + 1``: the experiments of root 0 and root 1 would share all but one of their workloads.
    """
    drawn = stream(root, "replicates").integers(2**32, size=count - 1)
    return (root, *map(int, drawn))
