"""Write the workloads that dagsim ships: python scripts/make_workloads.py [FOLDER]."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dagsim.config.bundled import WORKLOADS
from dagsim.experiment.api import simulate
from dagsim.metrics import jobs_table, runs_table
from dagsim.model import Cluster, Job, Node, gpu_type
from dagsim.systems.cluster.models.runtime import Recorded, Throughput
from dagsim.workload import PRESETS, Sessions, Synthetic
from dagsim.workload.distributions import LogNormal
from dagsim.workload.records import write_jobs

CLUSTER = Cluster.of({"A100-40": 8, "V100-16": 8, "T4": 16})
RUNTIME = Throughput()
_DAG = PRESETS["heterogeneous-dag"].workload
assert isinstance(_DAG, Synthetic)
SHIPPED: dict[str, tuple[str, Synthetic | Sessions]] = {
    "heterogeneous-100.jsonl": (PRESETS["heterogeneous"].summary, PRESETS["heterogeneous"].workload),
    "dag-50.jsonl": (
        "50 bursty DAG jobs at load 0.9 with outputs to move: 15 % single tasks, else 3 to 8 with 1 or 2 parents each",
        replace(_DAG, count=50, output_gb=LogNormal(0.5, 1.0)),
    ),
}

NODES = Cluster(tuple([Node(f"n-{number}", gpu_type("A100-40"), 8, 96, 1024) for number in range(8)]))
"""The machines of the two logs that the benchmark's tasks take windows of."""
PARTITIONS = ("vision", "speech", "language")


def in_flight() -> list[Job]:
    """Philly-like jobs with the start and the nodes that EASY gave them on ``NODES``."""
    workload = replace(WORKLOADS["like-philly"].workload, count=4000, load=1.2, measure=None, load_mode="exact")
    schedule = simulate(workload, NODES, "easy", seed=1).schedule
    table, runs = jobs_table(schedule), runs_table(schedule)
    nodes: dict[str, tuple[str, ...]] = {}
    for job, node in zip(runs["job"], runs["node"], strict=True):
        nodes[job] = (*nodes.get(job, ()), node)
    starts = dict(zip(table["job"], map(float, table["start_s"]), strict=True))
    jobs = workload.jobs(NODES, Recorded(), seed=1)
    return [replace(job, observed_start_s=starts[job.id], observed_nodes=nodes[job.id]) for job in jobs]


def quotas() -> list[Job]:
    """Philly-like jobs of three accounts, each in the partition of its account."""
    workload = replace(WORKLOADS["like-philly"].workload, count=4000, load=1.2, measure=None, load_mode="exact")
    accounts = [PARTITIONS[int(which)] for which in np.random.default_rng(2).choice(3, 4000, p=[0.45, 0.33, 0.22])]
    jobs = zip(workload.jobs(NODES, Recorded(), seed=2), accounts, strict=True)
    return [replace(job, account=account, tenant=account, partition=account) for job, account in jobs]


LOGS: dict[str, tuple[str, Callable[[], list[Job]]]] = {
    "bench-in-flight.jsonl.gz": ("4,000 Philly-like jobs with their starts and nodes under EASY on 64 GPUs", in_flight),
    "bench-quotas.jsonl.gz": ("4,000 Philly-like jobs of three accounts with partitions of 64 GPUs", quotas),
}


def main(folder: Path) -> None:
    for name, (summary, jobs_of) in LOGS.items():
        made = {"summary": summary, "made_by": "scripts/make_workloads.py"}
        print(f"{folder / name}: {write_jobs(folder / name, jobs_of(), made)} jobs")
    for name, (summary, workload) in SHIPPED.items():
        assumptions = {
            "work": str(RUNTIME),
            "load": f"{workload.load:g} on {', '.join(f'{n} x {gpu}' for gpu, n in CLUSTER.gpus_by_type().items())}",
        }
        meta: dict[str, Any] = {
            "summary": summary,
            "seed": 0,
            "made_by": "scripts/make_workloads.py",
            "assumptions": assumptions,
        }
        jobs = write_jobs(folder / name, workload.jobs(CLUSTER, RUNTIME, seed=0), meta)
        print(f"{folder / name}: {jobs} jobs")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "workloads")
