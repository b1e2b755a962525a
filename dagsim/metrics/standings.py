"""Standings of policies: means over the same seeds, and ratios to a reference with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite, nan, sqrt
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from dagsim.errors import InputError
from dagsim.metrics.columns import Floats
from dagsim.metrics.intervals import largest_job, ratio_of_means, samples_needed, standard_deviation
from dagsim.metrics.paired import ENOUGH_SEEDS, ComparedRow, Paired, Verdict, compared, paired, verdict, words
from dagsim.metrics.student import t_quantile
from dagsim.model.arithmetic import ordered_sum, rounded, whole_sum
from dagsim.spelling import nearest

METHOD = "geometric mean of per-seed ratios, Student's t on their logs, Holm over the table"
"""The method by which ``standings`` computes ratios and verdicts."""

SECONDARY_METRICS = (
    "jct_s.p99", "wait_s.mean", "bounded_slowdown.mean", "utilization", "energy_kwh", "jain_fairness_index", "max_ftf",
    "decision_time_us",
)  # fmt: skip
"""Metrics reported in addition to the one that ranks the policies."""

_HIGHER_IS_BETTER = {
    "jobs_completed", "completed", "throughput_per_h", "utilization", "peak_weighted_utilization", "availability",
    "gpu_allocation_ratio", "scheduling_occupancy_rate", "goodput", "jain_fairness_index", "deadline_hit_rate",
}  # fmt: skip


class Sample(StrEnum):
    """The kind of sample in a comparison, such as a seed or a window."""

    SEED = "seed"
    WINDOW = "window"
    """A disjoint window of a real trace."""
    TRACE = "trace"
    """A whole trace, which is a single sample, however many seeds it is run on."""


class RunMetrics(Protocol):
    """Metrics of one policy on one seed."""

    @property
    def policy(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def metrics(self) -> Mapping[str, Any]: ...


LineT = TypeVar("LineT", bound=RunMetrics)


class Mean(NamedTuple):
    """A mean over seeds and its 95% interval, computed with Student's t on the log scale. Unknown
    values are NaN.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """The row for one policy in a table that compares several policies."""

    policy: str
    mean: Mean
    pair: Paired | None
    """The comparison with the reference, or None if a value is 0, negative or missing."""
    p: float
    """The p-value after Holm's correction over the table, or NaN if nothing was tested."""
    alike: tuple[str, ...]
    """Other policies with the same values on every seed."""
    is_reference: bool
    best: bool
    """True for the policy that the metric ranks first. This is not a verdict."""
    sample: Sample
    n: int
    """Number of seeds or windows. Every policy ran on all of them."""
    lower_is_better: bool
    beside: Mapping[str, float]
    """Means of ``SECONDARY_METRICS``; NaN if a seed has no value."""
    not_done: int
    """Number of jobs rejected or left unfinished, over all seeds."""
    unfinished: int
    """Number of jobs left unfinished, over all seeds."""

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the policy. It is None for the reference, for a single trace, and if there
        is no ratio.
        """
        if self.pair is None or self.is_reference or self.sample is Sample.TRACE:
            return None
        return verdict(self.pair, self.p, lower_is_better=self.lower_is_better)

    @property
    def words(self) -> str:
        """The verdict in words."""
        if self.is_reference:
            return "reference"
        if self.pair is None:
            return "not known: unfinished jobs" if math.isnan(self.mean.value) else "no ratio: a value is 0"
        if self.sample is Sample.TRACE:
            return "one trace is one sample: no verdict"
        return words(self.pair, self.p, unit=self.sample, lower_is_better=self.lower_is_better)

    @property
    def seeds_needed(self) -> int:
        """Number of seeds or windows that the interval needs. It is 0 if there are enough, or if
        there is no interval."""
        if self.pair is None or self.sample is Sample.TRACE or not isfinite(self.pair.low):
            return 0
        return int(samples_needed(self.pair.seeds_needed, self.n, self.sample))

    @property
    def wins(self) -> int | None:
        """Number of seeds on which the policy is better than the reference."""
        if self.pair is None:
            return None
        return self.pair.wins if self.lower_is_better else self.pair.differ - self.pair.wins

    def to_dict(self) -> dict[str, str | bool | int | float | None]:
        """Return a flat dictionary for JSON and CSV. Unknown values are None."""
        pair = self.pair
        numbers = {"mean": self.mean.value, "mean_low": self.mean.low, "mean_high": self.mean.high}
        for name in _PAIRED:
            numbers[name] = nan if pair is None else getattr(pair, name)
        if self.sample is Sample.TRACE:
            numbers |= dict.fromkeys((name for name in numbers if name.endswith(("low", "high"))), nan)
        numbers |= {"p": nan if self.sample is Sample.TRACE else self.p, **self.beside}
        finite_or_none = {_KEYS.get(name, name): value if isfinite(value) else None for name, value in numbers.items()}
        return {
            "policy": self.policy,
            "best": self.best,
            **finite_or_none,
            "wins": self.wins,
            "n": None if pair is None else pair.n,
            "sample": str(self.sample),
            "verdict": self.words,
            "seeds_needed": self.seeds_needed,
            "alike": " ".join(self.alike),
            "jobs_not_done": self.not_done,
            "jobs_unfinished": self.unfinished,
        }


_PAIRED = ("ratio", "low", "high", "of_means", "of_means_low", "of_means_high", "median", "median_low", "median_high")
_KEYS = {"low": "ratio_low", "high": "ratio_high"}


def lower_is_better(metric: str) -> bool:
    """Return True if lower values of ``metric`` are better, which is the case for nearly all
    metrics. For a group's metric (``gpu[T4].utilization``), the name within the group decides.
    """
    return metric.rpartition("].")[2] not in _HIGHER_IS_BETTER


def mean(lines: Iterable[RunMetrics], metric: str) -> Mean:
    """Return the mean of ``metric`` over the lines. An interval requires at least 5 lines with
    values that are not all equal.
    """
    return _mean(_column(lines, metric))


def largest_share(lines: Iterable[RunMetrics], metric: str) -> float:
    """Return the largest job's share of the sum of a per-job ``metric``, as a geometric mean over
    seeds, or 0 if it is unknown.
    """
    name, runs = metric.rpartition(".")[0], list(lines)
    mean, p95, p99 = (_column(runs, f"{name}.{part}") for part in ("mean", "p95", "p99"))
    shares = largest_job(mean, p95, p99, _column(runs, "jobs_completed"))
    return float(np.exp(np.log(shares).mean())) if np.all(np.isfinite(shares) & (shares > 0)) else 0.0


def runs_by_policy(lines: Iterable[RunMetrics]) -> dict[str, dict[int, RunMetrics]]:
    """Return the runs of each policy by seed, in order."""
    runs: dict[str, dict[int, RunMetrics]] = {}
    for line in lines:
        runs.setdefault(line.policy, {})[line.seed] = line
    return runs


def standings(
    lines: Iterable[RunMetrics],
    metric: str = "jct_s.mean",
    reference: str | None = None,
    sample: Sample = Sample.SEED,
) -> list[PolicyResult]:
    """Compare the policies with ``reference`` (default: the first policy). The policy with the best
    ``metric`` comes first.

    Policies are ordered by their geometric means, because the ratios are based on these. If a value
    is 0, they are ordered by arithmetic means instead. Policies with a missing value come last.

    Raises:
        InputError: The policies did not run on the same seeds, or there is no such
            ``reference`` or ``metric``.
    """
    by_policy = runs_by_policy(lines)
    if not by_policy:
        return []
    first = reference or next(iter(by_policy))
    seeds = _common_seeds(by_policy, first, metric)
    values = {policy: _column([runs[seed] for seed in seeds], metric) for policy, runs in by_policy.items()}
    largest = {policy: largest_share(runs.values(), metric) for policy, runs in by_policy.items()}
    rows = _rows(values, first, seeds, largest)
    ordered = _ordered(values, lower=lower_is_better(metric))
    return [
        PolicyResult(
            policy=policy,
            mean=_mean(values[policy]),
            pair=rows[policy].pair if policy in rows else None,
            p=rows[policy].p if policy in rows else nan,
            alike=rows[policy].alike if policy in rows else (),
            is_reference=policy == first,
            best=place == 0 and isfinite(values[policy].sum()),
            sample=sample,
            n=len(seeds),
            lower_is_better=lower_is_better(metric),
            beside={name: plain_mean(by_policy[policy].values(), name) for name in SECONDARY_METRICS},
            not_done=whole_sum(map(not_done, by_policy[policy].values())),
            unfinished=sum(int(line.metrics.get("jobs_unfinished", 0)) for line in by_policy[policy].values()),
        )
        for place, policy in enumerate(ordered)
    ]


def without_repeats(lines: Sequence[LineT]) -> list[LineT]:
    """If all seeds have the same metrics, return only the lines for the first seed. Otherwise,
    return all lines.

    Metrics measured with a clock are not compared.
    """
    first = {line.policy: line for line in reversed(lines)}
    repeated = all(_but_clock(line) == _but_clock(first[line.policy]) for line in lines)
    return [line for line in lines if line is first[line.policy]] if repeated else list(lines)


def not_done(line: RunMetrics) -> int:
    """Return the number of jobs rejected or left unfinished."""
    return int(line.metrics.get("jobs_arrived", 0)) - int(line.metrics.get("jobs_completed", 0))


def _common_seeds(by_policy: Mapping[str, Mapping[int, RunMetrics]], first: str, metric: str) -> list[int]:
    if first not in by_policy:
        raise InputError(f"comparison: there is no policy {first!r} among {', '.join(by_policy)}")
    if not any(metric in line.metrics for runs in by_policy.values() for line in runs.values()):
        metrics = next(iter(by_policy[first].values())).metrics
        raise InputError(f"comparison: there is no metric {metric!r}{nearest(metric, metrics)}")
    seeds = list(by_policy[first])
    for policy, runs in by_policy.items():
        if set(runs) != set(seeds):
            raise InputError(f"comparison: {policy!r} and {first!r} did not run on the same seeds")
    return seeds


def _column(lines: Iterable[RunMetrics], metric: str) -> Floats:
    return np.array([_number(line.metrics.get(metric)) for line in lines])


def _rows(
    values: Mapping[str, Floats], first: str, seeds: Sequence[int], largest: Mapping[str, float]
) -> dict[str, ComparedRow]:
    """Compare all policies with the policy ``first``. Return a row for each policy that has a ratio
    to it, and for ``first`` itself.
    """
    positive = {policy: mine for policy, mine in values.items() if np.all(np.isfinite(mine) & (mine > 0))}
    if first not in positive:
        return {}
    rows = compared(positive, first, seeds=seeds, largest_job=largest)
    same = tuple(policy for policy, row in rows.items() if row.pair.is_identical)
    return rows | {first: ComparedRow(paired(values[first], values[first]), nan, same)}


def _ordered(values: Mapping[str, Floats], *, lower: bool) -> list[str]:
    finite = {policy: mine for policy, mine in values.items() if np.all(np.isfinite(mine))}
    positive = all(np.all(mine > 0) for mine in finite.values())
    # Round the scores, so that nearly equal scores do not change the order from one processor to
    # another. Nine digits of the logarithm are a relative precision of 1e-9.
    score = {
        policy: round(float(np.log(mine).mean()), 9) if positive else rounded(float(mine.mean()))
        for policy, mine in finite.items()
    }
    ranked = sorted(finite, key=lambda policy: score[policy] if lower else -score[policy])
    return ranked + [policy for policy in values if policy not in finite]


def _mean(values: Floats) -> Mean:
    value, n = float(values.mean()), len(values)
    if n < ENOUGH_SEEDS or not isfinite(value) or not standard_deviation(values) > 0:
        return Mean(value, nan, nan)
    if np.all(values >= 0):
        bounds = ratio_of_means(values, np.ones(n))
        return Mean(value, float(bounds.low), float(bounds.high))
    half = t_quantile(0.95, n - 1) * float(standard_deviation(values)) / sqrt(n)
    return Mean(value, value - half, value + half)


def plain_mean(lines: Iterable[RunMetrics], metric: str) -> float:
    """Return the mean of ``metric`` over the lines, or NaN if a line has no value."""
    values = [_number(line.metrics.get(metric)) for line in lines]
    return ordered_sum(values) / len(values)


def _but_clock(line: RunMetrics) -> dict[str, Any]:
    return {name: value for name, value in line.metrics.items() if name != "decision_time_us"}


def _number(value: Any) -> float:
    return nan if value is None else float(value)
