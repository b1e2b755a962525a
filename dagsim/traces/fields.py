"""Conversion of a row's fields to numbers, or a reason for the failure."""

from __future__ import annotations

import re
from datetime import datetime
from math import inf

import numpy as np

from dagsim.workload.records import MOST_INSTANCES

__all__ = ["MOST_GPUS", "Dirty", "are_counts", "count", "finite_number", "pbs_memory_gb", "seconds_since_1970"]


MOST_GPUS = 1 << 16
"""Maximum GPUs per node; a larger number counts as a damaged field."""


class Dirty(ValueError):
    """An unusable row; the message is the reason for ``ReadReport.drop``."""


def finite_number(text: str, field: str) -> float:
    """Parse a finite number.

    Raises:
        Dirty: The text is empty or not a finite number.
    """
    try:
        value = float(text)
    except ValueError:
        raise Dirty(f"without {field}" if not text.strip() else f"whose {field} is not a number") from None
    if not -inf < value < inf:
        raise Dirty(f"whose {field} is not a number")
    return value


def count(text: str, field: str, least: int = 1, most: int = MOST_INSTANCES) -> int:
    """Parse a whole number (``3`` or ``3.0``) from ``least`` to ``most``.

    Raises:
        Dirty: The text is empty, not a whole number, or out of range.
    """
    value = int(text) if text.isdecimal() and len(text) < 10 else finite_number(text, field)
    if not least <= value <= most or value != int(value):
        raise Dirty(f"whose {field} is impossible")
    return int(value)


def are_counts(values: np.ndarray, least: int = 1, most: int = MOST_INSTANCES) -> np.ndarray:
    """(n,) bool: True where ``count`` accepts the number."""
    counted: np.ndarray = (values >= least) & (values <= most) & (values == np.floor(values))
    return counted


_EPOCH = datetime(1970, 1, 1)


def seconds_since_1970(text: str, field: str) -> float:
    """Parse a date like ``2017-10-09 07:01:55`` as seconds since 1970, without a time zone.

    Raises:
        Dirty: The text is empty, not such a date, or before 1970.
    """
    try:
        moment = datetime.fromisoformat(text.strip()).replace(tzinfo=None)
    except ValueError:
        raise Dirty(f"without {field}" if text.strip() in ("", "None") else f"whose {field} is not a date") from None
    if moment < _EPOCH:
        raise Dirty(f"whose {field} is not a date")
    return (moment - _EPOCH).total_seconds()


_UNITS_GB = {"b": 2.0**-30, "kb": 2.0**-20, "mb": 2.0**-10, "gb": 1.0, "tb": 2.0**10, "pb": 2.0**20, "w": 2.0**-27}
_SIZE = re.compile(r"(\d{1,18})([kmgtp]?b|w)?", re.IGNORECASE)


def pbs_memory_gb(text: str) -> float:
    """Parse a PBS size as GB of 2^30 bytes: ``64gb``, ``67108864kb``, words of 8 bytes (``w``), or
    plain bytes.

    Raises:
        Dirty: The text is not a size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise Dirty("whose memory is not a size")
    return int(match[1]) * _UNITS_GB[(match[2] or "b").lower()]
