"""The GPU cluster, simulated with SimPy."""

from dagsim.systems.cluster.kernel import ClusterKernel
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.models.estimates import Estimates
from dagsim.systems.cluster.models.failures import Maintenance, NodeFailures
from dagsim.systems.cluster.models.kept_work import Preemption
from dagsim.systems.cluster.models.runtime import Runtime
from dagsim.systems.cluster.models.setups import MovingDelay, Setup
from dagsim.systems.cluster.network import Network, UniformNetwork
from dagsim.systems.cluster.view import ClusterPolicy, ClusterView

__all__ = [
    "ClusterKernel",
    "ClusterPolicy",
    "ClusterView",
    "Estimates",
    "Maintenance",
    "Models",
    "MovingDelay",
    "Network",
    "NodeFailures",
    "Preemption",
    "Runtime",
    "Setup",
    "UniformNetwork",
]
