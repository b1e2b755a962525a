"""Comparison of clusters and policies on a log. Each combination is one continuous run of all jobs,
and all runs are kept in one folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from math import inf, isnan, nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dagsim import services
from dagsim.config.schema import Config, plain
from dagsim.errors import InputError, RunFolderError, SimulationError
from dagsim.experiment.carry_out import Watch, carry_out, raise_failures
from dagsim.experiment.executors import CellExecutor
from dagsim.experiment.kept_files import CellRun
from dagsim.experiment.plan import Axis, Cell, Plan, SweepGrid
from dagsim.experiment.store import Store
from dagsim.families.capacity.machines import (
    HOURS_A_MONTH,
    Prices,
    always_on,
    read_accept,
    read_gpus,
    read_on_demand,
    resized,
    with_memberships,
    with_on_demand,
)
from dagsim.metrics.own import value_name
from dagsim.metrics.paired import holm
from dagsim.metrics.series import Change, JobSeries, Period, change_of, next_period
from dagsim.metrics.standings import lower_is_better, not_done
from dagsim.metrics.tariff import ENERGY
from dagsim.model import Cluster, Request
from dagsim.model.arithmetic import ordered_sum, whole_sum
from dagsim.registry import nearest
from dagsim.systems.cluster.audit import URGENT
from dagsim.systems.cluster.past_of_log import first_full_s
from dagsim.systems.cluster.scenario import cluster_scenario_of
from dagsim.systems.cluster.section import ClusterSection, queues_on
from dagsim.systems.cluster.site import SiteState
from dagsim.text import count_of
from dagsim.traces.trace_file import TraceFile
from dagsim.workload.accept import accepting
from dagsim.workload.arrays import JobArrays
from dagsim.workload.load import ArrivalTimes, Load, LoadMeter, seconds_of

TODAY = "today"
"""Label of the unchanged cluster."""
METRICS = ("jct_s.mean", "wait_s.mean", "wait_s.p95", "energy_kwh")
_PART = re.compile(r"^([^/]+/[^/]+)/\d+$")
_AFTER = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|min|h|d)")
SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_FIRST_DATE_S = 1e8
"""Times in a log below this number (a day in 1973) are not treated as dates."""
_FAR = 0.1
"""Relative difference from the log above which an answer begins with that difference."""
_OBSERVED = {"wait_s.mean": "mean", "wait_s.p50": "median", "wait_s.p95": "p95"}


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
    """If the trace begins with a full cluster, return the part from the time at which it first
    lists every running job.
    """
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
        self._state = stream.state() if self._begins_s else None
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
            InputError: There is no such group. The message lists the groups in the log.
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
        """The state in which today's run begins."""
        if self._state is None:
            return Beginning()
        jobs = f"with {self._state['running']:,} jobs running and {self._state['waiting']:,} waiting"
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
        return int(cluster_scenario_of(config).jobs(config.seed).state()["without_room"])

    def arrival_s(self, when: str) -> float:
        """Return the seconds from the beginning of the run to a date, or to a time such as ``14d``.

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
                f"--add ...@{when}: the time is {after_s / 86400:,.1f} days after the beginning of a run that "
                f"lasts {span_s / 86400:,.1f} days; give a time within the run, or leave it out to add the "
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


def question(log: Path, config: Config, *asked: Any) -> str:
    """Return the name of the folder for a question. It contains the name of the log up to its first
    dot, and a hash of everything in the question, so that each question has its own folder."""
    text = repr((sorted(plain(config).items()), asked))
    return f"{log.name.partition('.')[0] or 'log'}-{sha256(text.encode()).hexdigest()[:6]}"


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of all jobs on a cluster under a policy."""

    run: CellRun
    series: JobSeries
    demand: Load
    """Offered load of the jobs that count, by type and by the parts that confine them."""

    def value(self, metric: str) -> float:
        """Return the metric over all jobs, or over the jobs of an account or a partition. The
        result is NaN if the metric is unknown.

        Raises:
            InputError: The metric does not exist.
        """
        if metric not in self.run.metrics:
            if (of_jobs := self.series.value(metric)) is not None:
                if unknown := self.series.unknown_group(metric):
                    raise InputError(unknown)
                return of_jobs
            raise InputError(f"there is no metric {metric!r}{nearest(metric, self.run.metrics)}")
        value = self.run.metrics[metric]
        return nan if value is None else float(value)

    def period(self, metric: str) -> Period:
        """Return the metric with its interval for the next period, which is as long as the log."""
        return next_period(self.series, metric, self.value(metric))

    @property
    def energy(self) -> dict[str, float]:
        """Those metrics in ``ENERGY`` that the configuration contains."""
        return {name: self.value(name) for name in ENERGY if name in self.run.metrics}

    @property
    def mean_kw(self) -> float:
        """Mean power of all GPUs during the run, in kW."""
        metrics = self.run.metrics
        energy_kwh, hours = metrics.get("energy_kwh") or 0.0, (metrics.get("makespan_s") or 0.0) / 3600
        return energy_kwh / hours if hours else 0.0

    @property
    def lost(self) -> int:
        """Number of jobs that were rejected or not finished."""
        return not_done(self.run)

    @property
    def load(self) -> float:
        """Offered load of the jobs on this cluster."""
        return self.demand.offered

    @property
    def keeps_up(self) -> bool:
        """True unless the jobs demand more than the cluster can do."""
        return self.demand.keeps_up


