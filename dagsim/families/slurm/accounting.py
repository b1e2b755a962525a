"""Slurm's accounting: the names of its fields, and readers for the rows that ``sacct`` prints as
text or as JSON.

This module reads the output of ``sacct`` 22.05 and 24.11, and the formats that sacct(1) documents
for other versions.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Any, NamedTuple

from dagsim.errors import TraceError
from dagsim.model import UNLIMITED_S
from dagsim.model.arithmetic import whole_sum
from dagsim.traces.batch import ENDED, NOT_OVER
from dagsim.traces.chunks import FileLayout, Form, Table, read_tables, tables_of
from dagsim.traces.documents import elements, list_in, object_in, text_in
from dagsim.traces.fields import MOST_GPUS, Dirty, InvalidValue, finite_number, memory_gb
from dagsim.traces.report import Disagreement, ImpossibleTimes, ReadReport
from dagsim.traces.source import Row, Source
from dagsim.traces.times import NO_DURATION, duration_s, is_unset
from dagsim.workload.records import clipped, clipped_repr

_SHORT = 500  # maximum length of a cached text, in characters
_INFINITE = "4294967295"  # Slurm's INFINITE, the largest 32-bit number
_SLICE = re.compile(r"(\d+)g\.(\d+)gb", re.IGNORECASE)
_MOST_TASKS = 4_000_001  # the largest MaxArraySize that Slurm accepts.
# Compute slices into which MIG can divide a GPU: four on the A30, seven on all other types.
_SLICES, _A30_SLICES, _A30_SLICE_GB = 7, 4, 6


class Resources(NamedTuple):
    """Resources that a job requested or received, summed over its nodes."""

    gpus: int = 0
    """Whole GPUs, as counted by ``gres/gpu``; MIG slices are included."""
    types: tuple[tuple[str, int], ...] = ()
    """GPUs by the site's type name, if stated, without slices."""
    slices: tuple[tuple[float, int], ...] = ()
    """MIG slices, by the share of a GPU that each is."""
    shards: int = 0
    cpus: float = 0.0
    memory_gb: float = 0.0
    """0 if not stated, or if the job takes whole nodes."""
    licences: tuple[tuple[str, int], ...] = ()

    @property
    def has_gpus(self) -> bool:
        """True if GPUs, MIG slices or shards are listed."""
        return bool(self.gpus or self.slices or self.shards)

    def with_gpus_of(self, other: Resources) -> Resources:
        """Return a copy of these resources with the GPUs replaced by those of ``other``."""
        return self._replace(gpus=other.gpus, types=other.types, slices=other.slices, shards=other.shards)

    @property
    def is_stated(self) -> bool:
        """True if any resource is listed."""
        return self != Resources()


def resources(text: str) -> Resources:
    """Parse ``billing=16,cpu=16,gres/gpu:a100=4,gres/gpu=4,mem=128G,node=1``, in any order.

    ``gres/gpu`` is the total number of GPUs, whatever their types. If this entry is missing, the
    numbers for the single types are added up instead.

    Raises:
        Dirty: The text is not a list of ``name=value``, or a number is invalid.
    """
    return _resources(text) if len(text) < _SHORT else _resources.__wrapped__(text)


@lru_cache(maxsize=1 << 13)
def _resources(text: str) -> Resources:
    """Parse a list of resources. The same texts occur in many rows, so each distinct text is parsed
    only once.
    """
    listed = _pairs(text)
    if listed and all(name.isdecimal() for name in listed):  # taken from the column tres_alloc of slurmdbd's tables
        raise Dirty("whose resources are numbered as in the database instead of named (print them with sacct)")
    types: dict[str, int] = {}
    slices: dict[float, int] = {}
    for name, value in listed.items():
        kind = name.removeprefix("gres/gpu:")
        if kind == name:
            continue
        if (share := _slice_share(kind)) is None:
            types[kind] = _count(value)
        else:
            slices[share] = slices.get(share, 0) + _count(value)
    named = whole_sum(types.values()) + whole_sum(slices.values())
    return Resources(
        _count(listed["gres/gpu"]) if "gres/gpu" in listed else named,
        tuple([sized for sized in types.items() if sized[1]]),
        tuple([sized for sized in slices.items() if sized[1]]),
        whole_sum(_count(value) for name, value in listed.items() if f"{name}:".startswith("gres/shard:")),
        _count(listed.get("cpu", "0")),
        memory_gb(listed.get("mem", "0")),
        tuple([(name[8:], _count(value)) for name, value in listed.items() if name.startswith("license/")]),
    )


