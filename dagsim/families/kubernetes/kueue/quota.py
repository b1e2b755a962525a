"""The quotas in a tree of cohorts, and their usage.

A pair of a flavor and a resource is called a *slot*. Slots are numbered across all queues, so that
the quotas and the usage of a node can be stored in lists. The guaranteed part of a node's quota is
the part that the node does not lend. Usage within this part does not count towards the parent,
whereas usage beyond it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

from dagsim.families.kubernetes.kueue.amounts import whole
from dagsim.families.kubernetes.kueue.kueue_objects import ClusterQueue, Cohort, KueueObjects, ResourceGroup

SlotAmounts: TypeAlias = dict[int, int]
"""Amounts by slot."""

Slot: TypeAlias = tuple[str, str]
"""A flavor and a resource."""


class BorrowedShare(NamedTuple):
    """A measure of how far a node's usage exceeds its own quota, which can be compared between
    nodes.

    ``rank`` sorts shares. Borrowing nodes with weight 0 come last, in the order of their shares
    without weights. ``borrowed`` contains the slots in which the node borrows.
    """

    rank: tuple[bool, float]
    borrowed: tuple[int, ...]


_NO_SHARE = BorrowedShare((False, 0.0), ())


class QuotaNode:
    """A queue or a cohort in the tree. Lists are indexed by slot. A limit of None means that there
    is no limit."""

    def __init__(self, name: str, weight: float, slots: int, *, is_queue: bool) -> None:
        self.name, self.weight, self.is_queue = name, weight, is_queue
        self.parent: QuotaNode | None = None
        self.cohorts: list[QuotaNode] = []
        self.queues: list[QuotaNode] = []
        """Queues directly below the node, without stopped queues."""
        self.nominal = [0] * slots
        self.borrowing: list[int | None] = [None] * slots
        self.lending: list[int | None] = [None] * slots
        self.guaranteed = [0] * slots
        self.subtree = [0] * slots
        """Its own quota, and what nodes below it lend."""
        self.most = [0] * slots
        """The most that the node could use if no other node used anything."""
        self.usage = [0] * slots
        self.own_slots: list[int] = []
        self.height = 0
        self.line: list[QuotaNode] = []
        """The cohorts above the node, nearest first."""
        self.lendable: list[tuple[list[int], int]] = []
        """By resource: its slots, and the total that the parent could ever have of it."""

    @property
    def root(self) -> QuotaNode:
        """Return the topmost cohort above the node, or the node itself."""
        return self.line[-1] if self.line else self

    def available(self, slot: int) -> int:
        """Return how much more quota the node could use. The result is negative if its usage
        exceeds the quota."""
        parent, used = self.parent, self.usage[slot]
        if parent is None:
            return self.subtree[slot] - used
        guaranteed = self.guaranteed[slot]
        above = parent.available(slot)
        limit = self.borrowing[slot]
        if limit is not None:
            lent = self.subtree[slot] - guaranteed
            above = min(above, lent - max(0, used - guaranteed) + limit)
        return max(0, guaranteed - used) + above

    def unused_guaranteed(self, slot: int) -> int:
        """Return the unused part of the quota that the node keeps to itself."""
        return max(0, self.guaranteed[slot] - self.usage[slot])

    def exceeds(self, slot: int, amount: int = 0) -> bool:
        """Return True if usage and the amount together exceed the node's own quota."""
        return self.usage[slot] + amount > (self.nominal if self.is_queue else self.subtree)[slot]

    def exceeds_any(self, slots: Iterable[int]) -> bool:
        """Return True if usage exceeds the quota in any of the slots."""
        usage, subtree = self.usage, self.subtree
        return any(usage[slot] > subtree[slot] for slot in slots)

    def take(self, slot: int, amount: int) -> None:
        """Add an amount to the usage of a slot."""
        node: QuotaNode | None = self
        while node is not None:
            free = max(0, node.guaranteed[slot] - node.usage[slot])
            node.usage[slot] += amount
            if amount <= free:
                return
            amount -= free
            node = node.parent

    def give(self, slot: int, amount: int) -> None:
        """Subtract an amount from the usage of a slot."""
        node: QuotaNode | None = self
        while node is not None:
            above = node.usage[slot] - node.guaranteed[slot]
            node.usage[slot] -= amount
            if above <= 0:
                return
            amount = min(amount, above)
            node = node.parent

    @contextmanager
    def holding(self, amounts: SlotAmounts) -> Iterator[None]:
        """Add amounts to the usage inside the ``with`` statement."""
        for slot, amount in amounts.items():
            self.take(slot, amount)
        try:
            yield
        finally:
            for slot, amount in amounts.items():
                self.give(slot, amount)

    def height_that_fits(self, slot: int, amount: int) -> tuple[int, bool]:
        """Return the height of the lowest subtree that has enough quota for the amount (0 is the
        queue itself), and whether there is a cohort above this subtree."""
        if self.parent is None or not self.exceeds(slot, amount):
            return 0, self.parent is not None
        left = amount - self.unused_guaranteed(slot)
        for cohort in self.line:
            if not cohort.exceeds(slot, left):
                return cohort.height, cohort.parent is not None
            left -= cohort.unused_guaranteed(slot)
        return self.root.height, False

    def share(self) -> BorrowedShare:
        """Return the dominant share: by how much usage exceeds the node's quota, relative to the
        most that the parent could have.
        """
        if self.parent is None:
            return _NO_SHARE
        usage, subtree = self.usage, self.subtree
        ratio, borrowed = 0.0, []
        for slots, lendable in self.lendable:
            beyond = 0
            for slot in slots:
                if usage[slot] > subtree[slot]:
                    beyond += usage[slot] - subtree[slot]
                    borrowed.append(slot)
            if beyond and lendable > 0:
                ratio = max(ratio, float(beyond) * 1000.0 / float(lendable))
        if not borrowed:
            return _NO_SHARE
        if ratio and not self.weight:
            return BorrowedShare((True, ratio), tuple(borrowed))
        return BorrowedShare((False, ratio / self.weight if ratio else 0.0), tuple(borrowed))


