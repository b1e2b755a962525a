"""SenseTime Helios 2020: ``cluster_log.csv``, with the table of virtual clusters beside it as the cluster.

``job_id, user, vc, gpu_num, cpu_num, node_num, state, submit_time, start_time, end_time, duration, queue``; times are
dates without a zone, durations seconds. ``cluster_gpu_number.csv``: ``date, <vc> ..., total``, GPUs per day. Rows are
sorted by submission, externally beyond 262,144 rows (see ``gather``).
"""

from __future__ import annotations

from collections.abc import Iterator

from dagsim.errors import TraceError
from dagsim.model import Cluster, Job, Node, Task, gpu_type
from dagsim.traces.clocks import seconds_since_1970
from dagsim.traces.fields import Dirty, count, finite_number
from dagsim.traces.options import TraceOptions
from dagsim.traces.reader import Reader
from dagsim.traces.report import ReadReport
from dagsim.traces.rowwise import jobs_by_row
from dagsim.traces.source import Row, Source

__all__ = ["Helios", "read_capacity"]

_COLUMNS = ("job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "state", "submit_time")
_TIMES = ("start_time", "end_time", "duration", "queue")
_STATES = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL")
_GPUS_PER_NODE = 8


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
        return jobs_by_row(
            rows, source, report, id=0, time=12, make=lambda row, where: _job(row, options, report, where)
        )

    def cluster(self, source: Source, options: TraceOptions) -> Cluster | None:
        """Nodes of 8 GPUs for every virtual cluster, by the last day of the table."""
        tables = source.beside("*gpu_number.csv", "*gpu_number.csv.gz")
        return read_capacity(tables.files[0], options.reference_gpu or "V100-16") if tables.files else None

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "gpu type": f"the log has none: {options.reference_gpu or 'V100-16'} throughout (--reference-gpu)",
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
        try:
            submitted = repr(seconds_since_1970(row[7], "submit_time"))
        except Dirty:
            submitted = ""
        yield place, [*row, submitted]


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
        report.note("of an unknown state (kept)", where)
    gpus = count(gpu_num, "gpu_num", 0)
    pieces = gpus or count(node_num or "1", "node_num")
    cpus = finite_number(cpu_num, "cpu_num") / pieces
    task = Task("job", max(seconds, options.floor_s), pieces, pieces > 1, 1.0 if gpus else 0.0, cpus)
    return Job.single(id, task, submitted, tenant=vc)
