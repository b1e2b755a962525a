"""Fair and FIFO in the Spark simulation, by spark-sched-sim's rules: completion times of all jobs of a workload file.

    python scripts/validate_decima.py --workload FILE [--expected FILE] [--executors N] [--json]
    python scripts/validate_decima.py --stochastic [--profiles FOLDER] [--seeds 1234,1,2] [--json]

With ``--expected`` the largest difference is printed, and the exit status is 1 if it is above 1e-6 s. ``--stochastic``
runs the two workloads on which spark-sched-sim was measured (W1: 10 executors, 50 jobs; W2: 50 executors, 200 jobs)
with its random stream, from the TPC-H profiles in ``$DAGSIM_DATA/traces/tpch-decima``.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import command
from command import Say, read_json

from dagsim.errors import TraceError
from dagsim.families.spark.api import (
    SPARK_POLICIES,
    SparkEpisode,
    SparkJob,
    read_dump,
    read_profiles,
)
from dagsim.families.spark.scenario import SparkScenario

POLICIES = ("fair", "fifo")
TOLERANCE_S = 1e-6
SEEDS = (1234, 1, 2, 3, 4, 5, 6, 7, 8, 9)
STOCHASTIC = {"W1": (10, 50), "W2": (50, 200)}
"""Executors and jobs."""


def replay(path: Path, executors: int | None = None) -> dict[str, SparkEpisode]:
    """Run both policies on a workload file. ``executors`` is needed if the file does not name them,
    and overrides it.
    """
    dump = read_dump(path)
    count = executors if executors is not None else dump.executors
    if count is None:
        raise TraceError(f"{path}: the file does not name its number of executors; give --executors")
    delay_ms = 2000.0 if dump.moving_delay_ms is None else dump.moving_delay_ms
    scenario = SparkScenario(count, moving_delay_s=delay_ms / 1000, parity=True)
    return {
        name: scenario.kernel(0, record=False, jobs=dump.jobs).run(SPARK_POLICIES.create(name)) for name in POLICIES
    }


def stochastic(profiles: Sequence[SparkJob], policy: str, workload: str, seeds: Sequence[int] = SEEDS) -> list[float]:
    """Mean completion time (s) for every seed, with spark-sched-sim's random stream."""
    executors, jobs = STOCHASTIC[workload]
    scenario = SparkScenario(executors, jobs, parity=True).drawing_from(profiles)
    runs = (scenario.kernel(seed, record=False).run(SPARK_POLICIES.create(policy)) for seed in seeds)
    return [episode.mean_jct_s for episode in runs]


def largest_difference(jct_s: Sequence[float], expected_s: Sequence[float]) -> float:
    """Largest difference over all jobs (s); infinite if the numbers of jobs differ."""
    if len(jct_s) != len(expected_s):
        return float("inf")
    return max(abs(ours - theirs) for ours, theirs in zip(jct_s, expected_s, strict=True))


def read_expected(path: Path) -> dict[str, list[float]]:
    """Return completion times by policy, from the output of ``--json``."""
    try:
        document = read_json(path)
        return {name: [float(value) for value in document[name]["jct_s"]] for name in POLICIES}
    except (ValueError, TypeError, KeyError) as error:
        raise TraceError(f"{path}: no completion times ({type(error).__name__}: {error})") from None


def by_id(episode: SparkEpisode) -> list[float]:
    """Completion times (s) by job number if the ids are numbers, otherwise in order of arrival."""
    jct_by_id = {job.job.id: jct_s for job, jct_s in zip(episode.jobs, episode.jct_s.tolist(), strict=True)}
    if all(id.isdecimal() for id in jct_by_id):
        return [jct_by_id[id] for id in sorted(jct_by_id, key=int)]
    return list(jct_by_id.values())


def replayed(workload: Path, executors: int | None = None) -> dict[str, dict[str, Any]]:
    """For each policy, the mean completion time and that of every job."""
    episodes = replay(workload, executors)
    return {name: {"mean_jct_s": episode.mean_jct_s, "jct_s": by_id(episode)} for name, episode in episodes.items()}


def drawn(folder: Path, seeds: Sequence[int] = SEEDS) -> dict[str, dict[str, dict[int, float]]]:
    """For each workload, policy and seed, the mean completion time (s), from the profiles in the
    folder.
    """
    profiles = read_profiles(folder)
    return {
        workload: {
            policy: dict(zip(seeds, stochastic(profiles, policy, workload, seeds), strict=True)) for policy in POLICIES
        }
        for workload in STOCHASTIC
    }


def _work(options: Namespace, say: Say) -> tuple[Any, bool]:
    """Return the data for ``--json``, and True if all differences are within the tolerance."""
    if options.stochastic:
        folder = options.profiles or Path(os.environ.get("DAGSIM_DATA", ".")) / "traces" / "tpch-decima"
        means = drawn(folder, options.seeds)
        for workload, of_policy in means.items():
            for policy, by_seed in of_policy.items():
                say(f"{workload} {policy}: mean JCT {fmean(by_seed.values()):.1f} s over {len(by_seed)} seeds")
        return means, True
    expected = None if options.expected is None else read_expected(options.expected)
    rows, worst_s = replayed(options.workload, options.executors), 0.0
    for name, row in rows.items():
        line = f"{name}: mean JCT {row['mean_jct_s']:.6f} s over {len(row['jct_s'])} jobs"
        if expected is not None:
            difference_s = largest_difference(row["jct_s"], expected[name])
            worst_s = max(worst_s, difference_s)
            line += f", largest difference {difference_s:.3g} s"
        print(line, file=sys.stderr if options.json else sys.stdout)
    return rows, worst_s <= TOLERANCE_S


def main() -> int:
    parser = command.arguments(__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--workload", type=Path, help="a workload file (.json or .json.gz)")
    what.add_argument("--stochastic", action="store_true", help="drawn durations, spark-sched-sim's random stream")
    parser.add_argument("--expected", type=Path, help="its completion times, as JSON")
    parser.add_argument("--executors", type=int, help="number of executors, where the file does not name it")
    parser.add_argument("--profiles", type=Path, help="folder of the TPC-H profiles")
    parser.add_argument("--seeds", type=command.numbers, default=list(SEEDS), help="as 1,2,3")
    return command.run(parser, _work, holds=lambda outcome: outcome[1], convert=lambda outcome: outcome[0])


if __name__ == "__main__":
    sys.exit(main())
