"""``dagsim train``: train an agent to schedule."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dagsim.cli.app import app
from dagsim.cli.options import ConfigFile, Experiment, Jobs, Json, Name, Quiet, Seed, Settings, System, TraceFlags
from dagsim.cli.shared import experiment, given, refuse_beside_resume

if TYPE_CHECKING:
    from dagsim.experiment.training.session import Trained
    from dagsim.metrics.standings import PolicyResult

__all__ = ["train_agent"]


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
        Path | None, typer.Option(metavar="RUN", help="Continue a stopped training with its own configuration.")
    ] = None,
    init: Annotated[
        Path | None, typer.Option(metavar="CHECKPOINT", help="Start from the weights of a trained agent.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Number of processes that run episodes.")] = 1,
    report: Annotated[bool, typer.Option(help="Compare with heuristics on the report seeds at the end.")] = True,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the run folder.")] = Path("results"),
    name: Name = None,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE",
            help="Where policies run, and on Ray episodes, too: local:N, ray, slurm (default: local:WORKERS).",
        ),
    ] = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train an agent, keep its best on validation, and compare it with heuristics.

    Example: dagsim train --algo ppo --config train/ppo --seed 1
    """
    from dagsim.experiment.executors import executor_for
    from dagsim.experiment.training.session import begin_training, resumed_training, train_in
    from dagsim.processes import exit_code
    from dagsim.report.comparison import comparison_table
    from dagsim.report.terminal import console, training_progress

    if on is not None:
        executor_for(on)
    what = Experiment(workload, config, set_, system, seed=seed)
    if resume is not None:
        options = {"algo": algo, "iterations": iterations, "init": init, "name": name}
        refuse_beside_resume([what], options, "training")
        folder = resumed_training(resume)
    else:
        chosen = experiment(
            what,
            TraceFlags(),
            first=given(**{"train.algorithm.kind": algo}),
            more=given(**{"train.iterations": iterations}),
            quiet=quiet or json_,
        )
        folder = begin_training(chosen, out, init=init, name=name, argv=["dagsim", *sys.argv[1:]])
    try:
        with training_progress(wanted=not (quiet or json_)) as watch:
            trained = train_in(folder, resume=resume is not None, workers=workers, report=report, watch=watch, on=on)
            ranked = trained.standings
            _draw(trained, ranked)
    except KeyboardInterrupt as stop:
        typer.echo(f"interrupted; go on with: dagsim train --resume {folder.path}", err=True)
        raise typer.Exit(exit_code(stop)) from None
    if json_:
        facts = {
            "run": str(folder.path),
            "reference": trained.reference,
            "validation_ratio": trained.validation_ratio,
        }
        typer.echo(json.dumps({**facts, "report": [result.to_dict() for result in ranked]}))
    elif not quiet:
        if ranked:
            console().print(comparison_table(ranked, trained.metric))
        typer.echo(f"best on validation: {trained.validation_ratio:.4f} times {trained.reference}")
        typer.echo(f"run folder: {folder.path}")


def _draw(trained: Trained, ranked: Sequence[PolicyResult]) -> None:
    """Draw the learning curve, and the report if one exists, into the run folder."""
    from dagsim.experiment.training.log import read_log
    from dagsim.report.drawing import draw_comparison
    from dagsim.report.plots.curves import learning_curves
    from dagsim.report.plots.style import save

    run = trained.folder.path
    plots = run / "plots"
    plots.mkdir(exist_ok=True)
    save(learning_curves({run.name: read_log(run)}), plots / "learning.png")
    if ranked:
        draw_comparison(ranked, plots / "report.png", trained.metric)
