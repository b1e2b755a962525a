"""The policy ``search``: its forks predict what happens, it knows no more than other policies, and it gains by it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dagsim.config.schema import load_config
from dagsim.errors import ConfigError, RunFolderError
from dagsim.experiment.scenario import scenario_of
from dagsim.families.episodes.lookout import ArrivedJob, FirstChoice, Follower, Lookout
from dagsim.families.episodes.playout import AS_PROPOSED, WAIT
from dagsim.families.episodes.proposals import BY_TASK, BY_WORK
from dagsim.families.episodes.search import Search, agent_file
from dagsim.families.learning.checkpoint import Checkpoint
from dagsim.model import Cluster, Job, Task
from dagsim.model.log import Kind
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.policies import POLICIES

NEVER = 1e12
"""A number of standard errors that no difference exceeds."""


def scenario(preset="heterogeneous-dag", *more):
    return scenario_of(load_config(None, [f"workload.preset={preset}", "workload.count=25", *more]))


def rows(schedule):
    return [(row[0], row[1], row[2], row[3], row[5]) for row in schedule.log.since(0)]


def test_a_search_that_never_deviates_is_its_base():
    for preset in ("heterogeneous", "heterogeneous-dag"):
        world = scenario(preset, "workload.count=10")
        base = world.kernel(5).run(POLICIES.create("eft-wait"))
        assert rows(world.kernel(5).run(Search(z=NEVER, agent=""))) == rows(base)


class Foreseen:
    """Follows a policy; at every third decision it compares what forks of both kinds predict of it."""

    def __init__(self, name, player):
        self.base, self.player, self.name = POLICIES.create(name), player, name
        self.outlook = Lookout(Search(agent="").codec)
        self.predictions = []

    def decide(self, view):
        if any(view.fits(task) for task in view.ready):
            columns = {job.number: ArrivedJob.of(job) for job in view.jobs.values()}
            if self.outlook.look(view, columns, [], [np.zeros(0)]):
                fork = view.fork()
                written = len(fork.schedule.log)
                fork.run(POLICIES.create(self.name))
                ends = [row[1] for row in fork.schedule.log.since(written) if row[0] == Kind.COMPLETED]
                trial = FirstChoice(AS_PROPOSED, self.player)
                self.predictions.append((float(self.outlook.costs([trial], 1)[0, 0]), sum(ends)))
        yield from self.base.decide(view)


@pytest.mark.parametrize("order", [BY_WORK, BY_TASK])
@pytest.mark.parametrize("preset", ["heterogeneous", "heterogeneous-dag"])
def test_trials_end_as_forks_of_the_kernel_do(preset, order):
    name = f"eft-wait[theta=0.8,order={'work' if order == BY_WORK else 'task'}]"
    policy = Foreseen(name, Follower(0.8, order))
    scenario(preset).kernel(3).run(policy)
    assert len(policy.predictions) > 20
    ours, forks = np.array(policy.predictions).T
    # A trial starts as many instances at once as there is room for; the policy asks again after each node.
    # After that the two schedules differ, and of DAGs more jobs follow.
    assert np.isclose(ours, forks, rtol=1e-9).mean() >= 0.7
    assert np.abs(ours / forks - 1).mean() < 1e-3
    assert np.allclose(ours, forks, rtol=0.05)


def test_shares_of_gpus_stay_where_they_are():
    # Packed again in the order of their starts, 0.5, 0.3 and 0.5 would leave no GPU with room for 0.7.
    cluster = Cluster.of({"A100-40": 2, "T4": 1}, per_node=2)
    sizes = [(0.0, 0.5, 5.0), (1.0, 0.5, 90.0), (2.0, 0.3, 90.0), (6.0, 0.5, 90.0), (7.0, 0.7, 90.0), (8.0, 1.0, 9.0)]
    jobs = [
        Job.single(f"j{number}", Task("t", seconds, gpus=gpus), at_s)
        for number, (at_s, gpus, seconds) in enumerate(sizes)
    ]
    policy = Foreseen("eft-wait[theta=0.0,order=work]", Follower(0.0, BY_WORK))
    kernel = ClusterKernel(cluster, jobs)
    schedule = kernel.run(policy)
    gpus = {row.job: row.gpus for row in schedule.log if row.kind == Kind.STARTED}
    assert gpus == {0: 0b01, 1: 0b01, 2: 0b10, 3: 0b01, 4: 0b10, 5: 0b01}
    ours, forks = np.array(policy.predictions).T
    assert len(ours) == 6
    assert np.allclose(ours, forks)


class Watched:
    """Compares the agent's choices in compiled code with those of its own policy."""

    def __init__(self):
        self.search = Search()
        self.agent = Checkpoint.load(agent_file("ppo"))
        self.net, self.codec = self.agent.network(), self.agent.clipped(self.agent.codec.build())
        self.outlook = Lookout(self.search.codec, self.search.net)
        self.equal = []

    def decide(self, view):
        observation = self.codec.encode(view)
        if observation is None:
            return
        choice = self.net.act(self.net.stack([observation]), None)[0].tolist()[0]
        columns = {job.number: ArrivedJob.of(job) for job in view.jobs.values()}
        if self.outlook.look(view, columns, [], [np.zeros(0)]):
            _, best = self.outlook.proposals([])
            started = None
            if best != WAIT:
                job, index, type_ = self.outlook.start_of(best)
                started = job.tasks[index], type_
            offered = self.codec.rows
            self.equal.append(started == (offered[choice] if choice < len(offered) else None))
        yield from self.codec.decode(view, choice)


