"""Networks: how long the output of a task takes to reach the nodes of its children."""

from dagsim.systems.cluster.network.base import Flow, Network
from dagsim.systems.cluster.network.uniform import Uniform

__all__ = ["Flow", "Network", "Uniform"]
