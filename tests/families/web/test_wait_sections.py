from __future__ import annotations

import numpy as np
import pytest

from dagsim.families.web.wait_sections import _room, worst_waits
from dagsim.metrics import columns
from dagsim.metrics.utilization import Steps
from dagsim.model import Cluster, JobFacts, Kind
from dagsim.model.log import Schedule, ScheduleLog


def test_the_longest_wait_comes_first_with_what_happened_meanwhile() -> None:
    # two GPUs: "long" holds both from 0 to 10; "wide" arrives at 2, "small" at 4 and overtakes it; wide starts at 20
    schedule = Schedule(Cluster.of({"T4": 2}), [], ScheduleLog())
    for name, arrival_s, gpus in (("long", 0.0, 2.0), ("wide", 2.0, 2.0), ("small", 4.0, 1.0)):
        schedule.arrived(JobFacts(name, arrival_s, 0.0, "", None, 1.0, 10.0, 10.0 * gpus, gpus, ("t",)))
    for row in [
        (Kind.ARRIVED, 0.0, 0, -1, -1, -1, 0, 0, 0.0),
        (Kind.STARTED, 0.0, 0, 0, 0, 0, 1, 3, 2.0),
        (Kind.ARRIVED, 2.0, 1, -1, -1, -1, 0, 0, 0.0),
        (Kind.ARRIVED, 4.0, 2, -1, -1, -1, 0, 0, 0.0),
        (Kind.FINISHED, 10.0, 0, 0, 0, 0, 1, 3, 2.0),
        (Kind.COMPLETED, 10.0, 0, -1, -1, -1, 0, 0, 0.0),
        (Kind.STARTED, 10.0, 2, 0, 1, 0, 1, 1, 1.0),
        (Kind.FINISHED, 20.0, 2, 0, 1, 0, 1, 1, 1.0),
        (Kind.COMPLETED, 20.0, 2, -1, -1, -1, 0, 0, 0.0),
        (Kind.STARTED, 20.0, 1, 0, 2, 0, 1, 3, 2.0),
        (Kind.PREEMPTED, 22.0, 1, 0, 2, 0, 1, 3, 2.0),
        (Kind.STARTED, 25.0, 1, 0, 3, 0, 1, 3, 2.0),
        (Kind.FINISHED, 33.0, 1, 0, 3, 0, 1, 3, 2.0),
        (Kind.COMPLETED, 33.0, 1, -1, -1, -1, 0, 0, 0.0),
    ]:
        schedule.log.append(row)
    # wide: 18 s before its first run and 3 s after; of 36 GPU-seconds meanwhile 16 + 10 were held; both GPUs were free
    # from 22 to 25, 3 of its 21 s; small came later and went first
    order = "enough GPUs were free: the policy's order or a limit, CPUs or memory"
    why = f"86%: too few GPUs were free; 14%: {order}; 1 later job started first; stopped once"
    assert list(worst_waits(columns(schedule)).rows) == [
        ("wide", "-", "2", "21", "18", "72%", why),
        ("small", "-", "1", "6", "6", "100%", "100%: too few GPUs were free"),
    ]


def test_a_job_that_waits_beside_free_gpus_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    # two GPUs: "one" holds one of them from 0 to 10; "next" arrives at 1 and starts at 10 on the other, free all along
    schedule = Schedule(Cluster.of({"T4": 2}), [], ScheduleLog())
    for name, arrival_s in (("one", 0.0), ("next", 1.0)):
        schedule.arrived(JobFacts(name, arrival_s, 0.0, "", None, 1.0, 10.0, 10.0, 1.0, ("t",)))
    for row in [
        (Kind.ARRIVED, 0.0, 0, -1, -1, -1, 0, 0, 0.0),
        (Kind.STARTED, 0.0, 0, 0, 0, 0, 1, 1, 1.0),
        (Kind.ARRIVED, 1.0, 1, -1, -1, -1, 0, 0, 0.0),
        (Kind.FINISHED, 10.0, 0, 0, 0, 0, 1, 1, 1.0),
        (Kind.COMPLETED, 10.0, 0, -1, -1, -1, 0, 0, 0.0),
        (Kind.STARTED, 10.0, 1, 0, 1, 0, 1, 2, 1.0),
        (Kind.FINISHED, 20.0, 1, 0, 1, 0, 1, 2, 1.0),
        (Kind.COMPLETED, 20.0, 1, -1, -1, -1, 0, 0, 0.0),
    ]:
        schedule.log.append(row)
    ((*_, why),) = worst_waits(columns(schedule)).rows
    assert why == "100%: enough GPUs were free: the policy's order or a limit, CPUs or memory"
    monkeypatch.setattr("dagsim.families.web.wait_sections._MOST_LOOKED_AT", 0)  # as of a large run
    ((*_, why),) = worst_waits(columns(schedule)).rows
    assert why == "1 GPU free for 100% of the time before: type, nodes or the policy's order kept it"


