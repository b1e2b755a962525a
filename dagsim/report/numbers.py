"""Numbers as tables print them."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

__all__ = ["factor", "interval", "number", "short"]


def number(value: float) -> str:
    """Four digits, more only before the point; ``-`` where there is no number."""
    if not isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def short(value: float) -> str:
    """As ``number``, from a million on with an exponent: at most nine signs."""
    return f"{value:.3e}".replace("e+0", "e") if isfinite(value) and abs(value) >= 1e6 else number(value)


def factor(value: float) -> str:
    """A ratio: three digits after the point, four digits in all from 10 on; ``-`` where there is none."""
    return f"{value:.3f}" if isfinite(value) and 0.001 <= value < 10 else number(value)


def interval(low: float, high: float, shown: Callable[[float], str] = short) -> str:
    """Both bounds, or ``-`` where there is no interval."""
    return f"{shown(low)} .. {shown(high)}" if isfinite(low) and isfinite(high) else "-"
