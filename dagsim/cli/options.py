"""Options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Algo", "ConfigFile", "Jobs", "Json", "Out", "Plots", "Quiet", "Seed", "Seeds", "Settings"]

Algo = Annotated[
    str | None,
    typer.Option(
        "--algo", "-a", "--policy", metavar="NAME", help="Scheduler: name, name\\[param=value] or module:attr."
    ),
]
ConfigFile = Annotated[
    str | None,
    typer.Option("--config", "-c", metavar="YAML", help="A file, a run folder, or a name of `dagsim list configs`."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="Change one key of the configuration; repeatable."),
]
Jobs = Annotated[
    str | None,
    typer.Option("--workload", "-w", metavar="NAME", help="Jobs: a name of `dagsim list workloads`, or a file."),
]
Seeds = Annotated[int | None, typer.Option(min=1, help="Runs, each on a workload of its own (default: as configured).")]
Seed = Annotated[int | None, typer.Option(min=0, help="Root of all chance (default: as configured).")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder that the run folder is made in.")]
Plots = Annotated[bool, typer.Option(help="Draw the first run into the run folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
