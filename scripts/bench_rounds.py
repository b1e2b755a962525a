"""Rounds on a real trace: CPU time of policies that preempt in rounds, in multiples of ``sjf`` in the same run.

    python scripts/bench_rounds.py TRACE [--limit 1500] [--policy NAME ...] [--json]

TRACE is a file that ``dagsim replay`` reads, such as Philly's ``philly_pollux.csv.gz``; its first jobs arrive at a
cluster sized to them. Only the simulation is timed, by the SimPy kernel; reading is not. Beside each multiple stand the
runs that were preempted and a floor: what a policy takes that need not think, as no policy can take less than stopping
and starting again costs the kernel. The floor adds to ``sjf`` the time of as many stops and starts of a gang on two
nodes, a second apart; those of one GPU take half of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import command
from clock import cpu_s

from dagsim.config.schema import load_config
from dagsim.config.yaml import Setting
from dagsim.experiment.scenario import on_its_cluster
from dagsim.model import Cluster, Decision, Job, Kind, Placement, Preempt, Share, Start, Task, Wait
from dagsim.systems.cluster import ClusterView
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario, cluster_scenario_of

ROUNDS = ("las", "2d-las", "las[lead=0.1]", "2d-las[lead=0.1]", "tiresias", "2d-gittins", "gavel-events")


def replayed(trace: Path, limit: int) -> tuple[Cluster, list[Job]]:
    """Return the first jobs of the trace, and the cluster that ``dagsim replay`` sizes to them."""
    workload = {"kind": "trace", "path": str(trace), "format": None, "options": {"limit": limit}}
    config = load_config(None, [Setting("TRACE", "workload", workload)])
    scenario = cluster_scenario_of(on_its_cluster(config, "sized"))
    return scenario.cluster, list(scenario.kernel(0).jobs)


def played(cluster: Cluster, jobs: list[Job], policy: str) -> tuple[float, int]:
    """CPU seconds of the simulation, and the number of preempted runs."""
    kernel, chosen = ClusterScenario(cluster, jobs).kernel(0), POLICIES.create(policy, seed=0)
    spent_s = cpu_s(lambda: kernel.run(chosen))
    return spent_s, len({row[4] for row in kernel.schedule.log.since(0) if row[0] == Kind.PREEMPTED})


class StopAndStart:
    """Policy that stops the only run each second and restarts it in the same place."""

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
    return cpu_s(lambda: kernel.run(policy, times + 1.0)) / times


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    cluster, jobs = replayed(options.trace, options.limit)
    played(cluster, jobs, "sjf")
    sjf_s = min(played(cluster, jobs, "sjf")[0] for _ in range(3))
    stop_s = min(floor_s() for _ in range(3))
    rows = {}
    for policy in options.policy or ROUNDS:
        spent_s, stopped = played(cluster, jobs, policy)
        times, floor = spent_s / sjf_s, 1.0 + stopped * stop_s / sjf_s
        rows[policy] = {"times_sjf": round(times, 1), "preemptions": stopped, "floor": round(floor, 1)}
        say(f"{policy:20} {times:9.1f} x sjf {stopped:9,} preemptions, floor {floor:6.1f}")
    return {"sjf_s": round(sjf_s, 3), "stop_us": round(stop_s * 1e6, 1), **rows}


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--limit", type=int, default=1500)
    parser.add_argument("--policy", action="append", help="only this one; repeatable")
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())
