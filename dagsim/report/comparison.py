"""Tables of results: policies, the points of a sweep, the clusters of a what-if, and those of a
plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite, isnan, nan
from typing import TYPE_CHECKING, NamedTuple

from dagsim.experiment.compare import CellGroup, compared_axis
from dagsim.experiment.plan import Axis, short_names
from dagsim.metrics import glossary
from dagsim.metrics.compare import ENOUGH_SEEDS
from dagsim.metrics.intervals import enough_seeds
from dagsim.metrics.standings import SECONDARY_METRICS, PolicyResult, Sample, lower_is_better
from dagsim.report.grid import Grid, factor, interval, number, short

if TYPE_CHECKING:
    from dagsim.families.capacity.machines import Prices
    from dagsim.families.capacity.sizes import Size, SizeSearch, Targets
    from dagsim.families.capacity.whatif import Alternative, Beginning, Fit
    from dagsim.workload.load import Load

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
    """Cells of one result, the same in every table; ``-`` for a missing value."""

    mean: str
    ratio: str
    interval: str
    """95 % interval of the ratio; ``~`` marks an approximate one."""
    median: str
    """95 % interval of the median ratio."""
    won: str
    verdict: str


def result_cells(result: PolicyResult) -> ResultCells:
    """Return the cells of ``result``: its mean, and its comparison with the reference."""
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
        exact = " The interval of the median ratio holds (--wide)." if n >= ENOUGH_SEEDS else ""
        yield f"~ approximate: {enough_seeds(needed, sample)} (docs/reference/statistics.md).{exact}"
    if any(result.pair is not None and result.pair.is_decided_by_few and result.verdict for result in results):
        yield f"! a few {sample}s decide (docs/reference/statistics.md)."


def _heads(metrics: Sequence[str]) -> list[str]:
    """Column heads: metrics with their units."""
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
    """Compare policies on the same seeds, in the order of ``ranked``.

    ``ranked`` are the ``standings`` by ``metric``. Policies with equal results on every seed share
    a row. Without ``wide`` the table fits 80 columns; ``wide`` adds the ratio of means, the median
    ratio, Holm's p and other metrics. ``to_bound`` adds each policy's share of the way to a lower
    bound (the family ``bounds``).
    """
    sample, n = ranked[0].sample, ranked[0].n
    policies = "1 policy" if len(ranked) == 1 else f"{len(ranked)} policies"
    title = ", ".join(filter(None, [policies, workload, _counted(n, _unit(sample))]))
    best = "min" if lower_is_better(metric) else "max"
    any_not_done, any_unfinished = (
        any(getattr(standing, name) for standing in ranked) for name in ("not_done", "unfinished")
    )
    with_median = sample is Sample.WINDOW and not wide
    if with_median:
        heads = ["policy", "ratio", "95 % interval", "of the\nmedian", "won", "verdict"]
    else:
        heads = ["policy", *_heads([metric]), "ratio", "95 % interval", "won", "verdict"]
    beside = [
        name for name in SECONDARY_METRICS if name != "energy_kwh" or any(standing.beside[name] for standing in ranked)
    ]
    rows = []
    for group in _merged(ranked, wide=wide):
        result, cells = group[0], result_cells(group[0])
        name = "\n= ".join(standing.policy for standing in group)
        if with_median:
            row = [name, cells.ratio, cells.interval.replace(" ", ""), cells.median.replace(" ", "")]
        else:
            row = [name, cells.mean, cells.ratio, cells.interval]
        row += [cells.won, cells.verdict]
        if to_bound:
            share = to_bound.get(result.policy, nan)
            row.append("-" if isnan(share) else f"{round(100 * share)} %")
        if wide:
            row += _wide_cells(result, beside)
        if any_not_done:
            row.append(f"{result.not_done:,}")
        if any_unfinished:
            row.append(f"{result.unfinished:,}")
        rows.append(tuple(row))
    if to_bound:
        heads.append("way to\nbound")
    if wide:
        heads += ["of all\njob-seconds", "95 %\ninterval", "median\nratio", "95 %\ninterval", "Holm's\np"]
        heads += [_HEADS[name] for name in beside]
    if any_not_done:
        heads.append("jobs\nnot done")
    if any_unfinished:
        heads.append("of them\nunfinished")
    notes = [*_notes(ranked)]
    if to_bound:
        notes.append(
            "way to bound: (reference - policy) / (reference - lower bound) of the mean completion times; - where runs "
            "were stopped or jobs not done (docs/reference/bound.md)."
        )
    return Grid(f"{title}; {best} {metric_name(metric)} first", tuple(heads), rows, tuple(notes), (0, 5))


def metric_name(metric: str) -> str:
    """Return the name of the metric as tables show it."""
    return "mean JCT" if metric == "jct_s.mean" else metric


def _unit(sample: Sample) -> str:
    """Return the unit that a table counts. A single trace counts seeds, because it still runs on
    seeds.
    """
    return "seed" if sample is Sample.TRACE else str(sample)


def _merged(ranked: Sequence[PolicyResult], *, wide: bool) -> Iterator[list[PolicyResult]]:
    """Group policies that share a row: equal results on every seed, and equal in all that the table
    shows.
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
    """Return the cells of the ratio of means, the median ratio, Holm's p, and the metrics
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
        yield "One trace is one sample: no interval and no verdict. Windows of it give both (--windows)."
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
        f"ratio: to {reference}, geometric mean over the {sample}s; interval: Student's t on the logs, of the row "
        f"alone; won: {sample}s on which it did better; "
        f"verdict: p < 0.05{f' by Holm over {tests} comparisons' if tests > 1 else ''}."
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
    """List all groups one below the other, each with its best result first.

    ``wide`` adds a column for each of ``metrics`` but the first.
    """
    axis = compared_axis(axes)
    others = list(short_names([other.key for other in axes if other is not axis]).values())
    compared = short_names([axis.key])[axis.key]
    beside = metrics[1:] if wide else []
    results = [result for group in groups for result in group.standings]
    n = max((result.pair.n for result in results if result.pair is not None), default=0)
    heads = [*others, compared, *_heads(metrics[:1]), "ratio", "95 %\ninterval", "verdict", *_heads(beside)]
    rows = []
    for group in groups:
        for result in group.standings:
            cells = result_cells(result)
            values = (cells.mean, cells.ratio, cells.interval.replace(" ", ""), cells.verdict)
            more = [short(group.metrics[result.policy].get(metric, nan)) for metric in beside]
            rows.append((*(group.at[other] for other in others), result.policy, *values, *more))
    count = f"{_counted(n, sample)} each" if n else ""
    title = ", ".join(filter(None, [f"sweep {name}", workload, f"{len(rows):,} points", count]))
    notes: tuple[str, ...] = ()
    if sample is Sample.TRACE:
        notes = ("One trace is one sample: no interval and no verdict.",)
    elif n:
        method = (
            f"ratio: to the reference of the group, the same {sample}s; geometric mean; interval: Student's t on the "
            "logs, of the row alone; verdict: p < 0.05 by Holm over the whole table."
        )
        notes = (method, *_caveats(results, sample, n))
    return Grid(title, tuple(heads), rows, notes, (*range(len(others) + 1), len(others) + 4))


def whatif_table(
    choices: Sequence[Alternative],
    metric: str,
    *,
    workload: str,
    demand: Load,
    fit: Fit | None = None,
    prices: Prices | None = None,
    begins: Beginning,
    wide: bool = False,
) -> Grid:
    """List every cluster under every policy: waits, energy, monthly cost, and the ratio to the
    first row. The waits of the log stand above them.
    """
    priced = choices[0].cost is not None
    any_lost = any(choice.trial.lost for choice in choices)
    heads = ["cluster", "policy", "wait (s)\nmean", "\np95", "energy\n(kWh)", *(["cost a\nmonth"] if priced else [])]
    heads += [*(["jobs\nlost"] if any_lost else []), f"{metric_name(metric)}\nratio"]
    heads += [*(["95 %\ninterval"] if wide else []), "verdict"]
    rows: list[tuple[str, ...]] = []
    if fit is not None:
        blank = ["-"] * (len(heads) - 5)
        rows.append(("the log", "as it was", short(fit.mean_s), short(fit.p95_s), "-", *blank))
    for choice in choices:
        trial, change = choice.trial, choice.change
        values = [short(trial.value(name)) for name in ("wait_s.mean", "wait_s.p95", "energy_kwh")]
        values += [f"{choice.cost:,.0f}" if choice.cost is not None else "-"] if priced else []
        values += [f"{trial.lost:,}"] if any_lost else []
        ratio = "1" if choice is choices[0] else factor(change.ratio)
        bounds = interval(change.low, change.high, factor) if choice is not choices[0] and isfinite(change.low) else "-"
        shown = [ratio, bounds] if wide else [ratio if bounds == "-" else f"{ratio}\n{bounds}"]
        rows.append((choice.cluster, choice.policy, *values, *shown, choice.verdict))
    notes = [*_demand_notes(demand), *_whatif_notes(choices, demand, begins), *([prices.sentence()] if prices else [])]
    return Grid(f"what if: {workload}", tuple(heads), rows, tuple(notes), (0, 1, len(heads) - 1))


def _whatif_notes(choices: Sequence[Alternative], demand: Load, begins: Beginning) -> Iterator[str]:
    yield (
        f"Every row is one continuous run of all jobs, {begins.text}. wait, "
        "energy: of all jobs. ratio: to the first row, with the 95 % interval of this ratio in the long run, at the "
        "same demand; verdict: p < 0.05 by Holm."
    )
    short = [choice.change.longer for choice in choices if choice.verdict == "log too short"]
    if (longer := max(short, default=1.0)) > 1:
        yield (
            "log too short: it has too few busy periods or too few of the longest jobs. An interval within a factor "
            f"of 2 needs a log of at least {_longer(longer, demand)}."
        )
    if any(not choice.trial.keeps_up for choice in choices):
        yield "cannot keep up: the jobs demand more GPUs or cores than the cluster has, so its queue grows without end."
    lost = [choice.trial.lost for choice in choices]
    if any(lost) and min(lost) == max(lost):
        yield (
            f"{lost[0]:,} jobs were turned away on each cluster: its GPU types may have other names than the log's "
            "(--read gpu_names=SITE=TYPE)"
        )
    elif any(lost):
        yield "jobs lost: turned away or not finished; a row leaves them out, its ratio on both sides."


def _longer(times: float, demand: Load) -> str:
    """The length that a log would need for an interval."""
    return f"{number(times * demand.span_s / 86400)} days, {number(times)} times as long"


def _demand_notes(demand: Load) -> Iterator[str]:
    """The demand of the jobs beside today's capacity, by type."""
    parts = "; ".join(map(str, demand.by_types))
    if not demand.span_s:
        yield "No job arrives after the beginning; the jobs that wait then count."
        return
    yield f"Mean demand and capacity today: {parts}." if parts else "The jobs demand no GPUs."


