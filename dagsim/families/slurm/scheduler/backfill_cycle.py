"""Slurm's backfill cycles: when they run, and how a cycle examines the pending jobs."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from math import ceil, inf

from dagsim.families.slurm.scheduler.backfill_outlook import BackfillOutlook
from dagsim.families.slurm.scheduler.main_loop import SchedulerParts
from dagsim.families.slurm.scheduler.pending_jobs import PendingJob, PendingJobs, may_fit
from dagsim.families.slurm.scheduler.running_jobs import LATE_S
from dagsim.families.slurm.scheduler.slurm_backfill import NodePlan
from dagsim.families.slurm.scheduler.slurm_rules import account_of, magnets, together, user_of
from dagsim.families.slurm.scheduler.slurm_settings import SlurmSettings
from dagsim.families.slurm.scheduler.start_limits import licensed
from dagsim.model import Decision, Placement
from dagsim.model.arithmetic import bits, ordered_sum
from dagsim.systems.cluster.api import ClusterView, DemandClass, TaskState

_COARSE = 0.1


class BackfillTimes:
    """The schedule of backfill cycles. The object can be deep-copied."""

    def __init__(self, settings: SlurmSettings, coarse_after_s: float) -> None:
        self._interval_s, self._phase_s = settings.backfill_period_s, settings.bf_phase_s
        self._coarse_after_s = coarse_after_s
        self._cycle_s = -inf
        """Time of the last cycle."""
        self.rested = True
        """True if no job has waited at some time since the last cycle, apart from jobs at a limit."""
        self._idle_s = inf
        """Time of a cycle in which no job is waiting."""

    def advance(self, now: float) -> None:
        """Record a cycle that was due before ``now`` while no job was waiting."""
        if self._idle_s < now - LATE_S:
            self._cycle_s, self.rested = self._idle_s, True
        self._idle_s = inf

    def tick_s(self, now: float) -> float:
        """Return the time of the first cycle after a change. It is the current time, but at least
        ``backfill_period_s`` after the previous cycle began (``backfill_agent`` and ``_more_work`` in
        backfill.c). While jobs wait, each cycle follows the previous one after the interval,
        because every main loop sets the reason of a job that waits (``schedule``,
        ``last_job_update`` in job_scheduler.c).
        """
        cycle_s, interval_s = self._cycle_s, self._interval_s
        from_s = max(now, self._phase_s, cycle_s + _COARSE * max(0.0, cycle_s - self._coarse_after_s))
        if self.rested:
            return max(from_s, cycle_s + interval_s)
        return cycle_s + max(1, ceil((from_s - cycle_s) / interval_s - LATE_S)) * interval_s

    def is_due(self, now: float) -> bool:
        """Return True if a cycle may run now."""
        return self.tick_s(now) <= now + LATE_S

    def begin(self, now: float) -> None:
        """Record that a cycle begins now."""
        self._cycle_s, self.rested = now, False

    def idle(self, now: float) -> None:
        """Record that no job is waiting."""
        self._idle_s = self.tick_s(now)


class _TestCounts:
    """Counts of the jobs tested in a cycle, by user, association and partition (bf_max_job_user,
    bf_max_job_assoc, bf_max_job_part).
    """

    def __init__(self, settings: SlurmSettings) -> None:
        most = {"user": settings.bf_max_job_user, "assoc": settings.bf_max_job_assoc, "part": settings.bf_max_job_part}
        self.most = {kind: count for kind, count in most.items() if count}
        self._tested: dict[tuple[str, str], int] = {}

    def is_over(self, job: PendingJob) -> bool:
        """Count ``job`` as tested. Return True if it exceeds the limit of its user, association or
        partition for this cycle, so that it must be skipped.
        """
        user, account = user_of(job.task.job), account_of(job.task.job)
        names = {"user": user, "assoc": f"{account}/{user}", "part": job.part.name}
        over = False
        for kind, limit in self.most.items():
            count = self._tested[kind, names[kind]] = self._tested.get((kind, names[kind]), 0) + 1
            over = over or count > limit
        return over


class BackfillCycle:
    """One backfill cycle over the jobs with the highest priorities."""

    def __init__(self, parts: SchedulerParts, view: ClusterView, pending: PendingJobs) -> None:
        self._parts, self._view, self._pending = parts, view, pending
        settings, self._now, self._left = parts.settings, view.now, int(parts.settings.bf_max_job_test)
        pending.drop_left(2 * self._left)
        self._plan = NodePlan(
            view,
            parts.running.table,
            parts.running.users.whole,
            parts.placing.choice,
            window_s=settings.bf_window_s,
            resolution_s=settings.bf_resolution_s,
            linear_s=settings.bf_window_linear_s,
        )
        self._ties = settings.bf_ties == "wait"
        """True if a limit that ends exactly when a reservation begins is too long."""
        self._outlook = BackfillOutlook(
            pending.listed,
            self._left,
            lambda job: job.task.waiting > 0 and parts.limits.room(job)[0] > 0,
            lambda job: not job.refused and self._could(job),
            self._fits,
        )
        self._tested = _TestCounts(settings)
        self._at = 0
        """Index of the job that is examined."""
        self._fitting: dict[DemandClass, bool] = {}
        """Whether a demand fits on the machines now."""
        self._roomy: dict[tuple[DemandClass, str, bool, int, int, int], int] = {}
        """Nodes with room for an instance now, by demand, partition, exclusive use, type, barred nodes and
        reservation."""
        self._examined: PendingJob | None = None
        """The job that was last examined in advance."""
        self._open: list[tuple[int, float]] = []
        """For each group of its nodes: those that are still open, and the end of its time limit."""
        self._seen = 0
        """The number of reservations that ``_open`` takes into account."""
        self._arrays: set[str] = set()
        """The arrays with a limit whose remaining tasks have reservations."""
        self._preempting = parts.preemption.possible
        self._stoppable: dict[tuple[str, str], frozenset[int]] = {}
        """The runs that a job may stop, by its QOS and partition."""
        self._together: dict[str, dict[TaskState, tuple[PendingJob, Placement]]] = {}
        """Components of heterogeneous jobs that could start now, each in the first of its partitions."""

    def decisions(self) -> Iterator[Decision]:
        """Start the jobs that delay no job ahead of them, and reserve nodes for the others."""
        listed, limits, machines = self._pending.listed, self._parts.limits, self._view.machines
        while self._at < len(listed) and self._left > 0:
            job = listed[self._at]
            if not job.task.waiting:
                self._outlook.removed(listed.pop(self._at), self._at)
                continue
            room, holder = limits.room(job)
            if not room and holder is not None:
                self._outlook.removed(job, self._at)
                self._pending.set_aside(self._at, holder, job.amounts)
                continue
            if job.attracted and job.reservation not in self._parts.placing.attracting:
                self._at += 1
                continue
            # Slurm does not count its tests within magnetic reservations
            self._left -= not job.attracted
            over = bool(self._tested.most) and not job.attracted and self._tested.is_over(job)
            if over or not licensed(machines, job.task):
                self._at += 1
                continue
            # Skip a component that has already found nodes in another of its partitions.
            if job.task in self._together.get(together(job.task), ()):
                self._at += 1
                continue
            placement = yield from self._placement(job, room)
            if placement is not None:
                yield from self._start(job, placement)
            elif not self._plan_for(job):
                break
        yield from self._start_together()

    def _placement(self, job: PendingJob, room: float) -> Generator[Decision, None, Placement | None]:
        """Return a placement for a start now, or None if there is none. Runs may be preempted to
        make the placement possible."""
        task, parts, delayed = job.task, self._parts, False
        if job.counts:
            gone = parts.preemption.stoppable(self._view, job) if self._preempting else frozenset()
            delayed = self._plan.counts_delay(job, gone, parts.placing.barred(task))
        ruled_out = self._outlook.knows_no(self._at) or not self._fits(task.demand) or delayed
        placement = None if ruled_out else self._fit_beside(job, room)
        if placement is not None or not self._preempting or job.refused or delayed or parts.limits.is_over_nodes(job):
            return placement
        end_s, before = self._now + self._limit_s(job), len(parts.running.facts)
        open_nodes = parts.placing.open_to(job) & ~self._plan.kept(self._now, end_s, closed=self._ties)
        yield from parts.preemption.make_way(self._view, job, open_nodes)
        if len(parts.running.facts) < before:
            self._renew()
            placement = self._fit_beside(job, room)
        return placement

    def _start(self, job: PendingJob, placement: Placement) -> Iterator[Decision]:
        """Start a job, unless its partition or its limits refuse it or it has to start together
        with other jobs."""
        task, parts = job.task, self._parts
        # Slurm's select_nodes tests the account only after backfill has chosen nodes, so the nodes
        # of a refused job remain reserved.
        if job.refused:
            self._keep(job, placement)
            self._at += 1
            return
        if not parts.limits.may_hold(job, self._view.machines, [share.node for share in placement]):
            self._at += 1
            return
        if name := together(task):
            self._at += 1
            self._keep(job, placement)
            self._together.setdefault(name, {})[task] = job, placement
            return
        yield parts.running.start(task, job.part, placement)
        self._outlook.started()
        if not task.waiting:
            several = len(parts.rules.parts(task.job)) > 1 or bool(magnets(task))
            for entry, place in self._pending.drop(self._at, several=several):
                self._outlook.removed(entry, place)
                self._at -= place < self._at
        self._renew()

    def _plan_for(self, job: PendingJob) -> bool:
        """Reserve nodes for a job that cannot start now. If no later job could start either, do
        nothing and return False, because the cycle may then end."""
        preemption, outlook = self._parts.preemption, self._outlook
        self._at += 1
        if job.attracted:  # Slurm plans no later start in a magnetic reservation
            return True
        # Jobs further back may preempt runs only on nodes without a reservation, so this job must
        # reserve its nodes.
        if self._preempting:
            key = self._parts.rules.quality(job.task.job).name, job.part.name
            if key not in self._stoppable:
                self._stoppable[key] = preemption.stoppable(self._view, job)
            self._left -= self._make_room(job, self._stoppable[key] | preemption.leaving_for(job.task))
            return True
        if not outlook.any_fits(self._at, self._left):
            return False
        if outlook.is_hopeful(self._at):
            self._left -= self._make_room(job)
            passed = 0 if self._tested.most else self._reserve_up_to_hope()
            self._at, self._left = self._at + passed, self._left - passed
        return True

    def _keep(self, job: PendingJob, placement: Placement) -> None:
        """Reserve the nodes of ``placement`` for a job that fits on them now but is not allowed to
        start."""
        nodes = sum([1 << share.node for share in placement])
        self._plan.reserve(self._now, self._now + self._limit_s(job), nodes)

    def _limit_s(self, job: PendingJob) -> float:
        """Return the job's longest time limit on the GPU types that it may use."""
        return self._parts.rules.longest_s(job.task, job.task.demand.types)

    def _fits(self, demand: DemandClass) -> bool:
        """Return True if a job with this demand may fit on the free resources, regardless of
        reservations."""
        if demand not in self._fitting:
            self._fitting[demand] = may_fit(self._view.machines, demand)
        return self._fitting[demand]

    def _renew(self) -> None:
        """Drop cached results that may no longer be valid because a run has started or was
        stopped."""
        self._plan.started()
        self._fitting.clear()
        self._roomy.clear()
        self._examined = None

    def _could(self, job: PendingJob) -> bool:
        """Return True if a job could start now despite the reservations made so far. If the last
        call was about the same job, only newer reservations are examined.
        """
        task, rules = job.task, self._parts.rules
        if job is not self._examined or task.demand.gang:
            if not (task.waiting > 0 and self._fits(task.demand)):
                return False
            if task.demand.gang:
                return self._fit_beside(job, self._parts.limits.room(job)[0]) is not None
            self._examined, self._seen, self._open = job, 0, []
            for group in rules.groups(task):
                if nodes := self._roomy_nodes(job, group.types):
                    self._open.append((nodes, self._now + rules.longest_s(task, group.types)))
        made, now, ties, open_ = self._plan.made, self._now, self._ties, self._open
        for reservation in made[self._seen :]:
            kept_nodes = reservation.nodes
            for place, (nodes, end_s) in enumerate(open_):
                if nodes & kept_nodes and reservation.meets(now, end_s, ties):
                    open_[place] = nodes & ~kept_nodes, end_s
        self._seen = len(made)
        return any(nodes for nodes, _ in open_)

    def _fit_beside(self, job: PendingJob, room: float) -> Placement | None:
        """Return a placement for a start now that delays no reservation."""
        if not room:
            return None
        plan, now, placing, machines = self._plan, self._now, self._parts.placing, self._view.machines
        task, longest_s = job.task, self._parts.rules.longest_s

        def placed(nodes: int, types: tuple[int, ...]) -> Placement | None:
            kept = plan.kept(now, now + longest_s(task, types), closed=self._ties, of=nodes)
            return placing.on(machines, job, nodes & ~kept, room)

        return placing.first(task, lambda types: self._roomy_nodes(job, types), placed)

    def _roomy_nodes(self, job: PendingJob, types: tuple[int, ...]) -> int:
        """Return the usable nodes with these types on which an instance fits. The result is cached
        until a run starts.
        """
        placing, machines, demand = self._parts.placing, self._view.machines, job.task.demand
        nodes, barred = 0, placing.barred(job.task)
        for type_ in self._parts.limits.allowed(job, types):
            key = demand, job.part.name, job.alone, type_, barred, job.reservation
            roomy = self._roomy.get(key)
            if roomy is None:
                roomy, states = 0, machines.list
                for node in bits(machines.candidate_set(demand, type_) & placing.usable(job)):
                    roomy |= states[node].bit if states[node].room(demand) else 0
                self._roomy[key] = roomy
            nodes |= roomy
        return nodes

    def _reserve_up_to_hope(self) -> int:
        """Reserve nodes for the jobs ahead of the first job that could start. Stop when no tests
        are left, or when the reservations also keep that job from starting. None of the jobs ahead
        can start now, so this is equivalent to testing them in turn, but faster. Return for how
        many jobs nodes were reserved.
        """
        listed, outlook, passed = self._pending.listed, self._outlook, 0
        hopeful = outlook.hopeful_at
        while (
            self._at + passed < hopeful and passed < self._left and outlook.counts_all and self._could(listed[hopeful])
        ):
            job = listed[self._at + passed]
            if job.holders or not job.task.waiting or not licensed(self._view.machines, job.task):
                break
            self._make_room(job)
            passed += 1
        return passed

    def _make_room(self, job: PendingJob, gone: frozenset[int] = frozenset()) -> int:
        """Reserve nodes for a job that cannot start now. If an array may run more tasks, Slurm also
        reserves nodes for each of its next tasks, as if the array had no limit.
        (``_attempt_backfill`` compares ``pend_run_tasks`` with the limit, but reservations do not
        increase that number.) Return the number of these next tasks, each of which counts as a
        test.
        """
        parts, machines = self._parts, self._view.machines

        def may_hold(nodes: int) -> bool:
            if job.alone:
                parts.priorities.found(job, ordered_sum([machines.list[node].node.cpus for node in bits(nodes)]))
            return parts.limits.may_hold(job, machines, list(bits(nodes)), planned=True)

        barred, request = parts.placing.barred(job.task), job.task.job.job.request
        reserved = self._plan.make_room(job, may_hold, gone, barred)
        array = "" if request is None or request.array_limit is None else request.array
        if not reserved or not array or array in self._arrays:
            return 0
        self._arrays.add(array)
        tests = 0
        for _ in range(min(self._view.behind(job.task.job), parts.settings.bf_max_job_array_resv - 1)):
            tests += 1
            if not self._plan.make_room(job, may_hold, gone, barred):
                break
        return tests

    def _start_together(self) -> Iterator[Decision]:
        """Start each heterogeneous job whose components could all start now
        (``_het_job_start_test`` in backfill.c).
        """
        for name, components in self._together.items():
            requests = [job.job.request for job in self._view.jobs.values()]
            if len(components) < len([one for one in requests if one is not None and one.together == name]):
                continue
            for job, placement in components.values():
                nodes = sum([1 << share.node for share in placement])
                # this placement fails if an earlier component has taken one of its nodes
                if self._parts.placing.on(self._view.machines, job, nodes, inf) is None:
                    break
                yield self._parts.running.start(job.task, job.part, placement)
