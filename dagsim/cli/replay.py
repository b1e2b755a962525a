"""``dagsim replay``: a real trace through a scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dagsim.cli.app import app
from dagsim.cli.options import Algo, ConfigFile, Json, Out, Plots, Quiet, Seed, Settings
from dagsim.cli.shared import Output, cluster_of, configured, given, run_policies

__all__ = ["replay"]


@app.command()
def replay(
    trace: Annotated[Path, typer.Option("--trace", "-t", help="The trace, as its publisher ships it.")],
    algo: Algo = None,
    format_: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="Its format (default: recognised; dagsim list readers)."),
    ] = None,
    cluster: Annotated[str | None, typer.Option(metavar="YAML", help="Configuration to take the cluster from.")] = None,
    gpus_per_task: Annotated[
        float | None, typer.Option(help="GPUs that each instance of a CPU-only trace occupies (default: none).")
    ] = None,
    reference_gpu: Annotated[
        str | None, typer.Option(metavar="GPU", help="GPU type that durations were measured on (default: unknown).")
    ] = None,
    load: Annotated[
        float | None, typer.Option(help="Offered load to scale the arrivals to (default: as traced).")
    ] = None,
    time_scale: Annotated[float | None, typer.Option(help="Factor on the times between arrivals (default: 1).")] = None,
    start: Annotated[int | None, typer.Option(help="Jobs left out at the beginning (default: 0).")] = None,
    limit: Annotated[int | None, typer.Option(help="Jobs kept at most (default: all).")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Make the first dirty row an error.")] = False,
    config: ConfigFile = None,
    set_: Settings = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs, each with other chance on the same jobs.")] = 1,
    seed: Seed = None,
    out: Out = Path("results"),
    plots: Plots = True,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Replay a real trace through a scheduler; its format is recognised.

    Example: dagsim replay --trace batch_task.csv.gz --algo sjf --limit 1000
    """
    from dagsim.experiment.config import Setting

    settings = [Setting(f"--trace {trace}", "workload", {"kind": "trace", "path": str(trace), "format": format_})]
    options = {
        "gpus_per_task": gpus_per_task,
        "reference_gpu": reference_gpu,
        "load": load,
        "time_scale": time_scale,
        "start": start,
        "limit": limit,
        "strict": strict or None,
    }
    settings += given(**{f"workload.options.{key}": value for key, value in options.items()})
    if cluster is not None:
        settings += cluster_of(cluster)
    chosen = configured(config, set_, [*settings, *given(policy=algo, seeds=seeds, seed=seed)])
    run_policies("replay", chosen, (chosen.policy,), Output(out, plots, json_, quiet))
