"""A trace that is open for reading: the jobs, which are read lazily, a report on what was read, and
the reader's assumptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np

from dagsim.errors import TraceError
from dagsim.freed_memory import return_freed_memory
from dagsim.model import Cluster, Job
from dagsim.traces.reader import Downtime, Reader, Unstarted
from dagsim.traces.report import ReadReport
from dagsim.traces.source import Source
from dagsim.traces.trace_options import TraceOptions
from dagsim.workload.arrays import JobArrays

_COLUMNS_FROM_B = 1 << 18
"""Minimum file size for the compiled engine, in bytes. Smaller files, even if compressed, contain
too few tasks to make it worthwhile.
"""
_COLUMNS_TO_B = 1 << 31
"""Maximum size of a file that is held in memory, in bytes. Larger files are streamed row by row."""
_KEPT: dict[Any, tuple[JobArrays, ReadReport, dict[str, Any]]] = {}
"""The jobs of the last large trace that was read. They are used first to size a cluster, and then
for one or more replays.
"""


class Watcher(Protocol):
    """An observer of a trace. Each time the trace is read, it receives all jobs as they are passed
    on.
    """

    def begin(self) -> None:
        """Prepare for a new reading of the trace, which begins with its first job."""

    def add(self, jobs: JobArrays) -> None:
        """Receive the next jobs."""


def _unchanged(jobs: JobArrays) -> JobArrays:
    return jobs


class Trace:
    """A trace and its reader. Nothing is read until ``jobs`` is iterated, which also fills
    ``report``.
    """

    def __init__(self, source: Source, reader: Reader, options: TraceOptions, *, full_report: bool = False) -> None:
        self.source = source
        self.options = options
        self.report = ReadReport(strict=options.strict, full=full_report)
        """The report of the last call of ``jobs``, up to the current position."""
        self.meta: dict[str, Any] = {}
        """The arrival of the first kept job on the trace's own clock, under ``origin_s``, once this
        job has been read.
        """
        self.change: Callable[[JobArrays], JobArrays] = _unchanged
        """A function that changes all jobs that are read."""
        self.watcher: Watcher | None = None
        """An observer that receives the changed jobs."""
        self._reader = reader
        self._full = full_report

    @property
    def format(self) -> str:
        """Name of the format."""
        return self._reader.name

    @property
    def assumptions(self) -> dict[str, str]:
        """The assumptions that the reader makes where the trace contains no information."""
        return self._reader.assumptions(self.source, self.options)

    @cached_property
    def begins_s(self) -> float | None:
        """The time of a snapshot, on the trace's own clock, or None. A simulation begins at this
        time if the trace states which jobs are then running and waiting.
        """
        stated = getattr(self._reader, "begins_s", None)  # plug-ins may lack this attribute
        return None if stated is None else stated(self.source, self.options)

    def cluster(self) -> Cluster | None:
        """Return the trace's own machines, or ``None`` if the trace lists none."""
        return self._reader.cluster(self.source, self.options)

    def unstarted(self) -> Iterator[Unstarted]:
        """Yield the jobs that were in the queue but never started. Their times are on the clock of
        the jobs, so the first job must have been read before. This reads the trace again.
        """
        find = getattr(self._reader, "unstarted", None)  # Plug-ins may lack this method.
        if find is None or self.options.time_scale != 1:
            return
        origin = self.meta["origin_s"]
        for job, until_s in find(self.source, self.options):
            begins_s = max(job.arrival_s, origin)
            jobs = JobArrays.of([replace(job, arrival_s=begins_s, eligible_s=max(job.eligible_s or 0.0, begins_s))])
            yield Unstarted(next(iter(self.change(jobs.shifted(origin, 1.0)).jobs())), until_s - origin)

    def downtimes(self) -> tuple[Downtime, ...]:
        """Return the periods during which nodes of ``cluster()`` are absent, on the clock of the
        jobs. The first job must have been read before.

        Raises:
            TraceError: No job has been read yet, or the trace's list of machines cannot be read.
        """
        if "origin_s" not in self.meta:
            raise TraceError(
                f"{self.source}: the times of its machines count from the first job, which has not been read yet"
            )
        origin, scale = self.meta["origin_s"], self.options.time_scale
        moved = [
            Downtime(node, max(0.0, (start - origin) * scale), (end - origin) * scale)
            for node, start, end in self._reader.downtimes(self.source, self.options)
        ]
        return tuple([downtime for downtime in moved if downtime.start_s < downtime.end_s])

    def jobs(self) -> Iterator[Job]:
        """Yield the jobs in the window in order of arrival, with the first at 0 s.

        Each call reads the trace again, one block at a time, with a new ``report``.

        Raises:
            TraceError: The file cannot be read, there is no job to keep, or a row would be dropped
                in strict mode.
        """
        self._begin()
        return (job for jobs in self._windowed(self.report) for job in self._given(jobs).jobs())

    def is_large(self) -> bool:
        """Return True if the file is large enough for the compiled engine and fits into memory."""
        return _COLUMNS_FROM_B <= self.source.size_bytes() <= _COLUMNS_TO_B

    def is_streamed(self) -> bool:
        """Return True if the file is too large to be held in memory."""
        return self.source.size_bytes() > _COLUMNS_TO_B

    def arrays_if_large(self) -> JobArrays | None:
        """Return ``arrays`` if the file is large, and otherwise ``None``. The last result is
        cached.

        Raises:
            TraceError: As in ``jobs``.
        """
        if not self.is_large():
            return None
        stamp = [(file.path, file.path.stat().st_mtime_ns, file.size_bytes()) for file in self.source.files]
        key = (self.format, self.options, self._full, tuple(stamp))
        if key not in _KEPT:
            _KEPT.clear()
            arrays = self._joined()
            return_freed_memory()
            _KEPT[key] = arrays, self.report, self.meta
        if self.watcher is not None:
            self.watcher.begin()
        arrays, self.report, self.meta = _KEPT[key]
        return self._given(arrays)

    def unscaled(self) -> JobArrays:
        """Return all jobs as columns with their original times, regardless of the time scale. This
        also fills ``report``.

        Raises:
            TraceError: As in ``jobs``.
        """
        if self.options.time_scale == 1 and (arrays := self.arrays_if_large()) is not None:
            return arrays
        return self._given(self._joined(1.0))

    def arrays(self) -> JobArrays:
        """Return, as columns, all jobs that ``jobs`` would yield. This also fills ``report``.

        Raises:
            TraceError: As in ``jobs``.
        """
        return self._given(self._joined())

    def _begin(self) -> None:
        """Prepare to read the trace again."""
        self.report = ReadReport(strict=self.options.strict, full=self._full)
        if self.watcher is not None:
            self.watcher.begin()

    def _given(self, jobs: JobArrays) -> JobArrays:
        """Apply ``change`` to the jobs, and pass them to the watcher."""
        jobs = self.change(jobs)
        if self.watcher is not None:
            self.watcher.add(jobs)
        return jobs

    def _joined(self, scale: float | None = None) -> JobArrays:
        self._begin()
        return JobArrays.joined(list(self._windowed(self.report, scale)))

    def _windowed(self, report: ReadReport, scale: float | None = None) -> Iterator[JobArrays]:
        """Yield the jobs in the window block by block, with times relative to the origin."""
        start, limit = self.options.start, self.options.limit
        scale = self.options.time_scale if scale is None else scale
        origin, last, passed = None, 0.0, 0
        # Plug-ins may lack this method.
        read = getattr(self._reader, "blocks", None) or partial(Reader.blocks, self._reader)
        for block in read(self.source, self.options, report, None if limit is None else start + limit):
            before = min(max(start - passed, 0), len(block.jobs))
            passed += len(block.jobs)
            if before:
                rows = int(block.rows[:before].sum())
                report.kept -= rows
                report.skip("before the window", rows)
            jobs = block.jobs.between(before, len(block.jobs))
            if not len(jobs):
                continue
            if origin is None:
                origin = last = self.meta["origin_s"] = float(jobs.arrival_s[0])
            assert (np.diff(jobs.arrival_s, prepend=last) >= 0).all(), f"{self.format}: jobs out of order"
            last = float(jobs.arrival_s[-1])
            report.jobs += len(jobs)
            yield self._moved(jobs, origin, scale)
        if report.jobs == 0:
            first = next((detail for detail in report.details if ": dropped, " in detail), "")
            place, _, why = first.partition(": dropped, ")
            see = f"; the first dropped row is {place}" + (f" ({detail})" if (detail := why.partition(": ")[2]) else "")
            raise TraceError(f"{self.source}: the trace has no usable jobs ({report}){see if place else ''}")
        if report.open:
            report.skip("after the window", report.open)

    def _moved(self, jobs: JobArrays, origin: float, scale: float) -> JobArrays:
        moved = jobs.shifted(origin, scale)
        for _, error in moved.faults(~np.isfinite(moved.arrival_s)):
            raise TraceError(
                f"{self.source}: the time scale {self.options.time_scale!r} is too large for this trace ({error})"
            )
        return moved
