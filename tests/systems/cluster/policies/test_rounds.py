"""Rounds that nothing hangs on are passed over, and the schedule stays the same."""

from __future__ import annotations

import random

import pytest

from dagsim.errors import Stalled
from dagsim.model import Cluster, Job, Task, TaskGraph
from dagsim.systems.cluster import ClusterKernel, NodeFailures, Preemption
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.policies.rounds import Rounds, Service
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import Conversation

SPECS = (
    "las[quantum_s=5]",
    "2d-las[quantum_s=3.3]",
    "2d-las[quantum_s=5,lead=0.1]",
    "tiresias[thresholds=[30,300],quantum_s=10]",
    "tiresias[thresholds=[30,300],promote=1.5,quantum_s=7]",
    "2d-gittins[history=[5,20,100,400],quantum_s=10]",
)


def crowd(seed: int, jobs: int = 25) -> list[Job]:
    """Jobs of one task of 1 to 4 GPUs, or of a gang, more than there is room for; of odd seeds some of instances,
    of seeds that 3 divides some of several tasks.
    """
    rng, now, batch = random.Random(seed), 0.0, []
    for number in range(jobs):
        now += rng.choice((0.0, rng.expovariate(1 / 10)))
        task = Task("t", rng.expovariate(0.01), gpus=rng.choice((1, 1, 2, 4)), instances=rng.choice((1, 1 + seed % 2)))
        tasks = (task if rng.random() < 0.7 else Task("g", 90.0, instances=6, gang=True),)
        tasks += tuple(Task(f"u{place}", 70.0 * place) for place in range(0 if seed % 3 else rng.randint(0, 3)))
        batch.append(Job(f"j{number}", TaskGraph(tasks, ()), now))
    return batch


class Asked:
    """Count how often a policy is asked."""

    def __init__(self, policy: Rounds) -> None:
        self.policy, self.times = policy, 0

    def decide(self, view):
        self.times += 1
        return self.policy.decide(view)


def played(policy: Rounds, jobs: list[Job], models: Models) -> tuple[list[tuple[float, ...]], int]:
    asked = Asked(policy)
    schedule = ClusterKernel(Cluster.of({"V100": 8, "T4": 8}, per_node=4), jobs, models).run(asked, 20_000.0)
    return list(schedule.log.since(0)), asked.times


FAILURES = Models(failures=(NodeFailures(500.0, 40.0),), preemption=Preemption(on_failure="resume", restart_s=2.0))
MODELS = (Models(), Models(preemption=Preemption("restart", restart_s=3.0)), FAILURES)


@pytest.mark.parametrize("models", MODELS, ids=("resume", "restart", "failures"))
@pytest.mark.parametrize("spec", SPECS)
def test_who_looks_at_every_round_finds_the_same_schedule(spec, models):
    fewer = 0
    for seed in range(4):
        rows, times = played(POLICIES.create(spec), crowd(seed), models)
        every = POLICIES.create(spec)
        every.rank.moves_s = lambda: 0.0  # any round may be the next in which something changes
        all_rows, all_times = played(every, crowd(seed), models)
        assert rows == all_rows
        fewer += times < all_times
    assert fewer


LONG_S = 1e12
HELD_UP = {
    "its other task runs": ([Job("a", TaskGraph((Task("t", LONG_S), Task("u", LONG_S)), ()), 0.0)], 1),
    "a job of equal service runs": (
        [Job.single("a", Task("t", LONG_S)), Job("b", TaskGraph((Task("t", LONG_S), Task("u", LONG_S)), ()))],
        2,
    ),
    "a job that stays behind by 45 s runs": (
        [Job.single("a", Task("t", LONG_S)), Job("b", TaskGraph((Task("t", LONG_S), Task("u", LONG_S)), ()), 45.0)],
        2,
    ),
}


@pytest.mark.parametrize(("jobs", "gpus"), HELD_UP.values(), ids=HELD_UP)
@pytest.mark.parametrize("spec", ["las", "2d-las", "tiresias", "tiresias[promote=2]", "2d-gittins"])
def test_rounds_that_change_nothing_take_no_time(spec, jobs, gpus):
    asked = Asked(POLICIES.create(spec))
    schedule = ClusterKernel(Cluster.of({"T4": gpus}, per_node=gpus), jobs).run(asked)
    assert schedule.ended_s >= LONG_S
    assert asked.times < 200


