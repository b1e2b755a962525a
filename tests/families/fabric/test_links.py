"""The traffic on links, found from the log, and its picture on the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from dagsim.families.fabric.collectives import StepTraffic
from dagsim.families.fabric.communication import ModelTraffic
from dagsim.families.fabric.shared_network import SharedNetwork
from dagsim.families.fabric.topologies import Island
from dagsim.families.fabric.usage import LinkTraffic
from dagsim.model import (
    Cluster,
    Decision,
    Edge,
    Job,
    Kind,
    Migrate,
    Node,
    Share,
    Start,
    Task,
    TaskGraph,
    Wait,
    gpu_type,
)
from dagsim.model.log import Schedule
from dagsim.systems.cluster import ClusterKernel, ClusterView, Preemption
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.systems.cluster.network import Storage
from dagsim.systems.cluster.network.links import busiest

A100 = gpu_type("A100-80")
CLUSTER = Cluster(tuple(Node(name, A100, 8, memory_gb=100) for name in "abcd"))
NETWORK = SharedNetwork(Island(rails=1, bandwidth_gb_s=10.0), Storage(("d",), {"bert": 5.0}))
SENDS = ModelTraffic({"net": StepTraffic(4.0, 1.0, calls=0)})


class Steps:
    """Starts each task on the nodes of its name, and plays decisions at their times."""

    def __init__(self, nodes: dict[str, list[int]], at: dict[float, Decision]) -> None:
        self.nodes = nodes
        self.at = at

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        if view.now in self.at:
            yield self.at.pop(view.now)
        for task in view.ready:
            on = self.nodes[task.task.name]
            yield Start(task, tuple(Share(node, on.count(node)) for node in dict.fromkeys(on)))
        if self.at:
            yield Wait(min(self.at))


def run(jobs: list[Job], nodes: dict[str, list[int]], at: dict[float, Decision] | None = None) -> Schedule:
    kernel = ClusterKernel(CLUSTER, jobs, Models(network=NETWORK, communication=SENDS))
    return kernel.run(Steps(nodes, at or {}))


def sent_gb(jobs: list[Job], schedule: Schedule) -> dict[str, float]:
    usage = LinkTraffic(schedule, jobs, NETWORK, SENDS, Recorded(), Preemption()).links()
    return {use.link.name: round(use.bytes / 1e9, 6) for use in usage if use.traffic}


@pytest.mark.parametrize("others", [0, 1])
def test_a_gang_sends_the_bytes_of_its_steps_whatever_its_rate(others: int) -> None:
    # 100 steps of a ring of two: 4 GB over each hop.
    jobs = [Job.single(f"j{number}", Task(f"t{number}", 100.0, 2, True, model="net")) for number in range(1 + others)]
    schedule = run(jobs, {"t0": [0, 1], "t1": [0, 2]})
    expected = {"a.nic0.tx": 400.0 * (1 + others), "a.nic0.rx": 400.0 * (1 + others)}
    expected |= {f"{name}.nic0.{end}": 400.0 for name in "bc"[: 1 + others] for end in ("tx", "rx")}
    assert sent_gb(jobs, schedule) == pytest.approx(expected)


def test_a_slower_type_takes_fewer_steps_a_second_and_sends_as_much_in_all() -> None:
    cluster = Cluster((*CLUSTER.nodes[:2], *[Node(name, gpu_type("V100-16"), 8) for name in "xy"]))
    job = Job.single("j", Task("t", 100.0, 2, True, speeds={"A100-80": 2.0, "V100-16": 1.0}, model="net"))
    network = SharedNetwork(Island(rails=1, bandwidth_gb_s=10.0))
    kernel = ClusterKernel(cluster, [job], Models(network=network, communication=SENDS))
    schedule = kernel.run(Steps({"t": [2, 3]}, {}))
    usage = LinkTraffic(schedule, [job], network, SENDS, Recorded(), Preemption()).links()
    assert {round(use.bytes / 1e9, 6) for use in usage if use.traffic} == {50 * 4.0}  # 50 steps of 1 s on the A100


@pytest.mark.parametrize("output_gb", [1.0, 3.3, 7.0])
def test_outputs_are_sent_until_exactly_the_time_at_which_their_readers_compute(output_gb: float) -> None:
    graph = TaskGraph((Task("up", 1.0, 3), Task("down", 1.0, 3)), (Edge(0, 1, output_gb * 1e9),))
    jobs = [Job("dag", graph)]
    schedule = run(jobs, {"up": [0, 0, 1], "down": [1, 2, 2]})
    usage = LinkTraffic(schedule, jobs, NETWORK, SENDS, Recorded(), Preemption()).links()
    ends = {end_s for use in usage for _, end_s, _ in use.traffic}
    assert ends == {row.time_s for row in schedule.log if row.kind == Kind.COMPUTING}


def test_outputs_data_and_moved_states_are_counted() -> None:
    graph = TaskGraph((Task("up", 1.0, 2), Task("down", 1.0, 2)), (Edge(0, 1, 7e9),))
    jobs = [
        Job("dag", graph),
        Job.single("load", Task("load", 1.0, model="bert")),
        Job.single("move", Task("move", 30.0, memory_gb=6.0)),
    ]
    schedule = run(jobs, {"up": [0, 0], "down": [1, 1], "load": [2], "move": [0]}, {10.0: Migrate(2, (Share(2),))})
    assert sent_gb(jobs, schedule) == pytest.approx(
        {"a.nic0.tx": 13.0, "b.nic0.rx": 7.0, "c.nic0.rx": 11.0, "d.nic0.tx": 5.0}
    )
    usage = LinkTraffic(schedule, jobs, NETWORK, SENDS, Recorded(), Preemption()).links()
    assert [use.link.name for use in busiest(usage, 2)] == ["a.nic0.tx", "c.nic0.rx"]
    for use in usage:
        assert all(bytes_s <= use.link.bandwidth * (1 + 1e-9) for _, _, bytes_s in use.traffic)


def test_the_page_shows_the_busiest_links(tmp_path: object) -> None:
    from pathlib import Path

    out = Path(str(tmp_path)) / "runs"
    config = out.parent / "net.yaml"
    config.write_text(
        "cluster: {groups: [{name: n, count: 4, gpu: V100-16, gpus: 2}]}\n"
        "workload: {preset: heterogeneous, count: 20}\n"
        "network: {kind: shared, topology: {kind: fat_tree, down: [2, 2], up: [1, 1], count: [1, 1]}}\n"
        "communication: {default: {gb: 1, step_s: 0.5}}\npolicy: fifo\nseeds: 1\n"
    )
    invoke: Callable[..., object] = lambda *words: invoke(*words)  # noqa: E731
    invoke("eval", "--config", str(config), "--out", str(out), "--quiet")
    (folder,) = out.iterdir()
    invoke("report", str(folder))
    text = (folder / "report.html").read_text()
    assert "Busiest links" in text
    assert "of 12 links carried traffic" in text
