"""Runs that did not finish: preempted, failed, started again."""

from __future__ import annotations

import numpy as np

from dagsim.metrics.columns import Source, columns, distinct
from dagsim.model import Kind

__all__ = ["failures", "node_failures", "preemptions", "restarts"]


def preemptions(source: Source) -> int:
    """Runs stopped by a decision; a run that spans nodes counts once."""
    return _ended(source, Kind.PREEMPTED)


def failures(source: Source) -> int:
    """Runs stopped because a node went down; a run that spans nodes counts once."""
    return _ended(source, Kind.FAILED)


def restarts(source: Source) -> int:
    """Runs of a task that started after one of its runs was preempted or failed.

    For a task of one instance, that is how often it was started again. Of a task with many instances, every run after
    the first stop counts, as instances are not told apart.
    """
    runs = columns(source).runs
    task = runs.job * (int(runs.task.max(initial=0)) + 1) + runs.task
    stopped = np.isin(runs.outcome, (Kind.PREEMPTED, Kind.FAILED))
    order = np.flatnonzero(stopped)[np.argsort(runs.end_s[stopped], kind="stable")]
    stopped_task, first = np.unique(task[order], return_index=True)
    stop = order[first]  # per task that was ever stopped, the run that was stopped first
    place = np.searchsorted(stopped_task, task)
    known = place < len(stopped_task)
    known[known] = stopped_task[place[known]] == task[known]
    stop_of = stop[place[known]]
    again = (runs.start_s[known] >= runs.end_s[stop_of]) & (runs.run[known] > runs.run[stop_of])
    return distinct(runs.run[known][again])


def node_failures(source: Source) -> int:
    """The number of times that a node went down, whatever the cause."""
    return len(columns(source).outages.node)


def _ended(source: Source, kind: Kind) -> int:
    runs = columns(source).runs
    return distinct(runs.run[runs.outcome == kind])
