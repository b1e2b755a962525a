"""Columns of a schedule: one array for each kind of fact about jobs, runs and outages. All metrics
are computed from them.

A run that spans nodes has one row per node. All times are in seconds. NaN means "none", "unknown"
or "not yet known".
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dagsim.errors import ModelError
from dagsim.freed_memory import return_freed_memory
from dagsim.model import Cluster, Kind, PowerState
from dagsim.model.log import RUN_ENDS, FactColumns, Schedule

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.signedinteger]
Flags: TypeAlias = NDArray[np.bool_]

_STILL_RUNNING = -1


@dataclass(frozen=True, slots=True, eq=False)
class JobColumns(FactColumns):
    """The facts about every job that arrived, and the outcome of each job, in the order of
    ``Record.job``.
    """

    completed_s: Floats
    """Completion time. NaN if the job was rejected or is unfinished."""
    rejected: Ints
    """``RejectReason``, or 0 if the job was accepted."""

    @property
    def accepted(self) -> Flags:
        """True for jobs that were not rejected."""
        accepted: Flags = self.rejected == 0
        return accepted

    @property
    def finished(self) -> Flags:
        """True for jobs that completed."""
        return np.isfinite(self.completed_s)

    @property
    def unfinished(self) -> Flags:
        """True for jobs that were accepted but did not complete by the end of the log."""
        return self.accepted & ~self.finished


@dataclass(frozen=True, slots=True, eq=False)
class RunColumns:
    """One entry per run and node, in order of start. Fields with the same names as in ``Record``
    have the same meaning.
    """

    run: Ints
    job: Ints
    task: Ints
    node: Ints
    instances: Ints
    gpus: Ints
    held: Floats
    """Number of GPUs held on this node, which is a fraction for shared GPUs."""
    start_s: Floats
    computing_s: Floats
    """End of transfers and set-up. NaN if there were none, or if the run was stopped before their
    end.
    """
    end_s: Floats
    """End of the run, or the end of the log if the run is still in progress."""
    outcome: Ints
    """``Kind.FINISHED``, ``PREEMPTED`` or ``FAILED``, or -1 if the run is still in progress."""

    @property
    def running(self) -> Flags:
        """True for runs that were still in progress at the end of the log."""
        running: Flags = self.outcome == _STILL_RUNNING
        return running

    @property
    def stopped(self) -> Flags:
        """True for runs that were preempted or failed."""
        return np.isin(self.outcome, (Kind.PREEMPTED, Kind.FAILED))

    @property
    def gpu_s(self) -> Floats:
        """GPU-seconds held on this node."""
        return self.held * (self.end_s - self.start_s)

    def __len__(self) -> int:
        return len(self.run)


@dataclass(frozen=True, slots=True, eq=False)
class NodeOutages:
    """One entry for each period in which a node was down or powered off. ``end_s`` is the end of
    the log if the node did not come back up.
    """

    node: Ints
    start_s: Floats
    end_s: Floats
    failed: Flags
    """True if the node was down, False if it was only powered off."""

    @classmethod
    def of(cls, rows: np.ndarray, cluster: Cluster, log_end_s: float) -> NodeOutages:
        """Read the outages from the rows of a log."""
        if any(node.on_demand is not None for node in cluster.nodes):
            off = _on_demand(rows, cluster, log_end_s)[0]
            node, start_s, end_s, failed = (np.array([entry[field] for entry in off]) for field in range(4))
            return cls(node.astype(np.int64), start_s.astype(float), end_s.astype(float), failed.astype(bool))
        down, up = rows[rows["kind"] == Kind.DOWN], rows[rows["kind"] == Kind.UP]
        end_s = _look_up(up["time_s"], _pair(down["node"], up["node"]), log_end_s)
        start_s = np.ascontiguousarray(down["time_s"])
        return cls(down["node"].astype(np.int64), start_s, end_s, np.ones(len(down), bool))


@dataclass(frozen=True, slots=True, eq=False)
class PoweredNodes:
    """One entry for each period in which a node that is powered on demand was not off. It was
    booting, up, or being powered down.
    """

    node: Ints
    start_s: Floats
    end_s: Floats
    booted: Flags
    """True if the period began with a boot."""

    @classmethod
    def of(cls, rows: np.ndarray, cluster: Cluster, log_end_s: float) -> PoweredNodes:
        """Read the periods from the rows of a log."""
        entries = _on_demand(rows, cluster, log_end_s)[1] if any(node.on_demand for node in cluster.nodes) else []
        node, start_s, end_s, booted = (np.array([entry[field] for entry in entries]) for field in range(4))
        return cls(node.astype(np.int64), start_s.astype(float), end_s.astype(float), booted.astype(bool))


def _on_demand(rows: np.ndarray, cluster: Cluster, log_end_s: float) -> tuple[list[_Span], list[_Span]]:
    """Return two lists of periods, each in order of end times. The first list contains the periods
    in which a node was down or off, with True if it was down. The second list contains the periods
    in which a node that is powered on demand was not off, with True if the period began with a
    boot.
    """
    begins_s = float(rows["time_s"][0]) if len(rows) else 0.0
    rules = {at: node.on_demand for at, node in enumerate(cluster.nodes) if node.on_demand is not None}
    down_s: dict[int, float] = {}
    off_s = {node: begins_s for node, rule in rules.items() if not rule.up}
    on_s = {node: (begins_s, False) for node, rule in rules.items() if rule.up}
    away, powered = list[_Span](), list[_Span]()
    changes = rows[np.isin(rows["kind"], (Kind.DOWN, Kind.UP, Kind.POWER))]
    for kind, time_s, *_, node, _instances, _gpus, value in changes.tolist():
        if kind == Kind.DOWN:
            if node in off_s:
                away.append((node, off_s.pop(node), time_s, False))
            down_s[node] = time_s
        elif kind == Kind.UP:
            away.append((node, down_s.pop(node), time_s, True))
            if node in rules and node not in on_s:
                off_s[node] = time_s
        elif value == PowerState.OFF:
            start_s, booted = on_s.pop(node)
            powered.append((node, start_s, time_s, booted))
            if node not in down_s:
                off_s[node] = time_s
        elif node not in on_s:  # a node with a run in progress at the beginning is already up
            on_s[node] = time_s, value == PowerState.BOOTING
            away.append((node, off_s.pop(node, time_s), time_s, False))
    away += [(node, start_s, log_end_s, True) for node, start_s in down_s.items()]
    away += [(node, start_s, log_end_s, False) for node, start_s in off_s.items()]
    powered += [(node, start_s, log_end_s, booted) for node, (start_s, booted) in on_s.items()]
    return away, powered


_MANY = 1_000_000
"""Number of rows from which freed memory is returned to the system before the metrics."""

_Span: TypeAlias = tuple[int, float, float, bool]
"""Node, start, end, and a flag."""


@dataclass(frozen=True, slots=True, eq=False)
class Phases:
    """The time of every accepted job in the system, divided into phases at each start and end of
    the job's runs.

    ``running`` is the number of entries in ``RunColumns`` that were in progress during a phase. All
    phases are longer than 0 s. They cover a job's time in the system without gaps or overlaps.
    """

    job: Ints
    start_s: Floats
    end_s: Floats
    running: Ints


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleColumns:
    """The columns of a schedule, and the window from ``start_s`` to ``end_s`` in which capacity,
    queues and energy are measured.
    """

    cluster: Cluster
    jobs: JobColumns
    runs: RunColumns
    outages: NodeOutages
    powered: PoweredNodes
    phases: Phases
    start_s: float
    end_s: float
    log_end_s: float
    """The end of everything that is still in progress.

    This is the last completion if all jobs are done, and otherwise the end of the simulation. If
    ``end_s`` is later, it is ``end_s``.
    """
    decision_s: float
    decisions: int
    begins_s: float = 0.0
    """Time at which the simulation began. Earlier rows describe what happened before it."""

    @classmethod
    def of(cls, schedule: Schedule, *, start_s: float | None = None, end_s: float | None = None) -> ScheduleColumns:
        """Build the columns of ``schedule``, in O(n log n) for n rows. By default, the window lasts
        from the first arrival to the end of the log. If there were already jobs in the system when
        the simulation began, the window starts at that time.
        """
        rows = schedule.log.rows()
        jobs = _jobs(schedule, rows)
        last_s = _last_s(schedule, rows, jobs)
        if start_s is None:
            start_s = schedule.begins_s or (float(jobs.arrival_s.min()) if len(jobs) else 0.0)
        if end_s is None:
            end_s = max(last_s, start_s)
        log_end_s = max(last_s, end_s)
        phases, runs = _phases(rows, jobs, log_end_s), _runs(rows, len(schedule.cluster.nodes), log_end_s)
        if len(rows) >= _MANY:
            return_freed_memory()
        return cls(
            cluster=schedule.cluster,
            jobs=jobs,
            runs=runs,
            outages=NodeOutages.of(rows, schedule.cluster, log_end_s),
            powered=PoweredNodes.of(rows, schedule.cluster, log_end_s),
            phases=phases,
            start_s=start_s,
            end_s=end_s,
            log_end_s=log_end_s,
            decision_s=schedule.decision_s,
            decisions=schedule.decisions,
            begins_s=schedule.begins_s,
        )

    @property
    def horizon_s(self) -> float:
        """Length of the window in seconds."""
        return self.end_s - self.start_s

    @property
    def counted(self) -> Flags:
        """True for the jobs that metrics count. Jobs that were in the system when the simulation
        began belong to its initial state, so only later arrivals count. If there are none (as with
        a snapshot), the jobs that were waiting at the beginning count instead.
        """
        later = self.jobs.arrival_s >= self.begins_s
        if later.any() or not self.begins_s:
            return later
        waited = np.ones(len(later), bool)
        waited[self.runs.job[self.runs.start_s < self.begins_s]] = False
        return waited

    @property
    def started(self) -> Flags:
        """True for jobs that have had at least one run."""
        started = np.zeros(len(self.jobs), bool)
        started[self.runs.job] = True
        return started

    @property
    def first_start_s(self) -> Floats:
        """Start of the first run of each job, or infinite if the job never ran."""
        first = np.full(len(self.jobs), np.inf)
        np.minimum.at(first, self.runs.job, self.runs.start_s)
        return first

    def within(self, start_s: Floats, end_s: Floats) -> Floats:
        """Return how many seconds of each interval fall into the window."""
        return np.clip(end_s, self.start_s, self.end_s) - np.clip(start_s, self.start_s, self.end_s)

    def at_horizon(self) -> ScheduleColumns:
        """Return columns in which every unfinished job completes at the end of the log, so that its
        JCT is a lower bound.
        """
        completed_s = np.where(self.jobs.unfinished, self.log_end_s, self.jobs.completed_s)
        return replace(self, jobs=replace(self.jobs, completed_s=completed_s))

    def without_unfinished(self) -> ScheduleColumns:
        """Return columns in which every unfinished job counts as rejected (reason -1)."""
        rejected = np.where(self.jobs.unfinished, -1, self.jobs.rejected)
        return replace(self, jobs=replace(self.jobs, rejected=rejected))


AnySchedule: TypeAlias = Schedule | ScheduleColumns
"""The input of a metric: a schedule, or its columns, so that the columns are built only once for
several metrics."""


def columns(source: AnySchedule) -> ScheduleColumns:
    """Return the columns of ``source``. If ``source`` already consists of columns, return it
    unchanged.

    Raises:
        ModelError: ``source`` is something else.
    """
    if not isinstance(source, ScheduleColumns | Schedule):
        raise ModelError(f"must be a Schedule, such as simulate(...).schedule; got {source!r}")
    return source if isinstance(source, ScheduleColumns) else ScheduleColumns.of(source)


def job_columns(source: AnySchedule) -> JobColumns:
    """Return the job columns of ``source``, without building the other columns of a schedule."""
    return source.jobs if isinstance(source, ScheduleColumns) else _jobs(source, source.log.rows())


def total(keys: Ints, weight: Floats, count: int) -> Floats:
    """Sum the weights for each key from 0 to ``count`` - 1."""
    return np.bincount(keys, weights=weight, minlength=count).astype(np.float64, copy=False)


def _last_s(schedule: Schedule, rows: np.ndarray, jobs: JobColumns) -> float:
    """Return the time of the last record in seconds. Ignore repairs and other records after the
    last job has ended.
    """
    if len(jobs) and not jobs.unfinished.any():
        return float(rows["time_s"][rows["kind"] <= Kind.COMPLETED].max(initial=0.0))
    return max(float(rows["time_s"].max(initial=0.0)), schedule.ended_s)


def _jobs(schedule: Schedule, rows: np.ndarray) -> JobColumns:
    facts = FactColumns.of(schedule.jobs)
    completed_s, rejected = np.full(len(facts), np.nan), np.zeros(len(facts), np.int64)
    job, kind = rows["job"], np.ascontiguousarray(rows["kind"])
    completed, turned_away = np.flatnonzero(kind == Kind.COMPLETED), np.flatnonzero(kind == Kind.REJECTED)
    completed_s[job[completed]] = rows["time_s"][completed]
    rejected[job[turned_away]] = rows["value"][turned_away].astype(np.int64)
    submitted = {field.name: getattr(facts, field.name) for field in fields(FactColumns)}
    return JobColumns(**submitted, completed_s=completed_s, rejected=rejected)


def _runs(rows: np.ndarray, nodes: int, log_end_s: float) -> RunColumns:
    kind = np.ascontiguousarray(rows["kind"])
    started = np.flatnonzero(kind == Kind.STARTED)
    ended = np.flatnonzero(_among(RUN_ENDS)[kind])
    computing = np.flatnonzero(kind == Kind.COMPUTING)
    run, node = rows["run"][started], rows["node"][started]

    def partners(places: Ints) -> Ints:
        """For each start of a run on a node, return the index in ``places`` of the row for the same
        run and node, or -1 if there is none.
        """
        runs, on = rows["run"][places], rows["node"][places]
        # Usually, each run is on a single node, so its number equals the index of its start.
        if np.array_equal(run, np.arange(len(run))) and (places.size == 0 or 0 <= runs.min() <= runs.max() < len(run)):
            pairs = np.full(len(run), -1, np.int64)
            pairs[runs[::-1]] = np.arange(len(runs))[::-1]  # the first row of each run is assigned last, so it stays
            if np.array_equal(node[runs], on):
                return pairs
        return _pair(run * nodes + node, runs * nodes + on)

    end, computes = partners(ended), partners(computing)
    return RunColumns(
        run=run,
        job=rows["job"][started],
        task=rows["task"][started],
        node=node,
        instances=rows["instances"][started],
        gpus=rows["gpus"][started],
        held=rows["value"][started],
        start_s=rows["time_s"][started],
        computing_s=_look_up(rows["time_s"][computing], computes, np.nan),
        end_s=_look_up(rows["time_s"][ended], end, log_end_s),
        outcome=_look_up(kind[ended], end, _STILL_RUNNING),
    )


def distinct(keys: Ints) -> int:
    """Return the number of distinct keys."""
    return int(np.count_nonzero(np.diff(np.sort(keys)))) + 1 if len(keys) else 0


def _among(kinds: tuple[Kind, ...]) -> Flags:
    """Return a Boolean array that is True at the numbers of ``kinds``, so that the kind of a row is
    its index.
    """
    table = np.zeros(max(Kind) + 1, bool)
    table[list(kinds)] = True
    return table


def _phases(rows: np.ndarray, jobs: JobColumns, log_end_s: float) -> Phases:
    change = np.zeros(max(Kind) + 1, np.int8)
    change[Kind.STARTED] = 1
    change[list(RUN_ENDS)] = -1
    kind = np.ascontiguousarray(rows["kind"])
    places = np.flatnonzero(_among((Kind.ARRIVED, Kind.COMPLETED, Kind.STARTED, *RUN_ENDS))[kind])
    change, job = change[kind[places]], rows["job"][places]
    # The rows are sorted by time, and a stable sort keeps this order within each job.
    order = _stable_order(job)
    job, change, time_s = job[order], change[order], rows["time_s"][places][order]
    del places, kind, order  # frees memory, which is scarce at this point in large runs

    last = np.append(job[1:] != job[:-1], True)[: len(job)]
    count = np.cumsum(change, dtype=np.int32)
    # for each job, the number of runs of earlier jobs that are still in progress at the end of the log
    before = np.append(0, count[last])[:-1]
    if before.any():
        count -= np.repeat(before, np.diff(np.flatnonzero(last), prepend=-1))

    gone = np.where(jobs.unfinished[job[last]], log_end_s, time_s[last])
    end_s = np.append(time_s[1:], 0.0)[: len(job)]
    end_s[last] = np.maximum(gone, time_s[last])
    keep = np.flatnonzero((end_s > time_s) & jobs.accepted[job])
    return Phases(job[keep], time_s[keep], end_s[keep], count[keep])


def _stable_order(keys: Ints) -> Ints:
    """Return the indices that sort 32-bit ``keys``, with equal keys in their order. Sorting numbers
    that contain both a key and its index takes half as long as ``np.argsort``.
    """
    both = (keys.astype(np.int64) << 32) + np.arange(len(keys))
    both.sort()
    both &= 0xFFFF_FFFF
    return both


def _pair(starts: Ints, ends: Ints) -> Ints:
    """For each start, return the index of the end with the same key, or -1. If several starts have
    the same key, the n-th start is paired with the n-th end.
    """
    by_key = np.argsort(starts, kind="stable")
    sorted_starts = starts[by_key]
    order = np.argsort(ends, kind="stable")
    sorted_ends = ends[order]
    place = np.arange(len(starts)) - np.searchsorted(sorted_starts, sorted_starts)
    place += np.searchsorted(sorted_ends, sorted_starts)
    paired = np.flatnonzero(place < np.searchsorted(sorted_ends, sorted_starts, side="right"))
    pairs = np.full(len(starts), -1, np.int64)
    pairs[by_key[paired]] = order[place[paired]]
    return pairs


def _look_up(values: np.ndarray, places: Ints, missing: float) -> np.ndarray:
    """Return ``values[places]``, with ``missing`` where the place is -1."""
    if not len(values):  # in most logs, no run has a set-up time, and an empty column takes no memory
        return np.broadcast_to(np.array(missing, values.dtype), len(places))
    return np.append(values, np.array(missing, values.dtype))[places]
