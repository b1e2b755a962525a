from __future__ import annotations

from math import inf

import pytest

from dagsim.config.schema import load_config
from dagsim.model import Cluster, Job, Node, Task
from dagsim.model.streams import stream
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.workload import synthetic
from dagsim.workload.load import offered_load

ALIKE = Cluster.of({"V100": 4}, cpus_per_gpu=10)
MIXED = Cluster.of({"A100": 2, "T4": 4}, cpus_per_gpu=10)


def load(cluster, *jobs):
    return offered_load(jobs, cluster, Recorded())


def job(arrival_s, *tasks):
    from dagsim.model import TaskGraph

    return Job(f"job-{arrival_s}", TaskGraph(tasks), arrival_s)


def test_on_one_gpu_type_it_is_gpu_seconds_over_gpus_times_span():
    # (100 s * 2 instances * 1 GPU + 50 s * 1 * 4 GPUs) / (4 GPUs * 50 s) = 400 / 200
    jobs = job(10.0, Task("a", 100.0, instances=2)), job(60.0, Task("b", 50.0, gpus=4.0))
    assert load(ALIKE, *jobs).gpu_load == pytest.approx(2.0)
    assert load(ALIKE, *jobs).offered == pytest.approx(2.0)


def test_a_fraction_of_a_gpu_counts_as_that_fraction():
    # 80 s * 0.25 GPU / (4 GPUs * 100 s) = 0.05
    assert load(ALIKE, job(0.0, Task("a", 80.0, gpus=0.25)), job(100.0, Task("b", 0.0))).gpu_load == pytest.approx(0.05)


def test_on_mixed_gpus_all_work_at_the_task_s_own_speed():
    # 2 A100 at speed 3 and 4 T4 at speed 0.5 do 8 units a second: 800 / 8 = 100 s of the whole cluster, over 200 s
    task = Task("a", 800.0, speeds={"A100": 3.0, "T4": 0.5})
    assert load(MIXED, job(0.0, task), job(200.0, Task("b", 0.0))).gpu_load == pytest.approx(0.5)


def test_only_allowed_gpus_count():
    # Only the 4 T4 at speed 1: 800 / 4 = 200 s, over 200 s
    task = Task("a", 800.0, gpu_types=("T4",))
    assert load(MIXED, job(0.0, task), job(200.0, Task("b", 0.0))).gpu_load == pytest.approx(1.0)


def test_cores_are_a_load_of_their_own_and_the_scarcer_counts():
    # CPU: 100 s * 8 instances * 5 cores / (40 cores * 100 s) = 1.0; GPU: 100 s / (4 * 100 s) = 0.25
    jobs = job(0.0, Task("a", 100.0, instances=8, gpus=0, cpus=5.0)), job(100.0, Task("b", 100.0))
    measured = load(ALIKE, *jobs)
    assert measured.cpu_load == pytest.approx(1.0)
    assert measured.gpu_load == pytest.approx(0.25)
    assert measured.offered == measured.cpu_load
    assert "CPU cores" in str(measured)


def test_cpu_machines_offer_cores_to_cpu_tasks_only():
    cluster = Cluster((*ALIKE.nodes, Node("cpu", cpus=60.0)))
    assert load(cluster, job(0.0, Task("a", 100.0, gpus=0, cpus=10.0)), job(10.0, Task("b", 0.0))).cpu_load == 1.0
    on_gpus = load(cluster, job(0.0, Task("a", 100.0, cpus=4.0)), job(10.0, Task("b", 0.0)))
    assert on_gpus.cpu_load == 1.0  # 400 core-seconds on the 40 cores beside GPUs


def test_what_cannot_run_offers_no_load():
    assert load(ALIKE, job(0.0, Task("a", 100.0, gpu_types=("H100",))), job(10.0, Task("b", 0.0))).offered == 0.0


def test_at_once_has_no_load_but_a_warning():
    at_once = load(ALIKE, job(0.0, Task("a", 100.0)), job(0.0, Task("b", 100.0)))
    assert at_once.offered == inf
    assert "at once" in str(at_once)
    assert at_once.warning is not None
    assert "at once" in at_once.warning


def test_nothing_is_no_load():
    assert load(ALIKE).offered == 0.0


@pytest.mark.parametrize(("work", "warns"), [(99.0, False), (100.0, False), (101.0, True)])
def test_warns_above_one_only(work, warns):
    # work * 4 instances / (4 GPUs * 100 s)
    warning = load(ALIKE, job(0.0, Task("a", work, instances=4)), job(100.0, Task("b", 0.0))).warning
    assert (warning is not None) == warns
    assert not warns or "1.01" in str(warning)


def test_the_pilot_for_a_load_draws_from_streams_of_its_own(monkeypatch):
    drawn = []
    monkeypatch.setattr(synthetic, "stream", lambda seed, name: drawn.append(name) or stream(seed, name))
    monkeypatch.setattr(synthetic, "_PILOT", 20)
    workload = load_config(None, ["workload.count=5"]).workload
    synthetic._piloted_s.__wrapped__(workload, ALIKE, Recorded())
    assert drawn
    assert all(name.startswith("pilot/") for name in drawn)
