"""The choice of the workloads to preempt, by classic preemption or by fair sharing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import NamedTuple

from dagsim.families.kubernetes.kueue.domains import PodSetDemand
from dagsim.families.kubernetes.kueue.flavors import NO_CANDIDATES, PREEMPT, RECLAIM, FlavorSearch, Price
from dagsim.families.kubernetes.kueue.quota import QuotaNode, SlotAmounts
from dagsim.families.kubernetes.kueue.snapshot import ClusterQueueState, Snapshot, TrialRemovals
from dagsim.families.kubernetes.kueue.workloads import Assignment, Mode, WorkloadState

IN_QUEUE = "InClusterQueue"
RECLAMATION = "InCohortReclamation"
WHILE_BORROWING = "InCohortReclaimWhileBorrowing"
FAIR_SHARING = "InCohortFairSharing"


class Victim(NamedTuple):
    """A workload to preempt, with the reason given by Kueue."""

    workload: WorkloadState
    reason: str


class Candidate(NamedTuple):
    """A workload that may be preempted according to the classic rules.

    ``rank`` is 0 if the preemptor is closer to the quota in the tree than the candidate, 1 if only
    priority decides, and 2 if the candidate is in the same queue as the preemptor.
    With ``only_within_quota``, the candidate may be preempted only if the preemptor does not borrow
    afterwards. ``between`` lists the nodes that must still exceed their quota: the candidate's
    queue, and the cohorts between this queue and the common cohort.
    """

    workload: WorkloadState
    rank: int
    reason: str
    only_within_quota: bool
    between: tuple[QuotaNode, ...]


@dataclass(slots=True)
class VictimSearch:
    """A search for workloads to preempt (targets). ``slots`` are the slots without enough quota,
    and ``amounts`` is the request."""

    workload: WorkloadState
    queue: ClusterQueueState
    slots: frozenset[int]
    amounts: SlotAmounts
    demands: dict[str, list[PodSetDemand]] = field(default_factory=dict)


class Preemptor:
    """Finds workloads to preempt. ``usage_of`` returns the past usage of a workload's LocalQueue,
    if the ClusterQueue uses admission fair sharing. ``fair`` lists the strategies of fair sharing,
    or is None for classic preemption."""

    def __init__(
        self, snapshot: Snapshot, fair: Sequence[str] | None, usage_of: Callable[[WorkloadState], float | None] | None
    ) -> None:
        self.snapshot, self._fair, self._usage_of = snapshot, fair, usage_of

    def targets(
        self, workload: WorkloadState, queue: ClusterQueueState, assignment: Assignment, search: FlavorSearch
    ) -> list[Victim]:
        """Return the workloads to preempt so that the assignment fits. Return none if preemption
        cannot make it fit.
        """
        slots = {
            choice.slot for one in assignment.sets for choice in one.choices.values() if choice.mode is Mode.PREEMPT
        }
        amounts = {slot: amount for slot, amount in assignment.usage.items() if amount}
        demands = search.demands(workload, queue, assignment) if queue.trees else {}
        return self._targets(VictimSearch(workload, queue, frozenset(slots), amounts, demands))

    def price(self, workload: WorkloadState, queue: ClusterQueueState, slot: int, amount: int) -> Price:
        """Return the price of preempting workloads so that the amount fits into the slot."""
        targets = self._targets(VictimSearch(workload, queue, frozenset({slot}), {slot: amount}))
        if not targets:
            return Price(NO_CANDIDATES, queue.node.height_that_fits(slot, amount)[0])
        with self.snapshot.without(target.workload for target in targets):
            borrowing, _ = queue.node.height_that_fits(slot, amount)
        own = any(target.workload.cluster_queue == queue.name for target in targets)
        return Price(PREEMPT if own else RECLAIM, borrowing)

    def _targets(self, search: VictimSearch) -> list[Victim]:
        return self._classic(search) if self._fair is None else self._fairly(search)

    def _fits(self, search: VictimSearch, *, borrowing: bool) -> bool:
        node = search.queue.node
        for slot, amount in search.amounts.items():
            if not borrowing and node.exceeds(slot, amount):
                return False
            if amount > max(0, node.available(slot)):
                return False
        return all(
            isinstance(search.queue.trees[flavor].place(asked, exact=False), dict)
            for flavor, asked in search.demands.items()
        )

    def _spared(
        self, search: VictimSearch, targets: list[Victim], trial: TrialRemovals, *, borrowing: bool
    ) -> list[Victim]:
        """Remove targets that are not needed after all, beginning with the second to last."""
        at = len(targets) - 2
        while at >= 0:
            trial.bring_back(targets[at].workload)
            if self._fits(search, borrowing=borrowing):
                targets[at] = targets[-1]
                targets.pop()
            else:
                trial.remove(targets[at].workload)
            at -= 1
        return targets

    def before(self, one: WorkloadState, other: WorkloadState, queue: str) -> int:
        """Compare candidates of the same class. The criteria are, in turn: evicted workloads first,
        then workloads in other queues, more past usage of the LocalQueue, lower priority, later
        reservation, and smaller UID."""
        keys = []
        for workload in (one, other):
            reserved = float("inf") if workload.reserved is None else workload.reserved
            keys.append((workload.priority, -reserved, workload.uid))
        first = (not one.evicted, one.cluster_queue == queue), (not other.evicted, other.cluster_queue == queue)
        if first[0] != first[1]:
            return -1 if first[0] < first[1] else 1
        same_queue = one.cluster_queue == other.cluster_queue and one.local_queue != other.local_queue
        if self._usage_of is not None and same_queue:
            used, other_used = self._usage_of(one), self._usage_of(other)
            if used is not None and other_used is not None and used != other_used:
                return -1 if used > other_used else 1
        return (keys[0] > keys[1]) - (keys[0] < keys[1])

    # Classic preemption.

    def _classic(self, search: VictimSearch) -> list[Victim]:
        candidates = self._candidates(search)
        others = [candidate for candidate in candidates if candidate.rank < 2]
        node = search.queue.node
        forbidden = search.queue.spec.preemption.borrow_within_cohort.policy == "Never"
        below = all(node.usage[slot] < node.nominal[slot] for slot in search.slots)
        if not others or (forbidden and not below):
            attempts = [True]
        elif forbidden and not any(candidate.rank == 0 for candidate in others):
            attempts = [False, True]
        else:
            attempts = [True, False]
        for borrowing in attempts:
            targets: list[Victim] = []
            with self.snapshot.without() as trial:
                for candidate in candidates:
                    if candidate.rank < 2 and (
                        (borrowing and candidate.only_within_quota)
                        or not all(between.exceeds_any(search.slots) for between in candidate.between)
                    ):
                        continue
                    trial.remove(candidate.workload)
                    targets.append(Victim(candidate.workload, candidate.reason))
                    if self._fits(search, borrowing=borrowing):
                        return self._spared(search, targets, trial, borrowing=borrowing)
        return []

    def _candidates(self, search: VictimSearch) -> list[Candidate]:
        """Return the candidates in the order in which they would be preempted."""
        queue, preemption = search.queue, search.queue.spec.preemption
        candidates: list[Candidate] = []
        if preemption.within_cluster_queue != "Never":
            for workload in queue.workloads.values():
                if self._allowed(search, workload, preemption.within_cluster_queue):
                    candidates.append(Candidate(workload, 2, IN_QUEUE, False, ()))
        if queue.node.parent is not None and preemption.reclaim_within_cohort != "Never":
            candidates += self._candidates_above(search)
        if self._usage_of is None:
            candidates.sort(
                key=lambda one: (
                    not one.workload.evicted, one.rank, one.workload.priority,
                    -(float("inf") if one.workload.reserved is None else one.workload.reserved), one.workload.uid,
                )
            )  # fmt: skip
        else:

            def before(one: Candidate, other: Candidate) -> int:
                return self.before(one.workload, other.workload, queue.name)

            candidates.sort(key=cmp_to_key(before))
            candidates.sort(key=lambda one: (not one.workload.evicted, one.rank))
        return candidates

    def _candidates_above(self, search: VictimSearch) -> Iterator[Candidate]:
        """Walk up the cohorts. In each subtree that has not been visited yet, walk down to the
        queues that exceed their quota."""
        node = search.queue.node
        borrowing = search.queue.spec.preemption.borrow_within_cohort
        left = dict(search.amounts)
        nearer = self._within_quota(node, left)
        seen: QuotaNode | None = None
        for cohort in node.line:
            for queue, between in _beyond_quota(cohort, seen, search.slots, ()):
                if queue is node:
                    continue
                for workload in self.snapshot.queues[queue.name].workloads.values():
                    if not self._allowed(search, workload, search.queue.spec.preemption.reclaim_within_cohort):
                        continue
                    if nearer:
                        yield Candidate(workload, 0, RECLAMATION, False, between)
                        continue
                    threshold = borrowing.max_priority_threshold
                    only_within = (
                        borrowing.policy == "Never"
                        or workload.priority >= search.workload.priority
                        or (threshold is not None and workload.priority > threshold)
                    )
                    reason = RECLAMATION if only_within else WHILE_BORROWING
                    yield Candidate(workload, 1, reason, only_within, between)
            nearer = self._within_quota(cohort, left) or nearer
            seen = cohort

    @staticmethod
    def _within_quota(node: QuotaNode, left: SlotAmounts) -> bool:
        """Return True if the quota of the node is sufficient. Subtract the node's guaranteed part
        from the remaining amount."""
        fits = all(node.usage[slot] + amount <= node.subtree[slot] for slot, amount in left.items())
        for slot, amount in left.items():
            left[slot] = max(0, amount - node.unused_guaranteed(slot))
        return fits

    def _allowed(self, search: VictimSearch, workload: WorkloadState, policy: str) -> bool:
        if search.slots.isdisjoint(workload.slots):
            return False
        if policy == "Any" or workload.priority < search.workload.priority:
            return policy != "Never"
        return (
            policy == "LowerOrNewerEqualPriority"
            and workload.priority == search.workload.priority
            and search.workload.created < workload.created
        )

    # Fair sharing.

    def _fairly(self, search: VictimSearch) -> list[Victim]:
        assert self._fair is not None
        candidates = self._fair_candidates(search)
        if not candidates or (search.queue.node.parent is None and not self._alone_enough(search, candidates)):
            return []
        strategies = self._fair or ("LessThanOrEqualToFinalShare", "LessThanInitialShare")
        with self.snapshot.without() as trial:
            # add the usage of the workload itself, because the shares below include it
            with search.queue.node.holding(search.amounts):
                tournament = _Victims(self, search, candidates)
                targets, refused = self._first_strategy(search, tournament, strategies[0], trial)
                fits = bool(targets) and self._fits_without_own(search)
                if not fits and len(strategies) > 1:
                    fits = self._second_strategy(search, _Victims(self, search, refused), targets, trial)
            return self._spared(search, targets, trial, borrowing=True) if fits else []

    def _alone_enough(self, search: VictimSearch, candidates: Sequence[WorkloadState]) -> bool:
        """Return True if it is sufficient to preempt all candidates, for a queue without a cohort.
        If it is not sufficient, Kueue v0.17.0 crashes.
        """
        with self.snapshot.without(candidates):
            return self._fits(search, borrowing=True)

    def _fair_candidates(self, search: VictimSearch) -> list[WorkloadState]:
        queue, preemption = search.queue, search.queue.spec.preemption
        candidates: list[WorkloadState] = []
        if preemption.within_cluster_queue != "Never":
            policy = preemption.within_cluster_queue
            candidates += [one for one in queue.workloads.values() if self._allowed(search, one, policy)]
        if queue.node.parent is not None and preemption.reclaim_within_cohort != "Never":
            policy = preemption.reclaim_within_cohort
            for node in _queues_below(queue.node.root):
                if node is not queue.node and any(node.exceeds(slot) for slot in search.slots):
                    workloads = self.snapshot.queues[node.name].workloads.values()
                    candidates += [one for one in workloads if self._allowed(search, one, policy)]
        candidates.sort(key=cmp_to_key(lambda one, other: self.before(one, other, queue.name)))
        return candidates

    def _fits_without_own(self, search: VictimSearch) -> bool:
        node = search.queue.node
        for slot, amount in search.amounts.items():
            node.give(slot, amount)
        try:
            return self._fits(search, borrowing=True)
        finally:
            for slot, amount in search.amounts.items():
                node.take(slot, amount)

    def _first_strategy(
        self, search: VictimSearch, victims: _Victims, strategy: str, trial: TrialRemovals
    ) -> tuple[list[Victim], list[WorkloadState]]:
        """Remove candidates from the state until the workload fits. Return these candidates as
        targets, and the candidates that the strategy rejected."""
        targets: list[Victim] = []
        refused: list[WorkloadState] = []
        entitled = not any(search.queue.node.exceeds(slot) for slot in search.slots)
        while (queue := victims.next_queue()) is not None:
            target = None
            if queue is search.queue.node or entitled:
                reason = IN_QUEUE if queue is search.queue.node else RECLAMATION
                target = Victim(victims.pop(queue), reason)
            else:
                mine, theirs = victims.compared(queue)
                new_share, old_share = mine.share().rank, theirs.share().rank
                while target is None and victims.waiting[queue]:
                    workload = victims.pop(queue)
                    if strategy == "LessThanInitialShare":
                        accepted = new_share < old_share
                    else:
                        with self.snapshot.without([workload]):
                            accepted = new_share <= theirs.share().rank
                    if accepted:
                        target = Victim(workload, FAIR_SHARING)
                    else:
                        refused.append(workload)
            if target is not None:
                trial.remove(target.workload)
                targets.append(target)
                if self._fits_without_own(search):
                    return targets, []
        return targets, refused

    def _second_strategy(
        self, search: VictimSearch, victims: _Victims, targets: list[Victim], trial: TrialRemovals
    ) -> bool:
        """Try one rejected candidate from each queue. Return True if the workload then fits."""
        while (queue := victims.next_queue()) is not None:
            mine, theirs = victims.compared(queue)
            if mine.share().rank < theirs.share().rank:
                workload = victims.pop(queue)
                trial.remove(workload)
                targets.append(Victim(workload, FAIR_SHARING))
                if self._fits_without_own(search):
                    return True
            victims.drop(queue)
        return False


class _Victims:
    """Candidates for preemption under fair sharing, by queue. The queue with the largest share
    comes first. The search starts at the root. A cohort precedes a queue with the same share. Among
    queues with the same share, the one with the better candidate comes first.
    """

    def __init__(self, preemptor: Preemptor, search: VictimSearch, candidates: Sequence[WorkloadState]) -> None:
        self._preemptor, self._search = preemptor, search
        self._own = search.queue.node
        self._line = set(map(id, self._own.line))
        self._done: set[int] = set()
        self.waiting: dict[QuotaNode, list[WorkloadState]] = {}
        for workload in candidates:
            node = preemptor.snapshot.queues[workload.cluster_queue].node
            self.waiting.setdefault(node, []).append(workload)
        for waiting in self.waiting.values():
            waiting.reverse()

    def pop(self, queue: QuotaNode) -> WorkloadState:
        """Remove and return the best candidate of a queue."""
        return self.waiting[queue].pop()

    def drop(self, queue: QuotaNode) -> None:
        """Exclude a queue from the rest of the search."""
        self._done.add(id(queue))

    def compared(self, queue: QuotaNode) -> tuple[QuotaNode, QuotaNode]:
        """Return the two nodes just below the lowest common cohort: the one above the preemptor,
        and the one above the other queue.
        """
        common = next(cohort for cohort in queue.line if id(cohort) in self._line)
        return _just_below(self._own, common), _just_below(queue, common)

    def next_queue(self) -> QuotaNode | None:
        """Return the queue from which the next victim is taken, or None if there are no candidates
        left."""
        if self._own.parent is None:
            return self._own if self.waiting.get(self._own) and id(self._own) not in self._done else None
        root = self._own.root
        while id(root) not in self._done:
            if (queue := self._descend(root)) is not None:
                return queue
        return None

    def _descend(self, cohort: QuotaNode) -> QuotaNode | None:
        best_queue: QuotaNode | None = None
        best = (False, -1.0)
        for queue in cohort.queues:
            if id(queue) in self._done:
                continue
            share = queue.share()
            if (not share.borrowed and queue is not self._own) or not self.waiting.get(queue):
                self._done.add(id(queue))
            elif best_queue is not None and share.rank == best:
                first, other = self.waiting[queue][-1], self.waiting[best_queue][-1]
                if self._preemptor.before(first, other, self._search.queue.name) < 0:
                    best_queue = queue
            elif share.rank > best:
                best_queue, best = queue, share.rank
        best_cohort: QuotaNode | None = None
        best_of_cohorts = (False, -1.0)
        for child in cohort.cohorts:
            if id(child) in self._done:
                continue
            share = child.share()
            if not share.borrowed and id(child) not in self._line:
                self._done.add(id(child))
            elif share.rank >= best_of_cohorts:
                best_cohort, best_of_cohorts = child, share.rank
        if best_cohort is not None and best_of_cohorts >= best:
            return self._descend(best_cohort)
        if best_queue is None:
            self._done.add(id(cohort))
        return best_queue


def _just_below(node: QuotaNode, cohort: QuotaNode) -> QuotaNode:
    while node.parent is not cohort:
        assert node.parent is not None
        node = node.parent
    return node


def _queues_below(cohort: QuotaNode) -> Iterator[QuotaNode]:
    yield from cohort.queues
    for child in cohort.cohorts:
        yield from _queues_below(child)


def _beyond_quota(
    cohort: QuotaNode, seen: QuotaNode | None, slots: frozenset[int], between: tuple[QuotaNode, ...]
) -> Iterator[tuple[QuotaNode, tuple[QuotaNode, ...]]]:
    """Yield the queues below a cohort that exceed their quota. Each comes with the nodes that must
    exceed their quotas: the queue itself, and the cohorts between it and the given cohort.
    """
    for child in cohort.cohorts:
        if child is not seen and child.exceeds_any(slots):
            yield from _beyond_quota(child, seen, slots, (*between, child))
    for queue in cohort.queues:
        if queue.exceeds_any(slots):
            yield queue, (queue, *between)
