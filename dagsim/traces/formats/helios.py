"""SenseTime Helios 2020: ``cluster_log.csv``, with the table of virtual clusters beside it as the cluster.

``job_id, user, vc, gpu_num, cpu_num, node_num, state, submit_time, start_time, end_time, duration, queue``; times are
dates without a zone, durations seconds. ``cluster_gpu_number.csv``: ``date, <vc> ..., total``, GPUs per day. Rows are
sorted by submission, externally beyond 262,144 rows (see ``gather``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, nan

import numpy as np

from dagsim.errors import TraceError
from dagsim.model import Cluster, Job, Node, Task, gpu_type
from dagsim.traces.columnar import kinds_of_rows
from dagsim.traces.fields import Dirty, are_counts, count, finite_number, seconds_since_1970
from dagsim.traces.options import TraceOptions
from dagsim.traces.reader import Reader
from dagsim.traces.report import ReadReport
from dagsim.traces.rowwise import PlainRows, RowReader
from dagsim.traces.source import Row, Source
from dagsim.traces.text_columns import TextTable, csv_table, date_seconds
from dagsim.workload.arrays import JobArrays, TaskKind

__all__ = ["Helios", "read_capacity"]

_COLUMNS = ("job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "state", "submit_time")
_TIMES = ("start_time", "end_time", "duration", "queue")
_STATES = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL")
_UNKNOWN = "of an unknown state (kept)"
_GPUS_PER_NODE = 8
_NUMBERS, _TEXTS = (3, 4, 5, 10), (0, 2, 6, 7, 8, 9)
"""Places of the fields that count."""


class Helios(Reader):
    """One gang per job: of single GPUs, or without a GPU of one instance per node. The tenant is the virtual cluster.

    All states are kept: jobs that failed or were cancelled held their GPUs too.
    """

    name = "helios"
    summary = "SenseTime Helios 2020: cluster_log.csv, GPU and CPU jobs of 4 clusters"
    uses = frozenset({"reference_gpu", "floor_s"})

    def recognises(self, source: Source) -> bool:
        return set(_COLUMNS) <= {name.strip().lower() for name in source.head(1)[0].split(",")}

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        rows = _dated(source.rows(report, _COLUMNS, _TIMES, header=True))
        return _reader(source, options, report).jobs(rows)

    def arrays(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> JobArrays | None:
        table = csv_table(source, _COLUMNS, _TIMES, _NUMBERS, _TEXTS)
        if table is None:
            return None
        dated = table._replace(split=lambda text: _with_submission(table.split(text)))
        return _reader(source, options, report).arrays(dated, _plain(table, options), most)

    def cluster(self, source: Source, options: TraceOptions) -> Cluster | None:
        """Nodes of 8 GPUs for every virtual cluster, by the last day of the table."""
        tables = source.beside("*gpu_number.csv", "*gpu_number.csv.gz")
        return read_capacity(tables.files[0], options.reference_gpu or "V100-16") if tables.files else None

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "gpu type": f"the log has none: {options.reference_gpu or 'V100-16'} throughout (--read reference_gpu=)",
            "gang": "the GPUs of a job start together, on any nodes; cores are shared out evenly among them",
            "cluster": "the GPUs of the last day, on nodes of 8; virtual clusters are tenants, no walls",
        }


def read_capacity(source: Source, gpu: str) -> Cluster:
    """The cluster of a table ``date, <vc> ..., total`` on its last day.

    Raises:
        TraceError: It has no such row; the message names ``file:line``.
    """
    names: list[str] = []
    last: list[int] = []
    for line, text in source.lines():
        fields = [field.strip() for field in text.split(",")]
        if not names:
            names = fields
            continue
        try:
            last = [count(field, "number of GPUs", 0) for field in fields[1:-1]]
            if len(fields) != len(names):
                raise Dirty("with a wrong number of fields")
        except Dirty as reason:
            raise TraceError(f"{source.where(line)}: a day {reason}") from None
    kind = gpu_type(gpu)
    nodes = [
        Node(f"{vc}-{first // _GPUS_PER_NODE}", kind, min(_GPUS_PER_NODE, size - first))
        for vc, size in zip(names[1:-1], last, strict=False)
        for first in range(0, min(size, 1 << 20), _GPUS_PER_NODE)
    ]
    if len({node.name for node in nodes}) != len(nodes) or not nodes:
        raise TraceError(f"{source}:1: no table of GPUs per virtual cluster")
    return Cluster(tuple(nodes), "helios")


def _dated(rows: Iterator[Row]) -> Iterator[Row]:
    """The rows with their submission in seconds as a last field; nothing where it cannot be read."""
    for place, row in rows:
        yield place, _with_submission(row)


def _with_submission(row: Sequence[str]) -> list[str]:
    try:
        return [*row, repr(seconds_since_1970(row[7], "submit_time"))]
    except Dirty:
        return [*row, ""]


def _reader(source: Source, options: TraceOptions, report: ReadReport) -> RowReader:
    return RowReader(source, report, 0, 12, lambda row, where: _job(row, options, report, where))


def _job(row: list[str], options: TraceOptions, report: ReadReport, where: str) -> Job:
    """The job of a row.

    Raises:
        Dirty: It cannot be used.
        ModelError: It is impossible.
    """
    id, _, vc, gpu_num, cpu_num, node_num, state, submit, start, end, duration, _, _ = row
    submitted = seconds_since_1970(submit, "submit_time")
    if duration:
        seconds = finite_number(duration, "duration")
    else:
        seconds = seconds_since_1970(end, "end_time") - seconds_since_1970(start, "start_time")
    if seconds < 0:
        raise Dirty("with a negative duration")
    if state not in _STATES:
        report.note(_UNKNOWN, where)
    gpus = count(gpu_num, "gpu_num", 0)
    pieces = gpus or count(node_num or "1", "node_num")
    cpus = finite_number(cpu_num, "cpu_num") / pieces
    task = Task("job", max(seconds, options.floor_s), pieces, pieces > 1, 1.0 if gpus else 0.0, cpus)
    return Job.single(id, task, submitted, tenant=vc)


def _plain(table: TextTable, options: TraceOptions) -> PlainRows:
    """The jobs that ``_job`` makes, of all rows at once."""
    duration, gpus, cpus, nodes = (
        table.numbers(place, blank) for place, blank in ((10, nan), (3, nan), (4, nan), (5, 1))
    )
    if (unsaid := table.blank(10)).any():
        duration = np.where(unsaid, date_seconds(table.texts(9)) - date_seconds(table.texts(8)), duration)
    submitted = date_seconds(table.texts(7))
    plain = (duration >= 0) & (duration < inf) & (cpus >= 0) & (cpus < inf) & (submitted >= 0)
    plain &= are_counts(gpus, 0) & ((gpus > 0) | are_counts(nodes))
    pieces = np.where(gpus > 0, gpus, nodes)
    with np.errstate(divide="ignore", invalid="ignore"):
        columns = (np.where(gpus > 0, 1.0, 0.0), cpus / pieces, pieces > 1)
    kind, kinds = kinds_of_rows(
        plain, columns, lambda gpus, cpus, gang: TaskKind(Task("job", 0.0, gpus=gpus, cpus=cpus).demand, gang)
    )
    state, states = table.words(6)
    jobs = JobArrays.of_single_tasks(
        table.texts(0),
        submitted,
        "job",
        work=np.where(duration < options.floor_s, options.floor_s, duration),
        instances=np.where(plain, pieces, 1).astype(np.int64),
        kind=kind,
        kinds=kinds,
        tenant=table.words(2),
    )
    return PlainRows(jobs, plain, ((_UNKNOWN, np.array([each not in _STATES for each in states])[state]),))
