"""Clusters and jobs of which the optimum is known by hand."""

from __future__ import annotations

from dagsim.model import Cluster, Edge, Job, Node, Task, TaskGraph, gpu_type

ONE = Cluster((Node("n", gpu_type("T4"), 1, 8, 64),))
PAIR = Cluster((Node("n", gpu_type("T4"), 2, 8, 64),))
TWO_TYPES = Cluster((Node("a", gpu_type("A100-40"), 1, 8, 64), Node("t", gpu_type("T4"), 1, 8, 64)))


def single(name: str, work: float, arrival_s: float = 0.0, **more: object) -> Job:
    """A job of one task, equally fast on both types."""
    more = {"speeds": {"T4": 1.0, "A100-40": 1.0}} | more
    return Job.single(name, Task("t", work, **more), arrival_s)  # type: ignore[arg-type]


def fast_chain() -> Job:
    """Two tasks of 4 and 2 s, one after the other, twice as fast on the A100."""
    fast = {"T4": 1.0, "A100-40": 2.0}
    return Job("chain", TaskGraph((Task("one", 4.0, speeds=fast), Task("two", 2.0, speeds=fast)), (Edge(0, 1),)))
