"""Pictures of a Spark episode: executors over time, one colour per job, and a table of the jobs in the system."""

from __future__ import annotations

import colorsys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dagsim.errors import ModelError
from dagsim.systems.spark import Executor, SparkKernel
from dagsim.systems.spark.executors import ExecutorMove, Launch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Bar", "bars", "colour", "describe", "draw_bars", "picture"]


class Bar(NamedTuple):
    """``executor`` works for ``job`` (its number), or travels to it (-1)."""

    executor: int
    job: int
    start_s: float
    end_s: float


def bars(launches: Sequence[Launch]) -> list[Bar]:
    """One bar for tasks of a job that follow each other on an executor. Less than 50 ms may lie between them."""
    last: dict[Executor, Bar] = {}
    found: list[Bar] = []
    for now_ms, length_ms, executor, target in launches:
        job = -1 if isinstance(target, ExecutorMove) else target.job.number
        start_s, end_s = now_ms / 1000, (now_ms + length_ms) / 1000
        before = last.get(executor)
        if before is not None and before.job == job and start_s - before.end_s < 0.05:
            last[executor] = before._replace(end_s=end_s)
        else:
            if before is not None:
                found.append(before)
            last[executor] = Bar(executor.number, job, start_s, end_s)
    return [*found, *last.values()]


def colour(job: int) -> tuple[float, float, float]:
    """A colour for the job; numbers that are near get hues that are far apart. Journeys are grey."""
    if job < 0:
        return 0.85, 0.85, 0.85
    return colorsys.hsv_to_rgb(job * 0.618034 % 1, 0.55 + 0.35 * (job % 3) / 2, 0.9 - 0.25 * (job % 2))


def draw_bars(axes: Axes, shown: Sequence[Bar], executors: int, now_s: float, span_s: float | None = None) -> None:
    """Draw ``shown`` up to ``now_s`` on ``axes``, the time axis ending at ``span_s``."""
    from matplotlib.collections import PolyCollection

    begun = [bar for bar in shown if bar.start_s < now_s]
    left = np.array([bar.start_s for bar in begun])
    right = np.minimum([bar.end_s for bar in begun], now_s)
    low = np.array([bar.executor for bar in begun]) + 0.05
    corners = np.stack([left, low, left, low + 0.9, right, low + 0.9, right, low], axis=-1).reshape(-1, 4, 2)
    axes.add_collection(PolyCollection(list(corners), facecolors=[colour(bar.job) for bar in begun], linewidths=0))
    axes.set_xlim(0, max(span_s or now_s, 1e-3))
    axes.set_ylim(executors, 0)
    axes.set_xlabel("time [s]")
    axes.set_ylabel("executor")
    axes.spines[["top", "right"]].set_visible(False)


def picture(simulation: SparkKernel) -> np.ndarray:
    """(height, width, 3) uint8: what the executors have done until now.

    Raises:
        ModelError: The simulation does not record.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    cluster = simulation.cluster
    if cluster.launches is None:
        raise ModelError("a picture needs a simulation with record=True")
    figure = Figure(figsize=(9, 4), dpi=80, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    draw_bars(axes, bars(cluster.launches), len(cluster.executors), cluster.now_ms / 1000)
    axes.set_title(_headline(simulation), fontsize=10, loc="left")
    canvas.draw()  # type: ignore[no-untyped-call]
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()  # type: ignore[no-untyped-call]


def describe(simulation: SparkKernel) -> str:
    """A line about the present and one for each job in the system."""
    return "\n".join([_headline(simulation), *_lines(simulation)])


def _lines(simulation: SparkKernel) -> Iterator[str]:
    for job in simulation.cluster.jobs:
        left, running = sum(stage.remaining for stage in job.active), sum(stage.executing for stage in job.active)
        yield (
            f"{job.job.id:>24s}  {job.supply:3d} executors  {len(job.active):2d} of {len(job.stages):2d} stages"
            f"  {left:5d} tasks wait, {running:3d} run"
        )


def _headline(simulation: SparkKernel) -> str:
    cluster, episode = simulation.cluster, simulation.episode
    done = f", mean completion time {episode.mean_jct_s:.1f} s" if len(episode.jct_s) else ""
    return f"{cluster.now_ms / 1000:.1f} s: {len(cluster.jobs)} jobs in the system, {len(episode.jct_s)} done{done}"
