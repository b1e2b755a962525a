"""Plots of schedules, as matplotlib figures and as files. matplotlib is loaded by the first one drawn."""

from __future__ import annotations

from pathlib import Path

from dagsim.metrics.columns import columns
from dagsim.model.schedule import Schedule
from dagsim.report.plots.bars import comparison
from dagsim.report.plots.boxes import by_priority
from dagsim.report.plots.curves import jct_cdf, timeline
from dagsim.report.plots.gantt import gantt
from dagsim.report.plots.style import save
from dagsim.report.plots.workload import workload

__all__ = ["by_priority", "comparison", "draw_all", "gantt", "jct_cdf", "save", "timeline", "workload"]


def draw_all(schedule: Schedule, folder: Path, name: str = "all jobs") -> list[Path]:
    """Draw every plot of one schedule into ``folder`` (made if need be) as PNG; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    made = columns(schedule)
    figures = {
        "gantt": gantt(made),
        "jct_cdf": jct_cdf({name: made}),
        "timeline": timeline(made),
        "priorities": by_priority(made),
    }
    return [save(figure, folder / f"{stem}.png") for stem, figure in figures.items()]
