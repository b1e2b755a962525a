"""The quotas that kept a job waiting, as found in a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dagsim.families.kubernetes.kueue.amounts import natural, whole
from dagsim.families.kubernetes.kueue.offers import Site
from dagsim.families.kubernetes.kueue.quota import Amounts, QuotaForest, QuotaNode
from dagsim.families.kubernetes.kueue_objects import ClusterQueue
from dagsim.systems.cluster.api import ClusterView, TaskState
from dagsim.systems.cluster.waits import ReachedLimit


class KueueWaits:
    """The quotas and their usage by each queue; see ``waits.WaitRules``."""

    elsewhere = "it would have fitted, but only on types for which its queue had no quota left"

    def __init__(self, view: ClusterView, site: Site) -> None:
        self._site = site
        self._forest = QuotaForest(site.objects, [queue.name for queue in site.objects.cluster_queues])
        self._of_type = [0] * len(view.gpu_types)
        for machine in view.machines.list:
            self._of_type[machine.type] |= machine.bit
        self._taken: dict[int, tuple[QuotaNode, Amounts]] = {}

    def started(self, run: int, task: TaskState, instances: int, type_: int) -> None:
        """Add a run."""
        queue = self._site.cluster_queue_of(task.job.job)
        node, amounts = self._forest.queues[queue.name], self._amounts(queue, task, type_, instances)
        self._taken[run] = node, amounts
        for slot, amount in amounts.items():
            node.take(slot, amount)

    def ended(self, run: int) -> None:
        """Remove a run."""
        node, amounts = self._taken.pop(run)
        for slot, amount in amounts.items():
            node.give(slot, amount)

    def limits(self, task: TaskState) -> Iterator[str]:
        """Describe the quotas that are used up; yield nothing as long as some type has quota
        left."""
        if not self._with_quota(task):
            queue = self._site.cluster_queue_of(task.job.job)
            node, texts = self._forest.queues[queue.name], dict[str, None]()
            for type_ in task.demand.types:
                for slot, amount in self._amounts(queue, task, type_).items():
                    if amount > node.available(slot):
                        texts[self._used_up(node, slot, amount)] = None
            yield from texts

    def reached(self, task: TaskState) -> Iterator[ReachedLimit]:
        """Return the quotas that are used up for the first of its types, or nothing as long as some
        type has quota left."""
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
        """Describe the quota or limit that leaves the queue no more, starting at the queue and
        going upwards."""
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
        """Describe the quotas that a start would exceed even if the queue borrowed everything it
        may; yield nothing if some type has enough."""
        queue = self._site.cluster_queue_of(task.job.job)
        node, reasons = self._forest.queues[queue.name], dict[str, None]()
        for type_ in task.demand.types:
            own = [
                f"quota of {self._name(slot)} ({self._natural(slot, node.most[slot]):g}) < "
                f"{self._natural(slot, amount):g}: the queue {queue.name}"
                for slot, amount in self._amounts(queue, task, type_).items()
                if amount > node.most[slot]
            ]
            if not own:
                return
            reasons |= dict.fromkeys(own)
        yield from reasons

    def nodes(self, task: TaskState) -> int:
        """Return the nodes of the types with quota left, or, if no type has any left, the nodes of
        all types that the task may use."""
        return sum(self._of_type[type_] for type_ in self._with_quota(task) or task.demand.types)

    def alone(self, task: TaskState) -> bool:
        """Return False, because pods of different jobs may share a node."""
        return False

    def distinct(self, task: TaskState) -> bool:
        """Return False, because pods of a gang may share a node."""
        return False

    def _amounts(self, queue: ClusterQueue, task: TaskState, type_: int, instances: int | None = None) -> Amounts:
        """Return the quota that a start of the task would use in the slots of its queue."""
        count = instances if instances is not None else task.demand.gang or 1
        amounts: Amounts = {}
        for resource, amount in self._site.requests(queue, task.demand).items():
            flavor = self._site.flavor_of(queue, resource, self._site.type_names[type_])
            if flavor is not None:
                amounts[self._forest.slots[flavor, resource]] = whole(resource, amount) * count
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
