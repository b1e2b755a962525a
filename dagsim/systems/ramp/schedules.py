"""Orders in which a server runs its operations, and a channel its dependencies."""

from __future__ import annotations

from collections.abc import Callable

from dagsim.registry import Entry, Registry
from dagsim.systems.ramp.decisions import OpSchedule
from dagsim.systems.ramp.fabric import Fabric
from dagsim.systems.ramp.partition import PartitionedGraph

__all__ = ["OP_SCHEDULES", "OpScheduler", "graph_order", "srpt"]

OpScheduler = Callable[[int, PartitionedGraph, Fabric], OpSchedule]

OP_SCHEDULES: Registry[OpScheduler] = Registry(
    "op schedule",
    (
        Entry("srpt", "dagsim.systems.ramp.schedules:_Srpt", "the operation of the shortest piece first (ddls)"),
        Entry("fifo", "dagsim.systems.ramp.schedules:_Fifo", "operations in the order of the graph, forward first"),
    ),
    method="__call__",
)


def srpt(job: int, parts: PartitionedGraph, fabric: Fabric) -> OpSchedule:
    """Shortest piece first; of equal ones, the operation later in topological order, its mirror before it."""
    placed = _placed(parts)
    ranks = []
    for gpu in fabric.types:
        costs = parts.graph.costs(gpu.name)
        longest_first = sorted(placed, key=lambda op: -(costs[op] / parts.pieces[op]))
        ranks.append(_ranked(longest_first))
    return OpSchedule(job, tuple(ranks))


def graph_order(job: int, parts: PartitionedGraph, fabric: Fabric) -> OpSchedule:
    """The operation that is first in the graph first. Its forward pass comes before the backward one."""
    count, order = len(parts.graph), parts.graph.order
    last_first = [*(count + op for op in order), *reversed(order)]
    return OpSchedule(job, (_ranked(last_first),) * len(fabric.types))


def _placed(parts: PartitionedGraph) -> list[int]:
    """Pass operations in the order in which they are placed: each forward one, then its mirror."""
    count = len(parts.graph)
    return [op for forward in parts.graph.order for op in (forward, count + forward)]


def _ranked(lowest_first: list[int]) -> tuple[int, ...]:
    ranks = [0] * len(lowest_first)
    for rank, op in enumerate(lowest_first):
        ranks[op] = rank
    return tuple(ranks)


class _Srpt:
    """``srpt`` as a registry makes it."""

    def __call__(self, job: int, parts: PartitionedGraph, fabric: Fabric) -> OpSchedule:
        return srpt(job, parts, fabric)


class _Fifo:
    """``graph_order`` as a registry makes it."""

    def __call__(self, job: int, parts: PartitionedGraph, fabric: Fabric) -> OpSchedule:
        return graph_order(job, parts, fabric)
