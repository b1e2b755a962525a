"""Slurm's choice of nodes, against a second form of ``select/cons_tres`` written out over lists."""

from __future__ import annotations

import random

import pytest

from dagsim.families.slurm.scheduler.node_choice import NodeChoice, NodeLayout
from dagsim.model import Cluster, Node
from dagsim.model.gpu import GpuType

GPU = GpuType("G", 1.0, 16, 100, 100, 10)


def written_out(
    weights: list[int], open_: set[int], room: dict[int, int], free: dict[int, int], wanted: int, spread: bool
) -> set[int]:
    """The nodes of ``_eval_nodes_consec``: those of the smallest weight first, block by block."""
    holds = {node: 1 if spread else room[node] for node in open_}
    if sum(holds.values()) < wanted:
        return set()
    chosen: set[int] = set()
    for weight in sorted(set(weights)):
        blocks: list[list[int]] = []
        for node in sorted(node for node in open_ if weights[node] == weight):
            if blocks and blocks[-1][-1] + 1 == node:
                blocks[-1].append(node)
            else:
                blocks.append([node])
        while blocks and wanted > 0:
            enough = [block for block in blocks if sum(holds[node] for node in block) >= wanted]
            if enough:
                block = min(enough, key=lambda nodes: (sum(free[node] for node in nodes), nodes[0]))
            else:
                block = min(blocks, key=lambda nodes: (-sum(free[node] for node in nodes), nodes[0]))
            single = [node for node in block if room[node] >= wanted]
            if single and (wanted == 1 or not spread):
                return chosen | {min(single, key=lambda node: (free[node], node))}
            for node in block:
                if wanted > 0:
                    chosen.add(node)
                    wanted -= holds[node]
            blocks.remove(block)
    return chosen


@pytest.mark.parametrize("spread", [False, True])
def test_the_best_nodes_are_those_of_the_rule_written_out(spread: bool) -> None:
    rng = random.Random(17)
    nobody = 0
    for _ in range(400):
        count = rng.randrange(1, 10)
        weights = [rng.choice((1, 1, 2)) for _ in range(count)]
        choice = NodeChoice(
            Cluster(tuple(Node(f"n{at}", GPU, 4, weight=weights[at]) for at in range(count))), best=True
        )
        open_ = {node for node in range(count) if rng.random() < 0.8}
        room, free = ({node: rng.randrange(1, 6) for node in open_} for _ in range(2))
        wanted = rng.randrange(1, 9)
        expected = written_out(weights, open_, room, free, wanted, spread)
        got = choice.nodes(sum(1 << node for node in open_), room, free, wanted, NodeLayout(spread))
        assert got == sum(1 << node for node in expected), (weights, open_, room, free, wanted)
        nobody += not expected
    assert 20 < nobody < 300


def test_first_takes_nodes_in_their_order() -> None:
    choice = NodeChoice(Cluster(tuple(Node(f"n{at}", GPU, 4) for at in range(4))), best=False)
    room, free = {0: 1, 1: 3, 3: 2}, {0: 9, 1: 9, 3: 9}
    assert choice.nodes(0b1011, room, free, 4, NodeLayout(spread=False)) == 0b0011
    assert choice.nodes(0b1011, room, free, 3, NodeLayout(spread=True)) == 0b1011
    assert choice.nodes(0b1011, room, free, 7, NodeLayout(spread=False)) == 0
    placement = choice.placement(0b1011, room, free, 5, NodeLayout(spread=False))
    assert [(share.node, share.instances) for share in placement or ()] == [(0, 1), (1, 3), (3, 1)]


def test_the_node_that_is_taken_last_gets_the_rest() -> None:
    # as -n 12 on real nodes: the larger block is filled first although its nodes come later
    choice = NodeChoice(Cluster(tuple(Node(f"n{at}", GPU, 4) for at in range(4))), best=True)
    room = {0: 5, 2: 4, 3: 6}
    placement = choice.placement(0b1101, room, room, 12, NodeLayout(spread=False))
    assert [(share.node, share.instances) for share in placement or ()] == [(0, 2), (2, 4), (3, 6)]


def test_each_further_node_that_is_needed_keeps_one_task() -> None:
    # -N2 -n 8: Slurm 22.05 gave 7 and 1 CPUs to each such job of site-C (_cpus_to_use), and 1 and 7 where the first
    # node had one CPU left
    choice = NodeChoice(Cluster(tuple(Node(f"n{at}", GPU, 4) for at in range(4))), best=True)
    pair = NodeLayout(spread=False, fewest=2, most=2)
    assert choice.counts(0b1111, dict.fromkeys(range(4), 32), dict.fromkeys(range(4), 32), 8, pair) == {0: 7, 1: 1}
    named = pair._replace(shares=((0b0010, 1), (0b0100, 1)))
    assert choice.counts(0b1111, dict.fromkeys(range(4), 32), dict.fromkeys(range(4), 32), 8, named) == {1: 7, 2: 1}
    room = {1: 1, 2: 16}
    assert choice.counts(0b0110, room, room, 8, named) == {1: 1, 2: 7}
    room = {1: 1, 2: 6, 3: 16}
    assert choice.counts(0b1110, room, room, 8, named) == {}


def test_nodes_with_few_free_cpus_are_left_out_if_a_job_may_not_take_so_many() -> None:
    choice = NodeChoice(Cluster(tuple(Node(f"n{at}", GPU, 4) for at in range(5))), best=True)
    room = {0: 2, 1: 3, 2: 2, 3: 9, 4: 5}
    assert choice.counts(0b11111, room, room, 14, NodeLayout(spread=False)) == {0: 2, 1: 3, 2: 2, 3: 7}
    assert choice.counts(0b11111, room, room, 14, NodeLayout(spread=False, most=2)) == {3: 9, 4: 5}
    assert choice.counts(0b11111, room, room, 15, NodeLayout(spread=False, most=2)) == {}
    # the smallest weights come first, even when nodes with more free CPUs exist
    choice = NodeChoice(Cluster(tuple(Node(f"n{at}", GPU, 4, weight=at // 2) for at in range(4))), best=True)
    room = {0: 3, 1: 4, 2: 20, 3: 20}
    assert choice.counts(0b1111, room, room, 7, NodeLayout(spread=False, idlest=True, most=2)) == {1: 4, 0: 3}
    assert choice.counts(0b1111, room, room, 9, NodeLayout(spread=False, idlest=True, most=2)) == {1: 4, 2: 5}
