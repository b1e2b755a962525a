"""The priorities of pending jobs, from the settings and queues of a Slurm site."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from dagsim.families.slurm.scheduler.holdings import UsageBefore
from dagsim.families.slurm.scheduler.pending_jobs import PendingJob, PendingJobs
from dagsim.families.slurm.scheduler.priority_formulas import decay_per_second
from dagsim.families.slurm.scheduler.slurm_preemption import SlurmPreemption
from dagsim.families.slurm.scheduler.slurm_priority import Asked, Capacity, PriorityBook, RankColumns
from dagsim.families.slurm.scheduler.slurm_rules import SlurmRules, account_of, magnets, reserved_in, user_of
from dagsim.families.slurm.scheduler.slurm_settings import SlurmSettings
from dagsim.model import NodePartition, QueueTree
from dagsim.model.arithmetic import ordered_sum
from dagsim.systems.cluster.api import ClusterView, TaskState

_RESERVED = 1 << 20
"""Added to the tier of jobs in reservations, which are sorted before all other jobs
(sort_job_queue2)."""


class JobPriorities:
    """The usage of accounts at a site, the priorities computed from it, and the entries of pending
    jobs in order of priority. The object can be deep-copied."""

    def __init__(
        self,
        view: ClusterView,
        settings: SlurmSettings,
        rules: SlurmRules,
        preemption: SlurmPreemption,
        usage: UsageBefore,
    ) -> None:
        nodes, site = view.cluster.nodes, view.machines.site
        totals = [ordered_sum(getattr(node, name) for node in nodes) for name in ("cpus", "memory_gb", "gpus")]
        self._settings, self._rules, self._preemption = settings, rules, preemption
        self._formula = settings.priorities()
        origin_s = settings.origin_s(0.0 if site is None else float(site.origin_s))
        capacity = Capacity(len(nodes), *totals)
        self.book = PriorityBook(self._formula, view.queues or QueueTree(), capacity, origin_s)
        self.book.remember(usage.billed)
        rules.remember(usage.resources)
        self._magnets = {} if site is None else site.magnetic_nodes()
        self.ranks = RankColumns()
        self.now = inf
        """Time of the current decision."""
        self._rounds = 0
        """Number of calculations up to the one by which the pending jobs are sorted."""
        self._found: dict[tuple[int, int], float] = {}
        """For each job that takes whole nodes, by order and piece: the CPUs of the nodes that backfill
        last found for it."""

    @property
    def are_used(self) -> bool:
        """False if jobs are sorted only by submission (priority/basic)."""
        return self._settings.order != "basic"

    @property
    def are_stale(self) -> bool:
        """True if priorities were calculated after the pending jobs were last sorted."""
        return self.book.rounds != self._rounds and self.are_used

    @property
    def decay(self) -> float:
        """The factor by which past usage decays per second."""
        return decay_per_second(self._formula.half_life_s)

    def sort(self, pending: PendingJobs) -> None:
        """Sort the pending jobs by their priorities at the last calculation."""
        self._rounds = self.book.rounds
        pending.rank_anew(self.book, self.book.calculated_s)

    def calculate(self, now: float) -> None:
        """Calculate usage up to ``now``. Budgets are charged once per period (the decay thread in
        priority_multifactor.c), before the runs of the next period begin or end.
        """
        holdings, period_s = self._rules.holdings, self._formula.calc_period_s
        while holdings.budgets and self.book.calculated_s + period_s <= now:
            self.book.calculate(self.book.calculated_s + period_s)
            holdings.charge(self.book.calculated_s, self.decay)
        self.book.calculate(now)

    def entries(self, task: TaskState) -> list[PendingJob]:
        """Return the task's entries in the list of pending jobs, one for each partition in which it
        may run. Partitions that refuse the job's account are included. For each magnetic
        reservation that attracts the job, there is one more entry per partition
        (``job_resv_append_magnetic``). Compute the task's priority in each partition in which it
        has none yet."""
        jobs, rules, types = [], self._rules, task.demand.types
        gpu = rules.gpu_names[types[0]] if len(types) == 1 and task.demand.demand.gpus else ""
        for place, part in enumerate(rules.parts(task.job)):
            refused = bool(rules.refusal(task.job.job, part))
            if len(list(rules.barred(task, part))) > refused:
                continue
            whole_cpus, job = self._entry(task, place, part, gpu, refused=refused)
            jobs += [job, *self._attracted(job, whole_cpus)]
        return jobs

    def _entry(
        self, task: TaskState, place: int, part: NodePartition, gpu: str, *, refused: bool
    ) -> tuple[float | None, PendingJob]:
        """Return the entry of a task in a partition. Also return the CPUs on which its priority is
        based if it takes whole nodes, or None.
        """
        rules = self._rules
        (holders, amounts), alone = rules.claim(task, part, gpu), rules.alone(task.job, part)
        # backfill has examined the job if it has been waiting for a whole cycle, or if its array was
        # queued while the task waited for other tasks
        waited = self.now - self.eligible_s(task) > self._settings.backfill_period_s or task.job.queued_s is not None
        whole_cpus = amounts.cpus if alone and waited else None
        tier = part.tier + (_RESERVED if reserved_in(task) >= 0 else 0)
        slot = self._slot(task, place, part, tier, whole_cpus) if self.are_used else -1
        return whole_cpus, PendingJob(
            tier=tier,
            order=task.order,
            piece=task.piece,
            slot=slot,
            task=task,
            place=place,
            part=part,
            holders=holders,
            amounts=amounts,
            alone=alone,
            layout=rules.layout(task, part),
            span=rules.nodes[part.name],
            asked=rules.questions(task, part),
            counts=rules.counts(task),
            refused=refused,
            quality=rules.quality(task.job) if self._settings.preempt == "qos" else None,
            reservation=reserved_in(task),
        )

    def _attracted(self, job: PendingJob, whole_cpus: float | None) -> Iterator[PendingJob]:
        """Yield the entries of a job in the magnetic reservations that attract it, except those with
        too few nodes (``_job_runnable_test3`` in job_scheduler.c).
        """
        task, rules, tier = job.task, self._rules, job.tier + _RESERVED
        for further, number in enumerate(magnets(task), 1):
            if (self._magnets.get(number, 0) & job.span).bit_count() < rules.fewest_nodes(task):
                continue
            place = job.place + further * len(rules.parts(task.job))
            slot = self._slot(task, place, job.part, tier, whole_cpus) if self.are_used else -1
            yield job._replace(tier=tier, slot=slot, place=place, reservation=number, attracted=True)

    def drop(self, task: TaskState) -> None:
        """Drop the priorities of a task that no longer waits."""
        self._found.pop((task.order, task.piece), None)
        for place in range(len(self._rules.parts(task.job)) * (1 + len(magnets(task)))):
            self.ranks.drop((task.order, task.piece, place))

    def found(self, job: PendingJob, cpus: float, *, anew: bool = True) -> None:
        """From the next calculation on, base the priority of a job that takes whole nodes on the
        CPUs of the nodes that backfill has found for it. Until then, it is based on the CPUs that
        the job requests (``total_cpus`` in ``set_priority_factors`` and in ``_job_test`` of
        cons_common). Without ``anew``, keep the number that an earlier cycle found."""
        key, parts = (job.order, job.piece), self._rules.parts(job.task.job)
        if not self.are_used or self._found.get(key) == cpus or (key in self._found and not anew):
            return
        self._found[key] = cpus
        for place in range(len(parts) * (1 + len(magnets(job.task)))):
            slot = self.ranks.slot((*key, place))
            if slot >= 0:
                asked = self.asked(job.task, parts[place % len(parts)], job.task.demand.gang or 1)
                self.ranks.fix(slot, self.book.fixed(asked._replace(cpus=cpus)))

    def eligible_s(self, task: TaskState) -> float:
        """Return the time from which a task may start. A requeued task first waits ``requeue_delay_s``."""
        delayed = task.piece and not self._preemption.suspending
        return task.ready_s + (self._settings.requeue_delay_s if delayed else 0.0)

    def asked(self, task: TaskState, part: NodePartition, instances: int) -> Asked:
        """Return what ``instances`` of a task request in a partition, in the form that the priority
        formula needs."""
        job, (gpus, cpus, memory_gb, _) = task.job.job, task.demand.demand
        return Asked(
            user=self.book.user(account_of(task.job), user_of(task.job), self.now),
            partition=part.name,
            qos=job.qos,
            submit_s=job.arrival_s,
            eligible_s=self.eligible_s(task) if task.job.queued_s is None else task.job.queued_s,
            nodes=self._rules.fewest_nodes(task)
            if job.request is not None and job.request.spread is False
            else instances,
            cpus=cpus * instances,
            memory_gb=memory_gb * instances,
            gpus=gpus * instances,
            limit_s=self._rules.limit_s(task, task.demand.types[0]),
            nice=-job.priority,
        )

    def parts(self, task: TaskState, part: NodePartition) -> dict[str, float]:
        """Return the terms of a task's priority in a partition, under the names that ``sprio``
        uses."""
        if not self.are_used:
            return {}
        asked = self.asked(task, part, task.demand.gang or 1)
        factors, weights = self.book.factors(asked, self.now), self._formula.weights
        whole = self.book.capacity.amounts()
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

    def _slot(self, task: TaskState, place: int, part: NodePartition, tier: int, found: float | None) -> int:
        """Return the slot that holds a task's priority in a partition. If there is none yet,
        compute the priority. If backfill has already ``found`` whole nodes for the job, the
        priority counts their CPUs.
        """
        key = (task.order, task.piece, place)
        slot = self.ranks.slot(key)
        if slot < 0:
            asked = self.asked(task, part, task.demand.gang or 1)
            asked = asked if found is None else asked._replace(cpus=found)
            fixed = self.book.fixed(asked)
            slot = self.ranks.add(key, tier, fixed, self.book.since_s(asked), asked.user)
            at_s = max(min(self.now, self.eligible_s(task)), self.book.calculated_s)
            # a task whose array was evaluated earlier gets its priority as of the last calculation
            at_s = at_s if task.job.queued_s is None else self.book.calculated_s
            self.ranks.note(slot, self.book.priority(fixed, asked, at_s), self.book.rounds)
        return slot
