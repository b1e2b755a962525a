"""Fits of sessions: a workload that is known comes out again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dagsim.config.bundled import WORKLOADS
from dagsim.errors import WorkloadError
from dagsim.model import Cluster
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.traces import open_trace
from dagsim.workload.arrivals import Rates, Swing
from dagsim.workload.distributions import Constant, Quantiles
from dagsim.workload.fitting import columns_of, fit_arrivals, fit_sessions, quantiles
from dagsim.workload.sessions import SessionKind, Sessions

CLUSTER = Cluster.of({"V100-16": 64})
LONG = Quantiles(((0.0, 1000.0), (1.0, 9000.0)))
KNOWN = Sessions(
    (
        SessionKind(0.7, Quantiles(((0.0, 100.0), (1.0, 500.0))), Quantiles(((0.0, 1.0), (1.0, 8.0)), whole=True)),
        SessionKind(0.3, LONG, instances=Constant(4.0), priority=1.0),
    ),
    Rates(6.0, day=(2.0,) * 12 + (0.5,) * 12, swings=(Swing(0.4, 3.0),)),
    Quantiles(((0.0, 5.0), (1.0, 30.0))),
    alike=0.9,
    tenants=6,
    zipf=1.2,
    count=12_000,
)


@pytest.fixture(scope="module")
def fitted() -> Sessions:
    natural = KNOWN.natural_load(CLUSTER, Recorded())
    return fit_sessions(columns_of(replace(KNOWN, load=natural).jobs(CLUSTER, Recorded(), 5)))


def test_kinds_come_out_again(fitted):
    small, wide = sorted(fitted.kinds, key=lambda kind: kind.priority)
    assert small.share == pytest.approx(0.7, abs=0.05)
    assert wide.instances == Constant(4.0)
    assert wide.gang
    assert dict(wide.work.points)[0.5] == pytest.approx(3000, rel=0.1)  # the geometric middle of 1000 and 9000
    assert dict(small.jobs.points)[0.5] == pytest.approx(dict(KNOWN.kinds[0].jobs.points)[1.0] ** 0.5, abs=1.2)


def test_arrivals_come_out_again(fitted):
    assert fitted.rates.per_hour == pytest.approx(6.0, rel=0.12)
    busy, quiet = np.sort(fitted.rates.day)[12:].mean(), np.sort(fitted.rates.day)[:12].mean()
    assert busy / quiet == pytest.approx(4, rel=0.3)
    variance = sum(swing.sigma**2 for swing in fitted.rates.swings)
    assert variance == pytest.approx(0.16, abs=0.08)


def test_tenants_and_likeness_come_out_again(fitted):
    assert fitted.tenants == 6
    assert fitted.zipf == pytest.approx(1.2, abs=0.15)
    assert fitted.alike == pytest.approx(0.9, abs=0.05)


def test_the_load_of_a_fit_is_that_of_its_jobs(fitted):
    expected, load = (model.natural_load(CLUSTER, Recorded()) for model in (KNOWN, fitted))
    assert load == pytest.approx(expected, rel=0.12)


def test_a_poisson_process_has_no_swings_to_speak_of():
    times = np.cumsum(np.random.default_rng(2).exponential(60.0, 30_000))
    rates = fit_arrivals(times)
    assert rates.per_hour == pytest.approx(60, rel=0.03)
    assert sum(swing.sigma**2 for swing in rates.swings) < 0.005


def test_a_table_of_quantiles_keeps_the_mean_of_a_heavy_tail():
    values = 100 * np.random.default_rng(3).pareto(1.3, 50_000) + 1
    table = quantiles(values)
    grid = (np.arange(20_000) + 0.5) / 20_000
    assert table.at(grid).mean() == pytest.approx(values.mean(), rel=0.05)
    assert dict(table.points)[0.5] == pytest.approx(np.median(values), rel=0.01)


def test_too_few_jobs_are_refused():
    with pytest.raises(WorkloadError, match="100 jobs"):
        columns_of(list(KNOWN.jobs(CLUSTER, Recorded(), 1))[:99])


@pytest.mark.data
def test_the_shipped_fit_is_that_of_the_trace(data: Path):
    path = data / "traces" / "alibaba-gpu-v2023" / "openb_pod_list_default.csv"
    fit, shipped = fit_sessions(columns_of(open_trace(path).jobs())), WORKLOADS["like-openb"].workload
    assert replace(fit, count=shipped.count, measure=shipped.measure) == shipped


def test_the_rate_of_a_log_shorter_than_an_hour_is_that_of_its_gaps() -> None:
    assert fit_arrivals(6.0 * np.arange(100)).per_hour == pytest.approx(600)
    assert fit_arrivals(6.0 * np.arange(3000)).per_hour == pytest.approx(600)
    assert fit_arrivals(np.zeros(100)).per_hour == 100
