"""Values in a form that can be recorded: ``digest`` for large ones, ``plain`` for small ones; and their comparison
with what was recorded.

Floats are recorded with six digits, since the last ones depend on the processor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from dagsim.model.arithmetic import COMPUTED


def plain(value: Any) -> Any:
    """The value as lists, mappings, texts and whole numbers."""
    match value:
        case None | bool() | str():
            return value
        case Enum():
            return value.name
        case int() | np.integer():
            return int(value)
        case float() | np.floating():
            return _rounded(float(value))
        case np.bool_():
            return bool(value)
        case bytes():
            return value.hex()
        case Path():
            return value.name
        case Mapping():
            return {str(plain(key)): plain(item) for key, item in value.items()}
        case np.ndarray():
            return plain(value.tolist())
        case set() | frozenset():
            return sorted((plain(item) for item in value), key=str)
    if value is MISSING:
        return "MISSING"
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: (getattr(value, field.name), field.default) for field in fields(value)}
        return {name: plain(part) for name, (part, default) in parts.items() if not _is_default(part, default)}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if hasattr(value, "__iter__"):
        return [plain(item) for item in value]
    raise TypeError(f"there is no plain form of a {type(value).__name__}")


def _is_default(part: Any, default: Any) -> bool:
    """True if a field has its default: one more field with a default does not change what is recorded."""
    return part is default or (isinstance(part, int | float | str) and plain(part) == plain(default))


class Digits(str):
    """Six digits of a float, which remember it."""

    exact: float

    @classmethod
    def of(cls, value: float) -> Digits:
        """Round a float."""
        digits = cls(f"{value:g}")
        digits.exact = value
        return digits


class Whole(int):
    """A float of six digits that are a whole number, which remembers it."""

    exact: float

    @classmethod
    def of(cls, value: float) -> Whole:
        """Round a float."""
        whole = cls(float(f"{value:.6g}"))
        whole.exact = value
        return whole


def as_recorded(value: Any, recorded: Any) -> bool:
    """True if a value that ``plain`` made is what was recorded. Six digits are right if the float rounds to them, or
    would if it differed by 1e-9 of itself; all else must be equal.
    """
    match value, recorded:
        case dict(), dict():
            return value.keys() == recorded.keys() and all(as_recorded(value[key], recorded[key]) for key in value)
        case list() | tuple(), list():
            return len(value) == len(recorded) and all(map(as_recorded, value, recorded))
        case ((Digits() | Whole()), (str() | int())) if value != recorded:
            return recorded in [_rounded(value.exact * (1 - COMPUTED)), _rounded(value.exact * (1 + COMPUTED))]
    return bool(value == recorded)


def _rounded(value: float) -> int | Digits:
    """Six digits. A whole number is the same as a float, since equal objects are often shared."""
    if value.is_integer() and abs(value) < 1e15:
        return int(value)
    digits = Digits.of(value)
    return Whole.of(value) if float(digits).is_integer() and abs(float(digits)) < 1e15 else digits


def digest(value: Any) -> str:
    """Eight digits that change with any part of the value."""
    return sha256(json.dumps(plain(value)).encode()).hexdigest()[:8]
