"""A network whose flows share the links of a topology max-min fairly."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter
from typing import Annotated, Literal

from simpy.events import Event

from dagsim.errors import ModelError
from dagsim.families.fabric.collectives import Exchange, StepTraffic, exchange, nvlink_bytes_s
from dagsim.families.fabric.topologies import (
    Dragonfly,
    Explicit,
    FabricLevel,
    FatTree,
    Island,
    LinkFlow,
    Routing,
    SharedLinks,
    Torus,
    Tree,
)
from dagsim.model import Cluster, GpuType
from dagsim.systems.cluster.clock import COMPLETIONS, Clock, Timer
from dagsim.systems.cluster.network.base import Flow, Member, Storage
from dagsim.workload.tagged_union import TaggedUnion


@dataclass(frozen=True, slots=True)
class SharedNetwork:
    """A network that flows share. A flow takes the latency of its route plus the time to send its
    bytes at its max-min fair rate. Rates change whenever a flow starts or ends. Nothing is sent
    within a node.
    """

    topology: Annotated[Island | FatTree | Torus | Dragonfly | Tree | Explicit, TaggedUnion("island")] = field(
        default_factory=Island
    )
    """The links of the network, and the routes between nodes."""
    storage: Storage | None = None
    """Nodes that store data and checkpoints. With None, reading and writing them takes no time on
    the network.
    """
    kind: Literal["shared"] = "shared"

    __pydantic_config__ = {"extra": "forbid"}

    def levels(self, names: Sequence[str]) -> tuple[FabricLevel, ...]:
        """Return the levels of the topology (see ``HasLevels``)."""
        return self.topology.levels(names)

    def routing(self, names: Sequence[str]) -> Routing:
        """Return the links and routes between the nodes called ``names``.

        Raises:
            ModelError: The network does not fit these nodes.
        """
        if self.storage is not None:
            self.storage.numbers(names)
        try:
            return self.topology.routing(names)
        except ModelError as error:
            raise error.below("topology") from None

    def carrier(self, clock: Clock, cluster: Cluster) -> SharedCarrier:
        return SharedCarrier(clock, self.routing([node.name for node in cluster.nodes]))


def gang_exchange(routing: Routing, traffic: StepTraffic, members: Sequence[Member], gpu: GpuType | None) -> Exchange:
    """Return the traffic of a step. If ``gpu`` is None, traffic within nodes takes no time."""
    nvlink = inf if gpu is None else nvlink_bytes_s(gpu.name, gpu.nvlink_gb_s)
    return exchange(traffic, members, routing, nvlink)


class Gang:
    """The communication of a run. A single set of flows represents all messages for as long as the
    run computes.
    """

    __slots__ = ("exchange", "flow", "overlap", "step_s")

    def __init__(self, exchange: Exchange, step_s: float, overlap: int) -> None:
        self.exchange = exchange
        self.step_s = step_s
        self.overlap = overlap
        cap = exchange.overlapped(step_s) if overlap else exchange.cap
        self.flow = LinkFlow(exchange.streams, inf, cap, exchange.streams)

    def rate(self, bytes_s: float) -> float:
        """Return how many seconds of work the gang does per second if each stream has a rate of
        ``bytes_s``.
        """
        sending_s = self.exchange.seconds(bytes_s)
        return self.step_s / (max(self.step_s, sending_s) if self.overlap else self.step_s + sending_s)


class SharedCarrier:
    """The links in one simulation.

    Rates are computed after all simultaneous changes. This works because the events that cause the
    changes come before the event that computes the rates.
    """

    def __init__(self, clock: Clock, routing: Routing) -> None:
        self.routing = routing
        self._clock = clock
        self._links = SharedLinks([link.bandwidth for link in routing.links])
        self._waiting: dict[LinkFlow, Event] = {}
        """The event that succeeds when a part has arrived."""
        self._missing: dict[int, tuple[int, ...]] = {}
        """In a fork, routes of the original's parts by number, until ``carry`` brings their copies.
        Those of a run that was stopped at the same time never come."""
        self._gangs: dict[LinkFlow, tuple[Gang, Callable[[float], None]]] = {}
        """Gangs that are sending, and the functions that receive their rates."""
        self._updates = False
        """True if an update is scheduled for the current time."""
        self._due_s = inf
        """The earliest time at which a scheduled event looks for ended parts."""

    def fetch(self, flows: Sequence[Flow]) -> Generator[Event, object, None]:
        for flow in flows:
            if flow.parts is None:
                flow.parts = self._parts(flow)
        yield from self.carry([part for flow in flows for part in flow.parts or () if not part.arrived])

    def _parts(self, flow: Flow) -> list[LinkFlow]:
        paths = self.routing.paths(flow.source, flow.destination)
        return [LinkFlow(path, flow.size / len(paths)) for path in paths]

    def expected_s(self, groups: Sequence[Sequence[Flow]]) -> list[float]:
        """Return the expected seconds of each group of flows (see ``ForeseeingCarrier``). Latencies
        are added at the end. The cost is O(flows in transit), plus one computation of rates for
        each flow that ends.
        """
        links, now = self._links.copy(), self._clock.now
        seconds = [0.0] * len(groups)
        waiting: dict[LinkFlow, int] = {}
        for number, flows in enumerate(groups):
            for part in [part for flow in flows for part in self._parts(flow)]:
                waiting[part] = number
                links.start(part, now)
        links.update(now)
        while waiting:
            time_s = links.next_end_s()
            for part in links.ended(time_s) if time_s < inf else [*waiting]:
                if part in waiting:
                    number = waiting.pop(part)
                    seconds[number] = max(seconds[number], time_s - now + self.routing.latency_s(part.route))
            links.update(time_s)
        return seconds

    def carry(self, parts: Sequence[LinkFlow]) -> Generator[Event, object, None]:
        """Send ``parts`` over their routes, and wait until all of them have arrived. Parts that are
        already in transit continue."""
        clock, links = self._clock, self._links
        mine: dict[LinkFlow, Event] = {}
        try:
            for part in parts:
                if part.number >= 0:
                    links.adopt(part)
                    self._missing.pop(part.number, None)
                    mine[part] = self._waiting[part] = Event(clock)
                elif part.since_s < 0:
                    part.since_s = clock.now + self.routing.latency_s(part.route)
            self._look_at(links.next_end_s())
            for part in sorted([part for part in parts if part not in mine], key=attrgetter("since_s")):
                if part.since_s > clock.now:
                    yield Timer(clock, part.since_s)
                links.start(part, clock.now)
                mine[part] = self._waiting[part] = Event(clock)
                self._update_soon()
            for part, arrival in mine.items():
                if not part.arrived:
                    yield arrival
        finally:
            for part in mine:
                if self._waiting.pop(part, None) is not None:
                    links.stop(part)
                    self._update_soon()

    def gang(self, traffic: StepTraffic, step_s: float, members: Sequence[Member], gpu: GpuType | None) -> Gang:
        """Return the communication of a gang (see ``GangCarrier``)."""
        return Gang(gang_exchange(self.routing, traffic, members, gpu), step_s, traffic.overlap)

    def begin(self, gang: Gang, tell: Callable[[float], None]) -> None:
        """Start the communication of a gang (see ``GangCarrier``)."""
        if not gang.flow.route:
            tell(gang.rate(gang.flow.cap))
            return
        self._gangs[gang.flow] = gang, tell
        self._links.start(gang.flow, self._clock.now)
        self._update_soon()

    def end(self, gang: Gang) -> None:
        """End the communication of a gang (see ``GangCarrier``)."""
        if self._gangs.pop(gang.flow, None) is not None:
            self._links.stop(gang.flow)
            self._update_soon()

    def adopt(self, gang: Gang, tell: Callable[[float], None]) -> Gang:
        """Add a copy of a gang's communication in progress (see ``GangCarrier``)."""
        twin = Gang(gang.exchange, gang.step_s, gang.overlap)
        twin.flow = gang.flow.copy()
        if twin.flow.route:
            self._gangs[twin.flow] = twin, tell
            self._links.adopt(twin.flow)
        return twin

    def expected(self, gang: Gang) -> float:
        """Return the rate that a gang would have if it started now (see ``GangCarrier``)."""
        return gang.rate(self._links.rate_of(gang.flow))

    def set_bandwidth(self, link: int, bandwidth: float) -> None:
        """Change the bandwidth of a link (in bytes per second) from now on."""
        self._links.set_bandwidth(link, bandwidth)
        self._update_soon()

    def fork(self, clock: Clock) -> SharedCarrier:
        twin = SharedCarrier(clock, self.routing)
        twin._links = self._links.without_flows()
        twin._missing = self._missing | {part.number: part.route for part in self._waiting}
        if self._updates or twin._missing:
            twin._update_soon()
        return twin

    def _update_soon(self) -> None:
        if not self._updates:
            self._updates = True
            Timer(self._clock, self._clock.now, COMPLETIONS).callbacks.append(self._update)

    def _update(self, _: Event) -> None:
        self._updates = False
        now = self._clock.now
        if self._links.next_end_s() <= now:
            self._arrive(now)
            self._update_soon()  # only after the events that wait for these parts have been processed
            return
        for route in self._missing.values():
            self._links.touch(route)
        self._missing.clear()
        for flow in self._links.update(now):
            if flow in self._gangs:
                gang, tell = self._gangs[flow]
                tell(gang.rate(flow.rate))
        self._look_at(self._links.next_end_s())

    def _look_at(self, time_s: float) -> None:
        if time_s < self._due_s:
            self._due_s = time_s
            Timer(self._clock, time_s, COMPLETIONS).callbacks.append(self._look)

    def _look(self, event: Event) -> None:
        now = self._clock.now
        if now < self._due_s:
            return  # an earlier event has already updated the rates
        self._due_s = inf
        if self._links.next_end_s() <= now:
            self._arrive(now)
            self._update_soon()
        else:
            self._look_at(self._links.next_end_s())

    def _arrive(self, now: float) -> None:
        for part in self._links.ended(now):
            self._waiting.pop(part).succeed()
