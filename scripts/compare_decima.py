"""Spark policies on the same job sequences: mean completion times over seeds, each paired with fair.

    python scripts/compare_decima.py [--profiles FOLDER | --synthetic] [--rules parity|default] [--workloads W1,W2]
        [--policies "fair;srpt-cp[cap=5]"] [--seeds 1234,1,2] [--out FILE]

W1: 10 executors, 50 jobs (overloaded, drains at the end); W2: 50 executors, 200 jobs (some 85 % loaded). A job is one
of 154 TPC-H queries, uniformly; gaps are exponential with a mean of 25 s. The ratio to ``fair`` is the
geometric mean of the ratios per seed, with a 95 % interval by Student's t on their logs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from dagsim.errors import DagsimError
from dagsim.experiment.simulate import make_policy
from dagsim.metrics import paired
from dagsim.systems.spark import (
    SparkEpisode,
    SparkJob,
    read_profiles,
    synthetic_profiles,
)
from dagsim.systems.spark.scenario import SparkScenario

__all__ = ["POLICIES", "WORKLOADS", "compare", "episode"]

WORKLOADS = {"W1": (10, 50), "W2": (50, 200)}
"""Executors and jobs."""
POLICIES = (
    "fair",
    "fair[counts=wanting]",
    "fifo",
    "random",
    "naive-weighted-fair",
    "weighted-fair",
    "weighted-fair[alpha=-0.75]",
    "weighted-fair[alpha=0.25,order=shortest]",
    "sjf-cp",
    "srpt-cp",
    "srpt-cp[cap=5]",
    "srpt-cp[cap=16]",
    "tetris",
    "tetris[cap=5]",
    "tetris[cap=16]",
    "graphene",
)
SEEDS = (1234, 1, 2, 3, 4, 5, 6, 7, 8, 9)
REFERENCE = "fair"


def episode(pool: Sequence[SparkJob], workload: str, policy: str, seed: int, parity: bool) -> SparkEpisode:
    """Run one episode with spark-sched-sim's rules, jobs and random stream, or with ours."""
    executors, jobs = WORKLOADS[workload]
    scenario = SparkScenario(executors, jobs, parity=parity).drawing_from(pool)
    return scenario.kernel(seed, record=False).run(make_policy(scenario, policy))


def compare(
    pool: Sequence[SparkJob], workload: str, policies: Sequence[str], seeds: Sequence[int], parity: bool
) -> dict[str, dict[str, object]]:
    """For each policy, the mean completion time of every seed, their mean and spread, and the ratio
    to ``fair``.
    """
    means = {
        policy: [episode(pool, workload, policy, seed, parity).mean_jct_s for seed in seeds]
        for policy in dict.fromkeys((REFERENCE, *policies))
    }
    by_policy: dict[str, dict[str, object]] = {}
    for policy, values in means.items():
        pair = paired(values, means[REFERENCE])
        by_policy[policy] = {
            "mean_s": fmean(values),
            "sd_s": stdev(values) if len(values) > 1 else 0.0,
            "ratio": [pair.ratio, pair.low, pair.high],
            "by_seed_s": values,
        }
    return by_policy


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--profiles", type=Path, help="TPC-H profiles (default $DAGSIM_DATA/traces/tpch-decima)")
    where.add_argument("--synthetic", action="store_true", help="queries made up to look like them")
    parser.add_argument("--rules", choices=("parity", "default"), default="parity", help="default: parity")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="W1, W2 or both")
    parser.add_argument("--policies", default=";".join(POLICIES), help="separated by semicolons")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)), help="as 1,2,3")
    parser.add_argument("--out", type=Path, help="also write everything as JSON")
    args = parser.parse_args()
    try:
        seeds = [int(each) for each in args.seeds.split(",")]
        folder = args.profiles or Path(os.environ.get("DAGSIM_DATA", ".")) / "traces" / "tpch-decima"
        pool = synthetic_profiles() if args.synthetic else read_profiles(folder)
        report: dict[str, object] = {"rules": args.rules, "synthetic": args.synthetic, "seeds": seeds}
        for workload in args.workloads.split(","):
            rows = compare(pool, workload, args.policies.split(";"), seeds, args.rules == "parity")
            report[workload] = rows
            for policy, row in rows.items():
                value, low, high = row["ratio"]  # type: ignore[misc]
                print(
                    f"{workload} {policy:42s} {row['mean_s']:8.1f} s +- {row['sd_s']:6.1f}"
                    f"  {value:.3f} of fair ({low:.3f}-{high:.3f})",
                    flush=True,
                )
    except DagsimError as error:
        print(error, file=sys.stderr)
        return 2
    except (KeyError, ValueError) as error:
        parser.error(f"{error} (workloads: {', '.join(WORKLOADS)}; seeds: whole numbers)")
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
