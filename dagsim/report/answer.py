"""Answers to questions about a cluster. They are stored in run folders, for the pages that show
them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from dagsim.errors import RunFolderError
from dagsim.files import parsed_json, write_text
from dagsim.report.grid import Grid

_FILE = "answer.json"


@dataclass(frozen=True, slots=True)
class Mark:
    """One value in a chart, with its interval if it has one."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    tone: str = "plain"
    """``good``, ``bad``, ``chosen``, ``today`` or ``plain``, which determines the colour or the
    shape.
    """
    across: float | None = None
    """The position on the other axis, in a chart that has two."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart in an answer, with one row for each mark, or with a curve if the marks have two
    coordinates.
    """

    title: str
    marks: tuple[Mark, ...]
    unit: str
    """The meaning of the values, with their unit."""
    line: float | None = None
    """A value for comparison, such as 1 for a ratio, or the limit in a target."""
    across: str = ""
    """The quantity on the other axis. It is empty if the chart has rows."""
    joined: bool = False
    """True if a curve connects all marks except today's."""
    ratio: bool = False
    """True for a logarithmic axis, on which 0.5 and 2 are equally far from 1."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The answer to a question about a cluster."""

    title: str
    sentences: tuple[str, ...]
    """The first sentence is the answer, or states that the simulation does not reproduce the
    log.
    """
    grid: Grid
    assumptions: tuple[str, ...]
    charts: tuple[Chart, ...] = ()


def write_answer(folder: Path, answer: Recommendation) -> None:
    """Store the answer in a run folder."""
    write_text(folder / _FILE, json.dumps(asdict(answer), indent=1, ensure_ascii=False) + "\n")


def read_answer(folder: Path) -> Recommendation | None:
    """Return the answer in a run folder, or None if there is none.

    Raises:
        RunFolderError: The file is damaged.
    """
    path = folder / _FILE
    if not path.exists():
        return None
    try:
        content = parsed_json(path.read_text(encoding="utf-8"))
        grid = content["grid"]
        parts = {name: tuple(grid[name]) for name in ("heads", "notes", "texts")}
        table = Grid(grid["title"], rows=[tuple(row) for row in grid["rows"]], **parts)
        charts = tuple(
            Chart(**chart | {"marks": tuple(Mark(**mark) for mark in chart["marks"])})
            for chart in content.get("charts", ())
        )
        texts = tuple(content["sentences"]), table, tuple(content["assumptions"])
        return Recommendation(content["title"], *texts, charts)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(
            f"{path}: not an answer from whatif or plan ({error}); run the command again, or delete the file"
        ) from None
