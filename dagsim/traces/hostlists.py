"""Lists of nodes as Slurm writes them, ``h[001-002,010],g5``, both ways."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice

__all__ = ["folded", "hosts"]

_MOST = 1 << 17
_NUMBERED = re.compile(r"(.*?)(\d{1,18})(\D*)", re.DOTALL)


def hosts(text: str, most: int = _MOST) -> tuple[str, ...]:
    """The names that a list stands for, at most ``most``; several brackets, zeros and suffixes are heeded.

    Raises:
        ValueError: A bracket is not closed, or holds no list of numbers.
    """
    return tuple(islice((name for part in _parts(text) for name in _expanded(part)), most))


def folded(names: Iterable[str]) -> str:
    """The names as a list: runs of numbers of one width become a range."""
    groups: dict[tuple[str, str, int], list[int]] = {}
    plain: list[str] = []
    for name in names:
        found = _NUMBERED.fullmatch(name)
        if found is None or any(sign in name for sign in "[],"):
            plain.append(name)
        else:
            width = len(found[2]) if found[2].startswith("0") or len(found[2]) > 1 else 1
            groups.setdefault((found[1], found[3], width), []).append(int(found[2]))
    parts = plain
    for (prefix, suffix, width), numbers in groups.items():
        ranges = list(_ranges(sorted(set(numbers)), width))
        alone = len(ranges) == 1 and "-" not in ranges[0]
        parts.append(f"{prefix}{ranges[0] if alone else '[' + ','.join(ranges) + ']'}{suffix}")
    return ",".join(parts)


def _parts(text: str) -> Iterator[str]:
    """The parts between commas that are not in brackets."""
    depth, start = 0, 0
    for at, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            raise ValueError(f"brackets do not match: {text[:80]!r}")
        if char == "," and not depth:
            yield text[start:at]
            start = at + 1
    if depth:
        raise ValueError(f"a bracket is not closed: {text[:80]!r}")
    yield text[start:]


def _expanded(part: str) -> Iterator[str]:
    before, bracket, rest = part.partition("[")
    if not bracket:
        if before:
            yield before
        return
    inside, _, after = rest.partition("]")
    for number in _numbers(inside):
        for name in _expanded(after) if after else ("",):
            yield f"{before}{number}{name}"


def _numbers(inside: str) -> Iterator[str]:
    for each in inside.split(","):
        first, dash, last = each.partition("-")
        last = last if dash else first
        if not (first.isascii() and first.isdecimal() and last.isascii() and last.isdecimal() and len(last) < 19):
            raise ValueError(f"no range of numbers: {each[:80]!r}")
        for number in range(int(first), int(last) + 1):
            yield f"{number:0{len(first)}d}"


def _ranges(numbers: list[int], width: int) -> Iterator[str]:
    start = 0
    for at in range(len(numbers)):
        if at + 1 == len(numbers) or numbers[at + 1] != numbers[at] + 1:
            first, last = (f"{numbers[each]:0{width}d}" for each in (start, at))
            yield first if start == at else f"{first}-{last}"
            start = at + 1
