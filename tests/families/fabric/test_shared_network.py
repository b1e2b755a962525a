"""The shared network in the simulation of a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import job_lists
from support.command_line import fine, invoke
from support.scripted_policy import ends

from dagsim.config.schema import load_config
from dagsim.errors import ConfigError, ModelError
from dagsim.families.fabric.shared_network import SharedNetwork
from dagsim.families.fabric.topologies import Cable, Explicit, FatTree, Island, NetworkTopology, Route, Torus
from dagsim.model import (
    Cluster,
    Decision,
    Edge,
    Job,
    Kill,
    Kind,
    Migrate,
    Node,
    Preempt,
    Share,
    Start,
    Task,
    TaskGraph,
    Wait,
    gpu_type,
)
from dagsim.model.log import Schedule
from dagsim.systems.cluster import ClusterKernel, Preemption
from dagsim.systems.cluster.clock import Clock
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.models.failures import Maintenance
from dagsim.systems.cluster.network import Flow, Storage, UniformNetwork
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.view import ClusterView
from dagsim.testing import check_network

V100 = gpu_type("V100-16")
THREE = Cluster(tuple(Node(name, V100, 2) for name in "abc"))
ONE_NIC = SharedNetwork(Island(rails=1, bandwidth_gb_s=1.0))
PAIR = TaskGraph((Task("parent", 1.0), Task("child", 1.0)), (Edge(0, 1, 4e9),))


class Placed:
    """Starts each task on the node of its name, and kills job 1 at ``kill_s``."""

    def __init__(self, nodes: dict[str, int], kill_s: float | None = None) -> None:
        self.nodes = nodes
        self.kill_s = kill_s

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        for task in view.ready:
            yield Start(task, (Share(self.nodes[f"{task.job.job.id}.{task.task.name}"]),))
        if self.kill_s is not None:
            if view.now == self.kill_s:
                self.kill_s = None
                yield Kill(1)
            else:
                yield Wait(self.kill_s)


def computing(schedule: Schedule) -> dict[tuple[str, int], float]:
    """When each task (job, index) that read over the network began to compute."""
    rows = [row for row in schedule.log if row.kind == Kind.COMPUTING]
    return {(schedule.jobs[row.job].id, row.task): row.time_s for row in rows}


def test_two_children_share_the_nic_of_their_parents_node() -> None:
    # 1 and 3 GB leave node a at .5 GB/s each: the first arrives at 1 + 2, the second has 2 GB left at 1 GB/s.
    tasks = (Task("parent", 1.0), Task("near", 1.0), Task("far", 1.0))
    graph = TaskGraph(tasks, (Edge(0, 1, 1e9), Edge(0, 2, 3e9)))
    placed = Placed({"j.parent": 0, "j.near": 1, "j.far": 2})
    schedule = ClusterKernel(THREE, [Job("j", graph)], Models(network=ONE_NIC)).run(placed)
    assert computing(schedule) == {("j", 1): 3, ("j", 2): 5}


def test_flows_of_several_rails_are_as_fast_as_all_rails_together() -> None:
    network = SharedNetwork(Island(rails=4, bandwidth_gb_s=1.0, latency_s=0.5))
    schedule = ClusterKernel(THREE, [Job("j", PAIR)], Models(network=network)).run(
        Placed({"j.parent": 0, "j.child": 1})
    )
    assert computing(schedule) == {("j", 1): 3}  # 1 + two links of .5 s + 4 GB at 4 GB/s


def test_a_killed_job_leaves_its_share_to_the_others() -> None:
    # Two jobs send 4 GB each from node a from 1 on. At 3 each has 3 GB left, and the second one is killed.
    placed = Placed({"i.parent": 0, "i.child": 1, "j.parent": 0, "j.child": 2}, kill_s=3.0)
    schedule = ClusterKernel(THREE, [Job("i", PAIR), Job("j", PAIR)], Models(network=ONE_NIC)).run(placed)
    assert computing(schedule) == {("i", 1): 6}


def test_a_fork_of_flows_under_way_arrives_at_the_same_times() -> None:
    placed = Placed({"i.parent": 0, "i.child": 1, "j.parent": 0, "j.child": 2})
    kernel = ClusterKernel(THREE, [Job("i", PAIR), Job("j", PAIR, 0.7)], Models(network=ONE_NIC))
    kernel.run(placed, until_s=2.2)
    forked = kernel.fork().run(placed)
    assert forked.log == kernel.run(placed).log
    assert computing(forked) == pytest.approx({("i", 1): 8.3, ("j", 1): 9.0})


@given(st.data())
def test_a_link_for_each_pair_of_nodes_is_the_uniform_network_up_to_shared_links(data: st.DataObject) -> None:
    # One task runs at a time, so that at most its own flows are under way, each from another node.
    jobs = data.draw(job_lists(most=2))
    cluster = Cluster((Node("a", V100, 16, 64, 512), Node("b", V100, 16, 64, 512)))
    links = (Cable("ab", 2.0), Cable("ba", 2.0))
    explicit = Explicit(links, (Route("a", "b", ("ab",)), Route("b", "a", ("ba",))))
    logs = [
        ClusterKernel(cluster, jobs[:1], Models(network=network)).run(POLICIES.create("fifo-fit")).ended_s
        for network in (UniformNetwork(2.0), SharedNetwork(explicit))
    ]
    assert logs[1] >= logs[0] * (1 - 1e-12)


def test_a_configuration_names_the_topology(tmp_path: Path) -> None:
    topology = "{kind: torus, dimensions: [2, 2], bandwidth_gb_s: 1}"
    file = tmp_path / "x.yaml"
    text = "cluster: {groups: [{name: x, gpu: T4, count: 4, gpus: 1}]}\nnetwork: {kind: shared, topology: %s}\n"
    file.write_text(text % topology)
    command = ["eval", "--config", file, "--policy", "fifo", "--seeds", "1", "--no-plots"]
    fine(*command, "--out", tmp_path / "run")
    file.write_text(text % topology.replace("[2, 2]", "[3]"))
    done = invoke(*command)
    assert done.exit_code == 2
    assert "torus: the topology has 3 hosts, but the cluster has 4 nodes" in " ".join(done.output.split())


TWO_NODES = "cluster: {groups: [{name: x, gpu: T4, count: 2, gpus: 1}]}\n"
SHARED = TWO_NODES + "network:\n  kind: shared\n  topology:\n    "
LINK = "kind: explicit\n    links: [{name: l, bandwidth_gb_s: 1}]\n    routes:\n"


AHEAD = "      - {source: x-0, destination: x-1, links: [l]}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SHARED + "kind: torus\n    dimensions: [3]\n", ":5:5: network.topology: torus: the topology has 3 hosts"),
        (
            SHARED + LINK + AHEAD + "      - {source: x-1, destination: y-1, links: [l]}\n",
            ":9:36: network.topology.routes.1.destination: explicit: route from 'x-1' to 'y-1': the cluster has no",
        ),
        (
            SHARED + LINK + "      - {source: x-0, destination: x-1, links: [l, k]}\n",
            ":8:52: network.topology.routes.0.links.1: explicit: route from 'x-0' to 'x-1': there is no link 'k'",
        ),
        (
            SHARED + LINK + AHEAD,
            ":8:7: network.topology.routes: explicit: there is no route from 'x-1' to 'x-0'",
        ),
        (
            SHARED + "kind: tree\n    switches:\n      - {name: s, nodes: [x-0]}\n",
            ":7:7: network.topology.switches: tree: node 'x-1' is not below any switch",
        ),
        (
            SHARED + "kind: tree\n    switches:\n      - {name: s, nodes: [x-0, x-1, x-2]}\n",
            ":7:37: network.topology.switches.0.nodes.2: tree: switch 's' names the node 'x-2', which does not exist",
        ),
        (
            TWO_NODES + "network: {kind: shared, storage: {nodes: [nas]}}\n",
            ":2:42: network.storage.nodes: the cluster has no node 'nas'",
        ),
        (
            TWO_NODES + "communication:\n  default: {gb: 1, step_s: 1}\n",
            ":3:3: communication: gangs that communicate need a network that carries them: network {kind: shared}",
        ),
        (
            TWO_NODES + "network: {kind: shared}\nrequest:\n  level: rack\n",
            ":4:10: request.level: there is no level 'rack'",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_nodes_has_file_line_and_key(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(str(file) + message)):
        load_config(file)


class Forking(Placed):
    """Forks right after the kill, before anything else happens in the instant."""

    forked: Schedule | None = None

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        killing = self.kill_s == view.now
        yield from super().decide(view)
        if killing:
            self.forked = view.fork().run(Placed(self.nodes))


def test_a_fork_at_the_instant_of_a_kill_gives_the_freed_share_to_the_others() -> None:
    forking = Forking({"i.parent": 0, "i.child": 1, "j.parent": 0, "j.child": 2}, kill_s=3.0)
    ClusterKernel(THREE, [Job("i", PAIR), Job("j", PAIR)], Models(network=ONE_NIC)).run(forking)
    assert forking.forked is not None
    assert computing(forking.forked) == {("i", 1): 6}


STORED = SharedNetwork(Island(rails=1, bandwidth_gb_s=1.0), Storage(("c",), {"bert": 4.0}))


class Steps:
    """Starts tasks on the node of their job's name, and plays decisions at their times."""

    def __init__(self, nodes: dict[str, int], at: dict[float, list[Decision]]) -> None:
        self.nodes = nodes
        self.at = dict(at)

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        yield from self.at.pop(view.now, ())
        if self.at:
            yield Wait(min(self.at))
        for task in view.ready:
            if task.piece == 0 or view.now >= 20:
                yield Start(task, (Share(self.nodes[task.job.job.id]),))


