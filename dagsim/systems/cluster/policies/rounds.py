"""Policies that preempt runs in rounds. After every round, either all jobs compete again, or jobs
take turns.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Container, Generator, Iterable, Iterator, Mapping, Set
from heapq import heappop, heappush
from math import ceil, inf
from typing import NamedTuple, Protocol

import numpy as np

from dagsim.errors import require
from dagsim.model import Decision, Preempt, Start, Wait
from dagsim.systems.cluster.api import ClusterView, DemandClass, JobState, Run, TaskState, stated
from dagsim.systems.cluster.policies.formulas import EARLY, served_after
from dagsim.systems.cluster.policies.job_orders import JobQueue
from dagsim.systems.cluster.policies.orders import by_arrival
from dagsim.systems.cluster.policies.placement import PlacementRule, placing
from dagsim.systems.cluster.policies.preemption import make_room

_RANKS = "at its last round, the ranks of jobs that both ran and waited"
_LOST = "how long the runs that lost their work had lasted"


class Rank(Protocol):
    """A rule that ranks a job by the service that it has received."""

    def key(self, job: int, served: Served) -> float:
        """Return the key of the job; the smallest key comes first."""

    def keys(self, service: ServiceColumns) -> np.ndarray:
        """Return the keys of all running jobs. Shape (runs,), float64."""

    def exceeds_s(self, key: float, service: ServiceColumns, row: int | None = None) -> np.ndarray:
        """Return, for each running job whose key is at most ``key`` now, a lower bound on the
        seconds until its key exceeds ``key`` if the job keeps running. If ``row`` is given, ``key``
        is the key of the running job in this row, so it rises in the meantime. Shape (runs,),
        float64.
        """

    def may_fall(self, served: Served) -> bool:
        """Return True if the key of a running job may fall after it has received this much service."""

    def stopped(self, job: int, served: Served, now: float) -> None:
        """Record that a run of the job was preempted."""

    def left(self, job: int, served: Served) -> None:
        """Remove the data of a job that is done."""

    def moved(self, now: float, jobs: Mapping[int, JobState]) -> Iterable[int]:
        """Return the jobs whose keys have changed although they were only waiting."""

    def moves_s(self) -> float:
        """Return the first time at which ``moved`` may return a job, assuming that nothing else
        happens before then.
        """


class Rounds:
    """Rounds of ``quantum_s`` seconds, in each of which all jobs compete again. Ready tasks are tried
    in the order of ``(rank, arrival)``. A task that does not fit displaces the runs that rank last, if each of
    these runs ranks after the task. Between rounds, tasks that fit start in the same order, and no
    run is preempted.

    If stopped runs lose their work (``preemption.on_resume: restart``), a run may be stopped only
    when it has run twice as long as any earlier run of its job that was stopped. Without this rule,
    two long jobs would take turns forever. With ``lead``, a run gives way only to a job that has
    received less than ``1 - lead`` times as much service as the run's job. With 0.1, old jobs that
    have received about the same service rarely take turns. This also saves most of the simulation
    time.

    The cost is O(demand classes + log tasks) per decision. Each round costs a NumPy pass over the
    runs, O(1) per run that a task might displace, and O(demand classes) per run that is stopped or
    started. As long as nothing else happens, rounds are skipped until a waiting task may rank
    before a run that it could displace. The time for a simulation therefore grows with the number
    of starts and ends rather than with the simulated seconds. For ``las`` and ``2d-las``, the
    counterpart in the compiled engine is ``compiled.las``.
    """

    def __init__(self, rank: Rank, quantum_s: float, placement: str | PlacementRule, lead: float = 0.0) -> None:
        require(quantum_s > 0, "quantum_s must be positive", quantum_s)
        require(0 <= lead < 1, "lead must be at least 0 and below 1", lead)
        self.lead = lead
        self.rank = rank
        self.quantum_s = quantum_s
        self.placement = placing(placement)
        self._place = self.placement.place
        self._service = Service(stated(rank, "remembers"))
        self._round = 0
        """The next round, counted from time 0."""
        self._full: tuple[float, int, int] | None = None
        """Time, number of releases and number of tasks when nothing more fitted. If all three are
        unchanged, there is nothing to do."""
        self.forgets = ""
        self._has_begun = False
        self._lost_s: dict[int, float] = {}
        """For each job, the length of its longest run that lost its work."""
        self._skips = False
        """True if jobs that are both waiting and running have to be ranked again before the next round to check."""

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        view.follow(self._service)
        now = view.now
        if not self._has_begun:
            # at the beginning, rank partly running jobs by the service that they have received so
            # far
            self._service.now = now
        decided_s = self._service.now
        queue = view.index(self, lambda: JobQueue(self._key, by_arrival))
        if not self._has_begun:
            lost = view.preemption.on_resume == "restart" and self._service.had_ended(view.jobs)
            both = queue.waiting() & self._service.running()
            self.forgets = " and ".join([words for words, holds in ((_LOST, lost), (_RANKS, both)) if holds])
        self._has_begun = True
        if self._full == (now, view.machines.released, queue.pushed):
            return
        self._round = max(self._round, int(now // self.quantum_s))
        while self._round * self.quantum_s < now:
            self._round += 1
        competing = self._round * self.quantum_s == now
        latest_s = (self._round - 1) * self.quantum_s
        # rounds may have been skipped; continue as if none had been
        if self._skips and not competing and latest_s > decided_s:
            self._service.now = latest_s
            self._rank_partly_running(view, queue)
        self._service.now, self._skips = now, False
        self._rank_again(view, queue)
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
        """Start the tasks that rank first, displacing other runs if necessary. Return the next
        round to check.
        """
        both = self._rank_partly_running(view, queue)
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
                self._service.take_ended()  # drop these runs, because their jobs have just been ranked
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
        if acted:
            return self._round
        self._skips = bool(both)
        falling = any(self.rank.may_fall(self._service.of(job)) for job in both)
        if falling and any(self._could_displace(view, queue, task) for task in stuck.values()):
            return self._round
        return self._next_round(view, contest, self._heads(stuck, queue, both))

    def _next_round(self, view: ClusterView, contest: _Contest, heads: Iterable[tuple[float, int, int]]) -> float:
        """Return the first round in which a task may displace a run that it cannot displace now,
        assuming that nothing else happens before then. ``heads`` contains the key, the order and
        the job of each task that may be first in its demand class until then.
        """
        until_s = view.now + min([contest.overtakes_s(*head) for head in heads], default=inf)
        until_s = min(until_s, self.rank.moves_s(), self._spared_until_s(view))
        return inf if until_s == inf else max(self._round, ceil(until_s * (1 - EARLY) / self.quantum_s))

    def _heads(
        self, stuck: Mapping[DemandClass, TaskState], queue: JobQueue, both: Container[int]
    ) -> Iterator[tuple[float, int, int]]:
        """Yield the key, order and job of the first task in each demand class. If the task's job is
        also running (it is in ``both``), its key may rise above the key of another job. A task of
        that other job may then displace runs. The tasks of such other jobs are also yielded.
        """
        for demand, task in stuck.items():
            yield (*self._standing(task), task.job.number)
            if task.job.number in both:
                rivals = queue.rivals(demand, task.job.number)
                yield from (rival for rival in rivals if rival[2] in both)
                yield from sorted(rival for rival in rivals if rival[2] not in both)[:1]

    def _could_displace(self, view: ClusterView, queue: JobQueue, task: TaskState) -> bool:
        """Return True if the task, or another task in its demand class, would fit if it displaced
        runs of other jobs. For this test, all these runs are assumed to rank after the task.
        """
        own = None if queue.rivals(task.demand, task.job.number) else task.job
        return bool(make_room(view, task, (run for run in view.running.values() if run.task.job is not own)))

    def _spared_until_s(self, view: ClusterView) -> float:
        """Return the first time at which a run that is spared now may be stopped."""
        if not self._lost_s:
            return inf
        return min([self._spared_s(run) for run in view.running.values() if self._is_spared(view, run)], default=inf)

    def _rank_partly_running(self, view: ClusterView, queue: JobQueue) -> set[int]:
        """Update the ranks of the jobs that are both waiting and running, and return these jobs."""
        return {job for job in queue.waiting() & self._service.running() if queue.refresh(view.jobs[job])}

    def _displaced(self, view: ClusterView, task: TaskState, contest: _Contest) -> list[int]:
        """Return the runs that must be stopped so that ``task`` fits, beginning with the run that
        ranks last. They belong to other jobs and rank after ``task``.
        """
        behind = contest.behind(*self._standing(task), view.running)
        return make_room(view, task, self._willing(view, task, behind)) if behind else []

    def _willing(self, view: ClusterView, task: TaskState, behind: Iterable[int]) -> Iterator[Run]:
        """Yield the runs in ``behind`` that are still running, belong to other jobs, and are not
        spared."""
        running, job = view.running, task.job
        for id_ in behind:
            run = running.get(id_)
            if run is not None and run.task.job is not job and not (self._lost_s and self._is_spared(view, run)):
                yield run

    def _is_spared(self, view: ClusterView, run: Run) -> bool:
        """Return True if the run is spared. It must not be stopped yet, because it would lose its
        work and its job has lost work before.
        """
        return view.now - run.started_s < 2 * self._lost_s.get(run.job.number, 0.0)

    def _spared_s(self, run: Run) -> float:
        """Return the time until which a run must not be stopped, because its job has lost work
        before.
        """
        return run.started_s + 2 * self._lost_s[run.job.number]

    def _note_loss(self, view: ClusterView, run: Run) -> int:
        """Record the work that the job loses when the run is stopped. Return the number of the job."""
        job = run.job.number
        if view.preemption.on_resume == "restart":
            self._lost_s[job] = max(self._lost_s.get(job, 0.0), view.now - run.started_s)
        return job

    def _standing(self, task: TaskState) -> tuple[float, int]:
        return self._key(task.job), task.order

    def _key(self, job: JobState) -> float:
        return self.rank.key(job.number, self._service.of(job.number))

    def _rank_again(self, view: ClusterView, queue: JobQueue) -> None:
        """Update the ranks of jobs with ended runs, and of jobs whose keys have changed although
        they were only waiting.
        """
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
    """The current runs at the beginning of a round, sorted by ``(key of the job, order)``."""

    def __init__(self, rank: Rank, service: ServiceColumns, lead: float) -> None:
        self._rank = rank
        self._service = service
        self._yields = 1.0 - lead
        keys = rank.keys(service)
        self._order = np.lexsort((service.run, service.order, keys))
        """Rows of the runs in rank order."""
        columns = [column[self._order].tolist() for column in (keys, service.order)]
        self._ranked: list[tuple[float, int]] = list(zip(*columns, strict=True))
        """Key and order of each run in rank order."""
        self._runs: list[int] = service.run[self._order].tolist()
        self._soonest: dict[float, list[float]] = {}
        """Results of ``_soonest_s`` by key."""

    def behind(self, key: float, order: int, running: Container[int]) -> list[int]:
        """Return the runs that a task with that rank may displace, beginning with the run that
        ranks last. Some of these runs may have been stopped since the round began, but not the
        first one in the list.
        """
        while self._runs and self._runs[-1] not in running:
            del self._runs[-1], self._ranked[-1]
        return self._runs[self._place(key, order) :][::-1]

    def overtakes_s(self, key: float, order: int, job: int) -> float:
        """Return a lower bound on the number of seconds until a task with the rank ``key`` and
        ``order`` may stop a further run of another job, in addition to the runs that it may already
        stop.
        """
        place = self._place(key, order)
        if not place:
            return inf
        own = np.flatnonzero(self._service.job == job)
        if not len(own):
            return self._soonest_s(key)[place - 1]
        left_s = np.maximum(self._rank.exceeds_s(key / self._yields, self._service, int(own[0])), 0.0)
        left_s[own] = inf
        return float(left_s[self._order[:place]].min())

    def _place(self, key: float, order: int) -> int:
        """Return the number of runs that a task with that rank may not displace."""
        place = bisect_right(self._ranked, (key, order))
        if self._yields < 1:
            place = max(place, bisect_right(self._ranked, key, key=lambda entry: entry[0] * self._yields))
        return place

    def _soonest_s(self, key: float) -> list[float]:
        """Return a list of lower bounds in seconds. Entry n is for the first n + 1 runs: the time
        until the first of them ranks after a task with that key.
        """
        bounds_s = self._soonest.get(key)
        if bounds_s is None:
            left_s = self._rank.exceeds_s(key / self._yields, self._service)
            bounds_s = self._soonest[key] = np.minimum.accumulate(np.maximum(left_s[self._order], 0.0)).tolist()
        return bounds_s


class RoundRobin:
    """Round robin: each task may run for a time slice of ``quantum_s`` seconds. After that, the
    task is stopped, so that the next one can start, and moves to the end of the queue. Gangs start
    and stop as a whole (Ousterhout 1982).

    A run whose slice has ended continues as long as no other task needs its place. If the next task
    does not fit yet, later tasks may use the free resources. The policy needs no estimates, and it
    preempts runs. The cost is O(log running + demand classes) per decision, plus O(runs whose slice
    has ended) if the next task does not fit.

    Raises:
        ConfigError: ``quantum_s`` is not positive.
    """

    forgets = "which runs had used up their slices"

    def __init__(self, quantum_s: float = 60.0, placement: str | PlacementRule = "best-fit") -> None:
        require(quantum_s > 0, "round-robin: quantum_s must be positive", quantum_s)
        self.quantum_s = quantum_s
        self._place = placing(placement).place
        self._slices: list[tuple[float, int]] = []
        """A heap of ``(end of slice, run)``."""
        self._over: dict[int, None] = {}
        """Runs whose slice is over, in the order in which the slices ended."""
        self._known: set[int] = set()
        """The runs under way."""

    def started(self, run: Run, now: float) -> None:
        """Start the first slice of a run."""
        if run.id not in self._known:
            self._known.add(run.id)
            heappush(self._slices, (run.started_s + self.quantum_s, run.id))

    def ended(self, run: Run, now: float) -> None:
        """Remove a run. Its slice is dropped later, when the slice ends."""
        self._known.discard(run.id)
        self._over.pop(run.id, None)

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        view.follow(self)
        turns = view.index(RoundRobin, _Turns)
        heads = turns.heads()
        self._look_at_slices(view.now, bool(heads))
        if not heads:
            return
        if not view.fits(heads[0]):
            displaced = make_room(view, heads[0], self._displaceable(view))
            if displaced:
                for run in displaced:
                    yield Preempt(run)
                return
        for task in heads:
            placement = self._place(view, task) if view.fits(task) else None
            if placement is not None:
                yield Start(task, placement)
                return
        if self._slices:
            yield Wait(self._slices[0][0])

    def _displaceable(self, view: ClusterView) -> Iterator[Run]:
        return (view.running[run] for run in self._over)

    def _look_at_slices(self, now: float, somebody_waits: bool) -> None:
        """Record the runs whose slices have ended. If no task was waiting when a slice ended, renew
        it.
        """
        quantum_s, slices, running = self.quantum_s, self._slices, self._known
        while slices and (slices[0][0] <= now or slices[0][1] not in running):
            end_s, id_ = heappop(slices)
            if id_ not in running:
                continue
            end_s += quantum_s * ceil((now - end_s) / quantum_s)
            if end_s > now:
                heappush(slices, (end_s, id_))
            elif somebody_waits:
                self._over[id_] = None
            else:
                heappush(slices, (now + quantum_s, id_))
        if not somebody_waits:
            for id_ in self._over:
                heappush(slices, (now + quantum_s, id_))
            self._over.clear()


class _Turns:
    """Ready tasks in the order in which they became ready. Among tasks that became ready
    simultaneously, arriving tasks come before preempted tasks.
    """

    def __init__(self) -> None:
        self._turns: dict[DemandClass, deque[tuple[int, TaskState]]] = {}
        self._count = 0

    def push(self, task: TaskState) -> None:
        self._turns.setdefault(task.demand, deque()).append((self._count, task))
        self._count += 1

    def heads(self) -> list[TaskState]:
        """Return the first task in each demand class, in the order in which they became ready."""
        first = []
        for turns in self._turns.values():
            while turns and not turns[0][1].waiting:
                turns.popleft()
            if turns:
                first.append(turns[0])
        return [task for _, task in sorted(first)]


class Served(NamedTuple):
    """The service that a job has received. The seconds of parallel runs are added up, and set-up
    counts as service.
    """

    gpu_s: float = 0.0
    seconds: float = 0.0


_NOTHING = Served()
_NO_RUNS: dict[int, tuple[float, float]] = {}


class ServiceColumns(NamedTuple):
    """The current runs, unordered, and the service received by the job of each run."""

    run: np.ndarray  # shape (runs,), int64
    order: np.ndarray  # shape (runs,), int64: order of the run's task
    job: np.ndarray  # shape (runs,), int64
    gpu_s: np.ndarray  # shape (runs,), float64
    seconds: np.ndarray  # shape (runs,), float64
    gpus: np.ndarray  # shape (runs,), float64: GPUs of all runs of the job
    runs: np.ndarray  # shape (runs,), float64: number of runs of the job
    had_gpu_s: np.ndarray  # shape (runs,), float64: GPU-seconds of the job's completed runs
    had_s: np.ndarray  # shape (runs,), float64
    started_s: np.ndarray  # shape (runs,), float64: start time of the run

    def alike(self, row: int) -> np.ndarray:
        """Return, for each row, whether its job and the job in ``row`` have received bit-identical
        service. Their service remains identical as long as both jobs keep their current runs. Shape
        (runs,), bool.
        """
        same: np.ndarray = (self.runs == 1) & (self.runs[row] == 1)
        for column in (self.gpus, self.had_gpu_s, self.had_s, self.started_s):
            same &= column == column[row]
        return same


_IDS = 3
"""Number of columns for each run: the run's id, the order of its task, and the number of its
job."""


_AMOUNTS = 4
"""Number of columns for each run: the GPU-seconds and the seconds of the ended runs of its job, the
run's GPUs, and its start."""


