"""The records of attempts in PBS's accounting (``server_priv/accounting/YYYYMMDD``) and in
``qstat -x -f``.

A line of accounting is ``MM/DD/YYYY HH:MM:SS;TYPE;ID;key=value key=value ...``. Only records of
attempts that have ended (``E``) or were rerun (``R``) are read. ``ctime qtime etime start end`` are
in seconds since 1970. In ``qstat``, they are local dates, some of them under other names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from sys import intern
from typing import Any

from dagsim.errors import TraceError
from dagsim.families.pbs.pbs_requests import PbsRequest, with_gpus
from dagsim.families.pbs.qstat_listing import ENDED_STATES, RUNNING_STATES, is_qstat, is_queue, qstat_jobs
from dagsim.traces.fields import Dirty, finite_number
from dagsim.traces.report import ImpossibleTimes, ReadReport
from dagsim.traces.source import NumberedRow, Source
from dagsim.traces.trace_options import TraceOptions

_OTHER_NAMES = {
    "start": "start", "end": "end", "etime": "etime", "walltime": "resources_used.walltime",
    "gpus": "gpus", "memory": "Resource_List.mem", "hosts": "exec_host", "limit": "Resource_List.walltime",
    "user": "user", "account": "account", "queue": "queue",
}  # fmt: skip
"""PBS's names of the columns that are not in ``Resource_List`` under their own names."""
_NAMES = ("start", "end", "etime", "walltime", *PbsRequest._fields, "limit", "user", "account", "queue")
_FIELDS = [_OTHER_NAMES.get(name, f"Resource_List.{name}") for name in _NAMES]
COLUMNS = ("id", "arrival", "kind", *_FIELDS)
ID, ARRIVAL, KIND, START, END, ETIME, WALLTIME, *REQUEST, LIMIT, USER, ACCOUNT, QUEUE = range(len(COLUMNS))
HOSTS = REQUEST[PbsRequest._fields.index("hosts")]
_LINE = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Za-z]+;[^;]*;")
_PAIR = re.compile(r"""(?<!\S)([^\s=]+)=("[^"]*"|'[^']*'|\S*)""")
# Maximum length of a line in bytes; 100 KB is normal, because the line of a large job lists every
# core.
_LONGEST = 1 << 20


def has_records(source: Source) -> bool:
    """Return True if a source has records of attempts."""
    return bool(_LINE.match(source.head(1)[0])) or (is_qstat(source) and not is_queue(source))


def finished_records(source: Source, options: TraceOptions, report: ReadReport) -> Iterator[NumberedRow]:
    """Yield the fields ``COLUMNS`` of each finished attempt of a job with an id and an arrival.
    Skip other records."""
    arrival = options.arrival or "ctime"
    if is_qstat(source):
        yield from _finished(source, options, report)
        return
    for place, line in source.lines():
        if not line.strip():
            continue
        report.rows += 1
        if len(line) > _LONGEST:
            raise TraceError(
                f"{source.where(place)}: the line has {len(line):,} characters, but at most {_LONGEST:,} are allowed"
            )
        if not _LINE.match(line):
            report.drop("that are not records", source.where(place))
            continue
        _, kind, id, message = line.rstrip("\r").split(";", 3)
        if kind not in ("E", "R"):
            report.skip("of jobs deleted while they waited" if kind == "D" else "of other records")
            continue
        if "[]" in id:
            report.skip("of arrays as a whole")
            continue
        with report.dropping(partial(source.where, place)):
            fields = with_gpus({"Resource_List.mem": "0"} | dict(_PAIR.findall(message)))
            arrival_s = finite_number(fields.get(arrival, ""), arrival)
            if not id or arrival_s < 0:
                raise Dirty("without an id" if not id else ImpossibleTimes("with a negative ctime"))
            yield place, record_row(id, arrival_s, kind, fields)


def record_row(id: str, arrival_s: float, kind: str, fields: Mapping[str, str]) -> tuple[Any, ...]:
    """Arrange the fields of a record as a row of ``COLUMNS``."""
    values = [intern(fields.get(name, "").strip("\"'")) for name in _FIELDS]
    return (id.partition(".")[0], arrival_s, kind, *values)


def _finished(source: Source, options: TraceOptions, report: ReadReport) -> Iterator[NumberedRow]:
    """Yield the rows of the finished jobs in ``qstat -x -f``."""
    arrival = options.arrival or "ctime"
    for place, id, fields in qstat_jobs(source, options, report):
        state = fields.get("job_state", "")
        if state not in ENDED_STATES:
            report.skip("of running jobs" if state in RUNNING_STATES else "of waiting jobs")
            continue
        if "[]" in id:
            report.skip("of arrays as a whole")
            continue
        with report.dropping(partial(source.where, place)):
            yield place, record_row(id, finite_number(fields.get(arrival, ""), arrival), "E", fields)
