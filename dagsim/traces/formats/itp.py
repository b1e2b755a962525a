"""Microsoft ITP 2021 (ElasticFlow, ASPLOS 2023): ``job_id, submission_time, duration, num_gpu``, in seconds.

One CSV per cluster. The ``elasticflow-traces`` variant adds ``num_iteration, model_name, deadline, batch_size``, which
its authors drew at random. Rows are sorted by submission, externally beyond 262,144 rows (see ``gather``).
"""

from __future__ import annotations

from collections.abc import Iterator

from dagsim.model import Job, Task
from dagsim.traces.fields import Dirty, count, finite_number
from dagsim.traces.options import TraceOptions
from dagsim.traces.reader import Reader
from dagsim.traces.report import ReadReport
from dagsim.traces.rowwise import RowReader
from dagsim.traces.source import Source

__all__ = ["Itp"]

_COLUMNS = ("job_id", "submission_time", "duration", "num_gpu")
_DRAWN = ("model_name", "deadline", "batch_size")


class Itp(Reader):
    """One gang of ``num_gpu`` single GPUs per job, so that it may span nodes."""

    name = "itp"
    summary = "Microsoft ITP 2021 (ElasticFlow): DNN training jobs of 10 clusters"
    uses = frozenset({"floor_s"})

    def recognises(self, source: Source) -> bool:
        header = source.head(1)[0].lower().split(",")
        return set(_COLUMNS) <= {name.strip() for name in header}

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        rows = source.rows(report, _COLUMNS, _DRAWN, header=True)
        return RowReader(source, report, 0, 1, lambda row, where: _job(row, options, report, where)).jobs(rows)

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "work": "duration, on whichever GPU type ran it (the trace does not say)",
            "gang": "the GPUs of a job start together, on any nodes",
        }


def _job(row: list[str], options: TraceOptions, report: ReadReport, where: str) -> Job:
    """Job of a row.

    Raises:
        Dirty: The row is unusable.
        ModelError: The job is invalid.
    """
    id, submission, duration, num_gpu, model, deadline, batch = row
    submitted, seconds = finite_number(submission, "submission_time"), finite_number(duration, "duration")
    if submitted < 0:
        raise Dirty("with a negative submission_time")
    if seconds < 0:
        raise Dirty("with a negative duration")
    gpus = count(num_gpu, "num_gpu")
    until = finite_number(deadline, "deadline") if deadline else None
    if until is not None and until < submitted:
        report.note("whose deadline is before their submission (left out)", where)
        until = None
    task = Task(
        "job",
        max(seconds, options.floor_s),
        gpus,
        gpus > 1,
        model=model or None,
        batch=count(batch, "batch_size") if batch else None,
    )
    return Job.single(id, task, submitted, deadline_s=until)
