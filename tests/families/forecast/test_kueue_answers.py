"""What ``eta``, ``why`` and ``whatif`` say about Kueue's objects as ``kubectl`` prints them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.command_line import fine, invoke, json_of

GROUP = "kueue.x-k8s.io/v1beta2"


def cluster_queue(name: str, cpus: int, **spec: Any) -> dict[str, Any]:
    quota = {"name": "cpu", "nominalQuota": cpus} | spec.pop("quota", {})
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "spot", "resources": [quota]}]}]
    spec = {"cohortName": "lab", "resourceGroups": groups, "namespaceSelector": {}} | spec
    return {"apiVersion": GROUP, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}


def local_queue(name: str, queue: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "bio"}
    return {"apiVersion": GROUP, "kind": "LocalQueue", "metadata": metadata, "spec": {"clusterQueue": queue} | spec}


def workload(
    name: str, queue: str, minute: int, *pod_sets: tuple[str, int, int], runs_since: int | None = None, **spec: Any
) -> dict[str, Any]:
    """A workload with pod sets of a name, a number of pods and the CPUs of each."""
    created, sets, assigned = f"2026-04-01T09:{minute:02}:00Z", [], []
    for label, count, cpus in pod_sets or (("main", 1, 4),):
        container = {"name": "c", "resources": {"requests": {"cpu": str(cpus)}}}
        least = {"minCount": spec["least"]} if "least" in spec else {}
        sets.append({"name": label, "count": count, "template": {"spec": {"containers": [container]}}} | least)
        usage = {"cpu": str(count * cpus)}
        assigned.append({"name": label, "flavors": {"cpu": "spot"}, "resourceUsage": usage, "count": count})
    status: dict[str, Any] = {}
    if runs_since is not None:
        since = {"status": "True", "lastTransitionTime": f"2026-04-01T09:{runs_since:02}:00Z"}
        conditions = [{"type": "QuotaReserved"} | since, {"type": "Admitted"} | since]
        status = {"admission": {"clusterQueue": spec["of"], "podSetAssignments": assigned}, "conditions": conditions}
    return {
        "apiVersion": GROUP, "kind": "Workload",
        "metadata": {"name": name, "namespace": "bio", "uid": name, "creationTimestamp": created},
        "spec": {"queueName": queue, "priority": spec.get("priority", 0), "podSets": sets,
                 "maximumExecutionTimeSeconds": spec.get("seconds", 3600)},
        "status": status,
    }  # fmt: skip


FLAVOR = {"apiVersion": GROUP, "kind": "ResourceFlavor", "metadata": {"name": "spot"}, "spec": {}}
QUEUES = [
    FLAVOR,
    cluster_queue("chem", 10, quota={"borrowingLimit": 2}, queueingStrategy="StrictFIFO"),
    cluster_queue("phys", 10, preemption={"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}),
    cluster_queue("idle", 4, stopPolicy="Hold"),
    local_queue("c", "chem"),
    local_queue("p", "phys"),
    local_queue("i", "idle"),
]


def dump(folder: Path, *workloads: dict[str, Any], queues: list[dict[str, Any]] = QUEUES) -> str:
    file = folder / "kueue.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*workloads, *queues]}, indent=1))
    return str(file)


def test_the_borrowing_limit_that_holds_a_workload_back_is_named_with_the_runs_that_free_it(tmp_path: Path) -> None:
    file = dump(
        tmp_path,
        workload("old", "c", 0, ("main", 2, 4), runs_since=1, of="chem", seconds=7200),
        workload("wide", "c", 10, ("main", 1, 5)),
        workload("next", "c", 11, ("main", 1, 1)),
    )
    answer = json_of("why", "bio/wide", "--state", file)
    message = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor spot, 1 more needed"
    assert f"waits for quota: {message}; it is number 1 of 2 in the ClusterQueue chem (StrictFIFO)" in answer["found"]
    (limit,) = answer["limits"]
    assert limit["detail"].endswith("its nominalQuota is 10, of which 8 are in use, and its borrowingLimit is 2")
    assert [one["job"] for one in answer["frees"]] == ["bio/old"]
    assert answer["start_by_limits_s"] == pytest.approx(7200 - 10 * 60 - 1)  # the snapshot is a second after 9:11
    behind = json_of("why", "bio/next", "--state", file)
    assert behind["reason"] == "Priority"
    assert "number 2 of 2 in the ClusterQueue chem (StrictFIFO), behind bio/wide, which waits: " in behind["found"]


def test_fewer_pods_or_gpus_are_tried_with_the_quota_that_they_need(tmp_path: Path) -> None:
    def gpus(one: dict[str, Any], each: int) -> dict[str, Any]:
        text = json.dumps(one).replace('"cpu"', '"nvidia.com/gpu"')
        return json.loads(text.replace('"nvidia.com/gpu": "1"', f'"nvidia.com/gpu": "{each}"'))  # type: ignore[no-any-return]

    queues = [gpus(one, 0) for one in (FLAVOR, cluster_queue("chem", 10), local_queue("c", "chem"))]
    old = gpus(workload("old", "c", 0, ("main", 6, 1), runs_since=1, of="chem", seconds=7200), 1)
    file = dump(tmp_path, old, gpus(workload("wide", "c", 10, ("main", 1, 1)), 8), queues=queues)
    answer = json_of("why", "bio/wide", "--state", file)
    starts = {one["change"]: one["median_s"] for one in answer["changes"]}
    assert starts["4 instead of 8 GPUs"] == 0 < answer["median_s"]
    smaller = dump(tmp_path, old, gpus(workload("wide", "c", 10, ("main", 1, 1)), 4), queues=queues)
    assert json_of("why", "bio/wide", "--state", smaller)["median_s"] == 0  # as suggested


def test_what_the_next_cycle_admits_starts_now_and_its_flavors_are_told(tmp_path: Path) -> None:
    file = dump(
        tmp_path,
        workload("old", "c", 0, runs_since=1, of="chem"),
        workload("first", "p", 5, ("driver", 1, 2), ("workers", 4, 2)),
        workload("second", "p", 6),
    )
    rows = {row["job"]: row for row in json_of("eta", "--state", file)["jobs"]}
    assert rows["bio/first"]["quantiles_s"]["q95"] == 0
    assert (rows["bio/first"]["waits_for"], rows["bio/first"]["within_1h"]) == ("the next cycles", 1)
    words = json_of("why", "bio/first", "--state", file)["sentence"]
    assert "admitted in the next scheduling cycle: 1 x driver, cpu in flavor spot; 4 x workers, cpu in flavor" in words
    shown = invoke("eta", "--state", file)
    assert " now " in shown.stdout


def test_the_targets_of_a_preemption_are_named_with_kueue_s_reason(tmp_path: Path) -> None:
    file = dump(
        tmp_path,
        workload("low", "p", 0, ("main", 1, 10), runs_since=1, of="phys"),
        workload("borrower", "c", 0, ("main", 1, 12), runs_since=2, of="chem"),
        workload("urgent", "p", 9, ("main", 1, 8), priority=5),
    )
    answer = json_of("why", "bio/urgent", "--state", file)
    assert answer["reason"] == "Preempting"
    assert "it preempts bio/low (InClusterQueue), and is admitted in scheduling cycle 2 from now" in answer["found"]


def test_a_head_that_can_never_be_admitted_says_how_many_it_blocks(tmp_path: Path) -> None:
    file = dump(tmp_path, workload("huge", "c", 0, ("main", 1, 13)), *[workload(f"w{n}", "c", n) for n in (1, 2)])
    answer = json_of("why", "bio/huge", "--state", file)
    assert answer["kind"] == "never"
    assert "current podset request (13) > maximum capacity (12)" in answer["found"]
    assert answer["found"].endswith("number 1 of 3 in the ClusterQueue chem (StrictFIFO), and blocks 2 behind it")
    forecast = json_of("eta", "--state", file)
    assert [one["job"] for one in forecast["no_forecast"]] == ["bio/huge"]
    assert all(row["median_s"] > 6e5 for row in forecast["jobs"])  # they never start: it blocks a StrictFIFO queue


@pytest.mark.parametrize(
    ("queue", "words"),
    [("i", "ClusterQueue idle is inactive (Stopped)"), ("x", "LocalQueue x or its ClusterQueue doesn't exist")],
)
def test_workloads_of_stopped_and_missing_queues_wait_for_a_person(tmp_path: Path, queue: str, words: str) -> None:
    file = dump(tmp_path, workload("w", queue, 0), workload("other", "p", 1))
    answer = json_of("why", "bio/w", "--state", file)
    assert answer["found"] == f"waits: {words}"
    assert answer["median_s"] is None


def test_pod_sets_are_admitted_together_and_fewer_pods_where_the_workload_allows_it(tmp_path: Path) -> None:
    queues = [FLAVOR, QUEUES[1], local_queue("c", "chem")]
    for least, waits in ((6, True), (3, False)):
        file = dump(
            tmp_path,
            workload("half", "c", 0, ("main", 1, 4), runs_since=1, of="chem", seconds=1800),
            workload("pair", "c", 5, ("main", 6, 1), ("more", 1, 3)) if waits else workload(
                "few", "c", 5, ("main", 9, 1), least=least),
            queues=queues,
        )  # fmt: skip
        (row,) = json_of("eta", "--state", file)["jobs"]
        assert (row["median_s"] > 60) == waits  # 6 are free: 9 do not fit, and of 9 pods 6 do


def test_a_queue_with_more_quota_is_an_alternative_with_who_gains_and_who_loses(tmp_path: Path) -> None:
    queues = [
        FLAVOR, cluster_queue("chem", 4), cluster_queue("phys", 4), local_queue("c", "chem"), local_queue("p", "phys"),
    ]  # fmt: skip
    old = workload("old", "p", 0, ("main", 1, 8), runs_since=1, of="phys", seconds=3600)
    file = dump(
        tmp_path, old, workload("gains", "c", 5, ("main", 1, 4)), workload("same", "p", 6, ("main", 1, 8)),
        queues=queues,
    )  # fmt: skip
    more = tmp_path / "more.json"
    more.write_text(json.dumps(cluster_queue("chem", 8)))
    less = tmp_path / "less.json"
    less.write_text(json.dumps(cluster_queue("phys", 0)))
    words = ["whatif", "--trace", file, "--format", "kubernetes-now", "--price", "none", "--alternative", str(more)]
    answer = json_of(*words, "--out", str(tmp_path / "results"))
    assert [(one["cluster"], one["policy"]) for one in answer["choices"]] == [
        ("today", "kueue"),
        ("more.json", "kueue"),
    ]
    (shift,) = answer["shifts"]
    jobs = {one["job"]: (one["today_s"], one["wait_s"]) for one in shift["jobs"]}
    # today all 8 CPUs are in use until 10:01, and with 12 there are 4 at once
    assert jobs["bio/gains"] == (56 * 60, pytest.approx(61))
    both = [*words, "--alternative", str(less), "--out", str(tmp_path / "again")]
    result = invoke(*both)
    assert "Most is gained by bio/same of p (6,900 s to 3,300 s), bio/gains of c (3,360 s to 61 s)." in result.stdout
    assert "Most is lost by bio/same of p (6,900 s to never)." in result.stdout
    same = tmp_path / "same.json"
    same.write_text(json.dumps(queues[1]))
    refused = invoke(*words[:-1], same)
    assert refused.exit_code == 2
    assert "the configuration already contains the same objects" in refused.stderr


def changed(folder: Path, text: str, *workloads: dict[str, Any], queues: list[dict[str, Any]] = QUEUES) -> Any:
    """Ask what a file of Kueue's objects would change; return what the command printed."""
    file = dump(folder, *(workloads or (workload("w", "c", 1), workload("v", "p", 2))), queues=queues)
    (folder / "new.yaml").write_text(text)
    words = ["whatif", "--trace", file, "--format", "kubernetes-now", "--price", "none", "--alternative",
             str(folder / "new.yaml"), "--out", str(folder / "results")]  # fmt: skip
    return invoke(*words)


