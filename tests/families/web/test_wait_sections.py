from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.written_schedules import ScheduleWriter

from dagsim.families.web.wait_sections import _room, worst_waits
from dagsim.metrics import columns
from dagsim.metrics.utilization import Steps
from dagsim.model import Cluster, Kind


def facts(id: str, seconds: float, gpus: float = 1.0) -> dict[str, Any]:
    """A job of one task that asks for GPUs for some seconds."""
    return {"id": id, "ideal_s": seconds, "ideal_gpu_s": seconds * gpus, "gpus": gpus, "tasks": ("t",)}


def test_the_longest_wait_comes_first_with_what_happened_meanwhile() -> None:
    # two GPUs: "long" holds both from 0 to 10; "wide" arrives at 2, "small" at 4 and overtakes it; wide starts at 20
    writer = ScheduleWriter(Cluster.of({"T4": 2}))
    long = writer.job(0.0, completed_s=10.0, **facts("long", 10.0, 2.0))
    wide = writer.job(2.0, completed_s=33.0, **facts("wide", 10.0, 2.0))
    small = writer.job(4.0, completed_s=20.0, **facts("small", 10.0, 1.0))
    writer.run(long, 0.0, 10.0, {0: (0, 1)})
    writer.run(small, 10.0, 20.0, {0: (0,)})
    writer.run(wide, 20.0, 22.0, {0: (0, 1)}, outcome=Kind.PREEMPTED)
    writer.run(wide, 25.0, 33.0, {0: (0, 1)})
    schedule = writer.schedule()
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
    writer = ScheduleWriter(Cluster.of({"T4": 2}))
    writer.run(writer.job(0.0, completed_s=10.0, **facts("one", 10.0)), 0.0, 10.0, {0: (0,)})
    writer.run(writer.job(1.0, completed_s=20.0, **facts("next", 10.0)), 10.0, 20.0, {0: (1,)})
    schedule = writer.schedule()
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
    writer = ScheduleWriter(Cluster.of({"T4": 1}))
    writer.run(writer.job(0.0, completed_s=4.0, **facts("short", 4.0)), 0.0, 4.0)
    long = writer.job(2.0, completed_s=13.0, **facts("long", 3.0))
    writer.run(long, 4.0, 5.0, outcome=Kind.PREEMPTED)
    writer.run(long, 11.0, 13.0)
    schedule = writer.schedule()
    (row,) = worst_waits(columns(schedule)).rows
    assert row[:5] == ("long", "-", "1", "8", "2")
    assert row[-1].endswith("stopped once; 75% of the wait after its first start")
