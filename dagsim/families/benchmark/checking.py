"""Check the file of a benchmark entry: compare it with the suite, and repeat a sample of its runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dagsim.errors import ConfigError
from dagsim.experiment.carry_out import check_plan
from dagsim.experiment.cell import Cell
from dagsim.experiment.executors import CellExecutor, CellWork
from dagsim.experiment.plan import Plan
from dagsim.experiment.provenance import provenance
from dagsim.families.benchmark.entries import EntryFile, EntryRun, log_digest, scored
from dagsim.families.benchmark.suite import (
    BenchEntry,
    BenchTask,
    config_digest,
    suite,
    suite_digest,
    task_plan,
    tasks_without_family,
)
from dagsim.families.bounds.bound import bound_of
from dagsim.model.arithmetic import differences
from dagsim.model.streams import stream


def check_file(content: EntryFile) -> Iterator[str]:
    """Yield a sentence for each fact in an entry's file that differs from this checkout, or that
    contradicts the entry's own runs.
    """
    if content["suite_sha256"] != suite_digest():
        yield "the tasks differ from those of this dagsim (suite_sha256)"
    again, stated = json.loads(json.dumps(scored(content))), dict[str, object](content)
    for place, value, follows in differences({key: stated.get(key) for key in again}, again):
        yield f"{place} does not follow from the runs in the file: it is {value}, and they give {follows}"
    names, missing, entry = {task.name: task for task in suite()}, tasks_without_family(), _entry_of(content)
    own = {"code": content["code"], "checkpoints": content["checkpoints"]}
    for name, task in content["tasks"].items():
        seeds = [run["seed"] for run in task["runs"] if run["policy"] == task["policy"]]
        if name in missing:
            yield f"the task {name!r} cannot be checked: {missing[name]}"
        elif name not in names:
            yield f"there is no task {name!r}"
        elif tuple(seeds) != names[name].seeds(len(seeds), entry.draw):
            yield f"{name}: its seeds do not follow from draw {entry.draw}"
        elif (task["metric"], task["reference"]) != (names[name].metric, names[name].config.policy):
            yield f"{name}: it has another reference or metric"
        elif task["policy"] != content["policies"].get(names[name].system):
            yield f"{name}: its policy is not that of the entry"
        elif task["config_sha256"] != config_digest(names[name], entry.division):
            yield f"{name}: its configuration differs (config_sha256)"
        else:
            for kind, files in provenance(names[name].config, [task["policy"]]).items():
                for file, fact in files.items() if kind in own else ():
                    if own[kind].get(file, {}).get("sha256") != fact["sha256"]:
                        yield f"{name}: {file} has another SHA-256 than in the entry"


def _entry_of(content: EntryFile) -> BenchEntry:
    return BenchEntry(content["entry"], content["policies"], content["division"], content["draw"], None)


class PickedRun(NamedTuple):
    """A run that is to be repeated."""

    task: BenchTask
    cell: Cell
    line: EntryRun
    """The statements in the file about this entry."""


def differing_bounds(content: EntryFile, picked: Iterable[PickedRun]) -> Iterator[str]:
    """Yield a sentence for each picked run whose bound in the file differs from the bound that is
    computed for its task and seed.
    """
    for run in picked:
        if (bounds := content["bounds"].get(run.task.name)) is not None:
            seeds = [line["seed"] for line in content["tasks"][run.task.name]["runs"]]
            bound = bound_of(run.task.config, run.cell.seed, by_area=True).mean_s
            stated = bounds[list(dict.fromkeys(seeds)).index(run.cell.seed)]
            if any(differences(bound, stated)):
                yield f"{run.task.name} on seed {run.cell.seed}: the bound is {bound}, and {stated} in the file"


def repeated_runs(content: EntryFile, sample: int, seed: int, executor: CellExecutor) -> tuple[int, list[str]]:
    """Repeat a sample of an entry's runs. Return their number and all differences in logs, metrics,
    hashes, bounds and scores.

    Raises:
        ConfigError: The file has no runs of the suite's tasks to repeat, and no difference explains
            this.
    """
    findings = list(check_file(content))
    try:
        picked = picked_cells(content, sample, seed)
    except ConfigError:
        if not findings:
            raise
        picked = []  # the runs do not match the suite; ``findings`` already reports it
    lines = {run.cell.id: run.line for run in picked}
    cells = [run.cell for run in picked]
    for cell in cells:
        check_plan(Plan("bench", cell.config, (cell,)))
    findings += differing_bounds(content, picked)
    for run in executor.run(CellWork("log", named=True), cells):
        line = lines[run.id]
        where = f"{line['policy']} on seed {line['seed']}"
        if run.error:
            findings.append(f"{where}: {run.error}")
            continue
        if log_digest(run.schedule) != line["log_sha256"]:
            findings.append(f"{where}: the log has another SHA-256")
        computed = {metric: run.metrics.get(metric) for metric in line["metrics"]}
        findings += [
            f"{where}: {metric} is {value}, and {stated} in the file"
            for metric, value, stated in differences(computed, line["metrics"])
        ]
    return len(picked), findings


def picked_cells(content: EntryFile, sample: int, seed: int) -> list[PickedRun]:
    """Draw ``sample`` runs from an entry's file, spread over its tasks.

    Raises:
        ConfigError: The file names a run that its task does not have.
    """
    rng = stream(seed, "bench/verify")
    tasks = {task.name: task for task in suite(content["tasks"])}
    order = [name for name, _ in sorted(zip(tasks, rng.random(len(tasks)), strict=True), key=lambda pair: pair[1])]
    waiting = {name: [content["tasks"][name]["runs"][at] for at in rng.permutation(len(content["tasks"][name]["runs"]))]
               for name in tasks}  # fmt: skip
    picked: list[PickedRun] = []
    while len(picked) < sample and any(waiting.values()):
        for name in order:
            if waiting[name] and len(picked) < sample:
                line = waiting[name].pop()
                picked.append(PickedRun(tasks[name], _cell_of(tasks[name], content, line), line))
    return picked


def _cell_of(task: BenchTask, content: EntryFile, line: EntryRun) -> Cell:
    runs = content["tasks"][task.name]["runs"]
    entry = _entry_of(content)._replace(seeds=len({run["seed"] for run in runs}))
    for cell in task_plan(task, entry).cells:
        if (cell.policy, cell.seed) == (line["policy"], line["seed"]):
            return cell
    raise ConfigError(f"task {task.name}: there is no run of {line['policy']!r} on seed {line['seed']}")
