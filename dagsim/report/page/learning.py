"""Learning curves of trainings: each run, and over several their mean and spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dagsim.report.page.packing import Packer
from dagsim.report.series import Row, learning_panels

__all__ = ["learning"]

_SHOWN = ("ratio", "reward", "entropy")


def learning(logs: Mapping[str, Sequence[Row]], packer: Packer) -> list[dict[str, Any]]:
    """A chart per measure: a curve per training, and where there are several their mean in its band."""
    charts = []
    for panel in learning_panels(logs):
        x = np.unique(np.concatenate([samples for samples, _ in panel.runs.values()] + [panel.samples]))
        if panel.name not in _SHOWN or len(x) < 2:
            continue
        series: list[tuple[Any, ...]] = []
        if len(panel.samples):
            band = (_on(x, panel.samples, values) for values in (panel.mean, panel.low, panel.high))
            series.append(("mean", *(packer.add(values, "f4") for values in band)))
        series += [(run, packer.add(_on(x, *points), "f4")) for run, points in panel.runs.items()]
        charts.append({"title": panel.title, "unit": panel.unit, "x": packer.add(x, "f8"), "series": series})
    return charts


def _on(x: np.ndarray, samples: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The values at ``x`` by interpolation; NaN outside of what the run has seen."""
    found: np.ndarray = np.interp(x, samples, values, left=np.nan, right=np.nan)
    return found
