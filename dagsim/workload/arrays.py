"""Jobs and their tasks as NumPy arrays. Generators, traces and the compiled engine store their jobs
in this form.

``Job`` and ``Task`` objects are created only on demand (``JobArrays.jobs``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, pairwise
from math import inf, nan
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dagsim.errors import ModelError
from dagsim.model import Demand, Edge, Job, Task, TaskGraph
from dagsim.model.arithmetic import numbered, whole_sum
from dagsim.model.job_fields import JOB_FIELDS, JobField
from dagsim.model.log import Parents
from dagsim.workload.array_tools import bounds, combinations, objects, ranges, renumbered

_NUMBERS = {field.name: field.absent for field in JOB_FIELDS if field.is_number}
"""Numeric columns, and the value for a job that has none."""
_LABELS = {field.name: field.absent for field in JOB_FIELDS if not field.is_number}
"""Columns of labels, and the value for a job that has none."""


T = TypeVar("T")


class Labels(NamedTuple):
    """One label per job. A label is a word, the names of the job's nodes, or its instances in
    flight, and may be empty.
    """

    place: np.ndarray  # shape (J,), int32: index of each value in words
    words: tuple[Any, ...]

    @property
    def nbytes(self) -> int:
        """Size of the index array in bytes."""
        return self.place.nbytes

    @classmethod
    def numbered(cls, words: Iterable[Any]) -> Labels:
        """Number these words, storing each distinct word once."""
        return cls(*numbered(words))

    @classmethod
    def of(cls, words: Iterable[Any]) -> Labels | None:
        """Number these words, or return ``None`` if all are empty."""
        labels = cls.numbered(words)
        return labels if any(labels.words) else None

    def chosen(self, jobs: np.ndarray) -> Labels:
        """Return the labels of the jobs at these indices."""
        return self._replace(place=self.place[jobs])

    def mapped(self, read: Callable[[Any], Any]) -> Labels:
        """Apply ``read`` to each distinct label."""
        place, words = numbered(map(read, self.words))
        return Labels(place[self.place], words)

    def tolist(self) -> list[Any]:
        """Return the label of each job, as a list."""
        words = self.words
        return [words[place] for place in self.place.tolist()]


def _columns_of(jobs: Sequence[Job]) -> dict[str, Any]:
    """Return the columns of these jobs by name. A column is ``None`` if no job has a value."""
    numbers: dict[str, Any] = {name: _numbers(map(attrgetter(name), jobs), none) for name, none in _NUMBERS.items()}
    return numbers | {name: Labels.of(map(attrgetter(name), jobs)) for name in _LABELS}


def _chosen_columns(arrays: JobArrays, jobs: np.ndarray) -> dict[str, Any]:
    """Return the columns of the jobs at these indices."""
    there = {name: column for name in (*_NUMBERS, *_LABELS) if (column := getattr(arrays, name)) is not None}
    return {name: column.chosen(jobs) if isinstance(column, Labels) else column[jobs] for name, column in there.items()}


def _joined_columns(several: Sequence[JobArrays]) -> dict[str, Any]:
    """Concatenate the columns of several arrays."""
    sizes, columns = [len(arrays) for arrays in several], dict[str, Any]()
    for name, none in _NUMBERS.items():
        columns[name] = _filled([getattr(arrays, name) for arrays in several], sizes, none)
    for name, nothing in _LABELS.items():
        labels = [getattr(arrays, name) for arrays in several]
        if any(column is not None for column in labels):
            filled = [
                arrays or Labels(np.zeros(size, np.int32), (nothing,))
                for arrays, size in zip(labels, sizes, strict=True)
            ]
            columns[name] = Labels(*_renamed(filled))
    return columns


def _renamed(several: Sequence[tuple[np.ndarray, Sequence[T]]]) -> tuple[np.ndarray, tuple[T, ...]]:
    """Merge several lists of values. Return the renumbered indices, and the distinct values."""
    place, values = numbered([value for _, listed in several for value in listed])
    starts = bounds([len(listed) for _, listed in several])
    return np.concatenate([place[places + start] for (places, _), start in zip(several, starts, strict=False)]), values


def _edges_of(graphs: Sequence[TaskGraph], tasks: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return the arrays ``waits``, ``parent`` and ``output_bytes`` for these graphs. Edges are sorted
    by child.
    """
    if not any(graph.edges for graph in graphs):  # in most traces, each job has a single task
        return np.zeros(tasks + 1, np.int64), np.zeros(0, np.int32), None
    parents = [places for graph in graphs for places in graph.parents]
    sizes = None
    if any(edge.bytes for graph in graphs for edge in graph.edges):
        by_places = [{edge[:2]: edge.bytes for edge in graph.edges} for graph in graphs]
        sizes = np.array(
            [
                size[parent, child]
                for size, graph in zip(by_places, graphs, strict=True)
                for child, places in enumerate(graph.parents)
                for parent in places
            ],
            np.float64,
        )
    return bounds([*map(len, parents)]), np.array([*chain.from_iterable(parents)], np.int32), sizes


