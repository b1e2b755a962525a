"""Failures that cost work: checkpoints, racks, logs of failures, and spot nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.log_reading import ends
from systems.cluster.one_job import played

from dagsim.errors import ModelError
from dagsim.model import Cluster, Job, Kind, Node, Task, gpu_type
from dagsim.model.log import Schedule
from dagsim.systems.cluster import ClusterKernel, Maintenance, NodeFailures, Preemption
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.models.failures import FailureLog, SpotCapacity
from dagsim.systems.cluster.policies import POLICIES


def test_a_failure_costs_the_work_since_the_last_checkpoint_and_a_restart() -> None:
    preemption = Preemption(checkpoint_interval_s=20, checkpoint_write_s=5, restart_s=7)
    schedule = played(100, preemption, Maintenance((0,), 60, 61))
    # Two checkpoints by 50 s hold 40 s of work. After 61 + 7 s, 60 s of work remain, with two writes.
    assert schedule.ended_s == 61 + 7 + 60 + 2 * 5


def test_without_failures_checkpoints_cost_only_their_writes() -> None:
    assert played(100, Preemption(checkpoint_interval_s=20, checkpoint_write_s=5)).ended_s == 100 + 4 * 5
    assert played(90, Preemption(checkpoint_interval_s=20, checkpoint_write_s=5)).ended_s == 90 + 4 * 5
    assert played(0, Preemption(checkpoint_interval_s=20, checkpoint_write_s=5)).ended_s == 0


def test_a_failure_during_a_write_loses_the_whole_interval() -> None:
    schedule = played(40, Preemption(checkpoint_interval_s=20, checkpoint_write_s=5), Maintenance((0,), 24, 30))
    assert schedule.ended_s == 30 + 40 + 5


def test_nodes_of_a_rack_fail_and_return_together() -> None:
    schedule = played(1000, Preemption(checkpoint_interval_s=10), NodeFailures(200, 20, rack=2), nodes=4)
    times: dict[tuple[int, float], set[int]] = {}
    for row in schedule.log:
        if row.kind in (Kind.DOWN, Kind.UP):
            times.setdefault((row.kind, row.time_s), set()).add(row.node)
    assert times
    assert all(nodes in ({0, 1}, {2, 3}) for nodes in times.values())


def test_failures_of_a_log_happen_when_they_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "failures.csv"
    log.write_text("node,start_s,end_s\n0,10,15\n")
    assert played(20, Preemption(), FailureLog(str(log))).ended_s == 35
    monkeypatch.setenv("LOGS", str(tmp_path))
    assert played(20, Preemption(), FailureLog("$LOGS/failures.csv")).ended_s == 35
    log.write_text("node,start_s,end_s\n0,ten,15\n")
    with pytest.raises(ModelError, match=r"failures\.csv:2: a row needs node, start_s and end_s"):
        played(20, Preemption(), FailureLog(str(log)))


def _downtime(schedule: Schedule) -> tuple[float, int]:
    """Seconds that node 0 was away before the end, and how often."""
    down = [row.time_s for row in schedule.log if row.kind == Kind.DOWN and row.node == 0]
    up = [row.time_s for row in schedule.log if row.kind == Kind.UP and row.node == 0]
    return sum(end - start for start, end in zip(down, up, strict=True)), len(down)


def test_spot_nodes_with_enough_notice_cost_their_absence_and_restarts_but_no_work() -> None:
    spot, saving = SpotCapacity(100, 10, notice_s=5), Preemption(checkpoint_write_s=5, restart_s=7)
    schedule = played(1000, saving, spot)
    away_s, times = _downtime(schedule)
    assert times > 3
    assert schedule.ended_s == pytest.approx(1000 + away_s + 7 * times)


def test_a_notice_that_is_too_short_loses_the_work_since_the_last_checkpoint() -> None:
    long, short = (SpotCapacity(100, 10, notice_s=notice_s) for notice_s in (5, 4.9))
    saving = Preemption(checkpoint_interval_s=20, checkpoint_write_s=5)
    assert played(300, saving, short).ended_s > played(300, saving, long).ended_s
    abrupt = SpotCapacity(100, 10, notice_s=0)
    assert played(300, saving, short).ended_s == played(300, saving, abrupt).ended_s


def test_reserved_nodes_are_never_taken_back() -> None:
    schedule = played(1000, Preemption(), SpotCapacity(50, 5, nodes=(1,)), nodes=2)
    assert {row.node for row in schedule.log if row.kind == Kind.DOWN} == {1}
    with pytest.raises(ModelError, match=r"spot: nodes must be from 0 to 1"):
        played(10, Preemption(), SpotCapacity(50, 5, nodes=(2,)), nodes=2)
    with pytest.raises(ModelError, match="notice_s must be 0 or more, got -1"):
        SpotCapacity(50, 5, notice_s=-1)
    with pytest.raises(ModelError, match="spot: mean_up_s must be positive, got 0"):
        SpotCapacity(0, 5)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("node,start_s,end_s\n9,5,10\n", r"log.csv:2: node must be from 0 to 0, got 9"),
        ("node,start_s,end_s\n0,10,5\n", r"log.csv:2: start_s must be 0 or more and before end_s, got 10\.0 and 5\.0"),
        ("node,from,to\n0,0,5\n", r"log.csv:1: a failure log needs the columns node, start_s, end_s"),
    ],
)
def test_a_log_of_failures_names_the_line_that_is_wrong(tmp_path: Path, rows: str, message: str) -> None:
    (tmp_path / "log.csv").write_text(rows)
    with pytest.raises(ModelError, match=message):
        played(10, Preemption(), FailureLog(str(tmp_path / "log.csv")))


def test_overlapping_failures_of_a_log_are_one(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("node,start_s,end_s\n0,50,80\n0,10,60\n")
    schedule = played(100, Preemption(on_failure="resume"), FailureLog(str(tmp_path / "log.csv")))
    assert _downtime(schedule) == (70.0, 1)
    assert schedule.ended_s == 170.0


def test_an_interval_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ModelError, match="checkpoint_interval_s must be positive, got 0"):
        Preemption(checkpoint_interval_s=0)


@pytest.mark.family("kubernetes")
def test_jobs_of_higher_priority_take_the_gpus_of_lower_ones_when_a_spot_node_goes() -> None:
    """Three nodes of one GPU, two of them reserved; three priorities, and nothing else to run on."""
    cluster = Cluster(tuple(Node(f"n{place}", gpu_type("T4"), 1) for place in range(3)))
    jobs = [Job.single(f"p{level}", Task("t", 1000), priority=level) for level in (0, 1, 2)]
    spot = SpotCapacity(200, 50, notice_s=10, nodes=(0,))
    schedule = ClusterKernel(
        cluster, jobs, Models(preemption=Preemption(checkpoint_write_s=5, restart_s=7), failures=(spot,)), seed=1
    ).run(POLICIES.create("kube-default"))
    done_s = ends(schedule)
    stops = [row.job for row in schedule.log if row.kind in (Kind.PREEMPTED, Kind.FAILED)]
    # The highest priority has the first node, a spot node. When it goes, the lowest makes room for it, and the one
    # between is never stopped.
    assert next(row.node for row in schedule.log if row.kind == Kind.STARTED and row.job == 2) == 0
    assert {0, 2} <= set(stops)
    assert 1 not in stops
    assert done_s["p2"] == pytest.approx(1000 + 7 * stops.count(2))
    assert done_s["p1"] == 1000
    assert done_s["p0"] > max(done_s["p1"], done_s["p2"])
