"""Policies as columns: one key per task, or one per task and GPU type.

Each line is the policy's key function over all tasks at once, with the same operations in the same order, so that
every key is equal to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import log10
from typing import NamedTuple

import numpy as np

from dagsim.systems.cluster.lane.columns import Classes, Work
from dagsim.systems.cluster.lane.ranks import upward_rank

__all__ = ["ORDERS", "Columns", "Order"]


class Columns(NamedTuple):
    """The columns that keys are made of, with the columns that several of them need."""

    work: Work
    classes: Classes

    @property
    def job(self) -> np.ndarray:
        """(n,) int32."""
        job: np.ndarray = self.work.rows.job
        return job

    @property
    def width(self) -> np.ndarray:
        """(n,) float64: GPUs that start together for the task, 1 for what asks for no GPU."""
        gpus = self.classes.table.gpus * np.maximum(self.classes.table.gang, 1)
        width: np.ndarray = np.where(gpus, gpus, 1.0)[self.work.rows.kind]
        return width

    @property
    def rank_s(self) -> np.ndarray:
        """(n,) float64: the longest path from the task's start to the end of its job."""
        return upward_rank(self.work, self.work.best_s)

    @property
    def deadline_s(self) -> np.ndarray:
        """(n,) float64."""
        deadline_s: np.ndarray = self.work.jobs.deadline_s[self.job]
        return deadline_s

    @property
    def log_arrival(self) -> np.ndarray:
        """(n,) float64: the logarithm of the arrival, of at least 0.1 s."""
        return _log10(self.work.jobs.arrival_s)[self.job]


class Order(NamedTuple):
    """A static order: its column of keys; ``strict`` if its first task blocks all others."""

    keys: Callable[[Columns], np.ndarray]
    strict: bool = False


def _column(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float64).reshape(len(values), 1)


def _log10(values: np.ndarray) -> np.ndarray:
    """Logarithms as ``math`` computes them: NumPy's own differ in the last bit."""
    return np.array([log10(value) for value in np.maximum(values, 0.1).tolist()])


def _arrival(c: Columns) -> np.ndarray:
    return np.zeros((len(c.work.truth), 1))  # equal keys go first come, first served


def _f1(c: Columns) -> np.ndarray:
    return _column(_log10(c.work.best_s) * c.width + 870 * c.log_arrival)


def _f2(c: Columns) -> np.ndarray:
    return _column(np.sqrt(c.work.best_s) * c.width + 25_600 * c.log_arrival)


def _f3(c: Columns) -> np.ndarray:
    return _column(c.work.best_s * c.width + 6_860_000 * c.log_arrival)


def _f4(c: Columns) -> np.ndarray:
    return _column(c.work.best_s * np.sqrt(c.width) + 530_000 * c.log_arrival)


ORDERS: Mapping[str, Order] = {
    "fifo": Order(_arrival, strict=True),
    "fifo-fit": Order(_arrival),
    "sjf": Order(lambda c: c.work.seconds),
    "ljf": Order(lambda c: _column(-c.work.best_s)),
    "saf": Order(lambda c: c.width[:, None] * c.work.seconds),
    "wspt": Order(lambda c: c.work.seconds / c.work.jobs.weight[c.job][:, None]),
    "edf": Order(lambda c: _column(c.deadline_s)),
    "llf": Order(lambda c: _column(c.deadline_s - c.rank_s)),
    "priority": Order(lambda c: _column(-c.work.jobs.priority[c.job])),
    "critical-path": Order(lambda c: _column(-c.rank_s)),
    "f1": Order(_f1),
    "f2": Order(_f2),
    "f3": Order(_f3),
    "f4": Order(_f4),
}
"""The static orders by the name of their policy. ``priority`` with ageing grows as its task waits to become ready."""
