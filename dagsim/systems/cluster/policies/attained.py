"""Preemptive policies based on attained service: LAS, Tiresias and the Gittins index."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping
from functools import lru_cache
from heapq import heappop, heappush
from math import inf

import numpy as np

from dagsim.errors import ConfigError, require
from dagsim.systems.cluster.api import JobState
from dagsim.systems.cluster.policies.formulas import CLOSE
from dagsim.systems.cluster.policies.placement import PlacementRule
from dagsim.systems.cluster.policies.rounds import Rounds, Served, ServiceColumns

_NOTHING = Served()


def las(quantum_s: float = 60.0, placement: str | PlacementRule = "best-fit", lead: float = 0.0) -> Rounds:
    """Least attained service first (Nuyens and Wierman 2008, as foreground-background): the job
    that has run for the fewest seconds comes first. Jobs are ranked again every ``quantum_s``
    seconds. The policy needs no estimates, and it preempts runs. Its time complexity is that of
    ``Rounds``.

    With ``lead``, a run is only stopped for a job that has received less than 1 - ``lead`` times as
    much service as the run's job.
    """
    return Rounds(BySeconds(), quantum_s, placement, lead)


def las_2d(quantum_s: float = 60.0, placement: str | PlacementRule = "best-fit", lead: float = 0.0) -> Rounds:
    """Two-dimensional LAS (Tiresias, Gu et al., NSDI 2019): the job that has received the fewest
    GPU-seconds comes first. Jobs are ranked again every ``quantum_s`` seconds. The policy needs no
    estimates, and it preempts runs. Its time complexity is that of ``Rounds``.

    With ``lead``, a run is only stopped for a job that has received less than 1 - ``lead`` times as
    much service as the run's job.
    """
    return Rounds(ByGpuSeconds(), quantum_s, placement, lead)


def tiresias(
    thresholds: float | tuple[float, ...] = (3600.0,),
    promote: float = inf,
    quantum_s: float = 60.0,
    placement: str | PlacementRule = "best-fit",
) -> Rounds:
    """Discretised 2D-LAS (based on Tiresias, Gu et al., NSDI 2019): a job moves down one level each
    time its GPU-seconds exceed one of ``thresholds``. Within a level, jobs are served in order of
    arrival. A job that has waited ``promote`` times as long as it has run returns to the top level.
    The policy needs no estimates, and it preempts runs. Its time complexity is that of ``Rounds``.

    Levels are recomputed every ``quantum_s`` seconds.
    """
    levels = thresholds if isinstance(thresholds, tuple) else (thresholds,)
    return Rounds(QueueLevels(levels, promote), quantum_s, placement)


class BySeconds:
    """Rank jobs by seconds of service."""

    def key(self, job: int, served: Served) -> float:
        return served.seconds

    def keys(self, service: ServiceColumns) -> np.ndarray:
        return service.seconds

    def exceeds_s(self, key: float, service: ServiceColumns, row: int | None = None) -> np.ndarray:
        return _overtakes_s(key, service.seconds, service.runs, service, row)

    def may_fall(self, served: Served) -> bool:
        return False

    def stopped(self, job: int, served: Served, now: float) -> None:
        pass

    def left(self, job: int, served: Served) -> None:
        pass

    def moved(self, now: float, jobs: Mapping[int, JobState]) -> Iterable[int]:
        return ()

    def moves_s(self) -> float:
        return inf


class ByGpuSeconds(BySeconds):
    """Rank jobs by GPU-seconds of service."""

    def key(self, job: int, served: Served) -> float:
        return served.gpu_s

    def keys(self, service: ServiceColumns) -> np.ndarray:
        return service.gpu_s

    def exceeds_s(self, key: float, service: ServiceColumns, row: int | None = None) -> np.ndarray:
        return _overtakes_s(key, service.gpu_s, service.gpus, service, row)


def _overtakes_s(
    key: float, served: np.ndarray, rates: np.ndarray, service: ServiceColumns, row: int | None
) -> np.ndarray:
    """Return, for each job, how many seconds pass until its service (``served``) exceeds ``key``.
    The service grows by ``rates`` per second, and ``key`` itself grows at the rate of the job in
    ``row``. The service of jobs without GPUs does not change.
    """
    rises = 0.0 if row is None else float(rates[row])
    ahead, closing = key - served, rates - rises
    with np.errstate(divide="ignore", invalid="ignore"):
        left_s = np.where(closing > 0, ahead / closing, inf)
    if row is not None and rises > 0:
        left_s = np.where(ahead > CLOSE * key, np.minimum(left_s, key / rises), 0.0)
        left_s[service.alike(row)] = inf
    return left_s


class QueueLevels:
    """Rank jobs by level. A job's level is the number of ``thresholds`` (in GPU-seconds) that its
    service has exceeded since its last promotion.
    """

    def __init__(self, thresholds: tuple[float, ...], promote: float = inf) -> None:
        if list(thresholds) != sorted(thresholds) or not all(threshold > 0 for threshold in thresholds):
            raise ConfigError(f"tiresias: thresholds must be positive and increasing, got {thresholds!r}")
        require(promote > 0, "tiresias: promote must be positive", promote)
        self.thresholds = thresholds
        self.promote = promote
        self._forgiven: dict[int, Served] = {}
        """Service of each promoted job at its promotion, which no longer counts."""
        self._due: list[tuple[float, int, Served]] = []
        """Heap of promotion times of stopped jobs. An entry is valid if the job receives no more service until then."""
        self._had: dict[int, Served] = {}

    def key(self, job: int, served: Served) -> float:
        self._had[job] = served
        return bisect_right(self.thresholds, served.gpu_s - self._forgiven.get(job, _NOTHING).gpu_s)

    def keys(self, service: ServiceColumns) -> np.ndarray:
        if self.promote < inf:
            for job, *served in zip(*[column.tolist() for column in service[2:5]], strict=True):
                self._had[job] = Served(*served)
        return np.searchsorted(self.thresholds, self._counted(service), side="right").astype(float)

    def exceeds_s(self, key: float, service: ServiceColumns, row: int | None = None) -> np.ndarray:
        counted = self._counted(service)
        reached = np.searchsorted(self.thresholds, counted, side="right")
        with np.errstate(divide="ignore"):
            return np.asarray((np.append(self.thresholds, inf)[reached] - counted) / service.gpus)

    def may_fall(self, served: Served) -> bool:
        return False

    def _counted(self, service: ServiceColumns) -> np.ndarray:
        """Return, for each run, the GPU-seconds that its job has received since its last promotion.
        Shape (runs,), float64.
        """
        if not self._forgiven:
            return service.gpu_s
        return service.gpu_s - [self._forgiven.get(job, _NOTHING).gpu_s for job in service.job.tolist()]

    def stopped(self, job: int, served: Served, now: float) -> None:
        if self.promote < inf:
            ran_s = served.seconds - self._forgiven.get(job, _NOTHING).seconds
            heappush(self._due, (now + self.promote * ran_s, job, served))

    def left(self, job: int, served: Served) -> None:
        self._had.pop(job, None)
        self._forgiven.pop(job, None)

    def moved(self, now: float, jobs: Mapping[int, JobState]) -> Iterable[int]:
        moved = []
        while self._due and self._due[0][0] <= now:
            _, job, served = heappop(self._due)
            if job in jobs and self._had.get(job) == served:
                self._forgiven[job] = served
                moved.append(job)
        return moved

    def moves_s(self) -> float:
        return self._due[0][0] if self._due else inf


_SIZES = 1024
"""Maximum number of sizes in the index; with more sizes, this many quantiles replace them."""
_AT_ONCE = 64
"""Number of jobs whose index is computed in one batch."""


def gittins_2d(
    history: tuple[float, ...] = (), quantum_s: float = 60.0, placement: str | PlacementRule = "best-fit"
) -> Rounds:
    """The job with the highest Gittins index comes first (Gittins 1979; with GPU-time, Tiresias, Gu
    et al., NSDI 2019). Jobs are ranked again every ``quantum_s`` seconds. If a job has received
    ``a`` GPU-seconds of service, and ``S`` is the size of a past job, the index is the maximum over
    ``d`` of ``P(S - a <= d | S > a) / E[min(S - a, d) | S > a]``.

    ``history`` lists sizes of past jobs in GPU-seconds, and every completed job adds its own size.
    Until sizes are known, and in ties, jobs are served in order of arrival. A job that has already
    received more service than any past job comes last. The policy preempts runs. It uses only the
    distribution of past sizes, so it needs no estimate of a job's own size. Once 2,048 sizes are
    known, they are replaced by 1,024 quantiles. Its time complexity is that of ``Rounds``, plus
    O(sizes) per ranked job.
    """
    return Rounds(Gittins(history), quantum_s, placement)


class Gittins:
    """Rank jobs by the index of a job without service minus the job's own index. As long as a job
    has received no service, its key is 0, so it need not be ranked again. The sizes are updated
    whenever their number has doubled.
    """

    remembers = "the sizes of earlier jobs"

    def __init__(self, history: Iterable[float] = ()) -> None:
        self._past = sorted(history)
        self._served: set[int] = set()
        """Jobs in the system that have received some service."""
        self._moved = False
        self._peaks: np.ndarray | None = None
        """Keys of jobs whose service equals each size, computed on first use."""
        self._renew()

    def key(self, job: int, served: Served) -> float:
        if not served.gpu_s:
            return 0.0
        self._served.add(job)
        return self._key(served.gpu_s)

    def keys(self, service: ServiceColumns) -> np.ndarray:
        served = np.flatnonzero(service.gpu_s)
        had, keys = service.gpu_s[served], np.zeros(len(service.gpu_s))
        keys[served] = new_keys = self._unserved - gittins_indices(self._sizes, had)
        self._served.update(service.job[served].tolist())
        self._known.update(zip(had.tolist(), new_keys.tolist(), strict=True))
        return keys

    def exceeds_s(self, key: float, service: ServiceColumns, row: int | None = None) -> np.ndarray:
        """Return, for each job, the seconds until its key may exceed ``key``. Between two sizes,
        the index rises and the key falls. The key of a job can therefore exceed ``key`` only when
        the job's service passes a size.
        """
        if self._peaks is None:
            self._peaks = self._unserved - gittins_indices(self._sizes, self._sizes)
        sizes = np.append(self._sizes[self._peaks >= key], inf)
        next_ = sizes[np.searchsorted(sizes, service.gpu_s, side="right")]
        with np.errstate(divide="ignore"):
            return np.asarray((next_ - service.gpu_s) / service.gpus)

    def may_fall(self, served: Served) -> bool:
        return len(self._sizes) > 0 and served.gpu_s < float(self._sizes[-1])

    def stopped(self, job: int, served: Served, now: float) -> None:
        pass

    def left(self, job: int, served: Served) -> None:
        self._served.discard(job)
        insort(self._past, served.gpu_s)
        if len(self._past) >= 2 * self._renewed:
            self._renew()
            self._moved = True

    def moved(self, now: float, jobs: Mapping[int, JobState]) -> Iterable[int]:
        if not self._moved:
            return ()
        self._moved = False
        return sorted(self._served)

    def moves_s(self) -> float:
        return inf

    def _key(self, had: float) -> float:
        key = self._known.get(had)
        if key is None:
            key = self._known[had] = self._unserved - gittins_index(self._sizes, had)
        return key

    def _renew(self) -> None:
        self._renewed = len(self._past)
        self._sizes = np.array(self._past, float)
        if self._renewed > _SIZES:
            self._sizes = self._sizes[np.linspace(0, self._renewed - 1, _SIZES).round().astype(int)]
        self._known: dict[float, float] = {}
        """Keys that have been computed, by the amount of service received."""
        self._unserved = gittins_index(self._sizes, 0.0)
        self._peaks = None


def gittins_index(sizes: np.ndarray, had: float) -> float:
    """Return the Gittins index of a job that has received an amount ``had`` of service, given the
    ``sizes`` of past jobs in increasing order (float64). For a further amount of service, take the
    probability that the job ends within this amount, divided by the expected part of it that the
    job uses. The index is the maximum of this ratio over all amounts, or 0 if no past job was
    larger.
    """
    if not len(sizes) or had >= sizes[-1]:
        return 0.0
    place = sizes.searchsorted(had, "right")
    left = sizes[place:] - had
    ends, others = _counts(len(sizes))
    service = left.cumsum()
    left *= others[place:]
    service += left
    return float((ends[: len(left)] / service).max())


def gittins_indices(sizes: np.ndarray, had: np.ndarray) -> np.ndarray:
    """Return the Gittins indices of jobs that have received the amounts ``had`` of service. The
    results are bit-identical to those of ``gittins_index``. Shape (jobs,), float64.
    """
    indices = np.zeros(len(had))
    rows = np.flatnonzero(had < sizes[-1]) if len(sizes) else np.empty(0, int)
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        indices[some] = _some_indices(sizes, had[some])
    return indices


def _some_indices(sizes: np.ndarray, had: np.ndarray) -> np.ndarray:
    """Return the Gittins indices of jobs that have all received less than the largest size. The
    computation uses a table of shape (jobs, sizes).
    """
    places = sizes.searchsorted(had, "right")
    first = places.min()
    ends, others = _counts(len(sizes))
    # 0 for sizes that do not exceed the service that the job has received
    left = np.maximum(sizes[first:] - had[:, None], 0.0)
    service = left.cumsum(axis=1)
    left *= others[first:]
    service += left
    ended = ends[first:] - places[:, None]
    return np.asarray(np.divide(ended, service, out=np.zeros_like(service), where=service > 0).max(axis=1))


@lru_cache(maxsize=2)
def _counts(sizes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each size, how many past jobs end by that size and how many do not, as two
    float64 arrays of shape (sizes,).
    """
    ends = np.arange(1.0, sizes + 1.0)
    return ends, sizes - ends
