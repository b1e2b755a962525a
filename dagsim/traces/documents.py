"""An incremental JSON reader. It yields the elements of a long list. Its memory use is bounded,
however large the document is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from io import TextIOWrapper
from typing import Any

from dagsim.errors import TraceError
from dagsim.files import unique_names, whole_characters
from dagsim.traces.source import LINE_BITS, Source

_BLOCK = 1 << 16
_LONGEST = 1 << 26
"""Maximum number of characters in an element. A longer element is treated as damaged."""
_SPACE = " \t\r\n"
# An error within this many characters of the end of the buffer may only mean that the rest has not
# been read yet.
_UNDECIDED = 16


def elements(source: Source, key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects under ``key`` in each document, each with its line number (see
    ``Source.where``).

    A document may be an object that contains the list ``key``, or a plain list of objects. If it is
    any other object, that object itself is yielded, so that a file with one object per line can be
    read as well.

    Raises:
        TraceError: The text is not JSON, an element is not an object, or an object has the same
            name twice, with different values. The message names ``file:line``.
    """
    for number, element in values(source, key):
        if not isinstance(element, dict):
            raise TraceError(f"{source.where(number)}: expected an object, got {type(element).__name__}")
        yield number, element


def values(source: Source, key: str) -> Iterator[tuple[int, Any]]:
    """Yield the same elements as ``elements``, but of any type.

    Raises:
        TraceError: The text is not JSON, or an object has the same name twice, with different
            values.
    """
    for place, file in enumerate(source.files):
        with file.open_binary() as stream:
            document = _Document(TextIOWrapper(stream, encoding="utf-8-sig"), file)
            for line, element in document.elements(key):
                yield (place << LINE_BITS) + line, element


def object_in(value: Any, *keys: str) -> Mapping[str, Any]:
    """Return the object at the path ``keys``, or an empty object."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def list_in(value: Any, *keys: str) -> Sequence[Any]:
    """Return the list at the path ``keys``, or an empty list."""
    listed = object_in(value, *keys[:-1]).get(keys[-1]) if keys else value
    return listed if isinstance(listed, list) else []


def text_in(value: Any, *keys: str) -> str:
    """Return the text at the path ``keys``, or an empty text."""
    text = object_in(value, *keys[:-1]).get(keys[-1]) if keys else value
    return text if isinstance(text, str) else ""


class _Document:
    """A JSON text. Only the part that is being read is in memory."""

    def __init__(self, text: TextIOWrapper, file: Source) -> None:
        self._text = text
        self._file = file
        self._buffer = ""
        self._at = 0
        self._line = 1
        self._decoder = json.JSONDecoder(object_pairs_hook=unique_names)

    def elements(self, key: str) -> Iterator[tuple[int, Any]]:
        while first := self._next():
            if first == "[":
                yield from self._listed()
            elif first == "{":
                yield from self._members(key)
            else:
                raise self._wrong("not a JSON object or list")

    def _members(self, key: str) -> Iterator[tuple[int, Any]]:
        """Yield the elements under ``key``, or the object itself."""
        line, has_list, own = self._line, False, dict[str, Any]()
        self._take("{")
        while self._next() != "}":
            name = self._value()
            self._take(":")
            if name == key and self._next() == "[":
                if has_list:
                    raise self._wrong(f"the JSON cannot be read, because an object contains the key {key!r} twice")
                has_list = True
                yield from self._listed()
            else:
                value = self._value()
                if not has_list and isinstance(name, str) and own.setdefault(name, value) != value:
                    raise self._wrong(f"the JSON cannot be read, because an object contains the key {name!r} twice")
            if self._next() != "}":
                self._take(",")
        self._take("}")
        if not has_list and own:
            yield line, own

    def _listed(self) -> Iterator[tuple[int, Any]]:
        self._take("[")
        while self._next() != "]":
            line = self._line
            yield line, self._value()
            if self._next() != "]":
                self._take(",")
        self._take("]")

    def _next(self) -> str:
        """Return the next character that is not a blank, or an empty text at the end."""
        while True:
            while self._at < len(self._buffer):
                char = self._buffer[self._at]
                if char not in _SPACE:
                    return char
                self._line += char == "\n"
                self._at += 1
            if not self._more():
                return ""

    def _take(self, char: str) -> None:
        if self._next() != char:
            raise self._wrong(f"invalid JSON: {char!r} is missing")
        self._at += 1

    def _value(self) -> Any:
        self._next()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._buffer, self._at)
                whole_characters(value, self._buffer[self._at : end])
            except json.JSONDecodeError as error:
                cut_off = error.msg.startswith("Unterminated") or error.pos + _UNDECIDED >= len(self._buffer)
                if not cut_off or not self._more():
                    line = self._line + self._buffer.count("\n", self._at, error.pos)
                    raise TraceError(f"{self._file}:{line}: invalid JSON ({error.msg})") from None
            except RecursionError:
                raise self._wrong("the JSON is nested too deeply") from None
            # the text ends in the middle of a character, or contains a number with thousands of
            # digits
            except ValueError as error:
                raise self._wrong(f"the JSON cannot be read ({error})") from None
            else:
                if end < len(self._buffer) or isinstance(value, dict | list | str) or not self._more():
                    self._line += self._buffer.count("\n", self._at, end)
                    self._at = end
                    return value

    def _more(self) -> bool:
        """Read more characters, at least as many as are unread in the buffer. Return False at the
        end.
        """
        left = len(self._buffer) - self._at
        if left > _LONGEST:
            raise self._wrong(f"an element has more than {_LONGEST:,} characters")
        try:
            block = self._text.read(max(_BLOCK, left))
        except UnicodeDecodeError:
            raise self._wrong("the text from here on is not UTF-8") from None
        self._buffer = self._buffer[self._at :] + block
        self._at = 0
        return bool(block)

    def _wrong(self, reason: str) -> TraceError:
        return TraceError(f"{self._file}:{self._line}: {reason}")
