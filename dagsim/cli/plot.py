"""``dagsim plot``: what a run folder holds, drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dagsim.cli.app import app

__all__ = ["plot"]


@app.command()
def plot(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    number: Annotated[
        int | None,
        typer.Option("--run", min=0, help="Which of its runs, counted from 0 (default: a comparison, or the first)."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the plots (default: plots/ in the run folder).")
    ] = None,
) -> None:
    """Draw a run again: Gantt chart, completion times, utilisation and queue over time, priorities.

    Example: dagsim plot results/20261120T193000Z-eval-sjf-s0-3fa9c1
    """
    from dagsim.experiment.folder import RunFolder
    from dagsim.experiment.session import draw

    for path in draw(RunFolder.open(run), number, out):
        typer.echo(path)
