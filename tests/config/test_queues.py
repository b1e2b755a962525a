"""``queues`` of a configuration: what is read, and what is refused."""

from __future__ import annotations

import pytest

from dagsim.config.dumping import dump_config
from dagsim.config.schema import load_config
from dagsim.errors import ConfigError
from dagsim.systems.cluster.scenario import cluster_scenario_of

NODES = "cluster.groups=[{name: a, hosts: 'a[01-03]', gpu: T4, gpus: 4}, {name: b, count: 2, gpu: T4, gpus: 4}]"


def test_queues_reach_the_policy_with_their_nodes_by_name() -> None:
    tree = "tree: [{name: lab, children: [{name: x, quota: {T4: 2}}]}]"
    queues = f"queues={{{tree}, partitions: [{{name: p, nodes: ['a[01-02]', b]}}]}}"
    config = load_config(None, [NODES, queues])
    assert config.queues is not None
    assert config.queues.partitions[0].nodes == ("a01", "a02", "b")
    assert [(node.name, above) for node, above in config.queues.walk()] == [("lab", ()), ("x", ("lab",))]
    assert cluster_scenario_of(config).kernel(0).queues == config.queues
    assert dump_config(load_config(None, [NODES, queues])) == dump_config(config)


@pytest.mark.parametrize(
    ("queues", "why"),
    [
        ("{partitions: [{name: p, nodes: [c]}]}", "partition 'p': there is no node or group 'c'.*groups: a, b"),
        ("{partitions: [{name: p, nodes: ['a[01']}]}", "a bracket is not closed"),
        ("{tree: [{name: x, wieght: 2}]}", "did you mean 'weight'"),
        ("{tree: [{name: x, limits: {gpus: -1}}]}", r"limits\.gpus: must be 0 or more, got -1"),
        ("{tree: [{name: x, borrow: {T4: 1}}]}", "borrow names 'T4', for which the queue has no quota"),
        ("{tree: [{name: x}, {name: y, children: [{name: x}]}]}", "the queue 'x' occurs twice"),
        ("{tree: [{name: root}]}", "the name 'root' is reserved"),
        ("{qos: [{name: q, preempts: [r]}]}", "qos 'q' preempts 'r', which does not exist; known: q"),
        ("{partitions: [{name: p, max_time_s: 0}]}", "max_time_s must be above 0"),
        ("{partitions: [{name: p, billing: {gpu: 1}}]}", "unknown key 'gpu'; allowed: gpus, cpus, memory_gb"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(queues: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"queues.*{why}"):
        load_config(None, [NODES, f"queues={queues}"])
