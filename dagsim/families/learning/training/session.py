"""A whole training run: its run folder, the training itself, and the final test on seeds that no
other run uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dagsim.config.bundled import find_config
from dagsim.config.schema import Config, load_config
from dagsim.errors import InputError
from dagsim.experiment.carry_out import write_comparison
from dagsim.experiment.cell_run import CellRun
from dagsim.experiment.run_store import RunStore
from dagsim.experiment.scenario import metric_of
from dagsim.experiment.store import Store
from dagsim.families.learning.algorithms import algorithm_name
from dagsim.families.learning.checkpoint import Checkpoint
from dagsim.families.learning.devices import device_named
from dagsim.families.learning.training.trainer import Tell, TrainingRun, training_of
from dagsim.files import file_hash
from dagsim.metrics.standings import PolicyResult, standings
from dagsim.sections import kind_of


class Trained(NamedTuple):
    """The result of a training run: its folder, the comparison with the reference on validation
    seeds, and the final test.
    """

    folder: Store
    """The run folder, with the agent (``best.pt``) and everything that was used to train it."""
    reference: str
    """The heuristic with which the agent was compared."""
    validation_ratio: float
    """Objective of the agent divided by that of the reference, on the validation seeds. Below 1,
    the agent is better."""
    lines: Sequence[CellRun]
    """Results of every policy on every test seed; empty without a final test."""

    standings: Sequence[PolicyResult]
    """Comparison of the agent and the other policies with the reference, on the test seeds."""

    @property
    def metric(self) -> str:
        """The metric that ranks policies."""
        return metric_of(self.folder.config)


def train(
    config: Config | str | Path | None = None,
    settings: Iterable[str] = (),
    *,
    out: Path = Path("results"),
    init: Path | None = None,
    workers: int = 1,
    report: bool = True,
    name: str | None = None,
    watch: Tell | None = None,
    on: str | None = None,
    device: str = "cpu",
) -> Trained:
    """Train an agent in a new run folder below ``out``, as ``dagsim train`` does.

    ``config`` is a configuration, a file, or a name from ``dagsim list configs``. ``settings``
    (``key=value``) change it as ``--set`` does. ``init`` is a checkpoint to start from. ``workers``
    is the number of processes that run the episodes. ``on`` determines where the policies of the
    final test run, like ``--executor``. By default, they run in ``workers`` processes. If this is
    Ray, the episodes run on Ray as well. Neither ``workers`` nor ``on`` changes the result.
    ``device`` is the device on which the network is trained (``cpu``, ``cuda``, ``mps`` or
    ``auto``). Weights from different devices differ slightly.

    Raises:
        InputError: The configuration or the checkpoint is invalid, or this machine has no such device.
        KeyboardInterrupt: The run was stopped; ``dagsim train --resume`` continues it.
    """
    if not isinstance(config, Config):
        config = load_config(None if config is None else find_config(str(config), "the setting workload="), settings)
    elif settings := tuple(settings):
        raise InputError(
            f"settings apply to a file or a name, not to a Config; change its fields instead: {', '.join(settings)}"
        )
    device_named(device)  # report an unknown device before the run folder is created
    folder = begin_training(config, out, init=init, report=report, name=name)
    return train_in(folder, workers=workers, watch=watch, on=on, device=device)


def begin_training(
    config: Config,
    out: Path,
    *,
    init: Path | None = None,
    report: bool = True,
    name: str | None = None,
    argv: Sequence[str] = (),
) -> Store:
    """Create a run folder for a training run. ``argv`` is the command to record. ``report`` decides
    whether the run ends with a final test. This also applies if the run is stopped and resumed.

    Raises:
        InputError: ``init`` is not a checkpoint, or ``out`` cannot be written to.
    """
    label = algorithm_name(config.training().algorithm)
    plan: dict[str, Any] = (
        {} if init is None else {"init": str(init.resolve()), "init_sha256": _agent_hash(init, config)}
    )
    plan |= {} if report else {"report": False}
    seeds = (config.seed,)  # the seed of the training run, from which windows of a trace are drawn
    return RunStore.create(out, "train", config, argv=argv, label=label, seeds=seeds, plan=plan, name=name)


def resumed_training(path: Path, iterations: int | None = None) -> Store:
    """Open the run folder of a stopped training run, or of a finished one that is to be extended.

    With ``iterations``, the training run continues up to this number of iterations. Values that
    change over a training run (a learning rate, a time constant) then change over the new length,
    and the final test takes new seeds. If the training run already has this length, it just continues.

    Raises:
        InputError: Another command created the folder, a file on which the training run depends has
        changed, or the training run cannot be extended.
    """
    folder = Store.open(path, own=True)
    if (command := folder.manifest["command"]) != "train":
        raise InputError(
            f"{path}: this folder was created by dagsim {command}, so use dagsim {command} --resume {path}"
        )
    folder.check_unchanged()
    if iterations is not None:
        _lengthen(folder, iterations)
    return folder


def _lengthen(folder: Store, iterations: int) -> None:
    train = training_of(folder)
    if iterations == train.iterations:
        return  # the same command was stopped before
    reason = ""
    if iterations < train.iterations:
        reason = f"the training run has {train.iterations:,} iterations, so give more"
    elif train.minutes is not None:
        reason = "the training run ends after train.minutes; start another one with --init best.pt"
    elif hasattr(train.algorithm, "replay") and folder.state == "done":
        reason = "its replay buffer was deleted when it ended; start another training run with --init best.pt"
    if reason:
        raise InputError(f"--iterations {iterations}: {folder.path} cannot be extended: {reason}")
    if folder.state == "done":
        (folder.path / "report_seeds.yaml").unlink(missing_ok=True)
    folder.note(plan=(folder.manifest.get("plan") or {}) | {"iterations": iterations})


def train_in(
    folder: Store,
    *,
    resume: bool = False,
    workers: int = 1,
    watch: Tell | None = None,
    on: str | None = None,
    device: str = "cpu",
) -> Trained:
    """Train in ``folder`` to the end. Write ``report.csv``, unless the run was started without a
    final test. With ``resume``, continue from the folder's checkpoint.

    Raises:
        KeyboardInterrupt: The run was stopped; the folder keeps its last complete iteration.
        RunFolderError: Another process is writing to the folder, or it cannot be written to.
    """
    with folder.writing():
        run = TrainingRun(folder, workers, watch, on, device)
        run.run(resume=resume, init=_initial_agent(folder))
        lines = finish(run) if (folder.manifest.get("plan") or {}).get("report", True) else []
        ranked = standings(lines, metric_of(folder.config), run.reference) if lines else []
        if ranked:
            write_comparison(ranked, folder.path / "report.csv")
        folder.mark("done")
    return Trained(folder, run.reference, run.best, lines, ranked)


def finish(run: TrainingRun) -> list[CellRun]:
    """Run the agent on the test seeds, and the policies with which it is compared: a linear policy,
    the reference and other heuristics.
    """
    path, kind = run.folder.path.resolve(), algorithm_name(run.train.algorithm)
    linear = path / "linear.pt"
    if not linear.exists() and (agent := run.linear()) is not None:
        agent.save(linear)
    policies = {heuristic: heuristic for heuristic in (run.reference, *run.train.rivals)}
    policies[kind] = _policy_of(path / "best.pt", codec=kind_of(run.train.codec), net=kind_of(run.train.net))
    if linear.exists():
        policies[f"linear {kind}"] = _policy_of(linear, codec=kind_of(run.train.codec))
    return run.trials("report").run("report", policies, run.report_seeds)


def _policy_of(checkpoint: Path, **own: str | None) -> str:
    """Return the policy that loads the agent from a file. ``own`` is needed if the agent's codec or
    network is code outside dagsim, and names this code.
    """
    parts = [f'{part}="{value}"' for part, value in {"checkpoint": checkpoint, **own}.items() if value is not None]
    return f"agent[{','.join(parts)}]"


def _agent_hash(path: Path, config: Config) -> str:
    """Check that a checkpoint file can be loaded, and return its SHA-256. If the configuration
    names code outside dagsim as the codec or the network, the agent may use this code.
    """
    train = config.training()
    Checkpoint.load(path, codec=kind_of(train.codec), net=kind_of(train.net))
    return file_hash(path)


def _initial_agent(folder: Store) -> Path | None:
    """Return the checkpoint from which the training run starts. The file is needed until the run
    has written its own first checkpoint.

    Raises:
        InputError: The file has changed since the run began.
    """
    plan = folder.manifest.get("plan") or {}
    if "init" not in plan:
        return None
    path = Path(plan["init"])
    if not (folder.path / "checkpoint.pt").exists() and _agent_hash(path, folder.config) != plan["init_sha256"]:
        raise InputError(
            f"{path}: the file has changed since training started from it; restore the file or start a new training run"
        )
    return path
