"""Columns that jobs may have beside id, arrival and tasks: numbers, and words like the tenant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf, nan
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dagsim.model import Job
from dagsim.model.numbered import numbered

if TYPE_CHECKING:
    from dagsim.workload.arrays import JobArrays

__all__ = ["Labels", "both", "chosen", "filled", "numbers", "of_jobs"]

_NUMBERS = {"priority": 0.0, "deadline_s": inf, "weight": 1.0, "observed_start_s": nan, "eligible_s": nan}
"""The numbers, and those of a job that has none."""
_LABELS: dict[str, Any] = {"tenant": "", "user": "", "account": "", "partition": "", "qos": "", "observed_nodes": ()}
"""The words, and those of a job that has none."""


class Labels(NamedTuple):
    """A word per job, perhaps an empty one; or the names of its nodes."""

    place: np.ndarray  # (J,) int32: place in words
    words: tuple[Any, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the places."""
        return self.place.nbytes

    @classmethod
    def of(cls, words: Iterable[Any]) -> Labels | None:
        """These words; nothing if all are empty."""
        labels = cls(*numbered(words))
        return labels if any(labels.words) else None

    def chosen(self, jobs: np.ndarray) -> Labels:
        """Those of the jobs at these places."""
        return self._replace(place=self.place[jobs])

    def mapped(self, read: Callable[[Any], Any]) -> Labels:
        """What is read of each."""
        place, words = numbered(map(read, self.words))
        return Labels(place[self.place], words)

    def joined(self, other: Labels) -> Labels:
        """These, and others behind them."""
        place, words = numbered((*self.words, *other.words))
        return Labels(place[np.concatenate([self.place, other.place + np.int32(len(self.words))])], words)

    def tolist(self) -> list[Any]:
        """The words."""
        words = self.words
        return [words[each] for each in self.place.tolist()]


def of_jobs(jobs: Sequence[Job]) -> dict[str, Any]:
    """The columns of these jobs, by name; nothing for those that no job has."""
    found: dict[str, Any] = {
        name: numbers([getattr(job, name) for job in jobs], none) for name, none in _NUMBERS.items()
    }
    return found | {name: Labels.of([getattr(job, name) for job in jobs]) for name in _LABELS}


def chosen(arrays: JobArrays, jobs: np.ndarray) -> dict[str, Any]:
    """The columns of the jobs at these places."""
    there = {name: column for name in (*_NUMBERS, *_LABELS) if (column := getattr(arrays, name)) is not None}
    return {name: each.chosen(jobs) if isinstance(each, Labels) else each[jobs] for name, each in there.items()}


def both(one: JobArrays, other: JobArrays) -> dict[str, Any]:
    """The columns of the jobs of one, and behind them those of the other."""
    sizes, found = (len(one), len(other)), dict[str, Any]()
    for name, none in _NUMBERS.items():
        found[name] = filled((getattr(one, name), getattr(other, name)), sizes, none)
    for name, nothing in _LABELS.items():
        mine, theirs = getattr(one, name), getattr(other, name)
        if mine or theirs:
            found[name] = (mine or _none(nothing, len(one))).joined(theirs or _none(nothing, len(other)))
    return found


def filled(columns: Sequence[np.ndarray | None], sizes: Sequence[int], none: float) -> np.ndarray | None:
    """The columns, of these sizes, one behind the other, ``none`` where one is not there; nothing if all are not."""
    if all(column is None for column in columns):
        return None
    pairs = zip(columns, sizes, strict=True)
    return np.concatenate([np.full(size, none) if column is None else column for column, size in pairs])


def numbers(values: Sequence[float | None], none: float) -> np.ndarray | None:
    """The numbers, ``none`` where there is none; nothing if that is so everywhere."""
    if all(value is None or value == none for value in values):
        return None
    return np.array([none if value is None else value for value in values], np.float64)


def _none(nothing: Any, jobs: int) -> Labels:
    return Labels(np.zeros(jobs, np.int32), (nothing,))
