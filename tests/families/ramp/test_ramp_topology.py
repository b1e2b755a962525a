"""RAMP(C, R, S): its blocks, and what transfers and collectives cost."""

from __future__ import annotations

import pytest

from dagsim.errors import ConfigError
from dagsim.families.ramp.api import Fabric, Ramp
from dagsim.model import gpu_type


def names(ramp: Ramp, block: tuple[int, ...]) -> list[str]:
    return [ramp.server_names[server] for server in block]


def test_servers_are_named_by_group_rack_and_number() -> None:
    ramp = Ramp(2, 2, 2)
    assert ramp.server_names == ("0-0-0", "0-0-1", "0-1-0", "0-1-1", "1-0-0", "1-0-1", "1-1-0", "1-1-1")


def test_only_some_sizes_have_blocks() -> None:
    ramp = Ramp(4, 4, 2)
    assert [size for size in range(1, 33) if ramp.blocks(size)] == [1, 2, 3, 4, 6, 8, 9, 16, 18, 32]


def test_even_degrees_up_to_16_that_can_be_placed() -> None:
    ramp = Ramp(4, 4, 2)
    assert [size for size in range(2, 17, 2) if ramp.blocks(size)] == [2, 4, 6, 8, 16]


def test_a_block_spans_no_more_groups_than_there_are_racks() -> None:
    # ddls tries 3 x 1 x 2 only where 3 fits both ways
    assert Ramp(4, 4, 2).blocks(6)
    assert not Ramp(4, 2, 2).blocks(6)


def test_cubes_come_first_and_origins_in_order() -> None:
    ramp = Ramp(4, 4, 2)
    first, second = ramp.blocks(4)[:2]
    assert names(ramp, first) == ["0-0-0", "0-1-0", "1-0-0", "1-1-0"]
    assert names(ramp, second) == ["0-0-1", "0-1-1", "1-0-1", "1-1-1"]


def test_two_servers_lie_across_groups_then_in_a_rack_then_across_racks_then_diagonal() -> None:
    ramp = Ramp(2, 2, 2)
    blocks = [names(ramp, block) for block in ramp.blocks(2)]
    assert blocks == [
        ["0-0-0", "1-0-0"],
        ["0-0-1", "1-0-1"],
        ["0-1-0", "1-1-0"],
        ["0-1-1", "1-1-1"],
        ["0-0-0", "0-0-1"],
        ["0-1-0", "0-1-1"],
        ["1-0-0", "1-0-1"],
        ["1-1-0", "1-1-1"],
        ["0-0-0", "0-1-0"],
        ["0-0-1", "0-1-1"],
        ["1-0-0", "1-1-0"],
        ["1-0-1", "1-1-1"],
        ["0-0-0", "1-1-0"],
        ["0-0-1", "1-1-1"],
    ]


def test_a_transfer_takes_its_latency_and_its_bytes() -> None:
    # 50 ns + 2 x 100 ns, and 4e11 bytes at a quarter of 1.6e12 bytes/s
    assert Ramp(4, 4, 2).transfer_s(None, 4e11) == pytest.approx(1.00000025)


def test_a_collective_across_two_groups_by_ddls() -> None:
    # one round of two: half the bytes at (4 channels of) 1e11 bytes/s each way, and one addition
    ramp = Ramp(4, 4, 2, ddls=True)
    sent_s = 250e-9 + 5e8 / 4e11
    added_s = 1 * 5e8 / 2 / min(2e12 * 1 / 6, 130e12)
    assert ramp.collective_s((2, 1, 1), 1e9) == pytest.approx(2 * sent_s + added_s, rel=1e-12)


def test_the_division_by_c_is_done_once_without_ddls() -> None:
    sent_s = 250e-9 + 5e8 / 16e11
    added_s = 5e8 / 2 / (2e12 / 6)
    assert Ramp(4, 4, 2).collective_s((2, 1, 1), 1e9) == pytest.approx(2 * sent_s + added_s, rel=1e-12)


def test_a_collective_inside_a_rack_is_free_in_ddls_only() -> None:
    assert Ramp(4, 4, 2, ddls=True).collective_s((1, 1, 2), 1e9) == 0.0
    assert Ramp(4, 4, 2).collective_s((1, 1, 2), 1e9) > 0.0


def test_a_collective_on_one_server_is_free() -> None:
    assert Ramp(4, 4, 2).collective_s((1, 1, 1), 1e9) == 0.0


def test_a_group_counts_what_takes_part() -> None:
    ramp = Ramp(4, 4, 2)
    assert ramp.group(frozenset(ramp.blocks(16)[0])) == (4, 4, 1)


def test_blocks_that_differ_in_place_only_have_one_pattern() -> None:
    ramp = Ramp(4, 4, 2)
    bars, bar = [block for block in ramp.blocks(2) if names(ramp, block)[0][-1] == "0"], ramp.blocks(2)[0]
    assert ramp.pattern((bars[1],)) == ramp.pattern((bar,))
    assert ramp.pattern((bar, bars[1])) != ramp.pattern((bar, bar))


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((0, 1, 1), "groups must be at least 1, got 0"),
        ((2, 3, 1), "more racks than"),
        ((1, 1, 3), "a rack can hold at most"),
    ],
)
def test_an_impossible_topology_is_refused_in_words(shape: tuple[int, int, int], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Ramp(*shape)


def test_a_fabric_has_one_gpu_per_server() -> None:
    with pytest.raises(ConfigError, match="has 8 servers, but 2 GPU types were given"):
        Fabric(Ramp(2, 2, 2), [gpu_type("T4"), gpu_type("V100-16")])


def test_lanes_tell_what_stays_from_what_is_sent() -> None:
    fabric = Fabric(Ramp(2, 2, 2))
    lanes = {lane.local: lane for lane in fabric.crossing((0, 1), (0, 1)).lanes}
    assert lanes[True].targets == ((0,), (1,))
    assert lanes[False].targets == ((1,), (0,))
    assert lanes[False].all_channels == 1 << 1 | 1 << 8
    assert lanes[False].arrivals == (1, 1)
