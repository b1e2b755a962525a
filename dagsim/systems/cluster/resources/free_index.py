"""Indexes that find nodes by their amounts of free resources. They are based on bit sets of
machines.

A bit set is a single integer with one bit per machine. A single operation intersects two bit sets,
and another one finds the first machine in the result. Finding a machine on which something fits
therefore takes about as long with 4,000 machines as with 8.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

from dagsim.model.arithmetic import bits, whole_sum
from dagsim.systems.cluster.forks import COPIED, SAME, Forked

ALL = -1
"""The bit set of all machines."""

_AMOUNTS = 64
"""Maximum number of amounts that an ``EnoughIndex`` distinguishes."""


class FreeIndex(Forked):
    """An index of machines by free amount. It has a bit set of machines for each level, that is,
    for each free amount, and a bit set of the levels in use.

    Finding the next level with a machine, and the first machine on it, takes a few integer
    operations on a cluster of any size.
    """

    __slots__ = {
        "sets": COPIED,
        "used": SAME,
    }

    def __init__(self) -> None:
        self.sets: dict[int, int] = {}
        self.used = 0

    def add(self, bit: int, level: int) -> None:
        self.sets[level] = self.sets.get(level, 0) | bit
        self.used |= 1 << level

    def remove(self, bit: int, level: int) -> None:
        left = self.sets[level] ^ bit
        self.sets[level] = left
        if not left:
            self.used ^= 1 << level

    def room(self, size: int) -> int:
        """Return how many units of ``size`` fit into the free amounts of all machines together. A
        unit cannot be divided between machines.
        """
        room, used, sets = 0, self.used >> size << size, self.sets
        while used:
            level = used.bit_length() - 1
            room += level // size * sets[level].bit_count()
            used ^= 1 << level
        return room

    def has_room(self, size: int, units: int) -> bool:
        """Return True if this number of units of ``size`` fits."""
        room, used, sets = 0, self.used >> size << size, self.sets
        # try the machines with the largest free amounts first, because a few of them are often enough
        while used and room < units:
            level = used.bit_length() - 1
            room += level // size * sets[level].bit_count()
            used ^= 1 << level
        return room >= units

    def packed(self, size: int, units: int) -> list[tuple[int, int]] | None:
        """Distribute units of ``size`` over the machines: over the fullest machine on which all of
        them fit, or else over as few machines as possible. Return each machine with its number of
        units, or None if they do not fit. Machines on which equally many units fit are taken
        together, so that they need not be examined one by one.
        """
        alone = self.first(size * units)
        if alone >= 0:
            return [(alone, units)]
        if self.room(size) < units:
            return None
        used, chosen = self.used, list[tuple[int, int]]()
        while True:
            room, machines = (used.bit_length() - 1) // size, 0
            while used >> room * size:
                level = used.bit_length() - 1
                machines |= self.sets[level]
                used ^= 1 << level
            for index in bits(machines):
                if units <= room:
                    return [*chosen, (index, units)]
                chosen.append((index, room))
                units -= room

    def total(self) -> int:
        """Return the sum of the free amounts of all machines."""
        return self.room(1)

    def first(self, least: int) -> int:
        """Return the machine with the smallest free amount that is at least ``least``, or -1 if
        there is none. If several machines have this amount, return the one with the lowest number.
        """
        used = self.used >> least << least
        if not used:
            return -1
        machines = self.sets[(used & -used).bit_length() - 1]
        return (machines & -machines).bit_length() - 1

    def levels(self, least: int) -> Iterator[int]:
        """Yield the levels in use that are at least ``least``, lowest first."""
        return bits(self.used >> least << least)

    def from_least(self, least: int, among: int = ALL) -> Iterator[int]:
        """Yield the machines in the set ``among`` with a free amount of at least ``least``.
        Machines with smaller free amounts come first. Among equal amounts, lower machine numbers
        come first.
        """
        for level in self.levels(least):
            yield from bits(self.sets[level] & among)

    def from_most(self, least: int, among: int = ALL) -> Iterator[int]:
        """Yield the machines in the set ``among`` with a free amount of at least ``least``.
        Machines with larger free amounts come first. Among equal amounts, lower machine numbers
        come first.
        """
        used = self.used >> least << least
        while used:
            level = used.bit_length() - 1
            yield from bits(self.sets[level] & among)
            used ^= 1 << level

    def having(self, least: int) -> int:
        """Return a bit set of the machines with a free amount of at least ``least``."""
        machines = 0
        for level in self.levels(least):
            machines |= self.sets[level]
        return machines


class ShareIndex(Forked):
    """An index of machines with partly used GPUs. It has a bit set of machines for each amount that
    is free on some GPU.
    """

    __slots__ = {
        "_amounts": COPIED,
        "_sets": COPIED,
    }

    def __init__(self) -> None:
        self._amounts: list[int] = []
        """The amounts that some machine has free, in rising order."""
        self._sets: dict[int, int] = {}

    def add(self, bit: int, free: int) -> None:
        """Record that ``free`` millionths of a GPU on the machine are free."""
        there = self._sets.get(free)
        if there is None:
            insort(self._amounts, free)
            self._sets[free] = bit
        else:
            self._sets[free] = there | bit

    def remove(self, bit: int, free: int) -> None:
        """Record that there is no longer a GPU on the machine with exactly ``free`` free millionths."""
        left = self._sets[free] & ~bit
        if left:
            self._sets[free] = left
        else:
            del self._sets[free], self._amounts[bisect_left(self._amounts, free)]

    def tightest(self, share: int, among: int) -> Iterator[int]:
        """Yield the machines in the set ``among`` with a GPU on which ``share`` fits. Machines
        where such a GPU has a smaller free amount come first. Among equal amounts, lower machine
        numbers come first. A machine is yielded several times if its GPUs have different free
        amounts.
        """
        amounts = self._amounts
        for place in range(bisect_left(amounts, share), len(amounts)):
            if machines := self._sets[amounts[place]] & among:
                yield from bits(machines)


class EnoughIndex(Forked):
    """An index that finds machines with enough CPUs, or machines with enough memory. It has a bit
    set of machines for each of up to 64 requested amounts.

    For any other amount, the set for the next lower requested amount is used, so a machine in the
    result of ``having`` may have too little.
    """

    __slots__ = {
        "_amounts": COPIED,
        "_sets": COPIED,
    }

    def __init__(self) -> None:
        self._amounts: list[int] = []
        self._sets: list[int] = []

    def ask(self, amount: int, free: Iterable[tuple[int, int]]) -> None:
        """Add a set for ``amount``. ``free`` contains the bit and the free amount of each machine.
        The cost is O(machines) if the amount is new.
        """
        place = bisect_left(self._amounts, amount)
        if len(self._amounts) < _AMOUNTS and self._amounts[place : place + 1] != [amount]:
            self._amounts.insert(place, amount)
            self._sets.insert(place, whole_sum(bit for bit, there in free if there >= amount))

    def having(self, amount: int) -> int:
        """Return a bit set of the machines that have ``amount`` free. The set may also contain
        machines that have less.
        """
        place = bisect_right(self._amounts, amount)
        return self._sets[place - 1] if place else ALL

    def moved(self, bit: int, was: int, now: int) -> None:
        """Record that the free amount of the machine changed from ``was`` to ``now``."""
        amounts = self._amounts
        for place in range(*sorted((bisect_right(amounts, was), bisect_right(amounts, now)))):
            self._sets[place] ^= bit