def test_the_agent_chooses_in_compiled_code_as_it_does_by_itself():
    policy = Watched()
    scenario("heterogeneous").kernel(4).run(policy)
    assert len(policy.equal) > 20
    assert np.mean(policy.equal) >= 0.97  # float32 sums in another order


def test_the_true_future_decides_nothing():
    world = scenario("heterogeneous", "workload.load=1.1")
    jobs = list(world.jobs(7).arrays().jobs())
    now_s = jobs[15].arrival_s
    noise = [
        job if job.arrival_s <= now_s else replace(job, arrival_s=now_s + (job.arrival_s - now_s) * 7 + 1)
        for job in jobs
    ]
    kernels = [ClusterKernel(world.cluster, them, Models(runtime=world.runtime), seed=7) for them in (jobs, noise)]
    logs = [rows(kernel.run(Search())) for kernel in kernels]
    until = [[row for row in all_rows if row[1] <= now_s] for all_rows in logs]
    assert len(until[0]) > 30
    assert until[0] == until[1]
    assert logs[0] != logs[1]


def test_estimates_are_all_that_it_reads():
    world = scenario("heterogeneous", "estimates.kind=noisy")
    policy = Search(agent="")
    schedule = world.kernel(2).run(policy)  # a policy that reads true durations raises
    assert len([row for row in schedule.log.since(0) if row[0] == Kind.COMPLETED]) == 25


def test_a_search_waits_where_its_base_does_not():
    # One fast GPU, which is free in 1 s, and a slow one. With theta 0.5 the base takes the slow one for 15 s at once.
    cluster = Cluster.of({"A100-40": 1, "T4": 1})
    jobs = [
        Job.single("short", Task("t", 1.0, speeds={"A100-40": 1.0, "T4": 0.01})),
        Job.single("long", Task("t", 10.0, speeds={"A100-40": 1.0, "T4": 0.6})),
    ]
    base = "eft-wait[theta=0.5,order=work]"
    total = {}
    for policy in (POLICIES.create(base), Search(base=base, ahead=0, z=0.0)):
        schedule = ClusterKernel(cluster, jobs).run(policy)
        total[type(policy)] = sum(row[1] for row in schedule.log.since(0) if row[0] == Kind.COMPLETED)
    assert total[Search] < min(value for kind, value in total.items() if kind is not Search)


def test_the_budget_limits_the_simulated_decisions():
    world = scenario("heterogeneous", "workload.load=1.1")
    plays = {}
    for budget in (1, 100, 1000):
        policy = Search(budget=budget, agent="")
        kernel = world.kernel(5)
        schedule = kernel.run(policy)
        memory = kernel.frontier.indexes[policy]
        decisions = len(schedule.log)
        plays[budget] = memory.outlook.plays
        assert plays[budget] <= budget * decisions + 1000  # what the first trials cost is not known before
    assert plays[1] < plays[100] < plays[1000]


@pytest.mark.parametrize(("budget", "counts"), [(100, {1, 12}), (10**9, {12})])
def test_all_futures_are_played_or_the_one_without_arrivals(monkeypatch, budget, counts):
    played = []
    costs = Lookout.costs

    def noted(outlook, trials, futures):
        nothing_comes = [bool(np.isinf(at_s).all()) for at_s in outlook._look.arrivals]
        played.append((futures, nothing_comes))
        return costs(outlook, trials, futures)

    monkeypatch.setattr(Lookout, "costs", noted)
    scenario("heterogeneous", "workload.load=1.1").kernel(5).run(Search(budget=budget, agent=""))
    assert {futures for futures, _ in played} == counts
    assert all(nothing_comes[0] for _, nothing_comes in played)
    assert played[-1][1] == [True, *[False] * 11]


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"budget": 0}, ConfigError, "budget must be 1 or more, got 0"),
        ({"futures": 1}, ConfigError, "futures must be 2 or more"),
        ({"ahead": -1}, ConfigError, "ahead must be 0 or more"),
        ({"base": "sjf"}, ConfigError, "base must be eft-wait"),
        ({"base": "eft-wait[order=path]"}, ConfigError, "base must be eft-wait"),
        ({"agent": "nowhere.pt"}, RunFolderError, "no such file"),
        (
            {"agent": "dagsim/families/learning/independent-0.9.pt"},
            ConfigError,
            "the net scorer and the codec relative",
        ),
    ],
)
def test_a_parameter_out_of_range_is_refused(params, error, message):
    with pytest.raises(error, match=message):
        Search(**params)
