"""Small worked examples, run through the kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from support import log_reading

from dagsim.model import Cluster, Edge, Job, Task, TaskGraph
from dagsim.model.log import Kind, Schedule
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.policies import POLICIES

Run = Callable[..., Schedule]


@pytest.fixture(scope="session")
def run() -> Run:
    """Run a policy by its spec on ``gpus`` equal GPUs of one node."""

    def run_(spec: str, jobs: Iterable[Job], gpus: int = 1) -> Schedule:
        cluster = Cluster.of({"V100": gpus}, per_node=gpus)
        return ClusterKernel(cluster, jobs).run(POLICIES.create(spec))

    return run_


@pytest.fixture(scope="session")
def rows() -> Callable[..., list[Job]]:
    """Jobs of one task from ``(arrival_s, seconds)`` or ``(arrival_s, seconds, gpus)``, called 1, 2, ..."""

    def rows_(*entries: tuple[float, ...], **rest: object) -> list[Job]:
        return [
            Job.single(str(number), Task("t", work, gpus=gpus[0] if gpus else 1), arrival_s, **rest)
            for number, (arrival_s, work, *gpus) in enumerate(entries, 1)
        ]

    return rows_


@pytest.fixture(scope="session")
def dag() -> Callable[..., Job]:
    """One job of tasks 1, 2, ... that take ``seconds``, with ``edges`` between those numbers."""

    def dag_(seconds: Iterable[float], edges: Iterable[tuple[int, int]] = (), id_: str = "job") -> Job:
        tasks = tuple(Task(str(number), work) for number, work in enumerate(seconds, 1))
        return Job(id_, TaskGraph(tasks, tuple(Edge(parent - 1, child - 1) for parent, child in edges)))

    return dag_


@pytest.fixture(scope="session")
def ends() -> Callable[[Schedule], list[float]]:
    """When each job was done, in the order of their arrival."""

    def ends_(schedule: Schedule) -> list[float]:
        return list(log_reading.ends(schedule).values())

    return ends_


@pytest.fixture(scope="session")
def order() -> Callable[[Schedule], list[str]]:
    """The jobs in the order of their starts."""

    def order_(schedule: Schedule) -> list[str]:
        return [schedule.jobs[row.job].id for row in log_reading.rows_of(schedule.log, Kind.STARTED)]

    return order_
