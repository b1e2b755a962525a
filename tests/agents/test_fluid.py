"""The fluid that says, in hindsight, what the jobs left would cost."""

from __future__ import annotations

import numpy as np
import pytest

from dagsim.agents.spark_fluid import TaskSeconds, fluid_cost
from dagsim.systems.spark import RecordedDurations, SparkJob, SparkKernel

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
