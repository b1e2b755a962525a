"""Sources of the jobs in a simulation: columns, a list, any iterable, or a trace."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np

from dagsim.model import Job
from dagsim.systems.cluster.arrivals.dependencies import any_depends
from dagsim.systems.cluster.knowledge import has_limit, states_limits
from dagsim.workload.arrays import JobArrays

if TYPE_CHECKING:
    from dagsim.traces.trace import Trace

JOBS_KEPT = 20_000
"""Maximum number of jobs, over all seeds, that are kept as objects for the next policy."""
_LOOKED_AT = 1_000
"""Number of jobs to examine for time limits. Most logs with time limits state one within this many
jobs."""


class JobSource(ABC):
    """Jobs in order of arrival, as submitted."""

    begins_s: float
    """The time at which a simulation of the jobs begins. Jobs that arrived earlier are in the
    system at that time."""
    left: Iterable[Job] | None
    """The jobs that had left before the beginning, with their runs, or None if they are not known."""

    @abstractmethod
    def __iter__(self) -> Iterator[Job]:
        """Yield the jobs."""

    @property
    def in_memory(self) -> HeldJobs | None:
        """The source itself if its jobs are in memory, or None if they are not."""
        return None

    @abstractmethod
    def held(self) -> HeldJobs:
        """Return the same jobs in memory, which replace this source.

        Raises:
            TraceError: The trace cannot be read.
        """

    @abstractmethod
    def read_first(self) -> None:
        """Read the first job without removing it."""

    @abstractmethod
    def may_have(self, tasks: int) -> bool:
        """Return True if there are at least this many tasks, or if the jobs come from a large trace
        that has not been read yet. This creates no more jobs than necessary.
        """

    @property
    @abstractmethod
    def may_depend(self) -> bool:
        """True if any of the jobs may have to wait for others."""

    @abstractmethod
    def states_limits(self) -> bool | None:
        """Return True if any of the jobs states a time limit. Return None if this is unknown until
        all jobs are in memory.

        Raises:
            TraceError: The trace cannot be read.
        """


class HeldJobs(JobSource):
    """Jobs in memory, which can be read several times."""

    @property
    def in_memory(self) -> HeldJobs:
        return self

    @property
    @abstractmethod
    def arrays(self) -> JobArrays:
        """The jobs as columns. No columns exist for the ranges of GPUs of elastic tasks."""

    @property
    @abstractmethod
    def any_elastic(self) -> bool:
        """True if any task is elastic."""

    @property
    @abstractmethod
    def counts(self) -> tuple[int, int]:
        """The number of jobs, and the number of jobs that state a time limit."""

    def held(self) -> HeldJobs:
        return self

    def read_first(self) -> None:
        pass


class StoredJobs(HeldJobs):
    """Jobs stored in columns. Iteration creates job objects, which are cached if there are few."""

    any_elastic = False

    def __init__(self, arrays: JobArrays, left: Iterable[Job] | None = None) -> None:
        self._arrays, self.left, self.begins_s = arrays, left, arrays.begins_s
        self._objects: list[Job] | None = None

    def __len__(self) -> int:
        return len(self._arrays)

    def __iter__(self) -> Iterator[Job]:
        if self._objects is None and len(self) <= JOBS_KEPT:
            self._objects = list(self._arrays.jobs())
        return self._arrays.jobs() if self._objects is None else iter(self._objects)

    @property
    def arrays(self) -> JobArrays:
        return self._arrays

    def may_have(self, tasks: int) -> bool:
        return self._arrays.tasks >= tasks

    @property
    def may_depend(self) -> bool:
        return any_depends(self._arrays)

    def states_limits(self) -> bool:
        return states_limits(self._arrays)

    @property
    def counts(self) -> tuple[int, int]:
        arrays = self._arrays
        if arrays.estimate is None:
            return len(arrays), 0
        job = np.repeat(np.arange(len(arrays)), np.diff(arrays.first))
        return len(arrays), len(np.unique(job[~np.isnan(arrays.estimate)]))


class ListedJobs(HeldJobs):
    """A list of jobs."""

    def __init__(self, jobs: Sequence[Job], begins_s: float = 0.0, left: Iterable[Job] | None = None) -> None:
        self._jobs, self.begins_s, self.left = jobs, begins_s, left

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs)

    @cached_property
    def arrays(self) -> JobArrays:
        return replace(JobArrays.of(self._jobs), begins_s=self.begins_s)

    def may_have(self, tasks: int) -> bool:
        return _have(self._jobs, tasks)[0]

    @property
    def may_depend(self) -> bool:
        return any_depends(self._jobs)

    def states_limits(self) -> bool:
        return states_limits(self._jobs)

    @property
    def any_elastic(self) -> bool:
        return any(task.elastic is not None for job in self._jobs for task in job.tasks)

    @property
    def counts(self) -> tuple[int, int]:
        return len(self._jobs), len(list(filter(has_limit, self._jobs)))


class ReadJobs(JobSource):
    """Jobs that are read one by one and only once."""

    def __init__(self, jobs: Iterable[Job], begins_s: float = 0.0, left: Iterable[Job] | None = None) -> None:
        self._jobs, self.begins_s, self.left = jobs, begins_s, left

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs)

    def held(self) -> HeldJobs:
        return ListedJobs(list(self._jobs), self.begins_s, self.left)

    def read_first(self) -> None:
        jobs = iter(self._jobs)
        self._jobs = chain([next(jobs)], jobs)

    def may_have(self, tasks: int) -> bool:
        jobs = iter(self._jobs)
        enough, first_jobs = _have(jobs, tasks)
        self._jobs = chain(first_jobs, jobs)
        return enough

    @property
    def may_depend(self) -> bool:
        return any_depends(self._jobs)

    def states_limits(self) -> bool | None:
        jobs = iter(self._jobs)
        first_jobs = list(islice(jobs, _LOOKED_AT))
        self._jobs = chain(first_jobs, jobs)
        limited = any(map(has_limit, first_jobs))
        return limited if limited or len(first_jobs) < _LOOKED_AT else None


class TraceJobs(ReadJobs):
    """The jobs in a trace, which is read again if necessary."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace.jobs())
        self._trace = trace

    def held(self) -> HeldJobs:
        arrays = self._trace.arrays_if_large()
        return StoredJobs(self._trace.arrays() if arrays is None else arrays)

    def may_have(self, tasks: int) -> bool:
        return self._trace.is_large() or super().may_have(tasks)

    def states_limits(self) -> bool | None:
        limited = super().states_limits()
        # the trace is too large to keep in memory, so read it once for this check and then start
        # again
        if limited is None and self._trace.is_streamed():
            limited = any(map(has_limit, self._trace.jobs()))
            self._jobs = self._trace.jobs()
        return limited


def _have(jobs: Iterable[Job], tasks: int) -> tuple[bool, list[Job]]:
    """Return True if the jobs have at least ``tasks`` tasks in total, and the jobs that were read
    to find this out.
    """
    first_jobs, count = [], 0
    for job in jobs:
        first_jobs.append(job)
        count += len(job.graph.tasks)
        if count >= tasks:
            break
    return count >= tasks, first_jobs


def source_of(jobs: Iterable[Job], begins_s: float = 0.0, left: Iterable[Job] | None = None) -> JobSource:
    """Return a source for jobs that are given as a source, a list or any other iterable."""
    if isinstance(jobs, JobSource):
        return jobs
    if isinstance(jobs, list | tuple):
        return ListedJobs(jobs, begins_s, left)
    return ReadJobs(jobs, begins_s, left)
