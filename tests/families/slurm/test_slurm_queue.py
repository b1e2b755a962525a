"""Slurm's queue as JSON and as text: the same jobs, with the GPUs that lists of resources lack."""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from dagsim.errors import TraceError
from dagsim.families.slurm.queue.queue_listings import queued_jobs
from dagsim.families.slurm.queue.queued_job import job_of_json
from dagsim.families.slurm.queue.slurm_queue import waiting_jobs
from dagsim.model import Job, Request
from dagsim.traces import Trace, TraceOptions, open_trace
from dagsim.traces.reader import WaitingJob
from dagsim.traces.source import Source

NOW_S = 1_790_000_000

BLOCKS = """JobId=31 JobName=fit model
   UserId=ida(2001) GroupId=ida(2001) MCS_label=N/A
   Priority=9 Nice=0 Account=bio QOS=day
   JobState=RUNNING Reason=None Dependency=(null)
   RunTime=00:30:00 TimeLimit=02:00:00 TimeMin=N/A
   SubmitTime=2026-09-21T13:10:00 EligibleTime=2026-09-21T13:10:00
   StartTime=2026-09-21T13:43:20 EndTime=2026-09-21T15:43:20 Deadline=N/A
   SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-09-21T13:43:20 Scheduler=Main
   Partition=gpu AllocNode:Sid=login:7
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=g[1-2]
   NumNodes=2 NumCPUs=16 NumTasks=2 CPUs/Task=8 ReqB:S:C:T=0:0:*:*
   TRES=cpu=16,mem=64G,node=2,billing=16
   Features=nvl DelayBoot=00:00:00
   TresPerNode=gres:gpu:a100:3

JobId=35 ArrayJobId=33 ArrayTaskId=2 JobName=sweep
   UserId=jo(2002) GroupId=jo(2002) MCS_label=N/A
   Priority=9 Nice=0 Account=bio QOS=day
   JobState=SUSPENDED Reason=None Dependency=(null)
   RunTime=00:10:00 TimeLimit=01:00:00 TimeMin=N/A
   SubmitTime=2026-09-21T13:00:00 EligibleTime=2026-09-21T13:00:00
   StartTime=2026-09-21T13:20:00 EndTime=2026-09-21T14:20:00 Deadline=N/A
   SuspendTime=2026-09-21T13:30:00 SecsPreSuspend=600
   Partition=gpu NodeList=g2
   NumNodes=1 NumCPUs=4 NumTasks=1 CPUs/Task=4
   TRES=cpu=4,mem=8G,node=1,billing=4

JobId=33 ArrayJobId=33 ArrayTaskId=3-5%2 ArrayTaskThrottle=2 JobName=sweep
   UserId=jo(2002) GroupId=jo(2002) MCS_label=N/A
   Priority=9 Nice=0 Account=bio QOS=day
   JobState=PENDING Reason=Resources Dependency=(null)
   RunTime=00:00:00 TimeLimit=UNLIMITED TimeMin=N/A
   SubmitTime=2026-09-21T13:00:00 EligibleTime=2026-09-21T13:00:00
   StartTime=Unknown EndTime=Unknown Deadline=N/A
   Partition=gpu NodeList=(null)
   NumNodes=1 NumCPUs=4 NumTasks=4 CPUs/Task=1
   TRES=cpu=4,mem=8G,node=1,billing=4
   TresPerTask=gres/gpu=1
"""


def written(folder: Path, text: str, **options: Any) -> Trace:
    path = folder / "queue"
    path.write_text(text)
    return open_trace(path, options=TraceOptions(**options))


def jobs_of(trace: Trace) -> dict[str, Job]:
    return {job.id: job for job in trace.jobs()}


def gpus(job: Job) -> float:
    return sum(task.instances * task.gpus for task in job.tasks)