class QuotaForest:
    """All queues and cohorts.

    ``slots`` contains a number for each pair of a flavor and a resource.
    """

    def __init__(self, objects: KueueObjects, active: Iterable[str]) -> None:
        owners: list[Cohort | ClusterQueue] = [*objects.cohorts, *objects.cluster_queues]
        self.slots: dict[Slot, int] = {}
        for owner in owners:
            for slot, _, _, _ in _quotas(owner.resource_groups):
                self.slots.setdefault(slot, len(self.slots))
        self.names: list[Slot] = list(self.slots)
        cohorts = {cohort.name: cohort for cohort in objects.cohorts}
        parents = {name: cohort.parent for name, cohort in cohorts.items()}
        for name in [queue.cohort for queue in objects.cluster_queues] + list(parents.values()):
            if name:
                parents.setdefault(name, "")
        self.cohorts = {name: self._node(name, cohorts.get(name)) for name in parents}
        self.queues = {queue.name: self._node(queue.name, queue) for queue in objects.cluster_queues}
        for name, parent in parents.items():
            if parent:
                self.cohorts[name].parent = self.cohorts[parent]
                self.cohorts[parent].cohorts.append(self.cohorts[name])
        below: dict[str, list[QuotaNode]] = {}
        there = set(active)
        for queue in objects.cluster_queues:
            if queue.cohort:
                node = self.queues[queue.name]
                node.parent = self.cohorts[queue.cohort]
                below.setdefault(queue.cohort, []).append(node)
                if queue.name in there:
                    node.parent.queues.append(node)
        for node in [*self.cohorts.values(), *self.queues.values()]:
            above = node.parent
            while above is not None:
                node.line.append(above)
                above = above.parent
        for node in [*self.cohorts.values(), *self.queues.values()]:
            if node.parent is None:
                self._sum_up(node, below)
                self._look_down(node, below)

    def _node(self, name: str, owner: Cohort | ClusterQueue | None) -> QuotaNode:
        weight = 1.0 if owner is None else owner.weight
        node = QuotaNode(name, weight, len(self.slots), is_queue=isinstance(owner, ClusterQueue))
        for slot, nominal, borrowing, lending in () if owner is None else _quotas(owner.resource_groups):
            number = self.slots[slot]
            node.own_slots.append(number)
            node.nominal[number], node.borrowing[number], node.lending[number] = nominal, borrowing, lending
        return node

    def _sum_up(self, node: QuotaNode, below: Mapping[str, Sequence[QuotaNode]]) -> None:
        node.subtree = list(node.nominal)
        own = set(node.own_slots)
        queues = () if node.is_queue else below.get(node.name, ())
        for child in [*node.cohorts, *queues]:
            self._sum_up(child, below)
            own.update(child.own_slots)
            for slot in child.own_slots:
                node.subtree[slot] += child.subtree[slot] - child.guaranteed[slot]
        node.own_slots = sorted(own)
        # Kueue's snapshot contains no stopped queues, so they do not count towards the height.
        node.height = max([child.height + 1 for child in node.cohorts] + [min(1, len(node.cohorts) + len(node.queues))])
        for slot, lending in enumerate(node.lending):
            if lending is not None:
                node.guaranteed[slot] = max(0, node.subtree[slot] - lending)

    def _look_down(self, node: QuotaNode, below: Mapping[str, Sequence[QuotaNode]]) -> None:
        for slot in range(len(self.slots)):
            if node.parent is None:
                node.most[slot] = node.subtree[slot]
                continue
            limit = node.borrowing[slot]
            most = node.guaranteed[slot] + node.parent.most[slot]
            node.most[slot] = most if limit is None else min(most, node.subtree[slot] + limit)
        if node.parent is not None:
            by_resource: dict[str, list[int]] = {}
            for slot in node.own_slots:
                by_resource.setdefault(self.names[slot][1], []).append(slot)
            sums: dict[str, int] = {}
            for slot in node.root.own_slots:
                resource = self.names[slot][1]
                sums[resource] = sums.get(resource, 0) + node.parent.most[slot]
            node.lendable = [(slots, sums.get(resource, 0)) for resource, slots in sorted(by_resource.items())]
        for child in [*node.cohorts, *(() if node.is_queue else below.get(node.name, ()))]:
            self._look_down(child, below)


def _quotas(groups: Sequence[ResourceGroup]) -> Iterator[tuple[Slot, int, int | None, int | None]]:
    """Yield the slot, the nominal quota, the borrowing limit and the lending limit."""
    for group in groups:
        for flavor in group.flavors:
            for resource, quota in flavor.resources.items():
                limits = [
                    None if limit is None else whole(resource, limit)
                    for limit in (quota.borrowing_limit, quota.lending_limit)
                ]
                yield (flavor.name, resource), whole(resource, quota.nominal), limits[0], limits[1]
