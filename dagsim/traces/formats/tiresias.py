"""Job lists of Tiresias (NSDI 2019), Muri (SIGCOMM 2022), Chronus and Sia (SOSP 2023).

Tiresias, Chronus: ``job_id, num_gpu, submit_time, iterations, model_name, duration, interval`` in seconds. Muri adds
``batch_size`` and ``iteration_time`` and counts in milliseconds. Sia: ``name, time, application, num_replicas,
batch_size``, without durations. Rows are sorted by submission, externally beyond 262,144 rows (see ``gather``).
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

__all__ = ["Tiresias"]

_LIST = ("job_id", "num_gpu", "submit_time", "duration", "model_name")
_OF_SOME = ("batch_size", "user", "iteration_time")
_SIA = ("name", "time", "application", "num_replicas", "batch_size")


class Tiresias(Reader):
    """One gang of ``num_gpu`` single GPUs per job, so that it may span nodes."""

    name = "tiresias"
    summary = "job lists of Tiresias, Muri, Chronus and Sia (CSV)"
    uses = frozenset({"floor_s"})

    def recognises(self, source: Source) -> bool:
        header = _header(source)
        return (set(_LIST) <= header and "interval" in header) or set(_SIA) <= header

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        if set(_SIA) <= _header(source):
            rows = source.rows(report, _SIA, header=True)
            return RowReader(source, report, 0, 1, lambda row, where: _sia(row, options)).jobs(rows)
        unit = 0.001 if _is_muri(source) else 1.0
        rows = source.rows(report, _LIST, _OF_SOME, header=True)
        return RowReader(source, report, 0, 2, lambda row, where: _job(row, unit, options)).jobs(rows)

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        answers = {"gang": "the GPUs of a job start together, on any nodes"}
        if set(_SIA) <= _header(source):
            answers["work"] = "the list has no durations: 0 s, or floor_s (--floor)"
        else:
            answers["work"] = "duration, on whichever GPU type ran it (the list does not say)"
            answers["unit"] = "milliseconds (Muri: it has iteration_time)" if _is_muri(source) else "seconds"
        return answers


def _header(source: Source) -> set[str]:
    return {name.strip().lower() for name in source.head(1)[0].split(",")}


def _is_muri(source: Source) -> bool:
    return "iteration_time" in _header(source)


def _job(row: list[str], unit: float, options: TraceOptions) -> Job:
    """Job of a row of Tiresias, Muri or Chronus.

    Raises:
        Dirty: The row is unusable.
        ModelError: The job is invalid.
    """
    id, num_gpu, submit, duration, model, batch, user, _ = row
    seconds = finite_number(duration, "duration") * unit
    submitted = finite_number(submit, "submit_time") * unit
    return _single(id, submitted, seconds, num_gpu, model, batch, user, options)


def _sia(row: list[str], options: TraceOptions) -> Job:
    """Job of a row of Sia's lists."""
    name, time, application, num_replicas, batch = row
    return _single(name, finite_number(time, "time"), 0.0, num_replicas, application, batch, "", options)


def _single(
    id: str, submitted: float, seconds: float, gpus: str, model: str, batch: str, tenant: str, options: TraceOptions
) -> Job:
    if submitted < 0:
        raise Dirty("with a negative submit_time")
    if seconds < 0:
        raise Dirty("with a negative duration")
    pieces = count(gpus, "num_gpu")
    size = count(batch, "batch_size") if batch else None
    work = max(seconds, options.floor_s)
    return Job.single(
        id, Task("job", work, pieces, pieces > 1, model=model or None, batch=size), submitted, tenant=tenant
    )
