"""Groups of nodes that a cluster autoscaler adds and removes, as the Cluster API states them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dagsim.cli import app
from dagsim.config.schema import load_config
from dagsim.model import Kind
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import cluster_scenario_of

SIZE = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-{}-size"
CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"


def node(name: str, owner: str = "") -> dict[str, Any]:
    notes = {"cluster.x-k8s.io/owner-kind": "MachineSet", "cluster.x-k8s.io/owner-name": owner} if owner else {}
    there = {"cpu": "16", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "4"}
    labels = {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": "Tesla-T4"}
    metadata = {"name": name, "annotations": notes, "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}, "status": {"allocatable": there}}


def deployment(name: str, least: str, most: str, **capacity: str) -> dict[str, Any]:
    notes = {SIZE.format("min"): least, SIZE.format("max"): most}
    notes |= {f"{CAPACITY}{key.replace('_', '-')}": value for key, value in capacity.items()}
    metadata = {"name": name, "annotations": notes}
    return {"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "MachineDeployment", "metadata": metadata, "spec": {}}


def imported(folder: Path, *items: dict[str, Any]) -> Path:
    (folder / "nodes.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1))
    site = folder / "site.yaml"
    ended = CliRunner().invoke(app, ["site", "import", str(folder / "nodes.json"), "-o", str(site)])
    assert ended.exit_code == 0, ended.output
    return site


def test_a_group_has_its_nodes_up_and_the_rest_of_its_largest_size_off(tmp_path: Path) -> None:
    site = imported(tmp_path, deployment("pool", "1", "3"), node("fix"), node("pool-x7k2p", "pool-7d9f"))
    nodes = {one.name: one for one in load_config(site).build_cluster().nodes}
    assert set(nodes) == {"fix", "pool-x7k2p", "pool-1", "pool-2"}
    assert nodes["fix"].on_demand is None
    rules = {name: one.on_demand for name, one in nodes.items() if one.on_demand is not None}
    assert {name: rule.up for name, rule in rules.items()} == {"pool-x7k2p": True, "pool-1": False, "pool-2": False}
    assert {(rule.trigger, rule.min_nodes) for rule in rules.values()} == {("pending", 1)}
    assert (nodes["pool-1"].gpu, nodes["pool-1"].gpus) == (nodes["fix"].gpu, 4)


def test_a_group_without_nodes_is_as_its_annotations_say(tmp_path: Path) -> None:
    wide = deployment(
        "wide", "0", "2", cpu="64", memory="256Gi", gpu_count="8", gpu_type="nvidia.com/gpu",
        labels="nvidia.com/gpu.product=NVIDIA-A100-SXM4-40GB,pool=wide", taints="team=ml:NoSchedule",
    )  # fmt: skip
    site = imported(tmp_path, node("fix"), wide)
    nodes = {one.name: one for one in load_config(site).build_cluster().nodes}
    assert set(nodes) == {"fix", "wide-1", "wide-2"}
    assert (nodes["wide-1"].gpus, nodes["wide-1"].cpus, nodes["wide-1"].memory_gb) == (8, 64, 256)
    assert '"team"' in nodes["wide-1"].manifest
    assert '"pool":"wide"' in nodes["wide-1"].manifest


def test_the_smallest_size_is_up_at_the_beginning_and_more_nodes_boot_for_pending_pods(tmp_path: Path) -> None:
    site = imported(tmp_path, node("fix"), deployment("pool", "1", "4", cpu="16", memory="64Gi"))
    workload = "workload={kind: synthetic, count: 30, sizes: {kind: independent, gpus: {kind: constant, value: 0}, "
    workload += "cpus: {kind: constant, value: 12}}}"
    config = load_config(site, [workload])
    assert [one.on_demand.up for one in config.build_cluster().nodes if one.on_demand] == [True, False, False, False]
    kernel = cluster_scenario_of(config).kernel(0)
    kernel.run(POLICIES.create("kube-default"))
    changes = [row for row in kernel.schedule.log if row.kind == Kind.POWER]
    assert any(row.value for row in changes)


@pytest.mark.parametrize(("least", "most"), [("3", "2"), ("x", "2"), ("0", "-1")])
def test_sizes_that_are_no_numbers_in_order_are_refused(tmp_path: Path, least: str, most: str) -> None:
    items = [node("fix"), deployment("pool", least, most)]
    (tmp_path / "nodes.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    ended = CliRunner().invoke(app, ["site", "import", str(tmp_path / "nodes.json"), "-o", str(tmp_path / "s.yaml")])
    assert ended.exit_code == 2
    assert "are not numbers of nodes in order" in ended.output
