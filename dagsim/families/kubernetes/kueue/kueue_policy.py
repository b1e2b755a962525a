"""Kueue as a policy in simulated time: the admission engine admits workloads, and their pods are
then placed on nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from dagsim.errors import require
from dagsim.families.kubernetes.kube import NodeScorer
from dagsim.families.kubernetes.kueue.engine import Admission, EndlessPreemption
from dagsim.families.kubernetes.kueue.offers import Site
from dagsim.families.kubernetes.kueue.quota_waits import KueueWaits
from dagsim.families.kubernetes.kueue.workloads import WorkloadState
from dagsim.families.kubernetes.kueue_objects import KueueObjects, PodSetAssignment, Workload
from dagsim.model import Decision, Kill, Placement, Preempt, RejectReason, Share, Start, Wait
from dagsim.systems.cluster.api import ClusterView, Run, Standing, TaskState

_Place: TypeAlias = tuple[int, int, int]
"""Numbers of the job, the task and the piece."""


@dataclass(slots=True)
class _Admitted:
    """A workload that holds quota but has not started; ``from_s`` is when its admission checks are
    over."""

    place: _Place
    from_s: float


def rules_of_site(view: ClusterView) -> KueueWaits | None:
    """The quotas of a site; None if it has none."""
    return KueueWaits(view, Site(view)) if view.queues is not None and view.queues.has_quota else None


class Kueue:
    """Admission by quota, as in Kueue v0.17 (docs/kubernetes.md): one head of each ClusterQueue per
    scheduling cycle, borrowing and lending in cohorts, flavors, classic preemption or fair sharing.
    The objects are those of ``queues.kueue``. With ``queues.tree``, each leaf is a ClusterQueue and
    each node above it a cohort, and flavors are GPU types. A job belongs to the queue named by its
    partition, account or tenant, else to the first one.

    A gang is one workload, and so is each independent instance. An admitted workload holds its
    quota and starts as soon as it fits on nodes: where the default scheduler would put it
    (``scoring``, ``cpu``, ``memory``, ``gpu``), or where its topology requires. Preempted workloads
    keep their places in the queue. Workloads that were set aside come back ``requeue_s`` after
    quota is released (1 s in Kueue), and admission checks take ``checks_s``.

    Uses no estimates; preemptive if a queue is configured so. A cycle costs O(queues) and a search
    for targets O(running log running); heads of the same shape share a search while nothing
    changes.
    """

    forgets = "which workloads it had set aside, and which held quota before they ran"

    def __init__(
        self, scoring: str = "least", cpu: float = 1.0, memory: float = 1.0, gpu: float = 0.0, requeue_s: float = 0.0,
        checks_s: float = 0.0,
    ) -> None:  # fmt: skip
        for name, seconds in (("requeue_s", requeue_s), ("checks_s", checks_s)):
            require(0 <= seconds < inf, f"{name} must be 0 or more", seconds)
        self._scorer = NodeScorer(scoring, cpu, memory, gpu)
        self.requeue_s, self.checks_s = requeue_s, checks_s
        self.notes: list[str] = []
        """Facts that a reader of the results needs to know first."""
        self._now = inf

    def wait_rules(self, view: ClusterView) -> KueueWaits:
        """Return the quotas of the queues, to explain waits."""
        return KueueWaits(view, Site(view))

    def outlook(self, view: ClusterView) -> tuple[KueueWaits, list[Standing]]:
        """Its quotas with what runs now, and the waiting workloads of each ClusterQueue in their order.
        Nothing is decided.
        """
        self._now = view.now
        self._set_up(view)
        view.follow(self)
        tasks = view.index((_Tasks, self), _Tasks)
        self._welcome(tasks)
        rules = self.wait_rules(view)
        for run in view.running.values():
            rules.started(run.id, run.task, run.instances, run.type)
        standings = []
        for name, pending in self._admission.pending.items():
            for workload in (*pending.in_order(), *pending.aside.values()):
                task = tasks.ready.get(self._place_of.get(workload.name, (-1, -1, -1)))
                if task is not None:
                    parts = {"priority": float(workload.spec.priority)} if workload.spec.priority else {}
                    standings.append(Standing(task, name, 0, float(workload.spec.priority), parts, rules.nodes(task)))
        return rules, standings

    def started(self, run: Run, now: float) -> None:
        """Add a run; a run that the policy has not started holds quota since its own start."""
        if run.id in self._runs:
            return
        place = _place(run.task)
        name = self._open.pop(place, None)
        if name is None or self._admission.workloads[name].where != "admitted":
            if name is not None:
                self._open[place] = name
            name = self._in_flight(run)
        self._runs[run.id], self._run_of[name] = name, run.id
        if self._waiting.pop(name, None) is not None:
            self._claimed[place] -= 1

    def ended(self, run: Run, now: float) -> None:
        """Remove a run."""
        name = self._runs.pop(run.id)
        del self._run_of[name]
        self._touched[run.job.number] = None
        self._admission.bring_back(now)
        workload = self._admission.workloads.get(name)
        if workload is not None and name not in self._preempted:
            self._admission.finish(workload, now)

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        now = view.now
        if now < self._now:
            self._set_up(view)
        self._now = now
        view.follow(self)
        tasks = view.index((_Tasks, self), _Tasks)
        self._admission.bring_back(now)
        self._forget(view)
        self._welcome(tasks)
        stopped = False
        for stop in self._admit(view, tasks):
            stopped = True
            yield stop
        if stopped:
            # the policy is called again with the remaining parts of the runs that it stopped
            return
        yield from self._start(view, tasks)
        until = min(
            [self._admission.next_return(), *(one.from_s for one in self._waiting.values() if one.from_s > now)]
        )
        if until < inf:
            yield Wait(until)
        elif not view.pending and not view.running and tasks.ready:
            yield from self._give_up(view, tasks)

    def _set_up(self, view: ClusterView) -> None:
        self.notes.clear()
        self._site = Site(view)
        self._admission = self._engine(self._site.objects)
        self._created: dict[tuple[int, int], float] = {}
        """The time at which each task first became ready, which preempted workloads keep."""
        self._open: dict[_Place, str] = {}
        """The workload of each task that waits, or that holds quota but has not started."""
        self._place_of: dict[str, _Place] = {}
        self._waiting: dict[str, _Admitted] = {}
        """Admitted workloads that have not started, in order of admission."""
        self._claimed: Counter[_Place] = Counter()
        """Number of each task's workloads that are admitted but have not started."""
        self._runs: dict[int, str] = {}
        """Workloads by run."""
        self._run_of: dict[str, int] = {}
        self._names_of: dict[int, list[str]] = {}
        """All workloads of a job, by its number."""
        self._touched: dict[int, None] = {}
        """Jobs of which a run has ended since the last decision."""
        self._preempted: dict[str, _Place] = {}
        """Preempted workloads whose pieces have not come back, with the job and the task."""
        self._late: dict[str, None] = {}
        """Preempted workloads whose runs began at the same time."""
        self._number = 0

    def _engine(self, objects: KueueObjects) -> Admission:
        """Make what admits."""
        return Admission(objects, requeue_s=self.requeue_s, exact=False)

    # Workloads that stand for tasks.

    def _forget(self, view: ClusterView) -> None:
        """Remove the workloads of jobs that have finished or were stopped."""
        for number in self._touched:
            if number not in view.jobs:
                for name in self._names_of.pop(number, ()):
                    self._drop(name)
        self._touched.clear()

    def _drop(self, name: str) -> None:
        """Remove a workload, wherever it is."""
        place = self._place_of.pop(name, None)
        if self._waiting.pop(name, None) is not None and place is not None:
            self._claimed[place] -= 1
        if place is not None and self._open.get(place) == name:
            del self._open[place]
        self._preempted.pop(name, None)
        self._late.pop(name, None)
        workload = self._admission.workloads.get(name)
        if workload is not None:
            self._admission.finish(workload, self._now)

    def _welcome(self, tasks: _Tasks) -> None:
        """Submit the workloads of tasks that became ready, and recognise preempted ones."""
        for place in tasks.take_new():
            task = tasks.ready[place]
            if task.waiting <= self._claimed[place] or place in self._open:
                continue
            back = next((name for name, old in self._preempted.items() if old[:2] == place[:2]), None)
            if back is not None and _pods(task) == self._admission.workloads[back].spec.pod_sets[0].count:
                del self._preempted[back]
                self._open[place], self._place_of[back] = back, place
                if back in self._waiting:
                    self._claimed[self._waiting[back].place] -= 1
                    self._waiting[back].place = place
                    self._claimed[place] += 1
                continue
            # several instances ran together; each of them now waits separately
            if back is not None:
                self._drop(back)
            self._submit(task)

    def _submit(self, task: TaskState) -> WorkloadState:
        """Submit a gang, or the next of a task's independent instances."""
        place = _place(task)
        self._number += 1
        created = self._created.setdefault(place[:2], task.ready_s)
        name = f"{task.order:020}.{task.piece:06}.{self._number}"
        spec = Workload(
            name,
            self._site.queue_of(task.job.job),
            task.job.job.priority,
            created,
            name,
            (self._site.pod_set(task, _pods(task)),),
        )
        self._open[place], self._place_of[name] = name, place
        self._names_of.setdefault(place[0], []).append(name)
        return self._admission.submit(spec)

    def _in_flight(self, run: Run) -> str:
        """Let a run that was in progress when the simulation began hold its quota."""
        job, task = run.job.job, run.task
        queue = self._site.cluster_queue_of(job)
        pod_set = self._site.pod_set(task, run.instances)
        type_ = self._site.type_names[run.type]
        flavors = {name: self._site.flavor_of(queue, name, type_) for name in pod_set.requests}
        held = {name: flavor for name, flavor in flavors.items() if flavor is not None}
        usage = {name: pod_set.requests[name] * run.instances for name in held}
        self._number += 1
        name = f"{task.order:020}.{task.piece:06}.{self._number}"
        created = self._created.setdefault((task.job.number, task.index), min(job.arrival_s, run.started_s))
        nodes = None
        if any(self._site.has_topology(flavor) for flavor in held.values()):
            cluster = self._admission.objects.nodes
            nodes = tuple([((cluster[machine.index].name,), count) for machine, count, *_ in run.held])
        self._admission.submit(
            Workload(
                name,
                self._site.queue_of(job),
                job.priority,
                created,
                name,
                (pod_set,),
                queue.name,
                (PodSetAssignment("main", held, usage, run.instances, nodes),),
                run.started_s,
            )
        )
        self._place_of[name] = _place(task)
        self._names_of.setdefault(task.job.number, []).append(name)
        return name

    # Decisions.

    def _admit(self, view: ClusterView, tasks: _Tasks) -> Iterator[Decision]:
        """Run cycles until they change nothing, and stop what they preempt."""
        now = view.now
        for name in [name for name in self._late if self._preempts(view, name)]:
            del self._late[name]
            yield Preempt(self._run_of[name])
        try:
            for cycle in self._admission.cycles(now):
                for workload in cycle.admitted:
                    place = self._place_of[workload.name]
                    self._waiting[workload.name] = _Admitted(place, now + self.checks_s)
                    self._claimed[place] += 1
                    task = tasks.ready.get(place)
                    if task is not None and not task.demand.gang:
                        self._submit_next(task)
                for gone in cycle.preempted:
                    yield from self._stopped(view, gone.workload.name)
        except EndlessPreemption as circle:
            self._note(
                f"workloads preempt each other in a circle, as they do in Kueue ({circle}); dagsim broke the circle"
            )

    def _submit_next(self, task: TaskState) -> None:
        """Submit the next independent instance of a task, if there is one besides those admitted."""
        place = _place(task)
        self._open.pop(place, None)
        if task.waiting > self._claimed[place]:
            self._submit(task)

    def _preempts(self, view: ClusterView, name: str) -> bool:
        """Return True if the run of a workload may be stopped, which it may if it began before the
        current time."""
        return name in self._run_of and view.running[self._run_of[name]].started_s < view.now

    def _stopped(self, view: ClusterView, name: str) -> Iterator[Decision]:
        """Stop the run of a preempted workload. A workload that has not started waits again, and
        one that has just started is stopped at the next event."""
        place = self._place_of[name]
        if self._waiting.pop(name, None) is not None:
            self._claimed[place] -= 1
            self._open.setdefault(place, name)
            return
        self._preempted[name] = place
        if self._preempts(view, name):
            yield Preempt(self._run_of[name])
        else:
            self._late[name] = None

    def _start(self, view: ClusterView, tasks: _Tasks) -> Iterator[Decision]:
        """Start admitted workloads that fit on nodes."""
        for name in list(self._waiting):
            admitted = self._waiting.get(name)
            if admitted is None or admitted.from_s > view.now or name in self._preempted:
                continue
            task = tasks.ready.get(admitted.place)
            if task is None or not task.waiting:
                self._drop(name)  # this workload has no instances left
                continue
            placement = self._placement(view, task, name)
            if placement is not None:
                waiting = self._open.get(admitted.place)
                self._open[admitted.place] = name
                yield Start(task, placement)
                if waiting is not None and waiting != name:
                    self._open[admitted.place] = waiting

    def _placement(self, view: ClusterView, task: TaskState, name: str) -> Placement | None:
        """Return nodes for an admitted workload; None while it does not fit."""
        if not view.fits(task):
            return None
        workload = self._admission.workloads[name]
        assignments = self._admission.assignments(workload)
        domains = [domain for one in assignments for domain in one.domains or ()]
        if domains:
            shares = [Share(self._site.node_number(address), count) for address, count in domains]
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

    def _give_up(self, view: ClusterView, tasks: _Tasks) -> Iterator[Decision]:
        """Cancel what would wait for ever: nothing is running, nothing will arrive, and nothing can
        be admitted, or only to flavors on whose nodes it never fits."""
        stuck: dict[str, list[TaskState]] = {}
        for place, task in tasks.ready.items():
            if task.waiting and (not self._claimed[place] or view.fits(task)):
                stuck.setdefault(self._site.cluster_queue_of(task.job.job).name, []).append(task)
        for name, waiting in stuck.items():
            pending = self._admission.pending[name]
            heads = [head for head in (*pending.in_order(), *pending.aside.values()) if head.name in self._place_of]
            place = self._place_of[heads[0].name] if heads else _place(waiting[0])
            first = tasks.ready[place] if place in tasks.ready else waiting[0]
            others = len({task.job.number for task in waiting} - {first.job.number})
            if self._claimed[_place(first)]:
                what = "was admitted to flavors on whose nodes it never fits"
            else:
                what = f"can never be admitted{f', and blocks {others} behind it' if pending.strict and others else ''}"
            self._note(f"job {first.job.job.id!r} {what} (ClusterQueue {name!r}, {others + 1} waiting)")
        yield from self._cancel(task for waiting in stuck.values() for task in waiting)

    @staticmethod
    def _cancel(tasks: Iterable[TaskState]) -> Iterator[Decision]:
        """Cancel the jobs of tasks."""
        for number in dict.fromkeys([task.job.number for task in tasks]):
            yield Kill(number, RejectReason.CANCELLED)

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


class _Tasks:
    """An index of the ready tasks by place."""

    def __init__(self) -> None:
        self.ready: dict[_Place, TaskState] = {}
        self._new: list[_Place] = []

    def push(self, task: TaskState) -> None:
        """Add a task that became ready."""
        place = _place(task)
        self.ready[place] = task
        self._new.append(place)

    def started(self, run: Run, now: float) -> None:
        """Drop a task without waiting instances."""
        if not run.task.waiting:
            self.ready.pop(_place(run.task), None)

    def take_new(self) -> list[_Place]:
        """Return the tasks that became ready since the last call."""
        new, self._new = [place for place in self._new if place in self.ready], []
        return new


def _place(task: TaskState) -> _Place:
    return task.job.number, task.index, task.piece


def _pods(task: TaskState) -> int:
    """Return the number of pods in a task's next workload."""
    return task.demand.gang or 1
