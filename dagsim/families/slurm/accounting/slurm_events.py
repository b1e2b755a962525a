"""Workloads for the Slurm simulators (Simakov et al.): ``.events`` files, with one line per event.

A line ``-dt SECONDS -e submit_batch_job | -J NAME -sim-walltime SECONDS --uid=USER -t LIMIT -n
TASKS ...`` gives seconds since the start, and an ``sbatch`` command line. A job with a negative
walltime runs until its limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from dagsim.families.slurm.accounting.submission import options_of
from dagsim.model import Demand
from dagsim.traces.fields import Dirty, memory_gb
from dagsim.traces.reader import JobBlock, Reader
from dagsim.traces.report import ImpossibleTimes, ReadReport
from dagsim.traces.rows import Checks, arrivals, row_blocks, single_tasks
from dagsim.traces.source import NumberedRow, Source
from dagsim.traces.times import duration_s
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.typed_table import Table, tables_of
from dagsim.workload.array_tools import optional
from dagsim.workload.arrays import JobArrays, TaskKind

_JOB, _TIME, _SECONDS, _TASKS, _PER_NODE, _CORES, _GPUS, _MEMORY, _LIMIT, _USER, _ACCOUNT, _PARTITION, _QOS = range(13)
_WIDTH = 13
_NUMBERS = (_TIME, _SECONDS, _TASKS, _PER_NODE, _CORES, _GPUS, _MEMORY, _LIMIT)
_EVENT = re.compile(r"\s*-dt\s+(\S+)\s+-e\s+(\w+)\s*\|(.*)")
_OWN = re.compile(r"(?<!\S)-(sim-walltime|cancel-in|jid|j|-job-id)[\s=]+(\S+)")
_GPU = re.compile(r"(?:gres[:/])?gpu(?::[^:,=]+)?[:=](\d{1,4})")
_LONGEST = 1 << 14


class SlurmEvents(Reader):
    """Builds one job per submission, named by ``-jid`` or ``-J``, or by its line number if that
    name is taken. If the number of tasks is divisible by the tasks per node, or by the nodes, each
    node is an instance. Otherwise, all tasks are instances of one task. All instances start
    together.
    """

    name = "slurm-events"
    summary = "workloads for the Slurm simulators (.events): sbatch command lines with times"
    uses = frozenset({"floor_s", "reference_gpu", "tenant"})

    def recognises(self, source: Source) -> bool:
        lines = [line for line in source.head(20) if line.strip() and not line.lstrip().startswith("#")]
        return bool(lines) and _EVENT.match(lines[0]) is not None

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[JobBlock]:
        read, times = partial(_tables, source), partial(arrivals, column=_TIME)
        return row_blocks(read, times, partial(_jobs, options), report, most)

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "work": "sim-walltime, at most the time limit; a negative one lasts as long as the limit",
            "demand": "a core per task, GPUs and memory per node; constraints and dependencies are not modelled",
        }


def _tables(source: Source, report: ReadReport) -> Iterator[Table]:
    return tables_of(source, _WIDTH, _rows(source, report), _NUMBERS)


def _rows(source: Source, report: ReadReport) -> Iterator[NumberedRow]:
    """Yield the columns of every submission, and drop other events."""
    names: set[str] = set()
    for place, line in source.lines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        report.rows += 1
        match = _EVENT.match(line) if len(line) < _LONGEST else None
        try:
            if match is None:
                raise Dirty("that are not events")
            if match[2] != "submit_batch_job":
                raise Dirty("of events other than submissions")
            columns = _columns(match[1], match[3], line_number := source.where(place).rpartition(":")[2])
        except Dirty as reason:
            report.drop(str(reason), source.where(place))
            continue
        if columns[_JOB] in names:
            columns[_JOB] += f":{line_number}"
        names.add(columns[_JOB])
        yield place, columns


def _columns(time: str, command: str, line: str) -> list[str]:
    """Return the columns of a submission.

    Raises:
        Dirty: A value cannot be read.
    """
    own = dict(_OWN.findall(command))
    options = options_of(f"sbatch {_OWN.sub('', command)}")
    gpus = next(iter(_GPU.findall(options.get("gres", ""))), "0")
    limit = duration_s(options.get("time", ""), "time limit")
    if re.fullmatch(r"\d+", options.get("time", "")):
        limit = 60 * float(options["time"])  # sbatch takes a single number as minutes, not seconds
    name = own.get("jid") or own.get("j") or own.get("-job-id") or options.get("job-name") or line
    size = memory_gb(options["mem"]) if options.get("mem") else 0.0
    numbers = [own.get("sim-walltime", "-1"), *_width(options)]
    numbers += [options.get("cpus-per-task", "1"), gpus, repr(size), "0" if limit is None else repr(limit)]
    return [
        name,
        time,
        *numbers,
        options.get("uid", ""),
        *(options.get(key, "") for key in ("account", "partition", "qos")),
    ]


def _width(options: Mapping[str, str]) -> tuple[str, str]:
    """Return the number of tasks, and the number of tasks per node (0 if it is not stated). The
    number of tasks is the number of nodes times the number of tasks per node, so any two of them
    determine the third.
    """
    tasks, per_node = options.get("ntasks"), options.get("ntasks-per-node")
    nodes = options.get("nodes", "").partition("-")[0]
    if not nodes.isdecimal() or not int(nodes):
        return tasks or "1", per_node or "0"
    if tasks is None:
        on_each = per_node or "1"
        return (str(int(nodes) * int(on_each)) if on_each.isdecimal() else on_each), on_each
    if per_node is None and tasks.isdecimal() and int(tasks) % int(nodes) == 0:
        per_node = str(int(tasks) // int(nodes))
    return tasks, per_node or "0"


def _jobs(options: TraceOptions, checks: Checks) -> JobArrays:
    """Build the jobs of all submissions."""
    table = checks.table
    time, claimed = checks.number(_TIME, "dt"), checks.number(_SECONDS, "sim-walltime")
    checks.drop(time < 0, ImpossibleTimes("with a negative time"))
    limit, tasks = checks.number(_LIMIT, "time limit"), checks.count(_TASKS, "ntasks")
    per_node, cores = checks.count(_PER_NODE, "ntasks-per-node", 0), checks.count(_CORES, "cpus-per-task")
    checks.drop((claimed < 0) & (limit <= 0), "that should run to their limit, but have none")
    seconds = np.where((claimed < 0) | ((limit > 0) & (claimed > limit)), limit, claimed)
    with np.errstate(invalid="ignore"):
        whole = (per_node > 0) & (tasks % np.maximum(per_node, 1) == 0)
    wide = np.where(whole, per_node, 1.0)
    pieces = tasks / wide
    work = options.all_on_reference(seconds, [None], np.zeros(len(table), np.int64))
    work = np.where(work < options.floor_s, options.floor_s, work)
    owners: dict[str, Any] = {"user": table.words(_USER), "account": table.words(_ACCOUNT)}
    owners |= {"partition": table.words(_PARTITION), "qos": table.words(_QOS)}
    return single_tasks(
        checks,
        time,
        work,
        pieces,
        (checks.number(_GPUS, "gres"), wide * cores, checks.number(_MEMORY, "mem"), pieces > 1),
        lambda gpus, cpus, memory, gang: TaskKind(Demand(gpus, cpus, memory), gang),
        estimate=optional(np.where(limit > 0, limit, np.nan)),
        tenant=owners[options.tenant or "account"],
        **owners,
    )
