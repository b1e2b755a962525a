"""Write the answers of ``dagsim plan`` and ``dagsim whatif`` in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from dagsim.experiment.scenario import workload_label
from dagsim.families.capacity.answer_tables import plan_table
from dagsim.model.arithmetic import DAY_S, ordered_sum
from dagsim.report.answer import Chart, Mark, Recommendation
from dagsim.report.comparison import metric_name
from dagsim.report.grid import Grid, factor, interval, number
from dagsim.text import count_of

if TYPE_CHECKING:
    from dagsim.families.capacity.log_demand import Beginning
    from dagsim.families.capacity.size_search import Size, SizePlan
    from dagsim.families.capacity.trials import Fit, OnDemandMonth
    from dagsim.families.capacity.whatif import Alternative, Shift


def _assumptions(begins: Beginning, remarks: Sequence[str]) -> tuple[str, ...]:
    """Return the assumptions behind the numbers, followed by other remarks."""
    period = (
        "The run represents the next period, as long as the log and with the same demand, unless a growth is given."
    )
    if begins.is_snapshot:
        period = "No job arrives later, and jobs end when the snapshot expects them to, usually at their time limits."
    return (
        period,
        f"Every number comes from one simulation of all jobs of the log, {begins.text}.",
        (
            "The simulation has no held jobs, human decisions or node failures beyond what the log "
            "and the cluster describe."
        ),
        "A job takes as long as in the log, on every GPU type that it may use, unless speeds are given.",
        *remarks,
    )


def plan_answer(planned: SizePlan, remarks: Sequence[str] = ()) -> Recommendation:
    """Build the answer of ``dagsim plan``: the size, whether it is certain, its cost, and today's
    waits. ``remarks`` follow the assumptions."""
    config, search = planned.config, planned.search
    label = f"{workload_label(config)}, {config.policy}"
    grid = plan_table(
        search,
        planned.today,
        planned.target,
        workload=label,
        prices=planned.prices,
        demand=planned.demand,
        fit=planned.fit,
        begins=planned.beginning,
    )
    sentences = (*_of_fit(planned.fit), *_of_plan(planned))
    title = f"How many GPUs: {planned.target} on {label}"
    return Recommendation(title, sentences, grid, _assumptions(planned.beginning, remarks), _sizes(planned))


def _of_fit(fit: Fit | None) -> list[str]:
    """Return a warning, which comes first in the answer, if the simulation is far from the log."""
    return [fit.sentence()] if fit is not None and fit.is_far else []


def _of_plan(planned: SizePlan) -> Iterator[str]:
    best, today, target = planned.search.best, planned.today, planned.target
    if best is None:
        largest = max([*planned.search.tried.values(), today], key=lambda size: size.gpus)
        why = (
            ""
            if largest.met.keeps_up
            else f" Even {count_of(largest.gpus, 'GPU')} cannot keep up with the demand (--max-gpus)."
        )
        yield f"No cluster that was tried meets {target}.{why}"
    else:
        nodes = ", ".join(
            count_of(count, f"{type_} node").replace("  ", " ")
            for count, type_ in zip(best.nodes, planned.search.types or ("",), strict=True)
        )
        values = ", ".join(
            f"{one.metric} {_measured(one.metric, period.value)}"
            for one, period in zip(target.conditions, (best.met.value, *best.met.further), strict=True)
        )
        if not isfinite(planned.search.budget):
            yield f"Smallest cluster that meets {target}: {nodes}, {count_of(best.gpus, 'GPU')} ({values})."
        else:
            yield (
                f"Best cluster within {planned.search.budget:,.0f} a month: {nodes}, "
                f"{count_of(best.gpus, 'GPU')} ({values})."
            )
        yield _certainty(planned, best)
        if planned.prices:
            yield (
                f"It costs {best.cost:,.0f} a month. Today's {count_of(today.gpus, 'GPU')} cost {today.cost:,.0f} "
                f"({best.cost - today.cost:+,.0f})."
            )
    state = "they meet it" if today.met.meets else "they do not meet it"
    if not today.met.keeps_up:
        state = "they cannot keep up with the demand"
    unbounded = not any(isfinite(one.bound) for one in target.conditions)
    value = _measured(target.first.metric, today.met.value.value)
    yield (
        f"Today's {count_of(today.gpus, 'GPU')}: {target.first.metric} {value} in the simulation"
        f"{'' if unbounded else f'; {state}'}."
    )
    if planned.fit is None and planned.config.trace().options.time_scale != 1:
        yield (
            "With a demand other than the log's, the simulation cannot be compared with the log; run "
            "the command without it first."
        )
    elif planned.fit is None:
        yield "The log does not state when its jobs started, so the simulation could not be compared with it."
    elif not planned.fit.is_far:
        yield f"The simulation reproduces the log: {planned.fit}."


def _certainty(planned: SizePlan, best: Size) -> str:
    low, high, longer = best.met.value.low, best.met.value.high, best.met.value.longer
    if not isfinite(high):
        return (
            "It is not known how certain this is, because the log is too short. A log "
            f"{number(longer)} times as long, of "
            f"{longer * planned.demand.span_s / DAY_S:,.0f} days, would show it."
            if longer > 1
            else "It is not known how certain this is, because the metric has no interval."
        )
    bounds = f"in 95% of such periods {planned.target.first.metric} lies between {number(low)} and "
    bounds += _measured(planned.target.first.metric, high)
    if planned.target.is_sure(best.met):
        return f"The verdict is clear at this demand: {bounds}."
    short = ""
    if longer > 1:
        days = longer * planned.demand.span_s / DAY_S
        short = (
            f" The log is too short to say more: a log {number(longer)} times as long, of "
            f"{days:,.0f} days, would bound the "
            "value within a factor of 2."
        )
    return f"It is not certain: {bounds}.{short} Plan for a tighter bound if a miss is expensive."


def _measured(metric: str, value: float) -> str:
    """Format a value, with its unit if the unit is seconds."""
    return f"{number(value)}{' s' * metric.rpartition('].')[2].partition('.')[0].endswith('_s')}"


def whatif_answer(
    choices: Sequence[Alternative],
    metric: str,
    fit: Fit | None,
    grid: Grid,
    begins: Beginning,
    remarks: Sequence[str] = (),
    shifts: Mapping[tuple[str, str], Sequence[Shift]] | None = None,
) -> Recommendation:
    """Build the answer of ``dagsim whatif``: every alternative with its verdict and cost. ``grid``
    is its table, and ``remarks`` follow the assumptions. ``shifts`` contains the waits of each job
    in each alternative, by cluster and policy."""
    today = choices[0]
    sentences = _of_fit(fit)
    for choice in choices[1:]:
        sentences.append(_of_choice(choice, today, metric))
        sentences += _of_shifts(choice.cluster, (shifts or {}).get((choice.cluster, choice.policy), ()))
    sentences += [_of_use(choice, choice.on_demand, today, fit) for choice in choices if choice.on_demand is not None]
    if fit is not None and not fit.is_far:
        sentences.append(f"The simulation reproduces the log: {fit}.")
    charts = _of_alternatives(choices, metric, fit)
    return Recommendation(grid.title, tuple(sentences), grid, _assumptions(begins, remarks), charts)


_NAMED = 3
"""Number of jobs and queues that a sentence names."""


def _of_shifts(name: str, shifts: Sequence[Shift]) -> Iterator[str]:
    """Describe which jobs, and which queues by their mean waits, gain or lose in an alternative."""
    if not shifts:
        return
    gains, losses = [one for one in shifts if one.sooner_s > 0], [one for one in shifts if one.sooner_s < 0]
    yield f"{name}: {len(gains):,} of {count_of(len(shifts), 'job')} start sooner, and {len(losses):,} later."
    for word, several in (("Most is gained by", gains[:_NAMED]), ("Most is lost by", losses[::-1][:_NAMED])):
        if several:
            told = [f"{one.job} of {one.queue} ({_wait(one.today_s)} to {_wait(one.wait_s)})" for one in several]
            yield f"{word} {', '.join(told)}."
    moved = [row for row in _by_queue(shifts) if row[1] != row[2]]
    if moved:
        told = [f"{queue} {_wait(today_s)} to {_wait(wait_s)}" for queue, today_s, wait_s in moved]
        yield f"Mean waits by queue: {', '.join(told)}."


def _by_queue(shifts: Sequence[Shift]) -> Iterator[tuple[str, float, float]]:
    """Yield the mean waits of the jobs in each queue, today and in an alternative."""
    for queue in sorted({one.queue for one in shifts}):
        own = [one for one in shifts if one.queue == queue]
        today_s, wait_s = (ordered_sum(waits) for waits in zip(*[one[2:] for one in own], strict=True))
        yield queue, today_s / len(own), wait_s / len(own)


def _wait(seconds: float) -> str:
    return f"{number(seconds)} s" if isfinite(seconds) else "never"


def shift_facts(shifts: Mapping[tuple[str, str], Sequence[Shift]]) -> list[dict[str, Any]]:
    """Return the waits of every job and queue in each alternative, for JSON. A null means that a
    job never starts.
    """

    def finite(seconds: float) -> float | None:
        return seconds if isfinite(seconds) else None

    return [
        {
            "cluster": cluster,
            "policy": policy,
            "queues": [
                {"queue": queue, "today_s": finite(today_s), "wait_s": finite(wait_s)}
                for queue, today_s, wait_s in _by_queue(several)
            ],
            "jobs": [
                {"job": one.job, "queue": one.queue, "today_s": finite(one.today_s), "wait_s": finite(one.wait_s)}
                for one in several
            ],
        }
        for (cluster, policy), several in shifts.items()
    ]


def _of_alternatives(choices: Sequence[Alternative], metric: str, fit: Fit | None) -> tuple[Chart, ...]:
    """Return charts with the ratio of each alternative to the first one, including its interval, and
    with the waits in all of them.
    """
    tones = {"better": "good", "worse": "bad", "reference": "today"}
    ratios = [
        Mark(
            f"{choice.cluster}, {choice.policy}: {choice.verdict}",
            1.0 if choice is choices[0] else choice.change.ratio,
            _finite(choice.change.low) if choice is not choices[0] else None,
            _finite(choice.change.high) if choice is not choices[0] else None,
            tones.get(choice.verdict, "plain"),
        )
        for choice in choices
        if choice is choices[0] or isfinite(choice.change.ratio)
    ]
    waits = [] if fit is None else [Mark("the log, as it was", fit.mean_s, None, fit.p95_s)]
    for choice in choices:
        mean_s, p95_s = choice.trial.waits_s(fit)
        if isfinite(mean_s):
            waits.append(Mark(f"{choice.cluster}, {choice.policy}", mean_s, None, _finite(p95_s)))
    name = metric_name(metric)
    compared = Chart(f"{name}: ratio to today, with its 95% interval", tuple(ratios), "ratio to today", 1.0, ratio=True)
    waiting = Chart("Waits: the mean, and a line to the 95th percentile", tuple(waits), "wait in seconds")
    return tuple(chart for chart in (compared, waiting) if len(chart.marks) > 1)


def _sizes(planned: SizePlan) -> tuple[Chart, ...]:
    """Return a chart of the target's metric over the size of the cluster. It shows today's cluster,
    and every cluster that was tried.
    """
    search, target = planned.search, planned.target.first
    priced = bool(planned.prices)
    ordered = sorted(search.tried.values(), key=lambda size: size.cost)
    sizes = [(size, "chosen" if size is search.best else "good" if size.met.meets else "bad") for size in ordered]
    marks = tuple(
        Mark(
            "today" if tone == "today" else count_of(size.gpus, "GPU"),
            size.met.value.value,
            _finite(size.met.value.low),
            _finite(size.met.value.high),
            tone,
            size.cost if priced else float(size.gpus),
        )
        for size, tone in [*sizes, (planned.today, "today")]
        if isfinite(size.met.value.value)
    )
    across = "cost a month" if priced else "GPUs"
    chart = Chart(
        f"{target.metric} by {across}", marks, target.metric, _finite(target.bound), across, len(search.types) < 2
    )
    return (chart,) if len(marks) > 1 else ()


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def _of_use(choice: Alternative, use: OnDemandMonth, today: Alternative, fit: Fit | None) -> str:
    """Describe the cost and the savings of nodes that are powered on demand, compared with the same
    nodes when they are always on, and with today's cluster."""
    cost = ""
    if use.cost is not None and use.always_on_cost is not None:
        cost = (
            f", and cost {use.cost:,.0f} a month; always on, they would cost {use.always_on_cost:,.0f} "
            f"({use.always_on_cost - use.cost:,.0f} saved)"
        )
        if use.unpriced:
            cost += f", without the {count_of(use.unpriced, 'node')} that have no price (on_demand.price_per_h)"
    waits = ""
    if choice is not today:
        (wait_s, _), (before_s, _) = choice.trial.waits_s(fit), today.trial.waits_s(fit)
        waits = f" Jobs wait {number(wait_s)} s on average, today {number(before_s)} s."
    return (
        f"{choice.cluster} under {choice.policy}: "
        f"{count_of(use.nodes, 'node on demand is', 'nodes on demand are')} up for "
        f"{use.share:.1%} of the time "
        f"({number(use.node_hours)} node-hours and {number(use.boots)} boots a month){cost}.{waits}"
    )


def _of_choice(choice: Alternative, today: Alternative, metric: str) -> str:
    name = choice.policy if choice.cluster == today.cluster else f"{choice.cluster} under {choice.policy}"
    change, cost = choice.change, ""
    if isfinite(change.ratio):
        bounds = f" ({interval(change.low, change.high, factor)})" if isfinite(change.low) else ""
        cost = f"; {metric_name(metric)} {factor(change.ratio)} times today's{bounds}"
    if choice.cost is not None and today.cost is not None:
        cost += f"; {choice.cost:,.0f} a month ({choice.cost - today.cost:+,.0f})"
    return f"{name}: {choice.verdict}{cost}."
