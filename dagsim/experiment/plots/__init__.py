"""Plots of schedules, as matplotlib figures and as files. matplotlib is loaded by the first one drawn."""

from __future__ import annotations

from pathlib import Path

from dagsim.experiment.plots.bars import comparison
from dagsim.experiment.plots.boxes import by_priority
from dagsim.experiment.plots.curves import jct_cdf, timeline
from dagsim.experiment.plots.gantt import gantt
from dagsim.experiment.plots.style import save
from dagsim.experiment.plots.workload import workload
from dagsim.metrics.columns import columns
from dagsim.schedule import Schedule

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
