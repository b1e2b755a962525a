"""Batch-mode mapping, with starts worked out by hand."""

from __future__ import annotations

from dagsim.model import Cluster, Job, Kind, Node, Task, gpu_type
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario

TWO = Cluster((Node("fast", gpu_type("A100-40"), 1), Node("slow", gpu_type("T4"), 1)))
SPEEDS = {"A100-40": 1.0, "T4": 0.1}


def started_first(policy: str, seconds: list[float]) -> str:
    """The job that starts first on the slow GPU, after a job that keeps the fast one busy until 211 s."""
    jobs = [Job.single("busy", Task("t", 211.0, gpus=1, gpu_types=("A100-40",)), 0.0)]
    jobs += [Job.single(f"{work:g}", Task("t", work, gpus=1, speeds=SPEEDS), 1.0) for work in seconds]
    schedule = ClusterScenario(TWO, jobs).kernel(0).run(POLICIES.create(policy))
    return next(schedule.jobs[row.job].id for row in schedule.log if row.kind == Kind.STARTED and row.node == 1)


def test_min_min_queues_the_shortest_for_the_fast_gpu_until_the_slow_one_is_sooner() -> None:
    """Jobs of 30, 31 and 32 s would end on the fast GPU at 241, 272 and 304 s, sooner than after 300 s and more on the
    slow one. Behind them the job of 33 s would end at 337 s there, and on the slow one at 331 s.
    """
    assert started_first("min-min", [30.0, 31.0, 32.0, 33.0, 34.0, 35.0]) == "33"
    assert started_first("min-min", [35.0, 33.0, 34.0, 31.0, 32.0, 30.0]) == "33"


def test_max_min_begins_with_the_longest() -> None:
    """Jobs of 35 and 34 s would end on the fast GPU at 246 and 280 s, and those of 33 and 32 s at 313 and 345 s; the
    latter would end on the slow one at 321 s.
    """
    assert started_first("max-min", [30.0, 31.0, 32.0, 33.0, 34.0, 35.0]) == "32"
