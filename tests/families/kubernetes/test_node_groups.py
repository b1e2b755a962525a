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


def node_pool(name: str, limits: dict[str, Any] | None, **disruption: str) -> dict[str, Any]:
    spec = {"template": {"spec": {"requirements": []}}, "disruption": disruption} | (
        {"limits": limits} if limits else {}
    )
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}


def labelled(name: str, label: str, value: str) -> dict[str, Any]:
    one = node(name)
    one["metadata"]["labels"][label] = value
    return one


def status(*groups: tuple[str, int, int]) -> dict[str, Any]:
    listed = "".join(
        f"- name: {name}\n  health: {{status: Healthy, cloudProviderTarget: 1, minSize: {least}, maxSize: {most}}}\n"
        for name, least, most in groups
    )
    metadata = {"name": "cluster-autoscaler-status", "namespace": "kube-system"}
    text = f"time: 2026-05-04 08:00:00\nautoscalerStatus: Running\nnodeGroups:\n{listed}"
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"status": text}}


def test_a_node_pool_of_karpenter_grows_to_its_limits_and_loses_empty_nodes_when_it_says(tmp_path: Path) -> None:
    pool = node_pool(
        "spot", {"cpu": "100", "nvidia.com/gpu": 12}, consolidateAfter="1m30s", consolidationPolicy="WhenEmpty"
    )
    site = imported(tmp_path, pool, node("fix"), labelled("ip-1", "karpenter.sh/nodepool", "spot"))
    nodes = {one.name: one for one in load_config(site).build_cluster().nodes}
    assert set(nodes) == {"fix", "ip-1", "spot-1", "spot-2"}  # 12 GPUs, 4 a node
    rules = {name: one.on_demand for name, one in nodes.items() if one.on_demand is not None}
    assert {name: (rule.up, rule.trigger, rule.min_nodes, rule.idle_s) for name, rule in rules.items()} == {
        "ip-1": (True, "pending", 0, 90.0),
        "spot-1": (False, "pending", 0, 90.0),
        "spot-2": (False, "pending", 0, 90.0),
    }


def test_what_is_not_modelled_of_a_node_pool_is_said(tmp_path: Path) -> None:
    items = [
        node("fix"), labelled("ip-1", "karpenter.sh/nodepool", "open"),
        node_pool("open", None, consolidateAfter="Never"), node_pool("empty", {"cpu": "64"}),
    ]  # fmt: skip
    (tmp_path / "nodes.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    ended = CliRunner().invoke(app, ["site", "import", str(tmp_path / "nodes.json"), "-o", str(tmp_path / "s.yaml")])
    assert ended.exit_code == 0
    assert "not modelled: NodePool open: it has no limits, so no nodes are added to those that exist" in ended.stdout
    assert "not modelled: NodePool empty: it has no nodes, and no file states how large they are" in ended.stdout
    assert "not modelled: NodePool open: every new node is like its first one; moving pods to empty a" in ended.stdout
    (rule,) = [one.on_demand for one in load_config(tmp_path / "s.yaml").build_cluster().nodes if one.on_demand]
    assert rule.idle_s is None


@pytest.mark.parametrize(
    ("label", "group"),
    [
        ("eks.amazonaws.com/nodegroup", "eks-blue-2ac5e1f0"),
        (
            "cloud.google.com/gke-nodepool",
            "https://www.googleapis.com/compute/v1/zones/z/instanceGroups/gke-c-blue-12ab-grp",
        ),
        ("kubernetes.azure.com/agentpool", "aks-blue-1234-vmss"),
    ],
)
def test_the_groups_of_a_cloud_s_autoscaler_have_the_sizes_of_its_status(
    tmp_path: Path, label: str, group: str
) -> None:
    site = imported(
        tmp_path, node("fix"), labelled("b", label, "blue"), labelled("g", label, "green"), status((group, 1, 3))
    )
    nodes = {one.name: one.on_demand for one in load_config(site).build_cluster().nodes}
    of_group = {name: (rule.up, rule.min_nodes) for name, rule in nodes.items() if rule is not None}
    assert len(nodes) == 5
    assert of_group.pop("b") == (True, 1)
    assert set(of_group.values()) == {(False, 1)}


def test_the_status_of_a_cluster_autoscaler_before_1_30_is_a_text(tmp_path: Path) -> None:
    # the text of kubernetes/autoscaler's readable string up to 1.29, with its further rows shortened
    row = (
        "  Name:        {}\n  Health:      Healthy (ready=1 unready=0 (resourceUnready=0) notStarted=0 "
        "longNotStarted=0 registered=1 longUnregistered=0 cloudProviderTarget=1 (minSize={}, maxSize={}))\n"
        "               LastProbeTime:      2023-08-17 19:05:01 +0000 UTC m=+525.1\n"
        "  ScaleUp:     NoActivity (ready=1)\n\n"
    )
    text = (
        "Cluster-autoscaler status at 2023-08-17 19:05:01 +0000 UTC:\nCluster-wide:\n  Health:      Healthy (ready=2)\n"
    )
    text += "\nNodeGroups:\n" + row.format("eks-blue-2ac5e1f0", 1, 3) + row.format("eks-red-77aa0011", 0, 2)
    label = "eks.amazonaws.com/nodegroup"
    old = {**status(), "data": {"status": text}}
    site = imported(tmp_path, node("fix"), labelled("b", label, "blue"), labelled("r", label, "red"), old)
    nodes = {one.name: one.on_demand for one in load_config(site).build_cluster().nodes}
    of_group = {name: (rule.up, rule.min_nodes) for name, rule in nodes.items() if rule is not None}
    assert (of_group.pop("b"), of_group.pop("r")) == ((True, 1), (True, 0))
    assert sorted(of_group.values()) == [(False, 0), (False, 1), (False, 1)]


def test_a_static_node_pool_of_karpenter_keeps_its_size(tmp_path: Path) -> None:
    pool = node_pool("fixed", {"nodes": 9}, consolidateAfter="0s")
    pool["spec"]["replicas"] = 2
    site = imported(tmp_path, pool, *[labelled(name, "karpenter.sh/nodepool", "fixed") for name in ("ip-1", "ip-2")])
    rules = {one.name: one.on_demand for one in load_config(site).build_cluster().nodes}
    assert {name: rule and (rule.up, rule.min_nodes, rule.idle_s) for name, rule in rules.items()} == {
        "ip-1": (True, 2, None),
        "ip-2": (True, 2, None),
    }


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (node_pool("p", {"cpu": "1"}, consolidateAfter="soon"), "whose consolidateAfter 'soon' is not a duration"),
        (status(("a", 3, 2)), "are not numbers of nodes in ascending order"),
        ({**status(), "data": {"status": "Cluster-wide:\n  Health: [\n"}}, "whose status is neither YAML nor the text"),
    ],
)
def test_a_group_that_cannot_be_read_is_an_error(tmp_path: Path, item: dict[str, Any], message: str) -> None:
    (tmp_path / "nodes.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("fix"), item]}))
    ended = CliRunner().invoke(app, ["site", "import", str(tmp_path / "nodes.json"), "-o", str(tmp_path / "s.yaml")])
    assert ended.exit_code == 2
    assert message in ended.output


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
    assert "are not numbers of nodes in ascending order" in ended.output
