"""``dagsim why --state``: what holds a waiting job back, who is ahead of it, and which change would help."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from families.forecast import queue_cases
from families.forecast.queue_cases import NOW_S, as_listed, queue_words
from support.command_line import fine, invoke, json_of

pytestmark = pytest.mark.family("slurm")

SITE = """
cluster:
  groups:
  - {name: n, hosts: "n[1-2]", count: 2, gpus: 4, gpu: A100-40, cpus: 32, memory_gb: 128}
queues:
  tree:
  - name: geo
    limits: {gpus: 6}
    users: {kit: 1, pia: 1}
  partitions:
  - {name: day, max_time_s: 86400}
  - {name: night, max_time_s: 86400, accounts: [bio]}
  - {name: two, job_limits: {nodes: 1}, allowed_qos: [std]}
  qos:
  - {name: std, priority: 10, job_limits: {gpus: 5}}
  - {name: high, priority: 100}
  reservations:
  - {name: repair, nodes: ["n"], start_s: 1700007200, end_s: 1700010800}
  scheduler: {qos: 1000, age: 10, fair_share: 0, job_size: 0, partition: 0, gangs: distinct}
"""


def queued(id: int, gpus: int, state: str = "PENDING", *, node_count: int = 1, **terms: Any) -> dict[str, Any]:
    """A job that asks for GPUs for an hour; one that runs does since five minutes."""
    at_s = NOW_S - 600 + id
    terms = {"time_limit": 60, "submit_time": at_s, "eligible_time": at_s} | terms
    if state != "PENDING":
        terms = {"start_time": NOW_S - 300} | terms
    amounts = {"cpus": 4 * node_count, "memory_gb": 2 * node_count, "gpus": gpus}
    return queue_cases.queued(id, state, **amounts, node_count=node_count, **terms)


def why(folder: Path, jobs: list[dict[str, Any]], job: str, site: str = SITE) -> dict[str, Any]:
    """The answer of ``dagsim why --state --json``."""
    answer: dict[str, Any] = json_of("why", *queue_words(folder, as_listed(jobs), site), "--samples", 3, job)
    return answer


def test_a_limit_is_named_with_what_is_in_use_and_what_is_too_much(tmp_path: Path) -> None:
    answer = why(tmp_path, [queued(1, 4, "RUNNING"), queued(2, 4)], "2")
    assert answer["reason"] == "AssocGrpGRES"
    (limit,) = answer["limits"]
    assert (limit["limit"], limit["held"], limit["asked"], limit["excess"]) == (6, 4, 4, 2)
    assert (
        "the account geo may hold 6 GPUs at a time, 4 are in use, and the job takes 4: 2 too many" in answer["sentence"]
    )
    assert [row["job"] for row in answer["frees"]] == ["1"]
    assert answer["frees"][0]["within_s"] == pytest.approx(3300)
    assert answer["start_by_limits_s"] == pytest.approx(3300, abs=60)
    best = answer["changes"][0]
    assert best["change"] == "2 instead of 4 GPUs"
    assert best["median_s"] < 60 < answer["median_s"]


def test_jobs_ahead_are_counted_with_the_part_of_the_priority_that_puts_them_there(tmp_path: Path) -> None:
    other = {"account": "bio", "user_name": "ann"}
    busy = [queued(1, 4, "RUNNING", **other), queued(2, 4, "RUNNING", **other, nodes="n2")]
    ahead = [queued(id, 4, qos="high", time_limit=20, **other) for id in (5, 6, 7)]
    answer = why(tmp_path, [*busy, *ahead, queued(3, 1)], "3")
    assert answer["reason"] == "Priority"
    assert answer["ahead"]["same_partition"] == 3
    assert answer["ahead"]["most_by"] == "QOS"
    assert answer["ahead"]["parts"]["QOS"] == {"own": 100, "ahead": 1000}
    assert "3 jobs in the partition day are ahead of it, mainly because of QOS" in answer["sentence"]


@pytest.mark.parametrize("interval_s", [30, 600])
def test_a_job_behind_others_starts_at_the_next_cycle_if_there_is_room(tmp_path: Path, interval_s: int) -> None:
    site = SITE.replace("scheduler: {", f"scheduler: {{bf_interval_s: {interval_s}, ")
    answer = why(tmp_path, [queued(5, 1, qos="high"), queued(3, 1)], "3", site)
    assert answer["reason"] == "Priority"
    assert 0 < answer["start_by_limits_s"] <= interval_s
    assert "there is room for it at the scheduler's next cycle" in answer["sentence"]


def test_the_next_in_line_waits_for_resources(tmp_path: Path) -> None:
    other = {"account": "bio", "user_name": "ann"}
    answer = why(tmp_path, [queued(1, 4, "RUNNING", **other), queued(2, 1, "RUNNING", nodes="n2"), queued(3, 4)], "3")
    assert answer["reason"] == "Resources"
    assert answer["ahead"]["same_partition"] == 0
    assert answer["start_by_limits_s"] == pytest.approx(3300, abs=60)
    assert answer["frees"][0]["nodes"] == ["n1"] or answer["frees"][0]["nodes"] == ["n2"]


@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        ({"partition": "night"}, "AllowAccounts"),
        ({"partition": "two", "qos": "high", "time_limit": 10}, "AllowQos"),
        ({"partition": "two", "node_count": 2, "gpus": 2}, "PartitionNodeLimit"),
        ({"gpus": 6, "node_count": 2}, "QOSMaxGRESPerJob"),
        ({"time_limit": 60 * 48}, "PartitionTimeLimit"),
        ({"eligible_time": NOW_S + 7200}, "BeginTime"),
        ({"dependency": "afterok:1(unfulfilled)", "eligible_time": 0}, "Dependency"),
        ({"dependency": "afterok:99(failed)", "eligible_time": 0}, "DependencyNeverSatisfied"),
        ({"priority": 0}, "JobHeldUser"),
        ({"time_limit": 180}, "Reservation"),
    ],
)
def test_the_rules_find_the_reason_that_the_snapshot_does_not_state(
    tmp_path: Path, terms: dict[str, Any], reason: str
) -> None:
    gpus = terms.pop("gpus", 1) if "gpus" in terms else 1
    answer = why(tmp_path, [queued(1, 1, "RUNNING"), queued(2, gpus, **terms)], "2")
    assert answer["reason"] == reason
    assert answer["found_reason"] == reason
    assert answer["sentence"].startswith("Job 2 ")


def test_a_begin_time_that_the_listing_does_not_state_is_an_event_outside(tmp_path: Path) -> None:
    answer = why(tmp_path, [queued(1, 1), queued(2, 1, eligible_time=0, state_reason="BeginTime")], "2")
    assert answer["sentence"].startswith("Job 2 waits for its begin time, which the listing does not state")
    assert (answer["start_by_limits_s"], answer["futures"]) == (None, 0)


@pytest.mark.parametrize(
    ("terms", "change", "applied"),
    [
        ({}, "2 instead of 4 GPUs", {"gpus": 2}),
        ({"partition": "night", "gpus": 1}, "the partition day instead of night", {"partition": "day"}),
        ({"time_limit": 180, "gpus": 1}, "a time limit of 90 min instead of 3.0 h", {"time_limit": 90}),
    ],
)
def test_a_job_that_is_changed_as_suggested_starts_when_the_suggestion_says(
    tmp_path: Path, terms: dict[str, Any], change: str, applied: dict[str, Any]
) -> None:
    def answer(more: dict[str, Any]) -> dict[str, Any]:
        asked = {"gpus": 4} | terms | more
        return why(tmp_path, [queued(1, 4, "RUNNING"), queued(2, asked.pop("gpus"), **asked)], "2")

    before = answer({})
    suggested = next(row for row in before["changes"] if row["change"] == change)
    assert before["median_s"] is None or suggested["median_s"] < before["median_s"] - 60
    after = answer(applied)
    assert after["median_s"] == pytest.approx(suggested["median_s"], abs=1)
    if before["median_s"] is not None:
        assert suggested["sooner_s"] == pytest.approx(before["median_s"] - after["median_s"], abs=1)


def test_a_scheduler_that_has_not_come_to_a_job_yet_is_not_the_last_word(tmp_path: Path) -> None:
    answer = why(tmp_path, [queued(2, 1, partition="night", state_reason="Priority")], "2")
    assert answer["kind"] == "never"
    assert "AllowAccounts (bio) without geo: the partition night" in answer["sentence"]
    assert "for now the scheduler says Priority" in answer["sentence"]
    assert answer["changes"][0]["sooner_s"] is None  # as it is, it never starts
    assert answer["changes"][0]["change"] == "the partition day instead of night"


def test_the_words_of_the_one_table_of_reasons_are_used(tmp_path: Path) -> None:
    answer = why(tmp_path, [queued(2, 1, state_reason="JobHeldAdmin"), queued(3, 1)], "2")
    assert answer["sentence"] == "Job 2 waits: until an administrator releases it (JobHeldAdmin)."
    partition = why(tmp_path, [queued(2, 1, state_reason="PartitionDown")], "2")
    assert "the scheduler says PartitionDown (until its partition is up)" in partition["sentence"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["why", "--state", "{now}", "-c", "{site}", "9"], "job 9 is neither running nor waiting in the snapshot"),
        (["why", "--state", "{now}", "-c", "{site}", "1"], "job 1 has been running for 5 min"),
        (["why", "--state", "{now}", "2"], "give --config site.yaml"),
        (
            ["why", "--state", "{now}", "-c", "{site}", "run", "2"],
            "takes a single JOB, without a run folder and without --run",
        ),
        (["why", "2"], "give a run folder and the id of a job"),
        (["why", "run", "2", "--history", "x"], "can only be used with --state"),
    ],
)
def test_wrong_questions_are_refused(tmp_path: Path, words: list[str], message: str) -> None:
    now, site = tmp_path / "now.json", tmp_path / "site.yaml"
    queue_words(tmp_path, as_listed([queued(1, 1, "RUNNING"), queued(2, 1)]), SITE)
    result = invoke(*([word.format(now=now, site=site) for word in words]))
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_the_table_says_what_the_json_says(tmp_path: Path) -> None:
    jobs = [queued(1, 4, "RUNNING"), queued(2, 4)]
    answer = why(tmp_path, jobs, "2")
    shown = fine("why", *queue_words(tmp_path, as_listed(jobs), SITE), "--samples", 3, "2")
    text = " ".join(shown.stdout.split())
    assert answer["sentence"] in text
    assert "With 2 instead of 4 GPUs, it would start in" in text
    assert "Running jobs that free what it needs" in text
    assert "If all jobs run to their time limits and no other job is submitted, it starts in 55 min." in text


def test_contradictions_of_the_snapshot_and_the_site_come_before_the_answer(tmp_path: Path) -> None:
    jobs = [queued(1, 4, "RUNNING", nodes="n7"), queued(2, 4, account="nobody")]
    answer = why(tmp_path, jobs, "2")
    kinds = {of["kind"] for of in answer["audit"]["contradictions"]}
    assert kinds == {"nodes", "accounts"}
    shown = fine("why", *queue_words(tmp_path, as_listed(jobs), SITE), "--samples", 3, "2")
    text = " ".join(shown.output.split())
    for name in ("n7", "nobody"):
        assert -1 < text.index(name) < text.index("Job 2")


@pytest.mark.parametrize("others", ["", "  - {name: early, nodes: [n], start_s: 1699990000, end_s: 1699999000}\n"])
def test_a_job_waits_for_the_next_time_of_its_own_reservation(tmp_path: Path, others: str) -> None:
    """Its first time was an hour ago, and it is held every three hours; reservations come in any order."""
    class_ = f"  - {{name: class, nodes: [n], start_s: {NOW_S - 3600}, end_s: {NOW_S - 1800}, every_s: 10800}}\n"
    site = SITE.replace("  scheduler:", f"{class_}{others}  scheduler:")
    answer = why(tmp_path, [queued(1, 1, "RUNNING"), queued(2, 1, resv_name="class")], "2", site)
    assert answer["reason"] == "Reservation"
    assert "waits for its reservation class, which begins in 2.0 h" in answer["sentence"]


QSTAT_SITE = """
cluster:
  groups:
  - {name: n, hosts: "n[1-2]", count: 2, gpus: 4, gpu: A100-40, cpus: 32, memory_gb: 128}
