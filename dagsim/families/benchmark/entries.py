"""The file of an entry: its runs, with the hash of each log, and the scores that follow from them.

The score for a task is the ratio of the entry to the reference, seed by seed. The score for the
suite is the ratio of geometric means over the tasks. On the GPU cluster, the metric is the
area-weighted response time (Boezennec, Dufossé, Pop 2024), because a mean weighted by area cannot
be improved by delaying a few large jobs, whereas a mean slowdown can.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from math import exp, isfinite, log, nan
from pathlib import Path
from typing import Any, TypedDict, cast, get_args

import dagsim
from dagsim.errors import InputError
from dagsim.experiment.cell import Cell
from dagsim.experiment.cell_run import CLOCKED, CellRun
from dagsim.experiment.provenance import code_digest, provenance
from dagsim.experiment.store import Store
from dagsim.families.benchmark.suite import (
    METRICS,
    SUITE,
    BenchEntry,
    BenchTask,
    Division,
    config_digest,
    suite_digest,
    suite_paths,
)
from dagsim.files import parsed_json, why_unreadable
from dagsim.metrics.standings import PolicyResult, not_done, standings
from dagsim.model.arithmetic import ordered_sum, whole_sum
from dagsim.systems import all_systems
from dagsim.text import count_of

_COUNTS = ("jobs_arrived", "jobs_completed", "jobs_unfinished", "preemptions")
_FORMAT = "dagsim-bench"
_FACTS = (
    *("entry", "policies", "draw", "score", "scores", "bounds"),
    *("dagsim", "suite_sha256", "code_sha256", "code", "checkpoints"),
)
"""The facts about an entry besides its runs."""


class EntryRun(TypedDict):
    """A run in an entry's file, with the hash of its log."""

    policy: str
    seed: int
    log_sha256: str
    metrics: dict[str, Any]


class EntryTask(TypedDict):
    """A task in an entry's file, with the runs of the entry and of the reference."""

    config_sha256: str
    metric: str
    reference: str
    policy: str
    runs: list[EntryRun]


class EntryScore(TypedDict):
    """The ratio of the entry to the reference, with a 95% interval, or None if there is no score."""

    ratio: float | None
    low: float | None
    high: float | None
    verdict: str
    seeds: int


class TaskScore(EntryScore):
    """The score for a task."""

    bound: float | None
    means: dict[str, dict[str, float | None]]
    """The means of ``METRICS`` for the entry and for the reference."""


class EntryRuns(TypedDict):
    """The part of an entry's file from which the scores are computed."""

    tasks: dict[str, EntryTask]
    bounds: dict[str, list[float]]


class EntryScores(TypedDict):
    """The part of an entry's file that is computed from the runs."""

    preemption: bool
    """True if the entry stopped a run."""
    score: EntryScore
    scores: dict[str, TaskScore]


class EntryClocks(TypedDict):
    """The mean CPU time of a decision and the mean wall-clock time of a run, over the runs of a
    policy on a task.
    """

    decision_time_us: float | None
    wall_s: float | None


class EntryFile(EntryRuns, EntryScores):
    """The file of an entry."""

    format: str
    suite: str
    suite_sha256: str
    dagsim: str
    code_sha256: str
    entry: str
    policies: dict[str, str]
    division: Division
    draw: int | None
    code: dict[str, dict[str, str]]
    checkpoints: dict[str, dict[str, str]]
    missing: list[str]
    timing: dict[str, dict[str, EntryClocks]]


def left_out(content: EntryRuns) -> list[str]:
    """Return the names of the suite's tasks that are not in an entry's file."""
    return [name for name in suite_paths() if name not in content["tasks"]]


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


def entry_file(
    entry: BenchEntry,
    tasks: Sequence[BenchTask],
    runs: Mapping[str, tuple[Store, Mapping[Cell, CellRun]]],
    bounds: dict[str, list[float]],
) -> EntryFile:
    """Build the contents of an entry's file. It contains the runs, the hash of each log, the
    scores, and, under ``timing``, all values that were measured with a clock. ``runs`` contains the
    store and the finished cells of each task, and ``bounds`` is the result of ``bounds_of``."""
    own: dict[str, dict[str, dict[str, str]]] = {"code": {}, "checkpoints": {}}
    for task in tasks:
        for kind, files in provenance(task.config, [entry.policies[task.system]]).items():
            if kind in own:
                own[kind] |= {name: {"sha256": fact["sha256"]} for name, fact in files.items()}
    of_runs: EntryRuns = {
        "tasks": {task.name: _task_of(entry, task, *runs[task.name]) for task in tasks},
        "bounds": dict(bounds),
    }
    return {
        "format": _FORMAT,
        "suite": SUITE,
        "suite_sha256": suite_digest(),
        "dagsim": dagsim.__version__,
        "code_sha256": code_digest(),
        "entry": entry.name,
        "policies": dict(entry.policies),
        "division": entry.division,
        "draw": entry.draw,
        "code": own["code"],
        "checkpoints": own["checkpoints"],
        **of_runs,
        "missing": left_out(of_runs),
        **scored(of_runs),
        "timing": {task.name: _times(*runs[task.name]) for task in tasks},
    }


