"""Paired comparison of two policies, with one value of each policy per seed: ratios, intervals and
verdicts. It includes a sequential rule, which adds seeds and checks the interval until it is as
narrow as requested.

If the rule starts at 20 seeds and checks after every ten, the interval keeps its coverage. Checking
after every seed from the second onwards would lose up to 9 percentage points of coverage on
generated workloads and 47 on a trace (``scripts/validate_intervals.py`` measures the rule).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from math import ceil, expm1, inf, isfinite, isnan, log, nan, sqrt
from statistics import NormalDist
from types import MappingProxyType

import numpy as np

from dagsim.errors import InputError, require
from dagsim.metrics.columns import Floats
from dagsim.metrics.intervals import (
    SAME,
    enough_seeds,
    geometric_mean,
    median,
    ratio_of_means,
    samples_needed,
    seeds_for_interval,
    standard_deviation,
    t_of_mean,
)
from dagsim.metrics.student import t_quantile, two_sided_p

_FAR = 3.0
"""A seed that is further than this from the mean, in standard deviations, has too much weight."""


@dataclass(frozen=True, slots=True)
class Paired:
    """The ratios of scheduler A's values to scheduler B's, from ``n`` seeds. Unknown values are
    NaN.

    Each ratio has its own interval. Never print one ratio with the bounds of another.
    """

    ratio: float
    """Geometric mean of the per-seed ratios: a value of 0.9 means that A takes 0.9 times as long as
    B on a typical seed.
    """
    low: float
    high: float
    p: float
    """Two-sided p of the paired t test on the logs. NaN with one seed, or if all seeds have the
    same ratio.
    """
    n: int
    wins: int
    """Number of seeds on which A's value is below B's."""
    median: float
    """Median of the per-seed ratios. Its bounds are exact and need at least 5 seeds."""
    median_low: float
    median_high: float
    of_means: float
    """Ratio of the means. It weights each seed by the length of its jobs, so it describes the total
    of all job-seconds.
    """
    of_means_low: float
    of_means_high: float
    differ: int
    """Number of seeds on which the two values differ."""
    farthest_sd: float
    """Distance of the most unusual log ratio from the mean, in standard deviations, or 0 if all log
    ratios are equal.
    """
    seeds_needed: int
    """Number of seeds that the interval of ``ratio`` needs, as far as the data show, or 0 if ``n``
    is enough.
    """
    level: float = 0.95

    @property
    def is_identical(self) -> bool:
        """True if both schedulers have the same value on every seed."""
        return self.differ == 0

    @property
    def is_constant(self) -> bool:
        """True if there are several seeds and all have the same ratio. Nothing varies then, so
        there is no interval.
        """
        return self.n > 1 and not isfinite(self.p)

    @property
    def is_decided_by_few(self) -> bool:
        """True if a few seeds determine the result.

        This is the case if one of the following is true:

        - The intervals of the mean and of the median lie on different sides of 1, or only one of
          them contains 1.
        - A log ratio is more than 3 standard deviations away from the mean.
        - The intervals of the ratio and of the ratio of means have no value in common.
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
    largest_job: float = 0.0,
) -> Paired:
    """Compare ``values`` with ``reference``. ``values[i]`` and ``reference[i]`` come from the same
    seed.

    ``seeds`` and ``names`` are used in messages. ``largest_job`` is the fraction of a seed's
    job-seconds that its largest job takes, if known (see ``seeds_for_interval``). Swapping
    ``values`` and ``reference`` gives 1 / ratio and mirrored bounds.

    Raises:
        InputError: The two differ in length or are empty, a value is not a positive number, or the
            level is not between 0 and 1.
    """
    require(0 < level < 1, "paired comparison: level must be between 0 and 1", level, InputError)
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
        seeds_needed=int(seeds_for_interval(logs, largest_job)) if varies else 0,
        level=level,
    )


