"""Reasons why a job waited, based on the log: which jobs held the GPUs, which jobs started first, and
which resources were missing.

The log shows GPUs and outages. It does not show CPUs, memory, the policy's limits, or which other
GPU types a job could have used. If enough GPUs of the right type were free, the job waited for
something that the log does not show, or because of the policy's order.

``observed_against_simulated`` compares the waits recorded in the log of a real cluster with the
simulated waits of the same jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from dagsim.errors import InputError
from dagsim.metrics.columns import AnySchedule, Floats, Ints, ScheduleColumns, columns
from dagsim.model.arithmetic import ordered_sum
from dagsim.spelling import nearest
from dagsim.text import count_of

_EPS = 1e-6
"""Tolerance in GPUs, because shares are sums of fractions."""


class CauseKind(StrEnum):
    """A kind of cause."""

    CONDITION = "condition"
    """The job was not eligible: it waited for other jobs, for a start time, or for other tasks in
    its array.
    """
    LIMIT = "limit"
    """A limit or a quota of the policy was used up."""
    GPUS = "gpus"
    """Among the GPU types and nodes that the job may use, too few GPUs were free."""
    SCATTERED = "scattered"
    """Enough GPUs were free, but too few on any one node."""
    FRAGMENTED = "fragmented"
    """Enough GPU capacity was free, but the free parts of individual GPUs were too small."""
    CPUS = "cpus"
    MEMORY = "memory"
    WHOLE_NODES = "whole_nodes"
    """The job would have fitted on nodes that could not be shared."""
    DOWN = "down"
    """The job would have fitted on nodes that were down."""
    BOOT = "boot"
    """The job's nodes, or nodes on which it would have fitted, were off or still booting."""
    ELSEWHERE = "elsewhere"
    """The job would have fitted, but only where the rules do not allow it."""
    ORDER = "order"
    """The job would have fitted, but the policy's order kept it waiting."""


class Cause(NamedTuple):
    """A reason why a job could not start. ``what`` describes it in words."""

    kind: CauseKind
    what: str


DOWN = Cause(CauseKind.DOWN, "nodes were down")
TOO_FEW = Cause(CauseKind.GPUS, "too few GPUs were free")
APART = Cause(CauseKind.SCATTERED, "enough GPUs were free, but not together")
UNSEEN = Cause(CauseKind.ORDER, "enough GPUs were free: the policy's order or a limit, CPUs or memory")
"""The causes that can be found from a log alone. With the rules of a site and its scheduler,
``systems/cluster/waits/causes.py`` finds more causes of the same kinds."""


@dataclass(frozen=True, slots=True)
class GpuHolder:
    """A job that held GPUs that the waiting job could have used."""

    job: str
    tenant: str
    gpus: float
    """The largest number of GPUs that it held simultaneously."""
    gpu_s: float
    """The GPU-seconds that it held while the other job was waiting."""
    arrived_later: bool


@dataclass(frozen=True, slots=True)
class Overtaker:
    """A job that arrived later but started earlier, on GPUs that the waiting job could have
    used.
    """

    job: str
    tenant: str
    gpus: float
    arrival_s: float
    start_s: float


