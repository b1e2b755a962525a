"""The fluid that says, in hindsight, what the jobs left would cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dagsim.families.decima.fluid import TaskSeconds, backlog, fluid_advantages, fluid_cost
from dagsim.families.learning.on_policy.policy_gradient import in_own_unit
from dagsim.families.learning.training.rollouts import EpisodeSteps
from dagsim.families.spark.api import RecordedDurations, SparkJob, SparkKernel
from dagsim.families.spark.codecs import StageObservation

LONG = 1e9
"""A time constant (s) that discounts nothing."""


def test_the_shortest_goes_first() -> None:
    # 2 executors; 4 and 10 executor-seconds: the first is done after 2 s, the other after 7: 2 + 7 job-seconds
    assert fluid_cost(0.0, [10.0, 4.0], [], 2, LONG) == pytest.approx(9, rel=1e-6)


def test_who_comes_with_less_left_goes_before() -> None:
    # 1 executor; 10 s left, after 4 s someone comes with 3: done at 7 (3 s), the first at 13: 13 + 3
    assert fluid_cost(0.0, [10.0], [(0.0, 10.0), (4.0, 3.0)], 1, LONG) == pytest.approx(16, rel=1e-6)
    # seen from second 4 on, when it is there: 9 + 3
    assert fluid_cost(4.0, [6.0, 3.0], [(0.0, 10.0), (4.0, 3.0)], 1, LONG) == pytest.approx(12, rel=1e-6)


def test_later_counts_less() -> None:
    # one job for 5 s: the integral of exp(-t / 10) over them
    assert fluid_cost(0.0, [5.0], [], 1, 10.0) == pytest.approx(10 * (1 - np.exp(-0.5)))


def test_nothing_counts_beyond_four_time_constants() -> None:
    assert fluid_cost(0.0, [1e6], [(50.0, 1.0)], 1, 10.0) == pytest.approx(10 * (1 - np.exp(-4)))


def test_a_task_that_runs_is_half_done() -> None:
    # 3 tasks of 2 s: on one executor one runs and two are to come: 2 * 2 + 1 = 5 s
    simulation = SparkKernel(1, [SparkJob.of("j", [RecordedDurations((2000.0,) * 3, 2000.0)])])
    conversation = simulation.decisions()
    view = next(conversation)
    (job,) = view.jobs
    task_s = TaskSeconds(1)
    assert (task_s.whole(job), task_s.left(job)) == (6.0, 6.0)
    job.stages[0].remaining, job.stages[0].executing = 2, 1
    assert task_s.left(job) == 5.0


def backlog_by_loops(work_s: list[float], paths_s: list[float], executors: int, tau_s: float) -> list[float]:
    """The six measures of ``backlog``, job by job."""
    ends_s, busy_s = [], 0.0
    for work in sorted(work_s):
        busy_s += work
        ends_s.append(busy_s / executors)
    return [
        len(work_s),
        sum(1 - np.exp(-end / tau_s) for end in ends_s),
        sum(1 - np.exp(-4 * end / tau_s) for end in ends_s),
        sum(1 - np.exp(-path / tau_s) for path in paths_s),
        sum(np.log(1 + work) for work in work_s) / 8,
        busy_s / executors / tau_s,
    ]


def observed(work_s: list[float], paths_s: list[float], executors: int) -> StageObservation:
    jobs = np.log1p(np.array([work_s, paths_s])).T / 8
    return StageObservation(*[None] * 12, executors)._replace(jobs=jobs)  # type: ignore[arg-type]


def test_the_backlog_is_that_of_a_loop_over_jobs() -> None:
    work_s, paths_s = [30.0, 5.0, 12.0], [6.0, 5.0, 1.0]
    got = backlog(observed(work_s, paths_s, 3), 20.0)
    assert got == pytest.approx(backlog_by_loops(work_s, paths_s, 3, 20.0))


def test_advantages_are_those_of_a_ridge_regression_and_a_sum_written_out() -> None:
    # two replicas of one job sequence that decide at the same times, so that nothing is interpolated
    times_s, executors, tau_s, horizon_s = [0.0, 3.0, 7.0, 10.0], 2, 20.0, 8.0
    works = (([9.0, 4.0], [6.0, 2.0], [1.0]), ([9.0, 4.0], [8.0, 4.0], [5.0, 3.0]))
    rewards = ([-6.0, -7.0, -3.0], [-6.0, -8.0, -6.0])
    group = [
        EpisodeSteps(
            observations=[observed(work, work, executors) for work in left],
            times_s=times_s,
            rewards=list(reward),
            notes=[list(work) for work in left],
            hindsight=[(0.0, 9.0), (0.0, 4.0)],
        )
        for left, reward in zip(works, rewards, strict=True)
    ]
    got = fluid_advantages([group], tau_s, horizon_s)

    values = []
    for reward in rewards:
        value, returns_ = 0.0, []
        for at in (2, 1, 0):
            value = reward[at] + np.exp(-(times_s[at + 1] - times_s[at]) / tau_s) * value
            returns_.insert(0, value)
        values.append(np.array(returns_))
    features = [
        np.array(
            [
                [*backlog_by_loops(work, work, executors, tau_s), fluid_cost(at_s, work, [], executors, tau_s) / tau_s]
                for at_s, work in zip(times_s, left, strict=False)
            ]
        )
        for left in works
    ]
    x = np.concatenate((features[0] - features[1], features[1] - features[0]))
    y = np.concatenate((values[0] - values[1], values[1] - values[0]))
    # ridge regression: least squares with a row sqrt(ridge x rows) for each weight
    damped = np.vstack((x, np.sqrt(1e-3 * len(x)) * np.eye(7)))
    weights = np.linalg.lstsq(damped, np.append(y, np.zeros(7)), rcond=None)[0]
    for number in (0, 1):
        baseline = values[1 - number] + x[3 * number : 3 * number + 3] @ weights
        advantage, expected = 0.0, []
        for at in (2, 1, 0):
            gap_s = times_s[at + 1] - times_s[at]
            following = baseline[at + 1] if at < 2 else 0.0
            delta = rewards[number][at] + np.exp(-gap_s / tau_s) * following - baseline[at]
            advantage = delta + np.exp(-gap_s / tau_s - gap_s / horizon_s) * advantage
            expected.insert(0, advantage)
        assert got[number] == pytest.approx(np.array(expected), abs=1e-6)

    own = in_own_unit([replace(steps, jct_s=5.0) for steps in group])
    in_units = fluid_advantages([own], tau_s / 5, horizon_s / 5)
    assert [5 * advantages for advantages in in_units] == [pytest.approx(advantages) for advantages in got]
