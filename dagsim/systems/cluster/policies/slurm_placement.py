"""Slurm's choice of nodes: which of the nodes with room a job takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dagsim.model import Cluster, Placement, Share
from dagsim.model.arithmetic import bits

__all__ = ["NodeChoice"]


class NodeChoice:
    """The rule by which nodes are chosen.

    ``first`` takes the first nodes with room, in the order of the configuration. ``best`` is the
    rule of ``select/cons_tres`` without topology (``_eval_nodes_consec`` in eval_nodes.c, Slurm
    22.05): nodes of the smallest weights that suffice together are divided into blocks of
    consecutive nodes. The job takes the tightest block that suffices (the one with the fewest free
    CPUs), else the largest blocks in turn. If one node of the block can hold it, it takes the one
    with the fewest free CPUs; otherwise the block's nodes in order.
    """

    def __init__(self, cluster: Cluster, *, best: bool) -> None:
        self.in_order = not best
        """True if a job takes the first nodes with room."""
        weights: dict[float, int] = {}
        for index, node in enumerate(cluster.nodes):
            weights[node.weight] = weights.get(node.weight, 0) | 1 << index
        self._by_weight = [weights[weight] for weight in sorted(weights)]
        """Bit sets of the nodes of each weight, smallest weight first."""

    def nodes(self, nodes: int, room: Mapping[int, int], free: Mapping[int, int], wanted: int, *, spread: bool) -> int:
        """Choose nodes for ``wanted`` instances among ``nodes``, which have ``room`` for instances
        and ``free`` CPUs. With ``spread``, each instance takes a node of its own. Returns a bit set,
        0 if there is not enough room.
        """
        if self.in_order:
            return _in_order(bits(nodes), room, wanted, spread)
        open_, total = 0, 0
        for of_weight in self._by_weight:
            added = nodes & of_weight
            if not added:
                continue
            open_ |= added
            total += sum(1 if spread else room[node] for node in bits(added))
            if total >= wanted:
                return _tightest(open_, room, free, wanted, spread)
        return 0

    def placement(
        self, nodes: int, room: Mapping[int, int], free: Mapping[int, int], wanted: int, *, spread: bool
    ) -> Placement | None:
        """The same choice as a placement; None if there is not enough room."""
        chosen = self.nodes(nodes, room, free, wanted, spread=spread)
        shares = []
        for node in bits(chosen):
            count = min(wanted, 1 if spread else room[node])
            if count:  # a later block may have made an earlier node superfluous
                shares.append(Share(node, count))
            wanted -= count
        return tuple(shares) or None


def _in_order(nodes: Iterable[int], room: Mapping[int, int], wanted: int, spread: bool) -> int:
    """The first nodes that hold ``wanted`` instances; 0 if all of them do not."""
    chosen = 0
    for node in nodes:
        chosen |= 1 << node
        wanted -= 1 if spread else room[node]
        if wanted <= 0:
            return chosen
    return 0


def _tightest(open_: int, room: Mapping[int, int], free: Mapping[int, int], wanted: int, spread: bool) -> int:
    """Choose among nodes that suffice together."""
    blocks = _blocks(open_)
    chosen = 0
    while wanted > 0:
        block = _best_block(blocks, room, free, wanted, spread)
        blocks.remove(block)
        alone = [node for node in block if room[node] >= wanted] if wanted == 1 or not spread else []
        if alone:
            return chosen | 1 << min(alone, key=lambda node: (free[node], node))
        for node in block:
            chosen |= 1 << node
            wanted -= 1 if spread else room[node]
            if wanted <= 0:
                break
    return chosen


def _best_block(
    blocks: Sequence[list[int]], room: Mapping[int, int], free: Mapping[int, int], wanted: int, spread: bool
) -> list[int]:
    """The sufficient block with the fewest free CPUs, else the block with the most."""
    held = [sum(1 if spread else room[node] for node in block) for block in blocks]
    cpus = [sum(free[node] for node in block) for block in blocks]
    enough = [place for place, count in enumerate(held) if count >= wanted]
    if enough:
        return blocks[min(enough, key=lambda place: (cpus[place], place))]
    return blocks[max(range(len(blocks)), key=lambda place: (cpus[place], -place))]


def _blocks(nodes: int) -> list[list[int]]:
    """Split a set of nodes into blocks of consecutive nodes."""
    blocks: list[list[int]] = []
    for node in bits(nodes):
        if blocks and blocks[-1][-1] == node - 1:
            blocks[-1].append(node)
        else:
            blocks.append([node])
    return blocks
