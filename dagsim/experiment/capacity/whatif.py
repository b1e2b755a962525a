"""Other clusters and other policies on a log: paired runs of the same windows.

Trials of clusters on the same windows, kept in one sweep folder that grows.

Windows of a log to ask questions on: as many and as long as it has room for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dagsim.config.schema import ClusterSection, Config, plain
from dagsim.experiment.capacity.machines import Prices
from dagsim.experiment.carry_out import run_cells
from dagsim.experiment.executors import SweepExecutor
from dagsim.experiment.plan import Axis, Cell, Sweep, cells_of
from dagsim.experiment.scenario import sample_of
from dagsim.experiment.simulate import Watch
from dagsim.experiment.store import CellLine, RunLine, SweepFolder
from dagsim.metrics.standings import PolicyResult, standings

__all__ = ["TODAY", "Alternative", "Trials", "alternatives_of", "on_windows", "whatif_sweep"]


TODAY = "today"
"""The label of the cluster as it is."""
METRICS = ("jct_s.mean", "wait_s.mean", "wait_s.p95", "energy_kwh")


@dataclass(frozen=True, slots=True)
class Alternative:
    """One cluster under one policy, against the first cluster under the first policy."""

    cluster: str
    policy: str
    result: PolicyResult
    wait_s: float
    """Means over the windows, of each window's mean."""
    wait_p95_s: float
    """Of each window's 95th percentile."""
    energy_kwh: float
    """Of a window."""
    cost: float | None
    """A month."""

    def to_dict(self) -> dict[str, Any]:
        """Flat and safe for JSON."""
        told = {key: value for key, value in self.result.to_dict().items() if key != "policy"}
        beside = {"wait_s": self.wait_s, "wait_p95_s": self.wait_p95_s, "energy_kwh": self.energy_kwh}
        known = {key: value if value == value else None for key, value in beside.items()}
        return {"cluster": self.cluster, "policy": self.policy, **known, "cost_a_month": self.cost, **told}


def whatif_sweep(config: Config, clusters: Mapping[str, ClusterSection], policies: Sequence[str], name: str) -> Sweep:
    """The sweep over clusters and policies on the windows of ``config``."""
    sections = tuple(plain(section) for section in clusters.values())
    axes = (Axis("cluster", tuple(clusters), sections), Axis("policy", tuple(policies), tuple(policies)))
    settings = {key: value for key, value in plain(config).items() if key not in ("policy", "cluster", "prices")}
    return Sweep(name, None, axes, {**settings, "cluster": sections[0]}, metrics=METRICS)


def alternatives_of(
    config: Config,
    clusters: Mapping[str, ClusterSection],
    cells: Sequence[Cell],
    done: Mapping[str, CellLine],
    prices: Prices,
    metric: str = "jct_s.mean",
) -> list[Alternative]:
    """Every choice, compared by ``metric`` on the same windows, in the order of the sweep.

    Raises:
        InputError: There is no such metric.
    """
    lines: dict[str, list[_Line]] = {}
    for cell in cells:
        line = done[cell.id]
        lines.setdefault(cell.label, []).append(_Line(cell.label, cell.seed, line.metrics, line.at))
    flat = [each for of_label in lines.values() for each in of_label]
    ranked = {each.policy: each for each in standings(flat, metric, flat[0].policy, sample_of(config))}
    return [_choice(ranked[label], of_label, clusters, prices) for label, of_label in lines.items()]


@dataclass(frozen=True, slots=True)
class _Line:
    """A cell as ``standings`` takes it."""

    policy: str
    seed: int
    metrics: Mapping[str, Any]
    at: Mapping[str, str]


def _choice(
    result: PolicyResult, lines: Sequence[_Line], clusters: Mapping[str, ClusterSection], prices: Prices
) -> Alternative:
    at = lines[0].at
    cost = prices.a_month(clusters[at["cluster"]]) if prices else None
    wait_s, p95_s, kwh = (_mean_over(lines, name) for name in ("wait_s.mean", "wait_s.p95", "energy_kwh"))
    return Alternative(at["cluster"], at["policy"], result, wait_s, p95_s, kwh, cost)


def _mean_over(lines: Sequence[_Line], metric: str) -> float:
    """The mean over windows; NaN where one has no value."""
    values = [line.metrics.get(metric) for line in lines]
    known = [float(value) for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else float("nan")


class Trials:
    """Runs clusters under one policy; what its folder holds already is not run again."""

    def __init__(
        self,
        config: Config,
        name: str,
        root: Path,
        executor: SweepExecutor,
        watch: Watch | None,
        *,
        argv: Sequence[str],
        command: str = "plan",
    ) -> None:
        self.config, self.name, self.root, self.executor, self.watch = config, name, root, executor, watch
        self.argv, self.command = argv, command
        self.path: Path | None = None
        """Its folder, from the first trial on."""
        self._clusters: dict[str, ClusterSection] = {}
        self._cells: list[Cell] = []

    def run(self, label: str, cluster: ClusterSection) -> list[RunLine]:
        """The runs of one cluster, a line for each window.

        Raises:
            KeyboardInterrupt: The user stopped it; what was finished is kept.
            DagsimError: As ``run_cells``, or a cell failed.
        """
        label = next((known for known, other in self._clusters.items() if other == cluster), label)
        if label not in self._clusters:
            self._clusters[label] = cluster
            self._cells += cells_of(self._sweep({label: cluster}))
        cells = self._cells
        folder = SweepFolder.claim(self.root, self._sweep(self._clusters), cells, argv=self.argv, command=self.command)
        self.path = folder.path
        swept = run_cells(folder, cells, self.executor, self.watch)
        swept.raise_failures()
        mine = [cell for cell in cells if cell.at["cluster"] == label]
        return [
            RunLine(cell.label, cell.seed, swept.done[cell.id].workload, swept.done[cell.id].metrics) for cell in mine
        ]

    def _sweep(self, clusters: Mapping[str, ClusterSection]) -> Sweep:
        sections = tuple(plain(section) for section in clusters.values())
        settings = {key: value for key, value in plain(self.config).items() if key != "prices"}
        settings["cluster"] = sections[0]
        return Sweep(self.name, None, (Axis("cluster", tuple(clusters), sections),), settings)


_WINDOWS, _JOBS, _FEWEST_JOBS, _FEWEST = 20, 1000, 100, 5


def on_windows(config: Config) -> Config:
    """The configuration on windows of its trace, where it asks for none: 20 of up to 1,000 jobs, fewer of 100 where
    the trace is short, and all of it at once where there is no room for five.

    Raises:
        ConfigError: Its workload is no trace.
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
