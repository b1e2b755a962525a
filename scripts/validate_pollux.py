"""Pollux's workloads in Pollux's simulator: the completion time of every job.

    python scripts/validate_pollux.py --workload FILE --inputs DIR --policy tiresias|optimus|pollux
        [--expected FILE] [--kernel] [--json]

16 nodes of 4 GPUs, allocations every 60 s, no interference, as in the paper's figures. ``DIR`` has
the applications' profiles anywhere below it. With ``--json``: ``jobs``, seconds from arrival to end
by name. With ``--kernel``, the policy plays on the GPU cluster's kernel. ``--expected`` is a
summary of the authors (``jobload_*.json.gz``). Exits with 1 if a job differs from it; with
``pollux``, whose search is random, if the mean differs by more than 5 %.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import command
from pollux.on_kernel import IntervalAllocation, elastic_job_of
from pollux.stepped_cluster import ElasticPolicy, SteppedCluster
from pollux.stepped_policies import AttainedServiceQueues, OptimusOracle
from pollux.workload_files import read_workload

from dagsim.errors import InputError
from dagsim.families.elastic.genetic import PolluxSearch
from dagsim.families.elastic.profiles import TrainingProfile, read_applications
from dagsim.families.elastic.training_jobs import ElasticJob
from dagsim.model import Cluster, Kind
from dagsim.systems.cluster.scenario import ClusterScenario

POLICIES: dict[str, Callable[[], ElasticPolicy]] = {
    "tiresias": AttainedServiceQueues,
    "optimus": OptimusOracle,
    "pollux": PolluxSearch,
}
_SHARE = 0.05
"""Largest relative difference of the mean with a random search."""


def completion_times(
    workload: Path, profiles: dict[str, TrainingProfile], policy: str, *, kernel: bool = False
) -> dict[str, int]:
    """Seconds from arrival to end by job, in Pollux's simulator or on the kernel."""
    if kernel:
        return _on_the_kernel(read_workload(workload, profiles), POLICIES[policy]())
    return SteppedCluster(read_workload(workload, profiles), POLICIES[policy]()).run()


def _on_the_kernel(jobs: list[ElasticJob], policy: ElasticPolicy) -> dict[str, int]:
    work = [elastic_job_of(job, policy, restart_s=30.0, whole_seconds=True) for job in jobs]
    schedule = ClusterScenario(Cluster.of({"T4": 64}, per_node=4), work).kernel(0).run(IntervalAllocation(policy))
    done_s = {schedule.jobs[row.job].id: row.time_s for row in schedule.log if row.kind == Kind.COMPLETED}
    # As in Pollux's simulator: a whole second, less the arrival.
    return {job.name: int(round(done_s[job.name]) - job.arrival_s) for job in jobs}


def differing(jobs: dict[str, int], expected: dict[str, float]) -> int:
    """Number of jobs that do not take the expected time, or are in one of both only."""
    return sum(jobs.get(name) != expected.get(name) for name in jobs.keys() | expected.keys())


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    profiles = read_applications(options.inputs)
    jobs = completion_times(options.workload, profiles, options.policy, kernel=options.kernel)
    if not jobs:
        raise InputError(f"{options.workload}: no jobs in it")
    say(f"{len(jobs)} jobs, mean completion time {fmean(jobs.values()):,.3f} s")
    if options.expected is None:
        return {"jobs": jobs}
    name = "workload-" + options.workload.name.partition(".csv")[0].rpartition("-")[2]
    expected = command.read_json(options.expected)["jcts"]
    if name not in expected:
        raise InputError(f"{options.expected}: no {name} in it, but {', '.join(expected)}")
    differ = differing(jobs, expected[name])
    mean = fmean(jobs.values()) / fmean(expected[name].values()) - 1
    say(f"{differ} jobs and {mean:+.2%} of the mean differ from {options.expected.name}")
    return {"jobs": jobs, "holds": abs(mean) <= _SHARE if options.policy == "pollux" else not differ}


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--workload", type=Path, required=True, help="jobs (.csv or .csv.gz)")
    parser.add_argument("--inputs", type=Path, required=True, help="a folder with Pollux's profiles")
    parser.add_argument("--policy", choices=POLICIES, required=True)
    parser.add_argument("--kernel", action="store_true", help="play on the GPU cluster's kernel")
    parser.add_argument("--expected", type=Path, help="completion times by workload and job")
    return command.run(parser, _work, holds=lambda result: result.get("holds", True))


if __name__ == "__main__":
    raise SystemExit(main())