def stored(jobs: list[Job], nodes: dict[str, int], at: dict[float, list[Decision]]) -> ClusterKernel:
    kernel = ClusterKernel(
        THREE, jobs, Models(network=STORED, preemption=Preemption(restart_s=3, checkpoint_s_per_gb=100))
    )
    kernel.run(Steps(nodes, at), until_s=11)
    forked = kernel.fork()
    rest = {time_s: steps for time_s, steps in at.items() if time_s > 11}
    for copy in (forked, kernel):
        copy.run(Steps(nodes, rest))
    assert [*forked.schedule.log] == [*kernel.schedule.log]
    return kernel


def test_tasks_read_their_data_from_the_storage_and_share_its_nic() -> None:
    # 4 GB each at .5 GB/s until 8; the third model reads nothing.
    jobs = [
        Job.single(name, Task("t", 10.0, model=model)) for name, model in (("i", "bert"), ("j", "bert"), ("k", "x"))
    ]
    assert ends(stored(jobs, {"i": 0, "j": 1, "k": 1}, {})) == {"i": 18, "j": 18, "k": 10}


def test_a_run_that_moves_carries_its_memory_to_its_new_node() -> None:
    # 6 GB at 1 GB/s from a to b, and 3 s of restart; 5 of 30 s of work were done.
    job = Job.single("i", Task("t", 30.0, memory_gb=6.0))
    cluster = Cluster(tuple(Node(name, V100, 2, memory_gb=10) for name in "abc"))
    kernel = ClusterKernel(
        cluster, [job], Models(network=STORED, preemption=Preemption(restart_s=3, checkpoint_s_per_gb=100))
    )
    kernel.run(Steps({"i": 0}, {5.0: [Migrate(0, (Share(1),))]}))
    assert ends(kernel) == {"i": 5 + 6 + 3 + 25}


