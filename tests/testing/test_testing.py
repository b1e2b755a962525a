"""Graphs with known answers, and the checkers of policies, codecs and networks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import NamedTuple

import pytest
from simpy.events import Event

from dagsim.errors import IllegalDecision, Stalled
from dagsim.model import Cluster, Decision, GpuType, Job, Node, Preempt, Share, Start, TaskGraph, gpu_type
from dagsim.registry import Entry
from dagsim.systems.cluster import ClusterKernel, UniformNetwork
from dagsim.systems.cluster.clock import Clock
from dagsim.systems.cluster.network import Carrier, Flow, Network
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.state import TaskState
from dagsim.systems.cluster.view import ClusterView
from dagsim.testing import chain, check_network, check_policy, diamond, fork_join, heft_example


def makespan(graph: TaskGraph, gpus: int) -> float:
    cluster = Cluster((Node("n", gpu_type("T4"), gpus),))
    return ClusterKernel(cluster, [Job("j", graph)]).run(POLICIES.create("fifo-fit")).ended_s


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
    cluster = Cluster(tuple(Node(type_.name, type_, 1) for type_ in types))
    assert (
        ClusterKernel(cluster, [Job("j", graph)]).run(POLICIES.create("sjf")).ended_s >= 41
    )  # the path at its fastest


@pytest.mark.parametrize("name", ["fifo", "fifo-fit", "random", "sjf", "critical-path", "eft-wait"])
def test_registered_policies_are_sound(name: str) -> None:
    check_policy(lambda: POLICIES.create(name))


def test_an_instance_is_checked_like_its_factory() -> None:
    check_policy(POLICIES.create("sjf"))


class Lazy:
    def decide(self, view: ClusterView) -> Iterable[Decision]:
        return ()


class Moody:
    """Decides by something that outlives the run."""

    runs = 0

    def __init__(self) -> None:
        Moody.runs += 1
        self.policy = POLICIES.create("sjf" if Moody.runs % 2 else "ljf")

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        return self.policy.decide(view)


def test_a_policy_that_never_starts_anything_is_caught() -> None:
    with pytest.raises(Stalled):
        check_policy(Lazy)


class Misspelt:
    """States what it forgets under a name that nothing reads."""

    forget = "its plans"

    def __init__(self) -> None:
        self.policy = POLICIES.create("sjf")

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        return self.policy.decide(view)


def test_a_statement_that_nothing_reads_is_caught() -> None:
    with pytest.raises(AssertionError, match=r"forget \(meant: forgets\?\)"):
        check_policy(Misspelt, workloads=1)


class ChildrenFirst:
    """Starts a task as soon as its job is there, the last one of its graph first."""

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        for job in view.jobs.values():
            for task in reversed(job.tasks):
                placement = view.fit(task) if task.waiting else None
                if placement is not None:
                    yield Start(task, placement)
                    return


class Hasty:
    """Starts the oldest first, and stops the longest run for any task that is shorter: also one of this instant."""

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        for task in view.ready:
            placement = view.fit(task)
            if placement is not None:
                yield Start(task, placement)
                return
            longer = [run for run in view.running.values() if run.estimate_s > task.best_s]
            if longer:
                yield Preempt(max(longer, key=lambda run: (run.estimate_s, run.id)).id)
                return


class Impatient:
    """Starts what an applicant's job brings before it is admitted."""

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        everybody = [task for job in view.applicants.values() for task in job.tasks] + list(view.ready)
        for task in everybody:
            placement = None if task.missing else view.fit(task)
            if placement is not None:
                yield Start(task, placement)
                return


class Sloppy:
    """Fills the node with the most room, without a look at its type, until the instances are all placed."""

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        for task in view.ready:
            machine = max(view.machines.list, key=lambda candidate: candidate.room(task.demand))
            count = min(task.waiting, machine.room(task.demand))
            if count:
                yield Start(task, (Share(machine.index, count),))
                return


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (ChildrenFirst, "policy 'ChildrenFirst': at .* s: cannot start .* it still waits for"),
        (Hasty, r"policy 'Hasty': at .* started at this very moment.*run\.started_s < view\.now"),
        (Impatient, r"cannot start .* its job waits to be admitted; yield Admit"),
        (Sloppy, "a gang of .* must start as a whole|is not of a type it may run on"),
    ],
)
def test_a_policy_that_decides_what_cannot_be_is_caught(policy: type, why: str) -> None:
    with pytest.raises(IllegalDecision, match=why):
        check_policy(policy, workloads=24)


