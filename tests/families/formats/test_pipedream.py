"""PipeDream profiles: the forward pass, its mirror, and what ddls measured of five models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagsim.errors import TraceError
from dagsim.traces import open_trace

Reading = Callable[..., Any]


def test_the_backward_pass_mirrors_the_forward_pass(read: Reading, samples: Path) -> None:
    got = read(samples / "pipedream" / "tiny.txt")
    (job,) = got.jobs
    assert got.trace.format == "pipedream"
    assert [(task.name, task.work) for task in job.tasks] == [
        ("2", 2), ("1", 1), ("3", 0.5), ("5", 4.5), ("6", 0), ("4", 0.25),
    ]  # fmt: skip
    assert job.tasks[0].memory_gb == pytest.approx(115e-9)  # 10 + 5 + 100 bytes
    names = job.graph.names
    assert {(names[parent], names[child]): size for parent, child, size in job.graph.edges} == {
        ("1", "2"): 7, ("2", "3"): 15, ("1", "3"): 7, ("5", "6"): 15, ("4", "5"): 3, ("4", "6"): 3, ("3", "4"): 3,
    }  # fmt: skip


def test_a_cycle_drops_every_node_once(samples: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text((samples / "pipedream" / "tiny.txt").read_text().rstrip() + "\n\tnode3 -- node1\n")
    trace = open_trace(tmp_path / "a.txt", "pipedream")
    with pytest.raises(TraceError, match="read 3 rows: kept 0; dropped 3 of jobs that are not a DAG"):
        list(trace.jobs())


@pytest.mark.data
@pytest.mark.parametrize(
    ("model", "ops", "edges", "sequential_s"),
    [("alexnet", 46, 47, 36061.15), ("gnmt", 96, 117, 4470.80), ("resnet18", 142, 159, 36668.35),
     ("squeezenet1_0", 136, 153, 38000.15), ("vgg16", 82, 83, 34525.35)],
)  # fmt: skip
def test_models_have_the_figures_of_ddls(
    read: Reading, data: Path, model: str, ops: int, edges: int, sequential_s: float
) -> None:
    (job,) = read(data / "traces" / "pipedream" / f"{model}.txt").jobs
    assert (len(job.tasks), len(job.graph.edges)) == (ops, edges)
    assert 50 * sum(task.work for task in job.tasks) == pytest.approx(sequential_s, abs=0.01)
