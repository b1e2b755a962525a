"""The DAGs of many jobs as NumPy arrays: what shapes draw."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dagsim.workload.arrays import bounds

__all__ = ["DagArrays"]


class DagArrays(NamedTuple):
    """The DAGs of J jobs with n tasks and E edges, one job behind the other, parents first."""

    tasks: np.ndarray  # (J,) int64: how many each job has
    waits: np.ndarray  # (n,) int64: how many parents each task has
    parent: np.ndarray  # (E,) int64: place of each parent among the tasks of its job, child by child, in order

    @classmethod
    def single(cls, jobs: int) -> DagArrays:
        """Jobs of one task."""
        return cls(np.ones(jobs, np.int64), np.zeros(jobs, np.int64), np.zeros(0, np.int64))

    @classmethod
    def of_edges(cls, tasks: np.ndarray, parent: np.ndarray, child: np.ndarray) -> DagArrays:
        """Jobs of so many ``tasks`` with these edges, (E,) each, in any order; places are among the tasks of all."""
        order = np.lexsort((parent, child))
        first = np.repeat(bounds(tasks)[:-1], tasks)
        return cls(tasks, np.bincount(child, minlength=len(first)), parent[order] - first[child[order]])

    @classmethod
    def joined(cls, parts: list[DagArrays]) -> DagArrays:
        """The jobs of all parts."""
        if len(parts) == 1:
            return parts[0]
        return cls(*[np.concatenate(columns) for columns in zip(*parts, strict=True)])

    def between(self, start: int, stop: int) -> DagArrays:
        """Jobs ``start`` to ``stop``."""
        first, edges = bounds(self.tasks), bounds(self.waits)
        begin, end = first[start], first[stop]
        return DagArrays(self.tasks[start:stop], self.waits[begin:end], self.parent[edges[begin] : edges[end]])
