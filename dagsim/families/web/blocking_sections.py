"""Describe the rejected jobs by cause and by beta, and build the tables for systems that block jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import isfinite, nan
from typing import NamedTuple

import numpy as np

from dagsim.experiment.store import Store
from dagsim.families.web.charts import table
from dagsim.families.web.chosen import Chosen, Shown
from dagsim.metrics.columns import Flags, Floats, ScheduleColumns, columns
from dagsim.metrics.standings import RunMetrics, mean
from dagsim.model import RejectReason
from dagsim.model.arithmetic import ordered_sum, whole_sum
from dagsim.report.grid import Grid, interval, number, short
from dagsim.systems.seam import Blocking

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
