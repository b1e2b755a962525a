"""Placers. A placer chooses the servers for the pieces of each operation. Every placement is
checked against the rules at the end of this module.

A server runs one job and at most one piece of each operation. The pieces of an operation are placed
on a symmetric block, so that they can run collectives. The pieces of the mirror run on the same
servers as the pieces of the forward operation.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from dagsim.errors import IllegalDecision
from dagsim.families.ramp.bounded import Bounded
from dagsim.families.ramp.decisions import OpPlacement, Rules
from dagsim.families.ramp.fabric import Fabric
from dagsim.families.ramp.partition import PartitionedGraph
from dagsim.families.ramp.topology import Block
from dagsim.model.arithmetic import ordered_sum
from dagsim.registry import Entry, Registry


class Placer(Protocol):
    """The interface of placers, which find servers for a partitioned job. The result depends only
    on the job and the occupied servers.
    """

    def place(
        self, job: int, parts: PartitionedGraph, fabric: Fabric, occupied: int, rules: Rules
    ) -> OpPlacement | None:
        """Return a placement outside ``occupied`` (a bit mask), or None if there is none."""


_HERE = "dagsim.families.ramp.server_placement"

PLACERS: Registry[Placer] = Registry(
    "placer",
    (
        Entry(
            "first_fit",
            f"{_HERE}:FirstFitBlocks",
            "the servers of a parent operation, or else the first free block (ddls)",
        ),
        Entry(
            "packed", f"{_HERE}:Packed", "the first free block for all operations, with smaller operations inside it"
        ),
        Entry(
            "best_fit", f"{_HERE}:BestFitBlocks", "as packed, but on the block that keeps the most other blocks free"
        ),
        Entry("same_type", f"{_HERE}:SameType", "as packed, but on GPUs of a single type, fastest type first"),
        Entry("random", f"{_HERE}:RandomPlacer", "random servers for each operation"),
    ),
    method="place",
)


class _Walk:
    """The state of a placement in progress: the blocks of the operations placed so far, and the
    memory left on each server.
    """

    def __init__(self, job: int, parts: PartitionedGraph, fabric: Fabric, rules: Rules) -> None:
        self.job = job
        self.parts = parts
        self.fabric = fabric
        self.free = list(fabric.memory_bytes)
        self.held = 2.0 if rules.backward_memory else 1.0
        self.blocks: dict[Block, int] = {}
        self.block_of = [-1] * len(parts.splits)
        self.names: list[Block] = []

    def beside_a_parent(self, op: int) -> bool:
        """Place the operation on the servers of the first parent that has as many pieces and enough
        free memory. Return False if there is none.
        """
        pieces = self.parts.splits[op]
        whole = self.parts.memory_bytes[op] * pieces * self.held
        for parent in self.parts.graph.parents[op]:
            block = self.names[self.block_of[parent]]
            if len(block) == pieces and ordered_sum(self.free[server] for server in block) >= whole:
                self.take(op, block)
                return True
        return False

    def fits(self, op: int, block: Block) -> bool:
        """Return True if every server in the block has enough memory for its piece."""
        piece = self.parts.memory_bytes[op] * self.held
        return all(self.free[server] >= piece for server in block)

    def take(self, op: int, block: Block) -> None:
        """Place the operation on the block."""
        piece = self.parts.memory_bytes[op] * self.held
        for server in block:
            self.free[server] -= piece
        number = self.blocks.setdefault(block, len(self.names))
        if number == len(self.names):
            self.names.append(block)
        self.block_of[op] = number

    def done(self) -> OpPlacement:
        """Return the finished placement. Every operation must have been placed."""
        return OpPlacement(self.job, tuple(self.names), tuple(self.block_of))


class FirstFitBlocks:
    """RAMP's first fit. Operations are placed one at a time. Each is placed on the servers of a
    parent with the same number of pieces, or else on the first free block.

    An operation may use any server without another job, so blocks of different sizes may overlap.
    """

    def place(
        self, job: int, parts: PartitionedGraph, fabric: Fabric, occupied: int, rules: Rules
    ) -> OpPlacement | None:
        """Return a placement of all operations, or None if one of them cannot be placed."""
        return place_inside(~occupied, job, parts, fabric, rules)


class Packed:
    """Uses one block for the whole job, with as many servers as the largest number of pieces.
    Operations with fewer pieces use a smaller block inside this block.
    """

    def place(
        self, job: int, parts: PartitionedGraph, fabric: Fabric, occupied: int, rules: Rules
    ) -> OpPlacement | None:
        """Return a placement of all operations, or None if there is none."""
        for outer in self._outer(fabric, parts.degree, occupied):
            placement = place_inside(outer, job, parts, fabric, rules)
            if placement is not None:
                return placement
        return None

    def _outer(self, fabric: Fabric, size: int, occupied: int) -> list[int]:
        """Return the free blocks of ``size`` servers as bit masks, in order of preference."""
        return list(dict.fromkeys(mask for mask, _ in fabric.free(size, occupied)))


class BestFitBlocks(Packed):
    """Like ``Packed``, but chooses the free block that leaves the most blocks of every size free,
    so that the next jobs fit.

    The weight of a free block is its size, divided by the number of all blocks of this size. Only
    sizes up to ``largest`` count. Fabrics with up to 64 servers are searched completely. On larger
    fabrics, the first free block is used.
    """

    def __init__(self, largest: int = 16) -> None:
        self.largest = largest
        self._others: dict[Fabric, tuple[np.ndarray, np.ndarray]] = {}
        self._known: Bounded[tuple[Fabric, int, int], list[int]] = Bounded()

    def _outer(self, fabric: Fabric, size: int, occupied: int) -> list[int]:
        free = super()._outer(fabric, size, occupied)
        if len(free) < 2 or fabric.servers > 64 or fabric.topology.anywhere:
            return free
        ranking = self._known.get((fabric, size, occupied))
        if ranking is None:
            masks, weights = self._all_blocks(fabric)
            after = np.array([mask | occupied for mask in free], np.uint64)
            left = ((after[:, None] & masks[None, :]) == 0) @ weights
            order = np.argsort(-left, kind="stable")
            ranking = self._known[fabric, size, occupied] = [free[number] for number in order.tolist()]
        return ranking

    def _all_blocks(self, fabric: Fabric) -> tuple[np.ndarray, np.ndarray]:
        weighted = self._others.get(fabric)
        if weighted is None:
            sizes = [1, *range(2, min(self.largest, fabric.servers) + 1, 2)]
            weighed = {mask: float(size) for size in sizes for mask, _ in fabric.blocks(size)}
            counts = {size: sum(1 for weight in weighed.values() if weight == size) for size in set(weighed.values())}
            weights = [size / counts[size] for size in weighed.values()]
            weighted = self._others[fabric] = (np.array(list(weighed), np.uint64), np.array(weights))
        return weighted


class SameType(Packed):
    """Like ``Packed``, but uses GPUs of one type if possible, fastest type first, because one slow
    GPU would delay all others.
    """

    def _outer(self, fabric: Fabric, size: int, occupied: int) -> list[int]:
        def preference(mask: int) -> tuple[int, float]:
            types = {fabric.gpus[server] for server in range(fabric.servers) if mask >> server & 1}
            return len(types), -min(gpu.tflops() for gpu in types)

        return sorted(super()._outer(fabric, size, occupied), key=preference)


class RandomPlacer:
    """Puts each operation on random servers that have enough memory and no other job. Symmetry does
    not matter.

    The draw depends only on ``seed``, the graph and the occupied servers, so episodes can be
    repeated.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def place(
        self, job: int, parts: PartitionedGraph, fabric: Fabric, occupied: int, rules: Rules
    ) -> OpPlacement | None:
        """Return a placement of all operations, or None if too few servers are free."""
        rng = np.random.default_rng([self.seed, int(parts.graph.digest, 16), occupied])
        walk = _Walk(job, parts, fabric, rules)
        for op in parts.graph.order:
            open_ = [
                server for server in range(fabric.servers) if not occupied >> server & 1 and walk.fits(op, (server,))
            ]
            pieces = parts.splits[op]
            if len(open_) < pieces:
                return None
            walk.take(op, tuple(rng.choice(open_, pieces, replace=False).tolist()))
        return walk.done()


