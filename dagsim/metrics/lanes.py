"""Compute the positions of runs in a Gantt chart, which has one lane for each GPU and shows the
nodes one below another. Also compute when each task of a job became ready, started and ended, and
which of its parents ended last.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from dagsim.metrics.columns import Floats, Ints, ScheduleColumns
from dagsim.model import JobFacts

_GAP = 0.5
"""The gap between nodes, in lanes."""


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """The first lane of each node, counted downwards from 0, and the number of lanes of each node.

    A node has one lane for each GPU, and a CPU machine has a single lane.
    """

    first: Floats
    count: Ints

    @property
    def total(self) -> int:
        """Total number of lanes."""
        return int(self.count.sum())

    @property
    def height(self) -> float:
        """The height from the top of the first lane to the bottom of the last, in lanes."""
        return float(self.first[-1] + self.count[-1])


@dataclass(frozen=True, slots=True, eq=False)
class Bars:
    """Rectangles in a Gantt chart. Each shows one entry of ``RunColumns``. Its vertical extent is
    measured in lanes.

    A run on non-adjacent GPUs has several rectangles.
    """

    run: Ints
    top: Floats
    bottom: Floats


def lanes_of(cols: ScheduleColumns) -> Lanes:
    """Return the lanes of a cluster. CPU machines have lanes only if the cluster has no GPUs."""
    gpus = np.array([node.gpus for node in cols.cluster.nodes], np.int64)
    count = gpus if gpus.any() else np.ones(len(gpus), np.int64)
    gaps = np.where(count > 0, _GAP, 0.0)
    return Lanes(np.append(0.0, np.cumsum(count + gaps)[:-1]), count)


def bars_of(cols: ScheduleColumns, lanes: Lanes) -> Bars:
    """Return the bars of all runs longer than 0 s, on the GPUs named in the log.

    The runs that share a GPU are stacked, each with the height of its share. Some runs have no
    named GPUs: those on nodes with more than 62 GPUs, and those on CPU machines. They get the first
    free lane (interval colouring). The cost is O(n log n).
    """
    runs = cols.runs
    took_time = runs.end_s > runs.start_s
    named = np.bitwise_count(runs.gpus)
    whole = took_time & (named > 0) & (runs.held == named)
    shared = took_time & (named > 0) & (runs.held < named)
    unnamed = took_time & (named == 0) & (runs.held > 0)
    parts = [_whole(cols, lanes, whole), _shared(cols, lanes, shared), _unnamed(cols, lanes, unnamed)]
    if not cols.cluster.gpus:
        parts.append(_on_cpus(cols, lanes, took_time))
    return Bars(*(np.concatenate(column) for column in zip(*parts, strict=True)))


_Part = tuple[Ints, Floats, Floats]


def _whole(cols: ScheduleColumns, lanes: Lanes, chosen: np.ndarray) -> _Part:
    entries = np.flatnonzero(chosen)
    masks, which = np.unique(cols.runs.gpus[entries], return_inverse=True)
    stretches = [_stretches(mask) for mask in masks.tolist()]
    bars_per_run = np.array([len(parts) for parts in stretches], np.int64)[which]
    run = np.repeat(entries, bars_per_run)
    extent = np.array([edges for mask in which.tolist() for edges in stretches[mask]], float).reshape(-1, 2)
    first = lanes.first[cols.runs.node[run]]
    return run, first + extent[:, 0], first + extent[:, 1]


def _stretches(mask: int) -> list[tuple[int, int]]:
    """Return the half-open ranges of set bits. For example, 0b1011 gives (0, 2) and (3, 4)."""
    stretches, bit = [], 0
    while mask >> bit:
        bit += ((mask >> bit) & -(mask >> bit)).bit_length() - 1
        length = (~(mask >> bit) & ((mask >> bit) + 1)).bit_length() - 1
        stretches.append((bit, bit + length))
        bit += length
    return stretches


def _shared(cols: ScheduleColumns, lanes: Lanes, chosen: np.ndarray) -> _Part:
    """Place each share of a GPU at the lowest position that no other share occupies at that time."""
    runs = cols.runs
    there: dict[tuple[int, int], list[tuple[float, float, float]]] = {}
    run, top, bottom = [], [], []
    for entry in _by_start(cols, chosen):
        start_s, end_s, node, mask = (
            runs.start_s[entry],
            runs.end_s[entry],
            int(runs.node[entry]),
            int(runs.gpus[entry]),
        )
        height = float(runs.held[entry]) / mask.bit_count()
        for gpu in (bit for bit in range(mask.bit_length()) if mask >> bit & 1):
            others = [other for other in there.get((node, gpu), ()) if other[2] > start_s]
            place = 0.0
            for low, high, _ in sorted(others):
                if low - place >= height - 1e-9:
                    break
                place = max(place, high)
            place = min(place, 1.0 - height)
            there[node, gpu] = [*others, (place, place + height, float(end_s))]
            run.append(entry)
            top.append(float(lanes.first[node]) + gpu + place)
            bottom.append(top[-1] + height)
    return np.array(run, np.int64), np.array(top, float), np.array(bottom, float)


def _unnamed(cols: ScheduleColumns, lanes: Lanes, chosen: np.ndarray) -> _Part:
    runs = cols.runs
    need = np.ceil(runs.held).astype(np.int64)
    run, top, bottom = [], [], []
    for entry, slots in _coloured(cols, chosen, need):
        node = int(runs.node[entry])
        for first, last in _stretches(sum(1 << slot % int(lanes.count[node]) for slot in slots)):
            run.append(entry)
            top.append(float(lanes.first[node]) + first)
            bottom.append(float(lanes.first[node]) + last)
    return np.array(run, np.int64), np.array(top, float), np.array(bottom, float)


def _on_cpus(cols: ScheduleColumns, lanes: Lanes, chosen: np.ndarray) -> _Part:
    placed = list(_coloured(cols, chosen, np.ones(len(cols.runs), np.int64)))
    run = np.array([entry for entry, _ in placed], np.int64)
    slot = np.array([slots[0] for _, slots in placed], float)
    node = cols.runs.node[run]
    depth = np.ones(len(lanes.count))
    np.maximum.at(depth, node, slot + 1)
    top = lanes.first[node] + slot / depth[node]
    return run, top, top + 1 / depth[node]


def _coloured(cols: ScheduleColumns, chosen: np.ndarray, need: Ints) -> list[tuple[int, list[int]]]:
    """Assign lanes of its node to each of the ``chosen`` entries, as many as ``need`` states.
    Entries on the same node that overlap in time share no lane.
    """
    slots, node = FreeSlots(), cols.runs.node.tolist()
    start_s, end_s, count = cols.runs.start_s.tolist(), cols.runs.end_s.tolist(), need.tolist()
    return [
        (entry, slots.take(node[entry], start_s[entry], end_s[entry], count[entry]))
        for entry in _by_start(cols, chosen)
    ]


class FreeSlots:
    """An assignment of slots to intervals. Overlapping intervals with the same owner share no slot,
    and the lowest free slots are used first. ``take`` must be called in order of ``start``.
    """

    def __init__(self) -> None:
        self._idle: dict[Hashable, list[int]] = {}
        self._busy: dict[Hashable, list[tuple[float, int]]] = {}
        self._opened: dict[Hashable, int] = {}

    def take(self, owner: Hashable, start: float, end: float, count: int = 1) -> list[int]:
        """Return ``count`` slots that are reserved from ``start`` to ``end``."""
        idle, busy = self._idle.setdefault(owner, []), self._busy.setdefault(owner, [])
        while busy and busy[0][0] <= start:
            heappush(idle, heappop(busy)[1])
        slots = []
        for _ in range(count):
            if not idle:
                idle.append(self._opened.get(owner, 0))
                self._opened[owner] = idle[0] + 1
            slots.append(heappop(idle))
            heappush(busy, (end, slots[-1]))
        return slots


def _by_start(cols: ScheduleColumns, chosen: np.ndarray) -> list[int]:
    entries = np.flatnonzero(chosen)
    return [int(entry) for entry in entries[np.argsort(cols.runs.start_s[entries], kind="stable")]]


@dataclass(frozen=True, slots=True, eq=False)
class TaskColumns:
    """The tasks of all jobs that have several tasks and a known graph, with one entry per task.
    Entries are ordered by job and by position in the graph.
    """

    first: Ints
    """The entry of each job's first task, by ``Record.job``, or -1 if the job has no entries."""
    job: Ints
    task: Ints
    ready_s: Floats
    """The time at which the last parent ended, or the job's arrival. NaN if a parent never ran."""
    start_s: Floats
    """The first start of the task, or NaN if it never ran."""
    end_s: Floats
    """The last end of the task, the end of the log if it is still running, or NaN if it never
    ran.
    """
    blocker: Ints
    """The entry of the parent that ended last, or -1 if the task has no parents or no parent
    ran.
    """
    edges: Ints
    """The entries of each edge's parent and child, (m, 2)."""

    def __len__(self) -> int:
        return len(self.job)