@dataclass(frozen=True, slots=True)
class Fit:
    """A comparison of the simulation of today's cluster with the log."""

    metric: str
    observed: float
    simulated: float
    """Waits of the same jobs in the simulation, from the time at which each could start."""
    mean_s: float
    p95_s: float
    """95th percentiles of the recorded waits."""
    jobs: int
    missed: int
    """Number of jobs that started in the log but never start in the simulation."""

    @classmethod
    def of(cls, today: Trial, metric: str) -> Fit | None:
        """Compare the waits in today's run with those in the log. Use ``metric`` if it is a metric
        of waits that the log provides. Otherwise, use the mean or the p95, whichever differs more.
        Return None if the log has no starts, or if jobs do not arrive as in the log.
        """
        workload = today.run.workload
        observed = workload.get("observed")
        if observed is None or workload["trace"]["options"]["time_scale"] != 1:
            return None
        total = observed["total"]
        waits, simulated, missed = total["observed_s"], total["simulated_s"], observed.get("missed", 0)
        fits = [
            cls(name, waits[part], simulated[part], waits["mean"], waits["p95"], total["jobs"], missed)
            for name, part in _OBSERVED.items()
            if name == metric or (metric not in _OBSERVED and name != "wait_s.p50")
        ]
        return max(fits, key=lambda fit: abs(fit.simulated - fit.observed) / max(fit.observed, 1e-9))

    @property
    def is_far(self) -> bool:
        """True if the simulation differs by more than 10%, or misses more than 1% of the jobs."""
        misses = self.missed > URGENT * (self.missed + self.jobs)
        return misses or abs(self.simulated - self.observed) > _FAR * max(self.observed, 1e-9)

    def __str__(self) -> str:
        change = f" ({self.simulated / self.observed - 1:+.0%})" if self.observed > 0 else ""
        started = self.missed + self.jobs
        missed = f"{self.missed:,} of {count_of(started, 'job')} in the log never start here; " if self.missed else ""
        return (
            f"{missed}{self.metric} of today's cluster is {self.simulated:,.0f} s in the simulation and "
            f"{self.observed:,.0f} s in the log{change}"
        )

    def sentence(self) -> str:
        """Return the first line of an answer whose simulation does not reproduce the log."""
        return f"The simulation does not reproduce the log: {self}. Do not trust differences smaller than that."

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that are safe for JSON."""
        return asdict(self) | {"is_far": self.is_far}


@dataclass(frozen=True, slots=True)
class OnDemandMonth:
    """The use of nodes that are powered on demand, scaled from the length of the run to a month."""

    nodes: int
    node_hours: float
    boots: float
    cost: float | None
    """Price of these hours; None without prices."""
    always_on_cost: float | None
    """Price of the same nodes if they were up all the time."""

    @classmethod
    def of(cls, trial: Trial, section: ClusterSection) -> OnDemandMonth | None:
        """Return the use during a run on a cluster, or None if the cluster has no nodes that are
        powered on demand.
        """
        groups = [(group.count, group.on_demand) for group in section.groups if group.on_demand is not None]
        hours = (trial.run.metrics.get("horizon_s") or 0.0) / 3600
        if not groups or not hours:
            return None
        used = {name: trial.run.metrics.get(f"on_demand.{name}") for name in ("node_hours", "boots", "cost")}
        a_month = HOURS_A_MONTH / hours
        prices = [None if rule.price_per_h is None else count * rule.price_per_h for count, rule in groups]
        return cls(
            whole_sum(count for count, _ in groups),
            float(used["node_hours"] or 0.0) * a_month,
            float(used["boots"] or 0.0) * a_month,
            None if used["cost"] is None else float(used["cost"]) * a_month,
            None if None in prices else ordered_sum(filter(None, prices)) * HOURS_A_MONTH,
        )

    @property
    def share(self) -> float:
        """Share of the time in which the nodes are not off."""
        return self.node_hours / (self.nodes * HOURS_A_MONTH)


@dataclass(frozen=True, slots=True)
class Alternative:
    """One cluster under one policy, compared with the first cluster under the first policy."""

    cluster: str
    policy: str
    trial: Trial
    cost: float | None
    """Price per month in US dollars, or in the currency of the user's prices, including energy if
    it has a price; None without prices."""
    value: Period
    change: Change
    verdict: str
    on_demand: OnDemandMonth | None = None
    """Use of nodes that are powered on demand, or None if there are none."""

    def to_dict(self) -> dict[str, Any]:
        """Return flat values that are safe for JSON."""
        change, value, of = self.change, self.value, self.trial.value
        numbers = {"wait_s": of("wait_s.mean"), "wait_p95_s": of("wait_s.p95"), "energy_kwh": of("energy_kwh")}
        numbers |= self.trial.energy
        numbers |= {"mean": value.value, "mean_low": value.low, "mean_high": value.high}
        numbers |= {"ratio": change.ratio, "ratio_low": change.low, "ratio_high": change.high, "p": change.p}
        return {
            "cluster": self.cluster,
            "policy": self.policy,
            "cost_a_month": self.cost,
            **{name: number if number == number else None for name, number in numbers.items()},
            "n": change.blocks,
            "verdict": self.verdict,
            "jobs_not_done": self.trial.lost,
            "load": self.trial.load,
        } | ({} if self.on_demand is None else {"on_demand_a_month": asdict(self.on_demand)})


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The clusters and policies to simulate on a log."""

    config: Config
    """Today's cluster, with the whole log as one run."""
    demand: LogDemand
    clusters: Mapping[str, ClusterSection]
    """Clusters by label, today's first."""
    policies: Sequence[str]
    prices: Prices
    queues: Mapping[str, Any]
    """Queues by label, today's first; empty without alternatives."""
    notes: tuple[str, ...] = ()
    """Remarks on the files with alternatives."""

    @classmethod
    def of(
        cls,
        config: Config,
        policies: Sequence[str],
        add: Sequence[str],
        remove: Sequence[str],
        accept: Sequence[str],
        price: Sequence[str],
        price_file: Path | None,
        alternatives: Sequence[Path] = (),
    ) -> WhatIf:
        """Read the texts of ``--add``, ``--remove``, ``--accept`` and ``--price``, and the files of
        ``--alternative``. The first policy (default: the one in ``config``) is today's.

        Raises:
            InputError: A text or the log cannot be read, there is nothing to compare, or jobs that
                are running at the beginning no longer fit.
        """
        policies = policies or [config.policy]
        own = [gpu.name for gpu in config.gpu_types]
        added = [read_gpus(text, "--add", own) for text in add if "," not in text]
        removed = [read_gpus(text, "--remove", own) for text in remove]
        accepted, on_demand = read_accept(accept), [read_on_demand(text, own) for text in add if "," in text]
        if not (added or removed or accepted or on_demand or alternatives) and len(policies) < 2:
            raise InputError(
                "whatif: there is nothing to compare; give --add 16xH200, --add 16xH200,boot=300, --remove 8xT4, "
                "several --policy, or --alternative queue.yaml"
            )
        queues: dict[str, Any] = {TODAY: config.queues} if alternatives else {}
        notes: list[str] = []
        for file in alternatives:
            label = file.name if file.name not in queues else str(file)
            queues[label], told = services.changed_queues(config.queues, file)
            notes += [f"{label}: {note}" for note in told]
        config, demand = on_whole_log(config)
        clusters = {TODAY: config.cluster}
        if added or removed or accepted:
            label = " ".join([*(f"-{gpus}" for gpus in removed), *(f"+{gpus}" for gpus in added), *accept])
            changed = resized(config.cluster, added, removed, demand.arrival_s)
            clusters[label] = changed.model_copy(update={"accept": accepted})
            if demand.is_snapshot and (displaced := demand.displaced(changed)):
                raise InputError(f"{label}: {displaced:,} of the jobs running now do not fit on this cluster")
        for group in on_demand:
            label = " ".join([f"+{group}", *accept])
            clusters[label] = with_on_demand(config.cluster, group).model_copy(update={"accept": accepted})
        prices = Prices.read(price, config.prices, price_file).of(clusters.values())
        if on_demand:
            clusters = {label: prices.stated(section) for label, section in clusters.items()}
        return cls(config, demand, clusters, policies, prices, queues, tuple(notes))

    def grid(self, log: Path, name: str | None) -> SweepGrid:
        """Return the grid of clusters and policies, in a folder of that name (default: named after
        the log and the question)."""
        sections = tuple(plain(section) for section in self.clusters.values())
        axes = (
            Axis("cluster", tuple(self.clusters), sections),
            Axis("policy", tuple(self.policies), tuple(self.policies)),
            *([Axis("queues", tuple(self.queues), tuple(map(plain, self.queues.values())))] if self.queues else []),
        )
        dropped = ("policy", "cluster", "prices")
        settings = {key: value for key, value in plain(self.config).items() if key not in dropped}
        asked = [list(sections), list(self.policies), *([list(axes[2].values)] if self.queues else [])]
        name = name or question(log, self.config, *asked)
        own = map(value_name, self.config.metrics)
        return SweepGrid(
            name, None, axes, {**settings, "cluster": sections[0]}, keep="series", metrics=(*METRICS, *own)
        )


