"""Build tables that compare the results of policies, of the points of a sweep, or of the clusters
in a ``whatif`` or ``plan``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite, isnan, nan
from typing import NamedTuple

from dagsim.experiment.compare import CellGroup, compared_axis
from dagsim.experiment.sweep_grid import Axis, short_names
from dagsim.metrics import glossary
from dagsim.metrics.intervals import enough_seeds
from dagsim.metrics.paired import ENOUGH_SEEDS
from dagsim.metrics.standings import SECONDARY_METRICS, PolicyResult, Sample, lower_is_better
from dagsim.report.grid import Grid, Lines, factor, interval, number, short
from dagsim.text import count_of, on_one_line

_HEADS = {
    "jct_s.p99": "p99 JCT\n(s)",
    "wait_s.mean": "wait\n(s)",
    "bounded_slowdown.mean": "bounded\nslowdown",
    "utilization": "GPUs\nheld",
    "energy_kwh": "energy\n(kWh)",
    "jain_fairness_index": "Jain\n",
    "max_ftf": "worst\nrho",
    "decision_time_us": "µs per\ndecision",
}


class ResultCells(NamedTuple):
    """The cells for one result, which are the same in every table. A missing value is shown as
    ``-``.
    """

    mean: str
    ratio: str
    interval: str
    """95% interval of the ratio. ``~`` marks an approximate interval."""
    median: str
    """95% interval of the median ratio."""
    won: str
    verdict: str


def result_cells(result: PolicyResult) -> ResultCells:
    """Return the cells for ``result``: its mean, and its comparison with the reference."""
    mean, pair = short(result.mean.value), result.pair
    if pair is None:
        return ResultCells(mean, "-", "-", "-", "-", "not known" if isnan(result.mean.value) else "no ratio")
    if result.is_reference:
        return ResultCells(mean, "1", "-", "-", "-", "reference")
    if result.sample is Sample.TRACE:
        return ResultCells(mean, factor(pair.ratio), "-", "-", "-", "-")
    return ResultCells(
        mean,
        factor(pair.ratio),
        interval(pair.low, pair.high, factor) + ("~" if result.seeds_needed else ""),
        interval(pair.median_low, pair.median_high, factor),
        f"{result.wins}/{pair.n}",
        f"{result.verdict}{'!' if pair.is_decided_by_few else ''}",
    )


def _caveats(results: Sequence[PolicyResult], sample: Sample, n: int) -> Iterator[str]:
    """Yield notes on how reliable results from ``n`` seeds or windows are."""
    if n < ENOUGH_SEEDS:
        yield f"too few {sample}s for a verdict: {n} of {ENOUGH_SEEDS}."
    if needed := max((result.seeds_needed for result in results), default=0):
        exact = " The interval of the median ratio is exact (--wide)." if n >= ENOUGH_SEEDS else ""
        yield f"~ approximate: {enough_seeds(needed, sample)} (docs/reference/statistics.md).{exact}"
    if any(result.pair is not None and result.pair.is_decided_by_few and result.verdict for result in results):
        yield f"!: the verdict depends on a few {sample}s (docs/reference/statistics.md)."


def _heads(metrics: Sequence[str]) -> list[str]:
    """Return the column heads: metrics with their units."""
    units = {term.name: term.unit for term in glossary()}
    return [f"{metric_name(metric)}\n({units.get(metric) or '-'})" for metric in metrics]


def _counted(n: int, unit: str) -> str:
    return f"{n:,} {unit}{'' if n == 1 else 's'}"


def comparison_table(
    ranked: Sequence[PolicyResult],
    metric: str = "jct_s.mean",
    *,
    workload: str = "",
    wide: bool = False,
    to_bound: Mapping[str, float] | None = None,
) -> Grid:
    """Return a table that compares policies on the same seeds, in the order of ``ranked``.

    ``ranked`` contains the ``standings`` by ``metric``. Policies with equal results on every seed
    share a row. The table fits into 80 columns unless ``wide`` is True, which adds the ratio of
    means, the median ratio, Holm's p and other metrics. ``to_bound`` contains the fraction of the
    gap to a lower bound that each policy closes (see the family ``bounds``). If it is given, the
    table has a column for it.
    """
    sample, n = ranked[0].sample, ranked[0].n
    policies = "1 policy" if len(ranked) == 1 else f"{len(ranked)} policies"
    title = ", ".join(filter(None, [policies, workload, _counted(n, _unit(sample))]))
    best = "lowest" if lower_is_better(metric) else "highest"
    columns = _columns(ranked, metric, wide=wide, to_bound=to_bound)
    rows = []
    for group in _merged(ranked, wide=wide):
        name = Lines("\n= ".join(on_one_line(standing.policy) for standing in group))
        rows.append((name, *[cell for column in columns for cell in column.cells(group[0])]))
    heads = ["policy", *[head for column in columns for head in column.heads]]
    notes = [*_notes(ranked)]
    if to_bound:
        notes.append(
            "way to bound: (reference - policy) / (reference - lower bound) of the mean completion times; - where runs "
            "were stopped or jobs not done (docs/reference/bound.md)."
        )
    return Grid(f"{title}; {best} {metric_name(metric)} first", tuple(heads), rows, tuple(notes), (0, 5))


class _Columns(NamedTuple):
    """Adjacent columns of a table: their heads, and a function that returns a policy's cells."""

    heads: Sequence[str]
    cells: Callable[[PolicyResult], Sequence[str]]


