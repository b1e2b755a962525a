"""Priorities of pending jobs in columns: thousands are computed anew, and sorted, in a few array operations."""

from __future__ import annotations

from math import inf, nan
from typing import TypeAlias

import numpy as np

from dagsim.systems.cluster.policies.production.slurm_priority import PriorityBook

__all__ = ["RankColumns"]

_Key: TypeAlias = tuple[int, int]
_SLOTS = 64
"""At first."""
_FLOATS, _INTS = ("fixed", "since_s", "latest"), ("tier", "order", "piece", "user")


class RankColumns:
    """Per pending job, by *slot*, everything that its priority follows from. Plain data.

    O(1) per job that comes or goes, O(n log n) with a small constant when all are ranked anew.
    """

    def __init__(self) -> None:
        self._slots: dict[_Key, int] = {}
        self._free = list(range(_SLOTS - 1, -1, -1))
        self._dropped: list[int] = []
        """Slots to be free once all are ranked anew; up to then somebody may still sort by them."""
        self._users: dict[str, int] = {}
        self._floats = {name: np.full(_SLOTS, nan) for name in _FLOATS}
        self._ints = {name: np.zeros(_SLOTS, np.int64) for name in _INTS}

    def slot(self, key: _Key) -> int:
        """The slot of an order and piece of a task; -1 if it has none."""
        return self._slots.get(key, -1)

    def add(self, key: _Key, tier: int, fixed: float, since_s: float | None, user: str) -> int:
        """Give a job a slot; ``fixed`` is the part of its priority that never changes, ``since_s`` counts its age."""
        if not self._free:
            size = len(self._floats["fixed"])
            self._floats = {name: np.concatenate((column, column)) for name, column in self._floats.items()}
            self._ints = {name: np.concatenate((column, column)) for name, column in self._ints.items()}
            self._free = list(range(2 * size - 1, size - 1, -1))
        slot = self._slots[key] = self._free.pop()
        floats = {"fixed": fixed, "since_s": inf if since_s is None else since_s, "latest": nan}
        for name, value in floats.items():
            self._floats[name][slot] = value
        number = self._users.setdefault(user, len(self._users))
        for name, count in {"tier": tier, "order": key[0], "piece": key[1], "user": number}.items():
            self._ints[name][slot] = count
        return slot

    def drop(self, key: _Key) -> None:
        """Forget a job."""
        slot = self._slots.pop(key, -1)
        if slot >= 0:
            self._dropped.append(slot)

    def latest(self, slot: int) -> float:
        """The priority as computed last."""
        known: float = self._floats["latest"].item(slot)
        return known

    def note(self, slot: int, priority: float) -> None:
        """Keep a priority that was computed alone."""
        self._floats["latest"][slot] = priority

    def rank(self, slots: list[int], book: PriorityBook, at_s: float) -> list[int]:
        """Compute the priorities at ``at_s``. Places in ``slots`` by tier and priority, the highest first,
        then by order and piece."""
        self._free += self._dropped
        self._dropped.clear()
        rows, floats, ints = np.array(slots, np.int64), self._floats, self._ints
        shares = np.array([book.fair_share(user) for user in self._users])
        priority = book.priorities(floats["fixed"][rows], floats["since_s"][rows], shares[ints["user"][rows]], at_s)
        floats["latest"][rows] = priority
        places: list[int] = np.lexsort(
            (ints["piece"][rows], ints["order"][rows], -priority, -ints["tier"][rows])
        ).tolist()
        return places