def test_a_run_that_returns_later_reads_its_state_from_the_storage_beside_others() -> None:
    # i is preempted at 5 and starts again at 20, when j begins to read its data: 6 and 4 GB leave c at .5 GB/s each,
    # so that j has its data at 28 and i its state at 30; then 3 s of restart, and 25 s of work are left.
    cluster = Cluster(tuple(Node(name, V100, 2, memory_gb=10) for name in "abc"))
    jobs = [Job.single("i", Task("t", 30.0, memory_gb=6.0)), Job.single("j", Task("t", 10.0, model="bert"), 20.0)]
    kernel = ClusterKernel(
        cluster, jobs, Models(network=STORED, preemption=Preemption(restart_s=3, checkpoint_s_per_gb=100))
    )
    kernel.run(Steps({"i": 0, "j": 1}, {5.0: [Preempt(0)], 20.0: []}))
    assert ends(kernel) == {"i": 30 + 3 + 25, "j": 38}


def test_a_storage_node_that_the_cluster_lacks_is_named() -> None:
    network = SharedNetwork(Island(rails=1), Storage(("nas",)))
    with pytest.raises(ModelError, match="storage: the cluster has no node 'nas'"):
        ClusterKernel(THREE, [], Models(network=network))
    for make in (lambda: Storage(()), lambda: Storage(("c",), {"bert": -1.0}), lambda: Storage(("c",), default_gb=inf)):
        with pytest.raises(ModelError, match="storage"):
            make()


