"""Workloads of sessions: users who submit several alike jobs in a row, as the logs of real clusters show them.

Sessions begin at swinging ``rates``. A session belongs to a tenant and is of one kind: it has so many jobs, some
seconds apart, that ask for the same and mostly take about as long. ``dagsim.workload.fitting`` fits all of it to a
trace; the presets ``like-philly`` and so on are such fits.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from math import inf
from typing import Literal, NamedTuple

import numpy as np

from dagsim.errors import WorkloadError
from dagsim.model import Cluster, Edge, Job, Task, TaskGraph
from dagsim.model.streams import stream
from dagsim.workload.distributions import Constant, Distribution, Quantiles
from dagsim.workload.load import LoadMeter, WorkRuntime
from dagsim.workload.measure import Measure, check_measure
from dagsim.workload.rates import HOURS_PER_WEEK, Rates
from dagsim.workload.shapes import Parents, Shape, Single
from dagsim.workload.sizes import Draws

__all__ = ["SessionKind", "Sessions"]

_MOST = 10_000_000
"""More jobs than this are a slip of the keyboard."""
_NEAR = 0.05
"""Alike jobs lie within this of their session's own quantile."""
_CHUNK = 256  # shapes drawn at once
_GRID = 4_000
"""Quantiles of a kind from which its expected load is added up."""
_FORBID = {"extra": "forbid"}
_ONE, _NONE = Constant(1.0), Constant(0.0)
_ALONE = Quantiles(((0.0, 1.0), (1.0, 1.0)), whole=True)
_STEADY, _UP_TO_A_MINUTE, _SINGLE = Rates(), Quantiles(((0.0, 0.0), (1.0, 60.0))), Single()


@dataclass(frozen=True, slots=True)
class SessionKind:
    """Sessions whose jobs ask for the same: ``share`` of all sessions (relative to the other kinds).

    ``jobs`` is the number of jobs of a session and ``work`` the work of a task. What an instance takes is drawn once
    for a session.

    Raises:
        WorkloadError: A share that is not positive.
    """

    share: float
    work: Quantiles
    jobs: Quantiles = _ALONE
    instances: Distribution = _ONE
    gang: bool = True
    gpus: Distribution = _ONE
    cpus: Distribution = _NONE
    memory_gb: Distribution = _NONE
    priority: float = 0.0

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        if not 0 < self.share < inf:
            raise WorkloadError(f"sessions: a kind's share must be above 0, got {self.share!r}")


class _Demand(NamedTuple):
    """The demand of an instance, the same for all jobs of a session."""

    gpus: float
    cpus: float
    memory_gb: float


class _Session(NamedTuple):
    """A session under way."""

    kind: int
    tenant: int
    demand: _Demand
    instances: int


