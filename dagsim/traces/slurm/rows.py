"""Rows of ``sacct`` in one order of columns, from text and JSON alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dagsim.errors import TraceError
from dagsim.traces.documents import elements, list_in, object_in, text_in
from dagsim.traces.report import ReadReport
from dagsim.traces.source import LINE_BITS, Row, Source
from dagsim.workload.records import clipped, clipped_repr

__all__ = ["COLUMNS", "COMMAND", "delimiter_of", "is_json", "places_of", "sacct_rows"]

COLUMNS = (
    "JobIDRaw",
    "JobID",
    "User",
    "Account",
    "Partition",
    "State",
    "Submit",
    "Eligible",
    "Start",
    "End",
    "ElapsedRaw",
    "Elapsed",
    "Suspended",
    "TimelimitRaw",
    "Timelimit",
    "NNodes",
    "NCPUS",
    "ReqTRES",
    "AllocTRES",
    "Restarts",
    "NodeList",
    "QOS",
)
"""What is used of a row."""

COMMAND = (
    "SLURM_TIME_FORMAT=%s SLURM_BITSTR_LEN=0 sacct --allusers --duplicates --allocations --noconvert -P "
    "-S 2026-01-01 -E 2026-02-01 -o JobIDRaw,JobID,User,Account,Partition,QOS,State,Submit,Eligible,Start,End,"
    "ElapsedRaw,Suspended,TimelimitRaw,NNodes,NCPUS,ReqTRES,AllocTRES,Priority,Reason,Flags,NodeList"
)
"""How to get a file that has everything; it runs on 22.05 and on 24.11."""

_ALIASES = {"allocnodes": "nnodes", "alloccpus": "ncpus"}
_NEEDED = (
    ("JobID", "JobIDRaw"),
    ("State",),
    ("Submit",),
    ("Start",),
    ("End", "ElapsedRaw", "Elapsed"),
    ("AllocTRES", "NCPUS"),
)
_FREE_TEXT = ("jobname", "comment", "admincomment", "systemcomment", "workdir", "submitline")
_DELIMITERS = "|,;\t^~"
_NO_VALUE = 4294967294  # Slurm's NO_VAL and INFINITE stand at the end of 32 bits
_MOST_BITS = 4_000_001


def is_json(source: Source) -> bool:
    """True if this is output of ``sacct --json``."""
    head = "\n".join(source.head(1 << 16))
    return head.lstrip().startswith("{") and '"jobs"' in head and '"submission"' in head


def delimiter_of(source: Source) -> str | None:
    """The character between the columns of ``sacct``'s text; nothing if the first line is no header of its."""
    first = source.head(1)[0]
    for delimiter in _DELIMITERS:
        names = _names(first, delimiter)
        if names & {"jobid", "jobidraw"} and "state" in names and names & {"elapsed", "elapsedraw", "end"}:
            return delimiter
    return None


def sacct_rows(source: Source, report: ReadReport, delimiter: str | None) -> Iterator[Row]:
    """The rows with their fields in the order of ``COLUMNS``, empty where the file has none; counts the rows.

    Raises:
        TraceError: Columns are missing, or a job's name tears a row apart.
    """
    if is_json(source):
        for number, job in elements(source, "jobs"):
            report.rows += 1
            yield number, _json_row(job)
        return
    yield from _text_rows(source, report, delimiter or delimiter_of(source) or "|")


def _text_rows(source: Source, report: ReadReport, delimiter: str) -> Iterator[Row]:
    shard, width, free, places = -1, 0, "", [-1]
    for number, line in source.lines():
        if not line.strip():
            continue
        fields = line.rstrip("\r").split(delimiter)
        if number >> LINE_BITS != shard:
            shard, width = number >> LINE_BITS, len(fields)
            names = [_ALIASES.get(name.strip().lower(), name.strip().lower()) for name in fields]
            _check_header(names, source.where(number))
            places = [names.index(name.lower()) if name.lower() in names else -1 for name in COLUMNS]
            free = next((name for name in names if name in _FREE_TEXT), "")
            continue
        report.rows += 1
        if len(fields) == width:
            yield number, ["" if place < 0 else fields[place].strip() for place in places]
        elif len(fields) > width and free:
            raise TraceError(
                f"{source.where(number)}: {len(fields)} fields under {width} columns: a {delimiter!r} within "
                f"{free!r}, which sacct does not quote; leave JobName and other free text out: {COMMAND}"
            )
        else:
            report.drop("with a wrong number of fields", source.where(number), detail=f"{len(fields)}")


def _names(line: str, delimiter: str) -> set[str]:
    return {name.strip().lower() for name in line.split(delimiter)}


