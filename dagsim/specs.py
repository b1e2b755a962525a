"""Read names with parameters, such as ``name[param=value]``, and unquoted words as values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from dagsim.errors import ConfigError


class Spec(NamedTuple):
    """A name with its parameters in brackets."""

    name: str
    params: dict[str, object]

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Parse ``name[param=value,other=3]``.

        Values are YAML scalars, ``[1,2]`` is a tuple, and quoted text stays unchanged. Brackets can
        be nested: ``sticky[policy=sjf[strict=true]]``.

        Raises:
            ConfigError: Brackets or quotes do not match, a parameter has no ``=``, or a parameter
                is given twice.
        """
        name, bracket, rest = text.partition("[")
        if not name.strip() or (bracket and not rest.rstrip().endswith("]")):
            raise ConfigError(f"cannot read {text!r}: expected name or name[param=value,...]")
        params: dict[str, object] = {}
        for part in _split(rest.rstrip()[:-1], text):
            param, equals, value = part.partition("=")
            if not equals or not param.strip():
                raise ConfigError(f"cannot read {part!r} in {text!r}: expected param=value")
            if param.strip() in params:
                raise ConfigError(f"{text!r} gives {param.strip()!r} twice")
            params[param.strip()] = _value(value.strip(), text)
        return cls(name.strip(), params)

    def __str__(self) -> str:
        """Return a text from which ``parse`` creates the same spec."""
        parts = ",".join(f"{param}={_written(value)}" for param, value in self.params.items())
        return f"{self.name}[{parts}]" if parts else self.name


def _split(text: str, whole: str) -> Iterator[str]:
    """Split at commas, except inside brackets or quotes."""
    part, depth, quote = "", 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "," and not depth:
            yield part.strip()
            part = ""
            continue
        else:
            depth += (letter == "[") - (letter == "]")
        if depth < 0:
            break
        part += letter
    if depth or quote:
        raise ConfigError(f"cannot read {whole!r}: a bracket or quote does not match")
    if part.strip():
        yield part.strip()


def _value(text: str, whole: str) -> object:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text.startswith("[") and text.endswith("]"):
        return tuple(_value(part, whole) for part in _split(text[1:-1], whole))
    return scalar(text)


def _written(value: object) -> str:
    """Return the text from which ``_value`` reads this value."""
    if isinstance(value, tuple):
        return f"[{','.join(map(_written, value))}]"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    text = str(value)
    plain = not isinstance(value, str) or (re.fullmatch(r"[\w.-]+", text) and scalar(text) == text)
    return text if plain else f"'{text}'" if '"' in text else f'"{text}"'


Scalar: TypeAlias = bool | int | float | str | None

_WORDS: dict[str, Scalar] = {"": None, "~": None}
for _word, _meaning in (("null", None), ("true", True), ("false", False)):
    _WORDS |= dict.fromkeys((_word, _word.capitalize(), _word.upper()), _meaning)

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INF = re.compile(r"([-+]?)\.(inf|Inf|INF)")
_NAN = re.compile(r"\.(nan|NaN|NAN)")
_MOST_DIGITS = 1000
"""Maximum length of a word that is read as a number. Python cannot print integers with more than
4,300 digits, so an error message could not show a longer one.
"""


def scalar(text: str) -> Scalar:
    """Return the value of an unquoted word: None, a truth value, a number, or the text itself (such
    as ``off``).

    This follows the core schema of YAML 1.2. YAML 1.1, which PyYAML implements, reads ``3e-4`` as
    text and ``off`` as false, which is not what people mean.
    """
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
