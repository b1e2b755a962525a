from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest
from systems.cluster.resources import powered

from dagsim.config.schema import load_config
from dagsim.errors import ConfigError, UnknownName
from dagsim.families.learning.cluster_rewards import Joules
from dagsim.families.learning.codecs.candidates import Candidates
from dagsim.families.learning.environments.env_settings import EnvConfig
from dagsim.families.learning.episode import Episode, Reward, RewardConfig
from dagsim.metrics import summarize
from dagsim.metrics.columns import columns
from dagsim.metrics.jct import bounded_stretch, jct
from dagsim.metrics.utilization import energy
from dagsim.model import (
    Admit,
    Cluster,
    Decision,
    Job,
    OnDemand,
    Reject,
    Start,
    Task,
)
from dagsim.systems.cluster import ClusterKernel, ClusterView
from dagsim.systems.cluster.learnable import TERMS
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.models.failures import Maintenance
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import cluster_scenario_of
from dagsim.systems.seam import Conversation

EVERY = TERMS.names()


def rewarded(policy: str, *settings: str, seed: int = 1, **weights: float) -> tuple[ClusterKernel, list[float], Reward]:
    """A whole simulation, and the reward of each of its steps."""
    config = load_config(None, ["workload=heterogeneous-dag", "workload.count=30", *settings])
    simulation = cluster_scenario_of(config).kernel(seed)
    reward = Reward(RewardConfig(weights), simulation, TERMS)
    steps, decide = [], POLICIES.create(policy, seed=seed).decide
    conversation = simulation.decisions()
    try:
        view = next(conversation)
        while True:
            steps.append(reward.step())
            view = conversation.send(decide(view))
    except StopIteration:
        steps.append(reward.step())
    return simulation, steps, reward


@pytest.mark.parametrize("policy", ["sjf", "eft-wait", "random", "srtf"])
def test_job_seconds_add_up_to_the_completion_times(policy: str) -> None:
    simulation, steps, _ = rewarded(policy, job_seconds=1.0)
    assert sum(steps) == pytest.approx(-jct(simulation.schedule).sum(), rel=1e-12)


@pytest.mark.parametrize("policy", ["sjf", "eft-wait", "random"])
@pytest.mark.parametrize("estimates", ["exact", "noisy"])
def test_shaped_ones_add_up_to_what_is_avoidable_and_never_please(policy: str, estimates: str) -> None:
    simulation, steps, _ = rewarded(policy, f"estimates.kind={estimates}", shaped_job_seconds=1.0)
    cols = columns(simulation.schedule)
    assert sum(steps) == pytest.approx(-(jct(cols).sum() - cols.jobs.ideal_s.sum()), rel=1e-9)
    assert max(steps) <= 1e-6  # seconds; rounding of sums of some 1e5


@pytest.mark.parametrize("name", EVERY)
def test_a_job_that_can_run_nowhere_leaves_every_reward_finite(name: str) -> None:
    nowhere = Job.single("nowhere", Task("t", 5.0, gpu_types=("H100",)), 1.0)
    jobs = [Job.single(f"j{number}", Task("t", 5.0), 0.5 * number) for number in range(3)]
    steps = {}
    for label, all_jobs in (("with", sorted([*jobs, nowhere], key=lambda job: job.arrival_s)), ("without", jobs)):
        kernel = ClusterKernel(Cluster.of({"T4": 1}), all_jobs)
        reward = Reward(RewardConfig({name: 1.0}), kernel, TERMS)
        conversation, decide = kernel.decisions(), POLICIES.create("sjf").decide
        steps[label] = []
        with suppress(StopIteration):
            view = next(conversation)
            while True:
                steps[label].append(reward.step())
                view = conversation.send(decide(view))
        steps[label].append(reward.step())
    assert np.isfinite(steps["with"]).all()
    assert sum(steps["with"]) == pytest.approx(sum(steps["without"]))


def test_starting_on_the_fastest_type_costs_nothing_by_itself() -> None:
    # One job on an empty cluster, started at once on its fastest type: nothing was avoidable.
    _, steps, _ = rewarded("sjf", "workload.count=1", shaped_job_seconds=1.0)
    assert max(map(abs, steps)) < 1e-6


