"""The stream of jobs in one simulation of the GPU cluster, and the facts about the jobs that are
known afterwards.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import reduce
from itertools import tee
from math import isfinite, nan
from typing import TYPE_CHECKING, Any

import numpy as np

from dagsim.errors import ModelError
from dagsim.model import Cluster, Job
from dagsim.model.arithmetic import whole_sum
from dagsim.systems.cluster.arrivals.job_sources import HeldJobs, StoredJobs, source_of
from dagsim.systems.cluster.knowledge import Knowledge, has_limit
from dagsim.systems.cluster.models.estimates import Estimates
from dagsim.systems.cluster.models.failures import Outages
from dagsim.systems.cluster.models.runtime import Runtime
from dagsim.workload.arrays import JobArrays
from dagsim.workload.load import Load, LoadMeter, seconds_of

if TYPE_CHECKING:
    from dagsim.systems.cluster.audit.audit import Audit
    from dagsim.systems.cluster.audit.auditor import Auditor
    from dagsim.traces.reader import Unstarted
    from dagsim.traces.trace import Trace


class JobsToCome:
    """The jobs that have not arrived yet. They are read one by one when they are needed."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._source = iter(jobs)
        self._next: Job | None = None
        self.any_left = True
        """False once the last job has been taken and another one was requested."""

    def peek(self) -> Job | None:
        """Return the next job without removing it, or None if there is none."""
        if self._next is None and self.any_left:
            self._next = next(self._source, None)
            self.any_left = self._next is not None
        return self._next

    def take(self) -> None:
        """Remove the next job. The one after it becomes the next job."""
        self._next = None

    def copy(self) -> JobsToCome:
        """Return a copy that shares the jobs. Each job is read only once, by the copy that needs it
        first.
        """
        twin = JobsToCome(())
        self._source, twin._source = tee(self._source)
        twin._next, twin.any_left = self._next, self.any_left
        return twin


_NAMED = 3
"""Maximum number of unknown nodes that a message names."""