def test_what_a_failure_leaves_is_in_the_storage_and_a_restart_reads_its_data_again() -> None:
    cluster = Cluster(tuple(Node(name, V100, 2, memory_gb=10) for name in "abc"))
    job = Job.single("i", Task("t", 30.0, memory_gb=6.0, model="bert"))
    for preemption, read_s, left_s in (
        (Preemption(on_failure="resume"), 6, 24),  # its state at 1 GB/s, from c and not from the node that failed
        (Preemption(on_failure="restart"), 4, 30),  # its data again
    ):
        down = Maintenance((0,), 10.0, 50.0)
        kernel = ClusterKernel(cluster, [job], Models(network=STORED, preemption=preemption, failures=[down]))
        kernel.run(Failing())
        assert ends(kernel) == {"i": 10 + read_s + left_s}


class Failing:
    """Starts the job on node a, and again on node b as soon as it has failed."""

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        for task in view.ready:
            yield Start(task, (Share(0 if task.piece == 0 else 1),))


def test_a_gang_that_moves_sends_what_each_node_has() -> None:
    # 3 + 1 instances of 2 GB each on a and b: a sends 6 GB and b 2 to c, whose NIC takes 8 s.
    cluster = Cluster(tuple(Node(name, V100, 4, memory_gb=10) for name in "abc"))
    job = Job.single("i", Task("t", 30.0, 4, True, memory_gb=2.0))

    class Moves:
        def decide(self, view: ClusterView) -> Iterable[Decision]:
            for task in view.ready:
                yield Start(task, (Share(0, 3), Share(1, 1)))
            if view.now < 5:
                yield Wait(5)
            elif view.now == 5 and 0 in view.running:
                yield Migrate(0, (Share(2, 4),))

    kernel = ClusterKernel(cluster, [job], Models(network=STORED))
    kernel.run(Moves())
    assert ends(kernel) == {"i": 5 + 8 + 25}


def test_expected_times_of_flows_count_each_other_and_latencies_and_change_nothing() -> None:
    # 4 and 1 GB leave node a at .5 GB/s each until 2, then 3 GB at 1 GB/s; two links of .5 s.
    network = SharedNetwork(Island(rails=1, bandwidth_gb_s=1.0, latency_s=0.5))
    carrier = network.carrier(Clock(), THREE)
    for _ in range(2):
        assert carrier.expected_s([[Flow(0, 1, 4e9)], [Flow(0, 2, 1e9)], []]) == pytest.approx([6, 3, 0])
    uniform = UniformNetwork(2.0, 0.5).carrier(Clock(), THREE)
    assert uniform.expected_s([[Flow(0, 1, 4e9), Flow(0, 2, 1e9)], []]) == [2.5, 0]


@pytest.mark.parametrize(
    "topology", [Island(1, 0.5, 1.0), Torus((4,), 0.5), FatTree((2, 2), (1, 1), (1, 1), 0.5, 0.1)], ids=repr
)
def test_the_checker_of_networks_finds_nothing(topology: NetworkTopology) -> None:
    check_network(SharedNetwork(topology))
