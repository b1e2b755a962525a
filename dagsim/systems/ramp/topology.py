"""The fabric as the model sees it: which servers form a block, and what it costs to send between them.

Servers are numbered; each has one GPU. A *key* is all that a cost depends on besides the bytes: pairs and groups with
equal keys cost the same, which is what lets a whole operation be timed at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Protocol, TypeAlias

from dagsim.registry import Entry, Registry

__all__ = ["TOPOLOGIES", "Block", "Topology", "relabelled", "ring_s"]

Block: TypeAlias = tuple[int, ...]
"""Servers in the order in which an operation's pieces go to them."""


class Topology(Protocol):
    """Servers, the blocks that a collective may run on, and the seconds that transfers take."""

    @property
    def name(self) -> str:
        """A description that tells it from every other: part of the memo's key."""

    @property
    def servers(self) -> int:
        """The number of servers."""

    @property
    def server_names(self) -> tuple[str, ...]:
        """One name per server."""

    @property
    def anywhere(self) -> bool:
        """Any servers form a block, so that ``free_blocks`` finds some wherever enough are free."""

    def blocks(self, size: int) -> tuple[Block, ...]:
        """All blocks of ``size`` servers, in the order of first fit. If ``anywhere``, a choice of them."""

    def free_blocks(self, size: int, free: list[int]) -> Iterable[Block]:
        """Blocks of free servers, in the order of trial."""

    def pair(self, source: int, target: int) -> Hashable:
        """The key of one transfer between two different servers."""

    def route(self, source: int, target: int) -> tuple[int, ...]:
        """The numbers of the channels that a transfer takes."""

    def transfer_s(self, pair: Hashable, size_bytes: float) -> float:
        """Seconds of one transfer."""

    def group(self, servers: frozenset[int]) -> Hashable:
        """The key of a collective among the servers."""

    def collective_s(self, group: Hashable, total_bytes: float) -> float:
        """Seconds of a collective that moves ``total_bytes`` in all; 0 on one server."""

    def pattern(self, blocks: tuple[Block, ...]) -> Hashable:
        """Equal for lists of blocks that cost the same in every respect: where on the fabric they lie is left out."""


TOPOLOGIES: Registry[Topology] = Registry(
    "topology",
    (
        Entry(
            "ramp", "dagsim.systems.ramp.ramp_topology:Ramp", "C groups of R racks of S servers, one optical hop apart"
        ),
        Entry("torus", "dagsim.systems.ramp.torus:Torus", "neighbours linked in rows that close"),
        Entry("switch", "dagsim.systems.ramp.switch:Switch", "one switch for all servers"),
        Entry("fat_tree", "dagsim.systems.ramp.fat_tree:FatTree", "leaf switches on a spine, perhaps oversubscribed"),
    ),
    method="pattern",
)


def ring_s(among: int, total_bytes: float, bytes_per_s: float, latency_s: float) -> float:
    """One half of an all-reduce around a ring: ``among - 1`` rounds, each with one part of the bytes."""
    return (among - 1) * (latency_s + total_bytes / among / bytes_per_s)


def relabelled(values: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """The same numbers renamed 0, 1, 2, ... in the order of their first appearance."""
    names: dict[int, int] = {}
    return tuple(tuple(names.setdefault(value, len(names)) for value in row) for row in values)
