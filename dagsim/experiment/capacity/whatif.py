"""Other clusters and other policies on a log: paired runs of the same windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagsim.config.schema import ClusterSection, Config, plain
from dagsim.experiment.capacity.prices import Prices
from dagsim.experiment.labels import sample_of
from dagsim.experiment.sweep.axes import Axis
from dagsim.experiment.sweep.cells import Cell
from dagsim.experiment.sweep.described import Sweep
from dagsim.experiment.sweep.folder import CellLine
from dagsim.metrics.standings import PolicyResult, standings

__all__ = ["TODAY", "Alternative", "alternatives_of", "whatif_sweep"]

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