@dataclass(frozen=True, slots=True)
class Sessions:
    """``count`` jobs of sessions that offer ``load`` to the cluster, on average over seeds.

    Times are those of the real cluster, stretched so that the load is met, as ``--load`` does with a trace: on a small
    cluster a day lasts longer than 24 h. With ``load_is="exact"`` these very jobs offer exactly ``load``. ``alike`` is
    the share of a session's jobs that take about as long as each other. There are so many ``tenants``, the k-th of
    which submits sessions in proportion to k to the power of -``zipf``.

    Raises:
        WorkloadError: No jobs or kinds, a load that is not positive; when asked for jobs, work that this cluster
            cannot do.
    """

    kinds: tuple[SessionKind, ...]
    rates: Rates = _STEADY
    gaps_s: Quantiles = _UP_TO_A_MINUTE
    alike: float = 0.8
    tenants: int = 0
    zipf: float = 1.0
    shape: Shape = _SINGLE
    count: int = 20_000
    load: float = 0.9
    load_is: Literal["exact", "expected"] = "expected"
    measure: Measure | None = None
    """Jobs by arrival that metrics count, ``[first, last]``; left out: all."""
    kind: Literal["sessions"] = "sessions"

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        if not 1 <= self.count <= _MOST:
            raise WorkloadError(f"workload: count must be 1 to {_MOST:,}, got {self.count:,}")
        if not 0 < self.load < inf:
            raise WorkloadError(f"workload: load must be above 0, got {self.load!r}")
        if not self.kinds:
            raise WorkloadError("workload: sessions need at least one kind")
        if not 0 <= self.alike <= 1:
            raise WorkloadError(f"workload: alike must lie in 0..1, got {self.alike!r}")
        if self.tenants < 0 or not 0 <= self.zipf < inf:
            raise WorkloadError(f"workload: tenants and zipf must be 0 or more, got {self.tenants!r}, {self.zipf!r}")
        if self.load_is not in ("exact", "expected"):
            raise WorkloadError(f"workload: load_is must be exact or expected, got {self.load_is!r}")
        check_measure(self.measure, self.count)

    def jobs(self, cluster: Cluster, runtime: WorkRuntime, seed: int = 0) -> Iterator[Job]:
        """The jobs under ``seed`` in order of arrival, made as they are asked for.

        An exact load takes a pass over all of them before the first.
        """
        stretch = _stretch(self, cluster, runtime)
        if self.load_is == "exact":
            stretch *= self._offered(cluster, runtime, seed, stretch) / self.load
        return self._drawn(seed, stretch)

    def natural_load(self, cluster: Cluster, runtime: WorkRuntime) -> float:
        """The load that the real cluster's own rate of arrivals offers to this one, on average."""
        gpu_s = cpu_s = 0.0
        total = sum(kind.share for kind in self.kinds)
        tasks = float(np.mean([len(parents) for parents in self.shape.draw(stream(0, "pilot/shapes"), _GRID)]))
        for kind in self.kinds:
            meter = self._metered(kind, cluster, runtime)
            tasks_per_session = kind.share / total * float(kind.jobs.at(_middles(_GRID)).mean()) * tasks
            gpu_s += tasks_per_session * meter.gpu_s / _GRID
            cpu_s += tasks_per_session * meter.cpu_s / _GRID
        return self.rates.per_hour / 3600 * max(gpu_s, cpu_s)

    def _metered(self, kind: SessionKind, cluster: Cluster, runtime: WorkRuntime) -> LoadMeter:
        """The load of ``_GRID`` tasks of the kind, evenly over the quantiles of its work."""
        meter, rng = LoadMeter(cluster, runtime), stream(0, "pilot/demands")
        demands, instances = _demands(kind, rng, _GRID)
        for work, demand, count in zip(kind.work.at(_middles(_GRID)).tolist(), demands, instances, strict=True):
            meter.add(_task("t0", work, kind, demand, count))
        return meter

    def _offered(self, cluster: Cluster, runtime: WorkRuntime, seed: int, stretch: float) -> float:
        meter, last_s = LoadMeter(cluster, runtime), 0.0
        for job in self._drawn(seed, stretch):
            last_s = job.arrival_s
            for task in job.tasks:
                meter.add(task)
        if not last_s or not meter.busy_s > 0:
            raise WorkloadError(f"workload: {cluster} can do nothing of this work, or all of it comes at once")
        return meter.busy_s / last_s

    def _drawn(self, seed: int, stretch: float) -> Iterator[Job]:
        rng: Draws = cache(lambda name: stream(seed, name))
        first_s, shapes = None, self._shapes(rng)
        for number, (time_s, session, place, work) in zip(range(self.count), self._arrivals(rng), strict=False):
            first_s = time_s if first_s is None else first_s
            tasks = self._tasks(rng, session, place, work, parents := next(shapes))
            tenant = f"tenant-{session.tenant}" if session.tenant >= 0 else ""
            graph = TaskGraph(tasks, _edges(parents))
            yield Job(f"job-{number}", graph, (time_s - first_s) * stretch, self.kinds[session.kind].priority, tenant)

    def _shapes(self, rng: Draws) -> Iterator[Parents]:
        while True:
            yield from self.shape.draw(rng("shapes"), _CHUNK)

    def _arrivals(self, rng: Draws) -> Iterator[tuple[float, _Session, float, float]]:
        """Every job's time, session, place among its kind's durations, and work, in order of time."""
        sessions: list[_Session] = []
        held = np.empty((3, 0))  # time, place, work
        owners = np.empty(0, int)
        for week, starts in enumerate(self.rates.weeks(rng)):
            fresh = self._sessions(rng, len(starts))
            lengths = np.array([length for _, length, _ in fresh], int)
            owner = np.repeat(np.arange(len(starts)), lengths)
            places = self._places(rng, np.array([own for _, _, own in fresh])[owner])
            works = self._works(np.array([session.kind for session, _, _ in fresh], int)[owner], places)
            held = np.concatenate([held, [self._times(rng, starts, lengths), places, works]], axis=1)
            owners = np.concatenate([owners, len(sessions) + owner])
            sessions += [session for session, _, _ in fresh]
            order = np.argsort(held[0], kind="stable")
            held, owners = held[:, order], owners[order]
            ready = int(np.searchsorted(held[0], (week + 1) * 3600.0 * HOURS_PER_WEEK))
            for time_s, place, work, one in zip(*held[:, :ready].tolist(), owners[:ready].tolist(), strict=True):
                yield time_s, sessions[one], place, work
            held, owners = held[:, ready:], owners[ready:]
            first = int(owners.min()) if len(owners) else len(sessions)
            owners, sessions = owners - first, sessions[first:]

    def _works(self, kinds: np.ndarray, places: np.ndarray) -> np.ndarray:
        works = np.empty(len(places))
        for number, kind in enumerate(self.kinds):
            mine = kinds == number
            works[mine] = kind.work.at(places[mine])
        return works

    def _times(self, rng: Draws, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """The times of all jobs of the sessions, one session after the other."""
        gaps = self.gaps_s.draw(rng("sessions/gaps"), int(lengths.sum()))
        ends = np.cumsum(lengths)
        since = np.cumsum(gaps)
        return np.asarray(np.repeat(starts - since[ends - lengths], lengths) + since)

    def _sessions(self, rng: Draws, count: int) -> list[tuple[_Session, int, float]]:
        """The number of sessions, the jobs of each, and its place among durations. Durations are those of its kind."""
        shares = np.cumsum([kind.share for kind in self.kinds])
        kinds = np.searchsorted(shares, rng("sessions/kinds").random(count) * shares[-1], "right")
        own, lengths = rng("sessions/own").random(count), rng("sessions/jobs").random(count)
        jobs, demands = np.ones(count, int), []
        for number, kind in enumerate(self.kinds):
            mine = kinds == number
            jobs[mine] = np.maximum(np.rint(kind.jobs.at(lengths[mine])), 1)
            drawn = _demands(kind, rng(f"sessions/demands-{number}"), int(mine.sum()))
            demands.append(zip(*drawn, strict=True))
        columns = zip(kinds.tolist(), self._tenants(rng, count), jobs.tolist(), own.tolist(), strict=True)
        return [(_Session(number, tenant, *next(demands[number])), many, at) for number, tenant, many, at in columns]

    def _tenants(self, rng: Draws, count: int) -> list[int]:
        if not self.tenants:
            return [-1] * count
        bounds = np.cumsum([rank**-self.zipf for rank in range(1, self.tenants + 1)])
        drawn = np.searchsorted(bounds, rng("sessions/tenants").random(count) * bounds[-1], "right")
        return drawn.tolist()  # type: ignore[no-any-return]

    def _places(self, rng: Draws, own: np.ndarray) -> np.ndarray:
        """A place among the durations of its kind for every job: near its session's ``own``, or anywhere."""
        near = np.abs(own + _NEAR * (2 * rng("sessions/near").random(len(own)) - 1))
        near = np.where(near >= 1, 2 - near, near)  # mirrored at both ends
        fresh = rng("sessions/fresh").random(len(own))
        places = np.where(rng("sessions/alike").random(len(own)) < self.alike, near, fresh)
        return np.minimum(places, np.nextafter(1, 0))

    def _tasks(self, rng: Draws, session: _Session, place: float, work: float, parents: Parents) -> tuple[Task, ...]:
        """The tasks of a job: the first one's place among the durations is the job's, others are near it or not."""
        kind = self.kinds[session.kind]
        if len(parents) == 1:
            return (_task("t0", work, kind, session.demand, session.instances),)
        works = kind.work.at(self._places(rng, np.full(len(parents) - 1, place))).tolist()
        instances = _counts(kind.instances.draw(rng("tasks/instances"), len(parents)))
        return tuple(
            _task(f"t{at}", each, kind, session.demand, count)
            for at, (each, count) in enumerate(zip((work, *works), instances, strict=True))
        )


def _stretch(workload: Sessions, cluster: Cluster, runtime: WorkRuntime) -> float:
    """The factor on times at which the load is met; remembered where the runtime model can be a key."""
    if isinstance(runtime, Hashable):
        return _remembered(workload, cluster, runtime)
    return _remembered.__wrapped__(workload, cluster, runtime)


@lru_cache(maxsize=16)
def _remembered(workload: Sessions, cluster: Cluster, runtime: WorkRuntime) -> float:
    natural = workload.natural_load(cluster, runtime)
    if not 0 < natural < inf:
        raise WorkloadError(f"workload: {cluster} can do nothing of this work, so that it has no load to set")
    return natural / workload.load


def _task(name: str, work: float, kind: SessionKind, demand: _Demand, instances: int) -> Task:
    return Task(name, work, instances, kind.gang and instances > 1, *demand)


def _demands(kind: SessionKind, rng: np.random.Generator, count: int) -> tuple[list[_Demand], list[int]]:
    """Demands of an instance, and instances, of so many sessions."""
    columns = [each.draw(rng, count).tolist() for each in (kind.gpus, kind.cpus, kind.memory_gb)]
    return [_Demand(*each) for each in zip(*columns, strict=True)], _counts(kind.instances.draw(rng, count))


def _counts(drawn: np.ndarray) -> list[int]:
    return np.maximum(np.rint(drawn), 1).astype(int).tolist()  # type: ignore[no-any-return]


def _middles(count: int) -> np.ndarray:
    """The middles of so many equal parts of 0..1."""
    return (np.arange(count) + 0.5) / count


@lru_cache(maxsize=4096)
def _edges(parents: Parents) -> tuple[Edge, ...]:
    return tuple([Edge(parent, child) for child, of in enumerate(parents) for parent in of])
