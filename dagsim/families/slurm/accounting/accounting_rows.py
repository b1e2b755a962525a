"""Slurm's accounting: the names of its fields, and readers for the rows that ``sacct`` prints as
text or as JSON.

This module reads the output of ``sacct`` 22.05 and 24.11, and the formats that sacct(1) documents
for other versions.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from dagsim.errors import TraceError
from dagsim.families.slurm.accounting.accounting_values import json_number, listed_tasks, unescaped_text
from dagsim.families.slurm.accounting.submission import ListedOptions
from dagsim.traces.batch import ENDED, NOT_OVER
from dagsim.traces.chunks import read_tables
from dagsim.traces.documents import elements, list_in, object_in, text_in
from dagsim.traces.report import Disagreement, ReadReport
from dagsim.traces.source import NumberedRow, Source
from dagsim.traces.text_forms import FileLayout, Form
from dagsim.traces.typed_table import Table, tables_of
from dagsim.workload.records import clipped


class AccountingRow(NamedTuple):
    """One attempt of a job, as Slurm states it. ``Sacct`` builds jobs from such rows, which are made
    from the text and the JSON of ``sacct``, and from listings of the queue.

    The fields have the names of sacct's columns, and contain texts in sacct's syntax. A text is
    empty if the value is not stated.
    """

    JobIDRaw: str = ""
    JobID: str = ""
    User: str = ""
    Account: str = ""
    Partition: str = ""
    State: str = ""
    Submit: str = ""
    Eligible: str = ""
    Start: str = ""
    End: str = ""
    ElapsedRaw: str = ""
    Elapsed: str = ""
    Suspended: str = ""
    TimelimitRaw: str = ""
    Timelimit: str = ""
    NNodes: str = ""
    NCPUS: str = ""
    ReqTRES: str = ""
    AllocTRES: str = ""
    Restarts: str = ""
    NodeList: str = ""
    QOS: str = ""
    Constraints: str = ""
    Reservation: str = ""
    SubmitLine: str | ListedOptions = ""
    ReqCPUS: str = ""
    ReqMem: str = ""
    ReqNodes: str = ""
    ReqGRES: str = ""
    AllocGRES: str = ""
    Cluster: str = ""


COLUMNS = AccountingRow._fields
"""The columns that are used."""
COMMAND = (
    "SLURM_TIME_FORMAT=%s SLURM_BITSTR_LEN=0 sacct --allusers --duplicates --allocations --noconvert -P "
    "-S 2026-01-01 -E 2026-02-01 -o JobIDRaw,JobID,User,Account,Partition,QOS,State,Submit,Eligible,Start,End,"
    "ElapsedRaw,Suspended,TimelimitRaw,NNodes,ReqNodes,NCPUS,ReqMem,ReqTRES,AllocTRES,Priority,Reason,Flags,NodeList,"
    "Constraints,Reservation,SubmitLine"
)
"""The command that prints all columns; it works with versions 22.05 and 24.11."""
_ALIASES = {"allocnodes": "nnodes", "alloccpus": "ncpus"}
_NEEDED = (
    ("JobID", "JobIDRaw"),
    ("State",),
    ("Submit",),
    ("Start",),
    ("End", "ElapsedRaw", "Elapsed"),
    ("AllocTRES", "NCPUS"),
)
_FREE_TEXT = ("jobname", "comment", "admincomment", "systemcomment", "constraints", "workdir", "wckey", "submitline")
"""Columns whose values may contain the separator, because sacct does not quote them."""
_MOST_MARKS = 60
_MOST_SPLITS = 20_000
_READ = frozenset(name.lower() for name in COLUMNS) | {"alloccpus", "allocnodes", "elapsed", "timelimit"}
_COUNT, _MOMENT = re.compile(r"\d*$"), re.compile(r"(?:\d[\d.:T-]*|Unknown|None|N/A|INVALID)?$")
_SPAN = re.compile(r"(?:\d[\d:.-]*|Unknown|None|UNLIMITED|Partition_Limit|INVALID)?$")
_FORMS = {
    **dict.fromkeys(("submit", "eligible", "start", "end"), _MOMENT),
    **dict.fromkeys(("elapsed", "suspended", "timelimit", "cputime", "usercpu", "systemcpu", "totalcpu"), _SPAN),
    **dict.fromkeys(("nnodes", "ncpus", "reqcpus", "reqnodes", "alloccpus", "allocnodes"), _COUNT),
    **dict.fromkeys(("elapsedraw", "timelimitraw", "cputimeraw", "uid", "gid", "dbindex", "associd"), _COUNT),
    "jobidraw": re.compile(r"\d[\w.+]*$"),
    "jobid": re.compile(r"\d[\w.+\[\],%-]*$"),
    "state": re.compile(r"[A-Z_]+\b[ \w+]*$"),
    "exitcode": re.compile(r"(?:\d+:\d+)?$"),
    "constraints": re.compile(r"\S*$"),
    "submitline": re.compile(r"(?:\S*/)?(?:sbatch|srun|salloc)\b|$"),
    "reqtres": (_TRES := re.compile(r"(?:\w[^|]*=[^|]*)?$")),
    "alloctres": _TRES,
}
"""Patterns for the values in these columns, by which split rows are recognised and joined."""
_DELIMITERS = "|,;\t^~"


def is_json(source: Source) -> bool:
    """Return True if the source is output of ``sacct --json``."""
    head = "\n".join(source.head(1 << 16))
    return head.lstrip().startswith("{") and '"jobs"' in head and '"submission"' in head


def delimiter_of(source: Source) -> str | None:
    """Return the separator between the columns in ``sacct``'s text output, or ``None`` if the first
    line is not its header."""
    first = source.head(1)[0].replace('"', "")
    for delimiter in _DELIMITERS:
        names = _names(first, delimiter)
        if names & {"jobid", "jobidraw"} and "state" in names and names & {"elapsed", "elapsedraw", "end"}:
            return delimiter
    return None


def sacct_rows(source: Source, report: ReadReport, delimiter: str | None) -> Iterator[NumberedRow]:
    """Yield each row as a list of fields in the order of ``COLUMNS``. Fields of columns that the
    file lacks are empty.

    Raises:
        TraceError: See ``sacct_tables``.
    """
    for table in sacct_tables(source, report, delimiter):
        for row, line in enumerate(table.line.tolist()):
            yield line, table.fields(row)


def sacct_tables(
    source: Source, report: ReadReport, delimiter: str | None, columns: Sequence[str] = ()
) -> Iterator[Table]:
    """Yield the rows in chunks, each a table with the text columns ``COLUMNS``. Count the rows in
    ``report``. ``columns`` names the columns of files without a header (``sacct -n``), in order.

    Raises:
        TraceError: Columns are missing.
    """
    parts = None if columns else folder_parts(source)
    if parts is not None:
        return _joined_tables(parts, report, delimiter)
    if is_json(source):
        return tables_of(source, len(COLUMNS), _json_rows(source, report))
    return read_tables(source, _form(source, report, delimiter, columns), report)


def _form(
    source: Source, report: ReadReport, delimiter: str | None, columns: Sequence[str] = (), whole: bool = True
) -> Form:
    """Determine how to split the text into fields. The text may be printed by sacct, or may be a
    quoted table that another program made from sacct's output. With ``whole``, the files must have
    all required columns.
    """
    mark = delimiter or delimiter_of(source) or _delimiter_of_row(source) or "|"
    names: list[str] = []
    quoted = _is_quoted(source, mark)

    def layout(first: list[str], where: str) -> FileLayout:
        there = [name.strip().lower() for name in first]
        names[:] = [_ALIASES.get(name, name) for name in (map(str.lower, columns) if columns else there)]
        header = not columns or there[: len(names)] == names
        lines = list(_split_head(source, mark, quoted)) if columns else []
        if not any(len(line) == len(names) for line in lines) and any(
            len(line) == len(names) + 1 and not line[-1] for line in lines
        ):
            names.append("")  # sacct -p also prints a separator at the end of each row
        if whole:
            _check_header(names, where)
        if columns and not any(len(line) == len(names) for line in lines):
            raise TraceError(
                f"{where}: the row has {len(first)} fields, but --read columns= names {len(columns)}: "
                f"{clipped(', '.join(columns))}"
            )
        for name in sorted({name for name in names if name in _READ and names.count(name) > 1}):
            report.note(Disagreement(f"column twice ({name}; the first counts)"), where)
        places = [names.index(name.lower()) if name.lower() in names else None for name in COLUMNS]
        if "alloctres" not in names:  # the log lacks the allocated resources, so use the requested ones
            places[COLUMNS.index("AllocTRES")] = places[COLUMNS.index("ReqTRES")]
        return FileLayout(places, len(names), header)

    def misfit(fields: list[str], width: int, where: str) -> list[str] | None:
        return _rejoined(fields, names, mark)

    def continues(row: list[str], line: list[str]) -> bool:
        return _continues(row, line, names)

    return Form(
        (),
        range(len(COLUMNS)),
        layout,
        mark,
        quoted=quoted,
        strips=True,
        continues=None if quoted else continues,
        misfit=misfit,
    )


def _split_head(source: Source, mark: str, quoted: bool) -> Iterator[list[str]]:
    lines = source.head(1 << 10)
    return iter(csv.reader(lines, delimiter=mark)) if quoted else iter([line.split(mark) for line in lines])


def _is_quoted(source: Source, mark: str) -> bool:
    """Return True if the first rows have as many fields as the header only when quotes are
    interpreted as in CSV.
    """
    lines = source.head(1 << 16)
    if not any('"' in line for line in lines):
        return False
    rows = []
    try:
        rows += [row for row in csv.reader(lines, delimiter=mark, strict=True) if row]
    except csv.Error:  # sacct does not escape quotes in command lines, so this text is not valid CSV
        return False
    width = len(rows[0])
    plain = all(len(line.split(mark)) == width for line in lines if line)
    return all(len(row) == width for row in rows) and (not plain or lines[0].startswith('"'))


def _begins(fields: Sequence[str], names: Sequence[str]) -> bool:
    """Return True if these fields are a row or the beginning of one. This is assumed if every field
    that should be a number, a time or a state is one."""
    known = False
    for name, field in zip(names, fields if len(fields) >= len(names) else fields[:-1], strict=False):
        if (form := _FORMS.get(name)) is not None:
            if field.strip() and not form.match(field.strip()):
                return False
            known |= bool(field.strip())
        elif name in _FREE_TEXT and len(fields) > len(names):
            break  # separators in this free text may have shifted all fields after it
    return known


def _continues(row: Sequence[str], line: Sequence[str], names: Sequence[str]) -> bool:
    """Return True if ``line`` continues ``row``: the row is incomplete, or its last text continues
    in this line.
    """
    last = next((name for name in reversed(names) if name), "")
    if len(row) < len(names) and names[0] in _FREE_TEXT and not _begins(row, names):
        return True  # ``row`` ends within its first text, which continues on this line
    if not names or len(row) + len(line) - 1 > len(names) + _MOST_MARKS or _begins(line, names):
        return False
    if len(row) >= len(names) <= len(line):
        return False
    return len(row) < len(names) or last in _FREE_TEXT


def _rejoined(fields: list[str], names: Sequence[str], mark: str) -> list[str] | None:
    """Repair a row that separators within up to three free texts have split into too many fields.

    The fields are joined in every possible way. A way is accepted only if all numbers, times and
    states are then valid. Return None if the accepted ways differ in a column that dagsim reads.
    """
    extra = len(fields) - len(names)
    if not 1 <= extra <= _MOST_MARKS:
        return None
    texts = [place for place, name in enumerate(names) if name in _FREE_TEXT]
    splits = [
        dict(zip(places, more, strict=True))
        for count in range(1, 4)
        for places in combinations(texts, count)
        for more in _sums(extra, count)
    ]
    ways: dict[tuple[str, ...], list[str]] = {}
    line = names.index("submitline") if "submitline" in names else None
    for more in splits if len(splits) < _MOST_SPLITS else ():
        row, at = [], 0
        for place, name in enumerate(names):
            row.append(mark.join(fields[at : at + 1 + more.get(place, 0)]))
            at += 1 + more.get(place, 0)
            if (form := _FORMS.get(name)) is not None and not form.match(row[-1].strip()):
                break
        else:
            key = tuple(
                [field for field, name in zip(row, names, strict=True) if name in _READ and name != "submitline"]
            )
            if line is None or len(ways.get(key, row)[line]) <= len(
                row[line]
            ):  # keep the split with the longest command line, because this text may contain the separator
                ways[key] = row
    return next(iter(ways.values())) if len(ways) == 1 else None


def _sums(total: int, count: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to write ``total`` as a sum of ``count`` positive integers."""
    if count == 1:
        yield (total,)
    for first in range(1, total - count + 2) if count > 1 else ():
        for rest in _sums(total - first, count - 1):
            yield (first, *rest)


