"""The style of all plots: colours for colour-blind readers, light axes, and units on every label.

Nothing here changes matplotlib's global settings. Figures are drawn with the Agg backend, never
with pyplot.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from warnings import catch_warnings, filterwarnings

from dagsim.files import writing
from dagsim.pictures.colours import BLUE, COLOURS, GREEN, GREY, INK, ORANGE
from dagsim.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

__all__ = [
    "BLUE", "COLOURS", "GREEN", "GREY", "INK", "LINE", "ORANGE", "SHORTEST_S", "Unit", "dress", "entitle", "figure",
    "headline", "log_seconds", "nothing", "save", "unit_of", "whole_numbers",
]  # fmt: skip

LINE, FAINT = "#bdbdbd", "#e9e9e9"

SHORTEST_S = 1e-3
"""Lower end of logarithmic time axes, in seconds. Shorter times are drawn at this position."""

_DPI = 150
_LONGEST_TEXT, _LONGEST_TICK = 240, 60
"""Maximum number of characters in a text, and in the label of a tick."""
_DATED = {".png": "Software", ".pdf": "CreationDate", ".svg": "Date"}
"""Metadata that is left out because it differs each time a plot is written."""


class Unit(NamedTuple):
    """A unit of time: its length in seconds, and its symbol."""

    seconds: float
    sign: str


_UNITS = (Unit(86400.0, "d"), Unit(3600.0, "h"), Unit(60.0, "min"), Unit(1.0, "s"))
_MARKS = {
    1e-3: "1 ms",
    1e-2: "10 ms",
    0.1: "0.1 s",
    1.0: "1 s",
    10.0: "10 s",
    60.0: "1 min",
    600.0: "10 min",
    3600.0: "1 h",
    36000.0: "10 h",
    259200.0: "3 d",
    2592000.0: "30 d",
    31536000.0: "1 a",
    315360000.0: "10 a",
}
"""Ticks of logarithmic time axes, in seconds."""
_BETWEEN = {
    3.0: "3 s",
    30.0: "30 s",
    180.0: "3 min",
    1800.0: "30 min",
    10800.0: "3 h",
    86400.0: "1 d",
    864000.0: "10 d",
}
"""Additional ticks for short axes."""


def unit_of(span_s: float) -> Unit:
    """Return the largest unit that fits into ``span_s`` at least three times."""
    return next((unit for unit in _UNITS if span_s >= 3 * unit.seconds), _UNITS[-1])


def figure(width: float, height: float) -> Figure:
    """Return an empty figure of ``width`` by ``height`` inches that keeps its labels from
    overlapping.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12, hspace=0.06)
    return Figure(figsize=(width, height), dpi=_DPI, layout=layout, facecolor="white")


def dress(axes: Axes, x: str = "", y: str = "", grid: Literal["x", "y", "both", ""] = "y") -> None:
    """Style the axes with two thin spines, a faint grid behind the data, and small labels."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(LINE)
    axes.tick_params(colors=LINE, labelcolor=INK, labelsize=9, length=3)
    axes.set_xlabel(x, fontsize=10, color=INK)
    axes.set_ylabel(y, fontsize=10, color=INK)
    axes.set_axisbelow(True)
    if grid:
        axes.grid(axis=grid, color=FAINT, linewidth=0.8)


def headline(axes: Axes, text: str, note: str = "") -> None:
    """Write a left-aligned title above the axes, and a note in lighter text on the right."""
    # without a fixed height, matplotlib would measure every tick to place the title
    place: Any = {"y": 1.0, "pad": 10, "parse_math": False}
    axes.set_title(text, loc="left", fontsize=11, fontweight="bold", color=INK, **place)
    if note:
        axes.set_title(note, loc="right", fontsize=9, color=GREY, **place)


def entitle(drawn: Figure, text: str) -> None:
    """Write the figure's subject in a line above it."""
    drawn.suptitle(text, x=0.01, ha="left", fontsize=9, color=GREY, parse_math=False)


