"""Which policy is better: means over the same seeds, and ratios to a reference with an interval."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from dagsim.errors import InputError
from dagsim.metrics import Ratio, paired_ratio, win_rate

__all__ = ["Line", "Mean", "Standing", "mean", "standings"]


class Line(Protocol):
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


class Standing(NamedTuple):
    """How one policy did. ``ratio`` and ``wins`` (the share of seeds it won) are against the reference."""

    policy: str
    mean: Mean
    ratio: Ratio
    wins: float
    best: bool
    tied: bool
    """Not told apart from the best: the interval of their ratio holds 1."""


def mean(lines: Iterable[Line], metric: str) -> Mean:
    """The mean of ``metric`` over the lines, with its 95 % bootstrap interval."""
    values = [_number(line.metrics.get(metric)) for line in lines]
    return Mean(*paired_ratio(values, [1.0] * len(values)))


def standings(lines: Iterable[Line], metric: str = "jct_s.mean", reference: str | None = None) -> list[Standing]:
    """The policies by their mean ``metric``, least first; ``reference`` is the first policy unless named.

    Raises:
        InputError: The policies did not run on the same seeds, or none is called ``reference``.
    """
    by_policy: dict[str, dict[int, Line]] = {}
    for line in lines:
        by_policy.setdefault(line.policy, {})[line.seed] = line
    if not by_policy:
        return []
    first = reference or next(iter(by_policy))
    if first not in by_policy:
        raise InputError(f"comparison: there is no policy {first!r} among {', '.join(by_policy)}")
    seeds = list(by_policy[first])
    for policy, runs in by_policy.items():
        if set(runs) != set(seeds):
            raise InputError(f"comparison: {policy!r} and {first!r} did not run on the same seeds")
    values = {policy: [_number(runs[seed].metrics.get(metric)) for seed in seeds] for policy, runs in by_policy.items()}
    means = {policy: mean(by_policy[policy].values(), metric) for policy in by_policy}
    known = [policy for policy in means if not math.isnan(means[policy].value)]
    best = min(known, key=lambda policy: means[policy].value, default=None)
    ordered = sorted(means, key=lambda policy: (policy not in known, means[policy].value if policy in known else 0.0))
    return [
        Standing(
            policy,
            means[policy],
            paired_ratio(values[policy], values[first]),
            win_rate(values[policy], values[first]),
            policy == best,
            policy in known and best is not None and paired_ratio(values[policy], values[best]).is_tie,
        )
        for policy in ordered
    ]


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
