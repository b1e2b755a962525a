"""HTML pages with forecasts. They show the queue as bands over time, planned jobs, and the
reliability in a back-test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from html import escape
from math import inf, log1p
from pathlib import Path
from typing import Any

import numpy as np

from dagsim.errors import DagsimError
from dagsim.families.forecast import services
from dagsim.families.forecast.journal import Figures, Watched
from dagsim.families.forecast.live import EarlierForecasts, Expected, ExpectedShape, Prospect
from dagsim.families.forecast.queue_rows import KINDS, SCORED
from dagsim.families.forecast.queue_state import QueueState
from dagsim.families.forecast.scores import CEILING, MEDIAN, Q05, Q25, Q75, Q90, Q95
from dagsim.families.forecast.snapshots import FIRST, QUEUE, Forecasted, ForecastSettings
from dagsim.families.forecast.texts import (
    NEAR,
    PARTS,
    backtest_grid,
    backtest_sentences,
    near,
    parts_grids,
    queue_grid,
    shapes_grid,
    shapes_sentences,
    span,
    without_grid,
    without_sentence,
)
from dagsim.report.grid import Grid
from dagsim.report.tables import contradictions
from dagsim.text import count_of

SCORED_KINDS = frozenset(KINDS[number] for number in SCORED)
_MOST_BANDS = 200
_LETTERS, _LETTER, _ROW, _TOP = 28, 6.5, 16, 22
_TICKS_S = {
    "now": 0.0, "1 min": 60.0, "10 min": 600.0, "1 h": 3600.0, "6 h": 21600.0, "1 day": 86400.0, "1 week": 604800.0,
}  # fmt: skip
_WIDE_TICKS = ("now", "10 min", "6 h", "1 week")
"""Ticks that are shown on narrow screens as well."""
_SIDE, _MARGIN, _END = 260, 44, 20
"""Side of the reliability plot, and its margins on the left and on the right, small enough for a
narrow screen."""


def queue_page(
    title: str,
    queue: Prospect[Expected],
    planned: Prospect[ExpectedShape] | None = None,
    *,
    live: Sequence[str] = (),
    remarks: Sequence[str] = (),
    outcomes: Mapping[str, Mapping[str, Mapping[str, Figures]]] | None = None,
) -> str:
    """Return the page with the forecasts made at one time, and with the outcomes of earlier ones
    (``Journal.figures``)."""
    parts: dict[str, list[str | Grid]] = {}
    rows = queue.rows
    if planned is not None:
        bands = [(str(row.shape), row.starts_s) for row in sorted(planned.rows, key=lambda row: row.ends_s[MEDIAN])]
        parts["Planned jobs"] = [_bands(bands), shapes_grid(planned)]
    if rows or planned is None:
        bands = [(f"{row.job} {row.user}", row.quantiles_s) for row in rows]
        parts["Waiting jobs over time"] = [_bands(bands)]
        parts["Waiting jobs"] = [queue_grid(queue)]
    if queue.without:
        parts["Waiting jobs without a forecast"] = [replace(without_grid(queue.without), title="")]
    for name, head in PARTS.items() if outcomes else ():
        cells = [
            (part_name or "all", of, f"{figures.n:,}", *near(figures.to_dict()))
            for part_name, methods in (outcomes or {})[name].items()
            for of, figures in methods.items()
        ]
        if cells:
            grid = Grid("", (head, "median of", "forecasts", *NEAR), cells, texts=(0, 1))
            parts[f"Starts near the median in the last week, by {head}"] = [grid]
    soon = sum(row.within_1h >= 0.5 for row in rows)
    sentences = (
        [f"{soon:,} of {len(rows):,} waiting jobs probably start within 1 h."]
        if planned is None
        else shapes_sentences(planned.rows)
    )
    remarks = [*remarks, without_sentence(queue.without)] if queue.without else remarks
    return services.page_of_parts(title, [*sentences, *remarks], parts, live)


def backtest_page(title: str, scores: Mapping[str, Any]) -> str:
    """Return the page for a back-test: reliability, scores and their parts."""
    parts: dict[str, list[str | Grid]] = {
        "Reliability": [_reliability(scores["reliability"], scores["n"])],
        "Scores": [backtest_grid(scores)],
    }
    parts |= {grid.title: [replace(grid, title="")] for grid in parts_grids(scores, [*PARTS, "by_kind"])}
    sentences = [*contradictions([{"audit": scores["audit"]}]), *backtest_sentences(scores)[:1], scores["knowledge"]]
    return services.page_of_parts(title, sentences, parts)


def _bands(rows: Sequence[tuple[str, Sequence[float]]]) -> str:
    """Draw one row per job on a logarithmic time axis: the 90% band, the 50% band and the median of
    its start. Positions in time are percentages, so that the whole axis is visible at any width.
    """
    shown = [(name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…", name, values) for name, values in rows]
    shown = shown[:_MOST_BANDS]
    left = 12 + _LETTER * max([len(label) for label, *_ in shown], default=0)
    height = _TOP + _ROW * len(shown) + 6

    def at(seconds: float) -> float:
        return 94 * min(log1p(max(seconds, 0.0)), CEILING) / CEILING

    lines, names = [], []
    for label, tick_s in _TICKS_S.items():
        x, minor = f"{at(tick_s):.2f}%", " minor" * (label not in _WIDE_TICKS)
        lines.append(f'<line class="grid{minor}" x1="{x}" x2="{x}" y1="{_TOP - 4}" y2="{height}"/>')
        lines.append(f'<text class="tick{minor}" x="{x}" y="{_TOP - 8}">{label}</text>')
    for place, (label, name, waits_s) in enumerate(shown):
        y = _TOP + _ROW * place
        low, lower, median, upper, high = (at(waits_s[level]) for level in (Q05, Q25, MEDIAN, Q75, Q95))
        tip = f"{name}: median {span(waits_s[MEDIAN])}, 90% from {span(waits_s[Q05])} to {span(waits_s[Q95])}"
        names.append(f'<text class="task" x="{left - 8:g}" y="{y + 12}">{escape(label)}</text>')
        lines.append(
            f"<g><title>{escape(tip)}</title>"
            f'<rect class="waits" x="{low:.2f}%" y="{y + 3}" width="{max(high - low, 0.2):.2f}%" height="10"/>'
            f'<rect class="runs" x="{lower:.2f}%" y="{y + 3}" width="{max(upper - lower, 0.2):.2f}%" height="10"/>'
            f'<rect class="runs critical" x="{median:.2f}%" y="{y + 1}" width="3" height="14"/></g>'
        )
    head = "The 90% band, the 50% band and the median of the time until the start; the scale is logarithmic."
    more = [f"The first {_MOST_BANDS} of {count_of(len(rows), 'job')}."] if len(rows) > _MOST_BANDS else []
    picture = "<p>No job is waiting.</p>"
    if shown:
        drawn = f'<svg width="100%" height="{height}" role="img" aria-label="{head}">{"".join(lines)}</svg>'
        picture = (
            f'<div class="drawing bands"><svg width="{left:g}" height="{height}">{"".join(names)}</svg>{drawn}</div>'
        )
    return picture + _notes([head, *more] if shown else [])


def _reliability(points: Sequence[tuple[float, float]], count: int) -> str:
    """Plot the share of rows that had started by each quantile against the quantile's level. The
    points of reliable forecasts are on the diagonal.
    """

    def at(level: float, share: float) -> str:
        return f"{_MARGIN + _SIDE * level:.1f},{10 + _SIDE * (1 - share):.1f}"

    lines = []
    for level in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y = at(level, level).split(",")
        lines.append(f'<line class="grid" x1="{_MARGIN}" x2="{_MARGIN + _SIDE}" y1="{y}" y2="{y}"/>')
        lines.append(f'<line class="grid" x1="{x}" x2="{x}" y1="10" y2="{10 + _SIDE}"/>')
        lines.append(f'<text class="tick" x="{x}" y="{_SIDE + 28}">{100 * level:.0f}%</text>')
        lines.append(f'<text class="task" x="{_MARGIN - 6}" y="{float(y) + 4:.1f}">{100 * level:.0f}%</text>')
    lines.append(f'<polyline class="edge" points="{at(0, 0)} {at(1, 1)}"/>')
    drawn = " ".join(at(level, share) for level, share in points)
    lines.append(f'<polyline class="edge critical" points="{drawn}"/>')
    head = (
        "Horizontal axis: the level of a quantile. Vertical axis: the share of the "
        f"{count_of(count, 'row')} that started no later. If the forecasts are reliable, the curve lies on the "
        "diagonal; above it they are too late, below it too early."
    )
    return _svg(_MARGIN + _SIDE + _END, _SIDE + 40, head, "".join(lines)) + _notes([head])


def _notes(lines: Sequence[str]) -> str:
    return "".join(f'<p class="note">{escape(line)}</p>' for line in lines)


def _svg(width: float, height: float, label: str, content: str) -> str:
    return (
        f'<div class="scroll drawing" tabindex="0" role="region" aria-label="{escape(label)}">'
        f'<svg role="img" aria-label="{escape(label)}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">{content}</svg></div>'
    )


@lru_cache(maxsize=1)
def _kept(settings: ForecastSettings) -> EarlierForecasts:
    """Return the forecasts at earlier times that this process has already made with these settings."""
    return EarlierForecasts()


def forecast_snapshot(settings: ForecastSettings, state: Path, whole: bool) -> Forecasted:
    """Return the forecast for a snapshot, computed in the current process. It uses all futures if
    ``whole`` is True, and otherwise only the first few.
    """
    from dagsim.config.schema import load_config
    from dagsim.config.yaml import Setting
    from dagsim.experiment.scenario import on_its_cluster
    from dagsim.families.forecast.question import Question, workload_of
    from dagsim.families.forecast.texts import span

    try:
        setting = Setting(f"snapshot {state.name}", "workload", workload_of(state))
        config = on_its_cluster(load_config(settings.config, [setting], own=False))
        question = Question.read(config, state, settings.history, settings.policy, settings.futures, 0)
        question = question if settings.outcomes is None else question.with_baselines()
        kept = _kept(settings._replace(remark="", outcomes=None, since_s=inf))
        answers = question.answers(early=lambda count: count == FIRST, kept=kept)
        answer = list(answers)[-1] if whole else next(answers)
    except (DagsimError, OSError) as error:
        return Forecasted("", "", "", str(error))
    instant = datetime.fromtimestamp(question.t, UTC).isoformat(timespec="seconds")
    said = [settings.remark] if settings.remark else []
    remarks = [f"As of {instant}, from {state.name}.", *said, *question.remarks]
    title = "When waiting jobs start"
    page, rows = queue_page(title, answer, live=[QUEUE], remarks=remarks, outcomes=settings.outcomes), answer.rows
    middle = sorted(row.quantiles_s[MEDIAN] for row in rows)[len(rows) // 2] if rows else None
    summary = count_of(len(rows), "job waits", "jobs wait") + (
        "" if middle is None else f", half of them start within {span(middle)}"
    )
    log, queue = question.log, QueueState.at(question.log, question.t)
    watched = [
        Watched(
            job=row.job,
            user=row.user,
            partition=row.partition,
            waits_for=row.waits_for,
            scored=row.kind in SCORED_KINDS,
            q05_s=row.quantiles_s[Q05],
            median_s=row.quantiles_s[MEDIAN],
            q90_s=row.quantiles_s[Q90],
            q95_s=row.quantiles_s[Q95],
            baselines_s=row.baselines_s,
        )
        for row in rows
    ]
    started: dict[str, list[float]] = {}
    ended = np.flatnonzero((log.start_s > settings.since_s) & (log.end_s <= question.t))
    for job in [*queue.running.tolist(), *ended.tolist()]:
        started.setdefault(log.array[job], []).append(float(log.start_s[job]))
    starts = {name: tuple(sorted(starts_s)) for name, starts_s in started.items()}
    return Forecasted(page, instant, summary, "", question.t, tuple(watched), starts)
