"""Preemption by what is left."""

from __future__ import annotations

from statistics import mean

import pytest
from support.log_reading import rows_of

from dagsim.errors import ConfigError
from dagsim.model import Cluster, Job, Kind, Node, Task, gpu_type
from dagsim.model.queues import NodePartition, QueueTree
from dagsim.systems.cluster import ClusterKernel, Preemption
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario


@pytest.mark.parametrize(("spec", "ended"), [("srtf", [2, 16, 8]), ("srsf", [2, 10, 16])])
def test_time_left_and_service_left_disagree(run, rows, ends, spec, ended):
    # 2 GPUs, (GPUs, s) = (2, 2), (1, 8), (2, 6). SRTF: 1 0-2, 3 2-8, 2 8-16: mean 8.667. SRSF: services 4, 8, 12:
    # 1 0-2, 2 2-10 with a GPU idle, 3 10-16: mean 9.333
    done = ends(run(spec, rows((0, 2, 2), (0, 8, 1), (0, 6, 2)), 2))
    assert done == ended
    assert mean(done) == pytest.approx({"srtf": 26 / 3, "srsf": 28 / 3}[spec])


def test_the_most_left_goes_first_whatever_the_width(run, rows, ends):
    # 3 GPUs: 1 has 2 x 10, 2 has 1 x 15 left at 0. At 1 a job of 1 x 3 comes: left 18, 14; job 1 must go.
    # 3 runs 1-4, 2 ends at 15; job 1 has 9 s left and 2 GPUs again from 4 on: 13
    assert ends(run("srsf", rows((0, 10, 2), (0, 15, 1), (1, 3, 1)), 3)) == [13, 15, 4]


def test_a_gang_takes_two_nodes_of_one_type_and_nothing_else():
    # Two V100 nodes and a T4 node, 1 GPU each, all busy for 100 s; a gang of 2 x 1 s for V100s comes at 1.
    gang = Task("t", 1, instances=2, gang=True, gpu_types=("V100-16",))
    long = [Job.single(str(number), Task("t", 100)) for number in range(3)]
    cluster = Cluster.of({"T4": 1, "V100": 2}, per_node=1)
    schedule = ClusterKernel(cluster, [*long, Job.single("gang", gang, 1.0)]).run(POLICIES.create("srtf"))
    preempted = [(row.time_s, row.node) for row in rows_of(schedule.log, Kind.PREEMPTED)]
    assert preempted == [(1.0, 1), (1.0, 2)] or preempted == [(1.0, 2), (1.0, 1)]


@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("spec", ["srtf", "srsf", "las"])
def test_no_run_outside_a_tasks_partition_is_stopped_for_it(spec, instances):
    # A node in each of two partitions. A job of q comes at 1, when q's node is busy until 3 and p's until 1,000.
    nodes = tuple(Node(name, gpu_type("T4"), 2) for name in ("np", "nq"))
    queues = QueueTree(partitions=tuple(NodePartition(name, (f"n{name}",)) for name in "pq"))

    def job(name: str, arrival_s: float, work: float, instances: int = 1) -> Job:
        task = Task("t", work, instances=instances, gang=instances > 1, gpus=2 // instances)
        return Job.single(name, task, arrival_s, partition=name[0])

    jobs = [job("p1", 0.0, 1000.0), job("q1", 0.0, 3.0), job("q2", 1.0, 10.0, instances)]
    log = ClusterScenario(Cluster(nodes), jobs, queues=queues).kernel(0).run(POLICIES.create(spec)).log
    assert [row.time_s for row in rows_of(log, Kind.STARTED) if row.job == 0] == [0.0]
    assert 0 not in {row.job for row in rows_of(log, Kind.PREEMPTED)}


@pytest.mark.parametrize("spec", ["las", "2d-las", "tiresias", "2d-gittins"])
def test_rounds_end_though_stopped_runs_lose_their_work(spec):
    # One GPU, two jobs of 1,000 s: after each loss of its work a job runs for twice as long before it is stopped
    jobs = [Job.single(str(number), Task("t", 1000.0)) for number in range(2)]
    kernel = ClusterKernel(Cluster.of({"V100": 1}), jobs, Models(preemption=Preemption("restart")))
    schedule = kernel.run(POLICIES.create(spec), until_s=50_000.0)
    assert len(rows_of(schedule.log, Kind.COMPLETED)) == 2


def test_a_lead_spares_old_jobs_their_turns_and_lets_young_ones_in(ends):
    # One GPU, two jobs of 3,000 s, and one of 30 s that comes at 2,500 s: it runs in the next round, at 2,520 s
    jobs = [*(Job.single(str(at), Task("t", 3000.0)) for at in range(2)), Job.single("young", Task("t", 30.0), 2500.0)]
    stops, young = {}, {}
    for spec in ("las", "las[lead=0.25]"):
        schedule = ClusterKernel(Cluster.of({"V100": 1}), jobs).run(POLICIES.create(spec))
        stops[spec] = len(rows_of(schedule.log, Kind.PREEMPTED))
        young[spec] = ends(schedule)[2]
    assert stops["las[lead=0.25]"] < stops["las"] / 3
    assert set(young.values()) == {2550.0}
    with pytest.raises(ConfigError, match="lead"):
        POLICIES.create("2d-las[lead=1.0]")


def test_the_clock_forgets_the_ends_of_stopped_runs():
    jobs = [Job.single(str(number), Task("t", 2_000.0)) for number in range(3)]
    kernel, policy = ClusterKernel(Cluster.of({"V100": 1}), jobs), POLICIES.create("round-robin[quantum_s=1]")
    most, stopped = 0, 0
    for until_s in range(0, 6_000, 100):
        kernel.run(policy, float(until_s))
        most = max(most, len(kernel.clock.scheduled()))
    stopped = len(kernel.schedule.log) // 2
    assert stopped > 5_000 > 10 * most