def log_ratios(
    values: Sequence[float] | Floats,
    reference: Sequence[float] | Floats,
    *,
    seeds: Sequence[int] | None = None,
    names: tuple[str, str] = ("values", "reference"),
) -> Floats:
    """Return ln(a / b) per seed.

    Raises:
        InputError: The two differ in length or are empty, or a value is not a positive number.
    """
    a, b = np.asarray(values, float), np.asarray(reference, float)
    if a.ndim != 1 or a.shape != b.shape or not len(a) or (seeds is not None and len(seeds) != len(a)):
        raise InputError(
            f"paired comparison: needs two equally long lists of values, got shapes {a.shape} and {b.shape}"
            + ("" if seeds is None else f" for {len(seeds)} seeds")
        )
    for column, name in ((a, names[0]), (b, names[1])):
        _check_positive(column, name, seeds)
    # Do not take the log of the quotient: swapping a and b must exactly negate the result.
    logs: Floats = np.log(a) - np.log(b)
    return logs


def _check_positive(column: Floats, name: str, seeds: Sequence[int] | None) -> None:
    bad = np.flatnonzero(~(np.isfinite(column) & (column > 0)))
    if len(bad):
        first = int(bad[0])
        where = f"seed {seeds[first]}" if seeds is not None else f"pair {first + 1} of {len(column)}"
        raise InputError(f"paired comparison: {name}, {where}: the value must be positive, got {column[first]:g}")


def _side(low: float, high: float) -> int:
    """Return the side of 1 on which an interval lies: -1, 1, or 0 if it contains 1."""
    return int(low > 1) - int(high < 1)


ENOUGH_SEEDS = 5
"""Minimum sample size for a verdict. For smaller samples, no distribution-free two-sided 95%
interval exists."""


class Verdict(StrEnum):
    """The result of a comparison: whether a policy is better than the reference."""

    BETTER = "better"
    WORSE = "worse"
    NOT_TOLD_APART = "not told apart"
    IDENTICAL = "identical"
    CONSTANT = "the same ratio"
    TOO_FEW = "too few seeds"


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One row in a table in which every row is compared with the same reference."""

    pair: Paired
    p: float
    """The p-value after Holm's correction over all rows of the table, or NaN if there is nothing to
    test.
    """
    alike: tuple[str, ...]
    """Other rows, possibly including the reference, that have the same values on every seed.
    Together they count as one comparison.
    """


def compared(
    rows: Mapping[str, Sequence[float] | Floats],
    reference: str,
    level: float = 0.95,
    *,
    seeds: Sequence[int] | None = None,
    largest_job: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, ComparedRow]:
    """Compare all other rows with the reference. Holm's correction is applied over the distinct
    rows.

    ``largest_job`` contains, for each row, the fraction of a seed's job-seconds that its largest
    job takes, if known.

    Choose the reference in advance, because a comparison with the best row of the same table is
    unfair.

    Raises:
        InputError: There is no such row, or ``paired`` rejects the values.
    """
    if reference not in rows:
        raise InputError(f"comparison: there is no row {reference!r} among {', '.join(rows)}")
    others = [name for name in rows if name != reference]
    base = rows[reference]
    pairs = {
        name: paired(
            rows[name],
            base,
            level,
            seeds=seeds,
            names=(name, reference),
            largest_job=max(largest_job.get(name, 0.0), largest_job.get(reference, 0.0)),
        )
        for name in others
    }
    logs = {name: log_ratios(rows[name], base, seeds=seeds, names=(name, reference)) for name in others}
    groups = alike(logs)
    adjusted = holm([pairs[group[0]].p for group in groups])
    p_of = {name: p for group, p in zip(groups, adjusted, strict=True) for name in group}
    group_of = {name: group for group in groups for name in group}
    return {
        name: ComparedRow(
            pairs[name],
            p_of[name],
            tuple(other for other in group_of[name] if other != name)
            + ((reference,) if pairs[name].is_identical else ()),
        )
        for name in others
    }


def alike(logs: Mapping[str, Floats]) -> list[tuple[str, ...]]:
    """Group the names whose logs are equal, in order of appearance."""
    groups: list[list[str]] = []
    for name, values in logs.items():
        home = next((group for group in groups if np.max(np.abs(logs[group[0]] - values)) <= SAME), None)
        if home is None:
            groups.append([name])
        else:
            home.append(name)
    return [tuple(group) for group in groups]


def holm(p: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values in the order of ``p`` (Holm 1979).

    NaN marks a row without a comparison and remains NaN.
    """
    ranked = sorted((value, place) for place, value in enumerate(p) if not isnan(value))
    adjusted, largest = [nan] * len(p), 0.0
    for passed, (value, place) in enumerate(ranked):
        largest = max(largest, min(1.0, (len(ranked) - passed) * value))
        adjusted[place] = largest
    return adjusted