def alternatives_of(
    trials: Sequence[Trial], clusters: Mapping[str, ClusterSection], prices: Prices, metric: str = "jct_s.mean"
) -> list[Alternative]:
    """Compare all trials with the first by ``metric``, job by job.

    Raises:
        InputError: The metric does not exist.
    """
    today = trials[0]
    values = [trial.value(metric) for trial in trials]
    changes = [
        change_of(trial.series, value, today.series, values[0], metric)
        for trial, value in zip(trials, values, strict=True)
    ]
    p = [nan, *holm([change.p for change in changes[1:]])]
    return [
        Alternative(
            _label(trial.run.at),
            trial.run.at["policy"],
            trial,
            _cost(trial, clusters[trial.run.at["cluster"]], use, prices),
            trial.period(metric),
            change,
            "reference" if trial is today else _verdict(trial, today, change, adjusted, metric),
            use,
        )
        for trial, change, adjusted in zip(trials, changes, p, strict=True)
        for use in [OnDemandMonth.of(trial, clusters[trial.run.at["cluster"]])]
    ]


def _label(at: Mapping[str, str]) -> str:
    """Return the cluster of a row, and its queues if they are not today's."""
    cluster, queues = at["cluster"], at.get("queues", TODAY)
    return cluster if queues == TODAY else queues if cluster == TODAY else f"{cluster}, {queues}"


