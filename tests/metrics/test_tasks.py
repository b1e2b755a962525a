from __future__ import annotations

import json
import math

import numpy as np
import pytest

from dagsim.experiment.schedule_files import jobs_from, jobs_text
from dagsim.metrics import columns
from dagsim.metrics.lanes import TaskColumns, task_columns
from dagsim.model import Cluster, Job, Task, TaskGraph
from dagsim.systems.cluster.kernel import ClusterKernel
from dagsim.systems.cluster.policies import POLICIES

DIAMOND = TaskGraph.of(
    [Task("a", 10.0), Task("b", 20.0), Task("c", 5.0), Task("d", 1.0)], {"b": ["a"], "c": ["a"], "d": ["b", "c"]}
)


def ran(jobs, gpus=1, **until):
    return ClusterKernel(Cluster.of({"T4": gpus}), jobs).run(POLICIES.create("fifo"), **until)


def critical_tasks(tasks: TaskColumns, job: int) -> list[int]:
    """Return the entries that determined when the job ended.

    The path leads back from the last task, from each task to the parent that it waited for.
    """
    mine = np.flatnonzero(tasks.job == job)
    if not np.isfinite(tasks.end_s[mine]).any():
        return []
    path = [int(mine[np.nanargmax(tasks.end_s[mine])])]
    while (before := int(tasks.blocker[path[-1]])) >= 0:
        path.append(before)
    return path[::-1]


def test_the_critical_path_goes_back_through_the_parents_that_ended_last():
    # one GPU (a T4 is the reference): a 0-10, b 10-30, c 30-35, d 35-36: d waits for c, and c for a, while b ran
    schedule = ran([Job("j", DIAMOND)])
    tasks = task_columns(schedule.jobs, columns(schedule))
    scale = tasks.end_s[0] / 10.0
    assert tasks.ready_s / scale == pytest.approx([0.0, 10.0, 10.0, 35.0])
    assert tasks.start_s / scale == pytest.approx([0.0, 10.0, 30.0, 35.0])
    assert tasks.end_s / scale == pytest.approx([10.0, 30.0, 35.0, 36.0])
    assert critical_tasks(tasks, 0) == [0, 2, 3]
    # with room for both it is the longer branch
    wide = ran([Job("j", DIAMOND)], gpus=2)
    assert critical_tasks(task_columns(wide.jobs, columns(wide)), 0) == [0, 1, 3]


def test_waits_and_runs_along_the_path_make_up_the_completion_time():
    jobs = [Job(f"j{n}", DIAMOND, float(n)) for n in range(5)]
    schedule = ran(jobs, gpus=2)
    cols = columns(schedule)
    tasks = task_columns(schedule.jobs, cols)
    for job in range(5):
        path = critical_tasks(tasks, job)
        spans = sum((tasks.end_s - tasks.ready_s)[path])
        assert spans == pytest.approx(cols.jobs.completed_s[job] - cols.jobs.arrival_s[job])


def test_jobs_of_one_task_have_no_entries_and_what_never_ran_is_not_known():
    schedule = ran([Job.single("one", Task("t", 1.0)), Job("j", DIAMOND)])
    cut = schedule.copy()
    cut.log = type(cut.log)()
    for row in schedule.log.rows()[:6].tolist():  # both arrive, the first runs, a starts
        cut.log.append(row)
    tasks = task_columns(cut.jobs, columns(cut))
    assert tasks.first.tolist() == [-1, 0]
    assert tasks.task.tolist() == [0, 1, 2, 3]
    assert np.isnan(tasks.start_s[1:]).all()
    assert math.isnan(tasks.ready_s[3])
    assert critical_tasks(tasks, 0) == []


def test_graphs_are_written_once_and_read_back():
    schedule = ran([Job("j", DIAMOND), Job("k", DIAMOND, 1.0), Job.single("one", Task("t", 1.0), 2.0)])
    facts = json.loads(jobs_text(schedule))
    assert facts["graphs"] == {"parents": [[[], [0], [0], [1, 2]], [[]]], "of": [0, 0, 1]}
    assert jobs_from(facts) == schedule.jobs


def test_jobs_of_single_tasks_are_written_as_ever():
    schedule = ran([Job.single("one", Task("t", 1.0))])
    text = jobs_text(schedule)
    assert "graphs" not in text
    assert "parents" not in text


def test_an_older_folder_says_nothing_of_graphs():
    facts = json.loads(jobs_text(ran([Job("j", DIAMOND), Job.single("one", Task("t", 1.0))])))
    del facts["graphs"]
    assert [job.parents for job in jobs_from(facts)] == [(), ((),)]
