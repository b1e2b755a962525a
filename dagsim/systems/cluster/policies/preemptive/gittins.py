"""Two-dimensional Gittins index: first who is most likely to be done soonest, by the sizes of jobs seen so far."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import inf

import numpy as np

from dagsim.systems.cluster.api import JobState
from dagsim.systems.cluster.policies.placement.rule import PlacementRule
from dagsim.systems.cluster.policies.preemptive.rounds import Rounds
from dagsim.systems.cluster.policies.support.service import Served, ServiceColumns

__all__ = ["Gittins", "gittins_2d", "gittins_index", "gittins_indices"]

_SIZES = 1024
"""Sizes that the index goes by; of more, this many quantiles."""
_AT_ONCE = 64
"""Jobs whose index is computed at once."""


def gittins_2d(
    history: tuple[float, ...] = (), quantum_s: float = 60.0, placement: str | PlacementRule = "best-fit"
) -> Rounds:
    """Highest Gittins index first, every ``quantum_s`` anew: with ``a`` GPU-seconds had and sizes ``S`` of jobs past,
    the most over ``d`` of ``P(S - a <= d | S > a) / E[min(S - a, d) | S > a]``.

    ``history`` are sizes in GPU-seconds known beforehand; every job done adds its own. Until then, and among equals,
    first come, first served; a job larger than all past ones comes last. It knows the distribution of sizes, not the
    job's own: not clairvoyant. Preemptive. From 2,048 sizes on it goes by 1,024 quantiles of them. Cost: ``Rounds``,
    plus O(sizes) per job ranked (Gittins 1979; with GPU-time, Tiresias, Gu et al., NSDI 2019).
    """
    return Rounds(Gittins(history), quantum_s, placement)


class Gittins:
    """By how far the index lies below that of a job without service, so that whoever only waited stays at 0 and need
    not be ranked anew; the sizes it goes by are renewed each time their number has doubled."""

    def __init__(self, history: Iterable[float] = ()) -> None:
        self._past = sorted(history)
        self._served: set[int] = set()
        """Jobs in the system that have had some service."""
        self._moved = False
        self._peaks: np.ndarray | None = None
        """Keys of jobs that have just had each of the sizes, computed when first asked for."""
        self._renew()

    def key(self, job: int, served: Served) -> float:
        if not served.gpu_s:
            return 0.0
        self._served.add(job)
        return self._key(served.gpu_s)

    def keys(self, service: ServiceColumns) -> np.ndarray:
        served = np.flatnonzero(service.gpu_s)
        had, keys = service.gpu_s[served], np.zeros(len(service.gpu_s))
        keys[served] = found = self._unserved - gittins_indices(self._sizes, had)
        self._served.update(service.job[served].tolist())
        self._known.update(zip(had.tolist(), found.tolist(), strict=True))
        return keys

    def exceeds_s(self, key: float, service: ServiceColumns) -> np.ndarray:
        """Between two sizes the index rises and the key falls: only as it passes a size may a job exceed ``key``."""
        if self._peaks is None:
            self._peaks = self._unserved - gittins_indices(self._sizes, self._sizes)
        sizes = np.append(self._sizes[self._peaks >= key], inf)
        next_ = sizes[np.searchsorted(sizes, service.gpu_s, side="right")]
        with np.errstate(divide="ignore"):
            return np.asarray((next_ - service.gpu_s) / service.gpus)

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
        """Keys by service had."""
        self._unserved = gittins_index(self._sizes, 0.0)
        self._peaks = None


def gittins_index(sizes: np.ndarray, had: float) -> float:
    """The Gittins index of a job that has had ``had``, for past ``sizes`` in rising order (float64): the best ratio of
    the chance to end within some further service to the service that this is expected to take. 0 if none was larger."""
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
    """(jobs,) float64: the Gittins index of jobs that have had ``had``, to the same bits as ``gittins_index``."""
    found = np.zeros(len(had))
    rows = np.flatnonzero(had < sizes[-1]) if len(sizes) else np.empty(0, int)
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        found[some] = _some_indices(sizes, had[some])
    return found


def _some_indices(sizes: np.ndarray, had: np.ndarray) -> np.ndarray:
    """Those of jobs that all have had less than the largest size, at the cost of a table (jobs, sizes)."""
    places = sizes.searchsorted(had, "right")
    first = places.min()
    ends, others = _counts(len(sizes))
    left = np.maximum(sizes[first:] - had[:, None], 0.0)  # 0: a job that has had the size already
    service = left.cumsum(axis=1)
    left *= others[first:]
    service += left
    ended = ends[first:] - places[:, None]
    return np.asarray(np.divide(ended, service, out=np.zeros_like(service), where=service > 0).max(axis=1))


@lru_cache(maxsize=2)
def _counts(sizes: int) -> tuple[np.ndarray, np.ndarray]:
    """(sizes,) float64 each: the jobs that end by each size, counted from 1, and the others."""
    ends = np.arange(1.0, sizes + 1.0)
    return ends, sizes - ends
