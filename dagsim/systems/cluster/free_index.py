"""Free amounts of nodes: an index of two levels of bit sets."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["FreeIndex"]


class FreeIndex:
    """Machines by how much they have free: a bit set of machines per level and a bit set of the levels in use.

    The next level with a machine and the first machine on it are a few integer operations, whatever the cluster's size.
    """

    __slots__ = ("sets", "used")

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

    def from_least(self, least: int) -> Iterator[int]:
        """Machine numbers with at least ``least`` free, least free first, lowest number first."""
        used = self.used >> least << least
        while used:
            low = used & -used
            bits = self.sets[low.bit_length() - 1]
            while bits:
                bit = bits & -bits
                yield bit.bit_length() - 1
                bits ^= bit
            used ^= low

    def from_most(self, least: int) -> Iterator[int]:
        """Machine numbers with at least ``least`` free, most free first, lowest number first."""
        used = self.used >> least << least
        while used:
            level = used.bit_length() - 1
            bits = self.sets[level]
            while bits:
                bit = bits & -bits
                yield bit.bit_length() - 1
                bits ^= bit
            used ^= 1 << level

    def copy(self) -> FreeIndex:
        twin = FreeIndex()
        twin.sets = dict(self.sets)
        twin.used = self.used
        return twin