def _filled(columns: Sequence[np.ndarray | None], sizes: Sequence[int], none: float) -> np.ndarray | None:
    """Concatenate columns of these sizes. Missing columns are filled with ``none``. Return ``None`` if
    all columns are missing.
    """
    if all(column is None for column in columns):
        return None
    pairs = zip(columns, sizes, strict=True)
    return np.concatenate([np.full(size, none) if column is None else column for column, size in pairs])


def _numbers(values: Iterable[float | None], none: float) -> np.ndarray | None:
    """Return the values as an array, with ``none`` in place of missing values, or ``None`` if all
    are missing.
    """
    listed = list(values)
    distinct = set(listed)
    if distinct <= {None, none}:
        return None
    return np.array([none if value is None else value for value in listed] if None in distinct else listed, np.float64)


_MOMENTS = ("eligible_s", "start_s", "end_s")
"""The times of an ``Attempt``."""
_BLOCK = 1024
"""Number of jobs whose tasks are created at once."""


class TaskKind(NamedTuple):
    """The properties shared by tasks that differ only in name, work, instances and estimate."""

    demand: Demand
    gang: bool = False
    model: str | None = None
    batch: int | None = None
    speeds: tuple[tuple[str, float], ...] | None = None
    """``Task.speeds`` as pairs."""
    manifest: str = ""

    def is_possible(self) -> bool:
        """Return True if a task of this kind is valid."""
        try:
            self.task("", 0.0, 1)
        except ModelError:
            return False
        return True

    def task(self, name: str, work: float, instances: int, estimate: float | None = None) -> Task:
        """Create a task of this kind."""
        speeds = None if self.speeds is None else dict(self.speeds)
        own = self.gang, *self.demand, speeds, self.model, self.batch
        return Task(name, work, instances, *own, estimate, manifest=self.manifest)


def _kinds_of(tasks: Sequence[Task]) -> tuple[np.ndarray, tuple[TaskKind, ...]]:
    """Return the arrays ``kind`` and ``kinds`` for these tasks."""
    features: Iterable[tuple[Any, ...]] = map(
        attrgetter("demand", "gang", "model", "batch", "speeds", "manifest"), tasks
    )
    if any(task.speeds is not None for task in tasks):  # mappings are not hashable
        features = (
            (*rest, None if speeds is None else tuple(speeds.items()), manifest) for *rest, speeds, manifest in features
        )
    kind, distinct = numbered(features)
    return kind, tuple([TaskKind(*feature) for feature in distinct])


