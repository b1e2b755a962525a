"""The span of WfCommons workflows on an infinite cluster against their critical paths.

    python scripts/validate_wfcommons.py --traces DIR [--stats DIR/STATS.csv] [--json]

``--stats`` is a table with the columns ``file``, ``tasks``, ``edges``, ``depth`` and ``critical_path_s`` (to a tenth
of a second), made by another program; every file of it is read, run and compared.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

import command
from validate_span import spans

from dagsim.traces import open_trace
from dagsim.workload.info import workload_info


class Found(TypedDict):
    """One workflow: actual and expected values."""

    file: str
    span_s: float
    critical_path_s: float
    same_shape: bool
    """True if tasks, edges and depth are as expected."""


def compared(folder: Path, row: dict[str, str]) -> Found:
    """Read and run the workflow of one row of the table."""
    path = folder / row["file"]
    info = workload_info(open_trace(path, "wfcommons").jobs())
    (span_s,) = spans(open_trace(path, "wfcommons").jobs())
    shape = (info.tasks, info.edges, info.depth.max if info.depth else 0)
    return {
        "file": row["file"],
        "span_s": span_s,
        "critical_path_s": float(row["critical_path_s"]),
        "same_shape": shape == (int(row["tasks"]), int(row["edges"]), int(row["depth"])),
    }


def measured(traces: Path, stats: Path | None = None) -> dict[str, Any]:
    """Return all workflows of the table, and the largest difference.

    Raises:
        InputError: The table lacks a column.
    """
    path = stats or traces / "STATS.csv"
    with command.reading(path, "a table of workflows"):
        rows = [compared(traces, row) for row in command.read_rows(path)]
    return {
        "files": len(rows),
        "largest_difference_s": max(abs(row["span_s"] - row["critical_path_s"]) for row in rows),
        "same_shape": sum(row["same_shape"] for row in rows),
        "all": rows,
    }


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    figures = measured(options.traces, options.stats)
    say({name: value for name, value in figures.items() if name != "all"})
    return figures


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--traces", type=Path, required=True, help="the folder of the workflows")
    parser.add_argument("--stats", type=Path, help="the table (default: STATS.csv in the folder)")
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())
