"""Forecasts of starts: their parts against formulas, and back-tests against knowledge of the future."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from families.forecast.queue_cases import NOW_S, as_listed, queue_words, queued
from support.command_line import fine, invoke, json_of
from support.process_states import alive, children

from dagsim.errors import TraceError
from dagsim.families.forecast.backtest import Backtest, Forecasts, instants_of, played
from dagsim.families.forecast.calibration import Outcomes, calibrated, censoring_weights, kaplan_meier, pooled
from dagsim.families.forecast.future_jobs import Future
from dagsim.families.forecast.futures import Player, starts_by
from dagsim.families.forecast.job_log import JobLog, read_job_log
from dagsim.families.forecast.live import expected
from dagsim.families.forecast.members import Forecaster, KnownPast
from dagsim.families.forecast.past_waits import History, binomial_quantile
from dagsim.families.forecast.queue_rows import QueueLog, read_queue_log, rows_of
from dagsim.families.forecast.queue_state import QueueState
from dagsim.families.forecast.run_times import RunTimes, classes_of, run_time_classes, run_times_at
from dagsim.families.forecast.scores import CEILING, LEVELS, crps, quantiles_of, score
from dagsim.model import Cluster, Demand, Node, NodePartition, NodeReservation, QueueNode, QueueTree
from dagsim.systems.cluster.models.estimates import Estimates
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.traces import TraceOptions, reader
from dagsim.traces.source import Source
from dagsim.workload.array_tools import objects
from dagsim.workload.arrays import JobArrays, Labels, TaskKind

HOUR_S = 3600.0
CORES = 16


def some_jobs(count: int = 300, seed: int = 1) -> JobArrays:
    """Jobs of six users on a cluster of 16 cores, more than it can start at once; they use a part of their limits."""
    rng = np.random.default_rng(seed)
    limit_s = rng.choice([1800.0, 3600.0, 14400.0], count)
    users = rng.integers(6, size=count)
    return JobArrays.of_single_tasks(
        objects([str(number) for number in range(count)]),
        np.cumsum(rng.exponential(420.0, count)),
        "job",
        work=np.maximum(1.0, np.round(limit_s * rng.uniform(0.05, 1.0, count) ** 2)),
        estimate=limit_s,
        instances=rng.choice([1, 2, 4, 8], count),
        kind=np.zeros(count, np.int32),
        kinds=(TaskKind(Demand(0.0, 1.0, 0.0, None), gang=True),),
        user=Labels.numbered([f"user{number}" for number in users]),
        account=Labels.numbered([f"account{number % 2}" for number in users]),
        partition=Labels.numbered(["all"] * count),
    )


@pytest.fixture(scope="module")
def scenario() -> ClusterScenario:
    return ClusterScenario(
        Cluster((Node("n", None, 0, CORES, 64.0),)), (), runtime=Recorded(), estimates=Estimates("predicted")
    )


@pytest.fixture(scope="module")
def easy(scenario: ClusterScenario) -> JobLog:
    """A log whose starts are those of EASY."""
    jobs = some_jobs()
    return JobLog.of(jobs, 1e9, starts_by(scenario, "easy", jobs))


def test_what_runs_into_a_reservation_goes_on(scenario: ClusterScenario, easy: JobLog) -> None:
    """The node is reserved from a minute after the instant; jobs that run then stay, and nothing else starts before."""
    t = float(easy.submit_s[150])
    reserved = replace(scenario, queues=QueueTree(reservations=(NodeReservation("r", ("n",), t + 60.0, t + 7200.0),)))
    state = QueueState.at(easy, t)
    assert len(state.running)
    player = Player(reserved, "easy", easy)
    (starts,) = player.starts(state, Future.LIMITS, 1, RunTimes(), np.random.default_rng(0))
    assert starts.min() >= 7200.0
    assert np.isfinite(starts).all()


@pytest.fixture(scope="module")
def backtest(scenario: ClusterScenario, easy: JobLog) -> Backtest:
    """A back-test whose policy is known."""
    return backtest_of(easy, Forecaster(Player(scenario, "easy", easy), 5), 3600.0)


@pytest.fixture(scope="module")
def site_a(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[ClusterScenario, JobLog]:
    """A real site and its accounting."""
    from dagsim.config.schema import load_config
    from dagsim.families.site.cluster_file import import_site
    from dagsim.systems.cluster.scenario import cluster_scenario_of

    file, folder = tmp_path_factory.mktemp("site") / "site.yaml", data / "golden/slurm/site-A"
    import_site([folder], file)
    site = replace(cluster_scenario_of(load_config(file)), runtime=Recorded())
    return site, read_job_log(folder, TraceOptions())


def backtest_of(log: JobLog, forecaster: Forecaster, every_s: float, until_s: float = np.inf) -> Backtest:
    instants = instants_of(log, None, -np.inf, until_s, every_s)
    return Backtest(
        Forecasts.joined([forecasts for forecasts in played(log, None, forecaster, instants) if len(forecasts.t)]), log
    )


def test_crps_is_the_pinball_loss_and_the_error_of_a_point() -> None:
    y = np.array([0.0, 2.0, 5.0])
    points = np.repeat([[1.0], [2.0], [3.0]], 19, axis=1)
    assert crps(points, y) == pytest.approx([1.0, 0.0, 2.0])
    levels = LEVELS[None, :]  # the uniform distribution on [0, 1]: its CRPS at y is 1/3 - y + y^2
    exact = 1 / 3 - 0.3 + 0.09
    assert crps(levels, np.array([0.3]))[0] == pytest.approx(exact, abs=0.01)


def test_scores_with_weights() -> None:
    quantiles = np.repeat([[0.0], [0.0]], 19, axis=1)
    quantiles[0, -1] = 1.0
    whole = score(quantiles, np.array([0.5, 3.0]), np.array([3.0, 1.0]))
    assert (whole.coverage_90, whole.median_abs_log) == (0.75, 0.5)
    nothing = score(quantiles[:0], np.array([]))
    assert (nothing.n, len(nothing.within)) == (0, len(whole.within))
    assert np.isnan([nothing.coverage_90, nothing.crps_log, *nothing.within]).all()


def test_quantiles_are_order_statistics() -> None:
    sample = np.arange(1.0, 20.0)[:, None]
    assert quantiles_of(sample)[0].tolist() == sample[:, 0].tolist()  # of 19 values, one for each level


def test_kaplan_meier_by_hand() -> None:
    """The example of many textbooks: 6-MP against leukaemia, Freireich et al. 1963."""
    weeks = np.array([6, 6, 6, 7, 10, 13, 16, 22, 23, 6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35], float)
    event = np.array([True] * 9 + [False] * 12)
    values, function = kaplan_meier(weeks, event)
    survival = dict(zip(values.tolist(), 1 - function, strict=True))
    textbook = {6: 0.857, 7: 0.807, 10: 0.753, 13: 0.690, 16: 0.627, 22: 0.538, 23: 0.448}
    assert {week: round(share, 3) for week, share in survival.items()} == pytest.approx(textbook, abs=1e-3)


@pytest.mark.parametrize("censored", [False, True])
def test_calibration_finds_bias_and_width(censored: bool) -> None:
    """Forecasts that are a factor e^0.7 early and half as wide as the truth; a third of the waits is seen too late."""
    rng = np.random.default_rng(0)
    n = 3000
    t = np.repeat(np.arange(n // 20) * 600.0, 20)
    y = rng.normal(6.0, 1.0, n)
    nominal = 6.0 - 0.7 + 0.5 * np.sqrt(2) * np.array([_erf_inverse(2 * level - 1) for level in LEVELS])
    waits = np.expm1(y)
    started = rng.random(n) > (0.3 if censored else 0.0)
    seen_s = np.where(started, t + waits, t + waits * rng.random(n))
    result = calibrated(
        Outcomes(t, np.arange(n), seen_s, started), np.repeat(nominal[None], n, axis=0), [np.zeros(n, int)]
    )
    late = np.arange(n) > 1500
    inside = np.mean((y >= result[:, 0]) & (y <= result[:, -1]), where=late)
    assert inside == pytest.approx(0.9, abs=0.03)
    assert np.median(result[late, 9]) == pytest.approx(6.0, abs=0.2)
    assert (result[:20] == nominal).all()  # nothing is known yet


def _erf_inverse(x: float) -> float:
    from scipy.special import erfinv

    return float(erfinv(x))


def test_levels_beyond_the_residuals_keep_their_distances() -> None:
    """Of 60 waits 20 have ended, the others go on: their start is not in sight, and the interval stays wide."""
    t = np.concatenate([np.zeros(60), [1000.0]])
    seen_s = np.concatenate([np.linspace(10.0, 900.0, 20), np.full(41, 1e9)])
    nominal = np.repeat(np.linspace(3.0, 6.0, 19)[None], 61, axis=0)
    outcomes = Outcomes(t, np.arange(61), seen_s, np.ones(61, bool))
    (quantiles,) = calibrated(outcomes, nominal, [np.zeros(61, int)])[60:]
    assert quantiles[18] - quantiles[9] == pytest.approx(1.5, abs=0.01)
    assert quantiles[9] > np.log1p(900.0)


def test_calibration_knows_only_outcomes_of_its_instant() -> None:
    rng = np.random.default_rng(0)
    t = np.repeat(np.arange(50) * 600.0, 10)
    seen_s = t + rng.exponential(3000.0, 500)
    quantiles = np.sort(rng.normal(6, 1, (500, 19)), axis=1)
    outcomes = Outcomes(t, np.arange(500), seen_s, np.ones(500, bool))
    now = t[300]
    spoilt = outcomes._replace(
        seen_s=np.where(seen_s > now, now + rng.exponential(9e4, 500), seen_s),
        started=(seen_s <= now) | (rng.random(500) < 0.5),
    )
    rows, classes = t <= now, [np.zeros(500, int)]
    for one, other in (
        (calibrated(outcomes, quantiles, classes), calibrated(spoilt, quantiles, classes)),
        (pooled(outcomes, [quantiles, quantiles + 1], 600.0), pooled(spoilt, [quantiles, quantiles + 1], 600.0)),
    ):
        assert (one[rows] == other[rows]).all()


def test_the_pool_leaves_out_a_member_that_is_wrong() -> None:
    rng = np.random.default_rng(0)
    t = np.repeat(np.arange(100) * 600.0, 5)
    waits = rng.exponential(1000.0, 500)
    good = np.repeat(np.quantile(np.log1p(waits), LEVELS)[None], 500, axis=0)
    outcomes = Outcomes(t, np.arange(500), t + waits, np.ones(500, bool))
    weights = pooled(outcomes, [good, np.full((500, 19), CEILING)], 600.0)
    assert (weights[:50] == (good[:50] + CEILING) / 2).all()
    assert np.abs(weights[-50:] - good[-50:]).max() < 0.01 * CEILING


def test_many_forecasts_of_one_job_weigh_little() -> None:
    """A hundred forecasts of one job weigh as ten of others, in the distribution of residuals and in the pool."""
    values, function = kaplan_meier(np.array([1.0, 2.0, 2.0, 3.0]), np.ones(4, bool), np.array([1.0, 0.5, 0.5, 1.0]))
    assert function[values == 2.0].max() == pytest.approx(2 / 3)
    assert function[values == 3.0] == pytest.approx(1.0)
    n = 100
    early, late = (np.repeat([[level] * 19], 2 * n + 1, axis=0) for level in (2.0, 4.0))
    y = np.concatenate([np.full(n, 2.0), np.full(n, 4.0), [3.0]])
    job = np.concatenate([np.arange(n), np.full(n, n), [n + 1]])  # a hundred jobs, and a hundred forecasts of one
    t = np.concatenate([np.zeros(2 * n), [1e4]])
    outcomes = Outcomes(t, job, t + np.expm1(y), np.ones(2 * n + 1, bool))
    share = 1 / (1 + 10**4)  # the weight of the member whose loss is ten times as large
    assert pooled(outcomes, [early, late], 3600.0)[-1, 0] == pytest.approx(2.0 + 2.0 * share)


def test_bounds_of_qbets() -> None:
    """59 waits are the fewest whose largest is a bound of the .95 quantile with confidence .95 (Nurmi et al. 2007)."""
    from scipy.stats import binom

    for n in (5, 59, 200):
        for level in (0.05, 0.5, 0.95):
            assert binomial_quantile(0.95, n, level) == binom.ppf(0.95, n, level)
    assert 1 - 0.95**59 >= 0.95 > 1 - 0.95**58
    history = History(bounds=True)
    for _ in range(500):
        history.add("q", 60.0)
    for _ in range(3):
        history.add("q", 6000.0)  # the third is a change point
    assert len(history._waits["q"]) == 60


def test_history_is_conditional_on_age() -> None:
    history = History()
    for wait_s in range(1, 101):
        history.add("a", float(wait_s))
    left = np.expm1(history.quantiles("a", 50.0))
    assert left[9] == pytest.approx(26.0)  # of the waits 51 .. 100, the 26th
    assert np.expm1(history.quantiles("nobody", 50.0))[9] == pytest.approx(26.0)


def test_run_times_given_the_time_elapsed() -> None:
    times = RunTimes()
    classes = classes_of("ada", 3600.0, "")
    for _ in range(500):
        times.add(classes, 0.1)
    for _ in range(100):
        times.add(classes, 0.8)
    rng = np.random.default_rng(0)
    assert np.mean(times.draw(rng.random(4000), classes) == 0.1) == pytest.approx(0.75, abs=0.05)
    assert np.mean(times.draw(rng.random(4000), classes, 0.5) == 0.8) > 0.9
    assert times.draw(rng.random(2), classes, 1.5).tolist() == [1.51, 1.51]
    values, weights = times.table(classes)
    assert weights.sum() == pytest.approx(1.0)
    assert len(values) == 12 + 400 * 5  # the prior, and the last 400 of each class


def test_an_estimate_of_slurm_is_its_forecast_and_the_median_of_all_stands_for_the_others(
    scenario: ClusterScenario, easy: JobLog
) -> None:
    t = float(easy.submit_s[150])
    rows = rows_of(QueueState.at(easy, t), None)
    assert len(rows) > 3
    waits_s = np.full(len(rows), np.nan)
    waits_s[:3] = 10.0, 500.0, 20.0
    past = KnownPast(easy)
    past.move(t)
    forecaster = Forecaster(Player(scenario, "easy", easy), 1)
    assert "slurm" not in forecaster.from_waits(rows, past)
    forecasts = forecaster.from_waits(replace(rows, estimate_s=t + waits_s), past)["slurm"]
    assert forecasts.shape == (len(rows), len(LEVELS))
    expected_s = np.where(np.isnan(waits_s), 20.0, waits_s)
    assert np.expm1(forecasts) == pytest.approx(np.repeat(expected_s[:, None], len(LEVELS), axis=1))


def test_the_oracle_is_exact(scenario: ClusterScenario, easy: JobLog) -> None:
    forecast = backtest_of(easy, Forecaster(Player(scenario, "easy", easy), oracle=True), 3600.0)
    answer = forecast.to_dict()
    assert answer["n"] > 100
    assert answer["crps_log"] == answer["median_abs_log"] == 0.0


def test_the_first_futures_of_many_are_those_of_few(scenario: ClusterScenario, easy: JobLog) -> None:
    """An early answer is the one that as many futures give, whatever the clock; and so are forecasts of some jobs."""
    t = float(easy.submit_s[150])
    many, few = (Forecaster(Player(scenario, "easy", easy), count, baselines=False) for count in (5, 3))
    early, last = expected(easy, many, t, 0, early=lambda count: count == 3)
    (alone,) = expected(easy, few, t, 0)
    assert early == alone
    assert (early.futures, last.futures) == (3, 5)
    assert early.rows != last.rows
    chosen = {row.job for row in last.rows[::2]}
    (some,) = expected(easy, many, t, 0, jobs=chosen)
    assert some.rows == last.rows[::2]
    past = KnownPast(easy)
    past.move(t)
    rows = rows_of(QueueState.at(easy, t), None)
    waits = [
        list(forecaster.waits(Future.ARRIVALS, rows, past, 0))
        for forecaster in (replace(many, arrivals=3), replace(few, arrivals=1))
    ]
    assert np.array_equal(waits[0][0], waits[1][0])


def test_a_known_policy_beats_every_baseline(backtest: Backtest) -> None:
    answer = backtest.to_dict()
    assert 0.8 <= answer["coverage_90"] <= 0.98
    for name, entry in answer["baselines"].items():
        assert answer["crps_log"] < entry["raw"]["crps_log"], name
        assert answer["crps_log"] < entry["calibrated"]["crps_log"] + 0.05, name
    assert answer["once"]["n"] == answer["n"]
    assert [level for level, _ in answer["reliability"]] == LEVELS.tolist()


def test_cancelled_waits_are_made_up_for(backtest: Backtest, easy: JobLog) -> None:
    """If users lose patience at times that have nothing to do with the starts, long waits are rare among the starts;
    weights give the mean of all waits back.
    """
    rng = np.random.default_rng(0)
    waits_s, patience_s = rng.exponential(1.0, 20_000), rng.exponential(2.0, 20_000)
    started = waits_s <= patience_s
    weights = censoring_weights(np.minimum(waits_s, patience_s), started)
    assert waits_s[started].mean() < 0.75
    assert np.average(np.log1p(waits_s), weights=weights) == pytest.approx(np.log1p(waits_s).mean(), abs=0.02)
    rows = backtest.forecasts
    gone = replace(rows, started=rows.started & (np.arange(len(rows.t)) % 4 > 0))
    answer = Backtest(gone, easy).to_dict()
    assert answer["never_started"] > 0.2 * answer["n"]
    assert answer["censoring_weighted"]["n"] == answer["n"]
    assert "censoring_weighted" not in backtest.to_dict()


def spoilt(log: JobLog, t: float, seed: int = 5) -> JobLog:
    """The log with noise in place of everything after ``t``: later submissions change, and so does what becomes of
    jobs of which nothing was known yet.
    """
    rng = np.random.default_rng(seed)
    n = len(log)

    def noise(times_s: np.ndarray) -> np.ndarray:
        later = t + rng.uniform(1.0, 1e5, n)
        return np.where(times_s <= t, times_s, np.where(rng.random(n) < 0.8, later, np.nan))

    n_known = int(np.searchsorted(log.submit_s, t, "right"))
    order = np.concatenate([np.arange(n_known), n_known + rng.permutation(n - n_known)])
    jobs = log.jobs.chosen(order)
    arrival_s = np.concatenate([log.submit_s[:n_known], np.sort(t + rng.uniform(1.0, 1e5, n - n_known))])
    jobs = replace(jobs, arrival_s=arrival_s)
    over = (log.end_s <= t)[order]
    start_s, end_s = log.start_s[order], log.end_s[order]
    later_end_s = noise(end_s)
    started, nodes = start_s <= t, log.nodes.chosen(order).tolist()
    return replace(
        log,
        jobs=jobs,
        limit_s=log.limit_s[order],
        start_s=np.where(over | started, start_s, noise(start_s)),
        end_s=np.where(over, end_s, later_end_s),
        eligible_s=noise(log.eligible_s[order]),
        begin_s=log.begin_s[order],
        parents=[log.parents[job] for job in order],
        nodes=Labels.numbered([names if begun else ("nowhere",) for names, begun in zip(nodes, started, strict=True)]),
        array=log.array[order],
        ends_s=t + 1e5,
        user=[log.user[job] for job in order],
        account=[log.account[job] for job in order],
        partition=[log.partition[job] for job in order],
    )


def test_nothing_after_the_instant_matters(scenario: ClusterScenario, easy: JobLog) -> None:
    """Noise in place of the future: raw, calibrated and pooled forecasts up to the instant are equal, bit by bit."""
    t = float(easy.submit_s[200])
    log_ = spoilt(easy, t)
    assert not np.array_equal(easy.start_s, log_.start_s, equal_nan=True)
    one, other = (
        backtest_of(log, Forecaster(Player(scenario, "easy", log), 2, 1), 5400.0, until_s=t) for log in (easy, log_)
    )
    assert len(one.forecast) > 50
    for name, quantiles in one.raw.items():
        assert np.array_equal(quantiles, other.raw[name]), name
    for name, quantiles in one.calibrated.items():
        assert np.array_equal(quantiles, other.calibrated[name]), name
    assert np.array_equal(one.forecast, other.forecast)


@pytest.mark.family("slurm")
@pytest.mark.data
def test_nothing_after_the_instant_matters_on_a_real_site(data: Path, site_a: tuple[ClusterScenario, JobLog]) -> None:
    site, log = site_a
    queue = read_queue_log(data / "golden/slurm/site-A/squeue.tsv.gz")
    t = float(queue.times[queue.latest(float(log.submit_s[0]) + 3 * HOUR_S)])
    place = queue.latest(t)
    past = QueueLog(queue.times[: place + 1], queue.listings[: place + 1])
    raws = []
    for job_log, listing in ((log, queue), (spoilt(log, t), past)):
        player = Player(site, "slurm-multifactor", job_log)
        (forecasts,) = played(job_log, listing, Forecaster(player, 2, 1), [t])
        raws.append(forecasts)
    assert len(raws[0].t) > 5
    for name, quantiles in raws[0].raw.items():
        assert np.array_equal(quantiles, raws[1].raw[name]), name


@pytest.mark.family("slurm")
@pytest.mark.data
def test_usage_is_that_of_sshare(data: Path, site_a: tuple[ClusterScenario, JobLog]) -> None:
    """What Slurm had charged each user after ten hours, running jobs included: within 4%."""
    from dagsim.families.slurm.scheduler.multifactor import SlurmMultifactor

    site, log_ = site_a
    assert site.queues is not None
    snapshot = data / "golden/slurm/site-A/snap/036420"
    t = float((snapshot / "epoch").read_text().split()[0])
    until_now = replace(log_, end_s=np.where(log_.start_s <= t, np.fmin(log_.end_s, t), log_.end_s))
    usage = SlurmMultifactor().past_usage(until_now, site.cluster, site.queues).at(QueueState.at(until_now, t), t)
    rows = [[cell.strip() for cell in line.split("|")] for line in (snapshot / "sshare.txt").read_text().splitlines()]
    charged = {f"{row[0]}/{row[1]}": float(row[4]) for row in rows[1:] if row[1] and row[0] != "root"}
    assert len(charged) == 12
    for name, seconds in charged.items():
        assert usage[name] == pytest.approx(seconds, rel=0.04), name


@pytest.mark.family("slurm")
def test_usage_counts_what_ended_jobs_have_used(scenario: ClusterScenario, easy: JobLog) -> None:
    """Without decay it is their core-seconds, or what the log says that the site charges. The simulation charges
    those that run since their own starts, which are in its past.
    """
    from dagsim.families.slurm.scheduler.multifactor import SlurmMultifactor

    t = float(easy.submit_s[150])
    past_usage = SlurmMultifactor(half_life_s=0.0).past_usage
    queues = QueueTree(partitions=(NodePartition("all", billing={"cpus": 1.0}),))
    ran_s = easy.end_s - easy.start_s
    assert len(QueueState.at(easy, t).running)
    cores_s = float(np.sum((easy.jobs.instances * ran_s)[easy.end_s <= t]))
    assert sum(past_usage(easy, scenario.cluster, queues).at(QueueState.at(easy, t), t).values()) == pytest.approx(
        cores_s
    )
    charged = replace(easy, billing=3.0 * easy.jobs.instances)
    usage = past_usage(charged, scenario.cluster, queues).at(QueueState.at(charged, t), t)
    assert sum(usage.values()) == pytest.approx(3 * cores_s)


def forecast_starts(scenario: ClusterScenario, policy: str, log_: JobLog, state: QueueState, count: int) -> np.ndarray:
    """The starts of the waiting jobs in some futures, (futures, n)."""
    return np.array(
        list(Player(scenario, policy, log_).starts(state, Future.RUNS, count, RunTimes(), np.random.default_rng(0)))
    )


@pytest.mark.family("slurm")
def test_on_an_idle_cluster_a_job_waits_for_the_next_cycle_of_the_policy(
    scenario: ClusterScenario, easy: JobLog
) -> None:
    """The snapshot does not show when the last cycle began, so the wait is uniform over the time between two."""
    from scipy.stats import kstest

    t = float(easy.submit_s[150])
    state = QueueState(easy, t, np.array([], int), np.array([150]))
    site = replace(scenario, queues=QueueTree(scheduler={"bf_interval_s": 60.0}))
    waits_s = forecast_starts(site, "slurm-multifactor", easy, state, 200)[:, 0]
    assert kstest(waits_s / 60.0, "uniform").pvalue > 0.01
    by_name = forecast_starts(scenario, "slurm-multifactor[bf_interval_s=60]", easy, state, 200)[:, 0]
    assert (by_name == waits_s).all()
    usual = forecast_starts(site, "slurm-multifactor[bf_interval_s=30]", easy, state, 200)[:, 0]
    assert usual == pytest.approx(waits_s / 2)
    for policy in ("easy", "fifo", "slurm-multifactor[backfill=false]"):
        assert not forecast_starts(site, policy, easy, state, 3).any(), policy


@pytest.mark.family("slurm")
@pytest.mark.parametrize(
    "settings",
    [
        {"bf_interval_s": 60.0},
        {"fair_share": 1000.0, "age": 0.0, "half_life_s": 3600.0},
        {"fair_share": 1000.0, "age": 0.0, "calc_period_s": 7200.0, "calc_phase_s": 5000.0},
    ],
)
def test_parameters_in_the_name_of_a_policy_and_settings_of_the_site_give_the_same_forecast(
    scenario: ClusterScenario, easy: JobLog, settings: dict[str, float]
) -> None:
    """The parameters of the policy decide, also about its past: the settings of the site do not, if it has any."""
    t = float(easy.submit_s[150])
    state = QueueState.at(easy, t)
    words = ",".join(f"{name}={value:g}" for name, value in settings.items())
    parts = (NodePartition("all", billing={"cpus": 1.0}),)
    own, others, none = (
        replace(scenario, queues=QueueTree(partitions=parts, scheduler=scheduler))
        for scheduler in (settings, {"bf_interval_s": 7.0, "half_life_s": 60.0}, {})
    )
    of_site = forecast_starts(own, "slurm-multifactor", easy, state, 2)
    for site in (others, none):
        assert (forecast_starts(site, f"slurm-multifactor[{words}]", easy, state, 2) == of_site).all()
    assert (forecast_starts(none, "slurm-multifactor", easy, state, 2) != of_site).any()


@pytest.mark.family("kubernetes")
def test_a_job_that_never_starts_holds_up_a_strict_queue_at_past_times_too(scenario: ClusterScenario) -> None:
    """Kueue decides about it in every cycle, so the jobs behind it wait in a back-test as they do in a forecast."""
    jobs = replace(some_jobs(3), arrival_s=np.arange(3.0), instances=np.array([1, 4, 1]))
    jobs = replace(jobs, tenant=Labels.numbered(["lab"] * 3))
    log_ = JobLog.of(jobs, 1e9, np.array([0.0, np.nan, np.nan]))
    strict = replace(scenario, queues=QueueTree((QueueNode("lab", quota={"cpus": 2.0}, order="strict"),)))
    forecaster = Forecaster(Player(strict, "kueue", log_), 1)
    (past,) = played(log_, None, forecaster, [1e9 + 10.0])
    (answer,) = expected(log_, replace(forecaster, baselines=False), 1e9 + 10.0, 0)
    assert past.job.tolist() == [2]
    assert [row.job for row in answer.rows] == ["2"]
    assert past.raw["runs"].min() == CEILING


def test_rows_join_the_tasks_of_an_array(easy: JobLog) -> None:
    t = float(easy.submit_s[150])
    state = QueueState.at(easy, t)
    joined = replace(easy, array=objects(["one"] * len(easy)))
    assert len(rows_of(state, None)) == len(state.waiting) > 3
    rows = rows_of(QueueState.at(joined, t), None)
    assert len(rows) == 1
    starts = np.arange(2.0, 2.0 + len(state.waiting))
    assert rows.earliest(starts).tolist() == [2.0]


SACCT = """JobIDRaw|JobID|User|Account|Partition|QOS|State|Submit|Eligible|Start|End|ElapsedRaw|Suspended|TimelimitRaw|NNodes|NCPUS|ReqTRES|AllocTRES|NodeList|SubmitLine
1|1|ada|bio|batch|normal|COMPLETED|1000|1000|1000|1600|600|00:00:00|60|1|4|cpu=4,mem=1G,node=1|cpu=4,mem=1G,node=1|n1|sbatch -p batch,gpu -t 60
2|2|bo|bio|gpu|normal|CANCELLED by 7|1100|1100|Unknown|1500|0|00:00:00|60|1|4|cpu=4,mem=1G,node=1||None assigned|sbatch -p gpu -t 60
5|5_[2-3]|bo|bio|batch|normal|PENDING|1200|1200|Unknown|Unknown|0|00:00:00|60|1|4|cpu=4,mem=1G,node=1||None assigned|sbatch -a 0-3 -t 60
6|6|bo|bio|batch|normal|COMPLETED|1300|1900|1950|2000|50|00:00:00|60|1|4|cpu=4,mem=1G,node=1|cpu=8,mem=1G,node=1|n2|sbatch -d afterok:1 -t 60
7|7|bo|bio|batch|normal|COMPLETED|1400|9999|5000|5050|50|00:00:00|60|1|4|cpu=4,mem=1G,node=1|cpu=8,mem=1G,node=1|n2|sbatch --begin=now+1hour -t 60
"""  # noqa: E501


@pytest.mark.family("slurm")
def test_a_log_holds_what_was_asked_for_and_when_it_was_known(tmp_path: Path) -> None:
    (tmp_path / "sacct.txt").write_text(SACCT)
    log_ = read_job_log(tmp_path / "sacct.txt", TraceOptions())
    assert log_.jobs.ids.tolist() == ["1", "2", "5_2", "5_3", "6", "7"]
    assert log_.partition[0] == "batch"  # the first that it asked for, not the one where it ran
    assert [kind.demand.cpus for kind in log_.jobs.kinds] == [4.0]  # and not the 8 that were allocated
    assert log_.start_s[[0, 4]].tolist() == [1000.0, 1950.0]
    assert np.isnan(log_.start_s[1:4]).all()
    assert log_.eligible_s[4:].tolist() == [1900.0, 5000.0]  # accounting rewrites Eligible: the user's begin counts
    state = QueueState.at(log_, 1550.0)
    assert log_.jobs.ids[state.waiting].tolist() == ["5_2", "5_3", "6", "7"]
    assert np.isinf(state.eligible_s).tolist() == [False, False, True, True]


@pytest.mark.family("slurm")
def test_a_requeued_job_holds_its_nodes_and_its_usage_in_every_attempt(tmp_path: Path) -> None:
    head, *_ = SACCT.splitlines()
    kind = "600|00:00:00|60|1|4|cpu=4,mem=1G,node=1|cpu=4,mem=1G,node=1"
    rows = [
        f"8|8_1|ada|bio|batch|normal|PREEMPTED|1000|1000|1100|1400|{kind}|n1|sbatch -a 0-3%2 -t 60",
        f"8|8_1|ada|bio|batch|normal|NODE_FAIL|1401|1700|1750|1900|{kind}|n2|sbatch -a 0-3%2 -t 60",
        f"8|8_1|ada|bio|batch|normal|COMPLETED|1901|2200|2300|2900|{kind}|n1|sbatch -a 0-3%2 -t 60",
        f"9|9|bo|bio|batch|normal|COMPLETED|2000|2000|2000|2600|{kind}|n3|sbatch -t 60",
        f"9|9|ada|bio|batch|normal|COMPLETED|200000|200000|200000|200600|{kind}|n3|sbatch -t 60",
    ]
    for name, text in {"sacct.txt": rows, "again.txt": rows[:2]}.items():  # months of a log overlap
        (tmp_path / name).write_text("\n".join([head, *text]) + "\n")
    log_ = read_job_log(tmp_path, TraceOptions())
    assert log_.jobs.ids.tolist() == ["8_1", "8_1", "8_1", "9", "9"]
    assert log_.array.tolist() == ["8", "8", "8", "9", "9"]
    assert log_.requeued.tolist() == [True, True, False, False, False]
    assert log_.eligible_s[:3].tolist() == [1000.0, 1700.0, 2200.0]
    assert log_.run_s.tolist() == [300.0, 150.0, 600.0, 600.0, 600.0]
    assert log_.jobs.request is not None
    assert {request and request.array for request in log_.jobs.request.tolist()} == {"8", ""}
    for t, nodes in {1200.0: [("n1",)], 1800.0: [("n2",)], 1650.0: [], 2400.0: [("n1",), ("n3",)]}.items():
        state = QueueState.at(log_, t)
        assert log_.nodes.chosen(state.running).tolist() == nodes
    assert log_.jobs.ids[QueueState.at(log_, 1650.0).waiting].tolist() == ["8_1"]
    assert np.isinf(QueueState.at(log_, 1650.0).eligible_s).all()  # Slurm waits before it starts a job again
    times = RunTimes()
    run_times_at(log_, [0, 1, 2] * 200, times)
    assert times.draw(0.2, run_time_classes(log_, 0), 0.0) == pytest.approx(600 / 3600)


def test_listings_of_a_queue(tmp_path: Path) -> None:
    file = tmp_path / "squeue.tsv"
    file.write_text(
        "epoch|jobid|state|priority|reason|start_or_estimate\n"
        "100|5_[2-3]|PD|7|JobArrayTaskLimit|N/A\n100|5_1|PD|7|Priority|160\n100|4|R|7|None|90\n200|6|PD|1|Dependency|N/A\n"
    )
    queue = read_queue_log(file)
    assert queue.times == [100.0, 200.0]
    assert queue.listings[0]["5"].estimate_s == 160.0
    assert (queue.latest(99.0), queue.latest(150.0), queue.latest(200.0)) == (-1, 0, 1)


@pytest.mark.family("formats")
def test_the_command(tmp_path: Path) -> None:
    lines = ["; MaxProcs: 16"]
    jobs = some_jobs(150)
    for number in range(150):
        arrival_s, work = round(float(jobs.arrival_s[number])), float(jobs.work[number])
        row = [number + 1, arrival_s, 0, work, jobs.instances[number], -1, -1, jobs.instances[number],
               float(jobs.estimate[number]), -1, 1, number % 6, 1, 1, 1, 1, -1, -1]  # fmt: skip
        lines.append(" ".join(map(str, row)))
    file = tmp_path / "log.swf"
    file.write_text("\n".join(lines) + "\n")
    command = ["eta", "--backtest", str(file), "--policy", "easy", "--every", "1h", "--workers", "1"]
    result = invoke(*command, "--oracle", "--json")
    assert json.loads(result.stdout)["crps_log"] == 0.0
    result = invoke(*command, "--futures", "3", "--arrivals", "1", "--json")
    answer = json.loads(result.stdout)
    assert {"n", "coverage_90", "crps_log", "median_abs_log", "once", "baselines", "by_partition"} <= set(answer)
    assert set(answer["baselines"]) >= {"limits", "qbets", "history", "limits_history"}
    for entry in answer["baselines"].values():
        assert {"raw", "calibrated"} <= set(entry)


@pytest.mark.family("formats")
def test_starts_of_an_archive_log_are_its_waits(tmp_path: Path) -> None:
    """Without --algo: the third field; a log whose waits are all unknown has nothing to forecast."""
    jobs = some_jobs(120)
    waits_s = np.random.default_rng(3).integers(0, 7200, 120)

    def written(name: str, waits: list[int]) -> Path:
        rows = [
            f"{job + 1} {round(float(jobs.arrival_s[job]))} {wait} {jobs.work[job]:.0f} 1 -1 -1 1 "
            f"{jobs.estimate[job]:.0f} -1 1 {job % 6} 1 1 1 1 -1 -1"
            for job, wait in enumerate(waits)
        ]
        (tmp_path / name).write_text("\n".join(["; MaxProcs: 64", *rows]) + "\n")
        return tmp_path / name

    path = written("log.swf", waits_s.tolist())
    assert reader("swf").waits_s(Source(path)) == {
        str(job + 1): float(wait) for job, wait in enumerate(waits_s.tolist())
    }
    words = ["--every", "1h", "--futures", "1", "--workers", "1", "--json"]
    answer = answer_of(["eta", "--backtest", str(path), *words])
    assert answer["n"] > 20
    assert answer["baselines"]["history"]["raw"]["crps_log"] < answer["baselines"]["limits"]["raw"]["crps_log"]
    result = invoke("eta", "--backtest", written("none.swf", [-1] * 120), *words)
    assert result.exit_code == 2
    assert "contains no start times" in result.output


def test_logarithms_are_natural() -> None:
    assert log(1 + 7 * 86400) == CEILING


SITE = """
cluster:
  groups:
  - {name: n, count: 1, gpus: 0, cpus: 4, memory_gb: 64}
