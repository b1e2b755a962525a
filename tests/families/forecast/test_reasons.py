"""Jobs without a forecast: the scheduler's reasons, the site's rules, and what hangs on them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from families.forecast.queue_cases import NOW_S, as_listed, queue_words, queued
from support.command_line import fine, invoke, json_of
from support.log_reading import start_times

from dagsim.config.schema import load_config
from dagsim.config.yaml import Setting
from dagsim.experiment.simulate import make_policy
from dagsim.families.forecast.question import workload_of
from dagsim.families.forecast.reasons import UNLISTED, Fate, verdict_of
from dagsim.systems.cluster.scenario import cluster_scenario_of
from dagsim.systems.seam import drive

pytestmark = pytest.mark.family("slurm")

SITE = """
cluster:
  groups:
  - {name: n, hosts: "n[1-3]", count: 3, gpus: 0, cpus: 16, memory_gb: 64}
"""


class Answer:
    """The answer of ``dagsim eta --json`` to a queue."""

    def __init__(self, folder: Path, jobs: list[dict[str, Any]], site: str = SITE, *words: str) -> None:
        command = ["eta", *queue_words(folder, as_listed(jobs), site), "--futures", "8"]
        result = fine(*command, "--json", *words)
        answer = json.loads(result.stdout)
        self.warnings = " ".join(result.stderr.split())
        self.medians_s = {row["job"]: row["median_s"] for row in answer["jobs"]}
        self.without = {row["job"]: (row["kind"], row["why"]) for row in answer["no_forecast"]}
        self.table = invoke(*command, *words).stdout


@pytest.mark.parametrize(
    ("reason", "fate"),
    [
        ("Priority", Fate.KNOWN), ("Resources", Fate.KNOWN), ("", Fate.KNOWN), ("JobArrayTaskLimit", Fate.KNOWN),
        ("QOSMaxGRESPerUser", Fate.KNOWN), ("AssocGrpCpuLimit", Fate.KNOWN), ("MaxCpuPerAccount", Fate.KNOWN),
        ("QOSMaxJobsPerUserLimit", Fate.KNOWN), ("a word of some later version", Fate.KNOWN),
        ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", Fate.KNOWN),
        ("JobHeldUser", Fate.OUTSIDE), ("JobHoldMaxRequeue", Fate.OUTSIDE), ("PartitionDown", Fate.OUTSIDE),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-2]", Fate.OUTSIDE), ("AssocGrpCPUMinutesLimit", Fate.OUTSIDE),
        ("QOSGrpGRESRunMinutes", Fate.OUTSIDE), ("QOSGrpWallLimit", Fate.OUTSIDE),
        ("MaxSubmitJobsPerAccount", Fate.OUTSIDE), ("QOSMaxSubmitJobPerUserLimit", Fate.OUTSIDE),
        ("AssocGrpBilling", Fate.OUTSIDE), ("ReservationDeleted", Fate.OUTSIDE), ("BurstBufferStageIn", Fate.OUTSIDE),
        ("SchedulingGated", Fate.OUTSIDE), ("Job held by kit", Fate.OUTSIDE),
        ("ClusterQueue tokyo is inactive", Fate.OUTSIDE), ("LocalQueue team doesn't exist", Fate.OUTSIDE),
        ("QOSMaxCpuPerJobLimit", Fate.NEVER), ("QOSMaxCpuMinutesPerJobLimit", Fate.NEVER),
        ("AssocMaxMemPerNode", Fate.NEVER), ("QOSMaxWallDurationPerJobLimit", Fate.NEVER),
        ("QOSMinCpuNotSatisfied", Fate.NEVER), ("QOSMinGRES", Fate.NEVER), ("InvalidQOS", Fate.NEVER),
        ("PartitionTimeLimit", Fate.NEVER), ("MaxMemPerLimit", Fate.NEVER),
        ("Job's account not permitted to use this partition (day allows bio not geo)", Fate.NEVER),
        ("Can Never Run: Insufficient amount of resource: ngpus (R: 16 A: 8 T: 8)", Fate.NEVER),
        ("couldn't assign flavors: insufficient quota for cpu, request > maximum capacity (9 > 8)", Fate.NEVER),
    ],
)  # fmt: skip
def test_reasons_have_the_fate_that_the_scheduler_means(reason: str, fate: Fate) -> None:
    verdict = verdict_of(reason)
    assert verdict.fate is fate
    assert verdict.words or fate is Fate.KNOWN


TRES = ("BB", "Billing", "Energy", "GRES", "License", "Unknown")
NAMES = """
AccountNotAllowed AccountingPolicy AssociationJobLimit AssociationResourceLimit AssociationTimeLimit BadConstraints
BeginTime BurstBufferOperation BurstBufferResources BurstBufferStageIn Cleaning Constraints DeadLine Dependency
DependencyNeverSatisfied FedJobLock InactiveLimit InvalidAccount InvalidQOS JobArrayTaskLimit JobHeldAdmin JobHeldUser
JobHoldMaxRequeue JobLaunchFailure Licenses MaxMemPerLimit MaxPoweredUpNodes MpiPortsBusy NodeDown NonZeroExitCode
None NvidiaImexChannels OutOfMemory PartitionConfig PartitionDown PartitionInactive PartitionNodeLimit
PartitionTimeLimit Priority Prolog QOSJobLimit QOSNotAllowed QOSResourceLimit QOSTimeLimit QOSUsageThreshold
RaisedSignal ReqNodeNotAvail Reservation ReservationDeleted ReservationInvalid Resources SchedDefer SystemFailure
TimeLimit AssocGrpCpuLimit AssocGrpMemLimit AssocGrpNodeLimit AssocGrpJobsLimit AssocGrpSubmitJobsLimit
AssocGrpWallLimit AssocGrpCPUMinutesLimit AssocGrpCPURunMinutesLimit AssocGrpMemMinutes AssocGrpMemRunMinutes
AssocGrpNodeMinutes AssocGrpNodeRunMinutes AssocMaxCpuMinutesPerJobLimit AssocMaxCpuPerJobLimit AssocMaxCpuPerNode
AssocMaxJobsLimit AssocMaxMemMinutesPerJob AssocMaxMemPerJob AssocMaxMemPerNode AssocMaxNodeMinutesPerJob
AssocMaxNodePerJobLimit AssocMaxSubmitJobLimit AssocMaxWallDurationPerJobLimit MaxCpuPerAccount MaxMemoryPerAccount
MaxNodePerAccount MaxJobsPerAccount MaxSubmitJobsPerAccount QOSGrpCPUMinutesLimit QOSGrpCPURunMinutesLimit
QOSGrpCpuLimit QOSGrpJobsLimit QOSGrpMemLimit QOSGrpMemoryMinutes QOSGrpMemoryRunMinutes QOSGrpNodeLimit
QOSGrpNodeMinutes QOSGrpNodeRunMinutes QOSGrpSubmitJobsLimit QOSGrpWallLimit QOSMaxCpuMinutesPerJobLimit
QOSMaxCpuPerJobLimit QOSMaxCpuPerNode QOSMaxCpuPerUserLimit QOSMaxJobsPerUserLimit QOSMaxMemoryMinutesPerJob
QOSMaxMemoryPerJob QOSMaxMemoryPerNode QOSMaxMemoryPerUser QOSMaxNodeMinutesPerJob QOSMaxNodePerJobLimit
QOSMaxNodePerUserLimit QOSMaxSubmitJobPerUserLimit QOSMaxWallDurationPerJobLimit QOSMinCpuNotSatisfied QOSMinMemory
QOSMinNode
"""
OF_SLURM = {
    *NAMES.split(),
    *(f"{who}Grp{what}{unit}" for who in ("Assoc", "QOS") for what in TRES for unit in ("", "Minutes", "RunMinutes")),
    *(f"{who}Max{what}{of}" for who in ("Assoc", "QOS") for what in TRES for of in ("PerJob", "PerNode",
                                                                                    "MinutesPerJob")),
    *(f"QOSMax{what}PerUser" for what in TRES), *(f"QOSMin{what}" for what in TRES),
    *(f"Max{what}PerAccount" for what in TRES),
    *(f"Max{what}RunMinsPer{who}" for what in (*TRES, "Cpu", "Memory", "Node") for who in ("Account", "User")),
}  # fmt: skip
"""All 216 names of Slurm 24.11 but InvalidReason (a number without a name), and three of the same form."""
OF_PBS = {
    Fate.KNOWN: (
        "Insufficient amount of resource: ncpus (R: 8 A: 4 T: 64)", "Insufficient amount of server resource: lic",
        "Not enough free nodes available", "Not enough of the right type of nodes available", "Nodes not available",
        "No available resources on nodes", "Job would conflict with reservation or top job",
        "Job would interfere with a confirmed reservation", "Job would break strict sorted order",
        "User has reached server running job limit.", "Group has reached queue night running limit.",
        "Project has reached queue night's running limit.", "Queue night job limit has been reached.",
        "Server per-user limit reached on resource ngpus", "Server job limit reached for user kit",
        "Node has reached user run limit", "Job preempted by requeuing", "Job failed to be preempted",
        "Job not run because it would immediately be preemptable.",
    ),
    Fate.OUTSIDE: (
        "Queue not started.", "Queue not an execution queue.", "Dedicated time conflict", "Job held by kit",
        "Job would cross dedicated time boundary", "Job would not finish before dedicated time",
        "Job only runs in primetime", "Job will run in nonprimetime only", "Job would cross into primetime",
        "Job would exceed mission CPU share", "Job is under job_sort_formula threshold value",
        "Job is in an invalid state", "Node is in an ineligible state: offline", "Node has no PBS license",
    ),
    Fate.NEVER: ("Not enough total nodes available", "Job has zero shares for fairshare"),
}  # fmt: skip
OF_KUEUE = {
    Fate.KNOWN: (
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor a, 4 more needed",
        "couldn't assign flavors to pod set main: untolerated taint {k v NoSchedule} in flavor spot, insufficient "
        "unused quota for nvidia.com/gpu in flavor dear, 1 more needed",
        "couldn't assign flavors to pod set main: topology \"rack\" allows to fit only 1 out of 2 pod(s)",
        "Preemption is required: insufficient unused quota. Pending the preemption of 2 workload(s)",
        "Workload has overlapping preemption targets with another workload", "Evicted due to PodsReadyTimeout",
        "Preempted to accommodate a workload (UID: 1) due to prioritization", "Exceeded the PodsReady timeout a/b",
        "0/5 nodes are available: 3 Insufficient nvidia.com/gpu, 2 node(s) had untolerated taint {k: v}.",
    ),
    Fate.OUTSIDE: (
        "LocalQueue a is stopped", "ClusterQueue b is inactive", "ClusterQueue b not found", "LocalQueue a is missing",
        "Can't admit new workloads: references missing ResourceFlavor(s): x.", "Admission is gated by: x",
        "The workload has failed admission checks", "The workload is deactivated", "Deactivated due to x",
    ),
    Fate.NEVER: (
        "Workload namespace doesn't match ClusterQueue selector", "resource x unavailable in ClusterQueue",
        "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor a, request > maximum capacity "
        "(9 > 8)",
        "couldn't assign flavors to pod set main: untolerated taint {k v NoSchedule} in flavor spot",
        "couldn't assign flavors to pod set main: flavor a doesn't match node affinity",
        "resources didn't satisfy LimitRange constraints: x", "resource validation failed: x",
        "Flavor \"a\" does not support TopologyAwareScheduling", "no requested topology level: rack",
        "DRA resource claims not supported",
    ),
}  # fmt: skip


def test_every_reason_of_slurm_is_listed() -> None:
    assert len(OF_SLURM) == 219
    assert [reason for reason in sorted(OF_SLURM) if verdict_of(reason) is UNLISTED] == []
    assert verdict_of("MaxCpuRunMinsPerUser").fate is Fate.OUTSIDE  # as for QOSGrpCPURunMinutesLimit


@pytest.mark.parametrize("before", ["", "Not Running: ", "Not Running - "])
def test_every_comment_of_pbs_is_listed(before: str) -> None:
    for fate, comments in OF_PBS.items():
        for comment in comments:
            assert verdict_of(before + comment).fate is fate, comment
            assert verdict_of(before + comment) is not UNLISTED, comment


def test_every_message_of_kueue_about_a_workload_is_listed() -> None:
    for fate, messages in OF_KUEUE.items():
        for message in messages:
            assert verdict_of(message).fate is fate, message
            assert verdict_of(message) is not UNLISTED, message


def test_a_reason_that_is_not_listed_is_forecast_with_a_warning(tmp_path: Path) -> None:
    answer = Answer(tmp_path, [queued(1, state_reason="WaitingForTheMoon"), queued(2, state_reason="Priority")])
    assert answer.medians_s == {"1": 0.0, "2": 0.0}
    assert "warning: 1 job waits for reasons that dagsim does not list, such as 'WaitingForTheMoon'" in answer.warnings


@pytest.mark.parametrize("reason", ["BeginTime", "Priority", "None"])
def test_no_job_starts_before_its_begin_time_whatever_its_reason(tmp_path: Path, reason: str) -> None:
    later = {"eligible_time": NOW_S + 5400, "state_reason": reason}
    answer = Answer(
        tmp_path, [queued(1), queued(2, **later), queued(3, **later | {"eligible_time": NOW_S + 4 * 86400})]
    )
    assert answer.medians_s == {"1": 0.0, "2": pytest.approx(5400), "3": pytest.approx(4 * 86400)}


def test_a_begin_time_that_the_listing_does_not_state_is_not_taken_as_now(tmp_path: Path) -> None:
    unstated = {"eligible_time": 0, "state_reason": "BeginTime"}
    jobs = [
        queued(1, **unstated),
        queued(2, **unstated | {"start_time": NOW_S + 5400}),  # squeue lists the begin time as the start
        queued(3, eligible_time=NOW_S - 60, state_reason="BeginTime"),  # it has passed since the last cycle
    ]
    answer = Answer(tmp_path, jobs)
    assert answer.medians_s == {"2": pytest.approx(5400), "3": 0.0}
    assert answer.without == {"1": ("outside", "BeginTime: the listing does not state its begin time")}


def test_what_waits_for_something_outside_gets_its_reason_instead_of_a_forecast(tmp_path: Path) -> None:
    jobs = [
        queued(1, state_reason="PartitionInactive"),
        queued(2, state_reason="JobHeldAdmin"),
        queued(3, state_reason="InvalidAccount"),
        queued(4),
    ]
    answer = Answer(tmp_path, jobs)
    assert answer.medians_s == {"4": 0.0}
    assert {job: kind for job, (kind, _) in answer.without.items()} == {"1": "outside", "2": "outside", "3": "never"}
    assert answer.without["1"][1] == "PartitionInactive: until its partition is active"
    assert "never: InvalidAccount: its account is not valid" in answer.table
    assert "1 job can never start under the present rules, 2 jobs are held or wait" in answer.warnings


def test_what_no_future_starts_holds_nobody_up(tmp_path: Path) -> None:
    """The first of the queue needs the whole site and is blocked; under FIFO, nobody would start behind it."""
    jobs = [queued(1, cpus=48, node_count=3, state_reason="PartitionDown"), queued(2)]
    assert Answer(tmp_path, jobs, SITE + "policy: fifo\n").medians_s == {"2": 0.0}


def test_dependents_of_what_never_ends_have_no_forecast_either(tmp_path: Path) -> None:
    def after(condition: str) -> dict[str, str]:
        return {"dependency": condition, "state_reason": "Dependency"}

    jobs = [
        queued(1, "RUNNING"),
        queued(2, "RUNNING", time_limit={"set": True, "infinite": True, "number": 0}),
        queued(3, state_reason="QOSMaxNodePerJobLimit"),
        queued(4, **after("afterok:1(unfulfilled)")),
        queued(5, **after("afterok:2(unfulfilled)")),
        queued(6, **after("afterany:3(unfulfilled)")),
        queued(7, **after("afterok:6(unfulfilled),afterok:1(unfulfilled)")),
        queued(8, **after("afterok:777(unfulfilled)")),
        queued(9, **after("afterok:777(unfulfilled)?afterok:1(unfulfilled)")),
        queued(10, **after("")),
    ]
    answer = Answer(tmp_path, jobs)
    assert set(answer.medians_s) == {"4", "9"}
    assert {job: why for job, (_, why) in answer.without.items() if job != "3"} == {
        "5": "Dependency: on job 2, which has no time limit",
        "6": "Dependency: on job 3, which never starts",
        "7": "Dependency: on job 6, which never starts",
        "8": "Dependency: on job 777, which neither runs nor waits here",
        "10": "Dependency: nobody states on which job",
    }


LIMITED = (
    SITE
    + """