def _task_of(entry: BenchEntry, task: BenchTask, store: Store, done: Mapping[Cell, CellRun]) -> EntryTask:
    kept = _kept_metrics()
    return {
        "config_sha256": config_digest(task, entry.division),
        "metric": task.metric,
        "reference": task.config.policy,
        "policy": entry.policies[task.system],
        "runs": [
            {
                "policy": cell.policy,
                "seed": cell.seed,
                "log_sha256": log_digest(_schedule_files(store, cell)),
                "metrics": {name: run.metrics.get(name) for name in kept},
            }
            for cell, run in done.items()
        ],
    }


def _kept_metrics() -> tuple[str, ...]:
    """Return the metrics that an entry keeps for each run: counts, and the scores of all systems."""
    scores = dict.fromkeys(system.score for system in all_systems().values())
    return (*_COUNTS, *scores, *METRICS)


def _times(store: Store, done: Mapping[Cell, CellRun]) -> dict[str, EntryClocks]:
    """Return the CPU microseconds per decision and the wall-clock seconds per run, by policy."""
    events = {event["id"]: event for event in store.as_grid().progress() if event.get("event") == "done"}
    means: dict[str, EntryClocks] = {}
    for policy in dict.fromkeys(cell.policy for cell in done):
        mine = [events[cell.id] for cell in done if cell.policy == policy and cell.id in events]
        clocks = [event[CLOCKED] for event in mine if event[CLOCKED] is not None]
        means[policy] = {
            "decision_time_us": ordered_sum(clocks) / len(clocks) if clocks else None,
            "wall_s": ordered_sum([event["wall_s"] for event in mine]) / len(mine) if mine else None,
        }
    return means


def scored(content: EntryRuns) -> EntryScores:
    """Return the scores of an entry from the runs in its file, for each task and for all tasks
    together. An entry has no score for a task if it leaves a job unfinished that the reference
    completes.

    Runs of different tasks are paired by the position of their seeds, so replicate k of the suite
    consists of the k-th seed of every task.
    """
    by_task: dict[str, TaskScore] = {}
    logs: dict[str, list[list[float]]] = {"entry": [], "reference": []}
    preempts = False
    for name, task in content["tasks"].items():
        by_role, metric = _by_role(task), task["metric"]
        preempts = preempts or any(line.metrics["preemptions"] for line in by_role["entry"])
        undone = _undone(by_role, metric)
        by_task[name] = {
            **_facts(_compared(by_role, metric), undone),
            "bound": _below(content["bounds"].get(name), by_role["reference"], metric),
            "means": {
                shown: {role: _mean([line.metrics[shown] for line in lines]) for role, lines in by_role.items()}
                for shown in METRICS
            },
        }
        for role, lines in by_role.items():
            values = [nan if line.metrics[metric] is None else line.metrics[metric] for line in lines]
            counts = not (undone and role == "entry")
            logs[role].append([log(value) if value > 0 and counts else nan for value in values])
    scores = {role: [_exp(_mean(column)) for column in zip(*rows, strict=True)] for role, rows in logs.items()}
    whole_lines = {
        role: [CellRun(role, k, metrics={"score": score}) for k, score in enumerate(column)]
        for role, column in scores.items()
    }
    whole = _facts(_compared(whole_lines, "score"), 0)
    if none := [name for name, facts in by_task.items() if facts["ratio"] is None]:
        whole["verdict"] = f"no score on {', '.join(none)}"
    return {"preemption": preempts, "score": whole, "scores": by_task}


def _undone(by_role: Mapping[str, Sequence[CellRun]], metric: str) -> int:
    """Return how many jobs the entry leaves unfinished although the reference completes them."""
    pairs = zip(by_role["entry"], by_role["reference"], strict=True)
    # ``blocking_rate`` already accounts for rejected jobs
    return whole_sum(max(not_done(mine) - not_done(other), 0) for mine, other in pairs if metric != "blocking_rate")


def _below(bounds: Sequence[float] | None, lines: Sequence[CellRun], metric: str) -> float | None:
    """Return the geometric mean of bound / reference over the seeds, or None if there is no bound."""
    if not bounds:
        return None
    ratios = [log(bound / line.metrics[metric]) for bound, line in zip(bounds, lines, strict=True)]
    return exp(ordered_sum(ratios) / len(ratios))


def _by_role(task: EntryTask) -> dict[str, list[CellRun]]:
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


def _facts(result: PolicyResult, undone: int) -> EntryScore:
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


def read_entry(path: Path) -> EntryFile:
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
        entry = cast(EntryFile, content)
        scored(entry)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, StopIteration, InputError) as error:
        raise InputError(f"{path}: damaged: {type(error).__name__} {error}") from None
    return entry


def of_other_code(content: EntryFile) -> bool:
    """Return True if an entry was made with another version of the simulation code. Its runs have
    to be repeated to see whether this matters.
    """
    return content["code_sha256"] != code_digest()