class Service:
    """The service that each job in the system has received in its ended and current runs.
    ``ClusterView.follow`` keeps it up to date. The cost is O(1) per run that starts or ends, and
    one NumPy pass over the current runs for ``columns``.
    """

    def __init__(self, remembers: str = "") -> None:
        self.remembers = remembers
        """What the policy uses from the runs of finished jobs, in words."""
        self.now = 0.0
        """Time until which current runs are counted; to be set at each decision."""
        self._had: dict[int, Served] = {}
        """Service of the ended runs of each job."""
        self._runs: dict[int, dict[int, tuple[float, float]]] = {}
        """Current runs of each running job: GPUs and start."""
        self._ended: list[tuple[float, int, int]] = []
        """Time, run and job of each end since the last call of ``take_ended``."""
        self._row: dict[int, int] = {}
        """The row of each run; the run in the last row moves into a row that becomes vacant."""
        self._ids, self._amounts = array("q"), array("d")
        """The rows of all runs, without gaps."""
        self._several: dict[int, None] = {}
        """Jobs with several runs."""

    def of(self, job: int) -> Served:
        """Return the service that the job with number ``job`` has received until ``now``."""
        gpu_s, seconds = self._had.get(job, _NOTHING)
        for gpus, started_s in self._runs.get(job, _NO_RUNS).values():
            gpu_s = served_after(gpu_s, gpus, started_s, self.now)
            seconds += self.now - started_s
        return Served(gpu_s, seconds)

    def columns(self) -> ServiceColumns:
        """Return the service that the job of each current run has received until ``now``. The
        values are bit-identical to the results of ``of``.
        """
        run, order, job = np.array(self._ids).reshape(-1, _IDS).T
        had_gpu_s, had_s, gpus, started_s = np.array(self._amounts).reshape(-1, _AMOUNTS).T
        ran_s = self.now - started_s
        gpu_s, seconds, runs = had_gpu_s + gpus * ran_s, had_s + ran_s, np.ones(len(run))
        for several in self._several:
            rows = [self._row[id_] for id_ in self._runs[several]]
            gpu_s[rows], seconds[rows] = self.of(several)
            gpus[rows], runs[rows] = gpus[rows].sum(), len(rows)
        return ServiceColumns(run, order, job, gpu_s, seconds, gpus, runs, had_gpu_s, had_s=had_s, started_s=started_s)

    def had_ended(self, jobs: Iterable[int]) -> bool:
        """Return True if a run of any of these jobs has ended."""
        return any(job in self._had for job in jobs)

    def running(self) -> Set[int]:
        """Return the numbers of the running jobs."""
        return self._runs.keys()

    def started(self, run: Run, now: float) -> None:
        """Add a run that has started."""
        task = run.task
        number, gpus = task.job.number, run.gpus
        runs = self._runs.setdefault(number, {})
        runs[run.id] = (gpus, run.started_s)
        if len(runs) > 1:
            self._several[number] = None
        if run.id not in self._row:
            self._row[run.id] = len(self._row)
            self._ids.extend((run.id, task.order, number))
            self._amounts.extend((*self._had.get(number, _NOTHING), gpus, run.started_s))

    def ended(self, run: Run, now: float) -> None:
        """Add the service from an ended run to its job's service."""
        number = run.job.number
        runs = self._runs[number]
        gpus, started_s = runs.pop(run.id)
        gpu_s, seconds = self._had.get(number, _NOTHING)
        had = self._had[number] = Served(served_after(gpu_s, gpus, started_s, now), seconds + now - started_s)
        self._ended.append((now, run.id, number))
        self._leave(run.id)
        for other in runs:
            row = _AMOUNTS * self._row[other]
            self._amounts[row], self._amounts[row + 1] = had
        if len(runs) < 2:
            self._several.pop(number, None)
        if not runs:
            del self._runs[number]

    def take_ended(self) -> dict[int, None]:
        """Return the jobs whose runs have ended since the last call, sorted by last end and then by
        run id.
        """
        last_s = {number: now for now, _, number in sorted(self._ended)}
        jobs = dict.fromkeys([number for now, _, number in sorted(self._ended) if last_s[number] == now])
        self._ended.clear()
        return jobs

    def forget(self, job: int) -> None:
        """Remove the data of a job that has left the system."""
        self._had.pop(job, None)

    def _leave(self, run: int) -> None:
        """Remove a run by moving the last row into its row."""
        ids, amounts, row = self._ids, self._amounts, self._row.pop(run)
        last_ids, last_amounts = ids[-_IDS:], amounts[-_AMOUNTS:]
        del ids[-_IDS:], amounts[-_AMOUNTS:]
        if row < len(self._row):
            self._row[last_ids[0]] = row
            ids[_IDS * row : _IDS * (row + 1)] = last_ids
            amounts[_AMOUNTS * row : _AMOUNTS * (row + 1)] = last_amounts
