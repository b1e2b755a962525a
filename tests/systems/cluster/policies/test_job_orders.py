"""Orders over whole jobs."""

from __future__ import annotations

from support.log_reading import rows_of

from dagsim.model import Job, Task
from dagsim.model.log import Kind


def started(schedule):
    return [(row.job, row.task + 1) for row in rows_of(schedule.log, Kind.STARTED)]


def test_sjf_cp_takes_the_smaller_job_and_inside_it_the_longest_path(run, dag):
    # job 0: 1 + 2 + 4 = 7 s; job 1: 1 + 2 + 3 = 6 s, of which 1 -> 3 is the longer path: 4 s against 2 s
    jobs = [dag((1, 2, 4)), dag((1, 2, 3), ((1, 3),))]
    assert started(run("sjf-cp", jobs)) == [(1, 1), (1, 3), (1, 2), (0, 3), (0, 2), (0, 1)]


def test_scpt_goes_by_the_path_not_by_the_work(run, dag):
    # paths 4 and 3, work 4 and 9
    jobs = [dag((2, 2), ((1, 2),)), dag((3, 3, 3))]
    assert started(run("scpt", jobs))[:3] == [(1, 1), (1, 2), (1, 3)]
    assert started(run("srpt-work", jobs))[:2] == [(0, 1), (0, 2)]


def test_srpt_work_ranks_a_job_again_when_its_tasks_end(run, dag):
    # 2 GPUs. work 12 (10 + 2) and 9 (5 + 4): job 1 takes both. At 4 its task 2 is done: 12 against 5 left, job 0 starts
    # task 1 (longest path first) at 4; at 5 job 1 is gone and task 2 starts
    jobs = [dag((10, 2)), dag((5, 4))]
    assert started(run("srpt-work", jobs, 2)) == [(1, 1), (1, 2), (0, 1), (0, 2)]


def test_srpt_work_counts_every_gpu_and_instance(run):
    # Job 0: 2 x 10 s on 2 GPUs each, 40 GPU-seconds; job 1: 20 s on one GPU. Job 1 first, though job 0 is the shorter.
    wide = Job.single("0", Task("t", 10, instances=2, gpus=2))
    narrow = Job.single("1", Task("t", 20, gpus=1))
    assert started(run("srpt-work", [wide, narrow], 4))[0] == (1, 1)


def test_a_job_overtakes_once_little_of_it_is_left(run, dag):
    # One GPU. Job 0 has 3 + 3 = 6 s, job 1 5 s in parts of 1 and 4 s. Job 1 first: its 4 s, then its 1 s, then job 0.
    assert started(run("srpt-work", [dag((3, 3)), dag((1, 4))])) == [(1, 2), (1, 1), (0, 1), (0, 2)]


def test_what_is_left_of_a_wide_job_shrinks_as_its_tasks_end(run, dag, ends):
    # One GPU. Job 0 has 300 tasks of 1 s; 10 are done when job 1 comes with 295 s: 290 s are left, and job 0 goes on.
    late = Job.single("1", Task("t", 295), 10.0)
    assert ends(run("srpt-work", [dag([1] * 300), late])) == [300, 595]
