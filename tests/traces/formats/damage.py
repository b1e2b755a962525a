"""Damage to valid traces, the same for the same seed: what fuzzing puts before readers."""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

__all__ = ["NASTY", "PACKINGS", "damaged", "packed"]

Damage: TypeAlias = Callable[[bytes, Random], bytes]

NASTY = (
    "", " ", "nan", "NaN", "inf", "-inf", "Infinity", "-1", "0", "-0", "-0.0", "1", "1.5", "0.5", "1e-320", "1e308",
    "-1e308", "1e999", "1" + "0" * 9, "1" + "0" * 12, "1" + "0" * 15, "1" + "0" * 30, "2147483647", "2147483648",
    "4294967296", "9007199254740993", "9223372036854775807", "9223372036854775808", "18446744073709551616", "9" * 400,
    "9" * 5000, "1e12", "99999999", "0x10", "1_000", "1,5", "+7", " 7 ", "007", "\u0663", "\u00b2", "\u2167", '"',
    '""', '"""', "'", "a,b", "a|b", "|", "/", "1/2", "-", "_", "\\", "\\u0000", "M1_1", "M1_2_3", "R99999999999_1",
    "_".join(["M1"] * 50), "M" * 50, "task_", "Stg", "Terminated", "Failed", "2^63", "null", "true", "None", "[]",
    "{}", "[" * 2000, '{"a":' * 2000, "\0", "\x1f", "\u2028", "\u2029", "\x85", "\x0b", "\ufeff", "\ud7ff",
    "\U0010ffff", "x" * 70_000, "2017-10-03 24:00:00", "0000-00-00 00:00:00", "9999-12-31 23:59:59",
    "2017-02-30 00:00:00", "1970-01-01T00:00:00Z", "&amp;", "&undefined;", "<!--", "]]>", "<x>", ";", "#", "%s",
    "{0}", "../..", "~",
)  # fmt: skip
"""Texts that a field should not have, or that are easily misread."""

NODES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 0.5, 1e308, 10**12, 10**30, 2**31, 2**63, -0.0, "", "1", "x", "nan", "\0", "\u0663",
    [], {}, [[]], [None], [0, 0], [-1], {"": None}, {"id": 1}, ["a", "a"], float("nan"), float("inf"), [0, 1, 2, 3],
    "x" * 70_000,
)  # fmt: skip
"""What a document should not have at some place."""

_SEPARATORS = (rb"([,\n])", rb"([\t\n])", rb"([ \n]+)", rb"([;|:\n])", rb"""([\s,:;<>=/"'{}\[\]()|-]+)""")
_BYTES = b"\n\r\t \",'\0\xff\x1f;|:[]{}<>0123456789-."


def flip(content: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :]


def insert(content: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(content) + 1)
    return content[:at] + bytes([rng.choice(_BYTES)]) + content[at:]