def licences_or_none(tres: str) -> tuple[tuple[str, int], ...]:
    """Return the licences that a list of resources contains. The result is empty if the text cannot
    be read."""
    try:
        return resources(tres).licences
    except Dirty:
        return ()


def with_older_columns(stated: Resources, gres: str, memory: str, cpus: str, nodes: int, total: bool) -> Resources:
    """Fill in what a list of resources lacks from other columns. GPUs come from ``AllocGRES``
    (total numbers) or ``ReqGRES`` (numbers per node) in versions before 20.11, memory comes from
    ``ReqMem``, and CPUs from their own column.

    GPUs are written as ``gpu:2``, ``gpu:tesla:2``, ``PER_NODE:gpu:2`` (or ``JOB``, ``TASK``,
    ``SOCKET``), or with the number of the plugin: ``7696487:2``. ``ReqMem`` is per CPU
    (``4000Mc``), per node (``16Gn``) or a total.

    Raises:
        Dirty: A number is invalid.
    """
    if not stated.cpus and cpus:
        stated = stated._replace(cpus=_count(cpus))
    if not stated.memory_gb and not is_unset(memory):
        times = {"c": stated.cpus, "n": nodes}.get(memory.strip()[-1:], 1)
        stated = stated._replace(memory_gb=memory_gb(memory) * times)
    if stated.has_gpus or is_unset(gres):
        return stated
    unit = re.match(r"\s*PER_(JOB|TASK|SOCKET)", gres, re.IGNORECASE)
    whole = total or (unit is not None and unit[1].upper() == "JOB")
    return stated.with_gpus_of(resources(gres_tres({"job" if whole else "node": gres}, nodes, counted=True)))


_GRES = re.compile(
    r"(?:PER_\w+:)?(?:gres[:/])?(gpu|shard|7696487)(?:[:=]([^:=]*[^\d:=][^:=]*))?(?:[:=](\d{1,9}))?", re.IGNORECASE
)
"""A resource in a list of gres; 7696487 is "gpu" with its letters read as a number, which old
versions wrote in AllocGRES."""


def gres_tres(lists: Mapping[str, str], nodes: int, tasks: int = 1, sockets: int = 1, *, counted: bool = False) -> str:
    """Convert lists of gres to a list of resources that contains their GPUs. For example,
    ``gpu:a100:4`` on 2 nodes becomes ``gres/gpu=8,gres/gpu:a100=8``. Each key in ``lists`` tells
    whether the numbers in its list are per ``job``, ``node``, ``task`` or ``socket``. The first
    list that names GPUs is used. The list may have any of Slurm's forms: ``gpu:2(S:0)``,
    ``gres:gpu:a100:2``, ``gres/gpu:a100=2``, ``gpu``.

    Raises:
        Dirty: A number is invalid, or a number is missing although ``counted`` is set.
    """
    units = {"job": 1, "node": nodes, "task": tasks, "socket": sockets}
    for unit, times in units.items():
        sizes: dict[str, int] = {}
        for part in re.sub(r"\([^()]*\)", "", lists.get(unit, "")).split(","):
            match = _GRES.fullmatch(part.strip())
            if match is None:
                continue
            if counted and match[3] is None:
                raise Dirty(InvalidValue("with resources that are not numbers"))
            name = "gres/shard" if match[1].lower() == "shard" else "gres/gpu"
            size = times * _count(match[3] or "1")
            sizes[name] = sizes.get(name, 0) + size
            if match[2] and name == "gres/gpu":
                sizes[f"{name}:{match[2]}"] = sizes.get(f"{name}:{match[2]}", 0) + size
        if any(sizes.values()):
            return ",".join([f"{name}={size}" for name, size in sizes.items()])
    return ""


def limit_s(raw: str, text: str) -> float | None:
    """Return the time limit in seconds. It is read from ``TimelimitRaw`` (minutes), or else from
    ``Timelimit`` (a duration). Like Slurm when it plans ahead, assume a year if the job has no
    limit. Return ``None`` if the limit is not stated or is that of the partition.

    Raises:
        Dirty: The text is neither a number nor one of Slurm's words.
    """
    for limit_text, is_raw in ((raw, True), (text, False)):
        if is_unset(limit_text):
            continue
        word = limit_text.strip().lower()
        if word in ("unlimited", "infinite", _INFINITE):
            return UNLIMITED_S
        if word in ("partition_limit", "partition limit"):
            return None
        if limit_text.strip() in NO_DURATION:
            return None
        limit = 60.0 * finite_number(limit_text, "TimelimitRaw") if is_raw else duration_s(limit_text, "Timelimit")
        if limit is None:
            return None
        if limit < 0:
            raise Dirty(ImpossibleTimes("with a negative time limit"))
        return min(limit, UNLIMITED_S)
    return None