@pytest.mark.parametrize("oneline", [False, True])
def test_scontrol_prints_what_runs_waits_and_is_suspended(tmp_path: Path, oneline: bool) -> None:
    blocks = [" ".join(block.split()) for block in BLOCKS.split("\n\n")]
    trace = written(tmp_path, "\n".join(blocks) if oneline else BLOCKS, timezone="Europe/Berlin")
    jobs = jobs_of(trace)
    assert trace.format == "squeue"
    assert trace.begins_s == 1789991000 + 1800  # 13:43:20 in Berlin, and half an hour
    run = jobs["31"]
    assert (gpus(run), run.observed_nodes, run.user, run.account, run.qos) == (6, ("g1", "g2"), "ida", "bio", "day")
    assert (run.tasks[0].gpu_types, run.request.constraint) == (("A100-40",), "nvl")
    assert run.tasks[0].work == 7200
    assert jobs["33_2"].tasks[0].work == 3000  # of an hour it has run ten minutes
    assert [jobs[f"33_{task}"].request.array_limit for task in (3, 4, 5)] == [2, 2, 2]
    assert (gpus(jobs["33_3"]), jobs["33_3"].tasks[0].work) == (4, 365 * 86400)


@pytest.mark.parametrize(
    ("line", "held", "noted"),
    [
        ("Gres=gpu:3 Reservation=(null)", 6, 0),
        ("  Nodes=g[1-2] CPU_IDs=0-3 Mem=8192 GRES_IDX=gpu(IDX:0,2-3)", 6, 0),
        ("TresPerSocket=gres/gpu:2", 4, 1),
        ("Comment=gpu:3", 0, 0),
    ],
)
def test_older_versions_and_sockets_state_gpus_in_their_own_way(
    tmp_path: Path, line: str, held: int, noted: int
) -> None:
    block = BLOCKS.split("\n\n")[2].replace("TresPerTask=gres/gpu=1", line).replace("NumNodes=1", "NumNodes=2")
    block = block.replace("ArrayJobId=33 ArrayTaskId=3-5%2 ArrayTaskThrottle=2 ", "").replace("PENDING", "RUNNING")
    block = block.replace("StartTime=Unknown", "StartTime=2026-09-21T13:00:00").replace(
        "NodeList=(null)", "NodeList=g[1-2]"
    )
    trace = written(tmp_path, block)
    assert gpus(jobs_of(trace)["33"]) == held
    assert sum("per socket" in note for note in trace.report.noted) == noted


BAR = (
    "JOBID|USER|ACCOUNT|PARTITION|QOS|STATE|REASON|SUBMIT_TIME|START_TIME|TIME|TIME_LIMIT|NODES|CPUS|MIN_MEMORY|"
    "TRES_PER_NODE|NODELIST\n"
)
BAR += """\
41|ida|bio|gpu|day|RUNNING|None|2026-09-21T11:10:00|2026-09-21T11:43:20|30:00|2:00:00|2|16|32G|gres/gpu:a100:3|g[1-2]
42_[1-3%2]|jo|bio|gpu|day|PENDING|Priority|2026-09-21T11:50:00|N/A|0:00|30:00|1|4|8G|gres/gpu:1|
"""
PLAIN = """\
     JOBID PARTITION     NAME     USER ST         SUBMIT_TIME TIME_LIMIT       TIME  NODES CPUS NODELIST(REASON)
42_[1-3%2]       gpu    a job       jo PD 2026-09-21T11:50:00      30:00       0:00      1    4 (Nodes required, or)
        41       gpu      fit      ida  R 2026-09-21T11:10:00    2:00:00      30:00      2   16 g[1-2]
"""


def test_squeue_prints_columns_between_bars(tmp_path: Path) -> None:
    trace = written(tmp_path, BAR)
    jobs = jobs_of(trace)
    assert set(jobs) == {"41", "42_1", "42_2", "42_3"}
    assert trace.begins_s == 1789991000 + 1800  # 11:43:20 UTC, and half an hour
    assert (gpus(jobs["41"]), jobs["41"].tasks[0].memory_gb, jobs["41"].tasks[0].cpus) == (6, 32, 8)
    assert (gpus(jobs["42_1"]), jobs["42_1"].request.array_limit, jobs["42_1"].tasks[0].work) == (1, 2, 1800)


