"""Reasons why a job waited, from the log: who held the GPUs, who went first, and what was missing.

The log has GPUs and outages. It does not show which other GPU types a job could have used, nor
CPUs, memory and limits of a policy. If enough GPUs of the right kind were free, one of these or the
policy's order made the job wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from dagsim.errors import InputError
from dagsim.metrics.columns import Floats, Ints, ScheduleColumns, Source, columns
from dagsim.model.arithmetic import ordered_sum
from dagsim.registry import nearest

__all__ = ["Blocker", "GpuHolder", "Overtaker", "WaitReasons", "find_job", "wait_reasons"]

_EPS = 1e-6
"""Tolerance in GPUs, because shares are sums of fractions."""


class Blocker(StrEnum):
    """A reason why a job cannot start at an instant."""

    DOWN = "nodes were down"
    HELD = "too few GPUs were free"
    SCATTERED = "enough GPUs were free, but not together"
    ORDER = "enough GPUs were free: the policy's order or a limit, CPUs or memory"


@dataclass(frozen=True, slots=True)
class GpuHolder:
    """A job that held GPUs that the waiting job could have used."""

    job: str
    tenant: str
    gpus: float
    """Largest number of GPUs that it held at once."""
    gpu_s: float
    """GPU-seconds that it held while the other job waited."""
    arrived_later: bool


@dataclass(frozen=True, slots=True)
class Overtaker:
    """A job that arrived later and started first, on GPUs that the waiting job could use."""

    job: str
    tenant: str
    gpus: float
    arrival_s: float
    start_s: float


@dataclass(frozen=True, slots=True)
class WaitReasons:
    """Breakdown of a job's wait."""

    job: str
    tenant: str
    gpus: float
    """Number of GPUs that it asked for at once."""
    types: tuple[str, ...]
    """GPU types that it ran on; those of the whole cluster if it never ran."""
    arrival_s: float
    start_s: float | None
    """First start."""
    wait_s: float
    """Seconds in the system without a run, including those between its runs."""
    periods: tuple[tuple[float, float], ...]
    """Start and end of each wait."""
    stopped: int
    """Number of times that a run was preempted or failed."""
    blocked_s: dict[Blocker, float]
    """Seconds of the wait by what was missing. Their sum is the whole wait."""
    holders: tuple[GpuHolder, ...]
    """Jobs that held the GPUs, most GPU-seconds first."""
    overtakers: tuple[Overtaker, ...]
    """Jobs that went first, in the order of their starts."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            **{name: getattr(self, name) for name in ("job", "tenant", "gpus", "arrival_s", "start_s", "wait_s")},
            "types": list(self.types),
            "periods": [list(period) for period in self.periods],
            "stopped": self.stopped,
            "blocked_s": {blocker.name.lower(): seconds for blocker, seconds in self.blocked_s.items()},
            "holders": [{name: getattr(holder, name) for name in GpuHolder.__slots__} for holder in self.holders],
            "overtakers": [
                {name: getattr(overtaker, name) for name in Overtaker.__slots__} for overtaker in self.overtakers
            ],
        }


def find_job(source: Source, job: str) -> int:
    """Return the number of the job with the id ``job``. ``#12`` is the number 12 by arrival.

    Raises:
        InputError: There is no such job.
    """
    ids = columns(source).jobs.ids
    if job in ids:
        return ids.index(job)
    if job.startswith("#") and job[1:].isdecimal() and int(job[1:]) < len(ids):
        return int(job[1:])
    raise InputError(f"there is no job {job!r} in this run{nearest(job, ids)}; #0 to #{len(ids) - 1} go by arrival")


def wait_reasons(source: Source, job: int) -> WaitReasons:
    """Return the reasons why job number ``job`` waited. O(rows of the log + instants of its wait x
    nodes).

    Raises:
        InputError: There is no such job, or it was rejected.
    """
    cols = columns(source)
    jobs, runs = cols.jobs, cols.runs
    if not 0 <= job < len(jobs):
        raise InputError(f"there is no job number {job} among {len(jobs)}")
    if jobs.rejected[job]:
        raise InputError(f"job {jobs.ids[job]!r} was turned away when it arrived: it did not wait")
    mine = np.flatnonzero(runs.job == job)
    periods = _periods(cols, job)
    wide = _types(cols, mine)
    nodes = np.flatnonzero([_name(cols, node) in wide for node in range(len(cols.cluster.nodes))])
    return WaitReasons(
        job=jobs.ids[job],
        tenant=jobs.tenant[job],
        gpus=float(jobs.gpus[job]),
        types=wide,
        arrival_s=float(jobs.arrival_s[job]),
        start_s=float(runs.start_s[mine].min()) if len(mine) else None,
        wait_s=ordered_sum(end - start for start, end in periods),
        periods=periods,
        stopped=len(set(runs.run[mine[_stopped(cols, mine)]].tolist())),
        blocked_s=_blocked(cols, job, mine, periods, nodes),
        holders=_holders(cols, job, periods, nodes),
        overtakers=_overtakers(cols, job, periods, nodes),
    )


def _periods(cols: ScheduleColumns, job: int) -> tuple[tuple[float, float], ...]:
    """Intervals in the system without a run. Adjacent ones are merged."""
    phases = cols.phases
    places = np.flatnonzero((phases.job == job) & (phases.running == 0))
    joined: list[tuple[float, float]] = []
    for start, end in zip(phases.start_s[places].tolist(), phases.end_s[places].tolist(), strict=True):
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return tuple(joined)


def _types(cols: ScheduleColumns, mine: Ints) -> tuple[str, ...]:
    nodes = cols.runs.node[mine].tolist() if len(mine) else range(len(cols.cluster.nodes))
    return tuple(dict.fromkeys(_name(cols, node) for node in nodes))


def _name(cols: ScheduleColumns, node: int) -> str:
    gpu = cols.cluster.nodes[node].gpu
    return "no GPUs" if gpu is None else gpu.name


def _stopped(cols: ScheduleColumns, mine: Ints) -> Ints:
    from dagsim.model import Kind

    return np.flatnonzero(np.isin(cols.runs.outcome[mine], (Kind.PREEMPTED, Kind.FAILED)))


def _blocked(
    cols: ScheduleColumns, job: int, mine: Ints, periods: tuple[tuple[float, float], ...], nodes: Ints
) -> dict[Blocker, float]:
    """Split the wait by what was missing, instant by instant."""
    blocked_s = dict.fromkeys(Blocker, 0.0)
    for start_s, end_s in periods:
        shape = _shape(cols, job, mine, end_s)
        for from_s, until_s, free, up in _instants(cols, start_s, end_s, nodes):
            blocked_s[_blocker(shape, free, up)] += until_s - from_s
    return {blocker: seconds for blocker, seconds in blocked_s.items() if seconds > 0}


def _shape(cols: ScheduleColumns, job: int, mine: Ints, at_s: float) -> Floats:
    """GPUs that the next run takes on each of its nodes, largest first. All on one node if it never
    ran again.
    """
    runs = cols.runs
    later = mine[runs.start_s[mine] >= at_s]
    if not len(later):
        return np.array([cols.jobs.gpus[job]])
    first = later[runs.run[later] == runs.run[later[0]]]
    return np.sort(runs.held[first])[::-1]


def _blocker(shape: Floats, free: Floats, up: Floats) -> Blocker:
    wanted = float(shape.sum())
    if _fits(shape, free):
        return Blocker.ORDER
    if free.sum() + _EPS >= wanted:
        return Blocker.SCATTERED
    return Blocker.HELD if _fits(shape, up) else Blocker.DOWN


def _fits(shape: Floats, free: Floats) -> bool:
    """True if each part fits on a node of its own."""
    best = np.sort(free)[::-1][: len(shape)]
    return len(best) == len(shape) and bool(np.all(best + _EPS >= shape))


def _instants(
    cols: ScheduleColumns, start_s: float, end_s: float, nodes: Ints
) -> Iterator[tuple[float, float, Floats, Floats]]:
    """Yield the intervals between changes on ``nodes``: start, end, free GPUs per node, and GPUs
    per node that is up.
    """
    runs, outages = cols.runs, cols.outages
    place = np.full(len(cols.cluster.nodes), -1)
    place[nodes] = np.arange(len(nodes))
    size = np.array([cols.cluster.nodes[node].gpus for node in nodes], float)
    held, down = np.zeros(len(nodes)), np.zeros(len(nodes))
    changes: list[tuple[float, int, float, float]] = []
    for index in np.flatnonzero((place[runs.node] >= 0) & (runs.start_s < end_s) & (runs.end_s > start_s)).tolist():
        at, gpus = int(place[runs.node[index]]), float(runs.held[index])
        changes += [(max(runs.start_s[index], start_s), at, gpus, 0.0), (runs.end_s[index], at, -gpus, 0.0)]
    for index in np.flatnonzero(
        (place[outages.node] >= 0) & (outages.start_s < end_s) & (outages.end_s > start_s)
    ).tolist():
        at = int(place[outages.node[index]])
        changes += [(max(outages.start_s[index], start_s), at, 0.0, 1.0), (outages.end_s[index], at, 0.0, -1.0)]
    changes.sort(key=lambda change: change[0])
    now_s = start_s
    for time_s, at, gpus, outage in [*changes, (end_s, 0, 0.0, 0.0)]:
        until_s = min(time_s, end_s)
        if until_s > now_s:
            up = np.where(down > 0, 0.0, size)
            yield now_s, until_s, np.clip(up - held, 0.0, None), up
            now_s = until_s
        if time_s >= end_s:
            return
        held[at] += gpus
        down[at] += outage


def _holders(
    cols: ScheduleColumns, job: int, periods: tuple[tuple[float, float], ...], nodes: Ints
) -> tuple[GpuHolder, ...]:
    runs, jobs = cols.runs, cols.jobs
    overlap = np.zeros(len(runs))
    for start_s, end_s in periods:
        overlap += np.clip(np.minimum(runs.end_s, end_s) - np.maximum(runs.start_s, start_s), 0.0, None)
    gpu_s = np.where(np.isin(runs.node, nodes) & (runs.job != job), overlap * runs.held, 0.0)
    total = np.bincount(runs.job, weights=gpu_s, minlength=len(jobs))
    order = np.argsort(-total, kind="stable")
    return tuple(
        GpuHolder(jobs.ids[other], jobs.tenant[other], float(jobs.gpus[other]), float(total[other]), other > job)
        for other in order[total[order] > 0].tolist()
    )


def _overtakers(
    cols: ScheduleColumns, job: int, periods: tuple[tuple[float, float], ...], nodes: Ints
) -> tuple[Overtaker, ...]:
    runs, jobs = cols.runs, cols.jobs
    overtakers: dict[int, Overtaker] = {}
    later = np.flatnonzero((runs.job > job) & np.isin(runs.node, nodes))
    for index in later[np.argsort(runs.start_s[later], kind="stable")].tolist():
        other, start_s = int(runs.job[index]), float(runs.start_s[index])
        if other not in overtakers and any(first <= start_s < last for first, last in periods):
            overtakers[other] = Overtaker(
                jobs.ids[other], jobs.tenant[other], float(jobs.gpus[other]), float(jobs.arrival_s[other]), start_s
            )
    return tuple(overtakers.values())
