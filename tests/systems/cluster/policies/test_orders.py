"""Textbook and published answers of the orders that do not preempt."""

from __future__ import annotations

from statistics import mean

import pytest

from dagsim.model import Job, Task

STALLINGS = ((0, 3), (2, 6), (4, 4), (6, 5), (8, 2))
"""Stallings, Operating Systems, table 9.4: processes A..E, arrival and service."""


def turnaround(ends, jobs):
    return [end - job[0] for end, job in zip(ends, jobs, strict=True)]


@pytest.mark.parametrize(("bursts", "wait"), [((24, 3, 3), 17), ((3, 3, 24), 3), ((6, 8, 7, 3), 10.25)])
def test_fifo_waits_of_silberschatz(run, rows, ends, bursts, wait):
    # 24, 3, 3: (0 + 24 + 27) / 3; reversed: (0 + 3 + 6) / 3; 6, 8, 7, 3: (0 + 6 + 14 + 21) / 4
    done = ends(run("fifo", rows(*((0, burst) for burst in bursts))))
    assert mean(end - burst for end, burst in zip(done, bursts, strict=True)) == pytest.approx(wait)


def test_sjf_waits_of_silberschatz(run, rows, ends, order):
    # 4 (3), 1 (6), 3 (7), 2 (8): waits 3, 16, 9, 0
    schedule = run("sjf", rows((0, 6), (0, 8), (0, 7), (0, 3)))
    assert order(schedule) == ["4", "1", "3", "2"]
    assert mean(end - burst for end, burst in zip(ends(schedule), (6, 8, 7, 3), strict=True)) == 7


@pytest.mark.parametrize(("spec", "wait"), [("srtf", 6.5), ("sjf", 7.75), ("fifo", 8.75)])
def test_waits_with_arrivals_of_silberschatz(run, rows, ends, spec, wait):
    # (0,8) (1,4) (2,9) (3,5). SRTF: 1 0-1, 2 1-5, 4 5-10, 1 10-17, 3 17-26: waits 9, 0, 15, 2
    jobs = ((0, 8), (1, 4), (2, 9), (3, 5))
    done = ends(run(spec, rows(*jobs)))
    assert mean(end - arrival - burst for end, (arrival, burst) in zip(done, jobs, strict=True)) == wait


def test_srtf_runs_in_the_order_of_silberschatz(run, rows, order):
    assert order(run("srtf", rows((0, 8), (1, 4), (2, 9), (3, 5)))) == ["1", "2", "4", "1", "3"]


@pytest.mark.parametrize(("spec", "expected"), [("fifo", 8.6), ("sjf", 7.6), ("srtf", 7.2)])
def test_mean_turnaround_of_stallings(run, rows, ends, spec, expected):
    # FCFS ends 3, 9, 13, 18, 20; SPN 3, 9, 15, 20, 11; SRT 3, 15, 8, 20, 10
    done = ends(run(spec, rows(*STALLINGS)))
    assert mean(turnaround(done, STALLINGS)) == pytest.approx(expected)


def test_wspt_minimises_the_weighted_sum_of_ends(run, order, ends):
    # p/w: A 3, B 1, C 1. B 0-1, C 1-5, A 5-8: 1 x 1 + 4 x 5 + 1 x 8 = 29
    table = (("A", 3, 1), ("B", 1, 1), ("C", 4, 4))
    jobs = [Job.single(name, Task("t", work), weight=weight) for name, work, weight in table]
    schedule = run("wspt", jobs)
    assert order(schedule) == ["B", "C", "A"]
    assert sum(job.weight * end for job, end in zip(jobs, ends(schedule), strict=True)) == 29


@pytest.mark.parametrize(
    ("gpus", "seconds", "least", "lpt"),
    [
        (2, (3, 3, 2, 2, 2), 6, 7),
        (3, (5, 5, 4, 4, 3, 3, 3), 9, 11),
        (4, (7, 7, 6, 6, 5, 5, 4, 4, 4), 12, 15),
    ],
)
def test_lpt_reaches_its_bound(run, rows, ends, gpus, seconds, least, lpt):
    # Graham 1969: 4/3 - 1/(3m) of the least makespan: 7/6, 11/9, 15/12
    assert max(ends(run("ljf", rows(*((0, length) for length in seconds)), gpus))) == lpt
    assert lpt / least == pytest.approx(4 / 3 - 1 / (3 * gpus))


def test_saf_prefers_the_smallest_gpu_seconds(run, rows, order):
    # areas 2 x 3 = 6, 1 x 5 = 5, 2 x 2 = 4 on 2 GPUs
    assert order(run("saf", rows((0, 3, 2), (0, 5, 1), (0, 2, 2)), 2)) == ["3", "2", "1"]


def test_deadlines_and_slack_disagree(run, order):
    # deadlines 10, 12, none; slack 10 - 1 = 9, 12 - 8 = 4, none
    jobs = [
        Job.single("near", Task("t", 1), deadline_s=10),
        Job.single("long", Task("t", 8), deadline_s=12),
        Job.single("free", Task("t", 1)),
    ]
    assert order(run("edf", jobs)) == ["near", "long", "free"]
    assert order(run("llf", jobs)) == ["long", "near", "free"]


@pytest.mark.parametrize("spec", ["f1", "f2", "f3", "f4"])
def test_fitted_orders_weigh_arrival_most(run, rows, order, spec):
    # r, n, s: (100, 4, 10), (10, 4, 11), (10000, 1, 20), behind a job that holds all GPUs until 50.
    # F1: 8 + 870, 4 + 906.0, 4 + 1131.9; F2: 40 + 25600, 12.6 + 26659.6, 100 + 33306.4
    assert order(run(spec, rows((0, 50, 4), (10, 100, 4), (11, 10, 4), (20, 10_000, 1)), 4)) == ["1", "2", "3", "4"]


def test_fitted_order_f1_turns_for_much_shorter_ones_at_once(run, rows, order):
    # arrivals 1000 and 1001 s, r n: F1 = 2 x 8 + 2610 = 2626 and 0 x 8 + 2610.38: the later one first
    jobs = rows((0, 2000, 8), (1000, 100, 8), (1001, 1, 8))
    assert order(run("f1", jobs, 8)) == ["1", "3", "2"]
