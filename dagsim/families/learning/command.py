"""The command ``dagsim train``, which trains an agent."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dagsim.cli.app import app, say
from dagsim.cli.configuring import experiment, given
from dagsim.cli.options import (
    ConfigFile,
    Experiment,
    Json,
    Name,
    Out,
    Quiet,
    Seed,
    Settings,
    SystemName,
    TraceFlags,
    WorkloadName,
)
from dagsim.cli.running import refuse_beside_resume

if TYPE_CHECKING:
    from dagsim.families.learning.training.session import Trained
    from dagsim.metrics.standings import PolicyResult


@app.command("train")
def train_agent(
    algo: Annotated[
        str | None,
        typer.Option(
            "--algo",
            metavar="NAME",
            help="Algorithm: ppo, reinforce, d3qn, sac ... or module:attr (default: ppo).",
        ),
    ] = None,
    workload: WorkloadName = None,
    config: ConfigFile = None,
    set_: Settings = None,
    system: SystemName = None,
    seed: Seed = None,
    iterations: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of iterations (default: as configured). With --resume, give at least as many."
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="Continue a stopped training run, or extend a finished one with --iterations."
        ),
    ] = None,
    init: Annotated[
        Path | None, typer.Option(metavar="CHECKPOINT", help="Start from the weights of a trained agent.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Number of processes that run episodes.")] = 1,
    device: Annotated[
        str,
        typer.Option(
            metavar="DEVICE",
            help=(
                "Device on which the network is trained: cpu, cuda, mps or auto (a GPU if there is one). Episodes "
                "always run on the CPU."
            ),
        ),
    ] = "cpu",
    report: Annotated[
        bool, typer.Option(help="At the end, compare the agent with heuristics on the test seeds.")
    ] = True,
    out: Out = Path("results"),
    name: Name = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--executor",
            metavar="WHERE",
            help="Where to run: local:N, ray or slurm (default: local:WORKERS). With ray, training episodes "
            "also run there.",
        ),
    ] = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train an agent, keep the version that is best on the validation seeds, and compare it with
    heuristics.

    Example: dagsim train --algo ppo --config train/ppo --seed 1
    """
    from dagsim.experiment.executors import executor_for
    from dagsim.families.learning.devices import device_named
    from dagsim.families.learning.training.progress import training_progress
    from dagsim.families.learning.training.session import begin_training, resumed_training, train_in

    device_named(device)
    watched = not (quiet or json_)
    if on is not None:
        executor_for(on)
    what = Experiment(workload, config, set_, system, seed=seed)
    if resume is not None:
        options = {"algo": algo, "init": init, "name": name, "no-report": not report or None}
        refuse_beside_resume([what], options, "training")
        folder = resumed_training(resume, iterations)
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
            trained = train_in(folder, resume=resume is not None, workers=workers, watch=watch, on=on, device=device)
            _draw(trained, trained.standings)
        if json_:
            say(json.dumps(_facts(trained)))
        elif not quiet:
            _print(trained)


def _facts(trained: Trained) -> dict[str, Any]:
    """Return the result of a training run for JSON."""
    return {
        "run": str(trained.folder.path),
        "reference": trained.reference,
        "validation_ratio": trained.validation_ratio,
        "report": [result.to_dict() for result in trained.standings],
    }


def _print(trained: Trained) -> None:
    """Print the comparison with heuristics, if there was a final test, and the result on validation
    seeds."""
    from dagsim.report.comparison import comparison_table
    from dagsim.report.terminal import console

    if ranked := trained.standings:
        console().print(comparison_table(ranked, trained.metric))
    say(f"best on validation: {trained.validation_ratio:.4f} times {trained.reference}")
    say(f"run folder: {trained.folder.path}")


def _draw(trained: Trained, ranked: Sequence[PolicyResult]) -> None:
    """Draw the learning curve and, if there was a final test, its results. Save the plots in the
    run folder.
    """
    from dagsim.experiment.training_log import read_log
    from dagsim.report.drawing import draw_comparison
    from dagsim.report.plots.curves import learning_curves
    from dagsim.report.plots.style import save

    run = trained.folder.path
    plots = run / "plots"
    save(learning_curves({run.name: read_log(run)}), plots / "learning.png")
    if ranked:
        draw_comparison(ranked, plots / "report.png", trained.metric)
