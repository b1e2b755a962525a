"""Is A better than B? One value of each per seed, joined by seed: a ratio in three ways, each with its interval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan

import numpy as np

from dagsim.errors import InputError
from dagsim.metrics.columns import Floats
from dagsim.metrics.intervals import (
    SAME,
    geometric_mean,
    median,
    ratio_of_means,
    standard_deviation,
    t_of_mean,
)
from dagsim.metrics.student import two_sided_p

__all__ = ["Paired", "log_ratios", "paired", "paired_by_seed"]

_FAR = 3.0
"""Standard deviations; a seed further out than this weighs too much in a mean."""


@dataclass(frozen=True, slots=True)
class Paired:
    """One scheduler's values over another's, from ``n`` seeds. NaN where something cannot be known.

    Each number has its own interval: never print one with the bounds of another.
    """

    ratio: float
    """The geometric mean of the per-seed ratios: on a typical seed A takes so many times as long as B."""
    low: float
    high: float
    p: float
    """Of the paired t test on the logs, two-sided; NaN with one seed or where every seed gives one ratio."""
    n: int
    wins: int
    """Seeds on which A's value is below B's."""
    median: float
    """The median of the per-seed ratios; its bounds are exact, and need 5 seeds."""
    median_low: float
    median_high: float
    of_means: float
    """The ratio of the means, which weighs a seed by how long its jobs take: "of all job-seconds"."""
    of_means_low: float
    of_means_high: float
    differ: int
    """Seeds on which the two values are not the same."""
    farthest_sd: float
    """How many standard deviations the most unusual log ratio lies from the mean of all; 0 where all are equal."""
    level: float = 0.95

    @property
    def is_identical(self) -> bool:
        """Both have the same value on every seed."""
        return self.differ == 0

    @property
    def is_constant(self) -> bool:
        """Two seeds or more that all give one ratio: nothing varies, so there is no interval."""
        return self.n > 1 and not isfinite(self.p)

    @property
    def is_decided_by_few(self) -> bool:
        """A few seeds decide: mean and median disagree, or one log ratio lies more than 3 sd from the mean.

        Also where the intervals of the ratio and of the ratio of means have no value in common.
        """
        if not isfinite(self.median_low) or not isfinite(self.low):
            return False
        apart = self.low > self.of_means_high or self.high < self.of_means_low
        unlike = _side(self.low, self.high) != _side(self.median_low, self.median_high)
        return apart or unlike or self.farthest_sd > _FAR


def paired(
    values: Sequence[float] | Floats,
    reference: Sequence[float] | Floats,
    level: float = 0.95,
    *,
    seeds: Sequence[int] | None = None,
    names: tuple[str, str] = ("values", "reference"),
) -> Paired:
    """The comparison of ``values`` with ``reference``; ``values[i]`` and ``reference[i]`` come from the same seed.

    ``seeds`` and ``names`` are for messages. Swapping the two gives 1 / ratio and the bounds mirrored.

    Raises:
        InputError: They differ in length or are empty, a value is not a positive number, or the level is not between 0
            and 1.
    """
    if not 0 < level < 1:
        raise InputError(f"paired comparison: level must lie between 0 and 1, got {level!r}")
    logs = log_ratios(values, reference, seeds=seeds, names=names)
    a, b = np.asarray(values, float), np.asarray(reference, float)
    n = len(logs)
    gm, om, med = geometric_mean(logs, level), ratio_of_means(a, b, level), median(a / b, level)
    sd = float(standard_deviation(logs)) if n > 1 else 0.0
    varies = sd > 0
    differ = int(np.sum(np.abs(logs) > SAME))
    return Paired(
        ratio=float(gm.value) if differ else 1.0,
        low=float(gm.low),
        high=float(gm.high),
        p=float(two_sided_p(t_of_mean(logs), n - 1)) if varies else nan,
        n=n,
        wins=int(np.sum(logs < -SAME)),
        median=float(med.value) if differ else 1.0,
        median_low=float(med.low) if varies else nan,
        median_high=float(med.high) if varies else nan,
        of_means=float(om.value) if differ else 1.0,
        of_means_low=float(om.low) if varies else nan,
        of_means_high=float(om.high) if varies else nan,
        differ=differ,
        farthest_sd=float(np.max(np.abs(logs - logs.mean()))) / sd if varies else 0.0,
        level=level,
    )


def paired_by_seed(
    values: Mapping[int, float],
    reference: Mapping[int, float],
    level: float = 0.95,
    *,
    names: tuple[str, str] = ("values", "reference"),
) -> Paired:
    """``paired`` on values by seed, in any order.

    Raises:
        InputError: A seed has a value of one only, or what ``paired`` refuses.
    """
    _check_has(values, reference, names)
    _check_has(reference, values, (names[1], names[0]))
    seeds = sorted(values)
    ours, theirs = [values[seed] for seed in seeds], [reference[seed] for seed in seeds]
    return paired(ours, theirs, level, seeds=seeds, names=names)


def log_ratios(
    values: Sequence[float] | Floats,
    reference: Sequence[float] | Floats,
    *,
    seeds: Sequence[int] | None = None,
    names: tuple[str, str] = ("values", "reference"),
) -> Floats:
    """ln(a / b) per seed.

    Raises:
        InputError: They differ in length or are empty, or a value is not a positive number.
    """
    a, b = np.asarray(values, float), np.asarray(reference, float)
    if a.ndim != 1 or a.shape != b.shape or not len(a) or (seeds is not None and len(seeds) != len(a)):
        raise InputError(
            f"paired comparison: needs two equally long lists of values, got shapes {a.shape} and {b.shape}"
            + ("" if seeds is None else f" for {len(seeds)} seeds")
        )
    for column, name in ((a, names[0]), (b, names[1])):
        _check_positive(column, name, seeds)
    logs: Floats = np.log(a) - np.log(b)  # not of the quotient: exactly opposite when the two are swapped
    return logs


def _check_positive(column: Floats, name: str, seeds: Sequence[int] | None) -> None:
    bad = np.flatnonzero(~(np.isfinite(column) & (column > 0)))
    if len(bad):
        first = int(bad[0])
        where = f"seed {seeds[first]}" if seeds is not None else f"pair {first + 1} of {len(column)}"
        raise InputError(f"paired comparison: {name}, {where}: the value must be positive, got {column[first]:g}")


def _check_has(values: Mapping[int, float], seeds: Iterable[int], names: tuple[str, str]) -> None:
    missing = sorted(set(seeds) - set(values))
    if missing:
        more = f" and {len(missing) - 1} more" if missing[1:] else ""
        raise InputError(
            f"paired comparison: {names[0]} has no value for seed {missing[0]}{more}, {names[1]} has; "
            "run both on the same seeds"
        )


def _side(low: float, high: float) -> int:
    """On which side of 1 an interval lies: -1, 1, or 0 where it holds 1."""
    return int(low > 1) - int(high < 1)
