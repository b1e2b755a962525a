"""dagsim's own file format for workloads: JSON Lines with one job per line, gzipped if the name
ends in ``.gz``.

The first line is the header, ``{"format": "dagsim-workload", "version": 1, "meta": {...}}``.
``meta`` may contain anything. Its key ``begins_s`` is reserved: it is the time at which the
simulation begins if its first jobs are already running or waiting. Each of the following lines is a
job, in order of arrival:

    {"id": "job-7", "arrival_s": 12.5, "tasks": [{"name": "map", "work": 30.0, "instances": 4},
     {"name": "reduce", "work": 9.0}], "edges": [[0, 1, 2e6]]}

The keys of jobs and tasks are the fields of ``dagsim.model.Job`` and ``Task``. A field with its
default value is left out. ``edges`` are [parent, child] or [parent, child, bytes], by index in
``tasks``. Numbers are read back without any loss.
"""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from io import TextIOWrapper
from itertools import count
from pathlib import Path
from typing import IO, Any, NamedTuple

from dagsim.errors import ModelError, TraceError, WorkloadError
from dagsim.files import open_lines, replaced, unique_names, whole_characters
from dagsim.model import Attempt, Edge, InFlight, Job, Request, Share, Task, TaskGraph, canonical_json
from dagsim.model.job_fields import JOB_FIELDS

MOST_INSTANCES = 2**31 - 1
"""Maximum number of instances. A field with a larger number is treated as damaged."""
_LONG = 400


class WrongRecord(Exception):
    """Raised if a record is not a valid job. The message starts with the field."""


def record_of(job: Job) -> dict[str, Any]:
    """Convert ``job`` to a record of plain values.

    Raises:
        ModelError: A task is elastic, and its training model cannot be written as plain values.
    """
    for task in job.graph.tasks:
        if task.elastic is not None:
            raise ModelError(f"job {job.id!r}: task {task.name!r} is elastic and cannot be written to a workload file")
    record = _given(job, _JOB_DEFAULTS)
    if job.request is not None:
        own = asdict(job.request)
        record["request"] = {
            field.name: own[field.name] for field in fields(Request) if own[field.name] != field.default
        }
    if job.in_flight:
        record["in_flight"] = [run if run != InFlight(*run[:3]) else run[:3] for run in job.in_flight]
    record["tasks"] = [_given(task, _TASK_DEFAULTS) for task in job.graph.tasks]
    for task, into in zip(job.graph.tasks, record["tasks"], strict=True):
        if task.speeds is not None:
            into["speeds"] = dict(task.speeds)
        if task.manifest:
            into["manifest"] = json.loads(task.manifest)
    if job.graph.edges:
        record["edges"] = [edge if edge.bytes else edge[:2] for edge in job.graph.edges]
    return record


def job_of(record: dict[str, Any]) -> Job:
    """Convert ``record`` to a job. The record is modified.

    Raises:
        WrongRecord: A field is missing, unknown, or of the wrong type.
        ModelError: The job is invalid.
    """
    tasks, edges = record.pop("tasks", None), record.pop("edges", [])
    for name, value in (("tasks", tasks), ("edges", edges)):
        if not isinstance(value, list):
            raise WrongRecord(f"{name}: must be a list, got {clipped_repr(value)}")
    _check(record, _JOB_FIELDS, ("id",), "")
    if "observed_nodes" in record:
        record["observed_nodes"] = tuple(record["observed_nodes"])
    if "observed_attempts" in record:
        record["observed_attempts"] = tuple(
            [
                Attempt(eligible_s, start_s, end_s, tuple(nodes))
                for eligible_s, start_s, end_s, nodes in record["observed_attempts"]
            ]
        )
    if "request" in record:
        record["request"] = _request(record["request"])
    if "in_flight" in record:
        record["in_flight"] = tuple(
            [
                InFlight(since_s, tuple([Share(*share) for share in placement]), *_past(*rest))
                for since_s, placement, *rest in record["in_flight"]
            ]
        )
    graph = TaskGraph(
        tuple([_task(task, place) for place, task in enumerate(tasks)]),
        tuple([_edge(edge, place) for place, edge in enumerate(edges)]),
    )
    return Job(graph=graph, **record)


