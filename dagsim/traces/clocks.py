"""Dates of traces as seconds."""

from __future__ import annotations

from datetime import datetime

from dagsim.traces.fields import Dirty

__all__ = ["seconds_since_1970"]

_EPOCH = datetime(1970, 1, 1)


def seconds_since_1970(text: str, field: str) -> float:
    """``2017-10-09 07:01:55`` as seconds, taken as it is without a time zone.

    Raises:
        Dirty: It is empty or no such date, or before 1970.
    """
    try:
        moment = datetime.fromisoformat(text.strip()).replace(tzinfo=None)
    except ValueError:
        raise Dirty(f"without {field}" if text.strip() in ("", "None") else f"whose {field} is no date") from None
    if moment < _EPOCH:
        raise Dirty(f"whose {field} is no date")
    return (moment - _EPOCH).total_seconds()
