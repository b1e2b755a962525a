"""Speed of making, writing and reading workloads: python scripts/bench_workloads.py [JOBS].

Prints CPU seconds and peak memory of each workload, first for the columns, then for the same jobs
as objects (``Job``, ``Task``), including the columns.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from clock import cpu_s, timed

from dagsim.config.bundled import WORKLOADS
from dagsim.model import Cluster, Job
from dagsim.systems.cluster.models.runtime import Throughput
from dagsim.workload import PRESETS
from dagsim.workload.records import read_jobs, write_jobs
from dagsim.workload.sessions import Sessions
from dagsim.workload.synthetic import Synthetic

CLUSTER = Cluster.of({"A100-40": 8, "V100-16": 8, "T4": 16})
RUNTIME = Throughput()


def report(what: str, jobs: Iterable[Job]) -> None:
    tasks, spent_s = timed(lambda: [len(job.graph.tasks) for job in jobs])
    report_row(what, len(tasks), sum(tasks), spent_s)


def report_columns(what: str, workload: Synthetic | Sessions) -> None:
    drawn, spent_s = timed(lambda: workload.arrays(CLUSTER, RUNTIME))
    report_row(f"{what}, columns", len(drawn), drawn.tasks, spent_s)


def report_row(what: str, jobs: int, tasks: int, seconds: float) -> None:
    print(f"{what:<28} {jobs:>9,} jobs {tasks:>10,} tasks {seconds:7.2f} s {1e6 * seconds / tasks:6.2f} us per task")


def main(jobs: int) -> None:
    for name in ("heterogeneous", "heterogeneous-dag", "map-reduce", "alibaba", "like-alibaba"):
        workload = replace(WORKLOADS[name].workload, count=jobs, measure=None)
        report_columns(name, workload)
        report(name, workload.jobs(CLUSTER, RUNTIME))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "workload.jsonl"
        workload = replace(PRESETS["heterogeneous"].workload, count=jobs)
        spent_s = cpu_s(lambda: write_jobs(path, workload.jobs(CLUSTER, RUNTIME)))
        print(f"{'make and write JSON Lines':<28} {jobs:>9,} jobs {spent_s:26.2f} s")
        report("read JSON Lines", read_jobs(path))
    for count in (jobs // 10, jobs):
        tracemalloc.start()
        for _ in replace(PRESETS["heterogeneous"].workload, count=count).jobs(CLUSTER, RUNTIME):
            pass
        print(f"peak memory of {count:>9,} jobs {tracemalloc.get_traced_memory()[1] / 1e6:10.1f} MB")
        tracemalloc.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
