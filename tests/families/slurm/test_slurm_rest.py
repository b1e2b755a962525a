"""What sites of Slurm use besides: budgets, grace times, nodes by name, repeated and magnetic reservations,
heterogeneous jobs, and what slurmctld's log says about nodes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.log_reading import first_starts, starts

from dagsim.families.slurm.site.controller_log import read_controller_log
from dagsim.model import (
    Caps,
    Cluster,
    GpuType,
    Job,
    JobSuspension,
    Kind,
    Node,
    NodePartition,
    NodeReservation,
    Qos,
    QueueNode,
    QueueTree,
    RejectReason,
    Request,
    Task,
)
from dagsim.model.log import Schedule
from dagsim.systems.cluster.models.kept_work import Preemption
from dagsim.systems.cluster.past.recall import forgotten
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.traces.trace_file import TraceFile
from dagsim.workload.records import write_jobs

FIFO = "slurm-multifactor[order=basic,bf_interval_s=1,bf_resolution_s=1,gangs=distinct]"


def job(name: str, at_s: float, seconds: float, cpus: float = 1, **rest: object) -> Job:
    nodes = int(rest.pop("nodes", 1))  # type: ignore[call-overload]
    limit_s = rest.pop("limit_s", seconds)
    return Job.single(name, Task("t", seconds, nodes, nodes > 1, 0, cpus, estimate=limit_s), at_s, **rest)  # type: ignore[arg-type]


def played(jobs: list[Job], queues: QueueTree, spec: str = FIFO, nodes: int = 2, **models: object) -> Schedule:
    machines = Cluster(tuple([Node(f"n{at}", None, 0, 4, 64, features=(f"r{at % 2}",)) for at in range(nodes)]))
    scenario = ClusterScenario(machines, jobs, queues=queues, **models)  # type: ignore[arg-type]
    return scenario.kernel(0).run(POLICIES.create(spec))


BUDGET = QueueTree((QueueNode("lab", limits=Caps(minutes={"cpus": 10.0})),))
"""600 CPU-seconds."""


def test_a_budget_counts_what_runs_may_use_until_their_limits_and_what_was_used() -> None:
    def mine(name: str, at_s: float, seconds: float, limit_s: float) -> Job:
        return job(name, at_s, seconds, limit_s=limit_s, account="lab", user="ada")

    jobs = [mine("first", 0, 100, 400), mine("second", 1, 50, 300), mine("small", 2, 10, 150)]
    never = "slurm-multifactor[order=multifactor,half_life_s=0,calc_period_s=10,bf_interval_s=1]"
    # 400 s are promised to first; of the 200 s that are left small may have 150. Once first has ended after 100 s and
    # small after 10, 490 s are left, so second fits.
    assert first_starts(played(jobs, BUDGET, never)) == {"first": 0, "small": 2, "second": 100}


def test_usage_decays_until_a_job_fits_and_never_for_a_qos_that_keeps_it() -> None:
    jobs = [job("old", 0, 500, account="lab", qos="q"), job("new", 1, 10, limit_s=300, account="lab", qos="q")]
    spec = "slurm-multifactor[half_life_s=1000,calc_period_s=10,bf_interval_s=1]"
    decaying = first_starts(played(jobs, BUDGET, spec))["new"]
    # 500 s, most of them decayed by a factor of about 0.84 meanwhile, must fall to 300 s
    assert 500 < decaying < 1100
    kept = QueueTree(qos=(Qos("q", limits=Caps(minutes={"cpus": 10.0}), keeps_usage=True),))
    schedule = played(jobs, kept, spec)
    assert "new" not in first_starts(schedule)
    assert [row.value for row in schedule.log if row.kind == Kind.REJECTED] == [RejectReason.CANCELLED]


def test_a_state_from_a_log_knows_the_decayed_usage_of_a_budget(tmp_path: Path) -> None:
    jobs = [job("old", 0, 500, account="lab"), job("more", 520, 50, account="lab")]
    jobs += [job("new", 530, 10, limit_s=420, account="lab")]
    spec = "slurm-multifactor[half_life_s=1000,calc_period_s=10,bf_interval_s=1]"
    whole = first_starts(played(jobs, BUDGET, spec))
    assert whole["more"] < 550 < 600 < whole["new"]
    log = [replace(job, observed_start_s=whole[job.id], observed_nodes=("n0",)) for job in jobs]
    write_jobs(tmp_path / "log.jsonl", log)
    scenario = ClusterScenario(
        Cluster((Node("n0", None, 0, 4, 64),)), TraceFile(str(tmp_path / "log.jsonl"), since=580), queues=BUDGET
    )
    rest = scenario.kernel(0).run(POLICIES.create(spec))
    assert first_starts(rest)["new"] == pytest.approx(whole["new"], abs=20)


def test_different_nodes_count_against_a_limit_on_nodes() -> None:
    queues = QueueTree((QueueNode("lab", limits=Caps(nodes=1)),))
    jobs = [job("one", 0, 20, 3, account="lab"), job("same", 1, 5, account="lab"), job("next", 2, 5, 4, account="lab")]
    assert first_starts(played(jobs, queues)) == {"one": 0, "same": 1, "next": 20}


@pytest.mark.parametrize(("mode", "starts_again"), [("requeue", True), ("cancel", False)])
def test_a_preempted_run_goes_on_for_its_grace_time(mode: str, starts_again: bool) -> None:
    low = Qos("low", preempt=mode, grace_s=30.0)  # type: ignore[arg-type]
    queues = QueueTree(qos=(Qos("high", preempts=("low",)), low))
    jobs = [job("victim", 0, 100, 4, qos="low"), job("urgent", 10, 20, 4, qos="high")]
    spec = FIFO.replace("]", ",preempt=qos,requeue_delay_s=5]")
    times = starts(played(jobs, queues, spec, nodes=1, preemption=Preemption(on_resume="restart")))
    assert times["urgent"][0][0] == 40
    assert [time_s for time_s, _ in times["victim"]] == ([0, 60] if starts_again else [0])


def test_only_the_runs_on_the_chosen_nodes_are_stopped() -> None:
    queues = QueueTree(qos=(Qos("high", preempts=("low",)), Qos("low", preempt="requeue")))
    jobs = [job("small", 0, 100, 2, qos="low"), job("wide", 1, 100, 4, qos="low"), job("urgent", 10, 20, 4, qos="high")]
    spec = FIFO.replace("]", ",preempt=qos,place=best]")
    schedule = played(jobs, queues, spec, preemption=Preemption(on_resume="restart"))
    stopped = [schedule.jobs[row.job].id for row in schedule.log if row.kind == Kind.PREEMPTED]
    assert (first_starts(schedule)["urgent"], stopped) == (10, ["small"])


def test_a_job_gets_the_nodes_that_it_names_and_none_that_it_excludes() -> None:
    jobs = [
        job("named", 0, 9, request=Request(nodes=("n1",))),
        job("without", 0, 9, request=Request(excluded=("n0", "n1"))),
        job("among", 0, 9, nodes=2, request=Request(nodes=("n2",), spread=True)),
    ]
    times = starts(played(jobs, QueueTree(), nodes=3))
    assert times["named"] == [(0, 1)]
    assert times["without"] == [(0, 2)]
    assert 2 in [node for _, node in times["among"]]


def test_a_count_in_a_constraint_is_kept() -> None:
    jobs = [job("mixed", 0, 9, nodes=2, request=Request("[r0*1&r1*1]", spread=True))]
    assert [node for _, node in starts(played(jobs, QueueTree(), nodes=4))["mixed"]] == [0, 1]


def test_backfill_looks_for_the_whole_job_at_each_counted_feature() -> None:
    """``_try_sched`` in backfill.c tests the features one by one, each for all CPUs of the job: two nodes of either
    rack have to be free although the job takes one of each.
    """
    ahead = job("ahead", 0, 100, 4, nodes=4, request=Request(spread=True))
    waits = job("waits", 1, 200, 4, nodes=6, request=Request(spread=True))
    counted = job("pair", 2, 50, 4, nodes=2, request=Request("[r0*1&r1*1]", spread=True))
    plain = replace(counted, request=Request(spread=True))
    assert first_starts(played([ahead, waits, plain], QueueTree(), nodes=6)) == {"ahead": 0, "pair": 2, "waits": 100}
    assert first_starts(played([ahead, waits, counted], QueueTree(), nodes=6)) == {
        "ahead": 0,
        "waits": 100,
        "pair": 300,
    }
    # runs that the job may stop count as gone in these searches, and none is stopped without need
    queues = QueueTree(qos=(Qos("low", preempt="requeue"), Qos("high", preempts=("low",))))
    jobs = [replace(ahead, qos="low"), replace(waits, qos="low"), replace(counted, qos="high")]
    assert first_starts(played(jobs, queues, FIFO[:-1] + ",preempt=qos]", nodes=6)) == {
        "ahead": 0,
        "pair": 2,
        "waits": 100,
    }


def test_a_job_whose_account_is_refused_reserves_nodes_in_every_backfill_cycle() -> None:
    """``select_nodes`` tests AllowAccounts only after backfill has chosen nodes (22.05). The job behind it, which
    the main loop cannot start, waits until it fits beside this reservation.
    """
    part = NodePartition("p", accounts=("lab",))
    queues = QueueTree((QueueNode("lab"), QueueNode("x")), partitions=(part,))
    refused = job("refused", 1, 300, 4, account="x", partition="p")
    jobs = [
        job("now", 0, 100, 4, account="lab", partition="p"),
        refused,
        job("wide", 2, 50, 4, nodes=2, account="lab", partition="p", request=Request(spread=True)),
        job("behind", 3, 50, 4, account="lab", partition="p"),
    ]
    schedule = played(jobs, queues)
    assert first_starts(schedule) == {"now": 0, "wide": 100, "behind": 150}
    assert first_starts(played([one for one in jobs if one is not refused], queues)) == {
        "now": 0,
        "behind": 3,
        "wide": 100,
    }


def test_a_refused_job_of_the_log_reserves_nodes_until_it_is_cancelled(tmp_path: Path) -> None:
    header = "JobIDRaw|JobID|User|Account|Partition|QOS|State|Submit|Eligible|Start|End|TimelimitRaw|NNodes|NCPUS"
    rows = [
        "1|1|ada|lab|p|q|COMPLETED|1000|1000|1000|1100|2|1|4|cpu=4,node=1|cpu=4,node=1|n1",
        "2|2|bo|x|p|q|{state}|1001|1001|Unknown|{end}|5|1|4|cpu=4,node=1||None assigned",
        "3|3|ada|lab|p|q|COMPLETED|1002|1002|1100|1150|1|2|8|cpu=8,node=2|cpu=8,node=2|n[0-1]",
        "4|4|ada|lab|p|q|COMPLETED|1003|1003|1150|1180|1|1|4|cpu=4,node=1|cpu=4,node=1|n0",
    ]
    machines = Cluster(tuple([Node(f"n{at}", None, 0, 4, 64) for at in range(2)]))
    part = NodePartition("p", accounts=("lab",))
    queues = QueueTree((QueueNode("lab"), QueueNode("x")), partitions=(part,))
    found = {}
    for state, end in (("PENDING", "Unknown"), ("CANCELLED by 0", "1002")):
        path = tmp_path / f"{state[:4]}.txt"
        listed = "\n".join([header + "|ReqTRES|AllocTRES|NodeList", *rows]).format(state=state, end=end)
        path.write_text(listed + "\n")
        scenario = ClusterScenario(machines, TraceFile(str(path), format="sacct"), queues=queues)
        found[state[:4]] = first_starts(scenario.kernel(0).run(POLICIES.create(FIFO)))
    assert found == {"PEND": {"1": 0, "3": 100, "4": 150}, "CANC": {"1": 0, "4": 3, "3": 100}}


def test_a_job_over_a_limit_on_nodes_keeps_no_nodes_and_blocks_no_partition() -> None:
    """Slurm tests the limit also where too few nodes are free (``acct_policy_job_runnable_post_select``)."""
    queues = QueueTree((QueueNode("lab", limits=Caps(nodes=1)), QueueNode("x")))
    jobs = [
        job("first", 0, 100, 4, account="lab", request=Request(nodes=("n0",))),
        job("full", 1, 60, 4, account="x", request=Request(nodes=("n1",))),
        job("over", 2, 500, 4, account="lab"),
        job("other", 3, 500, 4, account="x"),
    ]
    assert first_starts(played(jobs, queues)) == {"first": 0, "full": 1, "other": 61, "over": 100}


def test_a_batch_job_combines_gpus_of_several_types() -> None:
    kinds = [GpuType(f"g{kind}", 1, 1, 1, 1, 1) for kind in range(2)]
    nodes = tuple([Node(f"n{at}", kinds[at // 2], 1, 4, 64, features=(f"g{at // 2}",)) for at in range(4)])
    task = Task("t", 9, 2, True, 1, 1, estimate=9)
    jobs = [Job.single("pair", task, 0, request=Request("[g0*1&g1*1]", spread=True))]
    scenario = ClusterScenario(Cluster(nodes), jobs, queues=QueueTree(partitions=(NodePartition("p"),)))
    assert [node for _, node in starts(scenario.kernel(0).run(POLICIES.create(FIFO)))["pair"]] == [0, 2]


def test_an_exclusive_user_shares_nodes_only_with_itself() -> None:
    alone = Request(exclusive_user=True)
    jobs = [job("first", 0, 50, request=alone, user="ada"), job("other", 1, 5, user="bo"), job("own", 2, 5, user="ada")]
    assert first_starts(played(jobs, QueueTree(), nodes=1)) == {"first": 0, "own": 2, "other": 50}


def test_components_of_a_job_start_together() -> None:
    jobs = [
        job("busy", 0, 30, 4, request=Request(nodes=("n1",))),
        job("het", 1, 10, 2, request=Request("r0", together="het")),
        job("het+1", 1, 10, 4, request=Request("r1", together="het")),
    ]
    assert first_starts(played(jobs, QueueTree())) == {"busy": 0, "het": 30, "het+1": 30}


def test_a_component_in_several_partitions_starts_once_and_only_with_the_others() -> None:
    queues = QueueTree(partitions=(NodePartition("p"), NodePartition("q")))
    either = Request(together="het", partitions=("p", "q"))
    jobs = [
        job("busy", 0, 30, 4, request=Request(nodes=("n1",))),
        job("het", 1, 10, 2, request=either),
        job("het+1", 1, 10, 4, request=Request("r1", together="het")),
    ]
    assert first_starts(played(jobs, queues, nodes=3)) == {"busy": 0, "het": 30, "het+1": 30}


def test_a_partition_that_spreads_takes_the_least_loaded_node() -> None:
    queues = QueueTree(partitions=(NodePartition("p", spreads=True),))
    times = starts(played([job("a", 0, 9), job("b", 1, 9), job("c", 2, 9, 2)], queues, FIFO[:-1] + ",place=best]"))
    assert [times[name][0][1] for name in "abc"] == [0, 1, 0]


def test_a_repeated_reservation_lets_its_jobs_in_again_and_keeps_others_out() -> None:
    daily = NodeReservation("class", ("n0",), 100, 200, every_s=1000)
    jobs = [
        job("late", 250, 10, request=Request(reservation="class")),
        job("other", 1050, 100, request=Request(nodes=("n0",))),
    ]
    assert first_starts(played(jobs, QueueTree(reservations=(daily,)))) == {"late": 1100, "other": 1200}


def test_a_magnetic_reservation_takes_jobs_of_its_account_unasked() -> None:
    magnet = NodeReservation("m", ("n0",), 100, 300, magnetic=True, accounts=("lab",))
    jobs = [job("mine", 150, 10, account="lab"), job("other", 150, 10, account="x")]
    queues = QueueTree((QueueNode("lab"), QueueNode("x")), reservations=(magnet,))
    assert first_starts(played(jobs, queues, nodes=1)) == {"mine": 150, "other": 300}


def test_a_magnetic_reservation_comes_before_other_nodes() -> None:
    """``sort_job_queue2`` puts a job within the reservation before the same job outside it."""
    magnet = NodeReservation("m", ("n1",), 100, 300, magnetic=True, accounts=("lab",))
    jobs = [job("mine", 150, 10, account="lab"), job("other", 150, 10, account="x")]
    queues = QueueTree((QueueNode("lab"), QueueNode("x")), reservations=(magnet,))
    times = starts(played(jobs, queues))
    assert [times[name][0] for name in ("mine", "other")] == [(150, 1), (150, 0)]


@pytest.mark.parametrize("backfill", ["true", "false"])
def test_a_job_starts_within_a_magnetic_reservation_or_outside_it(backfill: str) -> None:
    """``job_test_resv`` returns the nodes of the reservation, or all others."""
    magnet = NodeReservation("m", ("n0",), 0, 1000, magnetic=True, accounts=("lab",))
    queues = QueueTree((QueueNode("lab"), QueueNode("x")), reservations=(magnet,))
    busy = job("busy", 0, 50, 4, request=Request(nodes=("n2",)), account="x")
    wide = job("wide", 1, 10, 2, nodes=2, account="lab")
    spec = f"slurm-multifactor[order=basic,backfill={backfill},gangs=distinct]"
    assert first_starts(played([busy, wide], queues, spec, nodes=3)) == {"busy": 0, "wide": 50}


def test_a_job_whose_partition_lacks_a_magnetic_reservation_does_not_block_it_for_others() -> None:
    """``_job_runnable_test3`` in job_scheduler.c skips such a job within the reservation."""
    magnet = NodeReservation("m", ("n0",), 0, 1000, magnetic=True, accounts=("lab",))
    parts = (NodePartition("p", ("n0",)), NodePartition("q", ("n1",)))
    queues = QueueTree((QueueNode("lab"),), parts, reservations=(magnet,))
    jobs = [
        job("busy", 0, 100, 4, account="lab", partition="q"),
        job("behind", 1, 10, 4, account="lab", partition="q"),
        job("inside", 2, 10, 4, account="lab", partition="p"),
    ]
    no_backfill = "slurm-multifactor[order=basic,backfill=false]"
    assert first_starts(played(jobs, queues, no_backfill)) == {"busy": 0, "behind": 100, "inside": 2}


def test_backfill_plans_nodes_for_a_job_that_names_them_although_others_are_free() -> None:
    """``_will_run_test`` frees runs until the named nodes suffice, so no longer job takes one of these nodes first."""
    on_both = Request(nodes=("n0", "n1"), spread=False, least_nodes=2, most_nodes=2)
    jobs = [
        job("busy", 0, 100, 4, request=Request(nodes=("n0",))),
        job("named", 1, 10, 2, nodes=4, request=on_both),
        job("long", 2, 1000, 4),
    ]
    # the main loop tests only the first job
    schedule = played(jobs, QueueTree(), FIFO.replace("]", ",queue_depth=1,sched_interval_s=1e6]"), nodes=4)
    assert first_starts(schedule) == {"busy": 0, "named": 100, "long": 2}
    assert starts(schedule)["long"][0][1] == 2


def test_a_job_that_a_later_magnetic_reservation_attracts_keeps_its_nodes_from_the_main_loop() -> None:
    """``ESLURM_RESERVATION_NOT_USABLE`` in job_scheduler.c: on site-C, the main loop left b004 alone while small jobs
    of the account of ``magnet`` waited.
    """
    magnet = NodeReservation("m", ("n0",), 1000, 2000, magnetic=True, accounts=("lab",))
    parts = (NodePartition("p", ("n0",)), NodePartition("q", ("n0",)))
    queues = QueueTree((QueueNode("lab"), QueueNode("x")), parts, reservations=(magnet,))
    other = job("other", 5, 10, account="x", partition="q")
    long = job("long", 1, 100, 4, limit_s=5000, account="lab", partition="p")
    no_backfill = "slurm-multifactor[order=basic,backfill=false,gangs=distinct]"
    assert first_starts(played([long, other], queues, no_backfill, nodes=1)) == {"long": 1000, "other": 2000}
    assert first_starts(played([long, other], queues, nodes=1)) == {"long": 1000, "other": 5}  # backfill does not mind
    foreign = replace(long, account="x")
    assert first_starts(played([foreign, other], queues, no_backfill, nodes=1)) == {"long": 2000, "other": 5}


def test_jobs_go_before_jobs_that_their_qos_may_preempt() -> None:
    """``sort_job_queue2`` compares this first, before tiers and priorities."""
    queues = QueueTree(qos=(Qos("high", preempts=("low",)), Qos("low"), Qos("other")))
    named = [("low", 1), ("other", 2), ("high", 3)]
    jobs = [job("busy", 0, 100, 4, qos="other"), *[job(qos, at_s, 50, 4, qos=qos) for qos, at_s in named]]
    spec = FIFO.replace("]", ",preempt=qos]")
    assert first_starts(played(jobs, queues, spec, nodes=1)) == {"busy": 0, "high": 100, "low": 150, "other": 200}
    assert first_starts(played(jobs, queues, nodes=1)) == {"busy": 0, "low": 100, "other": 150, "high": 200}


def test_a_reservation_is_unknown_before_it_is_made() -> None:
    jobs = [job("early", 0, 120), job("late", 60, 120)]
    late = NodeReservation("fix", ("n0",), 150, 200, known_s=50)
    assert first_starts(played(jobs, QueueTree(reservations=(late,)), nodes=1)) == {"early": 0, "late": 200}


def test_the_log_of_slurmctld_says_when_nodes_were_away_and_how_long_they_boot(tmp_path: Path) -> None:
    lines = [
        "[2026-03-02T10:00:00.500] slurmctld version 23.11.4 started on cluster tide",
        "[2026-03-02T10:00:01.000] sched: Created reservation=fix users=root nodes=n[1-2] cores=8 licenses=(null) "
        "tres=cpu=8 start=2026-03-02T11:00:00 end=2026-03-02T12:00:00",
        "[2026-03-02T10:00:10.000] sched: Allocate JobId=7 NodeList=c1 #CPUs=4 Partition=cloud",
        "[2026-03-02T10:01:30.000] Resetting JobId=7 start time for node power up",
        "[2026-03-02T10:02:00.000] update_node: node n1 state set to DRAINING",
        "[2026-03-02T10:03:00.000] update_node: node n1 state set to ALLOCATED",
        "[2026-03-02T10:04:00.000] error: Nodes n[2-3] not responding, setting DOWN",
        "[2026-03-02T10:05:00.000] Node n2 returned to service",
        "[2026-03-02T10:06:00.000] _slurm_rpc_suspend(suspend) for 7_3 usec=12341",
        "[2026-03-02T10:07:30.000] _slurm_rpc_suspend(resume) for 7_3 usec=12122",
        "[2026-03-02T10:08:00.000] _slurm_rpc_suspend(suspend) for 8 usec=12341",
    ]
    (tmp_path / "slurmctld.log").write_text("\n".join(lines) + "\n")
    log = read_controller_log(tmp_path / "slurmctld.log")
    at = 1772445600.0
    assert log.outages == [
        ("n1", at + 120, at + 180, "drain"), ("n2", at + 240, at + 300, "down"), ("n3", at + 240, None, "down"),
    ]  # fmt: skip
    assert (log.made_s, log.boot_s) == ({"fix": at + 1}, 80.0)
    assert log.suspensions == [JobSuspension("7_3", at + 360, at + 450)]
    assert log.reservations["fix"]["starttime"] == "2026-03-02T11:00:00"


def test_the_policy_says_that_it_forgets_its_last_backfill_cycle() -> None:
    assert forgotten(POLICIES.create("slurm-multifactor")) == ["when the last backfill cycle began"]
    assert forgotten(POLICIES.create("slurm-multifactor[backfill=false]")) == []