def task_columns(facts: Iterable[JobFacts], cols: ScheduleColumns) -> TaskColumns:
    """Build the columns for the tasks in a schedule. The cost is O(runs + edges log edges)."""
    listed = list(facts)
    count = np.array([len(job.parents) if len(job.parents) > 1 else 0 for job in listed], np.int64)
    first = np.cumsum(count) - count
    job = np.repeat(np.arange(len(count)), count)
    task = np.arange(len(job)) - first[job]
    runs = cols.runs
    mine = count[runs.job] > 0
    entry = first[runs.job[mine]] + runs.task[mine]
    start_s, end_s = np.full(len(job), np.inf), np.full(len(job), -np.inf)
    np.minimum.at(start_s, entry, runs.start_s[mine])
    np.maximum.at(end_s, entry, runs.end_s[mine])
    start_s[np.isinf(start_s)] = end_s[np.isinf(end_s)] = np.nan
    edges = np.array(list(_edges(listed, first.tolist())), np.int64).reshape(-1, 2)
    ready_s, blocker = _ready(cols.jobs.arrival_s[job], end_s, edges)
    return TaskColumns(np.where(count > 0, first, -1), job, task, ready_s, start_s, end_s, blocker, edges)


def _edges(facts: list[JobFacts], first: list[int]) -> Iterator[tuple[int, int]]:
    for job, start in zip(facts, first, strict=True):
        if len(job.parents) > 1:
            for child, parents in enumerate(job.parents):
                for parent in parents:
                    yield start + parent, start + child


def _ready(arrival_s: Floats, end_s: Floats, edges: Ints) -> tuple[Floats, Ints]:
    """Return, for each task, the end of the parent that ended last (or the arrival of the job), and
    the index of this parent (or -1).
    """
    ready_s, blocker = arrival_s.copy(), np.full(len(arrival_s), -1, np.int64)
    parent, child = edges.T
    # A parent that never ran ends at NaN, which sorts last.
    order = np.lexsort((-parent, end_s[parent], child))
    parent, child = parent[order], child[order]
    last = np.append(child[1:] != child[:-1], True)[: len(child)]
    ready_s[child[last]] = end_s[parent[last]]
    ran = last & np.isfinite(end_s[parent])
    blocker[child[ran]] = parent[ran]
    return ready_s, blocker
