"""SenseTime Helios 2020: ``cluster_log.csv``, and the table of virtual clusters next to it, from which
the cluster is built.

The columns are ``job_id, user, vc, gpu_num, cpu_num, node_num, state, submit_time, start_time,
end_time, duration, queue``; times are dates without a zone, and durations are in seconds.
``cluster_gpu_number.csv`` contains the number of GPUs on each day, with the columns ``date, <vc>
..., total``. Jobs are sorted by submission.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from dagsim.errors import TraceError
from dagsim.model import Cluster, Demand, Node, gpu_type
from dagsim.traces.chunks import read_tables
from dagsim.traces.fields import Dirty, FaultsAt, count
from dagsim.traces.reader import JobBlock, Reader
from dagsim.traces.report import ImpossibleTimes, ReadReport
from dagsim.traces.rows import Checks, dates, row_blocks, single_tasks
from dagsim.traces.source import Source
from dagsim.traces.text_forms import csv_form
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.typed_table import Table
from dagsim.workload.arrays import JobArrays, TaskKind

_COLUMNS = ("job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "state", "submit_time")
_TIMES = ("start_time", "end_time", "duration", "queue")
_STATES = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL")
_GPUS_PER_NODE = 8
_JOB, _TENANT, _GPUS, _CPUS, _NODES, _STATE, _SUBMIT, _START, _END, _DURATION = 0, 2, 3, 4, 5, 6, 7, 8, 9, 10
_FORM = csv_form(
    _COLUMNS,
    _TIMES,
    numbers=(_GPUS, _CPUS, _NODES, _DURATION),
    texts=(_JOB, _TENANT, _STATE, _SUBMIT, _START, _END),
    header=True,
)


class Helios(Reader):
    """Builds one gang per job, with one GPU per instance; a job without GPUs has one instance per
    node. The tenant is the virtual cluster.

    Jobs in all states are kept, because failed and cancelled jobs also held their GPUs.
    """

    name = "helios"
    summary = "SenseTime Helios 2020: cluster_log.csv, GPU and CPU jobs of 4 clusters"
    uses = frozenset({"reference_gpu", "floor_s"})

    def recognises(self, source: Source) -> bool:
        return set(_COLUMNS) <= {name.strip().lower() for name in source.head(1)[0].split(",")}

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[JobBlock]:
        return row_blocks(partial(read_tables, source, _FORM), _times, partial(_jobs, options), report, most)

    def cluster(self, source: Source, options: TraceOptions) -> Cluster | None:
        """Build nodes of 8 GPUs for every virtual cluster, as on the last day of the table."""
        tables = source.beside("*gpu_number.csv", "*gpu_number.csv.gz")
        return read_capacity(tables.files[0], options.reference_gpu or "V100-16") if tables.files else None

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "gpu type": f"the log has none: {options.reference_gpu or 'V100-16'} throughout (--read reference_gpu=)",
            "gang": "the GPUs of a job start together, on any nodes; cores are shared out evenly among them",
            "cluster": "the GPUs of the last day, on nodes of 8; virtual clusters are tenants and may use all nodes",
        }


def read_capacity(source: Source, gpu: str) -> Cluster:
    """Read the cluster on the last day of a table with the columns ``date``, one per virtual
    cluster, and ``total``.

    Raises:
        TraceError: There is no such row. The message names ``file:line``.
    """
    names: list[str] = []
    last: list[int] = []
    for line, text in source.lines():
        fields = [field.strip() for field in text.split(",")]
        if not names:
            names = fields
            continue
        with FaultsAt(source.where(line), "a day"):
            last = [count(field, "number of GPUs", 0) for field in fields[1:-1]]
            if len(fields) != len(names):
                raise Dirty("with a wrong number of fields")
    kind = gpu_type(gpu)
    nodes = [
        Node(f"{vc}-{first // _GPUS_PER_NODE}", kind, min(_GPUS_PER_NODE, size - first))
        for vc, size in zip(names[1:-1], last, strict=False)
        for first in range(0, min(size, 1 << 20), _GPUS_PER_NODE)
    ]
    if len({node.name for node in nodes}) != len(nodes) or not nodes:
        raise TraceError(f"{source}:1: not a table of the GPUs per virtual cluster")
    return Cluster(tuple(nodes), "helios")


def _times(table: Table) -> np.ndarray:
    """Return (n,) float64: the arrival of each row's job, or 0 if it cannot be read."""
    seconds: np.ndarray = np.nan_to_num(dates(table, _SUBMIT), nan=0.0)
    return seconds


def _jobs(options: TraceOptions, checks: Checks) -> JobArrays:
    """Build one job per row."""
    table = checks.table
    submitted = checks.date(_SUBMIT, "submit_time")
    blank = table.blank(_DURATION)
    seconds = checks.number(_DURATION, "duration", where=~blank)
    if blank.any():
        end = checks.date(_END, "end_time", blank)
        seconds = np.where(blank, end - checks.date(_START, "start_time", blank), seconds)
    checks.drop(seconds < 0, ImpossibleTimes("with a negative duration"))
    states = table.words(_STATE)
    is_state = np.array([state in _STATES for state in states.words])
    checks.note(~is_state[states.place], "with an unknown state (kept)")
    gpus = checks.count(_GPUS, "gpu_num", 0)
    pieces = np.where(gpus > 0, gpus, checks.count(_NODES, "node_num", blank=1, where=gpus == 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        cpus = checks.number(_CPUS, "cpu_num") / pieces
    return single_tasks(
        checks,
        submitted,
        np.where(seconds < options.floor_s, options.floor_s, seconds),
        pieces,
        (np.where(gpus > 0, 1.0, 0.0), cpus, pieces > 1),
        lambda gpus, cpus, gang: TaskKind(Demand(gpus, cpus), gang),
        tenant=table.words(_TENANT),
    )