@pytest.mark.family("compiled")
@pytest.mark.parametrize(("jobs", "gpus"), HELD_UP.values(), ids=HELD_UP)
@pytest.mark.parametrize("spec", ["las", "2d-las"])
def test_the_compiled_rounds_skip_the_same(spec, jobs, gpus):
    cluster = Cluster.of({"T4": gpus}, per_node=gpus)
    kernel = ClusterScenario(cluster, jobs, engine="compiled").engaged(spec, 0).kernel
    Conversation(kernel)
    assert kernel.schedule.log == ClusterKernel(cluster, jobs).run(POLICIES.create(spec)).log


TURNS = [Job.single(name, Task("t", LONG_S)) for name in "ab"]


@pytest.mark.parametrize("spec", ["las", "2d-las", "round-robin", "gavel", "gavel-events"])
def test_turns_that_would_take_for_ever_are_refused_at_once(spec):
    with pytest.raises(Stalled, match=r"called 256 times since .* times more before a task can end"):
        ClusterKernel(Cluster.of({"T4": 1}), TURNS).run(POLICIES.create(spec))


@pytest.mark.family("compiled")
@pytest.mark.parametrize("spec", ["las", "2d-las"])
def test_the_compiled_turns_are_refused_for_the_same_reason(spec):
    cluster = Cluster.of({"T4": 1})
    with pytest.raises(Stalled) as refusal:
        ClusterKernel(cluster, TURNS).run(POLICIES.create(spec))
    with pytest.raises(Stalled) as compiled:
        Conversation(ClusterScenario(cluster, TURNS, engine="compiled").engaged(spec, 0).kernel)
    assert str(compiled.value) in str(refusal.value)


def test_turns_within_a_window_of_time_are_played():
    schedule = ClusterKernel(Cluster.of({"T4": 1}), TURNS).run(POLICIES.create("las"), 60_000.0)
    assert schedule.ended_s == 60_000.0


def test_a_job_that_arrives_in_time_is_waited_for():
    jobs = [*TURNS, *(Job.single(str(place), Task("t", 1.0), 3e4 * place) for place in range(1, 3))]
    with pytest.raises(Stalled, match=r"at 7\d{4} s"):  # not before the last has come and gone
        ClusterKernel(Cluster.of({"T4": 1}), jobs).run(POLICIES.create("las"))


@pytest.mark.parametrize("price_s", [0.0, 59.0, 60.0, 1e6])
@pytest.mark.parametrize("mode", ["resume", "restart"])
@pytest.mark.parametrize("spec", ["las", "2d-las", "tiresias", "2d-gittins", "round-robin", "gavel", "gavel-events"])
def test_rounds_end_or_say_why_not_at_any_price(spec, mode, price_s):
    models = Models(preemption=Preemption(mode, restart_s=price_s))
    jobs = [Job.single(name, Task("t", 600.0)) for name in "abc"]
    kernel, refusal = ClusterKernel(Cluster.of({"T4": 1}), jobs, models), ""
    try:
        kernel.run(POLICIES.create(spec))
    except Stalled as error:
        refusal = str(error)
    assert kernel.done or "because runs of 3 jobs take turns" in refusal
    assert kernel.done or f"restart_s is {price_s:g}, on_resume {mode}" in refusal
    assert kernel.done or price_s >= 60.0 or mode == "restart"
    assert kernel.done or spec != "tiresias"  # jobs as small as these never take turns


class Checked:
    """Compare the columns of service with what single jobs have had, at each decision of another policy."""

    def __init__(self) -> None:
        self.inner, self.service, self.several = POLICIES.create("srtf"), Service(), 0

    def decide(self, view):
        view.follow(self.service)
        self.service.now = view.now
        cols = self.service.columns()
        assert sorted(cols.run.tolist()) == sorted(view.running)
        for run, job, gpu_s, seconds in zip(
            *[column.tolist() for column in (cols.run, cols.job, *cols[3:5])], strict=True
        ):
            assert (gpu_s, seconds) == self.service.of(job)
            assert view.running[run].job.number == job
        self.several += int((cols.runs > 1).sum())
        assert self.service.running() == {run.job.number for run in view.running.values()}
        return self.inner.decide(view)


def test_columns_hold_the_service_of_each_job_to_the_last_bit():
    policy = Checked()
    ClusterKernel(Cluster.of({"V100": 8, "T4": 8}, per_node=4), crowd(7)).run(policy)
    assert policy.several > 20
