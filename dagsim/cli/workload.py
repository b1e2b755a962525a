"""``dagsim workload``: workloads described and kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dagsim.cli.app import app
from dagsim.cli.options import ConfigFile, Json, Seed, Settings
from dagsim.cli.shared import configured, given

__all__ = ["workload_app"]

workload_app = typer.Typer(help="Look at workloads.", no_args_is_help=True)
app.add_typer(workload_app, name="workload")


@workload_app.command("info")
def show_workload(
    workload: Annotated[str, typer.Argument(help="A name of `dagsim list workloads`, or a file.")],
    config: ConfigFile = None,
    set_: Settings = None,
    seed: Seed = None,
    json_: Json = False,
) -> None:
    """Say what a workload is like: sizes, shapes, arrivals, and the load it offers.

    Example: dagsim workload info heterogeneous-dag
    """
    from dagsim.experiment.scenario import cluster_scenario_of
    from dagsim.report.tables import info_tables, workload_notes
    from dagsim.report.terminal import console
    from dagsim.workload import workload_info

    chosen = configured(config, set_, given(seed=seed), workload)
    cluster = chosen.build_cluster()
    jobs = cluster_scenario_of(chosen).jobs(chosen.seed)
    info = workload_info(jobs, cluster, chosen.runtime)
    if json_:
        typer.echo(json.dumps({"workload": workload, "cluster": str(cluster), **info.to_dict(), **jobs.facts()}))
        return
    console().print(*info_tables(info), sep="\n")
    for note in workload_notes([jobs.facts()]):
        typer.echo(note)


@workload_app.command("save")
def workload_save(
    workload: Annotated[str, typer.Argument(help="A name of `dagsim list workloads`, or a file.")],
    path: Annotated[Path, typer.Argument(help="The file to write: JSON Lines, compressed if it ends in .gz.")],
    config: ConfigFile = None,
    set_: Settings = None,
    seed: Seed = None,
) -> None:
    """Write the jobs of a workload to a file, to be replayed anywhere.

    Example: dagsim workload save steady steady.jsonl.gz --seed 3
    """
    from dagsim.config.schema import plain
    from dagsim.experiment.scenario import cluster_scenario_of
    from dagsim.workload import write_jobs

    chosen = configured(config, set_, given(seed=seed), workload)
    jobs = cluster_scenario_of(chosen).jobs(chosen.seed)
    meta = {key: plain(getattr(chosen, key)) for key in ("workload", "runtime", "cluster", "seed")}
    typer.echo(f"{write_jobs(path, jobs, meta)} jobs written to {path}")
