"""Where the pieces go."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagsim.families.ramp.api import DDLS, ComputationGraph, Fabric, Op, OpPlacement, Ramp, Rules
from dagsim.families.ramp.graph import branches
from dagsim.families.ramp.partition import PartitionedGraph, partitioned
from dagsim.families.ramp.server_placement import PLACERS, BestFitBlocks, FirstFitBlocks, Packed

FABRIC = Fabric(Ramp(4, 4, 2))
GB = 1e9


def parts(*splits: int, gb: float = 1.0, rules: Rules = DDLS) -> PartitionedGraph:
    """A row of operations in so many pieces, each operation of ``gb`` in all."""
    ops = [Op(str(number + 1), 1.0, 1.0, gb * GB, 0.0) for number in range(len(splits))]
    graph = ComputationGraph("row", ops, [(number, number + 1) for number in range(len(splits) - 1)])
    return partitioned(graph, splits, rules)


def servers(placement: OpPlacement | None, op: int) -> list[str]:
    assert placement is not None
    return [FABRIC.topology.server_names[server] for server in placement.block(op)]


def occupied(*names: str) -> int:
    return sum(1 << FABRIC.topology.server_names.index(name) for name in names)


def test_children_go_beside_a_parent_of_as_many_pieces() -> None:
    placement = FirstFitBlocks().place(0, parts(4, 4), FABRIC, occupied("0-0-0"), DDLS)
    assert servers(placement, 0) == servers(placement, 1) == ["0-0-1", "0-1-1", "1-0-1", "1-1-1"]


def test_operations_of_other_sizes_take_the_first_free_block_of_their_own() -> None:
    placement = FirstFitBlocks().place(0, parts(2, 4, 1), FABRIC, occupied("1-0-0"), DDLS)
    assert servers(placement, 0) == ["0-0-1", "1-0-1"]
    assert servers(placement, 1) == ["0-0-1", "0-1-1", "1-0-1", "1-1-1"]
    assert servers(placement, 2) == ["0-0-0"]


def test_a_job_fails_when_one_operation_finds_no_block() -> None:
    half = occupied(*(name for name in FABRIC.topology.server_names if name.endswith("0")))
    assert FirstFitBlocks().place(0, parts(1, 16), FABRIC, half | occupied("3-3-1"), DDLS) is None


def test_memory_is_taken_operation_by_operation() -> None:
    # 50 GB beside 50 GB do not fit into 80: the second goes to the next server
    placement = FirstFitBlocks().place(0, parts(1, 1, gb=50.0), FABRIC, 0, DDLS)
    assert servers(placement, 0) == ["0-0-0"]
    assert servers(placement, 1) == ["0-0-1"]


def test_both_passes_hold_memory_unless_by_ddls() -> None:
    assert FirstFitBlocks().place(0, parts(1, gb=50.0), FABRIC, 0, DDLS) is not None
    assert FirstFitBlocks().place(0, parts(1, gb=50.0), FABRIC, 0, Rules()) is None


def test_packed_keeps_a_job_inside_one_block() -> None:
    mixed = parts(2, 16, 8, 4, 6, 1)
    spread = FirstFitBlocks().place(0, mixed, FABRIC, 0, DDLS)
    packed = Packed().place(0, parts(2, 16, 8, 4, 2, 1), FABRIC, 0, DDLS)
    assert spread is not None
    assert len(spread.servers) > 16
    assert packed is not None
    assert len(packed.servers) == 16


def test_best_fit_keeps_blocks_whole_for_others() -> None:
    # Only one plane of 16 is whole. First fit would break it for two servers; best fit takes them elsewhere.
    taken = occupied("0-0-1", "3-3-1")
    first = Packed().place(0, parts(2), FABRIC, taken, DDLS)
    best = BestFitBlocks().place(0, parts(2), FABRIC, taken, DDLS)
    assert servers(first, 0) == ["0-0-0", "1-0-0"]
    assert best is not None
    assert all(name.endswith("1") for name in servers(best, 0))
    mask = sum(1 << server for server in best.servers) | taken
    assert any(not block & mask for block, _ in FABRIC.blocks(16))


@settings(deadline=None, max_examples=60)
@given(
    name=st.sampled_from(PLACERS.names()),
    seed=st.integers(0, 1000),
    taken=st.integers(0, (1 << 32) - 1),
    degree=st.sampled_from([1, 2, 4, 8]),
)
def test_no_placer_takes_an_occupied_server_or_puts_two_pieces_on_one(
    name: str, seed: int, taken: int, degree: int
) -> None:
    rng = np.random.default_rng(seed)
    graph = branches(2, 2, rng=rng)
    splits = tuple(int(pieces) for pieces in rng.choice([1, degree], len(graph)))
    placement = PLACERS.create(name).place(7, partitioned(graph, splits, DDLS), FABRIC, taken, DDLS)
    if placement is None:
        return
    assert placement.job == 7
    assert not any(taken >> server & 1 for server in placement.servers)
    for op, pieces in enumerate(splits):
        assert len(set(placement.block(op))) == len(placement.block(op)) == pieces


@pytest.mark.parametrize("name", ["first_fit", "packed", "best_fit"])
def test_placers_use_symmetric_blocks_only(name: str) -> None:
    placement = PLACERS.create(name).place(0, parts(8, 2, 8), FABRIC, occupied("0-0-0", "2-1-1"), DDLS)
    assert placement is not None
    for op, pieces in enumerate((8, 2, 8)):
        assert placement.block(op) in FABRIC.topology.blocks(pieces)
