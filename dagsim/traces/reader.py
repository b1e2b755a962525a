"""The interface of trace readers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from dagsim.model import Cluster, Job
from dagsim.traces.options import TraceOptions
from dagsim.traces.report import ReadReport
from dagsim.traces.rows import Block
from dagsim.traces.source import Source
from dagsim.workload.arrays import JobArrays

__all__ = ["Downtime", "Reader"]


_BLOCK = 1024
"""Jobs of a block."""


class Downtime(NamedTuple):
    """The absence of a node of the trace's cluster from ``start_s`` to ``end_s``. The node is its place in it;
    ``end_s`` may be ``inf``."""

    node: int
    start_s: float
    end_s: float


class Reader(Protocol):
    """Turns one trace format into jobs. A reader holds no state: everything it needs is handed to ``read``."""

    name: ClassVar[str]
    """What ``--format`` calls it."""
    summary: ClassVar[str]
    """One line for the list of formats."""
    uses: ClassVar[frozenset[str]] = frozenset()
    """The ``TraceOptions`` it heeds beside ``COMMON_OPTIONS``."""

    def recognises(self, source: Source) -> bool:
        """True if the source is of this format, by names and first lines. Must not be true of another's format."""
        ...

    def nearly(self, source: Source) -> str | None:
        """The reason why the source is not quite of this format, and which command would help; nothing if it is of
        another."""
        return None

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        """The jobs in order of arrival, each made when asked for.

        ``arrival_s`` is in the trace's own clock, at least 0; the window, the origin and the time scale are applied by
        the caller. Work is in seconds. Rows read are counted in ``report.rows``; a job's rows are added to
        ``report.kept`` right before it is yielded; every other row is dropped or skipped with a reason.

        Raises:
            TraceError: The file cannot be read at all, or a row would be dropped in strict mode.
        """
        ...

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[Block]:
        """The first ``most`` jobs (all, if ``None``) in columns, block by block; what ``Trace`` asks for.

        A reader of a table fills columns itself; by default they are made of the jobs of ``read``.
        """
        jobs = islice(self.read(source, options, report), most)
        while True:
            batch, rows, before = [], [], report.kept
            for job in islice(jobs, _BLOCK):
                batch.append(job)
                rows.append(report.kept - before)
                before = report.kept
            if not batch:
                return
            yield Block(JobArrays.of(batch), np.array(rows, np.int64))

    def cluster(self, source: Source, options: TraceOptions) -> Cluster | None:
        """The trace's own machines, where it lists them."""
        return None

    def downtimes(self, source: Source, options: TraceOptions) -> tuple[Downtime, ...]:
        """The times when nodes of ``cluster`` come later, leave or are away. They are on the clock of ``read``."""
        return ()

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        """Assumptions about what the trace does not say: a word for the question, a sentence for the answer."""
        return {}
