"""Describe the jobs that waited longest, with the reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np

from dagsim.errors import InputError
from dagsim.metrics.columns import Floats, Ints, ScheduleColumns
from dagsim.metrics.jct import queueing
from dagsim.metrics.utilization import Steps, gpus_held, gpus_up
from dagsim.metrics.why import wait_reasons
from dagsim.model.log import Schedule
from dagsim.report.grid import Grid, number

_HEADS = (
    "job",
    "tenant",
    "GPUs\nasked",
    "wait\n(s)",
    "before its\nfirst run (s)",
    "GPUs held\nmeanwhile",
    "why it waited",
)
_WITHOUT_GPUS = (0, 1, 3, 4, 6)
"""Columns for a cluster without GPUs."""
_MEANWHILE = "GPUs held meanwhile: share of the cluster that runs held between the job's arrival and its first run."
_WORST = 20
_LEAST = 0.1
"""Minimum share of the wait that is listed."""
_MOST_LOOKED_AT = 200_000
"""Largest number of runs times nodes for the full analysis. Above it, only the free GPUs in the
whole cluster count."""
_MOST_EXPLAINED = 20_000
"""Largest number of rows in a log for which to search for the causes as ``dagsim why`` does,
because this reads the log once for each listed job."""
_LATE = 0.2
"""Share of the wait from which waiting after the first start is mentioned."""


Explain: TypeAlias = Callable[[int, Sequence[tuple[float, float]]], Sequence[tuple[str, float]]]
"""Returns the causes of the waits of a job, and the seconds of each, as ``dagsim why`` does. Raises
``InputError`` if the jobs are gone."""


def can_explain(schedule: Schedule) -> bool:
    """Return True if the log is small enough to search for the causes of every listed wait."""
    return len(schedule.log) <= _MOST_EXPLAINED


def worst_waits(cols: ScheduleColumns, explain: Explain | None = None) -> Grid:
    """List the 20 jobs with the longest waits, and the reasons. Unfinished jobs wait until the end of
    the log. ``explain`` finds more reasons than the log shows.
    """
    ended = cols.at_horizon()
    waits = np.where(cols.jobs.accepted, queueing(ended), -1.0)
    order = np.argsort(-waits, kind="stable")[:_WORST]
    worst = order[waits[order] > 0]
    first_s = cols.first_start_s
    before_s = np.minimum(first_s, cols.log_end_s) - cols.jobs.arrival_s
    meanwhile = _held_meanwhile(cols, worst, first_s)
    why = _reasons(cols, worst, first_s, waits, explain)
    rows: list[tuple[str, ...]] = []
    for place, job in enumerate(worst.tolist()):
        open_ = " (unfinished)" if cols.jobs.unfinished[job] else ""
        name, tenant = cols.jobs.ids[job] + open_, cols.jobs.tenant[job] or "-"
        times = number(float(waits[job])), number(float(before_s[job]))
        asked = number(float(cols.jobs.gpus[job]))
        rows.append((name, tenant, asked, *times, meanwhile[place], why[place]))
    kept = range(len(_HEADS)) if cols.cluster.gpus else _WITHOUT_GPUS
    notes: tuple[str, ...] = (_MEANWHILE,) if cols.cluster.gpus else ()
    return Grid(
        "The jobs that waited longest",
        tuple(_HEADS[place] for place in kept),
        [tuple(row[place] for place in kept) for row in rows],
        notes if rows else ("No job waited.",),
        (0, 1, len(kept) - 1),
    )


def _reasons(cols: ScheduleColumns, jobs: Ints, first_s: Floats, waits: Floats, explain: Explain | None) -> list[str]:
    """Describe the known reasons for each wait.

    For a large run, the reasons are based on all free GPUs in the cluster rather than on those of
    the types on which a job ran.
    """
    stopped = np.bincount(cols.runs.job[cols.runs.stopped], minlength=len(cols.jobs))
    with_gpus = cols.cluster.gpus > 0
    whole = len(cols.runs) * len(cols.cluster.nodes) <= _MOST_LOOKED_AT
    free = _free(cols) if with_gpus and not whole else None
    sentences = []
    for job in jobs.tolist():
        causes = []
        arrival_s, until_s = float(cols.jobs.arrival_s[job]), float(min(first_s[job], cols.log_end_s))
        asked = float(cols.jobs.gpus[job])
        if (explained := _explained(cols, job, explain)) is not None:
            causes += explained
        elif with_gpus and whole and asked > 0:
            causes += _missing(cols, job)
        elif free is not None and asked > 0 and until_s > arrival_s:
            causes.append(_room(free, asked, arrival_s, until_s))
        if later := np.count_nonzero((cols.jobs.arrival_s > arrival_s) & (first_s < first_s[job])):
            causes.append(f"{later:,} later {'job' if later == 1 else 'jobs'} started first")
        if stopped[job]:
            causes.append("stopped once" if stopped[job] == 1 else f"stopped {stopped[job]:,} times")
        after = 1 - (until_s - arrival_s) / float(waits[job])
        if after >= _LATE:
            causes.append(f"{100 * after:.0f}% of the wait after its first start")
        sentences.append("; ".join(causes) or "no run of it could start")
    return sentences


def _explained(cols: ScheduleColumns, job: int, explain: Explain | None) -> list[str] | None:
    """List the shares of the wait by cause, as ``dagsim why`` does, or None if they are not known."""
    if explain is None:
        return None
    reasons = wait_reasons(cols, job)
    try:
        shares = [(what, seconds / reasons.queueing_s) for what, seconds in explain(job, reasons.periods)]
    except InputError:
        return None
    return _worded(shares)


def _missing(cols: ScheduleColumns, job: int) -> list[str]:
    """List the shares of the wait by what was missing, largest first, in the words of ``dagsim
    why``.
    """
    reasons = wait_reasons(cols, job)
    shares = [(cause.what, seconds / reasons.queueing_s) for cause, seconds in reasons.blocked_s.items()]
    return _worded(shares)


def _worded(shares: Iterable[tuple[str, float]]) -> list[str]:
    """Describe in words the shares of a wait that are large enough to be shown."""
    return [f"{100 * share:.0f}%: {what}" for what, share in shares if share >= _LEAST]


def _free(cols: ScheduleColumns) -> Steps:
    """Return the GPUs that are up and not held, over time."""
    held, up = gpus_held(cols), gpus_up(cols)
    time_s = np.unique(np.concatenate((held.time_s, up.time_s)))
    values = [steps.at(time_s) for steps in (up, held)]
    return Steps(time_s, values[0] - values[1], held.end_s)


def _room(free: Steps, asked: float, arrival_s: float, until_s: float) -> str:
    """State for what share of the time before the job's first run fewer GPUs were free than the job
    requested."""
    full = Steps(free.time_s, (free.value < asked - 1e-9).astype(float), free.end_s)
    reached = full.until(np.array([arrival_s, until_s]))
    short = float(reached[1] - reached[0]) / (until_s - arrival_s)
    name = f"{asked:g} {'GPU' if asked == 1 else 'GPUs'}"
    if short >= 0.5:
        return f"fewer than {name} free for {100 * short:.0f}% of the time before"
    return f"{name} free for {100 * (1 - short):.0f}% of the time before: type, nodes or the policy's order kept it"


def _held_meanwhile(cols: ScheduleColumns, jobs: Ints, first_s: Floats) -> list[str]:
    if not cols.cluster.gpus:
        return ["-"] * len(jobs)
    held = gpus_held(cols)
    arrival_s = cols.jobs.arrival_s[jobs]
    until_s = np.minimum(first_s[jobs], cols.log_end_s)
    span_s = np.clip(until_s, cols.start_s, cols.end_s) - np.clip(arrival_s, cols.start_s, cols.end_s)
    shares = (held.until(until_s) - held.until(arrival_s)) / np.maximum(span_s, 1e-12) / cols.cluster.gpus
    return [f"{100 * share:.0f}%" if span > 0 else "-" for share, span in zip(shares, span_s, strict=True)]
