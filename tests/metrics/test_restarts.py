from __future__ import annotations

from dagsim.metrics import failures, node_failures, preemptions, restarts
from dagsim.model import Cluster, Kind

TWO_NODES = Cluster.of({"T4": 4}, per_node=2)


def test_a_run_that_spans_nodes_stops_once(plan_of):
    plan = plan_of(TWO_NODES)
    job = plan.job(0.0, completed_s=9.0)
    plan.run(job, 0.0, 2.0, {0: (0,), 1: (0,)}, outcome=Kind.PREEMPTED)
    plan.run(job, 3.0, 4.0, {0: (0,), 1: (0,)}, outcome=Kind.FAILED)
    plan.run(job, 5.0, 9.0, {0: (0,), 1: (0,)})
    plan.down(1, 4.0, 5.0)
    schedule = plan.schedule()
    assert (preemptions(schedule), failures(schedule), restarts(schedule), node_failures(schedule)) == (1, 1, 2, 1)


def test_only_runs_of_the_same_task_after_its_stop_are_restarts(plan_of):
    plan = plan_of(TWO_NODES)
    first, second = plan.job(0.0), plan.job(0.0)
    plan.run(first, 0.0, 9.0, {0: (0,)})  # another instance, started before the stop
    plan.run(first, 1.0, 2.0, {0: (1,)}, outcome=Kind.PREEMPTED)
    plan.run(first, 2.0, 5.0, {1: (0,)})  # started again in the same instant
    plan.run(first, 3.0, 5.0, {1: (1,)}, task=1)
    plan.run(second, 5.0, 6.0, {1: (1,)})
    assert restarts(plan.schedule()) == 1


def test_nothing_is_restarted_where_nothing_stops(plan_of):
    plan = plan_of(TWO_NODES)
    plan.run(plan.job(0.0, completed_s=1.0), 0.0, 1.0)
    assert restarts(plan.schedule()) == preemptions(plan.schedule()) == failures(plan.schedule()) == 0


def test_a_run_that_is_stopped_as_it_starts_is_no_restart(plan_of):
    plan = plan_of(TWO_NODES)
    job = plan.job(0.0, completed_s=5.0)
    plan.run(job, 2.0, 2.0, outcome=Kind.PREEMPTED)
    assert restarts(plan.schedule()) == 0
    plan.run(job, 2.0, 5.0)
    assert restarts(plan.schedule()) == 1