def state(text: str) -> str:
    """Return the full name of a state. For example, ``CANCELLED by 1007`` becomes ``CANCELLED``,
    and the shortened ``OUT_OF_ME+`` becomes ``OUT_OF_MEMORY``.

    Raises:
        Dirty: There is no such state.
    """
    if text in ENDED:
        return text
    word = (text.split() or [""])[0].upper()
    if word.endswith("+"):
        candidates = sorted(name for name in ENDED | NOT_OVER if name.startswith(word[:-1]))
        word = candidates[0] if len(candidates) == 1 and len(word) > 1 else word
    if word not in ENDED | NOT_OVER:
        raise Dirty("in an unknown state" if word else "without a state")
    return word


def array_tasks(job: str) -> int | None:
    """Return the number of tasks in an array id such as ``910002_[3-90,95,97-99%8]``. If the text
    was cut off, this is a lower bound. Return ``None`` for the id of a single job.

    Raises:
        Dirty: The brackets do not contain a list of numbers.
    """
    _, bracket, inside = job.partition("_[")
    if not bracket:
        return None
    listed = inside.rstrip("]").partition("%")[0]
    ended = not listed.endswith("...")
    parts = listed.removesuffix("...").split(",")
    tasks = 0
    for part in parts if ended else parts[:-1]:  # the last number of a list that was cut off may be incomplete
        first, _, rest = part.partition("-")
        last, _, step = rest.partition(":")
        if not all(
            number.isascii() and number.isdecimal() and len(number) < 9 for number in (first, last or "0", step or "1")
        ):
            raise Dirty(InvalidValue("with an invalid list of array tasks"))
        tasks += max(0, int(last or first) - int(first)) // max(1, int(step or 1)) + 1
    if tasks > _MOST_TASKS:
        raise Dirty(InvalidValue("with an invalid list of array tasks"))
    return tasks


def array_ids(id: str) -> list[str]:
    """Return the ids of the tasks in ``910002_[3-90,95%8]``, or the id itself if it contains no
    such list.
    """
    base, bracket, inside = id.partition("_[")
    listed = inside.rstrip("]").partition("%")[0]
    try:
        if not bracket or not array_tasks(f"{base}_[{listed}]"):
            return [id]
    except Dirty:
        return [id]
    tasks: list[int] = []
    for part in listed.removesuffix("...").split(","):
        first, _, rest = part.rstrip(":").partition("-")
        last, _, step = rest.partition(":")
        if first.isdecimal():
            tasks += range(int(first), int(last or first) + 1, int(step or 1) or 1)
    return [f"{base}_{task}" for task in tasks]


def _pairs(text: str) -> Mapping[str, str]:
    listed = {}
    for part in text.split(",") if not is_unset(text) else ():
        name, equals, value = part.partition("=")
        if not equals:
            raise Dirty("with resources that are not a list of name=value pairs")
        listed[name.strip().lower()] = value
    return listed


def _count(text: str) -> int:
    value = finite_number(text, "resources")
    if not 0 <= value <= MOST_GPUS * 1024 or value != int(value):
        raise Dirty(InvalidValue("with impossible resources"))
    return int(value)


def _slice_share(kind: str) -> float | None:
    match = _SLICE.search(kind)
    if match is None:
        return None
    size, memory = int(match[1][:4]), int(match[2][:6])
    if not size or not memory:
        raise Dirty(InvalidValue("with an invalid MIG slice"))
    of = _A30_SLICES if memory == _A30_SLICE_GB * size else _SLICES
    if size > of:
        raise Dirty(InvalidValue("with an invalid MIG slice"))
    return size / of


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
    "Constraints",
    "Reservation",
    "SubmitLine",
    "ReqCPUS",
    "ReqMem",
    "ReqNodes",
    "ReqGRES",
    "AllocGRES",
    "Cluster",
)
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
"""What the values of these columns look like, to put split rows together again."""
_DELIMITERS = "|,;\t^~"
_NO_VALUE = 4294967294  # Slurm's NO_VAL, which is one less than INFINITE
_MOST_BITS = 4_000_001


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


