"""Where the jobs of an experiment come from: a synthetic workload or a real trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import chain
from math import inf, isfinite
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from dagsim.errors import ConfigError, WorkloadError
from dagsim.experiment.seeds import part_of
from dagsim.model import Cluster, Job
from dagsim.sim.disturbance import Downtimes
from dagsim.sim.runtime import Runtime
from dagsim.streams import stream
from dagsim.workload.jsonl import read_meta
from dagsim.workload.kinds import ByKind
from dagsim.workload.load import Load, LoadMeter, offered_load
from dagsim.workload.readers import Source, Trace, TraceOptions, open_trace, reader, recognise
from dagsim.workload.readers.trace import shifted
from dagsim.workload.synthetic import Synthetic

__all__ = ["Supply", "TraceFile", "Workload"]


@dataclass(frozen=True, slots=True)
class TraceFile:
    """The jobs of the real trace at ``path``, the same on every seed; ``format`` is recognised if left out."""

    path: str
    format: str | None = None
    options: TraceOptions = field(default_factory=TraceOptions)
    window: int | None = None
    """Take so many jobs in a row on each seed, from where it says, instead of all; training, validation and report have
    parts of the trace of their own (``seeds.part_of``). The trace is then held in memory."""
    kind: Literal["trace"] = "trace"

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 2:
            raise ConfigError(f"window must be 2 jobs or more, or left out, got {self.window!r}")

    def open(self, cluster: Cluster, runtime: Runtime) -> Trace:
        """The trace, its arrivals scaled to the load asked for (which costs a first reading).

        Raises:
            TraceError: It cannot be read.
            WorkloadError: A load is asked of jobs that offer none, or that all come at once.
        """
        name, options = self._chosen()
        if options.load is not None:
            scale = options.time_scale * self._offered(cluster, runtime) / options.load
            options = replace(options, load=None, time_scale=scale)
        return open_trace(self.path, name, options)

    def window_of(self, seed: int, cluster: Cluster, runtime: Runtime) -> Iterator[Job]:
        """The jobs of the window of ``seed``, the first at 0 s, their arrivals scaled to the load asked for.

        Raises:
            TraceError: The trace cannot be read.
            WorkloadError: There are too few jobs for a window, or they offer no load that could be scaled.
        """
        assert self.window is not None
        jobs = _all_jobs(replace(self, window=None, options=replace(self.options, load=None)))
        low, high = (round(fraction * len(jobs)) for fraction in part_of(seed))
        if high - low < self.window:
            raise WorkloadError(
                f"{self.path}: a window of {self.window} jobs does not fit into jobs {low} to {high} of {len(jobs)}"
            )
        first = int(stream(seed, "window").integers(low, high - self.window + 1))
        chosen = jobs[first : first + self.window]
        scale = 1.0
        if self.options.load is not None:
            scale = self._offered_by(chosen, cluster, runtime) / self.options.load
        origin = chosen[0].arrival_s
        return (shifted(job, origin, scale) for job in chosen)

    def as_recorded(self, *, full_report: bool = False) -> Trace:
        """The trace with its arrivals as recorded, whatever load is asked for."""
        name, options = self._chosen()
        return open_trace(self.path, name, replace(options, load=None), full_report=full_report)

    def machines(self) -> Cluster:
        """The machines that the trace lists itself.

        Raises:
            ConfigError: It lists none.
            TraceError: The list cannot be read.
        """
        cluster = _machines(self)
        if cluster is None:
            raise ConfigError(f"{self.path}: the trace lists no machines; describe the cluster in a YAML file")
        return cluster

    def lists_machines(self) -> bool:
        """Whether the trace has a list of machines.

        Raises:
            TraceError: It cannot be read.
        """
        return _machines(self) is not None

    def saved_with(self, key: str) -> Any:
        """What ``dagsim workload save`` noted under ``key``; ``None`` if it was not saved by that."""
        path = Path(self.path)
        if ".jsonl" not in path.suffixes or not path.is_file():
            return None
        return read_meta(path).get(key)

    def check(self) -> None:
        """Look at the first lines, and whether the format has a use for the options.

        Raises:
            TraceError: It cannot be read or is not recognised.
            UnknownName, ConfigError: The format or an option is wrong.
        """
        self.source.head()
        name, options = self._chosen()
        open_trace(self.path, name, options)

    def _chosen(self) -> tuple[str, TraceOptions]:
        """The format, and the options that are its reader's business."""
        name = self.format or recognise(self.path)
        if "reference_gpu" in reader(name).uses:
            return name, self.options
        return name, replace(self.options, reference_gpu=None)  # the runtime model takes the seconds as measured on it

    def _offered(self, cluster: Cluster, runtime: Runtime) -> float:
        """The load that the jobs offer as they are."""
        return self._offered_by(self.as_recorded().jobs(), cluster, runtime)

    def _offered_by(self, jobs: Iterable[Job], cluster: Cluster, runtime: Runtime) -> float:
        offered = offered_load(jobs, cluster, runtime).offered
        if not 0 < offered < inf:
            raise WorkloadError(f"{self.path}: its jobs offer a load of {offered:g}, which cannot be scaled")
        return offered

    @property
    def source(self) -> Source:
        """The file or files that it is read from."""
        return Source(self.path)


@lru_cache(maxsize=1)
def _machines(trace: TraceFile) -> Cluster | None:
    """The machines of the trace, for which large files may have to be read."""
    return open_trace(trace.path, *trace._chosen()).cluster()


@lru_cache(maxsize=1)
def _all_jobs(trace: TraceFile) -> tuple[Job, ...]:
    """All jobs of the trace, for those who want windows of it."""
    return tuple(trace.as_recorded().jobs())


Workload: TypeAlias = Annotated[Synthetic | TraceFile, ByKind("synthetic")]


class Supply:
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

    def downtimes(self) -> Downtimes:
        """When the trace's own machines are not there (in a window: never); reads the first job, from whose arrival its
        clock counts.

        Raises:
            TraceError: The trace cannot be read.
        """
        if self._trace is None:
            return Downtimes(())
        self._jobs = chain([next(self._jobs)], self._jobs)
        return Downtimes(self._trace.downtimes())

    def jobs(self) -> Iterator[Job]:
        """The jobs in order of arrival, once; their load is added up on the way."""
        add = self._meter.add
        for job in self._jobs:
            if not self.count:
                self._first_s = job.arrival_s
            self._last_s = job.arrival_s
            self.count += 1
            for task in job.graph.tasks:
                add(task)
            yield job

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