CHEM = cluster_queue("chem", 20, quota={"borrowingLimit": 2}, queueingStrategy="StrictFIFO")


def varied(one: dict[str, Any], old: str, new: str) -> str:
    text = json.dumps(one)
    assert old in text
    return text.replace(old, new)


LOOP = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: lab}
spec: {parentName: top}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: top}
spec: {parentName: lab}
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("---\n---\n", "no manifest is a Kueue object; known kinds: ClusterQueue, Cohort"),
        ("kind: [", "new.yaml:2: invalid YAML"),
        ("- 5\n- [6]\n", "no manifest is a Kueue object"),
        ("just words", "no manifest is a Kueue object"),
        (json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}), "no manifest is a Kueue object"),
        (varied(CHEM, "kueue.x-k8s.io", "kueue.example.org"),
         "ClusterQueue 'chem': apiVersion must be kueue.x-k8s.io/v1beta2 or an older version, got 'kueue.example.org"),
        (varied(CHEM, GROUP, ""), "apiVersion must be kueue.x-k8s.io/v1beta2 or an older version, got ''"),
        (varied(CHEM, '"name": "chem"', '"title": "chem"'), "a ClusterQueue has no metadata.name"),
        (varied(CHEM, '"spot"', '"sport"'),
         "ClusterQueue 'chem': there is no ResourceFlavor 'sport'; did you mean 'spot'? Kueue would stop the queue"),
        (varied(CHEM, "nominalQuota", "nominalquota"), "ClusterQueue chem: 'cpu' has no nominalQuota"),
        (varied(CHEM, "20", '"many"'), "ClusterQueue chem: nominalQuota of cpu must be a quantity, got 'many'"),
        (varied(CHEM, "20", "-1"), "nominalQuota of cpu must be a quantity, got -1"),
        (varied(CHEM, "StrictFIFO", "FIFO"), "queueingStrategy must be one of BestEffortFIFO, StrictFIFO, got 'FIFO'"),
        (f"---\n{json.dumps(CHEM)}\n---\n{varied(CHEM, '20', '30')}", "ClusterQueue 'chem' occurs twice"),
        (LOOP, "Cohort 'lab': the cohort is its own ancestor (lab > top > lab)"),
        (json.dumps(local_queue("x", "none")), "LocalQueue 'bio/x': there is no ClusterQueue 'none'"),
        (json.dumps(QUEUES[1]), "the configuration already contains the same objects"),
    ],
)  # fmt: skip
def test_a_file_of_objects_that_cannot_be_meant_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    result = changed(tmp_path, text)
    assert (result.exit_code, result.stdout) == (2, "")
    said = " ".join(result.stderr.split())
    assert message in said
    assert "new.yaml" in said
    assert not (tmp_path / "results").exists()


