"""``scripts/check_kubernetes.py``: decisions of the real schedulers, and those of dagsim."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from check_kubernetes import count, documents
from kubernetes_golden import OWN, Part, Verdict, kueue

from dagsim.families.kubernetes.api.terms import quantity
from dagsim.families.kubernetes.kueue.kueue_site import read_kueue_site
from dagsim.model import Cluster, Job, Kind, Node, Task
from dagsim.model.gpu import GpuType
from dagsim.systems.cluster.models.kept_work import Preemption
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario

SCRIPT = Path(__file__).parents[3] / "scripts" / "check_kubernetes.py"
SAMPLE = 12
"""States of each file that the sample plays."""


def queue(name: str, cpus: int, **rest: Any) -> dict[str, Any]:
    flavors = [{"name": "plain", "resources": [{"name": "cpu", "nominalQuota": cpus}]}]
    groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
    return {"name": name, "cohortName": "both", "resourceGroups": groups, **rest}


def workload(name: str, queue: str, cpus: int, created: int, **rest: Any) -> dict[str, Any]:
    sets = [{"name": "main", "count": 1, "requests": {"cpu": cpus}}]
    own = {"queueName": queue, "uid": name, "priority": 0, "creationTimestamp": created, "podSets": sets}
    return {"name": name, **own, **rest}


def given(queue: str, cpus: int) -> dict[str, Any]:
    assignment = {"name": "main", "flavors": {"cpu": "plain"}, "resourceUsage": {"cpu": f"{cpus}"}, "count": 1}
    return {"clusterQueue": queue, "podSetAssignments": [assignment]}


STATE = {
    "now": 900,
    "configuration": {},
    "resourceFlavors": [{"name": "plain"}],
    "cohorts": [],
    "clusterQueues": [queue("left", 3, preemption={"reclaimWithinCohort": "Any"}), queue("right", 2)],
    "localQueues": [{"name": "l", "clusterQueue": "left"}, {"name": "r", "clusterQueue": "right"}],
    "workloads": [
        workload("lent", "r", 4, 10, admission=given("right", 4), quotaReservedAt=11),
        workload("owner", "l", 3, 20),
    ],
}
PREEMPTED = {"name": "lent", "by": "owner", "reason": "InCohortReclamation"}
ADMITTED = {"name": "owner", "admission": given("left", 3)}
DECISIONS = {
    "cycles": [
        {"preempted": [PREEMPTED], "pending": [{"name": "owner", "message": "preempts"}]},
        {"admitted": [ADMITTED], "pending": [{"name": "lent", "message": "waits"}]},
    ]
}


def written(folder: Path, *cases: dict[str, Any]) -> Path:
    (folder / "small").mkdir(parents=True)
    with gzip.open(folder / "small" / "states.json.gz", "wt") as file:
        json.dump(cases, file)
    return folder


def test_a_state_is_right_only_if_every_cycle_is(tmp_path: Path) -> None:
    right = {"name": "small-0", "state": STATE, "decisions": DECISIONS}
    reason, late, stays = deepcopy(right), deepcopy(right), deepcopy(right)
    reason["decisions"]["cycles"][0]["preempted"][0]["reason"] = "InClusterQueue"  # type: ignore[index]
    late["decisions"]["cycles"].pop()  # type: ignore[index]
    stays["decisions"]["cycles"][1]["pending"] = []  # type: ignore[index]
    counts = count([written(tmp_path, right, reason, late, stays)])["kueue"]["small"]
    assert dict(counts.outcomes) == {"right": 1, "wrong": 3}
    assert set(counts.causes) == {
        "wrong: preempted workloads",
        "wrong: decisions after the last cycle",
        "wrong: heads that stay",
    }


def test_the_script_fails_below_a_gate_and_on_folders_without_decisions(tmp_path: Path) -> None:
    case = {"name": "small-0", "state": STATE, "decisions": DECISIONS}
    folder = written(tmp_path / "right", case)
    done = subprocess.run([sys.executable, SCRIPT, folder, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    rows = {"small": {"right": 1, "wrong": 0, "not_expressible": 0}}
    assert json.loads(done.stdout)["kueue"] == rows
    wrong = written(tmp_path / "wrong", case | {"decisions": {"cycles": []}})
    done = subprocess.run([sys.executable, SCRIPT, wrong], capture_output=True, text=True, check=False)
    assert (done.returncode, "below its gate" in done.stdout) == (1, True)
    done = subprocess.run([sys.executable, SCRIPT, tmp_path / "none"], capture_output=True, text=True, check=False)
    assert (done.returncode, "none is not a folder" in done.stderr) == (2, True)


def test_a_timeline_is_played_with_its_ends_and_its_batched_returns() -> None:
    scenario = {
        **STATE,
        "clusterQueues": [queue("left", 2)],
        "localQueues": STATE["localQueues"][:1],  # type: ignore[index]
        "workloads": [
            workload("a", "l", 2, 5, runSeconds=10),
            workload("b", "l", 2, 6, runSeconds=1),
            workload("c", "l", 1, 15, runSeconds=1),
        ],
        "requeueBatchPeriod": 3,
    }
    played = {name: [event[:2] for event in events] for name, events in kueue.play(scenario).items()}
    # b was set aside and comes back 3 s after a's end; c arrives at that end, and goes before
    assert played == {
        "a": [(5, "admitted"), (15, "finished")],
        "c": [(15, "admitted"), (16, "finished")],
        "b": [(18, "admitted"), (19, "finished")],
    }


@pytest.mark.data
def test_samples_of_every_family_are_decided_as_kueue_did(data: Path) -> None:
    wrong: list[Verdict] = []
    seen = 0
    for file, document in documents(data / "golden" / "kueue"):
        if kueue.holds(document) and "state" in document[0]:
            for verdict in kueue.verdicts(file, document[:SAMPLE], Part(), OWN):
                seen += 1
                wrong += [verdict] if verdict.outcome != "right" and verdict.gate else []
    assert seen > 200
    assert wrong == []


@pytest.mark.data
@pytest.mark.parametrize("family", ["timeline-quotas", "timeline-preempt-hierarchy", "timeline-flavors"])
def test_the_policy_starts_and_preempts_at_the_recorded_times(data: Path, family: str, tmp_path: Path) -> None:
    with gzip.open(data / "golden" / "kueue" / family / "timelines.json.gz", "rt") as file:
        cases = json.load(file)
    plain = [case for case in cases if all(len(one["podSets"]) == 1 for one in case["scenario"]["workloads"])]
    kinds = {Kind.STARTED: "admitted", Kind.PREEMPTED: "preempted", Kind.FINISHED: "finished"}
    for case in plain[:2]:
        scenario = case["scenario"]
        objects, _ = kueue.manifests({**scenario, "workloads": []})
        (tmp_path / "kueue.json").write_text(json.dumps({"items": objects}))
        jobs = [job_of(one) for one in sorted(scenario["workloads"], key=lambda one: one["creationTimestamp"])]
        node = Node("big", GpuType("G", 1.0, 16, 100, 100, 10), 4096, 1e6, 1e6)
        queues = read_kueue_site([tmp_path / "kueue.json"]).queues()
        simulated = ClusterScenario(Cluster((node,)), jobs, queues=queues, preemption=Preemption(on_resume="restart"))
        schedule = simulated.kernel(0).run(POLICIES.create("kueue"))
        played: dict[str, list[tuple[float, str]]] = {}
        for row in schedule.log:
            if row.kind in kinds:
                played.setdefault(schedule.jobs[row.job].id, []).append((row.time_s, kinds[Kind(row.kind)]))
        recorded: dict[str, list[tuple[float, str]]] = {}
        for event in case["events"]:
            recorded.setdefault(event["workload"], []).append((event["time"], event["event"]))
        assert played == recorded


def job_of(workload: dict[str, Any]) -> Job:
    """A workload of one pod set as a job."""
    (pods,) = workload["podSets"]
    asked = {name: quantity(amount) for name, amount in pods["requests"].items()}
    amounts = {"cpus": asked.get("cpu", 0.0), "memory_gb": asked.get("memory", 0.0) / 2**30}
    gpus, count = int(asked.get("nvidia.com/gpu", 0)), pods["count"]
    task = Task("t", float(workload["runSeconds"]), instances=count, gang=count > 1, gpus=gpus, **amounts)
    where = {"partition": workload["queueName"], "account": kueue.NAMESPACE}
    return Job.single(
        workload["name"], task, float(workload["creationTimestamp"]), priority=workload["priority"], **where
    )
