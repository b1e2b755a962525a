"""``dagsim replay``: run a real trace through a scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dagsim.cli.app import app
from dagsim.cli.options import Algo, ConfigFile, Experiment, Output, Seed, Settings, TraceFlags, Windows, expand_options
from dagsim.cli.shared import experiment, resume_policies, run_policies

if TYPE_CHECKING:
    from dagsim.config.schema import Config

__all__ = ["replay_trace"]


@app.command("replay")
@expand_options
def replay_trace(
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
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Number of runs of the same jobs, each with a different seed (default: 1)."),
    ] = None,
    seed: Seed = None,
    reference: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Also run this scheduler, and compare (default with --blocks: fifo)."),
    ] = None,
    windows: Windows = None,
    blocks: Annotated[
        int | None,
        typer.Option(min=2, max=100, help="Give the ratio an interval over time, from this many blocks of jobs."),
    ] = None,
) -> None:
    """Replay a real trace through a scheduler. The format is detected.

    One trace is one sample: no interval and no verdict, unless it is cut into windows (--windows) or blocks (--blocks).

    Example: dagsim replay --trace batch_task.csv.gz --algo sjf --limit 1000
    """
    if output.resume is not None:
        what = Experiment(config=config, set_=set_, seed=seed)
        resume_policies("replay", output, what, reading, trace=trace, algo=algo, report=report, windows=windows)
        return
    if trace is None:
        raise typer.BadParameter("give --trace FILE or --resume RUN", param_hint="'--trace'")
    from dagsim.config.schema import Setting

    workload = [Setting(f"--trace {trace}", "workload", {"kind": "trace", "path": str(trace)})]
    what = Experiment(config=config, set_=set_, seeds=seeds, seed=seed)
    chosen = experiment(what, reading, algo, windows=windows, first=workload, quiet=output.quiet or output.json_)
    if report is not None:
        _report(chosen, report, quiet=output.quiet or output.json_)
    against = reference or (None if blocks is None else "fifo")
    if blocks is not None and against == chosen.policy:
        raise typer.BadParameter(f"--blocks: {against} would be compared with itself; --reference names another")
    if blocks is not None and chosen.trace().window is not None:
        raise typer.BadParameter("--blocks: windows have intervals of their own")
    policies = (chosen.policy,) if against is None else tuple(dict.fromkeys((against, chosen.policy)))
    run_policies("replay", chosen, policies, output, blocks, repeats=config)


def _report(config: Config, path: Path, *, quiet: bool) -> None:
    """Write a line for each row of the trace that was dropped or tolerated."""
    from dagsim.files import write_text
    from dagsim.report.terminal import counted

    trace = config.trace().as_recorded(full_report=True)
    for _ in counted("listing dropped rows", wanted=not quiet)(trace.jobs()):
        pass
    write_text(path, "\n".join([f"# {trace.report}", *trace.report.details]) + "\n")
    if not quiet:
        typer.echo(f"{len(trace.report.details):,} rows listed in {path}")