def verdict(pair: Paired, p: float | None = None, *, lower_is_better: bool = True) -> Verdict:
    """Return the verdict on one comparison. In a table, ``p`` is the p-value adjusted by Holm's
    method.
    """
    if pair.is_identical:
        return Verdict.IDENTICAL
    if pair.n < ENOUGH_SEEDS:
        return Verdict.TOO_FEW
    if pair.is_constant:
        return Verdict.CONSTANT
    if not (pair.p if p is None else p) < 1 - pair.level:
        return Verdict.NOT_TOLD_APART
    return Verdict.BETTER if (pair.ratio < 1) == lower_is_better else Verdict.WORSE


def words(pair: Paired, p: float | None = None, *, unit: str = "seed", lower_is_better: bool = True) -> str:
    """Return the verdict in words, such as ``better in 18 of 20 seeds``.

    ``unit`` is ``seed``, or ``window`` for a real trace.
    """
    answer = verdict(pair, p, lower_is_better=lower_is_better)
    units = f"{pair.n} {unit}{'' if pair.n == 1 else 's'}"
    if answer is Verdict.IDENTICAL:
        return f"identical in {units}"
    wins = pair.wins if lower_is_better else pair.differ - pair.wins
    parts = [_sentence(answer, pair, unit), f"better in {wins} of {units}"]
    if answer is Verdict.TOO_FEW:
        return "; ".join(parts)
    if pair.is_decided_by_few:
        parts.append(f"depends on a few {unit}s")
    if needed := samples_needed(pair.seeds_needed, pair.n, unit) if isfinite(pair.low) else 0:
        parts.append(f"approximate: {enough_seeds(needed, unit)}")
    return "; ".join(parts)


def _sentence(answer: Verdict, pair: Paired, unit: str) -> str:
    match answer:
        case Verdict.TOO_FEW:
            return f"too few {unit}s for a verdict"
        case Verdict.CONSTANT:
            return f"{pair.ratio:.4g} times in every {unit}"
        case Verdict.NOT_TOLD_APART:
            could = f"{100 * (pair.low - 1):+.1f}% to {100 * (pair.high - 1):+.1f}%"
            # significant on its own, but not after Holm's correction for the whole table
            alone = pair.p < 1 - pair.level
            return f"not told apart in this table (alone: {could})" if alone else f"not told apart (could be {could})"
        case _:
            return answer.value


MUST_DIFFER = 5
"""Minimum number of seeds on which the policies differ. With fewer such seeds, the interval may be
narrow by chance.
"""


class Ending(StrEnum):
    """The state of a comparison after a check."""

    GOES_ON = "goes on"
    ENOUGH = "precise enough"
    IDENTICAL = "identical"
    HOPELESS = "needs too many seeds"
    USED_UP = "seeds used up"


@dataclass(frozen=True, slots=True)
class Look:
    """The result of checking a comparison once."""

    ending: Ending
    n: int
    more: int
    """Seeds to add before the next check, or 0 if the comparison has ended."""
    half_width: float
    """Half-width of the interval, as a fraction. It is 0.02 if the interval extends from 1 / 1.02
    to 1.02 times the ratio.
    """
    needs: float
    """The estimated number of seeds needed, based on the spread so far, or infinity if the policies
    differ on no seed.
    """
    approximate: str = ""
    """Number of seeds that the interval needs, in words. It is empty if ``n`` is enough."""

    def __str__(self) -> str:
        return "; approximate: ".join(filter(None, (self._state(), self.approximate)))

    def _state(self) -> str:
        match self.ending:
            case Ending.GOES_ON if not isfinite(self.half_width):
                return f"{self.n} seeds; {self.more} more before the first check"
            case Ending.GOES_ON:
                return f"+-{100 * self.half_width:.1f}% after {self.n} seeds; {self.more} more"
            case Ending.ENOUGH:
                return f"+-{100 * self.half_width:.1f}% after {self.n} seeds"
            case Ending.IDENTICAL:
                return f"identical in {self.n} seeds"
            case _:
                about = f"needs about {self.needs:,.0f} seeds" if isfinite(self.needs) else "too few seeds differ"
                return f"+-{100 * self.half_width:.1f}% after {self.n} seeds; {about}"


