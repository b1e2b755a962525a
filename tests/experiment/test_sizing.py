"""A cluster sized to its jobs."""

from __future__ import annotations

import pytest

from dagsim.config.schema import Config
from dagsim.errors import ConfigError
from dagsim.experiment.sizing import sized
from dagsim.model import Cluster, Job, Task
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.workload.load import offered_load


def counts(*jobs: Job) -> dict[str, int]:
    """Nodes by the name of their group."""
    return {group.name: group.count for group in sized(jobs, Recorded()).groups}


def hourly(task: Task, count: int = 100) -> list[Job]:
    """``count`` jobs of the task, spread over an hour."""
    return [Job.single(str(number), task, 3600 * number / count) for number in range(count)]


def test_gpus_of_the_type_that_tasks_name() -> None:
    # 100 jobs of 720 s on 2 GPUs in 3600 s keep 40 GPUs busy; at a load of 0.9 that takes 44.4, six nodes of 8
    assert counts(*hourly(Task("t", 720, gpus=2, gpu_types=("V100",)))) == {"v100-16": 6}


def test_cores_alone_where_no_gpu_is_asked_for() -> None:
    # 100 jobs of 720 s on 48 cores keep 960 busy: 1066.7 at 0.9, in nodes of 96: 11.1
    assert counts(*hourly(Task("t", 720, gpus=0, cpus=48))) == {"cpu": 12}


def test_memory_counts_too() -> None:
    # 100 jobs of 720 s with 512 GB keep 10,240 GB busy: 11,378 at 0.9, in nodes of 1,024: 11.1
    assert counts(*hourly(Task("t", 720, gpus=0, cpus=1, memory_gb=512))) == {"cpu": 12}


def test_tasks_that_name_no_type_get_the_usual_ones() -> None:
    # 20 GPUs busy, 22.2 at 0.9, a quarter on A100 and V100 each, half on T4: 5.6, 5.6 and 11.1 GPUs
    assert counts(*hourly(Task("t", 720, gpus=1))) == {"a100-40": 1, "v100-16": 1, "t4": 2}


def test_the_widest_gang_fits() -> None:
    assert counts(Job.single("j", Task("t", 1, instances=50, gang=True, gpus=1, gpu_types=("T4",)))) == {"t4": 7}


def test_the_memory_of_the_largest_gang_fits() -> None:
    # 50 instances of 512 GB at once: 25 nodes of 1,024 GB, though one second an hour is no load
    jobs = hourly(Task("t", 1, instances=50, gang=True, gpus=0, cpus=1, memory_gb=512))
    assert counts(*jobs) == {"cpu": 25}


def test_nodes_are_as_large_as_an_instance_needs() -> None:
    (group,) = sized([Job.single("j", Task("t", 1, gpus=16, cpus=200, memory_gb=3000))], Recorded()).groups[-1:]
    assert (group.gpus, group.cpus, group.memory_gb) == (16, 200, 3000)


@pytest.mark.parametrize("task", [Task("t", 3000, gpus=1), Task("t", 3000, gpus=0, cpus=10)])
def test_the_offered_load_is_near_what_was_aimed_at(task: Task) -> None:
    jobs = hourly(task, 2000)
    cluster: Cluster = Config(cluster=sized(jobs, Recorded())).build_cluster()
    assert 0.85 < offered_load(jobs, cluster, Recorded()).offered <= 0.9


@pytest.mark.parametrize(
    ("task", "what"),
    [
        (Task("t", 100, instances=2**31 - 1), "nodes"),
        (Task("t", 100, instances=2**31 - 1, gang=True), "nodes"),
        (Task("t", 1e308, instances=2**31 - 1, gpus=4), "nodes"),
        (Task("t", 100, gpus=1e15), "GPUs a node"),
        (Task("t", 100, gpus=0, cpus=1e308), "cores a node"),
        (Task("t", 100, gpus=0, memory_gb=1e300), "GB a node"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(task: Task, what: str) -> None:
    with pytest.raises(ConfigError, match=f"needs a cluster of .* {what}; the limit is"):
        sized([Job.single("j", task), Job.single("k", Task("t", 1), 5.0)], Recorded())


def test_one_long_job_does_not_shrink_the_cluster() -> None:
    # 200 jobs of 720 s on 2 GPUs in an hour keep 80 busy, one of a day another 24: 115 at a load of 0.9.
    task = Task("t", 720, gpus=2, gpu_types=("V100",))
    day = Job.single("day", Task("t", 86_400, gpus=1, gpu_types=("V100",)), 3600.0)
    jobs = [*hourly(task, 200), day]
    section = sized(jobs, Recorded())
    assert sum(group.count * group.gpus for group in section.groups) == 120
    load = offered_load(jobs, Config(cluster=section).build_cluster(), Recorded()).offered
    assert load == pytest.approx((200 * 1440 + 86_400) / (120 * 3618))  # the 201 jobs stand for 201 intervals of 18 s


def test_a_burst_gets_what_it_uses_at_once_and_no_more() -> None:
    jobs = [Job.single(str(place), Task("t", 1e6, gpus=1, gpu_types=("T4",)), float(place)) for place in range(6)]
    section = sized(jobs, Recorded())
    assert {group.name: group.count for group in section.groups} == {"t4": 1}
    load = offered_load(jobs, Config(cluster=section).build_cluster(), Recorded())
    assert load.warning == (
        "the jobs arrive within 5 s, and part of their work is done later, so the offered load of 1.25e+05 says little"
    )


def test_a_gang_fits_node_by_node() -> None:
    # two parts of 36 cores fit on a node of 96: 15 parts need 8 nodes, though 540 cores would fit on 6
    assert counts(*hourly(Task("t", 1, instances=15, gang=True, gpus=0, cpus=36))) == {"cpu": 8}
    # one part of 5 GPUs fits on a node of 8
    gang = Task("t", 1, instances=3, gang=True, gpus=5, gpu_types=("T4",))
    assert counts(Job.single("j", gang)) == {"t4": 3}


def test_a_gang_of_cores_fits_on_nodes_of_one_type() -> None:
    one, other = (Task("t", 3000, gpus=8, gpu_types=(name,)) for name in ("T4", "V100-16"))
    wide = Task("w", 1, instances=4, gang=True, gpus=0, cpus=90)
    groups = counts(*hourly(one, 3), *hourly(other, 3), Job.single("w", wide, 3600.0))
    assert groups["cpu"] >= 4