class FolderParts(NamedTuple):
    """The sacct files in a folder."""

    logs: Source
    """Files with all the columns that are needed."""
    further: tuple[Source, ...]
    """Files with further columns for the same jobs."""
    left_out: tuple[str, ...]
    """Files that list the jobs in ``logs`` again."""


def folder_parts(source: Source) -> FolderParts | None:
    """Find the sacct files in a folder. Return None if there are none. Also return None if all
    files have the same header, because they are then parts of one log.
    """
    if not source.path.is_dir():
        return None
    logs: list[tuple[Source, str, list[str]]] = []
    further = []
    headers = set()
    for file in source.files:
        try:
            header = file.head(1)[0]
        except TraceError:  # the file is empty or not text, so it is not an accounting file
            continue
        headers.add(header)
        mark = next((mark for mark in _DELIMITERS if _names(header, mark) & {"jobid", "jobidraw"}), "")
        names = _names(header, mark) if mark else set()
        if mark and all(any(name.lower() in names for name in choices) for choices in _NEEDED):
            logs.append((file, mark, [name.strip().lower() for name in header.split(mark)]))
        elif mark and names & {name.lower() for name in COLUMNS if name not in ("JobID", "JobIDRaw")}:
            further.append(file)
    if not logs or len(headers) == 1:
        return None
    logs.sort(key=lambda log: (not _in_epoch(log[0], *log[1:]), -len(log[2]), str(log[0])))
    chosen: list[Source] = []
    seen: set[str] = set()
    left_out = []
    for file, mark, columns in logs:
        at = columns.index("jobidraw" if "jobidraw" in columns else "jobid")
        ids = {fields[at] for _, line in file.lines() if len(fields := line.split(mark)) > at} - {""}
        if len(ids & seen) * 2 > len(ids):
            left_out.append(file.name)
            continue
        seen |= ids
        chosen.append(file)
    joined = Source(source.path)
    joined.files = tuple(chosen)
    return FolderParts(joined, tuple(further), tuple(left_out))


