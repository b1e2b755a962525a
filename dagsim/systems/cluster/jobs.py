"""The jobs of a run on the GPU cluster, and facts about them that are known after the run."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from itertools import chain, islice, tee
from math import isfinite, nan
from typing import TYPE_CHECKING, Any

import numpy as np

from dagsim.errors import ModelError
from dagsim.model import Cluster, Job
from dagsim.systems.cluster.dependencies import any_depends
from dagsim.systems.cluster.knowledge import Knowledge, has_limit, states_limits
from dagsim.systems.cluster.models.failures import Outages
from dagsim.systems.cluster.models.runtime import Estimates, Runtime
from dagsim.workload.arrays import JobArrays
from dagsim.workload.load import Load, LoadMeter, seconds_of

if TYPE_CHECKING:
    from dagsim.systems.cluster.audit import Audit, Auditor
    from dagsim.traces.reader import Unstarted
    from dagsim.traces.trace import Trace

JOBS_KEPT = 20_000
"""Maximum number of jobs, over all seeds, that are kept as objects for the next policy."""


class StoredJobs:
    """Jobs stored in columns. Iteration creates job objects, which are cached if there are few.
    ``left`` contains the jobs that had already left when the simulation began, with their runs; it
    is None if they are unknown.
    """

    def __init__(self, arrays: JobArrays, left: Iterable[Job] | None = None) -> None:
        self.arrays, self.left = arrays, left
        self._objects: list[Job] | None = None

    def __len__(self) -> int:
        return len(self.arrays)

    @property
    def states_limits(self) -> bool:
        """True if any of the jobs states a time limit."""
        return states_limits(self.arrays)

    def __iter__(self) -> Iterator[Job]:
        if self._objects is None and len(self) <= JOBS_KEPT:
            self._objects = list(self.arrays.jobs())
        return self.arrays.jobs() if self._objects is None else iter(self._objects)


class JobsToCome:
    """The jobs in a simulation that have not arrived yet, which are read one by one on demand."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._source = iter(jobs)
        self._next: Job | None = None
        self.any_left = True
        """False once the last job has been taken and another one was requested."""

    def peek(self) -> Job | None:
        """Return the next job without taking it, or None if there is none."""
        if self._next is None and self.any_left:
            self._next = next(self._source, None)
            self.any_left = self._next is not None
        return self._next

    def take(self) -> None:
        """Take the next job, so that the one after it becomes the next."""
        self._next = None

    def copy(self) -> JobsToCome:
        """Return a copy that shares the jobs: each job is read once, by whichever copy needs it
        first."""
        twin = JobsToCome(())
        self._source, twin._source = tee(self._source)
        twin._next, twin.any_left = self._next, self.any_left
        return twin


_NAMED = 3
"""Maximum number of unknown nodes that are named."""
_LOOKED_AT = 1_000
"""Number of jobs within which most logs that have time limits state one."""


