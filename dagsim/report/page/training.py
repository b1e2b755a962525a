"""The parts of a page about trainings: how far they came, their curves, and their report tables."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from dagsim.errors import RunFolderError
from dagsim.report.grid import Grid
from dagsim.report.numbers import factor, interval, number
from dagsim.report.series import Row

__all__ = ["is_training", "report_grid", "training_sentences"]


_HEADS = ("policy", "mean JCT\n(s)", "ratio", "95 % interval", "won", "verdict")


def is_training(folder: Path) -> bool:
    """The folder is that of a training."""
    return (folder / "progress.csv").exists()


def training_sentences(logs: Mapping[str, Sequence[Row]]) -> list[str]:
    """A sentence per training: its best score on the validation seeds, and what it had seen by then."""
    return [f"{run}: {_sentence(rows)}." for run, rows in logs.items()]


def _sentence(rows: Sequence[Row]) -> str:
    scored = [(ratio, row["samples"] or 0.0) for row in rows if (ratio := row["ratio"]) is not None]
    seen = max((row["samples"] or 0.0 for row in rows), default=0.0)
    if not scored:
        return f"not validated yet; {number(seen)} samples"
    ratio, at = min(scored)
    return (
        f"best completion time on the validation seeds {factor(ratio)} times that of the reference, after {number(at)} "
        f"of {number(seen)} samples; the report on test seeds decides"
    )


def report_grid(name: str, path: Path) -> Grid | None:
    """The table ``report.csv`` of a training: the agent beside the heuristics; ``None`` where it was not written.

    Raises:
        RunFolderError: It cannot be read.
    """
    if not path.exists():
        return None
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [_cells(row) for row in csv.DictReader(file)]
    except (OSError, KeyError, TypeError, ValueError, csv.Error) as error:
        raise RunFolderError(f"{path}: not the report of a training ({error})") from None
    return Grid(f"{name}: on the test seeds", _HEADS, rows, (), (0, 5))


def _cells(row: Mapping[str, str]) -> tuple[str, ...]:
    known = {name: float(row[name] or "nan") for name in ("mean", "ratio", "ratio_low", "ratio_high")}
    bounds = interval(known["ratio_low"], known["ratio_high"], factor)
    won = f"{row['wins']}/{row['n']}" if row["wins"] else "-"
    return row["policy"], number(known["mean"]), factor(known["ratio"]), bounds, won, row["verdict"]
