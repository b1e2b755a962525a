"""What holds for every policy that is registered, on random work; their schedules are in ``test_pinned.py``."""

from __future__ import annotations

import copy
import inspect

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.log_reading import rows_of

from dagsim.model import Cluster, Edge, GpuType, Job, Node, Task, TaskGraph
from dagsim.model.log import Kind
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.policies import POLICIES

SLOW = GpuType("slow", 1.0, 16, 100, 100, 10)
FAST = GpuType("fast", 4.0, 16, 100, 100, 10)
CLUSTER = Cluster((Node("s0", SLOW, 2, 8), Node("s1", SLOW, 4, 8), Node("f", FAST, 2, 8)))


def needs_nothing(name):
    """Whether the policy can be made without parameters."""
    parameters = inspect.signature(POLICIES.get(name)).parameters.values()
    return all(
        parameter.default is not parameter.empty or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        for parameter in parameters
    )


NAMES = [name for name in POLICIES.names() if needs_nothing(name)]


@st.composite
def work(draw):
    """A few jobs of up to 4 tasks with edges, gangs, shares of GPUs, CPU-only tasks, weights and deadlines."""
    jobs = []
    for number in range(draw(st.integers(1, 8))):
        tasks, edges = [], []
        for at in range(draw(st.integers(1, 4))):
            gpus = draw(st.sampled_from((0.0, 0.25, 0.5, 1, 1, 1, 2)))
            speeds = draw(st.sampled_from((None, {"slow": 1.0, "fast": 4.0})))
            seconds, instances, gang = draw(st.integers(1, 9)), draw(st.integers(1, 3)), draw(st.booleans())
            tasks.append(Task(str(at), seconds, instances, gang, gpus, draw(st.sampled_from((0, 1))), speeds=speeds))
            edges += [Edge(parent, at) for parent in range(at) if draw(st.booleans())]
        arrival_s = draw(st.integers(0, 12))
        deadline_s = draw(st.sampled_from((None, arrival_s + 10)))
        graph, weight = TaskGraph(tuple(tasks), tuple(edges)), draw(st.sampled_from((1.0, 3.0)))
        jobs.append(Job(str(number), graph, arrival_s, tenant="ab"[number % 2], deadline_s=deadline_s, weight=weight))
    return sorted(jobs, key=lambda job: job.arrival_s)


def spec(name):
    """Short slices, so that small work meets many of them."""
    return f"{name}[quantum_s=2]" if name in ("round-robin", "las", "2d-las", "2d-gittins", "tiresias") else name


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(jobs=work(), at=st.integers(1, 20))
def test_a_copy_of_it_goes_on_in_a_fork(name, jobs, at):
    simulation, policy = ClusterKernel(CLUSTER, jobs), POLICIES.create(spec(name))
    simulation.run(policy, until_s=at)
    schedule = simulation.fork().run(copy.deepcopy(policy))
    assert len(rows_of(schedule.log, Kind.COMPLETED, Kind.REJECTED)) == len(jobs)
