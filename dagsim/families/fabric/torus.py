"""Tori. A torus is a grid of hosts in which each row forms a ring. Routes follow one dimension
after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from dagsim.errors import ModelError
from dagsim.families.fabric.routing import Path, Routing, check_counts, check_hosts, check_link
from dagsim.systems.cluster.network.links import FabricLevel, Link


@dataclass(frozen=True, slots=True)
class Torus:
    """A torus. A route goes along the first dimension first, and takes the shorter direction in
    each dimension. If both directions are equally long, it takes the ascending one, except to
    coordinate 0 (as in SimGrid).
    """

    dimensions: tuple[int, ...] = (4, 4)
    """Number of hosts in each dimension. Hosts are numbered so that the first dimension varies
    fastest.
    """
    bandwidth_gb_s: float = 100.0
    """Bandwidth of each link in each direction. The default is the bandwidth of the links of a TPU
    v5p.
    """
    latency_s: float = 0.0
    """Latency of each link in seconds."""
    kind: Literal["torus"] = "torus"

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if not self.dimensions:
            raise ModelError("torus: dimensions must have at least one number")
        for place, size in enumerate(self.dimensions, 1):
            check_counts("torus", **{f"dimension {place}": size})
        check_link("torus", self.bandwidth_gb_s, self.latency_s)

    def levels(self, names: Sequence[str]) -> tuple[FabricLevel, ...]:
        """Return no levels, because a torus has no domains."""
        return ()

    def routing(self, names: Sequence[str]) -> Routing:
        """Build links and routes. Hosts fill the grid in order."""
        check_hosts("torus", prod(self.dimensions), names)
        links: list[Link] = []
        number: dict[tuple[int, int, int], int] = {}
        """Number of a link by host, dimension and direction (1 or -1)."""
        steps = [prod(self.dimensions[:place]) for place in range(len(self.dimensions))]

        def neighbour(host: int, place: int, direction: int) -> int:
            size, step = self.dimensions[place], steps[place]
            coordinate = host // step % size
            return host + ((coordinate + direction) % size - coordinate) * step

        for host in range(len(names)):
            for place, size in enumerate(self.dimensions):
                for direction in (1, -1) if size > 1 else ():
                    number[host, place, direction] = len(links)
                    to = neighbour(host, place, direction)
                    name = f"{names[host]}>{names[to]}" if size > 2 else f"{names[host]}>{names[to]}#{direction:+d}"
                    links.append(Link(name, self.bandwidth_gb_s * 1e9, self.latency_s))

        def paths(source: int, destination: int) -> tuple[Path, ...]:
            path, at = [], source
            for place, size in enumerate(self.dimensions):
                target = destination // steps[place] % size
                ahead = (target - at // steps[place]) % size
                direction = 1 if 2 * ahead < size or (2 * ahead == size and target) else -1
                for _ in range(min(ahead, size - ahead)):
                    path.append(number[at, place, direction])
                    at = neighbour(at, place, direction)
            return (tuple(path),)

        return Routing(len(names), links, paths)
