"""What a plot shows, read back from the figure."""

from __future__ import annotations

from typing import Any


def line(drawn: Any) -> tuple[list[float], list[float]]:
    """The points of a curve."""
    return list(map(float, drawn.get_xdata())), list(map(float, drawn.get_ydata()))


def texts(drawn: Any) -> list[str]:
    """The words on all axes of a figure."""
    drawn.canvas.draw()
    return [text.get_text() for axes in drawn.axes for text in axes.texts]
