"""The page of a sweep: the best value, curves along an axis, and a heat map of two."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from math import isfinite, nan
from typing import Any

import numpy as np

from dagsim.experiment.compare import CellGroup, compared_axis, grouped_standings
from dagsim.experiment.kept_files import CellRun
from dagsim.experiment.plan import Axis, short_names
from dagsim.experiment.scenario import sample_of, workload_label
from dagsim.experiment.store import Store
from dagsim.metrics import glossary
from dagsim.metrics.standings import lower_is_better
from dagsim.report.comparison import metric_name, sweep_table
from dagsim.report.page.charts import Packer
from dagsim.report.page.markup import table

__all__ = ["SweepView"]


class SweepView:
    """The words and charts of the finished cells of a sweep."""

    def __init__(self, folder: Store) -> None:
        self.folder = folder
        self.lines = [line for line in folder.cells() if _in_grid(line, folder.sweep.axes)]
        self._sample = sample_of(folder.config)
        self._metric = folder.sweep.metrics[0]

    def verdict(self) -> list[str]:
        """The best value of the compared axis, and the number of points it wins. Also how much is done."""
        axis = compared_axis(self.folder.sweep.axes)
        best = [name for group in self._groups() if (name := self._best(group))]
        progress = [f"{len(self.lines):,} of {self._planned():,} cells are finished."]
        if not best:
            return progress
        first = max(dict.fromkeys(best), key=best.count)
        how = "lowest" if lower_is_better(self._metric) else "highest"
        where = f"at {best.count(first):,} of {len(best):,} points" if len(best) > 1 else "on average"
        what = short_names([axis.key])[axis.key]
        name = first if what == "policy" else f"{what} {first}"
        return [f"{name} has the {how} {metric_name(self._metric)} {where}.", *progress]

    def table(self) -> str:
        """A row for each point of the grid, compared within its group."""
        sweep, config = self.folder.sweep, self.folder.config
        return table(
            sweep_table(
                self._groups(),
                sweep.axes,
                sweep.metrics,
                name=sweep.name,
                workload=workload_label(config),
                sample=self._sample,
                wide=True,
            )
        )

    def facts(self, packer: Packer) -> dict[str, Any]:
        """The axes, and per point of the grid each metric's mean, lowest and highest over seeds.

        Points are in the order of the grid, the last axis changing fastest; NaN where nothing is finished.
        """
        axes, units = self.folder.sweep.axes, {term.name: term.unit for term in glossary()}
        names = short_names([axis.key for axis in axes])
        at: dict[tuple[str, ...], list[CellRun]] = {}
        for line in self.lines:
            at.setdefault(tuple(line.at[axis.key] for axis in axes), []).append(line)
        points = [at.get(labels, []) for labels in product(*(axis.labels for axis in axes))]
        return {
            "axes": [{"name": names[axis.key], "labels": list(axis.labels), "values": _numbers(axis)} for axis in axes],
            "compared": axes.index(compared_axis(axes)),
            "metrics": [
                {
                    "name": metric_name(metric),
                    "unit": units.get(metric) or "",
                    **_spread(points, metric, packer),
                }
                for metric in self.folder.sweep.metrics
            ],
        }

    def _groups(self) -> list[CellGroup]:
        return grouped_standings(self.lines, self.folder.sweep.axes, self._metric, self._sample)

    def _best(self, group: CellGroup) -> str | None:
        known = {name: values.get(self._metric, nan) for name, values in group.metrics.items()}
        known = {name: value for name, value in known.items() if isfinite(value)}
        if not known:
            return None
        return (min if lower_is_better(self._metric) else max)(known, key=lambda name: known[name])

    def _planned(self) -> int:
        return int(self.folder.manifest["plan"]["sweep"].get("cells", len(self.lines)))


def _in_grid(line: CellRun, axes: Sequence[Axis]) -> bool:
    return all(line.at.get(axis.key) in axis.labels for axis in axes)


def _numbers(axis: Axis) -> list[float] | None:
    """The values where all are numbers, in rising order; else ``None``."""
    values = [value for value in axis.values if isinstance(value, int | float) and not isinstance(value, bool)]
    rising = all(low < high for low, high in pairwise(values))
    return [float(value) for value in values] if len(values) == len(axis.values) and rising else None


def _spread(points: Sequence[Sequence[CellRun]], metric: str, packer: Packer) -> dict[str, int]:
    values = [[_value(line, metric) for line in lines] or [nan] for lines in points]
    folds = {
        "mean": [float(np.mean(each)) for each in values],
        "low": [min(each) for each in values],
        "high": [max(each) for each in values],
    }
    return {name: packer.add(fold, "f8") for name, fold in folds.items()}


def _value(line: CellRun, metric: str) -> float:
    value = line.metrics.get(metric)
    return nan if value is None or isinstance(value, str) else float(value)