def place_inside(outer: int, job: int, parts: PartitionedGraph, fabric: Fabric, rules: Rules) -> OpPlacement | None:
    """Place all operations on blocks within the servers ``outer`` (a bit mask). If possible, place
    each on the servers of a parent."""
    walk = _Walk(job, parts, fabric, rules)
    for op in parts.graph.order:
        if walk.beside_a_parent(op):
            continue
        for _, block in fabric.free(parts.splits[op], ~outer):
            if walk.fits(op, block):
                walk.take(op, block)
                break
        else:
            return None
    return walk.done()


def check_placement(
    placement: OpPlacement, parts: PartitionedGraph, fabric: Fabric, occupied: int, placer: str
) -> None:
    """Check that each piece of an operation has its own free server.

    Raises:
        IllegalDecision: An operation has no block or a block with the wrong size; or a server
            does not exist, is occupied, or would hold two pieces of one operation.
    """
    where = f"placer {placer!r}, graph {parts.graph.model!r}"
    if len(placement.block_of) != len(parts.graph):
        raise IllegalDecision(f"{where}: only {len(placement.block_of)} of {len(parts.graph)} operations have a block")
    for block in placement.blocks:
        for server in block:
            if not 0 <= server < fabric.servers:
                raise IllegalDecision(f"{where}: there is no server {server}; the cluster has {fabric.servers}")
            if occupied >> server & 1:
                raise IllegalDecision(f"{where}: server {fabric.topology.server_names[server]} already has a job")
        if len(set(block)) < len(block):
            raise IllegalDecision(f"{where}: the block {block} contains a server twice")
    for op, (number, pieces) in enumerate(zip(placement.block_of, parts.splits, strict=True)):
        if not 0 <= number < len(placement.blocks):
            raise IllegalDecision(f"{where}: op {parts.graph.ops[op].id!r} names block {number}, which does not exist")
        if len(placement.blocks[number]) != pieces:
            raise IllegalDecision(
                f"{where}: op {parts.graph.ops[op].id!r} has {pieces} pieces, but its block has "
                f"{len(placement.blocks[number])} servers"
            )