def clipped_repr(value: object) -> str:
    """Return a shortened ``repr`` of ``value`` for a message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def clipped(text: object) -> str:
    """Shorten ``text`` for a message, because a damaged field may be as long as its file."""
    text = str(text)
    return text if len(text) <= _LONG else f"{text[:_LONG]} ..."


def _task(record: Any, place: int) -> Task:
    if not isinstance(record, dict):
        raise WrongRecord(f"tasks[{place}]: must be a task, got {clipped_repr(record)}")
    _check(record, _TASK_FIELDS, ("name", "work"), f"tasks[{place}].")
    if record.get("gpu_types") is not None:
        record["gpu_types"] = tuple(record["gpu_types"])
    if "manifest" in record:
        record["manifest"] = canonical_json(record["manifest"])
    return Task(**record)


def _request(record: dict[str, Any]) -> Request:
    _check(record, _REQUEST_FIELDS, (), "request.")
    for name in ("partitions", "after", "nodes", "excluded"):
        if name in record:
            record[name] = tuple(record[name])
    if "licences" in record:
        record["licences"] = tuple([(name, count) for name, count in record["licences"]])
    return Request(**record)


def _edge(record: Any, place: int) -> Edge:
    match record:
        case [parent, child] if _is_whole(parent) and _is_whole(child):
            return Edge(parent, child)
        case [parent, child, size] if _is_whole(parent) and _is_whole(child) and _is_number(size):
            return Edge(parent, child, size)
    raise WrongRecord(f"edges[{place}]: must be [parent, child] or [parent, child, bytes], got {clipped_repr(record)}")


class _Field(NamedTuple):
    holds: Callable[[Any], bool]
    what: str
    nullable: bool = False


def _check(record: Mapping[str, Any], specs: Mapping[str, _Field], needed: Iterable[str], where: str) -> None:
    for name, value in record.items():
        if name not in specs:
            raise WrongRecord(f"{where}{name}: there is no such field; known: {', '.join(specs)}")
        holds, what, nullable = specs[name]
        if not (holds(value) or (nullable and value is None)):
            what += " or null" if nullable else ""
            raise WrongRecord(f"{where}{name}: must be {what}, got {clipped_repr(value)}")
    for name in needed:
        if name not in record:
            raise WrongRecord(f"{where}{name}: is missing")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and _is_text(pair[0]) and _is_whole(pair[1]) for pair in value
    )


def _are_attempts(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(run, list) and len(run) == 4 and all(map(_is_number, run[:3])) and _are_texts(run[3])
        for run in value
    )


def _are_flights(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_flight, value))


def _is_flight(value: Any) -> bool:
    match value:
        case [since_s, list(placement), task] if _is_number(since_s) and _is_whole(task):
            return all(map(_is_share, placement))
        case [since_s, list(), task, until_s, stopped, [first, last], resumes]:
            ends = until_s is None or _is_number(until_s)
            known = ends and stopped in ("", "preempted", "failed") and all(map(_is_whole, (first, last, resumes)))
            return known and _is_flight([since_s, value[1], task])
    return False


def _past(task: int, until_s: float | None = None, stopped: Any = "", rows: Any = (-1, -1), resumes: int = -1) -> Any:
    """Return those fields of ``InFlight`` that follow the placement in a record, after filling in
    defaults.
    """
    return task, until_s, stopped, tuple(rows), resumes


def _is_share(value: Any) -> bool:
    match value:
        case [node, instances, gpu]:
            return _is_whole(node) and _is_whole(instances) and (gpu is None or _is_whole(gpu))
    return False


_TEXT = _Field(_is_text, "a text")
_NUMBER = _Field(_is_number, "a finite number")
_WHOLE = _Field(_is_whole, "a whole number")
_COUNT = _Field(lambda value: _is_whole(value) and value <= MOST_INSTANCES, f"a whole number up to {MOST_INSTANCES:,}")
_TRUTH = _Field(lambda value: isinstance(value, bool), "true or false")

_STRUCTURES = {
    "observed_nodes": _Field(_are_texts, "a list of names"),
    "observed_attempts": _Field(_are_attempts, "a list of [eligible_s, start_s, end_s, names of nodes]"),
    "in_flight": _Field(
        _are_flights,
        "a list of [since_s, [[node, instances, gpu], ...], task]; of past runs [..., until_s, stopped, rows, resumes]",
    ),
    "request": _Field(lambda value: isinstance(value, dict), "an object"),
}
_KINDS = {"str": _TEXT, "float": _NUMBER, "float | None": _Field(_is_number, "a finite number", nullable=True)}
_JOB_FIELDS = {"id": _TEXT, "arrival_s": _NUMBER} | {
    field.name: _KINDS.get(field.kind) or _STRUCTURES[field.name] for field in JOB_FIELDS
}
_REQUEST_FIELDS = {
    "constraint": _TEXT,
    "partitions": _Field(_are_texts, "a list of names"),
    "reservation": _TEXT,
    "licences": _Field(_are_counts, "a list of [name, number]"),
    "exclusive": _TRUTH,
    "spread": _TRUTH,
    "array": _TEXT,
    "array_limit": _WHOLE,
    "after": _Field(_are_texts, "a list of ids of jobs"),
    "after_one": _TRUTH,
    "begin_s": _Field(_is_number, "a finite number", nullable=True),
    "level": _TEXT,
    "level_required": _TRUTH,
    "segment": _WHOLE,
    "nodes": _Field(_are_texts, "a list of names"),
    "excluded": _Field(_are_texts, "a list of names"),
    "exclusive_user": _TRUTH,
    "together": _TEXT,
}
_TASK_FIELDS = {
    "name": _TEXT,
    "work": _NUMBER,
    "instances": _COUNT,
    "gang": _TRUTH,
    "gpus": _NUMBER,
    "cpus": _NUMBER,
    "memory_gb": _NUMBER,
    "gpu_types": _Field(_are_texts, "a list of names", nullable=True),
    "speeds": _Field(_are_numbers, "finite numbers by GPU type", nullable=True),
    "model": _Field(_is_text, "a text", nullable=True),
    "batch": _Field(_is_whole, "a whole number", nullable=True),
    "estimate": _Field(_is_number, "a finite number", nullable=True),
    "manifest": _Field(lambda value: isinstance(value, dict), "an object"),
}


_JOB_DEFAULTS = [
    (field.name, field.default) for field in fields(Job) if field.name in _JOB_FIELDS and field.name != "request"
]
"""Fields that are written, with their defaults; fields without a default have a marker that equals no value."""
_TASK_DEFAULTS = [
    (field.name, field.default)
    for field in fields(Task)
    if field.name in _TASK_FIELDS and field.name not in ("speeds", "manifest")
]


def _given(value: Job | Task, defaults: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields of ``value`` that differ from their defaults."""
    return {name: own for name, default in defaults if (own := getattr(value, name)) != default}


