"""The numbers of Go's ``math/rand``, so that a seed means here what it means to a simulator written in Go.

An additive lagged Fibonacci generator: each number is the sum, modulo 2^64, of the 607th and the 273rd before it. A
seed's first 607 are mixed with a table: the generator's own state after 7.8e12 steps from a simpler seed. Go ships the
table; here it is computed, as the recurrence can be stepped by squaring polynomials.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableSequence
from functools import cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")

_LONG, _SHORT = 607, 273
_GAP = _LONG - _SHORT
_FIRST = _GAP - 1  # the place in Go's circular array that holds the oldest number at first; the next oldest is below
_STEPS = 7_800_000_000_000
_MERSENNE = (1 << 31) - 1
_MASK_32, _MASK_63, _MASK_64 = (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1


class GoRandom:
    """``rand.New(rand.NewSource(seed))`` of Go 1."""

    def __init__(self, seed: int) -> None:
        words = [word ^ mixed for word, mixed in zip(_words(seed, 40, 20), _table(), strict=True)]
        self._numbers = [words[(_FIRST - index) % _LONG] for index in range(_LONG)]

    def int63(self) -> int:
        """``Int63``: 0 to 2^63 - 1."""
        numbers = self._numbers
        numbers.append((numbers[-_LONG] + numbers[-_SHORT]) & _MASK_64)
        return numbers[-1] & _MASK_63

    def below(self, end: int) -> int:
        """``Intn``: 0 to ``end - 1``, for ends below 2^31."""
        number = self.int63() >> 32
        if end & (end - 1) == 0:
            return number & (end - 1)
        while number > _MERSENNE - (1 << 31) % end:
            number = self.int63() >> 32
        return number % end

    def shuffle(self, items: MutableSequence[T]) -> None:
        """``Shuffle``, in place. It draws otherwise than ``below`` (Lemire 2019)."""
        for last in range(len(items) - 1, 0, -1):
            other = self._scaled(last + 1)
            items[last], items[other] = items[other], items[last]

    def permutation(self, length: int) -> list[int]:
        """``Perm``: the numbers below ``length`` in random order."""
        order = [0] * length
        for index in range(length):
            other = self.below(index + 1)
            order[index] = order[other]
            order[other] = index
        return order

    def _scaled(self, end: int) -> int:
        product = (self.int63() >> 31) * end
        while product & _MASK_32 < (1 << 32) % end:
            product = (self.int63() >> 31) * end
        return product >> 32


@cache
def _table() -> list[int]:
    """What seeds are mixed with, by the place in Go's circular array."""
    words = list(_words(1, 20, 10))
    start = np.array([words[(_FIRST - index) % _LONG] for index in range(_LONG)], np.uint64)
    power = np.zeros(_LONG, np.uint64)  # x^_STEPS, as the remainder that x^607 = x^334 + 1 leaves
    power[0] = 1
    for bit in f"{_STEPS:b}":
        power = _remainder(np.convolve(power, power))
        if bit == "1":
            power = _remainder(np.concatenate(([np.uint64(0)], power)))
    following = list(map(int, start))
    for _ in range(_LONG):
        following.append((following[-_LONG] + following[-_SHORT]) & _MASK_64)
    window = np.array(following, np.uint64)
    table = [0] * _LONG
    for index in range(_LONG):
        table[(_FIRST - _STEPS - index) % _LONG] = int(np.dot(power, window[index : index + _LONG]))
    return table


def _remainder(polynomial: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The polynomial with x^607 replaced by x^334 + 1 until its degree is below 607."""
    while len(polynomial) > _LONG:
        high = polynomial[_LONG:]
        folded = np.zeros(max(_LONG, _GAP + len(high)), np.uint64)
        folded[:_LONG] = polynomial[:_LONG]
        folded[: len(high)] += high
        folded[_GAP : _GAP + len(high)] += high
        polynomial = folded
    return polynomial


def _words(seed: int, left: int, middle: int) -> Iterator[int]:
    """607 words, each of three numbers of a linear congruential generator, the first twenty of which are left out."""
    number = seed % _MERSENNE or 89482311
    for _ in range(20):
        number = 48271 * number % _MERSENNE
    for _ in range(_LONG):
        word = 0
        for shift in (left, middle, 0):
            number = 48271 * number % _MERSENNE
            word ^= number << shift
        yield word & _MASK_64
