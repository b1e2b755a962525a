"""The page of a sweep: the best value, curves along one axis, and a heat map of two axes."""

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
    """Text and charts of the finished cells of a sweep."""

    def __init__(self, folder: Store) -> None:
        self.folder = folder
        self.lines = [line for line in folder.cells() if _in_grid(line, folder.sweep.axes)]
        self._sample = sample_of(folder.config)
        self._metric = folder.sweep.metrics[0]

    def verdict(self) -> list[str]:
        """Sentences on the best value of the compared axis, the points it wins, and the progress of
        the sweep.
        """
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
        """Table with a row for each point of the grid, compared within its group."""
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
        """Axes, and for each metric its mean, minimum and maximum over seeds at each point of the
        grid.

        Points are in the order of the grid, the last axis changing fastest. A point without a
        finished run is NaN.
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
        scores = {name: values.get(self._metric, nan) for name, values in group.metrics.items()}
        score_of = {name: value for name, value in scores.items() if isfinite(value)}
        if not score_of:
            return None
        return (min if lower_is_better(self._metric) else max)(score_of, key=lambda name: score_of[name])

    def _planned(self) -> int:
        return int(self.folder.manifest["plan"]["sweep"].get("cells", len(self.lines)))


def _in_grid(line: CellRun, axes: Sequence[Axis]) -> bool:
    return all(line.at.get(axis.key) in axis.labels for axis in axes)


def _numbers(axis: Axis) -> list[float] | None:
    """Values of the axis if all are numbers in rising order, otherwise None."""
    values = [value for value in axis.values if isinstance(value, int | float) and not isinstance(value, bool)]
    rising = all(low < high for low, high in pairwise(values))
    return [float(value) for value in values] if len(values) == len(axis.values) and rising else None


def _spread(points: Sequence[Sequence[CellRun]], metric: str, packer: Packer) -> dict[str, int]:
    values = [[_value(line, metric) for line in lines] or [nan] for lines in points]
    folds = {
        "mean": [float(np.mean(samples)) for samples in values],
        "low": [min(samples) for samples in values],
        "high": [max(samples) for samples in values],
    }
    return {name: packer.add(fold, "f8") for name, fold in folds.items()}


def _value(line: CellRun, metric: str) -> float:
    value = line.metrics.get(metric)
    return nan if value is None or isinstance(value, str) else float(value)
