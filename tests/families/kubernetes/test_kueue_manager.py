"""A real manager of Kueue as a policy: its objects as manifests, and one story where a manager is at hand
(``DAGSIM_KUEUE``, with ``DAGSIM_KUEUE_VERSION`` for its API).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")

from dagsim.errors import ConfigError, PolicyFailed, TraceError
from dagsim.families.kubernetes.api.terms import Requirement, Taint, Toleration
from dagsim.families.kubernetes.kueue.kueue_manager import KueueManager
from dagsim.families.kubernetes.kueue.kueue_objects import (
    ClusterQueue,
    Cohort,
    FlavorFungibility,
    FlavorQuotas,
    KueueObjects,
    KueueTopology,
    LocalQueue,
    PodSet,
    PodSetAssignment,
    QueuePreemption,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    TopologyRequest,
    Workload,
)
from dagsim.families.kubernetes.kueue.kueue_policy import Kueue
from dagsim.families.kubernetes.kueue.kueue_site import read_kueue_site
from dagsim.families.kubernetes.kueue.manifests import kueue_objects, kueue_workload_object
from dagsim.families.kubernetes.kueue.written_manifests import manifests_of, workload_manifest
from dagsim.model import Cluster, Job, Node, QueueTree, Task
from dagsim.model.gpu import gpu_type
from dagsim.systems.cluster.models.kept_work import Preemption as Resuming
from dagsim.systems.cluster.scenario import ClusterScenario

REAL = os.environ.get("DAGSIM_KUEUE")
GPU = "nvidia.com/gpu"
ADMITS = Path(__file__).with_name("first_come_manager.py")


def queue(name: str, a100: float, t4: float, **rest: Any) -> ClusterQueue:
    flavors = tuple([FlavorQuotas(one, {GPU: ResourceQuota(size)}) for one, size in (("a100", a100), ("t4", t4))])
    preemption = QueuePreemption("LowerPriority", "Any")
    return ClusterQueue(name, "all", resource_groups=(ResourceGroup(flavors),), preemption=preemption, **rest)


OBJECTS = KueueObjects(
    (queue("lab", 8, 4), queue("prod", 8, 8)),
    (Cohort("all"),),
    resource_flavors=(ResourceFlavor("a100", gpu_types=("A100-40",)), ResourceFlavor("t4", gpu_types=("T4",))),
)


def job(name: str, arrival_s: float, pods: int, priority: float, seconds: float) -> Job:
    task = Task("t", seconds, gpus=4, instances=pods, gang=pods > 1)
    return Job.single(name, task, arrival_s, priority=priority, account=name.partition("-")[0])


STORY = [
    job("lab-1", 0, 2, 0, 100), job("lab-2", 0, 2, 0, 60), job("lab-3", 5, 3, 0, 50), job("prod-1", 20, 2, 0, 30),
    job("prod-2", 20, 2, 0, 30), job("lab-4", 30, 1, 10, 20), job("lab-5", 31, 10, 0, 5),
]  # fmt: skip
"""Admission, borrowing, reclaim of two workloads, their return, and one that never fits."""


def play(policy: Any, jobs: list[Job]) -> set[tuple[str, float, str]]:
    a100, t4 = gpu_type("A100-40"), gpu_type("T4")
    nodes = (Node("a1", a100, 8, 96, 1024), Node("a2", a100, 8, 96, 1024), Node("t1", t4, 8, 96, 1024),
             Node("t2", t4, 4, 96, 1024))  # fmt: skip
    resuming = Resuming(on_resume="restart")
    scenario = ClusterScenario(Cluster(nodes), jobs, queues=QueueTree(kueue=OBJECTS), preemption=resuming)
    schedule = scenario.kernel(0).run(policy)
    kinds = ("STARTED", "PREEMPTED", "FINISHED", "REJECTED")
    return {
        (row.kind.name, round(row.time_s, 3), schedule.jobs[row.job].id)
        for row in schedule.log
        if row.kind.name in kinds
    }


@pytest.mark.skipif(not REAL, reason="DAGSIM_KUEUE names no manager")
def test_a_real_manager_decides_as_the_policy_kueue() -> None:
    version = os.environ.get("DAGSIM_KUEUE_VERSION", "v1beta2")
    assert play(KueueManager(REAL or "", version=version), STORY) == play(Kueue(), STORY)


@pytest.mark.parametrize(
    ("group", "system"), [("scheduling.volcano.sh/v1beta1", "Volcano"), ("scheduling.run.ai/v2", "KAI")]
)
def test_queues_of_other_systems_are_named_in_the_error(group: str, system: str, tmp_path: Path) -> None:
    queues = [
        {"apiVersion": group, "kind": "Queue", "metadata": {"name": name}, "spec": {}} for name in ("red", "blue")
    ]
    path = tmp_path / "queues.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": queues}))
    with pytest.raises(TraceError, match=rf"queues\.json: it contains 2 queues of {system} .*'red'"):
        read_kueue_site([path])


def fake(folder: Path) -> str:
    path = folder / "manager"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -SE {ADMITS} "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_a_manager_that_admits_first_come_first_served_fills_the_quota(tmp_path: Path) -> None:
    jobs = [job(f"lab-{number}", float(number), 2, 0, 100) for number in range(4)]
    policy = KueueManager(fake(tmp_path), still_s=0.3, return_s=0.3)
    rows = play(policy, jobs)
    # A quota of 12 GPUs of lab and 16 of prod, and 8 GPUs each: the fake knows the queue's own quota only.
    assert {time_s for kind, time_s, _ in rows if kind == "STARTED"} == {0.0, 100.0, 200.0, 300.0}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"WRONG": "flavor"}, "of the ClusterQueue lab to the ResourceFlavor 'of-nowhere', which does not exist"),
        ({"WRONG": "count", "SIZE": "3"}, "of the ClusterQueue lab with 1000 pods of 'main'; it has 2"),
        ({"WRONG": "count", "SIZE": "9"}, "cannot be read: .*count must be a whole number up to"),
        ({"WRONG": "nothing"}, "of the ClusterQueue lab without status.admission.podSetAssignments"),
    ],
)
def test_a_wrong_admission_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, str], message: str
) -> None:
    for name, value in wrong.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(PolicyFailed, match=message):
        play(KueueManager(fake(tmp_path), still_s=0.3, return_s=0.3), [job("lab-0", 0.0, 2, 0, 100)])


def test_a_condition_without_a_type_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WRONG", "condition")
    rows = play(KueueManager(fake(tmp_path), still_s=0.3, return_s=0.3), [job("lab-0", 0.0, 2, 0, 100)])
    assert ("FINISHED", 100.0, "lab-0") in rows


def test_a_manager_that_ends_is_an_error_with_its_log(tmp_path: Path) -> None:
    path = tmp_path / "manager"
    path.write_text("#!/bin/sh\necho no such queue; exit 4\n")
    path.chmod(0o755)
    with pytest.raises(PolicyFailed, match=r"ended with exit code 4(.|\n)*no such queue"):
        play(KueueManager(str(path)), STORY)


def test_a_wrong_version_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="version must be one of v1beta2, v1beta1, got 'v2'"):
        KueueManager(fake(tmp_path), version="v2")


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_objects_become_manifests_that_are_read_again(version: str) -> None:
    quota = ResourceQuota(16, borrowing_limit=4, lending_limit=2)
    group = ResourceGroup((FlavorQuotas("f", {GPU: quota, "cpu": ResourceQuota(1.5)}),))
    fungibility = FlavorFungibility("MayStopSearch", "MayStopSearch")
    objects = KueueObjects(
        (
            ClusterQueue(
                "q", "c", "StrictFIFO", (group,), QueuePreemption("LowerPriority", "Any"), fungibility, 2.0, "Hold"
            ),
        ),
        (Cohort("c", "top", (group,), 3.0), Cohort("top")),
        (LocalQueue("lq", "q", stop_policy="Hold"),),
        (ResourceFlavor("f", {"pool": "p"}, (Taint("k", "v", "NoSchedule"),), (), "racks"),),
        (KueueTopology("racks", ("rack", "kubernetes.io/hostname")),),
    )
    kinds = {"clusterqueues": "ClusterQueue", "cohorts": "Cohort", "localqueues": "LocalQueue",
             "resourceflavors": "ResourceFlavor", "topologies": "Topology"}  # fmt: skip
    listed = [{**json.loads(json.dumps(one)), "kind": kinds[plural]}
              for _, plural, one in manifests_of(objects, version) if plural in kinds]  # fmt: skip
    again = kueue_objects(listed)
    assert again.cluster_queues == objects.cluster_queues
    assert again.cohorts == objects.cohorts
    assert again.resource_flavors == objects.resource_flavors
    assert again.topologies == objects.topologies
    assert [(one.name, one.stop_policy) for one in again.local_queues] == [("default/lq", "Hold")]


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_a_workload_becomes_a_manifest_that_is_read_again(version: str) -> None:
    pod_set = PodSet("main", 4, {GPU: 2.0}, 2, {"pool": "p"}, ((Requirement("zone", "In", ("z",)),),),
                     (Toleration("k", "Exists", "", ""),), TopologyRequest(required="rack"))  # fmt: skip
    held = PodSetAssignment("main", {GPU: "f"}, {GPU: 8.0}, 4, ((("n1",), 3), (("n2",), 1)))
    spec = Workload("w", "q", 7.0, 0.0, "", (pod_set,), "q", (held,), 5.0)
    manifest = workload_manifest(spec, version)
    manifest["metadata"]["creationTimestamp"] = "2000-01-01T00:00:00Z"
    read = kueue_workload_object({**manifest, "kind": "Workload"})
    assert read is not None
    assert (read.pod_sets, read.assignments, read.priority) == ((pod_set,), (held,), 7.0)


def test_only_flavors_without_a_topology_get_a_label_of_their_own() -> None:
    """A flavor with a topology takes the nodes of all its labels, so that a further one would leave it none."""
    flavors = (ResourceFlavor("plain", {"pool": "p"}), ResourceFlavor("racks", {"pool": "q"}, topology_name="tree"))
    manifests = manifests_of(KueueObjects(resource_flavors=flavors), "v1beta1")
    made = {one["metadata"]["name"]: one["spec"] for _, plural, one in manifests if plural == "resourceflavors"}
    assert made["racks"]["topologyName"] == "tree"
    assert made["racks"]["nodeLabels"] == {"pool": "q"}
    assert "topologyName" not in made["plain"]
    assert "plain" in made["plain"]["nodeLabels"].values()


@pytest.mark.parametrize("stated", [{}, {"resourceUsage": {"cpu": "9"}}])
def test_resources_without_a_stated_usage_are_used_as_the_pods_request_them(stated: dict[str, Any]) -> None:
    requests = {"cpu": "500m", "nvidia.com/gpu": "2"}
    template = {"spec": {"containers": [{"resources": {"requests": requests}}]}}
    flavors = dict.fromkeys((*requests, "pods"), "big")
    manifest = {
        "metadata": {"name": "w", "creationTimestamp": "2026-05-04T08:00:00Z"},
        "spec": {"queueName": "q", "podSets": [{"name": "main", "count": 4, "template": template}]},
        "status": {"admission": {"podSetAssignments": [{"name": "main", "flavors": flavors, "count": 3, **stated}]}},
    }
    workload = kueue_workload_object(manifest)
    assert workload is not None
    cpus = 9.0 if stated else 1.5
    assert workload.assignments[0].usage == {"cpu": cpus, "nvidia.com/gpu": 6.0, "pods": 3.0}


def test_a_flavor_without_a_quota_for_a_covered_resource_is_refused() -> None:
    groups = [
        {
            "coveredResources": ["cpu", "memory"],
            "flavors": [{"name": "big", "resources": [{"name": "cpu", "nominalQuota": 4}]}],
        }
    ]
    queue = {"kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": {"resourceGroups": groups}}
    with pytest.raises(TraceError, match="coveredResources lists 'memory', but the flavor 'big' has no quota for it"):
        kueue_objects([queue])
