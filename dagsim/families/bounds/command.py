"""The command ``dagsim bound``, which computes a bound that no schedule can beat."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dagsim.cli.app import app, say
from dagsim.cli.configuring import experiment, trace_at
from dagsim.cli.options import (
    ConfigFile,
    Experiment,
    Json,
    Quiet,
    Seed,
    Settings,
    TraceFlags,
    Windows,
    WorkloadName,
    expand_options,
)
from dagsim.text import count_of


@app.command("bound")
@expand_options
def print_bound(
    reading: TraceFlags,
    trace: Annotated[
        Path | None, typer.Option("--trace", "-t", help="A trace: a published file, or your own table.")
    ] = None,
    workload: WorkloadName = None,
    config: ConfigFile = None,
    set_: Settings = None,
    seed: Seed = None,
    windows: Windows = None,
    preemptive: Annotated[
        bool,
        typer.Option("--preemptive", help="Also make the bound valid for schedules that preempt and resume tasks."),
    ] = False,
    area: Annotated[
        bool, typer.Option("--area", help="Weight each job by its GPU-seconds, as in the metric area_weighted_jct_s.")
    ] = False,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Print a proven lower bound on the sum of completion times over all schedules of a workload.

    Small cases are solved exactly (docs/reference/bound.md).

    Example: dagsim bound --workload heterogeneous --seed 3
    """
    from dagsim.experiment.scenario import experiment_seeds, workload_label
    from dagsim.families.bounds.bound import bound_of
    from dagsim.report.terminal import counted

    watched = not (quiet or json_)
    what, log = Experiment(workload, config, set_, seed=seed), [] if trace is None else trace_at(trace)
    chosen = experiment(what, reading, windows=windows, first=log, watched=watched)
    number = experiment_seeds(chosen)[0]
    watch = counted("searching for prices", watched, "steps", every=10)
    least = bound_of(chosen, number, preemptive=preemptive, by_area=area, watch=watch)
    if json_:
        say(json.dumps({**least.to_dict(), "seed": number, "workload": workload_label(chosen)}))
    elif not quiet:
        unit, by = ("GPU s^2", ", weighted by area") if area else ("s", "")
        which = "valid for all schedules" if least.preemptive else "valid for all schedules that never stop a run"
        say(
            f"{workload_label(chosen)}, seed {number}: {count_of(least.jobs, 'job takes', 'jobs take')} "
            f"{least.bound_s:,.6g} {unit} or more in "
            f"total, {least.mean_s:,.6g} s on average{by} ({least.kind} bound; {which})"
        )
        if least.rejected:
            say(f"left out: {count_of(least.rejected, 'job')} that the cluster cannot run")
