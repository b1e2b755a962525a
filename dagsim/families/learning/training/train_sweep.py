"""``dagsim sweep`` over keys of ``train``: one training run for each seed at each point of the
grid.

The training runs are ordinary run folders, without final tests, in the folder of the sweep. They
run one after another. The first seed of each point comes first, so that training runs that are
clearly worse than the others can be stopped early (``stop: median``). If the sweep was stopped, the
same command continues it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from dagsim.cli.app import say
from dagsim.cli.options import SweepOutput
from dagsim.config.dumping import config_hash, dump_config
from dagsim.config.schema import Config
from dagsim.errors import InputError
from dagsim.experiment.cell_run import CellRun
from dagsim.experiment.store import Store
from dagsim.experiment.sweep_grid import SweepGrid
from dagsim.experiment.training_log import read_log
from dagsim.families.learning.training.progress import training_progress
from dagsim.families.learning.training.session import begin_training, train_in
from dagsim.families.learning.training.trainer import Progress, Tell
from dagsim.files import write_text
from dagsim.metrics.standings import METHOD, standings
from dagsim.report.comparison import comparison_table
from dagsim.report.terminal import show, show_grid
from dagsim.text import count_of

_METRIC = "validation_ratio"
_LEAST = 3
"""Number of other training runs from which the median is taken."""
_BEGIN = 0.25
"""Fraction of the iterations after which a training run may be stopped."""


class PlannedTraining(NamedTuple):
    """One training run of a sweep."""

    label: str
    """The point of the grid: its keys and values."""
    config: Config


def planned_trainings(grid: SweepGrid) -> list[PlannedTraining]:
    """Return the training runs of a sweep. The first seed of each point comes first.

    Raises:
        InputError: A configuration is wrong, or two points are the same.
    """
    if any(axis.key == "policy" for axis in grid.axes):
        raise InputError(
            "sweep: over contains policy and keys of train, but a training run has only one policy; remove policy"
        )
    cells = list(grid.points())
    seeds = list(dict.fromkeys(cell.seed for cell in cells))
    cells.sort(key=lambda cell: seeds.index(cell.seed))
    trials = [
        PlannedTraining(cell.label.partition(" @ ")[2], cell.config.model_copy(update={"seed": cell.seed}))
        for cell in cells
    ]
    first: dict[str, str] = {}
    for trial in trials:
        if (other := first.setdefault(config_hash(trial.config), trial.label)) != trial.label:
            raise InputError(f"sweep: {other!r} and {trial.label!r} are the same training run, so keep one of them")
    return trials


def training_sweep(grid: SweepGrid, output: SweepOutput, *, dry_run: bool) -> None:
    """Carry out a sweep over training runs, and print its table.

    Raises:
        InputError: A configuration is wrong, or the executor cannot run training runs.
        RunFolderError: Code or a file that determines an earlier training run of the sweep has changed.
    """
    trials = planned_trainings(grid)
    if dry_run:
        show(("training run", "seed"), [(trial.label, trial.config.seed) for trial in trials], output.json_)
        return
    out, rows = output.out / f"sweep-{grid.name}", list[list[dict[str, Any]]]()
    kept = {config_hash(store.config): store.path for store in _stores(out)}
    for trial in trials:
        path = kept.get(config_hash(trial.config))
        if path is None:
            argv = ["dagsim", *sys.argv[1:]]
            folder = begin_training(trial.config, out, report=False, name=trial.label[:60], argv=argv)
        else:
            folder = Store.open(path, own=True)
            folder.check_unchanged()  # also if it has ended, so that results of other code or files are not mixed
        kept[config_hash(trial.config)] = folder.path
        if folder.state != "done":
            with folder.noting(), training_progress(wanted=output.watched) as watch:
                stop = _stopping(folder, rows, watch or (lambda progress: None)) if grid.stop == "median" else watch
                train_in(folder, resume=path is not None, workers=_workers(output.on), on=output.on, watch=stop)
        rows.append(read_log(folder.path))
    _tell(trials, rows, [kept[config_hash(trial.config)] for trial in trials], out, output)


def _stores(out: Path) -> list[Store]:
    """Return the training runs in a folder."""
    folders = sorted(file.parent for file in out.glob("*/manifest.json"))
    return [store for store in map(Store.read, folders) if store.manifest["command"] == "train"]


def _workers(on: str) -> int:
    kind, _, count = on.partition(":")
    return int(count) if kind == "local" and count.isdigit() else 1


def _stopping(folder: Store, others: Sequence[Sequence[Any]], watch: Tell) -> Tell:
    """Return a function that ends bad training runs. A training run is bad if its best validation
    result is worse than the median of the others after the same number of iterations (Golovin et
    al. 2017, Google Vizier, section 3.2).
    """
    iterations = folder.config.training().iterations

    def tell(progress: Progress) -> bool:
        watch(progress)
        if progress.what != "training" or progress.done < _BEGIN * iterations:
            return False
        at = [rows[progress.done - 1]["best_ratio"] for rows in others if len(rows) >= progress.done]
        return len(at) >= _LEAST and read_log(folder.path)[-1]["best_ratio"] > median(at)

    return tell


def _tell(
    trials: Sequence[PlannedTraining],
    rows: Sequence[Sequence[Any]],
    paths: Sequence[Path],
    out: Path,
    output: SweepOutput,
) -> None:
    """Print the points of the sweep, best first. Save the best one as a configuration."""
    lines = [
        CellRun(trial.label, trial.config.seed, {}, {_METRIC: log[-1]["best_ratio"]})
        for trial, log in zip(trials, rows, strict=True)
    ]
    ranked = standings(lines, _METRIC)
    best = next(trial.config for trial in trials if trial.label == ranked[0].policy)
    write_text(out / "best.yaml", f"# best of {out.name}: {ranked[0].policy}\n{dump_config(best)}")
    agent = min(zip(lines, paths, strict=True), key=lambda pair: pair[0].metrics[_METRIC])[1] / "best.pt"
    short = sum(len(log) < trial.config.training().iterations for trial, log in zip(trials, rows, strict=True))
    facts = {"best": str(out / "best.yaml"), "agent": str(agent), "runs": [str(path) for path in paths]}
    if output.json_:
        results = [result.to_dict() for result in ranked]
        say(json.dumps(facts | {"method": METHOD, "standings": results, "ended_early": short}))
        return
    if output.quiet:
        return
    table = comparison_table(ranked, _METRIC, wide=output.wide)
    seeds = len({trial.config.seed for trial in trials})
    combinations = count_of(len(ranked), "combination")
    title = f"{out.name}: {combinations}, {seeds} training seeds each; lowest ratio to the heuristic first"
    notes = (*table.notes, f"{short} of {len(trials)} training runs ended early.") if short else table.notes
    show_grid(
        replace(table, title=title, heads=("settings", "validation\nratio", *table.heads[2:]), notes=notes),
        output.table,
        wide=output.wide,
    )
    say(f"best settings: {out / 'best.yaml'} (dagsim train --config)")
    say(f"best agent on validation: {agent}")
