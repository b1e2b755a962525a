"""Nodes that are switched on by demand, and jobs for them."""

from __future__ import annotations

from collections.abc import Sequence

from dagsim.model import (
    Cluster,
    Job,
    Node,
    OnDemand,
    Task,
    gpu_type,
)
from dagsim.model.log import Schedule
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.api import ClusterPolicy
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.policies import POLICIES
from dagsim.testing import violations
from dagsim.testing.violations import as_recorded


def nodes(*rules: OnDemand | None, gpus: int = 2) -> Cluster:
    return Cluster(tuple([Node(f"n{at}", gpu_type("T4"), gpus, on_demand=rule) for at, rule in enumerate(rules)]))


def jobs(*rows: tuple[float, float, float] | tuple[float, float, float, int]) -> list[Job]:
    """Jobs of (arrival, seconds, GPUs of an instance, instances of a gang)."""
    return [
        Job.single(f"j{at}", Task("t", work_s, int((gang or [1])[0]), bool(gang), gpus), arrival_s)
        for at, (arrival_s, work_s, gpus, *gang) in enumerate(rows)
    ]


def run(cluster: Cluster, work: Sequence[Job], policy: str | ClusterPolicy = "fifo-fit", **models: object) -> Schedule:
    played = POLICIES.create(policy) if isinstance(policy, str) else policy
    schedule = ClusterKernel(cluster, work, Models(**models), seed=1).run(played)  # type: ignore[arg-type]
    assert violations(schedule, work, seconds=None if models else as_recorded) == []
    return schedule
