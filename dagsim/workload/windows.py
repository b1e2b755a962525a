"""Select the jobs that count: in a trace, disjoint windows that are spread evenly over it, and in a
run, the measured jobs.

Each window is a separate sample. Consecutive windows would cover only one period of the trace (with
30 consecutive windows of ITP, 95% intervals have a coverage of 85%), and overlapping windows would
count jobs twice. All jobs in a run are simulated, but only the measured jobs are counted. The
measured jobs are a range of the jobs in order of arrival.
"""

from __future__ import annotations

from typing import TypeAlias

from dagsim.errors import WorkloadError, require
from dagsim.text import count_of


def spread_windows(
    jobs: int, windows: int, window_jobs: int, part: tuple[float, float] = (0.0, 1.0)
) -> tuple[range, ...]:
    """Return ``windows`` ranges of ``window_jobs`` jobs, in order. The usable part of the trace is
    divided into equal shares, and each window is in the middle of its share.

    ``part`` is the usable part of the trace, as fractions of its ``jobs``.

    Raises:
        WorkloadError: The windows would overlap, there are none, or they contain fewer than 2 jobs.
    """
    most = most_windows(jobs, window_jobs, part)
    require(windows >= 1, "windows must be 1 or more", windows, WorkloadError)
    first, last = _bounds(jobs, part)
    if windows > most:
        raise WorkloadError(
            f"{windows:,} windows of {window_jobs:,} jobs would overlap in jobs {first:,} to {last:,}, "
            f"where only {most:,} fit; choose fewer or shorter windows"
        )
    share = last - first
    # Divide the range into equal shares and centre a window in each, in whole numbers. Starts are
    # at least window_jobs apart, so windows do not overlap.
    starts = (first + ((2 * i + 1) * share - windows * window_jobs) // (2 * windows) for i in range(windows))
    return tuple(range(start, start + window_jobs) for start in starts)


def most_windows(jobs: int, window_jobs: int, part: tuple[float, float] = (0.0, 1.0)) -> int:
    """Return the number of disjoint windows that fit, possibly 0.

    Raises:
        WorkloadError: The window contains fewer than 2 jobs, or the part is invalid.
    """
    require(window_jobs >= 2, "a window must have 2 jobs or more", window_jobs, WorkloadError)
    first, last = _bounds(jobs, part)
    return (last - first) // window_jobs


def spread_order(windows: int) -> tuple[int, ...]:
    """Return the indices 0 to ``windows`` - 1 in such an order that the first k of them are always
    spread out: 0, 4, 2, 6, 1, 5, 3, 7.

    This order is used for ``--precision`` on a trace, where the number of windows is not known in
    advance (van der Corput).
    """
    bits = max(windows - 1, 0).bit_length()
    return tuple(place for i in range(1 << bits) if (place := _reversed(i, bits)) < windows)


def _reversed(number: int, bits: int) -> int:
    return int(f"{number:0{bits}b}"[::-1], 2) if bits else 0


def _bounds(jobs: int, part: tuple[float, float]) -> tuple[int, int]:
    low, high = part
    if not 0 <= low < high <= 1:
        raise WorkloadError(
            f"a part of a trace must be two fractions between 0 and 1, the smaller one first, got {part!r}"
        )
    return round(low * jobs), round(high * jobs)


Measure: TypeAlias = tuple[int, int | None]
"""The measured jobs, like a Python slice: from job FROM (counted from 0) up to, but not including,
job TO. A negative TO counts from the end, and ``None`` is the end."""


def check_measure(measure: Measure | None, count: int | None = None) -> None:
    """Reject a range of measured jobs that is not valid for any run or, with ``count``, for a run
    with this number of jobs.

    Raises:
        WorkloadError: The range begins below 0, ends before it begins, or contains no job.
    """
    if measure is None:
        return
    first, last = measure
    if count is not None and first >= 0 and not range(count)[first:last]:
        tenth = count // 10
        shorter = f"workload.measure={tenth}:-{tenth} leaves out 10% at each end, " if tenth else ""
        raise WorkloadError(
            f"measure {first}:{'' if last is None else last} contains none of the {count_of(count, 'job')}; "
            f"{shorter}workload.measure=null counts all of them"
        )
    if first < 0 or (last is not None and 0 <= last <= first):
        raise WorkloadError(
            f"measure: the first job must come before the last one, got {first}:{'' if last is None else last}"
        )


def parse_measure(text: str) -> list[int | None]:
    """Parse ``1000:19000``, ``1000:-1000`` or ``1000:`` as the first and the last measured job.

    Raises:
        WorkloadError: The text has none of these forms.
    """
    first, colon, last = text.partition(":")
    try:
        if not colon:
            raise ValueError
        return [int(first or 0), int(last) if last.strip() else None]
    except ValueError:
        raise WorkloadError(f"measure: expected FROM:TO, such as 1000:19000 or 1000:-1000, got {text!r}") from None
