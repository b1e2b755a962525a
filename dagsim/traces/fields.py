"""Fields of a trace's rows as numbers, or the reason why not."""

from __future__ import annotations

from math import inf

import numpy as np

from dagsim.workload.records import MOST_INSTANCES

__all__ = ["MOST_GPUS", "Dirty", "are_counts", "count", "finite_number"]

MOST_GPUS = 1 << 16
"""More GPUs in one node are a damaged field."""


class Dirty(ValueError):
    """A row that cannot be used: the reason for ``ReadReport.drop``."""


def finite_number(text: str, field: str) -> float:
    """The finite number that ``text`` spells.

    Raises:
        Dirty: It is empty or spells none.
    """
    try:
        value = float(text)
    except ValueError:
        raise Dirty(f"without {field}" if not text.strip() else f"whose {field} is no number") from None
    if not -inf < value < inf:
        raise Dirty(f"whose {field} is no number")
    return value


def count(text: str, field: str, least: int = 1, most: int = MOST_INSTANCES) -> int:
    """The whole number that ``text`` spells, ``3`` or ``3.0``, from ``least`` to ``most``.

    Raises:
        Dirty: It is empty, spells none, or lies outside.
    """
    value = int(text) if text.isdecimal() and len(text) < 10 else finite_number(text, field)
    if not least <= value <= most or value != int(value):
        raise Dirty(f"whose {field} is impossible")
    return int(value)


def are_counts(values: np.ndarray, least: int = 1, most: int = MOST_INSTANCES) -> np.ndarray:
    """(n,) bool: ``count`` takes the number."""
    counted: np.ndarray = (values >= least) & (values <= most) & (values == np.floor(values))
    return counted
