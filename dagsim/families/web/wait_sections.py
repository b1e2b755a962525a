"""Describe the jobs that waited longest, with the reasons, and the rejected jobs by cause and by
beta. Also build the tables for systems that block jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import isfinite, nan
from typing import NamedTuple, TypeAlias

import numpy as np

from dagsim.errors import InputError
from dagsim.experiment.store import Store
from dagsim.families.web.charts import table
from dagsim.families.web.chosen import Chosen, Shown
from dagsim.metrics.columns import Flags, Floats, Ints, ScheduleColumns, columns
from dagsim.metrics.jct import queueing
from dagsim.metrics.standings import RunMetrics, mean
from dagsim.metrics.utilization import Steps, gpus_held, gpus_up
from dagsim.metrics.why import wait_reasons
from dagsim.model import RejectReason
from dagsim.model.arithmetic import ordered_sum, whole_sum
from dagsim.model.log import Schedule
from dagsim.report.grid import Grid, interval, number, short
from dagsim.systems.seam import Blocking

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


_WORDS = {
    RejectReason.TOO_LARGE: "larger than\nthe cluster",
    RejectReason.NO_SUCH_GPU: "no such\nGPU",
    RejectReason.BY_POLICY: "by the\npolicy",
    RejectReason.NO_PLACE: "no place\nfree",
    RejectReason.TOO_SLOW: "would take\ntoo long",
    RejectReason.TIME_LIMIT: "killed at the\ntime limit",
    RejectReason.CANCELLED: "cancelled",
}
_EDGES = (0.0, 0.25, 0.5, 0.75, 1.0, np.inf)


def rejected_by_cause(runs: Mapping[str, ScheduleColumns]) -> list[Grid]:
    """Count the rejected jobs of each named run by cause. The result is empty if there are none."""
    reasons = [reason for reason in RejectReason if any((cols.jobs.rejected == reason).any() for cols in runs.values())]
    if not reasons:
        return []
    rows = [(name, f"{len(cols.jobs):,}", *_counts(cols, reasons)) for name, cols in runs.items()]
    heads = ("", "jobs", "rejected", *(_WORDS[reason] for reason in reasons))
    return [Grid("Rejected jobs, by cause", heads, rows)]


def rejected_by_beta(runs: Mapping[str, ScheduleColumns]) -> list[Grid]:
    """Return the share of jobs that each named run rejected, by ``beta``: time until the deadline
    divided by time on one GPU.

    The result is empty if no job was rejected or no job has a deadline.
    """
    betas = {name: _beta(cols) for name, cols in runs.items()}
    rejects = any((cols.jobs.rejected > 0).any() for cols in runs.values())
    return [_by_beta(runs, betas)] if rejects and any(np.isfinite(beta).any() for beta in betas.values()) else []


def _counts(cols: ScheduleColumns, reasons: list[RejectReason]) -> list[str]:
    counts = [int((cols.jobs.rejected > 0).sum()), *(int((cols.jobs.rejected == reason).sum()) for reason in reasons)]
    return [f"{count:,} ({100 * count / max(len(cols.jobs), 1):.1f}%)" for count in counts]


def _beta(cols: ScheduleColumns) -> Floats:
    """Return the seconds until the deadline divided by the seconds on one GPU, or NaN without a
    deadline."""
    jobs = cols.jobs
    beta: Floats = (jobs.deadline_s - jobs.arrival_s) / np.where(jobs.ideal_gpu_s > 0, jobs.ideal_gpu_s, np.nan)
    return beta


def _by_beta(runs: Mapping[str, ScheduleColumns], betas: Mapping[str, Floats]) -> Grid:
    """Return a table with the share of rejected jobs in each range of beta."""
    ranges = list(pairwise(_EDGES))
    inside = [[_within(betas[name], *bounds) for bounds in ranges] for name in runs]
    used = [place for place in range(len(ranges)) if any(flags[place].any() for flags in inside)]
    rows = [
        (name, *(_share(cols, flags[place]) for place in used))
        for (name, cols), flags in zip(runs.items(), inside, strict=True)
    ]
    heads = ("", *(_range(*ranges[place]) for place in used))
    note = (
        "beta: the time until the job's deadline divided by its time on one GPU. Values are shares "
        "of the jobs that arrived."
    )
    return Grid("Rejected jobs, by beta", heads, rows, (note,))


def _within(beta: Floats, low: float, high: float) -> Flags:
    inside: Flags = (beta > low) & (beta <= high)
    return inside


def _share(cols: ScheduleColumns, chosen: Flags) -> str:
    count = int(chosen.sum())
    return f"{100 * float((cols.jobs.rejected[chosen] > 0).mean()):.1f}% of {count:,}" if count else "-"


def _range(low: float, high: float) -> str:
    return f"beta up\nto {high:g}" if np.isfinite(high) else f"beta over\n{low:g}"


def blocking_tables(chosen: Chosen) -> str:
    """Return the tables for all runs of systems that block jobs, or an empty text without such runs."""
    kinds: dict[Blocking, list[Shown]] = {}
    for run in chosen.runs:
        if (blocking := run.folder.config.whole_system.blocked_by) is not None:
            kinds.setdefault(blocking, []).append(run)
    return "".join([table(grid) for blocking, runs in kinds.items() for grid in blocking_grids(runs, blocking)])


def blocking_grids(runs: Sequence[Shown], blocking: Blocking) -> tuple[Grid, Grid]:
    """Return two tables: blocking by cause, and completion time with speed-up. They have a row for
    each agent and each value of the setting that determines how many jobs are blocked."""
    groups: dict[tuple[str, str], list[Shown]] = {}
    for run in runs:
        policy = run.folder.lines()[run.number].policy
        groups.setdefault((str(getattr(run.folder.config.system, blocking.setting)), policy), []).append(run)
    heads = (blocking.setting, "agent", "seeds", "blocking\nrate", "95%\ninterval")
    blocked, speed = [], []
    for (beta, policy), mine in sorted(groups.items(), key=lambda item: (item[0][0], _rate(item[1]))):
        lines = [run.line for run in mine]
        rate = mean(lines, "blocking_rate")
        first = (beta, policy, f"{len(mine):,}", short(rate.value), interval(rate.low, rate.high, short))
        shares = [_share_of_arrived(lines, f"rejected_{reason.name.lower()}") for reason in blocking.causes]
        # Do not use jobs_unfinished here, because it also counts a job that arrived exactly at the
        # end.
        still_running = max(rate.value - ordered_sum(shares), 0.0)
        blocked.append((*first, *map(short, (*shares, still_running))))
        times = [_times(run.folder, run.number) for run in mine]
        speed.append((*first[:4], *_means(times)))
    return (
        Grid(
            "Jobs blocked, by cause",
            (*heads, *(_WORDS[reason] for reason in blocking.causes), "still\nrunning"),
            blocked,
            (
                (
                    "Causes are fractions of the jobs that arrived. Jobs still running at the end "
                    "count as blocked, as in ddls."
                ),
            ),
            (0, 1),
        ),
        Grid(
            "Jobs that completed",
            (*heads[:4], "mean JCT\n(s)", "p95 JCT\n(s)", "speed-up\n(x one GPU)", "GPUs\nper job"),
            speed,
            ("Speed-up: the total time of all operations on one GPU / the completion time.",),
            (0, 1),
        ),
    )


class _Times(NamedTuple):
    """Mean times and speed-up of the completed jobs of one run, or NaN if no job completed."""

    jct_s: float
    p95_s: float
    speedup: float
    gpus: float


def _times(folder: Store, place: int) -> _Times:
    cols = columns(folder.schedule(place))
    jobs, runs = cols.jobs, cols.runs
    done = jobs.finished
    if not done.any():
        return _Times(*[float("nan")] * 4)
    jct_s = (jobs.completed_s - jobs.arrival_s)[done]
    held = np.bincount(runs.job, weights=runs.held, minlength=len(jobs))[done]
    speedup = jobs.ideal_gpu_s[done] / np.maximum(jct_s, 1e-300)
    return _Times(float(jct_s.mean()), float(np.quantile(jct_s, 0.95)), float(speedup.mean()), float(held.mean()))


def _means(times: Iterable[_Times]) -> list[str]:
    """Format the mean of each quantity over the runs, or ``-`` if no run has a finite value."""
    rows = np.array(list(times))
    finite = [column[np.isfinite(column)] for column in rows.T]
    return [number(float(column.mean())) if len(column) else "-" for column in finite]


def _rate(runs: Sequence[Shown]) -> float:
    value = mean([run.line for run in runs], "blocking_rate").value
    return value if isfinite(value) else 1.0


def _share_of_arrived(lines: Sequence[RunMetrics], name: str) -> float:
    """Return the number of jobs counted by the metric ``name`` divided by the number of arrived jobs,
    over all runs.
    """
    arrived = whole_sum(line.metrics.get("jobs_arrived") or 0 for line in lines)
    return whole_sum(line.metrics.get(name) or 0 for line in lines) / arrived if arrived else nan
