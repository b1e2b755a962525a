"""A torus of any number of dimensions: servers linked to their neighbours, the last of a row to its first."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import cached_property
from itertools import product
from math import prod
from typing import cast

from dagsim.errors import ConfigError
from dagsim.systems.ramp.topology import Block, ring_s

__all__ = ["Torus"]


class Torus:
    """``Torus((4, 4, 2))``. A block is a box; a collective goes dimension by dimension around its rows.

    Links go both ways, so that a row that is not closed carries a ring as well. Messages take the dimensions in order,
    each the shorter way around.

    Raises:
        ConfigError: No dimensions, a length below 1, or a rate or latency that cannot be.
    """

    anywhere = False

    def __init__(
        self, shape: tuple[int, ...] = (4, 4, 2), *, link_bytes_per_s: float = 25e9, hop_s: float = 1e-6
    ) -> None:
        if not shape or any(length < 1 for length in shape):
            raise ConfigError(f"Torus: every length must be at least 1, got {shape!r}")
        if not (link_bytes_per_s > 0 and hop_s >= 0):
            raise ConfigError("Torus: link_bytes_per_s must be positive, hop_s 0 or more")
        self.shape = tuple(shape)
        self.link_bytes_per_s = link_bytes_per_s
        self.hop_s = hop_s
        self.places: tuple[tuple[int, ...], ...] = tuple(product(*map(range, self.shape)))
        self._number = {place: number for number, place in enumerate(self.places)}
        self._blocks: dict[int, tuple[Block, ...]] = {}

    @property
    def name(self) -> str:
        """Shape, rate and latency."""
        return f"Torus{self.shape} ({self.link_bytes_per_s!r} B/s, {self.hop_s!r} s a hop)"

    @property
    def servers(self) -> int:
        """The product of all lengths."""
        return prod(self.shape)

    @cached_property
    def server_names(self) -> tuple[str, ...]:
        """``x-y-...`` each."""
        return tuple("-".join(map(str, place)) for place in self.places)

    def blocks(self, size: int) -> tuple[Block, ...]:
        """Boxes of ``size`` servers, the most compact shapes first. Each is at every origin and around the edges."""
        known = self._blocks.get(size)
        if known is None:
            found: dict[frozenset[int], Block] = {}
            for shape in sorted(self._shapes(size), key=lambda lengths: (sum(lengths), lengths)):
                for origin in self.places:
                    block = tuple(self._number[self._at(origin, step)] for step in product(*map(range, shape)))
                    found.setdefault(frozenset(block), block)
            known = self._blocks[size] = tuple(found.values())
        return known

    def free_blocks(self, size: int, free: list[int]) -> Iterator[Block]:
        """Boxes of free servers."""
        open_ = set(free)
        return (block for block in self.blocks(size) if open_.issuperset(block))

    def pair(self, source: int, target: int) -> int:
        """Hops from one to the other."""
        return sum(abs(step) for step in self._steps(source, target))

    def route(self, source: int, target: int) -> tuple[int, ...]:
        """The links on the way: two per server and dimension."""
        links = []
        here = list(self.places[source])
        for axis, step in enumerate(self._steps(source, target)):
            for _ in range(abs(step)):
                links.append((self._number[tuple(here)] * len(self.shape) + axis) * 2 + (step > 0))
                here[axis] = (here[axis] + (1 if step > 0 else -1)) % self.shape[axis]
        return tuple(links)

    def transfer_s(self, pair: Hashable, size_bytes: float) -> float:
        """The latency of every hop, and the bytes at the rate of a link (cut-through)."""
        return cast("int", pair) * self.hop_s + size_bytes / self.link_bytes_per_s

    def group(self, servers: frozenset[int]) -> tuple[int, ...]:
        """Servers that take part along each dimension; of no box, all in a row."""
        places = [self.places[server] for server in servers]
        counts = tuple(len({place[axis] for place in places}) for axis in range(len(self.shape)))
        return counts if prod(counts) == len(servers) else (len(servers),)

    def collective_s(self, group: Hashable, total_bytes: float) -> float:
        """Reduce-scatter dimension by dimension, each on what the one before left, and all-gather back."""
        left, seconds = total_bytes, 0.0
        for among in cast("tuple[int, ...]", group):
            seconds += ring_s(among, left, self.link_bytes_per_s, self.hop_s)
            left /= among
        return 2 * seconds

    def pattern(self, blocks: tuple[Block, ...]) -> Hashable:
        """Places as seen from the first server."""
        first = self.places[blocks[0][0]]
        return tuple(
            tuple(
                tuple((at - by) % length for at, by, length in zip(self.places[server], first, self.shape, strict=True))
                for server in block
            )
            for block in blocks
        )

    def _steps(self, source: int, target: int) -> Iterator[int]:
        """Signed hops along each dimension, the shorter way; forward where both are as short."""
        for one, other, length in zip(self.places[source], self.places[target], self.shape, strict=True):
            ahead = (other - one) % length
            yield ahead if ahead * 2 <= length else ahead - length

    def _at(self, origin: tuple[int, ...], step: tuple[int, ...]) -> tuple[int, ...]:
        return tuple((at + by) % length for at, by, length in zip(origin, step, self.shape, strict=True))

    def _shapes(self, size: int) -> Iterator[tuple[int, ...]]:
        for shape in product(*(range(1, length + 1) for length in self.shape)):
            if prod(shape) == size:
                yield shape
