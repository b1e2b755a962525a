"""How fast the Spark simulation is: simulated tasks and decisions per CPU-second on a workload file.

    python scripts/bench_decima.py --workload FILE [--executors N] [--repeats 5] [--json]

Fair and FIFO by spark-sched-sim's rules, directly: the episode alone is timed (``time.process_time``), with the
workload read before; medians of the repeats. Both policies run in turn, so that a drift of the machine hits both.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from pathlib import Path
from statistics import median

from dagsim.errors import DagsimError
from dagsim.spark import SPARK_POLICIES, Dump, Episode, SparkSimulation, read_dump

__all__ = ["measure"]

POLICIES = ("fair", "fifo")


def episode(dump: Dump, executors: int, policy: str) -> tuple[Episode, float]:
    """One episode and the CPU-seconds it took."""
    gc.collect()
    begun = time.process_time()
    delay_ms = 2000.0 if dump.moving_delay_ms is None else dump.moving_delay_ms
    simulation = SparkSimulation(executors, dump.jobs, moving_delay_ms=delay_ms, parity=True)
    done = simulation.run(SPARK_POLICIES.create(policy))
    return done, time.process_time() - begun


def measure(dump: Dump, executors: int, repeats: int) -> dict[str, dict[str, float]]:
    """Per policy tasks, decisions, CPU-seconds (median) and the two rates."""
    spent: dict[str, list[float]] = {policy: [] for policy in POLICIES}
    last: dict[str, Episode] = {}
    for _ in range(repeats):
        for policy in POLICIES:
            last[policy], cpu_s = episode(dump, executors, policy)
            spent[policy].append(cpu_s)
    found = {}
    for policy in POLICIES:
        cpu_s, done = median(spent[policy]), last[policy]
        found[policy] = {
            "tasks": done.tasks,
            "decisions": done.decisions,
            "cpu_s": cpu_s,
            "tasks_per_cpu_s": done.tasks / cpu_s,
            "decisions_per_cpu_s": done.decisions / cpu_s,
            "mean_jct_s": done.mean_jct_s,
        }
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", type=Path, required=True, help="a workload file (.json or .json.gz)")
    parser.add_argument("--executors", type=int, help="number of executors, where the file does not name it")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each policy (default 5)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    try:
        dump = read_dump(args.workload)
    except DagsimError as error:
        print(error, file=sys.stderr)
        return 2
    executors = args.executors if args.executors is not None else dump.executors
    if executors is None or args.repeats < 1:
        parser.error("the file does not name its number of executors; give --executors (and at least one repeat)")
    found = measure(dump, executors, args.repeats)
    if args.json:
        print(json.dumps(found))
        return 0
    for policy, row in found.items():
        print(
            f"{policy} direct: {row['tasks_per_cpu_s']:,.0f} tasks and {row['decisions_per_cpu_s']:,.0f} decisions per"
            f" CPU-second ({row['tasks']:,} tasks, {row['decisions']:,} decisions, {row['cpu_s']:.3f} CPU-s)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