def _columns(
    ranked: Sequence[PolicyResult], metric: str, *, wide: bool, to_bound: Mapping[str, float] | None
) -> list[_Columns]:
    """Return the columns of a comparison, except the one with the names of the policies."""

    def ratio_with_median(result: PolicyResult) -> list[str]:
        cells = result_cells(result)
        return [cells.ratio, cells.interval.replace(" ", ""), cells.median.replace(" ", ""), cells.won, cells.verdict]

    def ratio(result: PolicyResult) -> list[str]:
        cells = result_cells(result)
        return [cells.mean, cells.ratio, cells.interval, cells.won, cells.verdict]

    def way_to_bound(result: PolicyResult) -> list[str]:
        share = (to_bound or {}).get(result.policy, nan)
        return ["-" if isnan(share) else f"{round(100 * share)}%"]

    if ranked[0].sample is Sample.WINDOW and not wide:
        columns = [_Columns(["ratio", "95% interval", "of the\nmedian", "won", "verdict"], ratio_with_median)]
    else:
        columns = [_Columns([*_heads([metric]), "ratio", "95% interval", "won", "verdict"], ratio)]
    if to_bound:
        columns.append(_Columns(["way to\nbound"], way_to_bound))
    if wide:
        names = SECONDARY_METRICS
        beside = [name for name in names if name != "energy_kwh" or any(standing.beside[name] for standing in ranked)]
        heads = ["of all\njob-seconds", "95%\ninterval", "median\nratio", "95%\ninterval", "Holm's\np"]
        heads += [_HEADS[name] for name in beside]
        columns.append(_Columns(heads, lambda result: _wide_cells(result, beside)))
    if any(standing.not_done for standing in ranked):
        columns.append(_Columns(["jobs\nnot done"], lambda result: [f"{result.not_done:,}"]))
    if any(standing.unfinished for standing in ranked):
        columns.append(_Columns(["of them\nunfinished"], lambda result: [f"{result.unfinished:,}"]))
    return columns


def metric_name(metric: str) -> str:
    """Return the name of the metric as shown in tables."""
    return "mean JCT" if metric == "jct_s.mean" else metric


def _unit(sample: Sample) -> str:
    """Return the unit of the samples in a table. Runs on a whole trace also count as seeds."""
    return "seed" if sample is Sample.TRACE else str(sample)


def _merged(ranked: Sequence[PolicyResult], *, wide: bool) -> Iterator[list[PolicyResult]]:
    """Group the policies that share a row. They have equal results on every seed, and are equal in
    everything else that the table shows.
    """
    done: set[str] = set()
    for result in ranked:
        if result.policy in done:
            continue
        same = [other for other in ranked if other.policy in result.alike and _shown_alike(result, other, wide)]
        group = sorted([result, *same], key=lambda member: not member.is_reference)
        done |= {member.policy for member in group}
        yield group


