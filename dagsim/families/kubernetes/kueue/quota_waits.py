"""The quotas that make a job wait. They are reconstructed from a log or, for the current time,
reported by the engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from dagsim.families.kubernetes.kueue.amounts import natural, text, whole
from dagsim.families.kubernetes.kueue.engine import Admission, EndlessPreemption
from dagsim.families.kubernetes.kueue.kueue_objects import ClusterQueue, Workload
from dagsim.families.kubernetes.kueue.offers import Site
from dagsim.families.kubernetes.kueue.quota import QuotaForest, QuotaNode, SlotAmounts
from dagsim.families.kubernetes.kueue.workloads import WorkloadState
from dagsim.model.arithmetic import whole_sum
from dagsim.systems.cluster.api import ClusterView, Excess, NextStep, ReachedLimit, TaskState, WaitRules


class KueueWaits(WaitRules):
    """The quotas, and how much of them each queue uses."""

    elsewhere = "it would have fitted, but only on types for which its queue had no quota left"

    def __init__(self, view: ClusterView, site: Site) -> None:
        self._site = site
        self.judges_demands = site.exact
        self._forest = QuotaForest(site.objects, [queue.name for queue in site.objects.cluster_queues])
        self._of_type = [0] * len(view.gpu_types)
        for machine in view.machines.list:
            self._of_type[machine.type] |= machine.bit
        self._taken: dict[int, tuple[QuotaNode, SlotAmounts]] = {}
        self._idle: Admission | None = None
        """An engine without workloads, once it is needed."""

    def started(self, run: int, task: TaskState, instances: int, type_: int) -> None:
        """Record that a run has started."""
        queue = self._site.cluster_queue_of(task.job.job)
        node, amounts = self._forest.queues[queue.name], self._amounts(queue, task, type_, instances)
        self._taken[run] = node, amounts
        for slot, amount in amounts.items():
            node.take(slot, amount)

    def ended(self, run: int) -> None:
        """Record that a run has ended."""
        node, amounts = self._taken.pop(run)
        for slot, amount in amounts.items():
            node.give(slot, amount)

    def limits(self, task: TaskState) -> Iterator[str]:
        """Describe the exhausted quotas. Yield nothing while some GPU type has quota left."""
        if not self._with_quota(task):
            queue = self._site.cluster_queue_of(task.job.job)
            node, texts = self._forest.queues[queue.name], dict[str, None]()
            for type_ in task.demand.types:
                for slot, amount in self._amounts(queue, task, type_).items():
                    if amount > node.available(slot):
                        texts[self._used_up(node, slot, amount)] = None
            yield from texts

    def reached(self, task: TaskState) -> Iterator[ReachedLimit]:
        """Yield the exhausted quotas for the first GPU type that the task may use. Yield nothing
        while some type has quota left.
        """
        if self._with_quota(task) or not task.demand.types:
            return
        queue = self._site.cluster_queue_of(task.job.job)
        node = self._forest.queues[queue.name]
        for slot, amount in self._amounts(queue, task, task.demand.types[0]).items():
            room = node.available(slot)
            if amount > room:
                name, used = self._name(slot), node.usage[slot]
                more = f"{self._natural(slot, amount - room):g} more needed"
                yield ReachedLimit(
                    "quota",
                    f"the ClusterQueue {node.name}",
                    name,
                    self._natural(slot, used + room),
                    self._natural(slot, used),
                    self._natural(slot, amount),
                    f"insufficient unused quota for {name}, {more}: {self._holds_back(node, slot)}",
                    tuple(
                        [
                            run
                            for run, (other, amounts) in self._taken.items()
                            if other.root is node.root and slot in amounts
                        ]
                    ),
                )

    def _holds_back(self, node: QuotaNode, slot: int) -> str:
        """Describe the quota or limit that keeps the queue from getting more. The search goes
        upwards from the queue.
        """
        nominal, used = self._natural(slot, node.nominal[slot]), self._natural(slot, node.usage[slot])
        words = f"its nominalQuota is {nominal:g}, of which {used:g} are in use"
        if node.parent is None:
            return f"{words}, and it belongs to no cohort that could lend"
        limit = node.borrowing[slot]
        if limit is not None and max(0, node.usage[slot] - node.nominal[slot]) + node.parent.available(slot) > limit:
            return f"{words}, and its borrowingLimit is {self._natural(slot, limit):g}"
        root = node.root
        whole_quota, in_use = (self._natural(slot, amounts[slot]) for amounts in (root.subtree, root.usage))
        return f"{words}, and of the {whole_quota:g} in the cohort {root.name}, {in_use:g} are in use"

    def never(self, task: TaskState) -> Iterator[str]:
        """Describe the quotas that a start would exceed even if the queue borrowed as much as it
        may. Yield nothing if some type has enough quota. A workload with a manifest is tested in
        another way: it is submitted alone to an idle Kueue.
        """
        if (carried := self._site.workload(task)) is not None:
            if carried.spec is not None and (message := self._alone(carried.spec)):
                yield message
            return
        queue = self._site.cluster_queue_of(task.job.job)
        node, reasons = self._forest.queues[queue.name], dict[str, None]()
        for type_ in task.demand.types:
            own = [
                Excess.of(
                    f"quota of {self._name(slot)} ({self._natural(slot, node.most[slot]):,g}) < ",
                    self._natural(slot, amount),
                    f": the queue {queue.name}",
                )
                for slot, amount in self._amounts(queue, task, type_).items()
                if amount > node.most[slot]
            ]
            if not own:
                return
            reasons |= dict.fromkeys(own)
        yield from reasons

    def _alone(self, spec: Workload) -> str:
        """Return Kueue's message about a workload that can never be admitted. Return an empty
        string if the workload can be admitted when it is alone.
        """
        if spec.queue not in self._site.local_queues:
            return ""
        if self._idle is None:
            self._idle = Admission(self._site.objects)
        workload = self._idle.submit(replace(spec, assignments=(), cluster_queue="", reserved_s=None))
        messages = [message for cycle in self._idle.cycles(0.0) for _, message in cycle.pending]
        admitted = workload.where == "admitted"
        self._idle.finish(workload, 0.0)
        return messages[-1] if messages and not admitted else ""

    def nodes(self, task: TaskState) -> int:
        """Return the nodes of the types that have quota left. If none has, return the nodes of all
        types that the task may use.
        """
        return whole_sum(self._of_type[type_] for type_ in self._with_quota(task) or task.demand.types)

    def _amounts(self, queue: ClusterQueue, task: TaskState, type_: int, instances: int | None = None) -> SlotAmounts:
        """Return how much quota a start of the task would take from each slot of the queue."""
        count = instances if instances is not None else task.demand.gang or 1
        amounts: SlotAmounts = {}
        carried = self._site.workload(task)
        requests = carried.requests if carried is not None else self._site.requests(queue, task.demand)
        for resource, amount in requests.items():
            flavor = self._site.flavor_of(queue, resource, self._site.type_names[type_])
            slot = None if flavor is None else self._forest.slots.get((flavor, resource))
            if slot is not None:  # skip resources that the queue covers, but for which this flavor has no quota
                amounts[slot] = whole(resource, amount) * count
        return amounts

    def _with_quota(self, task: TaskState) -> Sequence[int]:
        queue = self._site.cluster_queue_of(task.job.job)
        node = self._forest.queues[queue.name]
        return [
            type_
            for type_ in task.demand.types
            if all(amount <= node.available(slot) for slot, amount in self._amounts(queue, task, type_).items())
        ]

    def _used_up(self, node: QuotaNode, slot: int, amount: int) -> str:
        nominal = self._natural(slot, node.nominal[slot])
        quota = f"the quota of {nominal:g} {self._name(slot)} of the queue {node.name}"
        if not node.exceeds(slot, amount):
            return f"{quota} was lent to others"
        return f"{quota} was used up, and its cohort could lend no more"

    def _name(self, slot: int) -> str:
        flavor, resource = self._forest.names[slot]
        return f"{resource} in flavor {flavor}" if self._site.exact else flavor

    def _natural(self, slot: int, parts: int) -> float:
        resource = self._forest.names[slot][1]
        return natural(resource, parts) / (2**30 if resource == "memory" and not self._site.exact else 1)


class Rehearsal:
    """Runs the cycles of an engine until nothing changes, starting from the current state, and
    records the outcome for each waiting workload. The engine cannot be used afterwards."""

    def __init__(self, engine: Admission, now: float, runs: Mapping[int, str]) -> None:
        """``runs`` maps each run to the name of the workload that is running."""
        self._engine = engine
        # the engine has no entry for a running workload whose queue no file states
        users = [(run, engine.workloads.get(name)) for run, name in runs.items()]
        self._users = [(run, workload) for run, workload in users if workload is not None]
        self._slots = {workload.name: frozenset(workload.usage) for _, workload in self._users}
        self._line: dict[str, list[WorkloadState]] = {}
        for name, pending in engine.pending.items():
            head = pending.peek()
            listed = [*pending.in_order(), *pending.aside.values()]
            self._line[name] = listed if head is None else [head, *[one for one in listed if one is not head]]
        self._holding = {name for name, one in engine.workloads.items() if one.where == "admitted"}
        self._said: dict[str, str] = {}
        """Kueue's last message about each workload that was a head."""
        self._cycle_of: dict[str, int] = {}
        """The number of the cycle, from 1, in which a workload is admitted."""
        self._targets: dict[str, dict[str, str]] = {}
        """The workloads that a workload preempts, with the reasons."""
        self._circles: dict[str, list[str]] = {}
        """The workloads that a workload preempts again and again, because they come back before it
        is admitted."""
        try:
            for number, cycle in enumerate(engine.cycles(now), 1):
                for workload in cycle.admitted:
                    self._cycle_of[workload.name] = number
                for gone in cycle.preempted:
                    self._cycle_of.pop(gone.workload.name, None)
                    self._targets.setdefault(gone.by, {})[gone.workload.name] = gone.reason
                for workload, message in cycle.pending:
                    self._said[workload.name] = message
        except EndlessPreemption as endless:
            for name, by in endless.pairs:
                self._circles.setdefault(by, []).append(name)

    def outcome(self, name: str, never: Iterable[str]) -> NextStep | None:
        """Return what Kueue will do with a workload, or None if the workload already holds quota.
        ``never`` lists the reasons why the workload can never be admitted.
        """
        if name in self._holding:
            return None
        workload = self._engine.workloads[name]
        queue = self._engine.snapshot.queues[workload.cluster_queue]
        local = next(one for one in self._engine.objects.local_queues if one.name == workload.local_queue)
        for kind, owner, is_stopped in (
            ("ClusterQueue", queue.name, queue.name in self._engine.snapshot.inactive),
            ("LocalQueue", local.name, local.stop_policy != "None"),
        ):
            if is_stopped:
                why = self._engine.snapshot.inactive.get(owner, "Stopped") if kind == "ClusterQueue" else "Stopped"
                words = f"{kind} {owner.rpartition('/')[2]} is inactive"
                return NextStep("Inadmissible", f"waits: {words} ({why})", words, outside=True)
        line = self._line[queue.name]
        place = next(number for number, one in enumerate(line, 1) if one is workload)
        where = f"number {place} of {len(line)} in the ClusterQueue {queue.name} ({queue.spec.queueing_strategy})"
        if name in self._cycle_of:
            return self._admitted(workload, where)
        message = self._said.get(name, "")
        for alone in never:
            blocks = len(line) - place if queue.spec.queueing_strategy == "StrictFIFO" else 0
            behind = f", and blocks {blocks} behind it" if blocks else ""
            now = f" (now: {message})" if message not in ("", alone) else ""
            return NextStep(
                "quota", f"can never be admitted: {alone}{now}; it is {where}{behind}", _short(alone), never=True
            )
        if not message:
            head = line[0]
            why = self._said.get(head.name, "")
            return NextStep(
                "Priority",
                f"waits for its turn: it is {where}, behind {head.name}{f', which waits: {why}' if why else ''}",
                f"its turn: {place} of {len(line)} in {queue.name}, behind {head.name}",
            )
        circle = self._endless(name)
        return NextStep(
            "quota",
            f"waits for quota: {message}; it is {where}{circle}",
            f"{_short(message)}{circle}",
            tuple(self._limits(workload)),
        )

    def _endless(self, name: str) -> str:
        if name not in self._circles:
            return ""
        victims = ", ".join(self._circles[name])
        return f"; it preempts {victims} in an endless cycle, as it would in Kueue; dagsim broke the cycle"

    def _admitted(self, workload: WorkloadState, where: str) -> NextStep:
        number, targets = self._cycle_of[workload.name], self._targets.get(workload.name, {})
        assigned = "; ".join(
            ", ".join(
                [f"{one.count} x {one.name}", *[f"{name} in flavor {flavor}" for name, flavor in one.flavors.items()]]
            )
            for one in self._engine.assignments(workload)
        )
        which = "the next scheduling cycle" if number == 1 else f"scheduling cycle {number} from now"
        if not targets:
            return NextStep("None", f"is {where}, and is admitted in {which}: {assigned}", "the next cycles")
        gone = ", ".join(f"{name} ({reason})" for name, reason in targets.items())
        return NextStep(
            "Preempting",
            f"is {where}; it preempts {gone}, and is admitted in {which}: {assigned}",
            f"preemption of {', '.join(targets)}",
        )

    def _limits(self, workload: WorkloadState) -> Iterator[ReachedLimit]:
        """Yield the quotas of the workload's queue that do not suffice for all pods of the
        workload."""
        snapshot = self._engine.snapshot
        queue = snapshot.queues[workload.cluster_queue]
        totals: dict[str, int] = {}
        for pod_set, requests in zip(workload.spec.pod_sets, workload.requests, strict=True):
            for resource, amount in requests:
                totals[resource] = totals.get(resource, 0) + amount * pod_set.count
        for group in queue.groups:
            for flavor in group.flavors:
                for resource in sorted(group.resources & totals.keys()):
                    slot, amount = snapshot.slots[flavor, resource], totals[resource]
                    room = max(0, queue.node.available(slot))
                    if amount > room:
                        holder, words = holds_back(queue.node, resource, slot)
                        users = [
                            run
                            for run, user in self._users
                            if slot in self._slots[user.name]
                            and holder in (node := snapshot.queues[user.cluster_queue].node, *node.line)
                        ]
                        yield _reached(queue.node, resource, flavor, slot, amount, room, words, tuple(users))