def sacct_rows(source: Source, report: ReadReport, delimiter: str | None) -> Iterator[Row]:
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
            names.append("")  # sacct -p prints a separator at the end of each row, too
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
    """Return True if these fields are a row or its beginning. This is assumed if each number, time
    and state is in the right column.
    """
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
            ):  # keep the way with the longest command line, because this text may contain the separator
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
        except TraceError:  # the file is empty or not text, so it cannot be accounting
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
    """Yield the rows of the logs. Empty columns are filled in from rows of the other files with the
    same JobIDRaw (or JobID).
    """
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

    def rows() -> Iterator[Row]:
        for table in read_tables(parts.logs, _form(parts.logs, report, delimiter), report):
            for place, line in enumerate(table.line.tolist()):
                fields = table.fields(place)
                if more := further.get(fields[raw] or fields[alias]):
                    for column, name in fillable:
                        fields[column] = fields[column] or more.get(name, "")
                yield line, fields

    yield from tables_of(parts.logs, len(COLUMNS), rows())


def _json_rows(source: Source, report: ReadReport) -> Iterator[Row]:
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


def _json_row(job: Mapping[str, Any]) -> list[str]:
    """Convert a job in JSON to the fields of the text output. Versions of Slurm arrange the JSON
    differently, so values are recognised by their structure.
    """
    time, state, tres = (object_in(job.get(name)) for name in ("time", "state", "tres"))
    allocated = _tres(tres.get("allocated"))
    row = {
        "JobIDRaw": unescaped_text(json_number(job.get("job_id"))),
        "JobID": _job_id(job),
        "User": text_in(job.get("user")) or text_in(job, "association", "user"),
        "Account": text_in(job.get("account")),
        "Partition": text_in(job.get("partition")),
        "State": _state(state.get("current")),
        "TimelimitRaw": unescaped_text(json_number(time.get("limit"))),
        "NNodes": unescaped_text(json_number(job.get("allocation_nodes"))),
        # a job without allocated resources has only its request
        "NCPUS": "" if allocated else unescaped_text(json_number(object_in(job.get("required")).get("CPUs"))),
        "ReqTRES": _tres(tres.get("requested")),
        "AllocTRES": allocated,
        "Restarts": unescaped_text(json_number(job.get("restart_cnt"))),
        "NodeList": text_in(job.get("nodes")),
        "QOS": text_in(job.get("qos")),
        "Constraints": text_in(job.get("constraints")),
        "Reservation": text_in(job, "reservation", "name"),
        "SubmitLine": text_in(job.get("submit_line")),
    }
    for column, name in (("Submit", "submission"), ("Eligible", "eligible"), ("Start", "start"), ("End", "end")):
        row[column] = unescaped_text(json_number(time.get(name)) or None)
    row["ElapsedRaw"] = unescaped_text(json_number(time.get("elapsed")))
    row["Suspended"] = unescaped_text(json_number(time.get("suspended")))
    return [row.get(name, "") for name in COLUMNS]


def json_number(value: Any) -> int | float | str | None:
    """Read a number, given plainly or as ``{"set", "infinite", "number"}``. Return ``UNLIMITED`` if
    it is infinite, and an empty text if it is not set."""
    if isinstance(value, dict):
        if value.get("infinite"):
            return "UNLIMITED"
        value = value.get("number") if value.get("set") else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return clipped_repr(value) if isinstance(value, str) else None
    return None if value in (_NO_VALUE, _NO_VALUE + 1) else value


def unescaped_text(value: int | float | str | None) -> str:
    if isinstance(value, int) and abs(value) >= 1 << 63:
        return "inf"  # the file must be damaged, because no real value needs 64 bits
    return "" if value is None else str(value)


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


def listed_tasks(tasks: str) -> str:
    """Convert a hexadecimal bit mask, whose bit i stands for task i of an array, to a list such as
    ``3-60``. Return other texts unchanged.
    """
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
    """Convert a list of ``{"type", "name", "count"}`` to ``cpu=8,gres/gpu:a100=4,mem=32000M``."""
    parts = []
    for resource in list_in(listed):
        kind, name, count = (object_in(resource).get(key) for key in ("type", "name", "count"))
        if (size := json_number(count)) is None or not isinstance(kind, str):
            continue
        label = f"{kind}/{name}" if isinstance(name, str) and name else kind
        parts.append(f"{label}={unescaped_text(size)}{'M' if kind == 'mem' else ''}")
    return ",".join(parts)