HOSTILE = "x\x1b[31m[bold]/../../<script>{0}%s"


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (varied(CHEM, '"chem"', '"chemi"'),
         "the ClusterQueue 'chemi' does not exist today, and no LocalQueue leads to it, so that no workload uses it; "
         "did you mean 'chem'?"),
        (json.dumps({**CHEM, "metadata": {"name": HOSTILE}}), f"the ClusterQueue {HOSTILE!r} does not exist today"),
        (varied(CHEM, '"lab"', '"lap"'),
         "the Cohort 'lap' does not exist today, and its members are chem; did you mean 'lab'?"),
        (varied(CHEM, "v1beta2", "v1beta3"),
         "ClusterQueue 'chem': the version 'v1beta3' is unknown, and read as v1beta2"),
        (varied(CHEM, "borrowingLimit", "borrowinglimit"), "ClusterQueue 'chem': not modelled: borrowinglimit"),
        (varied(CHEM, '"namespaceSelector"', '"concurrentAdmission"'), "'chem': not modelled: concurrentAdmission"),
        (f"---\n{json.dumps(CHEM)}\n---\n{json.dumps(workload('w', 'c', 1))}", "1 Workload ignored: only the kinds"),
        (json.dumps(local_queue("c", "phys") | {"metadata": {"name": "c"}}),
         "the LocalQueue 'c' does not exist today, and it has no namespace"),
        (f"---\n{json.dumps(FLAVOR | {'metadata': {'name': 'new'}})}\n---\n{varied(CHEM, 'spot', 'new')}",
         "the ResourceFlavor 'new' does not exist today, so its pods may use every GPU type"),
    ],
)  # fmt: skip
def test_what_is_doubtful_in_a_file_of_objects_stands_above_the_answer(tmp_path: Path, text: str, note: str) -> None:
    result = changed(tmp_path, text)
    assert result.exit_code == 0
    assert note in result.stderr
    assert "\x1b[31m" not in result.output
    assert "new.yaml under kueue: " in result.stdout


