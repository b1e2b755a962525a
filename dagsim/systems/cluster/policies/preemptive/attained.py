"""Preemption by attained service: those who have had least go first."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from math import inf

import numpy as np

from dagsim.errors import ConfigError
from dagsim.systems.cluster.api import JobState
from dagsim.systems.cluster.policies.placement.rule import PlacementRule
from dagsim.systems.cluster.policies.preemptive.rounds import Rounds
from dagsim.systems.cluster.policies.support.service import Served, ServiceColumns

__all__ = ["QueueLevels", "las", "las_2d", "tiresias"]

_NOTHING = Served()


def las(quantum_s: float = 60.0, placement: str | PlacementRule = "best-fit", lead: float = 0.0) -> Rounds:
    """Least attained service first: the job that has run for the fewest seconds, every ``quantum_s`` anew. Not
    clairvoyant, preemptive. Cost: ``Rounds`` (Nuyens and Wierman 2008, as foreground-background)."""
    return Rounds(_Seconds(), quantum_s, placement, lead)


def las_2d(quantum_s: float = 60.0, placement: str | PlacementRule = "best-fit", lead: float = 0.0) -> Rounds:
    """Two-dimensional LAS: the job that has had the fewest GPU-seconds, every ``quantum_s`` anew. Not clairvoyant,
    preemptive. Cost: ``Rounds`` (Tiresias, Gu et al., NSDI 2019)."""
    return Rounds(_GpuSeconds(), quantum_s, placement, lead)


def tiresias(
    thresholds: float | tuple[float, ...] = (3600.0,),
    promote: float = inf,
    quantum_s: float = 60.0,
    placement: str | PlacementRule = "best-fit",
) -> Rounds:
    """Discretised 2D-LAS: a job moves down a level as its GPU-seconds pass each of ``thresholds``; within a level first
    come, first served. A job that has waited ``promote`` times as long as it has run goes back to the top. Not
    clairvoyant, preemptive. Cost: ``Rounds`` (Tiresias, Gu et al., NSDI 2019)."""
    levels = thresholds if isinstance(thresholds, tuple) else (thresholds,)
    return Rounds(QueueLevels(levels, promote), quantum_s, placement)


class _Seconds:
    """By seconds of service."""

    def key(self, job: int, served: Served) -> float:
        return served.seconds

    def keys(self, service: ServiceColumns) -> np.ndarray:
        return service.seconds

    def exceeds_s(self, key: float, service: ServiceColumns) -> np.ndarray:
        return np.asarray((key - service.seconds) / service.runs)

    def stopped(self, job: int, served: Served, now: float) -> None:
        pass

    def left(self, job: int, served: Served) -> None:
        pass

    def moved(self, now: float, jobs: Mapping[int, JobState]) -> Iterable[int]:
        return ()


class _GpuSeconds(_Seconds):
    """By GPU-seconds of service."""

    def key(self, job: int, served: Served) -> float:
        return served.gpu_s

    def keys(self, service: ServiceColumns) -> np.ndarray:
        return service.gpu_s

    def exceeds_s(self, key: float, service: ServiceColumns) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):  # what holds no GPU stays where it is
            return np.where(service.gpus > 0, (key - service.gpu_s) / service.gpus, inf)


class QueueLevels:
    """By level: how many ``thresholds`` of GPU-seconds the job has passed since it was last promoted."""

    def __init__(self, thresholds: tuple[float, ...], promote: float = inf) -> None:
        if list(thresholds) != sorted(thresholds) or not all(each > 0 for each in thresholds):
            raise ConfigError(f"tiresias: thresholds must be positive and rise, got {thresholds!r}")
        if not promote > 0:
            raise ConfigError(f"tiresias: promote must be positive, got {promote!r}")
        self.thresholds = thresholds
        self.promote = promote
        self._forgiven: dict[int, Served] = {}
        """What a promoted job had had by then, which counts no more."""
        self._due: list[tuple[float, int, Served]] = []
        """A heap of when a stopped job is to be promoted, if it has had no more than that until then."""
        self._had: dict[int, Served] = {}

    def key(self, job: int, served: Served) -> float:
        self._had[job] = served
        return bisect_right(self.thresholds, served.gpu_s - self._forgiven.get(job, _NOTHING).gpu_s)

    def keys(self, service: ServiceColumns) -> np.ndarray:
        if self.promote < inf:
            for job, *served in zip(*[each.tolist() for each in service[2:5]], strict=True):
                self._had[job] = Served(*served)
        return np.searchsorted(self.thresholds, self._counted(service), side="right").astype(float)

    def exceeds_s(self, key: float, service: ServiceColumns) -> np.ndarray:
        if self.promote < inf:  # a promotion depends on whether a job had run by the last round
            return np.zeros(len(service.run))
        counted = self._counted(service)
        reached = np.searchsorted(self.thresholds, counted, side="right")
        with np.errstate(divide="ignore"):
            return np.asarray((np.append(self.thresholds, inf)[reached] - counted) / service.gpus)

    def _counted(self, service: ServiceColumns) -> np.ndarray:
        """(runs,) float64: GPU-seconds since the last promotion."""
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
