"""Slurm as used in practice: multifactor priorities, the main loop, backfill, preemption and
limits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from inspect import signature
from itertools import chain
from math import ceil, floor, inf
from typing import Any, NamedTuple

from dagsim.families.slurm.holdings import Holder, UsageBefore, of_nodes
from dagsim.families.slurm.pending_jobs import BackfillOutlook, PendingJob, PendingJobs, may_fit
from dagsim.families.slurm.priority_formulas import decay_per_second, truncated
from dagsim.families.slurm.refused_jobs import RefusedJobs
from dagsim.families.slurm.slurm_backfill import NodePlan, RunTable
from dagsim.families.slurm.slurm_priority import (
    Asked,
    Capacity,
    PriorityBook,
    RankColumns,
)
from dagsim.families.slurm.slurm_rules import SlurmRules, SlurmWaits, account_of, user_of
from dagsim.families.slurm.slurm_settings import SlurmSettings, settings_of
from dagsim.families.slurm.slurm_times import NodeChoice
from dagsim.model import Decision, Kill, NodePartition, Placement, Preempt, QueueTree, RejectReason, Share, Start, Wait
from dagsim.model.arithmetic import bits, ordered_sum
from dagsim.systems.cluster.api import ClusterView, DemandClass, NodeState, Run, Standing, TaskState
from dagsim.systems.cluster.policies.preemption import FreedNodes

_LATE_S = 1e-6
_COARSE = 0.1
_CYCLE = "when its last backfill cycle began"
_PARTITION = "in which of several partitions a job had started"
_RESERVED = 1 << 20
"""Added to the tier of jobs in reservations, which are sorted before all other jobs
(sort_job_queue2)."""


def rules_of_site(view: ClusterView) -> SlurmWaits | None:
    """Return the rules for partitions, QOS and accounts at a site, or None if its queues are not
    Slurm queues.
    """
    queues = view.queues
    if queues is None or queues.has_quota or not (queues.partitions or queues.qos or queues.tree):
        return None
    return SlurmWaits(view, SlurmRules(view, kill="never", distinct=settings_of(queues).distinct))


class _Kept(NamedTuple):
    """The facts about a run that the policy needs until the run ends."""

    job: int
    partition: str
    qos: str
    nodes: tuple[int, ...]
    started_s: float
    limit_ends_s: float
    exclusive: bool
    suspended_s: float = 0.0
    """For how long it had been suspended when the policy was last told."""


def _usable_cpus(machine: NodeState, demand: DemandClass) -> int:
    """Return the free CPUs on a node for which there is also enough free memory, in millionths
    (``can_job_run_on_node`` in job_test.c).
    """
    if not (demand.cpus and demand.memory):
        return machine.cpus
    return min(machine.cpus, machine.memory * demand.cpus // demand.memory)


def _reservation(task: TaskState) -> int:
    """Return the index of the reservation in which the task has to run, or -1."""
    terms = task.demand.terms
    return -1 if terms is None else terms.reservation


@dataclass(slots=True)
class _Cycle:
    """The state of one backfill cycle."""

    view: ClusterView
    plan: NodePlan
    fitting: dict[DemandClass, bool] = field(default_factory=dict)
    """Whether a demand fits on the machines now."""
    examined: PendingJob | None = None
    """The job that was last examined in advance."""
    open: list[tuple[int, float]] = field(default_factory=list)
    """For each group of its nodes: those that are still open, and the end of its time limit."""
    seen: int = 0
    """The number of reservations that ``open`` takes into account."""
    arrays: set[str] = field(default_factory=set)
    """The arrays with a limit whose remaining tasks have reservations."""

    def fits(self, demand: DemandClass) -> bool:
        """Return True if a start may fit on the free resources; reservations are ignored."""
        if demand not in self.fitting:
            self.fitting[demand] = may_fit(self.view.machines, demand)
        return self.fitting[demand]


class SlurmMultifactor:
    """Slurm's scheduler: it orders jobs by tier and by priority, which is computed from age, fair
    share, size, partition, QOS and TRES.

    The main loop runs at every event. It starts jobs in order of priority, and stops in a partition
    at the first job that does not fit. Backfill runs every ``bf_interval_s`` if anything has
    changed. Backfill tests the first ``bf_max_job_test`` jobs: a job starts if it delays no job
    ahead of it; otherwise backfill reserves specific whole nodes for it (SchedMD, sched_config,
    2024). Priorities are computed when a job becomes ready, and for all jobs every
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

    ``max_age_s`` is the age from which on the age factor is 1 (PriorityMaxAge). ``half_life_s`` is
    the half-life of past usage, where 0 means no decay (PriorityDecayHalfLife). ``algorithm``
    computes fair share by Fair Tree (``tree``) or by the classic formula (``classic``). ``damping``
    is the divisor in the classic formula (FairShareDampeningFactor). ``favor_small`` gives small
    jobs the larger size factor (PriorityFavorSmall). ``relative_size`` divides a job's size by its
    time limit (SMALL_RELATIVE_TO_TIME). ``max_tres`` bills the largest weighted resource instead of
    the sum (MAX_TRES). ``accrue_always`` counts the age from the submission (ACCRUE_ALWAYS).
    ``calc_phase_s`` is the time of one priority calculation, on the site's clock if there is one.

    ``queue_depth`` is the number of jobs that the main loop considers (default_queue_depth). Every
    ``sched_interval_s``, the main loop considers all jobs (sched_interval).
    ``sched_min_interval_s`` is the shortest time between two main loops (sched_min_interval).
    ``backfill`` turns backfill on or off. ``bf_phase_s`` is the time of the first backfill cycle.
    ``bf_window_s`` is how far ahead backfill plans (bf_window). ``bf_window_linear_s`` is the time
    added to each further window of the search for a start, or 0 to double the window
    (bf_window_linear). ``bf_max_job_user``, ``bf_max_job_assoc`` and ``bf_max_job_part`` limit the
    tested jobs in a cycle by user, association and partition, where 0 means no limit.
    ``bf_max_job_array_resv`` is the number of tasks of one array that may have reservations.
    ``bf_resolution_s`` is the multiple to which backfill rounds times down (bf_resolution). With
    ``bf_ties=fit`` a job may start if its limit ends exactly when a reservation begins.

    With ``limits=safe`` a job starts only if its time limit fits into the budgets of its account
    and QOS; with ``limits=used`` it starts unless they are used up. ``preempt`` sets whether a
    partition's tier or a QOS may stop runs. A requeued job is eligible again after
    ``requeue_delay_s``. With ``kill=limit`` a run ends at the user's own limit as well, and with
    ``kill=never`` at no limit. A run ends ``over_time_s`` after it has reached its limit. With
    ``gangs=distinct`` each instance in a gang gets a node of its own. With ``place=best`` a job
    takes the fullest node on which it fits, instead of the first.

    The policy uses estimates (for tasks without a requested time), and is preemptive if configured.
    It is costly by definition: a backfill cycle takes O(running + jobs tested x times x nodes), and
    a priority calculation O(pending log pending).
    """

    __signature__ = signature(SlurmSettings)
    _idle_s: float
    remembers = "the usage by account and user"

    def __init__(self, usage: UsageBefore | None = None, coarse_after_s: float = inf, **settings: Any) -> None:
        """Set up the policy; ``settings`` are the fields of ``SlurmSettings`` by name. ``usage`` and
        ``coarse_after_s`` are those of ``beginning``.

        Raises:
            ConfigError: A value is out of range.
        """
        self._set = SlurmSettings(**settings)
        self._priorities = self._set.priorities()
        self._usage, self._coarse_after_s = usage or UsageBefore(), coarse_after_s
        self._given = settings
        """The parameters; if there are none, the site's parameters apply."""
        self._now = inf
        self._some_fit: bool | None = None
        """True if some pending job may fit on the nodes, or None if that has to be computed."""
        self._main_s = -inf
        """Time of the last main loop."""
        self._more = True
        """Whether a task had been added since the last backfill, at the last decision."""
        self._lists = False
        """Whether any job was listed after the last decision."""
        self._rounds = 0
        """Number of calculations up to the one by which the pending jobs are sorted."""
        self.forgets = _CYCLE if self._set.backfill else ""
        self.latest = "main"
        """The part that made the latest start: ``main`` (the main loop) or ``backfill``."""

    def beginning(self, usage: UsageBefore | None, coarse_after_s: float) -> SlurmMultifactor:
        """Return the policy for a simulation before which ``usage`` occurred. From ``coarse_after_s``
        on, backfill runs less and less often: at intervals of at least 10% of the time since then.
        Forecasts can afford that, because their errors are relative.
        """
        return type(self)(usage, coarse_after_s, **self._given)

    def wait_rules(self, view: ClusterView) -> SlurmWaits:
        """Return the site's limits and partitions, which explain why jobs wait."""
        settings = self._of_site(view)
        return SlurmWaits(view, SlurmRules(view, kill="never", distinct=settings.distinct))

    def _of_site(self, view: ClusterView) -> SlurmSettings:
        """Return the site's parameters if the policy was created without parameters, else the policy's
        own.
        """
        has_own = not self._given and view.queues is not None and view.queues.scheduler
        return settings_of(view.queues) if has_own and view.queues is not None else self._set

    def outlook(self, view: ClusterView) -> tuple[SlurmWaits, list[Standing]]:
        """Return the limits with their current usage, and the waiting tasks in the order in which the
        policy examines them, each with the parts of its priority. No decision is made.
        """
        self._now = view.now
        self._set_up(view)
        for active in view.jobs.values():
            self._rules.learn(view, active)
        view.follow(self)
        pending = view.index((PendingJobs, self), self._pending)
        self._book.calculate(view.now)
        for task in pending.admit(view.now):
            self._rules.learn(view, task.job)
        pending.rank_anew(self._book, view.now)
        standings = []
        for job in pending.listed:
            parts = self._parts(job.task, job.part) if self._set.order != "basic" else {}
            priority = float(truncated(ordered_sum(parts.values())))
            standings.append(Standing(job.task, job.part.name, job.tier, priority, parts, job.span))
        return SlurmWaits(view, self._rules), standings

    def _parts(self, task: TaskState, part: NodePartition) -> dict[str, float]:
        """Return the parts of a task's priority in a partition, with the names that ``sprio`` uses."""
        asked = self._asked(task, part, task.demand.gang or 1)
        factors, weights = self._book.factors(asked, self._now), self._priorities.weights
        whole = self._book.capacity.amounts()
        amounts = {name: amount for name, amount in asked.amounts().items() if whole[name]}
        tres = [weights.tres.get(name, 0.0) * amount / whole[name] for name, amount in amounts.items()]
        parts = {
            "age": weights.age * factors.age,
            "association": weights.assoc * factors.assoc,
            "fair share": weights.fair_share * factors.fair_share,
            "job size": weights.job_size * factors.job_size,
            "partition": weights.partition * factors.partition,
            "QOS": weights.qos * factors.qos,
            "TRES": ordered_sum(tres),
            "nice": -asked.nice,
        }
        return {name: worth for name, worth in parts.items() if worth}

    # Events.

    def push(self, task: TaskState) -> None:
        """Record the user of a task that became ready before the simulation began, because the user's
        association exists from then on. Users of later tasks are recorded when their jobs are
        listed, since a job that can never run adds no association.
        """
        if self._recalls and task.ready_s < self._now:
            self._book.user(account_of(task.job), user_of(task.job), task.ready_s)

    def started(self, run: Run, now: float) -> None:
        """Add a run."""
        if self._book.knows(run.id):
            return
        if self._rules.holdings.budgets:
            self._calculate(now)
        task, rules = run.task, self._rules
        part, qos = self._part_of(run), rules.quality(run.job)
        alone = rules.alone(run.job, part)
        amounts = rules.amounts(task).times(run.instances / (task.demand.gang or 1))
        asked = self._asked(task, part, run.instances)
        # The job is charged for whole nodes, which also count in full against its limits.
        if alone and not part.exclusive:
            amounts = of_nodes(amounts, [machine.node for machine, *_ in run.held])
            asked = asked._replace(cpus=amounts.cpus, memory_gb=amounts.memory_gb, gpus=amounts.gpus)
        self._book.begin(run.id, asked, now)
        gpu = self._gpu(run.type) if amounts.gpus else ""
        amounts = amounts._replace(nodes=len(run.nodes))
        rules.holdings.take(run.id, rules.holders(run.job, part, gpu), amounts, run.nodes, now)
        limit_s, kill_s = rules.limit_s(task, run.type), rules.kill_s(task, run.type) + self._set.over_time_s
        nodes, begins_s = run.nodes, now
        if run.boots:  # its time limit begins only once its nodes have booted
            begins_s = now + run.setup_s
            self._booting[run.id] = limit_s, kill_s
        self._table.started(run, begins_s + limit_s)
        self._runs[run.id] = _Kept(run.job.number, part.name, qos.name, nodes, now, begins_s + limit_s, alone)
        self._latest[run.job.number] = now
        for node in nodes:
            self._count[node] = self._count.get(node, 0) + 1
            self._whole |= (1 << node) if alone else 0
            for table in (self._users, self._owned) if rules.by_user(run.job) else (self._users,):
                users = table.setdefault(node, {})
                users[user_of(run.job)] = users.get(user_of(run.job), 0) + 1
        if kill_s < inf and not run.boots:
            heappush(self._deadlines, (now + kill_s, run.id, 0.0))
        if part.preempt != "off" or qos.preempt != "off":
            self._preemptable[run.id] = None
        self._leaving.pop((task.order, task.piece), None)
        if not task.waiting:
            for place in range(len(rules.parts(run.job))):
                self._ranks.drop((task.order, task.piece, place))
        self._changed, self._some_fit = True, None

    def rated(self, run: Run, now: float) -> None:
        """Let the time limit of a run begin now that its nodes have booted, or move it by the time for
        which the run was suspended.
        """
        kept = self._runs[run.id]
        if run.suspended_since_s is not None or run.suspended_s > kept.suspended_s:
            self._table.freed(run.nodes)
            self._changed, self._some_fit = True, None
            if (paused_s := run.suspended_s - kept.suspended_s) > 0:
                ends_s = kept.limit_ends_s + paused_s
                self._table.move(run, ends_s)
                self._runs[run.id] = kept._replace(limit_ends_s=ends_s, suspended_s=run.suspended_s)
        if run.id not in self._booting or run.boots:
            return
        limit_s, kill_s = self._booting.pop(run.id)
        self._table.move(run, now + limit_s)
        self._runs[run.id] = self._runs[run.id]._replace(limit_ends_s=now + limit_s)
        if kill_s < inf:
            heappush(self._deadlines, (now + kill_s, run.id, run.suspended_s))

    def _part_of(self, run: Run) -> NodePartition:
        """Return the partition in which a run has started."""
        if self._starting is not None and self._starting[0] is run.task:
            return self._starting[1]
        parts = [part for part in self._rules.parts(run.job) if self._rules.has(part, run.nodes)]
        # the run started before the log begins, and the log does not record in which partition
        if len(parts) > 1:
            self.forgets = " and ".join([*([_CYCLE] if self._set.backfill else []), _PARTITION])
        return parts[0] if parts else self._rules.partition(run.job)

    def ended(self, run: Run, now: float) -> None:
        """Remove a run."""
        if self._rules.holdings.budgets:
            self._calculate(now)
        self._book.end(run.id, now)
        self._rules.holdings.give(run.id, now)
        self._table.ended(run)
        kept = self._runs.pop(run.id)
        for node in kept.nodes:
            self._count[node] -= 1
            if not self._count[node]:
                del self._count[node]
                self._whole &= ~(1 << node)
            for table in (self._users, self._owned) if self._rules.by_user(run.job) else (self._users,):
                table[node][user_of(run.job)] -= 1
                if not table[node][user_of(run.job)]:
                    del table[node][user_of(run.job)]
                if not table[node]:
                    del table[node]
        self._booting.pop(run.id, None)
        self._preemptable.pop(run.id, None)
        self._ending.pop(run.id, None)
        ends = run.job.tasks_left <= 1 and (
            not run.job.tasks or run.job.tasks[run.task.index].unfinished <= run.instances
        )
        # a job that is told of later is known as it is at the beginning
        if ends and not (self._recalls and run.job.tasks_left and kept.job >= 0):
            self._latest.pop(kept.job, None)
            self._rules.forget(kept.job)
        self._changed, self._some_fit = True, None

    # Deciding.

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        now, before_s = view.now, self._now
        if now < self._now:
            before_s = -inf
            self._set_up(view)
            # jobs that were already running at the beginning get their limits here
            for job in view.jobs.values():
                self._rules.learn(view, job)
        self._now, self._some_fit = now, None
        self._choice.asleep = view.machines.asleep
        known_s = before_s if view.follow(self) else -inf
        self._recalls = False
        pending = view.index((PendingJobs, self), lambda: self._pending(known_s))
        released = view.machines.released
        self._changed = self._changed or view.machines.returned_s > before_s
        self._calculate(now)
        if self._idle_s < now - _LATE_S:
            self._cycle_s, self._rested = self._idle_s, True
        self._idle_s = inf
        site = view.machines.site
        self._rested = self._rested or not (self._lists and site and any(one.end_s > now for one in site.closed))
        for task in pending.admit(now):
            self._some_fit = None
            self._rules.learn(view, task.job)
            if self._rules.is_new(task.job) and not self._rules.admits(view, task.job):
                if self._rules.is_refused(task.job.job):
                    pending.list_task(copy(task))  # the kernel empties the task of a job that leaves
                yield Kill(task.job.number, RejectReason.CANCELLED)
        self._refused.list_due(view, pending)
        yield from self._kill_late(view)
        yield from self._end_graced(view)
        holdings = self._rules.holdings
        if holdings.freed:
            freed, holdings.freed = holdings.freed, {}
            pending.recall(freed, holdings)
            for number in pending.hopeless(holdings):
                yield Kill(number, RejectReason.CANCELLED)
        stale = self._book.rounds != self._rounds and self._set.order != "basic"
        # nothing else uses the priorities
        if stale and (self._set.preempt != "off" or self._any_fits(view, pending)):
            self._rounds = self._book.rounds
            pending.rank_anew(self._book, self._book.calculated_s)
        if now == self._main_s or now >= self._main_s + self._set.sched_min_interval_s - _LATE_S:
            self._main_s = now
            yield from self._main(view, pending)
        if self._set.backfill and (self._changed or pending.changed) and self._tick_s(now) <= now + _LATE_S:
            self._cycle_s, self._changed, pending.changed, self._rested = now, False, False, False
            if self._any_fits(view, pending) or (self._preemptable and self._set.preempt != "off"):
                yield from self._backfill(view, pending)
        self._more, self._lists = pending.changed, bool(pending.listed)
        if not self._lists:
            self._idle_s = self._tick_s(now)
        wake_s = self._wake_s(view, pending)
        self._changed = self._changed or view.machines.released != released
        if wake_s < inf:
            yield Wait(wake_s)

    def _set_up(self, view: ClusterView) -> None:
        """Prepare for a simulation."""
        nodes = view.cluster.nodes
        self._set = self._of_site(view)
        self._priorities = self._set.priorities()
        self._choice = NodeChoice(view.cluster, best=self._set.place == "best")
        self._recalls = True
        """True while it is told of the time before the beginning."""
        self._starting: tuple[TaskState, NodePartition] | None = None
        """The task that is being started, and its partition."""
        self._ties = self._set.bf_ties == "wait"
        """True if a limit that ends exactly when a reservation begins is too long."""
        self._gpu_names = [gpu.name if gpu is not None else "" for gpu in view.gpu_types]
        totals = [ordered_sum(getattr(node, name) for node in nodes) for name in ("cpus", "memory_gb", "gpus")]
        capacity = Capacity(len(nodes), *totals)
        queues = view.queues or QueueTree()
        clock_s = 0.0 if view.machines.site is None else float(view.machines.site.origin_s)
        self._book: PriorityBook = PriorityBook(self._priorities, queues, capacity, self._set.origin_s(clock_s))
        self._book.remember(self._usage.billed)
        self._rules: SlurmRules = SlurmRules(
            view, kill=self._set.kill, distinct=self._set.distinct, safe=self._set.limits == "safe"
        )
        self._rules.remember(self._usage.resources)
        self._table: RunTable = RunTable(len(nodes))
        self._roomy: dict[tuple[DemandClass, str, bool, int, int], int] = {}
        """Nodes with room for an instance now, by demand, partition, exclusive use, type and barred nodes; of
        one cycle.
        """
        self._runs: dict[int, _Kept] = {}
        self._latest: dict[int, float] = {}
        """Time of the latest start of each job."""
        self._count: dict[int, int] = {}
        """Number of runs by node."""
        self._users: dict[int, dict[str, int]] = {}
        """Runs of each user by node."""
        self._owned: dict[int, dict[str, int]] = {}
        """Of these, the runs that share their nodes only with others of their user."""
        self._whole: int = 0
        """Bit set of the nodes that exclusive runs hold."""
        self._deadlines: list[tuple[float, int, float]] = []
        """When runs exceed their limits, and for how long each had been suspended by then."""
        self._booting: dict[int, tuple[float, float]] = {}
        """The limits of runs whose nodes boot: what the scheduler expects, and after which the job is killed."""
        self._preemptable: dict[int, None] = {}
        self._ranks: RankColumns = RankColumns()
        self._rounds = 0
        self._main_s = -inf
        self._cycle_s = -inf
        """Time of the last backfill cycle."""
        self._rested = True
        """True if no job has waited for a reservation at some time since the last backfill cycle."""
        self._idle_s = inf
        """Time of a backfill cycle in which no job waits."""
        self._changed = True
        self._sweep_s = inf
        """Time when the main loop next examines all jobs; otherwise it examines ``queue_depth`` of
        them.
        """
        self._ending: dict[int, tuple[float, str]] = {}
        """Until when each run may go on that has been chosen to be preempted, and how it is stopped then."""
        self._leaving: dict[tuple[int, int], tuple[int, ...]] = {}
        """The runs that leave for a task, by its order and piece."""
        self._refused: RefusedJobs = RefusedJobs(self._rules)
        self._no_delay = False
        """True while suspended runs return, so that they continue without delay."""

    def _pending(self, known_s: float = -inf) -> PendingJobs:
        changed = known_s == -inf or self._more
        return PendingJobs(self._listing, self._ranks, self._eligible_s, changed=changed, known_s=known_s)

    def _listing(self, task: TaskState) -> list[PendingJob]:
        """Return one entry for the task per partition in which it may run, or that only refuses its
        account; compute its priority there if it has none yet.
        """
        jobs, rules, types = [], self._rules, task.demand.types
        gpu = self._gpu(types[0]) if len(types) == 1 and task.demand.demand.gpus else ""
        for place, part in enumerate(rules.parts(task.job)):
            refused = bool(rules.refusal(task.job.job, part))
            if len(list(rules.barred(task, part))) > refused:
                continue
            (holders, amounts), alone = rules.claim(task, part, gpu), rules.alone(task.job, part)
            slot, tier = -1, part.tier + (_RESERVED if _reservation(task) >= 0 else 0)
            if self._set.order != "basic":
                key = (task.order, task.piece, place)
                slot = self._ranks.slot(key)
                if slot < 0:
                    asked = self._asked(task, part, task.demand.gang or 1)
                    asked = asked._replace(cpus=amounts.cpus) if alone else asked
                    fixed = self._book.fixed(asked)
                    slot = self._ranks.add(key, tier, fixed, self._book.since_s(asked), asked.user)
                    at_s = max(min(self._now, self._eligible_s(task)), self._book.calculated_s)
                    # use the time at which the job's array was evaluated
                    at_s = at_s if task.job.queued_s is None else self._book.calculated_s
                    self._ranks.note(slot, self._book.priority(fixed, asked, at_s), self._book.rounds)
            jobs.append(
                PendingJob(
                    tier, task.order, task.piece, slot, task, place, part, holders, amounts, alone,
                    rules.spread(task.job), rules.nodes[part.name], self._questions(task, part), rules.shares(task),
                    rules.counts(task), refused,
                )
            )  # fmt: skip
        return jobs

    def _gpu(self, type_: int) -> str:
        return self._gpu_names[type_]

    def _eligible_s(self, task: TaskState) -> float:
        return task.ready_s + (self._set.requeue_delay_s if task.piece and not self._no_delay else 0.0)

    def _asked(self, task: TaskState, part: NodePartition, instances: int) -> Asked:
        job, (gpus, cpus, memory_gb, _) = task.job.job, task.demand.demand
        return Asked(
            self._book.user(account_of(task.job), user_of(task.job), self._now),
            part.name,
            job.qos,
            job.arrival_s,
            self._eligible_s(task) if task.job.queued_s is None else task.job.queued_s,
            1 if job.request is not None and job.request.spread is False else instances,
            cpus * instances,
            memory_gb * instances,
            gpus * instances,
            self._rules.limit_s(task, task.demand.types[0]),
            -job.priority,
        )

    def _calculate(self, now: float) -> None:
        """Calculate usage up to ``now``. Budgets are charged once per period (the decay thread in
        priority_multifactor.c), before the runs of the next period begin or end.
        """
        holdings, period_s = self._rules.holdings, self._priorities.calc_period_s
        while holdings.budgets and self._book.calculated_s + period_s <= now:
            self._book.calculate(self._book.calculated_s + period_s)
            holdings.charge(self._book.calculated_s, decay_per_second(self._priorities.half_life_s))
        self._book.calculate(now)

    def _tick_s(self, now: float) -> float:
        """Return the time of the next backfill cycle after a change: at once, but at least
        ``bf_interval_s`` after the last cycle (``backfill_agent`` and ``_more_work`` in
        backfill.c). While jobs wait for reservations, every cycle counts as a change.
        """
        interval_s: float = self._set.bf_interval_s
        cycle_s: float = self._cycle_s
        from_s: float = max(now, self._set.bf_phase_s, cycle_s + _COARSE * max(0.0, cycle_s - self._coarse_after_s))
        if self._rested:
            return max(from_s, cycle_s + interval_s)
        return cycle_s + max(1, ceil((from_s - cycle_s) / interval_s - _LATE_S)) * interval_s

    def _wake_s(self, view: ClusterView, pending: PendingJobs) -> float:
        """Return the time at which the policy must act next even if nothing happens."""
        now, times_s = view.now, [pending.next_s(), self._sweep_s]
        if self._deadlines:
            times_s.append(self._deadlines[0][0])
        times_s += [until_s for until_s, _ in self._ending.values()]
        if pending.listed and self._set.sched_min_interval_s:
            times_s.append(self._main_s + self._set.sched_min_interval_s)
        if pending.listed and self._set.backfill and (self._changed or pending.changed):
            times_s.append(self._tick_s(now))
        if view.running and self._set.order != "basic" and self._any_fits(view, pending):
            times_s.append(self._book.calculated_s + self._set.calc_period_s)
        if self._rules.holdings.budgets:
            after_s = pending.after_s(self._rules.holdings, decay_per_second(self._priorities.half_life_s))
            if after_s < inf:
                periods = max(1, ceil(after_s / self._set.calc_period_s))
                times_s.append(self._book.calculated_s + periods * self._set.calc_period_s)
        return min([time_s for time_s in times_s if time_s > now], default=inf)

    def _any_fits(self, view: ClusterView, pending: PendingJobs) -> bool:
        """Return True if any of the jobs may fit on the nodes, whatever the limits; the result is
        cached until a run starts or ends.
        """
        if self._some_fit is None:
            self._some_fit = pending.any_fits(view.machines)
        return self._some_fit and bool(pending.listed)

    # Starting.

    def _main(self, view: ClusterView, pending: PendingJobs) -> Iterator[Decision]:
        """Start jobs in order of priority; in each partition, stop at the first job that does not fit."""
        rules, listed = self._rules, pending.listed
        most = inf if view.now >= self._sweep_s else self._set.queue_depth
        self._sweep_s = inf
        blocked, at, tested = 0, 0, 0
        closed: set[str] = set()
        full: set[int] = set()
        """Reservations in which a job did not fit."""
        while at < len(listed) and len(closed) < len(rules.partitions):
            job = listed[at]
            task, part = job.task, job.part
            if not task.waiting:
                del listed[at]
                continue
            reservation = _reservation(task)
            passed = part.name in closed if reservation < 0 else reservation in full
            if passed or not self._licensed(view, task):
                at += 1
                continue
            # only backfill can start this task, which blocks its partition until then
            if self._together(task):
                closed.add(part.name)
                blocked |= rules.nodes[part.name]
                at += 1
                continue
            if tested >= most:
                self._sweep_s = (floor(view.now / self._set.sched_interval_s) + 1) * self._set.sched_interval_s
                return
            if job.refused:
                tested, at = tested + 1, at + 1
                continue
            room, holder = self._room(job)
            if not room and holder is not None:
                if rules.holdings.never(holder, job.amounts):
                    yield Kill(task.job.number, RejectReason.CANCELLED)
                else:
                    pending.set_aside(at, holder, job.amounts)
                continue
            tested += 1
            nodes = rules.nodes[part.name] & ~blocked
            placement = self._fit(view, task, part, nodes, room)
            over = placement is None and self._is_over_nodes(job)
            if placement is None and not over and self._set.preempt != "off" and self._preemptable:
                yield from self._make_way(view, task, part, nodes)
                placement = self._fit(view, task, part, nodes, room)
            if placement is None:
                if named := rules.named(task):
                    blocked |= named
                elif reservation >= 0:
                    full.add(reservation)
                elif not over and self._is_held_up(view, task, part, nodes):
                    closed.add(part.name)
                    blocked |= rules.nodes[part.name]
                at += 1
                continue
            if not self._may_hold(view, job, [share.node for share in placement]):
                at += 1
                continue
            self.latest = "main"
            self._starting = task, part
            yield Start(task, placement)

    def _is_held_up(self, view: ClusterView, task: TaskState, part: NodePartition, nodes: int) -> bool:
        """Return True if a job that does not fit on ``nodes`` blocks the jobs behind it in its
        partition.

        The job does not block them if it could not run on these nodes even if they were empty,
        because the rest of its partition is blocked or reserved (Slurm: ``ReqNodeNotAvail``,
        job_scheduler.c).
        """
        terms, site = task.demand.terms, view.machines.site
        wanted = (task.demand.gang or 1) if self._rules.spread(task.job) else 1
        if nodes.bit_count() < wanted:
            return True
        if terms is not None and site is not None:
            nodes &= site.open_between(terms, view.now, view.now + terms.limit_s)
        return bool(nodes & self._whole) or self._rules.holds(view, task, nodes)

    def _backfill(self, view: ClusterView, pending: PendingJobs) -> Iterator[Decision]:
        """Run one backfill cycle over the jobs with the highest priorities."""
        listed, tests = pending.listed, int(self._set.bf_max_job_test)
        self._roomy.clear()
        pending.drop_left(2 * tests)
        cycle = self._cycle(view)
        plan, now = cycle.plan, view.now
        outlook = BackfillOutlook(
            listed,
            tests,
            lambda job: job.task.waiting > 0 and self._room(job)[0] > 0,
            lambda job: not job.refused and self._could(cycle, job),
            cycle.fits,
        )
        counts = {"user": self._set.bf_max_job_user, "assoc": self._set.bf_max_job_assoc}
        most = {name: count for name, count in (counts | {"part": self._set.bf_max_job_part}).items() if count}
        considered: dict[tuple[str, str], int] = {}
        preempting = self._set.preempt != "off" and bool(self._preemptable)
        stoppable: dict[tuple[str, str], frozenset[int]] = {}
        ready: dict[str, list[tuple[TaskState, NodePartition, Placement]]] = {}
        """Components of heterogeneous jobs that could start now."""
        at = tested = 0
        while at < len(listed) and tested < tests:
            job = listed[at]
            task, part = job.task, job.part
            if not task.waiting:
                outlook.removed(listed.pop(at), at)
                continue
            room, holder = self._room(job)
            if not room and holder is not None:
                outlook.removed(job, at)
                pending.set_aside(at, holder, job.amounts)
                continue
            tested += 1
            if (most and self._is_over(task, part, most, considered)) or not self._licensed(view, task):
                at += 1
                continue
            delayed = False
            if job.counts:
                gone = self._stoppable(view, task, part, {}) if preempting else frozenset()
                delayed = plan.counts_delay(job, gone, self._barred(task))
            ruled_out = outlook.knows_no(at) or not cycle.fits(task.demand) or delayed
            placement = None if ruled_out else self._fit_beside(view, task, part, plan, room)
            # select_nodes tests the account only after backfill has chosen nodes, which stay reserved
            if job.refused and placement is not None:
                end_s = now + self._longest_s(task, task.demand.types)
                plan.reserve(now, end_s, sum([1 << share.node for share in placement]))
                at += 1
                continue
            if placement is None and preempting and not (job.refused or delayed or self._is_over_nodes(job)):
                end_s, before = now + self._longest_s(task, task.demand.types), len(self._runs)
                open_nodes = self._rules.nodes[part.name] & ~plan.kept(now, end_s, closed=self._ties)
                yield from self._make_way(view, task, part, open_nodes)
                if len(self._runs) < before:
                    self._renew(cycle)
                    placement = self._fit_beside(view, task, part, plan, room)
            if placement is None:
                at += 1
                if preempting:  # a job further back may preempt runs, but not on reserved nodes
                    gone = self._stoppable(view, task, part, stoppable) | self._leaving_for(task)
                    tested += self._make_room(cycle, job, gone)
                    continue
                if not outlook.any_fits(at, tests - tested):
                    break
                if outlook.is_hopeful(at):
                    tested += self._make_room(cycle, job)
                    passed = 0 if most else self._reserve_up_to_hope(cycle, outlook, listed, at, tests - tested)
                    at, tested = at + passed, tested + passed
                continue
            if not self._may_hold(view, job, [share.node for share in placement]):
                at += 1
                continue
            if self._together(task):
                at += 1
                end_s = now + self._longest_s(task, task.demand.types)
                plan.reserve(now, end_s, sum([1 << share.node for share in placement]))
                ready.setdefault(self._together(task), []).append((task, part, placement))
                continue
            self.latest = "backfill"
            self._starting = task, part
            yield Start(task, placement)
            outlook.started()
            if not task.waiting:
                for entry, place in pending.drop(at, several=len(self._rules.parts(task.job)) > 1):
                    outlook.removed(entry, place)
                    at -= place < at
            self._renew(cycle)
        yield from self._start_together(view, ready)

    def _cycle(self, view: ClusterView) -> _Cycle:
        plan = NodePlan(
            view,
            self._table,
            self._whole,
            self._choice,
            window_s=self._set.bf_window_s,
            resolution_s=self._set.bf_resolution_s,
            linear_s=self._set.bf_window_linear_s,
        )
        return _Cycle(view, plan)

    def _renew(self, cycle: _Cycle) -> None:
        """Drop cached results that a start or a stopped run may have changed."""
        cycle.plan.started()
        cycle.fitting.clear()
        cycle.examined = None
        self._roomy.clear()

    def _could(self, cycle: _Cycle, job: PendingJob) -> bool:
        """Return True if a job could start now in spite of the reservations made so far. Only
        reservations made since the last test of the same job are examined.
        """
        task = job.task
        if job is not cycle.examined or task.demand.gang:
            if not (task.waiting > 0 and cycle.fits(task.demand)):
                return False
            if task.demand.gang:
                return self._fit_beside(cycle.view, task, job.part, cycle.plan, self._room(job)[0]) is not None
            cycle.examined, cycle.seen, cycle.open = job, 0, []
            for group in self._rules.groups(task):
                if nodes := self._roomy_nodes(cycle.view, task, job.part, group.types):
                    cycle.open.append((nodes, cycle.view.now + self._longest_s(task, group.types)))
        made, now, ties = cycle.plan.made, cycle.view.now, self._ties
        for reservation in made[cycle.seen :]:
            kept_nodes = reservation.nodes
            for place, (nodes, end_s) in enumerate(cycle.open):
                if nodes & kept_nodes and reservation.meets(now, end_s, ties):
                    cycle.open[place] = nodes & ~kept_nodes, end_s
        cycle.seen = len(made)
        return any(nodes for nodes, _ in cycle.open)

    def _reserve_up_to_hope(
        self, cycle: _Cycle, outlook: BackfillOutlook, listed: Sequence[PendingJob], at: int, left: int
    ) -> int:
        """Reserve nodes for the jobs from index ``at`` on, up to the first job that could start, and
        stop when that job can no longer start or after ``left`` jobs. The jobs before it are known
        not to start now, so this is a shorter form of testing them. Return how many were tested.
        """
        hopeful, passed = outlook.hopeful_at, 0
        while at + passed < hopeful and passed < left and outlook.counts_all and self._could(cycle, listed[hopeful]):
            job = listed[at + passed]
            if job.holders or not job.task.waiting or not self._licensed(cycle.view, job.task):
                break
            self._make_room(cycle, job)
            passed += 1
        return passed

    def _together(self, task: TaskState) -> str:
        """Return the name shared by the tasks that must start together with this one. The result is
        empty if it starts alone.
        """
        request = task.job.job.request
        return "" if request is None else request.together

    def _start_together(
        self, view: ClusterView, ready: Mapping[str, list[tuple[TaskState, NodePartition, Placement]]]
    ) -> Iterator[Decision]:
        """Start the heterogeneous jobs whose components could all start (``_het_job_start_test`` in
        backfill.c).
        """
        for name, parts in ready.items():
            waiting = [job for job in view.jobs.values() if job.job.request is not None]
            if len(parts) < sum(job.job.request.together == name for job in waiting if job.job.request is not None):
                continue
            for task, part, placement in parts:
                nodes = sum([1 << share.node for share in placement])
                if self._on(view, task, part, nodes, inf) is None:  # two components had chosen the same node
                    break
                self.latest = "backfill"
                self._starting = task, part
                yield Start(task, placement)

    def _is_over(
        self,
        task: TaskState,
        part: NodePartition,
        most: Mapping[str, int],
        considered: dict[tuple[str, str], int],
    ) -> bool:
        """Count a tested job in this cycle. Return True if its user, association or partition has
        used up its share of tests (bf_max_job_user, bf_max_job_assoc, bf_max_job_part)."""
        user, account = user_of(task.job), account_of(task.job)
        names = {"user": user, "assoc": f"{account}/{user}", "part": part.name}
        over = False
        for kind, limit in most.items():
            count = considered[kind, names[kind]] = considered.get((kind, names[kind]), 0) + 1
            over = over or count > limit
        return over

    def _licensed(self, view: ClusterView, task: TaskState) -> bool:
        """Return True if enough licences for a start are free."""
        site, terms = view.machines.site, task.demand.terms
        if site is None or terms is None:
            return True
        return all(site.licences[name] >= count for name, count in terms.licences)

    def _room(self, job: PendingJob) -> tuple[float, Holder | None]:
        """Return the number of starts that the limits allow, and the tightest limit. A limit on a
        GPU type counts only if the task cannot run on any other type.
        """
        return self._rules.holdings.room(job.holders, job.amounts) if job.holders else (inf, None)

    def _make_room(self, cycle: _Cycle, job: PendingJob, gone: frozenset[int] = frozenset()) -> int:
        """Reserve nodes for a job that cannot start now. While fewer tasks of an array run than its
        limit allows, Slurm also reserves nodes for the tasks behind it, one after another, as if
        the array had no limit (``_attempt_backfill`` tests ``pend_run_tasks``, which does not count
        reservations). Return the number of these further tests.
        """

        def may_hold(nodes: int) -> bool:
            return self._may_hold(cycle.view, job, list(bits(nodes)), planned=True)

        barred, request = self._barred(job.task), job.task.job.job.request
        reserved = cycle.plan.make_room(job, may_hold, gone, barred)
        array = "" if request is None or request.array_limit is None else request.array
        if not reserved or not array or array in cycle.arrays:
            return 0
        cycle.arrays.add(array)
        tests = 0
        for _ in range(min(cycle.view.behind(job.task.job), self._set.bf_max_job_array_resv - 1)):
            tests += 1
            if not cycle.plan.make_room(job, may_hold, gone, barred):
                break
        return tests

    def _may_hold(self, view: ClusterView, job: PendingJob, nodes: list[int], *, planned: bool = False) -> bool:
        """Return True if a job's limits allow it to hold these nodes (in full if it shares none of
        them). Slurm tests this once it has chosen the nodes (acct_policy_job_runnable_post_select
        in acct_policy.c), also if they are only ``planned`` or too few are free.
        """
        if self._is_full_of_nodes(job, nodes, planned=planned):
            return False
        if job.part.exclusive or not job.alone:
            return True
        machines = [view.machines.list[node] for node in nodes]
        amounts = of_nodes(self._rules.amounts(job.task), [machine.node for machine in machines])
        gpu = self._gpu(machines[0].type) if amounts.gpus else ""
        return self._rules.holdings.room(self._rules.holders(job.task.job, job.part, gpu), amounts)[0] > 0

    def _is_over_nodes(self, job: PendingJob) -> bool:
        """Return True if a job that does not fit now asks for more nodes than its limits allow, so that
        it waits for the limits instead (``select_nodes``).
        """
        task = job.task
        wanted = (task.demand.gang or 1) if self._rules.spread(task.job) else 1
        return self._is_full_of_nodes(job, range(wanted), planned=True)

    def _is_full_of_nodes(self, job: PendingJob, nodes: Collection[int], *, planned: bool) -> bool:
        """Return True if a limit on different nodes forbids a start on ``nodes``."""
        task, holdings = job.task, self._rules.holdings
        if not holdings.most_nodes:
            return False
        terms, holders = task.demand.terms, self._rules.holders(task.job, job.part)
        named = [] if terms is None else list(bits(terms.named))
        return holdings.full_of_nodes(holders, nodes, named if planned else None) is not None

    def _room_on(self, task: TaskState, part: NodePartition, type_: int) -> float:
        """Return the number of starts on a GPU type that the limits allow."""
        holdings = self._rules.holdings
        return holdings.room(*self._rules.claim(task, part, self._gpu(type_)))[0] if holdings.limits_types else inf

    def _fit_beside(
        self, view: ClusterView, task: TaskState, part: NodePartition, plan: NodePlan, room: float
    ) -> Placement | None:
        """Return a placement for a start now that delays no reservation."""
        if not room:
            return None

        def placed(nodes: int, types: tuple[int, ...]) -> Placement | None:
            end_s = view.now + self._longest_s(task, types)
            return self._on(view, task, part, nodes & ~plan.kept(view.now, end_s, closed=self._ties, of=nodes), room)

        return self._first(task, lambda types: self._roomy_nodes(view, task, part, types), placed)

    def _roomy_nodes(self, view: ClusterView, task: TaskState, part: NodePartition, types: tuple[int, ...]) -> int:
        """Return the usable nodes with these types on which an instance fits; the result is cached
        until a run starts.
        """
        nodes, alone, barred = 0, self._rules.alone(task.job, part), self._barred(task)
        for type_ in self._allowed(task, part, types):
            key = task.demand, part.name, alone, type_, barred
            roomy = self._roomy.get(key)
            if roomy is None:
                roomy, machines = 0, view.machines.list
                for node in bits(view.machines.candidate_set(task.demand, type_) & self._usable(task, part)):
                    roomy |= machines[node].bit if machines[node].room(task.demand) else 0
                self._roomy[key] = roomy
            nodes |= roomy
        return nodes

    def _allowed(self, task: TaskState, part: NodePartition, types: tuple[int, ...]) -> tuple[int, ...]:
        """Return the types on which GPU limits still allow a start."""
        if not task.demand.demand.gpus or not self._rules.holdings.limits_types:
            return types
        return tuple([type_ for type_ in types if self._room_on(task, part, type_)])

    def _questions(self, task: TaskState, part: NodePartition) -> tuple[tuple[float, tuple[int, ...]], ...]:
        """Return the starts for which a task may reserve nodes: for each time limit, the groups of
        nodes on which that limit applies.
        """
        of_part = self._rules.nodes[part.name]
        groups = [(self._longest_s(task, group.types), of_part & group.nodes) for group in self._rules.groups(task)]
        # one search serves all groups
        if not task.demand.gang and all(limit_s == groups[0][0] for limit_s, _ in groups):
            return ((float(groups[0][0]), tuple([nodes for _, nodes in groups])),)
        return tuple([(float(limit_s), (nodes,)) for limit_s, nodes in groups])

    def _fit(
        self, view: ClusterView, task: TaskState, part: NodePartition, nodes: int, room: float
    ) -> Placement | None:
        """Return a placement on ``nodes`` for the whole task, or for ``room`` independent instances."""
        if not nodes or not may_fit(view.machines, task.demand):
            return None
        usable, machines = nodes & self._usable(task, part), view.machines

        def candidates(types: tuple[int, ...]) -> int:
            nodes = 0
            for type_ in self._allowed(task, part, types):
                nodes |= machines.candidate_set(task.demand, type_)
            return usable & nodes

        return self._first(task, candidates, lambda open_, _: self._on(view, task, part, open_, room))

    def _first(
        self,
        task: TaskState,
        candidates: Callable[[tuple[int, ...]], int],
        placed: Callable[[int, tuple[int, ...]], Placement | None],
    ) -> Placement | None:
        """Compare the groups of nodes that the task may combine, and return the placement whose first
        node comes first. ``candidates`` returns the nodes with the given types, and ``placed`` a
        placement on them.
        """
        best: Placement | None = None
        for group in self._rules.groups(task):
            nodes = candidates(group.types) & group.nodes
            placement = placed(nodes, group.types) if nodes else None
            if placement is not None and (best is None or placement[0].node < best[0].node):
                best = placement
        return best

    def _longest_s(self, task: TaskState, types: tuple[int, ...]) -> float:
        """Return the task's longest time limit on these types."""
        limit_s = self._rules.limit_s
        return limit_s(task, types[0]) if len(types) == 1 else max([limit_s(task, type_) for type_ in types])

    def _usable(self, task: TaskState, part: NodePartition) -> int:
        """Return the nodes in a partition that the task may use, shared or exclusively."""
        nodes = self._rules.nodes[part.name] & ~self._whole
        if self._rules.alone(task.job, part):
            nodes &= ~sum(1 << node for node in self._count)
        return nodes & ~self._barred(task)

    def _barred(self, task: TaskState) -> int:
        """Return the nodes that the task cannot use because of other users: nodes that those users
        hold exclusively, or all nodes that they use if the task's user shares none.
        """
        if not (self._owned or self._rules.by_user(task.job)):
            return 0
        user, whole = user_of(task.job), self._rules.by_user(task.job)
        others = [node for node, users in (self._users if whole else self._owned).items() if {*users} - {user}]
        return sum(
            [1 << node for node in {*others, *[node for node, users in self._owned.items() if user not in users]}]
        )

    def _on(self, view: ClusterView, task: TaskState, part: NodePartition, nodes: int, room: float) -> Placement | None:
        demand, machines = task.demand, view.machines.list
        # for most jobs, the first node that fits is enough, so not all nodes need to be examined
        if self._set.place == "first" and not (demand.gang or part.spreads):
            for node in chain(*map(bits, view.machines.awake_first(nodes))):
                if count := machines[node].room(demand):
                    return (Share(node, int(min(count, task.waiting, room))),)
            return None
        rooms = {node: count for node in bits(nodes) if (count := machines[node].room(demand))}
        open_ = sum([1 << node for node in rooms])
        free = {node: _usable_cpus(machines[node], demand) for node in rooms}
        spread = self._rules.spread(task.job)
        if demand.gang:
            shares = self._rules.shares(task)
            choose = partial(self._choice.placement, spread=spread, shares=shares, idlest=part.spreads)
            placement = choose(open_, rooms, free, demand.gang)
            most = part.job_limits.nodes
            if placement is not None and most is not None and len(placement) > most:
                largest = sorted(rooms, key=lambda node: (-rooms[node], node))[: int(most)]
                placement = choose(sum([1 << node for node in largest]), rooms, free, demand.gang)
            return placement
        chosen = self._choice.nodes(open_, rooms, free, 1, spread=True, idlest=part.spreads)
        if not chosen:
            return None
        node = chosen.bit_length() - 1
        return (Share(node, int(min(rooms[node], task.waiting, room))),)

    # Stopping.

    def _make_way(self, view: ClusterView, task: TaskState, part: NodePartition, nodes: int) -> Iterator[Decision]:
        """Stop the runs that prevent the task from fitting on ``nodes``. The mode of the run's
        partition or QOS sets how a run is stopped, and it is stopped once its grace time is over.
        While runs chosen earlier for this task are still ending, no others are chosen
        (``preempt_in_progress``).
        """
        if self._leaving_for(task):
            return
        modes = {run: mode for run in self._preemptable if (mode := self._mode(view, run, task, part)) != "off"}
        killed: set[int] = set()
        chosen = self._victims(view, task, part, nodes, sorted(modes, key=self._worth)) if modes else []
        for run in chosen:
            if run not in self._runs:  # its job was killed together with another run
                continue
            job, grace_s = self._runs[run].job, self._grace_s(run)
            if grace_s > 0:
                self._ending[run] = min(view.now + grace_s, self._runs[run].limit_ends_s), modes[run]
                self._table.move(view.running[run], self._ending[run][0])
                self._changed = True
            elif modes[run] == "cancel" and job not in killed:
                killed.add(job)
                yield Kill(job, RejectReason.CANCELLED)
            elif modes[run] != "cancel":
                self._no_delay = modes[run] == "suspend"
                yield Preempt(run)
                self._no_delay = False
        if chosen:
            self._leaving[task.order, task.piece] = tuple(chosen)

    def _leaving_for(self, task: TaskState) -> frozenset[int]:
        """Return the runs that are ending because they were preempted for the task."""
        return frozenset([run for run in self._leaving.get((task.order, task.piece), ()) if run in self._runs])

    def _stoppable(
        self, view: ClusterView, task: TaskState, part: NodePartition, known: dict[tuple[str, str], frozenset[int]]
    ) -> frozenset[int]:
        """Return the runs that the task may stop in a partition, except those that would be suspended."""
        key = self._rules.quality(task.job).name, part.name
        if key not in known:
            modes = {run: self._mode(view, run, task, part) for run in self._preemptable}
            known[key] = frozenset([run for run, mode in modes.items() if mode in ("requeue", "cancel")])
        return known[key]

    def _victims(
        self, view: ClusterView, task: TaskState, part: NodePartition, nodes: int, candidates: list[int]
    ) -> list[int]:
        """Return the runs whose end would let the task start on ``nodes``, taken from ``candidates``
        in order; none if even all of them do not suffice. As in ``_run_now`` (job_test.c), the last
        run that was needed is then moved to the front and the search is repeated, and only runs on
        the chosen nodes are stopped.
        """
        for again in (True, False):
            freed, rest = FreedNodes(view), list(candidates)
            gone: set[int] = set()
            for place, run in enumerate(rest):
                gone.add(run)
                freed.without(view.running[run])
                if not any(nodes >> node & 1 for node in view.running[run].nodes):
                    continue
                chosen = self._chosen_without(view, task, part, nodes, freed, gone)
                if not chosen:
                    continue
                needed = [one for one in rest[: place + 1] if any(chosen >> node & 1 for node in self._runs[one].nodes)]
                if not again or len(needed) < 2:
                    return needed
                candidates = [run, *[one for one in rest if one != run]]
                break
            else:
                return []
        return []

    def _chosen_without(
        self, view: ClusterView, task: TaskState, part: NodePartition, nodes: int, freed: FreedNodes, gone: set[int]
    ) -> int:
        """Return the nodes on which the task would start if the runs ``gone`` had ended, or 0 if it
        would still not fit.
        """
        demand, rules, machines = task.demand, self._rules, view.machines.list
        alone = rules.alone(task.job, part)
        for group in rules.groups(task):
            room: dict[int, int] = {}
            free: dict[int, int] = {}
            for node in bits(nodes & group.nodes & demand.nodes & ~self._barred(task)):
                machine = machines[node]
                if not machine.up or ((alone or self._whole >> node & 1) and self._count.get(node, 0)):
                    held = [run for run in self._table.ids[node] if run not in gone]
                    if held or not machine.up:
                        continue
                if count := freed.room(node, demand):
                    room[node], free[node] = count, _usable_cpus(freed.node(node), demand)
            open_ = sum([1 << node for node in room])
            spread = rules.spread(task.job) or not demand.gang
            wanted, shares = demand.gang or 1, rules.shares(task)
            if chosen := self._choice.nodes(open_, room, free, wanted, spread=spread, shares=shares):
                return chosen
        return 0

    def _grace_s(self, run: int) -> float:
        """Return for how long a run continues after it has been selected for preemption."""
        kept, rules = self._runs[run], self._rules
        if self._set.preempt == "qos":
            return rules.qos[kept.qos].grace_s
        return rules.partitions[kept.partition].grace_s

    def _end_graced(self, view: ClusterView) -> Iterator[Decision]:
        """Stop the runs whose grace time is over."""
        for run in [run for run, (until_s, _) in self._ending.items() if until_s <= view.now + _LATE_S]:
            _, mode = self._ending.pop(run)
            if run not in self._runs:
                continue
            if mode == "cancel":
                yield Kill(self._runs[run].job, RejectReason.CANCELLED)
            else:
                yield Preempt(run)

    def _mode(self, view: ClusterView, run: int, task: TaskState, part: NodePartition) -> str:
        """Return how a run may be stopped for the task."""
        kept, rules = self._runs[run], self._rules
        if run in self._ending:
            return "off"
        if self._set.preempt == "qos":
            quality = rules.qos[kept.qos]
            mode = quality.preempt if kept.qos in rules.quality(task.job).preempts else "off"
        else:
            other = rules.partitions[kept.partition]
            mode = other.preempt if other.tier < part.tier else "off"
        latest_s = self._latest.get(kept.job, kept.started_s) if mode == "cancel" else kept.started_s
        inside = any(rules.nodes[part.name] >> node & 1 for node in kept.nodes)
        return mode if inside and latest_s < view.now else "off"

    def _worth(self, run: int) -> tuple[float, float, int]:
        """Return a run's sort key for preemption: runs with the lowest priority of their QOS or tier
        come first, then runs on the fewest nodes.
        """
        kept, rules = self._runs[run], self._rules
        qos = self._set.preempt == "qos"
        rank = rules.qos[kept.qos].priority if qos else rules.partitions[kept.partition].tier
        return rank, len(kept.nodes), run

    def _kill_late(self, view: ClusterView) -> Iterator[Decision]:
        """End jobs that have exceeded their time limit."""
        while self._deadlines and self._deadlines[0][0] <= view.now + _LATE_S:
            due_s, run, paused_s = heappop(self._deadlines)
            kept = self._runs.get(run)
            if kept is None:
                continue
            held = view.running[run]
            if held.suspended_since_s is not None or held.suspended_s > paused_s:
                since_s = held.suspended_since_s
                later_s = held.suspended_s - paused_s + (0.0 if since_s is None else max(1.0, view.now - since_s))
                heappush(self._deadlines, (due_s + later_s, run, held.suspended_s))
                continue
            # another task of the same job has just started
            if self._latest.get(kept.job, -inf) >= view.now:
                heappush(self._deadlines, (view.now + 1.0, run, held.suspended_s))
                return
            yield Kill(kept.job, RejectReason.TIME_LIMIT)
