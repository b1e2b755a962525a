"""Tables for ``dagsim plan`` and ``dagsim whatif``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

from dagsim.metrics.tariff import ENERGY
from dagsim.metrics.why import waits_in_words
from dagsim.model.arithmetic import DAY_S
from dagsim.report.comparison import metric_name
from dagsim.report.grid import Grid, Lines, factor, interval, number, short
from dagsim.text import count_of

if TYPE_CHECKING:
    from dagsim.families.capacity.log_demand import Beginning
    from dagsim.families.capacity.machines import Prices
    from dagsim.families.capacity.size_search import Size, SizeSearch, Targets
    from dagsim.families.capacity.trials import Fit
    from dagsim.families.capacity.whatif import Alternative
    from dagsim.workload.load import Load


_ENERGY_HEADS = dict(zip(ENERGY, ("\ncost", "\nkgCO2"), strict=True))
_BY_THE_HOUR = "by hour; a series repeats after its end."


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
    """Build the table of every cluster under every policy: waits, energy, monthly cost, and the
    ratio to the first row. The recorded waits are the first row of the table."""
    own = list(choices[0].trial.energy)
    columns = _whatif_columns(choices, metric, own, fit, wide=wide)
    rows: list[tuple[str, ...]] = []
    if fit is not None:
        blank = ["-"] * (len(columns) - 5)
        rows.append(("the log", "as it was", short(fit.mean_s), short(fit.p95_s), "-", *blank))
    rows += [tuple([column.cell(choice) for column in columns]) for choice in choices]
    heads = tuple([column.head for column in columns])
    by_the_hour = f"cost, kgCO2: for this energy, hour {_BY_THE_HOUR}" if own else ""
    notes = [*_demand_notes(demand), *_whatif_notes(choices, demand, begins, fit), *filter(None, [by_the_hour])]
    notes += [prices.sentence()] if prices is not None and (prices or prices.missing) else []
    return Grid(f"what if: {workload}", heads, rows, tuple(notes), (0, 1, len(heads) - 1))


class _Column(NamedTuple):
    """A column: its head, and the cell of an alternative."""

    head: str
    cell: Callable[[Alternative], str]


def _whatif_columns(
    choices: Sequence[Alternative], metric: str, energy: Sequence[str], fit: Fit | None, *, wide: bool
) -> list[_Column]:
    def bounds(choice: Alternative) -> str:
        change = choice.change
        return "-" if choice is choices[0] or not isfinite(change.low) else interval(change.low, change.high, factor)

    def ratio(choice: Alternative) -> str:
        value = "1" if choice is choices[0] else factor(choice.change.ratio)
        return value if wide or bounds(choice) == "-" else Lines(f"{value}\n{bounds(choice)}")

    columns = [
        _Column("cluster", lambda choice: choice.cluster),
        _Column("policy", lambda choice: choice.policy),
        _Column("wait (s)\nmean", lambda choice: short(choice.trial.waits_s(fit)[0])),
        _Column("\np95", lambda choice: short(choice.trial.waits_s(fit)[1])),
        _Column("energy\n(kWh)", lambda choice: short(choice.trial.value("energy_kwh"))),
        *[_Column(_ENERGY_HEADS[name], partial(_energy, name)) for name in energy],
    ]
    if any(choice.on_demand is not None for choice in choices):
        columns.append(_Column("on demand\nup", lambda one: f"{one.on_demand.share:.0%}" if one.on_demand else "-"))
    if choices[0].cost is not None:
        columns.append(_Column("cost a\nmonth", lambda one: "-" if one.cost is None else f"{one.cost:,.0f}"))
    if any(choice.trial.lost for choice in choices):
        columns.append(_Column("jobs\nlost", lambda choice: f"{choice.trial.lost:,}"))
    columns.append(_Column(f"{metric_name(metric)}\nratio", ratio))
    if wide:
        columns.append(_Column("95%\ninterval", bounds))
    return [*columns, _Column("verdict", lambda choice: choice.verdict)]


def _energy(name: str, choice: Alternative) -> str:
    return short(choice.trial.value(name))


def _whatif_notes(choices: Sequence[Alternative], demand: Load, begins: Beginning, fit: Fit | None) -> Iterator[str]:
    over = "wait, energy: over all jobs"
    if fit is not None and fit.differs:
        waits = waits_in_words(fit.from_eligible)
        over = f"wait: {waits}; metrics such as wait_s count from submission. energy: over all jobs"
    yield (
        f"Every row is one continuous simulation of all jobs, {begins.text}. {over}. ratio: relative to the "
        "first row, with a 95% interval for the long run at the same demand. verdict: p < 0.05, corrected by "
        "Holm's method."
    )
    short = [choice.change.longer for choice in choices if choice.verdict == "log too short"]
    if (longer := max(short, default=1.0)) > 1:
        yield (
            "log too short: the log has too few busy periods for this load, or too few long jobs. An interval "
            f"within a factor of 2 needs a log of at least {_longer(longer, demand)}."
        )
    if any(not choice.trial.keeps_up for choice in choices):
        yield (
            "cannot keep up: the jobs demand more GPUs or cores than the cluster has, so the queue grows without end."
        )
    if any(choice.on_demand is not None for choice in choices):
        yield (
            "on demand: the share of the time in which nodes that are powered on demand are not off; only these hours "
            "are in the cost, from the beginning of a boot on."
        )
    lost = [choice.trial.lost for choice in choices]
    if any(lost) and min(lost) == max(lost):
        yield (
            f"{lost[0]:,} jobs were rejected on each cluster. Its GPU types may have other names than in the log "
            "(--read gpu_names=SITE=TYPE)"
        )
    elif any(lost):
        yield "jobs lost: rejected or not finished. They are left out of the row and of both sides of its ratio."


def _longer(times: float, demand: Load) -> str:
    """Describe how long a log would have to be for an interval to exist."""
    return f"{number(times * demand.span_s / DAY_S)} days, {number(times)} times as long"


def _demand_notes(demand: Load) -> Iterator[str]:
    """Compare the demand of the jobs with today's capacity, by GPU type."""
    parts = "; ".join(map(str, demand.by_types))
    if not demand.span_s:
        yield "No job arrives after the beginning; the jobs waiting at that time count."
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
    """Build the table of every cluster that was tried, smallest or cheapest first, followed by today's
    cluster and the log. The intervals refer to the first target.
    """
    priced = bool(prices)
    best = planned.best
    types = planned.types or ("nodes",)
    heads = [
        *types,
        "GPUs",
        *(["cost a\nmonth"] if priced else []),
        f"{_wrapped(target.first.metric)}\n",
        "95%\ninterval",
    ]
    heads += [f"{_wrapped(other.metric)}\n" for other in target.conditions[1:]]
    own = list(today.met.energy)
    heads += [f"energy:{_ENERGY_HEADS[name]}" for name in own]
    heads += ["jobs\nlost", "meets it"]
    ordered = sorted(planned.tried.values(), key=lambda size: (size.cost, size.gpus, size.nodes))
    row = partial(_size_row, others=len(target.conditions) - 1, energy=own, priced=priced)
    rows = [row(size, best=size is best) for size in ordered]
    now = row(today, best=False)
    rows.append(("today", *["" for _ in types[1:]], *now[len(today.nodes) :]))
    if fit is not None and fit.metric == target.first.metric and not fit.differs:
        blank = ["-"] * (len(target.conditions) + 2 + len(own))
        machines = now[len(today.nodes) : -len(blank) - 1]
        rows.append(("the log", *["" for _ in types[1:]], *machines, number(fit.observed), *blank))
    notes = [*_demand_notes(demand), *_plan_notes(planned, today, target, demand, begins)]
    if own:
        notes.append(f"energy: over the whole log, hour {_BY_THE_HOUR}")
    if fit is not None and fit.metric == target.first.metric and fit.differs:
        notes.append(f"{fit.metric} counts from submission. For the comparison with the log: {fit}.")
    if priced or prices.missing:
        notes.append(prices.sentence())
    return Grid(f"plan: {target} on {workload}", tuple(heads), rows, tuple(notes), (len(heads) - 1,))


