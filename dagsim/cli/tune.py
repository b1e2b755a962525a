"""``dagsim tune``: choose the parameters of a heuristic on validation seeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dagsim.cli.app import app
from dagsim.cli.options import (
    ConfigFile,
    Experiment,
    Jobs,
    Json,
    Name,
    On,
    Out,
    Output,
    Quiet,
    Resume,
    Settings,
    System,
    TableLook,
    TraceFlags,
    Wide,
    Windows,
    Workers,
    expand_options,
)
from dagsim.cli.shared import experiment, resume_kept, run_kept
from dagsim.report.grid import TableFormat

__all__ = ["tune"]


@app.command()
@expand_options
def tune(
    trace: TraceFlags,
    windows: Windows = None,
    algo: Annotated[
        str | None,
        typer.Option("--algo", "-a", metavar="NAME", help="Scheduler: name or name\\[param=value] (required)."),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="NAME=VALUE,...", help="Values to try (default: the policy's own)."),
    ] = None,
    metric: Annotated[str, typer.Option(help="Metric to choose by.")] = "jct_s.mean",
    seeds: Annotated[int, typer.Option(min=2, help="Validation seeds.")] = 30,
    keep: Annotated[Path | None, typer.Option(metavar="YAML", help="Also write the tuned configuration here.")] = None,
    workload: Jobs = None,
    config: ConfigFile = None,
    set_: Settings = None,
    system: System = None,
    out: Out = Path("results"),
    json_: Json = False,
    quiet: Quiet = False,
    wide: Wide = False,
    table: TableLook = TableFormat.TEXT,
    workers: Workers = None,
    resume: Resume = None,
    name: Name = None,
    on: On = "local",
) -> None:
    """Choose a scheduler's parameters on validation seeds, and save the result as a configuration.

    Example: dagsim tune --algo eft-wait --param theta=0.7,0.8,0.9,1
    """
    from dagsim.experiment.scenario import metric_of, sample_of
    from dagsim.experiment.tune import best_of, candidates, grid_of, write_tuned
    from dagsim.metrics.standings import standings
    from dagsim.report.comparison import comparison_table
    from dagsim.report.terminal import show_grid
    from dagsim.seeds import VALIDATION, seeds_of

    output = Output(out, False, json_, quiet, wide, table, workers, resume, name, on)
    if resume is not None:
        folder, lines, _ = resume_kept(
            "tune",
            output,
            Experiment(workload, config, set_, system),
            trace,
            algo=algo,
            param=param,
            keep=keep,
            windows=windows,
        )
    else:
        if algo is None:
            raise typer.BadParameter("give --algo NAME or --resume RUN", param_hint="'--algo'")
        what = Experiment(workload, config, set_, system)
        chosen = experiment(what, trace, algo, windows=windows, quiet=quiet or json_)
        tried = candidates(algo, grid_of(algo, param or ()))
        about = {"metric": metric, "keep": None if keep is None else str(keep)}
        folder, lines, _ = run_kept(
            "tune", chosen, tried, output, label=chosen.policy, seeds=seeds_of(VALIDATION, seeds), about=about
        )
    metric, keep = folder.manifest["plan"]["metric"], _path(folder.manifest["plan"]["keep"])
    chosen, on_seeds = folder.config, folder.manifest["seeds"]
    ranked = folder.ranked if metric == metric_of(chosen) else ()
    ranked = ranked or standings(lines, metric, sample=sample_of(chosen))
    best = best_of(ranked, metric)
    for path in (folder.path / "tuned.yaml", *([keep] if keep else [])):
        write_tuned(path, chosen, best, metric, on_seeds)
    if json_:
        rows = [result.to_dict() for result in ranked]
        typer.echo(json.dumps({"run": str(folder.path), "best": best.policy, "metric": metric, "standings": rows}))
    elif not quiet:
        label = f"{folder.label}, validation"
        show_grid(comparison_table(ranked, metric, workload=label, wide=wide), table, wide=wide)
        typer.echo(f"best: {best.policy}; kept in {keep or folder.path / 'tuned.yaml'}")
    for failure in folder.failures():
        typer.echo(f"failed: {failure.policy}, seed {failure.seed}: {failure.error}", err=True)


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
