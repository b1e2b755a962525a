"""The comparison of a trial of the cluster as it is with the log."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from families.capacity.capacity_cases import trial

from dagsim.families.capacity.trials import Fit


@pytest.mark.parametrize(
    ("metric", "name", "observed", "simulated"),
    [
        ("wait_s.mean", "wait_s.mean", 100.0, 90.0),
        ("wait_s.p50", "wait_s.p50", 10.0, 30.0),
        ("jct_s.mean", "wait_s.p95", 400.0, 300.0),  # the one of mean and p95 that differs more
    ],
)
def test_today_is_compared_with_the_log_unless_its_time_is_scaled(
    metric: str, name: str, observed: float, simulated: float
) -> None:
    waits = {"observed_s": {"mean": 100.0, "median": 10.0, "p95": 400.0}, "jobs": 50}
    waits |= {"simulated_s": {"mean": 90.0, "median": 30.0, "p95": 300.0}}
    workload: dict[str, Any] = {"observed": {"total": waits, "missed": 2}, "trace": {"options": {"time_scale": 1}}}
    today = trial({})
    real = replace(today, run=replace(today.run, workload=workload))
    fit = Fit.of(real, metric)
    assert fit == Fit(name, observed, simulated, 100.0, 400.0, 50, 2)
    workload["trace"]["options"]["time_scale"] = 2
    assert Fit.of(real, metric) is None
    assert Fit.of(replace(today, run=replace(today.run, workload={"observed": None})), metric) is None