def test_without_gpus_nothing_is_said_of_them() -> None:
    from dagsim.config.schema import load_config
    from dagsim.experiment.simulate import run_policy

    config = load_config(None, ["system.kind=spark", "system.jobs=5", "system.executors=2"])
    grid = worst_waits(columns(run_policy(config, "fifo", 1).schedule))
    assert grid.heads[:2] + grid.heads[-1:] == ("job", "tenant", "why it waited")
    assert "GPU" not in " ".join(grid.heads) + " ".join(" ".join(row) for row in grid.rows)


def test_exactly_the_gpus_asked_for_are_enough() -> None:
    # a large cluster is only asked for the number of free GPUs, which may be a sum of shares with rounding
    free = Steps(np.array([0.0, 4.0]), np.array([0.3 - 1e-12, 0.3 - 2e-9]), 10.0)
    kept = "type, nodes or the policy's order kept it"
    assert _room(free, 0.3, 0.0, 4.0) == f"0.3 GPUs free for 100% of the time before: {kept}"
    assert _room(free, 0.3, 4.0, 10.0) == "fewer than 0.3 GPUs free for 100% of the time before"
    whole = Steps(np.array([0.0, 6.0]), np.array([1.0, 2.0]), 10.0)
    assert _room(whole, 2.0, 0.0, 10.0) == "fewer than 2 GPUs free for 60% of the time before"
    assert _room(whole, 2.0, 2.0, 10.0) == "fewer than 2 GPUs free for 50% of the time before"
    assert _room(whole, 2.0, 3.0, 10.0) == f"2 GPUs free for 57% of the time before: {kept}"
    assert _room(whole, 1.0, 0.0, 10.0) == f"1 GPU free for 100% of the time before: {kept}"


def test_a_wait_that_came_after_the_first_start_is_told() -> None:
    # "short" holds the GPU from 0 to 4; "long" waits from 2 to 4, runs for 1 s, and waits again from 5 to 11.
    schedule = Schedule(Cluster.of({"T4": 1}), [], ScheduleLog())
    for name, arrival_s, work_s in (("short", 0.0, 4.0), ("long", 2.0, 3.0)):
        schedule.arrived(JobFacts(name, arrival_s, 0.0, "", None, 1.0, work_s, work_s, 1.0, ("t",)))
    for row in [
        (Kind.ARRIVED, 0.0, 0, -1, -1, -1, 0, 0, 0.0),
        (Kind.STARTED, 0.0, 0, 0, 0, 0, 1, 1, 1.0),
        (Kind.ARRIVED, 2.0, 1, -1, -1, -1, 0, 0, 0.0),
        (Kind.FINISHED, 4.0, 0, 0, 0, 0, 1, 1, 1.0),
        (Kind.COMPLETED, 4.0, 0, -1, -1, -1, 0, 0, 0.0),
        (Kind.STARTED, 4.0, 1, 0, 1, 0, 1, 1, 1.0),
        (Kind.PREEMPTED, 5.0, 1, 0, 1, 0, 1, 1, 1.0),
        (Kind.STARTED, 11.0, 1, 0, 2, 0, 1, 1, 1.0),
        (Kind.FINISHED, 13.0, 1, 0, 2, 0, 1, 1, 1.0),
        (Kind.COMPLETED, 13.0, 1, -1, -1, -1, 0, 0, 0.0),
    ]:
        schedule.log.append(row)
    (row,) = worst_waits(columns(schedule)).rows
    assert row[:5] == ("long", "-", "1", "8", "2")
    assert row[-1].endswith("stopped once; 75% of the wait after its first start")
