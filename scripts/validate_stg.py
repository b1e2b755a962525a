"""List scheduling against known optimal makespans: the Standard Task Graph set.

    python scripts/validate_stg.py --graphs stg-50.tar.gz --optimal DIR [--json]

Every graph of the archive runs alone on 2, 4, 8 and 16 cores under ``critical-path`` (highest level first, ties by
number; HLFET). ``DIR`` holds ``Case<tasks>_<cores>_OPT.csv`` (graph, cores, optimum). Printed per number of cores:
graphs, the mean ratio to the optimum, how many reach it, and how many lie below it, which must be none.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path
from statistics import mean
from typing import TypedDict

from dagsim.errors import DagsimError, TraceError
from dagsim.metrics import makespan
from dagsim.model import Cluster, Job, Node
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import drive
from dagsim.traces import open_trace

__all__ = ["Found", "against_optimum"]


class Found(TypedDict):
    """What one number of cores gave."""

    graphs: int
    mean_ratio: float
    hits: int
    below_optimum: int


def against_optimum(jobs: list[Job], cores: int, optimum: dict[str, float]) -> Found:
    """Run each graph that has an optimum alone on ``cores`` cores."""
    cluster = Cluster((Node("cores", None, 0, cores),))
    ratios = []
    for job in jobs:
        if job.id in optimum:
            schedule = drive(ClusterScenario(cluster, [job]).kernel(0), POLICIES.create("critical-path"))
            ratios.append(makespan(schedule) / optimum[job.id])
    if not ratios:
        raise TraceError(f"no optimum for any of the {len(jobs)} graphs on {cores} cores")
    return {
        "graphs": len(ratios),
        "mean_ratio": mean(ratios),
        "hits": sum(abs(ratio - 1) < 1e-9 for ratio in ratios),
        "below_optimum": sum(ratio < 1 - 1e-9 for ratio in ratios),
    }


def optima(folder: Path, tasks: int) -> dict[int, dict[str, float]]:
    """Per number of cores, the optimum of each graph of ``tasks`` tasks, by the graph's name."""
    found = {}
    for path in sorted(folder.glob(f"Case{tasks}_*_OPT.csv")):
        with path.open(newline="") as file:
            rows = list(csv.reader(file))
        found[int(path.stem.split("_")[1])] = {Path(row[0]).stem: float(row[2]) for row in rows}
    if not found:
        raise TraceError(f"{folder}: no Case{tasks}_<cores>_OPT.csv")
    return dict(sorted(found.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=Path, required=True, help="an archive or folder of .stg files")
    parser.add_argument("--optimal", type=Path, required=True, help="the folder of Case<tasks>_<cores>_OPT.csv")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    try:
        jobs = list(open_trace(args.graphs, "stg").jobs())
        tasks = len(jobs[0].tasks) - 2  # without the two dummies
        found = {cores: against_optimum(jobs, cores, best) for cores, best in optima(args.optimal, tasks).items()}
    except DagsimError as error:
        print(error, file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps({str(cores): row for cores, row in found.items()}))
    else:
        for cores, row in found.items():
            print(
                f"{tasks} tasks, {cores:2} cores: mean ratio {row['mean_ratio']:.4f}, {row['hits']} of {row['graphs']} "
                f"optimal, {row['below_optimum']} below the optimum"
            )
    return 1 if any(row["below_optimum"] for row in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
