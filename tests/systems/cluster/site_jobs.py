"""Jobs on a cluster of two nodes, under policies that all must keep the rules of a site."""

from __future__ import annotations

from collections.abc import Sequence

from support.log_reading import starts

from dagsim.model import (
    Cluster,
    Job,
    Node,
    QueueTree,
    Task,
)
from dagsim.model.gpu import GpuType
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.policies import POLICIES

GPU = GpuType("G", 1.0, 16, 100, 100, 10)
BINDING = ["fifo", "fifo-fit", "easy", "slurm-multifactor[order=basic,bf_interval_s=1,bf_resolution_s=1]", "sjf"]


def cluster() -> Cluster:
    """Two nodes of a slow and a fast kind, 4 GPUs each."""
    return Cluster((Node("s0", GPU, 4, 8, 64, ("slow",)), Node("f0", GPU, 4, 8, 64, ("fast", "big"))))


def job(name: str, at_s: float, seconds: float, gpus: int = 1, limit_s: float | None = None, **rest: object) -> Job:
    task = Task("t", seconds, gpus=gpus, cpus=1, estimate=limit_s or seconds)
    return Job.single(name, task, at_s, **rest)


def placed(jobs: Sequence[Job], policy: str, queues: QueueTree | None = None) -> dict[str, tuple[float, int]]:
    """Time and node of the start of each job."""
    schedule = ClusterKernel(cluster(), list(jobs), Models(queues=queues)).run(POLICIES.create(policy))
    return {name: placed for name, (placed,) in starts(schedule).items()}