def test_squeue_prints_columns_of_a_width(tmp_path: Path) -> None:
    jobs = jobs_of(written(tmp_path, PLAIN))
    assert (jobs["41"].observed_nodes, jobs["41"].user, jobs["41"].tasks[0].work) == (("g1", "g2"), "ida", 7200)
    assert (jobs["42_2"].partition, jobs["42_2"].observed_start_s) == ("gpu", None)


def test_squeue_format_prints_columns_that_may_be_empty(tmp_path: Path) -> None:
    rows = """JOBID USER STATE SUBMIT_TIME TIME TIME_LIMIT NODES CPUS NODELIST TRES_PER_JOB
41 ida RUNNING 2026-09-21T11:10:00 30:00 2:00:00 2 16 g[1-2] gres/gpu:5
43 jo PENDING 2026-09-21T11:50:00 0:00 30:00 1 4 . .""".splitlines()
    text = "".join("".join(f"{field.strip('.'):<20}" for field in row.split()) + "\n" for row in rows)
    jobs = jobs_of(written(tmp_path, text))
    assert (gpus(jobs["41"]), gpus(jobs["43"]), jobs["43"].tasks[0].work) == (5, 0, 1800)


def test_a_blank_in_a_name_and_an_empty_column_do_not_shift_columns_of_one_width(tmp_path: Path) -> None:
    rows = [
        [
            "JOBID",
            "NAME",
            "USER",
            "STATE",
            "SUBMIT_TIME",
            "TIME",
            "TIME_LIMIT",
            "NODES",
            "CPUS",
            "NODELIST",
            "TRES_PER_JOB",
        ],
        ["43", "a job", "jo", "PENDING", "2026-09-21T11:50:00", "0:00", "30:00", "1", "4", "", "gres/gpu:5"],
    ]
    jobs = jobs_of(written(tmp_path, "".join("".join(f"{field:<20}" for field in row) + "\n" for row in rows)))
    assert (jobs["43"].user, gpus(jobs["43"])) == ("jo", 5)


def test_a_listing_that_lacks_columns_is_told_the_commands(tmp_path: Path) -> None:
    text = "  JOBID PARTITION NAME USER ST TIME NODES NODELIST(REASON)\n  7 gpu x ida R 1:00 1 g1\n"
    with pytest.raises(TraceError, match=r"output of squeue, which lacks SUBMIT_TIME, TIME_LIMIT, CPUS or .*--json"):
        written(tmp_path, text)


def json_job(id: int = 5, **more: Any) -> dict[str, Any]:
    job = {
        "job_id": id,
        "job_state": ["RUNNING"],
        "state_reason": "None",
        "user_name": "ida",
        "submit_time": NOW_S - 900,
        "eligible_time": NOW_S - 900,
        "start_time": NOW_S - 600,
        "time_limit": 60,
        "node_count": 2,
        "tasks": 4,
        "cpus": 8,
        "nodes": "g[1-2]",
        "tres_req_str": "cpu=8,mem=8G,node=2,billing=8",
        "tres_alloc_str": "cpu=8,mem=8G,node=2,billing=8",
    }
    return job | more


def queue_of(folder: Path, *jobs: dict[str, Any]) -> Trace:
    return written(folder, json.dumps({"jobs": jobs, "last_update": {"set": True, "number": NOW_S}}))


