"""Values as places among those that differ."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import numpy as np

__all__ = ["numbered"]

T = TypeVar("T")


def numbered(values: Iterable[T]) -> tuple[np.ndarray, tuple[T, ...]]:
    """(n,) int32: the place of each value among the distinct ones; and these, in order of first appearance."""
    listed = values if isinstance(values, list | tuple) else list(values)
    distinct = tuple(dict.fromkeys(listed))
    if len(distinct) < 2:
        return np.zeros(len(listed), np.int32), distinct
    place = {value: number for number, value in enumerate(distinct)}
    return np.fromiter(map(place.__getitem__, listed), np.int32, len(listed)), distinct
