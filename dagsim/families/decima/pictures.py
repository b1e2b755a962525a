"""Pictures of a Spark episode (executors over time, one colour per job), and a table of the jobs in
the system.
"""

from __future__ import annotations

import colorsys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dagsim.errors import ModelError
from dagsim.families.spark.api import Executor, SparkKernel
from dagsim.families.spark.spark_executors import ExecutorMove, Launch
from dagsim.text import count_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Bar(NamedTuple):
    """A period in which ``executor`` works for the job with the number ``job``, or moves between
    jobs (``job`` is -1).
    """

    executor: int
    job: int
    start_s: float
    end_s: float


def bars(launches: Sequence[Launch]) -> list[Bar]:
    """Merge successive tasks of a job on an executor into one bar, if the gaps between them are
    shorter than 50 ms.
    """
    last: dict[Executor, Bar] = {}
    finished: list[Bar] = []
    for now_ms, length_ms, executor, target in launches:
        job = -1 if isinstance(target, ExecutorMove) else target.job.number
        start_s, end_s = now_ms / 1000, (now_ms + length_ms) / 1000
        previous = last.get(executor)
        if previous is not None and previous.job == job and start_s - previous.end_s < 0.05:
            last[executor] = previous._replace(end_s=end_s)
        else:
            if previous is not None:
                finished.append(previous)
            last[executor] = Bar(executor.number, job, start_s, end_s)
    return [*finished, *last.values()]


def colour(job: int) -> tuple[float, float, float]:
    """Return a colour for the job. Jobs with similar numbers get very different hues. Moves between
    jobs are grey."""
    if job < 0:
        return 0.85, 0.85, 0.85
    return colorsys.hsv_to_rgb(job * 0.618034 % 1, 0.55 + 0.35 * (job % 3) / 2, 0.9 - 0.25 * (job % 2))


def draw_bars(axes: Axes, shown: Sequence[Bar], executors: int, now_s: float, span_s: float | None = None) -> None:
    """Draw the bars ``shown`` on ``axes``, up to the time ``now_s``. The time axis ends at
    ``span_s``."""
    from matplotlib.collections import PolyCollection

    visible = [bar for bar in shown if bar.start_s < now_s]
    left = np.array([bar.start_s for bar in visible])
    right = np.minimum([bar.end_s for bar in visible], now_s)
    low = np.array([bar.executor for bar in visible]) + 0.05
    corners = np.stack([left, low, left, low + 0.9, right, low + 0.9, right, low], axis=-1).reshape(-1, 4, 2)
    axes.add_collection(PolyCollection(list(corners), facecolors=[colour(bar.job) for bar in visible], linewidths=0))
    axes.set_xlim(0, max(span_s or now_s, 1e-3))
    axes.set_ylim(executors, 0)
    axes.set_xlabel("time [s]")
    axes.set_ylabel("executor")
    axes.spines[["top", "right"]].set_visible(False)


def picture(simulation: SparkKernel) -> np.ndarray:
    """Draw what the executors have done so far, as a (height, width, 3) uint8 array.

    Raises:
        ModelError: The simulation does not record launches.
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
    """Describe the current state in one line, and each job in the system in a further line."""
    return "\n".join([_headline(simulation), *_lines(simulation)])


def _lines(simulation: SparkKernel) -> Iterator[str]:
    for job in simulation.cluster.jobs:
        waiting, running = sum(stage.remaining for stage in job.active), sum(stage.executing for stage in job.active)
        yield (
            f"{job.job.id:>24s}  {job.supply:3d} executors  {len(job.active):2d} of {len(job.stages):2d} stages"
            f"  {waiting:5d} tasks wait, {running:3d} run"
        )


def _headline(simulation: SparkKernel) -> str:
    cluster, episode = simulation.cluster, simulation.episode
    done = f", mean completion time {episode.mean_jct_s:.1f} s" if len(episode.jct_s) else ""
    return (
        f"{cluster.now_ms / 1000:.1f} s: {count_of(len(cluster.jobs), 'job')} in the system, "
        f"{len(episode.jct_s)} done{done}"
    )
