"""How many pieces, and what passes between them."""

from __future__ import annotations

import pytest

from dagsim.errors import ConfigError, ModelError
from dagsim.families.ramp.api import DDLS, ComputationGraph, Op, Rules
from dagsim.families.ramp.partition import PARTITIONERS, PieceEdge, RandomPartition, SipMlPartition, partitioned


def graph() -> ComputationGraph:
    """One long operation and two short ones in a row; output 8, 16, 24 bytes, weights 2, 4, 6."""
    ops = [
        Op(str(number), seconds, seconds, 8.0 * number, 2.0 * number)
        for number, seconds in ((1, 1.0), (2, 0.03), (3, 0.0))
    ]
    return ComputationGraph("row", ops, [(0, 1), (1, 2)])


def test_pieces_are_one_quantum_long_and_even() -> None:
    # quantum .01: 1 s would be 100 pieces, .03 s three, made four; 0 s stays whole
    assert SipMlPartition()(graph(), 16, DDLS) == (16, 4, 1)
    assert SipMlPartition()(graph(), 2, DDLS) == (2, 2, 1)
    assert SipMlPartition()(graph(), 1, DDLS) == (1, 1, 1)


@pytest.mark.parametrize("degree", [0, -2, 3])
def test_a_degree_is_one_or_even(degree: int) -> None:
    with pytest.raises(ModelError, match=f"a degree must be 1 or even, got {degree}"):
        SipMlPartition()(graph(), degree, DDLS)


def test_random_pieces_are_powers_of_two() -> None:
    for degree, powers in ((1, {1}), (6, {1, 2, 4}), (8, {1, 2, 4, 8})):
        assert {pieces for seed in range(40) for pieces in RandomPartition(seed)(graph(), degree, DDLS)} == powers


def test_edges_by_ddls_carry_the_memory_of_the_end_split_first() -> None:
    parts = partitioned(graph(), (4, 2, 1), DDLS)
    assert parts.edges == (
        PieceEdge(0, 1, 10.0 / 8),  # both split: the first in the file
        PieceEdge(1, 2, 30.0 / 2),  # the whole end counts as first
        PieceEdge(4, 3, 10.0 / 8),
        PieceEdge(5, 4, 30.0 / 2),
        PieceEdge(2, 5, 30.0),
    )
    assert parts.sync_bytes == (2.5, 10.0, 0.0)
    assert parts.memory_bytes == (2.5, 10.0, 30.0)


def test_edges_carry_the_producers_output_both_ways() -> None:
    parts = partitioned(graph(), (4, 2, 1), Rules())
    assert parts.edges == (
        PieceEdge(0, 1, 8.0 / 8),
        PieceEdge(1, 2, 16.0 / 2),
        PieceEdge(4, 3, 8.0 / 8),
        PieceEdge(5, 4, 16.0 / 2),
        PieceEdge(2, 5, 24.0),
    )
    assert parts.sync_bytes == (0.5, 2.0, 0.0)


def test_sums_count_every_pair() -> None:
    parts = partitioned(graph(), (4, 2, 1), DDLS)
    assert parts.ops == 14
    assert parts.deps == 8 + 2 + 8 + 2 + 1 + 4 * 3 + 2 * 1
    assert parts.total_memory_bytes == 2 * (10 + 20 + 30)
    assert parts.total_dep_bytes == 10 + 30 + 10 + 30 + 30 + 12 * 2.5 + 2 * 10


def test_every_sink_joins_the_passes_and_in_ddls_the_last_one() -> None:
    fork = ComputationGraph("fork", [Op(str(n), 1.0, 1.0, 1.0, 0.0) for n in (1, 2, 3)], [(0, 1), (0, 2)])
    assert [edge[:2] for edge in partitioned(fork, (1, 1, 1), Rules()).edges[4:]] == [(1, 4), (2, 5)]
    assert [edge[:2] for edge in partitioned(fork, (1, 1, 1), DDLS).edges[4:]] == [(2, 5)]


@pytest.mark.parametrize(("splits", "words"), [((1, 1), "2 counts of pieces"), ((3, 1, 1), "op '1' must be split")])
def test_pieces_that_cannot_be_are_refused(splits: tuple[int, ...], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        partitioned(graph(), splits, DDLS)


def test_partitioners_are_found_by_name() -> None:
    assert PARTITIONERS.create("sip_ml")(graph(), 2, DDLS) == (2, 2, 1)
    assert len(PARTITIONERS.create("random[seed=4]")(graph(), 2, DDLS)) == 3


@pytest.mark.parametrize("change", [{"quantum_s": 0.0}, {"max_degree": 0}, {"tolerance": -1.0}, {"same_s": -1.0}])
def test_rules_that_cannot_be_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(change))):
        Rules().but(**change)