@pytest.mark.parametrize(
    ("stated", "number", "types"),
    [
        ({"gres_detail": ["gpu:h100:4(IDX:0-3)", "gpu:h100:4(IDX:0,2-4)"]}, 8, None),
        ({"tres_per_node": "gres:gpu:2"}, 4, None),
        ({"tres_per_node": "gres/gpu:h100=2"}, 4, ("H100",)),
        ({"tres_per_job": "gres:gpu:6"}, 6, None),
        ({"tres_per_task": "cpu:2,gres/gpu:1"}, 4, None),
        ({"tres_per_socket": "gres:gpu:1", "sockets_per_node": 2}, 4, None),
        ({"tres_per_job": "gres:gpu:6", "gres_detail": ["gpu:a100:4(IDX:0-3)", "gpu:a100:2(IDX:0-1)"]}, 6, None),
        ({"tres_req_str": "cpu=8,node=2,gres/gpu=4", "tres_per_node": "gres:gpu:a100:2"}, 4, ("A100-40",)),
        ({"tres_per_node": "gres:craynetwork:1"}, 0, None),
        ({"tres_per_job": "", "tres_per_node": None, "gres_detail": None}, 0, None),
    ],
)
@pytest.mark.parametrize("runs", [True, False])
def test_gpus_may_be_beside_the_resources(
    tmp_path: Path, stated: dict[str, Any], number: int, types: tuple[str, ...] | None, runs: bool
) -> None:
    waiting = {"job_state": ["PENDING"], "start_time": 0, "nodes": "", "tres_alloc_str": ""}
    (job,) = jobs_of(queue_of(tmp_path, json_job(**stated) | ({} if runs else waiting))).values()
    only_detail = not runs and set(stated) == {"gres_detail"}
    assert (gpus(job), job.tasks[0].gpu_types) == (0 if only_detail else number, types)


def test_a_job_that_was_suspended_ends_later(tmp_path: Path) -> None:
    """It ran for 100 s, was suspended for 200 s and runs again since 300 s."""
    back = json_job(pre_sus_time=100, suspend_time=NOW_S - 300)
    assert jobs_of(queue_of(tmp_path, back))["5"].tasks[0].work == 3600 + 200


def test_a_running_job_without_a_start_began_as_long_ago_as_it_has_run(tmp_path: Path) -> None:
    trace = queue_of(tmp_path, json_job(4, start_time=NOW_S - 900), json_job(5, start_time=None, run_time=600))
    one, other = (jobs_of(trace)[id] for id in "45")
    assert other.observed_start_s == one.observed_start_s + 300
    assert other.tasks[0].work == one.tasks[0].work == 3600


@pytest.mark.parametrize("ran", [{"pre_sus_time": 600}, {"pre_sus_time": None, "suspend_time": NOW_S}])
def test_a_suspended_job_comes_back_for_the_rest_of_its_limit(tmp_path: Path, ran: dict[str, Any]) -> None:
    """It has run for 600 s of its limit of 3600 s, says its count of seconds or the time at which it was suspended."""
    (task,) = jobs_of(queue_of(tmp_path, json_job(job_state=["SUSPENDED"], **ran)))["5"].tasks
    assert (task.work, task.estimate) == (3000, 3000)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["RUNNING", "CONFIGURING"], "runs"), (["CONFIGURING"], "runs"), (["RUNNING", "RESIZING"], "runs"),
        (["RUNNING", "SIGNALING"], "runs"), (["RUNNING", "STOPPED"], "runs"), (["RUNNING", "POWER_UP_NODE"], "runs"),
        (["PENDING", "REQUEUED"], "waits"), (["PENDING", "EXPEDITING"], "waits"), (["SUSPENDED"], "waits"),
        (["PENDING", "REQUEUE_HOLD"], "that are held"), (["PENDING", "SPECIAL_EXIT"], "that are held"),
        (["PENDING", "RESV_DEL_HOLD"], "that are held"), (["PENDING", "LAUNCH_FAILED"], "that are held"),
        (["RUNNING", "COMPLETING"], "of jobs that are ending"),
        (["PREEMPTED", "COMPLETING"], "of jobs that are ending"),
        (["COMPLETED", "STAGE_OUT"], "of jobs that are ending"), (["REVOKED"], "of jobs that are ending"),
        (["PENDING", "REQUEUE_FED"], "of jobs that are ending"), (["NODE_FAIL"], "of jobs that are ending"),
        (["SLEEPING"], "of jobs that neither run nor wait"),
    ],
)  # fmt: skip
def test_every_state_and_flag_is_decided(tmp_path: Path, words: list[str], expected: str) -> None:
    trace = queue_of(tmp_path, json_job(4), json_job(5, job_state=words))
    job = jobs_of(trace).get("5")
    if expected in ("runs", "waits"):
        assert job is not None
        assert (job.observed_start_s is not None) == (expected == "runs")
    else:
        assert trace.report.skipped == {expected: 1}


