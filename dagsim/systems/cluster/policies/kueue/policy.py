"""Kueue: workloads of cluster queues, admitted by quota, with borrowing and reclaim within cohorts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple, TypeAlias

from dagsim.errors import ConfigError
from dagsim.model import Decision, Job, Kill, Preempt, QueueNode, QueueTree, RejectReason, Start
from dagsim.model.arithmetic import ordered_sum
from dagsim.model.gpu import canonical
from dagsim.systems.cluster.api import ClusterView, DemandClass, Run, TaskState
from dagsim.systems.cluster.policies.kube import NodeScorer
from dagsim.systems.cluster.policies.placement import start_of
from dagsim.systems.cluster.policies.preemption import make_room

_PLAIN = ("gpus", "cpus", "memory_gb")
_Entry: TypeAlias = tuple[float, int, int, TaskState]


class _Admitted(NamedTuple):
    """A run that holds quota."""

    queue: str
    amounts: dict[str, float]
    priority: float
    started_s: float


class Kueue:
    """Admission by quota (Kueue, cluster_queue and preemption, 2024): each leaf of ``queues.tree``
    is a cluster queue, each node above it a cohort. A job belongs to the queue named (or aliased) by
    its partition, account or tenant, else to the first queue. Flavors are GPU types: a quota by
    type, or ``gpus`` for all of them.

    Queues are ordered by priority, then by arrival. ``strict`` queues stop at the first workload
    that cannot be admitted, others continue. Among all queues, workloads that need not borrow come
    first. A workload that fits into the quota of its own queue may reclaim quota that others
    borrow, and preempt in its queue, as configured for the queue (classic preemption). A gang is
    one workload; each independent instance is one. Pods go where the default scheduler would put
    them (``scoring``).

    Uses no estimates; preemptive if a queue is configured so. O(queues x demand classes) per
    decision, O(running log running) if something is preempted.
    """

    def __init__(self, scoring: str = "least", cpu: float = 1.0, memory: float = 1.0, gpu: float = 0.0) -> None:
        self._scorer = NodeScorer(scoring, cpu, memory, gpu)
        self._now = float("inf")

    def wait_rules(self, view: ClusterView) -> KueueWaits:
        """Its quotas, for explanations of waits."""
        self._set_up(view)
        return KueueWaits(view, self._quotas, self._queue_of, self._amounts)

    def started(self, run: Run, now: float) -> None:
        """Add a run."""
        if run.id not in self._admitted:
            queue = self._queue_of(run.job.job)
            amounts = self._amounts(queue, run.task, run.type, run.instances)
            self._quotas.take(queue, amounts)
            self._admitted[run.id] = _Admitted(queue, amounts, run.job.job.priority, now)

    def ended(self, run: Run, now: float) -> None:
        """Remove a run."""
        admitted = self._admitted.pop(run.id)
        self._quotas.give(admitted.queue, admitted.amounts)

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        if view.now < self._now:
            self._set_up(view)
        self._now = view.now
        view.follow(self)
        pending = view.index((_Pending, self), lambda: _Pending(self._queue_of))
        for task in pending.take_new():
            if task.waiting and not any(self._ever(task, type_) for type_ in task.demand.types):
                if all(run.started_s < view.now for run in view.running.values() if run.job is task.job):
                    yield Kill(task.job.number, RejectReason.CANCELLED)
                else:
                    pending.new.append(task)  # its job has just begun: push it again
        while (start := self._next(view, pending)) is not None:
            yield start
        for queue in self._leaves.values():
            first = pending.first(queue.name)
            if first is not None and (queue.reclaim, queue.within) != ("never", "never"):
                stops = self._preempted(view, queue, first)
                if stops:
                    yield from map(Preempt, stops)
                    flavor = self._flavor(view, queue.name, first)
                    if flavor is not None:
                        yield from start_of(self._scorer.place, view, first, flavor[0])
                    return

    def _set_up(self, view: ClusterView) -> None:
        tree = (view.queues or QueueTree()).tree or (QueueNode("default", quota=_all_of(view)),)
        self._leaves = {node.name: node for node, _ in QueueTree(tree).walk() if not node.children}
        self._queues = {name: name for name in self._leaves}
        for node in self._leaves.values():
            self._queues = dict.fromkeys(node.aliases, node.name) | self._queues
            if not node.quota:
                raise ConfigError(f"kueue: the queue {node.name!r} has no quota; queues.tree gives each one in quota")
        self._types = [None if gpu is None else gpu.name for gpu in view.gpu_types]
        self._quotas = QuotaTree(tuple([_canonical(node) for node in tree]))
        self._flavors = {name: {_key(key) for key in node.quota} for name, node in self._leaves.items()}
        self._named: dict[tuple[str, str, str], str] = {}
        """Queue of each combination of partition, account and tenant so far."""
        self._admitted: dict[int, _Admitted] = {}

    def _queue_of(self, job: Job) -> str:
        names = (job.partition, job.account, job.tenant)
        queue = self._named.get(names)
        if queue is None:
            asked = (f"{job.account}/{job.partition}", *names)
            queue = next((self._queues[name] for name in asked if name in self._queues), next(iter(self._leaves)))
            self._named[names] = queue
        return queue

    def _amounts(self, queue: str, task: TaskState, type_: int, instances: int | None = None) -> dict[str, float]:
        """The quota that a start of the task uses, for the resources that its queue defines."""
        gpus, cpus, memory_gb, _ = task.demand.demand
        count = instances if instances is not None else task.demand.gang or 1
        flavors, kind = self._flavors[queue], self._types[type_]
        named = kind if kind in flavors else "gpus"
        asked = {named: gpus * count, "cpus": cpus * count, "memory_gb": memory_gb * count}
        return {key: amount for key, amount in asked.items() if amount and (key in flavors or key == named)}

    def _ever(self, task: TaskState, type_: int) -> bool:
        """True if an idle cluster has the quota for a start."""
        queue = self._queue_of(task.job.job)
        return all(
            amount <= self._quotas.most(queue, key) + 1e-9 for key, amount in self._amounts(queue, task, type_).items()
        )

    def _next(self, view: ClusterView, pending: _Pending) -> Start | None:
        """Return the workload to admit next: workloads that borrow nothing first, then by priority
        and arrival.
        """
        heads = [
            (entry, queue.name)
            for queue in self._leaves.values()
            for entry in pending.heads(queue.name, strict=queue.order == "strict")
        ]
        chosen: tuple[TaskState, int] | None = None
        for entry, queue_name in sorted(heads):
            flavor = self._flavor(view, queue_name, entry[3])
            if flavor is None:
                continue
            if self._quotas.within_nominal(queue_name, flavor[1]):
                chosen = entry[3], flavor[0]
                break
            chosen = chosen or (entry[3], flavor[0])  # the first workload that would borrow
        if chosen is None:
            return None
        placement = self._scorer.place(view, *chosen)
        return None if placement is None else Start(chosen[0], placement)

    def _flavor(self, view: ClusterView, queue: str, task: TaskState) -> tuple[int, dict[str, float]] | None:
        """Return the first type, in the order of the quota, with quota and room, and the quota that
        the task uses of it.
        """
        if not view.machines.fits(task.demand):
            return None
        for type_ in self._in_order(queue, task.demand):
            amounts = self._amounts(queue, task, type_)
            if self._quotas.fits(queue, amounts) and view.machines.fits_on(task.demand, type_):
                return type_, amounts
        return None

    def _in_order(self, queue: str, demand: DemandClass) -> Sequence[int]:
        if len(demand.types) == 1:
            return demand.types
        place = {_key(key): at for at, key in enumerate(self._leaves[queue].quota)}
        return sorted(demand.types, key=lambda type_: place.get(self._types[type_] or "", len(place)))

    # Preemption.

    def _preempted(self, view: ClusterView, queue: QueueNode, task: TaskState) -> list[int]:
        """Return the runs to stop so that the task has quota and room on some type; none if that is
        impossible.
        """
        for type_ in self._in_order(queue.name, task.demand):
            amounts = self._amounts(queue.name, task, type_)
            candidates = self._candidates(view, queue, task, amounts)
            targets = self._targets(queue, amounts, candidates)
            if targets is None:
                continue
            stops = self._with_room(view, task, targets, candidates)
            if stops:
                return stops
        return []

    def _candidates(self, view: ClusterView, queue: QueueNode, task: TaskState, amounts: dict[str, float]) -> list[int]:
        """Return the runs that may be stopped: runs of borrowing queues first, then lowest
        priority, then youngest.
        """
        priority, top, victims = task.job.job.priority, self._quotas.top(queue.name), []
        nominal = all(amount <= self._quotas.nominal(queue.name, key) + 1e-9 for key, amount in amounts.items())
        for run, admitted in self._admitted.items():
            if admitted.started_s >= view.now or not set(amounts) & set(admitted.amounts):
                continue
            if admitted.queue == queue.name:
                newer = admitted.priority == priority and view.running[run].task.order > task.order
                allowed = queue.within != "never" and (
                    admitted.priority < priority or (newer and queue.within == "lower-or-newer-equal-priority")
                )
            else:
                allowed = (
                    nominal
                    and queue.reclaim != "never"
                    and self._quotas.top(admitted.queue) == top
                    and self._quotas.borrows(admitted.queue, amounts)
                    and (queue.reclaim == "any" or admitted.priority < priority)
                )
            if allowed:
                victims.append(run)

        def rank(run: int) -> tuple[bool, float, float, int]:
            admitted = self._admitted[run]
            return admitted.queue == queue.name, admitted.priority, -admitted.started_s, -run

        return sorted(victims, key=rank)

    def _targets(self, queue: QueueNode, amounts: dict[str, float], candidates: list[int]) -> list[int] | None:
        """Return a small set of candidates that frees the quota. They are chosen greedily; then
        those that turn out unnecessary are removed, the last one first.
        """
        own = [run for run in candidates if self._admitted[run].queue == queue.name]
        attempts = [(own, True)] if len(own) == len(candidates) else [(candidates, False), (own, True)]
        for runs, borrowing in attempts:
            gone: list[int] = []

            def enough(borrowing: bool = borrowing) -> bool:
                inside = borrowing or self._quotas.within_nominal(queue.name, amounts)
                return inside and self._quotas.fits(queue.name, amounts)

            for run in runs:
                if enough():
                    break
                if self._admitted[run].queue == queue.name or self._quotas.borrows(self._admitted[run].queue, amounts):
                    self._give(run)
                    gone.append(run)
            targets = list(gone) if enough() else None
            for run in reversed(gone):
                self._take(run)
                if targets is not None:
                    if enough():
                        targets.remove(run)
                    else:
                        self._give(run)
            for run in targets or ():
                self._take(run)
            if targets is not None:
                return targets
        return None

    def _with_room(self, view: ClusterView, task: TaskState, targets: list[int], candidates: list[int]) -> list[int]:
        """Return the targets and the other runs to stop so that nodes have room; none if even all
        candidates are not enough.
        """
        if view.fits(task):
            return targets
        order = [*targets, *(run for run in candidates if run not in targets)]
        more = make_room(view, task, [view.running[run] for run in order])
        return list(dict.fromkeys([*targets, *more])) if more else []

    def _give(self, run: int) -> None:
        self._quotas.give(self._admitted[run].queue, self._admitted[run].amounts)

    def _take(self, run: int) -> None:
        self._quotas.take(self._admitted[run].queue, self._admitted[run].amounts)


class _Pending:
    """An index of the ready tasks: by queue and demand, in order of priority, then of arrival."""

    def __init__(self, queue_of: Callable[[Job], str]) -> None:
        self.new: list[TaskState] = []
        self._queue_of = queue_of
        self._heaps: dict[str, dict[DemandClass, list[_Entry]]] = {}

    def push(self, task: TaskState) -> None:
        """Add a task that became ready."""
        queue = self._queue_of(task.job.job)
        heap = self._heaps.setdefault(queue, {}).setdefault(task.demand, [])
        heappush(heap, (-task.job.job.priority, task.order, task.piece, task))
        self.new.append(task)

    def take_new(self) -> Iterable[TaskState]:
        """Return the tasks that became ready since the last call."""
        new, self.new = self.new, []
        return new

    def heads(self, queue: str, *, strict: bool) -> list[_Entry]:
        """Return the first task of each demand; if ``strict``, only the first of all."""
        entries = []
        for heap in self._heaps.get(queue, {}).values():
            while heap and not heap[0][3].waiting:
                heappop(heap)
            if heap:
                entries.append(heap[0])
        return [min(entries)] if strict and entries else entries

    def first(self, queue: str) -> TaskState | None:
        """Return the first task of all."""
        heads = self.heads(queue, strict=False)
        return min(heads)[3] if heads else None


def _all_of(view: ClusterView) -> dict[str, float]:
    """A quota of the whole cluster."""
    totals = {name: ordered_sum(getattr(node, name) for node in view.cluster.nodes) for name in _PLAIN}
    return {name: total for name, total in totals.items() if total}


def _key(name: str) -> str:
    """The key of a quota: a resource, or a GPU type by its own name."""
    return name if name in _PLAIN else canonical(name)


def _canonical(node: QueueNode) -> QueueNode:
    quota, borrow, lend = (
        {_key(key): limit for key, limit in part.items()} for part in (node.quota, node.borrow, node.lend)
    )
    children = tuple([_canonical(child) for child in node.children])
    return QueueNode(node.name, quota=quota, borrow=borrow, lend=lend, children=children)


_SLACK = 1e-9


@dataclass(slots=True)
class _Quota:
    """One queue or cohort; amounts by resource."""

    parent: str | None
    nominal: dict[str, float]
    borrow: dict[str, float]
    lend: dict[str, float]
    subtree: dict[str, float] = field(default_factory=dict)
    """Its own quota and the quota that queues below it lend."""
    used: dict[str, float] = field(default_factory=dict)
    """Usage of the subtree's quota by it and the queues below it."""

    def guaranteed(self, key: str) -> float:
        """The part of its quota that it does not lend."""
        return max(0.0, self.subtree.get(key, 0.0) - self.lend[key]) if key in self.lend else 0.0


