"""A single job on a small cluster."""

from __future__ import annotations

from dagsim.model import Cluster, Elastic, Job, Node, Task, gpu_type
from dagsim.model.log import Schedule
from dagsim.systems.cluster import ClusterKernel, Preemption
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.models.failures import FailureModel
from dagsim.systems.cluster.policies import POLICIES


def played(
    work_s: float, preemption: Preemption, *failures: FailureModel, nodes: int = 1, elastic: Elastic | None = None
) -> Schedule:
    """Play one job on a GPU of each node."""
    cluster = Cluster(tuple(Node(f"n{place}", gpu_type("T4"), 1) for place in range(nodes)))
    gang = nodes > 1 or elastic is not None
    job = Job.single("a", Task("t", work_s, nodes, gang=gang, elastic=elastic))
    kernel = ClusterKernel(cluster, [job], Models(preemption=preemption, failures=failures))
    return kernel.run(POLICIES.create("fifo"))
