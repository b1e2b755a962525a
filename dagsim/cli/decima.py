"""``dagsim decima``: train, judge and film Decima's network on the Spark simulation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dagsim.cli.app import app

__all__ = ["evaluate", "record", "train"]

decima_app = typer.Typer(help="Learned and other policies for Spark executors.", no_args_is_help=True)
app.add_typer(decima_app, name="decima")

Executors = Annotated[int, typer.Option(min=1, help="Executors of the cluster.")]
Jobs = Annotated[int, typer.Option(min=1, help="Jobs per episode.")]
Parity = Annotated[bool, typer.Option(help="spark-sched-sim's rules and random numbers (needs --profiles).")]
Profiles = Annotated[
    str | None, typer.Option(metavar="PATH", help="Profiled TPC-H queries (default: made-up ones like them).")
]
Gap = Annotated[float, typer.Option(help="Mean seconds between two arrivals.")]
Batch = Annotated[int, typer.Option(min=1, help="So many jobs arrive at once, at the beginning.")]
Trace = Annotated[
    str | None, typer.Option(metavar="PATH", help="Draw jobs from this trace of DAG jobs, as Alibaba 2018, instead.")
]
MostTasks = Annotated[int | None, typer.Option(min=1, help="Leave out a trace's jobs of more tasks.")]
Algo = Annotated[
    list[str],
    typer.Option("--algo", "-a", metavar="NAME", help="Heuristic, or decima\\[checkpoint=FILE]; repeatable."),
]


@decima_app.command()
def train(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for log and networks; what is there is replaced.")],
    config: Annotated[
        Path | None, typer.Option("--config", "-c", metavar="YAML", help="As results/decima/w1.yaml (default: W2).")
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="Change one key.")] = None,
) -> None:
    """Train a network.

    Example: dagsim decima train --set minutes=5 --out results/my-decima
    """
    from dagsim.config.decima import load_training
    from dagsim.experiment.decima_training import train_decima

    typer.echo(train_decima(load_training(config, set_ or ()), out, typer.echo))


@decima_app.command("eval")
def evaluate(
    algo: Algo,
    executors: Executors = 50,
    jobs: Jobs = 200,
    parity: Parity = False,
    profiles: Profiles = None,
    trace: Trace = None,
    most_tasks: MostTasks = None,
    mean_gap_s: Gap = 25.0,
    batch: Batch = 1,
    seeds: Annotated[str, typer.Option(help="As 1,2,3 or 10-19.")] = "0-9",
    reference: Annotated[str, typer.Option(help="What the ratios are to.")] = "weighted-fair",
    json_: Annotated[bool, typer.Option("--json", help="Print all values as one JSON object.")] = False,
) -> None:
    """Mean completion times on the same job sequences, each paired with the reference.

    Example: dagsim decima eval --algo fair --algo srpt-cp[cap=16] --seeds 0-4
    """
    from dagsim.agents.decima_workload import Workload
    from dagsim.experiment.decima_report import compare, numbers, plain, table

    workload = Workload(executors, jobs, mean_gap_s, batch, parity, profiles, trace, most_tasks)
    lines = compare(algo, workload, numbers(seeds), reference)
    typer.echo(json.dumps(plain(lines, workload, numbers(seeds)), indent=1) if json_ else table(lines))


@decima_app.command()
def record(
    algo: Annotated[str, typer.Option("--algo", "-a", metavar="NAME", help="Heuristic, or decima\\[checkpoint=FILE].")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The picture (.png); the animation (.gif) goes beside it.")],
    executors: Executors = 10,
    jobs: Jobs = 20,
    parity: Parity = False,
    profiles: Profiles = None,
    seed: Annotated[int, typer.Option(min=0)] = 1,
    film: Annotated[bool, typer.Option(help="Also make the animation.")] = True,
) -> None:
    """Draw an episode: executors over time, one colour per job.

    Example: dagsim decima record --algo fair --out fair.png
    """
    from dagsim.agents.decima_workload import Workload
    from dagsim.experiment.decima_recording import record as write
    from dagsim.experiment.decima_report import policy_of

    workload = Workload(executors, jobs, parity=parity, profiles=profiles)
    simulation = workload.simulation(workload.pool(), seed, record=True)
    mean_s = write(simulation, policy_of(algo), algo, out, out.with_suffix(".gif") if film else None)
    typer.echo(f"mean completion time {mean_s:.1f} s; {out}")
