"""Fabrics described link by link: links and routes, or a tree of switches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dagsim.errors import ModelError
from dagsim.families.fabric.routing import Path, Routing, check_link, levels_of
from dagsim.model.arithmetic import ordered_sum
from dagsim.spelling import nearest
from dagsim.systems.cluster.network.links import FabricLevel, Link

_FORBID = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class Cable:
    """One direction of a link. Routes refer to it by its name."""

    name: str
    """Name by which routes refer to the link."""
    bandwidth_gb_s: float
    """Bandwidth in GB/s."""
    latency_s: float = 0.0
    """Latency in seconds."""

    __pydantic_config__ = _FORBID


@dataclass(frozen=True, slots=True)
class Route:
    """The links from one node to another, in order."""

    source: str
    """Name of the sending node."""
    destination: str
    """Name of the receiving node."""
    links: tuple[str, ...]
    """Names of the links, in order."""

    __pydantic_config__ = _FORBID


@dataclass(frozen=True, slots=True)
class Explicit:
    """A network that is described link by link, with a route for every ordered pair of nodes."""

    links: tuple[Cable, ...]
    """All links. A cable that can send in both directions has two links."""
    routes: tuple[Route, ...]
    """A route for every ordered pair of nodes."""
    kind: Literal["explicit"] = "explicit"

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        names: set[str] = set()
        for place, cable in enumerate(self.links):
            check_link(f"explicit: link {cable.name!r}", cable.bandwidth_gb_s, cable.latency_s)
            if cable.name in names:
                raise ModelError(f"explicit: two links are called {cable.name!r}").below("links", place)
            names.add(cable.name)

    def levels(self, names: Sequence[str]) -> tuple[FabricLevel, ...]:
        """Return no levels, because links and routes define no domains."""
        return ()

    def routing(self, names: Sequence[str]) -> Routing:
        """Build links and routes. The routes name the nodes of the cluster."""
        number = {cable.name: place for place, cable in enumerate(self.links)}
        hosts = {name: host for host, name in enumerate(names)}
        ways: dict[tuple[int, int], tuple[Path, ...]] = {}
        for place, route in enumerate(self.routes):
            where = f"explicit: route from {route.source!r} to {route.destination!r}"
            for end, node in (("source", route.source), ("destination", route.destination)):
                if node not in hosts:
                    raise ModelError(f"{where}: the cluster has no node {node!r}{nearest(node, names)}").below(
                        "routes", place, end
                    )
            for step, link in enumerate(route.links):
                if link not in number:
                    raise ModelError(f"{where}: there is no link {link!r}{nearest(link, number)}").below(
                        "routes", place, "links", step
                    )
            pair = hosts[route.source], hosts[route.destination]
            fault = (
                "a link occurs twice" if len(set(route.links)) < len(route.links)
                else "a node needs no route to itself" if route.source == route.destination
                else "it is given twice" if pair in ways
                else ""
            )  # fmt: skip
            if fault:
                raise ModelError(f"{where}: {fault}").below("routes", place)
            ways[pair] = (tuple(number[link] for link in route.links),)
        for source in names:
            for destination in names:
                if source != destination and (hosts[source], hosts[destination]) not in ways:
                    raise ModelError(f"explicit: there is no route from {source!r} to {destination!r}").below("routes")
        links = [Link(cable.name, cable.bandwidth_gb_s * 1e9, cable.latency_s) for cable in self.links]
        return Routing(len(names), links, lambda source, destination: ways[source, destination])


@dataclass(frozen=True, slots=True)
class TreeSwitch:
    """A switch with nodes or switches below it."""

    name: str
    """Name of the switch."""
    nodes: tuple[str, ...] = ()
    """Names of the nodes directly below the switch."""
    switches: tuple[str, ...] = ()
    """Names of the switches directly below the switch."""
    bandwidth_gb_s: float | None = None
    """Bandwidth of the link upward. Default: the total bandwidth of the links below the switch,
    divided by the tree's ``oversubscription``.
    """

    __pydantic_config__ = _FORBID


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree of switches, such as racks and pods. Each switch has one link upward (Slurm's
    ``topology/tree``).
    """

    switches: tuple[TreeSwitch, ...]
    """All switches in the tree."""
    bandwidth_gb_s: float = 48.0
    """Bandwidth of each node's link in each direction."""
    oversubscription: float = 1.0
    """Total bandwidth below a switch divided by the bandwidth of the link upward."""
    latency_s: float = 0.0
    """Latency of each link."""
    levels_up: tuple[str, ...] = ()
    """Names of the levels of switches, beginning with the level closest to the nodes. The default
    is rack, pod, level3. Named levels exist even if all nodes are in the same switch of that level.
    """
    kind: Literal["tree"] = "tree"

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        check_link("tree", self.bandwidth_gb_s, self.latency_s)
        if not 0 < self.oversubscription < float("inf"):
            raise ModelError(f"tree: oversubscription must be positive, got {self.oversubscription!r}")
        for switch in self.switches:
            if switch.bandwidth_gb_s is not None:
                check_link(f"tree: switch {switch.name!r}", switch.bandwidth_gb_s, 0.0)

    def levels(self, names: Sequence[str]) -> tuple[FabricLevel, ...]:
        """Return the switches above each node, level by level. If a node is below fewer switches
        than other nodes, its topmost switch also counts at the remaining levels.
        """
        parents = self._parents(names)
        number = {switch.name: place for place, switch in enumerate(self.switches)}
        lines = [[number[switch] for switch in _line(name, parents)[1:]] for name in names]
        depth = max(map(len, lines), default=0)
        return levels_of(
            [[line[min(level, len(line) - 1)] for line in lines] for level in range(depth)],
            self.levels_up,
            self.levels_up,
        )

    def routing(self, names: Sequence[str]) -> Routing:
        """Build links and routes. The switches name the nodes of the cluster."""
        parents = self._parents(names)
        switches = {switch.name: switch for switch in self.switches}
        bandwidths = dict.fromkeys(names, self.bandwidth_gb_s)

        def bandwidth(name: str) -> float:
            if name not in bandwidths:
                switch = switches[name]
                below = [bandwidth(child) for child in (*switch.nodes, *switch.switches)]
                own = switch.bandwidth_gb_s
                # in a fixed order, so that the sum is the same on every machine
                bandwidths[name] = ordered_sum(below) / self.oversubscription if own is None else own
            return bandwidths[name]

        links: list[Link] = []
        up: dict[str, int] = {}
        """Number of the upward link of each node and switch; the next one leads down."""
        for child, parent in parents.items():
            up[child] = len(links)
            for ends in (f"{child}>{parent}", f"{parent}>{child}"):
                links.append(Link(ends, bandwidth(child) * 1e9, self.latency_s))

        def paths(source: int, destination: int) -> tuple[Path, ...]:
            ascent, descent = _line(names[source], parents), _line(names[destination], parents)
            while len(ascent) > 1 and len(descent) > 1 and ascent[-2:] == descent[-2:]:
                ascent.pop(), descent.pop()
            return ((*(up[name] for name in ascent[:-1]), *(up[name] + 1 for name in reversed(descent[:-1]))),)

        return Routing(len(names), links, paths)

    def _parents(self, names: Sequence[str]) -> dict[str, str]:
        """Return the switch above each node and above each switch. First check that they form
        exactly one tree."""
        hosts = set(names)
        switch_names = {switch.name for switch in self.switches}
        parents: dict[str, str] = {}
        seen: set[str] = set()
        for place, switch in enumerate(self.switches):
            if switch.name in hosts or switch.name in seen:
                twin = "a node" if switch.name in hosts else "another switch"
                raise ModelError(f"tree: switch {switch.name!r} has the name of {twin}").below(
                    "switches", place, "name"
                )
            seen.add(switch.name)
            for key, kind, allowed in (("nodes", "node", hosts), ("switches", "switch", switch_names)):
                for step, child in enumerate(getattr(switch, key)):
                    if child not in allowed:
                        what = f"names the {kind} {child!r}, which does not exist"
                    elif child in parents:
                        what = f"names {child!r}, which is below {parents[child]!r}"
                    else:
                        parents[child] = switch.name
                        continue
                    raise ModelError(f"tree: switch {switch.name!r} {what}").below("switches", place, key, step)
        roots = [switch.name for switch in self.switches if switch.name not in parents]
        if len(roots) != 1:
            raise ModelError(
                f"tree: expected one switch above all others, got {', '.join(roots) or 'none'}"
            ).below("switches")  # fmt: skip
        below = {switch.name: switch.switches for switch in self.switches}
        reached = roots[:]
        for name in reached:
            reached += below[name]
        apart = switch_names.difference(reached)
        for place, switch in enumerate(self.switches):
            if switch.name in apart:
                raise ModelError(f"tree: switch {switch.name!r} is below itself").below("switches", place)
        for name in names:
            if name not in parents:
                raise ModelError(f"tree: node {name!r} is not below any switch").below("switches")
        return parents


def _line(name: str, parents: Mapping[str, str]) -> list[str]:
    """Return a node or switch and all switches above it, from bottom to top."""
    line = [name]
    while line[-1] in parents:
        line.append(parents[line[-1]])
    return line
