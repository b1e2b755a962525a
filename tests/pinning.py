"""Values in a form that can be recorded: ``digest`` for large ones, ``plain`` for small ones.

Floats are rounded to six digits, since the last ones depend on the processor.
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


def _rounded(value: float) -> int | str:
    """Six digits. A whole number is the same as a float, since equal objects are often shared."""
    shown = value if value.is_integer() and abs(value) < 1e15 else float(f"{value:.6g}")
    return int(shown) if shown.is_integer() and abs(shown) < 1e15 else f"{shown:g}"


def digest(value: Any) -> str:
    """Eight digits that change with any part of the value."""
    return sha256(json.dumps(plain(value)).encode()).hexdigest()[:8]
