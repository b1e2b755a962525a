"""Small numeric functions: sums that are bit-identical on every Python version, comparisons of
computed values, bit sets, indices of distinct values, and type checks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from itertools import chain, count
from math import isclose
from operator import add
from typing import Any, TypeVar

import numpy as np

from dagsim.errors import ModelError

DAY_S = 86400.0
"""Number of seconds in a day."""


def ordered_sum(terms: Iterable[float]) -> float:
    """Add the terms from left to right, rounding after each of them. The sum of no terms is 0.0.

    From Python 3.12 onwards, ``sum`` compensates for rounding, so its last bits depend on the
    version. A sum that affects a decision (a key, a price, a comparison) must not depend on the
    version. Otherwise, the same seed would not give the same log on every Python version.
    """
    return reduce(add, terms, 0.0)


def column_sum(terms: np.ndarray) -> float:
    """Return ``ordered_sum`` of a column of floats."""
    return float(np.add.accumulate(terms)[-1]) + 0.0 if len(terms) else 0.0


def dot(values: np.ndarray, weights: np.ndarray) -> float:
    """Return the sum of the products of two columns (n,). The operator ``@`` adds in an order that
    depends on the processor, so that the result with weights of 1 may differ from the sum.
    """
    return float((values * weights).sum())


whole_sum: Callable[[Iterable[int]], int] = sum
"""Add whole numbers. The sum is the same on every Python version. The type checker rejects floats,
for which there is ``ordered_sum``."""


COMPUTED = 1e-9
"""Relative difference within which computed numbers count as equal."""


def rounded(value: float) -> float:
    """Round a computed number to the digits that are the same on every processor (``COMPUTED``).
    Numbers that differ only in rounding become equal, so they can be ranked and compared with
    limits.
    """
    return float(f"{value:.9g}")


def differences(value: Any, other: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Compare two values, one of which was computed on another machine. They may consist of
    mappings, sequences, strings and numbers. Yield the position of each difference
    (``scores.batch.low``) and the two values at this position.

    In NumPy and in the C library, the last digits of logarithms and sums depend on the processor.
    Numbers with a fraction are therefore considered equal within ``COMPUTED``. Whole numbers,
    strings and hashes of logs are the same on every machine, so they are compared exactly.
    """
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        for key in dict.fromkeys([*value, *other]):
            within = f"{place}.{key}" if place else f"{key}"
            if key in value and key in other:
                yield from differences(value[key], other[key], within)
            else:
                yield within, value.get(key), other.get(key)
    elif isinstance(value, list | tuple) and isinstance(other, list | tuple) and len(value) == len(other):
        for number, (one, theirs) in enumerate(zip(value, other, strict=True)):
            yield from differences(one, theirs, f"{place}[{number}]")
    elif not _are_equal(value, other):
        yield place, value, other


def _are_equal(value: Any, other: Any) -> bool:
    numbers = [one for one in (value, other) if isinstance(one, int | float) and not isinstance(one, bool)]
    if len(numbers) == 2 and any(isinstance(one, float) for one in numbers):
        return isclose(value, other, rel_tol=COMPUTED) or (value != value and other != other)
    return type(value) is type(other) and bool(value == other)


def bits(mask: int) -> Iterator[int]:
    """Yield the positions of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


T = TypeVar("T")


def numbered(values: Iterable[T]) -> tuple[np.ndarray, tuple[T, ...]]:
    """Number the distinct values in the order in which they first appear. Return the number of
    each value as an int32 array of shape (n,), and the distinct values.
    """
    number_of: defaultdict[T, int] = defaultdict(count().__next__)
    numbers = np.fromiter(map(number_of.__getitem__, values), np.int32)
    return numbers, tuple(number_of)


def in_turn(column: np.ndarray) -> Iterator[Any]:
    """Yield the values of a column as Python objects, without building a list of all of them."""
    return chain.from_iterable(column[at : at + _BLOCK].tolist() for at in range(0, len(column), _BLOCK))


_BLOCK = 65_536


def check_whole(name: str, value: object) -> None:
    """Check that a value is a whole number. Truth values are not accepted.

    Raises:
        ModelError: The value has another type. The message starts with ``name``.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ModelError(f"{name} must be a whole number, got {value!r}")


def store_whole(owner: object, name: str, place: str = "") -> None:
    """Check that a field of an immutable object is a whole number, and store it as an ``int``. Bit
    sets would overflow with NumPy's integers. ``place`` is the beginning of error messages.

    Raises:
        ModelError: The field has another type.
    """
    value = getattr(owner, name)
    check_whole(f"{place}{name}", value)
    object.__setattr__(owner, name, int(value))


def check_numbers(place: str, owner: object, names: Iterable[str]) -> None:
    """Check that these attributes of ``owner`` are numbers or None. ``place`` is the beginning of
    error messages.

    Raises:
        ModelError: One of the attributes has another type.
    """
    for name in names:
        value = getattr(owner, name)
        if value is not None and not isinstance(value, int | float | np.number):
            raise ModelError(f"{place}{name} must be a number, got {value!r}")