@dataclass(frozen=True, slots=True, eq=False)
class JobArrays:
    """J jobs in order of arrival, with n tasks and E edges in total. The tasks of a job are
    adjacent.
    """

    ids: np.ndarray  # shape (J,), object: str
    arrival_s: np.ndarray  # shape (J,), float64
    first: np.ndarray  # shape (J + 1,), int64: start of the tasks of each job
    name: np.ndarray  # shape (n,), int32: index in names
    names: np.ndarray  # object: distinct str
    work: np.ndarray  # shape (n,), float64
    instances: np.ndarray  # shape (n,), int64
    kind: np.ndarray  # shape (n,), int32: index in kinds
    kinds: tuple[TaskKind, ...]
    """Distinct kinds, in order of first use by a task."""
    # shape (n + 1,), int64: CSR offsets: the parents of task i are ``parent[waits[i]:waits[i + 1]]``
    waits: np.ndarray
    parent: np.ndarray  # shape (E,), int32: index of each parent among the tasks of its job
    # shape (n,), float64: the users' estimates of the work; NaN or None for no estimate
    estimate: np.ndarray | None = None
    output_bytes: np.ndarray | None = None  # shape (E,), float64: bytes on each edge; None if all are 0
    priority: np.ndarray | None = None  # shape (J,), float64; None if all are 0
    deadline_s: np.ndarray | None = None  # shape (J,), float64: inf without a deadline; None if no job has one
    weight: np.ndarray | None = None  # shape (J,), float64; None if all are 1
    observed_start_s: np.ndarray | None = None  # shape (J,), float64, NaN if unknown; None if all are unknown
    eligible_s: np.ndarray | None = None  # shape (J,), float64, NaN if unknown; None if all are unknown
    tenant: Labels | None = None
    observed_nodes: Labels | None = None  # labels are tuples of names
    user: Labels | None = None
    account: Labels | None = None
    partition: Labels | None = None
    qos: Labels | None = None
    in_flight: Labels | None = None  # labels are tuples of InFlight
    begins_s: float = 0.0
    """The time at which a simulation of these jobs begins. Jobs that arrived earlier are then already in the system."""
    request: Labels | None = None  # labels are ``Request`` or None
    observed_gpu: Labels | None = None
    observed_attempts: Labels | None = None  # labels are tuples of ``Attempt``

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> JobArrays:
        """Convert jobs to arrays. Edges are sorted by child and otherwise keep their order."""
        graphs = [job.graph for job in jobs]
        tasks = [task for graph in graphs for task in graph.tasks]
        name, names = numbered([task.name for task in tasks])
        kind, kinds = _kinds_of(tasks)
        waits, parent, output_bytes = _edges_of(graphs, len(tasks))
        return cls(
            ids=objects([job.id for job in jobs]),
            arrival_s=np.array([job.arrival_s for job in jobs], np.float64),
            first=bounds([len(graph.tasks) for graph in graphs]),
            name=name,
            names=objects(names),
            work=np.array([task.work for task in tasks], np.float64),
            instances=np.array([task.instances for task in tasks], np.int64),
            kind=kind,
            kinds=kinds,
            waits=waits,
            parent=parent,
            estimate=_numbers(map(attrgetter("estimate"), tasks), nan),
            output_bytes=output_bytes,
            **_columns_of(jobs),
        )

    @classmethod
    def of_single_tasks(cls, ids: np.ndarray, arrival_s: np.ndarray, name: str, **columns: Any) -> JobArrays:
        """Create jobs with one task each, all with the same task name. ``columns`` contains the
        remaining fields.
        """
        jobs = len(ids)
        return cls(
            ids=ids,
            arrival_s=arrival_s,
            first=np.arange(jobs + 1),
            name=np.zeros(jobs, np.int32),
            names=objects([name]),
            waits=np.zeros(jobs + 1, np.int64),
            parent=np.zeros(0, np.int32),
            **columns,
        )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return len(self.work)

    @property
    def nbytes(self) -> int:
        """Size of all arrays in bytes, without texts."""
        return whole_sum(
            column.nbytes for column in (getattr(self, name) for name in self.__slots__) if hasattr(column, "nbytes")
        )

    def jobs(self) -> Iterator[Job]:
        """Yield the jobs as objects, lazily."""
        first, waits = self.first.tolist(), self.waits.tolist()
        columns = (self.ids.tolist(), self.arrival_s.tolist(), self.parents(), *self._described())
        rows = zip(*columns, strict=True)
        outputs = self.output_bytes
        for start in range(0, len(self), _BLOCK):
            stop = min(start + _BLOCK, len(self))
            tasks, base = self._tasks(slice(first[start], first[stop])), first[start]
            for number, (id, arrival_s, parents, *rest) in zip(range(start, stop), rows, strict=False):
                begin, end = first[number], first[number + 1]
                edges = _plain_edges(parents)
                if outputs is not None:
                    carried = zip(edges, outputs[waits[begin] : waits[end]].tolist(), strict=True)
                    edges = tuple([edge._replace(bytes=size) for edge, size in carried])
                yield Job(id, TaskGraph(tasks[begin - base : end - base], edges), arrival_s, *rest)

    def parents(self) -> Iterator[Parents]:
        """Return the indices of each task's parents, per job. Jobs with the same shape share one
        object.
        """
        graph, graphs = self.graphs()
        return map(graphs.__getitem__, graph.tolist())

    def graphs(self) -> tuple[np.ndarray, tuple[Parents, ...]]:
        """Return the index of each job's graph among the distinct graphs, (J,) int32, and the
        distinct graphs in order of first use.
        """
        if not len(self.parent):
            sizes, size = np.unique(np.diff(self.first), return_inverse=True)
            return renumbered(size, [((),) * tasks for tasks in sizes.tolist()])
        degrees, waits = np.diff(self.waits).astype(np.int32), self.waits.tolist()
        graph: list[int] = []
        graphs: list[Parents] = []
        number_of: dict[tuple[bytes, bytes], int] = {}
        for begin, end in pairwise(self.first.tolist()):
            places = self.parent[waits[begin] : waits[end]]
            key = degrees[begin:end].tobytes(), places.tobytes()
            if key not in number_of:
                number_of[key] = len(graphs)
                listed, starts = places.tolist(), [place - waits[begin] for place in waits[begin : end + 1]]
                graphs.append(tuple([tuple(listed[one:other]) for one, other in pairwise(starts)]))
            graph.append(number_of[key])
        return np.array(graph, np.int32), tuple(graphs)

    def between(self, start: int, stop: int) -> JobArrays:
        """Return the jobs from ``start`` up to, but not including, ``stop``."""
        return self.chosen(np.arange(start, min(stop, len(self))))

    def chosen(self, jobs: np.ndarray) -> JobArrays:
        """Return the jobs at these indices, in this order."""
        if len(jobs) == len(self) and (jobs == np.arange(len(self))).all():
            return self
        sizes = np.diff(self.first)[jobs]
        tasks = ranges(self.first[jobs], sizes)
        degrees = np.diff(self.waits)[tasks]
        kind, kinds = renumbered(self.kind[tasks], self.kinds)
        edges = ranges(self.waits[tasks], degrees)
        return replace(
            self,
            ids=self.ids[jobs],
            arrival_s=self.arrival_s[jobs],
            first=bounds(sizes),
            name=self.name[tasks],
            work=self.work[tasks],
            instances=self.instances[tasks],
            kind=kind,
            kinds=kinds,
            waits=bounds(degrees),
            parent=self.parent[edges],
            estimate=_taken(self.estimate, tasks),
            output_bytes=_taken(self.output_bytes, edges),
            **_chosen_columns(self, jobs),
        )

    @classmethod
    def joined(cls, several: Sequence[JobArrays]) -> JobArrays:
        """Concatenate jobs."""
        if len(several) == 1:
            return several[0]
        tasks, edges = [arrays.tasks for arrays in several], [len(arrays.parent) for arrays in several]
        name, names = _renamed([(arrays.name, arrays.names.tolist()) for arrays in several])
        kind, kinds = _renamed([(arrays.kind, arrays.kinds) for arrays in several])
        return cls(
            ids=np.concatenate([arrays.ids for arrays in several]),
            arrival_s=np.concatenate([arrays.arrival_s for arrays in several]),
            first=bounds(np.concatenate([np.diff(arrays.first) for arrays in several])),
            name=name,
            names=objects(names),
            work=np.concatenate([arrays.work for arrays in several]),
            instances=np.concatenate([arrays.instances for arrays in several]),
            kind=kind,
            kinds=kinds,
            waits=bounds(np.concatenate([np.diff(arrays.waits) for arrays in several])),
            parent=np.concatenate([arrays.parent for arrays in several]),
            estimate=_filled([arrays.estimate for arrays in several], tasks, nan),
            output_bytes=_filled([arrays.output_bytes for arrays in several], edges, 0.0),
            begins_s=max(arrays.begins_s for arrays in several),
            **_joined_columns(several),
        )

    def apart(self) -> JobArrays:
        """Return each task as a separate job, without edges. The k-th task after the first task of
        job ``ID`` becomes the job ``ID+k``."""
        job = np.repeat(np.arange(len(self)), np.diff(self.first))
        place = (np.arange(self.tasks) - self.first[job]).tolist()
        ids = [f"{id}+{task}" if task else id for id, task in zip(self.ids[job].tolist(), place, strict=True)]
        return replace(
            self,
            ids=objects(ids),
            arrival_s=self.arrival_s[job],
            first=np.arange(self.tasks + 1),
            waits=np.zeros(self.tasks + 1, np.int64),
            parent=np.zeros(0, np.int32),
            output_bytes=None,
            **_chosen_columns(self, job),
        )

    def arriving(self, arrival_s: np.ndarray) -> JobArrays:
        """Return the same jobs with other arrival times."""
        return replace(self, arrival_s=arrival_s)

    def shifted(self, origin: float, scale: float) -> JobArrays:
        """Subtract ``origin`` from the jobs' times and multiply them by ``scale``. Deadlines keep
        their distance from the arrival. Times before ``begins_s`` are shifted, but not scaled.

        If the scale is not 1, observed times no longer describe the real cluster, so observations
        are left out.
        """
        with np.errstate(over="ignore"):  # no warning, because the caller checks that arrivals are finite
            arrival_s = (self.arrival_s - origin) * scale
        begins_s = self.begins_s and self.begins_s - origin
        if begins_s and scale != 1:
            since_s = self.arrival_s - self.begins_s
            arrival_s = np.where(since_s < 0, self.arrival_s - origin, begins_s + since_s * scale)
        still = (arrival_s == self.arrival_s) & (scale == 1)

        def seen(times: np.ndarray | None) -> np.ndarray | None:
            if times is None or scale != 1:
                return None
            return np.where(still, times, np.maximum(arrival_s, times - origin))

        deadline_s = self.deadline_s
        if deadline_s is not None:
            deadline_s = np.where(still, deadline_s, arrival_s + (deadline_s - self.arrival_s))
        observed, eligible = seen(self.observed_start_s), seen(self.eligible_s)
        nodes, attempts = (self.observed_nodes, self.observed_attempts) if scale == 1 else (None, None)
        attempts = attempts and attempts.mapped(
            lambda runs: tuple([run._replace(**{at: getattr(run, at) - origin for at in _MOMENTS}) for run in runs])
        )
        in_flight = self.in_flight and self.in_flight.mapped(
            lambda runs: tuple(
                [
                    run._replace(since_s=run.since_s - origin, until_s=run.until_s and run.until_s - origin)
                    for run in runs
                ]
            )
        )
        return replace(
            self,
            arrival_s=arrival_s,
            deadline_s=deadline_s,
            observed_start_s=observed,
            eligible_s=eligible,
            observed_nodes=nodes,
            observed_attempts=attempts,
            begins_s=begins_s,
            in_flight=in_flight,
        )

    def faults(self, among: np.ndarray) -> Iterator[tuple[int, ModelError]]:
        """Yield the invalid jobs in the mask ``among``, (J,) bool, each with the error that is
        raised when the job is created.
        """
        bad_kind = np.array([not kind.is_possible() for kind in self.kinds] or [False], bool)
        with np.errstate(invalid="ignore"):
            fine = (self.work >= 0) & (self.work < inf) & (self.instances >= 1) & ~bad_kind[self.kind]
            doubtful = ~((self.arrival_s >= 0) & (self.arrival_s < inf))
            doubtful |= np.bincount(np.repeat(np.arange(len(self)), np.diff(self.first)), ~fine, len(self)) > 0
            if self.deadline_s is not None:
                doubtful |= ~(self.deadline_s >= self.arrival_s)
            if self.weight is not None:
                doubtful |= ~((self.weight > 0) & (self.weight < inf))
            for seen in (self.observed_start_s, self.eligible_s):
                if seen is not None:
                    doubtful |= (seen < self.arrival_s) | np.isinf(seen)
        for number in np.flatnonzero(doubtful & among).tolist():
            try:
                next(self.between(number, number + 1).jobs())
            except ModelError as error:
                yield number, error

    def critical_paths(self, seconds: np.ndarray) -> np.ndarray:
        """Return the length of the longest path through each job, (J,) float64. ``seconds``
        contains the length of each task. The computation takes as many passes as there are tasks in
        the longest chain.
        """
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

    def samples(self) -> tuple[Task, ...]:
        """Return the first task of each kind, in order of kinds."""
        _, places = np.unique(self.kind, return_index=True)
        return self._tasks(places)

    def task(self, place: int) -> tuple[Task, str]:
        """Return the task at this index, and the id of its job."""
        return self._tasks(slice(place, place + 1))[0], str(self.ids[np.searchsorted(self.first, place, "right") - 1])

    def asked(self, resource: str) -> np.ndarray:
        """Return how much of ``resource`` (a field of ``Demand``) an instance of each task
        requests, (n,) float64.
        """
        demands: np.ndarray = np.array([getattr(kind.demand, resource) for kind in self.kinds], float)[self.kind]
        return demands

    def hours(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the GPU-hours and the core-hours of each job, (J,) float64 each. Work must be in
        seconds. The hours are multiples of 2^-20 h (3 ms), so that their sums are exact in any
        order.
        """
        job = np.repeat(np.arange(len(self)), np.diff(self.first))
        amount = self.work * self.instances / 3600
        by_job = [np.bincount(job, amount * self.asked(of), len(self)) for of in ("gpus", "cpus")]
        gpu_h, core_h = (np.rint(hours * (1 << 20)) / (1 << 20) for hours in by_job)
        return gpu_h, core_h

    def _described(self) -> list[list[Any]]:
        """Return the columns of the optional fields of ``Job`` as lists, up to the last field that
        any job has.
        """
        there = [place for place, field in enumerate(JOB_FIELDS, 1) if getattr(self, field.name) is not None]
        return [self._listed(field) for field in JOB_FIELDS[: max(there, default=0)]]

    def _listed(self, field: JobField) -> list[Any]:
        """Return the values of a field for all jobs, in the form in which ``Job`` objects have
        them.
        """
        column, default = getattr(self, field.name), None if field.kind == "float | None" else field.absent
        if column is None:
            return [default] * len(self)
        values: list[Any] = column.tolist()
        if field.kind != "float | None":
            return values
        return [None if value == field.absent or value != value else value for value in values]

    def _tasks(self, which: slice | np.ndarray) -> tuple[Task, ...]:
        kinds = self.kinds
        columns = [self.names[self.name[which]], self.kind[which], self.work[which], self.instances[which]]
        listed = [column.tolist() for column in columns]
        if self.estimate is not None:
            listed.append([claim if claim == claim else None for claim in self.estimate[which].tolist()])
        return tuple([kinds[kind].task(name, *rest) for name, kind, *rest in zip(*listed, strict=True)])


def kinds_of(
    gpus: np.ndarray,
    cpus: np.ndarray,
    memory_gb: np.ndarray,
    gang: np.ndarray,
    model: np.ndarray,
    models: tuple[str | None, ...],
    gpu_types: tuple[str, ...] | None,
) -> tuple[np.ndarray, tuple[TaskKind, ...]]:
    """Compute ``kind`` and ``kinds`` for tasks with these columns, (n,) each. ``model`` contains
    indices in ``models``.

    Raises:
        ModelError: A task has an invalid demand.
    """
    kind, rows = combinations((gpus, cpus, memory_gb, gang, model))
    listed = zip(*[column[rows].tolist() for column in (gpus, cpus, memory_gb, gang, model)], strict=True)
    return kind, tuple(
        [
            TaskKind(Task("t0", 0.0, 1, False, gpus, cpus, gb, gpu_types).demand, together, models[trained])
            for gpus, cpus, gb, together, trained in listed
        ]
    )


def _taken(column: np.ndarray | None, places: np.ndarray) -> np.ndarray | None:
    return None if column is None else column[places]


@lru_cache(maxsize=4096)
def _plain_edges(parents: tuple[tuple[int, ...], ...]) -> tuple[Edge, ...]:
    return tuple([Edge(parent, child) for child, of in enumerate(parents) for parent in of])