def test_a_cohort_and_a_local_queue_are_alternatives_too(tmp_path: Path) -> None:
    old = workload("old", "p", 0, ("main", 1, 10), runs_since=1, of="phys")
    waits = workload("waits", "c", 5, ("main", 1, 16))
    own = [
        {"coveredResources": ["cpu"], "flavors": [{"name": "spot", "resources": [{"name": "cpu", "nominalQuota": 9}]}]}
    ]
    lab = {"apiVersion": GROUP, "kind": "Cohort", "metadata": {"name": "lab"}, "spec": {"resourceGroups": own}}
    queues = [one for one in QUEUES if one["metadata"]["name"] != "chem"]
    queues.append(cluster_queue("chem", 10, quota={"borrowingLimit": 8}))
    result = changed(tmp_path, json.dumps(lab), old, waits, queues=queues)
    assert "the Cohort 'lab' does not exist today" not in result.stderr  # its members mention it
    assert "Most is gained by bio/waits" in result.stdout
    moved = changed(tmp_path, json.dumps(local_queue("c", "idle")), old, workload("waits", "c", 5), queues=QUEUES)
    assert "Most is lost by bio/waits" in moved.stdout


def test_stopped_and_missing_queues_stay_as_they_are_unless_the_file_changes_them(tmp_path: Path) -> None:
    held, lost = workload("held", "i", 1), workload("lost", "x", 2)
    stopped = changed(tmp_path, json.dumps(CHEM), held, lost, workload("w", "c", 3))
    assert "LocalQueue bio/x, which is in no file, so that they are never admitted" in stopped.stderr
    assert "today, kueue: job 'bio/held' waits, because stopPolicy is Hold (ClusterQueue 'idle', 1" in stopped.stdout
    assert (
        "today, kueue: job 'bio/lost' waits for LocalQueue 'bio/x', which does not exist (1 waiting)" in stopped.stdout
    )
    opened = changed(tmp_path, json.dumps(cluster_queue("idle", 4)), held, lost)
    assert "Most is gained by bio/held of i (never to " in opened.stdout
    closed = changed(tmp_path, json.dumps(cluster_queue("chem", 10, stopPolicy="Hold")), workload("w", "c", 3))
    assert "Most is lost by bio/w of c (" in closed.stdout


