"""Elastic policies on the kernel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dagsim.errors import ConfigError, ModelError
from dagsim.families.elastic.goodput import BatchLimits, GoodputModel, GradientNoise, ThroughputModel
from dagsim.families.elastic.tasks import SHIPPED_MODELS, ElasticTasks
from dagsim.families.elastic.training_jobs import GoodputTraining
from dagsim.families.fabric.fat_tree import FatTree
from dagsim.families.fabric.shared_network import SharedNetwork
from dagsim.model import (
    Cluster,
    Elastic,
    Job,
    JobSuspension,
    Kind,
    Node,
    QueueTree,
    Request,
    Task,
    gpu_type,
)
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.models.failures import NodeFailures
from dagsim.systems.cluster.models.kept_work import Preemption
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.testing.violations import violations
from dagsim.workload.records import record_of


def cluster(*gpus: int) -> Cluster:
    return Cluster(tuple(Node(f"n{place}", gpu_type("T4"), count) for place, count in enumerate(gpus)))


MIXED = Cluster(
    (
        Node("a", gpu_type("A100-40"), 8),
        *(Node(f"t{place}", gpu_type("T4"), 4) for place in range(3)),
        Node("v", gpu_type("V100-16"), 4),
    )
)
V100 = Recorded("V100-16")


def training(name: str, seconds: float, gpus: int = 1, arrival_s: float = 0.0) -> Job:
    return Job.single(name, Task("t", seconds, gpus, gang=gpus > 1), arrival_s)


def queue(count: int = 30) -> list[Job]:
    return [training(f"j{n}", 200.0 * (1 + n * n % 23), 1 << n % 4, 90.0 * n) for n in range(count)]


@pytest.mark.parametrize("policy", ["sia", "elastic-eft-wait", "pollux[generations=5,population=20]"])
@pytest.mark.parametrize("fails", [False, True])
def test_all_tasks_end_within_the_rules_on_every_cluster(policy: str, fails: bool) -> None:
    nodes = MIXED if "pollux" not in policy else cluster(4, 4, 4, 4)
    scenario = ClusterScenario(
        nodes,
        queue(10 if "pollux" in policy else 30),
        runtime=V100,
        elastic=ElasticTasks(),
        failures=(NodeFailures(3000.0, 400.0),) if fails else (),
        preemption=Preemption(on_failure="resume"),
    )
    schedule = scenario.kernel(3).run(POLICIES.create(policy))
    work = list(scenario.jobs(3))
    assert sum(row.kind == Kind.COMPLETED for row in schedule.log) == len(work)
    assert any(row.kind == Kind.FAILED for row in schedule.log) == fails
    assert not violations(schedule, work)
    sizes: dict[int, dict[int, int]] = {}
    for row in schedule.log:
        if row.kind == Kind.STARTED:
            sizes.setdefault(row.job, {}).setdefault(row.run, 0)
            sizes[row.job][row.run] += row.instances
    assert any(len(set(runs.values())) > 1 for runs in sizes.values())
    if policy != "elastic-eft-wait":  # at most twice what a task has run on
        for runs in sizes.values():
            largest = 0
            for size in runs.values():
                assert size <= max(2 * largest, 1)
                largest = max(largest, size)


def test_elastic_eft_wait_gives_gpus_to_whom_they_help_most() -> None:
    # Four T4s; two tasks like cifar10, of 1,000 s and of 4,000 s on one T4, and no restarts. From the goodputs g(k)
    # of 1, 2 and 4 GPUs on a node follow the best next GPUs by hand.
    jobs = [training("short", 1000.0), training("long", 4000.0)]
    scenario = ClusterScenario(cluster(4), jobs, elastic=ElasticTasks(default="cifar10", restart_s=0.0))
    goodput = [float(SHIPPED_MODELS["cifar10"].best(1, gpus).goodput) for gpus in (1, 2, 4)]
    two, four = goodput[1] / goodput[0], goodput[2] / goodput[0]
    # Per GPU, one more for the short task (1 / 1000 s, then (two - 1) / 1000 s) is worth more than the first GPU of
    # the long one (1 / 4000 s); so are its third and fourth together.
    assert min(two - 1, (four - two) / 2) > 1 / 4
    schedule = scenario.kernel(0).run(POLICIES.create("elastic-eft-wait"))
    done_s = {schedule.jobs[row.job].id: row.time_s for row in schedule.log if row.kind == Kind.COMPLETED}
    assert done_s["short"] == pytest.approx(1000 / four)
    assert done_s["long"] == pytest.approx(1000 / four + 4000 / four)


def test_elastic_eft_wait_shares_gpus_among_equal_tasks_as_the_second_helps_more_than_the_fourth() -> None:
    jobs = [training("one", 1000.0), training("other", 1000.0)]
    scenario = ClusterScenario(cluster(4), jobs, elastic=ElasticTasks(default="cifar10", restart_s=0.0))
    schedule = scenario.kernel(0).run(POLICIES.create("elastic-eft-wait"))
    started = [(row.job, row.instances) for row in schedule.log if row.kind == Kind.STARTED and row.time_s == 0]
    assert sorted(started) == [(0, 2), (1, 2)]


def test_a_task_keeps_its_gpus_where_a_restart_costs_more_than_it_gains() -> None:
    jobs = [training("first", 1000.0, arrival_s=0.0), training("second", 1000.0, 4, arrival_s=0.0)]
    slow = ClusterScenario(cluster(4), jobs, elastic=ElasticTasks(default="yolov3", restart_s=5000.0))
    schedule = slow.kernel(0).run(POLICIES.create("elastic-eft-wait"))
    assert not any(row.kind == Kind.PREEMPTED for row in schedule.log)


@pytest.mark.parametrize("policy", ["sia", "elastic-eft-wait"])
def test_rigid_tasks_come_first_and_elastic_ones_use_what_they_leave(policy: str) -> None:
    rigid = [Job.single(f"r{n}", Task("t", 500.0, gpus=0.5 if n % 2 else 2.0), 400.0 * n) for n in range(8)]
    jobs = sorted([*queue(), *rigid], key=lambda job: job.arrival_s)
    change = ElasticTasks()
    jobs = [job if job.id[0] == "r" else change.job(job, V100.seconds, MIXED) for job in jobs]
    schedule = ClusterScenario(MIXED, jobs, runtime=V100).kernel(0).run(POLICIES.create(policy))
    assert not violations(schedule, jobs)
    assert sum(row.kind == Kind.COMPLETED for row in schedule.log) == len(jobs)
    numbers = {number for number, job in enumerate(schedule.jobs) if job.id[0] == "r"}
    assert not any(row.kind == Kind.PREEMPTED and row.job in numbers for row in schedule.log)


def test_pollux_starts_jobs_that_arrive_together_on_an_idle_cluster_after_an_interval() -> None:
    jobs = [training(name, 500.0) for name in "abc"]
    scenario = ClusterScenario(cluster(4), jobs, elastic=ElasticTasks(default="cifar10"))
    for renew_s in (0, 1800):
        spec = f"pollux[generations=5,population=20,renew_s={renew_s}]"
        log = scenario.kernel(0).run(POLICIES.create(spec)).log
        assert min(row.time_s for row in log if row.kind == Kind.STARTED) == 60
        assert sum(row.kind == Kind.COMPLETED for row in log) == 3


def test_the_last_task_is_started_although_the_one_before_ends_soon_after_a_decision() -> None:
    jobs = [training("a", 150.0), training("b", 100.0, arrival_s=60.0)]
    scenario = ClusterScenario(cluster(1), jobs, elastic=ElasticTasks(default="cifar10", restart_s=0.0))
    log = scenario.kernel(0).run(POLICIES.create("elastic-eft-wait[gap_s=100]")).log
    assert [row.time_s for row in log if row.kind == Kind.STARTED] == [0, 200]


@pytest.mark.parametrize("policy", ["sia", "elastic-eft-wait"])
def test_elastic_tasks_keep_to_the_level_that_their_job_requires(policy: str) -> None:
    levels = ("rack", "host", "")
    jobs = [replace(one, request=Request(level=levels[n % 3])) for n, one in enumerate(queue(24))]
    tree = FatTree((2, 3), (1, 1), (1, 1))
    nodes = cluster(*[4] * 6)
    scenario = ClusterScenario(nodes, jobs, runtime=V100, elastic=ElasticTasks(), network=SharedNetwork(tree))
    log = scenario.kernel(0).run(POLICIES.create(policy)).log
    [rack] = tree.levels([node.name for node in nodes.nodes])
    held: dict[int, set[int]] = {}
    for row in log:
        if row.kind == Kind.STARTED:
            held.setdefault(row.run, set()).add(row.node)
            allowed = {"rack": {rack.domains[node] for node in held[row.run]}, "host": held[row.run], "": set()}
            assert len(allowed[levels[row.job % 3]]) <= 1
    assert sum(row.kind == Kind.COMPLETED for row in log) == 24
    assert max(map(len, held.values())) > 1
    with pytest.raises(
        ConfigError, match="pollux does not support topologies, but job 'j0' requires nodes of one rack"
    ):
        scenario.kernel(0).run(POLICIES.create("pollux"))


def test_pollux_plays_either_kind_of_task_but_not_both() -> None:
    rigid, nodes = Job.single("b", Task("t", 900)), cluster(4)
    assert ClusterScenario(nodes, [rigid]).kernel(0).run(POLICIES.create("pollux")).ended_s == 900
    jobs = [rigid, ElasticTasks().job(training("a", 900.0), V100.seconds, nodes)]
    with pytest.raises(ConfigError, match="pollux cannot mix elastic tasks with other tasks"):
        ClusterScenario(nodes, jobs, runtime=V100).kernel(0).run(POLICIES.create("pollux"))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("sia[interval_s=0]", "sia: interval_s must be positive"),
        ("sia[power=1]", "sia: power must be negative"),
        ("sia[renew_s=-1]", "sia: renew_s must be 0 or more"),
        ("pollux[interval_s=-1]", "pollux: interval_s must be positive"),
        ("elastic-eft-wait[hold=-1]", "elastic-eft-wait: hold must be 0 or more"),
    ],
)
def test_parameters_that_mean_nothing_are_refused(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        POLICIES.create(spec)


def test_an_elastic_task_is_refused_rather_than_written_as_a_rigid_one():
    throughput = ThroughputModel(0.1, 0.001, 0.01, 0.01, 0.01, 0.01, 1.5)
    model = GoodputModel(throughput, GradientNoise(1.0, 0.0), BatchLimits(100, 100, 1, 100))
    training = GoodputTraining({"": model}, samples=10.0)
    with pytest.raises(ModelError, match="task 't' is elastic and cannot be written"):
        record_of(Job.single("j", Task("t", 1.0, gang=True, elastic=Elastic(1, 4, training))))


def test_elastic_runs_cannot_be_suspended():
    model = GoodputModel(ThroughputModel(*[0.1] * 6, gamma=1.5), GradientNoise(1.0, 1.0), BatchLimits(64, 512, 32, 64))
    elastic = Elastic(1, 4, GoodputTraining({"": model}, samples=20_000), 1.0)
    jobs = [Job.single("a", Task("t", 100.0)), Job.single("b", Task("t", 60.0, 2, True, elastic=elastic), 5.0)]
    models = Models(queues=QueueTree(suspensions=(JobSuspension("a", 20, 60),)), preemption=Preemption())
    with pytest.raises(ModelError, match="'a' cannot be suspended, because runs have phases or rates here"):
        ClusterKernel(Cluster.of({"T4": 4}), jobs, models).run(POLICIES.create("fifo"))
