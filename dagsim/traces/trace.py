"""A trace opened for reading: lazy jobs, what was read, and what had to be assumed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dagsim.errors import ModelError, TraceError
from dagsim.model import Cluster, Job
from dagsim.traces.options import TraceOptions
from dagsim.traces.reader import Downtime, Reader
from dagsim.traces.report import ReadReport
from dagsim.traces.source import Source
from dagsim.workload.arrays import JobArrays

__all__ = ["Trace", "shifted"]


_COLUMNS_FROM_B = 1 << 18
"""Smaller files hold fewer tasks than the compiled engine pays for, even compressed."""
_COLUMNS_TO_B = 1 << 31
"""Larger files may not fit into memory as a whole; rows are streamed."""
_KEPT: dict[Any, tuple[JobArrays | None, ReadReport, dict[str, Any]]] = {}
"""The last large trace that was read: a cluster is sized to it, and then it is played, perhaps by several policies."""


class Trace:
    """One trace through one reader. Nothing is read until ``jobs`` is iterated; ``report`` then fills."""

    def __init__(self, source: Source, reader: Reader, options: TraceOptions, *, full_report: bool = False) -> None:
        self.source = source
        self.options = options
        self.report = ReadReport(strict=options.strict, full=full_report)
        """What the last call of ``jobs`` read so far."""
        self.meta: dict[str, Any] = {}
        """``origin_s``: when the first kept job arrived on the trace's own clock (once it is read)."""
        self._reader = reader
        self._full = full_report

    @property
    def format(self) -> str:
        """The name of the format."""
        return self._reader.name

    @property
    def assumptions(self) -> dict[str, str]:
        """Assumptions about what the trace does not say."""
        return self._reader.assumptions(self.source, self.options)

    def cluster(self) -> Cluster | None:
        """The trace's own machines, or ``None`` where it lists none."""
        return self._reader.cluster(self.source, self.options)

    def downtimes(self) -> tuple[Downtime, ...]:
        """The times when nodes of ``cluster()`` are not there, on the clock of the jobs: known once the first job was
        read.

        Raises:
            TraceError: No job was read yet, or the trace's list of machines cannot be read.
        """
        if "origin_s" not in self.meta:
            raise TraceError(
                f"{self.source}: the times of its machines count from the first job, which is not read yet"
            )
        origin, scale = self.meta["origin_s"], self.options.time_scale
        moved = [
            Downtime(node, max(0.0, (start - origin) * scale), (end - origin) * scale)
            for node, start, end in self._reader.downtimes(self.source, self.options)
        ]
        return tuple([downtime for downtime in moved if downtime.start_s < downtime.end_s])

    def jobs(self) -> Iterator[Job]:
        """The jobs of the window in order of arrival, the first at 0 s. Each call reads anew, with a new ``report``.

        Raises:
            TraceError: The file cannot be read, has no job to keep, or a row would be dropped in strict mode.
        """
        self.report = ReadReport(strict=self.options.strict, full=self._full)
        return self._windowed(self.report)

    def is_large(self) -> bool:
        """True if its format may be read as columns, and the file is large enough, but no larger than memory may be."""
        own = getattr(type(self._reader), "arrays", Reader.arrays)  # other packages' readers may lack it
        return own is not Reader.arrays and _COLUMNS_FROM_B <= self.source.size_bytes() <= _COLUMNS_TO_B

    def arrays_if_large(self) -> JobArrays | None:
        """``arrays`` of a large file, nothing of others. The last one is kept for whoever asks again.

        Raises:
            TraceError: As ``jobs``.
        """
        if not self.is_large():
            return None
        stamp = [(file.path, file.path.stat().st_mtime_ns, file.size_bytes()) for file in self.source.files]
        key = (self.format, self.options, self._full, tuple(stamp))
        if key not in _KEPT:
            _KEPT.clear()
            arrays = self.arrays()
            _KEPT[key] = arrays, self.report, self.meta
        arrays, report, meta = _KEPT[key]
        if arrays is not None:
            self.report, self.meta = report, meta
        return arrays

    def arrays(self) -> JobArrays | None:
        """The jobs that ``jobs`` gives, as columns, where the format is read so; ``report`` fills likewise.

        Raises:
            TraceError: As ``jobs``.
        """
        options, report = self.options, ReadReport(strict=self.options.strict, full=self._full)
        most = None if options.limit is None else options.start + options.limit
        read = self._reader.arrays(self.source, options, report, most)
        if read is None:
            return None
        self.report = report
        kept = read.between(options.start, len(read))
        if kept is not read:
            beside = (report.kept - read.tasks) // max(len(read), 1)  # rows of a job that are no tasks
            before, report.kept = report.kept, kept.tasks + beside * len(kept)
            report.skip("before the window", before - report.kept)
        report.jobs = len(kept)
        if not len(kept):
            raise TraceError(f"{self.source}: no job to keep ({report})")
        if report.open:
            report.skip("after the window", report.open)
        origin = self.meta["origin_s"] = float(kept.arrival_s[0])
        moved = kept.shifted(origin, options.time_scale)
        for place in np.flatnonzero(~np.isfinite(moved.arrival_s))[:1].tolist():
            try:
                next(moved.between(place, place + 1).jobs())
            except ModelError as error:
                raise self._too_large(error) from None
        return moved

    def _windowed(self, report: ReadReport) -> Iterator[Job]:
        start, limit, scale = self.options.start, self.options.limit, self.options.time_scale
        origin, kept, last = None, 0, 0.0
        for index, job in enumerate(self._reader.read(self.source, self.options, report)):
            rows, kept = report.kept - kept, report.kept
            if index < start:
                report.skip("before the window", rows)
                kept = report.kept = report.kept - rows
                continue
            if origin is None:
                origin = last = self.meta["origin_s"] = job.arrival_s
            assert job.arrival_s >= last, f"{self.format}: job {job.id!r} out of order"
            last = job.arrival_s
            report.jobs += 1
            try:
                moved = shifted(job, origin, scale)
            except ModelError as error:
                raise self._too_large(error) from None
            yield moved
            if limit is not None and report.jobs >= limit:
                break
        if report.jobs == 0:
            raise TraceError(f"{self.source}: no job to keep ({report})")
        if report.open:
            report.skip("after the window", report.open)

    def _too_large(self, error: ModelError) -> TraceError:
        return TraceError(f"{self.source}: a time scale of {self.options.time_scale!r} is too large for it ({error})")


def shifted(job: Job, origin: float, scale: float) -> Job:
    """The job with its times counted from ``origin`` and stretched by ``scale``; a deadline keeps its distance.

    Under a scale other than 1 it is no longer the cluster that was observed, so that observations are left out.
    """
    arrival = (job.arrival_s - origin) * scale
    if arrival == job.arrival_s and scale == 1:
        return job
    deadline = None if job.deadline_s is None else arrival + (job.deadline_s - job.arrival_s)
    started, eligible = (
        None if each is None or scale != 1 else max(arrival, each - origin)  # rounding must not put it before
        for each in (job.observed_start_s, job.eligible_s)
    )
    nodes = job.observed_nodes if scale == 1 else ()
    submitted = (job.user, job.account, job.partition, job.qos)
    seen = (started, eligible, nodes)
    return Job(job.id, job.graph, arrival, job.priority, job.tenant, deadline, job.weight, *seen, *submitted)
