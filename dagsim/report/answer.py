"""Answers to questions about a cluster, kept in the folder of their runs for the page that shows them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dagsim.errors import RunFolderError
from dagsim.files import parsed_json, write_text
from dagsim.report.grid import Grid

if TYPE_CHECKING:
    pass

_FILE = "answer.json"


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The answer to a question about a cluster."""

    title: str
    sentences: tuple[str, ...]
    """The first is the answer, or says that the simulation does not reproduce the log."""
    grid: Grid
    assumptions: tuple[str, ...]


def write_answer(folder: Path, answer: Recommendation) -> None:
    """Keep the answer in the folder of its runs."""
    write_text(folder / _FILE, json.dumps(asdict(answer), indent=1, ensure_ascii=False) + "\n")


def read_answer(folder: Path) -> Recommendation | None:
    """Return the answer in a run folder; None if it holds none.

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
        return Recommendation(content["title"], tuple(content["sentences"]), table, tuple(content["assumptions"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(f"{path}: not an answer of whatif or plan ({error}); ask again, or delete it") from None