def test_settings_that_are_not_modelled_are_counted_by_workloads(tmp_path: Path) -> None:
    gated = workload("gated", "c", 1)
    gated["spec"]["preemptionGates"] = [{"name": "other.example/gate"}]
    queues = [*QUEUES, cluster_queue("odd", 1, admissionChecksStrategy={"admissionChecks": [{"name": "x"}]})]
    newer = local_queue("o", "odd") | {"apiVersion": "kueue.x-k8s.io/v2"}
    file = dump(tmp_path, gated, workload("lost", "x", 2), newer, workload("o", "o", 3), queues=queues)
    result = invoke("site", "import", file, "--out", tmp_path / "site.yaml")
    for line in (
        "not modelled: nodes: no file lists them",
        "not modelled: apiVersion 'v2': unknown, and read as v1beta2",
        "not modelled: ClusterQueue odd: admissionChecksStrategy (1 of 3 workloads)",
        "not modelled: Workload: preemptionGates (1 of 3 workloads)",
        "not modelled: Workload: LocalQueue bio/x, which is in no file, so that they are never admitted (1 of 3",
    ):
        assert line in result.stdout


TOPOLOGY = [
    {"apiVersion": GROUP, "kind": "Topology", "metadata": {"name": "rows"},
     "spec": {"levels": [{"nodeLabel": "lab/row"}, {"nodeLabel": "kubernetes.io/hostname"}]}},
    FLAVOR | {"spec": {"nodeLabels": {"lab/pool": "yes"}, "topologyName": "rows"}},
    *[
        {"apiVersion": "v1", "kind": "Node",
         "metadata": {"name": name, "labels": {"lab/pool": "yes", "lab/row": row, "kubernetes.io/hostname": name}},
         "spec": {}, "status": {"allocatable": {"cpu": "8", "memory": "64Gi", "pods": "110"}}}
        for name, row in (("east1", "east"), ("east2", "east"), ("west1", "west"))
    ],
]  # fmt: skip


