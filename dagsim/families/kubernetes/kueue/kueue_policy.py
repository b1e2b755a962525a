"""Kueue as a policy in simulated time: the engine admits workloads, and their pods are then placed
on nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import inf

from dagsim.errors import require
from dagsim.families.kubernetes.kube.kube_default import NodeScorer
from dagsim.families.kubernetes.kueue.engine import Admission, EndlessPreemption
from dagsim.families.kubernetes.kueue.kueue_objects import KueueObjects, PodSetAssignment, Workload
from dagsim.families.kubernetes.kueue.offers import Carried, Site
from dagsim.families.kubernetes.kueue.quota_waits import KueueWaits, Rehearsal
from dagsim.families.kubernetes.kueue.workload_ledger import ReadyTasks, TaskPlace, WorkloadLedger, place_of
from dagsim.model import Decision, Job, Kill, Placement, Preempt, RejectReason, Share, Start, Wait
from dagsim.model.arithmetic import whole_sum
from dagsim.systems.cluster.api import ClusterView, NextStep, Run, Standing, TaskState


def rules_of_site(view: ClusterView) -> KueueWaits | None:
    """Return the quotas of a site, or None if the site has none."""
    return KueueWaits(view, Site(view)) if view.queues is not None and view.queues.has_quota else None


class Kueue:
    """Admission by quota, as in Kueue v0.17 (docs/kubernetes.md): one head of each ClusterQueue per
    scheduling cycle, borrowing and lending in cohorts, flavors, classic preemption or fair sharing.
    The objects are those in ``queues.kueue``. With ``queues.tree``, each leaf becomes a
    ClusterQueue and each node above it a cohort; the flavors are the GPU types. A job belongs to
    the queue named by its partition, account or tenant, or else to the first queue.

    A gang is one workload, and so is each instance that is not part of a gang. An admitted workload
    holds its quota, and it starts as soon as it fits on nodes. Without a topology, nodes are chosen
    as the default scheduler would choose them with the strategy ``scoring`` and the weights
    ``cpu``, ``memory`` and ``gpu``. Preempted workloads keep their positions in the queue.
    Workloads that were set aside return to their queue ``requeue_s`` seconds after quota is
    released (1 s in Kueue). Admission checks take ``checks_s`` seconds.

    The policy uses no estimates; it is preemptive if a queue is configured to be. A cycle costs
    O(queues), and a search for targets costs O(running log running); as long as nothing changes,
    heads of the same shape share one search.
    """

    forgets = "which workloads the scheduler had set aside"
    decides_at_once = True
    """True: for a snapshot, the policy makes the decisions that Kueue would make next."""

    def __init__(
        self, scoring: str = "least", cpu: float = 1.0, memory: float = 1.0, gpu: float = 0.0, requeue_s: float = 0.0,
        checks_s: float = 0.0,
    ) -> None:  # fmt: skip
        for name, seconds in (("requeue_s", requeue_s), ("checks_s", checks_s)):
            require(0 <= seconds < inf, f"{name} must be 0 or more", seconds)
        self._scorer = NodeScorer(scoring, cpu, memory, gpu)
        self.requeue_s, self.checks_s = requeue_s, checks_s
        self.notes: list[str] = []
        """Facts that are printed above the results."""
        self._now = inf
        self._exact = False
        """True if Kueue's messages are wanted."""

    def wait_rules(self, view: ClusterView) -> KueueWaits:
        """Return the quotas of the queues, from which waits are explained."""
        return KueueWaits(view, Site(view))

    def outlook(self, view: ClusterView) -> tuple[KueueWaits, list[Standing]]:
        """Return the quotas with their current usage, and the waiting workloads of each
        ClusterQueue in order. Each workload comes with its outcome in the next cycles. No decisions
        are made."""
        self._now, self._exact = view.now, True
        self._set_up(view)
        view.follow(self)
        tasks = view.index((ReadyTasks, self), ReadyTasks)
        self._welcome(tasks)
        self._keep_refused(view)
        rules = self.wait_rules(view)
        for run in view.running.values():
            rules.started(run.id, run.task, run.instances, run.type)
        lines = {
            name: [one.name for one in (*pending.in_order(), *pending.aside.values())]
            for name, pending in self._admission.pending.items()
        }
        rehearsal = Rehearsal(self._admission, view.now, self._ledger.runs)
        standings = []
        there: set[TaskPlace] = set()
        for bit, (queue, names) in enumerate(lines.items()):
            for number, name in enumerate(names):
                if name in self._ledger.refused:
                    refused = self._ledger.refused[name]
                    outcome = rehearsal.outcome(name, rules.never(refused))
                    standings.append(Standing(refused, queue, -number, refused.job.job.priority, {}, 0, outcome))
                    continue
                for place in self._ledger.places[name]:
                    task = tasks.ready.get(place)
                    if task is not None:
                        there.add(place)
                        priority = float(task.job.job.priority)
                        parts = {"priority": priority} if priority else {}
                        if not self._site.exact:
                            standings.append(Standing(task, queue, 0, priority, parts, rules.nodes(task)))
                            continue
                        # The priority alone does not determine the order, because past usage may
                        # take precedence over it and queues that share quotas have no common order.
                        # A trial run of the engine therefore shows which workload would start.
                        outcome = rehearsal.outcome(name, rules.never(task))
                        standings.append(Standing(task, queue, -number, priority, parts, 1 << bit, outcome))
        for place, task in tasks.ready.items():
            if place not in there:
                standings.append(self._apart(task, rehearsal))
        return rules, standings

    def _apart(self, task: TaskState, rehearsal: Rehearsal) -> Standing:
        """Return the position of a task that does not wait in any ClusterQueue."""
        carried, name = self._site.workload(task), self._ledger.open.get(place_of(task))
        outcome = None if name is None or not self._site.exact else rehearsal.outcome(name, ())
        if name is None and carried is not None:
            queue = task.job.job.partition
            what = (
                "it is deactivated" if carried.spec is None else f"LocalQueue {queue} or its ClusterQueue doesn't exist"
            )
            outcome = NextStep("Inadmissible", f"waits: {what}", what, outside=True)
        return Standing(task, "", 0, task.job.job.priority, {}, 0, outcome)

    def started(self, run: Run, now: float) -> None:
        """Record that a run has started. If the policy did not start the run, the run has held its
        quota since it started."""
        if run.id in self._ledger.runs:
            return
        place = place_of(run.task)
        name = self._ledger.open.get(place)
        if name is None or self._admission.workloads[name].where != "admitted":
            name = self._in_flight(run)
        else:
            self._ledger.close(place)
        self._ledger.start(name, place, run.id)

    def ended(self, run: Run, now: float) -> None:
        """Record that a run has ended."""
        name = self._ledger.end(run.id, run.job.number)
        self._admission.bring_back(now)
        if name in self._ledger.runs_of:
            return
        workload = self._admission.workloads.get(name)
        if workload is not None and name not in self._ledger.preempted and name not in self._ledger.waiting:
            self._admission.finish(workload, now)

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        now = view.now
        if now < self._now:
            self._set_up(view)
        self._now = now
        view.follow(self)
        tasks = view.index((ReadyTasks, self), ReadyTasks)
        self._admission.bring_back(now)
        self._forget(view)
        self._welcome(tasks)
        self._keep_refused(view)
        stopped = False
        for stop in self._admit(view, tasks):
            stopped = True
            yield stop
        if stopped:
            # start nothing yet: the kernel will call the policy again with the remaining parts of
            # the stopped runs
            return
        yield from self._start(view, tasks)
        until = min(
            [self._admission.next_return(), *(one.from_s for one in self._ledger.waiting.values() if one.from_s > now)]
        )
        if until < inf:
            yield Wait(until)
        elif not view.pending and not view.running and tasks.ready:
            yield from self._give_up(view, tasks)

    def _set_up(self, view: ClusterView) -> None:
        self.notes.clear()
        self._site = Site(view)
        self._admission = self._engine(self._site.objects)
        self._ledger = WorkloadLedger()
        self._number = 0
        """Number of the workloads that were named so far."""

    def _engine(self, objects: KueueObjects) -> Admission:
        """Create the admission engine."""
        return Admission(objects, requeue_s=self.requeue_s, exact=self._exact)

    # The methods below record which tasks belong to which workload.

    def _forget(self, view: ClusterView) -> None:
        """Remove the workloads of jobs that have finished or were stopped."""
        for name, place in self._ledger.take_gone(view.jobs):
            self._leave(name, place)

    def _leave(self, name: str, place: TaskPlace) -> None:
        """Remove a task from a workload. Remove the workload with its last task."""
        if self._ledger.leave(name, place) and (workload := self._admission.workloads.get(name)) is not None:
            self._admission.finish(workload, self._now)

    def _welcome(self, tasks: ReadyTasks) -> None:
        """Submit workloads for tasks that have become ready, and recognise the tasks that were
        preempted."""
        for place in tasks.take_new():
            task = tasks.ready[place]
            if task.waiting <= self._ledger.claimed[place] or place in self._ledger.open:
                continue
            back, old = next(
                ((name, old) for name, olds in self._ledger.preempted.items() for old in olds if old[:2] == place[:2]),
                ("", place),
            )
            if back and (
                back in self._ledger.carried or _pods(task) == self._admission.workloads[back].spec.pod_sets[0].count
            ):
                self._ledger.reassign(back, old, place)
                continue
            if back:  # several instances ran as one workload, but now each waits separately
                self._leave(back, old)
            self._submit(task)

    def _keep_refused(self, view: ClusterView) -> None:
        """Submit the workloads of rejected jobs that no topology of their queue can ever hold.
        Kueue does not reject such workloads. They wait forever, and block a StrictFIFO queue.
        """
        rules = self.wait_rules(view) if view.rejected else None
        for active in view.rejected:
            task = active.tasks[0]
            carried = self._site.workload(task)
            if rules is None or carried is None or carried.spec is None or not any(rules.never(task)):
                continue
            name, queue = self._name_of(carried.spec), self._queue_of(carried, active.job)
            if queue and name not in self._admission.workloads:
                self._ledger.refuse(name, task)
                self._admission.submit(self._spec_of(carried.spec, name, queue, active.job, False))

    def _submit(self, task: TaskState) -> None:
        """Submit a workload for a task: a gang, the next independent instance, or the workload of
        which the task is a pod set.
        """
        job, place, carried = task.job.job, place_of(task), self._site.workload(task)
        if carried is not None:
            queue = self._queue_of(carried, job)
            if carried.spec is None or not queue:
                return  # submit nothing, because Kueue would never admit this workload
            name = self._name_of(carried.spec)
            self._ledger.wait(name, place)
            if name in self._admission.workloads:
                if self._admission.workloads[name].where == "admitted" and name not in self._ledger.preempted:
                    self._ledger.claim(name, [place], self._now + self.checks_s)
                return
            workload = self._admission.submit(
                self._spec_of(carried.spec, name, queue, job, name in self._ledger.carried)
            )
            self._ledger.carry(name)
            if workload.where == "admitted":
                self._ledger.claim(name, [place], self._now + self.checks_s)
            return
        created = self._ledger.first_ready_s(place, task.ready_s)
        name = self._new_name(task)
        pod_set = self._site.pod_set(task, _pods(task))
        self._ledger.wait(name, place)
        self._admission.submit(Workload(name, self._site.queue_of(job), job.priority, created, name, (pod_set,)))

    def _new_name(self, task: TaskState) -> str:
        self._number += 1
        return f"{task.order:020}.{task.piece:06}.{self._number}"

    def _name_of(self, spec: Workload) -> str:
        """Return the name under which a workload from a manifest is submitted."""
        return spec.name

    def _queue_of(self, carried: Carried, job: Job) -> str:
        """Return the LocalQueue of a workload. Return an empty string if there is no such
        LocalQueue, or if the ClusterQueue that admitted the workload does not exist.
        """
        if carried.spec is not None and carried.spec.cluster_queue not in ("", *self._admission.pending):
            return ""
        known = carried.spec is not None and carried.spec.queue in self._site.local_queues
        return carried.spec.queue if known and carried.spec is not None else self._site.stated_queue(job)

    @staticmethod
    def _spec_of(spec: Workload, name: str, queue: str, job: Job, again: bool) -> Workload:
        """Return a workload from a manifest, with its times in simulated time. A workload that is
        submitted ``again`` holds no quota.
        """
        reserved_s = None if spec.reserved_s is None else job.arrival_s + spec.reserved_s - spec.created_s
        spec = replace(
            spec, name=name, queue=queue, priority=job.priority, created_s=job.arrival_s, reserved_s=reserved_s
        )
        return replace(spec, assignments=(), cluster_queue="", reserved_s=None, evicted=False) if again else spec

    def _in_flight(self, run: Run) -> str:
        """Assign quota to a run that was already running when the simulation began."""
        job, task = run.job.job, run.task
        carried = self._site.workload(task)
        if carried is not None and carried.spec is not None:
            name, local = self._name_of(carried.spec), self._queue_of(carried, job)
            if not local:  # no file states the workload's queue, so no queue is charged for its quota
                self._ledger.join(name, place_of(task))
                return name
            if name in self._admission.workloads or carried.spec.assignments:
                self._ledger.join(name, place_of(task))
                if name not in self._admission.workloads:
                    self._admission.submit(self._spec_of(carried.spec, name, local, job, again=False))
                self._ledger.carry(name)
                return name
        queue = self._site.cluster_queue_of(job)
        pod_set = self._site.pod_set(task, run.instances)
        type_ = self._site.type_names[run.type]
        flavors = {name: self._site.flavor_of(queue, name, type_) for name in pod_set.requests}
        held = {name: flavor for name, flavor in flavors.items() if flavor is not None}
        usage = {name: pod_set.requests[name] * run.instances for name in held}
        name = self._new_name(task)
        created = self._ledger.first_ready_s(place_of(task), min(job.arrival_s, run.started_s))
        nodes = None
        if any(self._site.has_topology(flavor) for flavor in held.values()):
            cluster = self._admission.objects.nodes
            nodes = tuple([((cluster[machine.index].name,), count) for machine, count, *_ in run.held])
        self._admission.submit(
            Workload(
                name=name,
                queue=self._site.queue_of(job),
                priority=job.priority,
                created_s=created,
                uid=name,
                pod_sets=(pod_set,),
                cluster_queue=queue.name,
                assignments=(PodSetAssignment("main", held, usage, run.instances, nodes),),
                reserved_s=run.started_s,
            )
        )
        self._ledger.join(name, place_of(task))
        return name

    # Decisions.

    def _admit(self, view: ClusterView, tasks: ReadyTasks) -> Iterator[Decision]:
        """Run cycles until they change nothing, and stop the workloads that they preempt."""
        now = view.now
        for run in [run for run in self._ledger.late if view.running[run].started_s < now]:
            self._ledger.stop_now(run)
            yield Preempt(run)
        try:
            for cycle in self._admission.cycles(now):
                for workload in cycle.admitted:
                    if workload.name in self._ledger.refused:
                        continue
                    places = list(self._ledger.places[workload.name])
                    self._ledger.claim(workload.name, places, self._now + self.checks_s)
                    task = tasks.ready.get(places[0])
                    if task is not None and not task.demand.gang and workload.name not in self._ledger.carried:
                        self._submit_next(task)
                for gone in cycle.preempted:
                    yield from self._stopped(view, gone.workload.name)
        except EndlessPreemption as circle:
            self._note(
                f"workloads preempt each other in a cycle, as they do in Kueue ({circle}); dagsim broke the cycle"
            )

    def _submit_next(self, task: TaskState) -> None:
        """Submit the next independent instance of a task, unless all of its instances have been
        admitted."""
        place = place_of(task)
        self._ledger.close(place)
        if task.waiting > self._ledger.claimed[place]:
            self._submit(task)

    def _stopped(self, view: ClusterView, name: str) -> Iterator[Decision]:
        """Stop the runs of a preempted workload. A task that has not started waits again. A run
        that has only just started is stopped at the next event."""
        self._ledger.wait_again(name)
        runs = list(self._ledger.runs_of.get(name, ()))
        if runs:
            self._ledger.preempt(name, [place_of(view.running[run].task) for run in runs])
        for run in runs:
            if view.running[run].started_s < view.now:
                yield Preempt(run)
            else:
                self._ledger.stop_later(run)

    def _start(self, view: ClusterView, tasks: ReadyTasks) -> Iterator[Decision]:
        """Start the admitted workloads that fit on nodes."""
        for name in list(self._ledger.waiting):
            admitted = self._ledger.waiting.get(name)
            if admitted is None or admitted.from_s > view.now or name in self._ledger.preempted:
                continue
            for place in list(admitted.places):
                task = tasks.ready.get(place)
                if task is None or not task.waiting:
                    self._leave(name, place)  # no instance is left for this workload
                    continue
                placement = self._placement(view, task, name)
                if placement is not None:
                    with self._ledger.starting(name, place):
                        yield Start(task, placement)

    def _placement(self, view: ClusterView, task: TaskState, name: str) -> Placement | None:
        """Return nodes for an admitted workload, or None while it does not fit."""
        if not view.fits(task):
            return None
        workload = self._admission.workloads[name]
        assignments = self._admission.assignments(workload)
        carried = self._site.workload(task)
        if carried is not None:
            assignments = tuple([one for one in assignments if one.name == carried.pod_set]) or assignments
        domains = [domain for one in assignments for domain in one.domains or ()]
        nodes = [self._site.node_number(address) for address, _ in domains]
        if domains and None not in nodes and whole_sum(count for _, count in domains) == _pods(task):
            shares = [Share(node, count) for node, (_, count) in zip(nodes, domains, strict=True) if node is not None]
            there = all(view.machines.list[share.node].room(task.demand) >= share.instances for share in shares)
            return tuple(sorted(shares)) if there else None
        queue = self._site.cluster_queue_of(task.job.job)
        flavors = dict.fromkeys(flavor for one in assignments for flavor in one.flavors.values())
        types = self._site.types_of(queue, flavors)
        for type_ in task.demand.types:
            if types is None or self._site.type_names[type_] in types:
                placement = self._scorer.place(view, task, type_)
                if placement is not None:
                    return placement
        return None

    def _give_up(self, view: ClusterView, tasks: ReadyTasks) -> Iterator[Decision]:
        """Cancel tasks that would wait forever. This is the case if nothing runs and nothing will
        arrive, and if no workload can be admitted or the admitted ones never fit on the nodes of
        their flavors.
        """
        stuck: dict[str, list[TaskState]] = {}
        lost: dict[str, list[TaskState]] = {}
        for place, task in tasks.ready.items():
            if task.waiting and (not self._ledger.claimed[place] or view.fits(task)):
                if queue := self._site.missing_queue(task):
                    lost.setdefault(queue, []).append(task)
                else:
                    stuck.setdefault(self._site.cluster_queue_of(task.job.job).name, []).append(task)
        for queue, waiting in lost.items():
            name = waiting[0].job.job.id
            jobs = len({task.job.number for task in waiting})
            self._note(f"job {name!r} waits for LocalQueue {queue!r}, which does not exist ({jobs} waiting)")
            yield from self._cancel(waiting)
        for name, waiting in stuck.items():
            pending = self._admission.pending[name]
            heads = [
                head.name
                for head in (*pending.in_order(), *pending.aside.values())
                if head.name in self._ledger.places or (pending.strict and head.name in self._ledger.refused)
            ]
            if heads and heads[0] in self._ledger.refused:
                first = self._ledger.refused[heads[0]]
            else:
                place = next(iter(self._ledger.places[heads[0]])) if heads else place_of(waiting[0])
                first = tasks.ready[place] if place in tasks.ready else waiting[0]
            others = len({task.job.number for task in waiting} - {first.job.number})
            if self._ledger.claimed[place_of(first)]:
                what = "was admitted to flavors on whose nodes it never fits"
            elif (stop := self._site.stop_policy(name)) != "None":
                what = f"waits, because stopPolicy is {stop}"
            else:
                what = f"can never be admitted{f', and blocks {others} behind it' if pending.strict and others else ''}"
            self._note(f"job {first.job.job.id!r} {what} (ClusterQueue {name!r}, {others + 1} waiting)")
        yield from self._cancel(task for waiting in stuck.values() for task in waiting)

    @staticmethod
    def _cancel(tasks: Iterable[TaskState]) -> Iterator[Decision]:
        """Cancel the jobs of these tasks."""
        for number in dict.fromkeys([task.job.number for task in tasks]):
            yield Kill(number, RejectReason.CANCELLED)

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _pods(task: TaskState) -> int:
    """Return the number of pods in the next workload of a task."""
    return task.demand.gang or 1