def _in_epoch(file: Source, mark: str, names: list[str]) -> bool:
    """Return True if the file gives times in seconds since 1970, which do not depend on a time zone."""
    at = names.index("submit")
    rows = [line.split(mark) for line in file.head(8)[1:]]
    return bool(rows) and all(len(row) > at and row[at].strip().isdecimal() for row in rows)


def _joined_tables(parts: FolderParts, report: ReadReport, delimiter: str | None) -> Iterator[Table]:
    """Yield the rows of the logs. Empty columns are filled in from rows with the same JobIDRaw (or
    JobID) in the other files."""
    further: dict[str, dict[str, str]] = {}
    for file in parts.further:
        scratch = ReadReport()
        for table in read_tables(file, _form(file, scratch, None, whole=False), scratch):
            for place in range(len(table)):
                row = dict(zip(map(str.lower, COLUMNS), table.fields(place), strict=True))
                entry = further.setdefault(row["jobidraw"] or row["jobid"], {})
                entry.update({name: value for name, value in row.items() if value})
        for reason, count in scratch.noted.items():
            report.note(reason, str(file), count)
        for reason, count in scratch.dropped.items():
            report.note(type(reason)(f"from a further file {reason} (not joined)"), str(file), count)
    if parts.left_out:
        report.note(f"files list the same jobs again and were not read: {', '.join(parts.left_out)}", str(parts.logs))
    raw, alias = COLUMNS.index("JobIDRaw"), COLUMNS.index("JobID")
    fillable = [(place, name.lower()) for place, name in enumerate(COLUMNS) if place not in (raw, alias)]

    def rows() -> Iterator[NumberedRow]:
        for table in read_tables(parts.logs, _form(parts.logs, report, delimiter), report):
            for place, line in enumerate(table.line.tolist()):
                fields = table.fields(place)
                if more := further.get(fields[raw] or fields[alias]):
                    for column, name in fillable:
                        fields[column] = fields[column] or more.get(name, "")
                yield line, fields

    yield from tables_of(parts.logs, len(COLUMNS), rows())


