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
"""Number of jobs in a block."""


class Downtime(NamedTuple):
    """A period during which a node of the trace's cluster is absent, from ``start_s`` to ``end_s``
    (which may be ``inf``). ``node`` is the index of the node in the cluster.
    """

    node: int
    start_s: float
    end_s: float


class WaitingJob(NamedTuple):
    """A waiting job or array, as shown in a queue listing."""

    name: str
    """The name of the submission: the name of the array or, outside an array, of the job."""
    reason: str
    start_s: float | None = None
    """The start that the scheduler estimates, if the listing contains it."""
    user: str = ""
    partition: str = ""
    after: tuple[str, ...] = ()
    """The jobs and arrays for which the job is still waiting."""
    one_of: bool = False
    """True if the job only has to wait for one of them."""
    priority: float | None = None
    """The priority that the scheduler computed, if the listing contains it."""


class Unstarted(NamedTuple):
    """A job that left the queue at ``until_s`` without having started. ``until_s`` is ``inf`` if
    the job was still waiting at the end of the log.
    """

    job: Job
    until_s: float


@dataclass(frozen=True, slots=True)
class Submissions:
    """The n submissions in a log, without the outcomes of the jobs.

    ``jobs`` contains only what was known when each job was submitted, so each job runs until its
    time limit. The times in ``jobs`` are relative to ``origin_s``. All other times are in seconds
    on the log's own clock.
    """

    jobs: JobArrays
    origin_s: float
    start_s: np.ndarray
    """(n,) float64: start of the run, NaN for a job that never started."""
    end_s: np.ndarray
    """(n,) float64: end of the run or of the wait, or NaN if unknown."""
    eligible_s: np.ndarray
    """(n,) float64: time from which the job could start, or NaN if it never could."""
    begin_s: np.ndarray
    """(n,) float64: earliest start that the user requested."""
    parents: Sequence[tuple[str, ...]]
    """The ids of the jobs or arrays for which each job waits."""
    nodes: Labels
    """The names of the nodes on which each job ran."""
    array: np.ndarray
    """(n,) object: the array to which each job belongs, or else the job's own id."""
    billing: np.ndarray
    """(n,) float64: what the site charges per second of a run, or NaN if the log does not state
    it.
    """
    requeued: np.ndarray
    """(n,) bool: True for a run after which the job waited again. The second wait is a separate,
    later entry.
    """


class Reader(Protocol):
    """The interface of a reader, which converts traces in one format to jobs. A reader needs no
    state, because ``read`` receives everything that it needs. Every trace has its own reader, which
    may keep what it has read.
    """

    name: ClassVar[str]
    """Name of the format for ``--format``."""
    summary: ClassVar[str]
    """A line that describes the format in the list of formats."""
    uses: ClassVar[frozenset[str]] = frozenset()
    """The ``TraceOptions`` that the reader supports in addition to ``COMMON_OPTIONS``."""

    whole_folders: ClassVar[bool] = False
    """True if the reader accepts a folder because of some of its files, whatever the other files
    are.
    """

    def recognises(self, source: Source) -> bool:
        """Return True if the source has this format, judging by names and first lines. The result must
        be False for sources in any other format.
        """

    def nearly(self, source: Source) -> str | None:
        """If the source almost has this format, return the reason why it cannot be read, with a
        command that would help. Otherwise, return None.
        """
        return None

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        """Yield the jobs lazily, in order of arrival. A reader has to define only ``read`` or
        ``blocks``. The base class derives the other method from it.

        ``arrival_s`` is on the trace's own clock and at least 0. The caller applies the window, the
        origin and the time scale. Work is in seconds. ``report.rows`` counts the rows that were
        read. Right before the reader yields a job, it adds the job's rows to ``report.kept``. It
        drops or skips every other row, with a reason.

        Raises:
            TraceError: The file cannot be read at all, or a row would be dropped in strict mode.
        """
        for block in self.blocks(source, options, report, None):
            yield from block.jobs.jobs()

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[JobBlock]:
        """Yield the first ``most`` jobs (default: all) as columns, in blocks. ``Trace`` calls this
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
            yield JobBlock(JobArrays.of(batch), np.array(rows, np.int64))

    def cluster(self, source: Source, options: TraceOptions) -> Cluster | None:
        """Return the trace's own machines, or None if it does not list them."""
        return None

    def downtimes(self, source: Source, options: TraceOptions) -> tuple[Downtime, ...]:
        """Return the periods during which nodes of ``cluster`` are absent, on the clock of
        ``read``. This includes the time before a node first joins and the time after it leaves.
        """
        return ()

    def begins_s(self, source: Source, options: TraceOptions) -> float | None:
        """If the source is a snapshot of the running and waiting jobs, return the time of the
        snapshot on the clock of ``read``. A simulation begins at that time. Return ``None`` for
        logs, in which a simulation may begin at any time.
        """
        return None

    def waiting(self, source: Source, zone: ZoneInfo | None = None) -> Iterable[WaitingJob]:
        """Return the waiting jobs in a queue listing. The result is empty for logs. ``zone`` is the
        time zone of dates without an offset.
        """
        return ()

    def unstarted(self, source: Source, options: TraceOptions) -> Iterable[Unstarted]:
        """Return the jobs that were in the queue but never started, with times on the clock of
        ``read``. ``read`` leaves these jobs out.
        """
        return ()

    def submissions(self, source: Source, options: TraceOptions) -> Submissions | None:
        """Return every submission without its outcome, or None if the format does not state what
        was requested.
        """
        return None

    def waits_s(self, source: Source) -> dict[str, float]:
        """Return the wait of each job by its id. This is meant for logs that state the wait but not
        the start.
        """
        return {}

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        """Return the assumptions that the reader makes where the trace lacks information. The keys
        are keywords for the open questions, and the values are sentences with the assumed answers.
        """
        return {}


class JobBlock(NamedTuple):
    """Jobs in order of arrival, and the number of rows of each."""

    jobs: JobArrays
    rows: np.ndarray  # shape (J,), int64