queues:
  tree:
  - {name: geo, limits: {cpus: 40}}
  partitions:
  - {name: day, max_time_s: 7200, qos: cap}
  - {name: night}
  qos:
  - {name: std, user_limits: {jobs: 2}}
  - {name: cap, account_limits: {memory_gb: 100}, user_limits: {cpus: 32}}
  reservations:
  - {name: past, nodes: [n1], start_s: 1600000000, end_s: 1600003600}
  licences: {cad: 2}
"""
)


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"cpus": 34, "node_count": 3}, "QOSMaxCpuPerUser (32) < 34: the user kit in the QOS cap"),
        ({"cpus": 42, "node_count": 3, "partition": "night"}, "AssocGrpCpu (40) < 42: the account geo"),
        ({"tres_req_str": "cpu=8,mem=120G,node=2", "node_count": 2}, "MaxMemoryPerAccount (100) < 120"),
        ({"time_limit": 180}, "PartitionTimeLimit (7,200 s) < 10,800 s: the partition day"),
        ({"tres_req_str": "cpu=8,mem=2G,node=1,license/cad=3"}, "Licenses: cad (2) < 3"),
        ({"resv_name": "past", "state_reason": "Reservation"}, "Reservation: 'past' is over"),
        ({"cpus": 20}, "the cluster, idle, has no room for 20 CPUs, 2 GB"),
    ],
)
def test_a_job_over_a_rule_of_the_site_names_rule_limit_and_amount(
    tmp_path: Path, terms: dict[str, Any], words: str
) -> None:
    answer = Answer(tmp_path, [queued(1, **terms), queued(2)], LIMITED)
    assert set(answer.medians_s) == {"2"}
    kind, why = answer.without["1"]
    assert kind == "never"
    assert why.startswith(words)
    assert f"never: {words}"[:40] in " ".join(answer.table.split())


def test_one_partition_of_several_that_admits_a_job_is_enough(tmp_path: Path) -> None:
    answer = Answer(tmp_path, [queued(1, time_limit=180, partition="day,night"), queued(2)], LIMITED)
    assert set(answer.medians_s) == {"1", "2"}


def test_a_planned_job_over_a_limit_says_which(tmp_path: Path) -> None:
    planned = "cpus=36,nodes=3,user=kit,account=geo,partition=day,limit=1h"
    result = invoke("eta", *queue_words(tmp_path, as_listed([queued(1)]), LIMITED), "--job", planned)
    assert result.exit_code == 2
    assert "QOSMaxCpuPerUser (32) < 36" in " ".join(result.output.split())


def test_a_limit_that_the_configuration_lacks_is_named(tmp_path: Path) -> None:
    answer = Answer(tmp_path, [queued(1, state_reason="QOSMaxCpuPerUserLimit"), queued(2)])
    assert set(answer.medians_s) == {"1", "2"}
    assert (
        "1 job waits for a limit such as QOSMaxCpuPerUserLimit, but the configuration has no such limit"
        in answer.warnings
    )


def test_a_policy_without_limits_is_named_where_a_job_waits_for_one(tmp_path: Path) -> None:
    answer = Answer(tmp_path, [queued(1, state_reason="QOSMaxCpuPerUserLimit")], f"{LIMITED}policy: easy\n")
    assert "1 job waits for a limit such as QOSMaxCpuPerUserLimit, but easy applies no limits" in answer.warnings


def test_a_suspended_job_comes_back_for_the_rest_of_its_limit(tmp_path: Path) -> None:
    """It ran 20 of 50 minutes; what took its node has 40 left at most. It comes before who waited longer."""
    held = {"cpus": 16, "tres_req_str": "cpu=16,mem=2G,node=1", "tres_alloc_str": "cpu=16,mem=2G,node=1"}
    jobs = [
        queued(1, cpus=16, submit_time=NOW_S - 9000, eligible_time=NOW_S - 9000),
        queued(2, "SUSPENDED", **held, start_time=NOW_S - 1800, pre_sus_time=1200, suspend_time=NOW_S - 600),
        queued(3, "RUNNING", **held),
    ]
    one_node = SITE.replace("n[1-3]", "n[1-1]").replace("count: 3", "count: 1")
    answer = Answer(tmp_path, jobs, f"{one_node}policy: slurm-multifactor\n")
    assert 0 < answer.medians_s["2"] < answer.medians_s["1"]
    assert "Suspended" in answer.table
    for policy in ("slurm-multifactor", "easy", "fifo"):
        began = starts_by_limits(tmp_path / "now.json", tmp_path / "site.yaml", policy)
        assert began == {"3": -600, "2": 2400, "1": 4200}


def starts_by_limits(state: Path, site: Path, policy: str) -> dict[str, float]:
    """The starts of a queue's jobs when all run to their limits, in seconds after the snapshot."""
    config = load_config(site, [Setting("test", "workload", workload_of(state))], own=False)
    scenario = cluster_scenario_of(config)
    schedule = drive(scenario.kernel(0), make_policy(scenario, policy, 0))
    return {job: time_s - schedule.begins_s for job, (time_s,) in start_times(schedule).items()}


