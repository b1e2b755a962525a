"""The rules that every placement obeys, whoever made it."""

from __future__ import annotations

from dagsim.errors import IllegalDecision
from dagsim.systems.ramp.decisions import OpPlacement
from dagsim.systems.ramp.fabric import Fabric
from dagsim.systems.ramp.partition import PartitionedGraph

__all__ = ["check_placement"]


def check_placement(
    placement: OpPlacement, parts: PartitionedGraph, fabric: Fabric, occupied: int, placer: str
) -> None:
    """Check that every piece has a free server of its operation's own.

    Raises:
        IllegalDecision: An operation without a block, one of another size, a server that does not exist, is occupied,
            or would hold two pieces of one operation.
    """
    where = f"placer {placer!r}, graph {parts.graph.model!r}"
    if len(placement.block_of) != len(parts.graph):
        raise IllegalDecision(f"{where}: {len(placement.block_of)} of {len(parts.graph)} operations have a block")
    for block in placement.blocks:
        for server in block:
            if not 0 <= server < fabric.servers:
                raise IllegalDecision(f"{where}: there is no server {server}; there are {fabric.servers}")
            if occupied >> server & 1:
                raise IllegalDecision(f"{where}: server {fabric.topology.server_names[server]} has a job already")
        if len(set(block)) < len(block):
            raise IllegalDecision(f"{where}: the block {block} holds a server twice")
    for op, (number, pieces) in enumerate(zip(placement.block_of, parts.splits, strict=True)):
        if not 0 <= number < len(placement.blocks):
            raise IllegalDecision(f"{where}: op {parts.graph.ops[op].id!r} names block {number}, which is not there")
        if len(placement.blocks[number]) != pieces:
            raise IllegalDecision(
                f"{where}: op {parts.graph.ops[op].id!r} has {pieces} pieces, but its block"
                f" {len(placement.blocks[number])} servers"
            )
