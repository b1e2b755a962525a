"""Answers about clusters as tables: what if, and how many are enough."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from dagsim.experiment.capacity.machines import Prices
from dagsim.experiment.capacity.search import Size, SizeSearch, Target
from dagsim.experiment.capacity.whatif import Alternative
from dagsim.metrics.standings import Sample
from dagsim.metrics.verdict import ENOUGH_SEEDS, ENOUGH_WINDOWS
from dagsim.report.comparison import metric_name, wrapped
from dagsim.report.grid import Grid
from dagsim.report.numbers import factor, interval, number, short

__all__ = ["plan_table", "whatif_table"]

_NAME = 14
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
    names = (each.cluster, each.policy) if wide else (wrapped(each.cluster, _NAME), wrapped(each.policy, _NAME))
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
        notes.append(f"{lost:,} jobs were turned away on each: do GPU types have the names of the log (--gpu-names)?")
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
