"""``dagsim replay``: a real trace through a scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dagsim.cli.app import app
from dagsim.cli.options import Algo, ConfigFile, Experiment, Output, Seed, Settings, TraceFlags, spread
from dagsim.cli.shared import experiment, resume_policies, run_policies

if TYPE_CHECKING:
    from dagsim.config.schema import Config

__all__ = ["replay"]


@app.command()
@spread
def replay(
    reading: TraceFlags,
    output: Output,
    trace: Annotated[
        Path | None, typer.Option("--trace", "-t", help="The trace, as its publisher ships it (required).")
    ] = None,
    algo: Algo = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="List every row that was dropped, and why, in this file.")
    ] = None,
    config: ConfigFile = None,
    set_: Settings = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs, each with other randomness on the same jobs.")] = 1,
    seed: Seed = None,
) -> None:
    """Replay a real trace through a scheduler; its format is recognised.

    Example: dagsim replay --trace batch_task.csv.gz --algo sjf --limit 1000
    """
    if output.resume is not None:
        what = Experiment(config=config, set_=set_, seed=seed)
        resume_policies("replay", output, what, reading, trace=trace, algo=algo, report=report)
        return
    if trace is None:
        raise typer.BadParameter("which trace? (or --resume RUN)", param_hint="'--trace'")
    from dagsim.config.schema import Setting

    described = {"kind": "trace", "path": str(trace), "format": reading.format_}
    workload = [Setting(f"--trace {trace}", "workload", described)]
    what = Experiment(config=config, set_=set_, seeds=seeds, seed=seed)
    chosen = experiment(what, reading, algo, more=workload, quiet=output.quiet or output.json_)
    if report is not None:
        _report(chosen, report, quiet=output.quiet or output.json_)
    run_policies("replay", chosen, (chosen.policy,), output)


def _report(config: Config, path: Path, *, quiet: bool) -> None:
    """Write what was dropped or tolerated, row by row."""
    from dagsim.files import write_text
    from dagsim.report.terminal import counted

    trace = config.trace().as_recorded(full_report=True)
    for _ in counted("listing dropped rows", wanted=not quiet)(trace.jobs()):
        pass
    write_text(path, "\n".join([f"# {trace.report}", *trace.report.details]) + "\n")
    if not quiet:
        typer.echo(f"{len(trace.report.details):,} rows listed in {path}")
