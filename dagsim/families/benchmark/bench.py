"""The benchmark: frozen tasks, one file per entry, and scores.

A *suite* is a folder of configurations, ``configs/bench/v1``. Each configuration is a task, and its
``policy`` is the reference for the task. An *entry* is a policy for one or more systems. The cells
of a task are a sweep over both policies, so each task has a run folder that every other command can
read.

The score for a task is the ratio of the entry to the reference, seed by seed. The score for the
suite is the ratio of geometric means over the tasks. On the GPU cluster, the metric is the
area-weighted response time (Boezennec, Dufossé, Pop 2024), because a mean weighted by area cannot
be improved by delaying a few large jobs, whereas a mean slowdown can.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from math import exp, isfinite, log, nan
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import dagsim
from dagsim.config.bundled import opening_of, shipped
from dagsim.config.schema import Config, load_config
from dagsim.config.yaml import read_yaml
from dagsim.errors import ConfigError, InputError
from dagsim.experiment.carry_out import check_plan
from dagsim.experiment.executors import CellExecutor, CellWork
from dagsim.experiment.kept_files import CLOCKED, CellRun
from dagsim.experiment.plan import Axis, Cell, Plan, SweepGrid
from dagsim.experiment.provenance import code_digest, digest, provenance
from dagsim.experiment.store import Store
from dagsim.families.bounds.bound import bound_of, bounded
from dagsim.family import missing_family
from dagsim.files import parsed_json, why_unreadable
from dagsim.metrics.standings import PolicyResult, not_done, standings
from dagsim.model.arithmetic import differences, ordered_sum, whole_sum
from dagsim.model.streams import stream
from dagsim.registry import choices
from dagsim.seeds import VALIDATION, seeds_of
from dagsim.systems import DEFAULT_SYSTEM, all_systems
from dagsim.text import count_of

SUITE = "v1"
Division: TypeAlias = Literal["exact", "noisy", "hidden"]
"""Which durations policies for the GPU cluster see (``Estimates``)."""
METRICS = ("queueing_s.p95", "utilization", "max_ftf")
"""Metrics shown beside the score."""
_COUNTS = ("jobs_arrived", "jobs_completed", "jobs_unfinished", "preemptions")
_FORMAT = "dagsim-bench"
_FACTS = (
    *("entry", "policies", "draw", "score", "scores", "bounds"),
    *("dagsim", "suite_sha256", "code_sha256", "code", "checkpoints"),
)
"""The facts about an entry besides its runs."""


@dataclass(frozen=True, slots=True)
class BenchTask:
    """One task of the suite."""

    name: str
    path: Path
    config: Config

    @property
    def summary(self) -> str:
        """One sentence about the simulated workload and cluster."""
        return opening_of(self.path)

    @property
    def system(self) -> str:
        """The system to which the task's policies belong."""
        return self.config.whole_system.system

    @property
    def metric(self) -> str:
        """The metric on which the score is based."""
        return self.config.whole_system.score

    def seeds(self, count: int | None = None, draw: int | None = None) -> tuple[int, ...]:
        """Return the seeds of the task's runs: public seeds for development, or seeds derived from
        ``draw``.

        Raises:
            InputError: ``draw`` is negative.
        """
        count = count or self.config.seeds
        if draw is None:
            return seeds_of(VALIDATION, count)
        return tuple(map(int, stream(draw, f"bench/{SUITE}/{self.name}").integers(2**32, 2**53, size=count)))


@cache
def suite_paths() -> dict[str, Path]:
    """Return the configurations of all tasks in the suite by name."""
    prefix = f"bench/{SUITE}/"
    return {name.removeprefix(prefix): path for name, path in shipped("configs").items() if name.startswith(prefix)}