def placed(one: dict[str, Any], **pods: int) -> dict[str, Any]:
    """A workload that runs with these numbers of pods on each node."""
    (assigned,) = one["status"]["admission"]["podSetAssignments"]
    assigned["topologyAssignment"] = {"levels": ["kubernetes.io/hostname"], "slices": [{
        "domainCount": len(pods), "valuesPerLevel": [{"individual": {"roots": list(pods)}}],
        "podCounts": {"individual": list(pods.values())}}]}  # fmt: skip
    return one


def with_topology(strategy: str) -> list[dict[str, Any]]:
    queue = cluster_queue("rowing", 99, queueingStrategy=strategy)
    return [*TOPOLOGY, queue, local_queue("r", "rowing")]


@pytest.mark.parametrize("strategy", ["StrictFIFO", "BestEffortFIFO"])
def test_a_head_that_no_topology_can_hold_blocks_its_queue_only_under_strict_fifo(
    tmp_path: Path, strategy: str
) -> None:
    wide, later = workload("wide", "r", 1, ("main", 9, 4)), workload("later", "r", 2, ("main", 1, 4))
    file = dump(tmp_path, wide, later, queues=with_topology(strategy))
    answer = json_of("eta", "--state", file)
    rows = {row["job"]: row for row in answer["jobs"]}
    assert set(rows) == {"bio/later"}
    (without,) = answer["no_forecast"]
    assert without["job"] == "bio/wide"
    assert 'topology "rows" allows to fit only 6 out of 9 pod(s)' in without["why"]
    if strategy == "BestEffortFIFO":
        assert rows["bio/later"]["median_s"] == 0
        return
    assert rows["bio/later"]["median_s"] > 6e5  # never
    assert "behind bio/wide" in json_of("why", "bio/later", "--state", file)["found"]
    assert "allows to fit only 6 out of 9" in json_of("why", "bio/wide", "--state", file)["found"]
    site = tmp_path / "site.yaml"
    words = ["site", "import", file, "-o", str(site)]
    fine(*words)
    words = ["eval", "--config", str(site), "--workload", file, "--format", "kubernetes-now", "--policy", "kueue"]
    result = fine(*words, "--out", tmp_path / "out")
    blocked = "job 'bio/wide' can never be admitted, and blocks 1 behind it (ClusterQueue 'rowing'"
    assert blocked in " ".join(result.output.split())


