from __future__ import annotations

import json

import pytest

from dagsim.model import Cluster, Edge, Job, Task, TaskGraph
from dagsim.systems.cluster.models.runtime import Recorded, Throughput
from dagsim.workload.info import Percentiles, workload_info
from dagsim.workload.presets import PRESETS
from dagsim.workload.shapes import MapReduce
from dagsim.workload.synthetic import Synthetic

CLUSTER = Cluster.of({"V100": 4})

# a and b, then c after both, then d after c
DIAMOND = TaskGraph(
    (Task("a", 10.0, 4, True), Task("b", 30.0, gpus=0.5), Task("c", 5.0, gpus=0), Task("d", 1.0, model="bert")),
    (Edge(0, 2), Edge(1, 2), Edge(2, 3)),
)
JOBS = [
    Job("one", DIAMOND, arrival_s=3600.0, priority=2.0, tenant="x"),
    Job.single("two", Task("t", 60.0, gpus=2.0), 25 * 3600.0 + 10),
]


def test_worked_example():
    info = workload_info(JOBS, CLUSTER, Recorded())
    assert (info.jobs, info.tasks, info.edges, info.instances, info.gangs) == (2, 5, 3, 8, 1)
    assert (info.first_arrival_s, info.span_s) == (3600.0, 24 * 3600.0 + 10)
    assert info.tasks_per_job is not None
    assert (info.tasks_per_job.mean, info.tasks_per_job.max) == (2.5, 4.0)
    assert info.depth is not None
    assert info.depth.max == 3
    assert info.width is not None
    assert info.width.max == 2
    assert info.critical_path_s is not None
    assert (info.critical_path_s.p50, info.critical_path_s.max) == (36.0, 60.0)  # 30 + 5 + 1; 60
    assert info.gpus_per_instance == {"0": 1, "0.5": 1, "1": 2, "2": 1}
    assert info.gpus_per_job is not None
    assert (info.gpus_per_job.p50, info.gpus_per_job.max) == (2.0, 4.0)
    assert info.models == {"": 4, "bert": 1}
    assert info.tenants == {"": 1, "x": 1}
    assert info.priorities == {"0": 1, "2": 1}
    assert info.arrivals_by_hour == (0, 2, *[0] * 22)  # 01:00 of the first day and of the second
    assert info.load is not None
    # GPU-seconds 40 + 15 + 1 + 120 on 4 GPUs over 86,410 s between two jobs, which stand for twice as long
    assert info.period_s == 2 * 86410
    assert info.load.gpu_load == pytest.approx(176 / (4 * 2 * 86410))


def test_without_a_cluster_there_is_no_load_and_no_critical_path():
    info = workload_info(JOBS)
    assert info.load is None
    assert info.critical_path_s is None
    assert info.work is not None


def test_of_no_jobs_at_all():
    info = workload_info([], CLUSTER, Recorded())
    assert info.jobs == 0
    assert info.depth is None
    json.dumps(info.to_dict())


def test_percentiles_are_values_that_occurred():
    # The 50th of 1..100 is 50, the 99th is 99.
    spread = Percentiles.of(range(1, 101))
    assert (spread.mean, spread.p50, spread.p75, spread.p90, spread.p95, spread.p99, spread.max) == (
        50.5, 50, 75, 90, 95, 99, 100,
    )  # fmt: skip


def test_jobs_that_cannot_run_have_no_critical_path():
    info = workload_info([Job.single("j", Task("t", 1.0, gpu_types=("H100",)))], CLUSTER, Recorded())
    assert info.critical_path_s is None


def test_depth_and_width_of_a_known_shape():
    # 4 maps then 2 reduces, two rounds: depth 4, width 4
    workload = Synthetic(10, shape=MapReduce((4, 4), (2, 2), (2, 2)))
    info = workload_info(workload.jobs(CLUSTER, Throughput()))
    assert info.depth is not None
    assert info.width is not None
    assert (info.depth.mean, info.width.mean) == (4.0, 4.0)


def test_as_plain_values_it_is_json():
    jobs = PRESETS["heterogeneous"].workload.jobs(CLUSTER, Throughput())
    info = workload_info(jobs, CLUSTER, Throughput(), whole=True)
    plain = json.loads(json.dumps(info.to_dict()))
    assert plain["jobs"] == 100
    assert plain["load"]["offered"] == pytest.approx(0.9)
    assert len(plain["arrivals_by_hour"]) == 24
