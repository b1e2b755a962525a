"""Convert a row's fields to numbers, or give a reason for the failure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from math import inf
from typing import ClassVar, Self

import numpy as np

from dagsim.errors import ConfigError, ModelError, TraceError
from dagsim.workload.records import MOST_INSTANCES, clipped

MOST_GPUS = 1 << 16
"""Maximum number of GPUs per node. A field with a larger number is treated as damaged."""


class Contradictory(str):
    """A reason for dropping or noting a row that contradicts itself or another row, or has a value that
    cannot be read.

    A reason is a text, and its class states the kind of contradiction, so that the kind does not
    depend on the wording. ``str()`` keeps the class. If you make a new text from a reason, convert
    it to the same class (``type(reason)(...)``).
    """

    __slots__ = ()
    kind: ClassVar[str]
    """One of ``report.OF_ROWS``."""

    def __str__(self) -> Self:
        return self  # str.__str__ would return a plain str, for example when Dirty(reason) is printed


class InvalidValue(Contradictory):
    """A reason for rows with a value that cannot be read."""

    kind = "values"


_NOT_A_NUMBER = "with a non-numeric value for "


def not_a_number(field: str) -> InvalidValue:
    """Return the reason for rows whose value of a field is not a number."""
    return InvalidValue(_NOT_A_NUMBER + field)


def is_no_number_of_seconds(reason: str) -> bool:
    """Return True if a reason states that a time in seconds is not a number."""
    return reason.startswith(_NOT_A_NUMBER) and reason.endswith("_s")


class Dirty(ValueError):
    """Raised for a row that cannot be used. The message is the reason for ``ReadReport.drop``."""


class FaultsAt:
    """A context manager for files in which no row may be dropped, such as a list of machines. If
    its body raises an error, it adds the position (``file:line``) and the subject to the message.

    Raises:
        TraceError: The body raised ``Dirty`` or ``ModelError``.
    """

    def __init__(self, where: str, subject: str = "") -> None:
        self.where, self.subject = where, f"{subject} " if subject else ""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Dirty | ModelError):
            raise TraceError(f"{self.where}: {self.subject}{clipped(error)}") from None


def is_number(text: str) -> bool:
    """Return True if the text can be parsed as a number, which may be infinite or NaN."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def finite_number(text: str, field: str) -> float:
    """Parse a finite number.

    Raises:
        Dirty: The text is empty or not a finite number.
    """
    try:
        value = float(text)
    except ValueError:
        raise Dirty(not_a_number(field) if text.strip() else f"without {field}") from None
    if not -inf < value < inf:
        raise Dirty(not_a_number(field))
    return value


def count(text: str, field: str, least: int = 1, most: int = MOST_INSTANCES) -> int:
    """Parse a whole number (``3`` or ``3.0``) from ``least`` to ``most``.

    Raises:
        Dirty: The text is empty, not a whole number, or out of range.
    """
    value = int(text) if text.isdecimal() and len(text) < 10 else finite_number(text, field)
    if not least <= value <= most or value != int(value):
        raise Dirty(InvalidValue(f"with an invalid value for {field}"))
    return int(value)


def are_counts(values: np.ndarray, least: int = 1, most: int = MOST_INSTANCES) -> np.ndarray:
    """Return a mask of the numbers that ``count`` would accept, (n,) bool."""
    counted: np.ndarray = (values >= least) & (values <= most) & (values == np.floor(values))
    return counted


_EPOCH = datetime(1970, 1, 1)


def seconds_since_1970(text: str, field: str) -> float:
    """Parse a date such as ``2017-10-09 07:01:55`` as seconds since 1970, without a time zone.

    Raises:
        Dirty: The text is empty, not such a date, or before 1970.
    """
    try:
        moment = datetime.fromisoformat(text.strip()).replace(tzinfo=None)
    except ValueError:
        empty = text.strip() in ("", "None")
        raise Dirty(f"without {field}" if empty else InvalidValue(f"with an invalid date in {field}")) from None
    if moment < _EPOCH:
        raise Dirty(InvalidValue(f"with an invalid date in {field}"))
    return (moment - _EPOCH).total_seconds()


_AFTER = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw]?)")
_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_FIRST_DATE_S = 1e8
"""A clock that starts below this number of seconds is assumed not to count from 1970."""


def instant_s(name: str, value: str | float, origin_s: float, zone: tzinfo | None) -> float:
    """Convert a time in a log to seconds after the log's first job. That job arrived at
    ``origin_s`` on the log's own clock. The time is a date (``2023-05-03T14:00``, in ``zone`` or
    UTC) or a time after the first job (``36h``, ``7d``, or seconds).

    Raises:
        ConfigError: The text is neither of these, or it is a date although the log contains no
            dates.
    """
    text = str(value).strip()
    if after := _AFTER.fullmatch(text):
        return float(after[1]) * _UNITS_S[after[2]]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{name}: expected a date such as 2023-05-03T14:00 or a time after the first job such as 36h, got {value!r}"
        ) from None
    if origin_s < _FIRST_DATE_S:
        raise ConfigError(f"{name}: this log has no dates; give a time after its first job such as 36h, got {value!r}")
    return moment.replace(tzinfo=moment.tzinfo or zone or UTC).timestamp() - origin_s


_UNITS_GB = {"K": 2.0**-20, "M": 2.0**-10, "G": 1.0, "T": 2.0**10, "P": 2.0**20}


def memory_gb(text: str) -> float:
    """Parse a size in Slurm's notation, such as ``128G``, as GB. Units are powers of 1024. A number
    without a letter is in MB. A final ``c`` or ``n``, as old versions of Slurm write it, is
    ignored.

    Raises:
        Dirty: The text is not a size.
    """
    text = text.strip().rstrip("cn")
    unit = text[-1:].upper()
    size = (
        finite_number(text[:-1], "memory") * _UNITS_GB[unit]
        if unit in _UNITS_GB
        else finite_number(text, "memory") / 1024
    )
    if not 0 <= size < inf:
        raise Dirty(InvalidValue("with an invalid value for memory"))
    return size
