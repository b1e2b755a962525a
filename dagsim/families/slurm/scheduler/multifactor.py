"""Slurm as it is used in practice, with multifactor priorities, the main loop, backfill, preemption
and limits.

``SlurmMultifactor`` corresponds to slurmctld itself: it receives events, and calls its parts in the
order in which slurmctld calls them. Each part is a separate class:

    slurm_rules        partitions, QOS, time limits and counted limits (``holdings``) of each job
    running_jobs       the runs in progress: who uses each node, and when time limits expire
    job_priorities     usage, priorities (``slurm_priority``) and the entries of ``pending_jobs``
    start_limits       how many starts of a job the limits allow now
    job_placing        the nodes on which a job can start now, and which it takes (``node_choice``)
    slurm_preemption   the runs that a job may stop
    main_loop          what starts at an event
    backfill_cycle     what starts in a cycle (``backfill_outlook``), by the plan ``slurm_backfill``;
                       the plan looks for times (``slurm_times``) in the ``run_table``
    slurm_waits        why jobs wait
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from inspect import signature
from math import ceil, inf
from typing import Any

from dagsim.families.slurm.scheduler.backfill_cycle import BackfillCycle, BackfillTimes
from dagsim.families.slurm.scheduler.holdings import UsageBefore, of_nodes
from dagsim.families.slurm.scheduler.job_placing import JobPlacing
from dagsim.families.slurm.scheduler.job_priorities import JobPriorities
from dagsim.families.slurm.scheduler.main_loop import MainLoop, SchedulerParts
from dagsim.families.slurm.scheduler.node_choice import NodeChoice
from dagsim.families.slurm.scheduler.past_usage import Usage
from dagsim.families.slurm.scheduler.pending_jobs import PendingJobs
from dagsim.families.slurm.scheduler.priority_formulas import truncated
from dagsim.families.slurm.scheduler.refused_jobs import RefusedJobs
from dagsim.families.slurm.scheduler.run_table import load_compiled
from dagsim.families.slurm.scheduler.running_jobs import NodeSharing, RunningJobs
from dagsim.families.slurm.scheduler.slurm_preemption import SlurmPreemption
from dagsim.families.slurm.scheduler.slurm_rules import SlurmRules, account_of, user_of
from dagsim.families.slurm.scheduler.slurm_settings import SlurmSettings, slurm_settings
from dagsim.families.slurm.scheduler.slurm_waits import SlurmWaits
from dagsim.families.slurm.scheduler.start_limits import StartLimits
from dagsim.model import Cluster, Decision, Kill, NodePartition, QueueTree, RejectReason, Wait
from dagsim.model.arithmetic import ordered_sum
from dagsim.systems.cluster.api import ClusterView, Run, Standing, TaskState

_CYCLE = "when the last backfill cycle began"
_PARTITION = "in which of several partitions a job had started"


class SlurmMultifactor:
    """Slurm's scheduler: it sorts jobs by tier and then by priority, which is computed from age,
    fair share, size, partition, QOS and TRES.

    The main loop runs at every event. It starts jobs in order of priority, and stops in a partition
    at the first job that does not fit. Backfill runs every ``bf_interval_s`` seconds if anything
    has changed. Backfill tests the first ``bf_max_job_test`` jobs. A job starts if it does not
    delay any job ahead of it. Otherwise, backfill reserves specific whole nodes for it (SchedMD,
    sched_config, 2024). Priorities are computed when a job becomes ready, and for all jobs every
    ``calc_period_s``. Accounts, partitions, qualities of service and their limits are the
    ``queues`` of the configuration (docs/reference/schedulers.md). A ready task is a Slurm job: a
    gang is one job, and independent instances are an array. Time limits are those that users
    requested; a task without one uses its estimate.

    ``order`` is ``multifactor``, or ``basic`` for priority/basic: first come, first served within a
    tier. ``age`` weights the age factor (PriorityWeightAge). ``fair_share`` weights the fair-share
    factor (PriorityWeightFairshare). ``job_size`` weights the size factor (PriorityWeightJobSize).
    ``partition`` weights the priority of the partition (PriorityWeightPartition). ``qos`` weights
    the priority of the QOS (PriorityWeightQOS). ``assoc`` weights the priority of the association
    (PriorityWeightAssoc). ``tres_gpus``, ``tres_cpus`` and ``tres_memory`` weight the requested
    GPUs, CPUs and memory (PriorityWeightTRES).

    ``max_age_s`` is the age at which the age factor reaches 1 (PriorityMaxAge). ``half_life_s`` is
    the half-life of past usage, where 0 means no decay (PriorityDecayHalfLife). ``algorithm``
    computes fair share by Fair Tree (``tree``) or by the classic formula (``classic``). ``damping``
    is the divisor in the classic formula (FairShareDampeningFactor). With ``favor_small``, smaller
    jobs have a larger size factor (PriorityFavorSmall). With ``relative_size``, the size of a job
    is divided by its time limit (SMALL_RELATIVE_TO_TIME). With ``max_tres``, only the largest
    weighted resource is billed instead of the sum (MAX_TRES). With ``accrue_always``, the age of a
    job is counted from its submission (ACCRUE_ALWAYS). ``calc_phase_s`` is the time at which one of
    the priority calculations takes place (on the site's clock if there is one). All other
    calculations follow at regular intervals.

    ``queue_depth`` is the number of jobs that the main loop considers (default_queue_depth). Every
    ``sched_interval_s`` seconds, the main loop considers all jobs (sched_interval).
    ``sched_min_interval_s`` is the shortest time between two main loops (sched_min_interval).
    ``backfill`` turns backfill on or off. ``bf_phase_s`` is the time at which the first backfill
    cycle begins. ``bf_cycle_s`` is how long a cycle takes (*Mean cycle* of sdiag). The interval
    between cycles begins when a cycle ends. ``bf_window_s`` is how far ahead backfill plans
    (bf_window). ``bf_window_linear_s`` is the time by which each further window is longer when
    backfill searches for a start time. With 0, the window is doubled instead (bf_window_linear).
    ``bf_max_job_user``, ``bf_max_job_assoc`` and ``bf_max_job_part`` limit how many jobs a cycle
    tests for each user, association and partition. 0 means no limit. ``bf_max_job_array_resv`` is
    the number of tasks of one array that may have reservations. Backfill rounds times down to
    multiples of ``bf_resolution_s`` seconds (bf_resolution). With ``bf_ties=fit``, a job may start
    if its time limit ends exactly when a reservation begins.

    With ``limits=safe``, a job only starts if its whole time limit fits into the budgets of its
    account and QOS. With ``limits=used``, it starts unless these budgets are used up. ``preempt``
    determines which jobs may stop others: those in a higher partition tier, or those with a certain
    QOS. A requeued job is eligible again after ``requeue_delay_s`` seconds. With ``kill=limit``, a
    run is also ended at the user's own time limit. With ``kill=never``, a run is never ended at a
    time limit. A run ends ``over_time_s`` seconds after it has reached its limit. With
    ``gangs=distinct``, each instance of a gang is placed on a separate node. With ``place=best``, a
    job is placed on the fullest node on which it fits, instead of the first one.

    The policy uses estimates (for tasks without a requested time), and is preemptive if configured.
    It is costly by definition: a backfill cycle takes O(running + jobs tested x times x nodes), and
    a priority calculation O(pending log pending).
    """

    __signature__ = signature(SlurmSettings)
    remembers = "the usage by account and user"
    load_searches = staticmethod(load_compiled)
    _set: SlurmSettings
    """The parameters in use."""
    _rules: SlurmRules
    _running: RunningJobs
    _preemption: SlurmPreemption
    _priorities: JobPriorities
    _parts: SchedulerParts
    _main: MainLoop
    _times: BackfillTimes
    _refused: RefusedJobs

    def __init__(
        self,
        usage: UsageBefore | None = None,
        coarse_after_s: float = inf,
        zero_s: float | None = None,
        **settings: Any,
    ) -> None:
        """Set up the policy; ``settings`` are the fields of ``SlurmSettings`` by name. The other
        parameters have the same meaning as in ``beginning``.

        Raises:
            ConfigError: A value is out of range.
        """
        self._own = self._set = SlurmSettings(**settings)
        self._set.priorities()  # called only for its check: it raises an error if a weight is out of range
        self._usage, self._coarse_after_s, self._zero_s = usage or UsageBefore(), coarse_after_s, zero_s
        self._given = settings
        """The parameters; if there are none, the site's parameters apply."""
        self._now = inf
        self._recalls = False
        """True while it is told of the time before the beginning."""
        self._some_fit: bool | None = None
        """True if some pending job may fit on the nodes, or None if that has to be computed."""
        self._more = True
        """Whether a task had been added since the last backfill, at the last decision."""
        self._lists = False
        """Whether any job was listed after the last decision."""
        self.forgets = _CYCLE if self._set.backfill else ""
        self.latest = "main"
        """The part that made the latest start: ``main`` (the main loop) or ``backfill``."""

    # Beginning in the middle of a log.

    def cycle_s(self, queues: QueueTree | None) -> float:
        """Return the time from the end of a backfill cycle to the beginning of the next one at a
        site, or 0 without backfill."""
        settings = self._of_site(queues)
        return settings.bf_interval_s if settings.backfill else 0.0

    def past_usage(self, log: Any, cluster: Cluster, queues: QueueTree | None) -> Usage:
        """Return the usage in a log (``forecast.job_log.JobLog``) at a site."""
        return Usage(log, cluster, queues or QueueTree(), self._of_site(queues))

    def beginning(self, usage: UsageBefore | None, coarse_after_s: float, zero_s: float) -> SlurmMultifactor:
        """Return the policy for a simulation that begins with past ``usage``, and whose time 0 is
        ``zero_s`` on the site's clock. From ``coarse_after_s`` on, backfill runs at ever longer
        intervals, each at least 10% of the time since ``coarse_after_s``. This is acceptable for
        forecasts, because for them only relative errors matter.
        """
        return type(self)(usage, coarse_after_s, zero_s, **self._given)

    # Reporting.

    def wait_rules(self, view: ClusterView) -> SlurmWaits:
        """Return the site's limits and partitions, from which the reasons for waits are derived."""
        settings = self._of_site(view.queues)
        return SlurmWaits(view, SlurmRules(view, kill="never", distinct=settings.distinct))

    def outlook(self, view: ClusterView) -> tuple[SlurmWaits, list[Standing]]:
        """Return the limits with their current usage, and the waiting tasks in the order in which
        the policy examines them. Each task comes with the terms of its priority. No decision is
        made.
        """
        self._set_up(view)
        self._now = self._priorities.now = view.now
        view.follow(self)
        pending = view.index((PendingJobs, self), self._pending)
        self._priorities.book.calculate(view.now)
        for task in pending.admit(view.now):
            self._rules.learn(view, task.job)
        pending.rank_anew(self._priorities.book, view.now)
        standings = []
        for job in pending.listed:
            if job.attracted:
                continue
            parts = self._priorities.parts(job.task, job.part)
            priority = float(truncated(ordered_sum(parts.values())))
            standings.append(Standing(job.task, job.part.name, job.tier, priority, parts, job.span))
        return SlurmWaits(view, self._rules), standings

    # Events.

    def push(self, task: TaskState) -> None:
        """Record the user of a task that became ready before the simulation began. From then on,
        the user's association exists. The users of later tasks are recorded when their jobs are
        listed. A job that can never run is not listed, so it adds no association.
        """
        if self._recalls and task.ready_s < self._now:
            self._priorities.book.user(account_of(task.job), user_of(task.job), task.ready_s)

    def started(self, run: Run, now: float) -> None:
        """Record that a run has started."""
        book, rules, task = self._priorities.book, self._rules, run.task
        if book.knows(run.id):
            return
        if rules.holdings.budgets:
            self._priorities.calculate(now)
        part, qos = self._part_of(run), rules.quality(run.job)
        sharing = self._sharing(run, part)
        amounts = rules.amounts(task).times(run.instances / (task.demand.gang or 1))
        asked = self._priorities.asked(task, part, run.instances)
        # A job that does not share its nodes is charged for whole nodes, and limits also count
        # whole nodes.
        if sharing.alone and not part.exclusive:
            amounts = of_nodes(amounts, [machine.node for machine, *_ in run.held])
            asked = asked._replace(cpus=amounts.cpus, memory_gb=amounts.memory_gb, gpus=amounts.gpus)
        book.begin(run.id, asked, now, boots=run.boots)
        gpu = rules.gpu_names[run.type] if amounts.gpus else ""
        amounts = amounts._replace(nodes=len(run.nodes))
        rules.holdings.take(run.id, rules.holders(run.job, part, gpu), amounts, run.nodes, now, boots=run.boots)
        limits = rules.limit_s(task, run.type), rules.kill_s(task, run.type) + self._set.over_time_s
        self._running.started(run, now, (part, qos), limits, sharing)
        self._preemption.started(run, part, qos)
        if not task.waiting:
            self._priorities.drop(task)
        self._some_fit = None

    def rated(self, run: Run, now: float) -> None:
        """Record that a run has booted its nodes, was suspended, or continues."""
        if self._running.rated(run, now):
            if self._rules.holdings.budgets:
                self._priorities.calculate(now)
            self._priorities.book.booted(run.id, now)
            self._rules.holdings.booted(run.id, now)
        self._some_fit = None

    def ended(self, run: Run, now: float) -> None:
        """Record that a run has ended."""
        rules = self._rules
        if rules.holdings.budgets:
            self._priorities.calculate(now)
        self._priorities.book.end(run.id, now)
        rules.holdings.give(run.id, now)
        self._running.ended(run, self._sharing(run, None))
        self._preemption.ended(run)
        job = run.job
        ends = job.tasks_left <= 1 and (not job.tasks or job.tasks[run.task.index].unfinished <= run.instances)
        # While earlier events are replayed, ``job`` is already in the state that it has when the
        # simulation begins. If tasks are left in this state, the job has not ended.
        if ends and not (self._recalls and job.tasks_left and job.number >= 0):
            self._running.latest_s.pop(job.number, None)
            rules.forget(job.number)
        self._some_fit = None

    def _sharing(self, run: Run, part: NodePartition | None) -> NodeSharing:
        """Return how a run shares its nodes in a partition."""
        job, rules = run.job, self._rules
        return NodeSharing(user_of(job), part is not None and rules.alone(job, part), rules.by_user(job))

    def _part_of(self, run: Run) -> NodePartition:
        """Return the partition in which a run has started."""
        if (part := self._running.started_in(run)) is not None:
            return part
        parts = [part for part in self._rules.parts(run.job) if self._rules.has(part, run.nodes)]
        # The run started before the log begins. The log does not state its partition, so take the
        # first that contains its nodes.
        if len(parts) > 1:
            self.forgets = " and ".join([*([_CYCLE] if self._set.backfill else []), _PARTITION])
        return parts[0] if parts else self._rules.partition(run.job)

    # Deciding.

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        now, released = view.now, view.machines.released
        pending = self._informed(view)
        yield from self._admitted(view, pending)
        self._refused.list_due(view, pending)
        yield from self._running.kill_late(view)
        yield from self._preemption.end_graced(view)
        holdings = self._rules.holdings
        if holdings.freed:
            freed, holdings.freed = holdings.freed, {}
            pending.recall(freed, holdings)
            for number in pending.hopeless(holdings):
                yield Kill(number, RejectReason.CANCELLED)
        # sort only if the order is needed, which is the case for preemption or if some job may fit
        if self._priorities.are_stale and (self._preemption.is_on or self._any_fits(view, pending)):
            self._priorities.sort(pending)
        if self._main.is_due(now):
            self.latest = "main"
            yield from self._main.decisions(view, pending)
        running, times = self._running, self._times
        if self._set.backfill and (running.changed or pending.changed) and times.is_due(now):
            times.begin(now)
            if pending.untested and self._priorities.are_stale:
                self._priorities.sort(pending)
            running.changed = pending.changed = False
            for job in pending.untested:
                self._priorities.found(job, job.amounts.cpus, anew=False)
            pending.untested.clear()
            if self._any_fits(view, pending) or self._preemption.possible:
                self.latest = "backfill"
                yield from BackfillCycle(self._parts, view, pending).decisions()
        self._more, self._lists = pending.changed, bool(pending.listed)
        if not self._lists:
            times.idle(now)
        wake_s = self._wake_s(view, pending)
        running.changed = running.changed or view.machines.released != released
        if wake_s < inf:
            yield Wait(wake_s)

    def _informed(self, view: ClusterView) -> PendingJobs:
        """Record the current time and state, and return the pending jobs."""
        now, before_s = view.now, self._now
        if now < before_s:
            before_s = -inf
            self._set_up(view)
        self._now = self._priorities.now = now
        self._some_fit = None
        site = view.machines.site
        self._parts.placing.choice.asleep = view.machines.asleep
        self._parts.placing.attracting = {} if site is None else site.attracting(now)
        known_s = before_s if view.follow(self) else -inf
        self._recalls = False
        pending = view.index((PendingJobs, self), lambda: self._pending(known_s))
        self._running.changed = self._running.changed or view.machines.returned_s > before_s
        self._priorities.calculate(now)
        self._times.advance(now)
        if not self._lists:
            self._times.rested = True
        return pending

    def _admitted(self, view: ClusterView, pending: PendingJobs) -> Iterator[Decision]:
        """List the tasks that have become eligible, and cancel jobs that could never start."""
        rules = self._rules
        for task in pending.admit(view.now):
            self._some_fit = None
            rules.learn(view, task.job)
            if rules.is_new(task.job) and not rules.admits(view, task.job):
                if rules.is_refused(task.job.job):
                    # Add a copy to the list, because the kernel clears the tasks of jobs that
                    # leave.
                    pending.list_task(copy(task))
                yield Kill(task.job.number, RejectReason.CANCELLED)

    def _of_site(self, queues: QueueTree | None) -> SlurmSettings:
        """Return the policy's own parameters, or the site's if the policy was created without any."""
        return self._own if self._given or queues is None else slurm_settings(queues)

    def _set_up(self, view: ClusterView) -> None:
        """Prepare for a simulation."""
        settings = self._of_site(view.queues)
        self._set = settings = settings if self._zero_s is None else settings.moved(self._zero_s)
        self._recalls = True
        rules = SlurmRules(view, kill=settings.kill, distinct=settings.distinct, safe=settings.limits == "safe")
        running, limits = RunningJobs(len(view.cluster.nodes)), StartLimits(rules)
        placing = JobPlacing(rules, limits, running.users, NodeChoice(view.cluster, best=settings.place == "best"))
        preemption = SlurmPreemption(settings.preempt, rules, running, placing)
        self._rules, self._running, self._preemption = rules, running, preemption
        self._priorities = JobPriorities(view, settings, rules, preemption, self._usage)
        self._parts = SchedulerParts(settings, rules, self._priorities, running, limits, placing, preemption)
        self._main = MainLoop(self._parts)
        self._times = BackfillTimes(settings, self._coarse_after_s)
        self._refused = RefusedJobs(rules)
        # load the limits of jobs that were running before the simulation began
        for job in view.jobs.values():
            rules.learn(view, job)

    def _pending(self, known_s: float = -inf) -> PendingJobs:
        changed, priorities = known_s == -inf or self._more, self._priorities
        return PendingJobs(
            priorities.entries, priorities.ranks, priorities.eligible_s, changed=changed, known_s=known_s
        )

    def _wake_s(self, view: ClusterView, pending: PendingJobs) -> float:
        """Return the next time at which the policy has to act even if nothing happens before."""
        now, settings, priorities, holdings = view.now, self._set, self._priorities, self._rules.holdings
        times_s = [pending.next_s(), self._main.sweep_s, self._running.next_deadline_s(), *self._preemption.ends_s()]
        if pending.listed and settings.sched_min_interval_s:
            times_s.append(self._main.latest_s + settings.sched_min_interval_s)
        if pending.listed and settings.backfill and (self._running.changed or pending.changed):
            times_s.append(self._times.tick_s(now))
        if view.running and priorities.are_used and self._any_fits(view, pending):
            times_s.append(priorities.book.calculated_s + settings.calc_period_s)
        if holdings.budgets:
            after_s = pending.after_s(holdings, priorities.decay)
            if after_s < inf:
                periods = max(1, ceil(after_s / settings.calc_period_s))
                times_s.append(priorities.book.calculated_s + periods * settings.calc_period_s)
        return min([time_s for time_s in times_s if time_s > now], default=inf)

    def _any_fits(self, view: ClusterView, pending: PendingJobs) -> bool:
        """Return True if some pending job may fit on the nodes, regardless of limits. The result is
        cached until a run starts or ends.
        """
        if self._some_fit is None:
            self._some_fit = pending.any_fits(view.machines)
        return self._some_fit and bool(pending.listed)
