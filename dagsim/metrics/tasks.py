"""Times of each task of a job: ready, started, ended; and the parent that it waited for last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from dagsim.metrics.columns import Floats, Ints, ScheduleColumns
from dagsim.model import JobFacts

__all__ = ["TaskColumns", "task_columns"]


@dataclass(frozen=True, slots=True, eq=False)
class TaskColumns:
    """One entry per task of jobs with known graphs of several tasks, ordered by job and position in
    its graph.
    """

    first: Ints
    """Entry of each job's first task, by ``Record.job``; -1 if it has none."""
    job: Ints
    task: Ints
    ready_s: Floats
    """End of the task's last parent, or the job's arrival. NaN if a parent never ran."""
    start_s: Floats
    """First start; NaN if the task never ran."""
    end_s: Floats
    """Last end. The end of the log if the task is still running, NaN if it never ran."""
    blocker: Ints
    """Entry of the parent that ended last; -1 if the task has no parent, or none ran."""
    edges: Ints
    """Entries of parent and child, (m, 2)."""

    def __len__(self) -> int:
        return len(self.job)


def task_columns(facts: Iterable[JobFacts], cols: ScheduleColumns) -> TaskColumns:
    """Unroll the tasks of a schedule. O(runs + edges log edges)."""
    listed = list(facts)
    count = np.array([len(job.parents) if len(job.parents) > 1 else 0 for job in listed], np.int64)
    first = np.cumsum(count) - count
    job = np.repeat(np.arange(len(count)), count)
    task = np.arange(len(job)) - first[job]
    runs = cols.runs
    mine = count[runs.job] > 0
    entry = first[runs.job[mine]] + runs.task[mine]
    start_s, end_s = np.full(len(job), np.inf), np.full(len(job), -np.inf)
    np.minimum.at(start_s, entry, runs.start_s[mine])
    np.maximum.at(end_s, entry, runs.end_s[mine])
    start_s[np.isinf(start_s)] = end_s[np.isinf(end_s)] = np.nan
    edges = np.array(list(_edges(listed, first.tolist())), np.int64).reshape(-1, 2)
    ready_s, blocker = _ready(cols.jobs.arrival_s[job], end_s, edges)
    return TaskColumns(np.where(count > 0, first, -1), job, task, ready_s, start_s, end_s, blocker, edges)


def _edges(facts: list[JobFacts], first: list[int]) -> Iterator[tuple[int, int]]:
    for job, start in zip(facts, first, strict=True):
        if len(job.parents) > 1:
            for child, parents in enumerate(job.parents):
                for parent in parents:
                    yield start + parent, start + child


def _ready(arrival_s: Floats, end_s: Floats, edges: Ints) -> tuple[Floats, Ints]:
    """Return the end of each entry's last parent, and the entry of that parent."""
    ready_s, blocker = arrival_s.copy(), np.full(len(arrival_s), -1, np.int64)
    parent, child = edges.T
    order = np.lexsort((-parent, end_s[parent], child))  # NaN is last: a parent that never ran
    parent, child = parent[order], child[order]
    last = np.append(child[1:] != child[:-1], True)[: len(child)]
    ready_s[child[last]] = end_s[parent[last]]
    ran = last & np.isfinite(end_s[parent])
    blocker[child[ran]] = parent[ran]
    return ready_s, blocker
