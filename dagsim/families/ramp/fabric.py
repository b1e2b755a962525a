"""The fabric: a topology with one GPU on each server, and cached data about its blocks and
channels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from dagsim.errors import ConfigError
from dagsim.families.ramp.bounded import Bounded
from dagsim.families.ramp.topology import Block, Topology
from dagsim.model import Cluster, GpuType, Node, gpu_type

_GB = 1e9
_MOST_CROSSINGS = 20_000
"""Maximum number of crossings in the cache. If any servers form a block, there can be any number of
them."""


class Lane(NamedTuple):
    """Equally costly transfers between the pieces of two operations. ``key`` identifies their cost.
    It is None if both pieces are on the same server."""

    key: Hashable
    local: bool
    """True if both ends are on one server, so nothing is sent."""
    targets: tuple[tuple[int, ...], ...]
    """Pieces of the target, for each piece of the source."""
    channels: tuple[int, ...]
    """Bit mask of the channels taken, for each piece of the source."""
    all_channels: int
    sharing: int
    """Largest number of pairs that share a channel; each gets an equal part of its rate."""
    arrivals: tuple[int, ...]
    """Number of pieces of the source that send to each piece of the target."""
    even: int
    """The common value of ``arrivals``, or -1 if they differ."""


class Crossing(NamedTuple):
    """All pairs of servers between two blocks, grouped into lanes."""

    lanes: tuple[Lane, ...]


class Fabric:
    """A topology and the GPU type of each server (default: an A100 with 80 GB everywhere).

    Kernels should share one fabric, because it then computes each block and crossing only once.

    Raises:
        ConfigError: The number of GPU types differs from the number of servers.
    """

    def __init__(self, topology: Topology, gpus: Sequence[GpuType] | GpuType | None = None) -> None:
        self.topology = topology
        one = gpu_type("A100-80") if gpus is None else gpus
        self.gpus: tuple[GpuType, ...] = (one,) * topology.servers if isinstance(one, GpuType) else tuple(one)
        if len(self.gpus) != topology.servers:
            raise ConfigError(
                f"{topology.name} has {topology.servers} servers, but {len(self.gpus)} GPU types were given"
            )
        self.types: tuple[GpuType, ...] = tuple(dict.fromkeys(self.gpus))
        """Distinct GPU types; a server's type is an index into them."""
        self.type_of: tuple[int, ...] = tuple(self.types.index(gpu) for gpu in self.gpus)
        self.memory_bytes: tuple[float, ...] = tuple(gpu.memory_gb * _GB for gpu in self.gpus)
        self.name = f"{topology.name} of {', '.join(f'{self.gpus.count(gpu)} {gpu.name}' for gpu in self.types)}"
        self.everything = (1 << topology.servers) - 1
        """The bit mask of all servers."""
        self._masked: dict[int, tuple[tuple[int, Block], ...]] = {}
        self._distinct: dict[int, tuple[int, ...]] = {}
        self._masks: dict[Block, int] = {}
        self._places: dict[Block, dict[int, int]] = {}
        self._crossings: Bounded[tuple[Block, Block], Crossing] = Bounded(_MOST_CROSSINGS)
        self._exchanges: dict[Block, Crossing] = {}
        self._groups: dict[tuple[Block, ...], Hashable] = {}

    @property
    def servers(self) -> int:
        """The number of servers."""
        return self.topology.servers

    def cluster(self) -> Cluster:
        """Return a cluster with one node per server, for logs and metrics."""
        nodes = (
            Node(name, gpu, 1, memory_gb=gpu.memory_gb)
            for name, gpu in zip(self.topology.server_names, self.gpus, strict=True)
        )
        return Cluster(tuple(nodes), "ramp")

    def blocks(self, size: int) -> tuple[tuple[int, Block], ...]:
        """Return all blocks of ``size`` servers with their bit masks, in first-fit order."""
        blocks = self._masked.get(size)
        if blocks is None:
            blocks = self._masked[size] = tuple((self.mask(block), block) for block in self.topology.blocks(size))
        return blocks

    def masks(self, size: int) -> tuple[int, ...]:
        """Return the distinct blocks of ``size`` servers as bit masks, in first-fit order."""
        masks = self._distinct.get(size)
        if masks is None:
            masks = self._distinct[size] = tuple(dict.fromkeys(mask for mask, _ in self.blocks(size)))
        return masks

    def free(self, size: int, occupied: int) -> Iterator[tuple[int, Block]]:
        """Yield blocks of free servers with their bit masks, in first-fit order."""
        if not self.topology.anywhere:
            return (masked for masked in self.blocks(size) if not masked[0] & occupied)
        free = [server for server in range(self.servers) if not occupied >> server & 1]
        return ((self.mask(block), block) for block in self.topology.free_blocks(size, free))

    def mask(self, block: Block) -> int:
        """Return a block's servers as a bit mask."""
        mask = self._masks.get(block)
        if mask is None:
            mask = self._masks[block] = bit_mask(block)
        return mask

    def place_in(self, block: Block) -> dict[int, int]:
        """Return the index of each server within its block."""
        places = self._places.get(block)
        if places is None:
            places = self._places[block] = {server: place for place, server in enumerate(block)}
        return places

    def group(self, blocks: Iterable[Block]) -> Hashable:
        """Return the key for the cost of a collective over all servers in the blocks."""
        key = tuple(blocks)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = self.topology.group(frozenset(server for block in key for server in block))
        return group

    def crossing(self, source: Block, target: Block) -> Crossing:
        """Return the transfers from every server of one block to every server of the other."""
        crossing = self._crossings.get((source, target))
        if crossing is None:
            pair = self.topology.pair
            crossing = self._crossings[source, target] = self._lanes(source, target, pair, exchange=False)
        return crossing

    def exchange(self, block: Block) -> Crossing:
        """Return the collectives by which pieces exchange their weights, between every two servers
        in a block.
        """
        crossing = self._exchanges.get(block)
        if crossing is None:
            crossing = self._exchanges[block] = self._lanes(
                block, block, lambda one, other: self.topology.group(frozenset((one, other))), exchange=True
            )
        return crossing

    def pattern(self, blocks: tuple[Block, ...]) -> Hashable:
        """Return a key for a list of blocks and their GPU types. A job takes the same time on all
        lists that have the same key.
        """
        if len(self.types) == 1:
            return self.topology.pattern(blocks)
        return self.topology.pattern(blocks), tuple(tuple(self.type_of[server] for server in block) for block in blocks)

    def _lanes(
        self, source: Block, target: Block, key_of: Callable[[int, int], Hashable], *, exchange: bool
    ) -> Crossing:
        rows: dict[tuple[bool, Hashable], list[list[int]]] = {}
        for piece, one in enumerate(source):
            for to, other in enumerate(target):
                if exchange and piece == to:
                    continue
                local = one == other
                lane = rows.setdefault((local, None if local else key_of(one, other)), [[] for _ in source])
                lane[piece].append(to)
        lanes = []
        for (local, key), targets in rows.items():
            routes = [
                [() if local else self.topology.route(one, target[to]) for to in row]
                for one, row in zip(source, targets, strict=True)
            ]
            load = Counter(channel for row in routes for route in row for channel in route)
            channels = tuple(bit_mask(channel for route in row for channel in route) for row in routes)
            every = 0
            arrivals = [0] * len(target)
            for mask, row in zip(channels, targets, strict=True):
                every |= mask
                for to in row:
                    arrivals[to] += 1
            even = arrivals[0] if len(set(arrivals)) == 1 else -1
            sharing = max(load.values(), default=1)
            lanes.append(Lane(key, local, tuple(map(tuple, targets)), channels, every, sharing, tuple(arrivals), even))
        return Crossing(tuple(lanes))


def bit_mask(numbers: Iterable[int]) -> int:
    """Return the distinct numbers (servers or channels) as a bit mask."""
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask
