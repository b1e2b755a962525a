"""Arithmetic whose result is the same to the last bit on every Python."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import add

__all__ = ["ordered_sum"]


def ordered_sum(terms: Iterable[float]) -> float:
    """Add from left to right, rounding after each term; 0.0 without terms.

    From Python 3.12 on, ``sum`` compensates for rounding, so that its last bits depend on the version. A sum that
    decides anything (a key, a price, a comparison) must not: the same seed gives the same log on any Python.
    """
    return reduce(add, terms, 0.0)
