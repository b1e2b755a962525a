"""``dagsim paper``: the published figures of a paper, beside ours."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from dagsim.cli.app import app
from dagsim.cli.options import Json, TableLook
from dagsim.report.grid import TableFormat

__all__ = ["repeat_paper"]


@app.command("paper")
def repeat_paper(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The paper (default: list them).")] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where its files are (default: DAGSIM_DATA, or here).")
    ] = None,
    json_: Json = False,
    table: TableLook = TableFormat.TEXT,
) -> None:
    """Print the figures of a paper as published, as simulated here, and their difference. Exits with 1 on a miss.

    Example: dagsim paper
    """
    from dagsim.experiment.papers import PAPERS, paper
    from dagsim.report.grid import Grid
    from dagsim.report.terminal import counted, show, show_grid

    if name is None:
        show(("paper", "what it is", "files"), [(key, of.title, of.source) for key, of in PAPERS.items()], json_)
        return
    chosen = paper(name)
    files = chosen.located(data or Path(os.environ.get("DAGSIM_DATA", ".")))
    figures = list(counted("simulating", not json_, "figures", every=1)(chosen.figures(files)))
    absent = [file for file in chosen.files if file not in files]
    missed = [figure for figure in figures if not figure.holds]
    if json_:
        facts: list[dict[str, object]] = [
            {**figure._asdict(), "difference": figure.difference, "holds": figure.holds} for figure in figures
        ]
        typer.echo(json.dumps({"paper": name, "title": chosen.title, "figures": facts, "missing": absent}))
    else:
        rows = [
            (of.name, f"{of.published:,.6g}", f"{of.here:,.6g}", f"{of.difference:.2g}", "" if of.holds else "differs")
            for of in figures
        ]
        heads = ("figure", "published", "here", "difference", "")
        note = f"{len(figures) - len(missed)} of {len(figures)} figures are equal to the published digits"
        notes = (note, f"not below {data or '.'}: {', '.join(absent)}. {chosen.source}") if absent else (note,)
        show_grid(Grid(chosen.title, heads, rows, notes, texts=(0, 4)), table)
    if missed:
        raise typer.Exit(1)