def tasks_without_family() -> dict[str, str]:
    """Return the tasks whose system this installation lacks, each with a text that names the
    missing family.
    """
    missing = {}
    for name, path in suite_paths().items():
        section = read_yaml(path).value.get("system", DEFAULT_SYSTEM)
        system = section["kind"] if isinstance(section, dict) else section
        if reason := missing_family("systems", system):
            missing[name] = f"its system {system!r} {reason}"
    return missing


def suite(names: Collection[str] = ()) -> list[BenchTask]:
    """Return all tasks in the suite, or only the tasks with the given names. Tasks whose system
    this installation lacks are left out (``tasks_without_family``).

    Raises:
        InputError: There is no such task, or this installation lacks its system.
    """
    paths, missing = suite_paths(), tasks_without_family()
    for name in names:
        if name not in paths:
            raise InputError(f"--task: there is no task {name!r}{choices(name, paths, both=True)}")
        if name in missing:
            raise InputError(f"the task {name!r} cannot be run: {missing[name]}")
    chosen = [name for name in paths if name in names] if names else [name for name in paths if name not in missing]
    return [BenchTask(name, paths[name], load_config(paths[name])) for name in chosen]


def left_out(content: Mapping[str, Any]) -> list[str]:
    """Return the names of the suite's tasks that are not in an entry's file."""
    return [name for name in suite_paths() if name not in content["tasks"]]


class BenchEntry(NamedTuple):
    """The policies of an entry, and the rules under which they run."""

    name: str
    policies: Mapping[str, str]
    """The policy for each system that is entered."""
    division: Division
    draw: int | None
    """The number from which the test seeds are derived, or None for development seeds."""
    seeds: int | None
    """Number of seeds per task, or None for the task's own number."""

    def tasks(self, names: Collection[str] = ()) -> list[BenchTask]:
        """Return the tasks of the systems for which this entry has a policy.

        Raises:
            InputError: There are no such tasks.
        """
        chosen = [task for task in suite(names) if task.system in self.policies]
        if not chosen:
            raise InputError(f"bench: none of the tasks runs on the systems {', '.join(self.policies)}")
        return chosen


def task_plan(task: BenchTask, entry: BenchEntry) -> Plan:
    """Return the cells of a task: the reference and the entry's policy on every seed.

    Raises:
        InputError: The policy cannot be read.
    """
    policies = tuple(dict.fromkeys((task.config.policy, entry.policies[task.system])))
    settings = task.config.whole_system.told(entry.division)
    seeds = task.seeds(entry.seeds, entry.draw)
    axis = Axis("policy", policies, policies)
    grid = SweepGrid(task.name, task.path, (axis,), settings, seeds, "log", (task.metric, *METRICS))
    return Plan.of_grid(grid, "bench")


def log_digest(files: Mapping[str, bytes]) -> str:
    """Return the SHA-256 of the log and of the jobs in a run. These are the uncompressed files of the
    schedule, by file extension."""
    total = sha256()
    for ending in sorted(files):
        if ending in ("npy", "npz", "json.gz"):
            content = files[ending]
            total.update(gzip.decompress(content) if ending.endswith(".gz") else content)
    return total.hexdigest()


def _schedule_files(store: Store, cell: Cell) -> dict[str, bytes]:
    paths = (store.path / "cells").glob(f"{cell.id}.*")
    return {path.name.partition(".")[2]: path.read_bytes() for path in paths}


def bounds_of(
    tasks: Sequence[BenchTask], entry: BenchEntry, watch: Callable[[Iterable[int]], Iterable[int]] = iter
) -> dict[str, list[float]]:
    """Return a lower bound for each seed of each task that ``dagsim bound`` covers. The bounds are
    valid for policies that do not stop runs. ``watch`` wraps the iterator of seeds."""
    bounds: dict[str, list[float]] = {}
    for task in tasks:
        seeds = task.seeds(entry.seeds, entry.draw)
        # An InputError means that there is no bound. Either the run begins with jobs in the system,
        # or dagsim has no bound for this system, which is true of most systems.
        with suppress(InputError):
            bounded(task.config)
            bounds[task.name] = [bound_of(task.config, seed, by_area=True).mean_s for seed in watch(seeds)]
    return bounds


