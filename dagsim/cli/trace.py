"""``dagsim trace``: traces converted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dagsim.cli.app import app

__all__ = ["trace_app"]


trace_app = typer.Typer(help="Convert traces.", no_args_is_help=True)
app.add_typer(trace_app, name="trace")


@trace_app.callback()
def _traces() -> None:
    pass


@trace_app.command("convert")
def convert_trace(
    path: Annotated[Path, typer.Argument(metavar="IN", help="The trace, as its publisher ships it.")],
    to: Annotated[Path, typer.Argument(metavar="OUT", help="A file called .jsonl or .jsonl.gz.")],
    format_: Annotated[str | None, typer.Option("--format", help="Its format (default: recognised).")] = None,
) -> None:
    """Rewrite a trace of any format as JSON Lines."""
    from dagsim.experiment.traces.convert import convert

    typer.echo(str(convert(path, to, format_)))
