"""Computation graphs: what they promise, and what is wrong with a malformed one, in words."""

from __future__ import annotations

import pytest

from dagsim.errors import GraphError, ModelError
from dagsim.families.ramp.api import ComputationGraph, Op


def op(id_: str, forward_s: float = 1.0) -> Op:
    return Op(id_, forward_s, 2 * forward_s, 10.0, 5.0)


def diamond() -> ComputationGraph:
    return ComputationGraph.of("diamond", map(op, "2134"), [("1", "2"), ("1", "3"), ("2", "4"), ("3", "4")])


def test_operations_keep_the_order_of_their_file() -> None:
    assert [op.id for op in diamond().ops] == ["2", "1", "3", "4"]


def test_parents_come_before_children_in_topological_order() -> None:
    graph = diamond()
    assert [graph.ops[number].id for number in graph.order] == ["1", "2", "3", "4"]


def test_mirrors_are_numbered_backwards() -> None:
    graph = diamond()
    assert [graph.pass_id(number) for number in range(8)] == ["2", "1", "3", "4", "7", "8", "6", "5"]


def test_an_edge_carries_the_output_of_its_first_end_in_each_pass() -> None:
    # Outputs of 1 and 3 bytes: forward 1, backward 3, and 3 where the passes join.
    ops = [Op("1", 1.0, 1.0, 1.0, 0.0), Op("2", 1.0, 1.0, 3.0, 0.0)]
    assert ComputationGraph.of("chain", ops, [("1", "2")]).dep_bytes == 1 + 3 + 3


def test_mirrors_of_named_operations_have_a_prime() -> None:
    assert ComputationGraph("named", [op("conv")], []).pass_id(1) == "conv'"


def test_passes_join_at_the_highest_number() -> None:
    graph = ComputationGraph.of("fork", map(op, "132"), [("1", "2"), ("1", "3")])
    assert graph.ops[graph.last].id == "3"
    assert [graph.ops[sink].id for sink in graph.sinks] == ["3", "2"]


def test_depth_counts_the_edges_of_the_shortest_path_through_both_passes() -> None:
    # 1 -> 2, 3 -> 4 -> 4' -> 3', 2' -> 1'
    assert diamond().depths() == (1, 0, 1, 2, 4, 5, 4, 3)


def test_one_step_on_one_gpu_takes_the_sum_of_both_passes() -> None:
    assert diamond().step_s == 12.0


def test_costs_on_a_type_with_figures_are_those() -> None:
    graph = ComputationGraph("one", [Op("1", 1.0, 2.0, 0.0, 0.0, seconds_on={"T4": (5.0, 9.0)})], [])
    assert graph.costs("T4") == (5.0, 9.0)
    assert graph.costs("A100-80") == (1.0, 2.0)


def test_digest_is_equal_for_equal_graphs_and_no_others() -> None:
    assert diamond().digest == diamond().digest
    other = ComputationGraph.of("diamond", map(op, "2134"), [("1", "2"), ("1", "3"), ("2", "4"), ("3", "2")])
    assert diamond().digest != other.digest


def test_a_cycle_is_named() -> None:
    words = r"graph 'bad': the operations depend on each other in a cycle: '[123]'( -> '[123]'){3}$"
    with pytest.raises(GraphError, match=words):
        ComputationGraph.of("bad", map(op, "123"), [("1", "2"), ("2", "3"), ("3", "1")])


def test_an_edge_to_an_unknown_operation_is_named() -> None:
    with pytest.raises(GraphError, match="the edge '1' -> '7' names '7', which does not exist"):
        ComputationGraph.of("bad", map(op, "12"), [("1", "7")])


@pytest.mark.parametrize(
    ("ids", "edges", "words"),
    [
        ("", [], "has no operations"),
        ("11", [], "two operations are called '1'"),
        ("12", [("1", "2"), ("1", "2")], "edge '1' -> '2' is given twice"),
        ("12", [("1", "1")], "operation '1' depends on itself"),
    ],
)
def test_a_malformed_graph_is_refused_in_words(ids: str, edges: list[tuple[str, str]], words: str) -> None:
    with pytest.raises(GraphError, match=words):
        ComputationGraph.of("bad", map(op, ids), edges)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("field", ["forward_s", "backward_s", "activation_bytes", "parameter_bytes"])
def test_a_cost_that_cannot_be_is_refused(field: str, value: float) -> None:
    costs = {"forward_s": 1.0, "backward_s": 1.0, "activation_bytes": 1.0, "parameter_bytes": 1.0} | {field: value}
    with pytest.raises(ModelError, match=f"op '3': {field} must be a finite number of 0 or more"):
        Op("3", **costs)
