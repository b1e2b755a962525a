"""``dagsim serve``: show run folders in a browser while they grow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dagsim.cli.app import app

__all__ = ["serve"]


@app.command()
def serve(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="Folder that contains run folders.")] = Path(
        "results"
    ),
    host: Annotated[
        str, typer.Option(help="Address to serve from; any but the loopback address shows the runs to others.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to serve from; 0 takes any free port.")] = 8765,
) -> None:
    """Show the runs of a folder in a browser: a list, a page for each, and live progress.

    The server writes nothing and contacts no other host.

    Example: dagsim serve results
    """
    from dagsim.report.serve.server import serve_folders

    serve_folders(results, host, port, lambda line: typer.echo(line))
