"""Disjoint windows of a trace, spread evenly over it: each is a sample of its own.

Windows in a row see one time of the trace only (30 in a row of ITP: 95 % intervals that cover 85 %), and windows that
overlap count jobs twice.
"""

from __future__ import annotations

from dagsim.errors import WorkloadError

__all__ = ["most_windows", "spread_order", "spread_windows"]


def spread_windows(
    jobs: int, windows: int, window_jobs: int, part: tuple[float, float] = (0.0, 1.0)
) -> tuple[range, ...]:
    """The windows: so many ranges of ``window_jobs`` jobs, in order, each in the middle of its
    equal share.

    ``part`` is the share of the trace that may be used, as fractions of its ``jobs``.

    Raises:
        WorkloadError: They would overlap, or ask for no window or for windows of less than 2 jobs.
    """
    most = most_windows(jobs, window_jobs, part)
    if windows < 1:
        raise WorkloadError(f"windows must be 1 or more, got {windows!r}")
    first, last = _bounds(jobs, part)
    if windows > most:
        raise WorkloadError(
            f"{windows:,} windows of {window_jobs:,} jobs would overlap in jobs {first:,} to {last:,}: "
            f"{most:,} fit; ask for fewer or shorter ones"
        )
    share = last - first
    # The middle of the i-th share less half a window, in whole numbers: starts lie at least window_jobs apart.
    starts = (first + ((2 * i + 1) * share - windows * window_jobs) // (2 * windows) for i in range(windows))
    return tuple(range(start, start + window_jobs) for start in starts)


def most_windows(jobs: int, window_jobs: int, part: tuple[float, float] = (0.0, 1.0)) -> int:
    """The number of disjoint windows that fit; 0 where not even one fits.

    Raises:
        WorkloadError: A window of less than 2 jobs, or a part that is not one.
    """
    if window_jobs < 2:
        raise WorkloadError(f"a window must have 2 jobs or more, got {window_jobs!r}")
    first, last = _bounds(jobs, part)
    return (last - first) // window_jobs


def spread_order(windows: int) -> tuple[int, ...]:
    """The places 0 to ``windows`` - 1, spread out in every beginning. The order is 0, 4, 2, 6, 1, 5, 3, 7.

    For ``--precision`` on a trace, which does not know beforehand how many windows it will use (van der Corput).
    """
    bits = max(windows - 1, 0).bit_length()
    return tuple(place for i in range(1 << bits) if (place := _reversed(i, bits)) < windows)


def _reversed(number: int, bits: int) -> int:
    return int(f"{number:0{bits}b}"[::-1], 2) if bits else 0


def _bounds(jobs: int, part: tuple[float, float]) -> tuple[int, int]:
    low, high = part
    if not 0 <= low < high <= 1:
        raise WorkloadError(f"a part of a trace must lie between 0 and 1, from the smaller fraction, got {part!r}")
    return round(low * jobs), round(high * jobs)
