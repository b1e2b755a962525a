"""``dagsim compare``: compare finished runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dagsim.cli.app import app
from dagsim.cli.options import Json, TableLook, Wide, fraction
from dagsim.report.grid import TableFormat

if TYPE_CHECKING:
    from dagsim.experiment.kept_files import CellRun
    from dagsim.experiment.store import Store

__all__ = ["compare_runs"]


@app.command("compare")
def compare_runs(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders on the same jobs.")],
    reference: Annotated[
        str | None, typer.Option(metavar="NAME", help="Policy to compare the others with (default: the first).")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="Metric to rank by (default: that of the system, such as jct_s.mean).")
    ] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the table as CSV.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the ratios with their intervals.")] = None,
    precision: Annotated[
        float | None,
        typer.Option(metavar="2%", parser=fraction, help="Print the number of seeds that intervals this narrow need."),
    ] = None,
    bound: Annotated[
        bool,
        typer.Option("--bound", help="Add each policy's share of the way from the reference to a lower bound."),
    ] = False,
    json_: Json = False,
    wide: Wide = False,
    table: TableLook = TableFormat.TEXT,
) -> None:
    """Compare finished runs, paired by seed: ratios to a reference with 95 % intervals, and a verdict on each.

    Example: dagsim compare results/RUN_A results/RUN_B --plot comparison.png
    """
    from dagsim.experiment.carry_out import write_comparison
    from dagsim.experiment.compare import looks_at, paired_lines
    from dagsim.experiment.scenario import metric_of, sample_of, workload_label
    from dagsim.experiment.store import Store
    from dagsim.metrics.compare import Precision
    from dagsim.metrics.standings import METHOD, standings
    from dagsim.report.comparison import comparison_table
    from dagsim.report.drawing import draw_comparison
    from dagsim.report.tables import run_notes
    from dagsim.report.terminal import show_grid

    folders = [Store.open(run) for run in runs]
    lines, differences, missing = paired_lines(folders)
    for sentence in missing:
        typer.echo(f"warning: {sentence}", err=True)
    workload, sample = workload_label(folders[0].config), sample_of(folders[0].config)
    metric = metric or metric_of(folders[0].config)
    ranked = standings(lines, metric, reference, sample)
    if csv is not None:
        write_comparison(ranked, csv)
    if plot is not None:
        draw_comparison(ranked, plot, metric, workload=workload)
    to_bound = _to_bound(folders[0], lines, differences, metric, reference, watched=not json_) if bound else {}
    if json_:
        shown: dict[str, Any] = {"metric": metric, "reference": reference or lines[0].policy, "method": METHOD}
        plain = [standing.to_dict() for standing in ranked]
        shown |= {"workload": workload, "standings": plain, "differences": differences, "missing": missing}
        if bound:
            plain_shares = {name: share if isfinite(share) else None for name, share in to_bound.items()}
            shown |= {"share_of_the_way": plain_shares}
        typer.echo(json.dumps(shown | {"notes": run_notes(lines)}))
        return
    show_grid(comparison_table(ranked, metric, workload=workload, wide=wide, to_bound=to_bound), table, wide=wide)
    if precision is not None:
        for name, look in looks_at(lines, Precision(precision, unit=sample), metric, reference).items():
            typer.echo(f"precision of {name}: {look}")
    for note in run_notes(lines):
        typer.echo(note)
    for difference in differences:
        typer.echo(f"differs: {difference}")


def _to_bound(
    folder: Store,
    lines: Sequence[CellRun],
    differences: Sequence[str],
    metric: str,
    reference: str | None,
    *,
    watched: bool,
) -> dict[str, float]:
    """Share of the way from the reference to the bound, by policy."""
    from dagsim.errors import InputError
    from dagsim.experiment.bound import bounds_of_runs, shares_of_the_way
    from dagsim.report.terminal import counted

    if metric != "jct_s.mean":
        raise InputError(f"--bound: goes with the metric jct_s.mean, not with {metric}")
    if differences:
        raise InputError(f"--bound: the runs need the same cluster and models, but differ: {'; '.join(differences)}")
    bounds = bounds_of_runs(folder.config, lines, counted("bounding", watched, "seeds", every=1))
    return shares_of_the_way(lines, bounds, reference)
