"""The simulation: SimPy lives here."""

from dagsim.sim.disturbance import Maintenance, NodeFailures
from dagsim.sim.estimates import Estimates
from dagsim.sim.network import Network, Uniform
from dagsim.sim.policy import Policy, View
from dagsim.sim.preemption import Preemption
from dagsim.sim.runtime import Runtime
from dagsim.sim.setup import MovingDelay, Setup
from dagsim.sim.simulation import Simulation

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
