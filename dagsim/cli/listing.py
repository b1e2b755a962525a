"""``dagsim list``: what there is to choose from."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from dagsim.cli.app import app
from dagsim.cli.options import Json

__all__ = ["What", "list_"]


class What(StrEnum):
    """What can be listed."""

    policies = "policies"
    placements = "placements"
    gpus = "gpus"
    workloads = "workloads"
    configs = "configs"
    readers = "readers"
    traces = "traces"


@app.command("list")
def list_(
    what: Annotated[What, typer.Argument(metavar="WHAT", help=f"One of {', '.join(What)}.", show_choices=False)],
    json_: Json = False,
) -> None:
    """List what there is to choose from.

    Example: dagsim list policies
    """
    from dagsim.report.listing import listing
    from dagsim.report.terminal import show

    show(*listing(what.value), as_json=json_)
