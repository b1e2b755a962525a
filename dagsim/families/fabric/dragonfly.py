"""Dragonflies, whose groups of routers are all linked to each other, with minimal routes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dagsim.errors import ModelError
from dagsim.families.fabric.routing import Path, Routing, check_counts, check_hosts, check_link, levels_of
from dagsim.systems.cluster.network.links import FabricLevel, Link


@dataclass(frozen=True, slots=True)
class Dragonfly:
    """A dragonfly network built like the Cray Cascade (Faanes et al. 2012). Each group has
    ``chassis`` chassis, each chassis has ``routers`` routers, and each router has
    ``hosts_per_router`` hosts.

    All routers in a chassis are linked to each other (*green* links), and so are the routers with
    the same number in different chassis of a group (*black* links). All groups are linked as well
    (*blue* links): router ``j`` of group ``i`` has the link to group ``j``. A minimal route takes
    green, black and blue links to the other group, then green and black links to the router.
    Parallel cables count as one link with their total bandwidth.
    """

    groups: int = 4
    """Number of groups."""
    chassis: int = 1
    """Number of chassis per group."""
    routers: int = 4
    """Number of routers per chassis."""
    hosts_per_router: int = 4
    """Number of hosts per router."""
    blue: int = 1
    """Parallel cables between two groups."""
    black: int = 1
    """Number of parallel cables between two routers in different chassis of the same group."""
    green: int = 1
    """Number of parallel cables between two routers in the same chassis."""
    bandwidth_gb_s: float = 24.0
    """Bandwidth of each cable in each direction. The default is what a 200 Gb/s link achieves."""
    latency_s: float = 0.0
    """Latency of each link in seconds."""
    kind: Literal["dragonfly"] = "dragonfly"

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        names = ("groups", "chassis", "routers", "hosts_per_router", "blue", "black", "green")
        check_counts("dragonfly", **{name: getattr(self, name) for name in names})
        check_link("dragonfly", self.bandwidth_gb_s, self.latency_s)
        if self.groups > self.chassis * self.routers:
            raise ModelError(
                "dragonfly: the number of routers per group must be at least the number of groups, "
                f"{self.groups}, got {self.chassis * self.routers}"
            )

    def levels(self, names: Sequence[str]) -> tuple[FabricLevel, ...]:
        """Return the hosts below each router, chassis and group."""
        widths = [self.hosts_per_router, self.hosts_per_router * self.routers]
        widths.append(widths[-1] * self.chassis)
        of = [[host // width for host in range(len(names))] for width in widths]
        return levels_of(of, ("router", "chassis", "group"))

    def routing(self, names: Sequence[str]) -> Routing:
        """Build links and routes. Hosts fill routers, chassis and groups in order."""
        per_group = self.chassis * self.routers
        check_hosts("dragonfly", self.groups * per_group * self.hosts_per_router, names)
        links: list[Link] = []
        number: dict[tuple[int | str, int | str], int] = {}

        def connect(one: int | str, other: int | str, cables: int) -> None:
            for source, target in ((one, other), (other, one)):
                number[source, target] = len(links)
                ends = [end if isinstance(end, str) else f"router{end}" for end in (source, target)]
                links.append(Link(">".join(ends), self.bandwidth_gb_s * cables * 1e9, self.latency_s))

        for host, name in enumerate(names):
            connect(name, host // self.hosts_per_router, 1)
        for group in range(self.groups):
            first = group * per_group
            for one in range(per_group):
                for other in range(one + 1, per_group):
                    if one // self.routers == other // self.routers:
                        connect(first + one, first + other, self.green)
                    elif one % self.routers == other % self.routers:
                        connect(first + one, first + other, self.black)
            for other in range(group + 1, self.groups):
                connect(first + other, other * per_group + group, self.blue)

        def within(path: list[int], at: int, target: int) -> int:
            """Append the links between two routers in a group, first the link within the chassis
            and then the link to another chassis."""
            corner = at - at % self.routers + target % self.routers
            for step in (corner, target):
                if step != at:
                    path.append(number[at, step])
                    at = step
            return at

        def paths(source: int, destination: int) -> tuple[Path, ...]:
            at, target = source // self.hosts_per_router, destination // self.hosts_per_router
            path = [number[names[source], at]]
            here, there = at // per_group, target // per_group
            if here != there:
                at = within(path, at, here * per_group + there)
                entrance = there * per_group + here
                path.append(number[at, entrance])
                at = entrance
            within(path, at, target)
            path.append(number[target, names[destination]])
            return (tuple(path),)

        return Routing(len(names), links, paths)
