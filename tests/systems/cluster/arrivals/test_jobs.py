"""The jobs of a run: what is known of them afterwards, and how many are made to know it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import inf, nan
from types import SimpleNamespace

import numpy as np
import pytest

from dagsim.errors import ModelError
from dagsim.model import Cluster, Job, Task
from dagsim.systems.cluster.arrivals.job_sources import StoredJobs
from dagsim.systems.cluster.arrivals.job_stream import JobStream
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.workload.arrays import JobArrays

CLUSTER = Cluster.of({"V100": 4}, cpus_per_gpu=2)


def two() -> list[Job]:
    return [Job.single("a", Task("t", 8.0), 10.0), Job.single("b", Task("t", 16.0, cpus=1.0), 14.0)]


def test_the_load_of_a_list_and_of_what_was_read_once_is_the_same() -> None:
    # (8 + 16) GPU-seconds of 4 GPUs in 8 s, since two arrivals show one gap; 16 core-seconds of 8 cores.
    lazily = JobStream(iter(two()), CLUSTER, Recorded())
    assert [job.id for job in lazily] == ["a", "b"]
    for stream in (JobStream(two(), CLUSTER, Recorded()), lazily):
        assert stream.load == stream.load
        assert (stream.load.span_s, stream.load.jobs) == (4.0, 2)
        assert (stream.load.gpu_load, stream.load.cpu_load) == (0.75, 0.25)


def test_no_jobs_are_no_load() -> None:
    load = JobStream([], CLUSTER, Recorded()).load
    assert (load.span_s, load.jobs) == (0.0, 0)


def test_no_more_jobs_are_made_than_it_takes_to_know_that_there_are_enough() -> None:
    ids: list[str] = []

    def jobs() -> Iterator[Job]:
        for job in two():
            ids.append(job.id)
            yield job

    stream = JobStream(jobs(), CLUSTER, Recorded())
    assert stream.may_have(1)
    assert ids == ["a"]
    assert [job.id for job in stream] == ["a", "b"]
    assert not JobStream(two(), CLUSTER, Recorded()).may_have(3)


def test_real_starts_and_eligible_times_are_kept_job_by_job() -> None:
    task = Task("t", 1.0)
    jobs = [
        Job.single("known", task, 1.0, observed_start_s=3.0),
        Job.single("held", task, 2.0, observed_start_s=9.0, eligible_s=5.0),
        Job.single("unknown", task, 2.5),
    ]
    stream = JobStream(jobs, CLUSTER, Recorded())
    assert stream.observed() is None  # nothing came yet
    assert stream.load.jobs == 3
    starts, eligible, _ = stream.observed() or ([], [], [])
    np.testing.assert_array_equal(starts, [3.0, 9.0, nan])
    np.testing.assert_array_equal(eligible, [nan, 5.0, nan])


def test_outages_of_a_trace_count_from_the_beginning_of_the_run() -> None:
    away = ((0, 5.0, 20.0), (1, 20.0, 30.0), (2, 1.0, 10.0), (3, 40.0, inf))
    trace = SimpleNamespace(downtimes=lambda: away)
    stream = JobStream(iter([Job.single("a", Task("t", 1.0), 15.0)]), Cluster.of({"T4": 1}), Recorded(), trace, 10.0)  # type: ignore[arg-type]
    assert stream.outages().windows == ((0, 0.0, 10.0), (1, 10.0, 20.0), (3, 30.0, inf))


@pytest.mark.parametrize("given", [list, iter, lambda jobs: StoredJobs(JobArrays.of(jobs))])
def test_columns_are_the_jobs_that_arrive_and_the_load_that_of_the_submitted_ones(
    given: Callable[[list[Job]], Iterable[Job]],
) -> None:
    def wider(job: Job) -> Job:
        tasks = [replace(task, cpus=task.cpus + 3.0) for task in job.tasks]
        return Job.single(job.id, tasks[0], job.arrival_s)

    stream = JobStream(given(two()), CLUSTER, Recorded())
    stream.change_by([wider, wider], elastic=False)
    assert [job.tasks[0].cpus for job in stream.arrays().jobs()] == [6.0, 7.0]
    assert [job.tasks[0].cpus for job in stream] == [6.0, 7.0]
    assert [job.tasks[0].cpus for job in stream.submitted().jobs()] == [0.0, 1.0]
    assert stream.load.cpu_load == 0.25


def test_jobs_that_become_elastic_have_no_columns() -> None:
    stream = JobStream(two(), CLUSTER, Recorded())
    stream.change_by([lambda job: job], elastic=True)
    with pytest.raises(ModelError, match="elastic tasks have no columns"):
        stream.arrays()
    assert len(stream.submitted()) == 2