def delete(content: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + content[at + rng.choice((1, 1, 2, 8, 64)) :]


def double(content: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(content))
    end = at + rng.choice((1, 2, 8, 64, 512))
    return content[:end] + content[at:]


def truncate(content: bytes, rng: Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def drop_lines(content: bytes, rng: Random) -> bytes:
    lines = content.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    del lines[at : at + rng.randint(1, 3)]
    return b"".join(lines)


def repeat_line(content: bytes, rng: Random) -> bytes:
    lines = content.splitlines(keepends=True)
    lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
    return b"".join(lines)


def swap_lines(content: bytes, rng: Random) -> bytes:
    lines = content.splitlines(keepends=True)
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


def end_lines_otherwise(content: bytes, rng: Random) -> bytes:
    return content.replace(b"\n", rng.choice((b"\r\n", b"\r", b"\n\n", b"\n \n", b"\0\n", b"")))


def set_field(content: bytes, rng: Random) -> bytes:
    fields = re.split(rng.choice(_SEPARATORS), content)
    fields[_field(fields, rng)] = rng.choice(NASTY).encode()
    return b"".join(fields)


def set_attribute(content: bytes, rng: Random) -> bytes:
    """Set or copy a value between quotes."""
    parts = content.split(b'"')
    at = 2 * rng.randrange(max(1, len(parts) // 2)) + 1
    if at < len(parts):
        parts[at] = rng.choice((rng.choice(NASTY).encode(), parts[2 * rng.randrange(len(parts) // 2) + 1]))
    return b'"'.join(parts)


def swap_fields(content: bytes, rng: Random) -> bytes:
    fields = re.split(rng.choice(_SEPARATORS), content)
    one, other = _field(fields, rng), _field(fields, rng)
    fields[one], fields[other] = fields[other], fields[one]
    return b"".join(fields)


def copy_field(content: bytes, rng: Random) -> bytes:
    fields = re.split(rng.choice(_SEPARATORS), content)
    fields[_field(fields, rng)] = fields[_field(fields, rng)]
    return b"".join(fields)


def set_node(content: bytes, rng: Random) -> bytes:
    """Replace, remove or repeat a node of a JSON document, or of one of its lines; a field of anything else."""
    try:
        document, lines = json.loads(content), []
    except ValueError:
        lines = content.splitlines(keepends=True)
        at = rng.randrange(len(lines))
        try:
            document = json.loads(lines[at])
        except (ValueError, RecursionError):
            return set_field(content, rng)
    except RecursionError:
        return set_field(content, rng)
    places = [(document, key) for document in _within(document) for key in _keys(document)]
    if not places:
        return set_field(content, rng)
    holder, key = rng.choice(places)
    match rng.randrange(6):
        case 0:
            del holder[key]
        case 1:
            other, there = rng.choice(places)
            holder[key] = json.loads(json.dumps(other[there])) if there in _keys(other) else None
        case 2 if isinstance(holder, list):
            holder.append(holder[key])
        case _:
            holder[key] = rng.choice(NODES)
    text = json.dumps(document).encode()
    return b"".join([*lines[:at], text + b"\n", *lines[at + 1 :]]) if lines else text


DAMAGES: tuple[tuple[Damage, int], ...] = (
    (flip, 2), (insert, 2), (delete, 2), (double, 1), (truncate, 1), (drop_lines, 2), (repeat_line, 2), (swap_lines, 1),
    (end_lines_otherwise, 1), (set_field, 10), (swap_fields, 2), (copy_field, 2), (set_node, 4),
)  # fmt: skip
"""Each with how often it is chosen."""


def damaged(content: bytes, rng: Random) -> bytes:
    """``content`` after one to four damages; never empty, since what is empty is told apart at once.

    Most damage to a document's text leaves no document, so most documents keep their form and get wrong values.
    """
    kept = {
        b"{": ((set_node, 1),),
        b"[": ((set_node, 1),),
        b"<": ((set_attribute, 5), (drop_lines, 1), (swap_lines, 1)),
    }
    damages = kept.get(content[:1], DAMAGES) if rng.random() < 0.7 else DAMAGES
    for _ in range(rng.randint(1, 4)):
        (damage,) = rng.choices([change for change, _ in damages], [often for _, often in damages])
        content = damage(content, rng) or b"\n"
    return content


PACKINGS = ("", "", "", "", ".gz", ".tar", ".tar.gz")
"""How a file is packed: mostly not at all."""


def packed(content: bytes, name: str, packing: str, rng: Random) -> bytes:
    """``content`` compressed, or as a member of an archive; in every other case the packed bytes are damaged too."""
    if packing.startswith(".tar"):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for number in range(rng.choice((1, 1, 2))):
                member = tarfile.TarInfo(f"{number or ''}{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        content = buffer.getvalue()
    if packing.endswith(".gz"):
        content = gzip.compress(content, 1, mtime=0)
    if packing and rng.random() < 0.5:
        content = rng.choice((flip, flip, truncate, delete, double))(content, rng) or b"\n"
    return content


def _field(fields: list[bytes], rng: Random) -> int:
    return 2 * rng.randrange((len(fields) + 1) // 2)


def _within(document: Any) -> list[Any]:
    """All lists and objects in ``document``."""
    nodes, left = [], [document]
    while left:
        node = left.pop()
        if isinstance(node, list | dict):
            nodes.append(node)
            left += node.values() if isinstance(node, dict) else node
    return nodes


def _keys(holder: Any) -> list[Any]:
    return list(holder) if isinstance(holder, dict) else list(range(len(holder)))