def _reached(
    node: QuotaNode, resource: str, flavor: str, slot: int, amount: int, room: int, words: str, users: tuple[int, ...]
) -> ReachedLimit:
    used = node.usage[slot]
    return ReachedLimit(
        "quota",
        f"the ClusterQueue {node.name}",
        f"{resource} in flavor {flavor}",
        natural(resource, used + room),
        natural(resource, used),
        natural(resource, amount),
        f"insufficient unused quota for {resource} in flavor {flavor}, {text(resource, amount - room)} more needed: "
        f"{words}",
        users,
    )


def holds_back(node: QuotaNode, resource: str, slot: int) -> tuple[QuotaNode, str]:
    """Return the queue or cohort whose quota or limit keeps a queue from getting more, and describe
    this quota or limit. The search goes upwards from the queue.
    """

    def said(parts: int) -> str:
        return text(resource, parts)

    words = f"its nominalQuota is {said(node.nominal[slot])}, of which {said(node.usage[slot])} are in use"
    if node.parent is None:
        return node, f"{words}, and it belongs to no cohort that could lend"
    below = node
    for cohort in node.line:
        limit = below.borrowing[slot]
        beyond = max(0, below.usage[slot] - below.subtree[slot])
        if limit is not None and beyond + max(0, cohort.available(slot)) > limit:
            whose = "its" if below is node else f"the cohort {below.name}'s"
            return below, f"{words}, and {whose} borrowingLimit is {said(limit)}"
        below = cohort
    root = node.root
    lent = [
        f"{queue.name} lends {said(queue.lending[slot] or 0)} at most"
        for queue in _queues_below(root)
        if queue is not node and queue.lending[slot] is not None and queue.nominal[slot] > queue.usage[slot]
    ]
    limits = f" ({', '.join(lent)}: lendingLimit)" if lent else ""
    return root, (
        f"{words}, and of the {said(root.subtree[slot])} in the cohort {root.name}, {said(root.usage[slot])} are in "
        f"use{limits}"
    )


def _queues_below(node: QuotaNode) -> Iterator[QuotaNode]:
    yield from node.queues
    for cohort in node.cohorts:
        yield from _queues_below(cohort)


def _short(message: str) -> str:
    """Return one of Kueue's messages without the words with which all of these messages begin."""
    return message.removeprefix("couldn't assign flavors to pod set ").removeprefix("main: ")
