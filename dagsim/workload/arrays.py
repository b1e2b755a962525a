"""Jobs and their tasks as NumPy arrays: what readers of large traces fill, and what the compiled engine reads.

``Job`` and ``Task`` are views that are made when Python code asks for them (``jobs``), equal to those that a reader
makes one by one. Tasks of these jobs are independent instances that ask for GPUs, cores and memory; jobs have no more
than an id and an arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from dagsim.model import Demand, Edge, Job, Task, TaskGraph

__all__ = ["JobArrays", "ranges", "renumbered"]


@dataclass(frozen=True, slots=True, eq=False)
class JobArrays:
    """J jobs in order of arrival with n tasks and E edges; the tasks of a job stand together."""

    ids: np.ndarray  # (J,) object: str
    arrival_s: np.ndarray  # (J,) float64
    first: np.ndarray  # (J + 1,) int64: where the tasks of each begin
    name: np.ndarray  # (n,) int32: place in names
    names: np.ndarray  # object: str, each once
    work: np.ndarray  # (n,) float64
    instances: np.ndarray  # (n,) int64
    demand: np.ndarray  # (n,) int32: place in demands
    demands: tuple[Demand, ...]
    """Each once, in the order in which tasks first ask for them."""
    waits: np.ndarray  # (n + 1,) int64: where the parents of each task begin in ``parent``
    parent: np.ndarray  # (E,) int32: place of each parent among the tasks of its job

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> JobArrays:
        """The arrays of plain jobs; edges are kept by child, in their order."""
        tasks = [task for job in jobs for task in job.graph.tasks]
        parents = [
            [edge.parent for edge in job.graph.edges if edge.child == place]
            for job in jobs
            for place in range(len(job.graph.tasks))
        ]
        names = dict.fromkeys(task.name for task in tasks)
        places = {name: place for place, name in enumerate(names)}
        demands = dict.fromkeys(task.demand for task in tasks)
        asked = {demand: place for place, demand in enumerate(demands)}
        return cls(
            ids=_objects([job.id for job in jobs]),
            arrival_s=np.array([job.arrival_s for job in jobs], np.float64),
            first=_starts([len(job.graph.tasks) for job in jobs]),
            name=np.array([places[task.name] for task in tasks], np.int32),
            names=_objects(names),
            work=np.array([task.work for task in tasks], np.float64),
            instances=np.array([task.instances for task in tasks], np.int64),
            demand=np.array([asked[task.demand] for task in tasks], np.int32),
            demands=tuple(demands),
            waits=_starts([len(of) for of in parents]),
            parent=np.array([place for of in parents for place in of], np.int32),
        )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return len(self.work)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, texts aside."""
        return sum(each.nbytes for each in (getattr(self, name) for name in self.__slots__) if hasattr(each, "nbytes"))

    def jobs(self) -> Iterator[Job]:
        """The jobs as objects, each made when asked for."""
        first, waits = self.first.tolist(), self.waits.tolist()
        ids, arrivals = self.ids.tolist(), self.arrival_s.tolist()
        for number in range(len(self)):
            tasks = slice(first[number], first[number + 1])
            starts = waits[first[number] : first[number + 1] + 1]
            parents = self.parent[starts[0] : starts[-1]].tolist()
            edges = [
                Edge(parent, child)
                for child, (begin, end) in enumerate(pairwise(starts))
                for parent in parents[begin - starts[0] : end - starts[0]]
            ]
            yield Job(ids[number], TaskGraph(self._tasks(tasks), tuple(edges)), arrivals[number])

    def task_names(self) -> Iterator[tuple[str, ...]]:
        """Per job the names of its tasks."""
        listed, first = self.names[self.name].tolist(), self.first.tolist()
        return (tuple(listed[begin:end]) for begin, end in pairwise(first))

    def parents(self) -> Iterator[tuple[tuple[int, ...], ...]]:
        """Per job, and task, the places of its parents; jobs of one shape share them."""
        degrees, first, waits = np.diff(self.waits).astype(np.int32), self.first.tolist(), self.waits.tolist()
        known: dict[tuple[bytes, bytes], tuple[tuple[int, ...], ...]] = {}
        for begin, end in pairwise(first):
            places = self.parent[waits[begin] : waits[end]]
            key = degrees[begin:end].tobytes(), places.tobytes()
            if key not in known:
                listed, starts = places.tolist(), [place - waits[begin] for place in waits[begin : end + 1]]
                known[key] = tuple([tuple(listed[one:other]) for one, other in pairwise(starts)])
            yield known[key]

    def between(self, start: int, stop: int) -> JobArrays:
        """Jobs ``start`` to ``stop``."""
        return self.chosen(np.arange(start, min(stop, len(self))))

    def chosen(self, jobs: np.ndarray) -> JobArrays:
        """The jobs at these places, in this order."""
        if len(jobs) == len(self) and (jobs == np.arange(len(self))).all():
            return self
        sizes = np.diff(self.first)[jobs]
        tasks = ranges(self.first[jobs], sizes)
        degrees = np.diff(self.waits)[tasks]
        demand, demands = renumbered(self.demand[tasks], self.demands)
        return replace(
            self,
            ids=self.ids[jobs],
            arrival_s=self.arrival_s[jobs],
            first=_starts(sizes),
            name=self.name[tasks],
            work=self.work[tasks],
            instances=self.instances[tasks],
            demand=demand,
            demands=demands,
            waits=_starts(degrees),
            parent=self.parent[ranges(self.waits[tasks], degrees)],
        )

    def joined(self, other: JobArrays) -> JobArrays:
        """These jobs, and behind them others."""
        known = {demand: place for place, demand in enumerate(dict.fromkeys((*self.demands, *other.demands)))}
        theirs = np.array([known[demand] for demand in other.demands], np.int32)
        return JobArrays(
            ids=np.concatenate([self.ids, other.ids]),
            arrival_s=np.concatenate([self.arrival_s, other.arrival_s]),
            first=_starts(np.concatenate([np.diff(self.first), np.diff(other.first)])),
            name=np.concatenate([self.name, other.name + np.int32(len(self.names))]),
            names=np.concatenate([self.names, other.names]),
            work=np.concatenate([self.work, other.work]),
            instances=np.concatenate([self.instances, other.instances]),
            demand=np.concatenate([self.demand, theirs[other.demand] if len(theirs) else other.demand]),
            demands=tuple(known),
            waits=_starts(np.concatenate([np.diff(self.waits), np.diff(other.waits)])),
            parent=np.concatenate([self.parent, other.parent]),
        )

    def arriving(self, arrival_s: np.ndarray) -> JobArrays:
        """The same jobs at other times."""
        return replace(self, arrival_s=arrival_s)

    def critical_paths(self, seconds: np.ndarray) -> np.ndarray:
        """(J,) float64: the longest path through each job with ``seconds`` per task; as many passes as it has tasks."""
        child = np.repeat(np.arange(self.tasks), np.diff(self.waits))
        parent = np.repeat(self.first[:-1], np.diff(self.first))[child] + self.parent
        by_parent = np.argsort(parent, kind="stable")
        parent, child = parent[by_parent], child[by_parent]
        begins = np.flatnonzero(np.diff(parent, prepend=-1))
        waited, rank = parent[begins], seconds.copy()
        while len(begins):
            longer = seconds[waited] + np.maximum.reduceat(rank[child], begins)
            if (longer == rank[waited]).all():
                break
            rank[waited] = longer
        longest: np.ndarray = np.maximum.reduceat(rank, self.first[:-1])
        return longest

    def asking(self, demand: np.ndarray, demands: tuple[Demand, ...]) -> JobArrays:
        """The same jobs with other demands."""
        return replace(self, demand=demand, demands=demands)

    def first_tasks(self) -> Iterator[Task]:
        """Per demand a task that asks for it."""
        _, places = np.unique(self.demand, return_index=True)
        for place in places.tolist():
            yield from self._tasks(slice(place, place + 1))

    def _tasks(self, which: slice) -> tuple[Task, ...]:
        columns = (self.names[self.name[which]], self.work[which], self.instances[which], self.demand[which])
        return tuple(
            [
                Task(name, work, instances, False, *self.demands[asked])
                for name, work, instances, asked in zip(*[column.tolist() for column in columns], strict=True)
            ]
        )


def ranges(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The places of several stretches, one behind the other: (2, 7), (3, 2) is 2, 3, 4, 7, 8."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    places: np.ndarray = np.arange(total) + np.repeat(starts - (ends - sizes), sizes)
    return places


def renumbered(demand: np.ndarray, demands: Sequence[Demand]) -> tuple[np.ndarray, tuple[Demand, ...]]:
    """Places among those demands that are asked for, in the order in which tasks first ask."""
    used, first = np.unique(demand, return_index=True)
    order = used[np.argsort(first)]
    place = np.zeros(max(len(demands), 1), np.int32)
    place[order] = np.arange(len(order))
    return place[demand], tuple([demands[each] for each in order.tolist()])


def _starts(sizes: Any) -> np.ndarray:
    """The places where stretches of these sizes begin, and where the last ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(sizes, np.int64))])


def _objects(values: Iterable[str]) -> np.ndarray:
    listed = list(values)
    made = np.empty(len(listed), object)
    made[:] = listed
    return made
