"""Standings of policies: means over the same seeds, and ratios to a reference with an interval."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from dagsim.errors import InputError
from dagsim.metrics import Ratio, paired_ratio, win_rate
from dagsim.registry import nearest

__all__ = ["SECONDARY_METRICS", "Mean", "PolicyResult", "RunMetrics", "mean", "not_done", "standings"]

SECONDARY_METRICS = (
    "jct_s.p99",
    "wait_s.mean",
    "bounded_slowdown.mean",
    "utilization",
    "energy_kwh",
    "jain",
    "rho_worst",
    "scheduler_us",
)
"""What is told of a policy beside the metric that it is ranked by."""


class RunMetrics(Protocol):
    """Metrics of one policy on one seed."""

    @property
    def policy(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def metrics(self) -> Mapping[str, Any]: ...


class Mean(NamedTuple):
    """A mean over seeds and its bootstrap interval; NaN if a seed has no value."""

    value: float
    low: float
    high: float


class PolicyResult(NamedTuple):
    """The result of one policy. ``ratio`` and ``wins`` (the share of seeds it won) are against the reference."""

    policy: str
    mean: Mean
    ratio: Ratio
    wins: float
    best: bool
    tied: bool
    """Not told apart from the best: the interval of their ratio holds 1."""
    beside: Mapping[str, float]
    """The means of ``SECONDARY_METRICS``; NaN if a seed has no value."""
    not_done: int
    """Jobs turned away or left unfinished, over all seeds."""

    def to_dict(self) -> dict[str, str | bool | int | float | None]:
        """Flat and safe for JSON and CSV; what is not known is ``None``."""
        numbers = {
            "mean": self.mean.value,
            "mean_low": self.mean.low,
            "mean_high": self.mean.high,
            "ratio": self.ratio.value,
            "ratio_low": self.ratio.low,
            "ratio_high": self.ratio.high,
            "win_rate": self.wins,
            **self.beside,
        }
        known = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
        return {"policy": self.policy, "best": self.best, "tied": self.tied, **known, "jobs_not_done": self.not_done}


def mean(lines: Iterable[RunMetrics], metric: str) -> Mean:
    """The mean of ``metric`` over the lines, with its 95 % bootstrap interval."""
    values = [_number(line.metrics.get(metric)) for line in lines]
    return Mean(*paired_ratio(values, [1.0] * len(values)))


def standings(
    lines: Iterable[RunMetrics], metric: str = "jct_s.mean", reference: str | None = None
) -> list[PolicyResult]:
    """The policies by their mean ``metric``, least first; ``reference`` is the first policy unless named.

    Raises:
        InputError: The policies did not run on the same seeds, or there is no such ``reference`` or ``metric``.
    """
    by_policy: dict[str, dict[int, RunMetrics]] = {}
    for line in lines:
        by_policy.setdefault(line.policy, {})[line.seed] = line
    if not by_policy:
        return []
    first = reference or next(iter(by_policy))
    if first not in by_policy:
        raise InputError(f"comparison: there is no policy {first!r} among {', '.join(by_policy)}")
    if not any(metric in line.metrics for runs in by_policy.values() for line in runs.values()):
        known = next(iter(by_policy[first].values())).metrics
        raise InputError(f"comparison: there is no metric {metric!r}{nearest(metric, known)}")
    seeds = list(by_policy[first])
    for policy, runs in by_policy.items():
        if set(runs) != set(seeds):
            raise InputError(f"comparison: {policy!r} and {first!r} did not run on the same seeds")
    values = {policy: [_number(runs[seed].metrics.get(metric)) for seed in seeds] for policy, runs in by_policy.items()}
    means = {policy: mean(by_policy[policy].values(), metric) for policy in by_policy}
    sure = [policy for policy in means if not math.isnan(means[policy].value)]
    best = min(sure, key=lambda policy: means[policy].value, default=None)
    ordered = sorted(means, key=lambda policy: (policy not in sure, means[policy].value if policy in sure else 0.0))
    return [
        PolicyResult(
            policy,
            means[policy],
            paired_ratio(values[policy], values[first]),
            win_rate(values[policy], values[first]),
            policy == best,
            policy in sure and best is not None and paired_ratio(values[policy], values[best]).is_tie,
            {name: _plain_mean(by_policy[policy].values(), name) for name in SECONDARY_METRICS},
            sum(map(not_done, by_policy[policy].values())),
        )
        for policy in ordered
    ]


def not_done(line: RunMetrics) -> int:
    """Jobs turned away or left unfinished."""
    return int(line.metrics.get("jobs_arrived", 0)) - int(line.metrics.get("jobs_completed", 0))


def _plain_mean(lines: Iterable[RunMetrics], metric: str) -> float:
    values = [_number(line.metrics.get(metric)) for line in lines]
    return sum(values) / len(values)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
