"""``dagsim sweep``: one experiment under many settings."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from dagsim.cli.app import app
from dagsim.cli.options import SweepOutput, expand_options
from dagsim.cli.shared import trust

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagsim.experiment.carry_out import Swept
    from dagsim.experiment.plan import Cell, Sweep
    from dagsim.experiment.store import CellLine, SweepFolder

__all__ = ["sweep", "swept"]


@app.command()
@expand_options
def sweep(
    grid: Annotated[Path, typer.Argument(metavar="YAML|FOLDER", help="The grid, or the folder of a sweep.")],
    output: SweepOutput,
    limit: Annotated[int | None, typer.Option(min=1, help="Run at most so many cells now.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cells, and run none.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Print what the folder holds, and run nothing.")] = False,
    metric: Annotated[
        str | None, typer.Option(help="What to compare by (default: the first of the sweep's metrics).")
    ] = None,
    reference: Annotated[
        str | None, typer.Option(metavar="NAME", help="What the others are compared with (default: the first).")
    ] = None,
) -> None:
    """Run an experiment under every combination of some settings, and compare: a table and a folder.

    What the folder holds is not run again: start it anew after a stop, or after the grid has grown.

    Example: dagsim sweep sweep.yaml --on local:4
    """
    from dagsim.errors import InputError
    from dagsim.experiment.plan import cells_of, read_sweep
    from dagsim.experiment.store import SweepFolder

    out = output.out
    if grid.is_dir():
        if output.name is not None:
            raise InputError(f"--name: {grid} has one already")
        opened = SweepFolder.open(grid)
        described, out, command = opened.sweep, grid.parent, opened.run.manifest["command"]
        trust(grid / "config.yaml")
    else:
        described, command = read_sweep(grid, output.name), "sweep"
        trust(grid, *([] if described.base is None else [described.base]))
    cells = cells_of(described)
    shown = _Shown(metric or described.metrics[0], reference, output)
    if dry_run:
        _list(cells, shown)
        return
    if show:
        if not grid.is_dir():
            raise InputError("--show: give the folder of the sweep (results/sweep-NAME)")
        _tell(opened, cells, opened.done(cells), shown)
        return
    folder, result = swept(described, cells, output.on, out, command=command, limit=limit, watched=output.watched)
    _tell(folder, cells, result.done, shown)
    for failure in result.failures:
        typer.echo(f"failed: cell {failure.id}: {failure.error}", err=True)
    if result.left and output.watched:
        typer.echo(f"{result.left:,} cells are left to be run: dagsim sweep {folder.path}")
    if result.failures:
        raise typer.Exit(1)


def swept(
    described: Sweep,
    cells: Sequence[Cell],
    on: str,
    out: Path,
    *,
    command: str = "sweep",
    limit: int | None = None,
    watched: bool = True,
) -> tuple[SweepFolder, Swept]:
    """Run the cells into the folder of the sweep under a progress bar; Ctrl-C keeps what is finished."""
    from dagsim.experiment.carry_out import check_cells, run_cells
    from dagsim.experiment.executors import executor_for
    from dagsim.experiment.stopping import exit_code
    from dagsim.experiment.store import SweepFolder
    from dagsim.report.terminal import progress

    executor = executor_for(on)
    check_cells(cells)
    folder = SweepFolder.claim(out, described, cells, argv=["dagsim", *sys.argv[1:]], command=command)
    try:
        with progress(wanted=watched) as watch:
            return folder, run_cells(folder, cells, executor, watch, limit)
    except KeyboardInterrupt as stop:
        kept = f"{len(folder.done(cells))} finished cells are kept in {folder.path}"
        text = f"interrupted: {kept}; the same command goes on with it"
        typer.echo(text, err=True)
        raise typer.Exit(exit_code(stop)) from None


class _Shown(NamedTuple):
    """The way in which a sweep is printed."""

    metric: str
    reference: str | None
    output: SweepOutput


def _list(cells: Sequence[Cell], shown: _Shown) -> None:
    """Print the cells without running them."""
    from dagsim.report.terminal import show

    if not shown.output.quiet:
        rows = [(cell.id, cell.label, cell.seed) for cell in cells]
        show(("cell", "what", "seed"), rows, shown.output.json_)
        if not shown.output.json_:
            typer.echo(f"{len(cells):,} cells")


def _tell(folder: SweepFolder, cells: Sequence[Cell], done: Mapping[str, CellLine], shown: _Shown) -> None:
    """Print the table of the finished cells, or all of it as JSON."""
    from dagsim.experiment.compare import compared_axis, grouped_standings
    from dagsim.experiment.scenario import sample_of, workload_label
    from dagsim.metrics.standings import METHOD
    from dagsim.report.comparison import sweep_table
    from dagsim.report.terminal import show_grid

    sweep, sample = folder.sweep, sample_of(folder.run.config)
    lines = [done[cell.id] for cell in cells if cell.id in done]
    groups = grouped_standings(lines, sweep.axes, shown.metric, sample, shown.reference)
    if shown.output.json_:
        told: dict[str, Any] = {"run": str(folder.path), "state": folder.run.state, "cells": len(cells)}
        told |= {"done": len(done), "metric": shown.metric, "method": METHOD}
        told |= {"compared": compared_axis(sweep.axes).key, "groups": [group.to_dict() for group in groups]}
        typer.echo(json.dumps(told))
        return
    if shown.output.quiet:
        return
    metrics = (shown.metric, *(metric for metric in sweep.metrics if metric != shown.metric))
    label = workload_label(folder.run.config)
    grid = sweep_table(
        groups, sweep.axes, metrics, name=sweep.name, workload=label, sample=sample, wide=shown.output.wide
    )
    show_grid(grid, shown.output.table, wide=shown.output.wide)
    typer.echo(f"run folder: {folder.path}")
