from __future__ import annotations

import pytest
from families.spark.spark_cases import Anything, random_jobs

from dagsim.families.spark.api import SPARK_POLICIES, ExecutorType, RecordedDurations, SparkJob, SparkKernel
from dagsim.families.spark.schedule import schedule_of
from dagsim.metrics import jct
from dagsim.model import Edge, Job, Kind, Task, TaskGraph
from dagsim.testing.violations import violations


def as_job(job: SparkJob, gpus: bool) -> Job:
    """The same job with what an instance occupies on the nodes of the schedule."""
    tasks = tuple(
        Task(task.name, task.work, task.instances, gpus=float(gpus), cpus=float(not gpus)) for task in job.graph.tasks
    )
    return Job(job.id, TaskGraph(tasks, tuple(Edge(*edge) for edge in job.graph.edges)), job.arrival_ms / 1000)


@pytest.mark.parametrize("name", ["executor", "A100"])
@pytest.mark.parametrize("parity", [True, False], ids=["parity", "default"])
@pytest.mark.parametrize("seed", range(6))
def test_the_log_of_single_tasks_keeps_every_promise(seed: int, parity: bool, name: str) -> None:
    jobs = random_jobs(seed)
    types = (ExecutorType(name, 4),)
    episode = SparkKernel(types, jobs, moving_delay_ms=20, parity=parity, record=True).run(Anything(seed, parity))
    schedule = schedule_of(episode, merged=False)
    assert violations(schedule, [as_job(job, name == "A100") for job in jobs]) == []
    assert jct(schedule).tolist() == pytest.approx(episode.jct_s.tolist())


@pytest.mark.parametrize("seed", range(6))
def test_merged_runs_are_as_busy_as_single_ones(seed: int) -> None:
    episode = SparkKernel(4, random_jobs(seed), moving_delay_ms=20, record=True).run(Anything(seed, False))
    single, merged = (schedule_of(episode, merged=flag) for flag in (False, True))

    def tasks(schedule: object) -> int:
        return sum(row.instances for row in schedule.log if row.kind == Kind.FINISHED)  # type: ignore[attr-defined]

    assert tasks(single) == tasks(merged) == episode.tasks
    assert len(merged.log) < len(single.log)
    times = [row.time_s for row in merged.log]
    assert times == sorted(times)
    assert jct(merged).tolist() == jct(single).tolist()


def test_a_journey_is_the_set_up_of_the_first_run() -> None:
    # 100 ms travel, then two tasks of 10 ms back to back: one run from 0 to 120 ms that computes from 100 ms on.
    job = SparkJob.of("j", [RecordedDurations((10.0, 10.0), 10)])
    episode = SparkKernel(1, [job], moving_delay_ms=100, record=True).run(SPARK_POLICIES.create("fifo"))
    rows = [(row.kind, row.time_s, row.instances) for row in schedule_of(episode).log]
    assert rows == [
        (Kind.ARRIVED, 0.0, 0),
        (Kind.STARTED, 0.0, 2),
        (Kind.COMPUTING, 0.1, 2),
        (Kind.FINISHED, 0.12, 2),
        (Kind.COMPLETED, 0.12, 0),
    ]


def test_an_episode_that_was_not_recorded_keeps_arrivals_and_completions() -> None:
    recorded, plain = (SparkKernel(2, random_jobs(0), record=record) for record in (True, False))
    for kernel in (recorded, plain):
        kernel.run(SPARK_POLICIES.create("fifo"))
    kept = [row for row in recorded.schedule.log if row.kind in (Kind.ARRIVED, Kind.COMPLETED)]
    assert list(plain.schedule.log) == kept
    assert plain.schedule.ended_s == recorded.schedule.ended_s