FORMAT = "dagsim-workload"
VERSION = 1


def write_jobs(path: Path, jobs: Iterable[Job], meta: Mapping[str, Any] | None = None) -> int:
    """Write ``jobs`` to ``path`` and return their number. The file is created atomically.

    Raises:
        WorkloadError: The file cannot be written, the jobs are not in order of arrival, or they
            contain a value that JSON cannot represent (an infinite deadline).
    """
    written, last_s = 0, 0.0
    try:
        with replaced(path) as partial, _writing(partial, compressed=path.suffix == ".gz") as file:
            file.write(_line({"format": FORMAT, "version": VERSION, "meta": dict(meta or {})}, "the header"))
            for job in jobs:
                if job.arrival_s < last_s:
                    raise WorkloadError(
                        f"jobs must be sorted by arrival: job {job.id!r} arrives at {job.arrival_s!r} s, before "
                        "the job that was written last"
                    )
                file.write(_line(record_of(job), f"job {job.id!r}"))
                written, last_s = written + 1, job.arrival_s
    except OSError as error:
        raise WorkloadError(f"{path}: cannot be written ({error})") from None
    return written


def read_jobs(path: Path) -> Iterator[Job]:
    """Yield the jobs in ``path``, which is read lazily.

    Raises:
        TraceError: The file cannot be read, is not in this format and version, or contains an
            invalid line. The message names ``file:line`` and the field. The error for an invalid
            line is raised only when reading reaches that line.
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
                    raise WrongRecord(
                        f"arrival_s: {job.arrival_s!r} is before the arrival of the previous job, {last_s!r}"
                    )
            except (WrongRecord, ModelError) as error:
                raise TraceError(f"{path}:{number}: {clipped(error)}") from None
            last_s = job.arrival_s
            yield job


def read_meta(path: Path) -> dict[str, Any]:
    """Return the ``meta`` in the header of ``path``.

    Raises:
        TraceError: The file cannot be read, or is not in this format and version.
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
        raise TraceError(f'{path}:1: not a dagsim workload (the first line should be {{"format": "{FORMAT}", ...}})')
    if header.get("version") != VERSION:
        raise TraceError(
            f"{path}:1: version: {clipped_repr(header.get('version'))} cannot be read; this version of "
            f"dagsim reads {VERSION}"
        )
    return meta


def _object(line: str) -> dict[str, Any]:
    try:
        record = whole_characters(json.loads(line, parse_constant=_no_constant, object_pairs_hook=unique_names), line)
    except (ValueError, RecursionError) as error:
        raise WrongRecord(f"the line is not valid JSON ({error})") from None
    if not isinstance(record, dict):
        raise WrongRecord(f"must be a JSON object, got {clipped_repr(record)}")
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
    """Open ``path`` and provide its lines. Damaged bytes raise ``TraceError`` at the line where they
    occur.
    """
    started = count(1)
    try:
        with open_lines(path, TraceError) as file:
            yield (line for line in file if next(started))
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise TraceError(f"{path}:{next(started)}: cannot be read ({error})") from None


@contextmanager
def _writing(path: Path, *, compressed: bool) -> Iterator[IO[str]]:
    """Open a text file for writing. A compressed file stores no name or time, so that equal jobs
    give equal bytes.
    """
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
