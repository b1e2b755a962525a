"""The state of a cluster at one instant, from its scheduler: what runs on, what waits, what follows."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.command_line import fine, invoke, json_of
from support.log_reading import ends, starts

from dagsim.model import Cluster, Node, gpu_type
from dagsim.model.log import Schedule
from dagsim.report.tables import workload_notes
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import drive
from dagsim.traces.trace_file import TraceFile

NOW_S = 1_760_000_000
A100 = gpu_type("A100-40")
CLUSTER = Cluster(tuple(Node(f"gpu{number:02d}", A100, 4, cpus=64, memory_gb=512) for number in (1, 2)))


def number(value: int | None) -> dict[str, Any]:
    return {"set": value is not None, "infinite": False, "number": value or 0}


def most(tasks: int) -> dict[str, Any]:
    """The limit of an array."""
    return {"array_max_tasks": number(tasks)}


def slurm_job(
    id: int,
    state: str,
    gpus: int,
    since: int | None,
    limit_min: int | None,
    nodes: str = "",
    count: int = 1,
    **more: Any,
) -> dict[str, Any]:
    """A job as v0.0.40 prints it, submitted an hour ago."""
    tres = f"cpu={4 * gpus},mem={8 * gpus}G,node={count},billing=1,gres/gpu={gpus},gres/gpu:a100={gpus}"
    return {
        "job_id": id,
        "array_job_id": number(0),
        "array_task_id": number(None),
        "array_task_string": "",
        "het_job_id": number(0),
        "het_job_offset": number(0),
        "account": "physics",
        "user_name": "ada",
        "partition": "gpu",
        "qos": "normal",
        "job_state": [state],
        "state_reason": "None" if nodes else "Resources",
        "submit_time": number(NOW_S - 3600 + id),
        "eligible_time": number(NOW_S - 3600 + id),
        "start_time": number(None if since is None else NOW_S - since),
        "time_limit": number(limit_min) if limit_min else {"set": False, "infinite": True, "number": 0},
        "node_count": number(count),
        "cpus": number(4 * gpus),
        "nodes": nodes,
        "tres_req_str": tres,
        "tres_alloc_str": tres if nodes else "",
        "tres_per_node": f"gres:gpu:a100:{gpus // count}",
        **more,
    }


def squeue(folder: Path, *jobs: dict[str, Any]) -> Path:
    path = folder / "squeue.json"
    meta = {"plugin": {"data_parser": "data_parser/v0.0.40"}}
    path.write_text(
        json.dumps({"jobs": jobs, "last_backfill": number(NOW_S - 9), "last_update": number(NOW_S), "meta": meta})
    )
    return path


def starts_after(schedule: Schedule) -> dict[str, tuple[float, list[int]]]:
    """When each job starts after the beginning, and on which nodes."""
    return {
        job: (placed[0][0] - schedule.begins_s, [node for _, node in placed])
        for job, placed in starts(schedule).items()
    }


def play(path: Path, policy: str = "fifo", format: str | None = None) -> Schedule:
    return drive(ClusterScenario(CLUSTER, TraceFile(str(path), format)).kernel(0), POLICIES.create(policy))


def test_running_jobs_hold_their_nodes_until_their_limits_and_waiting_jobs_follow(tmp_path: Path) -> None:
    path = squeue(
        tmp_path,
        slurm_job(1, "RUNNING", 4, 1000, 60, "gpu02"),  # 2,600 s are left
        slurm_job(2, "RUNNING", 2, 3000, 60, "gpu01"),  # 600 s are left
        slurm_job(3, "PENDING", 8, None, 10, count=2),
        slurm_job(4, "PENDING", 2, None, 5),
    )
    schedule = play(path)
    assert schedule.begins_s == 3600 - 1  # the first job was submitted then
    assert starts_after(schedule) == {
        "1": (-1000, [1]),
        "2": (-3000, [0]),
        "3": (2600, [0, 1]),
        "4": (2600 + 600, [0]),
    }
    ended = {job: end_s - schedule.begins_s for job, end_s in ends(schedule).items()}
    assert ended == {"2": 600, "1": 2600, "3": 3200, "4": 3500}
    assert starts_after(play(path, "easy"))["4"] == (0, [0])  # it ends before the other two free their nodes


def test_an_array_waits_as_its_tasks_and_held_or_ending_jobs_do_not_count(tmp_path: Path) -> None:
    path = squeue(
        tmp_path,
        slurm_job(10, "PENDING", 1, None, 5, array_job_id=number(10), array_task_string="1-3,8%2"),
        slurm_job(11, "PENDING", 1, None, 5, state_reason="JobHeldUser"),
        slurm_job(12, "PENDING", 1, None, 5, state_reason="Dependency"),
        slurm_job(13, "COMPLETED", 1, 100, 5, "gpu01", job_state=["COMPLETED", "COMPLETING"]),
        slurm_job(14, "RUNNING", 1, 900, 10, "gpu01"),  # beyond its limit
        slurm_job(15, "RUNNING", 1, 900, None, "gpu01"),
    )
    schedule = play(path)
    assert sorted(starts_after(schedule)) == ["10_1", "10_2", "10_3", "10_8", "14", "15"]
    ended = {job: end_s - schedule.begins_s for job, end_s in ends(schedule).items()}
    assert ended["14"] == 60
    assert ended["15"] == 365 * 86400 - 900
    trace = TraceFile(str(path)).as_recorded()
    list(trace.jobs())
    assert dict(trace.report.skipped) == {
        "that are held": 1,
        "that wait for other jobs": 1,
        "of jobs that are ending": 1,
    }
    assert trace.report.rows == 9


def test_a_snapshot_of_another_cluster_is_a_warning(tmp_path: Path) -> None:
    path = squeue(tmp_path, slurm_job(1, "RUNNING", 1, 1000, 60, "fpga7"), slurm_job(2, "RUNNING", 1, 9, 60, "gpu01"))
    scenario = ClusterScenario(CLUSTER, TraceFile(str(path)))
    jobs = scenario.jobs(0)
    beginning = jobs.at_beginning()
    assert (beginning.running, beginning.elsewhere, beginning.unknown_nodes) == (2, 1, ["fpga7"])
    notes = workload_notes([jobs.facts()])
    assert any(
        note.startswith("warning: 1 job that ran then was on nodes that the cluster lacks (fpga7)") for note in notes
    )


def test_jobs_of_a_snapshot_wait_for_those_that_they_depend_on(tmp_path: Path) -> None:
    waits = {"state_reason": "Dependency", "eligible_time": number(0)}
    path = squeue(
        tmp_path,
        slurm_job(1, "RUNNING", 1, 1000, 60, "gpu01"),  # 2600 s are left
        slurm_job(2, "PENDING", 1, None, 5, dependency="afterok:1(unfulfilled)", **waits),
        slurm_job(3, "PENDING", 1, None, 5, dependency="after:2+2(unfulfilled)", **waits),
        slurm_job(4, "RUNNING", 1, 100, 5, "gpu01", name="night"),
        slurm_job(5, "PENDING", 1, None, 5, dependency="singleton(unfulfilled)", name="night", **waits),
        slurm_job(6, "PENDING", 1, None, 5, state_reason="JobHeldUser"),
        slurm_job(7, "PENDING", 1, None, 5, dependency="afterany:6(unfulfilled)", **waits),
        slurm_job(8, "PENDING", 1, None, 5, dependency="afterany:7(unfulfilled)", **waits),
        slurm_job(9, "PENDING", 1, None, 5, dependency="afterok:99(failed)", state_reason="DependencyNeverSatisfied"),
        slurm_job(10, "RUNNING", 1, 0, 1, "gpu01", array_job_id=number(10), array_task_id=number(0), **most(1)),
        slurm_job(11, "PENDING", 1, None, 1, array_job_id=number(10), array_task_string="1-2%1", **most(1)),
        slurm_job(12, "PENDING", 1, None, 5, dependency="afterany:10_*(unfulfilled)", **waits),
    )
    began = {id: start_s for id, (start_s, _) in starts_after(play(path)).items() if start_s >= 0}
    assert began == {"2": 2600, "3": 2720, "10_0": 0, "10_1": 60, "10_2": 120, "12": 180, "5": 200}


def test_older_squeue_has_plain_numbers_and_no_time_of_its_own(tmp_path: Path) -> None:
    jobs = [slurm_job(1, "RUNNING", 4, 100, 60, "gpu01"), slurm_job(2, "PENDING", 4, None, 5)]
    old = [{**job, "submit_time": NOW_S - 3600, "job_state": job["job_state"][0]} for job in jobs]
    old[0]["start_time"], old[1]["start_time"] = NOW_S - 100, 0
    path = tmp_path / "old.json"
    path.write_text(json.dumps({"meta": {}, "jobs": old}))
    schedule = play(path)
    assert schedule.begins_s == 3501  # a second after the last job started
    assert starts_after(schedule) == {"1": (-1, [0]), "2": (0, [1])}


def test_a_converted_snapshot_is_the_same_state(tmp_path: Path) -> None:
    path = squeue(
        tmp_path, slurm_job(1, "RUNNING", 4, 1000, 60, "gpu02"), slurm_job(2, "PENDING", 8, None, 10, count=2)
    )
    copy = tmp_path / "copy.jsonl"
    fine("trace", "convert", path, copy)
    assert starts_after(play(copy)) == starts_after(play(path)) == {"1": (-1000, [1]), "2": (2600, [0, 1])}


def test_whatif_answers_for_the_jobs_that_wait_now(tmp_path: Path) -> None:
    path = squeue(
        tmp_path,
        slurm_job(1, "RUNNING", 4, 1000, 60, "gpu01"),
        slurm_job(2, "RUNNING", 4, 3000, 60, "gpu02"),
        slurm_job(3, "PENDING", 4, None, 10),
        slurm_job(4, "PENDING", 4, None, 5),
    )
    group = "{name: a, hosts: 'gpu[01-02]', gpu: A100-40, gpus: 4, count: 2, cpus: 64, memory_gb: 512}"
    (tmp_path / "c.yaml").write_text(f"cluster: {{groups: [{group}]}}\n")
    common = ["--trace", str(path), "--cluster", str(tmp_path / "c.yaml"), "--policy", "fifo", "--price", "none"]
    common += ["--out", str(tmp_path), "--on", "local:1"]
    today, more = json_of("whatif", *common, "--add", "4xA100-40", "--metric", "wait_s.mean")["choices"]
    submitted_s = [3600 - 3, 3600 - 4]
    assert today["wait_s"] == (submitted_s[0] + 600 + submitted_s[1] + 1200) / 2
    assert more["wait_s"] == (submitted_s[0] + 0 + submitted_s[1] + 600) / 2
    assert more["verdict"] == "no interval"
    shown = invoke("whatif", *common, "--add", "4xA100-40").output
    assert "from the snapshot, with 2 jobs running and 2 waiting" in " ".join(shown.split())
    less = invoke("whatif", *common, "--remove", "4xA100-40")
    assert less.exit_code == 2
    assert "1 of the jobs running now do not fit" in less.output
    assert json_of("plan", *common, "--target", "wait_s.mean<3900")["best"]["gpus"] == 12


def moment(ago_s: float) -> str:
    return datetime.fromtimestamp(NOW_S - ago_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod_of(name: str, owner: str, gpus: int, ago_s: float, node: str = "", phase: str = "Running", **spec: Any) -> Any:
    """A pod that started when it was created."""
    running = {"state": {"running": {"startedAt": moment(ago_s)}}}
    container = {"name": "main", "resources": {"requests": {"nvidia.com/gpu": str(gpus), "cpu": "4"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "lab",
            "uid": f"uid-{name}",
            "creationTimestamp": moment(ago_s),
            "ownerReferences": [{"kind": "Job", "name": owner, "uid": f"uid-{owner}", "controller": True}],
        },
        "spec": {"containers": [container], **({"nodeName": node} if node else {}), **spec},
        "status": {"phase": phase, "containerStatuses": [running] if phase == "Running" else []},
    }


def workload_of(name: str, gpus: int, count: int, ago_s: float, admitted_ago_s: float | None, **spec: Any) -> Any:
    """A workload of Kueue (v1beta1) with one pod set."""
    container = {"name": "main", "resources": {"requests": {"nvidia.com/gpu": str(gpus), "cpu": "4"}}}
    status: dict[str, Any] = {"conditions": []}
    if admitted_ago_s is not None:
        condition = {"type": "Admitted", "status": "True", "lastTransitionTime": moment(admitted_ago_s)}
        assignment = {"name": "main", "flavors": {"nvidia.com/gpu": "a100"}, "count": count}
        status = {"conditions": [condition], "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {
            "name": f"job-{name}",
            "namespace": "lab",
            "creationTimestamp": moment(ago_s),
            "ownerReferences": [{"kind": "Job", "name": name, "uid": f"uid-{name}"}],
        },
        "spec": {
            "queueName": "lab-queue",
            "podSets": [{"name": "main", "count": count, "template": {"spec": {"containers": [container]}}}],
            **spec,
        },
        "status": status,
    }


@pytest.mark.family("kubernetes")
def test_pods_and_workloads_that_run_and_wait_are_a_state(tmp_path: Path) -> None:
    ended = pod_of("done-0", "done", 1, 5000, "gpu01", "Succeeded")
    ended["status"]["containerStatuses"] = [
        {"state": {"terminated": {"startedAt": moment(5000), "finishedAt": moment(4000)}}}
    ]
    objects = [
        ended,
        pod_of("old-0", "old", 2, 900, "gpu01"),  # 900 s old: as long again
        pod_of("capped-0", "capped", 2, 400, "gpu01", activeDeadlineSeconds=1000),
        pod_of("gang-0", "gang", 4, 300, "gpu02"),
        workload_of("gang", 4, 1, 700, 300, maximumExecutionTimeSeconds=500),
        workload_of("next", 4, 2, 201, None, maximumExecutionTimeSeconds=50),
        pod_of("late-0", "late", 1, 101, phase="Pending"),  # takes the median: 1,000 s
        pod_of("clock-0", "clock", 1, 1, phase="Pending", activeDeadlineSeconds=5),
    ]
    path = tmp_path / "objects.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    schedule = play(path, format="kubernetes-now")
    assert schedule.begins_s == 900  # a second after the last event, since the first job was created
    # gang: 200 s left; capped: 600; old: 900. next needs both nodes, and the others wait behind it.
    assert {name: time for name, (time, _) in starts_after(schedule).items()} == {
        "lab/old": -900,
        "lab/capped": -400,
        "lab/gang": -300,
        "lab/next": 900,
        "lab/late": 950,
        "lab/clock": 950,
    }
    ended = {job: end_s - schedule.begins_s for job, end_s in ends(schedule).items()}
    assert ended == {
        "lab/gang": 200,
        "lab/capped": 600,
        "lab/old": 900,
        "lab/next": 950,
        "lab/clock": 955,
        "lab/late": 1950,
    }
    nodes = {name: nodes for name, (_, nodes) in starts_after(schedule).items()}
    assert (nodes["lab/old"], nodes["lab/capped"], nodes["lab/gang"]) == ([0], [0], [1])
