"""RLScheduler's tables: the mean bounded slowdown of FCFS, SJF and F1 over ten sequences of 1,024 jobs.

    python scripts/validate_rlscheduler.py --trace FILE --processors N [--first N] [--json]

Its protocol (Zhang et al., SC 2020, and their repository): rows are read by ``protocol="rlscheduler"`` and sorted by
job number, ``--first`` keeps the first of them; sequences start where Gym 0.15's generator with seed 1 says; each runs
on an empty machine to its end; the scheduler commits to one job at a time (``committed``). ``bf0`` is without and
``bf1`` with its backfilling. The bounded slowdown is max(1, (wait + run) / max(run, 10 s)).
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from dagsim.errors import DagsimError
from dagsim.metrics import bounded_slowdown_hpc
from dagsim.model import Cluster, Job, Node
from dagsim.systems.cluster import Estimates
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import drive
from dagsim.traces import TraceOptions, open_trace

__all__ = ["means", "starts"]

SCORES = {"FCFS": "fcfs", "SJF": "sjf", "F1": "f1"}
LENGTH = 1024


def starts(jobs: int, count: int = 10, seed: int = 1) -> list[int]:
    """Where the sequences begin: NumPy's old generator, seeded as Gym 0.15 did with a hash of the seed."""
    digest = hashlib.sha512(str(seed).encode()).digest()[:8]
    words = np.frombuffer(digest, "<u4").tolist()
    while len(words) > 1 and not words[-1]:
        words.pop()
    rng = np.random.RandomState()
    rng.seed(words)
    return [int(rng.randint(LENGTH, jobs - LENGTH - 1)) for _ in range(count)]


def means(jobs: list[Job], processors: int) -> dict[str, dict[str, float]]:
    """The mean bounded slowdowns, without (``bf0``) and with backfilling (``bf1``)."""
    cluster = Cluster((Node("machine", None, 0, processors),))
    found: dict[str, dict[str, float]] = {}
    for name, backfill in (("bf0", "false"), ("bf1", "true")):
        found[name] = {}
        for told, score in SCORES.items():
            sequences = []
            for start in starts(len(jobs)):
                policy = POLICIES.create(f"committed[score={score},backfill={backfill}]")
                part = jobs[start : start + LENGTH]
                schedule = drive(ClusterScenario(cluster, part, estimates=Estimates("predicted")).kernel(0), policy)
                sequences.append(float(bounded_slowdown_hpc(schedule).mean()))
            found[name][told] = float(np.mean(sequences))
    return found


def first_submit_s(trace: Path) -> float:
    """The least submit time of a log (its second field)."""
    opener = gzip.open if trace.suffix == ".gz" else open
    with opener(trace, "rt", encoding="utf-8", errors="replace") as file:
        return min(float(line.split()[1]) for line in file if line.strip() and not line.lstrip().startswith(";"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, required=True, help="a .swf or .swf.gz log")
    parser.add_argument("--processors", type=int, required=True, help="cores of the machine")
    parser.add_argument("--first", type=int, help="take only the first jobs of the log")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    try:
        trace = open_trace(args.trace, "swf", TraceOptions(protocol="rlscheduler", processors=args.processors))
        first_s = first_submit_s(args.trace)  # F1 goes by absolute times, readers count from the first job
        jobs = sorted(trace.jobs(), key=lambda job: int(job.id))[: args.first]
        jobs = [replace(job, arrival_s=job.arrival_s + first_s) for job in jobs]
        if len(jobs) < 2 * LENGTH + 2:
            raise DagsimError(f"{args.trace}: {len(jobs)} jobs are too few for sequences of {LENGTH}")
        found = means(jobs, args.processors)
    except DagsimError as error:
        print(error, file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps(found))
    else:
        for name, row in found.items():
            print(f"{name}: " + ", ".join(f"{policy} {value:.6f}" for policy, value in row.items()))
        print(trace.report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
