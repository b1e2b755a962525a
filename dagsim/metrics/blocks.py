"""One run of one trace: an interval over time within it, from a few disjoint blocks of its jobs.

Jobs that wait in one queue are far from independent (5,000 at a load of .9 are worth a few dozen), so no resampling of
jobs gives an honest interval. Five blocks of a long trace are nearly independent of each other: one ratio of means
each, and Student's t with 4 degrees of freedom on their logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, log, nan

import numpy as np

from dagsim.errors import InputError
from dagsim.metrics.columns import Floats
from dagsim.metrics.intervals import geometric_mean

__all__ = ["FEWEST_JOBS", "OverTime", "over_time"]

FEWEST_JOBS = 10_000
"""Fewer jobs make blocks that hang together: 95 % intervals that cover 77 % at 5,000."""


@dataclass(frozen=True, slots=True)
class OverTime:
    """One scheduler's mean over another's within one trace. NaN bounds where the trace drifts."""

    ratio: float
    """The geometric mean of the blocks' ratios of means."""
    low: float
    high: float
    pieces: tuple[float, ...]
    """The blocks' ratios of means, in order of arrival."""
    jobs: int
    level: float

    @property
    def drifts(self) -> bool:
        """The first and the last block differ by more than the interval's half-width: no interval holds for both."""
        return not isfinite(self.low)

    def __str__(self) -> str:
        if self.drifts:
            first, last = self.pieces[0], self.pieces[-1]
            return f"no interval: the ratio drifts from {first:.3f} to {last:.3f} within this trace"
        return f"{self.ratio:.3f} [{self.low:.3f}, {self.high:.3f}] over time within this trace"


def over_time(
    values: Sequence[float] | Floats, reference: Sequence[float] | Floats, blocks: int = 5, level: float = 0.95
) -> OverTime:
    """The ratio over ``blocks`` equal pieces of a trace; both have one value per job, jobs in order of arrival.

    A remainder of less than ``blocks`` jobs is spread over the blocks.

    Raises:
        InputError: There are fewer than 10,000 jobs, fewer than 2 blocks, unlike lengths, or a block without work.
    """
    a, b = np.asarray(values, float), np.asarray(reference, float)
    if a.ndim != 1 or a.shape != b.shape:
        raise InputError(f"blocks: needs one value per job of either run, got shapes {a.shape} and {b.shape}")
    if not 2 <= blocks <= 100:
        raise InputError(f"blocks: must be 2 to 100, got {blocks!r}")
    if len(a) < FEWEST_JOBS:
        raise InputError(
            f"blocks: needs {FEWEST_JOBS:,} jobs or more, this trace has {len(a):,}; blocks of fewer hang together"
        )
    if not 0 < level < 1:
        raise InputError(f"blocks: level must lie between 0 and 1, got {level!r}")
    pieces = [
        _ratio(ours, theirs, number)
        for number, (ours, theirs) in enumerate(
            zip(np.array_split(a, blocks), np.array_split(b, blocks), strict=True), start=1
        )
    ]
    found = geometric_mean(np.log(np.array(pieces)), level)
    low, high = float(found.low), float(found.high)
    if isfinite(low) and abs(log(pieces[0] / pieces[-1])) > log(high / low) / 2:
        low = high = nan
    return OverTime(float(found.value), low, high, tuple(pieces), len(a), level)


def _ratio(ours: Floats, theirs: Floats, number: int) -> float:
    for column in (ours, theirs):
        if not np.all(np.isfinite(column) & (column >= 0)) or not column.any():
            raise InputError(f"blocks: block {number} has a job without a finite time, or only times of 0")
    return float(ours.mean() / theirs.mean())
