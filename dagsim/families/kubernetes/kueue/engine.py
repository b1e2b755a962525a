"""Admission of workloads: the scheduling cycles over the queues of a Kueue installation.

The engine stores waiting and admitted workloads. Its caller submits and finishes workloads, and
iterates over ``cycles``. ``next_return`` tells the caller when workloads that were set aside will
come back. It has no clock, and does not start anything itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal, NamedTuple

from dagsim.families.kubernetes.kueue.admission_sharing import LocalQueueUsage
from dagsim.families.kubernetes.kueue.amounts import natural, unit, whole
from dagsim.families.kubernetes.kueue.flavors import FlavorSearch
from dagsim.families.kubernetes.kueue.kueue_objects import KueueObjects, PodSetAssignment, Workload
from dagsim.families.kubernetes.kueue.pending import PendingQueue
from dagsim.families.kubernetes.kueue.quota import BorrowedShare, QuotaNode, SlotAmounts
from dagsim.families.kubernetes.kueue.snapshot import ClusterQueueState, Snapshot
from dagsim.families.kubernetes.kueue.victims import Preemptor, Victim
from dagsim.families.kubernetes.kueue.workloads import (
    Assignment,
    FlavorChoice,
    Mode,
    SetAssignment,
    WorkloadState,
    pods_of,
)
from dagsim.model.arithmetic import whole_sum

_SUSPICIOUS = 20
"""Number of cycles with preemptions at one time after which their states are compared."""

_ENDLESS = 1000
"""Number of cycles with preemptions at one time that counts as endless. It is needed because the
penalties of admission fair sharing grow, so that no state occurs twice."""

_NO_LONGER = "Workload no longer fits after processing another workload"
_OVERLAP = "Workload has overlapping preemption targets with another workload"


class EndlessPreemption(Exception):
    """Raised if workloads preempt each other endlessly. ``pairs`` lists each workload with the one
    that preempted it, by name."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        super().__init__(", ".join(f"{by} preempts {name}" for name, by in pairs))
        self.pairs = pairs


@dataclass(slots=True)
class Preempted:
    """A workload that lost its quota, the workload that received this quota, and the reason."""

    workload: WorkloadState
    by: str
    reason: str


@dataclass(slots=True)
class Cycle:
    """The outcome of one scheduling cycle. ``pending`` contains the heads that were not admitted,
    each with Kueue's message.

    ``advances`` is True if a workload was admitted, preempted or set aside. Otherwise, the next
    cycle depends only on ``heads``.
    """

    admitted: list[WorkloadState] = field(default_factory=list)
    preempted: list[Preempted] = field(default_factory=list)
    pending: list[tuple[WorkloadState, str]] = field(default_factory=list)
    advances: bool = False
    heads: tuple[object, ...] = ()


class _Answer(NamedTuple):
    """The flavors and preemption targets found for a workload, and the reason why it does not fit.
    ``inert`` means that all flavors have been tried, and that the workload can neither be admitted
    nor preempt other workloads as the head of its queue.
    """

    assignment: Assignment
    targets: list[Victim]
    message: str
    inert: bool


@dataclass(slots=True)
class _Entry:
    """The head of a queue during a cycle."""

    workload: WorkloadState
    queue: ClusterQueueState
    assignment: Assignment
    targets: list[Victim]
    message: str
    state: Literal["", "skipped", "preempting", "admitted"] = ""


