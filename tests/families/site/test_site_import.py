"""The import of sites of Kueue and PBS, and of folders with logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from support.command_line import fine
from support.log_reading import start_times

from dagsim.config.schema import load_config
from dagsim.errors import TraceError
from dagsim.families.kubernetes.kueue.kueue_objects import BorrowWithinCohort, QueuePreemption, ResourceQuota
from dagsim.families.site.cluster_file import cluster_yaml
from dagsim.families.site.node_lists import ImportedCluster
from dagsim.families.site.site_import import read_site, site_files
from dagsim.model import Caps, Cluster, Job, Node, Task
from dagsim.model.gpu import gpu_type
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.policies import POLICIES

KUEUE = """apiVersion: v1
kind: List
items:
- apiVersion: kueue.x-k8s.io/v1beta1
  kind: ResourceFlavor
  metadata: {name: big}
  spec:
    nodeLabels: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}
- apiVersion: kueue.x-k8s.io/v1beta1
  kind: ResourceFlavor
  metadata: {name: t4-spot}
  spec: {tolerations: [{key: spot, operator: Exists}]}
- apiVersion: kueue.x-k8s.io/v1beta1
  kind: ClusterQueue
  metadata: {name: vision}
  spec:
    cohort: site
    queueingStrategy: StrictFIFO
    preemption:
      reclaimWithinCohort: Any
      withinClusterQueue: LowerPriority
      borrowWithinCohort: {policy: LowerPriority}
    resourceGroups:
    - coveredResources: [cpu, memory, nvidia.com/gpu]
      flavors:
      - name: big
        resources:
        - {name: cpu, nominalQuota: 16}
        - {name: memory, nominalQuota: 64Gi}
        - {name: nvidia.com/gpu, nominalQuota: 8, borrowingLimit: 4, lendingLimit: "2"}
      - name: t4-spot
        resources:
        - {name: cpu, nominalQuota: 4500m}
        - {name: memory, nominalQuota: 32Gi}
        - {name: nvidia.com/gpu, nominalQuota: 2}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: speech}
spec:
  cohortName: team
  resourceGroups:
  - coveredResources: [nvidia.com/gpu, rdma/hca]
    flavors:
    - {name: big, resources: [{name: nvidia.com/gpu, nominalQuota: 4}, {name: rdma/hca, nominalQuota: 1}]}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: Cohort
metadata: {name: team}
spec: {parentName: site}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: main, namespace: cats}
spec: {clusterQueue: vision}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: main, namespace: dogs}
spec: {clusterQueue: speech}
---
apiVersion: kueue.x-k8s.io/v1alpha1
kind: Topology
metadata: {name: racks}
"""
NODE = {
    "kind": "Node",
    "metadata": {"name": "k1", "labels": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}},
    "status": {"allocatable": {"cpu": "32", "memory": "256Gi", "nvidia.com/gpu": "8"}},
}
NODES = json.dumps({"kind": "NodeList", "items": [NODE | {"status": NODE["status"]}]}, indent=1)
QMGR = """#
# Create queues and set their attributes.
#
create queue long
set queue long queue_type = Execution
set queue long Priority = 10
set queue long resources_max.walltime = 72:00:00
set queue long max_run = [u:PBS_GENERIC=5]
set queue long max_run += [o:PBS_ALL=50]
set queue long max_run_res.ngpus = [g:PBS_GENERIC=8]
set queue long enabled = True
set queue long started = True
create queue express
set queue express queue_type = Execution
set queue express Priority = 150
set queue express resources_default.walltime = 01:00:00
set queue express acl_group_enable = True
set queue express max_user_run = 2
create queue in
set queue in queue_type = Route
set queue in route_destinations = long
#
# Set server attributes.
#
set server scheduling = True
set server default_queue = express
set server job_sort_formula = "ncpus * walltime"
"""
PBSNODES = """p1
     Mom = p1.local
     ntype = PBS
     state = free
     resources_available.mem = 64gb
     resources_available.ncpus = 16

p2
     Mom = p2.local
     state = free
     queue = express
     resources_available.mem = 64gb
     resources_available.ncpus = 16

