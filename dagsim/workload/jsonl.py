"""dagsim's own file format for workloads: JSON Lines, one job per line, gzipped if the name ends in
``.gz``.

The first line is the header, ``{"format": "dagsim-workload", "version": 1, "meta": {...}}``;
``meta`` is free for the user, except that ``begins_s`` is the time at which a simulation of the
jobs begins, if some run or wait then. Every other line is a job, in order of arrival:

    {"id": "job-7", "arrival_s": 12.5, "tasks": [{"name": "map", "work": 30.0, "instances": 4},
     {"name": "reduce", "work": 9.0}], "edges": [[0, 1, 2e6]]}

The keys of jobs and tasks are the fields of ``dagsim.model.Job`` and ``Task``; fields at their
default are left out. ``edges`` are [parent, child] or [parent, child, bytes], by index in
``tasks``. Numbers are read back exactly.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import TextIOWrapper
from itertools import count
from pathlib import Path
from typing import IO, Any

from dagsim.errors import ModelError, TraceError, WorkloadError
from dagsim.files import replaced
from dagsim.model import Job
from dagsim.workload.records import WrongRecord, clipped, clipped_repr, job_of, record_of

__all__ = ["FORMAT", "VERSION", "read_jobs", "read_meta", "write_jobs"]

FORMAT = "dagsim-workload"
VERSION = 1


def write_jobs(path: Path, jobs: Iterable[Job], meta: Mapping[str, Any] | None = None) -> int:
    """Write ``jobs`` to ``path``, which is created atomically, and return their number.

    Raises:
        WorkloadError: The file cannot be written, the jobs are not in order of arrival, or they hold
            a value that JSON cannot represent (an infinite deadline).
    """
    written, last_s = 0, 0.0
    try:
        with replaced(path) as partial, _writing(partial, compressed=path.suffix == ".gz") as file:
            file.write(_line({"format": FORMAT, "version": VERSION, "meta": dict(meta or {})}, "the header"))
            for job in jobs:
                if job.arrival_s < last_s:
                    raise WorkloadError(f"job {job.id!r} arrives at {job.arrival_s!r}, before the one written last")
                file.write(_line(record_of(job), f"job {job.id!r}"))
                written, last_s = written + 1, job.arrival_s
    except OSError as error:
        raise WorkloadError(f"{path}: cannot be written ({error})") from None
    return written


def read_jobs(path: Path) -> Iterator[Job]:
    """Yield the jobs in ``path``, read lazily.

    Raises:
        TraceError: The file cannot be read, has another format or version, or a line is invalid; the
            message names ``file:line`` and the field. Raised at the line where reading stops.
    """
    last_s = 0.0
    with _opened(path) as lines:
        _meta(path, next(lines, ""))
        for number, line in enumerate(lines, 2):
            if not line.strip():
                continue
            try:
                job = job_of(_object(line))
                if job.arrival_s < last_s:
                    raise WrongRecord(f"arrival_s: {job.arrival_s!r} lies before the last job's {last_s!r}")
            except (WrongRecord, ModelError) as error:
                raise TraceError(f"{path}:{number}: {clipped(error)}") from None
            last_s = job.arrival_s
            yield job


def read_meta(path: Path) -> dict[str, Any]:
    """The ``meta`` in the header of ``path``.

    Raises:
        TraceError: The file cannot be read, or has another format or version.
    """
    with _opened(path) as lines:
        return _meta(path, next(lines, ""))


def _meta(path: Path, line: str) -> dict[str, Any]:
    try:
        header = _object(line)
    except WrongRecord:
        header = {}
    meta = header.get("meta", {})
    if header.get("format") != FORMAT or not isinstance(meta, dict):
        raise TraceError(f'{path}:1: no workload of dagsim (the first line should be {{"format": "{FORMAT}", ...}})')
    if header.get("version") != VERSION:
        raise TraceError(
            f"{path}:1: version: {clipped_repr(header.get('version'))} cannot be read; this dagsim knows {VERSION}"
        )
    return meta


def _object(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise WrongRecord(f"not a line of JSON ({error})") from None
    if not isinstance(record, dict):
        raise WrongRecord(f"should be a JSON object, got {clipped_repr(record)}")
    return record


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _line(record: dict[str, Any], what: str) -> str:
    try:
        return json.dumps(record, allow_nan=False, separators=(",", ":")) + "\n"
    except (TypeError, ValueError) as error:
        raise WorkloadError(f"{what} cannot be written as JSON: {error}") from None


@contextmanager
def _opened(path: Path) -> Iterator[Iterator[str]]:
    """Yield the lines of ``path``; damaged bytes raise ``TraceError`` at the line where they occur."""
    started = count(1)
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
            yield (line for line in file if next(started))
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise TraceError(f"{path}:{next(started)}: cannot be read ({error})") from None


@contextmanager
def _writing(path: Path, *, compressed: bool) -> Iterator[IO[str]]:
    """Open a text file; compression stores no name or time, so that equal jobs give equal bytes."""
    with path.open("wb") as raw:
        if compressed:
            with (
                gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
                TextIOWrapper(packed, encoding="utf-8", newline="\n") as file,
            ):
                yield file
        else:
            with TextIOWrapper(raw, encoding="utf-8", newline="\n") as file:
                yield file