def _json_rows(source: Source, report: ReadReport) -> Iterator[NumberedRow]:
    for number, job in elements(source, "jobs"):
        report.rows += 1
        yield number, _json_row(job)


def _names(line: str, delimiter: str) -> set[str]:
    return {name.strip().strip('"').lower() for name in line.split(delimiter)}


def _delimiter_of_row(source: Source) -> str | None:
    """Return the separator between the fields of a sacct row without a header, or ``None`` if the
    first line is not such a row."""
    first = source.head(1)[0]
    for delimiter in _DELIMITERS:
        fields = [field.strip().strip('"') for field in first.split(delimiter)]
        states = [field for field in fields if field.split(" ")[0] in ENDED | NOT_OVER]
        ids = [field for field in fields if _FORMS["jobid"].match(field)]
        if len(fields) >= len(_NEEDED) and states and ids:
            return delimiter
    return None


def lacks_header(source: Source) -> bool:
    """Return True if the source looks like sacct's text without its header."""
    return delimiter_of(source) is None and _delimiter_of_row(source) is not None


def _check_header(names: Sequence[str], where: str) -> None:
    missing = [
        " or ".join(names_of_one) for names_of_one in _NEEDED if not any(name.lower() in names for name in names_of_one)
    ]
    if missing:
        raise TraceError(
            f"{where}: the header lacks {clipped(', '.join(missing))}; it contains {clipped(', '.join(names))}; this "
            f"command prints all columns: {COMMAND}"
        )


