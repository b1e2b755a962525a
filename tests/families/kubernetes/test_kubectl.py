"""Kubernetes: pods of one owner, attempts, demand over containers, Kueue's workloads, events."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagsim.families.kubernetes.api.pod_context import PodContext
from dagsim.families.kubernetes.api.pods import pod_demand, wanted_type
from dagsim.families.kubernetes.api.terms import quantity
from dagsim.model import Request
from dagsim.traces.fields import Dirty

Reading = Callable[..., Any]


@pytest.fixture(scope="module")
def pods(read: Reading, samples: Path) -> Any:
    return read(samples / "kubernetes" / "pods.json")


@pytest.fixture(scope="module")
def workloads(read: Reading, samples: Path) -> Any:
    return read(samples / "kubernetes" / "workloads.json")


def test_every_pod_has_its_fate(pods: Any) -> None:
    assert pods.trace.format == "kubernetes"
    assert [job.id for job in pods.jobs] == ["optics/fit", "optics/scan", "genes/lone", "genes/try"]
    assert pods.dropped == {
        "of jobs that did not finish as a whole": 1,
        "that never ran": 1,
        "of jobs that outlive the trace": 1,
        "on shares of a GPU (--read mig=true keeps them)": 1,
        "on time slices of a GPU (--read shards=N keeps them)": 1,
    }
    assert dict(pods.trace.report.skipped) == {"of pods without a GPU": 1, "of daemon sets": 1}


def test_pods_of_a_queued_job_are_a_gang(pods: Any) -> None:
    job = pods.job("optics/fit")
    task = job.tasks[0]
    assert (task.instances, task.gang, task.gpus, task.work, task.gpu_types) == (2, True, 2, 600, ("A100-80",))
    assert (job.priority, job.tenant) == (100, "optics-lq")
    assert (job.observed_start_s, job.eligible_s) == (70, 0)  # when its last pod was bound


def test_containers_and_side_cars_are_summed_and_init_containers_are_not(pods: Any) -> None:
    task = pods.job("optics/fit").tasks[0]
    assert (task.cpus, task.memory_gb) == (6, 16.5)  # 3.5 + 0.25 + side car 0.25 are less than the 6 of `fetch`


def test_limits_do_where_there_are_no_requests(pods: Any) -> None:
    task = pods.job("genes/lone").tasks[0]
    assert (task.gpus, task.cpus, task.memory_gb) == (4, 8, pytest.approx(64e9 / 2**30))
    assert pods.job("genes/lone").tenant == "genes"


def test_the_same_index_again_is_another_attempt(pods: Any) -> None:
    job = pods.job("optics/scan")
    assert (job.arrival_s, job.tasks[0].instances, job.tasks[0].work, job.observed_start_s) == (0, 1, 120, 420)
    assert pods.noted == {"attempts of pods were followed by another attempt": 2}


def test_a_pod_created_after_another_failed_is_its_next_attempt(pods: Any) -> None:
    task = pods.job("genes/try").tasks[0]
    assert (task.instances, task.work) == (1, 60)


def test_a_pod_created_after_another_was_evicted_is_its_next_attempt(
    read: Reading, samples: Path, tmp_path: Path
) -> None:
    items = json.loads((samples / "kubernetes" / "pods.json").read_text())["items"]
    pair = [item for item in items if item["metadata"]["name"] in ("try-x", "try-y")]
    pair[0]["status"]["reason"] = "Evicted"
    (tmp_path / "pods.json").write_text(json.dumps(pair, indent=4))
    (task,) = read(tmp_path / "pods.json").jobs[0].tasks
    assert (task.instances, task.work) == (1, 60)


def test_an_evicted_pod_is_kept_where_what_is_partial_is(read: Reading, samples: Path) -> None:
    got = read(samples / "kubernetes" / "pods.json", keep_partial=True)
    assert got.job("genes/lost").tasks[0].work == 55


def test_pulling_an_image_counts_if_it_is_asked_to(read: Reading, samples: Path) -> None:
    got = read(samples / "kubernetes" / "pods.json", count_pull=True)
    assert got.job("genes/lone").tasks[0].work == 70


def test_shares_of_a_gpu_are_kept_where_it_is_said_of_what(read: Reading, samples: Path) -> None:
    got = read(samples / "kubernetes" / "pods.json", mig=True, shards=4)
    assert got.job("genes/slice").tasks[0].gpus == pytest.approx(2 / 7)
    assert got.job("genes/timeslice").tasks[0].gpus == 0.25


def test_pods_without_a_gpu_may_be_given_one(read: Reading, samples: Path) -> None:
    assert read(samples / "kubernetes" / "pods.json", gpus_per_task=1).job("genes/cpu-only").tasks[0].gpus == 1


def test_a_workload_gives_admission_and_end_exactly(workloads: Any) -> None:
    job = workloads.job("optics/fit")
    task = job.tasks[0]
    assert (task.instances, task.gang, task.gpus, task.work) == (2, True, 2, 660)
    assert (job.arrival_s, job.observed_start_s, job.tenant) == (0, 60, "optics-lq")
    assert workloads.dropped == {"of jobs that outlive the trace": 1, "that never ran": 1}


def test_pod_sets_are_tasks(workloads: Any) -> None:
    tasks = workloads.job("optics/mpi").tasks
    assert [(task.instances, task.gpus, task.cpus) for task in tasks] == [(1, 2, 3.5), (3, 1, 1)]


def test_a_folder_joins_pods_workloads_and_events(read: Reading, samples: Path) -> None:
    got = read(samples / "kubernetes" / "cluster")
    assert [(job.id, job.observed_start_s) for job in got.jobs] == [("optics/fit", 60), ("genes/bare", 132.5)]
    assert dict(got.trace.report.skipped) == {"of events": 2, "of pods that belong to a workload": 1}


def test_a_plain_list_and_one_object_a_line_are_read_alike(
    read: Reading, samples: Path, tmp_path: Path, pods: Any
) -> None:
    items = json.loads((samples / "kubernetes" / "pods.json").read_text())["items"]
    (tmp_path / "list.json").write_text(json.dumps(items, indent=4))
    (tmp_path / "lines.json").write_text("\n".join(map(json.dumps, items)))
    assert read(tmp_path / "list.json").jobs == read(tmp_path / "lines.json").jobs == pods.jobs


@pytest.mark.parametrize(
    ("amount", "value"),
    [
        ("7500m", 7.5),
        ("64Gi", 2**36),
        ("64G", 64e9),
        ("1e9", 1e9),
        ("3k", 3000),
        ("250u", 2.5e-4),
        (4, 4),
        ("0.5", 0.5),
    ],
)
def test_quantities_have_units_of_1000_and_of_1024(amount: Any, value: float) -> None:
    assert quantity(amount) == pytest.approx(value)


@pytest.mark.parametrize("amount", ["", "1 G", "x", "-1", None, True, "1ki", "9" * 400, "1e999"])
def test_what_is_no_quantity_is_refused(amount: Any) -> None:
    with pytest.raises(Dirty):
        quantity(amount)


def test_thousandths_of_a_gpu_are_a_share() -> None:
    spec = {"containers": [{"resources": {"limits": {"alibabacloud.com/gpu-milli": "250"}}}]}
    assert pod_demand(spec).share == 0.25


def test_a_required_affinity_restricts_the_type() -> None:
    match = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-L4", "Tesla-T4"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [match]}]}
    assert wanted_type({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}) == (
        "NVIDIA-L4",
        "Tesla-T4",
    )


@pytest.mark.data
def test_the_hand_written_samples_give_what_was_expected_of_them(read: Reading, data: Path) -> None:
    folder = data / "traces" / "intake-samples"
    (job,) = read(folder / "kueue-workloads.json").jobs
    task = job.tasks[0]
    assert (task.instances, task.gpus, task.work, job.observed_start_s) == (2, 4, 7270, 20)
    got = read(folder / "kubectl-pods.json", keep_partial=True)
    (job,) = got.jobs
    first, second = job.tasks  # the second pod asks for other cores and memory
    assert (first.cpus, first.memory_gb, first.work, second.gpus) == (pytest.approx(7.6), 64.125, 7208, 4)
    assert got.dropped == {"that never ran": 1}
    assert dict(got.trace.report.skipped) == {"of daemon sets": 1}


@pytest.mark.parametrize(
    ("asked", "request_"),
    [
        ({"required": "cloud.provider.com/topology-rack"}, Request(level="rack")),
        ({"preferred": "kubernetes.io/hostname"}, Request(level="host", level_required=False)),
        (
            {"podSetSliceRequiredTopology": "x.io/topology-block", "podSetSliceSize": 2},
            Request(level="block", segment=2),
        ),
        ({"unconstrained": True}, None),
    ],
)
def test_levels_that_kueue_is_asked_for_are_terms_of_the_job(
    asked: dict[str, Any], request_: Request | None, read: Reading, tmp_path: Path
) -> None:
    times = [("Admitted", "2026-01-01T00:01:00Z"), ("Finished", "2026-01-01T01:00:00Z")]
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "n", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "podSets": [
                {
                    "name": "main",
                    "count": 4,
                    "template": {"spec": {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "8"}}}]}},
                    "topologyRequest": asked,
                }
            ]
        },
        "status": {
            "conditions": [{"type": kind, "status": "True", "lastTransitionTime": time} for kind, time in times]
        },
    }
    file = tmp_path / "workloads.json"
    file.write_text(json.dumps({"kind": "List", "items": [workload]}, indent=1))
    (job,) = read(file).jobs
    assert job.request == request_


def test_a_job_arrives_with_its_first_pod_even_before_its_workload(
    read: Reading, samples: Path, tmp_path: Path
) -> None:
    pods, workloads = (
        json.loads((samples / "kubernetes" / name).read_text())["items"] for name in ("pods.json", "workloads.json")
    )
    pod, workload = pods[0], workloads[0]
    lone = next(item for item in pods if item["metadata"]["name"] == "lone")
    for item, minute in ((pod, "09:00"), (lone, "09:01"), (workload, "09:02")):
        item["metadata"]["creationTimestamp"] = f"2026-01-05T{minute}:00Z"
    (tmp_path / "objects.json").write_text(json.dumps({"items": [pod, lone, workload]}))
    jobs = read(tmp_path / "objects.json", format="kubernetes").jobs
    assert [(job.id, job.arrival_s) for job in jobs] == [("optics/fit", 0), ("genes/lone", 60)]


def waiting(name: str = "p", **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "registry.example/a:1", "resources": {"requests": {"nvidia.com/gpu": "1"}}}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "lab", "labels": {"app": "db"}, "uid": name,
                     "creationTimestamp": "2026-05-01T10:00:00Z"},
        "spec": {"containers": [container]} | spec,
        "status": {"phase": "Pending"},
    }  # fmt: skip


def manifest_of(read: Reading, folder: Path, *objects: Any) -> Any:
    (folder / "now.json").write_text(json.dumps({"kind": "List", "items": objects}))
    (job,) = read(folder / "now.json", format="kubernetes-now").jobs
    return job.priority, json.loads(job.tasks[0].manifest)


def test_a_pod_carries_what_other_objects_decide_about_it(read: Reading, tmp_path: Path) -> None:
    around = {"namespace": "lab", "name": "x"}
    namespaced = {"topologyKey": "zone", "labelSelector": {}, "namespaceSelector": {"matchLabels": {"team": "a"}}}
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": [namespaced]}
    priority, manifest = manifest_of(
        read,
        tmp_path,
        {"kind": "Service", "metadata": around, "spec": {"clusterIP": "None", "selector": {"app": "db"}}},
        {"kind": "Service", "metadata": {"name": "x"}, "spec": {"selector": {"app": "db", "elsewhere": "yes"}}},
        {"kind": "PodDisruptionBudget", "metadata": around, "spec": {"selector": {"matchLabels": {"app": "db"}}},
         "status": {"disruptionsAllowed": 2}},
        {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 70, "preemptionPolicy": "Never"},
        {"kind": "Namespace", "metadata": {"name": "other", "labels": {"team": "a"}}},
        waiting(priorityClassName="high", affinity={"podAffinity": terms}),
    )  # fmt: skip
    assert priority == 70
    assert manifest["resolved"] == {"services": {"app": "db"}, "budgets": {"lab/x": 2}}
    assert manifest["metadata"] == {"labels": {"app": "db"}, "namespace": "lab"}
    assert manifest["spec"]["preemptionPolicy"] == "Never"
    (term,) = manifest["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term == {"topologyKey": "zone", "labelSelector": {}, "namespaces": ["other"]}


def test_nominations_and_deletions_are_states_of_a_pod(read: Reading, tmp_path: Path) -> None:
    pod = waiting()
    pod["status"]["nominatedNodeName"] = "n1"
    assert manifest_of(read, tmp_path, pod)[1]["resolved"] == {"nominated": "n1"}
    leaving = waiting(nodeName="n1")
    leaving["metadata"]["deletionTimestamp"] = "2026-05-01T10:00:31Z"
    assert manifest_of(read, tmp_path, leaving)[1]["resolved"] == {"terminating": True}


@pytest.mark.parametrize(
    "context",
    [
        PodContext({}, {}, "", False),
        PodContext({"app": "db"}, {"lab/x": 0}, "n1", True),
    ],
)
def test_a_manifest_contains_the_context_of_a_pod(context: PodContext) -> None:
    assert PodContext.of({"spec": {}} | context.part()) == context


def test_what_is_not_modelled_of_a_pod_is_noted(read: Reading, tmp_path: Path) -> None:
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    pods = [
        waiting("a", volumes=[claim]),
        waiting("b", resourceClaims=[{"name": "gpu"}]),
        waiting("c", schedulerName="x"),
    ]
    (tmp_path / "now.json").write_text(json.dumps({"kind": "List", "items": pods}))
    assert read(tmp_path / "now.json", format="kubernetes-now").noted == {
        "pods request volumes (claims), which may tie pods to nodes: not modelled": 1,
        "pods request device claims (DRA): not modelled": 1,
        "pods request the scheduler 'x': not modelled": 1,
    }


def test_an_accelerator_that_does_not_count_as_a_gpu_is_noted(read: Reading, tmp_path: Path) -> None:
    pod = waiting("a")
    pod["spec"]["containers"][0]["resources"] = {"limits": {"huawei.com/Ascend310P": "2", "rdma/hca": "1"}}
    (tmp_path / "now.json").write_text(json.dumps({"kind": "List", "items": [pod]}))
    (note,) = read(tmp_path / "now.json", format="kubernetes-now").noted
    assert (
        note == "pods request huawei.com/Ascend310P, which is not one of the resources that count as GPUs: not modelled"
    )


def test_items_of_a_list_of_one_kind_need_none_of_their_own(read: Reading, tmp_path: Path) -> None:
    pod = waiting()
    del pod["kind"]
    (tmp_path / "now.json").write_text(json.dumps({"kind": "PodList", "items": [pod]}))
    assert [job.id for job in read(tmp_path / "now.json", format="kubernetes-now").jobs] == ["lab/p"]


def test_a_pod_that_was_restarted_often_ran_since_it_started(read: Reading, tmp_path: Path) -> None:
    def over(name: str, restarts: int, **before: Any) -> dict[str, Any]:
        pod = waiting(name)
        last = {"terminated": {"startedAt": "2026-05-01T12:00:00Z", "finishedAt": "2026-05-01T12:10:00Z"}}
        status = {"name": "main", "restartCount": restarts, "state": last} | before
        pod["status"] = {"phase": "Succeeded", "startTime": "2026-05-01T10:05:00Z", "containerStatuses": [status]}
        return pod

    first = {"terminated": {"startedAt": "2026-05-01T11:00:00Z", "finishedAt": "2026-05-01T11:30:00Z"}}
    pods = [over("once", 0), over("twice", 1, lastState=first), over("often", 4, lastState=first)]
    (tmp_path / "pods.json").write_text(json.dumps({"kind": "List", "items": pods}))
    jobs = {job.id: job.tasks[0].work for job in read(tmp_path / "pods.json").jobs}
    assert jobs == {"lab/once": 600, "lab/twice": 4200, "lab/often": 7500}


def test_a_pod_whose_gpus_are_in_a_claim_contradicts_itself(read: Reading, tmp_path: Path) -> None:
    claims = waiting("a", resourceClaims=[{"name": "gpu"}])
    claims["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    (tmp_path / "now.json").write_text(json.dumps({"kind": "List", "items": [claims, waiting("b")]}))
    report = read(tmp_path / "now.json", format="kubernetes-now").trace.report
    assert report.contradictions["text"].count == 1