"""


def _folder(tmp_path: Path, **files: str) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def _imported(folder: Path, tmp_path: Path) -> tuple[str, Path]:
    out = tmp_path / "site.yaml"
    result = fine("site", "import", folder, "-o", out, "--overwrite")
    return result.output, out


def test_kueue_s_objects_are_cohorts_and_queues_with_quotas(tmp_path: Path) -> None:
    site = read_site(site_files([_folder(tmp_path, kueue=KUEUE, nodes=NODES)]))
    assert site is not None
    objects = site.queues().kueue
    assert objects is not None
    assert [(one.name, one.parent) for one in objects.cohorts] == [("team", "site")]
    vision, speech = objects.cluster_queues
    assert (vision.cohort, speech.cohort) == ("site", "team")
    (group,) = vision.resource_groups
    assert [flavor.name for flavor in group.flavors] == ["big", "t4-spot"]
    assert group.flavors[1].resources["cpu"] == ResourceQuota(4.5)
    assert group.flavors[0].resources["memory"] == ResourceQuota(64 * 2**30)
    assert group.flavors[0].resources["nvidia.com/gpu"] == ResourceQuota(8, 4, 2)
    assert vision.queueing_strategy == "StrictFIFO"
    assert vision.preemption == QueuePreemption("LowerPriority", "Any", BorrowWithinCohort("LowerPriority"))
    assert [(one.name, one.cluster_queue) for one in objects.local_queues] == [
        ("cats/main", "vision"),
        ("dogs/main", "speech"),
    ]
    assert [flavor.gpu_types for flavor in objects.resource_flavors] == [("A100-80",), ("T4",)]
    assert not site.unmodelled
    assert site.network(["k1"]) is None
    assert "Topology racks: it has no level above the host" in site.unmodelled


def test_json_and_yaml_of_kueue_are_one_site(tmp_path: Path) -> None:
    objects = [item for document in yaml.safe_load_all(KUEUE) for item in document.get("items", [document])]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}, indent=1)
    sites = [
        read_site(site_files([_folder(tmp_path / name, kueue=kueue, nodes=NODES)]))
        for name, kueue in (("y", KUEUE), ("j", text))
        if not (tmp_path / name).mkdir()  # type: ignore[func-returns-value]
    ]
    assert sites[0] is not None
    assert sites[1] is not None
    assert sites[0].queues() == sites[1].queues()


def test_of_several_labels_of_a_flavor_the_first_says_its_type(tmp_path: Path) -> None:
    one = "nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}"
    both = KUEUE.replace(one, f"{one[:-1]}, cloud.google.com/gke-accelerator: nvidia-tesla-t4}}")
    assert both != KUEUE
    plain, labelled = tmp_path / "plain", tmp_path / "labelled"
    plain.mkdir()
    labelled.mkdir()
    sites = [
        read_site(site_files([_folder(plain, kueue=KUEUE)])),
        read_site(site_files([_folder(labelled, kueue=both)])),
    ]
    types = []
    for site in sites:
        assert site is not None
        objects = site.queues().kueue
        assert objects is not None
        types.append([flavor.gpu_types for flavor in objects.resource_flavors])
    assert types[0] == types[1]


def test_an_imported_kueue_is_a_configuration_with_its_policy(tmp_path: Path) -> None:
    output, out = _imported(_folder(tmp_path, kueue=KUEUE, nodes=NODES), tmp_path)
    assert "read kueue: 2 ResourceFlavor, 2 ClusterQueue, 1 Cohort, 2 LocalQueue, 1 Topology" in output
    config = load_config(out)
    assert (config.policy, config.build_cluster().gpus_by_type()) == ("kueue", {"A100-80": 8})


def test_jobs_reach_their_cluster_queue_by_their_local_queue(tmp_path: Path) -> None:
    site = read_site(site_files([_folder(tmp_path, kueue=KUEUE, nodes=NODES)]))
    assert site is not None
    cluster = Cluster((Node("k1", gpu_type("A100-80"), 8, 32, 256),))
    jobs = [
        Job.single(name, Task("t", 10, gpus=gpus), at_s, account=namespace, partition="main")
        for name, at_s, namespace, gpus in (("a", 0, "cats", 8), ("b", 1, "dogs", 6), ("c", 2, "dogs", 4))
    ]
    queues = site.queues()
    schedule = ClusterKernel(cluster, jobs, Models(queues=queues)).run(POLICIES.create("kueue"))
    # c gets speech's own quota at 2 s, and waits for the node; b needs two GPUs more, which vision lends
    assert start_times(schedule) == {"a": [0], "c": [10], "b": [20]}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "nominalQuota: 16}",
            "nominalQuota: many}",
            r"ClusterQueue vision: nominalQuota of cpu must be a quantity, got 'many'",
        ),
        (
            "Cohort: Any",
            "Cohort: Sometimes",
            r"ClusterQueue vision: reclaimWithinCohort must be one of Never, LowerPriority, Any, got 'Sometimes'",
        ),
        ("parentName: site", "parentName: team", r"Cohort 'team': the cohort is its own ancestor \(team > team\)"),
        ("metadata: {name: vision}", "metadata: {name: vision", r"kueue:16: invalid YAML"),
        ("cohort: site", "cohort: *site", r"kueue(:\d+)?: not YAML|aliases"),
    ],
)
def test_faults_of_kueue_s_objects_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in KUEUE
    folder = _folder(tmp_path, kueue=KUEUE.replace(old, new), nodes=NODES)
    with pytest.raises(TraceError, match=message):
        read_site(site_files([folder])).queues()  # type: ignore[union-attr]


@pytest.mark.family("pbs")
def test_queues_of_pbs_are_partitions_with_priorities_and_limits(tmp_path: Path) -> None:
    output, out = _imported(_folder(tmp_path, qmgr=QMGR, nodes=PBSNODES), tmp_path)
    queues = load_config(out).queues
    assert queues is not None
    express, long = queues.partitions
    assert (express.name, express.nodes, express.tier, express.default_time_s) == ("express", ("p2",), 141, 3600)
    assert (long.name, long.nodes, long.tier, long.max_time_s) == ("long", ("p1",), 1, 259200)
    limits = {qos.name: qos for qos in queues.qos}
    assert limits["queue-long"].limits == Caps(jobs=50)
    assert limits["queue-long"].user_limits == Caps(jobs=5)
    assert limits["queue-long"].account_limits == Caps(gpus=8)
    assert limits["queue-express"].user_limits == Caps(jobs=2)
    assert queues.qos[0].name == "normal"  # jobs without a QOS have the first
    assert "not modelled: server: job_sort_formula = ncpus * walltime" in output
    assert "not modelled: routing queue in" in output
    assert "not modelled: queue express: acl_group_enable = True" in output


@pytest.mark.family("pbs")
def test_faults_of_qmgr_are_named(tmp_path: Path) -> None:
    folder = _folder(tmp_path, qmgr=QMGR.replace("72:00:00", "long"), nodes=PBSNODES)
    with pytest.raises(TraceError, match=r"queue long: resources_max\.walltime = 'long' cannot be read"):
        read_site(site_files([folder])).queues()  # type: ignore[union-attr]
    (folder / "qmgr").write_text("set server scheduling = True\n")
    with pytest.raises(TraceError, match="qmgr: there is no execution queue"):
        read_site(site_files([folder])).queues()  # type: ignore[union-attr]
    (folder / "nodes").unlink()
    with pytest.raises(TraceError, match="no file lists nodes; add the output of `pbsnodes -a`"):
        read_site(site_files([folder])).found_nodes()  # type: ignore[union-attr]


@pytest.mark.family("pbs")
def test_limits_that_are_no_list_are_an_error(tmp_path: Path) -> None:
    text = QMGR.replace(
        "set queue long max_run = [u:PBS_GENERIC=5]\nset queue long max_run +=", "set queue long max_run ="
    )
    folder = _folder(tmp_path, qmgr=text.replace("[o:PBS_ALL=50]", "50"), nodes=PBSNODES)
    with pytest.raises(TraceError, match=r"queue long: max_run must be a list of limits"):
        read_site(site_files([folder])).queues()  # type: ignore[union-attr]


def test_keys_of_kueue_that_have_no_effect_are_listed(tmp_path: Path) -> None:
    text = KUEUE.replace("cohortName: team", "cohortName: team\n  fairSharing: {weight: 2}\n  newKnob: {a: 1}")
    text = text.replace("spec: {parentName: site}", "spec: {parentName: site, rest: {weight: 3}}")
    text = text.replace("{clusterQueue: vision}", "{clusterQueue: vision, other: Hold}").replace(
        "- {name: big, resources: [{name: nvidia.com/gpu, nominalQuota: 4}",
        "- {name: H100, resources: [{name: nvidia.com/gpu, nominalQuota: 4}",
    )
    site = read_site(site_files([_folder(tmp_path, kueue=text, nodes=NODES)]))
    assert site is not None
    objects = site.queues().kueue
    assert objects is not None
    assert (objects.cluster_queues[1].weight, objects.resource_flavors[-1].gpu_types) == (2, ("H100",))
    assert set(site.unmodelled) == {
        "ClusterQueue speech: newKnob",
        "Cohort team: rest",
        "LocalQueue cats/main: other",
        "ResourceFlavor H100: it is in no file; its name is used as the GPU type",
    }


@pytest.mark.family("pbs")
def test_files_of_two_schedulers_are_refused(tmp_path: Path) -> None:
    folder = _folder(tmp_path, qmgr=QMGR, kueue=KUEUE)
    with pytest.raises(TraceError, match=r"from several schedulers \(Kueue: kueue; PBS: qmgr\)"):
        read_site(site_files([folder]))


@pytest.mark.family("slurm")
def test_settings_that_are_not_modelled_come_with_their_jobs(tmp_path: Path) -> None:
    conf = "NodeName=n1 CPUs=8 RealMemory=1000\nPartitionName=main Nodes=n1 ReqResv=YES Default=YES\n"
    head = "JobIDRaw|JobID|User|Account|Partition|State|Submit|Start|End|ElapsedRaw|NNodes|NCPUS|AllocTRES\n"
    rows = "".join(
        f"{n}|{n}|u|lab|{part}|COMPLETED|{n}|{n}|{n + 9}|9|1|1|cpu=1,node=1\n"
        for n, part in enumerate(("main", "main", "old"), 1)
    )
    output, _ = _imported(_folder(tmp_path, conf=conf, log=head + rows), tmp_path)
    assert "not modelled: partition main: reqresv=YES (2 of 3 jobs)" in output
    assert output.startswith("warning: 1 of 3 jobs (33%")
    assert "ran in partitions that the site lacks: old (1 job: 3)" in output


@pytest.mark.family("slurm")
@pytest.mark.parametrize("date", ["1772431951", "2026-03-02T06:12:31"])
def test_a_configuration_that_is_older_than_jobs_of_the_log_is_named(tmp_path: Path, date: str) -> None:
    conf = "NodeName=n1 CPUs=8 RealMemory=1000\nPartitionName=main Nodes=n1 Default=YES\n"
    log = "JobIDRaw|JobID|User|Account|Partition|State|Submit|Start|End|ElapsedRaw|NNodes|NCPUS|AllocTRES\n" + "".join(
        f"{day}|{day}|u|lab|main|COMPLETED|{noon}:00|{noon}:00|{noon}:09|9|1|1|cpu=1,node=1\n"
        for day, noon in enumerate(("2026-03-01T12:00", "2026-03-02T12:00", "2026-03-03T12:00"), 1)
    )
    config = f"Configuration data as of {date}\nClusterName = small\n"
    output, _ = _imported(_folder(tmp_path, conf=conf, config=config, log=log), tmp_path)
    assert (
        "changes since 2026-03-02 06:12 UTC, when the configuration was written (2 of 3 jobs came later)"
        in " ".join(output.split())
    )


TOPOLOGY = """
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: tas}
spec: {topologyName: fabric}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: Topology
metadata: {name: fabric}
spec:
  levels:
  - nodeLabel: cloud.provider.com/topology-block
  - nodeLabel: cloud.provider.com/topology-rack
  - nodeLabel: kubernetes.io/hostname
