"""Decisions about a job: how its operations are split, where the pieces go, and in what order all of it runs.

A policy sends a ``Partition``; the kernel's rules make the five values of a ``Plan`` of it. All are frozen, and say
which job they are for.
"""

from __future__ import annotations

from typing import NamedTuple

from dagsim.systems.ramp.topology import Block

__all__ = ["DepPlacement", "DepSchedule", "OpPartition", "OpPlacement", "OpSchedule", "Partition", "Plan"]


class Partition(NamedTuple):
    """Split each operation of the job into at most ``degree`` pieces and start it; 0 turns the job away.

    ``placer`` names another placer than the kernel's for this job. ``servers`` is a bit mask of free servers that the
    job must stay on; no placer is asked then.
    """

    job: int
    degree: int
    placer: str | None = None
    servers: int | None = None


class OpPartition(NamedTuple):
    """Into how many pieces each operation is split, its mirror as well."""

    job: int
    splits: tuple[int, ...]

    @property
    def degree(self) -> int:
        """The most pieces of any one operation."""
        return max(self.splits)


class OpPlacement(NamedTuple):
    """On which block each operation runs: piece ``k``, and its mirror's piece, on the block's ``k``-th server."""

    job: int
    blocks: tuple[Block, ...]
    """Distinct blocks, in the order of their first use."""
    block_of: tuple[int, ...]
    """Per operation its place in ``blocks``."""

    @property
    def servers(self) -> frozenset[int]:
        """All servers that the job takes."""
        return frozenset(server for block in self.blocks for server in block)

    def block(self, op: int) -> Block:
        """The block of an operation."""
        return self.blocks[self.block_of[op]]


class OpSchedule(NamedTuple):
    """The order of the operations of a server: among those that are ready, the one of the highest rank.

    One order per GPU type in use (``ranks[type][pass operation]``).
    """

    job: int
    ranks: tuple[tuple[int, ...], ...]


class DepPlacement(NamedTuple):
    """The channels of the job's dependencies: every one the direct channel of its pair of servers.

    ``channels`` is a bit mask over the topology's channels (its ``route`` numbers them).
    """

    job: int
    channels: int


class DepSchedule(NamedTuple):
    """The order of dependencies on a channel: of those that are ready the shortest (SRPT), else the one ready first."""

    job: int
    shortest_first: bool = True


class Plan(NamedTuple):
    """The five decisions of one job."""

    partition: OpPartition
    placement: OpPlacement
    schedule: OpSchedule
    channels: DepPlacement
    flows: DepSchedule
