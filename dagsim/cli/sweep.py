"""``dagsim sweep``: run an experiment with every combination of some settings."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from dagsim import services
from dagsim.cli.app import app, say
from dagsim.cli.configuring import audited, checked, trust
from dagsim.cli.options import Strict, SweepOutput, expand_options
from dagsim.cli.running import carried
from dagsim.cli.telling import audit_of
from dagsim.text import count_of

if TYPE_CHECKING:
    from dagsim.experiment.cell import Cell
    from dagsim.experiment.cell_run import CellRun
    from dagsim.experiment.plan import Plan
    from dagsim.experiment.store import Store
    from dagsim.experiment.sweep_grid import SweepGrid


@app.command()
@expand_options
def sweep(
    grid: Annotated[
        Path, typer.Argument(metavar="YAML|FOLDER", help="The sweep file, or the folder of an earlier sweep.")
    ],
    output: SweepOutput,
    max_cells: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of cells to run now (default: all).")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cells without running them.")] = False,
    strict: Strict = False,
    show: Annotated[
        bool, typer.Option("--show", help="Print the results that are already in the folder, without running anything.")
    ] = False,
    metric: Annotated[str | None, typer.Option(help="Metric to compare (default: the first in the sweep).")] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Reference policy or value, with which the others are compared (default: the first)."
        ),
    ] = None,
) -> None:
    """Run an experiment with all combinations of some settings, print a table and write a run
    folder.

    A cell is one combination with one seed. Cells that are already in the folder are not run again.
    You can therefore repeat the command after an interruption or with a larger grid.

    Example: dagsim sweep sweep.yaml --executor local:4
    """
    from dagsim.errors import InputError
    from dagsim.experiment.plan import Plan

    opened, described = _read(grid, output.name)
    if described.trains:
        wrong = {"--metric": metric, "--reference": reference, "--max-cells": max_cells, "--show": show or None}
        if unsuitable := [name for name, value in wrong.items() if value is not None]:
            raise InputError(f"{', '.join(unsuitable)}: does not apply to a sweep over training runs")
        services.training_sweep(described, output, dry_run=dry_run)
        return
    plan = Plan.of_grid(described, "sweep" if opened is None else opened.manifest["command"])
    shown = _shown(described, metric, reference, output)
    if dry_run:
        _list(plan.cells, shown)
        return
    if show:
        if opened is None:
            raise InputError("--show: expected the folder of a sweep (results/sweep-NAME)")
        _tell(opened, plan.cells, opened.done(plan.cells), shown)
        return
    if strict:
        _refuse_contradictions(plan.cells)
    store, runs = swept(plan, output, None if opened is None else grid.parent, limit=max_cells)
    failed = {cell: run for cell, run in runs.items() if run.error}
    with store.noting():
        _tell(store, plan.cells, {cell: run for cell, run in runs.items() if not run.error}, shown)
    for cell, run in failed.items():
        say(f"failed: cell {cell.id}: {run.error}", err=True)
    left = len(plan.cells) - len(runs)
    if left and output.watched:
        say(f"{count_of(left, 'cell')} left to run: dagsim sweep {store.path}")
    if failed:
        raise typer.Exit(1)


def _read(grid: Path, name: str | None) -> tuple[Store | None, SweepGrid]:
    """Read a sweep file or the folder of a sweep, and trust the code named there."""
    from dagsim.errors import InputError
    from dagsim.experiment.store import Store
    from dagsim.experiment.sweep_grid import read_grid

    if not grid.is_dir():
        described = read_grid(grid, name)
        trust(grid, *([] if described.base is None else [described.base]))
        return None, described
    if name is not None:
        raise InputError(f"--name: {grid} already has a name, so leave out --name")
    opened = Store.open(grid)
    described = opened.as_grid().sweep
    trust(grid / "config.yaml")
    return opened, described


def _shown(described: SweepGrid, metric: str | None, reference: str | None, output: SweepOutput) -> _Shown:
    """Check the options that determine what the table shows."""
    from dagsim.errors import InputError
    from dagsim.experiment.compare import compared_axis
    from dagsim.spelling import choices

    metric = metric or described.metrics[0]
    checked("--metric", metric, own=described.metrics)
    labels = compared_axis(described.axes).labels
    if reference is not None and reference not in labels:
        raise InputError(
            f"--reference: there is no {reference!r} in the comparison{choices(reference, labels, both=True)}"
        )
    return _Shown(metric, reference, output)


def swept(
    plan: Plan, output: SweepOutput, out: Path | None = None, *, limit: int | None = None
) -> tuple[Store, dict[Cell, CellRun]]:
    """Run the cells of a grid in its folder below ``out`` (default: the folder that ``output``
    names).
    """
    from dagsim.experiment.carry_out import check_plan
    from dagsim.experiment.executors import executor_for
    from dagsim.experiment.store import Store

    executor_for(output.on)
    check_plan(plan)
    store = Store.begin(output.out if out is None else out, plan, argv=["dagsim", *sys.argv[1:]])
    return store, carried(store, plan, output.on, watched=output.watched, limit=limit).runs


def _refuse_contradictions(cells: Sequence[Cell]) -> None:
    """Reject a log that contradicts itself or the site in one of the cells.

    Raises:
        ContradictoryInput: Contradictions affect too many jobs or hours.
    """
    for config in {id(cell.config): cell.config for cell in cells}.values():
        if config.trace_file is not None:
            audited(config, told=False).refuse(config.trace_file.path)


class _Shown(NamedTuple):
    """Options for printing the results of a sweep."""

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
            say(count_of(len(cells), "cell"))


def _tell(folder: Store, cells: Sequence[Cell], done: Mapping[Cell, CellRun], shown: _Shown) -> None:
    """Print the contradictions in the input of the finished cells, followed by the table of their
    results. With JSON, print everything as one object."""
    from dagsim.experiment.compare import compared_axis, grouped_standings
    from dagsim.experiment.scenario import sample_of, workload_label
    from dagsim.metrics.standings import METHOD
    from dagsim.report.comparison import sweep_table
    from dagsim.report.grid import TableFormat
    from dagsim.report.tables import contradictions, losses, run_notes
    from dagsim.report.terminal import show_grid

    sweep, sample = folder.as_grid().sweep, sample_of(folder.config)
    lines = [done[cell] for cell in cells if cell in done]
    groups = grouped_standings(lines, sweep.axes, shown.metric, sample, shown.reference)
    if shown.output.json_:
        facts: dict[str, Any] = audit_of(lines) | {"run": str(folder.path), "state": folder.state, "cells": len(cells)}
        facts |= {"done": len(done), "metric": shown.metric, "method": METHOD}
        facts |= {"compared": compared_axis(sweep.axes).key, "groups": [group.to_dict() for group in groups]}
        facts["notes"] = run_notes(lines)
        say(json.dumps(facts))
        return
    if shown.output.quiet:
        return
    urgent = [*contradictions([line.workload for line in lines]), *losses(lines)]
    for note in urgent:
        say(note, err=shown.output.table is not TableFormat.TEXT)
    metrics = (shown.metric, *(metric for metric in sweep.metrics if metric != shown.metric))
    label = workload_label(folder.config)
    grid = sweep_table(
        groups, sweep.axes, metrics, name=sweep.name, workload=label, sample=sample, wide=shown.output.wide
    )
    show_grid(grid, shown.output.table, wide=shown.output.wide)
    for note in run_notes(lines):
        if note not in urgent:
            say(note)
    say(f"run folder: {folder.path}")
