"""FCFS and EASY on a Standard Workload Format log: mean wait and mean bounded slowdown over all jobs.

    python scripts/validate_swf.py --trace FILE --processors N [--json]

Jobs are read by PYSS's rules (run time at most the requested time; ``protocol="pyss"``), and estimates are the
requested times; EASY makes a pass at every event, as PYSS does (``easy-events``). The bounded slowdown is max(1, (wait
+ run) / max(run, 10 s)).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from dagsim.errors import DagsimError
from dagsim.metrics import bounded_slowdown_hpc, wait
from dagsim.model import Cluster, Job, Node
from dagsim.systems.cluster import Estimates
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import drive
from dagsim.traces import TraceOptions, open_trace

__all__ = ["means"]


def means(jobs: list[Job], processors: int, policy: str) -> dict[str, float]:
    """Mean wait and mean bounded slowdown of all jobs under ``policy`` on one machine of ``processors`` cores."""
    cluster = Cluster((Node("machine", None, 0, processors),))
    schedule = drive(
        ClusterScenario(cluster, jobs, estimates=Estimates("predicted")).kernel(0), POLICIES.create(policy)
    )
    return {
        "mean_wait_s": float(wait(schedule).mean()),
        "mean_bsld": float(bounded_slowdown_hpc(schedule).mean()),
        "jobs": len(jobs),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, required=True, help="a .swf or .swf.gz log")
    parser.add_argument("--processors", type=int, required=True, help="cores of the machine")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    try:
        trace = open_trace(args.trace, "swf", TraceOptions(protocol="pyss", processors=args.processors))
        jobs = list(trace.jobs())
        found = {
            name: means(jobs, args.processors, policy) for name, policy in (("fcfs", "fifo"), ("easy", "easy-events"))
        }
    except DagsimError as error:
        print(error, file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps(found))
    else:
        for name, row in found.items():
            print(f"{name}: mean wait {row['mean_wait_s']:.6f} s, mean bounded slowdown {row['mean_bsld']:.6f}")
        print(trace.report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