def _json_row(job: Mapping[str, Any]) -> AccountingRow:
    """Convert a job in JSON to a row. Versions of Slurm arrange the JSON differently, so values are
    recognised by their structure.
    """
    time, state, tres = (object_in(job.get(name)) for name in ("time", "state", "tres"))
    allocated = _tres(tres.get("allocated"))
    return AccountingRow(
        JobIDRaw=unescaped_text(json_number(job.get("job_id"))),
        JobID=_job_id(job),
        User=text_in(job.get("user")) or text_in(job, "association", "user"),
        Account=text_in(job.get("account")),
        Partition=text_in(job.get("partition")),
        State=_state(state.get("current")),
        TimelimitRaw=unescaped_text(json_number(time.get("limit"))),
        NNodes=unescaped_text(json_number(job.get("allocation_nodes"))),
        # without allocated resources, use the number of CPUs that the job requests
        NCPUS="" if allocated else unescaped_text(json_number(object_in(job.get("required")).get("CPUs"))),
        ReqTRES=_tres(tres.get("requested")),
        AllocTRES=allocated,
        Restarts=unescaped_text(json_number(job.get("restart_cnt"))),
        NodeList=text_in(job.get("nodes")),
        QOS=text_in(job.get("qos")),
        Constraints=text_in(job.get("constraints")),
        Reservation=text_in(job, "reservation", "name"),
        SubmitLine=text_in(job.get("submit_line")),
        Submit=unescaped_text(json_number(time.get("submission")) or None),
        Eligible=unescaped_text(json_number(time.get("eligible")) or None),
        Start=unescaped_text(json_number(time.get("start")) or None),
        End=unescaped_text(json_number(time.get("end")) or None),
        ElapsedRaw=unescaped_text(json_number(time.get("elapsed"))),
        Suspended=unescaped_text(json_number(time.get("suspended"))),
    )


def _state(current: Any) -> str:
    """Reduce a list of states to one word. If the last attempt has ended and the job is waiting
    again, return the state in which that attempt ended.
    """
    words = [word for word in current if isinstance(word, str)] if isinstance(current, list) else [text_in(current)]
    return next((word for word in words if word != "PENDING"), words[0] if words else "")


def _job_id(job: Mapping[str, Any]) -> str:
    array, het = object_in(job.get("array")), object_in(job.get("het"))
    task, offset = json_number(array.get("task_id")), json_number(het.get("job_offset"))
    parent, leader = json_number(array.get("job_id")), json_number(het.get("job_id"))
    if parent and task is not None:
        return f"{unescaped_text(parent)}_{unescaped_text(task)}"
    if parent and (bits := text_in(array.get("task"))):
        return f"{unescaped_text(parent)}_[{listed_tasks(bits)}]"
    if leader and offset is not None:
        return f"{unescaped_text(leader)}+{unescaped_text(offset)}"
    return unescaped_text(json_number(job.get("job_id")))


def _tres(listed: Any) -> str:
    """Convert a list of ``{"type", "name", "count"}`` to ``cpu=8,gres/gpu:a100=4,mem=32000M``."""
    parts = []
    for resource in list_in(listed):
        kind, name, count = (object_in(resource).get(key) for key in ("type", "name", "count"))
        if (size := json_number(count)) is None or not isinstance(kind, str):
            continue
        label = f"{kind}/{name}" if isinstance(name, str) and name else kind
        parts.append(f"{label}={unescaped_text(size)}{'M' if kind == 'mem' else ''}")
    return ",".join(parts)