def places_of(names: Sequence[str]) -> list[int] | None:
    """Where ``COLUMNS`` stand in a header, -1 for those that it lacks; nothing if it lacks a needed one."""
    known = [_ALIASES.get(name.strip().lower(), name.strip().lower()) for name in names]
    if not all(any(name.lower() in known for name in each) for each in _NEEDED):
        return None
    return [known.index(name.lower()) if name.lower() in known else -1 for name in COLUMNS]


def _check_header(names: Sequence[str], where: str) -> None:
    missing = [" or ".join(each) for each in _NEEDED if not any(name.lower() in names for name in each)]
    if missing:
        raise TraceError(
            f"{where}: the header lacks {', '.join(missing)}; it has {clipped(', '.join(names))}; this makes them all: "
            f"{COMMAND}"
        )


def _json_row(job: Mapping[str, Any]) -> list[str]:
    """A job of JSON as the text of the same job. Layouts differ between versions: all are read by shape."""
    time, state, tres = (object_in(job.get(name)) for name in ("time", "state", "tres"))
    row = {
        "JobIDRaw": _text(_number(job.get("job_id"))),
        "JobID": _job_id(job),
        "User": text_in(job.get("user")) or text_in(job, "association", "user"),
        "Account": text_in(job.get("account")),
        "Partition": text_in(job.get("partition")),
        "State": _state(state.get("current")),
        "TimelimitRaw": _text(_number(time.get("limit"))),
        "NNodes": _text(_number(job.get("allocation_nodes"))),
        "NCPUS": _text(_number(object_in(job.get("required")).get("CPUs"))),
        "ReqTRES": _tres(tres.get("requested")),
        "AllocTRES": _tres(tres.get("allocated")),
        "Restarts": _text(_number(job.get("restart_cnt"))),
        "NodeList": text_in(job.get("nodes")),
        "QOS": text_in(job.get("qos")),
    }
    for column, name in (("Submit", "submission"), ("Eligible", "eligible"), ("Start", "start"), ("End", "end")):
        row[column] = _text(_number(time.get(name)) or None)
    row["ElapsedRaw"] = _text(_number(time.get("elapsed")))
    row["Suspended"] = _text(_number(time.get("suspended")))
    return [row.get(name, "") for name in COLUMNS]


def _number(value: Any) -> int | float | str | None:
    """A number, plain or as ``{"set", "infinite", "number"}``; ``UNLIMITED``; or nothing."""
    if isinstance(value, dict):
        if value.get("infinite"):
            return "UNLIMITED"
        value = value.get("number") if value.get("set") else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return clipped_repr(value) if isinstance(value, str) else None
    return None if value in (_NO_VALUE, _NO_VALUE + 1) else value


def _text(value: int | float | str | None) -> str:
    if isinstance(value, int) and abs(value) >= 1 << 63:
        return "inf"  # thousands of digits are no number that anything could be
    return "" if value is None else str(value)


def _state(current: Any) -> str:
    """One word: that of an attempt that ran and waits again is how the attempt ended."""
    words = [word for word in current if isinstance(word, str)] if isinstance(current, list) else [text_in(current)]
    return next((word for word in words if word != "PENDING"), words[0] if words else "")


def _job_id(job: Mapping[str, Any]) -> str:
    array, het = object_in(job.get("array")), object_in(job.get("het"))
    task, offset = _number(array.get("task_id")), _number(het.get("job_offset"))
    parent, leader = _number(array.get("job_id")), _number(het.get("job_id"))
    if parent and task is not None:
        return f"{_text(parent)}_{_text(task)}"
    if parent and (bits := text_in(array.get("task"))):
        return f"{_text(parent)}_[{_listed(bits)}]"
    if leader and offset is not None:
        return f"{_text(leader)}+{_text(offset)}"
    return _text(_number(job.get("job_id")))


def _listed(tasks: str) -> str:
    """``3-60`` of the tasks that a hexadecimal string of bits says, bit i for task i; other texts as they are."""
    if not tasks.startswith("0x") or 4 * len(tasks) > _MOST_BITS:
        return tasks
    try:
        bits = f"{int(tasks, 16):b}"[::-1]
    except ValueError:
        return tasks
    runs, at = [], bits.find("1")
    while at >= 0:
        end = bits.find("0", at)
        last = (len(bits) if end < 0 else end) - 1
        runs.append(str(at) if last == at else f"{at}-{last}")
        at = bits.find("1", last + 1)
    return ",".join(runs)


def _tres(listed: Any) -> str:
    """``cpu=8,gres/gpu:a100=4,mem=32000M`` of a list of ``{"type", "name", "count"}``."""
    parts = []
    for each in list_in(listed):
        kind, name, count = (object_in(each).get(key) for key in ("type", "name", "count"))
        if (said := _number(count)) is None or not isinstance(kind, str):
            continue
        label = f"{kind}/{name}" if isinstance(name, str) and name else kind
        parts.append(f"{label}={_text(said)}{'M' if kind == 'mem' else ''}")
    return ",".join(parts)