class Shift(NamedTuple):
    """The waits of a job today and in an alternative, or infinity if it does not start."""

    job: str
    queue: str
    today_s: float
    wait_s: float

    @property
    def sooner_s(self) -> float:
        """The number of seconds by which the job starts sooner in the alternative, or 0 if it starts in neither
        case.
        """
        return 0.0 if self.today_s == self.wait_s else self.today_s - self.wait_s


def shifts_of(choice: Alternative, today: Alternative, demand: LogDemand) -> list[Shift]:
    """Return the waits of every counted job, largest gain first."""
    series = [one.trial.series.values["wait_s"] for one in (today, choice)]
    waits = [np.where(np.isnan(one), inf, one).tolist() for one in series]
    shifts: dict[str, Shift] = {}
    for id, queue, today_s, wait_s in zip(*demand.names(), *waits, strict=True):
        job = _PART.sub(r"\1", id)  # all pod sets of a workload count as one job
        other = shifts.get(job, Shift(job, queue, 0.0, 0.0))
        shifts[job] = Shift(job, queue, max(today_s, other.today_s), max(wait_s, other.wait_s))
    return sorted(shifts.values(), key=lambda shift: (-shift.sooner_s, shift.job))


def _cost(trial: Trial, section: ClusterSection, use: OnDemandMonth | None, prices: Prices) -> float | None:
    """Return the monthly cost of a cluster, or None if there are no prices. The cost covers all
    GPUs that are always on, the hours of the other GPUs, and the energy.
    """
    if not prices:
        return None
    rented = 0.0 if use is None or use.cost is None else use.cost
    return prices.a_month(always_on(section)) + rented + prices.power_a_month(trial.mean_kw)


