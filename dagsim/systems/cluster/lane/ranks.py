"""Sums and longest paths over each job's tasks. Additions come in the SimPy kernel's order."""

from __future__ import annotations

import numpy as np

from dagsim.systems.cluster.lane.columns import Classes, Work
from dagsim.systems.cluster.lane.jit import int64, outer

__all__ = ["ideal_s", "job_gpu_seconds", "upward_rank", "widths"]


def upward_rank(work: Work, best_s: np.ndarray) -> np.ndarray:
    """(n,) float64: per task the longest path from its start to the end of its job, with ``best_s`` per task."""
    rank = best_s.copy()
    _add_longest(work.order, work.tasks, work.child, rank)
    return rank


def ideal_s(work: Work, rank: np.ndarray) -> np.ndarray:
    """(J,) float64: the longest path through each job, from the ranks of its tasks."""
    return np.maximum.reduceat(rank, work.jobs.first[:-1]) if len(rank) else np.zeros(0)


def job_gpu_seconds(work: Work, classes: Classes, best_s: np.ndarray) -> np.ndarray:
    """(J,) float64: GPU-seconds of all instances of a job, each on its fastest type."""
    rows = work.rows
    gpus = classes.table.gpus[rows.kind] * rows.instances
    sums = np.zeros(len(work.jobs.arrival_s))
    _add_up(rows.job, gpus, best_s, sums)
    return sums


def widths(work: Work, classes: Classes) -> np.ndarray:
    """(J,) float64: the most GPUs that any one task of a job can hold at once."""
    rows = work.rows
    gpus = classes.table.gpus[rows.kind] * rows.instances
    return np.maximum.reduceat(gpus, work.jobs.first[:-1]) if len(gpus) else np.zeros(0)


@outer
def _add_longest(order: np.ndarray, tasks: np.recarray, child: np.ndarray, rank: np.ndarray) -> None:
    """Add to every rank the longest of its children's."""
    for place in range(len(rank) - 1, -1, -1):
        task = int64(order[place]) if len(order) else place
        longest = 0.0
        for edge in range(tasks[task].children, tasks[task + 1].children):
            longest = max(longest, rank[child[edge]])
        rank[task] += longest


@outer
def _add_up(job: np.ndarray, gpus: np.ndarray, best_s: np.ndarray, sums: np.ndarray) -> None:
    """Add every task's GPU-seconds to its job's."""
    for task in range(len(job)):
        if gpus[task]:
            sums[job[task]] += gpus[task] * best_s[task]
