"""A policy that a test writes as a function, and what it leads to."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from support import log_reading

from dagsim.model import Decision, Kind
from dagsim.systems.cluster import ClusterKernel, ClusterView

Policy = Callable[[ClusterView], Iterable[Decision]]


class Scripted:
    """Plays a function as a policy."""

    def __init__(self, decide: Policy) -> None:
        self.decide = decide


def ends(simulated: ClusterKernel) -> dict[str, float]:
    return log_reading.ends(simulated.schedule)


def rates(simulated: ClusterKernel) -> list[tuple[float, int, float]]:
    return [(row.time_s, row.run, row.value) for row in log_reading.rows_of(simulated.schedule.log, Kind.RATE)]
