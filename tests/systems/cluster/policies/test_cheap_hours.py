"""Shifting to cheap hours, against the exact optimum of a time-indexed integer program (HiGHS)."""

from __future__ import annotations

import random
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp
from support.log_reading import start_times

from dagsim.experiment.api import simulate
from dagsim.metrics.tariff import read_tariff
from dagsim.model import Job, Task

SERIES = Path(__file__).parents[3] / "metrics" / "series"
SLOT_S = 900.0
SLOTS = 160


def case(seed: int) -> list[Job]:
    """Seven jobs of one or two GPUs that arrive within six hours, and whose slack is up to ten hours."""
    rng = random.Random(seed)
    arrivals = sorted(rng.randrange(24) for _ in range(7))
    jobs = []
    for number, arrival in enumerate(arrivals):
        length, slack = rng.randrange(1, 13), rng.randrange(0, 41)
        task = Task("t", length * SLOT_S, instances=rng.choice((1, 1, 2)), gang=True, gpus=1)
        jobs.append(Job.single(f"j{number}", task, arrival * SLOT_S, deadline_s=(arrival + length + slack) * SLOT_S))
    return jobs


def shape(job: Job) -> tuple[int, int, int, int]:
    """Arrival, length and latest start in slots, and GPUs."""
    [task] = job.graph.tasks
    arrival, length = round(job.arrival_s / SLOT_S), round(task.work / SLOT_S)
    return arrival, length, round(job.deadline_s / SLOT_S) - length, task.instances


def price_of(jobs: list[Job], starts_s: dict[str, float], series: str) -> float:
    """GPU-seconds times price, over all jobs."""
    tariff = read_tariff(SERIES / f"{series}.csv").on_clock(0.0)
    return sum(
        shape(job)[3] * tariff.integral(starts_s[job.id], starts_s[job.id] + shape(job)[1] * SLOT_S) for job in jobs
    )


def least_price(jobs: list[Job], gpus: int, series: str) -> float | None:
    """The least price of any schedule in slots that meets all deadlines; None if none does."""
    tariff = read_tariff(SERIES / f"{series}.csv").on_clock(0.0)
    choices = [(job, start) for job in jobs for start in range(shape(job)[0], shape(job)[2] + 1)]
    costs = [
        shape(job)[3] * tariff.integral(start * SLOT_S, (start + shape(job)[1]) * SLOT_S) for job, start in choices
    ]
    once = np.array([[float(job is one) for one, _ in choices] for job in jobs])
    held = np.zeros((SLOTS, len(choices)))
    for column, (job, start) in enumerate(choices):
        held[start : start + shape(job)[1], column] = shape(job)[3]
    rules = [LinearConstraint(once, 1, 1), LinearConstraint(held, 0, gpus)]
    solved = milp(costs, constraints=rules, integrality=np.ones(len(choices)), bounds=Bounds(0, 1))
    return solved.fun if solved.status == 0 else None


def begun_at(jobs: list[Job], gpus: int, policy: str) -> dict[str, float]:
    schedule = simulate(jobs, {"T4": gpus}, policy).schedule
    return {job: time_s for job, (time_s,) in start_times(schedule).items()}


@pytest.mark.parametrize("series", ["prices-north", "prices-south"])
def test_with_enough_gpus_the_price_is_the_least_possible(series: str) -> None:
    for seed in range(12):
        jobs = case(seed)
        shifted = price_of(jobs, begun_at(jobs, 14, f"cheap-hours[series={SERIES / series}.csv]"), series)
        assert shifted == pytest.approx(least_price(jobs, 14, series), rel=1e-9, abs=1e-6)


@pytest.mark.parametrize(("series", "share"), [("prices-north", 0.5), ("prices-south", 0.9)])
def test_with_few_gpus_it_saves_most_of_what_the_optimum_saves_that_knows_all_jobs(series: str, share: float) -> None:
    saved, possible, waits = [], [], []
    for seed in range(40):
        jobs = case(seed)
        least = least_price(jobs, 3, series)
        begun = begun_at(jobs, 3, f"cheap-hours[series={SERIES / series}.csv]")
        at_once = price_of(jobs, begun_at(jobs, 3, "fifo-fit"), series)
        met = all(begun[job.id] <= shape(job)[2] * SLOT_S + 1e-6 for job in jobs)
        if least is None or not met:
            continue
        shifted = price_of(jobs, begun, series)
        assert shifted >= least - 1e-6
        saved.append(at_once - shifted)
        possible.append(at_once - least)
        waits.append(fmean(begun[job.id] - job.arrival_s for job in jobs))
    assert len(saved) >= 10
    assert sum(saved) >= share * sum(possible)


def test_jobs_without_slack_start_at_once() -> None:
    jobs = [Job.single(f"j{number}", Task("t", 600.0, gpus=1), 100.0 * number) for number in range(5)]
    policy = f"cheap-hours[series={SERIES / 'prices-north'}.csv]"
    assert begun_at(jobs, 8, policy) == {job.id: job.arrival_s for job in jobs}
    later = begun_at(jobs, 8, policy.replace("]", ",wait_s=14400]"))  # the cheapest hours are from 2 to 4 h
    assert set(later.values()) == {7200.0}


def test_equal_prices_do_not_delay_anything(tmp_path) -> None:
    path = tmp_path / "flat.csv"
    path.write_text("time,value\n2026-03-01T00:00Z,0.2\n2026-03-01T01:00Z,0.2\n")
    jobs = [Job.single("j", Task("t", 600.0, gpus=1), 50.0)]
    assert begun_at(jobs, 1, f"cheap-hours[series={path},wait_s=90000]") == {"j": 50.0}
