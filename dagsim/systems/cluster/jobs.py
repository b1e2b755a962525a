"""The jobs of one run on the GPU cluster, and facts about them that are known afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from itertools import chain
from math import isfinite, nan
from typing import Annotated, Any, TypeAlias

import numpy as np

from dagsim.model import Cluster, Job
from dagsim.systems.cluster.models.failures import Outages
from dagsim.systems.cluster.models.runtime import Runtime
from dagsim.systems.seam import Heard
from dagsim.traces import Trace
from dagsim.traces.trace_file import TraceFile
from dagsim.workload.arrays import JobArrays
from dagsim.workload.distributions import TaggedUnion
from dagsim.workload.load import Load, LoadMeter, seconds_of
from dagsim.workload.sessions import Sessions
from dagsim.workload.synthetic import Synthetic

__all__ = ["JOBS_KEPT", "DrawnJobs", "JobStream", "Workload"]

JOBS_KEPT = 20_000
"""Maximum number of drawn jobs, over all seeds, that are kept for the next policy."""
Workload: TypeAlias = Annotated[Synthetic | Sessions | TraceFile, TaggedUnion("synthetic")]


class DrawnJobs:
    """Jobs drawn by a generator: columns, from which iteration makes objects. The objects are kept
    if they are few.
    """

    def __init__(self, arrays: JobArrays) -> None:
        self.arrays = arrays
        self._made: list[Job] | None = None

    def __len__(self) -> int:
        return len(self.arrays)

    def __iter__(self) -> Iterator[Job]:
        if self._made is None and len(self) <= JOBS_KEPT:
            self._made = list(self.arrays.jobs())
        return self.arrays.jobs() if self._made is None else iter(self._made)


class JobStream:
    """The jobs of one run in order of arrival, to be read once.

    ``jobs`` is a trace (read lazily), drawn jobs, a list, or any iterable. The load of the jobs is
    known afterwards (``facts``); for drawn jobs and lists it is added up only on request.
    """

    def __init__(self, jobs: Trace | Iterable[Job], cluster: Cluster, runtime: Runtime) -> None:
        self._trace = jobs if isinstance(jobs, Trace) else None
        self._jobs: Iterable[Job] = jobs.jobs() if isinstance(jobs, Trace) else jobs
        self._cluster, self._runtime = cluster, runtime
        self._meter = LoadMeter(cluster, runtime)
        self._first_s = self._last_s = 0.0
        self._count = 0
        self._observed: dict[int, tuple[float, float]] = {}

    def __iter__(self) -> Iterator[Job]:
        if not isinstance(self._jobs, DrawnJobs | list | tuple):
            return self._metered(self._jobs)
        return iter(self._jobs)

    def outages(self) -> Outages:
        """The times at which the trace's own machines are away (none in a window). Reads the first
        job, because the clock counts from its arrival.

        Raises:
            TraceError: The trace cannot be read.
        """
        if self._trace is None:
            return Outages(())
        jobs = iter(self._jobs)
        self._jobs = chain([next(jobs)], jobs)
        return Outages(self._trace.downtimes())

    def in_columns(self) -> bool:
        """True if the jobs are a large trace that can be read in columns."""
        return self._trace is not None and self._trace.is_large()

    def told(self, heard: Callable[[int], None]) -> Heard[Job]:
        """The jobs, with progress reported to ``heard``."""
        return Heard(self, heard)

    def arrays(self) -> JobArrays | None:
        """The jobs in columns, if they were drawn or are a large trace that can be read in this
        way.

        Raises:
            TraceError: The trace cannot be read.
        """
        if isinstance(self._jobs, DrawnJobs):
            return self._jobs.arrays
        return None if self._trace is None else self._trace.arrays_if_large()

    def unroll(self, arrays: JobArrays) -> None:
        """Use these jobs, which were just read, instead of reading the trace again."""
        self._jobs = arrays.jobs()

    def came(self, arrays: JobArrays, seconds: np.ndarray) -> None:
        """Record the load of these jobs; ``seconds`` (n, GPU types) holds the seconds of an
        instance.
        """
        self._meter.add_arrays(arrays, seconds)
        self._first_s, self._last_s = float(arrays.arrival_s[0]), float(arrays.arrival_s[-1])
        self._count = len(arrays)
        started_s = arrays.observed_start_s
        if started_s is not None:
            eligible_s = np.full(len(arrays), nan) if arrays.eligible_s is None else arrays.eligible_s
            since_s = np.where(np.isnan(eligible_s), arrays.arrival_s, eligible_s)
            for number in np.flatnonzero(~np.isnan(started_s)).tolist():
                self._observed[number] = float(started_s[number]), float(since_s[number])

    def has(self, tasks: int) -> bool:
        """True if there are at least this many tasks; makes only as many jobs as necessary."""
        if isinstance(self._jobs, DrawnJobs):
            return self._jobs.arrays.tasks >= tasks
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
    def load(self) -> Load:
        """The load of the jobs that arrived; for a list, of all its jobs."""
        if isinstance(self._jobs, DrawnJobs) and not self._count:
            arrays = self._jobs.arrays
            self.came(arrays, seconds_of(arrays, self._runtime, self._cluster.gpu_types))
        if isinstance(self._jobs, list | tuple) and not self._count:
            for _ in self._metered(self._jobs):
                pass
        return self._meter.over(self._last_s - self._first_s, self._count)

    def observed(self) -> tuple[list[float], list[float]] | None:
        """The real start of each job that arrived, and the earliest start it could have had.
        ``None`` if no start is known.
        """
        if not self._observed:
            return None
        pairs = [self._observed.get(number, (nan, nan)) for number in range(self._count)]
        return [start for start, _ in pairs], [eligible for _, eligible in pairs]

    def facts(self) -> dict[str, Any]:
        """Facts of the jobs that arrived, as plain values."""
        load = self.load
        facts: dict[str, Any] = {
            "cluster": str(self._cluster),
            "jobs": load.jobs,
            "span_s": load.span_s,
            "gpu_load": load.gpu_load if isfinite(load.gpu_load) else None,
            "cpu_load": load.cpu_load if isfinite(load.cpu_load) else None,
            "warning": load.warning,
        }
        if len(load.by_types) > 1:
            facts["gpu_load_by_types"] = [str(part) for part in load.by_types]
        if (trace := self._trace) is not None:
            facts["trace"] = {
                "format": trace.format,
                "read": str(trace.report),
                "options": asdict(trace.options),
                "assumptions": trace.assumptions,
                **trace.report.to_dict(),
            }
        return facts

    def _metered(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """The jobs; iteration adds up their load."""
        add = self._meter.add
        for job in jobs:
            if not self._count:
                self._first_s = job.arrival_s
            self._last_s = job.arrival_s
            if job.observed_start_s is not None:
                eligible_s = job.arrival_s if job.eligible_s is None else job.eligible_s
                self._observed[self._count] = job.observed_start_s, eligible_s
            self._count += 1
            for task in job.graph.tasks:
                add(task)
            yield job
