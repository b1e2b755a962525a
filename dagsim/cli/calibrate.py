"""``dagsim calibrate``: fit a site's hidden rules on the first part of its log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dagsim.cli.app import app, say
from dagsim.cli.options import ConfigFile, Experiment, Json, Quiet, Settings, TraceFlags, expand_options
from dagsim.cli.shared import audited, experiment, trace_at


@app.command("calibrate")
@expand_options
def calibrate_site(
    reading: TraceFlags,
    trace: Annotated[Path, typer.Option("--trace", "-t", help="The log of the site.")],
    config: ConfigFile = None,
    set_: Settings = None,
    fit: Annotated[float, typer.Option(min=0.1, max=0.9, help="Part of the jobs to fit on, from the first.")] = 0.5,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="YAML", help="Write the fitted configuration here.")
    ] = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit what no file of a Slurm site states, on the first part of its log.

    Tries cycle lags, tie rules and hidden limits, and prints the error of the simulated waits on the rest of the log,
    with and without the fit.

    Example: dagsim calibrate --trace sacct.txt --config cluster.yaml -o calibrated.yaml
    """
    from dagsim.config.schema import dump_config
    from dagsim.experiment.calibrate import calibrate
    from dagsim.files import write_text
    from dagsim.report.tables import fidelity_lines
    from dagsim.report.terminal import counted

    watched = not (quiet or json_)
    what = Experiment(config=config, set_=set_)
    chosen = experiment(what, reading, "slurm-multifactor", first=trace_at(trace), watched=watched)
    audit = audited(chosen, told=watched)
    result = calibrate(chosen, fit, counted("fitting", watched, "replays", every=5))
    if output is not None:
        text = f"# Fitted by dagsim calibrate on the first {result.fitted:,} of {result.jobs:,} jobs of {trace.name}.\n"
        write_text(output, text + dump_config(result.config))
    if json_:
        say(json.dumps({"audit": audit.to_dict(), **result.to_dict()}))
        return
    if quiet:
        return
    say(f"fitted on the first {result.fitted:,} of {result.jobs:,} jobs: {len(result.trials)} values tried")
    for name, value in result.kept.items():
        say(f"  {name} = {value}")
    if not result.kept:
        say("  no value brings the simulation nearer to the log")
    say("\n".join(fidelity_lines("the rest, before the fit", result.before.to_dict())))
    say("\n".join(fidelity_lines("the rest, after the fit", result.after.to_dict())))
    if not result.carries_over:
        say("The fit does not carry over to the rest of the log: do not use it.")