"""


def _labelled(name: str, **labels: str) -> dict[str, object]:
    topology = {f"cloud.provider.com/topology-{level}": value for level, value in labels.items()}
    return NODE | {"metadata": {"name": name, "labels": {"nvidia.com/gpu.product": "Tesla-T4"} | topology}}


@pytest.mark.family("fabric")
def test_kueue_s_topology_is_a_tree_with_its_levels(tmp_path: Path) -> None:
    nodes = [
        _labelled("a", block="b1", rack="r1"),
        _labelled("b", block="b1", rack="r1"),
        _labelled("c", block="b1", rack="r2"),
        _labelled("d", block="b2", rack="r1"),
        _labelled("e", block="b2"),
    ]
    folder = _folder(tmp_path, kueue=KUEUE + TOPOLOGY, nodes=json.dumps({"kind": "NodeList", "items": nodes}, indent=1))
    output, out = _imported(folder, tmp_path)
    assert (
        "not modelled: Topology fabric: 1 node lacks a label for one of its levels; each is alone at that level"
        in output
    )
    assert "not modelled: Topology racks: another one is the network" in output
    rack, block = load_config(out).network.levels(list("abcde"))
    assert (rack.name, block.name) == ("rack", "block")
    assert [rack.domains.index(domain) for domain in rack.domains] == [0, 0, 2, 3, 4]
    assert [block.domains.index(domain) for domain in block.domains] == [0, 0, 0, 3, 3]


def test_a_policy_whose_family_is_missing_is_not_written() -> None:
    missing, there = (cluster_yaml(ImportedCluster(), "c", "here", policy=name) for name in ("nobody", "easy"))
    assert "policy" not in yaml.safe_load(missing)
    assert "# not written: policy: nobody, whose family this installation lacks" in missing
    assert yaml.safe_load(there)["policy"] == "easy"