def _verdict(trial: Trial, today: Trial, change: Change, p: float, metric: str) -> str:
    """Return the verdict in words. It is never "better" if the cluster cannot keep up or rejects
    more jobs."""
    if not trial.keeps_up:
        return "cannot keep up"
    if trial.lost > today.lost:
        return f"loses {trial.lost - today.lost:,} jobs more"
    if isnan(change.ratio):
        return "no ratio"
    if change.ratio == 1 and isnan(change.p):
        return "identical"
    if isnan(change.low):
        return "log too short" if change.longer > 1 else "no interval"
    if not p < 0.05:
        return "log too short" if change.longer > 1 else "not told apart"
    return "better" if (change.ratio < 1) == lower_is_better(metric) else "worse"


def trials_of(store: Store, runs: Mapping[Cell, CellRun], config: Config, demand: LogDemand) -> list[Trial]:
    """Return the runs in a folder with the series of their jobs, in the order of the cells.

    Raises:
        RunFolderError: A series is missing or damaged.
        SimulationError: A cell failed.
    """
    raise_failures(runs)
    trials = []
    for cell, run in runs.items():
        path = store.path / "cells" / f"{cell.id}.npz"
        try:
            series = JobSeries.read(path.read_bytes())
            load = demand.on(cell.config.cluster)
            series = replace(series, labels=demand.labels, goes_on=not demand.is_snapshot, load=load.offered)
        except (OSError, ValueError, KeyError) as error:
            raise RunFolderError(
                f"{path}: not a readable table of values per job ({error}); delete {store.path} and repeat the command"
            ) from None
        measure = config.trace().measure
        series = series if measure is None else series.between(*measure)
        trials.append(Trial(run, series, load))
    return trials


class Trials:
    """An object that runs clusters under one policy on the same jobs. It does not repeat cells that
    are already in the folder."""

    def __init__(
        self,
        config: Config,
        name: str,
        root: Path,
        executor: CellExecutor,
        demand: LogDemand,
        *,
        argv: Sequence[str],
    ) -> None:
        self.config, self.name, self.root, self.executor = config, name, root, executor
        self.demand, self.argv = demand, argv
        self.watch: Watch | None = None
        self.store: Store | None = None
        """The folder of the trials; None before the first."""
        self._clusters: dict[str, ClusterSection] = {}
        self._cells: list[Cell] = []

    def run(self, label: str, cluster: ClusterSection) -> Trial:
        """Return the run of one cluster.

        Raises:
            KeyboardInterrupt: The user stopped the run. Finished cells are kept.
            SimulationError: A cell failed, or did not replay the whole log.
            DagsimError: See ``carry_out``.
        """
        label = next((earlier for earlier, other in self._clusters.items() if other == cluster), label)
        if label not in self._clusters:
            self._clusters[label] = cluster
            self._cells += self._grid({label: cluster}).cells()
        grid = self._grid(self._clusters)
        plan = Plan("plan", grid.config(), tuple(self._cells), grid)
        self.store = store = Store.begin(self.root, plan, argv=self.argv)
        runs = carry_out(store, plan, self.executor, self.watch)
        mine = {cell: run for cell, run in runs.items() if cell.at["cluster"] == label}
        (trial,) = trials_of(store, mine, self.config, self.demand)
        replayed, jobs = trial.run.metrics["jobs_arrived"], self.demand.jobs
        if self.config.trace().measure is None and replayed != jobs:
            raise SimulationError(
                f"{label}: {count_of(replayed, 'job was', 'jobs were')} simulated, but the log has {jobs:,}"
            )
        return trial

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Add a note on the results that were kept to any error in the block (see ``Store.noting``)."""
        try:
            yield
        except (KeyboardInterrupt, Exception):
            if self.store is None:
                raise
            with self.store.noting():
                raise

    def _grid(self, clusters: Mapping[str, ClusterSection]) -> SweepGrid:
        sections = tuple(plain(section) for section in clusters.values())
        settings = {key: value for key, value in plain(self.config).items() if key != "prices"}
        settings["cluster"] = sections[0]
        return SweepGrid(self.name, None, (Axis("cluster", tuple(clusters), sections),), settings, keep="series")
