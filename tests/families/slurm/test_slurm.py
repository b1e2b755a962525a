"""Slurm's scheduler on small work: the order, backfill, limits and preemption of its documentation."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from types import SimpleNamespace

import pytest
from support.log_reading import ends, first_starts
from support.recorded_policy import RecordedPolicy

from dagsim.errors import ConfigError, InputError, UnknownName
from dagsim.families.slurm.scheduler import run_table, slurm_priority
from dagsim.families.slurm.scheduler.backfill_outlook import BackfillOutlook
from dagsim.families.slurm.scheduler.holdings import Amounts, Holdings, UsageBefore
from dagsim.families.slurm.scheduler.multifactor import SlurmMultifactor
from dagsim.families.slurm.scheduler.priority_formulas import Weights
from dagsim.families.slurm.scheduler.run_table import RunTable
from dagsim.families.slurm.scheduler.slurm_backfill import NodePlan
from dagsim.families.slurm.scheduler.slurm_priority import Asked, Capacity, PriorityBook, PrioritySettings, RankColumns
from dagsim.families.slurm.scheduler.slurm_settings import SlurmSettings, slurm_settings
from dagsim.families.slurm.scheduler.slurm_times import FitSteps, Reserved, SiteClock, Where, earliest
from dagsim.metrics import summarize
from dagsim.model import (
    Caps,
    Cluster,
    Job,
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
    TaskGraph,
)
from dagsim.model.gpu import GpuType
from dagsim.model.log import Schedule
from dagsim.systems.cluster.api import ClusterState
from dagsim.systems.cluster.models.kept_work import Preemption
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.testing import check_policy

GPU = GpuType("G", 1.0, 16, 100, 100, 10)
FIFO = "order=basic,bf_interval_s=1,bf_resolution_s=1"


def cluster(nodes: int = 2, gpus: int = 4) -> Cluster:
    return Cluster(tuple([Node(f"n{at}", GPU, gpus, 64, 512) for at in range(nodes)]))


def job(name: str, at_s: float, seconds: float, gpus: int = 1, limit_s: float | None = None, **rest: object) -> Job:
    nodes = int(rest.pop("nodes", 1))  # type: ignore[call-overload]
    task = Task("t", seconds, nodes, nodes > 1, gpus, estimate=seconds if limit_s is None else limit_s)
    return Job.single(name, task, at_s, **rest)


def played(
    jobs: Sequence[Job], spec: str, machines: Cluster | None = None, queues: QueueTree | None = None, **models: object
) -> Schedule:
    scenario = ClusterScenario(machines or cluster(), list(jobs), queues=queues, **models)  # type: ignore[arg-type]
    return scenario.kernel(0).run(POLICIES.create(spec))


def test_the_main_loop_lets_nobody_pass_a_job_without_room() -> None:
    jobs = [job("long", 0, 10, 3), job("wide", 1, 5, 4), job("small", 2, 1)]
    got = first_starts(played(jobs, "slurm-multifactor[order=basic,backfill=false]", cluster(1)))
    assert got == {"long": 0, "wide": 10, "small": 15}


def test_backfill_starts_what_ends_before_the_reservation_and_waits_for_its_turn() -> None:
    jobs = [job("long", 0, 10, 3), job("wide", 1, 5, 4), job("short", 2, 7), job("too long", 2, 9)]
    got = first_starts(played(jobs, "slurm-multifactor[order=basic,bf_interval_s=2.5,bf_resolution_s=1]", cluster(1)))
    # at 2.5 s; short ends at 9.5, too long would hold a GPU until 11.5
    assert got == {"long": 0, "short": 2.5, "wide": 10, "too long": 15}


def test_backfill_looks_at_so_many_jobs_and_so_far_ahead() -> None:
    jobs = [job("long", 0, 10, 3), job("wide", 1, 5, 4), job("next", 2, 9), job("short", 2, 2)]
    assert first_starts(played(jobs, f"slurm-multifactor[{FIFO},bf_max_job_test=2]", cluster(1)))["short"] == 15
    assert first_starts(played(jobs, f"slurm-multifactor[{FIFO},bf_max_job_test=3]", cluster(1)))["short"] == 2
    # the reservation of wide lies beyond the window, so that next may delay it
    assert first_starts(played(jobs, f"slurm-multifactor[{FIFO},bf_window_s=5]", cluster(1)))["next"] == 2


@pytest.mark.parametrize(("rule", "start_s"), [("wait", 15.0), ("fit", 2.0)])
def test_a_limit_that_ends_as_a_reservation_begins_fits_or_does_not(rule: str, start_s: float) -> None:
    jobs = [job("long", 0, 10, 3), job("wide", 1, 5, 4), job("tie", 2, 8)]
    assert first_starts(played(jobs, f"slurm-multifactor[{FIFO},bf_ties={rule}]", cluster(1)))["tie"] == start_s


def test_a_reservation_takes_whole_nodes() -> None:
    # wide waits for both nodes at 10 s; n1 is idle, and a job of one GPU may stay there only until then
    jobs = [job("long", 0, 10, 4), job("wide", 1, 5, 1, nodes=2), job("one", 2, 20), job("brief", 3, 5)]
    got = first_starts(played(jobs, f"slurm-multifactor[{FIFO},gangs=distinct]"))
    assert got == {"long": 0, "brief": 3, "wide": 10, "one": 10}


def expected_start(wanted: int, linear_s: float) -> float:
    """The start that Slurm expects for ``wanted`` instances; each of seven runs leaves room for one when it ends."""
    table = RunTable(2)
    table.ends, table.runs = [100.0, 160.0, 1000.0, 0.0, 125.0, 131.0, 310.0, 3000.0], [3, 4]
    table.sort(50.0)
    assert table.limits.order == [100, 125, 131, 160, 310, 1000, 3000]
    times = [50.0, 100.0, 160.0, 1000.0, 0.0, 50.0, 125.0, 131.0, 310.0, 3000.0]
    rooms = [0.0, 1.0, 2.0, 3.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0]
    start_s, *_ = earliest(
        Where([0, 1], [0, 1], [1, 1], -2, 5000.0),
        FitSteps(times, rooms, [4, 5]),
        table.limits,
        Reserved([0.0] * 8, [0.0] * 8, [0] * 8, [0, 0], 4, []),
        SiteClock(50.0, 0.0, 60.0, linear_s),
        50.0,
        10.0,
        float(wanted),
        False,
        -inf,
        table.out,
    )
    return start_s


def test_a_forecast_frees_runs_window_by_window() -> None:
    """The first end, 100 s, is rounded up to 120 s; windows end 30, 60, 120 s... after that."""
    assert [expected_start(wanted, 0.0) for wanted in range(1, 8)] == [131, 131, 131, 160, 310, 1000, 3000]
    assert [expected_start(wanted, 500.0) for wanted in range(1, 8)] == [131, 131, 131, 310, 310, 1000, 3000]


@pytest.mark.parametrize(("last_s", "fits"), [(150, True), (151, False)])
def test_a_reservation_begins_with_the_end_of_a_window(last_s: float, fits: bool) -> None:
    # wide has room at 100 s, when a ends; Slurm frees b in the same window if it ends by 150 s
    jobs = [job("a", 0, 200, 2, limit_s=100), job("b", 0, last_s, 1), job("wide", 1, 5, 3), job("brief", 3, 110)]
    queues = QueueTree(partitions=(NodePartition("p", max_time_s=1000),))
    got = first_starts(played(jobs, f"slurm-multifactor[{FIFO}]", cluster(1), queues))
    assert (got["brief"] == 3) == fits


def test_a_reservation_is_rounded_down_to_the_resolution() -> None:
    view = SimpleNamespace(now=100.0, machines=ClusterState(cluster(1)))
    plan = NodePlan(view, RunTable(1), 0, None, window_s=1000.0, resolution_s=60.0)  # type: ignore[arg-type]
    for begin_s, end_s in ((185.0, 299.0), (110.0, 115.0)):
        plan.reserve(begin_s, end_s, 1)
    assert [(kept.begin_s, kept.end_s) for kept in plan.made] == [(180, 240), (100, 160)]


def test_a_job_whose_nodes_are_blocked_lets_others_pass() -> None:
    """ReqNodeNotAvail: a job of the higher tier blocks n0, and only n0 has the feature."""
    nodes = [Node(f"n{at}", GPU, 4, 64, 512, features=features) for at, features in enumerate((("fast",), ("slow",)))]
    queues = QueueTree(partitions=(NodePartition("low"), NodePartition("high", nodes=("n0",), tier=2)))
    first = [job("now", 0, 10, 3, partition="high"), job("high", 1, 10, 4, partition="high")]
    spec = "slurm-multifactor[order=basic,backfill=false]"
    for feature, start_s in (("fast", 3), ("slow", 20)):
        held_up = job("held up", 2, 10, 4 if feature == "fast" else 2, request=Request(constraint=feature))
        before = [] if feature == "fast" else [job("on n1", 0, 20, 3, request=Request(constraint="slow"))]
        jobs = [*before, *first, held_up, job("next", 3, 1)]
        got = first_starts(played(jobs, spec, Cluster(tuple(nodes)), queues))
        assert got["next"] == start_s


def test_a_job_of_a_reservation_holds_up_nobody_else() -> None:
    queues = QueueTree(reservations=(NodeReservation("course", ("n0",), 0, 100),))
    mine = {"request": Request(reservation="course")}
    jobs = [job("now", 0, 10, 3, **mine), job("wide", 1, 5, 4, **mine), job("other", 2, 5)]
    got = first_starts(played(jobs, "slurm-multifactor[order=basic,backfill=false]", queues=queues))
    assert got == {"now": 0, "wide": 10, "other": 2}


def test_a_job_of_a_reservation_comes_before_all_others() -> None:
    queues = QueueTree(reservations=(NodeReservation("course", ("n0",), 0, 100),))
    inside = job("inside", 2, 5, 4, request=Request(reservation="course"))
    jobs = [job("now", 0, 10, 4), job("wide", 1, 5, 4), inside]  # wide closes the only partition
    got = first_starts(played(jobs, "slurm-multifactor[order=basic,backfill=false]", queues=queues))
    assert got == {"now": 0, "inside": 2, "wide": 10}


def test_a_plan_uses_nodes_from_the_end_of_their_reservation_on() -> None:
    queues = QueueTree(reservations=(NodeReservation("maint", ("n0",), 0, 50),))
    jobs = [job("brief", 0, 30, 2), job("full", 0, 500, 4), job("wide", 1, 5, 4, nodes=2), job("long", 3, 200, 2)]
    got = first_starts(played(jobs, f"slurm-multifactor[{FIFO},gangs=distinct]", cluster(3), queues))
    assert got == {"brief": 0, "full": 0, "wide": 50, "long": 55}


@pytest.mark.parametrize(("limit", "start_s"), [(5, 1), (4, 10)])
def test_an_exclusive_job_counts_whole_nodes_against_limits(limit: int, start_s: float) -> None:
    queues = QueueTree(tree=(QueueNode("lab", limits=Caps(gpus=limit)),))
    whole = job("whole", 1, 5, 1, account="lab", request=Request(exclusive=True))
    jobs = [job("one", 0, 10, 1, account="lab"), whole, job("other", 2, 1)]
    got = first_starts(played(jobs, f"slurm-multifactor[{FIFO}]", queues=queues))
    assert got == {"one": 0, "whole": start_s, "other": 2}


def test_a_limit_that_no_whole_node_meets_rejects_an_exclusive_job() -> None:
    queues = QueueTree(tree=(QueueNode("lab", limits=Caps(gpus=3)),))
    whole = job("whole", 0, 5, 1, account="lab", request=Request(exclusive=True))
    assert [row.kind for row in played([whole], f"slurm-multifactor[{FIFO}]", queues=queues).log][-1] == Kind.REJECTED


def test_tasks_behind_the_limit_of_their_array_age() -> None:
    one = {"request": Request(array="7", array_limit=1)}
    jobs = [job("7_0", 0, 10, 4, **one), job("7_1", 0, 10, 4, **one), job("other", 5, 10, 4)]
    spec = "slurm-multifactor[age=1e3,fair_share=0,job_size=0,partition=0,max_age_s=100,calc_period_s=1,backfill=false]"
    assert first_starts(played(jobs, spec, cluster(1))) == {"7_0": 0, "7_1": 10, "other": 20}


def test_instances_that_need_exactly_what_a_node_has_fit() -> None:
    """3,500 MB are no whole number of millionths of a GB; eight times that, and 100,000 MB, are 128,000 MB."""
    node = Cluster((Node("n0", GPU, 4, 64, 125),))
    parts = Job.single("parts", Task("t", 10, 8, True, 0, 1, 3500 / 1024, estimate=10), 0)
    rest = Job.single("rest", Task("t", 10, 1, False, 0, 1, 100_000 / 1024, estimate=10), 1)
    assert first_starts(played([parts, rest], f"slurm-multifactor[{FIFO}]", node)) == {"parts": 0, "rest": 1}


def test_a_limit_on_gpus_of_one_type_holds_for_one_user() -> None:
    queues = QueueTree(tree=(QueueNode("lab", limits_of={"ada": Caps(gpus_of={"A": 2})}),))
    nodes = Cluster((Node("n0", replace(GPU, name="A"), 4, 64, 512), Node("n1", replace(GPU, name="B"), 4, 64, 512)))
    names = {"account": "lab", "user": "ada"}
    jobs = [job("a0", 0, 10, 2, **names), job("a1", 1, 10, 2, **names), job("b", 2, 10, 2, account="lab", user="bo")]
    jobs = [replace(one, graph=TaskGraph((replace(one.tasks[0], gpu_types=("A",)),))) for one in jobs]
    jobs.append(job("any", 3, 10, 4, **names))  # on the other type
    got = first_starts(played(jobs, f"slurm-multifactor[{FIFO}]", nodes, queues))
    assert got == {"a0": 0, "b": 2, "any": 3, "a1": 10}


def test_an_early_end_lets_everybody_move_up() -> None:
    jobs = [job("long", 0, 4, 4, limit_s=100), job("next", 1, 1, 4)]
    assert first_starts(played(jobs, f"slurm-multifactor[{FIFO}]", cluster(1)))["next"] == 4


def test_exclusive_partitions_share_no_node() -> None:
    queues = QueueTree(partitions=(NodePartition("whole", exclusive=True), NodePartition("parts")))
    jobs = [job("a", 0, 10, partition="whole"), job("b", 1, 10, partition="parts"), job("c", 2, 1, partition="whole")]
    assert first_starts(played(jobs, f"slurm-multifactor[{FIFO}]", queues=queues)) == {"a": 0, "b": 1, "c": 10}


def test_partitions_have_nodes_of_their_own_and_tiers_go_first() -> None:
    queues = QueueTree(partitions=(NodePartition("low", tier=1), NodePartition("high", nodes=("n0",), tier=2)))
    jobs = [job("now", 0, 10, 4), job("now too", 0, 10, 4), job("l", 1, 10, 4), job("h", 2, 10, 4, partition="high")]
    got = first_starts(played(jobs, f"slurm-multifactor[{FIFO}]", queues=queues))
    assert got == {"now": 0, "now too": 0, "h": 10, "l": 10}
    with pytest.raises(ConfigError, match="no node or group of nodes called 'x'"):
        played(jobs, "slurm-multifactor", queues=QueueTree(partitions=(NodePartition("p", ("x",)),)))


def test_a_user_at_the_limit_waits_and_holds_up_nobody() -> None:
    queues = QueueTree(tree=(QueueNode("lab", user_limits=Caps(jobs=1)),))
    jobs = [job(f"ada{at}", at, 10, user="ada", account="lab") for at in range(2)]
    jobs += [job("bo", 2, 10, user="bo", account="lab")]
    assert first_starts(played(jobs, f"slurm-multifactor[{FIFO}]", queues=queues)) == {"ada0": 0, "bo": 2, "ada1": 10}


def test_limits_of_accounts_hold_for_all_below_and_those_of_a_qos_for_each_user() -> None:
    tree = (QueueNode("top", limits=Caps(gpus=2), children=(QueueNode("a"), QueueNode("b"))),)
    jobs = [job("x", 0, 10, account="a"), job("y", 0, 10, account="b"), job("z", 0, 1, account="b")]
    assert first_starts(played(jobs, f"slurm-multifactor[{FIFO}]", queues=QueueTree(tree)))["z"] == 10
    qos = QueueTree(qos=(Qos("normal"), Qos("wide", user_limits=Caps(gpus=3), account_limits=Caps(jobs=2))))
    jobs = [job("x", 0, 10, 3, qos="wide", user="u"), job("y", 0, 1, 1, qos="wide", user="u"), job("z", 0, 1, user="u")]
    assert first_starts(played(jobs, f"slurm-multifactor[{FIFO}]", queues=qos)) == {"x": 0, "z": 0, "y": 10}


def test_what_no_limit_would_ever_let_run_is_cancelled_and_what_no_node_of_its_partition_holds_rejected() -> None:
    queues = QueueTree(tree=(QueueNode("lab", limits=Caps(gpus=2)),), partitions=(NodePartition("p", ("n0",)),))
    jobs = [job("wide", 0, 1, 3, account="lab"), job("fits", 0, 1, 2, account="lab"), job("two", 0, 1, 4, nodes=2)]
    schedule = played(jobs, "slurm-multifactor", queues=queues)
    reasons = {row.job: row.value for row in schedule.log if row.kind == Kind.REJECTED}
    assert reasons == {0: RejectReason.CANCELLED, 2: RejectReason.TOO_LARGE}


def test_the_wall_limit_of_a_partition_kills() -> None:
    queues = QueueTree(partitions=(NodePartition("p", max_time_s=5),))
    schedule = played([job("long", 0, 10), job("short", 0, 5)], "slurm-multifactor", queues=queues)
    killed = [(row.time_s, row.job, row.value) for row in schedule.log if row.kind == Kind.REJECTED]
    assert killed == [(5, 0, RejectReason.TIME_LIMIT)]
    assert (summarize(schedule).jobs_completed, summarize(schedule).jobs_killed) == (1, 1)
    again = ClusterScenario(cluster(), [job("long", 0, 10), job("short", 0, 5)], queues=queues).kernel(0)
    assert again.run(RecordedPolicy(schedule.log)).log == schedule.log
    late = played([job("long", 0, 10)], "slurm-multifactor[over_time_s=2]", queues=queues)
    assert [row.time_s for row in late.log if row.kind == Kind.REJECTED] == [7]
    claimed = played([job("long", 0, 10, limit_s=3)], "slurm-multifactor[kill=limit]")
    assert [row.time_s for row in claimed.log if row.kind == Kind.REJECTED] == [3]


@pytest.mark.parametrize(
    ("mode", "ended"),
    [("requeue", {"low": 133, "high": 7}), ("suspend", {"low": 15, "high": 7}), ("cancel", {"high": 7})],
)
def test_a_higher_tier_stops_a_lower_one_as_its_partition_says(mode: str, ended: dict[str, float]) -> None:
    low = NodePartition("low", tier=1, preempt=mode)  # type: ignore[arg-type]
    queues = QueueTree(partitions=(low, NodePartition("high", tier=2)))
    jobs = [job("low", 0, 10, 4), job("high", 2, 5, 4, partition="high")]
    restart = Preemption("restart" if mode == "requeue" else "resume")
    schedule = played(jobs, "slurm-multifactor[preempt=partition_prio]", cluster(1), queues, preemption=restart)
    # requeued at 2 s, eligible again 121 s later; suspended with 8 s left, it goes on at 7 s
    assert ends(schedule) == ended


def test_a_qos_stops_those_that_it_names() -> None:
    qos = (Qos("normal", preempt="suspend"), Qos("firm"), Qos("urgent", 100, preempts=("normal",)))
    jobs = [job("firm", 0, 10, 4, qos="firm"), job("soft", 0, 10, 4), job("urgent", 2, 5, 4, qos="urgent")]
    got = first_starts(played(jobs, "slurm-multifactor[preempt=qos]", queues=QueueTree(qos=qos)))
    assert got["urgent"] == 2
    without = [job("firm", 0, 10, 4, qos="firm"), job("firm2", 0, 10, 4, qos="firm"), jobs[2]]
    assert first_starts(played(without, "slurm-multifactor[preempt=qos]", queues=QueueTree(qos=qos)))["urgent"] == 10


def test_usage_before_the_simulation_makes_another_policy() -> None:
    waiting = [job(user, at_s, 5, 4, user=user, account="lab") for at_s, user in ((1, "ada"), (2, "bo"))]
    jobs = [job("long", 0, 10, 4, user="cy", account="lab"), *waiting]
    policy = SlurmMultifactor(fair_share=1000, age=0, job_size=0, partition=0, calc_period_s=1, backfill=False)
    later = policy.beginning(UsageBefore({"lab/ada": 1e6}), inf, 0.0)
    plain, charged = (first_starts(ClusterScenario(cluster(1), jobs).kernel(0).run(one)) for one in (policy, later))
    assert (plain["ada"], plain["bo"], charged["ada"], charged["bo"]) == (10, 15, 15, 10)
    assert isinstance(POLICIES.create("slurm-multifactor"), SlurmMultifactor)
    with pytest.raises(UnknownName, match="usage"):
        POLICIES.create("slurm-multifactor[usage=1]")


def test_who_has_used_more_than_a_fair_share_waits() -> None:
    jobs = [job(f"a{at}", 0, 400, 4, user="a", account="lab") for at in range(3)]
    jobs += [job("b", 1, 400, 4, user="b", account="lab")]
    # priorities are computed anew at 300 s, when a has used all there was
    assert first_starts(played(jobs, "slurm-multifactor[fair_share=1000]"))["b"] == 400
    by_age = first_starts(played(jobs, "slurm-multifactor[fair_share=0,age=1e9]"))
    assert (by_age["a2"], by_age["b"]) == (400, 400)
    assert first_starts(played(jobs, "slurm-multifactor[fair_share=1000]", cluster(1)))["b"] == 400
    assert first_starts(played(jobs, "slurm-multifactor[order=basic]", cluster(1)))["b"] == 1200


def test_usage_is_charged_by_period_after_the_older_has_decayed() -> None:
    settings = PrioritySettings(Weights(fair_share=100), half_life_s=693, calc_period_s=100)
    book = PriorityBook(settings, QueueTree(), Capacity(2, 128, 1024, 8))
    asked = Asked(book.user("lab", "ada"), "", "", 0, 0, 1, 8, 64, 2, 600)
    book.begin(0, asked, 50.0)
    d = 1 - 0.001  # a second's decay
    book.calculate(200.0)
    first = 2 * 50 * d**50
    assert book.shares.usage["lab/ada"] == pytest.approx(first * d**100 + 2 * 100 * d**100)
    book.end(0, 230.0)  # the rest is added at once, and nothing decays
    assert book.shares.usage["lab/ada"] == pytest.approx(first * d**100 + 200 * d**100 + 2 * 30 * d**30)
    assert book.fair_share("lab/ada") == 0.5  # behind root's own user, who has used nothing
    book.calculate(1e6)
    assert book.shares.usage["lab/ada"] < 1e-9


def test_a_priority_stays_as_it_was_computed_between_two_instants() -> None:
    # a point for each second of age, and 100 for the better QOS; all are computed anew at 300 s
    qos = QueueTree(qos=(Qos("normal"), Qos("better", 1)))
    spec = "slurm-multifactor[age=1000,max_age_s=1000,qos=100,fair_share=0,partition=0,job_size=0,backfill=false]"
    jobs = [job("first", 0, 290, 4), job("old", 0, 10, 4), job("young", 250, 10, 4, qos="better")]
    # at 290 s young has the 100 of its submission, and old still the 0 of its own
    assert first_starts(played(jobs, spec, cluster(1), qos)) == {"first": 0, "young": 290, "old": 300}
    later = [job("first", 0, 310, 4), *jobs[1:]]  # from 300 s on old has 300, young 50 + 100
    assert first_starts(played(later, spec, cluster(1), qos)) == {"first": 0, "old": 310, "young": 320}


def test_calculations_come_at_their_phase() -> None:
    # a point for each second of age: at 300 s by the clock, or first at 100 s
    spec = "slurm-multifactor[age=1000,max_age_s=1000,qos=40,fair_share=0,partition=0,job_size=0,backfill=false{}]"
    qos = QueueTree(qos=(Qos("normal"), Qos("better", 1)))
    jobs = [job("first", 0, 150, 4), job("old", 0, 10, 4), job("young", 90, 10, 4, qos="better")]
    assert first_starts(played(jobs, spec.format(""), cluster(1), qos))["young"] == 150
    assert first_starts(played(jobs, spec.format(",calc_phase_s=100"), cluster(1), qos)) == {
        "first": 0,
        "old": 150,
        "young": 160,
    }
    assert (
        played(jobs, spec.format(",calc_phase_s=300"), cluster(1), qos).log
        == played(jobs, spec.format(""), cluster(1), qos).log
    )


def test_new_priorities_start_a_job_though_nothing_else_happens() -> None:
    # a point for each second of age; wide has 100 from its submission on, and small 0 until all are computed at 300 s
    spec = "slurm-multifactor[age=1000,max_age_s=1000,qos=100,fair_share=0,partition=0,job_size=0,backfill=false]"
    qos = QueueTree(qos=(Qos("normal"), Qos("better", 1)))
    jobs = [job("run", 0, 1000, 3), job("wide", 5, 10, 4, qos="better"), job("small", 10, 10)]
    assert first_starts(played(jobs, spec, cluster(1), qos)) == {"run": 0, "wide": 1000, "small": 1010}
    late = [jobs[0], job("small", 10, 10), job("wide", 290, 10, 4, qos="better")]
    late.insert(1, job("first", 1, 295))  # small waits behind wide from 296 s on
    assert first_starts(played(late, spec, cluster(1), qos)) == {"run": 0, "first": 1, "small": 300, "wide": 1000}


def test_holdings_are_the_sums_of_the_runs() -> None:
    rng, holders = random.Random(5), [("user", "a"), ("user", "b"), ("qos", "q"), ("qos", "free")]
    holdings, runs = Holdings(), {}
    caps = (Caps(gpus=6, jobs=3), Caps(cpus=9.5), Caps(gpus=8, memory_gb=20))
    most = {holder: (cap.gpus, cap.cpus, cap.memory_gb, cap.jobs) for holder, cap in zip(holders, caps, strict=False)}
    for holder, cap in zip(holders, caps, strict=False):
        holdings.limit(holder, cap)
    holdings.limit(("qos", "free"), Caps())
    for number in range(300):
        mine = rng.sample(holders, 2)
        start = Amounts(rng.choice((0, 0.5, 1, 2)), rng.choice((0, 1.5, 3)), rng.choice((0, 4, 0.1)))
        left = {}  # what each limit leaves, counted anew
        for holder in most:
            held = [sum(column) for column in zip(*[row for who, row in runs.values() if holder in who], strict=True)]
            left[holder] = [
                (name, limit, limit - has, amount)
                for name, limit, has, amount in zip(Amounts._fields, most[holder], held or [0] * 4, start, strict=False)
                if limit is not None and amount
            ]
        counts = [
            (max(0, int(gap / amount + 1e-9)), holder)
            for holder in mine
            if holder in most
            for _, _, gap, amount in left[holder]
        ]
        room, tightest = holdings.room(mine, start)
        assert room == min([count for count, _ in counts], default=float("inf"))
        assert tightest is None if not counts else (room, tightest) in counts
        used_up = [
            (holder, name, limit)
            for holder in mine
            if holder in most
            for name, limit, gap, amount in left[holder]
            if gap < amount - 1e-9
        ]
        assert list(holdings.used_up(mine, start)) == used_up
        alone = [limit >= amount for holder in mine if holder in most for _, limit, _, amount in left[holder]]
        assert holdings.ever(mine, start) == all(alone)
        holdings.freed.clear()
        if room >= 1:
            holdings.take(number, mine, start)
            holdings.take(number, mine, start)  # counts once
            runs[number] = mine, start
        elif runs:
            gone = rng.choice(sorted(runs))
            holdings.give(gone)
            assert list(holdings.freed) == [holder for holder in runs.pop(gone)[0] if holder in most]


def test_a_budget_is_not_charged_while_nodes_boot() -> None:
    holdings, lab = Holdings(), ("account", "lab")
    holdings.limit(lab, Caps(minutes={"cpus": 100.0}))
    holdings.take(1, (lab,), Amounts(0, 4, 0, limit_s=600.0), now=0.0, boots=True)
    holdings.charge(300.0, 1.0)
    assert (holdings.budgets[lab].used["cpus"], holdings.held(lab, "cpus minutes")) == (0, 40)
    holdings.booted(1, 350.0)
    holdings.charge(600.0, 1.0)
    # the whole limit is still set aside: 250 s of it are used
    assert (holdings.budgets[lab].used["cpus"], holdings.held(lab, "cpus minutes")) == (1000, 40)
    holdings.give(1, 650.0)
    assert holdings.budgets[lab].used["cpus"] == 1200


def test_the_priority_of_an_exclusive_job_counts_whole_nodes_once_backfill_has_found_some() -> None:
    def order(until_s: float, more: str = "bf_interval_s=30") -> list[str]:
        spec = f"slurm-multifactor[job_size=1000,age=0,fair_share=0,partition=0,{more}]"
        half = Job.single("half", Task("t", 5, gpus=1, cpus=32, estimate=5.0), 10)
        whole = Job.single("whole", Task("t", 5, gpus=1, cpus=1, estimate=5.0), 11, request=Request(exclusive=True))
        jobs = [job("first", 0, until_s, 4), half, whole]
        got = first_starts(played(jobs, spec, cluster(1)))
        return sorted(got, key=lambda name: got[name])[1:]

    assert order(100) == ["half", "whole"]
    assert order(400) == ["whole", "half"]  # at 300 s, Slurm computes priorities from whole nodes
    assert order(400, "backfill=false") == ["half", "whole"]
    assert order(400, "bf_phase_s=310") == ["half", "whole"]  # the first backfill comes after the calculation


def test_the_nodes_that_backfill_found_last_set_the_size_of_an_exclusive_job() -> None:
    def taking(name: str, at_s: float, seconds: float, gpus: int, cpus: int, **request: bool) -> Job:
        task = Task("t", seconds, gpus=gpus, cpus=cpus, estimate=seconds)
        return Job.single(name, task, at_s, request=Request(**request) if request else None)  # type: ignore[arg-type]

    work = [taking("a", 0, 900, 3, 1), taking("b", 0, 500, 4, 1), taking("rival", 10, 5, 1, 32)]
    work += [taking("whole", 11, 5, 1, 1, exclusive=True), taking("small", 20, 5, 1, 1)]
    nodes = tuple([Node(f"n{at}", GPU, 4, cpus, 512) for at, cpus in enumerate((16, 64))])
    spec = "slurm-multifactor[job_size=1000,age=0,fair_share=0,partition=0,bf_interval_s=30]"
    got = first_starts(played(work, spec, Cluster(nodes)))
    assert got["small"] < 60
    # the node with 64 CPUs becomes free first, and the job's share of the smaller node would be 16 CPUs
    assert (got["whole"], got["rival"]) == (500, 505)


def test_backfill_cycles_keep_their_beat_while_a_job_waits() -> None:
    def start_of_short(waits: bool) -> float:
        big = [job("big", 1, 10, 4)] if waits else []
        work = [job("a", 0, 200, 3), *big, job("short", 50, 10)]
        return first_starts(played(work, "slurm-multifactor[order=basic,bf_interval_s=30]", cluster(1)))["short"]

    assert start_of_short(waits=True) == 60.0
    assert start_of_short(waits=False) == 50.0


def test_the_main_loop_rests() -> None:
    jobs = [job("a", 0, 3), job("b", 0.5, 3), job("c", 1, 3, 4), job("d", 9, 1)]
    got = first_starts(played(jobs, "slurm-multifactor[order=basic,backfill=false,sched_min_interval_s=2]", cluster(1)))
    # at 0, 2 (b), 4 (a has ended, b has not), 6 (c), 9
    assert got == {"a": 0, "b": 2, "c": 6, "d": 9}


def test_calculations_that_change_no_usage_are_skipped_with_the_same_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    def book_after(seconds: float, check_every: int) -> PriorityBook:
        monkeypatch.setattr(slurm_priority, "_STEADY_EVERY", check_every)
        settings = PrioritySettings(Weights(fair_share=100), half_life_s=6930, calc_period_s=300)
        book = PriorityBook(settings, QueueTree(), Capacity(2, 128, 1024, 8))
        for run, (user, cpus) in enumerate((("ada", 8), ("ada", 3), ("bo", 5), ("cy", 7))):
            asked = Asked(book.user("lab", user), "", "", 0, 0, 1, cpus, 64, 2, 600)
            book.begin(run, asked, 50.0 + run)
        book.end(3, 400.0)  # the usage of its user only decays
        book.end(0, seconds - 20)
        book.calculate(seconds)
        return book

    skipped, whole = book_after(1e7 + 120, 64), book_after(1e7 + 120, 1 << 40)
    assert skipped.shares.usage == whole.shares.usage
    assert (skipped.calculated_s, skipped.rounds) == (whole.calculated_s, whole.rounds) == (9_999_900.0, 33_333)
    assert book_after(1e15, 64).rounds == 1e15 // 300


def test_a_user_may_have_a_priority_beside_that_of_the_account() -> None:
    node = QueueNode("lab", priority=10, user_priorities={"ada": 40})
    book = PriorityBook(PrioritySettings(Weights(assoc=100)), QueueTree((node,)), Capacity(1, 1, 1, 1))
    asked = {user: Asked(book.user("lab", user), "", "", 0, 0, 1, 1, 1, 1, 60) for user in ("ada", "bo")}
    assert {user: book.factors(request, 0).assoc for user, request in asked.items()} == {"ada": 1.0, "bo": 0.25}


def crowd(seed: int) -> list[Job]:
    rng, now, jobs = random.Random(seed), 0.0, []
    for number in range(120):
        now += rng.expovariate(0.3)
        named = {"user": rng.choice("uvw"), "account": rng.choice(("lab", "x")), "nodes": rng.choice((1, 1, 1, 2))}
        seconds = rng.lognormvariate(4, 1)
        jobs.append(job(str(number), now, seconds, rng.choice((1, 2, 4)), seconds * rng.uniform(1, 4), **named))
    return jobs


@pytest.mark.parametrize("seed", range(3))
def test_who_is_passed_over_in_a_cycle_could_not_have_started(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    queues = QueueTree(tree=(QueueNode("lab", limits=Caps(gpus=5), user_limits=Caps(jobs=2)),))
    spec = "slurm-multifactor[bf_interval_s=5,bf_max_job_test=8,calc_period_s=20,max_age_s=500]"
    short = played(crowd(seed), spec, queues=queues)
    monkeypatch.setattr(BackfillOutlook, "knows_no", lambda self, at: False)
    monkeypatch.setattr(BackfillOutlook, "is_hopeful", lambda self, at: True)
    assert played(crowd(seed), spec, queues=queues).log == short.log


OTHER = GpuType("H", 2.0, 16, 100, 100, 10)


def mixed_crowd(seed: int) -> tuple[list[Job], Cluster, QueueTree]:
    """Jobs, nodes and queues with everything that a backfill cycle must obey."""
    rng = random.Random(seed)
    gpus = [GPU, GPU, OTHER, OTHER, OTHER, None]
    nodes = [
        Node(f"n{at}", gpu, 4 if gpu else 0, 16, 64, features=("x",) if at % 2 else (), weight=rng.choice((1, 1, 2)))
        for at, gpu in enumerate(gpus)
    ]
    queues = QueueTree(
        (QueueNode("lab", limits=Caps(gpus=9), user_limits=Caps(jobs=3)),),
        partitions=(
            NodePartition("p"),
            NodePartition("q", nodes=("n1", "n2", "n3"), tier=rng.choice((1, 2))),
            NodePartition("whole", nodes=("n3", "n4", "n5"), exclusive=True),
        ),
        reservations=(NodeReservation("closed", ("n2", "n3"), 150, 1400),) if seed % 2 else (),
        licences={"matlab": 2},
    )
    jobs = []
    for at, plain in enumerate(crowd(seed)):
        request = Request(
            constraint=rng.choice(("", "", "x")),
            partitions=rng.choice(((), (), ("p", "q"))),
            reservation=rng.choice(("", "", "", "closed")),
            licences=rng.choice(((), (), (("matlab", 1),))),
            exclusive=rng.random() < 0.1,
            spread=rng.choice((None, True, False)),
        )
        (task,) = plain.tasks
        if rng.random() < 0.2:
            task = replace(task, gpus=0, cpus=rng.choice((1, 8)))
        own = replace(plain, graph=TaskGraph((task,)), request=request if rng.random() < 0.7 else None)
        jobs.append(replace(own, partition=rng.choice(("p", "p", "q", "whole")) if at % 3 else "p"))
    return jobs, Cluster(tuple(nodes)), queues


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "more", ["", ",gangs=distinct,place=best,bf_window_linear_s=40", ",place=best,bf_max_job_user=3,bf_ties=fit"]
)
def test_compiled_cycles_are_those_of_the_rule(seed: int, more: str, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, machines, queues = mixed_crowd(seed)
    spec = f"slurm-multifactor[bf_interval_s=5,bf_max_job_test=12,calc_period_s=20{more}]"
    logs = []
    run_table.inner_loops.cache_clear()  # once compiled code is loaded, it is used from the first cycle on
    for forms, lists_until in enumerate((10**9, -1), 1):
        monkeypatch.setattr(run_table, "_LISTED", lists_until)
        kernel = ClusterScenario(machines, jobs, queues=queues).kernel(0)
        logs.append(kernel.run(POLICIES.create(spec), until_s=1300.0).log)
        assert run_table.inner_loops.cache_info().currsize == forms
    assert logs[0] == logs[1]
    assert len(logs[0]) > 250


def test_priorities_in_columns_are_those_of_each_job_to_the_last_bit() -> None:
    rng = random.Random(0)
    settings = PrioritySettings(Weights(age=1234.5, fair_share=98765.4321), max_age_s=777.0)
    book = PriorityBook(settings, QueueTree(), Capacity(2, 64, 512, 8))
    ranks, asked, slots = RankColumns(), [], []
    for at in range(200):  # more than there are slots at first
        user = book.user("lab", rng.choice("uvw"))
        asked.append(Asked(user, "", "", rng.uniform(0, 900), rng.choice((None, rng.uniform(0, 900))), 1, 1, 1, 1, 60))
        fixed = book.fixed(asked[-1])
        slots.append(ranks.add((at, 0, 0), rng.choice((1, 2)), fixed, book.since_s(asked[-1]), user))
    book.begin(0, asked[0], 0.0)
    book.calculate(900.0)
    places = ranks.rank(slots, book, 900.0)
    priorities = [ranks.latest(slot) for slot in slots]
    assert priorities == [book.priority(book.fixed(request), request, 900.0) for request in asked]
    assert len(set(priorities)) > 50
    tiers = [int(ranks._ints["tier"][slot]) for slot in slots]
    assert places == sorted(range(200), key=lambda at: (-tiers[at], -priorities[at], at))


def test_defaults_are_those_of_the_manuals() -> None:
    # The weights of the sample configuration of priority_multifactor; times and numbers as in slurm.conf(5)
    got = SlurmSettings()
    assert (got.fair_share, got.age, got.partition, got.job_size, got.qos) == (100_000, 1000, 10_000, 1000, 0)
    assert (got.assoc, got.tres_gpus, got.tres_cpus, got.tres_memory) == (0, 0, 0, 0)
    assert (got.half_life_s, got.max_age_s, got.calc_period_s) == (14 * 86400, 14 * 86400, 5 * 60)
    assert (got.sched_interval_s, got.queue_depth, got.bf_interval_s, got.bf_resolution_s) == (60, 100, 30, 60)
    assert (got.bf_window_s, got.bf_max_job_test, got.over_time_s, got.requeue_delay_s) == (1440 * 60, 100, 0, 121)
    assert [got.favor_small, got.relative_size, got.max_tres, got.accrue_always] == [False] * 4
    assert (got.backfill, got.damping, got.origin_s()) == (True, 1.0, 0.0)


def test_unknown_words_and_numbers_are_refused() -> None:
    for spec, why in {
        "order=lifo": "order must be multifactor or basic",
        "bf_interval_s=0": "bf_interval_s must be above 0",
        "algorithm=flat": "fair_share must be tree or classic",
        "half_life_s=-1": "half_life_s must be 0 or more",
        "preempt=gang": "preempt must be off or partition_prio or qos",
    }.items():
        with pytest.raises(ConfigError, match=why):
            POLICIES.create(f"slurm-multifactor[{spec}]")


def test_the_parameters_of_a_site_are_checked_like_those_of_the_policy() -> None:
    assert type(slurm_settings(QueueTree(scheduler={"queue_depth": 50.0})).queue_depth) is int
    refused: list[tuple[dict[str, bool | float | str], str]] = [
        ({"bf_intervall_s": 30.0}, "has no parameter 'bf_intervall_s'; did you mean 'bf_interval_s'?"),
        ({"bf_interval_s": "fast"}, "bf_interval_s must be a number, got 'fast'"),
        ({"queue_depth": 2.5}, "queue_depth must be a whole number, got 2.5"),
    ]
    for scheduler, why in refused:
        with pytest.raises(InputError, match=rf"queues\.scheduler: .*{re.escape(why)}"):
            slurm_settings(QueueTree(scheduler=scheduler))


def test_it_keeps_the_promises_of_a_policy() -> None:
    check_policy(lambda: POLICIES.create("slurm-multifactor[bf_interval_s=2,requeue_delay_s=3]"), workloads=2)


def test_a_job_of_two_runs_is_cancelled_once() -> None:
    queues = QueueTree(partitions=(NodePartition("low", tier=1, preempt="cancel"), NodePartition("high", tier=2)))
    two = Job("two", TaskGraph((Task("a", 10, gpus=2), Task("b", 10, gpus=2))), partition="low")
    jobs = [two, job("high", 2, 5, 4, partition="high")]
    schedule = played(jobs, "slurm-multifactor[preempt=partition_prio]", cluster(1), queues)
    assert [(row.time_s, row.job) for row in schedule.log if row.kind == Kind.PREEMPTED] == [(2, 0), (2, 0)]
    assert [(row.time_s, row.job) for row in schedule.log if row.kind == Kind.REJECTED] == [(2, 0)]
    assert first_starts(schedule)["high"] == 2


def test_the_plan_knows_the_nodes_of_every_reservation_that_is_left() -> None:
    rng = random.Random(3)
    for _ in range(30):
        view = SimpleNamespace(now=0.0, machines=ClusterState(cluster(8)))
        plan = NodePlan(view, RunTable(8), 0, None, window_s=1000.0, resolution_s=1.0)  # type: ignore[arg-type]
        listed = []
        for number in range(8):
            begin_s = rng.randrange(20)
            end_s = begin_s + rng.randrange(1, 20)
            plan.reserve(begin_s, end_s, 1 << number)
            listed.append((begin_s, end_s, 1 << number))
        begin_s = rng.randrange(20)
        end_s = begin_s + rng.randrange(1, 20)
        for closed in (False, True):
            expected = sum(
                node for begin, end, node in listed if end > begin_s and (begin < end_s or (closed and begin == end_s))
            )
            assert plan.kept(begin_s, end_s, closed=closed) == expected


@pytest.mark.parametrize(("most", "start_s"), [(0, 2), (2, 2), (1, 15)])
def test_backfill_tests_only_so_many_jobs_of_a_user(most: int, start_s: float) -> None:
    jobs = [job("long", 0, 10, 3), job("wide", 1, 5, 4, user="ada"), job("short", 2, 2, user="ada")]
    limits = f"bf_max_job_user={most},bf_max_job_assoc=0"
    assert first_starts(played(jobs, f"slurm-multifactor[{FIFO},{limits}]", cluster(1)))["short"] == start_s
    others = [*jobs[:2], job("short", 2, 2, user="bo")]
    assert first_starts(played(others, f"slurm-multifactor[{FIFO},{limits}]", cluster(1)))["short"] == 2


def test_the_age_of_a_job_counts_from_when_it_was_eligible_or_submitted() -> None:
    for always, expected in ((False, 0.3), (True, 0.5)):
        settings = PrioritySettings(Weights(age=100), max_age_s=1000, accrue_always=always)
        book = PriorityBook(settings, QueueTree(), Capacity(2, 64, 512, 8))
        asked = Asked(book.user("lab", "ada"), "", "", 100, 300, 1, 1, 1, 1, 60)
        assert book.factors(asked, 600).age == pytest.approx(expected)
        assert book.factors(asked, 5000).age == 1.0
        assert book.factors(asked._replace(eligible_s=None), 600).age == (0.5 if always else 0.0)
