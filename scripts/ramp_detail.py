"""A placed job in full detail: every operation with its server and rank, every dependency with its
time.
"""

from __future__ import annotations

from typing import NamedTuple

from dagsim.systems.ramp.decisions import OpSchedule
from dagsim.systems.ramp.fabric import Fabric
from dagsim.systems.ramp.partition import PartitionedGraph
from dagsim.systems.ramp.timing import TimedGraph

__all__ = ["Dep", "Piece", "deps", "pieces"]


class Piece(NamedTuple):
    """One piece of a pass operation. Of the ready pieces on a server, the one with the highest
    ``priority`` runs.
    """

    id: str
    which_pass: str
    seconds: float
    memory_bytes: float
    server: str
    priority: int


class Dep(NamedTuple):
    """One dependency between two pieces. ``seconds`` is 0 if nothing is sent."""

    source: str
    target: str
    size_bytes: float
    seconds: float


def pieces(timed: TimedGraph, schedule: OpSchedule, fabric: Fabric) -> list[Piece]:
    """Return all pieces: whole operations first, forward ones before mirrors, then each split one
    with its mirror.
    """
    parts, count = timed.parts, len(timed.parts.graph)
    on_server: dict[int, list[int]] = {}
    for op in range(2 * count):
        for server in timed.placement.block(op % count):
            on_server.setdefault(server, []).append(op)
    priority = {}
    for server, ops in on_server.items():
        ranks = schedule.ranks[fabric.type_of[server]]
        for rank, op in enumerate(sorted(ops, key=ranks.__getitem__)):
            priority[op, server] = rank
    detailed = []
    for op in _in_order(parts):
        for id_, server in zip(_ids(parts, op), timed.placement.block(op % count), strict=True):
            seconds = parts.graph.costs(fabric.gpus[server].name)[op] / parts.pieces[op]
            which = "forward_pass" if op < count else "backward_pass"
            name = fabric.topology.server_names[server]
            detailed.append(Piece(id_, which, seconds, parts.memory_bytes[op % count], name, priority[op, server]))
    return detailed


def deps(timed: TimedGraph) -> list[Dep]:
    """Return all dependencies by source, exchanges of weights last."""
    parts, count = timed.parts, len(timed.parts.graph)
    sizes = {(edge.source, edge.target): edge.pair_bytes for edge in parts.edges}
    for op, size in enumerate(parts.sync_bytes):
        sizes[count + op, count + op] = size
    ids = [_ids(parts, op) for op in range(2 * count)]
    detailed = []
    for op in _in_order(parts):
        for bundle in timed.bundles[op]:
            size, seconds = sizes[op, bundle.target], bundle.seconds if bundle.flows else 0.0
            for source, targets in zip(ids[op], bundle.lane.targets, strict=True):
                detailed += [Dep(source, ids[bundle.target][target], size, seconds) for target in targets]
    return detailed


def _in_order(parts: PartitionedGraph) -> list[int]:
    count = len(parts.graph)
    whole = [op for op in range(2 * count) if parts.pieces[op] == 1]
    return whole + [both for op in range(count) if parts.splits[op] > 1 for both in (op, count + op)]


def _ids(parts: PartitionedGraph, op: int) -> list[str]:
    """Names ``7a, 7b, ...`` of the parts of a split operation. ``z`` is followed by ``aa, ab,
    ...``.
    """
    id_ = parts.graph.pass_id(op)
    return [id_] if parts.pieces[op] == 1 else [id_ + _letters(piece) for piece in range(parts.pieces[op])]


def _letters(number: int) -> str:
    high, low = divmod(number, 26)
    return (_letters(high - 1) if high else "") + chr(ord("a") + low)
