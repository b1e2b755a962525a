"""Rounds on a real trace: CPU time of policies that preempt in rounds, in multiples of ``sjf`` in the same run.

    python scripts/bench_rounds.py TRACE [--limit 1500] [--policy NAME ...] [--json]

TRACE is a file that ``dagsim replay`` reads, such as Philly's ``philly_pollux.csv.gz``; its first jobs arrive at a
cluster sized to them. Only the simulation is timed, by the SimPy kernel; reading is not. Beside each multiple stand the
runs that were preempted and a floor: what a policy takes that need not think, as no policy can take less than stopping
and starting again costs the kernel. The floor adds to ``sjf`` the time of as many stops and starts of a gang on two
nodes, a second apart; those of one GPU take half of it.

On 2026-11-23 (a busy machine, three runs) ``sjf`` took 36 ms. ``tiresias`` took 5.3 to 6.4 times as long,
``2d-gittins`` 4.8 to 8.0, ``las[lead=0.1]`` 6.7 and 7.4, ``2d-las[lead=0.1]`` 5.6 and 6.0. ``las`` took 220 and
``2d-las`` 200 times as long: they stop 164,000 and 109,000 runs, whose floors are 81 and 55. ``gavel`` took 86 to 130
times as long: its 53,000 stopped runs have a floor of 27, and its 1,066 different programs take HiGHS 30 more.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Iterator
from pathlib import Path
from time import process_time

from dagsim.config.schema import Config, Setting, load_config, plain
from dagsim.experiment.scenario import cluster_scenario_of
from dagsim.experiment.sizing import sized
from dagsim.model import Cluster, Decision, Job, Kind, Placement, Preempt, Share, Start, Task, Wait
from dagsim.systems.cluster import ClusterView
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario

ROUNDS = ("las", "2d-las", "las[lead=0.1]", "2d-las[lead=0.1]", "tiresias", "2d-gittins", "gavel")


def replayed(trace: Path, limit: int) -> tuple[Cluster, list[Job]]:
    """The cluster that ``dagsim replay`` sizes to the first jobs of the trace, and these jobs."""
    scenario = cluster_scenario_of(_sized(trace, limit))
    return scenario.cluster, list(scenario.kernel(0).jobs)


def played(cluster: Cluster, jobs: list[Job], policy: str) -> tuple[float, int]:
    """CPU seconds of the simulation, and how many runs were preempted."""
    kernel, chosen = ClusterScenario(cluster, jobs).kernel(0), POLICIES.create(policy, seed=0)
    gc.collect()
    gc.freeze()  # what was read is not searched for garbage
    began = process_time()
    schedule = kernel.run(chosen)
    spent = process_time() - began
    return spent, len({row[4] for row in schedule.log.since(0) if row[0] == Kind.PREEMPTED})


class StopAndStart:
    """Stops the only run each second, and starts it again at the same place."""

    def __init__(self, place: Placement, times: int) -> None:
        self.place = place
        self.times = times

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        for run in list(view.running):
            self.times -= 1
            yield Preempt(run)
        yield Start(next(iter(view.ready)), self.place)
        if self.times:
            yield Wait(view.now + 1.0)


def floor_s(times: int = 10_000) -> float:
    """CPU seconds that the kernel takes to stop and start a gang on two nodes."""
    task = Task("gang", 1e9, instances=12, gang=True)
    kernel = ClusterScenario(Cluster.of({"V100": 16}, per_node=8), [Job.single("job", task)]).kernel(0)
    policy = StopAndStart((Share(0, 8), Share(1, 4)), times)
    gc.collect()
    gc.freeze()
    began = process_time()
    kernel.run(policy, times + 1.0)
    return (process_time() - began) / times


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
    stop_s = min(floor_s() for _ in range(3))
    found = {}
    for policy in given.policy or ROUNDS:
        spent, stopped = played(cluster, jobs, policy)
        times, floor = spent / sjf_s, 1.0 + stopped * stop_s / sjf_s
        found[policy] = {"times_sjf": round(times, 1), "preemptions": stopped, "floor": round(floor, 1)}
        if not given.json:
            print(f"{policy:20} {times:9.1f} x sjf {stopped:9,} preemptions, floor {floor:6.1f}", flush=True)
    if given.json:
        print(json.dumps({"sjf_s": round(sjf_s, 3), "stop_us": round(stop_s * 1e6, 1), **found}))


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
