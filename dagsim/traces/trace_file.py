"""A trace as a workload: a file, how to read it, and the window of each seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any, Literal

from dagsim.errors import ConfigError, WorkloadError
from dagsim.model import Cluster, Job
from dagsim.model.streams import stream
from dagsim.seeds import REPORT, VALIDATION, WINDOWS, part_of
from dagsim.traces import Source, Trace, TraceOptions, open_trace, reader, recognise
from dagsim.workload.arrays import JobArrays
from dagsim.workload.jsonl import read_meta
from dagsim.workload.load import WorkRuntime, offered_load
from dagsim.workload.windows import Measure, check_measure, most_windows, spread_order, spread_windows

__all__ = ["TraceFile"]


@dataclass(frozen=True, slots=True)
class TraceFile:
    """The jobs of the real trace at ``path``, the same on every seed; ``format`` is recognised if left out."""

    path: str
    format: str | None = None
    options: TraceOptions = field(default_factory=TraceOptions)
    window: int | None = None
    """Take so many jobs in a row on each seed instead of all; training, validation and report have parts of the trace
    of their own (``seeds.part_of``). The trace is then held in memory."""
    windows: int | None = None
    """Disjoint windows, spread evenly over the whole trace, that experiments run on; left out: as many as there are
    seeds."""
    measure: Measure | None = None
    """Jobs by arrival, of each window if there are some, that metrics count, ``[first, last]``; left out: all."""
    kind: Literal["trace"] = "trace"

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 2:
            raise ConfigError(f"window must be 2 jobs or more, or left out, got {self.window!r}")
        check_measure(self.measure)
        if self.windows is not None and (self.window is None or self.windows < 1):
            raise ConfigError(f"windows must be 1 or more and come with window (jobs of each), got {self.windows!r}")

    def open(self, cluster: Cluster, runtime: WorkRuntime) -> Trace:
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

    def window_of(self, seed: int, cluster: Cluster, runtime: WorkRuntime) -> Iterator[Job]:
        """The jobs of the window of ``seed``, from 0 s, scaled to the load. Their arrivals are scaled to what was asked
        for.

        Windows of experiments (``WINDOWS``) and of reports are disjoint; those of validation as long as there are
        such. Training draws them at random.

        Raises:
            TraceError: The trace cannot be read.
            WorkloadError: There are too few jobs for the window, or they offer no load that could be scaled.
        """
        jobs = _all_jobs(self._whole())
        where = self._place(seed, len(jobs))
        window = jobs.between(where.start, where.stop)
        scale = 1.0
        if self.options.load is not None:
            scale = self._offered_by(window.jobs(), cluster, runtime) / self.options.load
        return window.shifted(float(window.arrival_s[0]), scale).jobs()

    def most_windows(self) -> int:
        """The disjoint windows that the whole trace has room for.

        Raises:
            TraceError: It cannot be read.
        """
        assert self.window is not None
        return most_windows(len(_all_jobs(self._whole())), self.window)

    def _whole(self) -> TraceFile:
        """The same trace without windows, as recorded: one in memory serves all."""
        return replace(self, window=None, windows=None, options=replace(self.options, load=None))

    def _place(self, seed: int, jobs: int) -> range:
        """The place of the window of ``seed`` in ``jobs`` jobs."""
        assert self.window is not None
        part = part_of(seed)
        low, high = (round(fraction * jobs) for fraction in part)
        most = most_windows(jobs, self.window, part)
        if not most:
            raise WorkloadError(
                f"{self.path}: a window of {self.window} jobs does not fit into jobs {low} to {high} of {jobs}"
            )
        pool = next((pool for pool in (WINDOWS, REPORT, VALIDATION) if seed in pool), None)
        number = 0 if pool is None else seed - pool.start
        if pool is WINDOWS and self.windows is not None:
            return spread_windows(jobs, self.windows, self.window)[number]
        if pool is None or (pool is VALIDATION and number >= most):
            first = int(stream(seed, "window").integers(low, high - self.window + 1))
            return range(first, first + self.window)
        if number >= most:
            raise WorkloadError(
                f"{self.path}: window {number + 1} of {self.window} jobs would overlap others in jobs {low} to {high} "
                f"of {jobs}: {most} fit; ask for fewer or shorter ones"
            )
        return spread_windows(jobs, most, self.window, part)[spread_order(most)[number]]

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
        """True if the trace has a list of machines.

        Raises:
            TraceError: It cannot be read.
        """
        return _machines(self) is not None

    def saved_with(self, key: str) -> Any:
        """The note that ``dagsim workload save`` wrote under ``key``; ``None`` if it was not saved by that."""
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
        name = self.format or ("plain" if self.options.map else recognise(self.path))
        if "reference_gpu" in reader(name).uses:
            return name, self.options
        return name, replace(self.options, reference_gpu=None)  # the runtime model takes the seconds as measured on it

    def _offered(self, cluster: Cluster, runtime: WorkRuntime) -> float:
        """The load that the jobs offer as they are."""
        return self._offered_by(self.as_recorded().jobs(), cluster, runtime)

    def _offered_by(self, jobs: Iterable[Job], cluster: Cluster, runtime: WorkRuntime) -> float:
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
def _all_jobs(trace: TraceFile) -> JobArrays:
    """All jobs of the trace, for windows of it."""
    return trace.as_recorded().arrays()
