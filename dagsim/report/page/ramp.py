"""Runs on RAMP in a page: which jobs were blocked and why, and how fast the others were, by agent and by beta."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import NamedTuple

import numpy as np

from dagsim.experiment.store import RunFolder
from dagsim.metrics.columns import columns
from dagsim.metrics.standings import RunMetrics, mean
from dagsim.report.grid import Grid
from dagsim.report.numbers import interval, number, short
from dagsim.report.page.chosen import Chosen, Shown
from dagsim.report.page.markup import table

__all__ = ["ramp_grids", "ramp_tables"]

_CAUSES = {
    "rejected_by_policy": "turned away\nby policy",
    "rejected_no_place": "no\nplace",
    "rejected_too_slow": "too\nslow",
    "jobs_unfinished": "still\nrunning",
}


def ramp_tables(chosen: Chosen) -> str:
    """The tables of all runs on RAMP; nothing where there are none."""
    runs = [run for run in chosen.runs if run.folder.config.system.kind == "ramp"]
    return "".join(map(table, ramp_grids(runs))) if runs else ""


def ramp_grids(runs: Sequence[Shown]) -> tuple[Grid, Grid]:
    """Blocking by cause, and completion time and speed-up; a row per beta and agent."""
    groups: dict[tuple[str, str], list[Shown]] = {}
    for run in runs:
        policy = run.folder.lines()[run.number].policy
        groups.setdefault((run.folder.config.system.beta, policy), []).append(run)
    heads = ("beta", "agent", "seeds", "blocking\nrate", "95 %\ninterval")
    blocked, speed = [], []
    for (beta, policy), mine in sorted(groups.items(), key=lambda item: (item[0][0], _rate(item[1]))):
        lines = [run.line for run in mine]
        rate = mean(lines, "blocking_rate")
        first = (beta, policy, f"{len(mine):,}", short(rate.value), interval(rate.low, rate.high, short))
        blocked.append((*first, *(_share(lines, name) for name in _CAUSES)))
        times = [_times(run.folder, run.number) for run in mine]
        speed.append((*first[:4], *_means(times)))
    return (
        Grid(
            "Jobs blocked, by cause",
            (*heads, *_CAUSES.values()),
            blocked,
            (
                "Causes are fractions of the jobs that arrived. Jobs that still ran at the end are not in the blocking "
                "rate; ddls counts them as blocked.",
            ),
            (0, 1),
        ),
        Grid(
            "Jobs that completed",
            (*heads[:4], "mean JCT\n(s)", "p95 JCT\n(s)", "speed-up\n(x one GPU)", "GPUs\nper job"),
            speed,
            ("Speed-up: the time of all operations one after the other on one GPU / the completion time.",),
            (0, 1),
        ),
    )


class _Times(NamedTuple):
    """Of the completed jobs of one run; NaN where there are none."""

    jct_s: float
    p95_s: float
    speedup: float
    gpus: float


def _times(folder: RunFolder, place: int) -> _Times:
    made = columns(folder.schedule(place))
    jobs, runs = made.jobs, made.runs
    done = jobs.finished
    if not done.any():
        return _Times(*[float("nan")] * 4)
    jct_s = (jobs.completed_s - jobs.arrival_s)[done]
    held = np.bincount(runs.job, weights=runs.held, minlength=len(jobs))[done]
    speedup = jobs.ideal_gpu_s[done] / np.maximum(jct_s, 1e-300)
    return _Times(float(jct_s.mean()), float(np.quantile(jct_s, 0.95)), float(speedup.mean()), float(held.mean()))


def _means(times: Iterable[_Times]) -> list[str]:
    """The mean over the runs of each figure."""
    rows = np.array(list(times))
    known = [column[np.isfinite(column)] for column in rows.T]
    return [number(float(column.mean())) if len(column) else "-" for column in known]


def _rate(runs: Sequence[Shown]) -> float:
    value = mean([run.line for run in runs], "blocking_rate").value
    return value if isfinite(value) else 1.0


def _share(lines: Sequence[RunMetrics], name: str) -> str:
    """A number of jobs over those that arrived, all runs together."""
    came = sum(line.metrics.get("jobs_arrived") or 0 for line in lines)
    return short(sum(line.metrics.get(name) or 0 for line in lines) / came) if came else "-"
