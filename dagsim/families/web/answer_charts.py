"""Draw the charts of an answer as SVG: rows with intervals, or a curve over the size of the
cluster.

Positions are percentages and text is never scaled, so that a chart is readable at any width. Styles are classes,
because the page allows no inline styles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import pairwise
from math import ceil, floor, log10

from dagsim.report.answer import Chart, Mark
from dagsim.report.grid import number

_ROW = 44
"""Height of a row in pixels, with its label above its mark."""
_HEIGHT = 260
"""Height of the plotted part of a curve in pixels."""
_LEFT, _RIGHT = 3.0, 94.0
"""The beginning and the end of an axis, in percent of the width."""
_BELOW = 40
"""Height of the axis in pixels."""


def chart(drawn: Chart) -> str:
    """Return a chart with its title, and with its values as text for screen readers."""
    body, height = _curve(drawn) if drawn.across else _rows(drawn)
    values = "; ".join(f"{mark.label} {number(mark.value)}" for mark in drawn.marks)
    label = escape(f"{drawn.title}. {values}")
    svg = f'<svg role="img" aria-label="{label}" width="100%" height="{height}">{body}</svg>'
    return f'<figure class="drawing answer"><figcaption>{escape(drawn.title)}</figcaption>{svg}</figure>'


def _rows(drawn: Chart) -> tuple[str, int]:
    """Draw a row for each mark, on one horizontal axis."""
    ends = _ends(drawn.marks, drawn.line)
    at, ticks = _scale(min(ends), max(ends), ratio=drawn.ratio, first=_LEFT, last=_RIGHT)
    bottom = _ROW * len(drawn.marks) + 6
    parts = [_line(at(tick), at(tick), 0, bottom, "grid") for tick in ticks]
    if drawn.line is not None:
        parts.append(_line(at(drawn.line), at(drawn.line), 0, bottom, "level"))
    for place, mark in enumerate(drawn.marks):
        y = place * _ROW + 30
        low, high = _interval(mark)
        parts.append(f'<text x="0" y="{y - 14}">{escape(mark.label)}</text>')
        parts.append(_line(at(low), at(high), y, y, f"span {mark.tone}"))
        parts.append(_dot(at(mark.value), y, mark))
    parts += [_tick(at(tick), bottom + 15, number(tick)) for tick in ticks]
    parts.append(f'<text x="0" y="{bottom + 33}" class="axis">{escape(drawn.unit)}</text>')
    return "".join(parts), bottom + _BELOW


def _curve(drawn: Chart) -> tuple[str, int]:
    """Draw marks at their positions, with lines between them if they belong to one curve."""
    across = [mark.across for mark in drawn.marks if mark.across is not None]
    x_at, x_ticks = _scale(min(across), max(across), ratio=False, first=_LEFT + 9, last=_RIGHT)
    y_at, y_ticks = _scale(0.0, max(_ends(drawn.marks, drawn.line)), ratio=False, first=_HEIGHT, last=24)
    parts = [f'<line x1="0" x2="100%" y1="{y_at(tick):.1f}" y2="{y_at(tick):.1f}" class="grid"/>' for tick in y_ticks]
    parts += [f'<text x="0" y="{y_at(tick) - 4:.1f}" class="axis">{number(tick)}</text>' for tick in y_ticks]
    if drawn.line is not None:
        y = y_at(drawn.line)
        parts.append(f'<line x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}" class="level"/>')
        parts.append(f'<text x="100%" y="{y - 4:.1f}" class="task">target {number(drawn.line)}</text>')
    on_curve = [mark for mark in drawn.marks if drawn.joined and mark.tone != "today"]
    for one, next_ in pairwise(on_curve):
        ends = x_at(one.across or 0.0), x_at(next_.across or 0.0)
        parts.append(_line(*ends, y_at(one.value), y_at(next_.value), "grid"))
    for mark in drawn.marks:
        x, (low, high) = x_at(mark.across or 0.0), _interval(mark)
        parts.append(_line(x, x, y_at(low), y_at(high), f"span {mark.tone}"))
        parts.append(_dot(x, y_at(mark.value), mark))
    parts += [_tick(x_at(tick), _HEIGHT + 16, number(tick)) for tick in x_ticks]
    parts.append(_tick((_LEFT + 9 + _RIGHT) / 2, _HEIGHT + 34, drawn.across))
    return "".join(parts), _HEIGHT + _BELOW


def _interval(mark: Mark) -> tuple[float, float]:
    low = mark.value if mark.low is None else mark.low
    return low, mark.value if mark.high is None else mark.high


def _ends(marks: Sequence[Mark], line: float | None) -> list[float]:
    """Return all values that a chart must show."""
    ends = [end for mark in marks for end in (mark.value, *_interval(mark))]
    return ends if line is None else [*ends, line]


def _scale(
    least: float, most: float, *, ratio: bool, first: float, last: float
) -> tuple[Callable[[float], float], list[float]]:
    """Return the position of a value between ``first`` and ``last``, and the ticks."""
    if ratio and least > 0:
        ticks = list(_ratio_ticks(least, most))
        low, high = log10(min(ticks[0], least)), log10(max(ticks[-1], most))
        return lambda value: first + (last - first) * (log10(value) - low) / (high - low), ticks
    least = min(least, 0.0) if least < (most - least) else least
    step = _step((most - least) / 4 or 1.0)
    ticks = [step * place for place in range(floor(least / step), ceil(most / step) + 1)]
    low, high = ticks[0], max(ticks[-1], ticks[0] + step)
    return lambda value: first + (last - first) * (value - low) / (high - low), ticks


def _ratio_ticks(least: float, most: float) -> Iterator[float]:
    """Yield 1, and enough round ratios on both sides of it to cover the values. The steps are finer
    if the values are close to 1.
    """
    reach = max(most, 1 / least, 1.02)
    steps = (1.05, 1.1) if reach < 1.12 else (1.25, 1.5) if reach < 1.6 else (2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0)
    above = [step for place, step in enumerate(steps) if place == 0 or steps[place - 1] < most]
    below = [step for place, step in enumerate(steps) if place == 0 or steps[place - 1] < 1 / least]
    yield from (1 / step for step in reversed(below))
    yield 1.0
    yield from above


def _step(rough: float) -> float:
    """Return the next larger number among 1, 2 and 5 times powers of ten."""
    power = 10.0 ** floor(log10(rough))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= rough * 0.999)


def _line(x1: float, x2: float, y1: float, y2: float, class_: str) -> str:
    return f'<line x1="{x1:.2f}%" x2="{x2:.2f}%" y1="{y1:.1f}" y2="{y2:.1f}" class="{class_}"/>'


def _dot(x: float, y: float, mark: Mark) -> str:
    title = f"<title>{escape(f'{mark.label}: {number(mark.value)}')}</title>"
    radius = 7 if mark.tone == "chosen" else 5
    return f'<circle cx="{x:.2f}%" cy="{y:.1f}" r="{radius}" class="dot {mark.tone}">{title}</circle>'


def _tick(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.2f}%" y="{y:.1f}" class="tick">{escape(text)}</text>'
