"""A fat tree of two levels: servers on leaf switches, leaves on a spine that may be oversubscribed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import cached_property
from typing import cast

from dagsim.errors import ConfigError
from dagsim.systems.ramp.topology import Block, relabelled, ring_s

__all__ = ["FatTree"]


class FatTree:
    """``leaves`` switches of ``per_leaf`` servers. Between leaves a server gets 1 / ``oversubscription`` of its rate.

    Collectives run within the leaves first, then among them on what each server has left.

    Raises:
        ConfigError: No leaves or servers, a rate that cannot be, an oversubscription below 1.
    """

    anywhere = True

    def __init__(
        self,
        leaves: int = 4,
        per_leaf: int = 8,
        *,
        oversubscription: float = 1.0,
        link_bytes_per_s: float = 25e9,
        hop_s: float = 1e-6,
    ) -> None:
        if leaves < 1 or per_leaf < 1:
            raise ConfigError(f"FatTree({leaves}, {per_leaf}): leaves and servers per leaf must be at least 1")
        if not oversubscription >= 1:
            raise ConfigError(f"FatTree: oversubscription must be at least 1, got {oversubscription!r}")
        if not (link_bytes_per_s > 0 and hop_s >= 0):
            raise ConfigError("FatTree: link_bytes_per_s must be positive, hop_s 0 or more")
        self.leaves = leaves
        self.per_leaf = per_leaf
        self.oversubscription = oversubscription
        self.link_bytes_per_s = link_bytes_per_s
        self.hop_s = hop_s

    @property
    def name(self) -> str:
        """Shape, rates and latency."""
        said = f"{self.oversubscription!r}:1, {self.link_bytes_per_s!r} B/s, {self.hop_s!r} s a hop"
        return f"FatTree({self.leaves}, {self.per_leaf}) ({said})"

    @property
    def servers(self) -> int:
        """Leaves times servers per leaf."""
        return self.leaves * self.per_leaf

    @cached_property
    def server_names(self) -> tuple[str, ...]:
        """``leaf-number`` each."""
        return tuple(f"{leaf}-{number}" for leaf in range(self.leaves) for number in range(self.per_leaf))

    def blocks(self, size: int) -> tuple[Block, ...]:
        """Servers in a row, those on one leaf first."""
        return tuple(self.free_blocks(size, list(range(self.servers))))

    def free_blocks(self, size: int, free: list[int]) -> Iterator[Block]:
        """Free servers of the leaf with the fewest that are enough. Then of the others, then across leaves."""
        by_leaf: dict[int, list[int]] = {}
        for server in free:
            by_leaf.setdefault(server // self.per_leaf, []).append(server)
        for row in sorted(by_leaf.values(), key=len):
            for first in range(len(row) - size + 1):
                yield tuple(row[first : first + size])
        emptiest_first = [server for row in sorted(by_leaf.values(), key=len, reverse=True) for server in row]
        for first in range(len(emptiest_first) - size + 1):
            yield tuple(sorted(emptiest_first[first : first + size]))

    def pair(self, source: int, target: int) -> bool:
        """Both are on one leaf."""
        return source // self.per_leaf == target // self.per_leaf

    def route(self, source: int, target: int) -> tuple[int, ...]:
        """Up from one server and down to the other; the spine has room for all at the reduced rate."""
        return source, self.servers + target

    def transfer_s(self, pair: Hashable, size_bytes: float) -> float:
        """Two hops on one leaf; else four, at the reduced rate."""
        if pair:
            return 2 * self.hop_s + size_bytes / self.link_bytes_per_s
        return 4 * self.hop_s + size_bytes * self.oversubscription / self.link_bytes_per_s

    def group(self, servers: frozenset[int]) -> tuple[int, int]:
        """The number of leaves that take part, and the max servers of any one."""
        counts: dict[int, int] = {}
        for server in servers:
            counts[server // self.per_leaf] = counts.get(server // self.per_leaf, 0) + 1
        return len(counts), max(counts.values())

    def collective_s(self, group: Hashable, total_bytes: float) -> float:
        """Rings within the leaves, and rings among leaves over what is left to each server."""
        leaves, most = cast("tuple[int, int]", group)
        within_s = ring_s(most, total_bytes, self.link_bytes_per_s, 2 * self.hop_s)
        between_s = ring_s(leaves, total_bytes / most, self.link_bytes_per_s / self.oversubscription, 4 * self.hop_s)
        return 2 * (within_s + between_s)

    def pattern(self, blocks: tuple[Block, ...]) -> Hashable:
        """Leaves and servers renamed by first appearance."""
        leaves = tuple(tuple(server // self.per_leaf for server in block) for block in blocks)
        return relabelled(leaves), relabelled(blocks)