def _shown_alike(one: PolicyResult, other: PolicyResult, wide: bool) -> bool:
    if not wide:
        return one.not_done == other.not_done
    names = [name for name in SECONDARY_METRICS if name != "decision_time_us"]
    return all(one.beside[name] == other.beside[name] or isnan(one.beside[name]) for name in names)


def _wide_cells(result: PolicyResult, names: Sequence[str]) -> list[str]:
    """Return the cells for the ratio of means, the median ratio, Holm's p, and the metrics
    ``names``.
    """
    pair, beside = result.pair, [short(result.beside[name]) for name in names]
    if pair is None or result.is_reference:
        return ["-"] * 5 + beside
    if result.sample is Sample.TRACE:
        return [factor(pair.of_means), "-", factor(pair.median), "-", "-", *beside]
    means = interval(pair.of_means_low, pair.of_means_high, factor)
    median = interval(pair.median_low, pair.median_high, factor)
    return [factor(pair.of_means), means, factor(pair.median), median, number(result.p), *beside]


def _notes(ranked: Sequence[PolicyResult]) -> Iterator[str]:
    sample, n = ranked[0].sample, ranked[0].n
    if len(ranked) < 2:
        return
    if sample is Sample.TRACE:
        yield (
            "One log is only one sample, so there are no intervals and no verdicts. Windows of the log give both "
            "(--windows)."
        )
        return
    if any(result.pair is not None for result in ranked):
        yield _method(ranked, sample)
    yield from _caveats(ranked, sample, n)
    missing = [result.policy for result in ranked if result.pair is None]
    if missing:
        yield f"no ratio: a value is 0 or missing for {', '.join(missing)} or the reference."


def _method(ranked: Sequence[PolicyResult], sample: Sample) -> str:
    reference = next(result.policy for result in ranked if result.is_reference)
    tests = len(
        {frozenset({standing.policy, *standing.alike}) for standing in ranked if standing.pair and isfinite(standing.p)}
    )
    return (
        f"ratio: relative to {reference} (geometric mean over the {sample}s). interval: Student's t on the logarithms, "
        f"for each row alone. won: {sample}s on which the policy did better. "
        f"verdict: p < 0.05{f', corrected for {tests} comparisons (Holm)' if tests > 1 else ''}."
    )


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
    """Return a table of all groups, one below another. In each group, the best result comes first.

    ``wide`` adds a column for each of ``metrics`` except the first.
    """
    axis = compared_axis(axes)
    others = list(short_names([other.key for other in axes if other is not axis]).values())
    compared = short_names([axis.key])[axis.key]
    beside = metrics[1:] if wide else []
    results = [result for group in groups for result in group.standings]
    n = max((result.pair.n for result in results if result.pair is not None), default=0)
    heads = [*others, compared, *_heads(metrics[:1]), "ratio", "95%\ninterval", "verdict", *_heads(beside)]
    rows = []
    for group in groups:
        for result in group.standings:
            cells = result_cells(result)
            values = (cells.mean, cells.ratio, cells.interval.replace(" ", ""), cells.verdict)
            more = [short(group.metrics[result.policy].get(metric, nan)) for metric in beside]
            rows.append((*(group.at[other] for other in others), result.policy, *values, *more))
    count = f"{_counted(n, sample)} each" if n else ""
    # the label describes the base configuration, so what the sweep varies is left out
    varied = {f"{other.key.rpartition('.')[2]} " for other in axes}
    label = [part for part in workload.split(", ") if not part.startswith(tuple(varied))]
    title = ", ".join(filter(None, [f"sweep {name}", *label, count_of(len(rows), "combination"), count]))
    notes: tuple[str, ...] = ()
    if sample is Sample.TRACE:
        notes = ("One log is only one sample, so there are no intervals and no verdicts.",)
    elif n:
        method = (
            f"ratio: relative to the reference of the group on the same {sample}s (geometric mean). interval: "
            "Student's t on the logarithms, for each row alone. verdict: p < 0.05, corrected for all rows of the table "
            "(Holm)."
        )
        notes = (method, *_caveats(results, sample, n))
    return Grid(title, tuple(heads), rows, notes, (*range(len(others) + 1), len(others) + 4))
