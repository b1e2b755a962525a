"""Torus, switch and fat tree: what they cost, and what every topology promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagsim.errors import ConfigError
from dagsim.families.fabric.topologies import Torus
from dagsim.families.ramp.api import Fabric, Memo, Planner, Ramp, Rules
from dagsim.families.ramp.graph import branches
from dagsim.families.ramp.topology import TOPOLOGIES, LeafSpine, Switch, Topology, TorusBoxes, ring_s

FABRICS = {
    "ramp": Ramp(4, 2, 2),
    "ramp as in ddls": Ramp(4, 2, 2, ddls=True),
    "torus": TorusBoxes((4, 2, 2)),
    "switch": Switch(16),
    "fat tree": LeafSpine(4, 4, oversubscription=4.0),
}


def test_a_ring_sends_all_but_one_part_round() -> None:
    # 4 servers, 3 rounds of 10 of the 40 bytes at 5 bytes/s, 1 s each to get there
    assert ring_s(4, 40.0, 5.0, 1.0) == 3 * (1.0 + 2.0)
    assert ring_s(1, 40.0, 5.0, 1.0) == 0.0


def test_a_torus_takes_the_shorter_way_around() -> None:
    torus = TorusBoxes((5, 2))
    assert torus.pair(0, 8) == 1  # 0-0 to 4-0
    assert torus.pair(0, 5) == 3  # 0-0 to 2-1
    assert len(torus.route(0, 5)) == 3


def test_a_way_on_a_torus_is_made_of_steps_between_neighbours() -> None:
    torus = TorusBoxes((5, 4, 3))
    for source in range(60):
        for target in range(60):
            way, here = [], list(torus.places[source])
            for axis, size in enumerate((5, 4, 3)):
                apart = (torus.places[target][axis] - here[axis]) % size
                step = 1 if 2 * apart <= size else -1
                while here[axis] != torus.places[target][axis]:
                    before = torus.places.index(tuple(here))
                    here[axis] = (here[axis] + step) % size
                    way += torus.route(before, torus.places.index(tuple(here)))
            assert torus.pair(source, target) == len(way)
            if not any(2 * ((torus.places[target][axis] - torus.places[source][axis]) % 4) == 4 for axis in (1,)):
                assert torus.route(source, target) == tuple(way)  # half around, both ways are as short


def test_ways_on_a_torus_are_those_of_shared_networks() -> None:
    boxes, names = TorusBoxes((4, 3)), [f"{x}-{y}" for x in range(4) for y in range(3)]
    assert boxes.server_names == tuple(names)
    order = sorted(range(12), key=lambda server: (server % 3, server // 3))  # x varies fastest
    routing = Torus((4, 3)).routing([names[server] for server in order])
    for source in range(12):
        for target in range(12):
            assert boxes.route(source, target) == routing.paths(order.index(source), order.index(target))[0]


def test_neighbours_on_a_torus_use_links_of_their_own_each_way() -> None:
    torus = TorusBoxes((4,))
    assert len({torus.route(0, 1), torus.route(1, 0), torus.route(1, 2), torus.route(0, 3)}) == 4


def test_a_torus_sums_over_its_dimensions() -> None:
    torus = TorusBoxes((4, 2), link_bytes_per_s=5.0, hop_s=1.0)
    # 4 along one dimension with all 40 bytes, 2 along the other with a quarter; there and back
    expected = 2 * (3 * (1 + 2) + 1 * (1 + 1))
    assert torus.collective_s((4, 2), 40.0) == pytest.approx(expected)


def test_boxes_on_a_torus_reach_around_its_edges() -> None:
    torus = TorusBoxes((4,))
    assert {frozenset(block) for block in torus.blocks(2)} == {frozenset((at, (at + 1) % 4)) for at in range(4)}


def test_pairs_that_share_a_link_share_its_rate() -> None:
    # On a switch both targets hang on one uplink of server 0; on RAMP each pair has its own channel.
    (switched,) = Fabric(Switch(4)).crossing((0,), (1, 2)).lanes
    assert switched.sharing == 2
    (optical,) = Fabric(Ramp(2, 2, 1)).crossing((0,), (1, 2)).lanes
    assert optical.sharing == 1


def test_leaves_of_a_fat_tree_are_left_at_the_reduced_rate() -> None:
    tree = LeafSpine(2, 2, oversubscription=4.0, link_bytes_per_s=8.0, hop_s=0.5)
    assert tree.transfer_s(tree.pair(0, 1), 16.0) == 1.0 + 2.0
    assert tree.transfer_s(tree.pair(0, 2), 16.0) == 2.0 + 8.0
    assert tree.group(frozenset((0, 1, 2))) == (2, 2)


def test_a_fat_tree_fills_the_leaf_with_the_fewest_free_servers() -> None:
    tree = LeafSpine(2, 4)
    first = next(iter(tree.free_blocks(2, [0, 1, 2, 6, 7])))
    assert first == (6, 7)
    across = list(tree.free_blocks(4, [0, 1, 2, 6, 7]))
    assert across[0] == (0, 1, 2, 6)
    names = ("switch", "fat_tree", "torus", "ramp")
    assert [TOPOLOGIES.create(name).anywhere for name in names] == [True, True, False, False]


def test_a_switch_places_wherever_enough_are_free() -> None:
    fabric = Fabric(Switch(8))
    assert [block for _, block in fabric.free(3, 0b01010111)] == [(3, 5, 7)]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("torus[shape=[0,2]]", "every dimension must be at least 1"),
        ("switch[servers=0]", "servers must be at least 1, got 0"),
        ("switch[link_bytes_per_s=0]", "link_bytes_per_s must be positive"),
        ("fat_tree[leaves=0]", "must be at least 1"),
        ("fat_tree[link_bytes_per_s=0]", "link_bytes_per_s must be positive"),
        ("fat_tree[hop_s=-1]", "hop_s must be 0 or more"),
        ("fat_tree[oversubscription=0.5]", "oversubscription must be at least 1, got 0.5"),
        ("ramp[groups=2,racks=3]", "more racks than"),
    ],
)
def test_an_impossible_topology_is_refused_in_words(spec: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        TOPOLOGIES.create(spec)


@pytest.mark.parametrize("name", FABRICS)
def test_every_topology_keeps_what_the_protocol_promises(name: str) -> None:
    topology: Topology = FABRICS[name]
    assert len(set(topology.server_names)) == topology.servers == 16
    for size in (1, 2, 4, 8):
        blocks = topology.blocks(size)
        assert blocks
        assert all(len(set(block)) == size and set(block) <= set(range(16)) for block in blocks)
    assert topology.collective_s(topology.group(frozenset((3,))), 1e9) == 0.0
    for source, target in ((0, 1), (2, 15), (7, 4)):
        assert topology.route(source, target)
        assert topology.transfer_s(topology.pair(source, target), 2e9) > topology.transfer_s(
            topology.pair(source, target), 1e9
        )


@settings(deadline=None, max_examples=80)
@given(name=st.sampled_from(list(FABRICS)), seed=st.integers(0, 10_000), size=st.sampled_from([1, 2, 4]))
def test_equal_patterns_cost_the_same(name: str, seed: int, size: int) -> None:
    """Place two operations here and there: where the patterns agree, so does the step, to the last bit."""
    rng = np.random.default_rng(seed)
    planner = PLANNERS.setdefault(name, Planner(Fabric(FABRICS[name]), Rules(), memo=Memo()))
    parts = planner.parts(branches(2, 1, rng=np.random.default_rng(0), forward_s=1e-4), size)
    placement = planner.place(parts, int(rng.integers(1 << 16)) & int(rng.integers(1 << 16)))
    if placement is not None:
        assert planner.step(parts, placement) == planner.look_ahead(parts, placement)


PLANNERS: dict[str, Planner] = {}
"""Kept over the examples, so that many of them find what others looked ahead."""


@pytest.mark.parametrize("name", FABRICS)
def test_free_blocks_are_free_and_found_in_every_topology(name: str) -> None:
    fabric = Fabric(FABRICS[name])
    rng = np.random.default_rng(4)
    for _ in range(20):
        occupied = int(rng.integers(1 << 16)) & int(rng.integers(1 << 16))
        for mask, block in fabric.free(2, occupied):
            assert not mask & occupied
            assert mask == sum(1 << server for server in block)