@dataclass(frozen=True, slots=True)
class WaitReasons:
    """The parts of a job's wait, by cause."""

    job: str
    tenant: str
    gpus: float
    """The number of GPUs that the job requested simultaneously."""
    types: tuple[str, ...]
    """The GPU types on which the job ran, or all types in the cluster if it never ran."""
    arrival_s: float
    start_s: float | None
    """First start."""
    queueing_s: float
    """Seconds that the job spent in the system without a run, including the time between its
    runs.
    """
    periods: tuple[tuple[float, float], ...]
    """Start and end of each wait."""
    stopped: int
    """Number of times that a run of the job was preempted or failed."""
    blocked_s: dict[Cause, float]
    """Seconds of the wait for each cause, with the longest first. They add up to the whole wait."""
    holders: tuple[GpuHolder, ...]
    """The jobs that held the GPUs, in descending order of GPU-seconds."""
    overtakers: tuple[Overtaker, ...]
    """The jobs that arrived later but started first, in the order of their starts."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            **{name: getattr(self, name) for name in ("job", "tenant", "gpus", "arrival_s", "start_s", "queueing_s")},
            "types": list(self.types),
            "periods": [list(period) for period in self.periods],
            "stopped": self.stopped,
            "blocked_s": {str(cause.kind): seconds for cause, seconds in self.blocked_s.items()},
            "holders": [{name: getattr(holder, name) for name in GpuHolder.__slots__} for holder in self.holders],
            "overtakers": [
                {name: getattr(overtaker, name) for name in Overtaker.__slots__} for overtaker in self.overtakers
            ],
        }


def find_job(source: AnySchedule, job: str) -> int:
    """Return the number of the job with the id ``job``. ``#12`` is the job with number 12 in order
    of arrival.

    Raises:
        InputError: There is no such job.
    """
    ids = columns(source).jobs.ids
    if job in ids:
        return ids.index(job)
    if job.startswith("#") and job[1:].isdecimal() and int(job[1:]) < len(ids):
        return int(job[1:])
    raise InputError(
        f"there is no job {job!r} in this run"
        + nearest(job, ids, f"you can also use #0 to #{len(ids) - 1}, in order of arrival")
    )


def is_rejected(source: AnySchedule, job: int) -> bool:
    """Return True if job number ``job`` was rejected without ever running."""
    cols = columns(source)
    return bool(cols.jobs.rejected[job]) and not np.any(cols.runs.job == job)


def wait_reasons(source: AnySchedule, job: int) -> WaitReasons:
    """Return the reasons why job number ``job`` waited. The cost is O(rows of the log + intervals
    of its wait x nodes).

    Raises:
        InputError: There is no such job, or it was rejected without running.
    """
    cols = columns(source)
    jobs, runs = cols.jobs, cols.runs
    if not 0 <= job < len(jobs):
        raise InputError(f"there is no job number {job}; there are only {count_of(len(jobs), 'job')}")
    if is_rejected(cols, job):
        raise InputError(f"job {jobs.ids[job]!r} was rejected on arrival, so it did not wait")
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
        queueing_s=ordered_sum(end - start for start, end in periods),
        periods=periods,
        stopped=len(set(runs.run[mine[runs.stopped[mine]]].tolist())),
        blocked_s=_blocked(cols, job, mine, periods, nodes),
        holders=_holders(cols, job, periods, nodes),
        overtakers=_overtakers(cols, job, periods, nodes),
    )


def _periods(cols: ScheduleColumns, job: int) -> tuple[tuple[float, float], ...]:
    """Return the intervals during which the job was in the system without a run. Adjacent intervals
    are merged.
    """
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


def _blocked(
    cols: ScheduleColumns, job: int, mine: Ints, periods: tuple[tuple[float, float], ...], nodes: Ints
) -> dict[Cause, float]:
    """Divide the wait among its causes, based on what was missing at each time."""
    blocked_s = dict.fromkeys((DOWN, TOO_FEW, APART, UNSEEN), 0.0)
    for start_s, end_s in periods:
        shape = _shape(cols, job, mine, end_s)
        for from_s, until_s, free, up in _instants(cols, start_s, end_s, nodes):
            blocked_s[_blocker(shape, free, up)] += until_s - from_s
    longest_first = sorted(blocked_s.items(), key=lambda item: -item[1])
    return {cause: seconds for cause, seconds in longest_first if seconds > 0}


def _shape(cols: ScheduleColumns, job: int, mine: Ints, at_s: float) -> Floats:
    """Return how many GPUs the job's next run takes on each of its nodes, in descending order. If
    there is no next run, assume that the job needs all of its GPUs on one node.
    """
    runs = cols.runs
    later = mine[runs.start_s[mine] >= at_s]
    if not len(later):
        return np.array([cols.jobs.gpus[job]])
    first = later[runs.run[later] == runs.run[later[0]]]
    return np.sort(runs.held[first])[::-1]


def _blocker(shape: Floats, free: Floats, up: Floats) -> Cause:
    wanted = float(shape.sum())
    if _fits(shape, free):
        return UNSEEN
    if free.sum() + _EPS >= wanted:
        return APART
    return TOO_FEW if _fits(shape, up) else DOWN


def _fits(shape: Floats, free: Floats) -> bool:
    """Return True if each part in ``shape`` fits into the ``free`` GPUs of a different node."""
    best = np.sort(free)[::-1][: len(shape)]
    return len(best) == len(shape) and bool(np.all(best + _EPS >= shape))


def _instants(
    cols: ScheduleColumns, start_s: float, end_s: float, nodes: Ints
) -> Iterator[tuple[float, float, Floats, Floats]]:
    """Yield the intervals between changes on ``nodes``, each with its start, its end, the free GPUs
    of each node, and the GPUs of each node that is up.
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


_SLACK_S = 10.0
"""Seconds that are added to both waits before their ratio is taken, because differences between
short waits are noise."""
_EARLY_S = 1.0
"""Tolerance in seconds, because Slurm's clock counts whole seconds."""
SIZES = ((0.0, "0 GPUs"), (0.999, "under 1 GPU"), (1.0, "1 GPU"), (4.0, "2-4 GPUs"), (8.0, "5-8 GPUs"),
          (32.0, "9-32 GPUs"), (np.inf, "over 32 GPUs"))  # fmt: skip
"""The classes of jobs by size, each with its upper bound on GPUs and its name."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Statistics of waits, in seconds."""

    mean: float
    median: float
    p95: float

    @classmethod
    def of(cls, waits: Floats) -> Waits:
        """Return the mean and percentiles of ``waits`` (at least one). Percentiles are interpolated
        linearly.
        """
        return cls(float(waits.mean()), *np.percentile(waits, [50, 95]).tolist())


