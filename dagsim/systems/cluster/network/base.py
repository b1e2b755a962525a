"""The seam for networks."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol

from simpy.events import Event

from dagsim.systems.cluster.clock import Clock

__all__ = ["Flow", "Network"]


class Flow:
    """Bytes on their way from one node to another. The network sets ``ends_s`` once it is known. A
    transfer under way is plain data, so that a forked simulation can continue it.
    """

    __slots__ = ("destination", "ends_s", "size", "source")

    def __init__(self, source: int, destination: int, size: float) -> None:
        self.source = source
        self.destination = destination
        self.size = size
        self.ends_s: float | None = None

    def copy(self) -> Flow:
        twin = Flow(self.source, self.destination, self.size)
        twin.ends_s = self.ends_s
        return twin


class Network(Protocol):
    """Carries flows. Links with contention are SimPy resources inside the network, held by the
    process that fetches.
    """

    def fetch(self, clock: Clock, flows: Sequence[Flow]) -> Generator[Event, object, None]:
        """Part of the SimPy process of a run: wait until every flow has arrived. Called again on copies of the same
        flows in a forked simulation; may be interrupted at any wait."""
        ...
