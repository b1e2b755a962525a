"""Limits on what accounts, users, partitions and qualities of service hold at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import floor, inf
from typing import NamedTuple, TypeAlias

from dagsim.model import Caps

__all__ = ["Amounts", "Holder", "Holdings"]

_SLACK = 1e-9
Holder: TypeAlias = tuple[str, ...]
"""Who holds: a kind and names, ``("user", "lab", "ada")``."""


class Amounts(NamedTuple):
    """The holding of one start; ``jobs`` is 1."""

    gpus: float
    cpus: float
    memory_gb: float
    jobs: float = 1.0

    def times(self, count: float) -> Amounts:
        """So many of it."""
        return Amounts(*[each * count for each in self])


class Holdings:
    """The sum that each holder has, against its limits. Plain data; O(holders of a job) per question, start and end."""

    def __init__(self) -> None:
        self.most: dict[Holder, tuple[float, ...]] = {}
        """The limits of holders that have any, in the order of ``Amounts``."""
        self._held: dict[Holder, list[float]] = {}
        self._runs: dict[int, tuple[tuple[Holder, ...], Amounts]] = {}
        self.freed: dict[Holder, None] = {}
        """Holders that have given something back since somebody last looked."""

    def limit(self, holder: Holder, caps: Caps) -> None:
        """Set the limits of a holder; one without any is forgotten."""
        if caps:
            most = (caps.gpus, caps.cpus, caps.memory_gb, caps.jobs)
            self.most[holder] = tuple([inf if each is None else float(each) for each in most])

    def room(self, holders: Iterable[Holder], each: Amounts) -> tuple[float, Holder | None]:
        """The number of such starts that the holders may still make, and who allows the fewest."""
        room, tightest = inf, None
        for holder in holders:
            most = self.most.get(holder)
            if most is None:
                continue
            held = self._held.get(holder, (0.0, 0.0, 0.0, 0.0))
            for limit, has, amount in zip(most, held, each, strict=True):
                if amount and limit < inf and (count := floor((limit - has) / amount + _SLACK)) < room:
                    room, tightest = max(count, 0), holder
        return room, tightest

    def used_up(self, holders: Iterable[Holder], each: Amounts) -> Iterator[tuple[Holder, str, float]]:
        """The limits that leave no room for one such start: whose, of what, and how much it is."""
        for holder in holders:
            held = self._held.get(holder, (0.0, 0.0, 0.0, 0.0))
            for name, limit, has, amount in zip(Amounts._fields, self.most.get(holder, ()), held, each, strict=False):
                if amount and has + amount > limit + _SLACK * amount:
                    yield holder, name, limit

    def ever(self, holders: Iterable[Holder], each: Amounts) -> bool:
        """True if one such start keeps within all limits when nothing else is held."""
        limits = [self.most[holder] for holder in holders if holder in self.most]
        return all(amount <= limit + _SLACK for most in limits for limit, amount in zip(most, each, strict=True))

    def take(self, run: int, holders: Sequence[Holder], amounts: Amounts) -> None:
        """A run starts; one that is known already counts once."""
        limited = tuple([holder for holder in holders if holder in self.most])
        if not limited or run in self._runs:
            return
        self._runs[run] = limited, amounts
        for holder in limited:
            held = self._held.setdefault(holder, [0.0, 0.0, 0.0, 0.0])
            for place, amount in enumerate(amounts):
                held[place] += amount

    def give(self, run: int) -> None:
        """A run ends."""
        limited, amounts = self._runs.pop(run, ((), Amounts(0, 0, 0)))
        for holder in limited:
            held = self._held[holder]
            for place, amount in enumerate(amounts):
                held[place] -= amount
            if held[3] < 0.5:  # the last one: no residue of sums stays
                del self._held[holder]
            self.freed[holder] = None
