"""The jobs in a log, and what they demand of a cluster, for questions about other clusters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from math import inf
from typing import NamedTuple

import numpy as np

from dagsim.config.schema import Config
from dagsim.errors import InputError
from dagsim.families.capacity.machines import with_memberships
from dagsim.metrics.series import JobSeries
from dagsim.model import Cluster, Request
from dagsim.model.arithmetic import DAY_S
from dagsim.systems.cluster.past.from_log import first_full_s
from dagsim.systems.cluster.resources.site import SiteState
from dagsim.systems.cluster.scenario import cluster_scenario_of
from dagsim.systems.cluster.section import ClusterSection, queues_on
from dagsim.text import count_of
from dagsim.traces.trace_file import TraceFile
from dagsim.workload.accept import accepting
from dagsim.workload.arrays import JobArrays
from dagsim.workload.load import ArrivalTimes, Load, LoadMeter, seconds_of

_AFTER = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|m|min|h|d)")
SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_FIRST_DATE_S = 1e8
"""Times in a log below this number (a day in 1973) are not treated as dates."""


def on_whole_log(config: Config) -> tuple[Config, LogDemand]:
    """Return the configuration with the whole log as one run, and the total demand of the jobs. A
    requested load refers to today's cluster, and the other clusters get the same arrivals.

    Raises:
        ConfigError: The workload is not a trace, or windows are requested.
        TraceError: The trace cannot be read.
        InputError: The log has fewer than two jobs, or all its jobs arrive at the same time.
    """
    trace = config.trace()
    if trace.window is not None:
        raise InputError("workload.window: whatif and plan simulate the whole log, so leave out this key")
    config = with_memberships(config)
    trace = _from_full(trace, config).at_load(config.build_cluster(), config.runtime)
    config = config.model_copy(update={"workload": trace, "seeds": 1})
    demand = LogDemand(config)
    if demand.is_snapshot:
        return config, demand
    load = demand.on(config.cluster)
    if load.jobs < 2 or not load.span_s > 0:
        raise InputError(
            f"{trace.path}: planning needs a log with two or more jobs that arrive at different times, got "
            f"{count_of(load.jobs, 'job')} over {load.span_s:g} s"
        )
    if (long_s := demand.long_s()) > load.span_s:
        raise InputError(
            f"{trace.path}: all jobs arrive within {load.span_s:,.0f} s, but 5% of the tasks run for "
            f"{long_s:,.0f} s or longer, so the log is shorter than one busy period; give a longer log"
        )
    return config, demand


def _from_full(trace: TraceFile, config: Config) -> TraceFile:
    """Return the part of the trace from the time at which it first lists every running job. This is
    the whole trace unless it begins with a full cluster."""
    recorded = trace.as_recorded()
    if trace.has_period or recorded.begins_s is not None:
        return trace
    begins_s = first_full_s(recorded.unscaled(), config.build_cluster(), config.runtime)
    return trace if begins_s is None else replace(trace, since=begins_s)


def with_growth(config: Config, growth: float) -> Config:
    """Return the configuration in which the same jobs arrive 1 + ``growth`` times as often.

    Raises:
        ConfigError: The workload is not a trace.
    """
    trace = config.trace()
    options = replace(trace.options, time_scale=trace.options.time_scale / (1 + growth))
    return config.model_copy(update={"workload": replace(trace, options=options)})


class Beginning(NamedTuple):
    """The state in which all runs for an answer begin."""

    text: str = "from an empty cluster"
    is_snapshot: bool = False
    """True if no job arrives later."""


class LogDemand:
    """The jobs in the log that count, and the load that they offer to any cluster. Jobs count if they
    arrive after the run has begun or, if no job does, if they are waiting at its beginning.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        stream = cluster_scenario_of(config).jobs(config.seed)
        self._jobs, self._begins_s = stream.submitted(), stream.begins_s
        self._origin_s = stream.log_origin_s()
        self._at_beginning = stream.at_beginning() if self._begins_s else None
        first = int(np.searchsorted(self._jobs.arrival_s, self._begins_s)) if self._begins_s else 0
        self.is_snapshot = bool(self._begins_s) and first == len(self._jobs)
        """True if nothing arrives after the beginning, so that the run consists of the jobs waiting
        then."""
        if self.is_snapshot:
            self._jobs = self._jobs.chosen(_waiting(self._jobs))
        else:
            self._jobs = self._jobs.between(first, len(self._jobs))
        self._arrivals = ArrivalTimes(self._begins_s or None)
        self._arrivals.add_all(self._jobs.arrival_s)
        columns = {name: getattr(self._jobs, name) for name in ("account", "user", "partition", "qos")}
        self.labels: dict[str, list[str]] = {
            name: column.tolist() for name, column in columns.items() if column is not None
        }
        """Account, user, partition and QOS of each job, if the log has them."""

    def check(self, metric: str) -> None:
        """Reject a metric for a group, such as a partition, to which no job in the log belongs.

        Raises:
            InputError: The log has no group with this name. The message lists its groups.
        """
        tenants = () if self._jobs.tenant is None else tuple(sorted(set(self._jobs.tenant.tolist())))
        unknown = JobSeries({}, np.zeros(0, np.int64), tenants, labels=self.labels).unknown_group(metric)
        if unknown:
            raise InputError(unknown)

    def names(self) -> tuple[list[str], list[str]]:
        """Return the id of each job, and its queue: its partition, account or tenant."""
        columns = [getattr(self._jobs, name) for name in ("partition", "account", "tenant")]
        words = [[""] * len(self._jobs) if column is None else column.tolist() for column in columns]
        return self._jobs.ids.tolist(), [next(filter(None, several), "") for several in zip(*words, strict=True)]

    @property
    def jobs(self) -> int:
        """Number of jobs."""
        return len(self._jobs)

    def on(self, section: ClusterSection) -> Load:
        """Return the load that the jobs offer to a cluster. It is 0 if no job arrives after the
        beginning, and infinite if the jobs that are running then do not fit on the cluster."""
        cluster = self._built(section)
        if self.is_snapshot:
            limitless = inf if self.displaced(section) else 0.0
            return Load(limitless, 0.0, 0.0, len(self._jobs), limitless)
        jobs = accepting(self._jobs, section.accept, self.config.runtime, cluster.gpu_types)
        load = self._load(jobs, cluster)
        for name, mine, part in self._confined(jobs, section):
            load = load.with_part(name, self._load(jobs.chosen(mine), part))
        return load

    def _load(self, jobs: JobArrays, cluster: Cluster) -> Load:
        meter = LoadMeter(cluster, self.config.runtime)
        meter.add_arrays(jobs, seconds_of(jobs, self.config.runtime, cluster.gpu_types))
        return meter.load(self._arrivals)

    def _confined(self, jobs: JobArrays, section: ClusterSection) -> Iterator[tuple[str, np.ndarray, Cluster]]:
        """Yield the parts of a cluster to which partitions and constraints confine some jobs. Each
        consists of a name, the indices of the jobs that may use no other nodes, and the part."""
        config = self._with(section)
        cluster = config.build_cluster()
        if not SiteState.binds(cluster, config.queues):
            return
        site = SiteState(cluster, config.queues)
        partitions = [""] * len(jobs) if jobs.partition is None else jobs.partition.tolist()
        requests = [None] * len(jobs) if jobs.request is None else jobs.request.tolist()
        jobs_on: dict[int, list[int]] = {}
        names: dict[int, dict[str, None]] = {}
        for number, key in enumerate(zip(partitions, requests, strict=True)):
            jobs_on.setdefault(nodes := site.nodes_of(*key), []).append(number)
            names.setdefault(nodes, {})[_part_name(*key)] = None
        for nodes in jobs_on:
            part = tuple([node for at, node in enumerate(cluster.nodes) if nodes >> at & 1])
            if 0 < len(part) < len(cluster.nodes):
                mine = [number for of, numbers in jobs_on.items() if of and not of & ~nodes for number in numbers]
                yield " or ".join([*names[nodes]][:3]), np.sort(mine), replace(cluster, nodes=part)

    @property
    def span_s(self) -> float:
        """Seconds from the beginning of the run to the last arrival, or 0 if no job arrives later."""
        return 0.0 if self.is_snapshot else self._arrivals.span_s

    @property
    def beginning(self) -> Beginning:
        """The state in which the run on today's cluster begins."""
        if self._at_beginning is None:
            return Beginning()
        jobs = f"with {self._at_beginning.running:,} jobs running and {self._at_beginning.waiting:,} waiting"
        if self.is_snapshot:
            return Beginning(f"from the snapshot, {jobs}", True)
        return Beginning(f"from the state of the log after {self._begins_s / 3600:,.1f} h, {jobs}, which do not count")

    def displaced(self, section: ClusterSection) -> int:
        """Return the number of jobs that are running at the beginning but do not fit on another
        cluster.
        """
        if not self._begins_s:
            return 0
        config = self._with(section)
        return cluster_scenario_of(config).jobs(config.seed).at_beginning().without_room

    def arrival_s(self, when: str) -> float:
        """Return how many seconds after the beginning of the run a date, or a time such as ``14d``,
        is.

        A date within the log means that time in the log. A later date counts from the end of the
        log, because the run represents the period that follows it.

        Raises:
            InputError: The text has a different form, or the time is not within the run.
        """
        span_s = inf if self.is_snapshot else self.span_s
        if match := _AFTER.fullmatch(when):
            after_s = float(match[1]) * SECONDS[match[2]]
        else:
            try:
                date = datetime.fromisoformat(when)
            except ValueError:
                raise InputError(
                    f"--add ...@{when}: expected a date, such as 2027-03-01, or a time, such as 14d"
                ) from None
            if self._origin_s < _FIRST_DATE_S:
                raise InputError(
                    f"--add ...@{when}: the log has no dates; give a time after its beginning, such as @14d"
                )
            zone = self.config.trace().options.zone() or UTC
            after_s = date.replace(tzinfo=date.tzinfo or zone).timestamp() - self._origin_s
            after_s -= self._begins_s
            logged_s = span_s / self.config.trace().options.time_scale
            after_s -= logged_s if after_s > logged_s else 0.0
        if not 0 <= after_s < span_s:
            raise InputError(
                f"--add ...@{when}: the time is {after_s / DAY_S:,.1f} days after the beginning of a run that "
                f"lasts {span_s / DAY_S:,.1f} days; give a time within the run, or leave it out to add the "
                "GPUs at the beginning"
            )
        return after_s

    def long_s(self) -> float:
        """Return the 95th percentile of the seconds that tasks take on the fastest GPUs of today's
        cluster."""
        cluster = self._built(self.config.cluster)
        seconds = seconds_of(self._jobs, self.config.runtime, cluster.gpu_types).min(axis=1)
        run = seconds[np.isfinite(seconds)]
        return float(np.quantile(run, 0.95)) if len(run) else 0.0

    def _built(self, section: ClusterSection) -> Cluster:
        return self._with(section).build_cluster()

    def _with(self, section: ClusterSection) -> Config:
        queues = None if self.config.queues is None else queues_on(self.config.queues, section)
        return self.config.model_copy(update={"cluster": section, "queues": queues})


def _part_name(partition: str, request: Request | None) -> str:
    """Return a name for the nodes that a job may use."""
    named = (request and request.partitions) or (partition,)
    constraint = request.constraint if request else ""
    return " with ".join(filter(None, [", ".join(filter(None, named)), constraint])) or "no partition"


def _waiting(jobs: JobArrays) -> np.ndarray:
    """Return the indices of the jobs that are not running at the beginning."""
    runs = [()] * len(jobs) if jobs.in_flight is None else jobs.in_flight.tolist()
    return np.flatnonzero([not flights for flights in runs])
