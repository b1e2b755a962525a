"""The app that all commands join, and what becomes of their errors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dagsim.errors import DagsimError, InputError

__all__ = ["app", "main"]


class _Guarded(typer.core.TyperGroup):
    """Says what the user did wrong in plain words instead of a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except DagsimError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(2 if isinstance(error, InputError) else 1) from None


app = typer.Typer(
    cls=_Guarded,
    help="Simulate DAG jobs on heterogeneous GPU clusters, and say which scheduler is better.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """The entry point."""
    sys.path.append(str(Path.cwd()))  # where --algo my_module:MyPolicy is looked for, last
    app()


def _version(wanted: bool) -> None:
    if wanted:
        import dagsim

        typer.echo(f"dagsim {dagsim.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass
