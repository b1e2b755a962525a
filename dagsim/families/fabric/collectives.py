"""Collectives: the data that a gang sends in a step, the links that it uses, and formulas for the
time that this takes.

With n ranks on m nodes, S bytes per rank, and B bytes per second in each direction, the bandwidth
terms are (nccl-tests, ``doc/PERFORMANCE.md``):

- ``ring`` all-reduce: ``2 (n-1)/n S/B``; B is the slower of NVLink and the network, because one
  ring passes through both.
- ``all_gather`` (or reduce-scatter): half the time of a ``ring`` all-reduce.
- ``tree`` all-reduce, a double binary tree over nodes: ``2 S/B``.
- ``hierarchical`` all-reduce, with r NICs in use per node: ``2 (g-1)/g S/B_nvlink`` within nodes of
  g ranks, then ``2 (m-1)/m (S/r)/B_nic`` between them.
- ``all_to_all``: ``(n-1)/n S/B``, within and between nodes at the same time.
- ``pipeline``: S bytes forward and S backward over each cut between nodes, at the same time: ``2
  S/B`` with three nodes or more.

Latencies are those in NCCL's tuner for its Simple protocol (``src/graph/tuning.cc``, about version
2.8).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, inf, log2
from typing import Literal, NamedTuple, TypeAlias

from dagsim.errors import ModelError
from dagsim.families.fabric.routing import Path, Routing
from dagsim.model.arithmetic import ordered_sum
from dagsim.systems.cluster.network.base import Member

Collective: TypeAlias = Literal["ring", "tree", "hierarchical", "all_gather", "all_to_all", "pipeline"]

_PCIE_GB_S = 12.0
"""Assumption for GPUs without NVLink: PCIe 3.0 x16 (15.75 GB/s), multiplied by the share that
collectives reach on NVLink."""
NVLINK_GB_S = {"A100": 235.0, "H100": 370.0, "B200": 770.0}
"""Bandwidth per GPU and direction that collectives reach (docs/networks.md), by the family of the
GPU type."""
_REACHED = dict.fromkeys(("H100", "H200"), NVLINK_GB_S["H100"] / 450) | dict.fromkeys(
    ("B200", "GB200", "B300"), NVLINK_GB_S["B200"] / 900
)
"""Share of the NVLink bandwidth that this is."""
_REACHED_ELSEWHERE = NVLINK_GB_S["A100"] / 300

_BASE_S, _RING_S, _RING_NET_S = 8.4e-6, 3.4e-6, 9.6e-6
_TREE_S, _TREE_NET_S = 28e-6, 50e-6


@dataclass(frozen=True, slots=True)
class GroupTraffic:
    """The traffic that groups of ranks send in one step. All groups send at the same time. A
    pipeline sends the same amount of data backward as forward.

    Raises:
        ModelError: A number is out of range.
    """

    gb: float
    """Amount of data in GB that each rank sends."""
    size: int
    """Number of ranks in a group."""
    stride: int = 1
    """Difference between the numbers of two neighbouring ranks in a group."""
    collective: Literal["ring", "all_gather", "pipeline"] = "ring"
    """How the ranks of a group exchange data."""

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if not 0 <= self.gb < inf or self.size < 2 or self.stride < 1:
            raise ModelError(
                "communication: groups need a gb of 0 or more, a size of 2 or more and a stride of 1 or more, got "
                f"{self.gb!r}, {self.size!r} and {self.stride!r}"
            )

    def moved(self) -> float:
        """Return the number of bytes that each rank sends to the next one."""
        if self.collective == "pipeline":
            return self.gb * 1e9
        return (2 if self.collective == "ring" else 1) * (self.size - 1) / self.size * self.gb * 1e9


@dataclass(frozen=True, slots=True)
class StepTraffic:
    """One training step of a gang. The gang computes for ``step_s`` seconds, and each rank takes
    part in ``calls`` collectives, which send ``gb`` GB per rank in total.

    Each GPU is a rank; if instances have no whole GPU, each instance is a rank.

    Raises:
        ModelError: A number is out of range.
    """

    gb: float
    """Amount of data in GB that each rank sends in one step."""
    step_s: float
    """Seconds of computation in one step, on the fastest GPU type in the cluster on which the task
    may run.
    """
    collective: Collective = "ring"
    """How the ranks exchange data."""
    overlap: int = 0
    """With 1, the gang communicates while it computes. With 0, it communicates afterwards."""
    calls: int = 1
    """Number of collectives. Each of them adds its latency, so with 0, latencies are ignored."""
    groups: tuple[GroupTraffic, ...] = field(default=(), kw_only=True)
    """Traffic of groups of ranks, which replaces ``gb`` for all ranks. The groups send one after
    another.
    """

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if not 0 <= self.gb < inf:
            raise ModelError(f"communication: gb must be 0 or more, got {self.gb!r}")
        if not 0 < self.step_s < inf:
            raise ModelError(f"communication: step_s must be positive, got {self.step_s!r}")
        if self.gb and self.groups:
            raise ModelError(f"communication: gb must be 0 if there are groups, got {self.gb!r}")
        if self.overlap not in (0, 1):
            raise ModelError(f"communication: overlap must be 0 or 1, got {self.overlap!r}")
        if self.calls < 0:
            raise ModelError(f"communication: calls must be 0 or more, got {self.calls!r}")
        if self.collective not in _PLANS:
            raise ModelError(
                f"communication: collective must be one of {', '.join(_PLANS)}, got {self.collective!r}"
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Exchange:
    """The traffic of a step on certain nodes. Each link carries ``streams`` equal streams of
    ``stream_bytes`` each. All streams have the same rate, which is at most ``cap`` bytes per
    second.
    """

    inner_s: float
    """Seconds of traffic within nodes."""
    streams: dict[int, int] = field(default_factory=dict)
    stream_bytes: float = 0.0
    cap: float = inf
    at_once: bool = False
    """True if traffic within nodes overlaps with traffic between nodes, False if it comes before or
    after."""
    latency_s: float = 0.0

    def seconds(self, rate: float) -> float:
        """Return how many seconds the communication of a step takes if each stream has ``rate``
        bytes per second."""
        between_s = 0.0
        if self.streams:
            between_s = self.stream_bytes / rate if rate else inf
        elsewhere = max(self.inner_s, between_s) if self.at_once else self.inner_s + between_s
        return self.latency_s + elsewhere

    def alone(self, routing: Routing) -> float:
        """Return the rate of each stream if the links carry no other traffic."""
        rates = [routing.links[link].bandwidth / streams for link, streams in self.streams.items()]
        return min([self.cap, *rates])

    def overlapped(self, step_s: float) -> float:
        """Return the rate above which the traffic saves no more time, because all of it overlaps
        with ``step_s`` seconds of compute.
        """
        left_s = step_s - self.latency_s - (0.0 if self.at_once else self.inner_s)
        return min(self.cap, self.stream_bytes / left_s) if left_s > 0 else self.cap


def gpu_family(name: str) -> str:
    """Return the family of a GPU type, such as A100 for A100-80."""
    return name.split("-")[0]


def nvlink_bytes_s(name: str, nvlink_gb_s: float) -> float:
    """Return the bytes per second and direction that collectives achieve between the GPUs of a node."""
    reached = _REACHED.get(gpu_family(name), _REACHED_ELSEWHERE)
    return 1e9 * (nvlink_gb_s * reached if nvlink_gb_s else _PCIE_GB_S)


class _Plan(NamedTuple):
    """Hops between nodes as ``(source, destination, streams)``, the bytes of each stream before it
    is split over rails, the seconds of traffic within nodes, and the latency of one call."""

    hops: list[tuple[Member, Member, int]]
    bytes: float
    inner_s: float
    latency_s: float
    through_nvlink: bool = False


def exchange(traffic: StepTraffic, members: Sequence[Member], routing: Routing, nvlink: float) -> Exchange:
    """Return the traffic of a step between ``members``, which are in the order of the ring.
    ``nvlink`` is in bytes per second."""
    size = traffic.gb * 1e9
    ranks = sum(member.ranks for member in members)
    if ranks < 2:
        return Exchange(0.0)
    if traffic.groups:
        return _in_turn([_group_exchange(group, members, routing, nvlink) for group in traffic.groups])
    plan = _PLANS[traffic.collective](members, ranks, size, nvlink)
    streams, ways, hop_s = _on_links(plan.hops, members, routing)
    cap = nvlink / ways if plan.through_nvlink and max(member.ranks for member in members) > 1 else inf
    at_once = traffic.collective == "all_to_all"
    latency_s = traffic.calls * (plan.latency_s + hop_s * (len(members) > 1))
    return Exchange(plan.inner_s, dict(streams), plan.bytes / ways, cap, at_once, latency_s)


def _on_links(
    hops: Iterable[tuple[Member, Member, int]], members: Sequence[Member], routing: Routing
) -> tuple[Counter[int], int, float]:
    """Return the streams on each link, the number of rails over which each stream is split, and the
    longest latency of a hop.
    """
    most = min(member.ranks for member in members)
    streams: Counter[int] = Counter()
    hop_s, ways = 0.0, 1
    for source, destination, count in hops:
        paths = _rails(routing.paths(source.node, destination.node), source, most)
        ways = len(paths)
        for path in paths:
            for link in path:
                streams[link] += count
        hop_s = max(hop_s, routing.latency_s(paths[0]))
    return streams, ways, hop_s


def _group_exchange(group: GroupTraffic, members: Sequence[Member], routing: Routing, nvlink: float) -> Exchange:
    """Return the traffic of all groups together, without latencies. All streams between the same
    two nodes count as one stream with their total bytes. Every pair of nodes is assumed to send as
    many bytes as the pair that sends most.
    """
    place = [number for number, member in enumerate(members) for _ in range(member.ranks)]
    if len(place) % (group.size * group.stride):
        raise ModelError(
            f"communication: {len(place)} ranks cannot be divided into groups of {group.size} with stride "
            f"{group.stride}"
        )
    crossing: Counter[tuple[int, int]] = Counter()
    within = False
    for first in range(len(place) - (group.size - 1) * group.stride):
        if first // group.stride % group.size:
            continue
        chain = [place[first + step * group.stride] for step in range(group.size)]
        pairs = [*pairwise(chain), *([] if group.collective == "pipeline" else [(chain[-1], chain[0])])]
        crossing.update([pair for pair in pairs if pair[0] != pair[1]])
        within = within or any(one == other for one, other in pairs)
    if not crossing:
        return Exchange(group.moved() / nvlink)
    ways_back = [pair[::-1] for pair in crossing] if group.collective == "pipeline" else []
    hops = [(members[one], members[other], 1) for one, other in [*crossing, *ways_back]]
    streams, ways, _ = _on_links(hops, members, routing)
    many = max(crossing.values())
    return Exchange(0.0, dict(streams), group.moved() * many / ways, nvlink * many / ways if within else inf)


def _in_turn(parts: Sequence[Exchange]) -> Exchange:
    """Combine successive exchanges into one flow. On each link, the flow has as many streams as the
    exchange with the most streams there, so that contention is never underestimated.
    """
    streams: dict[int, int] = {}
    for part in parts:
        for link, count in part.streams.items():
            streams[link] = max(count, streams.get(link, 0))
    return Exchange(
        ordered_sum(part.inner_s for part in parts),
        streams,
        ordered_sum(part.stream_bytes for part in parts),
        min(part.cap for part in parts),
    )


def _rails(paths: tuple[Path, ...], source: Member, most: int) -> tuple[Path, ...]:
    """Return the paths over the NICs next to the GPUs of ``source``, but no more paths than the
    smallest member has ranks."""
    if len(paths) == 1:
        return paths
    own = dict.fromkeys(gpu % len(paths) for gpu in source.gpus) or range(len(paths))
    rails = [*own, *(rail for rail in range(len(paths)) if rail not in own)]
    return tuple(paths[rail] for rail in rails[: min(most, len(paths))])


def _ring_hops(members: Sequence[Member]) -> list[tuple[Member, Member, int]]:
    return [(member, members[(place + 1) % len(members)], 1) for place, member in enumerate(members)]


def _ring(members: Sequence[Member], ranks: int, size: float, nvlink: float, rounds: int = 2) -> _Plan:
    nodes = len(members)
    moved = rounds * (ranks - 1) / ranks * size
    latency_s = _BASE_S + rounds * ((ranks - nodes) * _RING_S + (nodes - 1) * _RING_NET_S)
    if nodes == 1:
        return _Plan([], 0.0, moved / nvlink, latency_s)
    return _Plan(_ring_hops(members), moved, 0.0, latency_s, True)


def _all_gather(members: Sequence[Member], ranks: int, size: float, nvlink: float) -> _Plan:
    return _ring(members, ranks, size, nvlink, 1)


def _tree(members: Sequence[Member], ranks: int, size: float, nvlink: float) -> _Plan:
    """Build two binary trees, each of which carries half of the bytes up and down. The second tree
    is the first tree shifted by one node, so that a leaf of one tree has children in the other. A
    chain joins the ranks on a node.
    """
    nodes = len(members)
    latency_s = 2 * ((ranks / nodes - 1) * _TREE_S + log2(nodes) * _TREE_NET_S)
    if nodes == 1:
        return _Plan([], 0.0, 2 * size / nvlink, latency_s)
    hops = []
    for shift in (0, 1):
        for child, parent in _binary_tree(nodes):
            one, other = members[(child + shift) % nodes], members[(parent + shift) % nodes]
            hops += [(one, other, 1), (other, one, 1)]
    return _Plan(hops, size / 2, 0.0, latency_s, True)


def _binary_tree(nodes: int) -> list[tuple[int, int]]:
    """Return child and parent pairs of a binary tree in which nodes with odd numbers, counted from
    1, are leaves (NCCL, ``src/graph/trees.cc``)."""
    edges = []
    for node in range(1, nodes):
        bit = node & -node
        parent = (node ^ bit) | (bit << 1)
        edges.append((node, parent if parent < nodes else node ^ bit))
    return edges


def _hierarchical(members: Sequence[Member], ranks: int, size: float, nvlink: float) -> _Plan:
    nodes, most = len(members), max(member.ranks for member in members)
    inner_s = 2 * (most - 1) / most * size / nvlink
    latency_s = _BASE_S + 2 * ((most - 1) * _RING_S + (nodes - 1) * _RING_NET_S)
    if nodes == 1:
        return _Plan([], 0.0, inner_s, latency_s)
    return _Plan(_ring_hops(members), 2 * (nodes - 1) / nodes * size, inner_s, latency_s)


def _all_to_all(members: Sequence[Member], ranks: int, size: float, nvlink: float) -> _Plan:
    most = max(member.ranks for member in members)
    hops = [
        (one, other, one.ranks * other.ranks) for one in members for other in members if one is not other
    ]  # fmt: skip
    return _Plan(hops, size / ranks, (most - 1) / ranks * size / nvlink, _BASE_S + _RING_NET_S * bool(hops))


def _pipeline(members: Sequence[Member], ranks: int, size: float, nvlink: float) -> _Plan:
    cuts = list(pairwise(members))
    hops = [(one, other, 1) for pair in cuts for one, other in (pair, pair[::-1])]
    within_s = 0.0 if hops else size / nvlink
    return _Plan(hops, size, within_s, ceil(log2(ranks)) * _RING_S + len(cuts) * _RING_NET_S)


_PLANS = {
    "ring": _ring,
    "tree": _tree,
    "hierarchical": _hierarchical,
    "all_gather": _all_gather,
    "all_to_all": _all_to_all,
    "pipeline": _pipeline,
}
