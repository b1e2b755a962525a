"""Standard Workload Format: batch logs and models of the Parallel Workloads Archive.

The header has lines with ``;`` (``; MaxProcs: 240``). Then follow rows of 18 fields between blanks:
job, submit, wait, run, allocated processors, CPU time, memory, requested processors, requested
time, requested memory, status, user, group, executable, queue, partition, preceding job, think
time. -1 means unknown; numbers may be floats. A Parquet table has the 18 fields as columns, in this
order and under any names. Jobs are sorted by submit time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import numpy as np

from dagsim.errors import ConfigError
from dagsim.model import Cluster, Demand, Node
from dagsim.traces.chunks import FileLayout, Form, Table, read_tables
from dagsim.traces.options import TraceOptions
from dagsim.traces.reader import Block, Reader
from dagsim.traces.report import ReadReport
from dagsim.traces.rows import Checks, arrivals, row_blocks, single_tasks
from dagsim.traces.source import Source
from dagsim.workload.arrays import JobArrays, TaskKind

__all__ = ["Swf", "max_processors"]

_FIELDS = 18
_JOB, _SUBMIT, _RUN, _ALLOCATED, _REQUESTED, _LIMIT, _USER, _PRECEDING = 0, 1, 3, 4, 7, 8, 11, 16
_FORM = Form(
    numbers=(_SUBMIT, _RUN, _ALLOCATED, _REQUESTED, _LIMIT, _PRECEDING),
    texts=(_JOB, _USER),
    layout=lambda first, where: FileLayout(range(_FIELDS), _FIELDS, False),
    separator=" ",
    quoted=False,
    comment=";",
)
_PROTOCOLS = ("rlscheduler", "pyss")
_MACHINE = re.compile(r";\s*(MaxProcs|MaxNodes)\s*:\s*(\d{1,9})(?!\d)", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")


class Swf(Reader):
    """One gang task per job: ``processors`` instances of one core each, started together.

    ``protocol`` selects the rules of a published evaluation for converting rows to jobs:

    - ``rlscheduler`` (Zhang et al., SC 2020): rows with run time 0 are left out, a run time below 0
      means 10 s; processors are the larger of allocated and requested.
    - ``pyss`` (Hebrew University): whole seconds; a run ends at its request; a row without run time or
      processors is one processor for one second; a row without a request requests one second.
    """

    name = "swf"
    summary = "Standard Workload Format (.swf): logs of the Parallel Workloads Archive"
    uses = frozenset({"protocol", "processors", "gpus_per_task", "floor_s"})

    def recognises(self, source: Source) -> bool:
        separator, header = (None, 0) if source.columns is None else (",", 1)
        for line in source.head(1000)[header:]:
            if line.strip() and not line.lstrip().startswith(";"):
                fields = line.split(separator)
                return len(fields) == _FIELDS and all(_NUMBER.fullmatch(field) for field in fields)
        return False

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[Block]:
        if options.protocol not in (None, *_PROTOCOLS):
            raise ConfigError(f"swf has no protocol {options.protocol!r}; choose from {', '.join(_PROTOCOLS)}")
        machine = options.processors or max_processors(source)
        return row_blocks(partial(read_tables, source, _FORM), _times, partial(_jobs, options, machine), report, most)

    def cluster(self, source: Source, options: TraceOptions) -> Cluster | None:
        """One machine of ``MaxProcs`` cores (``processors`` if given, else ``MaxNodes``, else no
        machine).
        """
        most = options.processors or max_processors(source)
        return Cluster((Node("machine", cpus=most),), "swf") if most else None

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        answers = {
            "demand": options.cpu_demand_text("one core"),
            "gang": "the processors of a job start together",
            "estimate": "the requested time, or the run time where none was requested",
            "order": "preceding job and think time are ignored",
        }
        if options.protocol:
            answers["protocol"] = f"rows are turned into jobs by the rules of {options.protocol}"
        return answers


def max_processors(source: Source) -> int | None:
    """Processors in the header: ``MaxProcs``, else ``MaxNodes``; ``338 (batch; 512 total)`` means
    338.
    """
    sizes: dict[str, int] = {}
    for line in source.head(1000):
        match = _MACHINE.match(line)
        if match:
            sizes.setdefault(match[1].lower(), int(match[2]))
    return sizes.get("maxprocs") or sizes.get("maxnodes") or None


def _times(table: Table) -> np.ndarray:
    """(n,) float64: arrival of the job of each row, ``inf`` if it cannot be read."""
    return arrivals(table, _SUBMIT)


def _jobs(options: TraceOptions, machine: int | None, checks: Checks) -> JobArrays:
    """Jobs of all rows."""
    submit, run = checks.number(_SUBMIT, "submit time"), checks.number(_RUN, "run time")
    checks.drop(submit < 0, "with a negative submit time")
    allocated = checks.count(_ALLOCATED, "processors", -1)
    requested = checks.count(_REQUESTED, "processors", -1)
    limit = checks.number(_LIMIT, "requested time")
    match options.protocol:
        case "rlscheduler":
            checks.drop(run == 0, "that ran for no time")
            run = np.where(run < 0, 10.0, run)
            limit = np.where(limit == -1, run, limit)
            processors = np.maximum(allocated, requested)
        case "pyss":
            never = (run <= 0) | (allocated <= 0)
            run, limit = np.trunc(run), np.trunc(limit)
            longer = np.where(never, 1.0, np.maximum(np.maximum(run, limit), 1.0))
            # the minimum of run and request as it stands, as PYSS takes it: -1, no request, makes it one second
            run, limit = np.where(never, 1.0, np.maximum(np.minimum(run, limit), 1.0)), longer
            processors = np.where(never, np.maximum(allocated, 1.0), allocated)
        case _:
            processors = np.where(allocated > 0, allocated, requested)
            checks.drop(run < 0, "that never ran")
            checks.note(
                (allocated > 0) & (requested > 0) & (allocated != requested),
                "that got other processors than requested",
            )
            checks.note((limit > 0) & (limit < run), "that ran longer than requested")
    checks.drop(~(processors > 0), "without processors")
    checks.note(processors > (machine or np.inf), "that are wider than the machine")
    preceding = checks.number(_PRECEDING, "preceding job")
    checks.note(preceding > 0, "that name a preceding job (ignored)")
    work = np.where(run < options.floor_s, options.floor_s, run)
    gpus, cpus, _ = options.cpu_demand(1.0, 0.0)
    return single_tasks(
        checks,
        submit,
        work,
        processors,
        [processors > 1],
        lambda gang: TaskKind(Demand(gpus, cpus), gang),
        estimate=np.where(limit > 0, limit, work),
        tenant=checks.table.words(_USER).mapped(lambda user: "" if user == "-1" else user),
    )
