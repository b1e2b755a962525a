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
        typer.Option("--policy", "-a", "--algo", metavar="NAME", help="Policy of the run (default: the first)."),
    ] = None,
    number: Annotated[
        int | None, typer.Option("--run", min=0, help="Number of the run, from 0 (default: the first).")
    ] = None,
    show: Annotated[int, typer.Option(min=1, help="Maximum number of jobs in each list.")] = 10,
    json_: Json = False,
    table: TableLook = TableFormat.TEXT,
) -> None:
    """Explain why a job waited: which resource, limit or rule held it back, who held the GPUs, who went first.

    Example: dagsim why results/RUN 1042
    """
    from dagsim.errors import InputError
    from dagsim.experiment.compare import explained_waits
    from dagsim.experiment.store import Store
    from dagsim.metrics.columns import columns
    from dagsim.metrics.why import find_job, wait_reasons
    from dagsim.report.tables import why_lines, why_tables
    from dagsim.report.terminal import show_grid

    folder = Store.open(run)
    place = _place(folder, policy, number)
    line = folder.lines()[place]
    schedule = folder.schedule(place)
    schedule_columns = columns(schedule)
    asked = find_job(schedule_columns, job)
    reasons, bound, unknown = wait_reasons(schedule_columns, asked), None, ""
    try:
        bound = explained_waits(folder, schedule, line.policy)(asked, reasons.periods)
    except InputError as error:
        unknown = str(error)
    if json_:
        causes = {
            "bound": None if bound is None else [cause.to_dict() for cause in bound],
            "not_known": unknown or None,
        }
        facts = {"run": str(folder.path), "policy": line.policy, "seed": line.seed}
        typer.echo(json.dumps(facts | reasons.to_dict() | causes))
        return
    for text in why_lines(reasons, f"{line.policy}, seed {line.seed}", bound, unknown):
        typer.echo(text)
    for grid in why_tables(reasons, show):
        show_grid(grid, table)


def _place(folder: Store, policy: str | None, number: int | None) -> int:
    """Return the number of the run that the options name.

    Raises:
        InputError: The run does not exist or keeps no schedule, or both options are given.
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
        raise InputError("why: --policy and --run both choose the run; give only one of them")
    policies = [line.policy for line in lines]
    if policy is not None and policy not in policies:
        raise InputError(f"{folder.path}: no finished run of {policy!r}{nearest(policy, policies)}")
    place = policies.index(policy) if policy is not None else number or 0
    if place >= len(lines):
        raise InputError(f"{folder.path}: there is no run {place}; finished runs: {len(lines)}, counted from 0")
    return place
