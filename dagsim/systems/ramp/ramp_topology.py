"""The optical RAMP fabric: C communication groups of R racks of S servers, every server one hop
from every other.

Ottino et al. 2022 (arXiv 2211.15226). A block is symmetric, so that a collective runs in at most
four rounds: over the groups, over groups and servers, over the racks, and over the rest of a rack.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import cached_property, lru_cache
from itertools import product
from math import ceil, isqrt, log2
from typing import cast

from dagsim.errors import ConfigError
from dagsim.systems.ramp.topology import Block, relabelled

__all__ = ["Ramp"]

_MEMORY_BYTES_PER_S = 2e12
_ADD_FLOPS = 130e12
_NUMBER_BYTES = 2
"""Rates at which a server adds half-precision numbers in a reduction, on an A100."""


class Ramp:
    """RAMP(C, R, S). ``node_bytes_per_s`` is the total rate at which a server sends; a channel has
    1 / C of it.

    ``ddls=True`` costs collectives as ddls does: their bandwidth is divided by C once more, and
    those within one rack are free.

    Raises:
        ConfigError: A count below 1, more racks than groups, or an impossible bandwidth or latency.
    """

    anywhere = False

    def __init__(
        self,
        groups: int = 4,
        racks: int = 4,
        servers_per_rack: int = 2,
        *,
        node_bytes_per_s: float = 1.6e12,
        propagation_s: float = 50e-9,
        io_s: float = 100e-9,
        ddls: bool = False,
    ) -> None:
        for name, count in (("groups", groups), ("racks", racks), ("servers_per_rack", servers_per_rack)):
            if count < 1:
                raise ConfigError(
                    f"RAMP({groups}, {racks}, {servers_per_rack}): {name} must be at least 1, got {count!r}"
                )
        if racks > groups:
            raise ConfigError(
                f"RAMP({groups}, {racks}, {servers_per_rack}): there cannot be more racks than communication groups"
            )
        if servers_per_rack > groups * (groups + 1):
            raise ConfigError(
                f"RAMP({groups}, {racks}, {servers_per_rack}): a rack holds at most C (C + 1) = {groups * (groups + 1)}"
                " servers, or its last round has no channel left"
            )
        if not (node_bytes_per_s > 0 and propagation_s >= 0 and io_s >= 0):
            raise ConfigError("RAMP: node_bytes_per_s must be positive, propagation_s and io_s 0 or more")
        self.shape = (groups, racks, servers_per_rack)
        self.channel_bytes_per_s = node_bytes_per_s / groups
        self.latency_s = propagation_s + 2 * io_s
        self.ddls = ddls
        self.places: tuple[tuple[int, int, int], ...] = tuple(
            cast("list[tuple[int, int, int]]", list(product(range(groups), range(racks), range(servers_per_rack))))
        )
        self._blocks: dict[int, tuple[Block, ...]] = {}

    @property
    def name(self) -> str:
        """Shape, bandwidth, latency and the cost rule of collectives."""
        costs = f"{self.channel_bytes_per_s!r} B/s, {self.latency_s!r} s" + (", as in ddls" if self.ddls else "")
        return f"RAMP{self.shape} ({costs})"

    @property
    def servers(self) -> int:
        """C times R times S."""
        return len(self.places)

    @cached_property
    def server_names(self) -> tuple[str, ...]:
        """``c-r-s`` each."""
        return tuple("-".join(map(str, place)) for place in self.places)

    def blocks(self, size: int) -> tuple[Block, ...]:
        """Symmetric blocks of ``size`` servers: cubes, then bars and planes, then diagonals, each at every origin."""
        blocks = self._blocks.get(size)
        if blocks is None:
            blocks = self._blocks[size] = tuple(dict.fromkeys(self._candidates(size)))
        return blocks

    def free_blocks(self, size: int, free: list[int]) -> Iterator[Block]:
        """Symmetric blocks of free servers."""
        open_ = set(free)
        return (block for block in self.blocks(size) if open_.issuperset(block))

    def pair(self, source: int, target: int) -> Hashable:
        """Every pair is one hop apart, so all pairs share one key."""
        return None

    def route(self, source: int, target: int) -> tuple[int, ...]:
        """The pair's own channel."""
        return (source * self.servers + target,)

    def transfer_s(self, pair: Hashable, size_bytes: float) -> float:
        """Latency, and the bytes at the rate of one channel."""
        return self.latency_s + size_bytes / self.channel_bytes_per_s

    def group(self, servers: frozenset[int]) -> tuple[int, int, int]:
        """Numbers of groups, racks and servers (by their number in a rack) that take part."""
        places = [self.places[server] for server in servers]
        groups, racks, numbers = (len({place[axis] for place in places}) for axis in range(3))
        return groups, racks, numbers

    def collective_s(self, group: Hashable, total_bytes: float) -> float:
        """Seconds of a reduce-scatter in up to four rounds with its additions, and of an all-gather
        in the same number of rounds.
        """
        return _collective_s(
            cast("tuple[int, int, int]", group),
            total_bytes,
            self.shape[0],
            self.channel_bytes_per_s,
            self.latency_s,
            self.ddls,
        )

    def pattern(self, blocks: tuple[Block, ...]) -> Hashable:
        """Relabel groups, racks and servers by first appearance: costs depend only on their
        numbers.
        """
        return tuple(
            relabelled(tuple(tuple(self.places[server][axis] for server in block) for block in blocks))
            for axis in range(3)
        )

    def _candidates(self, size: int) -> Iterator[Block]:
        for shape in self._shapes(size):
            spans = (shape[0], shape[1], 1 if shape[2] < 0 else shape[2])
            room = [range(whole - span + 1) for whole, span in zip(self.shape, spans, strict=True)]
            for origin in product(*room):
                if shape[2] < 0:
                    steps: Iterator[tuple[int, ...]] = ((step, step, 0) for step in range(size))
                else:
                    steps = product(*map(range, shape))
                yield tuple(self._number(*(at + by for at, by in zip(origin, step, strict=True))) for step in steps)

    def _shapes(self, size: int) -> Iterator[tuple[int, int, int]]:
        """Block shapes of ``size`` servers in the order of trial; -1 stands for a diagonal."""
        groups, racks, depth = self.shape
        for across in range(1, size + 1):
            along, rest = divmod(size, across)
            if rest:
                continue
            root = isqrt(along)
            if root * root == along and root <= min(groups, racks) and across <= depth:
                yield (root, root, across)
            if along <= min(groups, racks) and across <= depth:
                yield (along, 1, across)
                yield (along, across, 1)
        yield (size, size, -1)
        yield (size, 1, 1)

    def _number(self, group: int, rack: int, server: int) -> int:
        return (group * self.shape[1] + rack) * self.shape[2] + server

    def __repr__(self) -> str:
        return f"Ramp{self.shape}"


@lru_cache(maxsize=65536)
def _collective_s(
    key: tuple[int, int, int], total_bytes: float, groups: int, channel_bytes_per_s: float, latency_s: float, ddls: bool
) -> float:
    in_groups, in_racks, numbers = key
    if key == (1, 1, 1):
        return 0.0
    rounds = [in_groups, min(in_groups, numbers), in_racks, ceil(numbers / groups)]
    if not ddls and in_groups == in_racks == 1:
        rounds[1] = min(numbers, groups)
    rate = channel_bytes_per_s / groups if ddls else channel_bytes_per_s
    left, sending_s, adding_s = total_bytes, 0.0, 0.0
    for among in rounds:
        left = ceil(left / among)
        if among > 1:
            channels = min(groups, groups // (among - 1))
            sending_s += latency_s + left / (channels * rate)
            depth = ceil(log2(among))
            adding_rate = min(_MEMORY_BYTES_PER_S * depth / (2 * (among + 1)), _ADD_FLOPS)
            adding_s += depth * left / _NUMBER_BYTES / adding_rate
    return 2 * sending_s + adding_s