def _wrapped(metric: str) -> str:
    """Write a metric with its group on a separate line. Leave out the middle of a long name."""
    group, _, of_group = metric.rpartition("].")
    kind, _, name = group.partition("[")
    if not name:
        return metric
    return f"{kind}[{name if len(name) <= 20 else f'{name[:9]}…{name[-9:]}'}].\n{of_group}"


def _plan_notes(planned: SizeSearch, today: Size, target: Targets, demand: Load, begins: Beginning) -> Iterator[str]:
    best, sizes = planned.best, [*planned.tried.values(), today]
    largest = max(sizes, key=lambda size: size.gpus)
    if best is None and not largest.met.keeps_up:
        yield (
            f"Even the largest cluster tried, {count_of(largest.gpus, 'GPU')}, cannot keep up "
            "with the demand (--max-gpus)."
        )
    elif best is None:
        limit = f"within the budget of {planned.budget:,.0f} a month" if isfinite(planned.budget) else "up to the cap"
        yield f"No size {limit} meets {target}."
    elif not isfinite(best.met.value.high):
        longer = best.met.value.longer
        yield (
            f"No interval: the log is too short; an interval needs {_longer(longer, demand)}."
            if longer > 1
            else ("No interval: the metric is not a mean or a percentile of jobs, or is 0.")
        )
    elif not target.is_sure(best.met) and any(isfinite(one.bound) for one in target.conditions):
        yield (
            "Its interval extends beyond the bound, so in the next period it may miss the target. "
            "Plan for a tighter bound."
        )
    if best is not None and isfinite(best.met.value.high) and (longer := best.met.value.longer) > 1:
        yield f"The log is too short: an interval within a factor of 2 needs {_longer(longer, demand)}."
    if planned.exhausted:
        better = "better" if isfinite(planned.budget) else "cheaper"
        yield f"The search ended after {count_of(len(planned.tried), 'cluster')}; there may be a {better} mix."
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


def _size_row(size: Size, *, others: int, energy: Sequence[str], priced: bool, best: bool) -> tuple[str, ...]:
    cost = [f"{size.cost:,.0f}"] if priced else []
    value, low, high = size.met.value[:3]
    bounds = interval(low, high) if isfinite(low) else "-"
    mark = "best" if best else "yes" if size.met.meets else "no" if size.met.keeps_up else "cannot keep up"
    nodes = tuple(f"{count:,}" for count in size.nodes)
    further = [number(period.value) for period in size.met.further] if size.met.keeps_up else [*["-"] * others]
    further += [short(size.met.energy[name]) if size.met.keeps_up else "-" for name in energy]
    return (*nodes, f"{size.gpus:,}", *cost, number(value), bounds, *further, f"{size.met.lost:,}", mark)
