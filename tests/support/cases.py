"""Random clusters, DAG jobs and models for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from dagsim.family import families
from dagsim.model import Cluster, Edge, Job, Node, Task, TaskGraph, gpu_type
from dagsim.systems.cluster import ClusterKernel, Estimates, MovingDelay, NodeFailures, Preemption, UniformNetwork
from dagsim.systems.cluster.models import Models

seconds = st.sampled_from((0.0, 0.5, 1.0, 1.0, 2.0, 3.5, 10.0))


@st.composite
def tasks(draw: st.DrawFn, name: str) -> Task:
    gpus = draw(st.sampled_from((0, 0.25, 0.5, 1, 1, 1, 2, 4)))
    gang = draw(st.booleans())
    speeds = draw(st.sampled_from((None, None, {"A100-40": 2.0, "T4": 0.5})))
    return Task(
        name,
        draw(seconds),
        instances=draw(st.sampled_from((1, 1, 2, 5))),
        gang=gang,
        gpus=gpus,
        cpus=draw(st.sampled_from((0, 0.5, 1, 3))),
        memory_gb=draw(st.sampled_from((0, 0, 10, 100))),
        gpu_types=draw(st.sampled_from((None, None, None, ("A100-40",), ("A100-40", "T4")))) if gpus else None,
        speeds=speeds if gpus else None,
    )


@st.composite
def job_lists(draw: st.DrawFn, most: int = 6) -> list[Job]:
    jobs, now = [], 0.0
    for number in range(draw(st.integers(1, most))):
        now += draw(seconds)
        count = draw(st.integers(1, 5))
        listed = tuple(draw(tasks(f"t{index}")) for index in range(count))
        pairs = [(parent, child) for child in range(count) for parent in range(child)]
        chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=6)) if pairs else []
        edges = tuple(Edge(parent, child, 1e9) for parent, child in chosen)
        jobs.append(Job(f"j{number}", TaskGraph(listed, edges), now))
    return jobs


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    kinds = draw(st.lists(st.sampled_from(("A100-40", "T4", "cpu")), min_size=1, max_size=4))
    nodes = []
    for index, kind in enumerate(kinds):
        if kind == "cpu":
            nodes.append(Node(f"n{index}", None, 0, 4, 64))
        else:
            nodes.append(Node(f"n{index}", gpu_type(kind), draw(st.sampled_from((1, 2, 4))), 8, 256))
    return Cluster(tuple(nodes))


@st.composite
def models(draw: st.DrawFn) -> dict[str, object]:
    return {
        "setup": draw(st.sampled_from((None, None, MovingDelay(2.0)))),
        "network": draw(st.sampled_from((None, None, UniformNetwork(1.0, 0.1), *_shared_networks()))),
        "preemption": draw(
            st.sampled_from((Preemption(), Preemption("restart", restart_s=1.0, checkpoint_s_per_gb=0.1)))
        ),
        "failures": draw(st.sampled_from(((), (), (NodeFailures(200.0, 5.0),)))),
        "estimates": draw(st.sampled_from((Estimates(), Estimates("noisy"), Estimates("hidden")))),
    }


def simulation(cluster: Cluster, jobs: list[Job], models: dict[str, object], seed: int = 3) -> ClusterKernel:
    return ClusterKernel(cluster, jobs, Models(**models), seed=seed)  # type: ignore[arg-type]


def _shared_networks() -> tuple[object, ...]:
    """A network with contention, unless this installation lacks the family."""
    if "fabric" not in families():
        return ()
    from dagsim.families.fabric.island import Island
    from dagsim.families.fabric.shared_network import SharedNetwork

    return (SharedNetwork(Island(2, 0.5, 0.1)),)
