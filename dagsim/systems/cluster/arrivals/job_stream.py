"""The stream of jobs in one simulation of the GPU cluster, and the facts about the jobs that are
known afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import reduce
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from dagsim.errors import ModelError
from dagsim.model import Cluster, Job
from dagsim.systems.cluster.arrivals.arrived import ArrivedJobs
from dagsim.systems.cluster.arrivals.beginning import JobsAtBeginning
from dagsim.systems.cluster.arrivals.job_sources import HeldJobs, StoredJobs, source_of
from dagsim.systems.cluster.knowledge import Knowledge
from dagsim.systems.cluster.models.estimates import Estimates
from dagsim.systems.cluster.models.failures import Outages
from dagsim.systems.cluster.models.runtime import Runtime
from dagsim.workload.arrays import JobArrays
from dagsim.workload.load import Load, seconds_of

if TYPE_CHECKING:
    from dagsim.systems.cluster.audit.audit import Audit
    from dagsim.systems.cluster.audit.auditor import Auditor
    from dagsim.traces.reader import Unstarted
    from dagsim.traces.trace import Trace


class JobStream:
    """The jobs in one simulation, in order of arrival. They can be read once.

    ``jobs`` are a ``JobSource``, a list, or any iterable. ``ArrivedJobs`` counts them as they are
    read, so their load is only known afterwards (``facts``). For jobs in memory, it is computed
    when it is requested.
    """

    def __init__(
        self,
        jobs: Iterable[Job],
        cluster: Cluster,
        runtime: Runtime,
        trace: Trace | None = None,
        begins_s: float = 0.0,
        *,
        left: Iterable[Job] | None = None,
        whole: bool = False,
        auditor: Auditor | None = None,
    ) -> None:
        """Create a stream from jobs that have not been read yet.

        ``whole`` is True if a generator scaled the arrivals, so that the load refers to exactly the
        time between the first and the last arrival. For a log, it is unknown when the next job
        after the last one would have arrived. ``auditor`` checks the jobs of a trace while they are
        read.
        """
        self._auditor = auditor
        self._change: Callable[[Job], Job] | None = None
        self._makes_elastic = False
        self._trace = trace
        self._source = source_of(jobs, begins_s, left)
        self._cluster, self._runtime = cluster, runtime
        self._arrived = ArrivedJobs(cluster, runtime)
        self._arrived.meter.arrivals.whole = whole

    # The jobs

    def __iter__(self) -> Iterator[Job]:
        jobs = self._arrived.counting(self._source) if self._source.in_memory is None else iter(self._source)
        return jobs if self._change is None else map(self._change, jobs)

    def change_by(self, changes: Sequence[Callable[[Job], Job]], *, elastic: bool) -> None:
        """Apply changes to each job before it arrives. The load does not include the changes.
        ``elastic`` states whether a change makes tasks elastic.
        """
        self._change = lambda job: reduce(lambda changed, change: change(changed), changes, job)
        self._makes_elastic = elastic

    def submitted(self) -> JobArrays:
        """Return all jobs as columns, as they were submitted. If the jobs are iterated over later,
        job objects are created from these columns.

        Raises:
            TraceError: The trace cannot be read.
        """
        return self._held().arrays

    def arrays(self) -> JobArrays:
        """Return, as columns, all jobs that an iteration would yield.

        Raises:
            TraceError: The trace cannot be read.
            ModelError: A task is elastic.
        """
        arrays = self.submitted()
        if self.elastic:
            raise ModelError("elastic tasks have no columns")
        if self._change is None:
            return arrays
        return replace(JobArrays.of(list(map(self._change, self._source))), begins_s=self.begins_s)

    def _held(self) -> HeldJobs:
        """Read all jobs into memory."""
        self._source = held = self._source.held()
        return held

    def may_have(self, tasks: int) -> bool:
        """Return True if there are at least this many tasks, or if the jobs come from a large trace
        that has not been read yet. This creates no more jobs than necessary.
        """
        return self._source.may_have(tasks)

    @property
    def are_stored(self) -> bool:
        """True if the jobs are already columns, because they are generated or come from a window of
        a trace."""
        return isinstance(self._source, StoredJobs)

    @property
    def are_whole(self) -> bool:
        """True if a generator scaled the arrivals so that the offered load between the first and the
        last arrival is exactly the configured one.
        """
        return self._arrived.meter.arrivals.whole

    @property
    def may_depend(self) -> bool:
        """True if any of the jobs may have to wait for others."""
        return self._source.may_depend

    @property
    def elastic(self) -> bool:
        """True if the scenario makes tasks elastic, or if the jobs are in memory and any of their tasks
        is elastic.
        """
        held = self._source.in_memory
        return self._makes_elastic or (held is not None and held.any_elastic)

    @property
    def states_limits(self) -> bool:
        """True if any of the jobs states a time limit. This reads the first jobs of a trace. If
        none of these states a limit, it reads all jobs.

        Raises:
            TraceError: The trace cannot be read.
        """
        limited = self._source.states_limits()
        return bool(self._held().states_limits() if limited is None else limited)

    # The beginning, and the log from which the jobs come

    @property
    def begins_s(self) -> float:
        """The time at which a simulation of the jobs begins. Jobs that arrived earlier are in the
        system at that time.
        """
        return self._source.begins_s

    @property
    def left(self) -> Iterable[Job] | None:
        """The jobs that had left the system before the beginning, with their runs, or None if they
        are not known.
        """
        return self._source.left

    def at_beginning(self) -> JobsAtBeginning:
        """Return the numbers of jobs in the system at the beginning of the simulation.

        Raises:
            TraceError: The trace cannot be read.
        """
        return JobsAtBeginning.of(self.submitted(), self._cluster)

    def unstarted(self) -> Iterable[Unstarted]:
        """Return the jobs that were in the queue of the log but never started."""
        return () if self._trace is None else self._trace.unstarted()

    def outages(self) -> Outages:
        """Return the periods in which the trace's own machines were absent. The result is empty if
        the jobs are a window. This reads the first job, because the clock starts when it arrives.

        Raises:
            TraceError: The trace cannot be read.
        """
        if self._trace is None:
            return Outages(())
        self._source.read_first()
        begins_s = self.begins_s
        return Outages(
            tuple(
                [
                    (node, max(start_s - begins_s, 0.0), end_s - begins_s)
                    for node, start_s, end_s in self._trace.downtimes()
                    if end_s > begins_s
                ]
            )
        )

    def origin_s(self) -> float | None:
        """Return the time in the log that corresponds to 0 s. For a trace, this is the arrival of
        the first job on the trace's clock; otherwise, it is 0. Return None if arrivals are scaled
        or the jobs are a window, because the times in the log then do not apply. This reads the
        first job.

        Raises:
            TraceError: The trace cannot be read.
        """
        if self._trace is None:
            return None if self.are_stored else 0.0
        return self.log_origin_s() if self._trace.options.time_scale == 1 else None

    def log_origin_s(self) -> float:
        """Return the arrival of the first job in the trace, on the trace's clock. This reads the
        first job.

        Raises:
            TraceError: The trace cannot be read.
        """
        assert self._trace is not None
        if "origin_s" not in self._trace.meta:
            self._source.read_first()
        origin_s: float = self._trace.meta["origin_s"]
        return origin_s

    # What is known about the jobs that have arrived

    def measure(self, arrays: JobArrays, seconds: np.ndarray) -> None:
        """Record that all jobs have arrived. ``seconds`` has the shape (tasks, GPU types) and
        contains how long an instance of each task takes.
        """
        self._arrived.add_arrays(arrays, seconds)

    @property
    def load(self) -> Load:
        """The load of the jobs that have arrived or, for stored jobs and lists, the load of all
        jobs.
        """
        arrivals = self._arrived.meter.arrivals
        if not arrivals.jobs and self._source.in_memory is not None:
            arrays = self.submitted()
            self.measure(arrays, seconds_of(arrays, self._runtime, self._cluster.gpu_types))
        arrivals.begins_s = self.begins_s or None
        return self._arrived.meter.load()

    def observed(self) -> tuple[np.ndarray, np.ndarray, list[str]] | None:
        """For each arrived job, its recorded start, the time at which it became eligible (both NaN
        if unknown), and its partition. The value is ``None`` if no start is known.
        """
        return self._arrived.observed()

    def knowledge(self, estimates: Estimates) -> Knowledge:
        """Return what policies know about run times. For a list, this covers all jobs, and
        otherwise the jobs that have arrived.
        """
        held = self._source.in_memory
        jobs, limited = (len(self._arrived), self._arrived.limited) if held is None else held.counts
        return Knowledge(estimates.kind, estimates.sigma, jobs, limited, self._auditor is not None)

    def audit(self) -> Audit | None:
        """Return the contradictions in the jobs read so far, or None if the jobs do not come from a
        trace."""
        if self._auditor is None:
            return None
        return self._auditor.audit(None if self._trace is None else self._trace.report)

    def facts(self) -> dict[str, Any]:
        """Return facts about the jobs that have arrived, as plain values."""
        load = self.load
        audit = self.audit()
        facts: dict[str, Any] = {} if audit is None else {"audit": audit.to_dict()}
        facts |= {
            "cluster": str(self._cluster),
            "jobs": load.jobs,
            "span_s": load.span_s,
            # a single job is not a stream of arrivals, so it offers no load
            "gpu_load": load.gpu_load if isfinite(load.gpu_load) and load.jobs > 1 else None,
            "cpu_load": load.cpu_load if isfinite(load.cpu_load) and load.jobs > 1 else None,
            "warning": load.warning,
        }
        if len(load.by_types) > 1:
            facts["gpu_load_by_types"] = [str(part) for part in load.by_types]
        if self.begins_s:
            facts["state"] = asdict(self.at_beginning())
        if (trace := self._trace) is not None:
            facts["trace"] = {
                "format": trace.format,
                "read": str(trace.report),
                "options": asdict(trace.options),
                "assumptions": trace.assumptions,
                **trace.report.to_dict(),
            }
        return facts
