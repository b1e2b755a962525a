"""Tables of the jobs and the runs of a schedule: columns by name, and their CSV text."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dagsim.metrics.columns import Ints, ScheduleColumns, Source, columns, total
from dagsim.metrics.jct import bounded_slowdown, jct, running, slowdown, wait
from dagsim.model import Kind, RejectReason
from dagsim.model.log import Schedule

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Table", "jobs_table", "runs_table", "to_csv", "to_pandas"]

Table: TypeAlias = dict[str, Sequence[Any] | np.ndarray]
"""Columns of equal length by name, in order. NaN means "none" or "not known"."""

_OUTCOMES = {Kind.FINISHED: "finished", Kind.PREEMPTED: "preempted", Kind.FAILED: "failed", -1: "running"}


def jobs_table(source: Source) -> Table:
    """Return one row per job in order of arrival.

    - ``start_s`` is the first start of a run.
    - ``status`` is completed, rejected or unfinished; ``reason`` is the reason of a rejection.
    - Times that depend on completion are NaN without it.
    - ``gpu_seconds`` counts GPUs held up to the end of the log.
    """
    cols = columns(source)
    jobs, runs = cols.jobs, cols.runs
    start_s = np.full(len(jobs), np.inf)
    np.minimum.at(start_s, runs.job, runs.start_s)
    reasons = {0: "", **{int(reason): reason.name.lower() for reason in RejectReason}}
    status = np.where(jobs.finished, "completed", np.where(jobs.accepted, "unfinished", "rejected"))
    return {
        "job": jobs.ids,
        "arrival_s": jobs.arrival_s,
        "start_s": np.where(np.isinf(start_s), np.nan, start_s),
        "completed_s": jobs.completed_s,
        "jct_s": jct(cols),
        "wait_s": wait(cols),
        "running_s": running(cols),
        "slowdown": slowdown(cols),
        "bounded_slowdown": bounded_slowdown(cols),
        "priority": jobs.priority,
        "tenant": jobs.tenant,
        "weight": jobs.weight,
        "deadline_s": jobs.deadline_s,
        "gpus": jobs.gpus,
        "gpu_seconds": total(runs.job, runs.gpu_s, len(jobs)),
        "ideal_s": jobs.ideal_s,
        "ideal_gpu_s": jobs.ideal_gpu_s,
        "preemptions": _runs_that(cols, Kind.PREEMPTED),
        "failures": _runs_that(cols, Kind.FAILED),
        "status": status.tolist(),
        "reason": [reasons[reason] for reason in jobs.rejected.tolist()],
    }


def runs_table(schedule: Schedule) -> Table:
    """Return one row per run and node in order of start.

    ``gpus`` lists the numbers of the GPUs held on the node, ``0;1;3`` (empty if the log does not
    name them). ``held`` is their number, a fraction for shared GPUs. ``computing_s`` is NaN without
    set-up or transfers, ``end_s`` for a run that is still running.
    """
    cols = columns(schedule)
    runs, nodes = cols.runs, cols.cluster.nodes
    places = {mask: _places(mask) for mask in set(runs.gpus.tolist())}
    names = [facts.tasks for facts in schedule.jobs]
    job, node = runs.job.tolist(), runs.node.tolist()
    return {
        "job": [cols.jobs.ids[number] for number in job],
        "task": [names[number][task] for number, task in zip(job, runs.task.tolist(), strict=True)],
        "run": runs.run,
        "node": [nodes[number].name for number in node],
        "gpu_type": [gpu.name if (gpu := nodes[number].gpu) else "" for number in node],
        "gpus": [places[mask] for mask in runs.gpus.tolist()],
        "held": runs.held,
        "instances": runs.instances,
        "start_s": runs.start_s,
        "computing_s": runs.computing_s,
        "end_s": np.where(runs.running, np.nan, runs.end_s),
        "outcome": [_OUTCOMES[kind] for kind in runs.outcome.tolist()],
    }


def to_csv(table: Mapping[str, Sequence[Any] | np.ndarray]) -> str:
    """Return the table as CSV text. Equal tables give equal bytes.

    Floats have their shortest exact form, and NaN is empty. A text that a spreadsheet would read as
    a formula (it begins with ``=``, ``+``, ``-`` or ``@`` and is not a number) gets a leading
    apostrophe.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_cells(list(table)))
    writer.writerows(zip(*(_cells(column) for column in table.values()), strict=True))
    return text.getvalue()


def to_pandas(table: Mapping[str, Sequence[Any] | np.ndarray]) -> pd.DataFrame:
    """Return the table as a pandas ``DataFrame``."""
    import pandas as pd

    return pd.DataFrame(dict(table))


def _cells(column: Sequence[Any] | np.ndarray) -> Sequence[Any]:
    values = column.tolist() if isinstance(column, np.ndarray) else column
    if isinstance(column, np.ndarray) and column.dtype.kind == "f":
        return ["" if math.isnan(value) else repr(value) for value in values]
    if any(map(_is_formula, {value for value in values if isinstance(value, str)})):  # hardly ever: look at each once
        return [f"'{value}" if _is_formula(value) else value for value in values]
    return values


def _is_formula(value: Any) -> bool:
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@")):
        return False
    try:
        float(value)
    except ValueError:
        return True
    return False


def _places(mask: int) -> str:
    """Format the set bits of a mask: 11 gives ``0;1;3``."""
    return ";".join(str(bit) for bit in range(mask.bit_length()) if mask >> bit & 1)


def _runs_that(cols: ScheduleColumns, outcome: Kind) -> Ints:
    """Count the runs of each job with this outcome. A run that spans nodes counts once."""
    ended = cols.runs.outcome == outcome
    _, first = np.unique(cols.runs.run[ended], return_index=True)
    return np.bincount(cols.runs.job[ended][first], minlength=len(cols.jobs))