class JobStream:
    """The jobs in one simulation, in order of arrival. They can be read once.

    ``jobs`` are a source, a list, or any iterable. The load of the jobs is known only after they
    have been read (``facts``). For jobs in memory, it is computed when it is requested.
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
        self._meter = LoadMeter(cluster, runtime)
        self._meter.arrivals.whole = whole
        self._started_s: array[float] | np.ndarray = array("d")
        self._eligible_s: array[float] | np.ndarray = array("d")
        self._partitions: list[str] = []
        self._limited = 0

    def __iter__(self) -> Iterator[Job]:
        jobs = self._metered(self._source) if self._source.in_memory is None else iter(self._source)
        return jobs if self._change is None else map(self._change, jobs)

    def change_by(self, changes: Sequence[Callable[[Job], Job]], *, elastic: bool) -> None:
        """Apply changes to each job before it arrives. The load does not include the changes.
        ``elastic`` states whether a change makes tasks elastic.
        """
        self._change = lambda job: reduce(lambda changed, change: change(changed), changes, job)
        self._makes_elastic = elastic

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

    @property
    def are_stored(self) -> bool:
        """True if the jobs are already columns, because they are generated or come from a window of
        a trace."""
        return isinstance(self._source, StoredJobs)

    def may_have(self, tasks: int) -> bool:
        """Return True if there are at least this many tasks, or if the jobs come from a large trace
        that has not been read yet. This creates no more jobs than necessary.
        """
        return self._source.may_have(tasks)

    @property
    def are_whole(self) -> bool:
        """True if a generator scaled the arrivals so that the offered load between the first and the
        last arrival is exactly the configured one.
        """
        return self._meter.arrivals.whole

    @property
    def may_depend(self) -> bool:
        """True if any of the jobs may have to wait for others."""
        return self._source.may_depend

    @property
    def states_limits(self) -> bool:
        """True if any of the jobs states a time limit. This reads the first jobs of a trace. If
        none of these states a limit, it reads all jobs.

        Raises:
            TraceError: The trace cannot be read.
        """
        limited = self._source.states_limits()
        return bool(self._held().states_limits() if limited is None else limited)

    @property
    def elastic(self) -> bool:
        """True if the scenario makes tasks elastic, or if the jobs are in memory and any of their tasks
        is elastic.
        """
        held = self._source.in_memory
        return self._makes_elastic or (held is not None and held.any_elastic)

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

    def measure(self, arrays: JobArrays, seconds: np.ndarray) -> None:
        """Record the load of all jobs. ``seconds`` has the shape (tasks, GPU types) and contains
        how long an instance of each task takes.
        """
        early = int(np.searchsorted(arrays.arrival_s, arrays.begins_s)) if arrays.begins_s else 0
        later = arrays.between(early, len(arrays)) if early else arrays
        self._meter.add_arrays(later, seconds[arrays.first[early] :])
        unknown = np.full(len(arrays), nan)
        self._started_s = unknown if arrays.observed_start_s is None else arrays.observed_start_s
        self._eligible_s = unknown if arrays.eligible_s is None else arrays.eligible_s
        self._partitions = [] if arrays.partition is None else arrays.partition.tolist()

    @property
    def load(self) -> Load:
        """The load of the jobs that have arrived or, for stored jobs and lists, the load of all
        jobs.
        """
        arrivals = self._meter.arrivals
        if not arrivals.jobs and self._source.in_memory is not None:
            arrays = self.submitted()
            self.measure(arrays, seconds_of(arrays, self._runtime, self._cluster.gpu_types))
        arrivals.begins_s = self.begins_s or None
        return self._meter.load()

    def observed(self) -> tuple[np.ndarray, np.ndarray, list[str]] | None:
        """For each arrived job, its recorded start, the time at which it became eligible (both NaN
        if unknown), and its partition. The value is ``None`` if no start is known.
        """
        started_s = np.asarray(self._started_s)
        if np.isnan(started_s).all():
            return None
        return started_s, np.asarray(self._eligible_s), self._partitions

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
            facts["state"] = self.state()
        if (trace := self._trace) is not None:
            facts["trace"] = {
                "format": trace.format,
                "read": str(trace.report),
                "options": asdict(trace.options),
                "assumptions": trace.assumptions,
                **trace.report.to_dict(),
            }
        return facts

    def knowledge(self, estimates: Estimates) -> Knowledge:
        """Return what policies know about run times. For a list, this covers all jobs, and
        otherwise the jobs that have arrived.
        """
        held = self._source.in_memory
        jobs, limited = (len(self._started_s), self._limited) if held is None else held.counts
        return Knowledge(estimates.kind, estimates.sigma, jobs, limited, self._auditor is not None)

    def audit(self) -> Audit | None:
        """Return the contradictions in the jobs read so far, or None if the jobs do not come from a
        trace."""
        if self._auditor is None:
            return None
        return self._auditor.audit(None if self._trace is None else self._trace.report)

    def state(self) -> dict[str, Any]:
        """Return the time at which the simulation began and four numbers of jobs at that time:
        running jobs, waiting jobs, jobs that wait because they did not fit although they ran in the
        log, and jobs that ran on nodes missing from the cluster.
        """
        arrays, begins_s = self.submitted(), self.begins_s
        early = int(np.searchsorted(arrays.arrival_s, begins_s))
        in_flight = [()] * early if arrays.in_flight is None else arrays.in_flight.tolist()[:early]
        running = [bool(runs) for runs in in_flight]
        start_s = np.full(early, nan) if arrays.observed_start_s is None else arrays.observed_start_s[:early]
        without_room = int(((start_s < begins_s) & ~np.array(running, bool)).sum())
        there = {node.name.partition(":")[0] for node in self._cluster.nodes}
        named = [()] * early if arrays.observed_nodes is None else arrays.observed_nodes.tolist()[:early]
        strange = [names for names, start in zip(named, start_s.tolist(), strict=True) if start < begins_s]
        strange = [lacking for names in strange if (lacking := [name for name in names if name not in there])]
        return {
            "begins_s": begins_s,
            "running": whole_sum(running),
            "waiting": early - whole_sum(running),
            "without_room": without_room,
            "elsewhere": len(strange),
            "unplaced": whole_sum(runs and not names for runs, names in zip(running, named, strict=True)),
            "unknown_nodes": list(dict.fromkeys(name for names in strange for name in names))[:_NAMED],
        }

    def _metered(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Yield the jobs, and add up their load."""
        add = self._meter.add
        self._started_s, self._eligible_s = started_s, eligible_s = array("d"), array("d")
        self._partitions = partitions = []
        for job in jobs:
            started_s.append(nan if job.observed_start_s is None else job.observed_start_s)
            eligible_s.append(nan if job.eligible_s is None else job.eligible_s)
            partitions.append(job.partition)
            self._limited += has_limit(job)
            add(job)
            yield job
