"""``dagsim list``: what there is to choose from."""

from __future__ import annotations

from typing import Annotated

import typer

from dagsim.cli.app import app
from dagsim.cli.options import Json
from dagsim.report.listing import LISTINGS, listing

__all__ = ["list_"]


def _known(what: str) -> str:
    if what not in LISTINGS:
        from dagsim.registry import nearest

        raise typer.BadParameter(f"there is no list {what!r}{nearest(what, LISTINGS)}; allowed: {', '.join(LISTINGS)}")
    return what


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(metavar="WHAT", help=f"One of {', '.join(LISTINGS)}.", callback=_known)],
    json_: Json = False,
) -> None:
    """List what there is to choose from.

    Example: dagsim list policies
    """
    from dagsim.report.terminal import show

    show(*listing(what), as_json=json_)