class QuotaTree:
    """Quotas of all queues. A queue may use its nominal quota and, up to its borrowing limit, the
    quota that others of its cohort lend and do not use (Kueue, cluster_queue, 2024). Usage of
    its guaranteed part affects no other queue; the rest counts against all cohorts above it.
    O(depth) per query and change.
    """

    def __init__(self, tree: tuple[QueueNode, ...]) -> None:
        self._quotas: dict[str, _Quota] = {}
        for root in tree:
            self._add(root, None)

    def nominal(self, queue: str, key: str) -> float:
        """The quota of a queue."""
        return self._quotas[queue].nominal.get(key, 0.0)

    def used(self, queue: str, key: str) -> float:
        """The quota that a queue uses."""
        return self._quotas[queue].used.get(key, 0.0)

    def available(self, queue: str, key: str) -> float:
        """Amount that a queue could still take: unused quota of its own, and all that it may
        borrow.
        """
        return self._left(queue, key, empty=False)

    def most(self, queue: str, key: str) -> float:
        """Amount that a queue could take of an idle cluster."""
        return self._left(queue, key, empty=True)

    def fits(self, queue: str, amounts: Mapping[str, float]) -> bool:
        """True if the queue may take all of it now."""
        return all(amount <= self.available(queue, key) + _SLACK for key, amount in amounts.items())

    def within_nominal(self, queue: str, amounts: Mapping[str, float]) -> bool:
        """True if the queue has this amount of its own quota unused."""
        return all(
            self.used(queue, key) + amount <= self.nominal(queue, key) + _SLACK for key, amount in amounts.items()
        )

    def borrows(self, queue: str, keys: Mapping[str, float]) -> bool:
        """True if the queue uses more than its quota of one of these resources."""
        return any(self.used(queue, key) > self.nominal(queue, key) + _SLACK for key in keys)

    def take(self, queue: str, amounts: Mapping[str, float]) -> None:
        """Use quota."""
        for key, amount in amounts.items():
            self._change(queue, key, amount)

    def give(self, queue: str, amounts: Mapping[str, float]) -> None:
        """Give quota back."""
        for key, amount in amounts.items():
            self._change(queue, key, -amount)

    def top(self, queue: str) -> str:
        """The topmost cohort above a queue, or the queue itself."""
        while (parent := self._quotas[queue].parent) is not None:
            queue = parent
        return queue

    def _add(self, node: QueueNode, parent: str | None) -> None:
        quota = _Quota(parent, dict(node.quota), dict(node.borrow), dict(node.lend))
        self._quotas[node.name] = quota
        quota.subtree = dict(quota.nominal)
        for child in node.children:
            self._add(child, node.name)
            below = self._quotas[child.name]
            for key, amount in below.subtree.items():
                quota.subtree[key] = quota.subtree.get(key, 0.0) + amount - below.guaranteed(key)

    def _left(self, name: str, key: str, *, empty: bool) -> float:
        quota = self._quotas[name]
        used, whole = 0.0 if empty else quota.used.get(key, 0.0), quota.subtree.get(key, 0.0)
        if quota.parent is None:
            return whole - used
        guaranteed = quota.guaranteed(key)
        above = self._left(quota.parent, key, empty=empty)
        if key in quota.borrow:
            lent, from_above = whole - guaranteed, max(0.0, used - guaranteed)
            above = min(above, lent - from_above + quota.borrow.get(key, inf))
        return max(0.0, guaranteed - used) + above

    def _change(self, name: str, key: str, amount: float) -> None:
        """Add to the usage, and to the usage of the cohorts above beyond the guaranteed part."""
        quota = self._quotas[name]
        before = quota.used.get(key, 0.0)
        quota.used[key] = before + amount if abs(before + amount) > _SLACK else 0.0
        if quota.parent is not None:
            own = quota.guaranteed(key)
            asked = max(0.0, before + amount - own) - max(0.0, before - own)
            if asked:
                self._change(quota.parent, key, asked)


