"""Measured jobs of a run: a stretch of them by arrival; all others run, too, but are not counted."""

from __future__ import annotations

from typing import TypeAlias

from dagsim.errors import WorkloadError

__all__ = ["Measure", "check_measure", "parse_measure"]

Measure: TypeAlias = tuple[int, int | None]
"""From job FROM (counted from 0) up to job TO, as a slice of Python: a negative TO counts from the end, ``None`` is
the end."""


def check_measure(measure: Measure | None, count: int | None = None) -> None:
    """Refuse a stretch that no run has; ``count`` is the number of jobs, if known.

    Raises:
        WorkloadError: It begins below 0, ends before it begins, or holds none of the jobs.
    """
    if measure is None:
        return
    first, last = measure
    if count is not None and first >= 0 and not range(count)[first:last]:
        raise WorkloadError(f"measure {first}:{'' if last is None else last} holds none of {count:,} jobs")
    if first < 0 or (last is not None and 0 <= last <= first):
        raise WorkloadError(f"measure must go from a job to a later one, got {first}:{'' if last is None else last}")


def parse_measure(text: str) -> list[int | None]:
    """``1000:19000``, ``1000:-1000`` or ``1000:`` as first and last.

    Raises:
        WorkloadError: It is something else.
    """
    first, colon, last = text.partition(":")
    try:
        if not colon:
            raise ValueError
        return [int(first or 0), int(last) if last.strip() else None]
    except ValueError:
        raise WorkloadError(f"measure: expected FROM:TO, as 1000:19000 or 1000:-1000, got {text!r}") from None
