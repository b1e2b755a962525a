"""Elastic tasks: rates that change while runs compute, sizes, restarts and forks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from support.scripted_policy import Scripted, ends, rates

from dagsim.errors import IllegalDecision, ModelError
from dagsim.families.elastic.goodput import BatchLimits, GoodputModel, GradientNoise, ThroughputModel
from dagsim.families.elastic.training_jobs import GoodputTraining
from dagsim.model import (
    Cluster,
    Decision,
    Elastic,
    Job,
    Join,
    Kind,
    Node,
    Resize,
    Share,
    Start,
    Task,
    gpu_type,
)
from dagsim.systems.cluster import ClusterKernel, ClusterView, Maintenance, Preemption
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.testing.violations import as_recorded, violations

T4 = gpu_type("T4")


def job(name: str, work: float, model: str, arrival_s: float = 0.0, gpus: float = 1.0) -> Job:
    return Job.single(name, Task("t", work, gpus=gpus, model=model), arrival_s)


def kernel(jobs: list[Job], gpus: int = 1, **models: object) -> ClusterKernel:
    cluster = Cluster((Node("n", T4, gpus, 8, 64),))
    return ClusterKernel(cluster, jobs, Models(**models))  # type: ignore[arg-type]


@pytest.mark.family("sharing")
@pytest.mark.parametrize("until_s", [10.0, 30.0, 71.0])
def test_a_fork_goes_on_at_the_same_rates(until_s: float) -> None:
    from dagsim.families.sharing.pairs import MeasuredPairs

    jobs = [job("a", 100, "bert"), job("b", 40, "lstm", 20), elastic_job("c", arrival_s=25)]
    pairs = MeasuredPairs({"T4": {(("bert", None), ("lstm", None)): (0.5, 0.8)}})

    def decide(view: ClusterView) -> Iterator[Decision]:
        for task in view.ready:
            if task.training is not None:
                yield Start(task, (Share(0, 2),))
            elif not view.running:
                yield Start(task, (Share(0),))
            else:
                yield Join(task, 0)

    original = kernel(jobs, gpus=3, sharing=pairs)
    original.run(Scripted(decide), until_s)
    twin = original.fork()
    twin.run(Scripted(decide))
    original.run(Scripted(decide))
    assert twin.schedule.log == original.schedule.log
    assert not violations(original.schedule, jobs, seconds=as_recorded, sharing=True)


@pytest.mark.parametrize("until_s", [5.0, 12.0, 31.0])
def test_a_fork_of_an_elastic_task_keeps_its_checkpoint(until_s: float) -> None:
    models = {
        "preemption": Preemption(checkpoint_interval_s=10, checkpoint_write_s=3),
        "failures": (Maintenance((0,), 35, 36),),
    }
    original = kernel([elastic_job("c")], gpus=2, **models)
    original.run(POLICIES.create("fifo"), until_s)
    twin = original.fork()
    for simulated in (twin, original):
        simulated.run(POLICIES.create("fifo"))
    assert twin.schedule.log == original.schedule.log
    # It starts in 10 s, works for 10 s, writes, and fails in the second write: 90.000001 s are left, with 9 writes.
    assert ends(original)["c"] == pytest.approx(36 + 10 + 90 + 9 * 3, abs=1e-5)


def goodput(restart_s: float = 10.0, least: int = 1, most: int = 4, local_min: int = 1) -> Elastic:
    """An iteration of 100 samples takes 1 s in all, spread over the GPUs; more samples are of no use."""
    throughput = ThroughputModel(1e-9, 0.01, 1e-9, 1e-9, 1e-9, 1e-9, 1.0)
    model = GoodputModel(throughput, GradientNoise(1.0, 0.0), BatchLimits(100, 100, local_min, 100))
    return Elastic(least, most, GoodputTraining({"": model}, samples=10_000), restart_s)


def elastic_job(name: str, arrival_s: float = 0.0, asked: int = 1, **options: int) -> Job:
    task = Task("train", 100, instances=asked, gang=True, elastic=goodput(**options))
    return Job.single(name, task, arrival_s)


def resizing(view: ClusterView) -> Iterator[Decision]:
    """Start on one GPU, and take four at 60 s."""
    for task in view.ready:
        yield Start(task, (Share(0, 1),))
    for run in view.running.values():
        if view.now == 60 and run.instances == 1 and run.gpus:
            yield Resize(run.id, (Share(0, 4),))


def test_a_resized_task_goes_on_at_the_rate_of_its_new_size_after_a_restart() -> None:
    jobs = [elastic_job("a"), Job.single("clock", Task("t", 0, gpus=0), 60)]
    simulated = kernel(jobs, gpus=4)
    simulated.run(Scripted(resizing))
    # 10 s of restart, 50 s at 100 samples/s, 10 s of restart, then 5,000 samples at 400 per s.
    assert ends(simulated)["a"] == pytest.approx(82.5)
    assert rates(simulated) == [(10.0, 0, pytest.approx(100)), (70.0, 2, pytest.approx(400))]
    assert not violations(simulated.schedule, jobs, seconds=as_recorded)


def test_the_view_shows_the_progress_of_an_elastic_task_in_its_own_unit() -> None:
    progress: list[tuple[float, float, float]] = []

    def decide(view: ClusterView) -> Iterator[Decision]:
        yield from resizing(view)
        for run in view.running.values():
            if run.gpus:
                progress.append((view.now, run.done(view.now), run.estimated_end_s(view.now)))

    jobs = [elastic_job("a"), *(Job.single(f"clock-{at}", Task("t", 0, gpus=0), at) for at in (40, 60, 75))]
    kernel(jobs, gpus=4).run(Scripted(decide))
    assert (40.0, pytest.approx(3000), pytest.approx(110)) in progress
    assert (75.0, pytest.approx(7000), pytest.approx(82.5)) in progress


def test_elastic_tasks_that_lose_their_work_begin_again() -> None:
    jobs = [elastic_job("a"), Job.single("clock", Task("t", 0, gpus=0), 60)]
    simulated = kernel(jobs, gpus=4, preemption=Preemption(on_resume="restart"))
    simulated.run(Scripted(resizing))
    assert ends(simulated)["a"] == pytest.approx(95.0)


@pytest.mark.parametrize(
    ("placement", "options", "message"),
    [
        ((Share(0, 1),), {"least": 2, "asked": 2}, "1 instances are below its minimum; it runs as 2 to 4 instances"),
        ((Share(0, 5),), {}, "5 instances are above its maximum; it runs as 1 to 4 instances"),
        ((Share(0, 4),), {"local_min": 30}, "4 replicas need 30 samples each, which exceeds the largest batch of 100"),
    ],
)
def test_a_size_outside_the_range_of_a_task_is_refused(
    placement: tuple[Share, ...], options: dict[str, int], message: str
) -> None:
    def decide(view: ClusterView) -> Iterator[Decision]:
        for task in view.ready:
            yield Start(task, placement)

    with pytest.raises(IllegalDecision, match=message):
        kernel([elastic_job("a", **options)], gpus=8).run(Scripted(decide))


def test_only_elastic_tasks_are_resized() -> None:
    def decide(view: ClusterView) -> Iterator[Decision]:
        for task in view.ready:
            yield Start(task, (Share(0, 1),))
        if view.now == 1:
            yield Resize(0, (Share(0, 1),))

    jobs = [job("a", 9, "bert"), job("clock", 1, "lstm", 1)]
    with pytest.raises(
        IllegalDecision, match="cannot resize run 0 of a/t: the task is not elastic; migrate it instead"
    ):
        kernel(jobs, gpus=2).run(Scripted(decide))


def test_a_range_that_the_cluster_cannot_hold_names_what_it_can() -> None:
    with pytest.raises(ModelError, match="needs 3 to 4 instances, but at most 2 fit on nodes of one type"):
        kernel([elastic_job("a", least=3, asked=3)], gpus=2).run(POLICIES.create("fifo"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: goodput(least=3, most=2), "1 <= least <= most instances, got 3 to 2"),
        (lambda: elastic_job("a", asked=5), "instances must be from 1 to 4, the task's range, got 5"),
        (lambda: Task("t", 1, elastic=goodput()), "an elastic task must be a gang"),
        (lambda: GoodputTraining({}, 1), "needs a goodput model"),
    ],
)
def test_an_impossible_range_is_refused_when_it_is_made(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        make()


def test_policies_that_know_no_elasticity_start_what_the_user_asked_for() -> None:
    cluster = Cluster((Node("n", T4, 4),))
    scenario = ClusterScenario(cluster, [elastic_job("a", asked=2), elastic_job("b", asked=2)])
    kernel, engine = scenario.engaged("fifo", 0)
    assert engine.used == "simpy"
    kernel.run(scenario.policies.create("fifo"))  # type: ignore[union-attr]
    assert [row.instances for row in kernel.schedule.log if row.kind == Kind.STARTED] == [2, 2]
    assert kernel.schedule.ended_s == pytest.approx(60.0)
