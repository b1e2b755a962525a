"""Elastic jobs in Pollux's simulator, and the policies that its authors compare with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from families.elastic.elastic_cases import job, profile
from pollux.on_kernel import IntervalAllocation, elastic_job_of
from pollux.stepped_cluster import SteppedCluster, SteppedJob
from pollux.stepped_policies import AttainedServiceQueues, OptimusOracle
from pollux.workload_files import read_workload

from dagsim.errors import ConfigError, ModelError, TraceError
from dagsim.families.elastic.genetic import Allocations, PolluxSearch
from dagsim.families.elastic.training_jobs import ElasticJob, Training, split_batch
from dagsim.model import Cluster, Job, Kind, Node, Task, gpu_type
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.testing.violations import violations


class Fixed:
    """Gives jobs the nodes listed for a time, and keeps them until the next."""

    def __init__(self, plan: dict[int, Allocations]) -> None:
        self.plan = plan

    def batch(self, job: ElasticJob) -> int | None:
        return job.batch

    def allocate(self, now_s: int, jobs: dict[str, SteppedJob], cluster: SteppedCluster) -> Allocations:
        return self.plan.get(now_s, cluster.allocations)


def test_a_rate_holds_until_the_end_of_its_epoch() -> None:
    training = Training(job(batch=10), 10)
    training.place([1])
    assert (training.local_batch, training.accumulation) == (10, 0)
    assert training.pace()[:2] == pytest.approx((10.0, 100.0))  # .1 s per iteration
    training.end_epoch()
    assert training.pace().until == 200.0
    assert training.pace(interference=0.5).rate == pytest.approx(5.0)


def test_a_larger_batch_gains_by_its_noise() -> None:
    training = Training(job(), 40)
    training.place([2])
    # scale 4, variance 6, square 2: gain (6 + 2) / (6 / 4 + 2); 20 samples take .2 + .02 s
    assert training.pace().rate == pytest.approx(8 / 3.5 / 0.22)


def test_a_job_that_does_not_run_has_no_rate() -> None:
    with pytest.raises(ModelError, match="job is not running"):
        Training(job(), 10).pace()


def test_a_job_without_a_batch_of_its_own_chooses_by_goodput_after_its_first_iteration() -> None:
    training = Training(job(), None)
    training.place([1])
    assert training.goodput is None
    assert training.local_batch * (training.accumulation + 1) == 10
    training.pace()
    assert training.goodput is not None
    training.place([2])
    choice = training.goodput.best(1, 2)
    assert (training.local_batch, training.accumulation) == (int(choice.local_batch), int(choice.accumulation))


def test_one_replica_splits_a_large_batch_into_passes() -> None:
    assert split_batch(profile(), 10, 1) == (10, 0)
    assert split_batch(profile(), 16, 1) == (8, 1)
    assert split_batch(profile(), 100, 2) == (17, 2)


def test_a_start_holds_its_gpus_for_30_s_before_it_trains() -> None:
    # Seen at 60 s, started until 90 s; 2 epochs of 10 s.
    cluster = SteppedCluster([job(arrival_s=5)], Fixed({60: {"job": [0]}}))
    assert cluster.run() == {"job": 105}
    assert (cluster.jobs["job"].attained_gpu_s, cluster.jobs["job"].restarts) == (50, 0)


def test_a_move_costs_a_restart_and_a_preemption_keeps_progress() -> None:
    slow = ElasticJob("job", profile(epochs=6), 0.0, 1, 10)
    plan: dict[int, Allocations] = {60: {"job": [0]}, 120: {"job": [1]}, 180: {}, 240: {"job": [1]}}
    cluster = SteppedCluster([slow], Fixed(plan))
    # 60 s of training: 90 to 120 s and 150 to 180 s. The move back to node 1 restarts again, but nothing is left.
    assert cluster.run() == {"job": 180}
    assert cluster.jobs["job"].restarts == 1


def test_distributed_jobs_that_share_a_node_disturb_each_other() -> None:
    jobs = [ElasticJob(name, profile(epochs=1), 0.0, 2, 10) for name in ("one", "two", "three")]
    plan: dict[int, Allocations] = {60: {"one": [0, 1], "two": [1, 2], "three": [3, 4]}}
    # Half of 10 samples on each GPU take .05 + .1 s; 100 iterations take 15 s, or 30 s at half the rate.
    ends = SteppedCluster(jobs, Fixed(plan), interference=0.5).run()
    assert ends == {"one": 120, "two": 120, "three": 105}


def test_a_job_moves_to_the_second_queue_when_it_has_run_long_enough() -> None:
    jobs = [ElasticJob(name, profile(epochs=30), at, 1, 10) for name, at in (("first", 0), ("second", 100))]
    ends = SteppedCluster(jobs, AttainedServiceQueues(120), nodes=1, gpus_per_node=1).run()
    # One after the other, the second starts at 420 s. With the queues, the first yields at 180 s with 90 s of its 300 s
    # done, and the second at 300 s; then both are in the second queue, in this order.
    alone = SteppedCluster(jobs, AttainedServiceQueues(), nodes=1, gpus_per_node=1).run()
    assert alone == {"first": 390, "second": 650}
    assert ends == {"first": 540, "second": 680}


def test_a_wide_job_that_does_not_fit_lets_a_narrow_one_pass() -> None:
    jobs = [job("one", replicas=1), job("wide", replicas=2), job("narrow", replicas=1)]
    cluster = SteppedCluster(jobs, AttainedServiceQueues(), nodes=1, gpus_per_node=2)
    cluster.step()
    assert cluster.allocations == {"one": [0], "narrow": [0]}


def test_optimus_gives_gpus_where_they_save_most_time() -> None:
    long, short = ElasticJob("long", profile(epochs=9), 0, 1, 20), ElasticJob("short", profile(epochs=3), 0, 1, 20)
    cluster = SteppedCluster([short, long], OptimusOracle(), nodes=1, gpus_per_node=3)
    cluster.step()
    assert {name: len(nodes) for name, nodes in cluster.allocations.items()} == {"long": 2, "short": 1}


def test_optimus_leaves_jobs_waiting_when_there_are_more_jobs_than_gpus() -> None:
    cluster = SteppedCluster([job(name) for name in "abc"], OptimusOracle(), nodes=1, gpus_per_node=2)
    cluster.step()
    assert set(cluster.allocations) == {"a", "b"}
    assert cluster.run()["c"] > cluster.run()["b"]


HEAD = "name,time,application,num_replicas,batch_size\n"


def test_a_workload_lists_the_jobs_as_tuned(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(HEAD + "toy-0,53,toy,2,40\n")
    toy = profile()
    assert read_workload(tmp_path / "jobs.csv", {"toy": toy}) == [ElasticJob("toy-0", toy, 53.0, 2, 40)]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("a,0,vgg,1,10\n", "jobs.csv:2: there is no profile for the application 'vgg'"),
        ("a,0,toy,1,10\na,1,toy,1,10\n", "jobs.csv:3: the job 'a' occurs twice"),
        ("a,0,toy,0,10\n", "jobs.csv:2: a job needs"),
        ("a,nan,toy,1,10\n", "jobs.csv:2: a job needs"),
        ("a,0,toy,1\n", "jobs.csv:2: batch_size is not a number"),
    ],
)
def test_a_malformed_workload_is_named_with_its_line(tmp_path: Path, rows: str, words: str) -> None:
    (tmp_path / "jobs.csv").write_text(HEAD + rows)
    with pytest.raises(TraceError, match=words):
        read_workload(tmp_path / "jobs.csv", {"toy": profile()})


def cluster(*gpus: int) -> Cluster:
    return Cluster(tuple(Node(f"n{place}", gpu_type("T4"), count) for place, count in enumerate(gpus)))


def test_jobs_end_when_they_do_in_polluxs_simulator() -> None:
    jobs = [job(f"job-{number}", 35.0 * number, replicas=1 + number % 3, batch=20) for number in range(12)]
    stepped = SteppedCluster(jobs, AttainedServiceQueues(threshold_gpu_s=40), nodes=1, gpus_per_node=3).run()
    policy = AttainedServiceQueues(threshold_gpu_s=40)
    work = [elastic_job_of(job, policy, restart_s=30.0, whole_seconds=True) for job in jobs]
    schedule = ClusterScenario(cluster(3), work).kernel(0).run(IntervalAllocation(policy))
    done_s = {schedule.jobs[row.job].id: row.time_s for row in schedule.log if row.kind == Kind.COMPLETED}
    assert {job.name: int(round(done_s[job.name]) - job.arrival_s) for job in jobs} == stepped
    assert any(row.kind == Kind.PREEMPTED for row in schedule.log)
    assert not violations(schedule, work)


def test_without_whole_seconds_epochs_end_when_their_work_is_done() -> None:
    work = [elastic_job_of(job("a", batch=10), AttainedServiceQueues())]
    schedule = ClusterScenario(cluster(4), work).kernel(0).run(IntervalAllocation(AttainedServiceQueues()))
    # The job starts at 60 s and restarts for 30 s; 200 iterations of .1 s follow.
    assert schedule.ended_s == pytest.approx(110.0)


@pytest.mark.parametrize(
    ("sizes", "work", "message"),
    [
        (
            (4, 2),
            elastic_job_of(job("a"), AttainedServiceQueues()),
            r"nodes of one size and GPU type, got nodes of \[2, 4\] GPUs",
        ),
        ((4,), Job.single("b", Task("t", 1)), "support only measured applications; b/t is a different task"),
    ],
)
def test_what_the_policies_cannot_play_is_refused(sizes: tuple[int, ...], work: Job, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ClusterScenario(cluster(*sizes), [work]).kernel(0).run(IntervalAllocation(OptimusOracle()))


def test_every_limit_of_an_allocation_holds() -> None:
    cluster = SteppedCluster(
        [job(name, arrival_s=at) for name, at in (("a", 0), ("b", 10), ("c", 70), ("d", 80), ("e", 90))],
        PolluxSearch(seed=1, population=20, generations=10),
        nodes=2,
        gpus_per_node=2,
    )
    largest: dict[str, int] = {}
    while any(state.end_s is None for state in cluster.jobs.values()):
        cluster.step()
        used = np.bincount([node for nodes in cluster.allocations.values() for node in nodes], minlength=2)
        assert (used <= 2).all()
        assert sum(len(set(nodes)) > 1 for nodes in cluster.allocations.values()) <= 1
        for name, nodes in cluster.allocations.items():
            assert len(nodes) <= max(2 * largest.get(name, 0), 1)
            largest[name] = max(largest.get(name, 0), len(nodes))


def test_as_many_jobs_as_gpus_get_one_each() -> None:
    jobs = [job(name) for name in "abcd"]
    cluster = SteppedCluster(jobs, PolluxSearch(population=30, generations=30), nodes=2, gpus_per_node=2)
    cluster.step()
    assert sorted(len(nodes) for nodes in cluster.allocations.values()) == [1, 1, 1, 1]


def test_a_seed_gives_the_same_schedule() -> None:
    ends = [
        SteppedCluster(
            [job(name) for name in "abc"], PolluxSearch(3, population=10, generations=5), nodes=1, gpus_per_node=2
        ).run()
        for _ in range(2)
    ]
    assert ends[0] == ends[1]


@pytest.mark.parametrize("name", ["population", "generations"])
def test_a_search_without_candidates_or_generations_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"pollux: {name} must be positive, got 0"):
        PolluxSearch(**{name: 0})
