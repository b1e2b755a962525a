"""Standard Workload Format: batch logs and models from the Parallel Workloads Archive.

The header has lines with ``;`` (``; MaxProcs: 240``). Rows of 18 fields separated by blanks follow:
job, submit, wait, run, allocated processors, CPU time, memory, requested processors, requested
time, requested memory, status, user, group, executable, queue, partition, preceding job, think
time. -1 means unknown, and numbers may be floats. A Parquet table has the 18 fields as columns in
this order, and the names of the columns are ignored. Jobs are sorted by submit time.

A log may have additional fields. ``--map nodes=20`` selects a field that contains a job's number of
nodes, as a number or as ``nodes=128`` within a text. A header line ``; Field 20: number of nodes``
has the same effect. Nodes then take the place of processors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from dagsim.errors import ConfigError, TraceError
from dagsim.model import Cluster, Demand, Node
from dagsim.traces.chunks import read_tables
from dagsim.traces.fields import InvalidValue
from dagsim.traces.reader import JobBlock, Reader
from dagsim.traces.report import Disagreement, ImpossibleTimes, ReadReport
from dagsim.traces.rows import Checks, arrivals, row_blocks, single_tasks
from dagsim.traces.source import Source
from dagsim.traces.text_forms import FileLayout, Form
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.typed_table import Table
from dagsim.workload.array_tools import optional
from dagsim.workload.arrays import JobArrays, TaskKind
from dagsim.workload.records import MOST_INSTANCES

_FIELDS = 18
_JOB, _SUBMIT, _WAIT, _RUN, _ALLOCATED, _REQUESTED, _LIMIT, _USER, _PRECEDING = 0, 1, 2, 3, 4, 7, 8, 11, 16
_NODES = _FIELDS
"""Index of the column, after the 18, that holds the number of nodes."""
_MOST_FIELDS = 200
_PROTOCOLS = ("rlscheduler", "pyss")
_MACHINE = re.compile(r";\s*(MaxProcs|MaxNodes)\s*:\s*(\d{1,9})(?!\d)", re.IGNORECASE)
_DESCRIBED = re.compile(r";\s*(?:field|column)?\s*(\d{2,3})\s*[:=.)-]\s*(.*\bnodes?\b.*)", re.IGNORECASE)
_NODE_COUNT = re.compile(r"(?:^|.*\bn?nodes?\W{1,3})(\d{1,9})(?:$|\D.*)", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")


class Swf(Reader):
    """Builds one gang task per job, with ``processors`` instances of one core each that start
    together.

    ``protocol`` selects the rules by which a published evaluation converts rows to jobs:

    - ``rlscheduler`` (Zhang et al., SC 2020): rows with run time 0 are left out, and a run time
      below 0 means 10 s. The number of processors is the larger of allocated and requested.
    - ``pyss`` (Hebrew University): times are whole seconds. A run ends at its requested time. A row
      without run time or processors counts as one processor for one second, and a row without a
      requested time requests one second.
    """

    name = "swf"
    summary = "Standard Workload Format (.swf): logs of the Parallel Workloads Archive"
    uses = frozenset({"protocol", "processors", "gpus_per_task", "floor_s", "map"})

    def recognises(self, source: Source) -> bool:
        separator, header = (None, 0) if source.columns is None else (",", 1)
        for line in source.head(1000)[header:]:
            if line.strip() and not line.lstrip().startswith(";"):
                fields = line.split(separator)
                if source.columns is not None and len(fields) != _FIELDS:
                    return False
                return len(fields) >= _FIELDS and all(_NUMBER.fullmatch(field) for field in fields[:_FIELDS])
        return False

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[JobBlock]:
        if options.protocol not in (None, *_PROTOCOLS):
            raise ConfigError(f"swf has no protocol {options.protocol!r}; choose from {', '.join(_PROTOCOLS)}")
        machine = options.processors or max_processors(source)
        form = _form(_nodes_field(source, options))
        return row_blocks(partial(read_tables, source, form), _times, partial(_jobs, options, machine), report, most)

    def cluster(self, source: Source, options: TraceOptions) -> Cluster | None:
        """Return one machine with ``processors`` cores. If this option is not given, the number is
        that of ``MaxProcs`` or, without this line, that of ``MaxNodes`` in the header. If the
        number is unknown, return None."""
        most = options.processors or max_processors(source)
        return Cluster((Node("machine", cpus=most),), "swf") if most else None

    def waits_s(self, source: Source) -> dict[str, float]:
        """Return the wait of each job in the log by its number, if it is known."""
        form = replace(_form(None), numbers=(_WAIT,), texts=(_JOB,))
        waits: dict[str, float] = {}
        for table in read_tables(source, form, ReadReport()):
            waits |= zip(table.texts(_JOB).tolist(), table.numbers(_WAIT).tolist(), strict=True)
        return {job: wait_s for job, wait_s in waits.items() if wait_s >= 0}

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        answers = {
            "demand": options.cpu_demand_text("one core"),
            "gang": "the processors of a job start together",
            "estimate": "the requested time, if there is one",
            "order": "preceding job and think time are ignored",
        }
        if (field := _nodes_field(source, options)) is not None:
            answers["processors"] = f"the nodes in field {field}"
        elif (further := _fields(source) - _FIELDS) > 0:
            answers["further fields"] = f"{further} fields after the 18 are ignored (--map nodes=FIELD reads one)"
        if options.protocol:
            answers["protocol"] = f"rows are converted to jobs by the rules of {options.protocol}"
        return answers


def _form(nodes: int | None) -> Form:
    """Return the layout of the table, with field number ``nodes`` (from 1) as an additional column."""

    def layout(first: list[str], where: str) -> FileLayout:
        if not _FIELDS <= len(first) <= _MOST_FIELDS:
            raise TraceError(f"{where}: expected {_FIELDS} fields or a few more, got {len(first)}")
        if nodes is not None and nodes > len(first):
            raise TraceError(
                f"{where}: there is no field {nodes} (nodes), because the row has only {len(first)} fields"
            )
        return FileLayout((*range(_FIELDS), None if nodes is None else nodes - 1), len(first), False)

    return Form(
        numbers=(_SUBMIT, _RUN, _ALLOCATED, _REQUESTED, _LIMIT, _PRECEDING),
        texts=(_JOB, _USER, _NODES),
        layout=layout,
        separator=" ",
        quoted=False,
        comment=";",
    )


def _nodes_field(source: Source, options: TraceOptions) -> int | None:
    """Return the 1-based index of the field that holds the number of nodes. It is taken from the
    map or, if the map has no such entry, from the header.

    Raises:
        ConfigError: The map names something other than nodes.
    """
    mapping = options.mapping()
    text = mapping.pop("nodes", "")
    if mapping or (options.map and not (text.isascii() and text.isdecimal() and 1 <= int(text) <= _MOST_FIELDS)):
        raise ConfigError(
            "map: swf expects nodes=NUMBER, the number (from 1) of the field with the nodes of a job, got "
            f"{options.map!r}"
        )
    if text:
        return int(text)
    described = [match for line in source.head(1000) if (match := _DESCRIBED.match(line))]
    return next((int(match[1]) for match in described if int(match[1]) > _FIELDS), None)


def _fields(source: Source) -> int:
    """Return the number of fields in the first row."""
    rows = (line for line in source.head(1000) if line.strip() and not line.lstrip().startswith(";"))
    return len(next(rows, "").split()) if source.columns is None else _FIELDS


def _node_counts(checks: Checks) -> np.ndarray:
    """Return the number of nodes in the additional column, (n,) float64, or -1 if there is no
    number.
    """
    words = checks.table.words(_NODES)
    counts = [int(match[1]) if (match := _NODE_COUNT.match(word)) else -1 for word in words.words]
    values: np.ndarray = np.array(counts, np.float64)[words.place]
    checks.drop(values > MOST_INSTANCES, InvalidValue("with an invalid value for nodes"))
    return values


def max_processors(source: Source) -> int | None:
    """Return the number of processors that the header states as ``MaxProcs`` or, without this line,
    as ``MaxNodes``. A value such as ``338 (batch; 512 total)`` means 338.
    """
    sizes: dict[str, int] = {}
    for line in source.head(1000):
        match = _MACHINE.match(line)
        if match:
            sizes.setdefault(match[1].lower(), int(match[2]))
    return sizes.get("maxprocs") or sizes.get("maxnodes") or None


def _times(table: Table) -> np.ndarray:
    """Return (n,) float64: the arrival of each row's job, or ``inf`` if it cannot be read."""
    return arrivals(table, _SUBMIT)


