"""Heterogeneous GPUs."""

from __future__ import annotations

import pytest

from dagsim.families.ramp.api import ComputationGraph, Fabric, Memo, Op, Planner, Ramp, Rules
from dagsim.families.ramp.graph import bound, costed
from dagsim.model import gpu_type

A100, V100, T4 = gpu_type("A100-80"), gpu_type("V100-16"), gpu_type("T4")


def graph() -> ComputationGraph:
    ops = [
        Op("1", 1.0, 1.0, 0.0, 0.0, "Input0"),
        Op("2", 2.0, 4.0, 0.0, 0.0, "Conv2d(3, 64)"),
        Op("3", 3.0, 6.0, 0.0, 0.0, "ReLU(inplace)"),
    ]
    return ComputationGraph("net", ops, [(0, 1), (1, 2)])


def test_operations_are_bound_by_arithmetic_bandwidth_or_loading() -> None:
    assert [bound(op) for op in graph().ops] == ["loading", "arithmetic", "bandwidth"]


def test_times_scale_with_what_bounds_them() -> None:
    costed_graph = costed(graph(), V100, (A100, V100, T4))
    arithmetic, bandwidth = 15.67 / 8.14, 900 / 320
    assert costed_graph.costs("T4") == pytest.approx(
        (1.0, 2 * arithmetic, 3 * bandwidth, 1.0, 4 * arithmetic, 6 * bandwidth)
    )
    assert costed_graph.costs("V100-16") == graph().costs()
    assert costed_graph.costs("A100-80")[1] == pytest.approx(2 * 15.67 / 19.49)


def test_a_profile_goes_before_the_estimate() -> None:
    op = Op("1", 2.0, 2.0, 0.0, 0.0, "Linear", {"T4": (7.0, 8.0)})
    assert costed(ComputationGraph("one", [op], []), V100, (T4,)).costs("T4") == (7.0, 8.0)


def test_the_slowest_type_holds_up_a_job_that_mixes_them() -> None:
    net = costed(ComputationGraph("one", [Op("1", 1.0, 1.0, 0.0, 0.0, "Linear")], []), A100, (A100, T4))
    rules = Rules(quantum_s=0.01, max_degree=2)
    planner = Planner(Fabric(Ramp(2, 1, 2), [T4, T4, A100, A100]), rules, memo=Memo())
    parts = planner.parts(net, 2)
    seconds = {}
    for placer in ("packed", "same_type"):
        placement = planner.place(parts, 0, placer)
        assert placement is not None
        seconds[placer] = planner.step(parts, placement).seconds
    # packed: across the groups, one of each type; same_type: both A100s in their rack
    assert seconds == pytest.approx({"packed": 19.49 / 8.14, "same_type": 1.0})


def test_same_type_prefers_the_fastest_whole_block() -> None:
    fabric = Fabric(Ramp(2, 2, 2), [T4, V100, T4, A100, T4, V100, T4, A100])
    planner = Planner(fabric, Rules(quantum_s=0.01, max_degree=2), memo=Memo())
    parts = planner.parts(ComputationGraph("one", [Op("1", 1.0, 1.0, 0.0, 0.0)], []), 2)
    placement = planner.place(parts, 0, "same_type")
    assert placement is not None
    assert {fabric.gpus[server].name for server in placement.servers} == {"A100-80"}


def test_memory_is_that_of_the_type() -> None:
    fabric = Fabric(Ramp(1, 1, 2), [T4, A100])
    planner = Planner(fabric, Rules(backward_memory=False), memo=Memo())
    parts = planner.parts(ComputationGraph("big", [Op("1", 1.0, 1.0, 40e9, 0.0)], []), 1)
    placement = planner.place(parts, 0)
    assert placement is not None
    assert placement.servers == {1}


def test_a_pattern_tells_types_apart() -> None:
    fabric = Fabric(Ramp(1, 1, 2), [T4, A100])
    assert fabric.pattern(((0,),)) != fabric.pattern(((1,),))
