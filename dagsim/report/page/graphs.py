"""The graphs of jobs as the page draws them: tasks with their times, edges, and critical paths."""

from __future__ import annotations

from typing import Any

import numpy as np

from dagsim.metrics.columns import Ints, ScheduleColumns
from dagsim.metrics.jct import jct
from dagsim.metrics.tasks import TaskColumns, task_columns
from dagsim.model.log import Schedule
from dagsim.report.page.packing import Packer

__all__ = ["graphs"]


def graphs(made: ScheduleColumns, schedule: Schedule, packer: Packer, most_tasks: int) -> dict[str, Any] | None:
    """The jobs of several tasks, the longest in the system first, up to so many tasks; ``None`` where there is none.

    Times are seconds since the job's arrival, -1 where not known. ``edges`` and ``blocker`` count within the job.
    """
    tasks = task_columns(schedule.jobs, made)
    known = np.flatnonzero(tasks.first >= 0)
    if not len(known):
        return None
    count = np.bincount(tasks.job, minlength=len(made.jobs))
    longest = known[np.argsort(-np.nan_to_num(jct(made.at_horizon())[known]), kind="stable")]
    jobs = longest[np.cumsum(count[longest]) <= most_tasks]
    if not len(jobs):
        jobs = longest[:1]
    entry = np.concatenate([np.arange(tasks.first[job], tasks.first[job] + count[job]) for job in jobs.tolist()])
    edges, edge_count = _edges_of(tasks, jobs)
    blocker = tasks.blocker[entry]
    base = made.jobs.arrival_s[tasks.job[entry]]
    names: dict[str, int] = {}
    named = [
        names.setdefault(schedule.jobs[job].tasks[task], len(names))
        for job, task in zip(tasks.job[entry].tolist(), tasks.task[entry].tolist(), strict=True)
    ]
    return {
        "of": len(known),
        "job": packer.add(jobs, "i4"),
        "tasks": packer.add(count[jobs], "i4"),
        "edge_count": packer.add(edge_count, "i4"),
        "edges": packer.add(edges.ravel(), "i4"),
        "names": list(names),
        "name": packer.add(named, "i4"),
        "ready": packer.add(np.nan_to_num(tasks.ready_s[entry] - base, nan=-1.0), "f4"),
        "start": packer.add(np.nan_to_num(tasks.start_s[entry] - base, nan=-1.0), "f4"),
        "end": packer.add(np.nan_to_num(tasks.end_s[entry] - base, nan=-1.0), "f4"),
        "blocker": packer.add(np.where(blocker >= 0, tasks.task[blocker], -1), "i4"),
    }


def _edges_of(tasks: TaskColumns, jobs: Ints) -> tuple[Ints, Ints]:
    """(m, 2): parent and child within their job, by job; and how many each has."""
    whose = tasks.job[tasks.edges[:, 1]]
    place = np.full(len(tasks.first), -1, np.int64)
    place[jobs] = np.arange(len(jobs))
    mine = place[whose] >= 0
    order = np.argsort(place[whose[mine]], kind="stable")
    counted = np.bincount(place[whose[mine]], minlength=len(jobs))
    found: Ints = tasks.task[tasks.edges[mine][order]]
    return found, counted