def _jobs(options: TraceOptions, machine: int | None, checks: Checks) -> JobArrays:
    """Build one job per row."""
    submit, run = checks.number(_SUBMIT, "submit time"), checks.number(_RUN, "run time")
    checks.drop(submit < 0, ImpossibleTimes("with a negative submit time"))
    allocated = checks.count(_ALLOCATED, "processors", -1)
    requested = checks.count(_REQUESTED, "processors", -1)
    if checks.table.has(_NODES):
        allocated = requested = _node_counts(checks)
    limit = checks.number(_LIMIT, "requested time")
    match options.protocol:
        case "rlscheduler":
            checks.drop(run == 0, "with a run time of 0")
            run = np.where(run < 0, 10.0, run)
            limit = np.where(limit == -1, run, limit)
            processors = np.maximum(allocated, requested)
        case "pyss":
            never = (run <= 0) | (allocated <= 0)
            run, limit = np.trunc(run), np.trunc(limit)
            longer = np.where(never, 1.0, np.maximum(np.maximum(run, limit), 1.0))
            # As in PYSS, take the plain minimum of run time and request. A request of -1 (none)
            # thus gives one second.
            run, limit = np.where(never, 1.0, np.maximum(np.minimum(run, limit), 1.0)), longer
            processors = np.where(never, np.maximum(allocated, 1.0), allocated)
        case _:
            processors = np.where(allocated > 0, allocated, requested)
            checks.drop(run < 0, "that never ran")
            checks.note(
                (allocated > 0) & (requested > 0) & (allocated != requested),
                "that got a different number of processors than requested",
            )
            checks.note((limit > 0) & (limit < run), "that ran longer than requested")
    checks.drop(~(processors > 0), "without processors")
    checks.note(processors > (machine or np.inf), Disagreement("that are wider than the machine"))
    preceding = checks.number(_PRECEDING, "preceding job")
    checks.note(preceding > 0, "that depend on a preceding job (ignored)")
    work = np.where(run < options.floor_s, options.floor_s, run)
    gpus, cpus, _ = options.cpu_demand(1.0, 0.0)
    return single_tasks(
        checks,
        submit,
        work,
        processors,
        [processors > 1],
        lambda gang: TaskKind(Demand(gpus, cpus), gang),
        estimate=optional(np.where(limit > 0, limit, np.nan)),
        tenant=checks.table.words(_USER).mapped(lambda user: "" if user == "-1" else user),
    )
