"""``dagsim trace fetch`` and ``dagsim trace list``: published traces, from their publishers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dagsim.cli.options import Json, Quiet
from dagsim.cli.trace import trace_app

if TYPE_CHECKING:
    from dagsim.traces.fetch import Fetched

__all__ = ["fetch_trace", "list_traces"]


@trace_app.command("fetch")
def fetch_trace(
    name: Annotated[str, typer.Argument(metavar="NAME", help="One of `dagsim trace list`.")],
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="The trace gets a folder of its own in it.")] = Path(
        "traces"
    ),
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Download a published trace from its publisher, resumed where it was cut off, and verify it.

    Example: dagsim trace fetch ctc-sp2
    """
    from dagsim.report.terminal import downloading
    from dagsim.traces.catalogue import published_trace
    from dagsim.traces.fetch import fetch

    trace = published_trace(name)
    folder = to / name
    try:
        with downloading(wanted=not (json_ or quiet)) as watch:
            files = fetch(trace, folder, watch)
    except KeyboardInterrupt:
        typer.echo(f"interrupted: what came is kept in {folder}; the same command resumes there", err=True)
        raise typer.Exit(130) from None
    opened = folder / trace.opened if trace.opened else folder
    if json_:
        told = [
            {
                "path": str(file.path),
                "bytes": file.bytes,
                "sha256": file.sha256,
                "verified": file.verified,
                "downloaded": file.downloaded,
            }
            for file in files
        ]
        typer.echo(json.dumps({"name": name, "format": trace.format, "path": str(opened), "files": told}))
    elif not quiet:
        for file in files:
            typer.echo(_line(file))
        typer.echo(f"terms: {trace.terms} ({trace.page})")
        typer.echo(f"next: {trace.after or f'dagsim replay --trace {opened} --format {trace.format}'}")


@trace_app.command("list")
def list_traces(json_: Json = False) -> None:
    """List the published traces that can be fetched, with their sizes and terms.

    Example: dagsim trace list
    """
    from dagsim.report.listing import listing
    from dagsim.report.terminal import show

    show(*listing("traces"), as_json=json_)


def _line(file: Fetched) -> str:
    came = "fetched" if file.downloaded else "there already"
    if file.verified:
        return f"{file.path}: {file.bytes:,} bytes, {came}, SHA-256 as published"
    return f"{file.path}: {file.bytes:,} bytes, {came}; not verified, no checksum is published: SHA-256 {file.sha256}"
