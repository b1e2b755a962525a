"""Made-up computation graphs."""

from __future__ import annotations

import numpy as np
import pytest

from dagsim.errors import WorkloadError
from dagsim.families.ramp.graph import attention, branches, op_chain


def test_a_chain_is_a_row() -> None:
    graph = op_chain(4, rng=np.random.default_rng(0))
    assert graph.edges == ((0, 1), (1, 2), (2, 3))


def test_branches_fork_and_join() -> None:
    graph = branches(3, 2, rng=np.random.default_rng(0))
    assert len(graph) == 8
    assert len(graph.children[0]) == 3
    assert len(graph.parents[7]) == 3
    assert graph.sinks == (7,)


def test_made_up_times_have_the_mean_asked_for() -> None:
    graph = op_chain(4000, rng=np.random.default_rng(1), forward_s=0.5)
    assert np.mean([op.forward_s for op in graph.ops]) == pytest.approx(0.5, rel=0.05)


def test_equal_seeds_give_equal_graphs() -> None:
    one, other = (op_chain(5, rng=np.random.default_rng(3)) for _ in range(2))
    assert one.digest == other.digest


def test_attention_costs_its_multiplications() -> None:
    # 2 x 16 rows x 8 x 8 weights = 2048 FLOP at 1e-9 TFLOPS = 1000 FLOP/s
    graph = attention(2, width=8, tokens=4, batch=4, tflops=1e-9)
    query = next(op for op in graph.ops if op.id == "0.query")
    assert query.forward_s == pytest.approx(2.048)
    assert query.backward_s == pytest.approx(4.096)
    assert query.parameter_bytes == 128.0
    assert len(graph) == 24


@pytest.mark.parametrize("make", [lambda: op_chain(0, rng=np.random.default_rng(0)), lambda: attention(0)])
def test_a_graph_of_nothing_is_refused(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(WorkloadError, match="must be at least 1, got 0"):
        make()
