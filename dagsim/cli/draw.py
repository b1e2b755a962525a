"""``dagsim plot`` and ``record``: draw runs as plots, or record them as films."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dagsim.cli.app import app, say
from dagsim.cli.telling import folders_with_runs


class PlotFormat(StrEnum):
    """File formats of plots."""

    PNG = "png"
    PDF = "pdf"
    SVG = "svg"


_PICTURES = (".png", ".svg", ".pdf", ".jpg", ".jpeg", ".bmp", ".gif")


@app.command()
def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="A run folder, or several training runs.")],
    number: Annotated[
        int | None,
        typer.Option(
            "--run",
            min=0,
            help=(
                "Number of the run to draw, counted from 0. By default, all runs are compared or, if there is only "
                "one run, it is drawn."
            ),
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the plots (default: plots/ in the run folder).")
    ] = None,
    format_: Annotated[PlotFormat, typer.Option("--file-type", help="File format of the plots.")] = PlotFormat.PNG,
    perfetto: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=("Instead of drawing plots, write a trace for ui.perfetto.dev to this file (.json.gz or .json)."),
        ),
    ] = None,
) -> None:
    """Draw a run: a Gantt chart, completion times, utilisation and queue length over time, and
    priorities. For training runs, draw the learning curves. If there are several training runs, a
    band shows how much they vary.

    Example: dagsim plot results/20261120T193000Z-eval-sjf-s0-3fa9c1
    """
    from dagsim.errors import InputError
    from dagsim.experiment.store import Store
    from dagsim.report.drawing import draw, draw_perfetto

    if out is not None and out.suffix in _PICTURES:
        raise InputError(f"--out {out}: must be a folder, not a file; --file-type chooses the file format")
    if perfetto is not None:
        if len(runs) > 1:
            raise InputError("plot: --perfetto takes a single run folder")
        say(draw_perfetto(Store.open(runs[0]), perfetto, number or 0))
        return
    runs = folders_with_runs(runs)
    trainings = [run for run in runs if (run / "progress.csv").exists()]
    if trainings and len(trainings) == len(runs):
        say(_learning(runs, out, format_))
        return
    if len(runs) > 1:
        raise InputError("plot: only training runs can be drawn together; to compare other runs, use dagsim compare")
    for path in draw(Store.open(runs[0]), number, out, format_):
        say(path)


def _learning(runs: list[Path], out: Path | None, kind: str) -> Path:
    """Draw the learning curves of training runs."""
    from dagsim.experiment.training_log import read_log
    from dagsim.report.plots import save
    from dagsim.report.plots.curves import learning_curves

    curves = learning_curves({run.name: read_log(run) for run in runs})
    return save(curves, (out or runs[0] / "plots") / f"learning.{kind}")


@app.command()
def record(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder from any system.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help=".gif or .mp4 (default: plots/RUN.gif).")
    ] = None,
    number: Annotated[int, typer.Option("--run", min=0, help="Number of the run, counted from 0.")] = 0,
    frames: Annotated[int, typer.Option(min=2, max=2000, help="Number of frames, 12 per second.")] = 90,
    width: Annotated[int, typer.Option(min=160, max=1920, help="Width in pixels.")] = 960,
) -> None:
    """Record a finished run as an animation that shows how jobs move from the queue to their GPUs
    and leave when they are done.

    Example: dagsim record results/20261120T193000Z-eval-sjf-s0-3fa9c1
    """
    from dagsim.experiment.store import Store
    from dagsim.report.drawing import film

    folder = Store.open(run)
    line = folder.line(number)
    title = f"{line.policy}, seed {line.seed}"
    say(film(folder.schedule(number), out or folder.path / "plots" / f"{number:03d}.gif", title, frames, width))
