"""The shared network in the simulation of a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from dagsim.cli import app
from dagsim.model import Cluster, Decision, Edge, Job, Kill, Kind, Node, Share, Start, Task, TaskGraph, Wait, gpu_type
from dagsim.model.log import Schedule
from dagsim.network import Cable, Explicit, Island, Route
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.network import UniformNetwork
from dagsim.systems.cluster.network.shared import SharedNetwork
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.view import ClusterView
from tests.cases import job_lists

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
    schedule = ClusterKernel(THREE, [Job("j", graph)], network=ONE_NIC).run(placed)
    assert computing(schedule) == {("j", 1): 3, ("j", 2): 5}


def test_flows_of_several_rails_are_as_fast_as_all_rails_together() -> None:
    network = SharedNetwork(Island(rails=4, bandwidth_gb_s=1.0, latency_s=0.5))
    schedule = ClusterKernel(THREE, [Job("j", PAIR)], network=network).run(Placed({"j.parent": 0, "j.child": 1}))
    assert computing(schedule) == {("j", 1): 3}  # 1 + two links of .5 s + 4 GB at 4 GB/s


def test_a_killed_job_leaves_its_share_to_the_others() -> None:
    # Two jobs send 4 GB each from node a from 1 on. At 3 each has 3 GB left, and the second one is killed.
    placed = Placed({"i.parent": 0, "i.child": 1, "j.parent": 0, "j.child": 2}, kill_s=3.0)
    schedule = ClusterKernel(THREE, [Job("i", PAIR), Job("j", PAIR)], network=ONE_NIC).run(placed)
    assert computing(schedule) == {("i", 1): 6}


def test_a_fork_of_flows_under_way_arrives_at_the_same_times() -> None:
    placed = Placed({"i.parent": 0, "i.child": 1, "j.parent": 0, "j.child": 2})
    kernel = ClusterKernel(THREE, [Job("i", PAIR), Job("j", PAIR, 0.7)], network=ONE_NIC)
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
        ClusterKernel(cluster, jobs[:1], network=network).run(POLICIES.create("fifo-fit")).ended_s
        for network in (UniformNetwork(2.0), SharedNetwork(explicit))
    ]
    assert logs[1] >= logs[0] * (1 - 1e-12)


def test_a_configuration_names_the_topology(tmp_path: Path) -> None:
    topology = "{kind: torus, dimensions: [2, 2], bandwidth_gb_s: 1}"
    file = tmp_path / "x.yaml"
    text = "cluster: {groups: [{name: x, gpu: T4, count: 4, gpus: 1}]}\nnetwork: {kind: shared, topology: %s}\n"
    runner = CliRunner()
    file.write_text(text % topology)
    done = runner.invoke(
        app,
        ["eval", "--config", str(file), "--algo", "fifo", "--seeds", "1", "--no-plots", "--out", str(tmp_path / "run")],
    )
    assert done.exit_code == 0, done.output
    file.write_text(text % topology.replace("[2, 2]", "[3]"))
    done = runner.invoke(app, ["eval", "--config", str(file), "--algo", "fifo", "--seeds", "1", "--no-plots"])
    assert done.exit_code == 2
    assert "torus: the topology has 3 hosts, the cluster has 4 nodes" in " ".join(done.output.split())


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
    ClusterKernel(THREE, [Job("i", PAIR), Job("j", PAIR)], network=ONE_NIC).run(forking)
    assert forking.forked is not None
    assert computing(forking.forked) == {("i", 1): 6}