def log_seconds(axes: Axes, which: Literal["x", "y"], low: float, high: float, most: int = 8) -> None:
    """Set up a logarithmic axis of seconds from ``low`` to ``high``, with two to ``most`` ticks at
    1 s, 10 s, 1 min, ...
    """
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    first, last = low / 1.2, high * 1.2
    marks = _MARKS if last / first > 3e3 else dict(sorted({**_MARKS, **_BETWEEN}.items()))
    if sum(first <= mark <= last for mark in marks) < 2:
        first = max((mark for mark in marks if mark <= first), default=first)
        last = min((mark for mark in marks if mark >= last), default=last)
    shown = [mark for mark in marks if first <= mark <= last]
    shown = shown[:: -(-len(shown) // most)]
    axis.set_major_locator(FixedLocator(shown))
    axis.set_major_formatter(FixedFormatter([marks[mark] for mark in shown]))
    axis.set_minor_locator(NullLocator())
    (axes.set_xlim if which == "x" else axes.set_ylim)(first, last)


def whole_numbers(axes: Axes) -> None:
    """Place the ticks of the y axis at whole numbers only, because the axis counts jobs."""
    from matplotlib.ticker import MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=True))


def nothing(axes: Axes, text: str) -> None:
    """Write ``text``, which states why the axes are empty, in the middle of the axes."""
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes, fontsize=11, color=GREY)
    axes.set_xticks([])
    axes.set_yticks([])


def save(drawn: Figure, path: Path) -> Path:
    """Write the figure to ``path`` and return the path. Missing folders are created. With the same
    version of matplotlib, equal figures give equal bytes.

    Raises:
        InputError: The file cannot be written.
    """
    _make_plain(drawn)
    with writing(path) as temporary, catch_warnings():
        # Names may be in any script. Do not warn about characters that the font lacks, which are
        # drawn as boxes.
        filterwarnings("ignore", r"Glyph \d+")
        _save(drawn, temporary, path.suffix)
    return path


def _make_plain(drawn: Figure) -> None:
    """Show all text in a figure as plain text. This is necessary because names from files may be
    long, or contain control characters or markup for formulas.
    """
    from matplotlib.text import Text
    from matplotlib.ticker import FuncFormatter

    for axis in (axis for axes in drawn.axes for axis in (axes.xaxis, axes.yaxis)):
        # set_yticks creates such a formatter for labels
        if isinstance(shown := axis.get_major_formatter(), FuncFormatter):
            axis.set_major_formatter(FuncFormatter(partial(_plain_tick, shown)))
    for text in drawn.findobj(Text):
        if isinstance(text, Text):
            plain = _plain(text.get_text(), _LONGEST_TEXT)
            text.set_text(plain if text.get_parse_math() else plain.replace(r"\$", "$"))


def _plain_tick(shown: FuncFormatter, value: float, place: int | None) -> str:
    return _plain(shown(value, place), _LONGEST_TICK)


def _plain(text: str, most: int) -> str:
    text = printable(text)
    text = text if len(text) <= most else f"{text[: most - 3]}..."
    return text.replace(r"\$", "$").replace("$", r"\$")


def _save(drawn: Figure, path: Path, kind: str) -> None:
    if kind != ".png":
        from matplotlib import rc_context

        with rc_context({"svg.hashsalt": "dagsim"}):  # this setting applies only to this file
            undated = {_DATED[kind]: None} if kind in _DATED else None
            drawn.savefig(path, format=kind.removeprefix("."), metadata=undated)
        return
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    # created first, because the layout would otherwise create a canvas of its own to measure text
    canvas: Any = FigureCanvasAgg(drawn)
    layout = drawn.get_layout_engine()
    if layout is not None:
        layout.execute(drawn)
        drawn.set_layout_engine("none")
    # The canvas is printed directly, because savefig would draw everything twice. The default
    # compression would take 50% more time and save only 20% of the bytes.
    canvas.print_png(path, metadata={"Software": None}, pil_kwargs={"compress_level": 3})