def plan_table(
    planned: SizeSearch,
    today: Size,
    target: Targets,
    *,
    workload: str,
    prices: Prices,
    demand: Load,
    fit: Fit | None = None,
    begins: Beginning,
) -> Grid:
    """List every cluster that was tried, the smallest or cheapest first, then today's and the log.
    Intervals are those of the first target.
    """
    priced = bool(prices)
    best = planned.best
    types = planned.types or ("nodes",)
    heads = [
        *types,
        "GPUs",
        *(["cost a\nmonth"] if priced else []),
        f"{_wrapped(target.first.metric)}\n",
        "95 %\ninterval",
    ]
    heads += [f"{_wrapped(other.metric)}\n" for other in target.conditions[1:]]
    heads += ["jobs\nlost", "meets it"]
    ordered = sorted(planned.tried.values(), key=lambda size: (size.cost, size.gpus, size.nodes))
    rows = [_size_row(size, len(target.conditions) - 1, priced=priced, best=size is best) for size in ordered]
    now = _size_row(today, len(target.conditions) - 1, priced=priced, best=False)
    rows.append(("today", *["" for _ in types[1:]], *now[len(today.nodes) :]))
    if fit is not None and fit.metric == target.first.metric:
        blank = ["-"] * (len(target.conditions) + 2)
        machines = now[len(today.nodes) : -len(blank) - 1]
        rows.append(("the log", *["" for _ in types[1:]], *machines, number(fit.observed), *blank))
    notes = [*_demand_notes(demand), *_plan_notes(planned, today, target, demand, begins)]
    if priced:
        notes.append(prices.sentence())
    return Grid(f"plan: {target} on {workload}", tuple(heads), rows, tuple(notes), (len(heads) - 1,))


