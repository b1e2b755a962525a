from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from dagsim.metrics import jobs_table, runs_table, to_csv, to_pandas
from dagsim.model import Cluster, Kind, Node, RejectReason, gpu_type

CLUSTER = Cluster((Node("big", gpu_type("A100"), 4), Node("cpu, old", cpus=8)))


@pytest.fixture(scope="module")
def schedule(plan_of):
    plan = plan_of(CLUSTER)
    done = plan.job(1.0, ideal_s=2.0, completed_s=11.0, tenant="ann", priority=2.0, deadline_s=20.0, gpus=3.0)
    plan.run(done, 2.0, 5.0, {0: (0, 1, 3)}, outcome=Kind.PREEMPTED)
    plan.run(done, 6.0, 11.0, {0: (0, 1, 3)}, computing_s=7.5)
    plan.reject(plan.job(1.5), 1.5, RejectReason.NO_SUCH_GPU)
    plan.run(plan.job(4.0), 5.0, None, {1: ()}, task=1)
    return plan.schedule(ended_s=12.0)


def read(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_a_job_is_a_row(schedule):
    first, second, third = read(to_csv(jobs_table(schedule)))
    assert first == {
        "job": "job0",
        "arrival_s": "1.0",
        "start_s": "2.0",
        "completed_s": "11.0",
        "jct_s": "10.0",
        "wait_s": "1.0",
        "queueing_s": "2.0",
        "running_s": "8.0",
        "bounded_slowdown": "1.0",
        "stretch": "5.0",
        "bounded_stretch": "1.0",
        "priority": "2.0",
        "tenant": "ann",
        "weight": "1.0",
        "deadline_s": "20.0",
        "gpus": "3.0",
        "gpu_seconds": "24.0",
        "ideal_s": "2.0",
        "ideal_gpu_s": "2.0",
        "preemptions": "1",
        "failures": "0",
        "status": "completed",
        "reason": "",
    }
    assert (second["status"], second["reason"], second["jct_s"]) == ("rejected", "no_such_gpu", "")
    assert (third["status"], third["start_s"], third["jct_s"]) == ("unfinished", "5.0", "")


def test_a_run_is_a_row_per_node(schedule):
    first, second, third = read(to_csv(runs_table(schedule)))[0], *read(to_csv(runs_table(schedule)))[1:]
    assert first["outcome"] == "preempted"
    assert third == {
        "job": "job0",
        "task": "train",
        "run": "1",
        "node": "big",
        "gpu_type": "A100-40",
        "gpus": "0;1;3",
        "held": "3.0",
        "instances": "1",
        "start_s": "6.0",
        "computing_s": "7.5",
        "end_s": "11.0",
        "outcome": "finished",
    }
    assert second["node"] == "cpu, old"
    assert (second["task"], second["gpu_type"], second["gpus"], second["end_s"], second["outcome"]) == (
        "test",
        "",
        "",
        "",
        "running",
    )


def test_floats_are_written_exactly_and_nan_as_nothing():
    table = {"x": np.array([0.1 + 0.2, np.nan, 1e-17, np.inf]), "name": ["a", "b,c", 'd"', ""]}
    assert to_csv(table) == 'x,name\n0.30000000000000004,a\n,"b,c"\n1e-17,"d"""\ninf,\n'


def test_equal_schedules_give_equal_bytes(random_schedule):
    assert to_csv(runs_table(random_schedule(3))) == to_csv(runs_table(random_schedule(3)))
    assert to_csv(jobs_table(random_schedule(3))) == to_csv(jobs_table(random_schedule(3)))


def test_tables_go_to_pandas(schedule):
    frame = to_pandas(jobs_table(schedule))
    assert frame.shape == (3, 23)
    assert frame["jct_s"].iloc[0] == 10.0
