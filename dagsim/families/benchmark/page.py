"""Tables for the benchmark. They show one entry task by task, or the leaderboard of several
entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, inf, log, nan

from dagsim.families.benchmark.entries import EntryFile, EntryScore, TaskScore, left_out, scored
from dagsim.families.benchmark.suite import suite_paths
from dagsim.model.arithmetic import ordered_sum, rounded
from dagsim.report.grid import Grid, factor, interval, number

_SLACK_S = 60.0
"""Added to both waits before their ratio is taken, because a wait may be 0."""
_BOUND = "bound: no policy that lets every run end has a lower ratio (--bound)"
_NOTES = (
    "ratio: geometric mean over the tasks of the score over that of the reference, with a 95% interval over seeds; "
    "below 1 is better, and only a verdict says so",
    "p95 wait: geometric mean over the tasks of (p95 wait + 1 min) / (that of the reference + 1 min); rho: the same of "
    "the largest finish-time fairness; utilisation: mean over the tasks; us: CPU microseconds per decision",
)


def entry_grid(content: EntryFile) -> Grid:
    """Return the scores of an entry, with one row for each task and one row for all tasks."""
    tasks = content["tasks"]
    rows = [_entry_row(name, tasks[name]["reference"], score, score) for name, score in content["scores"].items()]
    rows.append(_entry_row(_number_of_tasks(content) if left_out(content) else "all", "", content["score"]))
    heads = ("task", "reference", "ratio", "95% interval", "p95 wait (s)", "utilisation", "bound", "verdict")
    notes = ((_BOUND,) if content["bounds"] else ()) + _note_on_missing(content)
    return Grid(f"{content['entry']}: {_division(content)}", heads, rows, notes, texts=(0, 1, 7))


def _entry_row(name: str, reference: str, score: EntryScore, task: TaskScore | None = None) -> tuple[str, ...]:
    means = {} if task is None else task["means"]
    beside = [number(_value(means.get(metric, {}).get("entry"))) for metric in ("queueing_s.p95", "utilization")]
    bound = _value(None if task is None else task["bound"])
    return (name, reference, *_ratio(score), *beside, factor(bound), score["verdict"])


def _ratio(facts: EntryScore) -> tuple[str, str]:
    return factor(_value(facts["ratio"])), interval(_value(facts["low"]), _value(facts["high"]), factor)


def _value(value: float | None, missing: float = nan) -> float:
    return missing if value is None else value


def _number_of_tasks(content: EntryFile) -> str:
    """Return the number of an entry's tasks and, if the entry lacks some, the number of tasks in the suite."""
    return f"{len(content['tasks'])} of {len(suite_paths())}" if left_out(content) else f"{len(content['tasks'])}"


def _note_on_missing(content: EntryFile) -> tuple[str, ...]:
    missing = left_out(content)
    return (f"tasks of the suite that are not in the score: {', '.join(missing)}",) if missing else ()


def _division(content: EntryFile) -> str:
    kind = "with" if content["preemption"] else "without"
    drawn = "development seeds" if content["draw"] is None else f"test seeds of draw {content['draw']}"
    tasks = f"{_number_of_tasks(content)} tasks x {content['score']['seeds']} seeds"
    return f"{content['division']} estimates, {kind} preemption, {drawn}, {tasks}"


def leaderboards(entries: Sequence[EntryFile]) -> list[Grid]:
    """Return a table for each group of comparable entries, which have the same division, seeds and
    tasks. The best ratio comes first, and entries without a score come last. Scores are computed
    from the runs rather than taken from the file.
    """
    entries = [{**entry, **scored(entry)} for entry in entries]
    groups: dict[tuple[str, tuple[str, ...]], list[EntryFile]] = {}
    for entry in entries:
        groups.setdefault((_division(entry), tuple(sorted(entry["tasks"]))), []).append(entry)
    several = len({division for division, _ in groups}) < len(groups)
    grids = []
    for (division, tasks), members in sorted(groups.items(), key=lambda item: (-len(item[0][1]), item[0])):
        ordered = sorted(members, key=lambda entry: rounded(_value(entry["score"]["ratio"], missing=inf)))
        heads = ("entry", "ratio", "95% interval", "p95 wait", "rho", "utilisation", "us", "verdict")
        title = f"{division} ({', '.join(tasks)})" if several else division
        notes = _NOTES + _note_on_missing(ordered[0])
        grids.append(Grid(title, heads, [_row(entry) for entry in ordered], notes, texts=(0, 7)))
        if len(tasks) > 1:
            grids.append(_by_task(title, tasks, ordered))
    return grids


def _by_task(title: str, tasks: Sequence[str], entries: Sequence[EntryFile]) -> Grid:
    """Return a table with the best entry for each task and, if an entry has one, the bound for the
    task.
    """
    rows = []
    for task in tasks:
        ranked = [(_value(entry["scores"][task]["ratio"]), entry["entry"]) for entry in entries]
        valued = (pair for pair in ranked if pair[0] == pair[0])
        best, name = min(valued, key=lambda pair: (rounded(pair[0]), pair[1]), default=(nan, "-"))
        bounds = [bound for entry in entries if (bound := entry["scores"][task]["bound"]) is not None]
        reference = entries[0]["tasks"][task]["reference"]
        rows.append((task, reference, factor(max(bounds, default=nan)), factor(best), name))
    heads = ("task", "reference", "bound", "best ratio", "entry")
    return Grid(f"best by task: {title}", heads, rows, (_BOUND,), texts=(0, 1, 4))


def _row(entry: EntryFile) -> tuple[str, ...]:
    means = [facts["means"] for facts in entry["scores"].values()]
    used = [_value(of["utilization"]["entry"]) for of in means if of["utilization"]["entry"] is not None]
    timing = entry["timing"]
    clocks = [_value(timing[name][task["policy"]]["decision_time_us"]) for name, task in entry["tasks"].items()]
    return (
        entry["entry"],
        *_ratio(entry["score"]),
        factor(_geometric([_quotient(of["queueing_s.p95"], _SLACK_S) for of in means])),
        factor(_geometric([_quotient(of["max_ftf"]) for of in means])),
        factor(ordered_sum(used) / len(used) if used else nan),
        number(ordered_sum(clocks) / len(clocks)),
        entry["score"]["verdict"],
    )


def _quotient(pair: Mapping[str, float | None], slack: float = 0.0) -> float:
    mine, other = _value(pair["entry"]) + slack, _value(pair["reference"]) + slack
    return mine / other if other > 0 else nan


def _geometric(ratios: Sequence[float]) -> float:
    """Return the geometric mean of all ratios that are known and above 0."""
    logs = [log(ratio) for ratio in ratios if ratio > 0]
    return exp(ordered_sum(logs) / len(logs)) if logs else nan
