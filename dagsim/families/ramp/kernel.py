"""The kernel. Jobs arrive one at a time, and each is either partitioned and started immediately, or
rejected.

There is no queue: a job that does not start on arrival is rejected. A server belongs to one job
from the job's start to its end. If several events happen at the same time, jobs end first, then the
next job arrives, and then the policy decides about it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

import numpy as np

from dagsim.errors import IllegalDecision, InputError, ModelError
from dagsim.families.ramp.decisions import Partition
from dagsim.families.ramp.fabric import bit_mask
from dagsim.families.ramp.lookahead import StepTime
from dagsim.families.ramp.planner import Outlook, Planner
from dagsim.families.ramp.view import RampPolicy, RampView
from dagsim.families.ramp.workload import RampJob
from dagsim.model import JobFacts, Kind, RejectReason
from dagsim.model.log import Record, Schedule
from dagsim.model.streams import Streams
from dagsim.systems.seam import decisions_of, drive


class JobOutcome(NamedTuple):
    """The outcome of one job."""

    job: RampJob
    degrees: tuple[int, ...] = ()
    """Degrees that were offered. It is empty if no decision was made."""
    degree: int = 0
    """The decision."""
    reason: RejectReason | None = None
    """Why the job was rejected."""
    outlook: Outlook | None = None
    """Servers and time of the job, even if the time was too long, or None if it was never placed.
    """
    completed_s: float | None = None

    @property
    def started(self) -> bool:
        """True if the job was accepted."""
        return self.outlook is not None and self.reason is None


class Running(NamedTuple):
    """A running job. Running jobs are sorted by the time at which they end."""

    end_s: float
    number: int
    run: int
    servers: int
    """Servers, as a bit mask."""


class RampKernel:
    """A simulation of one fabric and one sequence of jobs in order of arrival. Kernels may share a
    planner.

    The simulation stops at ``horizon_s``. A job that arrives at this time gets no decision, and
    running jobs remain unfinished. ``examples`` are jobs similar to the future ones, which policies
    may inspect.

    Raises:
        ModelError: A job is listed after a job that arrives later.
    """

    def __init__(
        self,
        jobs: Iterable[RampJob],
        planner: Planner,
        *,
        horizon_s: float = inf,
        seed: int = 0,
        examples: Sequence[RampJob] = (),
    ) -> None:
        self.jobs = tuple(jobs)
        for job, following in zip(self.jobs, self.jobs[1:], strict=False):
            if following.arrival_s < job.arrival_s:
                raise ModelError(
                    f"jobs must be sorted by arrival: {following.id!r} arrives before {job.id!r}, but is "
                    "listed after it"
                )
        self.planner = planner
        self.horizon_s = horizon_s
        self.examples = tuple(examples)
        self.now = 0.0
        self.schedule = Schedule(planner.fabric.cluster(), seed=seed)
        self.outcomes: list[JobOutcome] = []
        """Outcomes of the jobs that arrived."""
        self.running: list[Running] = []
        """Heap of running jobs; the one that ends next comes first."""
        self.occupied = 0
        """The servers with a job, as a bit mask."""
        self._seen = 0
        """Servers that were occupied just before the current time, which ddls counts in its mask."""
        self._remembered: dict[tuple[str, int], StepTime] = {}
        self._waiting = False
        self._runs = 0
        self.streams = Streams(seed)
        self._degrees: tuple[int, ...] | None = None

    def run(self, policy: RampPolicy, until_s: float = inf) -> Schedule:
        """Simulate the decisions of ``policy`` until every job is done (or until ``until_s``).

        Raises:
            IllegalDecision: The policy sent an illegal decision.
        """
        return drive(self, policy, until_s)

    def decisions(self, until_s: float = inf) -> Generator[RampView, Iterable[Partition] | None, None]:
        """Yield a view for each arriving job, and receive the decision. A job without a decision is
        rejected.

        Raises:
            IllegalDecision: The decision is for another job, has a degree that may not be chosen or
                an unknown placer, or is the second decision for the job. The illegal decision
                changes nothing. Earlier decisions in the same answer have already been carried out.
        """
        view = RampView(self)
        until_s = min(until_s, self.horizon_s)
        while self._waiting or self._advance(until_s):
            for decision in decisions_of((yield view), self.now):
                self._carry_out(decision)
            if self._waiting:
                self._turn_away(0, RejectReason.BY_POLICY, None)

    @property
    def queued(self) -> RampJob:
        """The job that waits for a decision. It is the latest arrival."""
        return self.jobs[len(self.outcomes) - 1]

    @property
    def queued_number(self) -> int:
        """The number of the waiting job."""
        return len(self.outcomes) - 1

    @property
    def free(self) -> int:
        """Number of servers without a job."""
        return self.planner.fabric.servers - self.occupied.bit_count()

    def degrees(self) -> tuple[int, ...]:
        """Return the degrees that may be chosen for the waiting job."""
        if self._degrees is None:
            rules, fabric = self.planner.rules, self.planner.fabric
            if rules.mask == "shape":
                free = fabric.servers - self._seen.bit_count()
                offered = [degree for degree in rules.degrees if degree <= free and fabric.blocks(degree)]
            else:
                offered = [degree for degree in rules.degrees if degree <= self.free and self._placeable(degree)]
            self._degrees = (0, *offered)
        return self._degrees

    def outlook(self, degree: int, placer: str | None = None, servers: int | None = None) -> Outlook | None:
        """Return the servers and the completion time that the waiting job would get at this degree,
        or None if it cannot be placed now.
        """
        job = self.queued
        parts = self.planner.parts(job.graph, degree)
        if servers is None:
            placement = self.planner.place(parts, self.occupied, placer)
        else:
            placement = None if servers & self.occupied else self.planner.place_on(parts, servers)
        if placement is None:
            return None
        step = self._remembered.get((job.graph.digest, parts.degree))
        return Outlook(parts, placement, step or self.planner.step(parts, placement), job.steps)

    def jct_on(self, degree: int, servers: Iterable[int]) -> Iterator[float | None]:
        """Yield, for each set of free servers (a bit mask), how many seconds the waiting job would
        take there, or None if it cannot be placed there. The values are those of
        ``outlook``, but this method is faster.
        """
        job, step_s = self.queued, self.planner.step_s
        for mask in servers:
            if self.planner.rules.remembered:
                outlook = self.outlook(degree, servers=mask)
                yield None if outlook is None else outlook.jct_s
            else:
                seconds = step_s(job.graph, degree, mask)
                yield None if seconds is None else job.steps * seconds

    def remaining_s(self) -> tuple[float, ...]:
        """Return how many seconds of its job each server has left, or 0 for a server without a
        job."""
        left = [0.0] * self.planner.fabric.servers
        for end_s, _, _, servers in self.running:
            while servers:
                server = servers.bit_length() - 1
                servers ^= 1 << server
                left[server] = end_s - self.now
        return tuple(left)

    def fork(self) -> RampKernel:
        """Return an independent copy of the kernel at the current time. The copy's random streams
        start from the beginning.
        """
        other = RampKernel((), self.planner, horizon_s=self.horizon_s, seed=self.schedule.seed, examples=self.examples)
        other.jobs, other.now, other.schedule = self.jobs, self.now, self.schedule.copy()
        other.outcomes, other.running, other.occupied = list(self.outcomes), list(self.running), self.occupied
        other._remembered = dict(self._remembered)
        other._seen, other._waiting, other._runs = self._seen, self._waiting, self._runs
        return other

    def _advance(self, until_s: float) -> bool:
        """Advance the time until the next job has arrived. Return False at the end of the
        simulation."""
        following = len(self.outcomes)
        arrival_s = self.jobs[following].arrival_s if following < len(self.jobs) else inf
        while self.running and self.running[0].end_s < min(arrival_s, until_s) - self.planner.rules.same_s:
            self._pass_to(self.running[0].end_s)
        stop_s = min(arrival_s, until_s)
        if stop_s == inf:
            self.schedule.ended_s = self.now
            return False
        self._seen = self.occupied
        self._pass_to(stop_s)
        if arrival_s > stop_s:
            self.schedule.ended_s = self.now
            return False
        self._arrive(self.jobs[following])
        self._waiting = stop_s < until_s
        self.schedule.ended_s = self.now
        return self._waiting

    def _pass_to(self, time_s: float) -> None:
        """Advance to ``time_s``, and end the jobs that are due by then."""
        self.now = time_s
        limit_s = time_s + self.planner.rules.same_s
        while self.running and self.running[0].end_s <= limit_s:
            done = heappop(self.running)
            self.occupied ^= done.servers
            self._finish(done)

    def _arrive(self, job: RampJob) -> None:
        number = len(self.outcomes)
        self.outcomes.append(JobOutcome(job))
        self._degrees = None
        self.schedule.arrived(self._facts(job))
        self.schedule.log.append(Record(Kind.ARRIVED, self.now, number))

    def _carry_out(self, decision: Partition) -> None:
        self._check(decision)
        self.schedule.decisions += 1
        degree = int(decision.degree)
        if not degree:
            self._turn_away(0, RejectReason.BY_POLICY, None)
            return
        outlook = self.outlook(degree, decision.placer, decision.servers)
        if outlook is None:
            self._turn_away(degree, RejectReason.NO_PLACE, None)
        elif outlook.jct_s > self.planner.rules.limit_s(self.queued.acceptable_s):
            self._turn_away(degree, RejectReason.TOO_SLOW, outlook)
        else:
            self._start(degree, outlook)

    def _check(self, decision: Partition) -> None:
        where = f"at {self.now:g} s: {decision!r}"
        if not isinstance(decision, Partition):
            raise IllegalDecision(f"{where}: expected a Partition")
        if not self._waiting:
            raise IllegalDecision(
                f"{where}: no job is waiting for a decision, because the decision for job {self.queued_number} "
                "has already been made"
            )
        name = f"at {self.now:g} s: job {decision.job!r}"
        if decision.job != self.queued_number:
            raise IllegalDecision(f"{name} is not waiting for a decision, but job {self.queued_number} is")
        if isinstance(decision.degree, bool) or not isinstance(decision.degree, int | np.integer):
            raise IllegalDecision(f"{name}: a degree must be a whole number, got {decision.degree!r}")
        if decision.placer is not None:
            if not isinstance(decision.placer, str):
                raise IllegalDecision(f"{name}: a placer must be a name, got {decision.placer!r}")
            try:
                self.planner.made_placer(decision.placer)
            except InputError as error:
                raise IllegalDecision(f"{name}: {error}") from None
        self._check_servers(name, decision)
        if decision.degree not in self.degrees():
            offered = ", ".join(map(str, self.degrees()))
            raise IllegalDecision(f"{name} cannot be split into {decision.degree} parts now; allowed: {offered}")

    def _check_servers(self, name: str, decision: Partition) -> None:
        """Check that the decision names a placer or free servers of this fabric, but not both."""
        servers = decision.servers
        if servers is None:
            return
        if decision.placer is not None:
            raise IllegalDecision(f"{name}: give either a placer or servers, not both")
        if isinstance(servers, bool) or not isinstance(servers, int):
            raise IllegalDecision(f"{name}: servers must be a bit mask, got {servers!r}")
        if servers & ~self.planner.fabric.everything or servers < 0:
            raise IllegalDecision(
                f"{name}: servers {servers:#x} include some that do not exist; there are {self.planner.fabric.servers}"
            )
        if taken := servers & self.occupied:
            raise IllegalDecision(f"{name}: servers {taken:#x} already have a job")

    def _turn_away(self, degree: int, reason: RejectReason, outlook: Outlook | None) -> None:
        number = self.queued_number
        degrees = self.degrees()
        self._waiting = False
        self.outcomes[number] = JobOutcome(self.queued, degrees, degree, reason, outlook)
        self.schedule.log.append(Record(Kind.REJECTED, self.now, number, value=float(reason)))

    def _start(self, degree: int, outlook: Outlook) -> None:
        number = self.queued_number
        if self.planner.rules.remembered:
            self._remembered.setdefault((self.queued.graph.digest, outlook.parts.degree), outlook.step)
        degrees = self.degrees()
        self._waiting = False
        self.outcomes[number] = JobOutcome(self.queued, degrees, degree, None, outlook)
        run, self._runs = self._runs, self._runs + 1
        servers = outlook.placement.servers
        mask = bit_mask(servers)
        self.occupied |= mask
        heappush(self.running, Running(self.now + outlook.jct_s, number, run, mask))
        self.schedule.log.append(Record(Kind.ADMITTED, self.now, number))
        self._record_run(Kind.STARTED, self.now, number, run, servers)

    def _finish(self, done: Running) -> None:
        outcome = self.outcomes[done.number]
        assert outcome.outlook is not None
        time_s = min(done.end_s, self.now)
        self.outcomes[done.number] = outcome._replace(completed_s=time_s)
        self._record_run(Kind.FINISHED, time_s, done.number, done.run, outcome.outlook.placement.servers)
        self.schedule.log.append(Record(Kind.COMPLETED, time_s, done.number))
        self.schedule.log.pack()

    def _record_run(self, kind: Kind, time_s: float, job: int, run: int, servers: Iterable[int]) -> None:
        """Record an event of a run on each of its servers, which have one GPU each."""
        for server in sorted(servers):
            self.schedule.log.append(
                Record(kind, time_s, job, task=0, run=run, node=server, instances=1, gpus=1, value=1.0)
            )

    def _placeable(self, degree: int) -> bool:
        parts = self.planner.parts(self.queued.graph, degree)
        return self.planner.place(parts, self.occupied) is not None

    def _facts(self, job: RampJob) -> JobFacts:
        """Return the facts about a job. The ideal time of a job is its critical path if it is split
        as finely as allowed and transfers take no time.
        """
        ideal_s = job.steps * self.planner.shortest_step_s(job.graph)
        deadline_s = job.arrival_s + job.acceptable_s
        gpus = float(min(self.planner.rules.max_degree, self.planner.fabric.servers))
        tasks, parents = (job.graph.model,), ((),)
        return JobFacts(
            id=job.id,
            arrival_s=job.arrival_s,
            priority=0.0,
            tenant="",
            deadline_s=deadline_s,
            weight=1.0,
            ideal_s=ideal_s,
            ideal_gpu_s=job.sequential_s,
            gpus=gpus,
            tasks=tasks,
            parents=parents,
        )