policy: easy
"""


def listed(id: int, state: str, submit_s: int, start_s: int, limit_min: int, cpus: int) -> dict[str, Any]:
    terms = {"user_name": "ada", "account": "bio", "partition": "p", "qos": "normal", "time_limit": limit_min}
    terms |= {"submit_time": submit_s, "eligible_time": submit_s, "start_time": start_s}
    if state == "RUNNING":
        terms |= {"nodes": "n0"}
    return queued(id, state, cpus=cpus, memory_gb=1, **terms)


@pytest.mark.family("slurm")
def test_forecasts_of_a_snapshot(tmp_path: Path) -> None:
    """Four cores are taken by a job until its limit in an hour, at most; behind it, one job waits for another."""
    jobs = [
        listed(1, "RUNNING", NOW_S - 3600, NOW_S - 3600, 120, 4),
        listed(2, "PENDING", NOW_S - 600, 0, 60, 4),
        listed(3, "PENDING", NOW_S - 500, 0, 60, 4),
    ]
    command = ["eta", *queue_words(tmp_path, as_listed(jobs), SITE)]
    answer = json_of(*command, "--futures", 40)
    assert answer["t"] == NOW_S
    assert [row["job"] for row in answer["jobs"]] == ["2", "3"]
    first, second = answer["jobs"]
    assert first["median_s"] < second["median_s"]
    for row in answer["jobs"]:
        waits_s = list(row["quantiles_s"].values())
        assert waits_s == sorted(waits_s)
        assert len(waits_s) == len(LEVELS)
        assert 0 < row["within_1h"] <= row["within_24h"] < 1
    shown = invoke(*command, "3").stdout
    assert "1 waiting job;" in shown
    assert "Not calibrated" in shown
    wrong = invoke(*command, "9")
    assert wrong.exit_code == 2
    assert "job 9 is not waiting in this snapshot" in wrong.output
    assert "forecast 1" not in wrong.output  # nothing was simulated for a job that does not exist


@pytest.fixture
def snapshot(tmp_path: Path) -> list[str]:
    """A command on a snapshot whose four cores are taken; one job waits, for a limit of its user."""
    jobs = [
        listed(1, "RUNNING", NOW_S - 3600, NOW_S - 3600, 120, 4),
        listed(2, "PENDING", NOW_S - 600, 0, 60, 4) | {"state_reason": "AssocMaxJobsLimit"},
        listed(4, "PENDING", NOW_S - 600, 0, 60, 4) | {"state_reason": "Dependency"},
    ]
    words = ["eta", *queue_words(tmp_path, as_listed(jobs), SITE, "squeue.json"), "--json"]
    jobs.append(listed(3, "PENDING", NOW_S, 0, 90, 2))
    (tmp_path / "more.json").write_text(as_listed(jobs))
    return words


@pytest.mark.family("slurm")
def test_a_planned_job_is_forecast_as_if_it_waited(snapshot: list[str], tmp_path: Path) -> None:
    """The job that a second snapshot has is the planned one of the first: equal quantiles, bit by bit."""
    plan = ["--job", "cpus=2,memory=1G,limit=90m,user=ada,account=bio"]
    (planned,) = answer_of([*snapshot, *plan])["planned"]
    jobs = answer_of([word.replace("squeue.json", "more.json") for word in snapshot])["jobs"]
    assert [row["job"] for row in jobs] == ["2", "3"]  # the one that waits for another is not forecast
    assert planned["starts_s"] == jobs[1]["quantiles_s"]
    assert answer_of([*snapshot, *plan]) == answer_of([*snapshot, *plan])
    assert planned["start_s"] < planned["end_s"] <= planned["start_s"] + 90 * 60


def answer_of(words: list[str]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(invoke(*words).stdout)
    return answer


@pytest.mark.family("slurm")
def test_a_snapshot_says_what_jobs_wait_for(snapshot: list[str]) -> None:
    (row,) = answer_of(snapshot)["jobs"]
    assert (row["kind"], row["waits_for"]) == ("limited", "AssocMaxJobsLimit")


@pytest.mark.family("slurm")
def test_shapes_find_the_idle_type(snapshot: list[str], tmp_path: Path) -> None:
    """The T4 is idle, the node of the A100s is taken; nobody has four A100s at once."""
    groups = """
