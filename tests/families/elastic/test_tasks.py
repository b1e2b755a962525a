"""Elastic tasks of a configuration: their ranges, goodput models and errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagsim.config.schema import load_config
from dagsim.errors import ConfigError, ModelError
from dagsim.families.elastic.tasks import SHIPPED_MODELS, ElasticTasks
from dagsim.model import Cluster, Demand, Job, Kind, Node, Task, gpu_type
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario, cluster_scenario_of

CLUSTER = Cluster(
    (Node("a", gpu_type("A100-40"), 8, 96, 512), *(Node(f"t{place}", gpu_type("T4"), 4, 48, 256) for place in range(4)))
)
LARGE = Cluster(tuple([Node(f"a{place}", gpu_type("A100-40"), 8, 96, 512) for place in range(16)]))
V100 = Recorded("V100-16")


def elastic_of(task: Task, elastic: ElasticTasks | None = None) -> Task:
    [changed] = (elastic or ElasticTasks()).job(Job.single("j", task), V100.seconds, LARGE).tasks
    return changed


def end_s(task: Task, policy: str, **keys: object) -> float:
    scenario = ClusterScenario(CLUSTER, [Job.single("j", task)], runtime=V100, elastic=ElasticTasks(**keys))  # type: ignore[arg-type]
    return scenario.kernel(0).run(POLICIES.create(policy)).ended_s


@pytest.mark.parametrize("gpu", ["A100-40", "T4"])
@pytest.mark.parametrize("instances", [1, 2, 8])
def test_with_the_gpus_asked_for_a_task_takes_the_seconds_of_the_runtime_on_each_type(gpu: str, instances: int) -> None:
    task = Task("t", 4000.0, instances, gang=instances > 1, gpu_types=(gpu,))
    # The rigid policy starts it at 0 s as asked; the restart takes 50 s.
    alone_s = V100.seconds(task, (gpu_type(gpu),))[0]
    assert end_s(task, "fifo", default="cifar10") == pytest.approx(50 + alone_s)
    assert end_s(task, "fifo", default="cifar10", restart_s=0.0) == pytest.approx(alone_s)


def test_the_gpus_of_a_node_become_single_ones_with_their_part_of_cpus_and_memory() -> None:
    task = elastic_of(Task("t", 100.0, 2, gang=True, gpus=4, cpus=16, memory_gb=40))
    assert (task.instances, task.gang) == (8, True)
    assert task.demand == Demand(1.0, 4.0, 10.0)


@pytest.mark.parametrize(
    ("task", "application"),
    [
        (Task("t", 9e9, 2, gang=True, model="ResNet-18", batch=64), "cifar10"),
        (Task("t", 9e9, model="bert"), "bert"),
        (Task("t", 9e9, model="mine"), "yolov3"),
        (Task("t", 1800.0), "cifar10"),
        (Task("t", 7200.0), "deepspeech2"),
        (Task("t", 7200.0, 4, gang=True), "deepspeech2"),  # on the A100 it takes 5,797 s, 6.4 GPU-hours
        (Task("t", 72_000.0, 4, gang=True), "yolov3"),
        (Task("t", 7200.0, 100, gang=True), "imagenet"),
        (Task("t", 7.2, 100, gang=True), "cifar10"),
        (Task("t", 200.0, 100, gang=True), "imagenet"),  # 4.5 GPU-hours, and deepspeech2 has batches for 64 GPUs
    ],
)
def test_a_task_is_like_the_application_of_its_model_or_of_its_gpu_hours(task: Task, application: str) -> None:
    changed = elastic_of(task, ElasticTasks(models={"mine": "yolov3"}))
    assert changed.elastic is not None
    noise = changed.elastic.training.start().model("A100-40").noise  # type: ignore[attr-defined]
    assert noise == SHIPPED_MODELS[application].noise


def test_shares_of_a_gpu_independent_instances_and_cpu_tasks_stay_rigid() -> None:
    for task in (Task("t", 9.0, gpus=0.5), Task("t", 9.0, 3), Task("t", 9.0, gpus=0.0, cpus=1)):
        assert elastic_of(task) is task
    assert elastic_of(Task("t", 9.0), ElasticTasks(default=None)).elastic is None


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"default": "bart"}, "default: there is no goodput model 'bart'; did you mean 'bert'"),
        ({"models": {"lstm": "by-size"}}, "lstm: there is no goodput model 'by-size'"),
        ({"least": 4, "most": 2}, "least and most must satisfy 1 <= least <= most, got 4 and 2"),
        ({"restart_s": -1.0}, "restart_s must be 0 or more, got -1.0"),
        ({"batch": "worst"}, "batch must be best or asked, got 'worst'"),
        ({"batch": "asked"}, "only jobs with profiles request a batch; name the folder"),
    ],
)
def test_settings_that_mean_nothing_are_refused(keys: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ElasticTasks(**keys)  # type: ignore[arg-type]


def test_more_gpus_than_the_application_has_batches_for_are_refused() -> None:
    with pytest.raises(ModelError, match="requests 65 GPUs, but batches of deepspeech2 can be split over at most 64"):
        elastic_of(Task("t", 9.0, 65, gang=True), ElasticTasks(default="deepspeech2"))


def test_a_job_that_asks_for_more_than_the_cluster_has_is_rejected_as_when_it_is_rigid() -> None:
    jobs = [Job.single("j", Task("t", 9.0, 17, gang=True, gpu_types=("T4",)))]
    for policy in ("fifo", "elastic-eft-wait", "sia"):
        log = ClusterScenario(CLUSTER, jobs, elastic=ElasticTasks()).kernel(0).run(POLICIES.create(policy)).log
        assert [row.kind for row in log] == [Kind.ARRIVED, Kind.REJECTED]


@pytest.mark.family("compiled")
def test_a_configuration_makes_its_tasks_elastic_and_plays_in_simpy(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("elastic: {least: 2}\nworkload: {count: 5}\n")
    scenario = cluster_scenario_of(load_config(tmp_path / "c.yaml"))
    assert all(task.elastic is not None for job in scenario.jobs(0) for task in job.tasks)
    used = scenario.engaged("sjf", 0).engine
    assert (used.used, used.reason) == ("simpy", "the compiled engine does not support elastic tasks")


def test_a_schedule_of_elastic_tasks_says_which_gpus_they_had() -> None:
    scenario = ClusterScenario(
        CLUSTER, [Job.single("j", Task("t", 4000.0))], runtime=V100, elastic=ElasticTasks(default="imagenet")
    )
    log = scenario.kernel(0).run(POLICIES.create("elastic-eft-wait")).log
    started = [row for row in log if row.kind == Kind.STARTED]
    # Alone, it takes the configuration that ends first: all eight A100s of the node.
    assert [(row.node, row.instances) for row in started] == [(0, 8)]


def test_a_least_size_that_no_type_has_is_refused() -> None:
    with pytest.raises(ModelError, match="least is 17, but no GPU type in the cluster has more than 16 GPUs"):
        ClusterScenario(CLUSTER, [], elastic=ElasticTasks(least=17))
    assert ClusterScenario(CLUSTER, [], elastic=ElasticTasks(least=16)).elastic is not None


@pytest.mark.data
def test_placements_that_the_profiles_do_not_cover_are_refused_or_not_chosen(data: Path) -> None:
    elastic = ElasticTasks(profiles=str(data / "golden/elastic/inputs"))
    task = Task("t", 900.0, 6, gang=True, model="cifar10", batch=512)
    large = Cluster((Node("n", gpu_type("T4"), 64),))
    with pytest.raises(
        ModelError, match=r"job 'j' on T4: cifar10: no measurement covers 6 replicas on 1 nodes .* null"
    ):
        elastic.job(Job.single("j", task), V100.seconds, large)
    # Nodes of 8 GPUs: a policy chooses the measured 4 of a node at most.
    nodes = Cluster(tuple([Node(f"n{place}", gpu_type("T4"), 8) for place in range(2)]))
    few = Task("t", 900.0, 2, gang=True, model="cifar10", batch=512)
    for policy in ("sia", "elastic-eft-wait"):
        log = ClusterScenario(nodes, [Job.single("j", few)], elastic=elastic).kernel(0).run(POLICIES.create(policy)).log
        assert 2 <= max(row.instances for row in log if row.kind == Kind.STARTED) <= 4
        assert sum(row.kind == Kind.COMPLETED for row in log) == 1
