"""Plots of schedules as matplotlib figures and files. matplotlib is only imported when the first plot
is drawn.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dagsim.metrics.columns import columns
from dagsim.model.log import Schedule
from dagsim.report.plots.curves import jct_cdf, timeline
from dagsim.report.plots.gantt import gantt
from dagsim.report.plots.results import by_priority, comparison
from dagsim.report.plots.style import entitle, save
from dagsim.report.plots.workload import workload

__all__ = ["by_priority", "comparison", "draw_all", "gantt", "jct_cdf", "save", "timeline", "workload"]


def draw_all(
    schedule: Schedule, folder: Path, name: str = "all jobs", title: str = "", kind: str = "png"
) -> list[Path]:
    """Draw every plot of a schedule, write the files to ``folder`` (created if missing) and return
    their paths.

    ``kind`` is png, pdf or svg. The plot by priority is left out if all jobs have the same
    priority.
    """
    cols = columns(schedule)
    figures = {"gantt": gantt(cols), "jct_cdf": jct_cdf({name: cols}), "timeline": timeline(cols)}
    if len(np.unique(cols.jobs.priority)) > 1:
        figures["priorities"] = by_priority(cols)
    for figure in figures.values():
        if title:
            entitle(figure, title)
    return [save(figure, folder / f"{stem}.{kind}") for stem, figure in figures.items()]
