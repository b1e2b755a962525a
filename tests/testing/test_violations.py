"""The checker of logs finds what is put into them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dagsim.model import (
    Cluster,
    Edge,
    Job,
    JobSuspension,
    Kind,
    Node,
    NodePartition,
    QueueTree,
    Record,
    Task,
    TaskGraph,
    gpu_type,
)
from dagsim.model.log import Schedule, ScheduleLog
from dagsim.systems.cluster import ClusterKernel, Maintenance
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.policies import POLICIES
from dagsim.testing.violations import as_recorded, stuck, violations

ROOT = Path(__file__).parents[2]
A100, T4 = gpu_type("A100-40"), gpu_type("T4")
CLUSTER = Cluster((Node("a", A100, 2, 4, 16), Node("b", A100, 2, 4, 16), Node("t", T4, 2, 4, 16)))
JOBS = [
    Job(
        "j",
        TaskGraph(
            (
                Task("first", 2.0, cpus=2),
                Task("gang", 3.0, instances=2, gang=True, gpus=2, gpu_types=("A100-40",)),
                Task("half", 1.0, instances=2, gpus=0.5, gpu_types=("T4",)),
            ),
            (Edge(0, 1),),
        ),
    ),
    Job.single("k", Task("t", 1.0, gpu_types=("T4",)), 1.0),
]


def played() -> Schedule:
    """The gang fails when node ``b`` goes down at 3, and starts over at 4."""
    kernel = ClusterKernel(CLUSTER, JOBS, Models(failures=(Maintenance((1,), 3.0, 4.0),)))
    return kernel.run(POLICIES.create("fifo-fit"))


def changed(schedule: Schedule, change: Callable[[list[Record]], object]) -> list[str]:
    """What the checker says of the log after a change to its rows."""
    rows = list(schedule.log)
    change(rows)
    log = ScheduleLog()
    for row in rows:
        log.append(tuple(row))  # type: ignore[arg-type]
    return violations(Schedule(schedule.cluster, schedule.jobs, log), JOBS, seconds=as_recorded)


def at(rows: list[Record], kind: Kind, job: int = 0, task: int = -1) -> int:
    """The last row of a kind."""
    return max(n for n, row in enumerate(rows) if (row.kind, row.job) == (kind, job) and task in (-1, row.task))


def edit(kind: Kind, task: int = -1, job: int = 0, **values: object) -> Callable[[list[Record]], object]:
    def change(rows: list[Record]) -> None:
        place = at(rows, kind, job, task)
        rows[place] = rows[place]._replace(**values)  # type: ignore[arg-type]

    return change


def drop(kind: Kind, task: int = -1, job: int = 0) -> Callable[[list[Record]], object]:
    return lambda rows: rows.pop(at(rows, kind, job, task))


def late(rows: list[Record]) -> None:
    """Everything of the end comes a second later."""
    rows[:] = [row._replace(time_s=row.time_s + 1.0 if row.time_s == 7.0 else row.time_s) for row in rows]


def swap(rows: list[Record]) -> None:
    """The gang's first start comes before its parent's end."""
    start = next(n for n, row in enumerate(rows) if row.kind == Kind.STARTED and row.task == 1)
    end = at(rows, Kind.FINISHED, 0, 0)
    rows[end], rows[start] = rows[start], rows[end]


CHANGES: dict[str, tuple[Callable[[list[Record]], object], str]] = {
    "child before parent": (swap, "parent 0 is not done"),
    "time runs back": (edit(Kind.COMPLETED, time_s=0.5), "follows 7.0 s"),
    "time is not finite": (edit(Kind.COMPLETED, time_s=float("inf")), "follows"),
    "late arrival": (edit(Kind.ARRIVED, job=1, time_s=1.5), "job 'k' arrives at 1.0 s"),
    "unknown end": (edit(Kind.FINISHED, 2, run=99), "run is not there"),
    "other GPUs given back": (edit(Kind.FINISHED, 0, gpus=2), "gives back other than"),
    "fewer instances given back": (edit(Kind.FINISHED, 2, instances=1), "gives back other than"),
    "an end is missing": (drop(Kind.FINISHED, 2), "never ended"),
    "completion is missing": (drop(Kind.COMPLETED), "neither completed nor were rejected"),
    "completed twice": (lambda rows: rows.append(rows[at(rows, Kind.COMPLETED)]), "job is completed"),
    "half a gang": (drop(Kind.STARTED, 1), "1 of a gang of 2 started"),
    "wrong type": (edit(Kind.STARTED, 0, job=1, node=0), "task may not run on node 'a'"),
    "too short": (edit(Kind.FINISHED, 0, job=1, time_s=1.5), "it takes 1.0 s"),
    "too long after a failure": (late, "it takes at most 3.0 s"),
    "on a node that is down": (lambda rows: rows.pop(at(rows, Kind.UP, -1)), "node 'b' is down"),
    "up without down": (lambda rows: rows.pop(at(rows, Kind.DOWN, -1)), "node was so already"),
    "a failure without one": (lambda rows: rows.pop(at(rows, Kind.DOWN, -1)), "none of its nodes went down now"),
    "a GPU it has not": (edit(Kind.STARTED, 0, job=1, gpus=4), "names GPUs that it cannot hold"),
    "a run number twice": (edit(Kind.STARTED, 0, job=1, run=0), "the run has started before"),
    "more than there are": (edit(Kind.STARTED, 2, instances=3), "more than 2 instances"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_the_checker_finds_what_is_put_into_a_log(case: str) -> None:
    change, why = CHANGES[case]
    assert any(why in message for message in changed(played(), change)), changed(played(), change)


def test_the_checker_finds_nothing_in_a_sound_log() -> None:
    schedule = played()
    assert [row.time_s for row in schedule.log if row.kind == Kind.FAILED] == [3, 3]
    assert changed(schedule, lambda rows: None) == []


def test_the_checker_counts_what_a_node_holds() -> None:
    """Two tasks of 3 cores and a whole GPU each, on a node of 4 cores: run one after the other they fit."""
    cluster = Cluster((Node("n", A100, 2, 4, 16),))
    jobs = [Job.single(name, Task("t", 1.0, cpus=3)) for name in "ab"]
    schedule = ClusterKernel(cluster, jobs).run(POLICIES.create("fifo"))
    rows = [row._replace(time_s=0.0) if row.run == 1 and row.kind == Kind.STARTED else row for row in schedule.log]
    rows.sort(key=lambda row: (row.time_s, row.kind))
    log = ScheduleLog()
    for row in rows:
        log.append(tuple(row))  # type: ignore[arg-type]
    messages = violations(Schedule(cluster, schedule.jobs, log), jobs)
    assert any("node 'n' holds" in message for message in messages)
    assert any("serves another task alone" in message for message in messages)


def test_the_checker_adds_up_the_shares_of_a_gpu() -> None:
    """Three halves of a GPU, of which two ran together: in the log all three begin at 0."""
    cluster = Cluster((Node("n", A100, 1, 4, 16),))
    jobs = [Job.single(name, Task("t", 1.0, gpus=0.5)) for name in "abc"]
    schedule = ClusterKernel(cluster, jobs).run(POLICIES.create("fifo"))
    assert not any("shared beyond" in message for message in violations(schedule, jobs))
    rows = [row._replace(time_s=0.0) if row.run == 2 and row.kind == Kind.STARTED else row for row in schedule.log]
    rows.sort(key=lambda row: (row.time_s, row.kind))
    log = ScheduleLog()
    for row in rows:
        log.append(tuple(row))  # type: ignore[arg-type]
    assert any(
        "GPU 0 is shared beyond 1" in message for message in violations(Schedule(cluster, schedule.jobs, log), jobs)
    )


def test_a_stall_is_justified_only_by_nodes_that_are_gone() -> None:
    cluster = Cluster((Node("n", A100, 2),))
    jobs = [Job.single("j", Task("t", 1.0, gpus=2))]
    rows = [Record(Kind.ARRIVED, 0.0, 0)]
    schedule = ClusterKernel(cluster, jobs).run(POLICIES.create("fifo"))
    for extra, expected in (([], []), ([Record(Kind.DOWN, 0.0, node=0)], ["j/t"])):
        log = ScheduleLog()
        for row in [*rows, *extra]:
            log.append(row)
        assert stuck(Schedule(cluster, schedule.jobs, log), jobs) == expected


def test_a_suspended_run_lends_its_cores_and_computes_later() -> None:
    named = [("a", 0, 100), ("b", 20, 60)]
    work = [Job.single(id, Task("t", seconds, gpus=0, cpus=8), at_s) for id, at_s, seconds in named]
    pause = JobSuspension("a", 10, 50)
    queues = QueueTree(partitions=(NodePartition("work", ("n",)),), suspensions=(pause,))
    cluster = Cluster((Node("n", None, 0, cpus=8, memory_gb=64),))
    schedule = ClusterKernel(cluster, work, Models(queues=queues)).run(POLICIES.create("fifo-fit"))
    assert violations(schedule, work, seconds=as_recorded, suspensions=(pause,)) == []
    messages = violations(schedule, work, seconds=as_recorded)
    assert any("holds" in message for message in messages)
    assert any("it takes 100" in message for message in messages)
    # b would have started on cores that nobody lent yet, or a resumed too early
    for other in (JobSuspension("a", 30, 70), JobSuspension("a", 10, 40)):
        assert violations(schedule, work, seconds=as_recorded, suspensions=(other,))
