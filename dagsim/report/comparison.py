"""Policies side by side as a table: the ratio to a reference, its interval and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite, isnan, nan

from dagsim.metrics import glossary
from dagsim.metrics.standings import (
    SECONDARY_METRICS,
    PolicyResult,
    RunMetrics,
    Sample,
    lower_is_better,
    standings,
)
from dagsim.metrics.verdict import ENOUGH_SEEDS, ENOUGH_WINDOWS
from dagsim.report.grid import Grid
from dagsim.report.numbers import factor, interval, number, short

__all__ = ["comparison_table", "metric_name", "wrapped"]

_NAME = 22
"""Columns for the name of a policy where the table must fit 80."""

_HEADS = {
    "jct_s.p99": "p99 JCT\n(s)",
    "wait_s.mean": "wait\n(s)",
    "bounded_slowdown.mean": "bounded\nslowdown",
    "utilization": "GPUs\nheld",
    "energy_kwh": "energy\n(kWh)",
    "jain": "Jain\n",
    "rho_worst": "worst\nrho",
    "scheduler_us": "µs per\ndecision",
}


def comparison_table(
    lines: Sequence[RunMetrics],
    reference: str | None = None,
    metric: str = "jct_s.mean",
    *,
    workload: str = "",
    sample: Sample = Sample.SEED,
    wide: bool = False,
) -> Grid:
    """Policies on the same seeds, the best first; policies that are equal on every seed share a row.

    ``wide`` adds the ratio of means, the median ratio, Holm's p and other metrics to what fits 80 columns.
    """
    ranked = standings(lines, metric, reference, sample)
    n = len({line.seed for line in lines})
    units = f"{n:,} {'seed' if sample is Sample.TRACE else sample}{'' if n == 1 else 's'}"
    best = "min" if lower_is_better(metric) else "max"
    title = ", ".join([f"{len(ranked)} policies", *([workload] if workload else []), units])
    unit = {term.name: term.unit for term in glossary()}.get(metric, "")
    left = any(standing.not_done for standing in ranked)
    both = sample is Sample.WINDOW and not wide
    heads = ["policy", f"{metric_name(metric)}\n({unit or '-'})", "ratio", "95 % interval", "won", "verdict"]
    if both:
        heads[1:4] = ["ratio", "95 % interval", "of the\nmedian"]
    beside = [name for name in SECONDARY_METRICS if name != "energy_kwh" or any(each.beside[name] for each in ranked)]
    rows = []
    for group in _merged(ranked, wide=wide):
        cells = [_name(group, wide=wide), *_cells(group[0], both=both)]
        if wide:
            cells += _wide_cells(group[0], beside)
        if left:
            cells.append(f"{group[0].not_done:,}")
        rows.append(tuple(cells))
    if wide:
        heads += ["of all\njob-seconds", "95 %\ninterval", "median\nratio", "95 %\ninterval", "Holm's\np"]
        heads += [_HEADS[name] for name in beside]
    if left:
        heads.append("jobs\nnot done")
    return Grid(
        f"{title}; {best} {metric_name(metric)} first", tuple(heads), rows, tuple(_notes(ranked, sample, n)), (0, 5)
    )


def metric_name(metric: str) -> str:
    """The metric as a table calls it."""
    return "mean JCT" if metric == "jct_s.mean" else metric


def wrapped(name: str, width: int) -> str:
    """``name`` over several lines of at most ``width``, broken after ``[`` or ``,``; never cut."""
    lines, rest = [], name
    while len(rest) > width:
        at = max(rest.rfind("[", 0, width), rest.rfind(",", 0, width)) + 1
        if not at:
            at = min((place + 1 for place, sign in enumerate(rest[:-1]) if sign in "[,"), default=len(rest))
        if at == len(rest):
            break
        lines.append(rest[:at])
        rest = rest[at:]
    return "\n".join([*lines, rest])


def _merged(ranked: Sequence[PolicyResult], *, wide: bool) -> Iterator[list[PolicyResult]]:
    """Rows to print: policies that are alike on every seed together, where all that is shown of them is equal."""
    done: set[str] = set()
    for standing in ranked:
        if standing.policy in done:
            continue
        same = [other for other in ranked if other.policy in standing.alike and _shown_alike(standing, other, wide)]
        group = sorted([standing, *same], key=lambda each: not each.is_reference)
        done |= {each.policy for each in group}
        yield group


def _shown_alike(one: PolicyResult, other: PolicyResult, wide: bool) -> bool:
    if not wide:
        return one.not_done == other.not_done
    names = [name for name in SECONDARY_METRICS if name != "scheduler_us"]
    return all(one.beside[name] == other.beside[name] or isnan(one.beside[name]) for name in names)


def _name(group: Sequence[PolicyResult], *, wide: bool) -> str:
    names = [each.policy for each in group]
    return "\n= ".join(names if wide else [wrapped(name, _NAME) for name in names])


def _cells(standing: PolicyResult, *, both: bool) -> list[str]:
    """Mean, ratio, its interval, wins and verdict; ``both``: the median's interval, too, instead of the mean."""
    cells = _plain_cells(standing)
    if both:
        pair = standing.pair
        known = pair is not None and not standing.is_reference
        median = interval(pair.median_low, pair.median_high, factor) if pair is not None and known else "-"
        cells[:3] = [cells[1], cells[2].replace(" ", ""), median.replace(" ", "")]
    return cells


def _plain_cells(standing: PolicyResult) -> list[str]:
    pair = standing.pair
    value = short(standing.mean.value)
    if pair is None:
        return [value, "-", "-", "-", "not known" if isnan(standing.mean.value) else "no ratio"]
    if standing.is_reference:
        return [value, "1", "-", "-", "reference"]
    if standing.sample is Sample.TRACE:
        return [value, factor(pair.ratio), "-", "-", "-"]
    few = "!" if pair.is_decided_by_few else ""
    wins = f"{standing.wins}/{pair.n}"
    return [value, factor(pair.ratio), interval(pair.low, pair.high, factor), wins, f"{standing.verdict}{few}"]


def _wide_cells(standing: PolicyResult, names: Sequence[str]) -> list[str]:
    pair = standing.pair
    beside = [short(standing.beside[name]) for name in names]
    if pair is None or standing.is_reference:
        return ["-"] * 5 + beside
    known = standing.sample is not Sample.TRACE
    bounds = (pair.of_means_low, pair.of_means_high), (pair.median_low, pair.median_high)
    means, median = (interval(*each, factor) if known else "-" for each in bounds)
    p = number(standing.p if known else nan)
    return [factor(pair.of_means), means, factor(pair.median), median, p, *beside]


def _notes(ranked: Sequence[PolicyResult], sample: Sample, n: int) -> Iterator[str]:
    if len(ranked) < 2:
        return
    if sample is Sample.TRACE:
        yield "One trace is one sample: no interval and no verdict. Windows of it give both (--windows, --window-jobs)."
        return
    if any(each.pair is not None for each in ranked):
        yield _method(ranked, sample)
    if n < ENOUGH_SEEDS:
        yield f"too few {sample}s for a verdict: {n} of {ENOUGH_SEEDS}."
    elif sample is Sample.WINDOW and n < ENOUGH_WINDOWS:
        yield (
            f"Intervals of the ratio are approximate below {ENOUGH_WINDOWS} windows of a real trace; those of the "
            "median ratio are exact (docs/statistics.md)."
        )
    if any(each.pair is not None and each.pair.is_decided_by_few and each.verdict for each in ranked):
        yield f"! a few {sample}s decide (docs/statistics.md)."
    missing = [each.policy for each in ranked if each.pair is None]
    if missing:
        yield f"no ratio: a value is 0 or missing for {', '.join(missing)} or the reference."


def _method(ranked: Sequence[PolicyResult], sample: Sample) -> str:
    first = next(each.policy for each in ranked if each.is_reference)
    tests = len({frozenset({each.policy, *each.alike}) for each in ranked if each.pair and isfinite(each.p)})
    return (
        f"ratio: to {first}, geometric mean over the {sample}s; interval: Student's t on the logs, of the row alone; "
        f"won: {sample}s on which it did better; "
        f"verdict: p < 0.05{f' by Holm over {tests} comparisons' if tests > 1 else ''}."
    )
