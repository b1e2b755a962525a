"""Topologies. A topology decides which servers form a block, and what it costs to send data between
them.

``Ramp`` is the optical fabric in Ottino et al. 2022 (arXiv 2211.15226). It has C communication
groups with R racks of S servers each, and every server is one hop from every other. Blocks are
symmetric, so a collective needs at most four rounds: over the groups, over groups and servers, over
the racks, and over the rest of a rack.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from functools import cached_property, lru_cache
from itertools import product
from math import ceil, isqrt, log2, prod
from typing import Protocol, TypeAlias, cast

from dagsim.errors import ConfigError, require
from dagsim.families.fabric.torus import Torus
from dagsim.model.arithmetic import whole_sum
from dagsim.registry import Entry, Registry

Block: TypeAlias = tuple[int, ...]
"""Servers in the order in which they receive the pieces of an operation."""


class Topology(Protocol):
    """The interface of topologies: servers, blocks on which a collective may run, and the durations
    of transfers."""

    @property
    def name(self) -> str:
        """A unique description, which is part of the memo's key."""

    @property
    def servers(self) -> int:
        """The number of servers."""

    @property
    def server_names(self) -> tuple[str, ...]:
        """One name per server."""

    @property
    def anywhere(self) -> bool:
        """True if any set of servers forms a block. In this case, ``free_blocks`` finds a block
        whenever enough servers are free.
        """

    def blocks(self, size: int) -> tuple[Block, ...]:
        """Return the blocks of ``size`` servers in first-fit order. With ``anywhere``, return only
        a selection."""

    def free_blocks(self, size: int, free: list[int]) -> Iterable[Block]:
        """Return blocks of free servers, in the order in which they are tried."""

    def pair(self, source: int, target: int) -> Hashable:
        """Return a key for the cost of a transfer between two different servers."""

    def route(self, source: int, target: int) -> tuple[int, ...]:
        """Return the numbers of the channels that a transfer uses."""

    def transfer_s(self, pair: Hashable, size_bytes: float) -> float:
        """Return how many seconds a transfer takes."""

    def group(self, servers: frozenset[int]) -> Hashable:
        """Return a key for the cost of a collective among the servers."""

    def collective_s(self, group: Hashable, total_bytes: float) -> float:
        """Return how many seconds a collective takes that sends ``total_bytes`` in total. On a
        single server, this is 0."""

    def pattern(self, blocks: tuple[Block, ...]) -> Hashable:
        """Return a key for a list of blocks. Lists with the same costs have the same key, wherever
        they are on the fabric.
        """


TOPOLOGIES: Registry[Topology] = Registry(
    "topology",
    (
        Entry("ramp", "dagsim.families.ramp.topology:Ramp", "C groups of R racks of S servers, one optical hop apart"),
        Entry("torus", "dagsim.families.ramp.topology:TorusBoxes", "servers linked to their neighbours in closed rows"),
        Entry("switch", "dagsim.families.ramp.topology:Switch", "one switch for all servers"),
        Entry("fat_tree", "dagsim.families.ramp.topology:LeafSpine", "leaf switches on a spine"),
    ),
    method="pattern",
)


def ring_s(among: int, total_bytes: float, bytes_per_s: float, latency_s: float) -> float:
    """Return how many seconds one half of a ring all-reduce takes. It has ``among - 1`` rounds, and
    each round sends 1 / ``among`` of the bytes."""
    return (among - 1) * (latency_s + total_bytes / among / bytes_per_s)


