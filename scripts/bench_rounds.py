"""Rounds on a real trace: CPU time of policies that preempt in rounds, in multiples of ``sjf`` in the same run.

    python scripts/bench_rounds.py TRACE [--limit 1500] [--policy NAME ...] [--json]

TRACE is a file that ``dagsim replay`` reads, such as Philly's ``philly_pollux.csv.gz``; its first jobs arrive at a
cluster sized to them. Only the simulation is timed, by the SimPy kernel; reading is not. Beside each multiple stand the
preemptions, as no policy can take less than what stopping and starting again costs the kernel.
"""

from __future__ import annotations

import argparse
import gc
import json
from pathlib import Path
from time import process_time

from dagsim.config.schema import Config, Setting, load_config, plain
from dagsim.experiment.scenario import cluster_scenario_of
from dagsim.experiment.sizing import sized
from dagsim.model import Cluster, Job, Kind
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario

ROUNDS = ("las", "2d-las", "las[lead=0.1]", "2d-las[lead=0.1]", "tiresias", "2d-gittins", "gavel")


def replayed(trace: Path, limit: int) -> tuple[Cluster, list[Job]]:
    """The cluster that ``dagsim replay`` sizes to the first jobs of the trace, and these jobs."""
    scenario = cluster_scenario_of(_sized(trace, limit))
    return scenario.cluster, list(scenario.kernel(0).jobs)


def played(cluster: Cluster, jobs: list[Job], policy: str) -> tuple[float, int]:
    """CPU seconds of the simulation, and preemptions."""
    kernel, chosen = ClusterScenario(cluster, jobs).kernel(0), POLICIES.create(policy, seed=0)
    gc.collect()
    gc.freeze()  # what was read is not searched for garbage
    began = process_time()
    schedule = kernel.run(chosen)
    spent = process_time() - began
    return spent, sum(row[0] == Kind.PREEMPTED for row in schedule.log.since(0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--limit", type=int, default=1500)
    parser.add_argument("--policy", action="append", help="only this one; repeatable")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    cluster, jobs = replayed(given.trace, given.limit)
    played(cluster, jobs, "sjf")
    sjf_s = min(played(cluster, jobs, "sjf")[0] for _ in range(3))
    found = {}
    for policy in given.policy or ROUNDS:
        spent, stopped = played(cluster, jobs, policy)
        found[policy] = {"times_sjf": round(spent / sjf_s, 1), "preemptions": stopped}
        if not given.json:
            print(f"{policy:20} {spent / sjf_s:9.1f} x sjf {stopped:9,} preemptions", flush=True)
    if given.json:
        print(json.dumps({"sjf_s": round(sjf_s, 3), **found}))


def _sized(trace: Path, limit: int) -> Config:
    settings = [
        Setting("TRACE", "workload", {"kind": "trace", "path": str(trace), "format": None}),
        Setting("--limit", "workload.options.limit", limit),
    ]
    config = load_config(None, settings)
    section = sized(config.trace().as_recorded().jobs(), config.runtime)
    return load_config(None, [*settings, Setting("TRACE", "cluster", plain(section))])


if __name__ == "__main__":
    main()
