"""Fat trees: levels of switches, with several routes upward and routing by destination
(D-mod-k)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from dagsim.errors import ModelError
from dagsim.families.fabric.routing import Path, Routing, check_counts, check_hosts, check_link, levels_of
from dagsim.systems.cluster.network.links import FabricLevel, Link


@dataclass(frozen=True, slots=True)
class FatTree:
    """A fat tree: a parallel-ports generalised fat tree in the notation of Zahavi (*D-Mod-K
    Routing*, 2011).

    Level 1 contains the switches next to the hosts. A switch on level ``i`` has ``down[i - 1]``
    neighbours below; a node on level ``i - 1`` has ``up[i - 1]`` neighbours above, with ``count[i -
    1]`` parallel links to each. For an oversubscribed tree, give fewer links up than down: ``down:
    [16, 4], up: [1, 4], count: [1, 1]`` has 64 hosts on 4 leaves and 4 spines, and an
    oversubscription of 4:1.
    """

    down: tuple[int, ...] = (16, 4)
    """Number of neighbours below each switch, for each level."""
    up: tuple[int, ...] = (1, 16)
    """Number of neighbours above each node or switch, for each level."""
    count: tuple[int, ...] = (1, 1)
    """Number of parallel links to each neighbour above, for each level."""
    bandwidth_gb_s: float = 48.0
    """Bandwidth of each link in each direction. The default is what NDR InfiniBand (400 Gb/s)
    achieves.
    """
    latency_s: float = 0.0
    """Latency of each link."""
    kind: Literal["fat_tree"] = "fat_tree"

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if not len(self.down) == len(self.up) == len(self.count) >= 1:
            raise ModelError("fat_tree: down, up and count must have one number per level, and at least one level")
        for name in ("down", "up", "count"):
            for level, number in enumerate(getattr(self, name), 1):
                check_counts("fat_tree", **{f"{name} of level {level}": number})
        check_link("fat_tree", self.bandwidth_gb_s, self.latency_s)

    def levels(self, names: Sequence[str]) -> tuple[FabricLevel, ...]:
        """Return racks (the hosts below one switch on level 1), pods (the hosts below one switch on
        level 2), and so on.
        """
        widths = [prod(self.down[: level + 1]) for level in range(len(self.down))]
        return levels_of([[host // width for host in range(len(names))] for width in widths])

    def routing(self, names: Sequence[str]) -> Routing:
        """Build links and routes. Hosts fill the leaf switches in order."""
        down, up, count = self.down, self.up, self.count
        check_hosts("fat_tree", prod(down), names)
        links: list[Link] = []
        number: dict[tuple[int, int, int, bool], int] = {}
        """Number of a link, by the level and the position of the lower end, the port there, and the
        direction."""
        for level in range(len(down)):
            for below in range(self._nodes(level)):
                for port in range(up[level] * count[level]):
                    lower = names[below] if level == 0 else f"switch{level}.{below}"
                    upper = f"switch{level + 1}.{self._parent(level, below, port % up[level])}"
                    for upward in (True, False):
                        number[level, below, port, upward] = len(links)
                        ends = f"{lower}>{upper}" if upward else f"{upper}>{lower}"
                        name = ends if count[level] == 1 else f"{ends}#{port // up[level]}"
                        links.append(Link(name, self.bandwidth_gb_s * 1e9, self.latency_s))

        def paths(source: int, destination: int) -> tuple[Path, ...]:
            # On the way up, the port at each level is a digit of the destination's number, written
            # in a base that equals the number of ports. The way down is unique, except that the
            # source chooses between parallel links.
            ascent, descent = [], []
            at, under, level, rest = source, destination, 0, destination
            while at != under:
                ports = up[level] * count[level]
                port, rest = rest % ports, rest // ports
                way = port % up[level]
                ascent.append(number[level, at, port, True])
                descent.append(number[level, under, way + source % count[level] * up[level], False])
                at, under = self._parent(level, at, way), self._parent(level, under, way)
                level += 1
            return ((*ascent, *reversed(descent)),)

        return Routing(len(names), links, paths)

    def _nodes(self, level: int) -> int:
        return prod(self.up[:level]) * prod(self.down[level:])

    def _parent(self, level: int, position: int, way: int) -> int:
        """Return the position of a neighbour on the level above. A position encodes a label with
        one digit per level, of which the lowest varies fastest. Digits below the node's level count
        the ways up (``up``), and the other digits count the ways down (``down``). A step up
        replaces the digit for the level with the chosen way."""
        low = prod(self.up[:level])
        below, rest = position % low, position // low // self.down[level]
        return below + low * (way + self.up[level] * rest)