LISTED = {
    "job_id": 8, "array_job_id": 7, "array_task_id": 14, "array_max_tasks": 3, "het_job_id": 11, "het_job_offset": 12,
    "name": "fit", "user_name": "ida", "account": "bio", "qos": "day", "partition": "gpu", "priority": 9,
    "job_state": ["RUNNING"], "state_reason": "Licenses", "dependency": "afterok:7(unfulfilled)",
    "submit_time": 1789990000, "eligible_time": 1789990060, "start_time": 1789990120, "suspend_time": 1789990180,
    "pre_sus_time": 50, "run_time": 600, "last_sched_evaluation": 1789990110, "time_limit": 90, "node_count": 6,
    "cpus": 16, "tasks": 4, "sockets_per_node": 5, "nodes": "g[1-2]", "tres_req_str": "cpu=8,gres/gpu=4",
    "tres_alloc_str": "cpu=8,gres/gpu=2", "gres_detail": ["gpu:a100:1(IDX:0)", "gpu:a100:1(IDX:0)"],
    "tres_per_job": "gres/gpu:4", "tres_per_node": "gres/gpu:2", "tres_per_task": "gres/gpu:1",
    "tres_per_socket": "gres/gpu:3", "features": "nvl", "resv_name": "course", "licenses": "cad:1",
    "required_nodes": "g1", "excluded_nodes": "g3", "shared": "user",
}  # fmt: skip
"""A job with a different value in each field."""
IN_SCONTROL = """JobId=8 ArrayJobId=7 ArrayTaskId=14 ArrayTaskThrottle=3 HetJobId=11 HetJobOffset=12 JobName=fit
   UserId=ida(2001) GroupId=staff(2002)
   Priority=9 Nice=0 Account=bio QOS=day
   JobState=RUNNING Reason=Licenses Dependency=afterok:7(unfulfilled)
   RunTime=00:10:00 TimeLimit=01:30:00
   SubmitTime=2026-09-21T11:26:40 EligibleTime=2026-09-21T11:27:40
   StartTime=2026-09-21T11:28:40 EndTime=2026-09-21T12:58:40
   SuspendTime=2026-09-21T11:29:40 SecsPreSuspend=50 LastSchedEval=2026-09-21T11:28:30
   Partition=gpu ReqNodeList=g1 ExcNodeList=g3
   NodeList=g[1-2]
   NumNodes=6 NumCPUs=16 NumTasks=4 CPUs/Task=2 Socks/Node=5
   ReqTRES=cpu=8,gres/gpu=4
   AllocTRES=cpu=8,gres/gpu=2
   MinMemoryNode=64G Features=nvl Reservation=course Licenses=cad:1 OverSubscribe=USER
   TresPerJob=gres/gpu:4 TresPerNode=gres/gpu:2 TresPerTask=gres/gpu:1 TresPerSocket=gres/gpu:3
   Nodes=g[1-2] CPU_IDs=0-3 Mem=0 GRES=gpu:a100:1(IDX:0)
"""
IN_SQUEUE = """\
JOBID|ARRAY_JOB_ID|ARRAY_TASK_ID|HET_JOB_ID|HET_JOB_OFFSET|NAME|USER|ACCOUNT|QOS|PARTITION|PRIORITY|STATE|REASON|DEPENDENCY
8|7|14|11|12|fit|ida|bio|day|gpu|9|RUNNING|Licenses|afterok:7(unfulfilled)
SUBMIT_TIME|ELIGIBLE_TIME|START_TIME|END_TIME|TIME|TIME_LIMIT
2026-09-21T11:26:40|2026-09-21T11:27:40|2026-09-21T11:28:40|2026-09-21T12:58:40|10:00|1:30:00
NODES|CPUS|TASKS|NODELIST|FEATURES|RESERVATION|LICENSES|TRES_ALLOC|MIN_MEMORY|OVER_SUBSCRIBE|REQ_NODES|EXC_NODES
6|16|4|g[1-2]|nvl|course|cad:1|cpu=8,gres/gpu=2|64G|USER|g1|g3
TRES_PER_JOB|TRES_PER_NODE|TRES_PER_TASK|TRES_PER_SOCKET
gres/gpu:4|gres/gpu:2|gres/gpu:1|gres/gpu:3
"""
"""Columns of one table, in four parts."""


