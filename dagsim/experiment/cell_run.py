"""Finished cells with their files, and the tables and summaries of all cells in a run folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from dagsim.experiment.folder_files import check_shape, read_lines, value_in
from dagsim.experiment.schedule_files import gzipped, is_large, log_files
from dagsim.experiment.simulate import Outcome, Played
from dagsim.metrics import jobs_table, runs_table, to_csv
from dagsim.metrics.series import JobSeries
from dagsim.model.arithmetic import ordered_sum
from dagsim.model.log import Schedule
from dagsim.systems.seam import EngineUse

RUNS, TIMING, FAILURES = "runs.jsonl", "timing.jsonl", "failures.jsonl"
_RUN = {"policy": str, "seed": int, "workload": dict, "metrics": dict, "engine": dict}
"""The types of values in a line (see ``check_shape``)."""
CLOCKED = "decision_time_us"
"""The only metric that is measured with a clock. It differs each time, so it is stored separately."""

Keep: TypeAlias = Literal["summary", "series", "jobs", "log"]
"""The files of each run that are kept besides its metrics: with ``summary`` none, with ``series``
the values per job that intervals need (``metrics.series``), with ``jobs`` the table of jobs, and
with ``log`` both tables and the schedule.
"""

TABLES = ("jobs.csv.gz", "tasks.csv.gz")
"""The tables with the rows of all runs. Each run is a separate gzip member. Large runs have no rows
in the tables: ``metrics.jobs_table`` and ``metrics.runs_table`` compute them from the schedule.
"""


@dataclass(frozen=True, slots=True)
class CellRun:
    """A finished or failed cell: its line in the store and, until they are written, its files. Any
    process may create a ``CellRun``, but a single process writes them all.
    """

    policy: str
    """The name of the run in tables. For a cell of a grid that is not listed yet, this is the
    policy.
    """
    seed: int
    workload: dict[str, Any] = field(default_factory=dict)
    """Facts about the jobs and, under ``decider``, any facts about the policy
    (``Outcome.decider``)."""
    metrics: dict[str, Any] = field(default_factory=dict)
    at: Mapping[str, str] = field(default_factory=dict)
    """The label of the cell's value on each axis of a grid."""
    id: str = ""
    """The id of the run's cell in a grid."""
    error: str = ""
    """The reason why the run failed. It is empty if the run did not fail."""
    timing: Mapping[str, Any] = field(default_factory=dict)
    """The run's line in ``timing.jsonl``."""
    tables: Mapping[str, tuple[bytes, bytes]] = field(default_factory=dict)
    """The first line and the rows of each of ``TABLES``, compressed separately."""
    schedule: Mapping[str, bytes] = field(default_factory=dict)
    """The files with the schedule of the run, by file name extension."""

    @property
    def line(self) -> dict[str, Any]:
        """The policy, seed, workload and metrics, as in ``runs.jsonl``."""
        return {"policy": self.policy, "seed": self.seed, "workload": self.workload, "metrics": self.metrics}

    def named_files(self) -> Iterator[tuple[str, bytes]]:
        """Yield the tables and the schedule of the run, each as a separate file."""
        for name, (head, rows) in self.tables.items():
            yield name, head + rows
        yield from self.schedule.items()


def run_of(outcome: Outcome, keep: Keep = "log") -> CellRun:
    """Convert an outcome to a run with the files that ``keep`` selects. Equal outcomes give files
    with equal bytes, except for times.
    """
    schedule, who = outcome.schedule, {"policy": outcome.policy, "seed": outcome.seed}
    metrics = outcome.summary.to_dict()
    timing = {**timing_of(outcome), CLOCKED: metrics.pop(CLOCKED)}
    tables: dict[str, tuple[bytes, bytes]] = {}
    files: dict[str, bytes] = {}
    if keep == "series":
        files = {"npz": JobSeries.of(schedule).to_bytes()}
    elif keep != "summary":
        shown = Schedule(schedule.cluster) if is_large(schedule) else schedule
        makers = (jobs_table, runs_table) if keep == "log" else (jobs_table,)
        tables = {name: _packed_table(who, make(shown)) for name, make in zip(TABLES, makers, strict=False)}
        if keep == "log":
            files = log_files(schedule)
    run = CellRun(outcome.policy, outcome.seed, facts_of_run(outcome), metrics)
    return replace(run, timing=timing, tables=tables, schedule=files)


def facts_of_run(played: Played | Outcome) -> dict[str, Any]:
    """Return the facts about the workload and, if there are any, about the policy."""
    return dict(played.workload) | ({"decider": dict(played.decider)} if played.decider else {})