@dataclass(frozen=True, slots=True)
class WaitPair:
    """Observed and simulated waits of the same jobs."""

    jobs: int
    observed_s: Waits
    simulated_s: Waits
    difference_s: float
    """Mean of simulated - observed. Above 0, jobs wait longer in the simulation."""


@dataclass(frozen=True, slots=True)
class ObservedWaits:
    """The waits of the jobs for which both the observed and the simulated wait are known: overall,
    by tenant, by partition and by number of GPUs."""

    total: WaitPair
    by_tenant: dict[str, WaitPair]
    by_partition: dict[str, WaitPair]
    by_size: dict[str, WaitPair]
    left_out: int
    """Number of jobs without an observed start."""
    missed: int
    """Number of jobs with an observed start that did not start in the simulation."""
    median_abs_log_ratio: float
    """Median over the jobs of |log((simulated + 10 s) / (observed + 10 s))|: 0.16 to 0.22 between two
    real runs of the same submissions.
    """
    early: int
    """Number of jobs that start more than a second before they are eligible in the simulation."""
    from_eligible: bool
    """True if the wait of at least one job begins after its arrival, because the job was not
    eligible to start before."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def waits_in_words(from_eligible: bool) -> str:
    """Describe in words when observed and simulated waits begin, and which jobs are compared."""
    since = "the time at which a job could start" if from_eligible else "submission"
    return f"from {since}, over the jobs that start in both"


def observed_against_simulated(
    source: AnySchedule,
    observed_start_s: Sequence[float] | Floats,
    eligible_s: Sequence[float] | Floats,
    partitions: Sequence[str] = (),
    became_eligible_s: Mapping[int, float] = MappingProxyType({}),
) -> ObservedWaits | None:
    """Compare observed and simulated waits job by job. Return None if there is no job for which
    both waits are known.

    ``observed_start_s`` and ``eligible_s`` have an entry for each job in the order of
    ``Record.job``. An unknown time is NaN. Unless ``partitions`` is empty, it also has an entry for
    each job. Both waits begin when the job could have started, or at its arrival if that time is
    unknown. Neither wait therefore includes delays that no scheduler can avoid: a dependency, a
    hold, or the delay of a requeue. ``became_eligible_s`` contains the simulated time at which a
    job could have started, for jobs for which it differs from the time in the log. It is not used
    for a job whose entry in ``eligible_s`` is unknown, because the observed wait of that job begins
    at its arrival. Jobs that arrived before the simulation began are left out, as in all metrics.
    """
    cols = columns(source)
    jobs = cols.jobs
    eligible = np.asarray(eligible_s, float)
    observed_since_s = np.fmax(jobs.arrival_s, eligible)
    observed = np.maximum(np.asarray(observed_start_s, float) - observed_since_s, 0.0)
    since_s = observed_since_s.copy()
    for job, time_s in became_eligible_s.items():
        if np.isfinite(eligible[job]):
            since_s[job] = time_s
    unclipped = _first_start_s(cols) - since_s
    simulated = np.maximum(unclipped, 0.0)
    both = np.flatnonzero(np.isfinite(observed) & np.isfinite(simulated) & cols.counted)
    if not len(both):
        return None
    observed_s, observed, simulated = observed, observed[both], simulated[both]
    ratios = np.abs(np.log((simulated + _SLACK_S) / (observed + _SLACK_S)))
    tenants = [jobs.tenant[index] for index in both]
    sizes = np.searchsorted([most for most, _ in SIZES], jobs.gpus[both])
    return ObservedWaits(
        total=_pair(observed, simulated),
        by_tenant=_grouped(tenants, observed, simulated),
        by_partition=_grouped([partitions[index] for index in both.tolist()], observed, simulated)
        if any(partitions)
        else {},
        by_size=_grouped([SIZES[size][1] for size in sizes], observed, simulated, [name for _, name in SIZES]),
        left_out=int((cols.counted & ~np.isfinite(observed_s)).sum()),
        missed=int((cols.counted & np.isfinite(observed_s)).sum()) - len(both),
        median_abs_log_ratio=float(np.median(ratios)),
        early=int((unclipped[both] < -_EARLY_S).sum()),
        from_eligible=bool((np.maximum(observed_since_s, since_s) > jobs.arrival_s)[both].any()),
    )


def _first_start_s(cols: ScheduleColumns) -> Floats:
    first = cols.first_start_s
    first[np.isinf(first) | (first < cols.begins_s)] = np.nan
    return first


def _grouped(
    labels: list[str], observed: Floats, simulated: Floats, order: Sequence[str] | None = None
) -> dict[str, WaitPair]:
    by_label: dict[str, list[int]] = {}
    for index, label in enumerate(labels):
        by_label.setdefault(label, []).append(index)
    names = sorted(by_label) if order is None else [name for name in order if name in by_label]
    return {name: _pair(observed[by_label[name]], simulated[by_label[name]]) for name in names}


def _pair(observed: Floats, simulated: Floats) -> WaitPair:
    return WaitPair(len(observed), Waits.of(observed), Waits.of(simulated), float((simulated - observed).mean()))
