"""The ratio of two schedulers' means over the blocks of one trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, log, nan

import numpy as np

from dagsim.errors import InputError, require
from dagsim.metrics.columns import Floats
from dagsim.metrics.intervals import geometric_mean

FEWEST_JOBS = 10_000
"""Minimum number of jobs. With fewer jobs, the blocks are correlated: with 5,000 jobs, a 95%
interval covers the true ratio in only 77% of cases."""


@dataclass(frozen=True, slots=True)
class OverTime:
    """The ratio of one scheduler's mean to another's within a single trace. The bounds are NaN if
    the ratio drifts.
    """

    ratio: float
    """Geometric mean of the ratios in ``blocks``."""
    low: float
    high: float
    pieces: tuple[float, ...]
    """The ratio of means in each block, in order of arrival."""
    jobs: int
    level: float

    @property
    def drifts(self) -> bool:
        """True if the first and the last block differ by more than half the width of the interval.
        No single interval is then valid for both blocks.
        """
        return not isfinite(self.low)

    def __str__(self) -> str:
        if self.drifts:
            first, last = self.pieces[0], self.pieces[-1]
            return f"no interval: the ratio drifts from {first:.3f} to {last:.3f} within this trace"
        return f"{self.ratio:.3f} [{self.low:.3f}, {self.high:.3f}] over time within this trace"


def over_time(
    values: Sequence[float] | Floats, reference: Sequence[float] | Floats, blocks: int = 5, level: float = 0.95
) -> OverTime:
    """Compare two runs over ``blocks`` equal parts of a trace. Each run gives one value per job, in
    order of arrival.

    A remainder of fewer than ``blocks`` jobs is spread over the blocks.

    Raises:
        InputError: There are fewer than 10,000 jobs or fewer than 2 blocks, the lengths differ, or
            a block has no work.
    """
    a, b = np.asarray(values, float), np.asarray(reference, float)
    if a.ndim != 1 or a.shape != b.shape:
        raise InputError(f"blocks: expected one value per job in both runs, got shapes {a.shape} and {b.shape}")
    require(2 <= blocks <= 100, "blocks: must be 2 to 100", blocks, InputError)
    if len(a) < FEWEST_JOBS:
        raise InputError(
            f"blocks: a trace needs at least {FEWEST_JOBS:,} jobs, because shorter blocks are correlated, "
            f"but this one has {len(a):,}"
        )
    require(0 < level < 1, "blocks: level must be between 0 and 1", level, InputError)
    pieces = [
        _ratio(ours, theirs, number)
        for number, (ours, theirs) in enumerate(
            zip(np.array_split(a, blocks), np.array_split(b, blocks), strict=True), start=1
        )
    ]
    bounds = geometric_mean(np.log(np.array(pieces)), level)
    low, high = float(bounds.low), float(bounds.high)
    if isfinite(low) and abs(log(pieces[0] / pieces[-1])) > log(high / low) / 2:
        low = high = nan
    return OverTime(float(bounds.value), low, high, tuple(pieces), len(a), level)


def _ratio(ours: Floats, theirs: Floats, number: int) -> float:
    for column in (ours, theirs):
        if not np.all(np.isfinite(column) & (column >= 0)) or not column.any():
            raise InputError(f"blocks: block {number} contains a job without a finite time, or only times of 0")
    return float(ours.mean() / theirs.mean())
