"""The schedule that the recorded policy makes of jobs."""

from __future__ import annotations

from dagsim.metrics import columns
from dagsim.model import Cluster, Job
from dagsim.model.log import Schedule
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.systems.cluster.policies import POLICIES


def replayed(cluster: Cluster, jobs: list[Job]) -> Schedule:
    return ClusterKernel(cluster, jobs, Models(runtime=Recorded())).run(POLICIES.create("recorded"))


def spans_of(schedule: Schedule) -> dict[str, list[tuple[float, float, str]]]:
    """Per job: start, end and node of its runs."""
    cols = columns(schedule)
    runs, listed = cols.runs, {}
    for job, start, end, node in zip(runs.job, runs.start_s, runs.end_s, runs.node, strict=True):
        listed.setdefault(cols.jobs.ids[job], []).append((start, end, schedule.cluster.nodes[node].name))
    return listed
