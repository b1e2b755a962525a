"""Quotas of cluster queues in cohorts: what a queue may use of its own, and what it may borrow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from dagsim.model import QueueNode

__all__ = ["QuotaTree"]

_SLACK = 1e-9


@dataclass(slots=True)
class _Quota:
    """One queue or cohort; amounts by resource."""

    parent: str | None
    nominal: dict[str, float]
    borrow: dict[str, float]
    lend: dict[str, float]
    subtree: dict[str, float] = field(default_factory=dict)
    """Its own quota and what those below it lend."""
    used: dict[str, float] = field(default_factory=dict)
    """What it and those below it take of the subtree's quota."""

    def guaranteed(self, key: str) -> float:
        """The part of its quota that it does not lend."""
        return max(0.0, self.subtree.get(key, 0.0) - self.lend[key]) if key in self.lend else 0.0


class QuotaTree:
    """A queue may use its nominal quota and, up to its borrowing limit, what others of its cohort lend and leave unused
    (Kueue, cluster_queue, 2024). What one uses of its guaranteed part is nobody else's affair; the rest counts
    against all cohorts above it. O(depth) per question and change."""

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
        """The amount a queue could still take: unused quota of its own, and all it may borrow."""
        return self._left(queue, key, empty=False)

    def most(self, queue: str, key: str) -> float:
        """The amount a queue could take of an idle cluster."""
        return self._left(queue, key, empty=True)

    def fits(self, queue: str, amounts: Mapping[str, float]) -> bool:
        """True if the queue may take all of it now."""
        return all(amount <= self.available(queue, key) + _SLACK for key, amount in amounts.items())

    def within_nominal(self, queue: str, amounts: Mapping[str, float]) -> bool:
        """True if the queue has that much quota of its own unused."""
        return all(self.used(queue, key) + each <= self.nominal(queue, key) + _SLACK for key, each in amounts.items())

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
        """The uppermost cohort above a queue, or the queue itself."""
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
        """Add to what is used, and to what those above are asked for beyond the guaranteed part."""
        quota = self._quotas[name]
        before = quota.used.get(key, 0.0)
        quota.used[key] = before + amount if abs(before + amount) > _SLACK else 0.0
        if quota.parent is not None:
            own = quota.guaranteed(key)
            asked = max(0.0, before + amount - own) - max(0.0, before - own)
            if asked:
                self._change(quota.parent, key, asked)
