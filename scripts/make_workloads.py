"""Write the workloads that dagsim ships: python scripts/make_workloads.py [FOLDER]."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from dagsim.model import Cluster
from dagsim.systems.cluster.models.runtime import Throughput
from dagsim.workload import PRESETS, Synthetic
from dagsim.workload.distributions import LogNormal
from dagsim.workload.jsonl import write_jobs

CLUSTER = Cluster.of({"A100-40": 8, "V100-16": 8, "T4": 16})
RUNTIME = Throughput()
SHIPPED: dict[str, tuple[str, Synthetic]] = {
    "heterogeneous-100.jsonl": (PRESETS["heterogeneous"].summary, PRESETS["heterogeneous"].workload),
    "dag-50.jsonl": (
        "50 bursty DAG jobs at load 0.9 with outputs to move: 15 % single tasks, else 3 to 8 with 1 or 2 parents each",
        replace(PRESETS["heterogeneous-dag"].workload, count=50, output_gb=LogNormal(0.5, 1.0)),
    ),
}


def main(folder: Path) -> None:
    for name, (summary, workload) in SHIPPED.items():
        assumptions = {
            "work": str(RUNTIME),
            "load": f"{workload.load:g} on {', '.join(f'{n} x {gpu}' for gpu, n in CLUSTER.gpus_by_type().items())}",
        }
        meta = {"summary": summary, "seed": 0, "made_by": "scripts/make_workloads.py", "assumptions": assumptions}
        jobs = write_jobs(folder / name, workload.jobs(CLUSTER, RUNTIME, seed=0), meta)
        print(f"{folder / name}: {jobs} jobs")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "workloads")
