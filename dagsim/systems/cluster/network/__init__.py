"""Network models, by name. A network determines how long the output of a task takes to reach the
nodes of its children.
"""

from typing import Any

from dagsim.registry import Entry, Registry
from dagsim.systems.cluster.network.base import (
    Carrier,
    Communication,
    Flow,
    GangCarrier,
    Network,
    Storage,
    UniformNetwork,
)

__all__ = ["NETWORKS", "Carrier", "Communication", "Flow", "GangCarrier", "Network", "Storage", "UniformNetwork"]

NETWORKS: Registry[Any] = Registry(
    "network",
    [Entry("uniform", ".base:UniformNetwork", "latency and bandwidth between nodes, without contention")],
    group="dagsim.networks",
    listing="dagsim list networks",
    home="dagsim.systems.cluster.network",
    method="carrier",
)
"""Every network by name."""
