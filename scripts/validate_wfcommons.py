"""The span of WfCommons workflows on an infinite cluster against their critical paths.

    python scripts/validate_wfcommons.py --traces DIR [--stats DIR/STATS.csv] [--json]

``--stats`` is a table with the columns ``file``, ``tasks``, ``edges``, ``depth`` and ``critical_path_s`` (to a tenth
of a second), made by another program; every file of it is read, run and compared.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path
from typing import TypedDict

from validate_span import spans

from dagsim.errors import DagsimError
from dagsim.traces import open_trace
from dagsim.workload.info import workload_info

__all__ = ["Found", "compared"]


class Found(TypedDict):
    """One workflow: what came out, and what was expected."""

    file: str
    span_s: float
    critical_path_s: float
    same_shape: bool
    """Whether tasks, edges and depth are as expected."""


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True, help="the folder of the workflows")
    parser.add_argument("--stats", type=Path, help="the table (default: STATS.csv in the folder)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    try:
        with (args.stats or args.traces / "STATS.csv").open(newline="") as file:
            found = [compared(args.traces, row) for row in csv.DictReader(file)]
    except (DagsimError, OSError, KeyError) as error:
        print(error, file=sys.stderr)
        return 2
    largest_s = max(abs(each["span_s"] - each["critical_path_s"]) for each in found)
    shapes = sum(each["same_shape"] for each in found)
    if args.json:
        print(json.dumps({"files": len(found), "largest_difference_s": largest_s, "same_shape": shapes, "all": found}))
    else:
        shape = f"{shapes} with the tasks, edges and depth expected"
        print(f"{len(found)} workflows: largest difference {largest_s:.3f} s; {shape}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
