"""Networks: how long the output of a task takes to reach the nodes of its children."""

from dagsim.sim.network.base import Flow, Network
from dagsim.sim.network.uniform import Uniform

__all__ = ["Flow", "Network", "Uniform"]