class Admission:
    """The admission engine, which admits workloads in scheduling cycles.

    ``requeue_s`` is the time from a release of quota until workloads that were set aside come back
    (Kueue collects releases for 1 s). With ``exact``, each cycle is yielded, with full messages.
    Without ``exact``, cycles that would only set heads aside are left out. This changes no
    decision.
    """

    def __init__(self, objects: KueueObjects, *, requeue_s: float = 0.0, exact: bool = True) -> None:
        self.objects, self.requeue_s, self._exact = objects, requeue_s, exact
        self.snapshot = Snapshot(objects)
        self.workloads: dict[str, WorkloadState] = {}
        self._arrivals = 0
        self._locals = {local.name: local for local in objects.local_queues}
        sharing = objects.admission_fair_sharing
        self._usage = None if sharing is None else LocalQueueUsage(sharing, self._locals)
        self._by_usage = {queue.name for queue in objects.cluster_queues if sharing is not None and queue.usage_based}
        self.pending = {
            name: PendingQueue(
                strict=queue.spec.queueing_strategy == "StrictFIFO",
                usage_of=self._past_usage if name in self._by_usage else None,
            )
            for name, queue in self.snapshot.queues.items()
        }
        self._active = [queue for name, queue in self.snapshot.queues.items() if name not in self.snapshot.inactive]
        self._preemptor = Preemptor(
            self.snapshot, objects.fair_sharing, self._usage_if_shared if self._by_usage else None
        )
        self._search = FlavorSearch(
            self.snapshot, self._preemptor.price, fair=objects.fair_sharing is not None, exact=exact
        )
        self._drained = tuple(
            [
                {one.name for one in several if one.stop_policy == "HoldAndDrain"}
                for several in (objects.cluster_queues, objects.local_queues)
            ]
        )
        """The ClusterQueues, and the LocalQueues, that keep no workload."""
        self._returns: dict[str, tuple[float, list[PendingQueue]]] = {}
        """The times at which the workloads of a tree come back, by its root."""
        self._trees_of: dict[str, list[PendingQueue]] = {}
        for name, queue in self.snapshot.queues.items():
            self._trees_of.setdefault(self._tree(queue), []).append(self.pending[name])
        self._shapes: dict[object, int] = {}
        self._memo: dict[str, tuple[int, dict[object, _Answer]]] = {}
        self._together: dict[str, list[ClusterQueueState]] = {}
        """Queues whose heads may affect each other, by the name of their root."""
        for queue in self._active:
            self._together.setdefault("" if queue.trees else queue.node.root.name, []).append(queue)

    # Workloads.

    def submit(self, spec: Workload) -> WorkloadState:
        """Add a workload that is waiting, or one that already holds quota (with ``assignments``).

        Raises:
            KeyError: The LocalQueue does not exist.
        """
        local = self._locals[spec.queue]
        key = (spec.priority, spec.pod_sets)
        shape = self._shapes.setdefault(_hashable(key), len(self._shapes))
        workload = WorkloadState(spec, spec.cluster_queue or local.cluster_queue, shape)
        self._arrivals += 1
        workload.arrived = self._arrivals
        self.workloads[spec.name] = workload
        if spec.assignments:
            self._hold(workload, self._held(spec.assignments))
            workload.evicted = spec.evicted
            self._bump(workload)
        elif local.stop_policy == "None":
            self.pending[workload.cluster_queue].push(workload)
        return workload

    def finish(self, workload: WorkloadState, now: float) -> None:
        """Remove a workload that has ended or was deleted by its user."""
        self.workloads.pop(workload.name, None)
        self.pending[workload.cluster_queue].remove(workload)
        if workload.where == "admitted":
            self._release(workload, now)
        workload.where = ""

    def evict(self, workload: WorkloadState, now: float, *, waits: bool = True) -> None:
        """Take away the quota of a workload. With ``waits``, the workload waits again, at its
        previous position in the queue.
        """
        self._release(workload, now)
        workload.where, workload.reserved, workload.assignment = "", None, None
        workload.message, workload.tried, workload.evicted = None, (), False
        if waits:
            self.pending[workload.cluster_queue].push(workload)

    def drain(self, now: float) -> list[WorkloadState]:
        """Evict the workloads in all queues whose stop policy is ``HoldAndDrain``."""
        stopped, locals_ = self._drained
        drained = (
            [
                workload
                for workload in self.workloads.values()
                if workload.where == "admitted"
                and (workload.cluster_queue in stopped or workload.local_queue in locals_)
            ]
            if stopped or locals_
            else []
        )
        for workload in drained:
            self.evict(workload, now, waits=False)
        return drained

    def assignments(self, workload: WorkloadState) -> tuple[PodSetAssignment, ...]:
        """Return the assignment of an admitted workload."""
        return tuple(
            [
                PodSetAssignment(
                    one.name,
                    {name: choice.flavor for name, choice in one.choices.items()},
                    {name: natural(name, one.totals[name]) for name in one.choices},
                    one.count,
                    None
                    if one.placement is None
                    else tuple([(self._address(one, leaf), count) for leaf, count in one.placement]),
                )
                for one in (workload.assignment.sets if workload.assignment is not None else ())
            ]
        )

    # Time.

    def next_return(self) -> float:
        """Return the time at which workloads that were set aside will come back, or infinity if
        none will."""
        return min([time for time, _ in self._returns.values()], default=inf)

    def bring_back(self, now: float) -> bool:
        """Put workloads that were set aside back into their queues, if their time has come. Return
        True if any were put back.
        """
        due = [root for root, (time, _) in self._returns.items() if time <= now]
        back = False
        for root in due:
            for queue in self._returns.pop(root)[1]:
                back = queue.bring_back() or back
        return back

    def cycles(self, now: float) -> Iterator[Cycle]:
        """Run cycles until another cycle would change nothing.

        Raises:
            EndlessPreemption: Workloads preempt each other in an endless cycle, as they do in
                Kueue.
        """
        if drained := self.drain(now):
            yield Cycle(preempted=[Preempted(workload, "", "Stopped") for workload in drained], advances=True)
        seen: set[object] = set()
        states: set[object] = set()
        preempting = 0
        while (cycle := self.cycle(now)) is not None:
            yield cycle
            if cycle.advances:
                seen.clear()
            elif cycle.heads in seen:
                return
            else:
                seen.add(cycle.heads)
            preempting += bool(cycle.preempted)
            if cycle.preempted and preempting > _SUSPICIOUS:
                state = self._state()
                if state in states or preempting > _ENDLESS:
                    raise EndlessPreemption([(one.workload.name, one.by) for one in cycle.preempted])
                states.add(state)

    def _state(self) -> object:
        """Return the state: the workloads that hold quota, the workloads that wait in each queue,
        and past usage."""
        past = () if self._usage is None else self._usage.penalised()
        return past, frozenset(
            (one.name, one.where, one.tried, None if one.assignment is None else tuple(one.assignment.usage.items()))
            for one in self.workloads.values()
        )

    def cycle(self, now: float) -> Cycle | None:
        """Run one scheduling cycle. Return None if no queue has a head."""
        self._sample(now)
        for queues in () if self._exact else self._together.values():
            self._pass_over(queues)
        heads = [(head, queue) for queue in self._active if (head := self.pending[queue.name].pop()) is not None]
        if not heads:
            return None
        entries = [_Entry(head, queue, *self._nominate(head, queue)[:3]) for head, queue in heads]
        cycle = Cycle()
        issued = self._process(entries, cycle)
        self._requeue(entries, cycle)
        self._deliver(cycle, issued, now)
        return cycle

    # One cycle.

    def _pass_over(self, queues: list[ClusterQueueState]) -> None:
        """Set aside the heads of cycles that would neither admit nor preempt a workload.
        Reservations of such heads last only until the end of their cycle, so they affect nothing
        else.
        """
        pendings = [self.pending[queue.name] for queue in queues]
        if any(pending.usage_of is not None for pending in pendings):
            return
        while True:
            heads: list[tuple[PendingQueue, WorkloadState, str]] = []
            for queue, pending in zip(queues, pendings, strict=True):
                head = pending.peek()
                if head is None:
                    continue
                answer = self._nominate(head, queue)
                if not answer.inert:
                    return
                if not pending.strict:
                    heads.append((pending, head, answer.message))
            if not heads:
                return
            for pending, head, message in heads:
                head.message, head.tried = message, ()
                pending.set_aside(head)

    def _nominate(self, workload: WorkloadState, queue: ClusterQueueState) -> _Answer:
        """Find flavors and targets for a workload. Workloads of the same shape share one answer
        until the state of the queue changes.
        """
        version = self.snapshot.version(queue)
        known = self._memo.get(queue.name)
        if known is None or known[0] != version:
            known = self._memo[queue.name] = (version, {})
        if workload.tried and queue.generation > workload.tried_generation:
            workload.tried = ()
        key = (workload.shape, workload.tried, workload.created if queue.by_creation else None)
        answer = known[1].get(key)
        if answer is None:
            assignment, targets = self._assign(workload, queue)
            idle = assignment.mode is not Mode.FIT and not targets
            done = all(choice.tried == -1 for one in assignment.sets for choice in one.choices.values())
            answer = known[1][key] = _Answer(assignment, targets, assignment.message, idle and done)
        return answer

    def _assign(self, workload: WorkloadState, queue: ClusterQueueState) -> tuple[Assignment, list[Victim]]:
        assignment, targets = self._attempt(workload, queue, None)
        if assignment.mode is not Mode.FIT and not targets and workload.may_shrink:
            assignment, targets = self._fewer(workload, queue) or (assignment, targets)
        if assignment.mode is Mode.PREEMPT and queue.trees:
            demands = self._search.demands(workload, queue, assignment)
            with self.snapshot.without(target.workload for target in targets):
                self._search.place(queue, assignment, demands, empty=not targets)
        return assignment, targets

    def _attempt(
        self, workload: WorkloadState, queue: ClusterQueueState, counts: Sequence[int] | None
    ) -> tuple[Assignment, list[Victim]]:
        assignment = self._search.assign(workload, queue, counts)
        if assignment.mode is not Mode.PREEMPT:
            return assignment, []
        return assignment, self._preemptor.targets(workload, queue, assignment, self._search)

    def _fewer(self, workload: WorkloadState, queue: ClusterQueueState) -> tuple[Assignment, list[Victim]] | None:
        """Find the number of pods that fit, by bisection between the minimum and all pods. Like
        Kueue, assume that a smaller number fits whenever a larger one does."""
        pod_sets = workload.spec.pod_sets
        spare = [0 if one.min_count is None else one.count - one.min_count for one in pod_sets]
        total = whole_sum(spare)
        low, high, best = 0, total + 1, None
        while low < high and total:
            middle = (low + high) // 2
            counts = [one.count - part * middle // total for one, part in zip(pod_sets, spare, strict=True)]
            assignment, targets = self._attempt(workload, queue, counts)
            if assignment.mode is Mode.FIT or targets:
                best, high = (assignment, targets), middle
            else:
                low = middle + 1
        return best

    def _process(self, entries: list[_Entry], cycle: Cycle) -> list[tuple[_Entry, Victim]]:
        """Admit the entries in order, or let them preempt other workloads, while there is quota left."""
        issued: list[tuple[_Entry, Victim]] = []
        if all(entry.assignment.mode is not Mode.FIT and not entry.targets for entry in entries):
            # None of the heads fits, and none has workloads that it could preempt. Reserving quota
            # for them is not necessary, because no other head could use it in this cycle.
            return issued
        taken: dict[str, WorkloadState] = {}
        roots = {id(entry.queue.node.root): entry.queue.node.root for entry in entries}
        with self.snapshot.trial(roots.values()):
            for entry in self._in_order(entries):
                assignment, queue = entry.assignment, entry.queue
                if assignment.mode is Mode.NO_FIT:
                    continue
                if assignment.mode is Mode.PREEMPT and not entry.targets:
                    if not queue.always_reclaims:
                        self.snapshot.use(queue, _reserved(assignment, queue.node), assignment.pods)
                    continue
                if any(target.workload.name in taken for target in entry.targets):
                    entry.state, entry.message = "skipped", _OVERLAP
                    continue
                gone = [*taken.values(), *(target.workload for target in entry.targets)]
                with self.snapshot.without(gone):
                    fits = self.snapshot.fits(queue, assignment.usage, assignment.pods)
                if not fits:
                    entry.state, entry.message = "skipped", _NO_LONGER
                    continue
                taken |= {target.workload.name: target.workload for target in entry.targets}
                self.snapshot.use(queue, assignment.usage, assignment.pods)
                if assignment.mode is Mode.PREEMPT:
                    entry.state = "preempting"
                    entry.message += f". Pending the preemption of {len(entry.targets)} workload(s)"
                    issued += [(entry, target) for target in entry.targets]
                else:
                    entry.state, entry.workload.assignment = "admitted", assignment
                    cycle.admitted.append(entry.workload)
        return issued

    def _in_order(self, entries: list[_Entry]) -> Iterator[_Entry]:
        if self.objects.fair_sharing is not None:
            yield from _Tournament(entries)
            return
        yield from sorted(
            entries,
            key=lambda entry: (
                entry.assignment.borrowing,
                -entry.workload.priority,
                entry.workload.created,
                entry.workload.uid,
            ),
        )

    def _requeue(self, entries: list[_Entry], cycle: Cycle) -> None:
        """Put heads that were not admitted back into their queue, or set them aside."""
        for entry in entries:
            if entry.state == "admitted":
                continue
            workload, pending = entry.workload, self.pending[entry.queue.name]
            if entry.state:
                workload.tried = ()
                if entry.state == "preempting":
                    pending.stick(workload)
            else:
                workload.tried, workload.tried_generation = entry.assignment.tried, entry.queue.generation
            more = any(number != -1 for one in workload.tried for _, number in one)
            if pending.strict or entry.state or more:
                pending.push(workload)
            else:
                pending.set_aside(workload)
                cycle.advances = True
            cycle.pending.append((workload, entry.message))
            if workload.message != entry.message:
                # In Kueue, writing the status replaces the queue's copy of the workload, so Kueue
                # forgets which flavors it has tried.
                workload.message, workload.tried = entry.message, ()

    def _deliver(self, cycle: Cycle, issued: list[tuple[_Entry, Victim]], now: float) -> None:
        """Assign quota to admitted workloads, and evict targets."""
        for workload in cycle.admitted:
            self.pending[workload.cluster_queue].remove(workload)
            workload.reserved = now
            assert workload.assignment is not None
            self._hold(workload, workload.assignment)
            self.snapshot.queues[workload.cluster_queue].generation += 1
            if self._usage is not None:
                self._usage.penalise(workload)
            self._bump(workload)
        for entry, target in sorted(issued, key=lambda one: one[1].workload.name):
            cycle.preempted.append(Preempted(target.workload, entry.workload.name, target.reason))
            self.evict(target.workload, now)
        cycle.advances = cycle.advances or bool(cycle.admitted or issued)
        if not cycle.advances:
            cycle.heads = tuple([(workload.name, workload.tried, message) for workload, message in cycle.pending])

    # The methods below take and release quota for workloads.

    def _hold(self, workload: WorkloadState, assignment: Assignment) -> None:
        workload.assignment, workload.where, workload.usage = assignment, "admitted", assignment.usage
        workload.slots = frozenset(choice.slot for one in assignment.sets for choice in one.choices.values())
        workload.pods = pods_of(assignment)
        self.snapshot.add(workload)
        self.snapshot.queues[workload.cluster_queue].workloads[workload.name] = workload

    def _release(self, workload: WorkloadState, now: float) -> None:
        queue = self.snapshot.queues[workload.cluster_queue]
        self.snapshot.remove(workload)
        del queue.workloads[workload.name]
        queue.generation += 1
        self._bump(workload)
        root = self._tree(queue)
        if self.requeue_s <= 0:
            for pending in self._trees_of[root]:
                pending.bring_back()
        else:
            self._returns.setdefault(root, (now + self.requeue_s, self._trees_of[root]))

    def _held(self, assignments: Iterable[PodSetAssignment]) -> Assignment:
        """Return the assignment of a workload that already holds quota."""
        held = Assignment(mode=Mode.FIT)
        for given in assignments:
            totals = {name: whole(name, amount) for name, amount in given.usage.items()}
            one = SetAssignment(given.name, given.count, totals)
            for name, flavor in given.flavors.items():
                slot = self.snapshot.slots.get((flavor, name))
                if slot is not None:
                    one.choices[name] = FlavorChoice(flavor, slot, Mode.FIT, 0)
                    held.usage[slot] = held.usage.get(slot, 0) + totals.get(name, 0)
            trees = [self.snapshot.trees[flavor] for flavor in given.flavors.values() if flavor in self.snapshot.trees]
            if given.domains is not None and trees:
                leaves = [(trees[0].find(address), count) for address, count in given.domains]
                one.placement = [(leaf, count) for leaf, count in leaves if leaf is not None]
            held.sets.append(one)
        return held

    def _bump(self, workload: WorkloadState) -> None:
        changes = self.snapshot.changes
        for root in ("", self.snapshot.queues[workload.cluster_queue].node.root.name):
            changes[root] = changes.get(root, 0) + 1

    @staticmethod
    def _tree(queue: ClusterQueueState) -> str:
        return f"{'queue' if queue.node.parent is None else 'cohort'} {queue.node.root.name}"

    # Admission fair sharing.

    def _usage_if_shared(self, workload: WorkloadState) -> float | None:
        return self._past_usage(workload) if workload.cluster_queue in self._by_usage else None

    def _past_usage(self, workload: WorkloadState) -> float:
        assert self._usage is not None
        return self._usage.past(workload.local_queue)

    def _sample(self, now: float) -> None:
        """Add the current usage to the past usage once per interval."""
        if self._usage is None or not self._by_usage or not self._usage.is_due(now):
            return
        self._usage.sample(now, self._used())
        self.snapshot.changes[""] = self.snapshot.changes.get("", 0) + 1
        self._memo.clear()

    def _used(self) -> dict[str, dict[str, int]]:
        """Return the usage of each LocalQueue by resource, in thousandths."""
        present: dict[str, dict[str, int]] = {}
        for workload in self.workloads.values():
            if workload.where == "admitted" and workload.cluster_queue in self._by_usage:
                used = present.setdefault(workload.local_queue, {})
                for slot, amount in workload.usage.items():
                    resource = self.snapshot.names[slot][1]
                    used[resource] = used.get(resource, 0) + amount * 1000 // unit(resource)
        return present

    def _address(self, one: SetAssignment, leaf: object) -> tuple[str, ...]:
        flavor = next(choice.flavor for choice in one.choices.values() if choice.flavor in self.snapshot.trees)
        return self.snapshot.trees[flavor].address(leaf)  # type: ignore[arg-type]


class _Tournament:
    """The order in which fair sharing treats the heads. At each level, starting at the root, the
    child with the lowest share is chosen. The share includes the request of the child's head. The
    order is recomputed after each entry.
    """

    def __init__(self, entries: Iterable[_Entry]) -> None:
        self._left = {id(entry.queue.node): entry for entry in entries}

    def __iter__(self) -> Iterator[_Entry]:
        while self._left:
            first = next(iter(self._left.values()))
            node = first.queue.node
            winner = first if node.parent is None else self._play(node.root)
            assert winner is not None
            del self._left[id(winner.queue.node)]
            yield winner

    def _play(self, root: QuotaNode) -> _Entry | None:
        shares: dict[tuple[int, int], BorrowedShare] = {}
        for entry in self._left.values():
            node = entry.queue.node
            if node.root is root:
                usage = entry.assignment.usage
                for slot, amount in usage.items():
                    node.take(slot, amount)
                below = node
                for cohort in node.line:
                    shares[id(cohort), id(node)] = below.share()
                    below = cohort
                for slot, amount in usage.items():
                    node.give(slot, amount)
        return self._best(root, shares)

    def _best(self, cohort: QuotaNode, shares: dict[tuple[int, int], BorrowedShare]) -> _Entry | None:
        heads = [head for child in cohort.cohorts if (head := self._best(child, shares)) is not None]
        heads += [self._left[id(queue)] for queue in cohort.queues if id(queue) in self._left]

        def rank(entry: _Entry) -> tuple[bool, tuple[bool, float], float, float]:
            share = shares[id(cohort), id(entry.queue.node)]
            usage: SlotAmounts = entry.assignment.usage
            borrows = any(usage.get(slot, 0) > 0 for slot in share.borrowed)
            return borrows, share.rank, -entry.workload.priority, entry.workload.created

        return min(heads, key=rank, default=None)


def _reserved(assignment: Assignment, node: QuotaNode) -> SlotAmounts:
    """Return the quota that a head reserves until the end of the cycle if there is nothing to
    preempt for it."""
    reserved: SlotAmounts = {}
    for slot, amount in assignment.usage.items():
        unused = node.nominal[slot] - node.usage[slot]
        if assignment.borrowing == 0:
            reserved[slot] = max(0, min(amount, unused))
        else:
            limit = node.borrowing[slot]
            reserved[slot] = amount if limit is None else min(amount, unused + limit)
    return reserved


def _hashable(value: object) -> object:
    return repr(value)