def test_all_formats_state_the_same_fields_of_a_job_except_those_that_they_lack(tmp_path: Path) -> None:
    names, values = ("|".join(IN_SQUEUE.splitlines()[at::2]) for at in (0, 1))
    texts = (json.dumps({"jobs": [LISTED]}), IN_SCONTROL, f"{names}\n{values}\n")
    found = []
    for text in texts:
        (tmp_path / "queue").write_text(text)
        found += queued_jobs(Source(tmp_path / "queue"))
    document, scontrol, squeue = map(asdict, found)
    assert len({json.dumps(value) for value in LISTED.values()}) == len(LISTED)  # so that swapped fields are seen

    def differences(one: dict[str, Any], other: dict[str, Any]) -> set[str]:
        return {name for name in one if one[name] != other[name]} - {"line", "gres_detail"}

    assert differences(document, scontrol) == {"memory"}
    assert ",".join(document["gres_detail"]) == ",".join(scontrol["gres_detail"])
    assert differences(scontrol, squeue) == {
        "array_max_tasks", "suspend_time", "pre_sus_time", "last_sched_evaluation", "sockets_per_node", "tres_req_str",
    }  # fmt: skip
    assert squeue["tres_req_str"] == scontrol["tres_alloc_str"]  # squeue has no column of what was requested


TERMS = {
    "dependency": "afterok:7(unfulfilled),after:7+2",
    "licenses": "solver:3",
    "required_nodes": "g[1-2]",
    "excluded_nodes": "g7",
    "features": "nvl",
    "resv_name": "course",
    "account": "bio",
    "qos": "day",
    "partition": "gpu,big",
    "name": "fit : model",  # a colon between blanks separates components in a submit line, but not in a name
}
WAITS = {"job_state": ["PENDING"], "state_reason": "Priority", "start_time": 0, "nodes": "", "tres_alloc_str": ""}


def test_the_terms_of_a_listed_job_reach_its_request(tmp_path: Path) -> None:
    jobs = jobs_of(queue_of(tmp_path, json_job(7), json_job(8) | WAITS | TERMS))
    assert jobs["8"].request == Request(
        constraint="nvl",
        partitions=("gpu", "big"),
        reservation="course",
        licences=(("solver", 3),),
        after=("7", "start:7+120"),
        nodes=("g1", "g2"),
        excluded=("g7",),
    )
    assert (jobs["8"].account, jobs["8"].qos, jobs["8"].partition) == ("bio", "day", "gpu")


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ({"shared": "none"}, Request(exclusive=True)),
        ({"exclusive": "true"}, Request(exclusive=True)),
        ({"shared": "user"}, Request(exclusive_user=True)),
        ({"array_job_id": 8, "array_task_id": 0, "array_max_tasks": 4}, Request(array="8", array_limit=4)),
        ({"array_job_id": 8, "array_task_string": "0%4"}, Request(array="8", array_limit=4)),
    ],
)
def test_an_option_of_a_listed_job_reaches_its_request(
    tmp_path: Path, listed: dict[str, Any], expected: Request
) -> None:
    (job,) = jobs_of(queue_of(tmp_path, json_job(8) | WAITS | listed)).values()
    assert job.request == expected