def test_pods_that_run_are_on_the_nodes_that_kueue_assigned_in_its_numbers(tmp_path: Path) -> None:
    spread = placed(workload("spread", "r", 1, ("main", 4, 2), runs_since=2, of="rowing"), east1=1, east2=3)
    fits = workload("fits", "r", 5, ("main", 3, 2))  # room: 6, 2 and 8 CPUs
    fits["spec"]["podSets"][0]["topologyRequest"] = {"required": "kubernetes.io/hostname"}
    file = dump(tmp_path, spread, fits, queues=with_topology("StrictFIFO"))
    (row,) = json_of("eta", "--state", file)["jobs"]
    assert (row["job"], row["quantiles_s"]["q95"]) == ("bio/fits", 0)


# Lists that are not whole.


def refused(file: str) -> str:
    result = invoke("eta", "--state", file)
    assert result.exit_code == 2
    return result.output


RUNS = workload("old", "c", 0, ("main", 1, 10), runs_since=1, of="chem")


def test_workloads_without_a_cluster_queue_are_an_error(tmp_path: Path) -> None:
    file = dump(tmp_path, RUNS, queues=[FLAVOR, local_queue("c", "chem")])
    assert "no file contains a ClusterQueue, only 1 LocalQueue, 1 ResourceFlavor, 1 Workload" in refused(file)


def test_objects_of_two_clusters_are_an_error_but_the_same_object_twice_is_not(tmp_path: Path) -> None:
    other = cluster_queue("chem", 11, quota={"borrowingLimit": 2}, queueingStrategy="StrictFIFO")
    assert "ClusterQueue 'chem' is listed twice, as different objects" in refused(dump(tmp_path, RUNS, other))
    waits = workload("wide", "c", 10, ("main", 1, 5))
    answer = json_of("eta", "--state", dump(tmp_path, RUNS, waits, queues=[*QUEUES, *QUEUES]))
    assert [row["job"] for row in answer["jobs"]] == ["bio/wide"]


def test_a_flavor_that_is_in_no_file_takes_every_workload(tmp_path: Path) -> None:
    queues = [one for one in QUEUES if one is not FLAVOR]
    (row,) = json_of("eta", "--state", dump(tmp_path, RUNS, workload("w", "p", 9), queues=queues))["jobs"]
    assert row["quantiles_s"]["q95"] == 0
    gpus = [json.loads(json.dumps(one).replace('"spot"', '"h100"').replace('"cpu"', '"nvidia.com/gpu"'))
            for one in (*queues, workload("w", "p", 9))]  # fmt: skip
    (row,) = json_of("eta", "--state", dump(tmp_path, queues=gpus))["jobs"]
    assert row["quantiles_s"]["q95"] == 0


def test_a_run_of_a_queue_that_is_in_no_file_holds_no_quota_of_another_queue(tmp_path: Path) -> None:
    queues = [FLAVOR, cluster_queue("phys", 10), local_queue("c", "chem"), local_queue("p", "phys")]
    file = dump(tmp_path, RUNS, workload("w", "p", 9, ("main", 1, 10)), workload("lost", "c", 10), queues=queues)
    rows = {row["job"]: row for row in json_of("eta", "--state", file)["jobs"]}
    assert rows["bio/w"]["quantiles_s"]["q95"] == 0
    assert rows["bio/lost"]["waits_for"] == "LocalQueue c or its ClusterQueue doesn't exist"


def test_a_workload_that_finished_without_an_admission_does_not_wait(tmp_path: Path) -> None:
    gone = workload("gone", "p", 8)
    since = {"status": "True", "lastTransitionTime": "2026-04-01T09:09:00Z"}
    gone["status"] = {"conditions": [{"type": "Finished", **since}]}
    answer = json_of("eta", "--state", dump(tmp_path, RUNS, gone, workload("w", "p", 9)))
    assert [row["job"] for row in answer["jobs"]] == ["bio/w"]
