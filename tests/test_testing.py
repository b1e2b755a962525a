"""Graphs with known answers, and the checker of policies."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from dagsim.errors import Stalled
from dagsim.model import Cluster, Decision, GpuType, Job, Node, TaskGraph, gpu_type
from dagsim.policies import POLICIES
from dagsim.sim import Simulation
from dagsim.sim.policy import View
from dagsim.testing import chain, check_policy, diamond, fork_join, heft_example


def makespan(graph: TaskGraph, gpus: int) -> float:
    cluster = Cluster((Node("n", gpu_type("T4"), gpus),))
    return Simulation(cluster, [Job("j", graph)]).run(POLICIES.create("fifo-fit")).ended_s


def test_graphs_take_what_their_docstrings_say() -> None:
    assert makespan(chain(1, 2, 3), 4) == 6
    assert makespan(diamond(), 2) == 7
    assert makespan(fork_join(5, 2.0), 2) == (2 + 3) * 2


def test_heft_example_has_the_published_critical_path_and_ranks() -> None:
    graph = heft_example()
    # Mean seconds over three processors; with the costs of communication the first task's upward rank is 108.
    mean = [sum(1 / speed for speed in task.speeds.values()) / 3 for task in graph.tasks]  # type: ignore[union-attr]
    ranks = [0.0] * 10
    for index in reversed(graph.order):
        after = [edge.bytes / 1e9 + ranks[edge.child] for edge in graph.edges if edge.parent == index]
        ranks[index] = mean[index] + max(after, default=0.0)
    published = [108, 77, 80, 80, 69, 63.333, 42.667, 35.667, 44.333, 14.667]
    assert ranks == pytest.approx(published, abs=1e-3)
    types = tuple(GpuType(f"P{place}", 1, 1, 1, 1, 0) for place in (1, 2, 3))
    cluster = Cluster(tuple(Node(each.name, each, 1) for each in types))
    assert Simulation(cluster, [Job("j", graph)]).run(POLICIES.create("sjf")).ended_s >= 41  # the path at its fastest


@pytest.mark.parametrize("name", ["fifo", "fifo-fit", "random", "sjf", "critical-path", "eft-wait"])
def test_registered_policies_are_sound(name: str) -> None:
    check_policy(lambda: POLICIES.create(name))


def test_an_instance_is_checked_like_its_factory() -> None:
    check_policy(POLICIES.create("sjf"))


class Lazy:
    def decide(self, view: View) -> Iterable[Decision]:
        return ()


class Moody:
    """Decides by something that outlives the run."""

    runs = 0

    def __init__(self) -> None:
        Moody.runs += 1
        self.policy = POLICIES.create("sjf" if Moody.runs % 2 else "ljf")

    def decide(self, view: View) -> Iterable[Decision]:
        return self.policy.decide(view)


def test_a_policy_that_never_starts_anything_is_caught() -> None:
    with pytest.raises(Stalled):
        check_policy(Lazy)


def test_a_policy_that_depends_on_more_than_the_seed_is_caught() -> None:
    with pytest.raises(AssertionError, match="two runs with the same seed differ"):
        check_policy(Moody)
