"""Sizes of memory as PBS writes them."""

from __future__ import annotations

import re

from dagsim.traces.fields import Dirty

__all__ = ["pbs_memory_gb"]

_UNITS_GB = {"b": 2.0**-30, "kb": 2.0**-20, "mb": 2.0**-10, "gb": 1.0, "tb": 2.0**10, "pb": 2.0**20, "w": 2.0**-27}
_SIZE = re.compile(r"(\d{1,18})([kmgtp]?b|w)?", re.IGNORECASE)


def pbs_memory_gb(text: str) -> float:
    """``64gb``, ``67108864kb``, words of 8 bytes (``w``), or bytes, in GB of 2^30 bytes.

    Raises:
        Dirty: It is no size.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise Dirty("whose memory is no size")
    return int(found[1]) * _UNITS_GB[(found[2] or "b").lower()]
