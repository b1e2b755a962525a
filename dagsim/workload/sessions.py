"""Workloads that consist of sessions. In a session, a user submits several similar jobs in a row,
as in the logs of real clusters.

Sessions start at the varying ``rates``. A session belongs to a tenant and to a kind, which
determines its number of jobs, the seconds between them, and their common demand. Most of its jobs
take about the same time. ``dagsim.workload.fitting`` fits all of this to a trace. The presets
``like-philly`` and so on are the results of such fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from typing import Literal, NamedTuple

import numpy as np

from dagsim.errors import WorkloadError, require
from dagsim.model import Cluster, Job
from dagsim.model.arithmetic import ordered_sum
from dagsim.model.streams import stream
from dagsim.workload.array_tools import bounds
from dagsim.workload.arrays import JobArrays, Labels
from dagsim.workload.arrivals import HOURS_PER_WEEK, Rates
from dagsim.workload.distributions import AnyDistribution, Choice, Constant, Quantiles
from dagsim.workload.load import LoadMeter, WorkRuntime, seconds_of
from dagsim.workload.shapes import DagArrays, Shape, Single
from dagsim.workload.sizes import Draws, SizeColumns, counts
from dagsim.workload.synthetic import job_arrays, remembered
from dagsim.workload.windows import Measure, check_measure

_MOST = 10_000_000
"""Maximum number of jobs; a larger number is most likely a typing error."""
_NEAR = 0.05
"""Maximum distance between the quantile of a similar job and that of its session."""
_CHUNK = 256  # number of shapes drawn at once
_GRID = 4_000
"""Number of quantiles of a kind over which its expected load is summed."""
_FORBID = {"extra": "forbid"}
_ONE, _NONE = Constant(1.0), Constant(0.0)
_ALONE = Quantiles(((0.0, 1.0), (1.0, 1.0)), whole=True)
_STEADY, _UP_TO_A_MINUTE, _SINGLE = Rates(), Quantiles(((0.0, 0.0), (1.0, 60.0))), Single()


@dataclass(frozen=True, slots=True)
class SessionKind:
    """A kind of session. All jobs in a session request the same resources. ``share`` is the weight
    with which this kind is chosen, relative to the other kinds.

    ``jobs`` is the number of jobs per session, and ``work`` is the work of a task. The demand of an
    instance is drawn once per session.

    Raises:
        WorkloadError: The share is not positive.
    """

    share: float
    work: Quantiles
    """Work of a task, in the unit of the runtime model."""
    jobs: Quantiles = _ALONE
    """Number of jobs per session."""
    instances: AnyDistribution = _ONE
    """Instances of each task."""
    gang: bool = True
    """True if the instances of a task start together."""
    gpus: AnyDistribution = _ONE
    """GPUs per instance."""
    cpus: AnyDistribution = _NONE
    """CPU cores per instance."""
    memory_gb: AnyDistribution = _NONE
    """Memory per instance in GB."""
    priority: float = 0.0
    """Priority of the jobs; larger is more urgent."""

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        require(0 < self.share < inf, "sessions: a kind's share must be above 0", self.share, WorkloadError)


class _Started(NamedTuple):
    """Sessions in columns, with one entry per session."""

    kind: np.ndarray  # int64: index of each session's kind
    tenant: np.ndarray  # int64
    jobs: np.ndarray  # int64: number of jobs
    own: np.ndarray  # float64: quantile of the session among the durations of its kind
    gpus: np.ndarray  # float64: GPUs per instance, the same for all jobs of the session
    cpus: np.ndarray
    memory_gb: np.ndarray
    instances: np.ndarray  # int64

    def chosen(self, places: np.ndarray) -> _Started:
        """Return the sessions at these indices."""
        return _Started(*[column[places] for column in self])

    @classmethod
    def joined(cls, parts: list[_Started]) -> _Started:
        """Concatenate sessions."""
        return cls(*[np.concatenate(columns) for columns in zip(*parts, strict=True)])


class _Arrived(NamedTuple):
    """Jobs in order of time, with one entry per job, and the session of each job."""

    time_s: np.ndarray
    place: np.ndarray  # float64: quantile of the first task among the durations of the kind
    session: _Started

    def until(self, count: int) -> _Arrived:
        """Return the first ``count`` jobs."""
        session = _Started(*[column[:count] for column in self.session])
        return _Arrived(self.time_s[:count], self.place[:count], session)


@dataclass(frozen=True, slots=True)
class Sessions:
    """A workload of ``count`` jobs that arrive in sessions. Averaged over seeds, their offered load
    is ``load``.

    Times are those of the real cluster, stretched to give the requested load, as ``--load`` does
    for a trace. On a small cluster, a day therefore lasts longer than 24 h. With
    ``load_mode="exact"``, each generated workload offers exactly ``load``. ``alike`` is the
    fraction of a session's jobs that take about the same time. There are ``tenants`` tenants, and
    the number of sessions that the k-th tenant submits is proportional to k to the power of
    -``zipf``.

    Raises:
        WorkloadError: There are no jobs or kinds, or the load is not positive. When jobs are
            generated: the cluster cannot run some of the work.
    """

    kinds: tuple[SessionKind, ...]
    """The kinds of sessions."""
    rates: Rates = _STEADY
    """Rate at which sessions begin: by hour of the day and day of the week, with random fluctuations."""
    gaps_s: Quantiles = _UP_TO_A_MINUTE
    """Seconds between two jobs in a session."""
    alike: float = 0.8
    """Fraction of a session's jobs that take about the same time."""
    tenants: int = 0
    """Number of tenants."""
    zipf: float = 1.0
    """Exponent that sets how unequally sessions are distributed over tenants. With 0, all tenants
    submit the same number of sessions."""
    shape: Shape = _SINGLE
    """The DAG of each job."""
    count: int = 20_000
    """Number of jobs."""
    load: float = 0.9
    """Offered load: the total work of the jobs divided by the work that the cluster can do while they arrive."""
    load_mode: Literal["exact", "expected"] = "expected"
    """``exact``: every generated workload has exactly this load. ``expected``: the load is right on
    average over seeds."""
    measure: Measure | None = None
    """Range of jobs that count towards the metrics, ``[first, last]``, numbered by arrival. By
    default, all jobs count."""
    kind: Literal["sessions"] = "sessions"

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        if not 1 <= self.count <= _MOST:
            raise WorkloadError(f"workload: count must be 1 to {_MOST:,}, got {self.count:,}")
        require(0 < self.load < inf, "workload: load must be above 0", self.load, WorkloadError)
        if not self.kinds:
            raise WorkloadError("workload: kinds must contain at least one kind of session")
        require(0 <= self.alike <= 1, "workload: alike must be between 0 and 1", self.alike, WorkloadError)
        if self.tenants < 0 or not 0 <= self.zipf < inf:
            raise WorkloadError(f"workload: tenants and zipf must be 0 or more, got {self.tenants!r}, {self.zipf!r}")
        if self.load_mode not in ("exact", "expected"):
            raise WorkloadError(f"workload: load_mode must be exact or expected, got {self.load_mode!r}")
        check_measure(self.measure, self.count)

    def arrays(self, cluster: Cluster, runtime: WorkRuntime, seed: int = 0) -> JobArrays:
        """Draw the jobs of ``seed`` in order of arrival.

        Raises:
            WorkloadError: The cluster cannot run some of the work.
        """
        stretch = _stretch(self, cluster, runtime)
        drawn = self._drawn(seed)
        if self.load_mode == "exact":
            stretch *= self._offered(drawn, cluster, runtime, stretch) / self.load
        return drawn.arriving(drawn.arrival_s * stretch)

    def jobs(self, cluster: Cluster, runtime: WorkRuntime, seed: int = 0) -> Iterator[Job]:
        """Yield the jobs in ``arrays``, lazily."""
        return self.arrays(cluster, runtime, seed).jobs()

    def natural_load(self, cluster: Cluster, runtime: WorkRuntime) -> float:
        """Return the average load that would result if jobs arrived on this cluster at the rate of
        the real cluster.
        """
        expected = LoadMeter(cluster, runtime)
        total = ordered_sum(kind.share for kind in self.kinds)
        tasks = float(self.shape.draw(stream(0, "pilot/shapes"), _GRID).tasks.mean())
        for kind in self.kinds:
            tasks_per_session = kind.share / total * float(kind.jobs.at(_middles(_GRID)).mean()) * tasks
            expected.add_like(self._metered(kind, cluster, runtime), tasks_per_session, _GRID)
        return self.rates.per_hour / 3600 * expected.busy_s

    def _metered(self, kind: SessionKind, cluster: Cluster, runtime: WorkRuntime) -> LoadMeter:
        """Measure the load of ``_GRID`` tasks of the kind, whose work is evenly spaced over its
        quantiles.
        """
        demands = _demands(kind, stream(0, "pilot/demands"), _GRID)
        tasks = job_arrays(DagArrays.single(_GRID), _sizes(kind.work.at(_middles(_GRID)), kind.gang, *demands))
        meter = LoadMeter(cluster, runtime)
        meter.add_arrays(tasks, seconds_of(tasks, runtime, cluster.gpu_types))
        return meter

    def _offered(self, drawn: JobArrays, cluster: Cluster, runtime: WorkRuntime, stretch: float) -> float:
        meter, last_s = LoadMeter(cluster, runtime), float(drawn.arrival_s[-1] * stretch)
        meter.add_arrays(drawn, seconds_of(drawn, runtime, cluster.gpu_types))
        if not last_s or not meter.busy_s > 0:
            raise WorkloadError(
                f"workload: {cluster} cannot run any of this work, or all jobs arrive at the same time, so no "
                "load can be set"
            )
        return meter.busy_s / last_s

    def _drawn(self, seed: int) -> JobArrays:
        """Draw the jobs with the arrival times of the real cluster. The first job arrives at 0."""
        rng: Draws = cache(lambda name: stream(seed, name))
        weeks: list[_Arrived] = []
        tasks: list[tuple[np.ndarray, np.ndarray]] = []
        left = self.count
        shapes = DagArrays.joined([self.shape.draw(rng("shapes"), _CHUNK) for _ in range(-(-self.count // _CHUNK))])
        for week in self._arrivals(rng):
            weeks.append(week.until(left))
            done, left = self.count - left, max(0, left - len(week.time_s))
            tasks.append(self._tasks(rng, weeks[-1], shapes.tasks[done : self.count - left]))
            if not left:
                break
        session = _Started.joined([week.session for week in weeks])
        graphs = shapes.between(0, self.count)
        place, instances = (np.concatenate(column) for column in zip(*tasks, strict=True))
        of = session.chosen(np.repeat(np.arange(self.count), graphs.tasks))
        gang = np.array([kind.gang for kind in self.kinds])[of.kind]
        sizes = _sizes(self._works(of.kind, place), gang, of.gpus, of.cpus, of.memory_gb, instances)
        drawn = job_arrays(graphs, sizes, np.array([kind.priority for kind in self.kinds], float)[session.kind])
        time_s = np.concatenate([week.time_s for week in weeks])
        drawn = drawn.arriving(time_s - time_s[0])
        if self.tenants:
            names = tuple([f"tenant-{number}" for number in range(self.tenants)])
            drawn = replace(drawn, tenant=Labels(session.tenant.astype(np.int32), names))
        return drawn

    def _arrivals(self, rng: Draws) -> Iterator[_Arrived]:
        """Yield the jobs week by week."""
        sessions = _Started(*[np.empty(0)] * len(_Started._fields))
        held = np.empty((2, 0))  # time, place
        owners = np.empty(0, int)
        for week, starts in enumerate(self.rates.weeks(rng)):
            fresh = self._sessions(rng, len(starts))
            owner = np.repeat(np.arange(len(starts)), fresh.jobs)
            places = self._places(rng, fresh.own[owner])
            held = np.concatenate([held, [self._times(rng, starts, fresh.jobs), places]], axis=1)
            owners = np.concatenate([owners, len(sessions.kind) + owner])
            sessions = _Started.joined([sessions, fresh]) if len(sessions.kind) else fresh
            order = np.argsort(held[0], kind="stable")
            held, owners = held[:, order], owners[order]
            ready = int(np.searchsorted(held[0], (week + 1) * 3600.0 * HOURS_PER_WEEK))
            yield _Arrived(held[0, :ready], held[1, :ready], sessions.chosen(owners[:ready]))
            held, owners = held[:, ready:], owners[ready:]
            first = int(owners.min()) if len(owners) else len(sessions.kind)
            owners, sessions = owners - first, sessions.chosen(np.arange(first, len(sessions.kind)))

    def _works(self, kinds: np.ndarray, places: np.ndarray) -> np.ndarray:
        works = np.empty(len(places))
        for number, kind in enumerate(self.kinds):
            mine = kinds == number
            works[mine] = kind.work.at(places[mine])
        return works

    def _times(self, rng: Draws, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return the arrival times of all jobs, grouped by session."""
        gaps = self.gaps_s.draw(rng("sessions/gaps"), int(lengths.sum()))
        ends = np.cumsum(lengths)
        since = np.cumsum(gaps)
        return np.asarray(np.repeat(starts - since[ends - lengths], lengths) + since)

    def _sessions(self, rng: Draws, count: int) -> _Started:
        """Draw ``count`` sessions."""
        shares = np.cumsum([kind.share for kind in self.kinds])
        kinds = np.searchsorted(shares, rng("sessions/kinds").random(count) * shares[-1], "right")
        own, lengths = rng("sessions/own").random(count), rng("sessions/jobs").random(count)
        jobs, demands = np.ones(count, int), [np.empty(count), np.empty(count), np.empty(count), np.empty(count, int)]
        for number, kind in enumerate(self.kinds):
            mine = np.flatnonzero(kinds == number)
            if not len(mine):
                continue
            jobs[mine] = counts(kind.jobs.at(lengths[mine]))
            drawn = _demands(kind, rng(f"sessions/demands-{number}"), len(mine))
            for column, values in zip(demands, drawn, strict=True):
                column[mine] = values
        return _Started(kinds, self._tenants(rng, count), jobs, own, *demands)

    def _tenants(self, rng: Draws, count: int) -> np.ndarray:
        if not self.tenants:
            return np.zeros(count, int)
        shares = np.cumsum([rank**-self.zipf for rank in range(1, self.tenants + 1)])
        return np.asarray(np.searchsorted(shares, rng("sessions/tenants").random(count) * shares[-1], "right"))

    def _places(self, rng: Draws, own: np.ndarray) -> np.ndarray:
        """Return the quantile of each job or task among the durations of its kind: near ``own``
        with probability ``alike``, and anywhere between 0 and 1 otherwise.
        """
        near = np.abs(own + _NEAR * (2 * rng("sessions/near").random(len(own)) - 1))
        near = np.where(near >= 1, 2 - near, near)  # reflect values outside 0 to 1
        fresh = rng("sessions/fresh").random(len(own))
        places = np.where(rng("sessions/alike").random(len(own)) < self.alike, near, fresh)
        return np.minimum(places, np.nextafter(1, 0))

    def _tasks(self, rng: Draws, arrived: _Arrived, tasks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return, for all tasks in the jobs of a week, the quantile of the duration and the number
        of instances. ``tasks`` contains the number of tasks of each job.

        The first task has the quantile of its job. The quantiles of the other tasks are near this
        quantile or anywhere.
        """
        place, instances = np.repeat(arrived.place, tasks), np.repeat(arrived.session.instances, tasks)
        if (several := tasks > 1).any():
            others = np.ones(len(place), bool)
            others[bounds(tasks)[:-1]] = False
            place[others] = self._places(rng, place[others])
            drawn = self._instances(rng("tasks/instances"), arrived.session.kind[several], tasks[several])
            instances[np.repeat(several, tasks)] = drawn
        return place, instances

    def _instances(self, rng: np.random.Generator, kinds: np.ndarray, tasks: np.ndarray) -> np.ndarray:
        """Return the number of instances of each task in jobs with these kinds and numbers of
        tasks."""
        rules = [kind.instances for kind in self.kinds]
        if not all(isinstance(rule, Choice | Constant | Quantiles) for rule in rules):
            drawn = [rules[kind].draw(rng, many) for kind, many in zip(kinds.tolist(), tasks.tolist(), strict=True)]
            return counts(np.concatenate(drawn))
        of_task = np.repeat(kinds, tasks)
        # A constant needs no random numbers.
        varied = np.array([not isinstance(rule, Constant) for rule in rules])[of_task]
        drawn_at, values = np.zeros(len(of_task)), np.empty(len(of_task))
        drawn_at[varied] = rng.random(np.count_nonzero(varied))
        for number in np.unique(kinds).tolist():
            mine = of_task == number
            values[mine] = rules[number].at(drawn_at[mine])
        return counts(values)


def _sizes(
    work: np.ndarray,
    gang: np.ndarray | bool,
    gpus: np.ndarray,
    cpus: np.ndarray,
    memory_gb: np.ndarray,
    instances: np.ndarray,
) -> SizeColumns:
    together = np.asarray(gang & (instances > 1))
    return SizeColumns(work, instances, gpus, cpus, memory_gb, together, np.zeros(len(work), np.int64))


@remembered
def _stretch(workload: Sessions, cluster: Cluster, runtime: WorkRuntime) -> float:
    """Return the factor by which times must be multiplied to give the requested load."""
    natural = workload.natural_load(cluster, runtime)
    if not 0 < natural < inf:
        raise WorkloadError(f"workload: {cluster} cannot run any of this work, so no load can be set")
    return natural / workload.load


def _demands(kind: SessionKind, rng: np.random.Generator, count: int) -> tuple[np.ndarray, ...]:
    """Draw the GPUs, cores and memory (GB) per instance, and the number of instances, for ``count``
    sessions."""
    demands = [distribution.draw(rng, count) for distribution in (kind.gpus, kind.cpus, kind.memory_gb)]
    return *demands, counts(kind.instances.draw(rng, count))


def _middles(count: int) -> np.ndarray:
    """Return the midpoints of ``count`` equal parts of the interval from 0 to 1."""
    return (np.arange(count) + 0.5) / count