class KueueWaits:
    """Quotas with their usage by each queue; see ``waits.WaitRules``."""

    elsewhere = "there was room, but only on types of which its queue had no quota left"

    def __init__(
        self,
        view: ClusterView,
        quotas: QuotaTree,
        queue_of: Callable[[Job], str],
        amounts: Callable[[str, TaskState, int, int | None], dict[str, float]],
    ) -> None:
        self._quotas, self._queue_of, self._amounts = quotas, queue_of, amounts
        self._of_type = [0] * len(view.gpu_types)
        for machine in view.machines.list:
            self._of_type[machine.type] |= machine.bit
        self._taken: dict[int, tuple[str, dict[str, float]]] = {}

    def started(self, run: int, task: TaskState, instances: int, type_: int) -> None:
        """Add a run."""
        queue = self._queue_of(task.job.job)
        self._taken[run] = queue, self._amounts(queue, task, type_, instances)
        self._quotas.take(*self._taken[run])

    def ended(self, run: int) -> None:
        """Remove a run."""
        self._quotas.give(*self._taken.pop(run))

    def limits(self, task: TaskState) -> Iterator[str]:
        """Describe the quotas that are used up; none while a type has quota left."""
        if not self._with_quota(task):
            queue = self._queue_of(task.job.job)
            texts: dict[str, None] = {}
            for type_ in task.demand.types:
                for key, amount in self._amounts(queue, task, type_, None).items():
                    if not self._quotas.fits(queue, {key: amount}):
                        texts[self._used_up(queue, key, amount)] = None
            yield from texts

    def never(self, task: TaskState) -> Iterator[str]:
        """Describe the quotas that a start exceeds, with all that the queue may borrow; nothing if a
        type has enough.
        """
        queue = self._queue_of(task.job.job)
        reasons: dict[str, None] = {}
        for type_ in task.demand.types:
            amounts = self._amounts(queue, task, type_, None)
            own = [
                f"quota of {key} ({most:g}) < {amount:g}: the queue {queue}"
                for key, amount in amounts.items()
                if amount > (most := self._quotas.most(queue, key)) + 1e-9
            ]
            if not own:
                return
            reasons |= dict.fromkeys(own)
        yield from reasons

    def nodes(self, task: TaskState) -> int:
        """Nodes of types with quota left; if no type has any left, nodes of all types of the task."""
        types = self._with_quota(task) or task.demand.types
        return sum(self._of_type[type_] for type_ in types)

    def alone(self, task: TaskState) -> bool:
        """False: pods of different jobs may share a node."""
        return False

    def distinct(self, task: TaskState) -> bool:
        """False: pods of a gang may share a node."""
        return False

    def _with_quota(self, task: TaskState) -> Sequence[int]:
        queue = self._queue_of(task.job.job)
        return [
            type_ for type_ in task.demand.types if self._quotas.fits(queue, self._amounts(queue, task, type_, None))
        ]

    def _used_up(self, queue: str, key: str, amount: float) -> str:
        quota = f"the quota of {self._quotas.nominal(queue, key):g} {key} of the queue {queue}"
        if self._quotas.within_nominal(queue, {key: amount}):
            return f"{quota} was lent to others"
        return f"{quota} was used up, and its cohort could lend it no more"
