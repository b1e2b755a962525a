"""User-defined rewards that are functions of the log's columns. They work with the compiled engine,
and are therefore fast."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np

from dagsim.errors import ConfigError
from dagsim.model.log import NUMBERS, ROW, Record, Schedule

_OF_ROWS = tuple(ROW.names or ())
_OF_JOBS = tuple(name for name in NUMBERS if name not in _OF_ROWS)


class ColumnReward:
    """The base class of a reward that is a sum over the rows of the log: ``costs`` returns the cost
    of every new row, and nothing else changes the reward.

    ``columns`` declares what ``costs`` receives: columns of the log (``kind``, ``time_s``, ``job``,
    ``task``, ``run``, ``node``, ``instances``, ``gpus``, ``value``), and facts about the row's job
    (``arrival_s``, ``priority``, ``deadline_s``, ``weight``, ``ideal_s``, ``ideal_gpu_s``).
    ``costs`` receives the rows of many episodes together, so it must not keep any state.

        class LateJobs(ColumnReward):
            columns = ("kind", "time_s", "deadline_s")

            def costs(self, kind, time_s, deadline_s):
                return (kind == Kind.COMPLETED) * (time_s > deadline_s)

    Raises:
        ConfigError: ``columns`` contains an unknown name or is empty.
    """

    columns: ClassVar[tuple[str, ...]] = ()

    def __init__(self, schedule: Schedule | None = None) -> None:
        names = (*_OF_ROWS, *_OF_JOBS)
        if wrong := [name for name in self.columns if name not in names]:
            raise ConfigError(f"{type(self).__name__}: columns: {wrong[0]!r} is not one of {', '.join(names)}")
        if not self.columns:
            raise ConfigError(f"{type(self).__name__}: columns: name at least one of {', '.join(names)}")
        self._schedule = schedule
        self._new: list[Record] = []

    def fork(self, kernel: Any, twin: Any) -> Self:
        """Return the same reward for ``twin``, a fork of ``kernel``."""
        other = copy(self)
        other._schedule, other._new = twin.schedule, list(self._new)
        return other

    def costs(self, **columns: np.ndarray) -> np.ndarray:
        """Return the cost of each row. Shape (rows,)."""
        raise NotImplementedError

    def take(self, row: Record) -> None:
        """Store a row of the log."""
        self._new.append(row)

    def cost(self, now: float) -> float:
        """Return the cost since the last call."""
        rows, self._new = np.array(self._new, ROW), []
        jobs = [] if self._schedule is None else self._schedule.jobs
        facts = {
            name: np.array([getattr(jobs[job], name) for job in rows["job"].tolist()], float)
            for name in self.columns
            if name in _OF_JOBS
        }
        return float(self.sums(rows, facts, np.zeros(len(rows), np.int64), 1)[0])

    def sums(self, rows: np.ndarray, facts: dict[str, np.ndarray], owners: np.ndarray, count: int) -> np.ndarray:
        """Return the total cost of the rows of each episode. Shape (count,), float64. ``owners``
        contains the episode of each row. The costs are added in the order of the rows.

        Raises:
            ConfigError: ``costs`` does not return one number per row.
        """
        if not len(rows):
            return np.zeros(count)
        values = {name: facts[name] if name in facts else rows[name] for name in self.columns}
        costs = np.asarray(self.costs(**values), np.float64)
        if costs.shape != (len(rows),):
            raise ConfigError(
                f"{type(self).__name__}: costs must return {len(rows)} numbers, one per row, got shape {costs.shape}"
            )
        return np.bincount(owners, costs, count)


def gathered(reward: ColumnReward, logs: Sequence[Any], facts: Sequence[Any]) -> np.ndarray:
    """Return the cost of the new rows of each episode. Shape (episodes,), float64. For each
    episode, ``facts`` contains the facts about its jobs, in columns.
    """
    lengths = [len(log) for log in logs]
    if not any(lengths):
        return np.zeros(len(logs))
    rows = np.concatenate([np.asarray(log) for log in logs])
    wanted = [name for name in reward.columns if name in _OF_JOBS]
    of_jobs = {
        name: np.concatenate([getattr(of, name)[log["job"]] for of, log in zip(facts, logs, strict=True)])
        for name in wanted
    }
    return reward.sums(rows, of_jobs, np.repeat(np.arange(len(logs)), lengths), len(logs))
