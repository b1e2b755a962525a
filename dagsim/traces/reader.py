"""The interface of trace readers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, NamedTuple, Protocol
from zoneinfo import ZoneInfo

import numpy as np

from dagsim.model import Cluster, Job
from dagsim.traces.report import ReadReport
from dagsim.traces.source import Source
from dagsim.traces.trace_options import TraceOptions
from dagsim.workload.arrays import JobArrays, Labels

_BLOCK = 1024
"""Number of jobs per block."""


class Downtime(NamedTuple):
    """A period from ``start_s`` to ``end_s`` (which may be ``inf``) in which a node of the trace's
    cluster is absent. ``node`` is the node's index in the cluster.
    """

    node: int
    start_s: float
    end_s: float


class WaitingJob(NamedTuple):
    """A waiting job or array, as shown in the listing of a queue."""

    name: str
    """The name of its submission: the array's name, or else its own."""
    reason: str
    start_s: float | None = None
    """The scheduler's estimate of the start, if it has one."""
    user: str = ""
    partition: str = ""
    after: tuple[str, ...] = ()
    """The jobs and arrays for which it still waits."""
    one_of: bool = False
    """True if one of these is enough."""
    priority: float | None = None
    """Its priority as the scheduler computed it, if the listing has that."""


class Unstarted(NamedTuple):
    """A job that left the queue at ``until_s`` without having started, or ``inf`` if the log ends while
    it waits.
    """

    job: Job
    until_s: float


@dataclass(frozen=True, slots=True)
class Submissions:
    """The n submissions of a log, each apart from what became of it.

    ``jobs`` holds only what was known when each was submitted: it runs to its time limit. All other
    times are seconds on the log's own clock; ``jobs`` begin ``origin_s`` later.
    """

    jobs: JobArrays
    origin_s: float
    start_s: np.ndarray
    """(n,) float64, NaN for a job that never started."""
    end_s: np.ndarray
    """(n,) float64: end of the run or of the wait; NaN if unknown."""
    eligible_s: np.ndarray
    """(n,) float64: when the job could start; NaN if it never could."""
    begin_s: np.ndarray
    """(n,) float64: earliest start that the user requested."""
    parents: Sequence[tuple[str, ...]]
    """Ids of the jobs or arrays that each job waits for."""
    nodes: Labels
    """Names of the nodes on which each job ran."""
    array: np.ndarray
    """(n,) object: the array of each job, else its own id."""
    billing: np.ndarray
    """(n,) float64: what the site charges per second of a run; NaN if the log does not state it."""
    requeued: np.ndarray
    """(n,) bool: True for a run after which its job waited again, which is a later entry."""


class Reader(Protocol):
    """The interface of a reader, which converts one trace format into jobs. A reader is stateless,
    because ``read`` receives everything that it needs.
    """

    name: ClassVar[str]
    """Name of the format for ``--format``."""
    summary: ClassVar[str]
    """One line for the list of formats."""
    uses: ClassVar[frozenset[str]] = frozenset()
    """The ``TraceOptions`` that it supports besides ``COMMON_OPTIONS``."""

    whole_folders: ClassVar[bool] = False
    """True if it accepts a folder because of some of its files, whatever the others are."""

    def recognises(self, source: Source) -> bool:
        """Return True if the source has this format, judging by names and first lines. The result must
        be False for sources in any other format.
        """

    def nearly(self, source: Source) -> str | None:
        """Return why the source almost matches this format but does not, and the command that would
        help, or else None.
        """
        return None

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        """Yield the jobs in order of arrival, lazily. A reader defines either ``read`` or
        ``blocks``, and the other one is derived from it.

        ``arrival_s`` is on the trace's own clock and at least 0; the caller applies the window, the
        origin and the time scale. Work is in seconds. Rows read are counted in ``report.rows``. A
        job's rows are added to ``report.kept`` right before the job is yielded, and every other row
        is dropped or skipped with a reason.

        Raises:
            TraceError: The file cannot be read at all, or a row would be dropped in strict mode.
        """
        for block in self.blocks(source, options, report, None):
            yield from block.jobs.jobs()

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[Block]:
        """Yield the first ``most`` jobs (all if ``None``) as columns, in blocks. ``Trace`` calls this
        method.

        Readers of tables define this method and fill the columns directly.
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
        """Return the trace's own machines, if it lists them."""
        return None

    def downtimes(self, source: Source, options: TraceOptions) -> tuple[Downtime, ...]:
        """Return the periods in which nodes of ``cluster`` have not joined yet, have left or are away,
        on the clock of ``read``.
        """
        return ()

    def begins_s(self, source: Source, options: TraceOptions) -> float | None:
        """Return the time at which a run of the jobs begins, on the clock of ``read``, if the source
        describes the jobs that are running and waiting at that time, or ``None`` for logs, in which a
        run may begin anywhere.
        """
        return None

    def waiting(self, source: Source, zone: ZoneInfo | None = None) -> Iterable[WaitingJob]:
        """Return what the listing of a queue states about waiting jobs; empty for logs. ``zone`` is
        the time zone of dates in text.
        """
        return ()

    def unstarted(self, source: Source, options: TraceOptions) -> Iterable[Unstarted]:
        """Return the jobs that were in the queue and never started, on the clock of ``read``; ``read``
        leaves them out.
        """
        return ()

    def submissions(self, source: Source, options: TraceOptions) -> Submissions | None:
        """Return every submission apart from what became of it, or None if the format does not
        state what was requested.
        """
        return None

    def waits_s(self, source: Source) -> dict[str, float]:
        """Return the wait of each job by job id, for logs that state the wait but not the start."""
        return {}

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        """Return the assumptions made where the trace does not state something. Each entry maps a
        keyword for the question to a sentence that answers it.
        """
        return {}


class Block(NamedTuple):
    """Jobs in order of arrival, and the number of rows of each."""

    jobs: JobArrays
    rows: np.ndarray  # (J,) int64
