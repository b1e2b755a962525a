"""``dagsim compare``: finished runs side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dagsim.cli.app import app
from dagsim.cli.options import Json

__all__ = ["compare"]


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders on the same jobs.")],
    reference: Annotated[
        str | None, typer.Option(metavar="NAME", help="What the others are compared with (default: the first policy).")
    ] = None,
    metric: Annotated[str, typer.Option(help="What to rank by; less is better.")] = "jct_s.mean",
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the table as CSV, too.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the ratios with their intervals.")] = None,
    json_: Json = False,
) -> None:
    """Compare finished runs, paired by seed: ratios to a reference with 95 % intervals, the best marked, ties said.

    Example: dagsim compare results/RUN_A results/RUN_B --plot comparison.png
    """
    from dagsim.experiment.folder import RunFolder
    from dagsim.experiment.pairing import paired
    from dagsim.experiment.runner import write_comparison
    from dagsim.metrics.standings import standings
    from dagsim.report.drawing import draw_comparison
    from dagsim.report.tables import comparison_table
    from dagsim.report.terminal import console

    lines, differences = paired([RunFolder.open(run) for run in runs])
    if csv is not None:
        write_comparison(standings(lines, metric, reference), csv)
    if plot is not None:
        draw_comparison(lines, plot, metric, reference)
    if json_:
        ranked = [standing.to_dict() for standing in standings(lines, metric, reference)]
        told = {"metric": metric, "reference": reference or lines[0].policy, "standings": ranked}
        typer.echo(json.dumps({**told, "differences": differences}))
        return
    console().print(comparison_table(lines, reference, metric))
    for difference in differences:
        typer.echo(f"differs: {difference}")
