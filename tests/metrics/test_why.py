"""Why a job waited: worked examples."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from dagsim.errors import InputError
from dagsim.metrics.why import APART, DOWN, TOO_FEW, UNSEEN, Cause, CauseKind, find_job, wait_reasons
from dagsim.model import Cluster, Edge, Job, Node, Task, TaskGraph, gpu_type
from dagsim.model.log import Schedule
from dagsim.report.tables import why_lines, why_tables
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.models.failures import Maintenance
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.waits.causes import Stretch


def job(name: str, seconds: float, gpus: float, arrival_s: float = 0.0, tenant: str = "") -> Job:
    return Job.single(name, Task("t", seconds, gpus=gpus), arrival_s, tenant=tenant)


def two_nodes(*jobs: Job, policy: str = "fifo", **models: object) -> Schedule:
    nodes = tuple(Node(f"n{index}", gpu_type("T4"), 2) for index in range(2))
    return ClusterKernel(Cluster(nodes), jobs, Models(**models)).run(POLICIES.create(policy))  # type: ignore[arg-type]


def test_a_task_of_no_time_does_not_divide_a_wait() -> None:
    """The first task of the last job starts and ends at 5 s; the second waits for both nodes until 12 s."""
    graph = TaskGraph((Task("nothing", 0.0, gpus=1), Task("work", 2.0, instances=2, gang=True, gpus=2)), (Edge(0, 1),))
    schedule = two_nodes(job("a", 5, 2), job("b", 12, 2), Job("dag", graph, 1.0))
    reasons = wait_reasons(schedule, 2)
    assert (reasons.periods, reasons.queueing_s) == (((1.0, 12.0),), 11.0)


def test_who_held_the_gpus_is_weighed_by_gpu_seconds() -> None:
    schedule = two_nodes(job("a", 10, 2, tenant="ann"), job("b", 4, 2), job("c", 5, 2, 1.0))
    reasons = wait_reasons(schedule, 2)
    assert (reasons.arrival_s, reasons.start_s, reasons.queueing_s, reasons.periods) == (1.0, 4.0, 3.0, ((1.0, 4.0),))
    assert [(holder.job, holder.tenant, holder.gpu_s) for holder in reasons.holders] == [
        ("a", "ann", 6.0),
        ("b", "", 6.0),
    ]
    assert reasons.blocked_s == {TOO_FEW: 3.0}
    assert reasons.overtakers == ()


def test_free_gpus_on_several_nodes_are_scattered() -> None:
    # One GPU is free on each node from 0 to 6, where c needs two on one.
    schedule = two_nodes(job("a", 10, 1), job("filler", 1, 1), job("b", 6, 1), job("c", 5, 2, 2.0), policy="easy")
    nodes = {row.job: row.node for row in schedule.log if row.kind.name == "STARTED"}  # type: ignore[attr-defined]
    assert nodes[0] == nodes[1] != nodes[2]
    reasons = wait_reasons(schedule, 3)
    assert reasons.start_s == 6.0
    assert reasons.blocked_s == {APART: 4.0}


def test_a_job_that_fits_and_waits_is_kept_by_the_order() -> None:
    # Strict fifo: b waits for both nodes until 10, so that c, which would fit, waits behind it.
    schedule = two_nodes(
        job("a", 10, 2), Job.single("b", Task("t", 3, instances=2, gang=True, gpus=2), 1.0), job("c", 2, 1, 2.0)
    )
    reasons = wait_reasons(schedule, 2)
    assert reasons.start_s == 13.0
    assert reasons.blocked_s == {UNSEEN: 8.0, TOO_FEW: 3.0}


def test_overtakers_arrived_later_and_started_first() -> None:
    jobs = (job("a", 10, 2), job("a2", 10, 1), job("b", 3, 2, 1.0), job("c", 2, 1, 2.0, "cy"), job("d", 1, 1, 5.0))
    reasons = wait_reasons(two_nodes(*jobs, policy="fifo-fit"), 2)
    assert [
        (overtaker.job, overtaker.tenant, overtaker.arrival_s, overtaker.start_s) for overtaker in reasons.overtakers
    ] == [
        ("c", "cy", 2.0, 2.0),
        ("d", "", 5.0, 5.0),
    ]
    assert {holder.job: holder.arrived_later for holder in reasons.holders} == {
        "a": False,
        "a2": False,
        "c": True,
        "d": True,
    }


def test_nodes_that_are_down_are_named() -> None:
    down = Maintenance(nodes=(0,), start_s=1.0, end_s=6.0)
    schedule = two_nodes(Job.single("b", Task("t", 3, instances=2, gang=True, gpus=2), 2.0), failures=(down,))
    assert wait_reasons(schedule, 0).blocked_s == {DOWN: 4.0}


def test_a_node_that_is_back_is_not_down_any_longer() -> None:
    # a holds the first node until 8; the second is away from 1 to 4. b, which came at 2, needs both.
    down = Maintenance(nodes=(1,), start_s=1.0, end_s=4.0)
    both = Job.single("b", Task("t", 3, instances=2, gang=True, gpus=2), 2.0)
    reasons = wait_reasons(two_nodes(job("a", 8, 2), both, failures=(down,)), 1)
    assert reasons.start_s == 8.0
    assert reasons.blocked_s == {DOWN: 2.0, TOO_FEW: 4.0}


def test_nodes_of_a_type_that_is_not_asked_for_do_not_count() -> None:
    nodes = (Node("t", gpu_type("T4"), 2), Node("v", gpu_type("V100-16"), 2))
    jobs = [Job.single(name, Task("t", 8, gpus=2, gpu_types=("T4",)), at) for name, at in (("a", 0.0), ("b", 2.0))]
    away = Maintenance(nodes=(1,), start_s=3.0, end_s=6.0)
    schedule = ClusterKernel(Cluster(nodes), jobs, Models(failures=(away,))).run(POLICIES.create("fifo"))
    assert wait_reasons(schedule, 1).blocked_s == {TOO_FEW: 6.0}


def test_who_was_gone_before_held_nothing() -> None:
    schedule = two_nodes(job("gone", 1, 2), job("a", 10, 2, 2.0), job("b", 4, 2, 2.0), job("c", 5, 2, 3.0))
    assert [(holder.job, holder.gpu_s) for holder in wait_reasons(schedule, 3).holders] == [("a", 6.0), ("b", 6.0)]


def test_a_preempted_job_waits_twice() -> None:
    schedule = two_nodes(job("long", 10, 2), job("long2", 10, 2), job("short", 1, 2, 2.0), policy="srtf")
    stopped = next(number for number in (0, 1) if wait_reasons(schedule, number).stopped)
    reasons = wait_reasons(schedule, stopped)
    assert reasons.stopped == 1
    assert reasons.periods == ((2.0, 3.0),)
    assert [overtaker.job for overtaker in reasons.overtakers] == ["short"]


def test_the_wait_is_that_of_the_metrics_and_its_parts_are_all_of_it() -> None:
    from dagsim.metrics.jct import queueing

    jobs = [job(f"j{n}", 3 + n % 7, 1 + n % 2, 0.5 * n) for n in range(60)]
    schedule = two_nodes(*jobs, policy="easy")
    for number in range(60):
        reasons = wait_reasons(schedule, number)
        assert reasons.queueing_s == pytest.approx(queueing(schedule)[number])
        assert sum(reasons.blocked_s.values()) == pytest.approx(reasons.queueing_s)


def test_jobs_are_found_by_id_or_number() -> None:
    schedule = two_nodes(job("a", 1, 1), job("b", 1, 1), job("huge", 1, 9))
    assert (find_job(schedule, "b"), find_job(schedule, "#0")) == (1, 0)
    for name in ("c", "#9", "#-1", ""):
        with pytest.raises(InputError, match="no job"):
            find_job(schedule, name)
    with pytest.raises(InputError, match="was rejected on arrival"):
        wait_reasons(schedule, 2)
    with pytest.raises(InputError, match="no job number"):
        wait_reasons(schedule, 3)


def test_an_unfinished_job_that_never_ran_waits_to_the_end() -> None:
    kernel = ClusterKernel(Cluster.of({"T4": 1}), [job("a", 10, 1), job("b", 10, 1, 1.0)])
    schedule = kernel.run(POLICIES.create("fifo"), until_s=5.0)
    reasons = wait_reasons(schedule, 1)
    assert (reasons.start_s, reasons.queueing_s) == (None, 4.0)
    assert reasons.to_dict()["blocked_s"] == {"gpus": 4.0}


def test_names_of_a_log_cannot_steer_a_terminal_or_a_page() -> None:
    evil = "\x1b]0;x\x07[red]<script>|"
    reasons = wait_reasons(two_nodes(job("a", 9, 2, tenant=evil), job("b", 9, 2), job(evil, 1, 1, 1.0)), 2)
    lines, grids = list(why_lines(reasons, "easy")), list(why_tables(reasons, 5))
    assert not any("\x1b" in line for line in lines)
    shown = io.StringIO()
    Console(file=shown, width=200, force_terminal=True, color_system=None).print(grids[0])
    assert "\x1b]0" not in shown.getvalue()
    assert "[red]<script>|" in shown.getvalue()
    assert "<script>" not in grids[0].markdown()


def test_what_bound_is_told_by_share_and_what_is_not_known_is_said() -> None:
    reasons = wait_reasons(two_nodes(job("a", 9, 2), job("b", 9, 2), job("c", 1, 1, 1.0)), 2)
    limit = Cause(CauseKind.LIMIT, "the limit of 2 GPUs of the account lab was reached")
    gpus = Cause(CauseKind.GPUS, "too few GPUs were free")
    bound = [Stretch(1, 3, (limit, gpus)), Stretch(3, 8, (gpus,)), Stretch(8, 9, (limit, gpus))]
    text = " ".join(" ".join(why_lines(reasons, "easy", bound)).split())
    assert "62.5% of the wait (5 s): too few GPUs were free 37.5% of the wait (3 s): the limit of 2 GPUs" in text
    assert "the account lab was reached; and too few GPUs were free" in text
    assert all(len(line) <= 80 for line in why_lines(reasons, "easy", bound))
    blind = " ".join(" ".join(why_lines(reasons, "easy", None, "the trace is gone")).split())
    assert "100.0% of the wait (8 s): too few GPUs were free" in blind
    assert "CPUs, memory and limits are not known here: the trace is gone" in blind
