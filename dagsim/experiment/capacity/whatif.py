"""Other clusters and other policies on a log: paired runs of the same windows, in one folder that
grows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dagsim.config.schema import ClusterSection, Config, plain
from dagsim.experiment.capacity.machines import Prices
from dagsim.experiment.carry_out import Watch, carry_out, raise_failures
from dagsim.experiment.executors import CellExecutor
from dagsim.experiment.kept_files import CellRun
from dagsim.experiment.plan import Axis, Cell, Plan, SweepGrid
from dagsim.experiment.scenario import sample_of
from dagsim.experiment.store import Store
from dagsim.metrics.standings import PolicyResult, standings

__all__ = ["TODAY", "Alternative", "Trials", "alternatives_of", "log_name", "on_windows", "whatif_grid"]


TODAY = "today"
"""Label of the unchanged cluster."""
METRICS = ("jct_s.mean", "wait_s.mean", "wait_s.p95", "energy_kwh")


@dataclass(frozen=True, slots=True)
class Alternative:
    """One cluster under one policy, against the first cluster under the first policy."""

    cluster: str
    policy: str
    result: PolicyResult
    wait_s: float
    """Mean wait: the mean over the windows of each window's mean."""
    wait_p95_s: float
    """Mean over the windows of each window's 95th percentile."""
    energy_kwh: float
    """Mean over the windows."""
    cost: float | None
    """Price per month in US dollars, or in the currency of the user's prices; None without prices."""

    def to_dict(self) -> dict[str, Any]:
        """Flat and safe for JSON."""
        result = {key: value for key, value in self.result.to_dict().items() if key != "policy"}
        beside = {"wait_s": self.wait_s, "wait_p95_s": self.wait_p95_s, "energy_kwh": self.energy_kwh}
        finite = {key: value if value == value else None for key, value in beside.items()}
        return {"cluster": self.cluster, "policy": self.policy, **finite, "cost_a_month": self.cost, **result}


def whatif_grid(
    config: Config, clusters: Mapping[str, ClusterSection], policies: Sequence[str], name: str
) -> SweepGrid:
    """The grid of clusters and policies on the windows of ``config``."""
    sections = tuple(plain(section) for section in clusters.values())
    axes = (Axis("cluster", tuple(clusters), sections), Axis("policy", tuple(policies), tuple(policies)))
    settings = {key: value for key, value in plain(config).items() if key not in ("policy", "cluster", "prices")}
    return SweepGrid(name, None, axes, {**settings, "cluster": sections[0]}, metrics=METRICS)


def alternatives_of(
    config: Config,
    clusters: Mapping[str, ClusterSection],
    runs: Mapping[Cell, CellRun],
    prices: Prices,
    metric: str = "jct_s.mean",
) -> list[Alternative]:
    """Compare all choices by ``metric`` on the same windows, in the order of the grid.

    Raises:
        InputError: The metric does not exist.
    """
    by_label: dict[str, list[CellRun]] = {}
    for cell, run in runs.items():
        by_label.setdefault(cell.label, []).append(replace(run, policy=cell.label))
    flat = [run for of_label in by_label.values() for run in of_label]
    ranked = {result.policy: result for result in standings(flat, metric, flat[0].policy, sample_of(config))}
    return [_choice(ranked[label], of_label, clusters, prices) for label, of_label in by_label.items()]


def _choice(
    result: PolicyResult, lines: Sequence[CellRun], clusters: Mapping[str, ClusterSection], prices: Prices
) -> Alternative:
    at = lines[0].at
    cost = prices.a_month(clusters[at["cluster"]]) if prices else None
    wait_s, p95_s, kwh = (_mean_over(lines, name) for name in ("wait_s.mean", "wait_s.p95", "energy_kwh"))
    return Alternative(at["cluster"], at["policy"], result, wait_s, p95_s, kwh, cost)


def _mean_over(lines: Sequence[CellRun], metric: str) -> float:
    """The mean over windows; NaN if a window has no value."""
    values = [line.metrics.get(metric) for line in lines]
    numbers = [float(value) for value in values if value is not None]
    return sum(numbers) / len(numbers) if len(numbers) == len(values) else float("nan")


class Trials:
    """Runs clusters under one policy on the same windows. Cells that are already in the folder are
    not run again.
    """

    def __init__(
        self,
        config: Config,
        name: str,
        root: Path,
        executor: CellExecutor,
        watch: Watch | None,
        *,
        argv: Sequence[str],
        command: str = "plan",
    ) -> None:
        self.config, self.name, self.root, self.executor, self.watch = config, name, root, executor, watch
        self.argv, self.command = argv, command
        self.path: Path | None = None
        """The folder of the trials; None before the first."""
        self._clusters: dict[str, ClusterSection] = {}
        self._cells: list[Cell] = []

    def run(self, label: str, cluster: ClusterSection) -> list[CellRun]:
        """Return the runs of one cluster, one for each window.

        Raises:
            KeyboardInterrupt: The user stopped it; finished cells are kept.
            DagsimError: As ``carry_out``, or a cell failed.
        """
        label = next((earlier for earlier, other in self._clusters.items() if other == cluster), label)
        if label not in self._clusters:
            self._clusters[label] = cluster
            self._cells += self._grid({label: cluster}).cells()
        grid = self._grid(self._clusters)
        plan = Plan(self.command, grid.config(), tuple(self._cells), grid)
        store = Store.begin(self.root, plan, argv=self.argv)
        self.path = store.path
        runs = carry_out(store, plan, self.executor, self.watch)
        raise_failures(runs)
        return [run for cell, run in runs.items() if cell.at["cluster"] == label]

    def _grid(self, clusters: Mapping[str, ClusterSection]) -> SweepGrid:
        sections = tuple(plain(section) for section in clusters.values())
        settings = {key: value for key, value in plain(self.config).items() if key != "prices"}
        settings["cluster"] = sections[0]
        return SweepGrid(self.name, None, (Axis("cluster", tuple(clusters), sections),), settings)


_WINDOWS, _JOBS, _FEWEST_JOBS, _FEWEST = 20, 1000, 100, 5


def log_name(trace: Path) -> str:
    """The name of a plan for a log: the name of the log's file up to the first dot."""
    return trace.name.partition(".")[0] or "log"


def on_windows(config: Config) -> Config:
    """Return the configuration with its trace cut into windows, if it does not ask for windows
    itself.

    The default is 20 windows of 100 to 1,000 jobs each. Traces too short for that have fewer
    windows of 100 jobs. If there is no room for five windows, the whole trace is one run.

    Raises:
        ConfigError: The workload is not a trace.
        TraceError: The trace cannot be read.
    """
    trace = config.trace()
    if trace.window is not None:
        windows = trace.windows or min(config.seeds, trace.most_windows())
        return config.model_copy(update={"workload": replace(trace, windows=windows), "seeds": windows})
    jobs = 2 * replace(trace, window=2).most_windows()
    length = min(_JOBS, max(_FEWEST_JOBS, jobs // _WINDOWS))
    windows = min(_WINDOWS, jobs // length)
    if windows < _FEWEST:
        return config.model_copy(update={"seeds": 1})
    return config.model_copy(update={"workload": replace(trace, window=length, windows=windows), "seeds": windows})