"""


def in_qstat(id: int, state: str, **terms: str) -> str:
    """A job of ``qstat -f`` that takes all GPUs of a node for an hour."""
    queued = time.asctime(time.gmtime(NOW_S - 900 + id))
    fields = {
        "Job_Owner": "kit@login", "job_state": state, "queue": "day", "ctime": queued, "qtime": queued, "etime": queued,
        "Resource_List.select": "1:ncpus=8:ngpus=4", "Resource_List.ncpus": "8", "Resource_List.ngpus": "4",
        "Resource_List.walltime": "01:00:00",
    }  # fmt: skip
    if state == "R":
        fields |= {
            "stime": time.asctime(time.gmtime(NOW_S - 300)), "resources_used.walltime": "00:05:00",
            "exec_host": f"n{id}/0*8", "exec_vnode": f"(n{id}:ncpus=8:ngpus=4)",
        }  # fmt: skip
    return f"Job Id: {id}.pbs1\n" + "".join(f"    {key} = {value}\n" for key, value in (fields | terms).items()) + "\n"


@pytest.mark.parametrize(
    ("id", "sentence"),
    [
        ("3", "Job 3 is next in line and waits for free resources: too few GPUs were free"),
        ("4", "Job 4 waits: until its user releases it (JobHeldUser)."),
        ("5", "Job 5 waits for its begin time in 2.0 h (BeginTime)."),
        ("6", "Job 6 waits for job 1, which runs (Dependency)."),
    ],
)
def test_a_queue_of_pbs_is_explained_in_the_same_words(tmp_path: Path, id: str, sentence: str) -> None:
    later = time.asctime(time.gmtime(NOW_S + 7200))
    jobs = [in_qstat(1, "R"), in_qstat(2, "R"), in_qstat(3, "Q"), in_qstat(4, "H", Hold_Types="u")]
    jobs += [in_qstat(5, "W", Execution_Time=later), in_qstat(6, "H", Hold_Types="s", depend="afterok:1.pbs1@pbs1")]
    words = ["why", *queue_words(tmp_path, "".join(jobs), QSTAT_SITE, "now.txt"), "--samples", "2"]
    assert json_of(*words, id)["sentence"].startswith(sentence)


def test_jobs_that_the_reader_leaves_out_are_listed_without_a_forecast(tmp_path: Path) -> None:
    jobs = [in_qstat(1, "R"), in_qstat(2, "Q"), in_qstat(6, "H", Hold_Types="s", depend="afterok:1.pbs1@pbs1")]
    words = ["eta", *queue_words(tmp_path, "".join(jobs), QSTAT_SITE, "now.txt"), "--samples", "2"]
    answer = json_of(*words)
    assert [(row["job"], row["why"]) for row in answer["no_forecast"]] == [("6", "Dependency: on job 1")]


def test_scontrol_prints_blanks_of_a_reason_as_underscores(tmp_path: Path) -> None:
    text = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
    job = queued(7, 1, state_reason=text)
    lines = {"now.json": as_listed([job])}
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(NOW_S - 593))
    lines["now.txt"] = (
        f"JobId=7 JobName=job7 UserId=kit(1) Account=geo QOS=std JobState=PENDING Reason={text.replace(' ', '_')} "
        f"SubmitTime={moment} EligibleTime={moment} TimeLimit=01:00:00 Partition=day NumNodes=1 NumCPUs=4 "
        "ReqTRES=cpu=4,mem=2G,node=1,gres/gpu=1\n"
    )
    stated = []
    for name, content in lines.items():
        stated.append(json_of("why", *queue_words(tmp_path, content, SITE, name), "--samples", 2, "7"))
    assert stated[0]["stated_reason"] == stated[1]["stated_reason"]
    assert not any("does not list" in " ".join(answer["remarks"]) for answer in stated)