def test_only_a_suspended_job_goes_before_all_others(tmp_path: Path) -> None:
    others = [json_job(id, submit_time=NOW_S - ago_s) | WAITS for id, ago_s in ((5, 1000), (6, 100))]
    jobs = jobs_of(queue_of(tmp_path, json_job(4, job_state=["SUSPENDED"]), *others))
    assert jobs["4"].priority == 1e9
    assert not jobs["5"].priority
    assert jobs["4"].arrival_s == jobs["5"].arrival_s - 1


@pytest.mark.parametrize(
    ("dependency", "waits"),
    [
        ("afterany:4(unfulfilled)", True),
        ("afterany:4(unfulfilled),afterany:99(unfulfilled)", False),
        ("afterany:4(unfulfilled)?afterany:99(unfulfilled)", True),
        ("afterany:98(unfulfilled)?afterany:99(unfulfilled)", False),
        ("afterany:6(unfulfilled)", False),
    ],
)
def test_a_job_that_depends_on_jobs_outside_the_listing_or_on_held_ones_is_left_out(
    tmp_path: Path, dependency: str, waits: bool
) -> None:
    dependent = WAITS | {"dependency": dependency, "state_reason": "Dependency"}
    held = WAITS | {"state_reason": "JobHeldUser"}
    jobs = jobs_of(queue_of(tmp_path, json_job(4), json_job(5) | dependent, json_job(6) | held))
    assert set(jobs) == ({"4", "5"} if waits else {"4"})


def test_the_begin_time_of_a_job_that_has_no_other_planned_start_is_its_start(tmp_path: Path) -> None:
    later = WAITS | {"state_reason": "BeginTime", "eligible_time": 0, "start_time": NOW_S + 600}
    (job,) = jobs_of(queue_of(tmp_path, json_job(5) | later)).values()
    assert job.eligible_s is not None
    assert job.eligible_s - job.arrival_s == 900 + 600


def test_a_listing_without_starts_was_printed_when_the_latest_job_had_run_for_as_long_as_it_says(
    tmp_path: Path,
) -> None:
    jobs = [json_job(id, start_time=None, run_time=ran_s) for id, ran_s in ((4, 500), (5, 600))]
    trace = written(tmp_path, json.dumps({"jobs": jobs}))
    assert trace.begins_s == NOW_S - 900 + 600


def test_waiting_and_suspended_jobs_are_listed_with_what_the_scheduler_says_about_them(tmp_path: Path) -> None:
    planned = WAITS | {"state_reason": "Resources", "start_time": NOW_S + 60, "priority": 9, "partition": "gpu"}
    jobs = [
        json_job(4),
        json_job(5) | planned | {"dependency": "afterok:7(unfulfilled)?afterany:7(unfulfilled)"},
        json_job(6) | WAITS | {"priority": 0, "array_job_id": 6, "array_task_string": "1-3%2"},
        json_job(7, job_state=["SUSPENDED"], priority=9),
    ]
    (tmp_path / "queue").write_text(json.dumps({"jobs": jobs}))
    assert list(waiting_jobs(Source(tmp_path / "queue"))) == [
        WaitingJob("5", "Resources", NOW_S + 60.0, "ida", "gpu", ("7",), True, 9.0),
        WaitingJob("6", "Priority", None, "ida", "", (), False, None),
        WaitingJob("7", "Suspended", None, "ida", "", (), False, 9.0),
    ]


