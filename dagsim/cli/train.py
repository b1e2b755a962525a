"""``dagsim train``: an agent that learns to schedule."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dagsim.cli.app import app
from dagsim.cli.options import ConfigFile, Experiment, Jobs, Json, Name, Quiet, Seed, Settings, System, TraceFlags
from dagsim.cli.shared import experiment, given

if TYPE_CHECKING:
    from dagsim.experiment.folder import RunFolder

__all__ = ["train"]


@app.command()
def train(
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
    iterations: Annotated[int | None, typer.Option(min=1, help="How long to train (default: as configured).")] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Go on with a training that was stopped, as it was configured.")
    ] = None,
    init: Annotated[
        Path | None, typer.Option(metavar="CHECKPOINT", help="Begin with the weights of a trained agent.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that episodes are played in.")] = 1,
    report: Annotated[bool, typer.Option(help="Compare with heuristics on the report seeds at the end.")] = True,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder that the run folder is made in.")] = Path("results"),
    name: Name = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train an agent, keep its best on validation, and compare it with heuristics.

    Example: dagsim train --algo ppo --config ppo --seed 1
    """
    from dagsim.agents.config import algorithm_name
    from dagsim.experiment.folder import RunFolder
    from dagsim.experiment.labels import metric_of
    from dagsim.experiment.runner import write_comparison
    from dagsim.experiment.stopping import exit_code
    from dagsim.experiment.training.finish import finish
    from dagsim.experiment.training.log import read_log
    from dagsim.experiment.training.trainer import TrainingRun
    from dagsim.metrics.standings import standings
    from dagsim.report.comparison import comparison_table
    from dagsim.report.drawing import draw_comparison
    from dagsim.report.plots.curves import learning_curves
    from dagsim.report.plots.style import save
    from dagsim.report.terminal import console, training_progress

    what = Experiment(workload, config, set_, system, seed=seed)
    if resume is not None:
        _refuse_beside_resume(what, algo=algo, iterations=iterations, init=init, name=name)
        folder = _resumed(resume)
    else:
        more = given(**{"train.algorithm.kind": algo, "train.iterations": iterations})
        chosen = experiment(what, TraceFlags(), more=more, quiet=quiet or json_)
        label = algorithm_name(chosen.training().algorithm)
        plan = {} if init is None else {"init": str(init.resolve()), "init_sha256": _hash(init)}
        folder = RunFolder.create(
            out, "train", chosen, argv=["dagsim", *sys.argv[1:]], label=label, plan=plan, name=name
        )
    try:
        with folder.writing(), training_progress(wanted=not (quiet or json_)) as tell:
            run = TrainingRun(folder, workers, tell)
            run.run(resume=resume is not None, init=_init(folder))
            lines = finish(run, tell) if report else []
            plots = folder.path / "plots"
            plots.mkdir(exist_ok=True)
            save(learning_curves({folder.path.name: read_log(folder.path)}), plots / "learning.png")
            metric, reference = metric_of(folder.config), run.reference
            ranked = standings(lines, metric, reference)
            if lines:
                write_comparison(ranked, folder.path / "report.csv")
                draw_comparison(lines, plots / "report.png", metric, reference)
            folder.mark("done")
    except KeyboardInterrupt as stop:
        typer.echo(f"interrupted; go on with: dagsim train --resume {folder.path}", err=True)
        raise typer.Exit(exit_code(stop)) from None
    if json_:
        facts = {"run": str(folder.path), "reference": run.reference, "validation_ratio": run.best}
        typer.echo(json.dumps({**facts, "report": [standing.to_dict() for standing in ranked]}))
    elif not quiet:
        if lines:
            console().print(comparison_table(lines, reference, metric))
        typer.echo(f"best on validation: {run.best:.4f} times {run.reference}")
        typer.echo(f"run folder: {folder.path}")


def _resumed(path: Path) -> RunFolder:
    """The folder of a training that was stopped.

    Raises:
        InputError: It is no training's, or its trace has changed.
    """
    from dagsim.errors import InputError
    from dagsim.experiment.folder import RunFolder

    folder = RunFolder.open(path)
    if (command := folder.manifest["command"]) != "train":
        raise InputError(f"{path}: was made by dagsim {command}: dagsim {command} --resume {path}")
    folder.check_trace()
    return folder


def _hash(path: Path) -> str:
    """Of the agent to begin with."""
    from dagsim.agents.checkpoint import Checkpoint
    from dagsim.experiment.manifest import file_hash

    Checkpoint.load(path)
    return file_hash(path)


def _init(folder: RunFolder) -> Path | None:
    """The agent that the training begins with; it is needed until the first checkpoint is there.

    Raises:
        InputError: It has changed since.
    """
    from dagsim.errors import InputError

    plan = folder.manifest.get("plan") or {}
    if "init" not in plan:
        return None
    path = Path(plan["init"])
    if not (folder.path / "checkpoint.pt").exists() and _hash(path) != plan["init_sha256"]:
        raise InputError(f"{path}: has changed since the training began with it")
    return path


def _refuse_beside_resume(what: Experiment, **options: object) -> None:
    """Raise where an option stands beside ``--resume`` that the training was configured with."""
    from dagsim.errors import InputError

    wrong = [name for name, value in {**what._asdict(), **options}.items() if value not in (None, [])]
    if wrong:
        names = ", ".join(f"--{name.strip('_')}" for name in wrong)
        raise InputError(f"--resume goes on as the training was configured; leave out {names}")
