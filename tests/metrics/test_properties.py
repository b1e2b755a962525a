"""Properties of every metric over random schedules, and plain loops that fold the same log."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagsim.metrics import (
    columns,
    deadline_hit_rate,
    energy,
    finish_time_fairness,
    gpu_seconds,
    gpus_held,
    gpus_up,
    jct,
    job_energy_j,
    jobs_in_system,
    jobs_running,
    jobs_waiting,
    littles_law,
    queueing,
    running,
    summarize,
)
from dagsim.model import Kind
from dagsim.model.log import Schedule, ScheduleLog

SEEDS = st.integers(0, 2**32)
ENDS = (Kind.FINISHED, Kind.PREEMPTED, Kind.FAILED)


@given(SEEDS, st.booleans())
def test_held_idle_and_down_fill_the_capacity(random_schedule, seed, finish):
    schedule = random_schedule(seed, finish=finish)
    spent = gpu_seconds(schedule)
    horizon_s = columns(schedule).horizon_s
    np.testing.assert_array_equal(spent.held + spent.idle + spent.down, spent.gpus * horizon_s)
    assert (spent.idle >= 0).all()
    for gpu, held, down, capacity in zip(spent.types, spent.held, spent.down, spent.capacity, strict=True):
        assert gpus_held(schedule, gpu.name).integral() == held
        assert gpus_up(schedule, gpu.name).integral() == capacity - down


@given(SEEDS)
def test_gpu_seconds_are_those_of_a_plain_loop(random_schedule, seed):
    schedule = random_schedule(seed)
    unrolled = columns(schedule)
    held, busy, now = dict.fromkeys(schedule.cluster.gpus_by_type(), 0.0), [0.0] * len(schedule.cluster.nodes), 0.0

    def advance(time_s):
        length = max(0.0, min(time_s, unrolled.end_s) - max(now, unrolled.start_s))
        for node, count in zip(schedule.cluster.nodes, busy, strict=True):
            held[node.gpu.name] += count * length
        return time_s

    for record in schedule.log:
        now = advance(record.time_s)
        if record.kind == Kind.STARTED:
            busy[record.node] += record.value
        elif record.kind in ENDS:
            busy[record.node] -= record.value
    advance(unrolled.end_s)
    spent = gpu_seconds(schedule)
    assert dict(zip((gpu.name for gpu in spent.types), spent.held.tolist(), strict=True)) == held


@given(SEEDS)
def test_waiting_time_is_that_of_a_plain_loop(random_schedule, seed):
    schedule = random_schedule(seed, finish=True)
    waited, active, since = {}, {}, {}
    for record in schedule.log:
        job = record.job
        if job < 0:
            continue
        if job in since and active[job] == 0:
            waited[job] += record.time_s - since[job]
        if record.kind == Kind.ARRIVED:
            waited[job], active[job] = 0.0, 0
        active[job] += (record.kind == Kind.STARTED) - (record.kind in ENDS)
        since[job] = record.time_s
    accepted = columns(schedule).jobs.accepted
    assert queueing(schedule)[accepted].tolist() == [waited[job] for job in np.flatnonzero(accepted).tolist()]


@given(SEEDS, st.booleans())
def test_queueing_and_running_make_up_the_jct(random_schedule, seed, finish):
    schedule = random_schedule(seed, finish=finish)
    np.testing.assert_array_equal(queueing(schedule) + running(schedule), jct(schedule))


@given(SEEDS, st.booleans())
def test_littles_law_is_exact(random_schedule, seed, finish):
    integral, sum_jct_s = littles_law(random_schedule(seed, finish=finish))
    assert integral == sum_jct_s


@given(SEEDS, st.booleans())
def test_jobs_in_the_system_wait_or_run(random_schedule, seed, finish):
    schedule = random_schedule(seed, finish=finish)
    edges = np.unique(columns(schedule).phases.start_s)
    for at in (jobs_in_system, jobs_waiting, jobs_running):
        assert (at(schedule).value >= 0).all()
    together = jobs_waiting(schedule).until(edges) + jobs_running(schedule).until(edges)
    np.testing.assert_allclose(together, jobs_in_system(schedule).until(edges), rtol=1e-12)


@given(SEEDS)
def test_the_jobs_drew_the_allocated_energy(random_schedule, seed):
    schedule = random_schedule(seed)
    drawn = energy(schedule)
    assert job_energy_j(schedule).sum() == pytest.approx(drawn.allocated_kwh * 3.6e6)
    assert sum(drawn.by_type_kwh.values()) == pytest.approx(drawn.total_kwh)


@given(SEEDS)
def test_fairness_and_attainment_stay_in_their_range(random_schedule, seed):
    schedule = random_schedule(seed, finish=True)
    rho = finish_time_fairness(schedule)
    assert (rho[~np.isnan(rho)] >= 0).all()
    attained = deadline_hit_rate(schedule)
    assert np.isnan(attained) or 0 <= attained <= 1
    summary = summarize(schedule)
    assert (
        summary.jobs_arrived == 0
        or np.isnan(summary.jain_fairness_index)
        or 0 < summary.jain_fairness_index <= 1 + 1e-12
    )
    assert 0 <= summary.utilization <= summary.availability <= 1 or summary.horizon_s == 0


@given(SEEDS, st.booleans(), st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_the_numbers_of_the_jobs_do_not_matter(random_schedule, seed, finish, shuffler: random.Random):
    schedule = random_schedule(seed, finish=finish)
    before, after = summarize(schedule).to_dict(), summarize(renumbered(schedule, shuffler)).to_dict()
    assert before.keys() == after.keys()
    for key, value in before.items():
        assert after[key] == (pytest.approx(value, rel=1e-12) if isinstance(value, float) else value), key


def renumbered(schedule: Schedule, shuffler: random.Random) -> Schedule:
    """The same schedule with its jobs counted in another order."""
    order = list(range(len(schedule.jobs)))
    shuffler.shuffle(order)
    rows = schedule.log.rows().copy()
    about_jobs = rows["job"] >= 0
    rows["job"][about_jobs] = np.argsort(order)[rows["job"][about_jobs]] if order else -1
    jobs = [schedule.jobs[number] for number in order]
    return Schedule(schedule.cluster, jobs, ScheduleLog.of(rows), ended_s=schedule.ended_s)
