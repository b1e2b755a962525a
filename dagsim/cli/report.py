"""``dagsim report``: write runs as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dagsim.cli.app import app

__all__ = ["report"]


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, of any system.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="File to write (default: report.html in the first folder)."),
    ] = None,
) -> None:
    """Write runs as one HTML file: verdict, Gantt chart, curves and tables. It opens from disk and loads nothing.

    Example: dagsim report results/20261120T193000Z-eval-sjf-s0-3fa9c1 -o report.html
    """
    from dagsim.experiment.store import Store
    from dagsim.report.page.document import write_page

    typer.echo(write_page([Store.open(run) for run in runs], out or runs[0] / "report.html"))