def timing_of(played: Played | Outcome) -> dict[str, Any]:
    """Return the times that the simulation took and the engine that it used, as in ``timing.jsonl``."""
    return {
        "policy": played.policy,
        "seed": played.seed,
        "wall_s": played.wall_s,
        "decision_s": played.schedule.decision_s,
        "decisions": played.schedule.decisions,
        **({} if played.engine is None else {"engine": played.engine._asdict()}),
    }


def _packed_table(who: dict[str, Any], table: dict[str, Any]) -> tuple[bytes, bytes]:
    """Return the table as CSV with the values in ``who`` in front of each row. The header and the
    rows are compressed separately.
    """
    rows = len(next(iter(table.values())))
    head, _, rest = to_csv({key: [value] * rows for key, value in who.items()} | table).partition("\n")
    return gzipped(f"{head}\n"), gzipped(rest)


def listed_runs(folder: Path) -> list[CellRun]:
    """Return the finished runs that ``runs.jsonl`` and ``timing.jsonl`` list, in order.

    Raises:
        RunFolderError: A file cannot be read.
    """
    runs, timing = read_lines(folder / RUNS), read_lines(folder / TIMING)
    for file, lines in ((RUNS, runs), (TIMING, timing)):
        for number, run in enumerate(lines, 1):
            check_shape(run, _RUN, f"{folder / file}:{number}")
    return [
        CellRun(
            value_in(run, "policy", RUNS),
            value_in(run, "seed", RUNS),
            value_in(run, "workload", RUNS),
            value_in(run, "metrics", RUNS) | {CLOCKED: value_in(time, CLOCKED, TIMING)},
        )
        # not strict, because the time of the last run may be missing
        for run, time in zip(runs, timing, strict=False)
    ]


def listed_failures(folder: Path) -> list[CellRun]:
    """Return the failed runs that ``failures.jsonl`` lists, with their errors.

    Raises:
        RunFolderError: The file cannot be read.
    """
    return [
        CellRun(
            value_in(line, "policy", FAILURES),
            value_in(line, "seed", FAILURES),
            error=value_in(line, "error", FAILURES),
        )
        for line in read_lines(folder / FAILURES)
    ]


def engine_of(used: Mapping[str, EngineUse]) -> dict[str, str]:
    """Return the manifest's entry for engines: the requested engine and, by policy, the engine used
    and the reason.
    """
    asked = next(iter(used.values())).asked
    reasons: dict[tuple[str, str], list[str]] = {}
    for policy, use in used.items():
        reasons.setdefault((use.used, use.reason), []).append(policy)
    if len(reasons) == 1:
        ((engine, reason),) = reasons
        return {"asked": asked, "used": engine, "reason": reason}
    by_policy = [f"{engine} for {', '.join(policies)}: {reason}" for (engine, reason), policies in reasons.items()]
    engines = ", ".join(dict.fromkeys(use.used for use in used.values()))
    return {"asked": asked, "used": engines, "reason": "; ".join(by_policy)}


def summary_of(runs: Iterable[CellRun]) -> dict[str, dict[str, Any]]:
    """Return the number of seeds and the mean of every numeric metric, for each policy. The mean is
    None if any seed has no value.
    """
    by_policy: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        by_policy.setdefault(run.policy, []).append(run.metrics)
    return {policy: {"seeds": len(rows), **_means(rows)} for policy, rows in by_policy.items()}


def _means(rows: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    names = dict.fromkeys(name for row in rows for name in row)
    means: dict[str, float | None] = {}
    for name in names:
        values = [row.get(name) for row in rows]
        if name == CLOCKED or any(isinstance(value, str) for value in values):
            continue
        numbers = [value for value in values if isinstance(value, int | float)]
        means[name] = ordered_sum(numbers) / len(numbers) if len(numbers) == len(values) else None
    return means


def cells_table(runs: Sequence[CellRun]) -> str:
    """Return a CSV table with one row for each cell, sorted by id. If a cell has no value for a
    metric, the field is empty."""
    ordered = sorted(runs, key=lambda run: run.id)
    keys = list(dict.fromkeys(key for run in ordered for key in run.at))
    names = list(dict.fromkeys(name for run in ordered for name in run.metrics))
    table: dict[str, list[Any]] = {"id": [run.id for run in ordered]}
    table |= {key: [run.at.get(key) for run in ordered] for key in keys}
    table |= {"policy": [run.policy for run in ordered], "seed": [run.seed for run in ordered]}
    return to_csv(table | {name: [run.metrics.get(name) for run in ordered] for name in names})