cluster:
  groups:
  - {name: n, count: 1, gpu: A100-40, gpus: 2, cpus: 4, memory_gb: 64}
  - {name: m, count: 1, gpu: T4, gpus: 4, cpus: 8, memory_gb: 64}
policy: easy
"""
    (tmp_path / "site.yaml").write_text(groups)
    answer = answer_of([*snapshot, "--job", "gpus=2,cpus=2,type=A100,limit=4h", "--shapes"])
    starts = {row["shape"]: row["start_s"] for row in answer["planned"]}
    named = {(row["gpus"], row["type"], row["limit_s"]): row for row in answer["planned"]}
    assert set(named) == {(gpus, kind, limit * HOUR_S) for gpus, kind, limit in
                          ((2, "A100-40", 4), (1, "A100-40", 8), (2, "T4", 4), (2, "A100-40", 2))}  # fmt: skip
    assert starts["2 GPUs, 2 cpus, T4, limit 4 h"] == 0.0
    assert min(starts.values()) == 0.0 < starts["2 GPUs, 2 cpus, A100-40, limit 4 h"]
    whole, half = named[2, "A100-40", 4 * HOUR_S], named[1, "A100-40", 8 * HOUR_S]
    ran_s = [row["end_s"] - row["start_s"] for row in (whole, half)]
    assert ran_s[1] == pytest.approx(2 * ran_s[0], rel=0.2)  # the same GPU-hours


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ("gpus=8,type=H100", "no node has GPUs of type 'H100'"),
        ("cpus=64", "could never start, even on the idle cluster"),
        ("gpu=3", "did you mean 'gpus'"),
        ("cpus=3,cpus=4", "'cpus' is given twice"),
        ("cpus=1,limit=soon", "time_limit must be a time such as 12h"),
        ("cpus=1,limit=12", "time_limit 12 has no unit"),
        ("cpus=1,limit=0s", "time_limit must be a time such as 12h"),
        ("cpus=1,limit=367-00:00:00", "time_limit must be a time such as 12h"),
        ("cpus=1,partition=gpu", "has neither partitions"),
        ("memory=3G", "expected gpus=N or cpus=N"),
        ("", "expected KEY=VALUE"),
    ],
)
@pytest.mark.family("slurm")
def test_planned_jobs_that_cannot_be(snapshot: list[str], plan: str, message: str) -> None:
    result = invoke(*snapshot, "--job", plan)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


@pytest.mark.family("slurm")
@pytest.mark.parametrize("limit", ["1s", "366-00:00:00"])
def test_a_planned_job_may_take_from_a_second_to_a_year(snapshot: list[str], limit: str) -> None:
    fine(*snapshot, "--job", f"cpus=1,limit={limit}")


@pytest.mark.family("slurm")
def test_snapshots_without_waiting_jobs(snapshot: list[str], tmp_path: Path) -> None:
    (tmp_path / "squeue.json").write_text('{"jobs": [], "last_update": 1700000000}')
    assert answer_of(snapshot) == {"jobs": [], "idle": True}
    later = listed(9, "PENDING", 1_800_000_000, 0, 60, 4)
    (tmp_path / "squeue.json").write_text(json.dumps({"jobs": [later], "last_update": 1_700_000_000}))
    result = invoke(*snapshot)
    assert json.loads(result.stdout)["jobs"] == []
    assert "left out: 1 job submitted after the time" in result.stderr


@pytest.mark.family("kubernetes")
def test_a_snapshot_of_kueue(tmp_path: Path) -> None:
    """The format is detected, Kueue simulates the futures, and what its condition says is shown."""
    pod = {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "2"}}}]}

    def workload(name: str, created: str, *conditions: dict[str, str]) -> dict[str, object]:
        return {
            "kind": "Workload", "metadata": {"name": name, "namespace": "lab", "creationTimestamp": created},
            "spec": {"queueName": "vision", "podSets": [{"name": "main", "count": 1, "template": {"spec": pod}}],
                     "maximumExecutionTimeSeconds": 3600},
            "status": {"conditions": list(conditions)},
        }  # fmt: skip

    admitted = {"type": "Admitted", "status": "True", "lastTransitionTime": "2026-03-02T08:00:00Z"}
    pending = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "insufficient unused quota"}
    items = [workload("runs", "2026-03-02T07:59:00Z", admitted), workload("waits", "2026-03-02T08:30:00Z", pending)]
    (tmp_path / "now.json").write_text(json.dumps({"kind": "List", "items": items}))
    (tmp_path / "site.yaml").write_text(
        "cluster: {groups: [{name: n, count: 1, gpu: T4, gpus: 4}]}\n"
        "queues: {tree: [{name: vision, quota: {gpus: 3}}]}\n"
    )
    words = ["eta", "--state", str(tmp_path / "now.json"), "--config", str(tmp_path / "site.yaml"), "--json"]
    result = invoke(*words)
    assert "the futures are simulated under kueue" in result.stderr
    (row,) = json.loads(result.stdout)["jobs"]
    assert (row["job"], row["kind"], row["waits_for"]) == ("lab/waits", "limited", "quota")
    assert 0 < row["median_s"] <= 1800  # two GPUs are idle, but the quota is three


@pytest.mark.family("slurm")
def test_pages_of_the_queue_and_of_a_back_test(
    snapshot: list[str], scenario: ClusterScenario, backtest: Backtest, tmp_path: Path
) -> None:
    """One band and a row for each job, text as text, nothing to load; the curve has a point for each level."""
    from dagsim.families.forecast.forecast_page import backtest_page

    file = tmp_path / "page.html"
    answer = answer_of([*snapshot, "--page", str(file), "--job", "cpus=1"])
    text = file.read_text()
    bands = text.partition("<h2>Waiting jobs over time")[2].partition("</div>")[0]
    assert bands.count('class="waits"') == len(answer["jobs"]) == 1
    assert "AssocMaxJobsLimit" in text
    assert "default-src &#x27;none&#x27;" in text
    audit = ClusterScenario(scenario.cluster, list(some_jobs().jobs())).audit()
    known = "policies know the time limits in the log (100% of the jobs)"
    scores = {"audit": audit.to_dict(), "knowledge": known, **backtest.to_dict()}
    scores["by_partition"]["<script>alert(1)</script>"] = scores["by_partition"].pop("all")
    text = backtest_page("<b>", scores)
    (curve,) = re.findall(r'<polyline class="edge critical" points="([^"]*)"', text)
    assert len(curve.split()) == len(LEVELS)
    assert known in text
    whole = next(iter(scores["by_horizon"].values()))
    horizons = text.partition("<h2>By median forecast")[2].partition("</table>")[0]
    cells = [horizons.find(f"{whole[score]:.2f}") for score in ("coverage_90", "crps_log", "median_abs_log")]
    assert -1 not in cells
    whole["crps_log"] = None
    assert ">-<" in backtest_page("", scores).partition("<h2>By median forecast")[2].partition("</table>")[0]
    assert "alert(1)</script>" not in text.partition("</header>")[2].partition("<script")[0]


@pytest.mark.family("slurm")
def test_words_of_a_forecast_begin_below_their_heads_and_numbers_end_there(snapshot: list[str]) -> None:
    words = [word for word in snapshot if word != "--json"]
    lines = invoke(*words).stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if {"job", "user", "partition"} <= set(line.split()))
    heads, row = lines[at], next(line for line in lines[at + 1 :] if line.strip(" ─"))
    for head in ("job", "user", "partition", "90%", "waits for"):
        assert row[heads.index(head)] != " ", head
    for head in ("median", "in 1 h", "in 24 h"):
        assert row[heads.index(head) + len(head) - 1] != " ", head


@pytest.mark.family("slurm")
def test_a_snapshot_of_another_cluster_is_named(snapshot: list[str]) -> None:
    result = invoke(*snapshot)
    assert "jobs run on 1 node, of which the cluster of the configuration lacks 1" in " ".join(result.stderr.split())
    assert "1 job is held or waits for other jobs" in " ".join(result.stderr.split())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_stopped_command_leaves_no_page_and_no_process(number: int, code: int, tmp_path: Path) -> None:
    """Stopped while two processes forecast: they end, too, and there is a message and no half-written page."""
    rows = [
        f"{job + 1} {60 * job} 5 600 1 -1 -1 8 36000 -1 1 {job % 6} 1 1 1 1 -1 -1" for job in range(600)
    ]  # the queue only grows
    (tmp_path / "log.swf").write_text("\n".join(["; MaxProcs: 16", *rows]) + "\n")
    words = ["--backtest", "log.swf", "--policy", "fifo", "--every", "10m", "--workers", "2", "--page", "page.html"]
    command = [sys.executable, "-m", "dagsim", "eta", *words]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        workers: list[int] = []
        for _ in range(300):
            workers = [pid for pid in children(process.pid) if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]
            if len(workers) == 2:
                break
            time.sleep(0.1)
        process.send_signal(number)
        assert process.wait(30) == code
        for _ in range(100):
            if not any(map(alive, workers)):
                break
            time.sleep(0.1)
        assert len(workers) == 2
        assert not any(map(alive, workers))
        if number == signal.SIGTERM:
            assert "interrupted: nothing was written" in process.stderr.read()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["log.swf"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give --state SNAPSHOT"),
        (["--backtest", "x", "--history", "y"], "can only be used with --state"),
        (["--state", "x", "--every", "1h"], "can only be used with --backtest"),
        (["--backtest", "x", "--job", "gpus=1"], "can only be used with --state"),
        (["--state", "x", "--shapes"], "can only be used with --job"),
    ],
)
def test_options_that_would_be_ignored_are_refused(words: list[str], message: str) -> None:
    result = invoke("eta", *words)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_shares_of_starts_near_the_median_forecast() -> None:
    median_s, start_s = np.array([100.0, 100.0, 5_000.0, 0.0]), np.array([40.0, 161.0, 5_590.0, 3_601.0])
    quantiles = np.repeat(np.log1p(median_s)[:, None], 19, axis=1)
    scores = score(quantiles, np.log1p(start_s)).to_dict()
    shares = [scores[name] for name in ("within_1_min", "within_10_min", "within_1_h")]
    assert shares == [0.25, 0.75, 0.75]
    weighted = score(quantiles, np.log1p(start_s), np.array([3.0, 1.0, 0.0, 0.0]))
    assert weighted.within == (0.75, 1.0, 1.0)


@pytest.mark.family("slurm")
def test_a_log_over_the_hour_that_a_change_of_summer_time_repeats_has_no_job_that_ends_before_it_starts(
    tmp_path: Path,
) -> None:
    # On 2 November 2025 New York's clocks went from 02:00 back to 01:00: both jobs ran for 40 minutes.
    head = "JobID|User|Account|Partition|Submit|Eligible|Start|End|ElapsedRaw|State|ReqTRES|AllocTRES|NodeList|NCPUS"
    rows = [
        "1|u|a|p|2025-11-02T01:20:00|2025-11-02T01:20:00|2025-11-02T01:30:00|2025-11-02T01:10:00|2400|COMPLETED"
        "|cpu=1,node=1|cpu=1,node=1|n1|1",
        "2|u|a|p|2025-11-02T00:30:00|2025-11-02T00:30:00|2025-11-02T01:50:00|2025-11-02T01:30:00|2400|COMPLETED"
        "|cpu=1,node=1|cpu=1,node=1|n1|1",
    ]
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join([head, *rows]) + "\n")
    log = read_job_log(path, TraceOptions(timezone="America/New_York"))
    assert (log.end_s - log.start_s).tolist() == [2400.0, 2400.0]
    assert sorted((log.start_s - log.submit_s).tolist()) == [600.0, 4800.0]


def test_a_misspelt_history_is_named_with_the_nearest_file(tmp_path: Path) -> None:
    fine("trace", "sample", "-q", "--out", tmp_path / "site")
    words = ["--config", "slurm.yaml", "--state", "squeue.json", "--history", "sacct.text.gz"]
    words = [str(tmp_path / "site" / word) if "." in word else word for word in words]
    done = invoke("eta", *words)
    assert (done.exit_code, "sacct.text.gz: no such file or folder; did you mean" in done.stderr) == (2, True)


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagsim.files.LONGEST_LINE_B", 1 << 16)
    (tmp_path / "table.txt").write_text("1 " * (1 << 17))
    with pytest.raises(TraceError, match="the line has more than 65,536 bytes"):
        read_queue_log(tmp_path / "table.txt")
