"""``dagsim why``: the reasons why a job waited."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dagsim.cli.app import app
from dagsim.cli.options import Json, TableLook
from dagsim.report.grid import TableFormat

if TYPE_CHECKING:
    from dagsim.experiment.store import Store

__all__ = ["why"]


@app.command()
def why(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    job: Annotated[str, typer.Argument(metavar="JOB", help="The id of a job, or #12 by the order of arrival.")],
    policy: Annotated[
        str | None,
        typer.Option("--policy", "-a", "--algo", metavar="NAME", help="Under which policy (default: the first)."),
    ] = None,
    number: Annotated[
        int | None, typer.Option("--run", min=0, help="Which run of the folder, counted from 0 (default: the first).")
    ] = None,
    show: Annotated[int, typer.Option(min=1, help="So many holders and overtakers.")] = 10,
    json_: Json = False,
    table: TableLook = TableFormat.TEXT,
) -> None:
    """Say why a job waited: which resource, limit or rule bound it, who held the GPUs meanwhile, who went first.

    Example: dagsim why results/RUN 1042
    """
    from dagsim.errors import InputError
    from dagsim.experiment.compare import explained_wait
    from dagsim.experiment.store import Store
    from dagsim.metrics.columns import columns
    from dagsim.metrics.why import find_job, wait_reasons
    from dagsim.report.tables import why_lines, why_tables
    from dagsim.report.terminal import show_grid

    folder = Store.open(run)
    place = _place(folder, policy, number)
    line = folder.lines()[place]
    schedule = folder.schedule(place)
    made = columns(schedule)
    asked = find_job(made, job)
    found, bound, unknown = wait_reasons(made, asked), None, ""
    try:
        bound = explained_wait(folder, schedule, line.policy, asked, found.periods)
    except InputError as error:
        unknown = str(error)
    if json_:
        told = {"bound": None if bound is None else [each.to_dict() for each in bound], "not_known": unknown or None}
        facts = {"run": str(folder.path), "policy": line.policy, "seed": line.seed}
        typer.echo(json.dumps(facts | found.to_dict() | told))
        return
    for text in why_lines(found, f"{line.policy}, seed {line.seed}", bound, unknown):
        typer.echo(text)
    for grid in why_tables(found, show):
        show_grid(grid, table)


def _place(folder: Store, policy: str | None, number: int | None) -> int:
    """The number of the run that is meant.

    Raises:
        InputError: There is none, it keeps no schedule, or two ways to name it were given.
    """
    from dagsim.errors import InputError
    from dagsim.experiment.store import is_sweep
    from dagsim.registry import nearest

    lines = folder.lines()
    if is_sweep(folder.path):
        raise InputError(
            f"{folder.path}: a sweep keeps no schedules of its runs; run the cell with dagsim eval or replay"
        )
    if policy is not None and number is not None:
        raise InputError("why: --policy and --run both say which run; give one of them")
    policies = [line.policy for line in lines]
    if policy is not None and policy not in policies:
        raise InputError(f"{folder.path}: no finished run of {policy!r}{nearest(policy, policies)}")
    place = policies.index(policy) if policy is not None else number or 0
    if place >= len(lines):
        raise InputError(f"{folder.path}: there is no run {place}; finished runs: {len(lines)}, counted from 0")
    return place
