"""``dagsim train`` and ``dagsim tune``: train an agent, or choose the parameters of a heuristic on
validation seeds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dagsim.cli.app import app, say
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
    Seed,
    Settings,
    System,
    TableLook,
    TraceFlags,
    Wide,
    Windows,
    expand_options,
)
from dagsim.cli.shared import checked, experiment, given, refuse_beside_resume, resume_kept, run_kept, tell_failures
from dagsim.report.grid import TableFormat

if TYPE_CHECKING:
    from dagsim.families.learning.session import Trained
    from dagsim.metrics.standings import PolicyResult


@app.command("train")
def train_agent(
    algo: Annotated[
        str | None,
        typer.Option(
            "--algo", "-a", metavar="NAME", help="ppo, reinforce, d3qn, sac ... or module:attr (default: ppo)."
        ),
    ] = None,
    workload: Jobs = None,
    config: ConfigFile = None,
    set_: Settings = None,
    system: System = None,
    seed: Seed = None,
    iterations: Annotated[
        int | None, typer.Option(min=1, help="Number of iterations (default: as configured).")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Continue a stopped training run with its own configuration.")
    ] = None,
    init: Annotated[
        Path | None, typer.Option(metavar="CHECKPOINT", help="Start from the weights of a trained agent.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Number of processes that run episodes.")] = 1,
    report: Annotated[bool, typer.Option(help="Compare with heuristics on the test seeds at the end.")] = True,
    out: Out = Path("results"),
    name: Name = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--executor",
            metavar="WHERE",
            help="Where to run: local:N, ray or slurm (default: local:WORKERS); on Ray, training episodes, too.",
        ),
    ] = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train an agent, keep its best on validation, and compare it with heuristics.

    Example: dagsim train --algo ppo --config train/ppo --seed 1
    """
    from dagsim.experiment.executors import executor_for
    from dagsim.families.learning.progress import training_progress
    from dagsim.families.learning.session import begin_training, resumed_training, train_in
    from dagsim.report.comparison import comparison_table
    from dagsim.report.terminal import console

    watched = not (quiet or json_)
    if on is not None:
        executor_for(on)
    what = Experiment(workload, config, set_, system, seed=seed)
    if resume is not None:
        options = {"algo": algo, "iterations": iterations, "init": init, "name": name, "no-report": not report or None}
        refuse_beside_resume([what], options, "training")
        folder = resumed_training(resume)
    else:
        chosen = experiment(
            what,
            TraceFlags(),
            first=given(**{"train.algorithm.kind": algo}),
            more=given(**{"train.iterations": iterations}),
            watched=watched,
        )
        folder = begin_training(chosen, out, init=init, report=report, name=name, argv=["dagsim", *sys.argv[1:]])
    with folder.noting():
        with training_progress(wanted=watched) as watch:
            trained = train_in(folder, resume=resume is not None, workers=workers, watch=watch, on=on)
            ranked = trained.standings
            _draw(trained, ranked)
        if json_:
            facts = {
                "run": str(folder.path),
                "reference": trained.reference,
                "validation_ratio": trained.validation_ratio,
            }
            say(json.dumps({**facts, "report": [result.to_dict() for result in ranked]}))
        elif not quiet:
            if ranked:
                console().print(comparison_table(ranked, trained.metric))
            say(f"best on validation: {trained.validation_ratio:.4f} times {trained.reference}")
            say(f"run folder: {folder.path}")


def _draw(trained: Trained, ranked: Sequence[PolicyResult]) -> None:
    """Draw the learning curve, and the report if one exists, into the run folder."""
    from dagsim.experiment.training_log import read_log
    from dagsim.report.drawing import draw_comparison
    from dagsim.report.plots.curves import learning_curves
    from dagsim.report.plots.style import save

    run = trained.folder.path
    plots = run / "plots"
    save(learning_curves({run.name: read_log(run)}), plots / "learning.png")
    if ranked:
        draw_comparison(ranked, plots / "report.png", trained.metric)


@app.command()
@expand_options
def tune(
    trace: TraceFlags,
    windows: Windows = None,
    policy: Annotated[
        str | None,
        typer.Option("--policy", "-a", metavar="NAME", help="Scheduler: name or name\\[param=value] (required)."),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="NAME=VALUE,...", help="Values to try (default: the policy's own)."),
    ] = None,
    metric: Annotated[str, typer.Option(help="Metric to choose by.")] = "jct_s.mean",
    seeds: Annotated[int, typer.Option(min=2, help="Validation seeds.")] = 30,
    yaml: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the tuned configuration here.")] = None,
    workload: Jobs = None,
    config: ConfigFile = None,
    set_: Settings = None,
    system: System = None,
    out: Out = Path("results"),
    json_: Json = False,
    quiet: Quiet = False,
    wide: Wide = False,
    table: TableLook = TableFormat.TEXT,
    resume: Resume = None,
    name: Name = None,
    on: On = "local",
) -> None:
    """Choose a scheduler's parameters on validation seeds, and save the result as a configuration.

    Example: dagsim tune --policy eft-wait --param theta=0.7,0.8,0.9,1
    """
    from dagsim.experiment.tune import candidates, grid_of, tuning_of
    from dagsim.report.comparison import comparison_table
    from dagsim.report.terminal import show_grid
    from dagsim.seeds import VALIDATION, seeds_of

    output = Output(out, False, json_, quiet, wide, table, resume, name, on)
    what = Experiment(workload, config, set_, system)
    if resume is not None:
        folder, lines, _ = resume_kept(
            "tune", output, what, trace, policy=policy, param=param, yaml=yaml, windows=windows
        )
    else:
        if policy is None:
            raise typer.BadParameter("give --policy NAME or --resume RUN", param_hint="'--policy'")
        chosen = experiment(what, trace, policy, windows=windows, watched=output.watched)
        checked("--metric", metric, chosen)
        tried = candidates(policy, grid_of(policy, param or ()))
        about = {"metric": metric, "keep": None if yaml is None else str(yaml)}
        folder, lines, _ = run_kept(
            "tune", chosen, tried, output, label=chosen.policy, seeds=seeds_of(VALIDATION, seeds), about=about
        )
    with folder.noting():
        ranked, best, files = tuning_of(folder, lines)
        metric = folder.manifest["plan"]["metric"]
        if json_:
            rows = [result.to_dict() for result in ranked]
            say(json.dumps({"run": str(folder.path), "best": best.policy, "metric": metric, "standings": rows}))
        elif not quiet:
            label = f"{folder.label}, validation"
            show_grid(comparison_table(ranked, metric, workload=label, wide=wide), table, wide=wide)
            say(f"best: {best.policy}; kept in {files[-1]}")
    tell_failures(folder)
