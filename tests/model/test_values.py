"""Values of the wrong type or range are found where they are given, not in the middle of a run."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import numpy as np
import pytest

from dagsim import Cluster, Edge, Job, Node, Task, TaskGraph, simulate, summarize
from dagsim.errors import ConfigError, InputError, ModelError
from dagsim.model import gpu_type
from dagsim.systems.cluster.models.runtime import Recorded

JOB = Job.single("a", Task("t", 1.0))


class Waits:
    def decide(self, view: Any) -> tuple[()]:
        return ()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"instances": "3"}, "task 't': instances must be a whole number, got '3'"),
        ({"instances": 1.5}, "task 't': instances must be a whole number, got 1.5"),
        ({"instances": True}, "task 't': instances must be a whole number, got True"),
        ({"instances": 0}, "task 't': instances must be at least 1, got 0"),
        ({"work": "1"}, "task 't': work must be a number, got '1'"),
        ({"gpus": "1"}, "task 't': gpus must be a number, got '1'"),
        ({"cpus": [1]}, r"task 't': cpus must be a number, got \[1\]"),
        ({"memory_gb": nan}, "task 't': memory_gb must be 0 or more, got nan"),
    ],
)
def test_a_task_is_checked_when_it_is_made(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=f"^{message}$"):
        Task("t", **{"work": 1.0, **values})


def test_instances_may_be_a_number_of_numpy() -> None:
    assert Task("t", 1.0, np.int64(3)).instances == 3


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"priority": nan}, "job 'a': priority must be a number, got nan"),
        ({"priority": "high"}, "job 'a': priority must be a number, got 'high'"),
        ({"arrival_s": "0"}, "job 'a': arrival_s must be a number, got '0'"),
        ({"deadline_s": "9"}, "job 'a': deadline_s must be a number, got '9'"),
        ({"weight": 0}, "job 'a': weight must be positive, got 0"),
    ],
)
def test_a_job_is_checked_when_it_is_made(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=f"^{message}$"):
        Job("a", JOB.graph, **values)


def test_a_job_may_have_no_or_every_priority() -> None:
    assert [Job("a", JOB.graph, priority=value).priority for value in (-inf, 0, inf)] == [-inf, 0, inf]


def test_a_cluster_is_checked_when_it_is_made() -> None:
    with pytest.raises(ModelError, match=r"^GPUs of type T4 must be a whole number, got 1\.5$"):
        Cluster.of({"T4": 1.5})  # type: ignore[dict-item]
    with pytest.raises(ModelError, match=r"^GPUs of type T4 must be 0 or more, got -1$"):
        Cluster.of({"T4": -1})
    with pytest.raises(ModelError, match=r"^per_node must be a whole number, got 0\.5$"):
        Cluster.of({"T4": 1}, per_node=0.5)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"^node 'n': gpus must be a whole number, got 1\.5$"):
        Node("n", gpu_type("T4"), 1.5)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"^node 'n': cpus must be a number, got 'many'$"):
        Node("n", gpu_type("T4"), 1, "many")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "fault", "message"),
    [
        ({"engine": "turbo"}, ConfigError, "engine must be one of auto, simpy, compiled, got 'turbo'"),
        ({"engine": "simpi"}, ConfigError, "did you mean 'simpy'"),
        ({"seed": 1.5}, ModelError, r"seed must be a whole number, got 1\.5"),
        ({"seed": -1}, InputError, "seed must be a whole number of 0 or more"),
        ({"policy": None}, InputError, r"policy must be a name or an object with a method decide\(view\), got None"),
        ({"policy": Waits}, InputError, r"make one: Waits\(\)"),
        ({"runtime": object()}, ConfigError, "runtime must be a model object"),
        ({"runtime": Recorded}, ConfigError, r"runtime must be a model object.*; make one: Recorded\(\)"),
        ({"setup": [1]}, ConfigError, r"setup must be a model object.* got \[1\]"),
        ({"estimates": None}, ConfigError, "estimates must be a model object"),
        ({"failures": ["x"]}, ConfigError, "failures must be a model object.* got 'x'"),
        ({"observers": [5]}, ConfigError, r"observers must be a list of functions, got \[5\]"),
    ],
)
def test_a_simulation_is_checked_before_it_runs(values: dict[str, Any], fault: type[InputError], message: str) -> None:
    with pytest.raises(fault, match=message):
        simulate(**{"workload": "steady", "cluster": {"T4": 2}, "policy": "fifo", **values})


def test_numbers_from_numpy_count_gpus_and_instances() -> None:
    of_two = Cluster.of({"T4": np.int64(2)})  # type: ignore[dict-item]
    (gpus, instances) = (of_two.nodes[0].gpus, Task("t", 1.0, np.int64(2)).instances)  # type: ignore[arg-type]
    assert (type(gpus), gpus, type(instances), instances) == (int, 2, int, 2)
    assert simulate("steady", of_two).schedule == simulate("steady", {"T4": 2}).schedule


def test_edges_of_a_graph_are_checked_when_it_is_made() -> None:
    with pytest.raises(ModelError, match="bytes must be 0 or more, got nan"):
        TaskGraph((Task("a", 1.0), Task("b", 1.0)), (Edge(0, 1, nan),))


def test_a_name_in_place_of_an_object_is_named() -> None:
    name: Any = "x"
    with pytest.raises(ModelError, match="nodes must be a list of Node objects, got 'x'"):
        Cluster(name)
    with pytest.raises(ModelError, match="must be a Schedule"):
        summarize(name)
    with pytest.raises(ConfigError, match="network must be a model object, not a name"):
        simulate(network=name)
