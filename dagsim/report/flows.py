"""Arrows along the edges of jobs, as the flow events of a Chrome trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dagsim.metrics.columns import Ints, ScheduleColumns
from dagsim.metrics.tasks import TaskColumns, task_columns
from dagsim.model import JobFacts

__all__ = ["Place", "flows"]


class Place(NamedTuple):
    """A slice on its thread, times in microseconds."""

    process: int
    thread: int
    start: int
    end: int


def flows(facts: Sequence[JobFacts], made: ScheduleColumns, places: dict[int, Place]) -> Iterator[dict[str, Any]]:
    """A start and an end per edge: from the last run of the parent to the first run of the child, if both are slices.

    ``places`` has the slice of each entry of ``Runs``. An arrow starts within its slice, a microsecond before its end.
    """
    tasks = task_columns(facts, made)
    if not len(tasks):
        return
    firsts, lasts = _outer_runs(tasks, made)
    for number, (parent, child) in enumerate(tasks.edges.tolist()):
        source, target = places.get(lasts[parent]), places.get(firsts[child])
        if source is None or target is None:
            continue
        known = {"name": "waits for", "cat": "edge", "id": number}
        at = max(source.start, min(source.end - 1, target.start))
        yield {"ph": "s", **known, "ts": at, "pid": source.process, "tid": source.thread}
        yield {"ph": "f", "bp": "e", **known, "ts": target.start, "pid": target.process, "tid": target.thread}


def _outer_runs(tasks: TaskColumns, made: ScheduleColumns) -> tuple[list[int], list[int]]:
    """Per task its first and its last entry of ``Runs``, -1 where it never ran."""
    runs = made.runs
    entries = np.flatnonzero(tasks.first[runs.job] >= 0)
    task = tasks.first[runs.job[entries]] + runs.task[entries]
    return _last(task, entries, -runs.start_s[entries], len(tasks)), _last(
        task, entries, runs.end_s[entries], len(tasks)
    )


def _last(task: Ints, entries: Ints, by: np.ndarray, count: int) -> list[int]:
    """Per task the entry with the largest value, the first listed of equal ones."""
    order = np.lexsort((-entries, by, task))
    found = np.full(count, -1, np.int64)
    found[task[order]] = entries[order]
    chosen: list[int] = found.tolist()
    return chosen