@dataclass(frozen=True, slots=True)
class Precision:
    """The rule for when to stop adding seeds: half the width of the interval, on a logarithmic
    scale, is at most ln(1 + ``within``).

    If the first ``start`` seeds suggest that more than ``cap`` seeds are needed, the comparison
    ends there and reports the estimate.
    """

    within: float
    """Target half-width as a fraction of the ratio, such as 0.02 for 2%."""
    start: int = 20
    step: int = 10
    cap: int = 500
    """Maximum number of seeds. On a trace, it is at most the number of disjoint windows."""
    level: float = 0.95
    unit: str = "seed"
    """``seed``, or ``window`` for a real trace."""

    def __post_init__(self) -> None:
        if not 0 < self.within < 1:
            raise InputError(f"precision: must be above 0% and below 100%, got {100 * self.within:g}%")
        if self.start < MUST_DIFFER or self.step < 1:
            raise InputError(
                f"precision: start must be at least {MUST_DIFFER} and step at least 1, got {self.start} and {self.step}"
            )
        if self.cap < self.start:
            raise InputError(
                f"precision: needs {self.start} seeds or windows to start with, but there are only {self.cap}"
            )

    def look(self, logs: Floats, largest_job: float = 0.0) -> Look:
        """Return the state of a comparison after some seeds. ``logs`` contains their log ratios, in
        the order in which the seeds were run. ``largest_job`` has the same meaning as in
        ``seeds_for_interval``.
        """
        n = len(logs)
        if n < self.start:
            return Look(Ending.GOES_ON, n, self.start - n, inf, inf)
        sd, differ = float(standard_deviation(logs)), _differ(logs)
        needs = self._forecast(sd, differ, n)
        first = needs if n == self.start else self.forecast(logs[: self.start])
        half_width = t_quantile(self.level, n - 1) * sd / sqrt(n)
        ending = self._ending(n, half_width, differ, first)
        more = min(self.step, self.cap - n) if ending is Ending.GOES_ON else 0
        needed = samples_needed(int(seeds_for_interval(logs, largest_job)), n, self.unit) if sd > 0 else 0
        return Look(ending, n, more, expm1(half_width), needs, enough_seeds(needed, self.unit) if needed else "")

    def forecast(self, logs: Floats) -> float:
        """Estimate the number of seeds as (1.96 sd / ln(1 + within))^2. The estimate is at least
        the number at which the policies can be expected to differ on 5 seeds. It is infinite if
        they do not differ on any seed.
        """
        return self._forecast(float(standard_deviation(logs)), _differ(logs), len(logs))

    def _forecast(self, sd: float, differ: int, n: int) -> float:
        if not differ:
            return inf
        narrow = (_normal_quantile(self.level) * sd / log(1 + self.within)) ** 2
        return ceil(max(narrow, MUST_DIFFER * n / differ, self.start))

    def _ending(self, n: int, half_width: float, differ: int, first_forecast: float) -> Ending:
        if not differ:
            return Ending.IDENTICAL
        if half_width <= log(1 + self.within) and differ >= MUST_DIFFER:
            return Ending.ENOUGH
        if first_forecast > self.cap:
            return Ending.HOPELESS
        return Ending.USED_UP if n >= self.cap else Ending.GOES_ON


def _differ(logs: Floats) -> int:
    return int((abs(logs) > SAME).sum())


@lru_cache
def _normal_quantile(level: float) -> float:
    return NormalDist().inv_cdf((1 + level) / 2)
