"""The jobs of one run on the GPU cluster, and what they turned out to be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from math import isfinite, nan
from typing import Annotated, Any, TypeAlias

from dagsim.model import Cluster, Job
from dagsim.systems.cluster.models.failures import Outages
from dagsim.systems.cluster.models.runtime import Runtime
from dagsim.traces import Trace
from dagsim.traces.trace_file import TraceFile
from dagsim.workload.load import Load, LoadMeter
from dagsim.workload.synthetic import Synthetic
from dagsim.workload.tagged_union import TaggedUnion

__all__ = ["JobStream", "Workload"]

Workload: TypeAlias = Annotated[Synthetic | TraceFile, TaggedUnion("synthetic")]


class JobStream:
    """The jobs of one run, and what they turned out to be."""

    def __init__(self, workload: Synthetic | TraceFile, cluster: Cluster, runtime: Runtime, seed: int) -> None:
        self._trace: Trace | None = None
        self._cluster = str(cluster)
        match workload:
            case Synthetic():
                self._jobs = workload.jobs(cluster, runtime, seed)
            case TraceFile():
                if workload.window is None:
                    self._trace = workload.open(cluster, runtime)
                    self._jobs = self._trace.jobs()
                else:
                    self._jobs = workload.window_of(seed, cluster, runtime)
        self._meter = LoadMeter(cluster, runtime)
        self._first_s = self._last_s = 0.0
        self.count = 0
        """Jobs so far."""
        self._observed: dict[int, tuple[float, float]] = {}

    def downtimes(self) -> Outages:
        """When the trace's own machines are not there (in a window: never); reads the first job, from whose arrival its
        clock counts.

        Raises:
            TraceError: The trace cannot be read.
        """
        if self._trace is None:
            return Outages(())
        self._jobs = chain([next(self._jobs)], self._jobs)
        return Outages(self._trace.downtimes())

    def jobs(self) -> Iterator[Job]:
        """The jobs in order of arrival, once; their load is added up on the way."""
        add = self._meter.add
        for job in self._jobs:
            if not self.count:
                self._first_s = job.arrival_s
            self._last_s = job.arrival_s
            if job.observed_start_s is not None:
                eligible_s = job.arrival_s if job.eligible_s is None else job.eligible_s
                self._observed[self.count] = job.observed_start_s, eligible_s
            self.count += 1
            for task in job.graph.tasks:
                add(task)
            yield job

    def observed(self) -> tuple[list[float], list[float]] | None:
        """When each job so far really started, and since when it could have; ``None`` if that is known of none."""
        if not self._observed:
            return None
        pairs = [self._observed.get(number, (nan, nan)) for number in range(self.count)]
        return [start for start, _ in pairs], [eligible for _, eligible in pairs]

    @property
    def load(self) -> Load:
        """The load of the jobs so far."""
        return self._meter.over(self._last_s - self._first_s, self.count)

    def facts(self) -> dict[str, Any]:
        """What is known of the jobs so far, as plain values."""
        load = self.load
        facts: dict[str, Any] = {
            "cluster": self._cluster,
            "jobs": load.jobs,
            "span_s": load.span_s,
            "gpu_load": load.gpu_load if isfinite(load.gpu_load) else None,
            "cpu_load": load.cpu_load if isfinite(load.cpu_load) else None,
            "warning": load.warning,
        }
        if (trace := self._trace) is not None:
            facts["trace"] = {
                "format": trace.format,
                "read": str(trace.report),
                "options": asdict(trace.options),
                "assumptions": trace.assumptions,
                **trace.report.to_dict(),
            }
        return facts
