"""Preemption in rounds: every so many seconds all jobs compete again, those who rank first go first."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Generator, Iterable, Iterator, Mapping
from math import ceil, inf
from typing import Protocol

import numpy as np

from dagsim.errors import ConfigError
from dagsim.model import Decision, Preempt, Start, Wait
from dagsim.systems.cluster.api import ClusterView, DemandClass, JobState, Run, TaskState
from dagsim.systems.cluster.policies.orders.static import by_arrival
from dagsim.systems.cluster.policies.placement.rule import PlacementRule, placing
from dagsim.systems.cluster.policies.support.job_queue import JobQueue
from dagsim.systems.cluster.policies.support.service import Served, Service, ServiceColumns
from dagsim.systems.cluster.policies.support.victims import make_room

__all__ = ["Rank", "Rounds"]

_EARLY = 1e-9
"""By how much of the time until then a round is looked at too early, so that no rounding makes it too late."""


class Rank(Protocol):
    """Ranks a job by the service it has had."""

    def key(self, job: int, served: Served) -> float:
        """Smaller first."""
        ...

    def keys(self, service: ServiceColumns) -> np.ndarray:
        """(runs,) float64: the keys of the jobs that run."""
        ...

    def exceeds_s(self, key: float, service: ServiceColumns) -> np.ndarray:
        """(runs,) float64: seconds until the key of a job that runs on, and is at most ``key`` now, may exceed it;
        never too many."""
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

    Cost: O(demand classes + log tasks) per decision, and per round a pass of NumPy over what runs, O(1) per run that a
    task might displace, and O(demand classes) per run stopped or started. A round in which nothing has happened is
    passed over until a run may have come to rank behind a task that waits for its place.
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
        self._full: tuple[float, int, int] | None = None
        """Time, releases and tasks that had come when nothing more fitted: asked again there is nothing to do."""
        self._lost_s: dict[int, float] = {}
        """Per job the longest of its runs that lost its work."""

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        view.follow(self._service)
        now = self._service.now = view.now
        queue = view.index(self, lambda: JobQueue(self._key, by_arrival))
        if self._full == (now, view.machines.released, queue.pushed):
            return
        self._rank_again(view, queue)
        self._round = max(self._round, int(now // self.quantum_s))
        while self._round * self.quantum_s < now:
            self._round += 1
        competing = self._round * self.quantum_s == now
        if competing:
            self._round += 1
        if not view.ready:
            return
        until: float = self._round
        if competing:
            until = yield from self._compete(view, queue)
        else:
            yield from self._start_what_fits(view, queue)
            self._full = (now, view.machines.released, queue.pushed)
        if view.ready and until < inf:
            yield Wait(until * self.quantum_s)

    def _start_what_fits(self, view: ClusterView, queue: JobQueue) -> Iterator[Decision]:
        started = True
        while started:
            started = False
            for task in queue.heads(view.machines.fits):
                placement = self._place(view, task)
                if placement is not None:
                    yield Start(task, placement)
                    started = True
                    break

    def _compete(self, view: ClusterView, queue: JobQueue) -> Generator[Decision, None, float]:
        """Start what ranks first, in the place of others where it must; returns the next round to look at."""
        both = [job for job in queue.waiting() & self._service.running() if queue.refresh(view.jobs[job])]
        contest = _Contest(self.rank, self._service.columns(), self.lead)
        heads = {demand: head for demand in queue.classes() if (head := queue.head(demand)) is not None}
        stuck: dict[DemandClass, TaskState] = {}
        acted = False
        while heads:
            task = min(heads.values())[1]
            moved = {task.demand: None}
            fits = view.fits(task)
            if not fits and (chosen := self._displaced(view, task, contest)):
                for run in chosen:
                    job = self._note_loss(view, view.running[run])
                    yield Preempt(run)
                    self.rank.stopped(job, self._service.of(job), view.now)
                    moved |= dict.fromkeys(queue.classes(job))
                acted = True
                self._service.take_ended()  # the jobs of these have just been ranked
                queue.rank_again()
                fits = view.fits(task)
            placement = self._place(view, task) if fits else None
            if placement is None:
                stuck[task.demand] = task
            else:
                yield Start(task, placement)
                acted = True
            for demand in moved:
                head = None if demand in stuck else queue.head(demand)
                if head is None:
                    heads.pop(demand, None)
                else:
                    heads[demand] = head
        return self._round if acted or both else self._next_round(view, contest, stuck.values())

    def _next_round(self, view: ClusterView, contest: _Contest, stuck: Iterable[TaskState]) -> float:
        """The first round in which one of these may displace a run that it cannot now, if nothing happens before."""
        if view.preemption.on_resume == "restart":  # whom a run is spared for changes with time
            return self._round
        first_s = min([contest.overtakes_s(*self._standing(task)) for task in stuck], default=inf)
        if first_s == inf:
            return inf
        return max(self._round, ceil((view.now + first_s) * (1 - _EARLY) / self.quantum_s))

    def _displaced(self, view: ClusterView, task: TaskState, contest: _Contest) -> list[int]:
        """The runs of other jobs, of those that rank behind ``task``, that must go so that it fits, last first."""
        behind = contest.behind(*self._standing(task), view.running)
        return make_room(view, task, self._willing(view, task, behind)) if behind else []

    def _willing(self, view: ClusterView, task: TaskState, behind: Iterable[int]) -> Iterator[Run]:
        """Those ``behind`` that still run, for other jobs, and are not spared."""
        running, job = view.running, task.job
        for id_ in behind:
            run = running.get(id_)
            if run is not None and run.task.job is not job and not (self._lost_s and self._is_spared(view, run)):
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


class _Contest:
    """The runs under way as a round begins, by ``(key of the job, order)``."""

    def __init__(self, rank: Rank, service: ServiceColumns, lead: float) -> None:
        self._rank = rank
        self._service = service
        self._yields = 1.0 - lead
        keys = rank.keys(service)
        self._order = np.lexsort((service.run, service.order, keys))
        """The rows of the runs, first of all first."""
        columns = [column[self._order].tolist() for column in (keys, service.order)]
        self._ranked: list[tuple[float, int]] = list(zip(*columns, strict=True))
        """Key and order of each, first of all first."""
        self._runs: list[int] = service.run[self._order].tolist()
        self._soonest: dict[float, list[float]] = {}
        """By key, as ``_soonest_s`` has it."""

    def behind(self, key: float, order: int, running: Container[int]) -> list[int]:
        """Runs that give way to a task of that standing, last first. Some may have been stopped since the round
        began, but not the very last."""
        while self._runs and self._runs[-1] not in running:
            del self._runs[-1], self._ranked[-1]
        return self._runs[self._place(key, order) :][::-1]

    def overtakes_s(self, key: float, order: int) -> float:
        """Seconds until a run that does not give way to a task of that standing may do so, at the earliest."""
        place = self._place(key, order)
        return self._soonest_s(key)[place - 1] if place else inf

    def _place(self, key: float, order: int) -> int:
        """The number of runs that do not give way to a task of that standing."""
        place = bisect_right(self._ranked, (key, order))
        if self._yields < 1:
            place = max(place, bisect_right(self._ranked, key, key=lambda each: each[0] * self._yields))
        return place

    def _soonest_s(self, key: float) -> list[float]:
        """Seconds until one of the first 1, 2, ... of all may have come to rank behind a task of that key."""
        known = self._soonest.get(key)
        if known is None:
            left_s = self._rank.exceeds_s(key / self._yields, self._service)
            known = self._soonest[key] = np.minimum.accumulate(np.maximum(left_s[self._order], 0.0)).tolist()
        return known
