"""Group rows by job and sort jobs by arrival: in memory if they are few, on disk otherwise.

Only for records that are not rows of a table: PBS's lines of ``key=value``, JSON objects (Philly's log,
Kubernetes), and the samples of Google 2019 with demands in Python's syntax. These readers visit each
record once, as an object. In columns, nested lists and attempts that refer to each other would take more
code, and most of the time goes into parsing the text anyway. Tables go through ``rows`` instead.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from heapq import merge
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple, TypeAlias

_ROWS_IN_MEMORY = 1 << 18
_PARTS = 64
_BLOCK = 1 << 8  # jobs written and read back at once
_SIZE_BYTES = 8
_SEPARATOR = "\x1f"
_REPLACED = "\ufffd"  # part of no number, so an invalid field stays invalid


class Gathered(NamedTuple):
    """The rows of one job in the order read, and their earliest time."""

    time: float
    first: int
    """Index of the job's first row among all rows; breaks ties between equal times."""
    job: str
    rows: list[str]


_Jobs: TypeAlias = dict[str, list[Any]]
"""Per job: time, first, and then its rows, in one flat list, since the garbage collector counts
every container.
"""

_Piece: TypeAlias = tuple[float, int, str, str]
"""Time, first, job, and its rows in one text: the record written to disk."""


def gather(rows: Iterable[tuple[str, float, str]], rows_in_memory: int = _ROWS_IN_MEMORY) -> Iterator[Gathered]:
    """Group rows ``(job, time, row)`` by job; yield the jobs by earliest time, then by first
    appearance.

    ``time`` may be ``inf`` if a row has none; ``row`` is text without line ends. Up to
    ``rows_in_memory`` rows are held in memory. More rows are sorted externally, in temporary files
    of about the input's size: rows are split by job into 64 parts, each part is grouped and sorted
    on its own (so memory holds one 64th of a huge trace), and the parts are merged.
    """
    jobs: _Jobs = {}
    with ExitStack() as stack:
        parts: list[IO[bytes]] = []
        spilled = 0
        for place, (job, time, row) in enumerate(rows):
            collected = jobs.get(job)
            if collected is None:
                jobs[job] = [time, place, row]
            else:
                if time < collected[0]:
                    collected[0] = time
                collected.append(row)
            if place - spilled >= rows_in_memory:
                spilled = place
                parts = parts or [stack.enter_context(TemporaryFile()) for _ in range(_PARTS)]
                _spill(jobs, parts)
        if not parts:
            order = sorted([(collected[0], collected[1], job) for job, collected in jobs.items()])
            yield from (Gathered(time, first, job, jobs.pop(job)[2:]) for time, first, job in order)
            return
        _spill(jobs, parts)
        for part in parts:
            _sort(part)
        for time, first, job, text in merge(*map(_read, parts)):
            yield Gathered(time, first, job, text.split("\n"))


def pack(place: int, fields: Sequence[str]) -> str:
    """Pack a row's number and fields into one text without line ends, for ``gather``."""
    text = _SEPARATOR.join((str(place), *fields))
    if "\n" in text or text.count(_SEPARATOR) > len(fields):
        clean = [field.replace(_SEPARATOR, _REPLACED).replace("\n", _REPLACED) for field in fields]
        text = _SEPARATOR.join((str(place), *clean))
    return text


def unpack(text: str) -> tuple[int, list[str]]:
    """The inverse of ``pack``; line ends and separators in a field become replacement characters."""
    place, *fields = text.split(_SEPARATOR)
    return int(place), fields


def _spill(jobs: _Jobs, parts: list[IO[bytes]]) -> None:
    """Move the jobs in memory to the files of their parts."""
    pieces: list[list[_Piece]] = [[] for _ in parts]
    for job, (time, first, *rows) in jobs.items():
        pieces[hash(job) % len(parts)].append((time, first, job, "\n".join(rows)))
    jobs.clear()
    for block, part in zip(pieces, parts, strict=True):
        _write(part, block)


def _sort(part: IO[bytes]) -> None:
    """Merge the pieces of each job in a file, and sort the jobs."""
    jobs: dict[str, _Piece] = {}
    for piece in _read(part):
        job = piece[2]
        if job in jobs:
            time, first, _, text = jobs[job]
            piece = min(time, piece[0]), first, job, f"{text}\n{piece[3]}"
        jobs[job] = piece
    order = sorted(jobs.values())
    part.seek(0)
    part.truncate()
    for start in range(0, len(order), _BLOCK):
        _write(part, order[start : start + _BLOCK])


def _read(part: IO[bytes]) -> Iterator[_Piece]:
    part.seek(0)
    while size := part.read(_SIZE_BYTES):
        yield from marshal.loads(part.read(int.from_bytes(size)))  # marshal.load(part) would read byte by byte


def _write(part: IO[bytes], block: list[_Piece]) -> None:
    data = marshal.dumps(block)
    part.write(len(data).to_bytes(_SIZE_BYTES))
    part.write(data)
