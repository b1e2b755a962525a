"""A finished run as what is written of it: bytes, made where the run was made."""

from __future__ import annotations

import gzip
import io
from typing import Any, NamedTuple

from dagsim.experiment.columns import LARGE_ROWS, packed_schedule
from dagsim.experiment.facts import jobs_text
from dagsim.experiment.run import Result
from dagsim.metrics import jobs_table, runs_table, to_csv
from dagsim.model.log import Schedule

__all__ = ["CLOCKED", "TABLES", "RunRecord", "lines_of", "run_record"]

CLOCKED = "scheduler_us"
"""The one metric that a clock says, so that it is never the same twice; it is kept apart from the others."""

TABLES = ("jobs.csv.gz", "tasks.csv.gz")
"""The tables that hold the rows of all runs, each run a piece of its own. Those of large runs are left out: they are
made of its schedule when somebody asks (``metrics.jobs_table``, ``metrics.runs_table``)."""


class RunRecord(NamedTuple):
    """A finished run, ready to be written; made in any process, written by one."""

    policy: str
    seed: int
    line: dict[str, Any]
    """Its line of ``runs.jsonl``: policy, seed, workload, metrics."""
    timing: dict[str, Any]
    """Its line of ``timing.jsonl``."""
    heads: tuple[bytes, ...]
    """The first line of each of ``TABLES``, compressed."""
    rows: tuple[bytes, ...]
    """Its rows of each of ``TABLES``, compressed."""
    files: tuple[tuple[str, bytes], ...]
    """Its schedule: files by their endings."""


def run_record(result: Result) -> RunRecord:
    """Everything that is written of a result; equal results give equal bytes, times of the clock aside."""
    schedule = result.schedule
    who = {"policy": result.policy, "seed": result.seed}
    line, timing = lines_of(result)
    large = len(schedule.log) >= LARGE_ROWS
    shown = Schedule(schedule.cluster) if large else schedule
    tables = [_csv(who, table) for table in (jobs_table(shown), runs_table(shown))]
    return RunRecord(
        result.policy,
        result.seed,
        line,
        timing,
        tuple(_packed(head) for head, _ in tables),
        tuple(_packed(rows) for _, rows in tables),
        _large_files(schedule) if large else _files(schedule),
    )


def lines_of(result: Result) -> tuple[dict[str, Any], dict[str, Any]]:
    """The lines of ``runs.jsonl`` and ``timing.jsonl`` of a result; only the second holds times of the clock."""
    schedule, who = result.schedule, {"policy": result.policy, "seed": result.seed}
    metrics = result.summary.to_dict()
    timing = {
        "wall_s": result.wall_s,
        "decision_s": schedule.decision_s,
        "decisions": schedule.decisions,
        **({} if result.engine is None else {"engine": result.engine._asdict()}),
        CLOCKED: metrics.pop(CLOCKED),
    }
    return who | {"workload": dict(result.workload), "metrics": metrics}, who | timing


def _csv(who: dict[str, Any], table: dict[str, Any]) -> tuple[str, str]:
    """The first line of the table as CSV, and its rows."""
    rows = len(next(iter(table.values())))
    text = to_csv({key: [value] * rows for key, value in who.items()} | table)
    head, _, rest = text.partition("\n")
    return head + "\n", rest


def _files(schedule: Schedule) -> tuple[tuple[str, bytes], ...]:
    return ("npy", _log(schedule)), ("json.gz", _jobs(schedule))


def _large_files(schedule: Schedule) -> tuple[tuple[str, bytes], ...]:
    return (("npz", packed_schedule(schedule)),)


def _log(schedule: Schedule) -> bytes:
    buffer = io.BytesIO()
    schedule.log.write(buffer)
    return buffer.getvalue()


def _jobs(schedule: Schedule) -> bytes:
    return _packed(jobs_text(schedule))


def _packed(text: str) -> bytes:
    """A gzip member without name and time, so that equal texts give equal bytes."""
    return gzip.compress(text.encode(), compresslevel=6, mtime=0)
