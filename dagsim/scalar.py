"""Plain words of a configuration as values, after the core schema of YAML 1.2.

YAML 1.1, which PyYAML implements, reads ``3e-4`` as text and ``off`` as false. People mean the
opposite of both.
"""

from __future__ import annotations

import re
from typing import TypeAlias

__all__ = ["Scalar", "scalar"]

Scalar: TypeAlias = bool | int | float | str | None

_WORDS: dict[str, Scalar] = {"": None, "~": None}
for _word, _meaning in (("null", None), ("true", True), ("false", False)):
    _WORDS |= dict.fromkeys((_word, _word.capitalize(), _word.upper()), _meaning)

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INF = re.compile(r"([-+]?)\.(inf|Inf|INF)")
_NAN = re.compile(r"\.(nan|NaN|NAN)")
_MOST_DIGITS = 1000
"""Longest word that is read as a number. Python cannot print integers of more than 4,300 digits, so
error messages could not show a larger one.
"""


def scalar(text: str) -> Scalar:
    """Value of an unquoted word: None, a truth value, a number, or the text itself (``off``)."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > _MOST_DIGITS:
        return text
    if _INT.fullmatch(text):
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    if _FLOAT.fullmatch(text):
        return float(text)
    if infinite := _INF.fullmatch(text):
        return float(infinite[1] + "inf")
    if _NAN.fullmatch(text):
        return float("nan")
    return text
