"""Describe forecasts of starts in words and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from dagsim.families.forecast.live import Expected, ExpectedShape, Prospect, WithoutForecast
from dagsim.families.forecast.scores import MEDIAN, Q05, Q95
from dagsim.families.forecast.time_spans import WITHIN_S
from dagsim.model.arithmetic import DAY_S
from dagsim.report.grid import Grid
from dagsim.text import count_of

if TYPE_CHECKING:
    from dagsim.families.forecast.explanation import Explanation

_UNITS = (("s", 1.0, 100.0), ("min", 60.0, 6000.0), ("h", 3600.0, 48 * 3600.0))
_ALMOST_A_WEEK_S = 6.9 * DAY_S
UNCALIBRATED = "Not calibrated: without --history, neither run times nor earlier errors are known."
PROMISE = "These are probabilities, not promises (docs/forecast.md)."


def span(seconds: float) -> str:
    """Write a wait in a suitable unit: 40 s, 12 min, 3.5 h, 2.1 d, or over a week."""
    for unit, length_s, below_s in _UNITS:
        if seconds < below_s:
            return f"{seconds / length_s:.{0 if unit != 'h' else 1}f} {unit}"
    return "over a week" if seconds >= _ALMOST_A_WEEK_S else f"{seconds / DAY_S:.1f} d"


def _interval(quantiles_s: Sequence[float]) -> str:
    return f"{span(quantiles_s[Q05])} to {span(quantiles_s[Q95])}"


def basis(answer: Prospect[Any]) -> str:
    """Describe the basis of a forecast: its futures, and the earlier times that calibrate it."""
    several = count_of(answer.futures, "simulated future")
    if not answer.calibrated:
        return several
    return f"{several}, calibrated on forecasts for {count_of(answer.instants, 'earlier time')}"


def _chance(chance: float) -> str:
    return f"{100 * chance:.0f}%"


def queue_grid(answer: Prospect[Expected]) -> Grid:
    """Return the table of waiting jobs, soonest first."""
    rows = answer.rows
    cells = [
        (
            row.job,
            row.user,
            row.partition,
            span(row.quantiles_s[MEDIAN]) if row.quantiles_s[MEDIAN] else "now",
            _interval(row.quantiles_s) if row.quantiles_s[Q95] else "now",
            _chance(row.within_1h),
            _chance(row.within_24h),
            row.waits_for,
        )
        for row in rows
    ]
    heads = ("job", "user", "partition", "median", "90%", "in 1 h", "in 24 h", "waits for")
    counts = f"{count_of(len(rows), 'waiting job')}; {basis(answer)}."
    notes = (counts, PROMISE, *(() if answer.calibrated else (UNCALIBRATED,)))
    return Grid("Time until waiting jobs start", heads, cells, notes, texts=(0, 1, 2, 4, 7))


def without_grid(without: Sequence[WithoutForecast]) -> Grid:
    """Return the table of waiting jobs that get no forecast, with the reasons."""
    cells = [(job.job, job.user, job.partition, job.words) for job in without]
    return Grid("Waiting jobs without a forecast", ("job", "user", "partition", "why"), cells, texts=(0, 1, 2, 3))


def without_sentence(without: Sequence[WithoutForecast]) -> str:
    """Describe how many waiting jobs get no forecast. Jobs that can never start are counted
    separately.
    """
    never = sum(job.kind == "never" for job in without)
    held = len(without) - never
    words = [
        *([f"{count_of(never, 'job')} can never start under the present rules"] if never else []),
        *(
            [f"{count_of(held, 'job is held or waits', 'jobs are held or wait')} for other jobs or events"]
            if held
            else []
        ),
    ]
    return f"{', '.join(words)}, so {'it gets' if len(without) == 1 else 'they get'} no forecast"


def shapes_grid(answer: Prospect[ExpectedShape]) -> Grid:
    """Return the table of the shapes of a planned job, soonest end first."""
    rows = answer.rows
    cells = [
        (
            str(row.shape),
            span(row.starts_s[MEDIAN]),
            _interval(row.starts_s),
            _chance(row.within_1h),
            span(row.ends_s[MEDIAN]),
            _interval(row.ends_s),
        )
        for row in sorted(rows, key=lambda row: row.ends_s[MEDIAN])
    ]
    heads = ("shape", "start", "90%", "in 1 h", "end", "90% of ends")
    notes = [f"From {basis(answer)}. {PROMISE}", *([] if answer.calibrated else [UNCALIBRATED])]
    if len(rows) > 1:
        least = min(row.cut for row in rows)
        cut = [f"{_chance(row.cut)} of the runs ({row.shape})" for row in rows if row.cut > least + 0.02]
        notes += [f"The limit would end {', '.join(cut)}."] if cut else []
        notes.append(
            "Other sizes do the same work, so half the GPUs get twice the limit. All types are "
            "assumed to be equally fast."
        )
    return Grid("Time until planned jobs start and end", heads, cells, tuple(notes), texts=(0, 2, 5))


def shapes_sentences(rows: Sequence[ExpectedShape]) -> list[str]:
    """Describe the shapes that would start and end soonest by their medians."""
    start, end = (min(rows, key=lambda row: getattr(row, name)[MEDIAN]) for name in ("starts_s", "ends_s"))
    starts, ends = span(start.starts_s[MEDIAN]), span(end.ends_s[MEDIAN])
    if len(rows) == 1:
        return [f"{start.shape}: starts in {starts}, ends in {ends} (medians)."]
    return [f"Soonest start: {start.shape}, in {starts} (median).", f"Soonest end: {end.shape}, in {ends} (median)."]


def why_sentences(answer: Explanation) -> list[str]:
    """Return the explanation of a wait as sentences: its cause, the jobs ahead, and what would
    help."""
    lines = [answer.sentence]
    if not (answer.agrees or answer.is_early):
        lines.append(f"By the rules of the site, it {answer.hindrance.words}.")
    for limit in answer.hindrance.limits:
        told = limit.words.removeprefix(limit.owner)
        if limit.detail and limit.detail not in answer.hindrance.words:
            told = f": {limit.detail}"
        lines.append(f"{limit.owner[:1].upper()}{limit.owner[1:]}{told}.")
    if answer.limit_start_s < inf:
        lines.append(
            f"If all jobs run to their time limits and no other job is submitted, it starts in "
            f"{span(answer.limit_start_s)}."
        )
    if answer.frees:
        first = answer.frees[0]
        others = f", and {len(answer.frees) - 1:,} more after it" if len(answer.frees) > 1 else ""
        lines.append(
            f"What it needs becomes free when job {first.job} of {first.user} ends, in {span(first.within_s)} at the "
            f"latest{others}."
        )
    if answer.futures:
        lines.append(_help(answer))
    return lines


def _help(answer: Explanation) -> str:
    """Name the single change that lets a job start soonest."""
    best, basis_ = answer.best, f"median of {count_of(answer.futures, 'future')}"
    as_is = f"in {span(answer.median_s)}" if answer.median_s < inf else "in none of the simulated weeks"
    if best is None:
        return f"Unchanged, it starts {as_is} ({basis_}). None of the changes that were tried makes it start sooner."
    return f"With {best.change}, it would start in {span(best.median_s)}. Unchanged, it starts {as_is} ({basis_})."


def why_grids(answer: Explanation, top: int) -> Iterator[Grid]:
    """Yield tables with the jobs ahead of a waiting job, the parts of its priority, the running
    jobs that free what it needs, and the changes that were tried.
    """
    ahead = answer.ahead
    if ahead.jobs:
        cells = [(job, user, f"{priority:,.10g}") for job, user, priority in ahead.jobs[:top]]
        more = (f"{len(ahead.jobs) - top:,} more.",) if len(ahead.jobs) > top else ()
        yield Grid("Jobs ahead of it", ("job", "user", "priority"), cells, more, texts=(0, 1))
    if ahead.parts:
        parts = [(name, f"{own:,.0f}", f"{theirs:,.0f}") for name, (own, theirs) in ahead.parts.items()]
        heads = ("part of the priority", "its own", "mean of those ahead")
        yield Grid("Priority", heads, parts, texts=(0,))
    if answer.frees:
        ends = [(one.job, one.user, span(one.within_s), " ".join(one.nodes[:4])) for one in answer.frees[:top]]
        yield Grid(
            "Running jobs that free what it needs", ("job", "user", "ends within", "nodes"), ends, texts=(0, 1, 3)
        )
    if answer.changes:
        tried = [
            (str(one.change), span(one.median_s), span(one.sooner_s) if one.sooner_s > 0 else "-")
            for one in answer.changes
        ]
        yield Grid("Changes, each alone", ("with", "starts in", "sooner by"), tried, texts=(0,))


NEAR = ("in 1 min", "in 10 min", "in 1 h")
"""Column headings for the shares of starts within these times of the median forecast."""


def near(entry: Mapping[str, Any]) -> list[str]:
    """Return the shares of starts within 1 min, 10 min and 1 h of the median forecast."""
    return ["-" if entry[name] is None else f"{entry[name]:.2f}" for name in WITHIN_S]


_BASELINES = {
    "slurm": "Slurm's estimates",
    "history": "past waits",
    "history_account": "past waits of account",
    "qbets": "QBETS",
    "limits_history": "limits and past waits",
}
"""Names of baselines in tables, where they differ from those in JSON."""

PARTS = {"by_partition": "partition", "by_horizon": "median forecast"}
"""The parts of the scores in JSON, each with the heading of the column that names the parts."""


def parts_grids(scores: Mapping[str, Any], names: Sequence[str] = tuple(PARTS)) -> Iterator[Grid]:
    """Yield the scores for parts of a back-test's rows: by partition, by the median forecast and by
    kind. The scores of Slurm's own estimates and of the best simple baseline follow those of the
    forecast.
    """
    for name in names:
        head = PARTS.get(name, "kind")
        cells = []
        for key, whole in scores[name].items():
            for of, entry in {"forecast": whole, **whole.get("baselines", {})}.items():
                values = ["-" if entry[score] is None else f"{entry[score]:.2f}" for score in _SCORES]
                cells.append((key or "all", _BASELINES.get(of, of), f"{entry['n']:,}", *values, *near(entry)))
        heads = (head, "", "rows", "coverage", "CRPS", "error", *NEAR)
        yield Grid(f"By {head}", heads, cells, texts=(0, 1))


_SCORES = ("coverage_90", "crps_log", "median_abs_log")


def _near_sentence(scores: Mapping[str, Any]) -> str:
    """Describe how many starts are near the medians of the forecast, of Slurm's estimates and of
    the best baseline.
    """
    best = scores["best_baseline"]
    rivals = {"Slurm's own estimates": "slurm", _BASELINES.get(best, str(best)): best}
    others = [
        f"{name} {', '.join(near(scores['baselines'][of]['raw']))}"
        for name, of in rivals.items()
        if of in scores["baselines"]
    ]
    beside = f" ({'; '.join(others)})" if others else ""
    return f"Share of starts within 1 min, 10 min and 1 h of the median: {', '.join(near(scores))}{beside}."


def backtest_grid(scores: Mapping[str, Any]) -> Grid:
    """Return the table of scores of the forecast and of every baseline, on the same rows."""
    entries = [("forecast", scores)]
    for name, kinds in scores["baselines"].items():
        words = _BASELINES.get(name, name)
        entries += [(words, kinds["raw"]), (f"{words} *", kinds["calibrated"])]
    cells = []
    for name, entry in entries:
        is_point = not entry["coverage_90"]
        cells.append(
            (
                name,
                "-" if is_point else f"{entry['coverage_90']:.2f}",
                f"{entry['crps_log']:.2f}",
                f"{entry['median_abs_log']:.2f}",
                *near(entry),
                f"{entry['ratio'][0]:.2f}" if "ratio" in entry else "",
            )
        )
    heads = ("", "coverage", "CRPS", "error", *NEAR, "ratio")
    notes = (
        "*: calibrated in the same way as the forecast. Coverage: share of starts in the 90% interval. Error: median "
        "error of the median. Ratio: CRPS of the forecast / CRPS of this row.",
        *backtest_sentences(scores)[1:],
    )
    return Grid("Forecasts and baselines on the same rows", heads, cells, notes)


def backtest_sentences(scores: Mapping[str, Any]) -> list[str]:
    """Return sentences with the main results of a back-test, most important first."""
    inside = f"{100 * scores['coverage_90']:.0f}% of the jobs started within their 90% interval"
    counts = f"{scores['n']:,} rows of {scores['submissions']:,} submissions at {scores['instants']:,} times"
    lines = [
        f"{inside}; half of the medians are within a factor of {2.718281828 ** scores['median_abs_log']:.1f}.",
        _near_sentence(scores),
        f"{counts}; {scores['never_started']:,} rows never started. Errors are natural logarithms of 1 s + the wait.",
    ]
    silent = scores["no_forecast"]
    if silent["never"] or silent["outside"]:
        lines.append(
            f"No forecast: {silent['never']:,} submissions that could never start under the rules "
            f"({silent['never_but_started']:,} of them started nevertheless), and {silent['outside']:,} that were held "
            "or waited for something that is not simulated."
        )
    return lines
