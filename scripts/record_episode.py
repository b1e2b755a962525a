"""An episode of the Spark simulation as a picture and as an animation: executors over time, coloured by job."""

from __future__ import annotations

from pathlib import Path

from dagsim.envs.decima_render import bars, draw

from dagsim.errors import ModelError
from dagsim.systems.spark import SparkKernel, SparkPolicy

__all__ = ["record"]


def record(simulation: SparkKernel, policy: SparkPolicy, title: str, picture: Path, film: Path | None = None) -> float:
    """Run the episode, write the Gantt chart ``picture`` (PNG) and the animation ``film`` (GIF, 60 frames of it being
    drawn); returns the mean completion time in seconds.

    Raises:
        ModelError: The simulation does not record.
    """
    from matplotlib.animation import FuncAnimation, PillowWriter
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if simulation.cluster.launches is None:
        raise ModelError("a recording needs a simulation with record=True")
    episode = simulation.run(policy)
    shown, executors = bars(simulation.cluster.launches), len(simulation.cluster.executors)
    span_s = episode.ended_ms / 1000
    figure = Figure(figsize=(9, 4), dpi=80, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()

    def frame(now_s: float) -> list[object]:
        axes.clear()
        draw(axes, shown, executors, now_s, span_s)
        done = sum(job.completed_ms is not None and job.completed_ms / 1000 <= now_s for job in episode.jobs)
        here = sum(job.arrival_ms / 1000 <= now_s for job in episode.jobs) - done
        axes.set_title(f"{title}: {now_s:.0f} s, {here} jobs in the system, {done} done", fontsize=10, loc="left")
        return []

    if film is not None:
        frames = [span_s * (number + 1) / 60 for number in range(60)]
        FuncAnimation(figure, frame, frames, blit=False).save(film, PillowWriter(fps=10))  # type: ignore[arg-type]
    frame(span_s)
    axes.set_title(
        f"{title}: {len(episode.jobs)} jobs, mean completion time {episode.mean_jct_s:.1f} s", fontsize=10, loc="left"
    )
    figure.savefig(picture)
    return episode.mean_jct_s