def test_shaping_holds_with_preemption_and_failures() -> None:
    failing = "failures=[{kind: node_failures, mean_up_s: 20000, mean_down_s: 600}]"
    simulation, steps, _ = rewarded("srtf", failing, shaped_job_seconds=1.0)
    cols = columns(simulation.schedule)
    assert sum(steps) == pytest.approx(-(jct(cols).sum() - cols.jobs.ideal_s.sum()), rel=1e-9)


@pytest.mark.parametrize("policy", ["sjf", "srtf", "random"])
def test_critical_paths_are_those_of_what_runs_and_waits(policy: str) -> None:
    """After every step they are what a look at all runs and ready tasks gives."""
    failing = "failures=[{kind: node_failures, mean_up_s: 20000, mean_down_s: 600}]"
    config = load_config(None, ["workload=heterogeneous-dag", "workload.count=30", failing])
    simulation = cluster_scenario_of(config).kernel(1)
    reward = Reward(RewardConfig({"shaped_job_seconds": 1.0}), simulation, TERMS)
    paths, decide = reward.terms["shaped_job_seconds"]._paths, POLICIES.create(policy, seed=1).decide  # type: ignore[attr-defined]
    conversation = Conversation(simulation)
    while conversation.view is not None:
        reward.step()
        assert paths.left_s() == pytest.approx(longest_paths_s(simulation), rel=1e-12)
        conversation.answer(decide(conversation.view))
    reward.step()
    assert paths.left_s() == 0.0


def longest_paths_s(simulation: ClusterKernel) -> float:
    simulation.show_truth()
    jobs = simulation.frontier.jobs
    fastest = {number: [min(task.truth) for task in job.tasks] for number, job in jobs.items()}
    ranks = {number: job.job.graph.upward_rank(fastest[number]) for number, job in jobs.items()}
    longest = dict.fromkeys(jobs, 0.0)
    for run in simulation.running.values():
        number, index = run.job.number, run.task.index
        path_s = run.ends_s - simulation.now + ranks[number][index] - fastest[number][index]
        longest[number] = max(longest[number], path_s)
    for task in simulation.frontier.ready:
        number, index = task.job.number, task.index
        longest[number] = max(longest[number], ranks[number][index] - (1 - task.left) * fastest[number][index])
    return sum(longest.values())


def gate(view: ClusterView) -> Iterator[Decision]:
    """Admit the first job, reject the second, and let others in from 10 s on."""
    for number in list(view.applicants):
        if number == 1:
            yield Reject(number)
        elif number == 0 or view.now >= 10.0:
            yield Admit(number)
    for task in list(view.ready):
        if (placement := view.fit(task)) is not None:
            yield Start(task, placement)


def test_shaping_holds_where_jobs_wait_to_be_admitted() -> None:
    # Three jobs of 10 s on one GPU: they take 10 s, nothing, and 20 s, of which 10 s each are their work.
    jobs = [Job.single(str(number), Task("t", 10.0)) for number in range(3)]
    simulation = ClusterKernel(Cluster.of({"V100": 1}), jobs, Models(admission=True))
    reward = Reward(RewardConfig({"shaped_job_seconds": 1.0}), simulation, TERMS)
    conversation, total = Conversation(simulation), 0.0
    while conversation.view is not None:
        total += reward.step()
        conversation.answer(gate(conversation.view))
    assert total + reward.step() == pytest.approx(-(10 + 20 - 2 * 10))


def test_every_term_ends_at_its_metric() -> None:
    simulation, steps, reward = rewarded("eft-wait", **dict.fromkeys(EVERY, 1.0))
    schedule = simulation.schedule
    summary = summarize(schedule)
    totals = {name: term.total(simulation.now) for name, term in reward.terms.items()}  # type: ignore[attr-defined]
    jobs = len(schedule.jobs)
    assert totals["job_seconds"] == pytest.approx(jct(schedule).sum())
    assert totals["weighted_job_seconds"] == pytest.approx(
        summary.weighted_jct_s * sum(job.weight for job in schedule.jobs)
    )
    assert totals["bounded_stretch"] == pytest.approx(bounded_stretch(schedule).sum())
    assert totals["bounded_stretch"] >= jobs
    assert totals["makespan"] == pytest.approx(summary.makespan_s)
    assert totals["energy"] == pytest.approx(energy(schedule).total_j)
    assert -sum(steps) == pytest.approx(sum(totals.values()))


