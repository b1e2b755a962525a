"""A scenario as columns: jobs, tasks, demand classes and nodes, in NumPy arrays that nobody changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

__all__ = ["CLASS", "MICRO", "NODE", "TASK", "Classes", "EmptyNodes", "Jobs", "Work", "record_type", "records"]

MICRO = 1_000_000
"""CPUs, memory and shares of a GPU are counted in whole millionths, as the SimPy kernel does."""


def record_type(**fields: str) -> np.dtype:
    """A record type, aligned, from field names by kind: ``record_type(f8="key", i8="what")``."""
    return np.dtype([(name, kind) for kind, names in fields.items() for name in names.split()], align=True)


# Fields must not bear the name of an attribute of arrays (item, size, shape ...): plain Python would find that one.
TASK = record_type(i4="children job kind instances")
"""The tasks of one job stand together. ``children`` is where its own begin in ``Work.child`` (they end where those of
the next task begin), ``kind`` its demand class."""
CLASS = record_type(f8="gpus", i8="whole share cpus memory gang")
"""``gpus`` as asked, and as it is counted: ``whole`` GPUs or a ``share`` of one. ``gang`` instances start together; 0:
each by itself."""
NODE = record_type(i8="type place gpus idle partly free cpus memory")
"""``place`` among the nodes of its type. ``idle`` GPUs are wholly free (``free`` is their bit mask on nodes where the
log names them), ``partly`` many are shared."""


class Jobs(NamedTuple):
    """Jobs in order of arrival, J of them."""

    arrival_s: np.ndarray  # (J,) float64
    rejected: np.ndarray  # (J,) float64: the RejectReason, 0 for jobs that are let in
    first: np.ndarray  # (J + 1,) int64: where the tasks of each begin
    priority: np.ndarray  # (J,) float64
    deadline_s: np.ndarray  # (J,) float64, inf without one
    weight: np.ndarray  # (J,) float64


class Classes(NamedTuple):
    """Demand classes, K of them."""

    table: np.recarray  # (K,) CLASS
    may: np.ndarray  # (K, types) uint8: the types that may run them


class EmptyNodes(NamedTuple):
    """Empty nodes, N of them."""

    table: np.recarray  # (N,) NODE
    by_type: np.ndarray  # (types, most of one type) int64: nodes by type and place
    per_type: np.ndarray  # (types,) int64: how many


class Work(NamedTuple):
    """A whole workload, n tasks."""

    jobs: Jobs
    tasks: np.recarray  # (n + 1,) TASK; the last one only ends the children of the one before
    child: np.ndarray  # (edges,) int32: tasks that wait
    truth: np.ndarray  # (n, types) float64: seconds of an instance, inf where it cannot run
    seconds: np.ndarray  # (n, types) float64: the same as policies see it; may be the same array
    order: np.ndarray  # (n,) int32: job by job all tasks, parents first; (0,) if they stand so anyway

    @property
    def rows(self) -> Any:
        """(n,) TASK: the tasks without the record that only ends them."""
        return self.tasks[:-1]

    @property
    def best_s(self) -> np.ndarray:
        """(n,) float64: estimated seconds on the fastest type."""
        least: np.ndarray = self.seconds.min(axis=1)
        return least


def records(record: np.dtype, rows: int, /, **columns: Iterable[object]) -> np.recarray:
    """A record array of ``rows``; the columns may be shorter, and what they leave out is 0."""
    made = np.zeros(rows, record) if columns else np.empty(rows, record)
    for name, column in columns.items():
        values = np.asarray(column)
        made[name][: len(values)] = values
    return made.view(np.recarray)
