"""A trace as a workload: a file, options for reading it, and a window for each seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf
from os.path import expandvars
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from dagsim.errors import ConfigError, WorkloadError
from dagsim.model import Cluster, Job
from dagsim.model.streams import stream
from dagsim.seeds import REPORT, VALIDATION, WINDOWS, part_of
from dagsim.text import count_of
from dagsim.traces import Source, Trace, TraceOptions, format_of, open_trace, reader
from dagsim.traces.fields import instant_s
from dagsim.workload.arrays import JobArrays
from dagsim.workload.load import Load, LoadMeter, WorkRuntime, offered_load, seconds_of
from dagsim.workload.records import read_meta
from dagsim.workload.windows import Measure, check_measure, most_windows, spread_order, spread_windows


@dataclass(frozen=True, slots=True)
class TraceFile:
    """The jobs in a real trace. They are the same for every seed."""

    rare_keys: ClassVar[tuple[str, ...]] = ("part",)
    path: str
    """A file or a folder; variables such as ``$DAGSIM_DATA`` are replaced."""
    format: str | None = None
    """Name of the format (``dagsim list readers``). By default, it is detected automatically."""
    options: TraceOptions = field(default_factory=TraceOptions)
    """How to read the trace (``--read``, ``dagsim list readers``)."""
    window: int | None = None
    """Length of a window: for each seed, take this number of consecutive jobs instead of all jobs.
    Training, validation and tests use separate parts of the trace. The whole trace is then kept in
    memory.
    """
    windows: int | None = None
    """Number of windows on which experiments run. They do not overlap, and are spread evenly over
    the whole trace.
    Default: the number of seeds.
    """
    part: tuple[float, float] | None = None
    """Part of the trace from which experiments take windows: its beginning and end, as fractions of
    the trace's jobs. Default: the whole trace.
    """
    measure: Measure | None = None
    """Range of jobs that count towards the metrics, ``[first, last]``, numbered by arrival. If
    there are windows, it applies to each window. Default: all jobs."""
    since: str | float | None = None
    """Time at which the simulation begins, with the jobs that were running and waiting at that time
    (``--from``). Give a date such as 2023-05-03T14:00, or the time since the first job in the log,
    such as 36h, 7d or a number of seconds.
    """
    until: str | float | None = None
    """Time after which no more jobs arrive (``--until``), in the same form."""
    kind: Literal["trace"] = "trace"

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", expandvars(self.path))
        if self.window is not None and self.window < 2:
            raise ConfigError(f"window must be 2 jobs or more, or left out, got {self.window!r}")
        check_measure(self.measure)
        if self.window is not None and self.has_period:
            raise ConfigError("window: cannot be combined with since or until, because windows come from the whole log")
        if self.part is not None and self.window is None:
            raise ConfigError(f"part is {self.part!r}, but window (the number of jobs per window) is not set")
        if self.windows is not None and (self.window is None or self.windows < 1):
            raise ConfigError(
                f"windows must be 1 or more and requires window (the number of jobs per window), got {self.windows!r}"
            )

    def open(self, cluster: Cluster, runtime: WorkRuntime) -> Trace:
        """Open the trace, with arrivals scaled to the requested load. To scale them, the trace must
        be read one more time.

        Raises:
            TraceError: The trace cannot be read.
            WorkloadError: A load is requested, but the jobs offer no load or all arrive
                simultaneously.
        """
        name, options = self.at_load(cluster, runtime)._chosen()
        return open_trace(self.path, name, options)

    def at_load(self, cluster: Cluster, runtime: WorkRuntime) -> TraceFile:
        """Return the trace with the time scale at which it offers the requested load to a cluster.

        Raises:
            TraceError, WorkloadError: As in ``open``.
        """
        if self.options.load is None:
            return self
        scale = self.options.time_scale * self._offered(cluster, runtime) / self.options.load
        return replace(self, options=replace(self.options, load=None, time_scale=scale))

    def period(self, origin_s: float, stated_s: float | None = None) -> tuple[float, float]:
        """Return when the run begins and when arrivals end, in seconds after the first job. That
        job arrived at ``origin_s`` on the log's own clock. If the trace is a snapshot of running
        jobs, its time on that clock is ``stated_s``, and the run begins then unless ``since`` is
        given.

        Raises:
            ConfigError: One of the two is not a time in this log, or the period between them is
                empty.
        """
        zone = self.options.zone()
        begins_s = 0.0 if stated_s is None else max(stated_s - origin_s, 0.0)
        if self.since is not None:
            begins_s = instant_s("--from", self.since, origin_s, zone)
        until_s = inf if self.until is None else instant_s("--until", self.until, origin_s, zone)
        if not 0 <= begins_s < until_s:
            given = " and ".join(
                f"{option} {value}" for option, value in (("--from", self.since), ("--until", self.until)) if value
            )
            raise ConfigError(
                f"{self.path}: {given}: the period is {begins_s:,.0f} s to {until_s:,.0f} s after the first job; "
                "--until must be later than --from and later than the first job"
            )
        return begins_s, until_s

    def window_of(
        self,
        seed: int,
        cluster: Cluster,
        runtime: WorkRuntime,
        past: Callable[[JobArrays, float], JobArrays] | None = None,
        *,
        overlap: bool = False,
    ) -> JobArrays:
        """Return the jobs in the window of ``seed``, starting at 0 s, with arrivals scaled to the
        requested load. If ``past`` is given, it returns the earlier jobs that are running or
        waiting when the window begins. The clock then starts at the first arrival of these jobs,
        and the run starts at the beginning of the window.

        Windows for experiments (``WINDOWS``) and for tests are disjoint, and so are windows for
        validation while there are enough jobs. If ``overlap`` is True, windows for tests may
        overlap if there are too few jobs. Training draws its windows at random.

        Raises:
            TraceError: The trace cannot be read.
            WorkloadError: There are too few jobs for the window, or they offer no load that could
                be scaled.
        """
        jobs = self.whole()
        where = self._place(seed, len(jobs), overlap)
        window = jobs.between(where.start, where.stop)
        scale = 1.0
        if self.options.load is not None:
            scale = self._offered_by(window.jobs(), cluster, runtime) / self.options.load
        elif past is not None and where.start:
            state = past(jobs.between(0, where.start), float(window.arrival_s[0]))
            window = JobArrays.joined([state, window]) if len(state) else window
        return window.shifted(float(window.arrival_s[0]), scale)

    def whole(self) -> JobArrays:
        """Return all jobs in the trace from which windows are taken, with their recorded times.

        Raises:
            TraceError: The trace cannot be read.
        """
        return _all_jobs(self._whole())

    def most_windows(self) -> int:
        """Return the number of disjoint windows that fit into the part of the trace for experiments.

        Raises:
            TraceError: The trace cannot be read.
        """
        assert self.window is not None
        return most_windows(len(self.whole()), self.window, self._part(WINDOWS.start))

    def places(self, seeds: Iterable[int]) -> list[tuple[float, float]]:
        """Return the windows for ``seeds``, each as two fractions of the jobs in the trace.

        Raises:
            TraceError: The trace cannot be read.
            WorkloadError: There are too few jobs for the windows.
        """
        jobs = len(self.whole())
        windows = [self._place(seed, jobs, overlap=True) for seed in seeds]
        return [(window.start / jobs, window.stop / jobs) for window in windows]

    def _whole(self) -> TraceFile:
        """Return the same trace without windows and with recorded times. All windows share its
        jobs, which are stored in memory only once.
        """
        return replace(self, window=None, windows=None, part=None, options=replace(self.options, load=None))

    def _part(self, seed: int) -> tuple[float, float]:
        """Return the part of the trace from which the window of ``seed`` is taken, as two fractions
        of its jobs."""
        part = part_of(seed)
        return self.part or part if part == (0.0, 1.0) else part

    def _place(self, seed: int, jobs: int, overlap: bool) -> range:
        """Return the job indices that form the window of ``seed``, in a trace with this number of
        ``jobs``.
        """
        assert self.window is not None
        part = self._part(seed)
        low, high = (round(fraction * jobs) for fraction in part)
        most = most_windows(jobs, self.window, part)
        if not most:
            raise WorkloadError(
                f"{self.path}: a window of {count_of(self.window, 'job')} does not fit into "
                f"{'the' if (low, high) == (0, jobs) else f'jobs {low:,} to {high:,} of'} {count_of(jobs, 'job')} "
                "in the log; choose shorter windows (--windows NxJOBS)"
            )
        pool = next((pool for pool in (WINDOWS, REPORT, VALIDATION) if seed in pool), None)
        number = 0 if pool is None else seed - pool.start
        if pool is WINDOWS and self.windows is not None:
            return spread_windows(jobs, self.windows, self.window, part)[number]
        if pool is None or (number >= most and (overlap or pool is VALIDATION)):
            first = int(stream(seed, "window").integers(low, high - self.window + 1))
            return range(first, first + self.window)
        if number >= most:
            raise WorkloadError(
                f"{self.path}: window {number + 1} of {count_of(self.window, 'job')} would overlap others in jobs "
                f"{low} to {high} of {jobs}, where only "
                f"{count_of(most, 'window fits', 'windows fit')}; choose fewer or shorter "
                "windows"
            )
        return spread_windows(jobs, most, self.window, part)[spread_order(most)[number]]

    def as_recorded(self, *, full_report: bool = False) -> Trace:
        """Return the trace with its arrivals as recorded, ignoring any requested load."""
        name, options = self._chosen()
        return open_trace(self.path, name, replace(options, load=None), full_report=full_report)

    def machines(self) -> Cluster:
        """Return the machines that the trace itself lists.

        Raises:
            ConfigError: The trace lists no machines.
            TraceError: The list cannot be read.
        """
        cluster = _machines(self)
        if cluster is None:
            raise ConfigError(f"{self.path}: the trace lists no machines; describe the cluster in a YAML file")
        return cluster

    def lists_machines(self) -> bool:
        """Return True if the trace has a list of machines.

        Raises:
            TraceError: The trace cannot be read.
        """
        return _machines(self) is not None

    def saved_with(self, key: str) -> Any:
        """Return what ``dagsim workload save`` stored under ``key``, or ``None`` if the file was
        not written by that command.
        """
        path = Path(self.path)
        if ".jsonl" not in path.suffixes or not path.is_file() or not reader("jsonl").recognises(Source(path)):
            return None
        return read_meta(path).get(key)

    def check(self) -> None:
        """Check that the first lines can be read, and that the format supports the options.

        Raises:
            TraceError: The trace cannot be read or is not recognised.
            UnknownName, ConfigError: The format or an option is wrong.
        """
        self.source.head()
        name, options = self._chosen()
        open_trace(self.path, name, options)

    def _chosen(self) -> tuple[str, TraceOptions]:
        """Return the format, and the options for its reader."""
        name = self.format or format_of(self.path, self.options)
        if "reference_gpu" in reader(name).uses:
            return name, self.options
        # Do not convert the work, because the runtime model expects it as measured on its own
        # reference GPU.
        return name, replace(self.options, reference_gpu=None)

    def _offered(self, cluster: Cluster, runtime: WorkRuntime) -> float:
        """Return the load that is offered by the recorded jobs in the period."""
        trace = self.as_recorded()
        if (part := self.part_of(trace)) is None:
            return self._offered_by(trace.jobs(), cluster, runtime)
        jobs, begins_s = part
        if not len(jobs) or not jobs.arrival_s[-1] > begins_s:
            raise WorkloadError(
                f"{self.path}: the load cannot be scaled, because this part of the trace has "
                f"{count_of(len(jobs), 'job')} and no two of them arrive at different times; choose a longer part"
            )
        meter = LoadMeter(cluster, runtime)
        meter.arrivals.begins_s = begins_s
        meter.add_arrays(jobs, seconds_of(jobs, runtime, cluster.gpu_types))
        return self._scalable(meter.load()) / self.options.time_scale

    def part_of(self, trace: Trace) -> tuple[JobArrays, float] | None:
        """Return the jobs that arrive in the simulated part of the log, with their original times.
        Also return the time at which that part begins. Return ``None`` if the whole log is
        simulated.

        Raises:
            TraceError: The trace cannot be read.
        """
        if not self.has_period and trace.begins_s is None:
            return None
        jobs = trace.unscaled()
        begins_s, until_s = self.period(trace.meta["origin_s"], trace.begins_s)
        first, last = np.searchsorted(jobs.arrival_s, [begins_s, until_s]).tolist()
        return jobs.between(first, last), begins_s

    def _offered_by(self, jobs: Iterable[Job], cluster: Cluster, runtime: WorkRuntime) -> float:
        return self._scalable(offered_load(jobs, cluster, runtime))

    def _scalable(self, load: Load) -> float:
        offered = load.offered
        if not 0 < offered < inf:
            why = "all jobs arrive at the same time" if offered == inf else f"their offered load is {offered:g}"
            raise WorkloadError(f"{self.path}: the load of the jobs cannot be scaled, because {why}")
        return offered

    @property
    def has_period(self) -> bool:
        """True if only part of the log is simulated, because ``since`` or ``until`` is given."""
        return self.since is not None or self.until is not None

    @property
    def source(self) -> Source:
        """The file or files of the trace."""
        return Source(self.path)


@lru_cache(maxsize=1)
def _machines(trace: TraceFile) -> Cluster | None:
    """Return the machines in the trace, or None if it lists none. The result is cached, because
    this may require reading large files.
    """
    return open_trace(trace.path, *trace._chosen()).cluster()


@lru_cache(maxsize=4)  # a mixture of workloads may draw from several traces in turn
def _all_jobs(trace: TraceFile) -> JobArrays:
    """Return all jobs in a trace from which windows are taken."""
    return trace.as_recorded().arrays()
