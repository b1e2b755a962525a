"""Networks: how long the output of a task takes to reach the nodes of its children; by name."""

from typing import Any

from dagsim.registry import Entry, Registry
from dagsim.systems.cluster.network.base import Flow, Network
from dagsim.systems.cluster.network.uniform import UniformNetwork

__all__ = ["NETWORKS", "Flow", "Network", "UniformNetwork"]

NETWORKS: Registry[Any] = Registry(
    "network",
    [Entry("uniform", ".uniform:UniformNetwork", "latency and bandwidth between nodes, without contention")],
    group="dagsim.networks",
    listing="dagsim list networks",
    home="dagsim.systems.cluster.network",
    method="fetch",
)
"""Every network by name."""
