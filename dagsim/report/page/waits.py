"""The jobs that waited longest, and what happened while they did."""

from __future__ import annotations

import numpy as np

from dagsim.metrics.columns import Floats, Ints, ScheduleColumns
from dagsim.metrics.jct import wait
from dagsim.metrics.utilization import gpus_held
from dagsim.model import Kind
from dagsim.report.grid import Grid
from dagsim.report.numbers import number

__all__ = ["worst_waits"]

_HEADS = (
    *("job", "tenant", "GPUs\nasked", "wait\n(s)", "before its\nfirst run (s)"),
    *("stopped\n(times)", "overtaken\nby", "GPUs held\nmeanwhile"),
)


def worst_waits(made: ScheduleColumns, count: int = 20) -> Grid:
    """The jobs with the longest waits; those unfinished wait up to the end of the log.

    ``overtaken by`` counts jobs that arrived later and started before it did.
    """
    ended = made.at_horizon()
    waits = np.where(made.jobs.accepted, wait(ended), -1.0)
    order = np.argsort(-waits, kind="stable")[:count]
    worst = order[waits[order] > 0]
    first_s = _first_start_s(made)
    stopped = np.bincount(
        made.runs.job[np.isin(made.runs.outcome, (Kind.PREEMPTED, Kind.FAILED))], minlength=len(made.jobs)
    )
    meanwhile = _held_meanwhile(made, worst, first_s)
    rows = []
    for place, job in enumerate(worst.tolist()):
        before_s = float(min(first_s[job], made.log_end_s) - made.jobs.arrival_s[job])
        overtaken = np.count_nonzero((made.jobs.arrival_s > made.jobs.arrival_s[job]) & (first_s < first_s[job]))
        open_ = " (unfinished)" if made.jobs.unfinished[job] else ""
        rows.append(
            (
                made.jobs.ids[job] + open_,
                made.jobs.tenant[job] or "-",
                number(float(made.jobs.gpus[job])),
                number(float(waits[job])),
                number(before_s),
                f"{stopped[job]:,}",
                f"{overtaken:,}",
                meanwhile[place],
            )
        )
    notes = (
        "GPUs held meanwhile: share of the cluster that runs held between its arrival and its first run. "
        "Near 100 % the cluster was full; far below, what was free did not fit, or its order kept it waiting.",
    )
    return Grid("The jobs that waited longest", _HEADS, rows, notes if rows else ("No job waited.",), (0, 1))


def _first_start_s(made: ScheduleColumns) -> Floats:
    """The first start of each job; infinite where it never ran."""
    first = np.full(len(made.jobs), np.inf)
    np.minimum.at(first, made.runs.job, made.runs.start_s)
    return first


def _held_meanwhile(made: ScheduleColumns, jobs: Ints, first_s: Floats) -> list[str]:
    if not made.cluster.gpus:
        return ["-"] * len(jobs)
    held = gpus_held(made)
    arrival_s = made.jobs.arrival_s[jobs]
    until_s = np.minimum(first_s[jobs], made.log_end_s)
    span_s = np.clip(until_s, made.start_s, made.end_s) - np.clip(arrival_s, made.start_s, made.end_s)
    shares = (held.until(until_s) - held.until(arrival_s)) / np.maximum(span_s, 1e-12) / made.cluster.gpus
    return [f"{100 * share:.0f} %" if span > 0 else "-" for share, span in zip(shares, span_s, strict=True)]
