from __future__ import annotations

import pytest

from dagsim.errors import IllegalDecision, ModelError, Stalled
from dagsim.families.spark.api import (
    SPARK_POLICIES,
    Commit,
    ExecutorType,
    RecordedDurations,
    SparkJob,
    SparkKernel,
    SparkView,
)

BOTH = pytest.mark.parametrize("parity", [True, False], ids=["parity", "default"])


def job(*stages: list[float], edges: tuple[tuple[int, int], ...] = (), at: float = 0.0, id: str = "j") -> SparkJob:
    return SparkJob.of(id, [RecordedDurations(tuple(ms), ms[0]) for ms in stages], edges, at)


def completed_ms(
    executors: int | tuple[ExecutorType, ...], jobs: list[SparkJob], policy: str, **rest: object
) -> list[float]:
    simulation = SparkKernel(executors, jobs, moving_delay_ms=100, **rest)  # type: ignore[arg-type]
    return [state.completed_ms or -1.0 for state in simulation.run(SPARK_POLICIES.create(policy)).jobs]


@BOTH
def test_tasks_of_a_stage_run_in_waves(parity: bool) -> None:
    # Two executors travel 100 ms and take 10 and 20; the first to end, at 110, takes 30.
    assert completed_ms(2, [job([10, 20, 30])], "fair", parity=parity) == [140]


@BOTH
def test_a_stage_waits_for_every_parent(parity: bool) -> None:
    # Diamond on one executor: 100 travel, 10, then 20 and 30 in turn, then 5.
    diamond = job([10], [20], [30], [5], edges=((0, 1), (0, 2), (1, 3), (2, 3)))
    assert completed_ms(1, [diamond], "fifo", parity=parity) == [165]


@BOTH
def test_changing_the_job_costs_the_moving_delay(parity: bool) -> None:
    # 100 travel + 50; the next job's travel begins when the first one ends: 150 + 100 + 50.
    assert completed_ms(1, [job([50]), job([50], id="k")], "fifo", parity=parity) == [150, 300]


def test_in_parity_the_common_pool_sleeps_until_the_next_arrival() -> None:
    """Two executors; only one is used at first, and when stage 0 ends, stage 1 wants both."""

    class One:
        """One executor for whatever comes first, the rest stays idle until asked again."""

        def decide(self, view: SparkView) -> tuple[Commit, ...]:
            for state in view.jobs:
                for stage in view.schedulable(state):
                    if view.source is not None or stage.index == 0 or state.supply == 1:
                        return (Commit(stage, 1),)
            return ()

    wide = job([10], [40, 40], edges=((0, 1),))
    slow = SparkKernel(2, [wide], moving_delay_ms=100, parity=True).run(One())
    assert slow.jobs[0].completed_ms == 190  # one executor runs all: 100 + 10 + 40 + 40
    # Asked again whenever something changed, it sends the second one: at 110, there at 210, after 40 + 40 are done.
    quick = SparkKernel(2, [wide], moving_delay_ms=20).run(One())
    assert quick.jobs[0].completed_ms == 30 + 40  # 20 travel + 10, then both at once


def test_faster_executors_end_sooner() -> None:
    types = (ExecutorType("T4", 1, 0.5), ExecutorType("A100", 1, 2.0))
    # Both travel 100 ms; the A100 takes the first task (40 / 2), the T4 the second (40 / 0.5).
    assert completed_ms(types, [job([40, 40])], "fair") == [180]


def test_a_stopped_episode_counts_the_tasks_launched_so_far() -> None:
    """The executor travels for 100 ms and starts a task every 10 ms."""
    kernel = SparkKernel(1, [job([10, 10, 10, 10])], moving_delay_ms=100)
    conversation = kernel.decisions(until_s=0.125)
    view = next(conversation)
    with pytest.raises(StopIteration):
        conversation.send((Commit(view.jobs[0].stages[0], 1),))
    assert kernel.episode.tasks == 3


def test_sent_ahead_executors_wait_for_their_stage() -> None:
    """Two executors for stage 0 with one task of 500 ms: the second goes to stage 1 and waits there."""
    chain = job([500], [10, 10], edges=((0, 1),))
    # 100 + 500, then both tasks of stage 1 at once: the second executor waits at the job since 100.
    assert completed_ms(2, [chain], "fair") == [610]


def test_a_decision_for_a_stage_that_cannot_be_chosen_is_illegal() -> None:
    chain = job([500], [10], edges=((0, 1),))
    conversation = SparkKernel(1, [chain]).decisions()
    view = next(conversation)
    with pytest.raises(IllegalDecision, match=r"stage 1 of job 'j' cannot be chosen now"):
        conversation.send((Commit(view.jobs[0].stages[1], 1),))


@pytest.mark.parametrize("executors", [0, 3])
def test_more_executors_than_there_are_is_illegal(executors: int) -> None:
    conversation = SparkKernel(2, [job([500])]).decisions()
    view = next(conversation)
    with pytest.raises(IllegalDecision, match="can get 1 to 2 executors"):
        conversation.send((Commit(view.jobs[0].stages[0], executors),))


def test_a_policy_that_leaves_all_idle_stalls() -> None:
    class Idle:
        def decide(self, view: SparkView) -> tuple[Commit, ...]:
            return ()

    with pytest.raises(Stalled, match="1 job waits"):
        SparkKernel(2, [job([500])]).run(Idle())


def test_jobs_must_come_in_order_of_arrival() -> None:
    with pytest.raises(ModelError, match="is listed after a job that arrives later"):
        SparkKernel(1, [job([1], at=5), job([1], at=3)]).run(SPARK_POLICIES.create("fifo"))


def test_until_stops_the_clock() -> None:
    episode = SparkKernel(1, [job([500]), job([1], at=1000)], moving_delay_ms=0).run(
        SPARK_POLICIES.create("fifo"), until_s=0.2
    )
    assert episode.ended_ms == 200
    assert len(episode.jobs) == 1
