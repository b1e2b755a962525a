"""Preemption by attained service: in rounds, those who have had least go first."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from math import inf
from typing import Protocol

from dagsim.errors import ConfigError
from dagsim.model import Decision, Preempt, Start, Wait
from dagsim.systems.cluster.api import ClusterView, JobState, Run, TaskState
from dagsim.systems.cluster.policies.orders.static import by_arrival
from dagsim.systems.cluster.policies.placement.rule import PlacementRule, placing
from dagsim.systems.cluster.policies.support.job_queue import JobQueue
from dagsim.systems.cluster.policies.support.service import Served, Service
from dagsim.systems.cluster.policies.support.victims import make_room

__all__ = ["QueueLevels", "Rank", "Rounds", "las", "las_2d", "tiresias"]


class Rank(Protocol):
    """Ranks a job by the service it has had."""

    def key(self, job: int, served: Served) -> float:
        """Smaller first."""
        ...

    def stopped(self, job: int, served: Served, now: float) -> None:
        """A run of the job was preempted."""
        ...

    def left(self, job: int, served: Served) -> None:
        """The job is done."""
        ...

    def moved(self, now: float, jobs: Mapping[int, JobState]) -> Iterable[int]:
        """Jobs whose key has moved although they only waited."""
        ...


class Rounds:
    """Every ``quantum_s`` seconds all jobs compete again: in the order of ``(rank, first come)`` a ready task that does
    not fit takes the place of the runs that rank last, as long as each ranks behind it. Between rounds what fits is
    started in that order and nothing is preempted. Where a stopped run loses its work (``preemption.on_resume:
    restart``), it is stopped only once it has run twice as long as any of its job that was stopped before, or two long
    jobs would take turns for ever. With ``lead`` a run gives way only to a job that has had less than ``1 - lead``
    times as much as its own: 0.1 spares old jobs of equal age most of their turns, and the simulation most of its work.

    Cost: O(demand classes + log tasks) per decision, and per round O(running log running) more, which the definition
    forces.
    """

    def __init__(self, rank: Rank, quantum_s: float, placement: str | PlacementRule, lead: float = 0.0) -> None:
        if not quantum_s > 0:
            raise ConfigError(f"quantum_s must be positive, got {quantum_s!r}")
        if not 0 <= lead < 1:
            raise ConfigError(f"lead must lie in 0..1, below 1, got {lead!r}")
        self.lead = lead
        self.rank = rank
        self.quantum_s = quantum_s
        self._place = placing(placement).place
        self._service = Service()
        self._round = 0
        """The next round, counted from time 0."""
        self._lost_s: dict[int, float] = {}
        """Per job the longest of its runs that lost its work."""

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        view.follow(self._service)
        now = self._service.now = view.now
        queue = view.index(self, lambda: JobQueue(self._key, by_arrival))
        self._rank_again(view, queue)
        self._round = max(self._round, int(now // self.quantum_s))
        while self._round * self.quantum_s < now:
            self._round += 1
        competing = self._round * self.quantum_s == now
        if competing:
            self._round += 1
        if not view.ready:
            return
        if competing:
            yield from self._compete(view, queue)
        else:
            yield from self._start_what_fits(view, queue)
        if view.ready:
            yield Wait(self._round * self.quantum_s)

    def _start_what_fits(self, view: ClusterView, queue: JobQueue) -> Iterator[Decision]:
        for task in queue.heads():
            placement = self._place(view, task) if view.fits(task) else None
            if placement is not None:
                yield Start(task, placement)
                return

    def _compete(self, view: ClusterView, queue: JobQueue) -> Iterator[Decision]:
        for number in {run.job.number: None for run in view.running.values()}:
            queue.refresh(view.jobs[number])
        last_first = sorted(((self._standing(run.task), run.id) for run in view.running.values()), reverse=True)
        stuck = set()
        while True:
            task = next((head for head in queue.heads() if head.demand not in stuck), None)
            if task is None:
                return
            if not view.fits(task):
                for run in make_room(view, task, self._behind(view, task, last_first)):
                    job = self._note_loss(view, view.running[run])
                    yield Preempt(run)
                    self.rank.stopped(job, self._service.of(job), view.now)
                self._service.take_ended()  # the jobs of these have just been ranked
                queue.rank_again()
            placement = self._place(view, task) if view.fits(task) else None
            if placement is None:
                stuck.add(task.demand)
            else:
                yield Start(task, placement)

    def _behind(
        self, view: ClusterView, task: TaskState, last_first: list[tuple[tuple[float, int], int]]
    ) -> Iterator[Run]:
        """Runs of other jobs that rank behind ``task``, last first."""
        standing = self._standing(task)
        for other, id_ in last_first:
            if other <= standing or (self.lead and other[0] * (1 - self.lead) <= standing[0]):
                return
            run = view.running.get(id_)
            if run is not None and run.job is not task.job and not self._is_spared(view, run):
                yield run

    def _is_spared(self, view: ClusterView, run: Run) -> bool:
        """True if the run may go on because it would lose its work, and its job has lost enough."""
        return view.now - run.started_s < 2 * self._lost_s.get(run.job.number, 0.0)

    def _note_loss(self, view: ClusterView, run: Run) -> int:
        """Note what the job loses now that the run is stopped; returns its number."""
        job = run.job.number
        if view.preemption.on_resume == "restart":
            self._lost_s[job] = max(self._lost_s.get(job, 0.0), view.now - run.started_s)
        return job

    def _standing(self, task: TaskState) -> tuple[float, int]:
        return self._key(task.job), task.order

    def _key(self, job: JobState) -> float:
        return self.rank.key(job.number, self._service.of(job.number))

    def _rank_again(self, view: ClusterView, queue: JobQueue) -> None:
        """Rank jobs of which a run has ended, and those that moved although they only waited."""
        jobs, service = view.jobs, self._service
        for number in service.take_ended():
            if number not in jobs:
                self.rank.left(number, service.of(number))
                self._lost_s.pop(number, None)
                service.forget(number)
        queue.rank_again()
        for number in self.rank.moved(view.now, jobs):
            if number in jobs:
                queue.refresh(jobs[number])


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
        return bisect_right(self.thresholds, served.gpu_s - self._forgiven.get(job, Served()).gpu_s)

    def stopped(self, job: int, served: Served, now: float) -> None:
        if self.promote < inf:
            ran_s = served.seconds - self._forgiven.get(job, Served()).seconds
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
