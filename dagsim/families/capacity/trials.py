"""Runs of all jobs in a log on one cluster, and how far the run on today's cluster is from the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from math import isclose, nan
from pathlib import Path
from typing import Any

from dagsim.config.dumping import plain
from dagsim.config.schema import Config
from dagsim.errors import InputError, RunFolderError, SimulationError
from dagsim.experiment.carry_out import Watch, carry_out, raise_failures
from dagsim.experiment.cell import Cell
from dagsim.experiment.cell_run import CellRun
from dagsim.experiment.executors import CellExecutor
from dagsim.experiment.plan import Plan
from dagsim.experiment.store import Store
from dagsim.experiment.sweep_grid import Axis, SweepGrid
from dagsim.families.capacity.log_demand import LogDemand
from dagsim.families.capacity.machines import HOURS_A_MONTH
from dagsim.metrics.series import JobSeries, Period, next_period
from dagsim.metrics.standings import not_done
from dagsim.metrics.tariff import ENERGY
from dagsim.metrics.why import waits_in_words
from dagsim.model.arithmetic import ordered_sum, whole_sum
from dagsim.spelling import nearest
from dagsim.systems.cluster.audit.audit import URGENT
from dagsim.systems.cluster.section import ClusterSection
from dagsim.text import count_of
from dagsim.workload.load import Load

TODAY = "today"
"""Label of the unchanged cluster."""
_FAR = 0.1
"""Relative difference from the log above which an answer begins with that difference."""
_OBSERVED = {"wait_s.mean": "mean", "wait_s.p50": "median", "wait_s.p95": "p95"}


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
        """Return the metric, and its prediction interval for a next period as long as the log."""
        return next_period(self.series, metric, self.value(metric))

    def waits_s(self, fit: Fit | None) -> tuple[float, float]:
        """Return the mean and the 95th percentile of the waits. If the log has waits (``fit``),
        those of the simulation are defined in the same way.
        """
        if fit is None or not fit.differs:
            return self.value("wait_s.mean"), self.value("wait_s.p95")
        observed = self.run.workload.get("observed")
        simulated_s = observed["total"]["simulated_s"] if observed else {"mean": nan, "p95": nan}
        return simulated_s["mean"], simulated_s["p95"]

    @property
    def energy(self) -> dict[str, float]:
        """The metrics in ``ENERGY`` that the configuration contains."""
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
        """True unless the jobs demand more than the cluster can provide."""
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
    from_eligible: bool = False
    """True if these waits begin when a job could start, not at its submission."""
    differs: bool = False
    """True if these waits differ from ``wait_s``, which counts from submission, and over all jobs."""

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
        own = today.run.metrics.get("wait_s.mean")
        differs = own is not None and not isclose(own, simulated["mean"], rel_tol=1e-6, abs_tol=1e-6)
        fits = [
            cls(
                name,
                waits[part],
                simulated[part],
                waits["mean"],
                waits["p95"],
                total["jobs"],
                missed,
                from_eligible=observed.get("from_eligible", False),
                differs=differs,
            )
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
            f"{f', {waits_in_words(self.from_eligible)}' if self.differs else ''}"
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
    unpriced: int = 0
    """Number of nodes without a price. Both costs leave them out."""

    @classmethod
    def of(cls, trial: Trial, section: ClusterSection) -> OnDemandMonth | None:
        """Return how much the nodes were used in a run on a cluster, or None if the cluster has no
        nodes that are powered on demand."""
        groups = [(group.count, group.on_demand) for group in section.groups if group.on_demand is not None]
        hours = (trial.run.metrics.get("horizon_s") or 0.0) / 3600
        if not groups or not hours:
            return None
        used = {name: trial.run.metrics.get(f"on_demand.{name}") for name in ("node_hours", "boots", "cost")}
        a_month = HOURS_A_MONTH / hours
        priced = [(count, rule.price_per_h) for count, rule in groups if rule.price_per_h is not None]
        return cls(
            whole_sum(count for count, _ in groups),
            float(used["node_hours"] or 0.0) * a_month,
            float(used["boots"] or 0.0) * a_month,
            None if used["cost"] is None else float(used["cost"]) * a_month,
            ordered_sum(count * price for count, price in priced) * HOURS_A_MONTH if priced else None,
            whole_sum(count for count, rule in groups if rule.price_per_h is None),
        )

    @property
    def share(self) -> float:
        """Share of the time in which the nodes are not off."""
        return self.node_hours / (self.nodes * HOURS_A_MONTH)


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
    """An object that simulates clusters under one policy on the same jobs. It does not repeat cells
    that are already in the folder."""

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
        """If the block raises an error, add a note about the results that were kept (see
        ``Store.noting``)."""
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
