"""The seam for networks."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Protocol

from simpy.events import Event

from dagsim.model import Cluster
from dagsim.systems.cluster.clock import Clock

if TYPE_CHECKING:
    from dagsim.network.max_min import LinkFlow

__all__ = ["Carrier", "Flow", "Network"]


class Flow:
    """Bytes on their way from one node to another. The carrier keeps its own state of the flow
    here, as plain data, so that a forked simulation can continue it.
    """

    __slots__ = ("destination", "ends_s", "parts", "size", "source")

    def __init__(self, source: int, destination: int, size: float) -> None:
        self.source = source
        self.destination = destination
        self.size = size
        self.ends_s: float | None = None
        """End of the flow, where it is known from the start."""
        self.parts: list[LinkFlow] | None = None
        """Its parts on shared links; None before it is sent."""

    def copy(self) -> Flow:
        twin = Flow(self.source, self.destination, self.size)
        twin.ends_s = self.ends_s
        twin.parts = None if self.parts is None else [part.copy() for part in self.parts]
        return twin


class Carrier(Protocol):
    """A network in one simulation: it carries flows and holds the state of the links."""

    def fetch(self, flows: Sequence[Flow]) -> Generator[Event, object, None]:
        """Part of the SimPy process of a run: wait until every flow has arrived. Called again on
        copies of the same flows in a forked simulation; may be interrupted at any wait.
        """
        ...

    def fork(self, clock: Clock) -> Carrier:
        """Return the carrier of a forked simulation, without flows: ``fetch`` brings them."""
        ...


class Network(Protocol):
    """The description of a network."""

    def carrier(self, clock: Clock, cluster: Cluster) -> Carrier:
        """Return the network of a new simulation.

        Raises:
            ModelError: The network does not fit the cluster.
        """
        ...
