"""A policy that a test writes as a generator function, and what it leads to."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dagsim.model import Decision, Kind
from dagsim.systems.cluster import ClusterKernel, ClusterView

Policy = Callable[[ClusterView], Iterator[Decision]]


class Scripted:
    """Plays a generator function as a policy."""

    def __init__(self, decide: Policy) -> None:
        self.decide = decide


def ends(simulated: ClusterKernel) -> dict[str, float]:
    jobs = simulated.schedule.jobs
    return {jobs[row.job].id: row.time_s for row in simulated.schedule.log if row.kind == Kind.COMPLETED}


def rates(simulated: ClusterKernel) -> list[tuple[float, int, float]]:
    return [(row.time_s, row.run, row.value) for row in simulated.schedule.log if row.kind == Kind.RATE]
