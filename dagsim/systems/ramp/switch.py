"""A flat switch: every server has one link to it, and any servers form a block."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import cached_property
from typing import cast

from dagsim.errors import ConfigError
from dagsim.systems.ramp.topology import Block, relabelled, ring_s

__all__ = ["Switch"]


class Switch:
    """``servers`` links of ``link_bytes_per_s`` both ways to one switch; collectives go around a ring.

    Raises:
        ConfigError: No servers, or a rate or latency that cannot be.
    """

    anywhere = True

    def __init__(self, servers: int = 32, *, link_bytes_per_s: float = 25e9, latency_s: float = 2e-6) -> None:
        if servers < 1:
            raise ConfigError(f"Switch: servers must be at least 1, got {servers!r}")
        if not (link_bytes_per_s > 0 and latency_s >= 0):
            raise ConfigError("Switch: link_bytes_per_s must be positive, latency_s 0 or more")
        self.servers = servers
        self.link_bytes_per_s = link_bytes_per_s
        self.latency_s = latency_s

    @property
    def name(self) -> str:
        """Servers, rate and latency."""
        return f"Switch({self.servers}) ({self.link_bytes_per_s!r} B/s, {self.latency_s!r} s)"

    @cached_property
    def server_names(self) -> tuple[str, ...]:
        """Their numbers."""
        return tuple(map(str, range(self.servers)))

    def blocks(self, size: int) -> tuple[Block, ...]:
        """Servers in a row; any others would do as well."""
        return tuple(tuple(range(first, first + size)) for first in range(self.servers - size + 1))

    def free_blocks(self, size: int, free: list[int]) -> Iterator[Block]:
        """Free servers that follow each other."""
        return (tuple(free[first : first + size]) for first in range(len(free) - size + 1))

    def pair(self, source: int, target: int) -> Hashable:
        """Nothing: all pairs are alike."""
        return None

    def route(self, source: int, target: int) -> tuple[int, ...]:
        """Up from one server and down to the other."""
        return source, self.servers + target

    def transfer_s(self, pair: Hashable, size_bytes: float) -> float:
        """Latency, and the bytes at the rate of a link."""
        return self.latency_s + size_bytes / self.link_bytes_per_s

    def group(self, servers: frozenset[int]) -> int:
        """The number that take part."""
        return len(servers)

    def collective_s(self, group: Hashable, total_bytes: float) -> float:
        """Reduce-scatter and all-gather around a ring."""
        return 2 * ring_s(cast("int", group), total_bytes, self.link_bytes_per_s, self.latency_s)

    def pattern(self, blocks: tuple[Block, ...]) -> Hashable:
        """Servers renamed by first appearance."""
        return relabelled(blocks)
