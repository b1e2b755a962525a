"""The jobs that have arrived in a simulation: their load and, for a log, their recorded starts."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from math import nan

import numpy as np

from dagsim.model import Cluster, Job
from dagsim.systems.cluster.knowledge import has_limit
from dagsim.systems.cluster.models.runtime import Runtime
from dagsim.workload.arrays import JobArrays
from dagsim.workload.load import LoadMeter


class ArrivedJobs:
    """The load of the jobs that have arrived and, for each of them, its recorded start, the time at
    which it became eligible, and its partition.
    """

    def __init__(self, cluster: Cluster, runtime: Runtime) -> None:
        self.meter = LoadMeter(cluster, runtime)
        self.limited = 0
        """Number of jobs that state a time limit, if they were read one by one."""
        self._started_s: array[float] | np.ndarray = array("d")
        self._eligible_s: array[float] | np.ndarray = array("d")
        self._partitions: list[str] = []

    def __len__(self) -> int:
        return len(self._started_s)

    def counting(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Yield the jobs, and add each of them when it is read."""
        add = self.meter.add
        self._started_s, self._eligible_s = started_s, eligible_s = array("d"), array("d")
        self._partitions = partitions = []
        for job in jobs:
            started_s.append(nan if job.observed_start_s is None else job.observed_start_s)
            eligible_s.append(nan if job.eligible_s is None else job.eligible_s)
            partitions.append(job.partition)
            self.limited += has_limit(job)
            add(job)
            yield job

    def add_arrays(self, arrays: JobArrays, seconds: np.ndarray) -> None:
        """Add all jobs in one step. ``seconds`` has the shape (tasks, GPU types) and contains how
        long an instance of each task takes. Jobs from before the beginning offer no load.
        """
        early = int(np.searchsorted(arrays.arrival_s, arrays.begins_s)) if arrays.begins_s else 0
        later = arrays.between(early, len(arrays)) if early else arrays
        self.meter.add_arrays(later, seconds[arrays.first[early] :])
        unknown = np.full(len(arrays), nan)
        self._started_s = unknown if arrays.observed_start_s is None else arrays.observed_start_s
        self._eligible_s = unknown if arrays.eligible_s is None else arrays.eligible_s
        self._partitions = [] if arrays.partition is None else arrays.partition.tolist()

    def observed(self) -> tuple[np.ndarray, np.ndarray, list[str]] | None:
        """Return the recorded starts, the times at which the jobs became eligible (both NaN if
        unknown), and the partitions. Return None if no start is known.
        """
        started_s = np.asarray(self._started_s)
        if np.isnan(started_s).all():
            return None
        return started_s, np.asarray(self._eligible_s), self._partitions
