"""Results as tables: policies side by side, the points of a sweep, clusters of a what-if and of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite, isnan, nan
from typing import TYPE_CHECKING

from dagsim.experiment.compare import CellGroup, compared_axis
from dagsim.experiment.plan import Axis, short_names
from dagsim.metrics import glossary
from dagsim.metrics.compare import ENOUGH_SEEDS, ENOUGH_WINDOWS
from dagsim.metrics.standings import SECONDARY_METRICS, PolicyResult, RunMetrics, Sample, lower_is_better, standings
from dagsim.report.grid import Grid, factor, interval, number, short

if TYPE_CHECKING:
    from dagsim.experiment.capacity.machines import Prices
    from dagsim.experiment.capacity.search import Size, SizeSearch, Target
    from dagsim.experiment.capacity.whatif import Alternative

__all__ = ["comparison_table", "metric_name", "plan_table", "sweep_table", "whatif_table", "wrapped"]


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


_NAME_SWEEP = 18
"""Columns for a label where the table must fit 80."""


def sweep_table(
    groups: Sequence[CellGroup],
    axes: Sequence[Axis],
    metrics: Sequence[str],
    *,
    name: str,
    workload: str = "",
    sample: Sample = Sample.SEED,
    wide: bool = False,
) -> Grid:
    """All groups under each other, each with its best first; ``wide`` adds all of ``metrics`` but the first."""
    axis, units = compared_axis(axes), {term.name: term.unit for term in glossary()}
    others = list(short_names([each.key for each in axes if each is not axis]).values())
    what = short_names([axis.key])[axis.key]
    beside = metrics[1:] if wide else []
    n = max((each.pair.n for group in groups for each in group.standings if each.pair is not None), default=0)
    heads = [
        *others,
        what,
        f"{metric_name(metrics[0])}\n({units.get(metrics[0]) or '-'})",
        "ratio",
        "95 %\ninterval",
        "verdict",
        *(f"{metric}\n({units.get(metric) or '-'})" for metric in beside),
    ]
    rows = [_row(group, each, others, beside, wide=wide) for group in groups for each in group.standings]
    counted = f"{n:,} {sample}{'' if n == 1 else 's'} each" if n else ""
    parts = [f"sweep {name}", *([workload] if workload else []), f"{len(rows):,} points", counted]
    texts = (*range(len(others) + 1), len(others) + 4)
    return Grid(", ".join(filter(None, parts)), tuple(heads), rows, _notes_of_sweep(groups, what, sample, n), texts)


def _row(
    group: CellGroup,
    each: PolicyResult,
    others: Sequence[str],
    beside: Sequence[str],
    *,
    wide: bool,
) -> tuple[str, ...]:
    label = each.policy if wide else wrapped(each.policy, _NAME_SWEEP)
    more = [short(group.metrics[each.policy].get(metric, float("nan"))) for metric in beside]
    return (*(group.at[name] for name in others), label, *_compared(each), *more)


def _compared(each: PolicyResult) -> tuple[str, str, str, str]:
    """Mean, ratio, interval and verdict."""
    value, pair = short(each.mean.value), each.pair
    if pair is None:
        return value, "-", "-", "-"
    if each.is_reference:
        return value, "1", "-", "reference"
    if each.sample is Sample.TRACE:
        return value, factor(pair.ratio), "-", "-"
    few = "!" if pair.is_decided_by_few else ""
    return value, factor(pair.ratio), interval(pair.low, pair.high, factor).replace(" ", ""), f"{each.verdict}{few}"


def _notes_of_sweep(groups: Sequence[CellGroup], what: str, sample: Sample, n: int) -> tuple[str, ...]:
    if sample is Sample.TRACE:
        return ("One trace is one sample: no interval and no verdict.",)
    if not n:
        return ()
    notes = [
        f"ratio: to the reference of the group, the same {sample}s; geometric mean; interval: Student's t on the logs, "
        "of the row alone; verdict: p < 0.05 by Holm over the whole table."
    ]
    if n < ENOUGH_SEEDS:
        notes.append(f"too few {sample}s for a verdict: {n} of {ENOUGH_SEEDS}.")
    elif sample is Sample.WINDOW and n < ENOUGH_WINDOWS:
        notes.append(f"Intervals are approximate below {ENOUGH_WINDOWS} windows of a real trace.")
    if any(each.pair and each.pair.is_decided_by_few and each.verdict for group in groups for each in group.standings):
        notes.append(f"! a few {sample}s decide (docs/statistics.md).")
    return tuple(notes)


_NAME_CAPACITY = 14
"""Columns for a policy or a cluster where the table must fit 80."""


def whatif_table(
    choices: Sequence[Alternative],
    metric: str,
    *,
    workload: str,
    sample: Sample,
    prices: Prices | None = None,
    wide: bool = False,
) -> Grid:
    """Every cluster under every policy: waits, energy, cost a month, and the ratio to the first row."""
    priced = choices[0].cost is not None
    n = max((each.result.pair.n for each in choices if each.result.pair is not None), default=0)
    heads = ["cluster", "policy", "wait (s)\nmean", "\np95", "energy\n(kWh)", *(["cost a\nmonth"] if priced else [])]
    heads += [f"{metric_name(metric)}\nratio", *(["95 %\ninterval"] if wide else []), "verdict"]
    rows = [_choice_row(each, priced=priced, wide=wide) for each in choices]
    units = f", {n} {sample}{'' if n == 1 else 's'}" if n else ""
    texts = (0, 1, len(heads) - 1)
    notes = (*_whatif_notes(choices, sample, n), *([prices.said()] if prices else []))
    return Grid(f"what if: {workload}{units}", tuple(heads), rows, notes, texts)


def _choice_row(each: Alternative, *, priced: bool, wide: bool) -> tuple[str, ...]:
    names = (
        (each.cluster, each.policy)
        if wide
        else (wrapped(each.cluster, _NAME_CAPACITY), wrapped(each.policy, _NAME_CAPACITY))
    )
    cost = [f"{each.cost:,.0f}" if each.cost is not None else "-"] if priced else []
    result, pair = each.result, each.result.pair
    values = (*names, short(each.wait_s), short(each.wait_p95_s), short(each.energy_kwh), *cost)
    none = ("-",) if wide else ()
    if pair is None:
        return (*values, "-", *none, "-")
    if result.is_reference:
        return (*values, "1", *none, "reference")
    if result.sample is Sample.TRACE:
        return (*values, factor(pair.ratio), *none, "-")
    few = "!" if pair.is_decided_by_few else ""
    verdict = f"{result.verdict}{few}"
    bounds = interval(pair.low, pair.high, factor)
    if wide:
        return (*values, factor(pair.ratio), bounds, verdict)
    ratio = factor(pair.ratio) if bounds == "-" else f"{factor(pair.ratio)}\n{bounds}"
    return (*values, ratio, verdict.replace("not told apart", "not told\napart"))


def _whatif_notes(choices: Sequence[Alternative], sample: Sample, n: int) -> tuple[str, ...]:
    if sample is Sample.TRACE:
        return ("Too short a log for windows: one run each, no interval and no verdict.",)
    notes = [
        "wait, energy: means over the windows, each of which begins on an empty cluster. ratio: to the first row, "
        "geometric mean over the same windows, with its 95 % interval, Student's t on the logs; verdict: p < 0.05 by "
        "Holm.",
    ]
    if n < ENOUGH_SEEDS:
        notes.append(f"too few {sample}s for a verdict: {n} of {ENOUGH_SEEDS}.")
    elif n < ENOUGH_WINDOWS:
        notes.append(f"Intervals are approximate below {ENOUGH_WINDOWS} windows of a real trace.")
    if any(each.result.pair and each.result.pair.is_decided_by_few and each.result.verdict for each in choices):
        notes.append(f"! a few {sample}s decide (docs/statistics.md).")
    lost = max(each.result.not_done for each in choices)
    if lost > min(each.result.not_done for each in choices):
        notes.append(f"Not every cluster can run all jobs: up to {lost:,} were turned away (ask `dagsim replay`).")
    elif lost:
        notes.append(
            f"{lost:,} jobs were turned away on each: do GPU types have the names of the log (--read gpu_names=SITE=TYPE)?"
        )
    return tuple(notes)


def plan_table(planned: SizeSearch, today: Size, target: Target, *, workload: str, prices: Prices, n: int) -> Grid:
    """Every cluster that was tried, the smallest or cheapest first."""
    priced = bool(prices)
    best = planned.best
    types = planned.types or ("nodes",)
    heads = [
        *types,
        "GPUs",
        *(["cost a\nmonth"] if priced else []),
        f"{target.metric}\n(mean)",
        "95 %\ninterval",
        "meets it",
    ]
    ordered = sorted(planned.tried.values(), key=lambda size: (size.cost, size.gpus, size.nodes))
    rows = [_size_row(size, target, priced=priced, best=size is best) for size in ordered]
    now = _size_row(today, target, priced=priced, best=False)
    rows.append(("today", *["" for _ in types[1:]], *now[len(types) :]))
    notes = []
    if best is None:
        notes.append(f"No size up to the cap meets {target}.")
    elif not target.is_sure(best.met):
        notes.append("Its interval reaches over the bound: on other windows it may miss it. Plan for a tighter bound.")
    if planned.exhausted:
        notes.append(f"The search ended after {len(planned.tried)} clusters; there may be a cheaper mix.")
    notes.append(
        f"{', '.join(types) + ': nodes. ' if planned.types else ''}Mean over {n} windows, each of which begins on an "
        "empty cluster; interval: of the mean, Student's t on its logarithm. lost: jobs turned away."
    )
    if priced:
        notes.append(prices.said())
    texts = (len(heads) - 1,)
    return Grid(f"plan: {target} on {workload}", tuple(heads), rows, tuple(notes), texts)


def _size_row(size: Size, target: Target, *, priced: bool, best: bool) -> tuple[str, ...]:
    cost = [f"{size.cost:,.0f}"] if priced else []
    value, low, high = size.met.value
    bounds = interval(low, high) if isfinite(low) else "-"
    lost = f", {size.met.lost:,} lost" if size.met.lost else ""
    mark = "best" if best else "yes" if size.met.meets else "no"
    nodes = tuple(f"{count:,}" for count in size.nodes)
    return (*nodes, f"{size.gpus:,}", *cost, number(value), bounds, f"{mark}{lost}")