def test_the_two_policies_of_old_are_caught_with_the_default_number_of_workloads() -> None:
    for policy in (ChildrenFirst, Hasty):
        with pytest.raises(IllegalDecision):
            check_policy(policy)


def test_a_policy_that_depends_on_more_than_the_seed_is_caught() -> None:
    with pytest.raises(AssertionError, match="two runs with the same seed differ"):
        check_policy(Moody)


class ByTruth:
    """Starts what is really shortest first, as ``key`` says."""

    def __init__(self, key: Callable[[TaskState], float]) -> None:
        self.key = key

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        for task in sorted(view.ready, key=self.key):
            if placement := view.fit(task):
                yield Start(task, placement)


class Seer(ByTruth):
    clairvoyant = True


class SeesEnds:
    """Starts nothing while a run is about to end."""

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        if all(run.ends_s > view.now + 1.0 for run in view.running.values()):
            for task in view.ready:
                if placement := view.fit(task):
                    yield Start(task, placement)


class Writer:
    """Marks tasks that it has seen in a field of the kernel's."""

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        for task in view.ready:
            task.best_s = 0.0
            if placement := view.fit(task):
                yield Start(task, placement)


class OnlyShort:
    """Never starts a task of more than an hour."""

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        for task in view.ready:
            if task.best_s < 3600 and (placement := view.fit(task)):
                yield Start(task, placement)


def shortest(task: TaskState) -> float:
    return min(task.truth)


def test_reading_the_truth_is_an_error_that_names_the_estimates() -> None:
    with pytest.raises(
        IllegalDecision,
        match=r"policy 'ByTruth': .*task\.truth of .*use the estimates in task\.seconds.*clairvoyant = True",
    ):
        check_policy(ByTruth(shortest), workloads=0)
    with pytest.raises(IllegalDecision, match=r"run\.ends_s of .*use run\.estimated_end_s\(view\.now\)"):
        check_policy(SeesEnds, workloads=0)


def test_a_policy_that_declares_itself_clairvoyant_may_read_the_truth() -> None:
    check_policy(Seer(shortest), workloads=2)


@pytest.mark.parametrize("key", [lambda task: task.true_seconds[0], lambda task: task.task.work], ids=["true", "work"])
def test_a_policy_that_finds_the_truth_another_way_is_caught(key: Callable[[TaskState], float]) -> None:
    with pytest.raises(AssertionError, match="decides by what tasks really take"):
        check_policy(ByTruth(key), workloads=0)


def test_a_policy_that_writes_into_live_state_is_caught() -> None:
    with pytest.raises(AssertionError, match=r"policy Writer writes into live state at .* s: task .* changed"):
        check_policy(Writer, workloads=0)


def test_a_policy_that_starves_long_tasks_is_caught() -> None:
    with pytest.raises(Stalled, match=r"policy 'OnlyShort': .*returned no decision .*although .* could start"):
        check_policy(OnlyShort, workloads=0)


@pytest.mark.parametrize("entry", POLICIES.describe(), ids=lambda entry: entry.name)
def test_no_registered_policy_knows_or_touches_more_than_it_may(entry: Entry) -> None:
    policy = POLICIES.create(entry.name)
    assert getattr(policy, "clairvoyant", False) == ("clairvoyant" in entry.tags)
    check_policy(lambda: POLICIES.create(entry.name), workloads=0)


class Tiring:
    """Gets slower with every flow it carries, whichever simulation it belongs to."""

    def __init__(self) -> None:
        self.carried = 0

    def carrier(self, clock: Clock, cluster: Cluster) -> Carrier:
        return TiringCarrier(self, clock, cluster)


class TiringCarrier(NamedTuple):
    network: Tiring
    clock: Clock
    cluster: Cluster

    def fetch(self, flows: Sequence[Flow]) -> Generator[Event, object, None]:
        self.network.carried += len(flows)
        slow = UniformNetwork(bandwidth_gb_s=1 / self.network.carried)
        yield from slow.carrier(self.clock, self.cluster).fetch(flows)

    def fork(self, clock: Clock) -> Carrier:
        return TiringCarrier(self.network, clock, self.cluster)


@pytest.mark.parametrize(
    "network",
    [
        UniformNetwork(),
        UniformNetwork(bandwidth_gb_s=0.5, latency_s=1.0),
    ],
)
def test_our_networks_are_sound(network: Network) -> None:
    check_network(network)


def test_a_network_that_remembers_other_simulations_is_caught() -> None:
    with pytest.raises(AssertionError, match="a second simulation differs"):
        check_network(Tiring())