@pytest.mark.parametrize(
    ("stated", "skipped"),
    [
        ({"priority": 9}, {}),
        ({"priority": 0}, {"that are held": 1}),
        ({"priority": 0, "state_reason": "Resources"}, {}),
        ({"dependency": "afterok:4(failed)"}, {"that wait for other jobs": 1}),
        ({"dependency": "afterok:4(failed)?afterok:4(unfulfilled)"}, {}),
        ({"dependency": "afterok:4(unfulfilled)"}, {}),
    ],
)
def test_a_reason_that_is_not_stated_follows_from_the_other_fields(
    tmp_path: Path, stated: dict[str, Any], skipped: dict[str, int]
) -> None:
    trace = queue_of(tmp_path, json_job(4), json_job(5) | WAITS | {"state_reason": "None"} | stated)
    assert len(jobs_of(trace)) == 2 - len(skipped)
    assert trace.report.skipped == skipped


@pytest.mark.parametrize(
    ("stated", "seconds"),
    [
        ({}, 0),
        ({"pre_sus_time": 100, "suspend_time": NOW_S - 300}, 200),
        ({"pre_sus_time": 0, "suspend_time": NOW_S - 300}, 0),
        ({"pre_sus_time": 100}, 0),
        ({"suspend_time": NOW_S - 300}, 0),
        ({"pre_sus_time": 100, "suspend_time": NOW_S - 300, "start_time": None}, 0),
        ({"pre_sus_time": 100, "suspend_time": NOW_S - 300, "job_state": ["SUSPENDED"]}, 0),
        ({"pre_sus_time": 400, "suspend_time": NOW_S - 300}, 0),
    ],
)
def test_a_running_job_that_continued_was_suspended_for_the_time_that_it_did_not_run(
    stated: dict[str, Any], seconds: float
) -> None:
    assert job_of_json(1, json_job(**stated)).was_suspended_s() == seconds


@pytest.mark.parametrize(("hour", "notes"), [("01", 0), ("02", 1)])
def test_a_date_in_an_hour_that_occurs_twice_is_noted(tmp_path: Path, hour: str, notes: int) -> None:
    block = BLOCKS.split("\n\n")[2].replace("2026-09-21T13:00:00", f"2026-10-25T{hour}:30:00")
    block = block.replace("ArrayJobId=33 ArrayTaskId=3-5%2 ArrayTaskThrottle=2 ", "")
    trace = written(tmp_path, block, timezone="Europe/Berlin")
    jobs_of(trace)
    assert sum("occurs twice" in note for note in trace.report.noted) == notes


@pytest.mark.parametrize(
    ("tasks", "ids"),
    [("3-5", ["8_3", "8_4", "8_5"]), ("0x1a", ["8_1", "8_3", "8_4"]), ("9-3", ["8_9"]), ("a-b", ["8"])],
)
def test_tasks_that_wait_together_are_separate_jobs(tmp_path: Path, tasks: str, ids: list[str]) -> None:
    trace = queue_of(tmp_path, json_job(8, array_task_string=tasks) | WAITS)
    assert list(jobs_of(trace)) == ids


@pytest.mark.data
@pytest.mark.parametrize("snapshot", ["014700", "029280", "043800"])
def test_a_real_queue_is_the_same_as_json_and_as_text(data: Path, tmp_path: Path, snapshot: str) -> None:
    """Written seconds apart, on Slurm 22.05 without gres/gpu among its resources; text names no GPU types held."""
    folder = data / "golden/slurm/site-C/snap" / snapshot
    listings = []
    for name in ("squeue.json", "scontrol-show-job.txt"):
        (tmp_path / name).write_bytes(gzip.decompress((folder / f"{name}.gz").read_bytes()))
        listings.append(open_trace(tmp_path / name))
    document, text = map(jobs_of, listings)
    first = {name: min(job.arrival_s for job in jobs.values()) for name, jobs in (("json", document), ("text", text))}
    assert first["json"] == first["text"]
    document, text = ({id: replace(job, observed_gpu="") for id, job in jobs.items()} for jobs in (document, text))
    assert document == text
    assert any(map(gpus, text.values()))
    assert 0 <= listings[1].begins_s - listings[0].begins_s < 30  # type: ignore[operator]


def test_a_column_of_squeue_twice_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="two columns CPUS"):
        jobs_of(written(tmp_path, BAR.replace("MIN_MEMORY", "CPUS")))