class JobStream:
    """The jobs in one run, in order of arrival, which can be read once.

    ``jobs`` are stored jobs, a list, or any iterable. Jobs from a ``trace`` are read lazily. The
    load of the jobs is known only after they have been read (``facts``); for stored jobs and lists,
    it is computed only on request.
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

        ``whole`` is True if a generator scaled the arrivals so that the load refers to exactly the
        time between the first and the last arrival. In a log, by contrast, the time of the arrival
        after the last one is unknown. ``auditor`` sees the jobs of a trace while they are read.
        """
        self._auditor = auditor
        self.change: Callable[[Job], Job] | None = None
        """Changes each job as it is read; columns and the load do not include the change."""
        self._begins_s, self._left = begins_s, left
        self._trace = trace
        self._jobs = jobs
        self._cluster, self._runtime = cluster, runtime
        self._meter = LoadMeter(cluster, runtime)
        self._meter.arrivals.whole = whole
        self._started_s: array[float] | np.ndarray = array("d")
        self._eligible_s: array[float] | np.ndarray = array("d")
        self._partitions: list[str] = []
        self._limited = 0

    def __iter__(self) -> Iterator[Job]:
        stored = isinstance(self._jobs, StoredJobs | list | tuple)
        jobs = iter(self._jobs) if stored else self._metered(self._jobs)
        return jobs if self.change is None else map(self.change, jobs)

    @property
    def begins_s(self) -> float:
        """The time at which a simulation of the jobs begins. Jobs that arrived earlier are in the
        system at that time.
        """
        return self._jobs.arrays.begins_s if isinstance(self._jobs, StoredJobs) else self._begins_s

    @property
    def left(self) -> Iterable[Job] | None:
        """The jobs that had left before the beginning, with their runs, or None if they are not
        known."""
        return self._jobs.left if isinstance(self._jobs, StoredJobs) else self._left

    def unstarted(self) -> Iterable[Unstarted]:
        """Return the jobs that were in the queue of a log and never started."""
        return () if self._trace is None else self._trace.unstarted()

    def outages(self) -> Outages:
        """Return the periods in which the trace's own machines were absent; empty for a window. Reads
        the first job, because the clock starts at its arrival.

        Raises:
            TraceError: The trace cannot be read.
        """
        if self._trace is None:
            return Outages(())
        if not isinstance(self._jobs, StoredJobs):
            jobs = iter(self._jobs)
            self._jobs = chain([next(jobs)], jobs)
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
        the first job on the trace's clock; otherwise, it is 0. Return None if the times in the log
        do not apply, because arrivals are scaled or the jobs are a window. Reads the first job.

        Raises:
            TraceError: The trace cannot be read.
        """
        if self._trace is None:
            return None if isinstance(self._jobs, StoredJobs) else 0.0
        return self.log_origin_s() if self._trace.options.time_scale == 1 else None

    def log_origin_s(self) -> float:
        """Return the arrival of the first job in the trace, on the trace's clock. Reads the first
        job.

        Raises:
            TraceError: The trace cannot be read.
        """
        assert self._trace is not None
        if "origin_s" not in self._trace.meta:
            jobs = iter(self._jobs)
            self._jobs = chain([next(jobs)], jobs)
        origin_s: float = self._trace.meta["origin_s"]
        return origin_s

    @property
    def are_stored(self) -> bool:
        """True if the jobs are already columns, because they are generated or come from a window of
        a trace."""
        return isinstance(self._jobs, StoredJobs)

    def may_have(self, tasks: int) -> bool:
        """Return True if there are at least this many tasks, or if the jobs come from a large trace
        that has not been read yet. Creates no more jobs than necessary.
        """
        if isinstance(self._jobs, StoredJobs):
            return self._jobs.arrays.tasks >= tasks
        if self._trace is not None and self._trace.is_large():
            return True
        jobs, first_jobs, count = iter(self._jobs), [], 0
        for job in jobs:
            first_jobs.append(job)
            count += len(job.graph.tasks)
            if count >= tasks:
                break
        if not isinstance(self._jobs, list | tuple):
            self._jobs = chain(first_jobs, jobs)
        return count >= tasks

    @property
    def are_whole(self) -> bool:
        """True if a generator scaled the arrivals so that the jobs offer exactly its load between the
        first and the last arrival.
        """
        return self._meter.arrivals.whole

    @property
    def may_depend(self) -> bool:
        """True if any of the jobs may have to wait for others."""
        return any_depends(self._jobs.arrays if isinstance(self._jobs, StoredJobs) else self._jobs)

    @property
    def states_limits(self) -> bool:
        """True if any of the jobs states a time limit. Reads the first jobs of a trace. If none of
        these states a limit, reads all jobs.

        Raises:
            TraceError: The trace cannot be read.
        """
        if isinstance(self._jobs, StoredJobs | list | tuple):
            return states_limits(self._jobs.arrays if isinstance(self._jobs, StoredJobs) else self._jobs)
        jobs, trace = iter(self._jobs), self._trace
        first_jobs = list(islice(jobs, _LOOKED_AT))
        self._jobs = chain(first_jobs, jobs)
        if any(map(has_limit, first_jobs)) or len(first_jobs) < _LOOKED_AT:
            return any(map(has_limit, first_jobs))
        if trace is None:
            self._jobs = listed = list(self._jobs)
            return states_limits(listed)
        if not trace.is_streamed():
            return states_limits(self.arrays())
        limited = any(map(has_limit, trace.jobs()))
        self._jobs = trace.jobs()
        return limited

    @property
    def elastic(self) -> bool:
        """True if the scenario makes tasks elastic, or if the jobs are a list that contains an elastic
        task.
        """
        listed = self._jobs if isinstance(self._jobs, list | tuple) else ()
        return self.change is not None or any(task.elastic is not None for job in listed for task in job.tasks)

    def arrays(self) -> JobArrays:
        """Return all jobs as columns. A later iteration creates its objects from the columns.

        Raises:
            TraceError: The trace cannot be read.
            ModelError: A task is elastic, and the jobs are not a list.
        """
        if isinstance(self._jobs, StoredJobs):
            return self._jobs.arrays
        if isinstance(self._jobs, list | tuple):
            return replace(JobArrays.of(self._jobs), begins_s=self._begins_s)
        if self._trace is None:
            jobs = list(self._jobs)
            if any(task.elastic is not None for job in jobs for task in job.tasks):
                raise ModelError("elastic tasks have no columns; pass the jobs as a list")
            arrays = replace(JobArrays.of(jobs), begins_s=self._begins_s)
        elif (arrays_if_large := self._trace.arrays_if_large()) is not None:
            arrays = arrays_if_large
        else:
            arrays = self._trace.arrays()
        self._jobs = StoredJobs(arrays)
        return arrays

    def measure(self, arrays: JobArrays, seconds: np.ndarray) -> None:
        """Record the load of all jobs; ``seconds`` (n, GPU types) contains the seconds of an
        instance of each task.
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
        """The load of the jobs that have arrived; for stored jobs and lists, the load of all
        jobs."""
        arrivals = self._meter.arrivals
        if not arrivals.jobs and isinstance(self._jobs, StoredJobs | list | tuple):
            arrays = self.arrays()
            self.measure(arrays, seconds_of(arrays, self._runtime, self._cluster.gpu_types))
        arrivals.begins_s = self.begins_s or None
        return self._meter.load()

    def observed(self) -> tuple[np.ndarray, np.ndarray, list[str]] | None:
        """The recorded start of each arrived job, the time at which it became eligible (both NaN if
        unknown), and its partition. ``None`` if no start is known.
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
            "gpu_load": load.gpu_load if isfinite(load.gpu_load) else None,
            "cpu_load": load.cpu_load if isfinite(load.cpu_load) else None,
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
        """Return what policies know about the run times of the jobs that have arrived, or of all
        jobs in a list."""
        jobs, limited = len(self._started_s), self._limited
        if isinstance(self._jobs, list | tuple):
            jobs, limited = len(self._jobs), sum(map(has_limit, self._jobs))
        elif isinstance(self._jobs, StoredJobs):
            arrays = self._jobs.arrays
            jobs = len(arrays)
            if arrays.estimate is not None:
                job = np.repeat(np.arange(jobs), np.diff(arrays.first))
                limited = len(np.unique(job[~np.isnan(arrays.estimate)]))
        return Knowledge(estimates.kind, estimates.sigma, jobs, limited, self._auditor is not None)

    def audit(self) -> Audit | None:
        """Return the contradictions in the jobs read so far, or None if the jobs do not come from a
        trace."""
        if self._auditor is None:
            return None
        return self._auditor.audit(None if self._trace is None else self._trace.report)

    def state(self) -> dict[str, Any]:
        """Return the time at which the simulation began, the numbers of jobs running and waiting at
        that time, the number of waiting jobs that ran in the log but did not fit, and the number of
        jobs that ran on nodes missing from the cluster.
        """
        arrays, begins_s = self.arrays(), self.begins_s
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
            "running": sum(running),
            "waiting": early - sum(running),
            "without_room": without_room,
            "elsewhere": len(strange),
            "unplaced": sum(runs and not names for runs, names in zip(running, named, strict=True)),
            "unknown_nodes": list(dict.fromkeys(name for names in strange for name in names))[:_NAMED],
        }

    def _metered(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Yield the jobs, adding up their load on the way."""
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