def _wrapped(metric: str) -> str:
    """A metric with its group on a line of its own; the middle of a long name is left out."""
    group, _, of_group = metric.rpartition("].")
    kind, _, name = group.partition("[")
    if not name:
        return metric
    return f"{kind}[{name if len(name) <= 20 else f'{name[:9]}…{name[-9:]}'}].\n{of_group}"


def _plan_notes(planned: SizeSearch, today: Size, target: Targets, demand: Load, begins: Beginning) -> Iterator[str]:
    best, sizes = planned.best, [*planned.tried.values(), today]
    largest = max(sizes, key=lambda size: size.gpus)
    if best is None and not largest.met.keeps_up:
        yield f"Even the largest cluster tried, {largest.gpus:,} GPUs, cannot keep up with the demand (--most)."
    elif best is None:
        limit = f"within the budget of {planned.budget:,.0f} a month" if isfinite(planned.budget) else "up to the cap"
        yield f"No size {limit} meets {target}."
    elif not isfinite(best.met.value.high):
        longer = best.met.value.longer
        yield (
            f"No interval: the log is too short; it needs {_longer(longer, demand)}."
            if longer > 1
            else ("No interval: the metric is not a mean or a percentile of jobs, or is 0.")
        )
    elif not target.is_sure(best.met) and any(isfinite(one.bound) for one in target.conditions):
        yield "Its interval reaches over the bound: in the next period it may miss it. Plan for a tighter bound."
    if best is not None and isfinite(best.met.value.high) and (longer := best.met.value.longer) > 1:
        yield f"The log is too short: an interval within a factor of 2 needs {_longer(longer, demand)}."
    if planned.exhausted:
        better = "better" if isfinite(planned.budget) else "cheaper"
        yield f"The search ended after {len(planned.tried)} clusters; there may be a {better} mix."
    if isfinite(planned.budget):
        yield (
            f"Tried: clusters to which a budget of {planned.budget:,.0f} a month allows no further node; best: the one "
            f"with the {'highest' if planned.above else 'lowest'} {target.first.metric}."
        )
    if any(not size.met.keeps_up for size in sizes):
        yield "cannot keep up: the jobs demand more than the cluster has; such a cluster never meets a target."
    period = (
        ""
        if begins.is_snapshot
        else ("; interval: for the next period as long as the log, at the same demand, from blocks of the run")
    )
    yield (
        f"{', '.join(planned.types) + ': nodes. ' if planned.types else ''}Every row is a replay of the whole log, "
        f"{begins.text}{period}."
    )


def _size_row(size: Size, others: int, *, priced: bool, best: bool) -> tuple[str, ...]:
    cost = [f"{size.cost:,.0f}"] if priced else []
    value, low, high = size.met.value[:3]
    bounds = interval(low, high) if isfinite(low) else "-"
    mark = "best" if best else "yes" if size.met.meets else "no" if size.met.keeps_up else "cannot keep up"
    nodes = tuple(f"{count:,}" for count in size.nodes)
    further = [number(period.value) for period in size.met.further] if size.met.keeps_up else [*["-"] * others]
    return (*nodes, f"{size.gpus:,}", *cost, number(value), bounds, *further, f"{size.met.lost:,}", mark)
