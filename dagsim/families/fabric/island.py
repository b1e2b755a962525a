"""Islands. Their hosts have several NICs, each on a rail of its own, and NVLink between their
GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dagsim.families.fabric.routing import Path, Routing, check_counts, check_link
from dagsim.systems.cluster.network.links import FabricLevel, Link


@dataclass(frozen=True, slots=True)
class Island:
    """Hosts that are connected by ``rails`` separate non-blocking networks, with one NIC per
    network (NVIDIA's rail-optimised design).

    Traffic between two hosts is split evenly over the rails. Transfers within a host use NVLink,
    which no other host shares, and take no time in this model.
    """

    rails: int = 8
    """The number of separate networks, and so of NICs in each host."""
    bandwidth_gb_s: float = 48.0
    """Bandwidth of each NIC in each direction. The default is what NDR InfiniBand (400 Gb/s)
    achieves.
    """
    latency_s: float = 0.0
    """Latency of each link in seconds."""
    kind: Literal["island"] = "island"

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        check_counts("island", rails=self.rails)
        check_link("island", self.bandwidth_gb_s, self.latency_s)

    def levels(self, names: Sequence[str]) -> tuple[FabricLevel, ...]:
        """Return no levels, because all hosts are equally far from each other."""
        return ()

    def routing(self, names: Sequence[str]) -> Routing:
        """Build links and routes for any number of hosts."""
        rails = self.rails
        links = [
            Link(f"{name}.nic{rail}.{end}", self.bandwidth_gb_s * 1e9, self.latency_s)
            for name in names
            for rail in range(rails)
            for end in ("tx", "rx")
        ]

        def paths(source: int, destination: int) -> tuple[Path, ...]:
            return tuple((2 * (source * rails + rail), 2 * (destination * rails + rail) + 1) for rail in range(rails))

        return Routing(len(names), links, paths)
