"""List scheduling against known optimal makespans: the Standard Task Graph set.

    python scripts/validate_stg.py --graphs stg-50.tar.gz --optimal DIR [--json]

Every graph of the archive runs alone on 2, 4, 8 and 16 cores under ``critical-path`` (highest level first, ties by
number; HLFET). ``DIR`` holds ``Case<tasks>_<cores>_OPT.csv`` (graph, cores, optimum). Printed per number of cores:
graphs, the mean ratio to the optimum, how many reach it, and how many lie below it, which must be none.
"""

from __future__ import annotations

import csv
import sys
from argparse import Namespace
from pathlib import Path
from statistics import mean
from typing import TypedDict

import command
from command import Say

from dagsim.errors import TraceError
from dagsim.metrics import makespan
from dagsim.model import Cluster, Job, Node
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import drive
from dagsim.traces import open_trace

__all__ = ["Found", "against_optimum", "measured"]


class Found(TypedDict):
    """Graphs on one number of cores."""

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
    """For each number of cores, the optimum of each graph of ``tasks`` tasks, by the graph's name."""
    by_cores = {}
    for path in sorted(folder.glob(f"Case{tasks}_*_OPT.csv")):
        with path.open(newline="") as file:
            rows = list(csv.reader(file))
        by_cores[int(path.stem.split("_")[1])] = {Path(row[0]).stem: float(row[2]) for row in rows}
    if not by_cores:
        raise TraceError(f"{folder}: no Case{tasks}_<cores>_OPT.csv")
    return dict(sorted(by_cores.items()))


def measured(jobs: list[Job], optimal: Path) -> dict[int, Found]:
    """For each number of cores, the graphs compared with their optima."""
    best = optima(optimal, tasks_of(jobs))
    return {cores: against_optimum(jobs, cores, by_graph) for cores, by_graph in best.items()}


def tasks_of(jobs: list[Job]) -> int:
    """Number of tasks of each graph, without the two dummies."""
    return len(jobs[0].tasks) - 2


def _work(options: Namespace, say: Say) -> dict[int, Found]:
    jobs = list(open_trace(options.graphs, "stg").jobs())
    rows, tasks = measured(jobs, options.optimal), tasks_of(jobs)
    for cores, row in rows.items():
        say(
            f"{tasks} tasks, {cores:2} cores: mean ratio {row['mean_ratio']:.4f}, {row['hits']} of {row['graphs']} "
            f"optimal, {row['below_optimum']} below the optimum"
        )
    return rows


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--graphs", type=Path, required=True, help="an archive or folder of .stg files")
    parser.add_argument("--optimal", type=Path, required=True, help="the folder of Case<tasks>_<cores>_OPT.csv")
    return command.run(parser, _work, holds=lambda rows: not any(row["below_optimum"] for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
