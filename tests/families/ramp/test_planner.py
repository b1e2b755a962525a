"""The planner: splits, places and orders of one job, and the errors it raises."""

from __future__ import annotations

import numpy as np
import pytest

from dagsim.errors import ConfigError, IllegalDecision, UnknownName
from dagsim.families.ramp.api import (
    DDLS,
    ComputationGraph,
    Fabric,
    Memo,
    Op,
    OpPlacement,
    Partition,
    Planner,
    Ramp,
    RampJob,
    RampKernel,
    Rules,
)
from dagsim.families.ramp.bounded import Bounded
from dagsim.families.ramp.graph import branches
from dagsim.families.ramp.partition import PartitionedGraph
from dagsim.families.ramp.server_placement import PLACERS


def row() -> ComputationGraph:
    """A long operation and a short one."""
    return ComputationGraph("row", [Op("1", 4.0, 1.0, 8.0, 4.0), Op("2", 0.002, 2.0, 8.0, 4.0)], [(0, 1)])


def planner(rules: Rules = DDLS, **options: str) -> Planner:
    return Planner(Fabric(Ramp(2, 2, 1, ddls=True)), rules, memo=Memo(), **options)


def test_a_job_is_split_placed_and_ordered() -> None:
    plans = planner(DDLS.but(quantum_s=0.001))
    parts = plans.parts(row(), 4)
    placement = plans.place(parts, 0)
    assert placement is not None
    assert parts.splits == (4, 2)
    assert placement.block(0) == (0, 1, 2, 3)
    assert placement.block(1) == (0, 2)
    assert placement.servers == {0, 1, 2, 3}
    # pieces of 1, .001, .25 and 1 s: the shorter, the higher; of equal ones the one placed later
    assert plans.schedule(parts).ranks == ((0, 3, 2, 1),)
    assert plans.traffic(parts, placement).channels == 12  # every ordered pair of four servers
    assert plans.shortest_first


def test_channels_are_those_that_something_is_sent_over() -> None:
    plans = planner()
    parts = plans.parts(row(), 2)
    placement = plans.place(parts, 0)
    assert placement is not None
    assert plans.traffic(parts, placement).channels == 2  # from server 0 to server 2 and back


def test_fifo_orders_operations_as_the_graph_has_them() -> None:
    plans = planner(op_schedule="fifo", flow_schedule="fifo")
    parts = plans.parts(row(), 2)
    assert plans.schedule(parts).ranks == ((3, 2, 0, 1),)
    assert not plans.shortest_first


def test_orders_are_part_of_the_key() -> None:
    keys = set()
    for options in ({}, {"op_schedule": "fifo"}, {"flow_schedule": "fifo"}):
        plans = planner(**options)
        parts = plans.parts(row(), 2)
        placement = plans.place(parts, 0)
        assert placement is not None
        keys.add(plans.key(parts, placement))
    assert len(keys) == 3


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"placer": "fist_fit"}, UnknownName, "did you mean 'first_fit'"),
        ({"partitioner": "sipml"}, UnknownName, "did you mean 'sip_ml'"),
        ({"op_schedule": "sprt"}, UnknownName, "did you mean 'srpt'"),
        ({"flow_schedule": "lifo"}, ConfigError, "unknown flow schedule 'lifo'; allowed: srpt, fifo"),
    ],
)
def test_an_unknown_option_is_refused(options: dict[str, str], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        planner(**options)


@pytest.mark.parametrize(
    ("placement", "words"),
    [
        (OpPlacement(0, ((0, 2),), (0,)), "1 of 2 operations have a block"),
        (OpPlacement(0, ((0, 9),), (0, 0)), "there is no server 9; the cluster has 4"),
        (OpPlacement(0, ((0, 3),), (0, 0)), "server 1-1-0 already has a job"),
        (OpPlacement(0, ((1, 1),), (0, 0)), "contains a server twice"),
        (OpPlacement(0, ((0, 1),), (0, 1)), "op '2' names block 1, which does not exist"),
        (OpPlacement(0, ((0, 1), (2,)), (0, 1)), "op '2' has 2 pieces, but its block has 1 servers"),
    ],
)
def test_what_a_placer_must_not_take_is_refused(placement: OpPlacement, words: str) -> None:
    class Wild:
        def place(
            self, job: int, parts: PartitionedGraph, fabric: Fabric, occupied: int, rules: Rules
        ) -> OpPlacement | None:
            return placement

    PLACERS.register("wild")(Wild)
    try:
        plans = planner(DDLS.but(quantum_s=0.001), placer="wild")
        with pytest.raises(IllegalDecision, match=f"placer 'wild', graph 'row': .*{words}"):
            plans.place(plans.parts(row(), 2), 0b1000)
    finally:
        del PLACERS._entries["wild"]


@pytest.mark.parametrize("placer", PLACERS.names())
def test_equal_occupancy_gives_equal_servers_in_any_planner(placer: str) -> None:
    graph = branches(2, 2, rng=np.random.default_rng(0))
    one, other = (Planner(Fabric(Ramp(4, 4, 2)), DDLS, placer=placer, memo=Memo()) for _ in range(2))
    other.place(other.parts(graph, 2), 1)
    assert one.place(one.parts(graph, 4), 0b1001) == other.place(other.parts(graph, 4), 0b1001)


def test_random_partitions_repeat() -> None:
    graph = branches(3, 4, rng=np.random.default_rng(0))
    one, other = (planner(partitioner="random[seed=5]").parts(graph, 4).splits for _ in range(2))
    assert one == other
    assert set(one) <= {1, 2, 4}
    assert one != planner(partitioner="random[seed=6]").parts(graph, 4).splits


def test_a_randomly_partitioned_job_runs() -> None:
    kernel = RampKernel([RampJob("1", row(), beta=2.0)], planner(partitioner="random[seed=1]"))
    conversation = kernel.decisions()
    next(conversation)
    with pytest.raises(StopIteration):
        conversation.send([Partition(0, 4)])
    assert kernel.outcomes[0].completed_s is not None


def test_a_full_memo_forgets_the_oldest() -> None:
    memo = Memo(limit=2)
    plans = Planner(Fabric(Ramp(2, 2, 1)), DDLS, memo=memo)
    for seed in range(4):
        parts = plans.parts(branches(2, 1, rng=np.random.default_rng(seed)), 2)
        placement = plans.place(parts, 0)
        assert placement is not None
        plans.step(parts, placement)
    assert len(memo) == 2


def test_a_full_cache_is_emptied_before_another_value_is_added() -> None:
    cache: Bounded[int, int] = Bounded(2)
    for key in range(3):
        cache[key] = -key
    assert cache == {2: -2}
