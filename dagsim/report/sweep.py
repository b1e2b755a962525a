"""The cells of a sweep as a table: a row for each point of its grid, compared within its group."""

from __future__ import annotations

from collections.abc import Sequence

from dagsim.experiment.compare import CellGroup, compared_axis
from dagsim.experiment.plan import Axis, short_names
from dagsim.metrics import glossary
from dagsim.metrics.standings import PolicyResult, Sample
from dagsim.metrics.verdict import ENOUGH_SEEDS, ENOUGH_WINDOWS
from dagsim.report.comparison import metric_name, wrapped
from dagsim.report.grid import Grid
from dagsim.report.numbers import factor, interval, short

__all__ = ["sweep_table"]

_NAME = 18
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
    return Grid(", ".join(filter(None, parts)), tuple(heads), rows, _notes(groups, what, sample, n), texts)


def _row(
    group: CellGroup,
    each: PolicyResult,
    others: Sequence[str],
    beside: Sequence[str],
    *,
    wide: bool,
) -> tuple[str, ...]:
    label = each.policy if wide else wrapped(each.policy, _NAME)
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


def _notes(groups: Sequence[CellGroup], what: str, sample: Sample, n: int) -> tuple[str, ...]:
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
