"""The simulation: SimPy lives here."""

from dagsim.systems.cluster.kernel import Simulation
from dagsim.systems.cluster.models.estimates import Estimates
from dagsim.systems.cluster.models.failures import Maintenance, NodeFailures
from dagsim.systems.cluster.models.preemption import Preemption
from dagsim.systems.cluster.models.runtime import Runtime
from dagsim.systems.cluster.models.setup import MovingDelay, Setup
from dagsim.systems.cluster.network import Network, Uniform
from dagsim.systems.cluster.view import Policy, View

__all__ = [
    "Estimates",
    "Maintenance",
    "MovingDelay",
    "Network",
    "NodeFailures",
    "Policy",
    "Preemption",
    "Runtime",
    "Setup",
    "Simulation",
    "Uniform",
    "View",
]