def relabelled(values: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """Replace numbers by 0, 1, 2, ... in the order of their first appearance."""
    names: dict[int, int] = {}
    return tuple(tuple(names.setdefault(value, len(names)) for value in row) for row in values)


def _check_link(topology: str, link_bytes_per_s: float, **latency: float) -> None:
    ((key, seconds),) = latency.items()
    if not (link_bytes_per_s > 0 and seconds >= 0):
        raise ConfigError(
            f"{topology}: link_bytes_per_s must be positive and {key} must be 0 or more, got "
            f"{link_bytes_per_s!r} and {seconds!r}"
        )


class Switch:
    """One switch with ``servers`` links of ``link_bytes_per_s`` in each direction. Collectives use
    a ring.

    Raises:
        ConfigError: There are no servers, the rate is not positive, or the latency is negative.
    """

    anywhere = True

    def __init__(self, servers: int = 32, *, link_bytes_per_s: float = 25e9, latency_s: float = 2e-6) -> None:
        require(servers >= 1, "Switch: servers must be at least 1", servers)
        _check_link("Switch", link_bytes_per_s, latency_s=latency_s)
        self.servers = servers
        self.link_bytes_per_s = link_bytes_per_s
        self.latency_s = latency_s

    @property
    def name(self) -> str:
        """The number of servers, the rate and the latency."""
        return f"Switch({self.servers}) ({self.link_bytes_per_s!r} B/s, {self.latency_s!r} s)"

    @cached_property
    def server_names(self) -> tuple[str, ...]:
        """The servers' numbers."""
        return tuple(map(str, range(self.servers)))

    def blocks(self, size: int) -> tuple[Block, ...]:
        """Return blocks of consecutive servers, because all others are equivalent to these."""
        return tuple(tuple(range(first, first + size)) for first in range(self.servers - size + 1))

    def free_blocks(self, size: int, free: list[int]) -> Iterator[Block]:
        """Yield blocks of consecutive free servers."""
        return (tuple(free[first : first + size]) for first in range(len(free) - size + 1))

    def pair(self, source: int, target: int) -> Hashable:
        """Return the same key for every pair of servers, because all transfers cost the same."""
        return None

    def route(self, source: int, target: int) -> tuple[int, ...]:
        """Return the uplink of one server and the downlink of the other."""
        return source, self.servers + target

    def transfer_s(self, pair: Hashable, size_bytes: float) -> float:
        """Return the latency plus the time to send the bytes over one link."""
        return self.latency_s + size_bytes / self.link_bytes_per_s

    def group(self, servers: frozenset[int]) -> int:
        """Return the number of participating servers."""
        return len(servers)

    def collective_s(self, group: Hashable, total_bytes: float) -> float:
        """Return how many seconds a reduce-scatter followed by an all-gather takes around a ring."""
        return 2 * ring_s(cast("int", group), total_bytes, self.link_bytes_per_s, self.latency_s)

    def pattern(self, blocks: tuple[Block, ...]) -> Hashable:
        """Return the servers, relabelled in order of first appearance."""
        return relabelled(blocks)


class TorusBoxes:
    """A torus, such as ``TorusBoxes((4, 4, 2))``. A block is a box. A collective runs along one
    dimension after another, around the rows of the box.

    Links and routes are the same as in ``fabric.torus.Torus``. Links work in both directions, so
    even a row that does not wrap around can carry a ring.

    Raises:
        ConfigError: There are no dimensions, a length is below 1, the rate is not positive, or
            the latency is negative.
    """

    anywhere = False

    def __init__(
        self, shape: tuple[int, ...] = (4, 4, 2), *, link_bytes_per_s: float = 25e9, hop_s: float = 1e-6
    ) -> None:
        if not shape or any(length < 1 for length in shape):
            raise ConfigError(f"Torus: every dimension must be at least 1, got {shape!r}")
        _check_link("Torus", link_bytes_per_s, hop_s=hop_s)
        self.shape = tuple(shape)
        self.link_bytes_per_s = link_bytes_per_s
        self.hop_s = hop_s
        self.places: tuple[tuple[int, ...], ...] = tuple(product(*map(range, self.shape)))
        self._number = {place: number for number, place in enumerate(self.places)}
        self._blocks: dict[int, tuple[Block, ...]] = {}
        steps = [prod(self.shape[:axis]) for axis in range(len(self.shape))]
        self._hosts = [whole_sum(at * step for at, step in zip(place, steps, strict=True)) for place in self.places]
        """The number of each server in the network, whose first dimension varies fastest."""
        self._routing = Torus(self.shape).routing(self.server_names)

    @property
    def name(self) -> str:
        """The shape, the rate and the latency."""
        return f"Torus{self.shape} ({self.link_bytes_per_s!r} B/s, {self.hop_s!r} s a hop)"

    @property
    def servers(self) -> int:
        """The product of all lengths."""
        return prod(self.shape)

    @cached_property
    def server_names(self) -> tuple[str, ...]:
        """The name of each server, in the form ``x-y-...``."""
        return tuple("-".join(map(str, place)) for place in self.places)

    def blocks(self, size: int) -> tuple[Block, ...]:
        """Return boxes of ``size`` servers at every origin. Boxes may wrap around the edges, and
        the most compact shapes come first.
        """
        blocks = self._blocks.get(size)
        if blocks is None:
            by_servers: dict[frozenset[int], Block] = {}
            for shape in sorted(self._shapes(size), key=lambda lengths: (whole_sum(lengths), lengths)):
                for origin in self.places:
                    block = tuple(self._number[self._at(origin, step)] for step in product(*map(range, shape)))
                    by_servers.setdefault(frozenset(block), block)
            blocks = self._blocks[size] = tuple(by_servers.values())
        return blocks

    def free_blocks(self, size: int, free: list[int]) -> Iterator[Block]:
        """Yield boxes of free servers."""
        open_ = set(free)
        return (block for block in self.blocks(size) if open_.issuperset(block))

    def pair(self, source: int, target: int) -> int:
        """Return the number of hops between the servers."""
        return len(self.route(source, target))

    def route(self, source: int, target: int) -> tuple[int, ...]:
        """Return the links along the route. Each server has two links per dimension."""
        (path,) = self._routing.paths(self._hosts[source], self._hosts[target])
        return path

    def transfer_s(self, pair: Hashable, size_bytes: float) -> float:
        """Return the latency of all hops plus the time to send the bytes over one link (cut-through)."""
        return cast("int", pair) * self.hop_s + size_bytes / self.link_bytes_per_s

    def group(self, servers: frozenset[int]) -> tuple[int, ...]:
        """Return the number of participating servers along each dimension. If the servers do not
        form a box, they count as one row.
        """
        places = [self.places[server] for server in servers]
        counts = tuple(len({place[axis] for place in places}) for axis in range(len(self.shape)))
        return counts if prod(counts) == len(servers) else (len(servers),)

    def collective_s(self, group: Hashable, total_bytes: float) -> float:
        """Return how many seconds a reduce-scatter and an all-gather take. The reduce-scatter runs
        along one dimension after another, each on the data that the previous one has left. The
        all-gather runs in the reverse order."""
        left, seconds = total_bytes, 0.0
        for among in cast("tuple[int, ...]", group):
            seconds += ring_s(among, left, self.link_bytes_per_s, self.hop_s)
            left /= among
        return 2 * seconds

    def pattern(self, blocks: tuple[Block, ...]) -> Hashable:
        """Return the servers' positions relative to the first server."""
        first = self.places[blocks[0][0]]
        return tuple(
            tuple(
                tuple((at - by) % length for at, by, length in zip(self.places[server], first, self.shape, strict=True))
                for server in block
            )
            for block in blocks
        )

    def _at(self, origin: tuple[int, ...], step: tuple[int, ...]) -> tuple[int, ...]:
        return tuple((at + by) % length for at, by, length in zip(origin, step, self.shape, strict=True))

    def _shapes(self, size: int) -> Iterator[tuple[int, ...]]:
        for shape in product(*(range(1, length + 1) for length in self.shape)):
            if prod(shape) == size:
                yield shape


class LeafSpine:
    """A fat tree with two levels: ``leaves`` switches with ``per_leaf`` servers each. Between
    leaves, a server gets 1 / ``oversubscription`` of its rate.

    No message waits in the spine. Under RAMP's rule, a channel belongs to one job, so jobs share no
    link there. A route therefore has two links, not four as in ``fabric.fat_tree.FatTree``.
    Collectives run within the leaves first. They then run among the leaves, on the data that is
    left at each server.

    Raises:
        ConfigError: There are no leaves or servers, the oversubscription is below 1, the rate is
            not positive, or the latency is negative.
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
        require(oversubscription >= 1, "FatTree: oversubscription must be at least 1", oversubscription)
        _check_link("FatTree", link_bytes_per_s, hop_s=hop_s)
        self.leaves = leaves
        self.per_leaf = per_leaf
        self.oversubscription = oversubscription
        self.link_bytes_per_s = link_bytes_per_s
        self.hop_s = hop_s

    @property
    def name(self) -> str:
        """The shape, the rates and the latency."""
        costs = f"{self.oversubscription!r}:1, {self.link_bytes_per_s!r} B/s, {self.hop_s!r} s a hop"
        return f"FatTree({self.leaves}, {self.per_leaf}) ({costs})"

    @property
    def servers(self) -> int:
        """The number of leaves times the number of servers per leaf."""
        return self.leaves * self.per_leaf

    @cached_property
    def server_names(self) -> tuple[str, ...]:
        """The name of each server, in the form ``leaf-number``."""
        return tuple(f"{leaf}-{number}" for leaf in range(self.leaves) for number in range(self.per_leaf))

    def blocks(self, size: int) -> tuple[Block, ...]:
        """Return blocks of consecutive servers. Blocks on a single leaf come first."""
        return tuple(self.free_blocks(size, list(range(self.servers))))

    def free_blocks(self, size: int, free: list[int]) -> Iterator[Block]:
        """Yield blocks of free servers. Blocks on a single leaf come first, starting with the
        fullest leaf that has enough free servers. Blocks across leaves follow.
        """
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
        """Return True if both servers are on the same leaf."""
        return source // self.per_leaf == target // self.per_leaf

    def route(self, source: int, target: int) -> tuple[int, ...]:
        """Return the uplink of one server and the downlink of the other. The spine adds no link,
        but reduces the rate.
        """
        return source, self.servers + target

    def transfer_s(self, pair: Hashable, size_bytes: float) -> float:
        """Return how many seconds a transfer takes: two hops within a leaf, and four hops at the
        reduced rate between leaves."""
        if pair:
            return 2 * self.hop_s + size_bytes / self.link_bytes_per_s
        return 4 * self.hop_s + size_bytes * self.oversubscription / self.link_bytes_per_s

    def group(self, servers: frozenset[int]) -> tuple[int, int]:
        """Return the number of participating leaves, and the largest number of participating servers
        on one leaf.
        """
        counts: dict[int, int] = {}
        for server in servers:
            counts[server // self.per_leaf] = counts.get(server // self.per_leaf, 0) + 1
        return len(counts), max(counts.values())

    def collective_s(self, group: Hashable, total_bytes: float) -> float:
        """Return how many seconds a collective takes. Rings run within each leaf first, and then
        between leaves for the data that is left at each server."""
        leaves, most = cast("tuple[int, int]", group)
        within_s = ring_s(most, total_bytes, self.link_bytes_per_s, 2 * self.hop_s)
        between_s = ring_s(leaves, total_bytes / most, self.link_bytes_per_s / self.oversubscription, 4 * self.hop_s)
        return 2 * (within_s + between_s)

    def pattern(self, blocks: tuple[Block, ...]) -> Hashable:
        """Return the leaves and the servers, renumbered in order of first appearance."""
        leaves = tuple(tuple(server // self.per_leaf for server in block) for block in blocks)
        return relabelled(leaves), relabelled(blocks)


_MEMORY_BYTES_PER_S = 2e12
_ADD_FLOPS = 130e12
_NUMBER_BYTES = 2
"""Rates at which a server adds half-precision numbers in a reduction, on an A100."""


class Ramp:
    """RAMP(C, R, S). ``node_bytes_per_s`` is the total rate at which a server sends; each channel
    has 1 / C of this rate.

    ``ddls=True`` computes the cost of collectives as ddls does: their bandwidth is divided by C
    once more, and collectives within one rack are free.

    Raises:
        ConfigError: A count is below 1, there are more racks than groups or too many servers per
            rack, the bandwidth is not positive, or a latency is negative.
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
            require(count >= 1, f"RAMP({groups}, {racks}, {servers_per_rack}): {name} must be at least 1", count)
        if racks > groups:
            raise ConfigError(
                f"RAMP({groups}, {racks}, {servers_per_rack}): there cannot be more racks than communication groups"
            )
        if servers_per_rack > groups * (groups + 1):
            raise ConfigError(
                f"RAMP({groups}, {racks}, {servers_per_rack}): a rack can hold at most C (C + 1) = "
                f"{groups * (groups + 1)} servers, because otherwise its last round would have no free channel"
            )
        if not (node_bytes_per_s > 0 and propagation_s >= 0 and io_s >= 0):
            raise ConfigError(
                "RAMP: node_bytes_per_s must be positive, and propagation_s and io_s must be 0 or more, got "
                f"{node_bytes_per_s!r}, {propagation_s!r} and {io_s!r}"
            )
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
        """The shape, the bandwidth, the latency and the cost rule for collectives."""
        costs = f"{self.channel_bytes_per_s!r} B/s, {self.latency_s!r} s" + (", as in ddls" if self.ddls else "")
        return f"RAMP{self.shape} ({costs})"

    @property
    def servers(self) -> int:
        """The product of C, R and S."""
        return len(self.places)

    @cached_property
    def server_names(self) -> tuple[str, ...]:
        """The name of each server, in the form ``c-r-s``."""
        return tuple("-".join(map(str, place)) for place in self.places)

    def blocks(self, size: int) -> tuple[Block, ...]:
        """Return symmetric blocks of ``size`` servers, each shape at every origin: cubes first,
        then bars and planes, then diagonals."""
        blocks = self._blocks.get(size)
        if blocks is None:
            blocks = self._blocks[size] = tuple(dict.fromkeys(self._candidates(size)))
        return blocks

    def free_blocks(self, size: int, free: list[int]) -> Iterator[Block]:
        """Yield symmetric blocks of free servers."""
        open_ = set(free)
        return (block for block in self.blocks(size) if open_.issuperset(block))

    def pair(self, source: int, target: int) -> Hashable:
        """Return the same key for every pair of servers, because all servers are one hop apart."""
        return None

    def route(self, source: int, target: int) -> tuple[int, ...]:
        """Return the channel of this pair of servers."""
        return (source * self.servers + target,)

    def transfer_s(self, pair: Hashable, size_bytes: float) -> float:
        """Return the latency plus the time to send the bytes over one channel."""
        return self.latency_s + size_bytes / self.channel_bytes_per_s

    def group(self, servers: frozenset[int]) -> tuple[int, int, int]:
        """Return how many groups, racks and servers take part. Servers are counted by their number
        within a rack.
        """
        places = [self.places[server] for server in servers]
        groups, racks, numbers = (len({place[axis] for place in places}) for axis in range(3))
        return groups, racks, numbers

    def collective_s(self, group: Hashable, total_bytes: float) -> float:
        """Return the time of an all-reduce in seconds: a reduce-scatter in up to four rounds with its
        additions, and then an all-gather in as many rounds.
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
        """Renumber groups, racks and servers in order of first appearance, because costs depend
        only on how many there are.
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
        """Yield the shapes of blocks with ``size`` servers, in the order in which they are tried.
        The shape of a diagonal is -1.
        """
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
