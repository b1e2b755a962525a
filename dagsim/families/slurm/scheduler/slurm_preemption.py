"""Slurm's preemption: which runs a pending job may stop, how each run is stopped, and when."""

from __future__ import annotations

from collections.abc import Iterator

from dagsim.families.slurm.scheduler.job_placing import JobPlacing, usable_cpus
from dagsim.families.slurm.scheduler.pending_jobs import PendingJob
from dagsim.families.slurm.scheduler.running_jobs import LATE_S, RunningJobs
from dagsim.families.slurm.scheduler.slurm_rules import SlurmRules
from dagsim.model import Decision, Kill, NodePartition, Preempt, Qos, RejectReason
from dagsim.model.arithmetic import bits
from dagsim.systems.cluster.api import ClusterView, Run, TaskState
from dagsim.systems.cluster.policies.preemption import FreedNodes


class SlurmPreemption:
    """The runs that may be preempted, and the runs that have been selected for preemption. ``by``
    is Slurm's PreemptType: ``off``, ``partition_prio`` or ``qos``. The object can be deep-copied.
    """

    def __init__(self, by: str, rules: SlurmRules, running: RunningJobs, placing: JobPlacing) -> None:
        self.is_on = by != "off"
        self.suspending = False
        """True while a run is being suspended, so that its task may continue without delay."""
        self._by_qos, self._rules, self._running, self._placing = by == "qos", rules, running, placing
        self._preemptable: dict[int, None] = {}
        self._ending: dict[int, tuple[float, str]] = {}
        """Until when each run may go on that has been chosen to be preempted, and how it is stopped then."""
        self._leaving: dict[tuple[int, int], tuple[int, ...]] = {}
        """The runs that leave for a task, by its order and piece."""

    @property
    def possible(self) -> bool:
        """True if some run may be preempted."""
        return self.is_on and bool(self._preemptable)

    def started(self, run: Run, part: NodePartition, qos: Qos) -> None:
        """Add a run with the partition and the QOS whose rules it follows."""
        if part.preempt != "off" or qos.preempt != "off":
            self._preemptable[run.id] = None
        self._leaving.pop((run.task.order, run.task.piece), None)

    def ended(self, run: Run) -> None:
        """Record that a run has ended."""
        self._preemptable.pop(run.id, None)
        self._ending.pop(run.id, None)

    def ends_s(self) -> list[float]:
        """Return the times at which the grace times of preempted runs expire."""
        return [until_s for until_s, _ in self._ending.values()]

    def make_way(self, view: ClusterView, job: PendingJob, nodes: int) -> Iterator[Decision]:
        """Stop runs so that the job fits on ``nodes``. The mode of a run's partition or QOS decides
        how the run is stopped. The run is stopped when its grace time ends. As long as runs chosen
        earlier for this job have not ended, no further runs are chosen (``preempt_in_progress``).
        """
        task, running = job.task, self._running
        if self.leaving_for(task):
            return
        modes = {run: mode for run in self._preemptable if (mode := self._mode(view, run, job)) != "off"}
        killed: set[int] = set()
        chosen = self._victims(view, job, nodes, sorted(modes, key=self._worth)) if modes else []
        for run in chosen:
            if run not in running.facts:  # the run has already ended, because its job was killed with another run
                continue
            number, grace_s = running.facts[run].job, self._grace_s(run)
            if grace_s > 0:
                until_s = min(view.now + grace_s, running.facts[run].limit_ends_s)
                self._ending[run] = until_s, modes[run]
                running.end_by(view.running[run], until_s)
            elif modes[run] == "cancel" and number not in killed:
                killed.add(number)
                yield Kill(number, RejectReason.CANCELLED)
            elif modes[run] != "cancel":
                self.suspending = modes[run] == "suspend"
                yield Preempt(run)
                self.suspending = False
        if chosen:
            self._leaving[task.order, task.piece] = tuple(chosen)

    def leaving_for(self, task: TaskState) -> frozenset[int]:
        """Return the runs that were preempted for the task and have not ended yet."""
        leaving = self._leaving.get((task.order, task.piece), ())
        return frozenset([run for run in leaving if run in self._running.facts])

    def stoppable(self, view: ClusterView, job: PendingJob) -> frozenset[int]:
        """Return the runs that the job may stop in its partition, except runs that would only be
        suspended."""
        modes = {run: self._mode(view, run, job) for run in self._preemptable}
        return frozenset([run for run, mode in modes.items() if mode in ("requeue", "cancel")])

    def end_graced(self, view: ClusterView) -> Iterator[Decision]:
        """Stop the runs whose grace time has ended."""
        for run in [run for run, (until_s, _) in self._ending.items() if until_s <= view.now + LATE_S]:
            _, mode = self._ending.pop(run)
            if run not in self._running.facts:
                continue
            if mode == "cancel":
                yield Kill(self._running.facts[run].job, RejectReason.CANCELLED)
            else:
                yield Preempt(run)

    def _victims(self, view: ClusterView, job: PendingJob, nodes: int, candidates: list[int]) -> list[int]:
        """Choose runs from ``candidates``, in order, until the job would fit on ``nodes`` if they
        ended. Return none if even all candidates are not enough. As in ``_run_now`` (job_test.c),
        the last run of this choice is then moved to the front and the search is repeated. Of the
        result, only runs on the chosen nodes are stopped.
        """
        facts = self._running.facts
        for again in (True, False):
            freed, rest = FreedNodes(view), list(candidates)
            gone: set[int] = set()
            for place, run in enumerate(rest):
                gone.add(run)
                freed.without(view.running[run])
                if not any(nodes >> node & 1 for node in view.running[run].nodes):
                    continue
                chosen = self._chosen_without(view, job, nodes, freed, gone)
                if not chosen:
                    continue
                needed = [one for one in rest[: place + 1] if any(chosen >> node & 1 for node in facts[one].nodes)]
                if not again or len(needed) < 2:
                    return needed
                candidates = [run, *[one for one in rest if one != run]]
                break
            else:
                return []
        return []

    def _chosen_without(self, view: ClusterView, job: PendingJob, nodes: int, freed: FreedNodes, gone: set[int]) -> int:
        """Return the nodes on which the job would start if the runs ``gone`` ended, or 0 if it
        would still not fit.
        """
        task, demand, machines = job.task, job.task.demand, view.machines.list
        users, placing = self._running.users, self._placing
        for group in self._rules.groups(task):
            room: dict[int, int] = {}
            free: dict[int, int] = {}
            for node in bits(nodes & group.nodes & demand.nodes & ~placing.barred(task)):
                machine = machines[node]
                if not machine.up or ((job.alone or users.whole >> node & 1) and users.runs.get(node, 0)):
                    held = [run for run in self._running.table.ids[node] if run not in gone]
                    if held or not machine.up:
                        continue
                if count := freed.room(node, demand):
                    room[node], free[node] = count, usable_cpus(freed.node(node), demand)
            open_ = sum([1 << node for node in room])
            layout = job.layout if demand.gang else job.layout._replace(spread=True)
            if chosen := placing.choice.nodes(open_, room, free, demand.gang or 1, layout):
                return chosen
        return 0

    def _grace_s(self, run: int) -> float:
        """Return how long a run may continue after it has been selected for preemption."""
        kept, rules = self._running.facts[run], self._rules
        return rules.qos[kept.qos].grace_s if self._by_qos else rules.partitions[kept.partition].grace_s

    def _mode(self, view: ClusterView, run: int, job: PendingJob) -> str:
        """Return in which way the job may stop a run."""
        kept, rules, part = self._running.facts[run], self._rules, job.part
        if run in self._ending:
            return "off"
        if self._by_qos:
            quality = rules.qos[kept.qos]
            mode = quality.preempt if kept.qos in rules.quality(job.task.job).preempts else "off"
        else:
            other = rules.partitions[kept.partition]
            mode = other.preempt if other.tier < part.tier else "off"
        latest_s = self._running.latest_s.get(kept.job, kept.started_s) if mode == "cancel" else kept.started_s
        inside = any(rules.nodes[part.name] >> node & 1 for node in kept.nodes)
        return mode if inside and latest_s < view.now else "off"

    def _worth(self, run: int) -> tuple[float, float, int]:
        """Return the key by which runs are sorted for preemption. Runs with the lowest priority (of
        their QOS or tier) come first, and among those the runs on the fewest nodes.
        """
        kept, rules = self._running.facts[run], self._rules
        rank = rules.qos[kept.qos].priority if self._by_qos else rules.partitions[kept.partition].tier
        return rank, len(kept.nodes), run
