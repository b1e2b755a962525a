"""How the cost of Kueue's decisions grows: ``python scripts/bench_kueue.py [--cohorts 1,5,10,20] [--queues 6]``.

The workloads are those of Kueue's performance test (``test/performance/scheduler/configs/baseline``, version 0.17): for
each of ``--queues`` ClusterQueues of a cohort, 350 small, 100 medium and 50 large ones, with all times multiplied by
100. Kueue's test has five cohorts of six queues, 15,000 workloads. For each number of cohorts the script prints the
processor seconds of the admission engine, including the import of the manifests (``engine_s``), and of a simulation
with the policy ``kueue`` on one large node (``simulation_s``), the best of ``--times`` rounds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import command
from clock import cpu_s
from kubernetes_golden import kueue

from dagsim.families.kubernetes.kueue.kueue_site import read_kueue_site
from dagsim.model import Cluster, GpuType, Job, Node, Task
from dagsim.systems.cluster.models.kept_work import Preemption
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario


class WorkloadClass(NamedTuple):
    """Equal workloads of a queue, which arrive at fixed intervals."""

    name: str
    number: int
    every_s: float
    runs_s: float
    priority: int
    cpus: int


CLASSES = (
    WorkloadClass("small", 350, 10.0, 20.0, 50, 1),
    WorkloadClass("medium", 100, 50.0, 50.0, 100, 5),
    WorkloadClass("large", 50, 120.0, 100.0, 200, 20),
)
_QUOTA = {"name": "cpu", "nominalQuota": 20, "borrowingLimit": 100}
_GROUP = {"coveredResources": ["cpu"], "flavors": [{"name": "rf", "resources": [_QUOTA]}]}
_PREEMPTION = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}


def scenario(cohorts: int, queues: int, batch_s: float = 100.0) -> dict[str, Any]:
    """Return the objects and the workloads of a test, in the form of the golden timelines."""
    names = [(cohort, f"cq-{cohort}-{queue}") for cohort in range(cohorts) for queue in range(queues)]
    return {
        "now": 0,
        "configuration": {},
        "resourceFlavors": [{"name": "rf"}],
        "clusterQueues": [
            {"name": name, "cohortName": f"cohort-{cohort}", "resourceGroups": [_GROUP], "preemption": _PREEMPTION}
            for cohort, name in names
        ],
        "localQueues": [{"name": name, "clusterQueue": name} for _, name in names],
        "workloads": [workload for _, name in names for workload in workloads_of(name)],
        "requeueBatchPeriod": batch_s,
    }


def workloads_of(queue: str) -> Iterator[dict[str, Any]]:
    """Yield the workloads of a queue."""
    for one in CLASSES:
        for place in range(one.number):
            name = f"{one.name}-{queue}-{place}"
            yield {
                "name": name,
                "queueName": queue,
                "uid": name,
                "priority": one.priority,
                "creationTimestamp": one.every_s * (place + 1),
                "podSets": [{"name": "main", "count": 1, "requests": {"cpu": one.cpus}}],
                "runSeconds": one.runs_s,
                "class": one.name,
            }


def simulate(test: dict[str, Any]) -> int:
    """Simulate a test with the policy, and return the number of jobs that ended."""
    objects, _ = kueue.manifests({**test, "workloads": []})
    with TemporaryDirectory() as folder:
        file = Path(folder, "kueue.json")
        file.write_text(json.dumps({"items": objects}))
        queues = read_kueue_site([file]).queues()
    jobs = [job_of(one) for one in sorted(test["workloads"], key=lambda one: one["creationTimestamp"])]
    node = Node("large", GpuType("G", 1.0, 16, 100, 100, 10), 1, 1e6, 1e6)
    simulated = ClusterScenario(Cluster((node,)), jobs, queues=queues, preemption=Preemption(on_resume="restart"))
    policy = POLICIES.create("kueue", requeue_s=test["requeueBatchPeriod"])
    return len(simulated.kernel(0).run(policy).jobs)


def job_of(workload: dict[str, Any]) -> Job:
    """Return a workload of the test as a job."""
    task = Task("t", workload["runSeconds"], cpus=workload["podSets"][0]["requests"]["cpu"], gpus=0)
    where = {"partition": workload["queueName"], "account": kueue.NAMESPACE}
    return Job.single(workload["name"], task, workload["creationTimestamp"], priority=workload["priority"], **where)


def _work(options: command.Options, say: command.Say) -> list[dict[str, float]]:
    rows = []
    for cohorts in options.cohorts:
        for queues in options.queues:
            test = scenario(cohorts, queues)
            row: dict[str, float] = {"cohorts": cohorts, "queues": queues, "workloads": len(test["workloads"])}
            ways: dict[str, Callable[[dict[str, Any]], object]] = {"engine_s": kueue.play, "simulation_s": simulate}
            for name, work in ways.items():
                row[name] = round(min(cpu_s(partial(work, test)) for _ in range(options.times)), 1)
            rows.append(row)
            say(", ".join(f"{value:,} {name}" for name, value in row.items()))
    return rows


def main() -> int:
    parser = command.arguments(__doc__, out=True)
    parser.add_argument("--cohorts", type=command.numbers, default=[1, 5, 10, 20], metavar="1,5", help="numbers")
    parser.add_argument("--queues", type=command.numbers, default=[6], metavar="6,12", help="of each cohort")
    parser.add_argument("--times", type=int, default=1, help="rounds")
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())
