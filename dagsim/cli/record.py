"""``dagsim record``: show a run as a film."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dagsim.cli.app import app

__all__ = ["record"]


@app.command()
def record(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, of any system.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help=".gif or .mp4 (default: plots/RUN.gif).")
    ] = None,
    number: Annotated[int, typer.Option("--run", min=0, help="Number of the run, from 0.")] = 0,
    frames: Annotated[int, typer.Option(min=2, max=2000, help="Number of frames, 12 per second.")] = 90,
    width: Annotated[int, typer.Option(min=160, max=1920, help="Width in pixels.")] = 960,
) -> None:
    """Record a finished run as a film: jobs move from the queue to their GPUs, and out again when they are done.

    Example: dagsim record results/20261120T193000Z-eval-sjf-s0-3fa9c1
    """
    from dagsim.errors import InputError
    from dagsim.experiment.store import Store
    from dagsim.report.film import film

    folder = Store.open(run)
    lines = folder.lines()
    if number >= len(lines):
        raise InputError(f"{run}: there is no run {number}; finished runs: {len(lines)}, counted from 0")
    title = f"{lines[number].policy}, seed {lines[number].seed}"
    typer.echo(film(folder.schedule(number), out or folder.path / "plots" / f"{number:03d}.gif", title, frames, width))
