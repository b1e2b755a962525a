from __future__ import annotations

from math import exp

import pytest
from families.spark.spark_cases import Anything, random_jobs

from dagsim.families.spark.api import JobTime, RecordedDurations, SparkJob, SparkKernel


@pytest.mark.parametrize("seed", range(6))
def test_undiscounted_it_sums_to_all_completion_times(seed: int) -> None:
    simulation = SparkKernel(4, random_jobs(seed), moving_delay_ms=20)
    cost = JobTime(simulation.episode)
    conversation, policy = simulation.decisions(), Anything(seed, False)
    view = next(conversation)
    total = 0.0
    try:
        while True:
            total += cost.until(view.now_ms / 1000)
            view = conversation.send(policy.decide(view))
    except StopIteration:
        total += cost.until(simulation.episode.ended_ms / 1000)
    assert total == pytest.approx(simulation.episode.jct_s.sum())


def test_discounted_by_hand() -> None:
    # One job from 0 to 3 s, another from 1 s to 5 s (one executor, no travel): looks at 0, 2 and 5 s.
    jobs = [
        SparkJob.of(name, [RecordedDurations((ms,), ms)], (), at)
        for name, ms, at in (("a", 3000.0, 0), ("b", 2000.0, 1000))
    ]
    simulation = SparkKernel(1, jobs, moving_delay_ms=0)
    simulation.run(Anything(0, True))
    cost = JobTime(simulation.episode, beta=0.5)

    def span(start: float, end: float) -> float:
        return (exp(-0.5 * start) - exp(-0.5 * end)) / 0.5

    assert cost.until(0) == 0
    assert cost.until(2) == pytest.approx(span(0, 1) + 2 * span(1, 2))
    assert cost.until(5) == pytest.approx(2 * span(0, 1) + span(1, 3))
