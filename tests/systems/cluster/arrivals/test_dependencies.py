"""When jobs become eligible: dependencies, begin times, limits of arrays, and the times in a log."""

from __future__ import annotations

import pytest
from support.log_reading import start_times
from systems.cluster.site_jobs import BINDING, cluster, job, placed

from dagsim.model import (
    Caps,
    InFlight,
    Kind,
    QueueNode,
    QueueTree,
    Request,
    Share,
)
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario


@pytest.mark.parametrize("policy", BINDING)
def test_no_job_starts_before_it_is_eligible(policy: str) -> None:
    jobs = [job("held", 0, 5, eligible_s=20.0), job("free", 1, 5)]
    got = placed(jobs, policy)
    assert (got["held"][0], got["free"][0]) == (20, 1)


@pytest.mark.parametrize("policy", BINDING)
def test_a_job_waits_for_those_that_it_depends_on_whatever_the_log_says(policy: str) -> None:
    first = Request(after=("a", "b"))
    jobs = [job("a", 0, 30), job("b", 0, 10), job("free", 1, 5)]
    jobs += [job("after", 1, 5, request=first, eligible_s=2.0), job("last", 2, 5, request=Request(after=("after",)))]
    got = {name: start_s for name, (start_s, _) in placed(jobs, policy).items()}
    assert got == {"a": 0, "b": 0, "free": 1, "after": 30, "last": 35}


@pytest.mark.parametrize("policy", BINDING)
def test_a_job_waits_for_starts_and_times_and_for_one_of_several(policy: str) -> None:
    jobs = [job("a", 0, 30), job("b", 0, 10), job("late", 0, 5, request=Request(begin_s=12.0))]
    later = {
        "started": Request(after=("start:late",)),
        "delayed": Request(after=("start:a+20",)),
        "one": Request(after=("a", "b"), after_one=True),
        "timed": Request(after=("a", "start:b+15"), after_one=True),
        "both": Request(after=("b",), begin_s=40.0),
        "held": Request(begin_s=3.0),
        "at once": Request(after=("start:b", "start:a+1")),
    }
    jobs += [job(name, 2, 1, request=request) for name, request in later.items() if name != "held"]
    jobs.append(job("held", 2, 1, request=later["held"], eligible_s=50.0))  # by its user, as the log knows
    got = {name: start_s for name, (start_s, _) in placed(jobs, policy).items()}
    assert got == {
        "a": 0, "b": 0, "late": 12, "started": 12, "delayed": 20, "one": 10, "timed": 15, "both": 42, "at once": 2,
        "held": 50,
    }  # fmt: skip


def test_a_job_that_leaves_without_a_start_meets_the_condition_of_one() -> None:
    queues = QueueTree(tree=(QueueNode("lab", limits=Caps(gpus=2)),))
    jobs = [job("never", 0, 5, 3, account="lab"), job("next", 1, 5, request=Request(after=("start:never+6",)))]
    got = placed(jobs, "slurm-multifactor[order=basic,bf_interval_s=1]", queues)
    assert got["next"][0] == 6


@pytest.mark.parametrize("policy", BINDING)
def test_a_job_that_depends_on_none_in_the_log_waits_until_the_log_calls_it_eligible(policy: str) -> None:
    unknown, gone = Request(after=("elsewhere",)), Request(after=("a",))
    jobs = [job("a", 0, 3), job("b", 1, 5, request=unknown, eligible_s=7.0)]
    jobs.append(job("c", 4, 5, request=gone, eligible_s=90.0))  # a has left, so the log's time says nothing
    jobs.append(job("d", 4, 5, request=Request(after=("a", "elsewhere")), eligible_s=8.0))
    got = {name: start_s for name, (start_s, _) in placed(jobs, policy).items()}
    assert got == {"a": 0, "b": 7, "c": 4, "d": 8}


@pytest.mark.parametrize("policy", BINDING)
def test_so_many_tasks_of_an_array_are_in_the_system(policy: str) -> None:
    two = Request(array="7", array_limit=2)
    seconds = (10, 4, 5, 5, 1)
    jobs = [job(f"7_{at}", 0, length, request=two, eligible_s=1.0) for at, length in enumerate(seconds)]
    jobs.append(job("after", 1, 1, request=Request(after=("7",))))  # all of the array
    got = {name: start_s for name, (start_s, _) in placed(jobs, policy).items()}
    assert got == {"7_0": 0, "7_1": 0, "7_2": 4, "7_3": 9, "7_4": 10, "after": 14}


def test_tasks_in_flight_at_the_beginning_count_among_those_of_their_array() -> None:
    two = Request(array="7", array_limit=2)
    running = {"in_flight": (InFlight(5.0, (Share(0),)),), "request": two}
    jobs = [job("7_0", 0, 25, **running), job("7_1", 0, 5, request=two), job("7_2", 0, 5, request=two)]
    kernel = ClusterKernel(cluster(), jobs, begins_s=10.0)
    schedule = kernel.run(POLICIES.create("fifo-fit"))
    got = start_times(schedule)
    assert (got["7_1"], got["7_2"]) == ([10], [15])


def test_waits_count_from_when_the_simulation_calls_a_job_eligible() -> None:
    jobs = [job("a", 0, 30, 4, observed_start_s=0.0), job("b", 0, 50, 4, observed_start_s=0.0)]
    later = {"request": Request(after=("a",)), "eligible_s": 20.0, "observed_start_s": 25.0}
    jobs.append(job("c", 1, 5, 4, **later))
    scenario = ClusterScenario(cluster(), jobs)
    kernel = scenario.kernel(0)
    kernel.run(POLICIES.create("fifo"))
    waits = scenario.facts(kernel)["observed"]
    assert (waits["early"], waits["total"]["simulated_s"]["mean"]) == (0, 0)  # c starts at 30, eligible then
    assert waits["total"]["observed_s"]["mean"] == 5 / 3


def test_forks_keep_dependencies_and_those_by_estimates_drop_them() -> None:
    two = Request(array="7", array_limit=1)
    jobs = [job("a", 0, 30), job("b", 1, 5, request=Request(after=("a",)))]
    jobs += [job(f"7_{at}", 2, 10, request=two) for at in range(3)]
    jobs += [
        job("c", 3, 5, request=Request(after=("start:a+9", "start:b+4"))),
        job("d", 3, 1, request=Request(begin_s=9)),
    ]
    kernel = ClusterKernel(cluster(), jobs)
    kernel.run(POLICIES.create("fifo-fit"), until_s=5)
    twin, guess = kernel.fork(), kernel.fork(by_estimates=True)
    logs = [list(simulation.run(POLICIES.create("fifo-fit")).log) for simulation in (kernel, twin)]
    assert logs[0] == logs[1]
    assert sum(row.kind == Kind.COMPLETED for row in logs[0]) == 7
    assert sum(row.kind == Kind.COMPLETED for row in guess.run(POLICIES.create("fifo-fit")).log) == 2


def test_a_job_that_is_cancelled_or_rejected_holds_nobody_back() -> None:
    queues = QueueTree(tree=(QueueNode("lab", limits=Caps(gpus=2)),))
    jobs = [job("never", 0, 5, 3, account="lab"), job("too large", 0, 5, 99)]
    jobs += [job(f"after {name}", 1, 5, request=Request(after=(name,))) for name in ("never", "too large")]
    got = placed(jobs, "slurm-multifactor[order=basic,bf_interval_s=1]", queues)
    assert {name: start_s for name, (start_s, _) in got.items()} == {"after never": 1, "after too large": 1}
