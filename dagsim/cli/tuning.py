"""``dagsim tune``: choose the parameters of a heuristic on validation seeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dagsim.cli.app import app, say
from dagsim.cli.configuring import checked, experiment
from dagsim.cli.options import (
    ConfigFile,
    Experiment,
    Json,
    Name,
    On,
    Out,
    Output,
    Quiet,
    Resume,
    Settings,
    SystemName,
    TableLook,
    TraceFlags,
    Wide,
    Windows,
    WorkloadName,
    expand_options,
)
from dagsim.cli.running import resume_policies, run_policies
from dagsim.cli.telling import tell_failures
from dagsim.errors import InputError
from dagsim.report.grid import TableFormat


@app.command()
@expand_options
def tune(
    trace: TraceFlags,
    windows: Windows = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            "-a",
            metavar="NAME",
            help="Scheduler: name or name\\[param=value]. Required unless you give --resume.",
        ),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            "-p",
            metavar="NAME=VALUE,...",
            help=("Values to try (default: the values that the policy suggests)."),
        ),
    ] = None,
    metric: Annotated[str, typer.Option(help="Metric to optimise.")] = "jct_s.mean",
    seeds: Annotated[int, typer.Option(min=2, help="Number of validation seeds.")] = 30,
    yaml: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the tuned configuration to this file.")
    ] = None,
    workload: WorkloadName = None,
    config: ConfigFile = None,
    set_: Settings = None,
    system: SystemName = None,
    out: Out = Path("results"),
    json_: Json = False,
    quiet: Quiet = False,
    wide: Wide = False,
    table: TableLook = TableFormat.TEXT,
    resume: Resume = None,
    name: Name = None,
    on: On = "local",
) -> None:
    """Find the best parameters of a scheduler on validation seeds, and save them as a
    configuration.

    Example: dagsim tune --policy eft-wait --param theta=0.7,0.8,0.9,1
    """
    from dagsim.experiment.simulate import check
    from dagsim.experiment.tune import candidates, grid_of, tuning_of
    from dagsim.report.comparison import comparison_table
    from dagsim.report.terminal import show_grid
    from dagsim.seeds import VALIDATION, seeds_of

    output = Output(
        out=out, plots=False, json_=json_, quiet=quiet, wide=wide, table=table, resume=resume, name=name, on=on
    )
    what = Experiment(workload, config, set_, system)
    if resume is not None:
        kept = resume_policies("tune", output, what, trace, policy=policy, param=param, yaml=yaml, windows=windows)
    else:
        if policy is None:
            raise InputError("dagsim tune: give --policy NAME, or --resume RUN to continue a run")
        chosen = experiment(what, trace, policy, windows=windows, watched=output.watched)
        checked("--metric", metric, chosen)
        check(chosen, (policy,))  # first, so that an unknown policy is reported as such
        tried = candidates(policy, grid_of(policy, param or ()))
        about = {"metric": metric, "keep": None if yaml is None else str(yaml)}
        kept = run_policies(
            "tune", chosen, tried, output, label=chosen.policy, seeds=seeds_of(VALIDATION, seeds), about=about
        )
    folder = kept.folder
    with folder.noting():
        ranked, best, files = tuning_of(folder, kept.lines)
        metric = folder.manifest["plan"]["metric"]
        if json_:
            rows = [result.to_dict() for result in ranked]
            say(json.dumps({"run": str(folder.path), "best": best.policy, "metric": metric, "standings": rows}))
        elif not quiet:
            label = f"{folder.label}, validation"
            show_grid(comparison_table(ranked, metric, workload=label, wide=wide), table, wide=wide)
            say(f"best: {best.policy}; saved in {files[-1]}")
    tell_failures(folder)
