"""Learning curves of trainings, on samples that all of them have seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dagsim.metrics.columns import Floats
from dagsim.report.page.packing import Packer

__all__ = ["learning"]

Row = Mapping[str, float | None]

_MEASURES = {
    "ratio": ("Validation: completion time / reference", "ratio"),
    "reward": ("Reward per episode", "reward"),
    "entropy": ("Entropy of the choices", "nats"),
}
_POINTS = 300


def learning(logs: Mapping[str, Sequence[Row]], packer: Packer) -> list[dict[str, Any]]:
    """A chart per measure with a curve per training, over the samples from which on, and up to which, all have it."""
    charts = []
    for name, (title, unit) in _MEASURES.items():
        curves = {run: _points(rows, name) for run, rows in logs.items()}
        curves = {run: points for run, points in curves.items() if len(points[0])}
        if not curves:
            continue
        first, last = max(x[0] for x, _ in curves.values()), min(x[-1] for x, _ in curves.values())
        every = np.unique(np.concatenate([x for x, _ in curves.values()]))
        x = every[(every >= first) & (every <= last)]
        if len(x) > _POINTS:
            x = np.linspace(first, last, _POINTS)
        series = [(run, packer.add(np.interp(x, *points), "f4")) for run, points in curves.items()]
        if len(x) > 1:
            charts.append({"title": title, "unit": unit, "x": packer.add(x, "f8"), "series": series})
    return charts


def _points(rows: Sequence[Row], name: str) -> tuple[Floats, Floats]:
    """Samples seen and the value, where a row has both."""
    known = [(row["samples"], row[name]) for row in rows if row["samples"] is not None and row[name] is not None]
    return np.array([x for x, _ in known], float), np.array([y for _, y in known], float)