def entry_file(
    entry: BenchEntry,
    tasks: Sequence[BenchTask],
    runs: Mapping[str, tuple[Store, Mapping[Cell, CellRun]]],
    bounds: Mapping[str, Sequence[float]],
) -> dict[str, Any]:
    """Build the contents of an entry's file. It contains the runs, the hash of each log, the
    scores, and, under ``timing``, all values that were measured with a clock. ``runs`` contains the
    store and the finished cells of each task, and ``bounds`` is the result of ``bounds_of``."""
    content: dict[str, Any] = {
        "format": _FORMAT,
        "suite": SUITE,
        "suite_sha256": _suite_digest(),
        "dagsim": dagsim.__version__,
        "code_sha256": code_digest(),
        "entry": entry.name,
        "policies": dict(entry.policies),
        "division": entry.division,
        "draw": entry.draw,
        "code": {},
        "checkpoints": {},
        "tasks": {},
        "bounds": dict(bounds),
    }
    timing: dict[str, Any] = {}
    for task in tasks:
        store, done = runs[task.name]
        policy = entry.policies[task.system]
        for kind, files in provenance(task.config, [policy]).items():
            if kind in content:
                content[kind] |= {name: {"sha256": fact["sha256"]} for name, fact in files.items()}
        content["tasks"][task.name] = {
            "config_sha256": _config_digest(task, entry.division),
            "metric": task.metric,
            "reference": task.config.policy,
            "policy": policy,
            "runs": [
                {
                    "policy": cell.policy,
                    "seed": cell.seed,
                    "log_sha256": log_digest(_schedule_files(store, cell)),
                    "metrics": _kept(run),
                }
                for cell, run in done.items()
            ],
        }
        timing[task.name] = _times(store, done)
    content["missing"] = left_out(content)
    return content | scored(content) | {"timing": timing}


def _config_digest(task: BenchTask, division: Division) -> str:
    """Return the SHA-256 of a task's configuration in a division. It covers the file, and what
    policies know about durations.
    """
    return sha256(task.path.read_bytes() + division.encode()).hexdigest()


@cache
def _suite_digest() -> str:
    """Return the SHA-256 of the tasks' files and of the logs from which they take windows.

    Tasks whose system is missing are included, so that the hash is the same in every installation.
    Such a task cannot have a log, because only the GPU cluster reads logs.
    """
    total, present = sha256(), {task.name: task for task in suite()}
    for name, path in suite_paths().items():
        total.update(name.encode() + path.read_bytes())
        if name in present and (trace := present[name].config.whole_system.trace_path) is not None:
            total.update(digest(trace).encode())
    return total.hexdigest()


def _kept(run: CellRun) -> dict[str, Any]:
    return {name: run.metrics.get(name) for name in _kept_metrics()}


@cache
def _kept_metrics() -> tuple[str, ...]:
    """Return the metrics that an entry keeps for each run: counts, and the scores of all systems."""
    scores = dict.fromkeys(system.score for system in all_systems().values())
    return (*_COUNTS, *scores, *METRICS)


def _times(store: Store, done: Mapping[Cell, CellRun]) -> dict[str, Any]:
    """Return the CPU microseconds per decision and the wall-clock seconds per run, by policy."""
    events = {event["id"]: event for event in store.as_grid().progress() if event.get("event") == "done"}
    means: dict[str, Any] = {}
    for policy in dict.fromkeys(cell.policy for cell in done):
        mine = [events[cell.id] for cell in done if cell.policy == policy and cell.id in events]
        clocks = [event[CLOCKED] for event in mine if event[CLOCKED] is not None]
        means[policy] = {
            CLOCKED: ordered_sum(clocks) / len(clocks) if clocks else None,
            "wall_s": ordered_sum([event["wall_s"] for event in mine]) / len(mine) if mine else None,
        }
    return means


