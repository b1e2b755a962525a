"""Alibaba openb 2023: pods that share GPUs, and the nodes beside them."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

from dagsim.errors import TraceError
from dagsim.families.formats.openb2023 import read_openb_nodes
from dagsim.traces import Source

Reading = Callable[..., Any]


@pytest.fixture(scope="module")
def sample(read: Reading, samples: Path) -> Any:
    return read(samples / "openb2023" / "openb_pod_list_sample.csv")


def test_a_pod_is_a_job_of_one_task_from_scheduling_to_deletion(sample: Any) -> None:
    job = sample.job("pod-a")
    (task,) = job.tasks
    assert sample.trace.format == "openb2023"
    assert (job.arrival_s, job.priority) == (30, 2)  # created at 50, the first pod at 20
    assert (task.work, task.gpus, task.cpus, task.memory_gb, task.gpu_types) == (190, 1, 8, 16, None)


def test_gpus_are_shares_of_one_or_several_whole_ones(sample: Any) -> None:
    assert [(job.id, job.tasks[0].gpus) for job in sample.jobs] == [
        ("pod-b", 0.47), ("pod-a", 1), ("pod-c", 8), ("pod-d", 0), ("pod-e", 0.1), ("pod-f", 0.25), ("pod-r", 1),
    ]  # fmt: skip


def test_a_spec_is_a_set_of_types_under_the_names_of_the_catalogue(sample: Any) -> None:
    assert sample.job("pod-b").tasks[0].gpu_types == ("V100-16", "V100-32")
    assert sample.job("pod-c").tasks[0].gpu_types == ("G2",)


def test_pending_pods_count_from_creation_and_an_unknown_qos_is_noted(sample: Any) -> None:
    assert sample.job("pod-e").tasks[0].work == 40
    assert sample.noted == {
        "pods that were never scheduled (run time counted from creation)": 1,
        "pods with an unknown qos (taken as priority 0)": 1,
    }


def test_every_dirty_row_is_dropped_for_its_reason(sample: Any) -> None:
    assert sample.dropped == {
        "with times out of order": 2,
        "with num_gpu and gpu_milli that disagree": 2,
        "with a gpu_spec but no GPU": 1,
        "with the same id as another row": 1,
        "without cpu_milli": 1,
        "that describe an impossible job": 1,
        "with a non-numeric value for num_gpu": 1,
        "without deletion_time": 1,
        "without creation_time": 1,
        "with a wrong number of fields": 1,
    }


def test_one_gpu_may_be_shared_and_several_are_whole(read: Reading, samples: Path, tmp_path: Path) -> None:
    head = (samples / "openb2023" / "openb_pod_list_sample.csv").read_text().splitlines()[0]
    asked = {
        "0:0": 0,
        "1:1": 0.001,
        "1:1000": 1,
        "2:1000": 2,
        "1:0": None,
        "1:1001": None,
        "2:500": None,
        "0:1000": None,
    }
    rows = [f"{pod},8000,16384,{pod.replace(':', ',')},,LS,Running,50,250,60" for pod in asked]
    (tmp_path / "openb_pod_list_x.csv").write_text("\n".join([head, *rows]) + "\n")
    got = read(tmp_path / "openb_pod_list_x.csv")
    assert {job.id: job.tasks[0].gpus for job in got.jobs} == {
        pod: gpus for pod, gpus in asked.items() if gpus is not None
    }
    assert got.dropped == {"with num_gpu and gpu_milli that disagree": 4}


def test_the_nodes_beside_the_pods_are_the_cluster(sample: Any) -> None:
    cluster = sample.trace.cluster()
    assert cluster.gpus_by_type() == {"T4": 2, "V100-32": 8, "G2": 8}
    assert [(node.gpus, node.cpus, node.memory_gb) for node in cluster.nodes][2:] == [(0, 32, 128), (8, 128, 768)]


def test_a_list_without_times_keeps_its_order(read: Reading, samples: Path) -> None:
    got = read(samples / "openb2023" / "openb_pod_list_untimed.csv")
    assert [(job.id, job.arrival_s, job.tasks[0].work, job.tasks[0].gpus) for job in got.jobs] == [
        ("pod-y", 0, 0, 2),
        ("pod-x", 0, 0, 0.46),
    ]
    assert "times" in got.trace.assumptions


def test_work_of_a_known_type_is_counted_on_the_reference(read: Reading, samples: Path) -> None:
    got = read(samples / "openb2023" / "openb_pod_list_sample.csv", reference_gpu="V100-16")
    assert got.job("pod-e").tasks[0].work == pytest.approx(40 * 8.14 / 15.67)  # a T4 pod
    assert got.job("pod-b").tasks[0].work == 100  # either of two types: unknown


def test_a_node_of_a_million_gpus_is_damage(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\na,1,1,1000000,T4\n")
    with pytest.raises(TraceError, match=r"nodes\.csv:2: a node with an invalid value for gpu"):
        read_openb_nodes(Source(tmp_path / "nodes.csv"))


def test_a_bad_node_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\na,1,1,1,T4\nb,1,1,1,T5\n")
    with pytest.raises(TraceError, match=r"nodes\.csv:3: a node with the unknown GPU model 'T5'"):
        read_openb_nodes(Source(tmp_path / "nodes.csv"))


@pytest.mark.data
def test_the_default_list_has_the_published_statistics(read: Reading, data: Path) -> None:
    path = data / "traces" / "alibaba-gpu-v2023" / "openb_pod_list_default.csv"
    got = read(path)
    assert got.trace.report.kept == 8152
    demands = Counter(round(job.tasks[0].gpus, 3) for job in got.jobs)
    assert [demands[gpus] for gpus in (0, 2, 4, 8, 0.81, 0.47)] == [1088, 16, 15, 44, 1078, 750]
    assert Counter(job.priority for job in got.jobs) == {2: 4647, 0: 3398, 1: 107}
    with path.open() as file:
        pending = {row["name"] for row in csv.DictReader(file) if row["pod_phase"] == "Pending"}
    works = [job.tasks[0].work for job in got.jobs if job.id not in pending]
    assert len(pending) == 897
    assert mean(works) == pytest.approx(28_950, abs=1)
    assert median(works) == 616


@pytest.mark.data
def test_a_list_of_every_kind_is_read_and_constraints_counted(read: Reading, data: Path) -> None:
    folder = data / "traces" / "alibaba-gpu-v2023"
    for name in ("default.csv", "cpu300.csv.gz", "gpushare80.csv.gz", "multigpu50.csv.gz"):
        assert read(folder / f"openb_pod_list_{name}").dropped == {}, name
    spec33 = read(folder / "openb_pod_list_gpuspec33.csv.gz")
    assert sum(job.tasks[0].gpu_types is not None for job in spec33.jobs) == 2388


@pytest.mark.data
def test_the_nodes_are_the_published_cluster(data: Path) -> None:
    folder = data / "traces" / "alibaba-gpu-v2023"
    cluster = read_openb_nodes(Source(folder / "openb_node_list_all_node.csv"))
    assert len(cluster.nodes) == 1523
    assert cluster.gpus_by_type() == {
        "P100": 265, "T4": 842, "V100-16": 195, "V100-32": 204, "G2": 4392, "G3": 312, "A10": 2,
    }  # fmt: skip
    assert read_openb_nodes(Source(folder / "openb_node_list_gpu_node.csv")).gpus == 6212
