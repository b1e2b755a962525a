"""Jobs that were turned away: by cause, and by how much longer than alone they would have accepted to take."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from dagsim.metrics.columns import Flags, Floats, ScheduleColumns
from dagsim.model import RejectReason
from dagsim.report.grid import Grid

__all__ = ["rejected_by_beta", "rejected_by_cause"]

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
    """A table of the jobs that runs turned away, by their names; none where every job was let in."""
    reasons = [reason for reason in RejectReason if any((made.jobs.rejected == reason).any() for made in runs.values())]
    if not reasons:
        return []
    rows = [(name, f"{len(made.jobs):,}", *_counts(made, reasons)) for name, made in runs.items()]
    heads = ("", "jobs", "turned\naway", *(_WORDS[reason] for reason in reasons))
    return [Grid("Jobs turned away, by cause", heads, rows)]


def rejected_by_beta(runs: Mapping[str, ScheduleColumns]) -> list[Grid]:
    """The same by ``beta``, the time until a job's deadline over its time on one GPU; none without deadlines."""
    betas = {name: _beta(made) for name, made in runs.items()}
    turned_away = any((made.jobs.rejected > 0).any() for made in runs.values())
    return [_by_beta(runs, betas)] if turned_away and any(np.isfinite(beta).any() for beta in betas.values()) else []


def _counts(made: ScheduleColumns, reasons: list[RejectReason]) -> list[str]:
    counts = [int((made.jobs.rejected > 0).sum()), *(int((made.jobs.rejected == reason).sum()) for reason in reasons)]
    return [f"{count:,} ({100 * count / max(len(made.jobs), 1):.1f} %)" for count in counts]


def _beta(made: ScheduleColumns) -> Floats:
    """Seconds until the deadline over seconds on one GPU; NaN without a deadline."""
    jobs = made.jobs
    beta: Floats = (jobs.deadline_s - jobs.arrival_s) / np.where(jobs.ideal_gpu_s > 0, jobs.ideal_gpu_s, np.nan)
    return beta


def _by_beta(runs: Mapping[str, ScheduleColumns], betas: Mapping[str, Floats]) -> Grid:
    """The share turned away in each range of beta."""
    ranges = list(pairwise(_EDGES))
    inside = [[_within(betas[name], *each) for each in ranges] for name in runs]
    used = [place for place in range(len(ranges)) if any(flags[place].any() for flags in inside)]
    rows = [
        (name, *(_share(made, flags[place]) for place in used))
        for (name, made), flags in zip(runs.items(), inside, strict=True)
    ]
    heads = ("", *(_range(*ranges[place]) for place in used))
    note = "beta: the time until the job's deadline over its time on one GPU. Shares of the jobs that arrived."
    return Grid("Jobs turned away, by beta", heads, rows, (note,))


def _within(beta: Floats, low: float, high: float) -> Flags:
    inside: Flags = (beta > low) & (beta <= high)
    return inside


def _share(made: ScheduleColumns, chosen: Flags) -> str:
    count = int(chosen.sum())
    return f"{100 * float((made.jobs.rejected[chosen] > 0).mean()):.1f} % of {count:,}" if count else "-"


def _range(low: float, high: float) -> str:
    return f"beta up\nto {high:g}" if np.isfinite(high) else f"beta over\n{low:g}"