def test_components_of_a_heterogeneous_job_are_forecast(tmp_path: Path) -> None:
    jobs = [queued(5, het_job_id=5, het_job_offset=0), queued(6, het_job_id=5, het_job_offset=1), queued(8)]
    assert set(Answer(tmp_path, jobs).medians_s) == {"5", "8"}


HEAD = (
    "JobIDRaw|JobID|User|Account|Partition|QOS|State|Submit|Eligible|Start|End|ElapsedRaw|Suspended|TimelimitRaw|NNodes"
    "|NCPUS|ReqTRES|AllocTRES|NodeList|SubmitLine"
)


def test_a_back_test_goes_on_past_jobs_that_can_never_start(tmp_path: Path) -> None:
    """A job over a limit of its user waits through a log of 200 others, and is counted instead of scored."""
    rng, rows, free_s = np.random.default_rng(4), [HEAD], 0
    for number in range(1, 201):
        submit_s = NOW_S + 600 * number
        lasts_s = int(rng.integers(300, 1500))
        start_s = max(submit_s, free_s)
        free_s = start_s + lasts_s
        tres = "cpu=24,mem=2G,node=3"
        rows.append(
            f"{number}|{number}|kit|geo|day|std|COMPLETED|{submit_s}|{submit_s}|{start_s}|{free_s}|{lasts_s}|00:00:00|60|3"
            f"|24|{tres}|{tres}|n[1-3]|sbatch -t 60"
        )
    over = "cpu=36,mem=2G,node=3"
    rows.insert(
        20,
        f"900|900|kit|geo|day|std|PENDING|{NOW_S + 12100}|{NOW_S + 12100}|Unknown|Unknown|0|00:00:00|60|3|36|{over}||"
        "None assigned|sbatch -t 60",
    )
    (tmp_path / "sacct.txt").write_text("\n".join(rows) + "\n")
    (tmp_path / "site.yaml").write_text(LIMITED)
    words = ["eta", "--backtest", str(tmp_path / "sacct.txt"), "--config", str(tmp_path / "site.yaml")]
    scores = json_of(*words, "--futures", 3, "--every", "1h", "--workers", 1)
    assert scores["no_forecast"] == {"never": 1, "outside": 0, "never_but_started": 0}
    assert scores["n"] > 50
    assert scores["never_started"] == 0


@pytest.mark.data
def test_what_a_real_slurm_never_started_has_no_forecast(data: Path, tmp_path: Path) -> None:
    """After five hours of site-C, jobs over limits of jobs and partitions, or not permitted, are told from others."""
    folder = data / "golden/slurm/site-C"
    site = tmp_path / "site.yaml"
    fine("site", "import", folder, "-o", site)
    state = tmp_path / "now.json"
    state.write_bytes(gzip.decompress((folder / "snap/018360/squeue.json.gz").read_bytes()))
    answer = json_of("eta", "--config", site, "--state", state, "--futures", 2)
    never = {row["job"] for row in answer["no_forecast"] if row["kind"] == "never"}
    assert {"1036", "1070", "1106", "1119", "1126", "1133", "1139", "1146", "1152", "1213", "1225", "1043"} <= never
    forecast = {row["job"] for row in answer["jobs"]}
    assert {"1032", "1097", "1158", "1387", "1164"} <= forecast  # the last waits for one that waits
    begins = next(row for row in answer["jobs"] if row["job"] == "1193")
    assert begins["median_s"] > 36 * 3600  # --begin in 40 hours