def scored(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scores of an entry from the runs in its file, for each task and for all tasks
    together. An entry has no score for a task if it leaves a job unfinished that the reference
    completes.

    Runs of different tasks are paired by the position of their seeds, so replicate k of the suite
    consists of the k-th seed of every task.
    """
    by_task: dict[str, Any] = {}
    logs: dict[str, list[list[float]]] = {"entry": [], "reference": []}
    preempts = False
    for name, task in content["tasks"].items():
        by_role = _by_role(task)
        result = _compared(by_role, task["metric"])
        preempts = preempts or any(line.metrics["preemptions"] for line in by_role["entry"])
        undone = whole_sum(
            max(not_done(mine) - not_done(other), 0)
            for mine, other in zip(by_role["entry"], by_role["reference"], strict=True)
            if task["metric"] != "blocking_rate"  # this metric already accounts for rejected jobs
        )
        by_task[name] = _facts(result, undone) | {
            "bound": _below(content["bounds"].get(name), by_role["reference"], task["metric"]),
            "means": {
                metric: {role: _mean([line.metrics[metric] for line in lines]) for role, lines in by_role.items()}
                for metric in METRICS
            },
        }
        for role, lines in by_role.items():
            values = [nan if line.metrics[task["metric"]] is None else line.metrics[task["metric"]] for line in lines]
            logs[role].append(
                [log(value) if value > 0 and not (undone and role == "entry") else nan for value in values]
            )
    scores = {role: [_exp(_mean(column)) for column in zip(*rows, strict=True)] for role, rows in logs.items()}
    whole_lines = {
        role: [CellRun(role, k, metrics={"score": score}) for k, score in enumerate(column)]
        for role, column in scores.items()
    }
    whole = _facts(_compared(whole_lines, "score"), 0)
    if none := [name for name, facts in by_task.items() if facts["ratio"] is None]:
        whole["verdict"] = f"no score on {', '.join(none)}"
    return {"preemption": preempts, "score": whole, "scores": by_task}


def _below(bounds: Sequence[float] | None, lines: Sequence[CellRun], metric: str) -> float | None:
    """Return the geometric mean of bound / reference over the seeds, or None if there is no bound."""
    if not bounds:
        return None
    ratios = [log(bound / line.metrics[metric]) for bound, line in zip(bounds, lines, strict=True)]
    return exp(ordered_sum(ratios) / len(ratios))


def _by_role(task: Mapping[str, Any]) -> dict[str, list[CellRun]]:
    """Return the runs of the entry and of the reference, in the order of the seeds."""
    specs = {"reference": task["reference"], "entry": task["policy"]}
    return {
        role: [CellRun(role, run["seed"], metrics=run["metrics"]) for run in task["runs"] if run["policy"] == spec]
        for role, spec in specs.items()
    }


def _compared(by_role: Mapping[str, Sequence[CellRun]], metric: str) -> PolicyResult:
    lines = [*by_role["reference"], *by_role["entry"]]
    numbers = [replace(line, metrics={name: _number(value) for name, value in line.metrics.items()}) for line in lines]
    return next(result for result in standings(numbers, metric, "reference") if result.policy == "entry")


def _number(value: Any) -> Any:
    return None if isinstance(value, float) and not isfinite(value) else value


def _facts(result: PolicyResult, undone: int) -> dict[str, Any]:
    pair = result.pair
    if undone or pair is None:
        reason = (
            f"no score: {count_of(undone, 'job')} not done that the reference completes" if undone else result.words
        )
        return {"ratio": None, "low": None, "high": None, "verdict": reason, "seeds": result.n}
    ends = (pair.ratio, pair.low, pair.high)
    ratio, low, high = (end if isfinite(end) else None for end in ends)
    return {"ratio": ratio, "low": low, "high": high, "verdict": result.words, "seeds": result.n}


def _mean(values: Iterable[float | None]) -> float | None:
    numbers = [nan if value is None else float(value) for value in values]
    mean = ordered_sum(numbers) / len(numbers)
    return mean if isfinite(mean) else None


def _exp(value: float | None) -> float | None:
    return None if value is None else exp(value)


def read_entry(path: Path) -> dict[str, Any]:
    """Read an entry from its file.

    Raises:
        InputError: The file cannot be read, or belongs to another suite or format.
    """
    try:
        content = parsed_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {why_unreadable(error)}") from None
    except ValueError as error:
        raise InputError(
            f"{path}: cannot be read as a benchmark entry, because it is not JSON ({error}); dagsim bench run writes "
            "entries"
        ) from None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise InputError(f"{path}: not a benchmark entry; create one with `dagsim bench run`")
    if content.get("suite") != SUITE:
        raise InputError(
            f"{path}: the entry is for suite {content.get('suite')!r}, but this version of dagsim has {SUITE}"
        )
    try:
        for name, task in content["tasks"].items():
            task["metric"], task["reference"], task["policy"], task["config_sha256"]
            float(content["timing"][name][task["policy"]]["decision_time_us"] or 0.0)
            for run in task["runs"]:
                run["policy"], run["seed"], run["log_sha256"], run["metrics"]["preemptions"]
        if content["division"] not in get_args(Division):
            raise ValueError(f"division {content['division']!r}")
        for fact in _FACTS:
            content[fact]
        scored(content)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, StopIteration, InputError) as error:
        raise InputError(f"{path}: damaged: {type(error).__name__} {error}") from None
    return content


def of_other_code(content: Mapping[str, Any]) -> bool:
    """Return True if an entry was made with another version of the simulation code. Its runs have
    to be repeated to see whether this matters.
    """
    return bool(content["code_sha256"] != code_digest())


def check_file(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each fact in an entry's file that differs from this checkout, or that
    contradicts the entry's own runs.
    """
    if content["suite_sha256"] != _suite_digest():
        yield "the tasks differ from those of this dagsim (suite_sha256)"
    again = json.loads(json.dumps(scored(content)))
    for place, value, follows in differences({key: content.get(key) for key in again}, again):
        yield f"{place} does not follow from the runs in the file: it is {value}, and they give {follows}"
    names, missing, entry = {task.name: task for task in suite()}, tasks_without_family(), _entry_of(content)
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
        elif task["config_sha256"] != _config_digest(names[name], entry.division):
            yield f"{name}: its configuration differs (config_sha256)"
        else:
            for kind, files in provenance(names[name].config, [task["policy"]]).items():
                for file, fact in files.items() if kind in content else ():
                    if content[kind].get(file, {}).get("sha256") != fact["sha256"]:
                        yield f"{name}: {file} has another SHA-256 than in the entry"


def _entry_of(content: Mapping[str, Any]) -> BenchEntry:
    return BenchEntry(content["entry"], content["policies"], content["division"], content["draw"], None)


class PickedRun(NamedTuple):
    """A run that is to be repeated."""

    task: BenchTask
    cell: Cell
    line: Mapping[str, Any]
    """The statements in the file about this entry."""


def differing_bounds(content: Mapping[str, Any], picked: Iterable[PickedRun]) -> Iterator[str]:
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


def repeated_runs(content: Mapping[str, Any], sample: int, seed: int, executor: CellExecutor) -> tuple[int, list[str]]:
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


def picked_cells(content: Mapping[str, Any], sample: int, seed: int) -> list[PickedRun]:
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


def _cell_of(task: BenchTask, content: Mapping[str, Any], line: Mapping[str, Any]) -> Cell:
    runs = content["tasks"][task.name]["runs"]
    entry = _entry_of(content)._replace(seeds=len({run["seed"] for run in runs}))
    for cell in task_plan(task, entry).cells:
        if (cell.policy, cell.seed) == (line["policy"], line["seed"]):
            return cell
    raise ConfigError(f"task {task.name}: there is no run of {line['policy']!r} on seed {line['seed']}")
