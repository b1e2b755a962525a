"""Draw an episode of Spark executors: who runs what over time, one colour per job.

    python scripts/record_episode.py --algo fair --out fair.png [--film] [--set system.executors=10] [--seed 1]

The picture shows the whole episode; ``--film`` writes an animation of it being drawn beside it (.gif).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dagsim.config.bundled import find_config
from dagsim.config.schema import load_config
from dagsim.envs.spark import bars, draw_bars
from dagsim.errors import ModelError
from dagsim.experiment.scenario import scenario_of
from dagsim.experiment.simulate import make_policy
from dagsim.systems.spark import SparkKernel

__all__ = ["record"]


def record(simulation: SparkKernel, policy: Any, title: str, picture: Path, film: Path | None = None) -> float:
    """Run the episode, and write the Gantt chart ``picture`` (PNG) and the animation ``film`` (GIF,
    60 frames).

    Returns the mean completion time in seconds.

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
        draw_bars(axes, shown, executors, now_s, span_s)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algo", required=True, help="a heuristic, decima, or decima[checkpoint=FILE]")
    parser.add_argument("--config", default="spark")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--film", action="store_true")
    options = parser.parse_args()
    scenario = scenario_of(load_config(find_config(options.config), options.set))
    kernel = scenario.kernel(options.seed)
    assert isinstance(kernel, SparkKernel), "the system must be spark"
    film = options.out.with_suffix(".gif") if options.film else None
    mean_s = record(kernel, make_policy(scenario, options.algo, options.seed), options.algo, options.out, film)
    print(f"mean completion time {mean_s:.1f} s; {options.out}")


if __name__ == "__main__":
    main()