def test_idle_seconds_are_what_utilization_leaves() -> None:
    simulation, _, reward = rewarded("sjf", "workload.arrivals={kind: batch}", idle=1.0)
    summary = summarize(simulation.schedule)
    idle_s = reward.terms["idle"].total(simulation.now)  # type: ignore[attr-defined]
    assert idle_s == pytest.approx((1 - summary.utilization) * summary.makespan_s)


def test_one_tenant_alone_is_never_treated_unfairly() -> None:
    _, steps, _ = rewarded("sjf", unfairness=1.0)
    assert sum(steps) == 0
    _, steps, _ = rewarded("sjf", "workload.tenants=[ann, bob]", unfairness=1.0)
    assert sum(steps) < 0


def test_terms_are_weighed_scaled_and_logged() -> None:
    _, plain, _ = rewarded("sjf", job_seconds=1.0)
    _, double, reward = rewarded("sjf", job_seconds=2.0)
    assert np.allclose(double, 2 * np.array(plain))
    assert reward.last["job_seconds"] == pytest.approx(-double[-1])


def test_a_wrong_reward_is_refused() -> None:
    with pytest.raises(UnknownName, match="unknown reward term 'jobseconds'; did you mean 'job_seconds'"):
        RewardConfig({"jobseconds": 1.0}).check(TERMS)
    with pytest.raises(ConfigError, match="at least one term"):
        RewardConfig({})
    with pytest.raises(ConfigError, match="scale must be positive"):
        RewardConfig({"makespan": 1.0}, scale=0.0)


def test_tasks_of_no_time_at_all_can_be_chosen() -> None:
    cluster, jobs = Cluster.of({"A100-40": 1, "T4": 1}), [Job.single(str(n), Task("t", 0.0)) for n in range(3)]
    episode = Episode(ClusterKernel(cluster, jobs), Candidates())
    while episode.observation is not None:
        assert np.isfinite(episode.observation.tokens).all()
        assert np.isfinite(episode.observation.context).all()
        episode.step(0)


def test_unfairness_counts_the_tenants_with_jobs_in_the_system() -> None:
    # two GPUs. ann holds one from 0 to 10; bob arrives at 2 with a job for both, and gets them at 10 until 14, alone;
    # Jain's index is 1 with one tenant, and 1/2 while ann holds a GPU and bob none: 8 seconds of 1 - 1/2
    jobs = [
        Job.single("a", Task("t", 10.0), tenant="ann"),
        Job.single("b", Task("t", 4.0, gpus=2), 2.0, tenant="bob"),
        Job.single("c", Task("t", 6.0), 20.0, tenant="ann"),
    ]
    kernel = ClusterKernel(Cluster.of({"T4": 2}, per_node=2), jobs)
    reward = Reward(RewardConfig({"unfairness": 1.0}), kernel, TERMS)
    kernel.run(POLICIES.create("fifo"))
    assert reward.step() == pytest.approx(-8 * 0.5)


def test_an_environment_refuses_a_wrong_reward_when_it_is_described() -> None:
    with pytest.raises(ConfigError, match="at least one term"):
        EnvConfig(reward={})
    with pytest.raises(ConfigError, match="scale must be positive"):
        EnvConfig(reward_scale=0.0)


def test_the_reward_for_energy_is_the_energy() -> None:
    rule = OnDemand(boot_s=300, idle_s=600, shutdown_s=100, off_watts=5.0)
    schedule = powered.run(
        powered.nodes(rule, None, gpus=1),
        powered.jobs((0, 2_000, 1), (0, 100, 1), (1_900, 300, 1)),
        failures=[Maintenance((1,), 50, 90)],
    )
    reward = Joules(schedule)
    for row in schedule.log:
        reward.take(row)
    assert reward.total(schedule.ended_s) == pytest.approx(energy(schedule).total_j)
