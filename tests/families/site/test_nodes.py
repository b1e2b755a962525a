"""Nodes of real clusters: what schedulers print, and the cluster made of it."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from support.command_line import fine, invoke
from traces.formats.damage import damaged

from dagsim.config.schema import load_config
from dagsim.errors import ModelError, TraceError
from dagsim.families.site.cluster_file import import_site
from dagsim.families.site.node_lists import FoundNode, grouped, read_nodes
from dagsim.model import gpu_type
from dagsim.model.mig import mig_slice
from dagsim.traces.sites import folded, hosts
from dagsim.traces.source import Source

SAMPLES = Path(__file__).parents[3] / "workloads" / "samples" / "nodes"
FILES = [
    *(pytest.param(name, marks=pytest.mark.family("slurm")) for name in ("scontrol.txt", "scontrol.json", "sinfo.txt")),
    pytest.param("kubectl.json", marks=pytest.mark.family("kubernetes")),
    pytest.param("pbsnodes.txt", marks=pytest.mark.family("pbs")),
]


def nodes(path: Path) -> dict[str, FoundNode]:
    return {node.name: node for node in read_nodes(Source(path))}


@pytest.mark.family("slurm")
def test_scontrol_gives_gres_effective_cores_and_memory_less_what_is_kept() -> None:
    by_name = nodes(SAMPLES / "scontrol.txt")
    assert list(by_name) == ["p01", "p02", "p03", "d01", "m01", "x01", "u01", "c01"]
    assert (by_name["p01"].gpus, by_name["p01"].cpus, by_name["p01"].memory_gb) == ((("a100", 4),), 46, 500)
    assert by_name["p01"].partitions == ("gpu", "debug")
    assert by_name["p02"].gpus == (("a100", 4),)  # (S:0,1) holds a comma
    assert by_name["u01"].gpus == (("", 2),)
    assert by_name["c01"].gpus == ()


@pytest.mark.family("slurm")
def test_a_drained_node_is_not_idle_and_a_reason_is_no_state() -> None:
    by_name = nodes(SAMPLES / "scontrol.txt")
    assert {name for name, node in by_name.items() if not node.usable} == {"p03", "d01"}
    assert by_name["p03"].state == "IDLE+DRAIN"  # its reason says State=IDLE after two blanks
    assert by_name["p01"].state == "MIXED+PLANNED"  # the name of its system says State=FAKE


@pytest.mark.family("slurm")
def test_lines_give_what_blocks_give(tmp_path: Path) -> None:
    blocks = (SAMPLES / "scontrol.txt").read_text().split("NodeName=")[1:]
    (tmp_path / "lines.txt").write_text("".join("NodeName=" + " ".join(block.split("\n")) + "\n" for block in blocks))
    assert nodes(tmp_path / "lines.txt") == nodes(SAMPLES / "scontrol.txt")


@pytest.mark.family("slurm")
def test_json_gives_what_blocks_give() -> None:
    text, document = nodes(SAMPLES / "scontrol.txt"), nodes(SAMPLES / "scontrol.json")
    assert [(node.gpus, node.cpus, node.memory_gb, node.usable) for node in document.values()][:2] == [
        (text[name].gpus, text[name].cpus, text[name].memory_gb, text[name].usable) for name in ("p01", "p02")
    ]
    assert not document["p03"].usable


@pytest.mark.family("slurm")
def test_a_node_of_two_partitions_is_one_node_of_sinfo(tmp_path: Path) -> None:
    by_name = nodes(SAMPLES / "sinfo.txt")
    assert (list(by_name), by_name["p01"].partitions) == (["p01", "p03", "d01", "c01"], ("gpu", "debug"))
    assert {name for name, node in by_name.items() if node.usable} == {"p01", "c01"}
    header = "NODELIST|PARTITION|STATE|CPUS|MEMORY|GRES|AVAIL_FEATURES\n"
    (tmp_path / "sinfo.txt").write_text(header + (SAMPLES / "sinfo.txt").read_text())
    assert nodes(tmp_path / "sinfo.txt") == by_name


@pytest.mark.family("kubernetes")
def test_kubernetes_gives_what_can_be_allocated() -> None:
    by_name = nodes(SAMPLES / "kubectl.json")
    first = by_name["k-1.local"]
    assert (first.gpus, first.cpus, first.memory_gb, first.usable) == (
        (("NVIDIA-H100-80GB-HBM3", 8),),
        95.5,
        1008,
        True,
    )
    assert by_name["k-4.local"].gpus == (("NVIDIA-A100-SXM4-80GB_1g.10gb", 7),)
    assert {node.state for node in by_name.values()} == {
        "Ready", "SchedulingDisabled", "tainted maintenance", "NotReady",
    }  # fmt: skip
    assert [node.state for node in by_name.values() if not node.usable] == ["NotReady"]


@pytest.mark.family("pbs")
def test_pbs_and_torque_give_what_is_available(tmp_path: Path) -> None:
    by_name = nodes(SAMPLES / "pbsnodes.txt")
    assert [(node.gpus, node.cpus, node.memory_gb, node.usable) for node in by_name.values()] == [
        ((("h100", 4),), 64, 512, True),
        ((("h100", 4),), 64, 512, True),
        ((), 64, 512, False),
        ((("", 2),), 16, 64, True),
    ]
    (tmp_path / "nodes.json").write_text(
        '{"nodes": {"q1": {"state": "free", "resources_available": {"ncpus": 64, "ngpus": 4, "mem": "512gb"}}}}'
    )
    assert nodes(tmp_path / "nodes.json")["q1"].gpus == (("", 4),)


@pytest.mark.family("slurm")
def test_equal_nodes_are_a_group_and_mig_profiles_slots() -> None:
    cluster = grouped(read_nodes(Source(SAMPLES / "scontrol.txt")), {"gpu": "T4"})
    assert [(group.hosts, group.gpu, group.gpus) for group in cluster.groups] == [
        ("p[01-02]", "A100-80", 4),  # a feature says the size
        ("m01:a100-40-1g.5gb", "A100-40-1g.5gb", 4),
        ("m01:a100-40-3g.20gb", "A100-40-3g.20gb", 2),
        ("x01:v100-16", "V100-16", 2),
        ("x01:t4", "T4", 2),
        ("u01", "T4", 2),
        ("c01", None, 0),
    ]
    assert [group.cpus for group in cluster.groups[3:5]] == [16, 16]
    assert cluster.left_out == ["p03 (IDLE+DRAIN)", "d01 (DOWN+NOT_RESPONDING)"]
    assert cluster.unknown == []


def test_a_slot_has_its_share_of_the_compute_slices() -> None:
    slot = mig_slice(gpu_type("A100-40"), "3g.20gb")
    assert (slot.name, slot.memory_gb) == ("A100-40-3g.20gb", 20)
    assert slot.fp32_tflops == pytest.approx(19.49 * 3 / 7)
    assert mig_slice(gpu_type("A30"), "1g.6gb").fp32_tflops == pytest.approx(10.3 / 4)
    with pytest.raises(ModelError, match=r"'8g\.80gb' is not a MIG profile of A100-80"):
        mig_slice(gpu_type("A100-80"), "8g.80gb")


@pytest.mark.parametrize("file", FILES)
def test_what_is_written_is_a_configuration(tmp_path: Path, file: str) -> None:
    out = tmp_path / "cluster.yaml"
    fine("site", "import", SAMPLES / file, "-o", out, "--gpu", "gpu=T4")
    usable = {node.name for node in read_nodes(Source(SAMPLES / file)) if node.usable}
    cluster = load_config(out).build_cluster()
    assert {node.name.partition(":")[0] for node in cluster.nodes} == usable


@pytest.mark.family("slurm")
def test_a_type_that_is_not_known_is_said_and_to_be_filled_in(tmp_path: Path) -> None:
    (tmp_path / "n.txt").write_text("NodeName=a1 CPUTot=4 RealMemory=1024 Gres=gpu:warp9:2 State=IDLE\n")
    result = fine("site", "import", tmp_path / "n.txt", "-o", tmp_path / "c.yaml")
    assert "GPU type 'warp9' is unknown; say what it is with --gpu warp9=TYPE" in result.output
    assert "# NOT KNOWN: warp9: fill in the values" in (tmp_path / "c.yaml").read_text()
    assert load_config(tmp_path / "c.yaml").build_cluster().gpus_by_type() == {"warp9": 2}


@pytest.mark.family("slurm")
def test_an_edited_configuration_is_replaced_only_on_request(tmp_path: Path) -> None:
    out = tmp_path / "c.yaml"
    words = ["site", "import", str(SAMPLES / "sinfo.txt"), "-o", str(out)]
    assert [invoke(*words).exit_code for _ in range(2)] == [0, 0]
    imported = out.read_text()
    out.write_text(imported + "# mine\n")
    refused = invoke(*words)
    assert refused.exit_code == 2
    assert "c.yaml: exists and differs from this import" in refused.output
    assert out.read_text() == imported + "# mine\n"
    fine(*words, "--overwrite")
    assert out.read_text() == imported


@pytest.mark.family("slurm")
def test_nodes_that_are_down_are_kept_if_all_are(tmp_path: Path) -> None:
    out = tmp_path / "c.yaml"
    invoke("site", "import", SAMPLES / "sinfo.txt", "-o", out, "--all")
    assert len(load_config(out).build_cluster().nodes) == 4


@pytest.mark.family("slurm")
def test_nodes_that_are_down_are_left_out_and_named(tmp_path: Path) -> None:
    whole, up = (tmp_path / name for name in ("whole.yaml", "up.yaml"))
    import_site([SAMPLES / "sinfo.txt"], whole, keep_all=True)
    lines = import_site([SAMPLES / "sinfo.txt"], up)
    kept, nodes = (len(load_config(file).build_cluster().nodes) for file in (up, whole))
    assert kept < nodes == 4
    assert any("down" in line.lower() for line in lines)


@pytest.mark.family("slurm")
@pytest.mark.parametrize("name", ["a\\nb", "x: !!python/object", "../../etc", "$(id)", "a b", ""])
def test_names_that_could_do_harm_are_refused(tmp_path: Path, name: str) -> None:
    node = f'{{"name": "{name}", "gres": "", "state": ["IDLE"], "cpus": 1, "real_memory": 1024}}'
    (tmp_path / "n.json").write_text(f'{{"nodes": [{node}]}}')
    with pytest.raises(TraceError, match=r"not a valid node name|without a name"):
        grouped(read_nodes(Source(tmp_path / "n.json")))


@pytest.mark.family("slurm")
def test_what_a_state_says_cannot_leave_its_comment(tmp_path: Path) -> None:
    node = '{"name": "%s", "gres": "", "state": ["%s"], "cpus": 1, "real_memory": 1024}'
    evil = "DOWN+\\ncluster: {name: evil}\\n#"
    (tmp_path / "n.json").write_text(f'{{"nodes": [{node % ("a1", "IDLE")}, {node % ("a2", evil)}]}}')
    fine("site", "import", tmp_path / "n.json", "-o", tmp_path / "c.yaml")
    assert load_config(tmp_path / "c.yaml").build_cluster().name == "c"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("h[001-003]", ("h001", "h002", "h003")),
        ("h[1,3-4],g5", ("h1", "h3", "h4", "g5")),
        ("r[1-2]n[01-02]-ib", ("r1n01-ib", "r1n02-ib", "r2n01-ib", "r2n02-ib")),
        ("login", ("login",)),
        ("", ()),
    ],
)
def test_lists_of_nodes_are_read(text: str, names: tuple[str, ...]) -> None:
    assert hosts(text) == names


def test_lists_of_nodes_are_written_so_that_they_are_read_back() -> None:
    for names in (("h001", "h002", "h010"), ("a1", "a2", "b7"), ("n9", "n10", "n11"), ("x", "y1z")):
        assert sorted(hosts(folded(names))) == sorted(names)
    assert folded(["h001", "h002", "h010"]) == "h[001-002,010]"


@pytest.mark.parametrize("text", ["h[", "h]", "h[[1]]", "h[a-b]", "h[1-]", "h[]", "h[1,]", "h[03-01]"])
def test_what_is_no_list_of_nodes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"bracket|range"):
        hosts(text)


def test_a_list_of_too_many_nodes_is_cut_off() -> None:
    assert len(hosts("h[0-999999999999]", 10)) == 10


@pytest.mark.family("slurm")
def test_gres_conf_is_not_taken_for_a_list_of_nodes(tmp_path: Path) -> None:
    (tmp_path / "gres.conf").write_text("AutoDetect=off\nNodeName=n[1-3] Name=gpu Type=a100 File=/dev/nvidia[0-3]\n")
    with pytest.raises(TraceError, match=r"not a list of nodes; supported formats: .*scontrol show nodes;"):
        read_nodes(Source(tmp_path / "gres.conf"))


@pytest.mark.family("slurm")
def test_what_is_no_list_of_a_scheduler_is_told_the_commands(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello\n")
    with pytest.raises(TraceError, match=r"not a list of nodes; supported formats: .*scontrol show nodes;"):
        read_nodes(Source(tmp_path / "x"))


@pytest.mark.family("slurm")
@pytest.mark.data
def test_real_slurm_says_the_same_in_every_form(data: Path) -> None:
    for run in ("states-24.11", "arrays-24.11", "multifactor-fairtree-24.11", "preempt-24.11"):
        folder = data / "golden" / "slurm" / run
        blocks = nodes(folder / "scontrol-show-nodes.txt")
        assert nodes(folder / "scontrol-o-show-nodes.txt") == blocks
        for other in ("scontrol-show-nodes.json", "sinfo-N.txt"):
            there = nodes(folder / other)
            assert there.keys() == blocks.keys()
            for name, node in there.items():
                assert (node.gpus, node.usable) == (blocks[name].gpus, blocks[name].usable), (other, name)


@pytest.mark.family("slurm")
@pytest.mark.data
def test_the_hand_written_samples_give_what_was_expected_of_them(data: Path) -> None:
    by_name = nodes(data / "traces" / "intake-samples" / "scontrol-show-nodes.txt")
    assert (by_name["g001"].gpus, by_name["g001"].cpus) == ((("a100", 8),), 124)
    assert by_name["g001"].memory_gb == (1_031_000 - 8_192) / 1024
    assert (by_name["h001"].gpus, by_name["h001"].usable) == ((("nvidia_h100_80gb_hbm3", 8),), False)
    assert by_name["m001"].gpus == (("a100_1g.5gb", 7), ("a100_3g.20gb", 2))
    assert (by_name["c010"].usable, by_name["c010"].gpus) == (True, ())
    assert len(nodes(data / "traces" / "intake-samples" / "sinfo-N.txt")) == 3


@pytest.mark.parametrize("file", FILES)
def test_damage_is_read_over_or_named(tmp_path: Path, file: str) -> None:
    content = (SAMPLES / file).read_bytes()
    for seed in range(300):
        rng = Random(f"{file} {seed}")
        path = tmp_path / file
        path.write_bytes(damaged(content, rng))
        try:
            grouped(read_nodes(Source(path)), {"gpu": "T4"})
        except TraceError:
            pass
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.family("kubernetes")
def test_kubernetes_nodes_are_read_as_yaml_with_their_taints_and_labels(tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text(
        """
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: w1, labels: {kubernetes.io/hostname: w1, zone: z1}}
  spec:
    unschedulable: true
    taints: [{key: team, value: a, effect: NoSchedule, timeAdded: "2026-05-01T10:00:00Z"}]
  status:
    allocatable: {cpu: 7500m, memory: .5Gi, pods: "20", example.com/fpga: "2"}
    conditions: [{type: Ready, status: "True"}]
- kind: Service
"""
    )
    (one,) = read_nodes(Source(tmp_path / "nodes.yaml"))
    assert (one.name, one.cpus, one.memory_gb, one.usable) == ("w1", 7.5, 0.5, True)
    assert json.loads(one.manifest) == {
        "metadata": {"labels": {"zone": "z1"}},
        "spec": {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}], "unschedulable": True},
        "status": {"allocatable": {"pods": "20", "example.com/fpga": "2"}},
    }
    (tmp_path / "nodes.yaml").write_text("apiVersion: v1\nkind: Node\nallocatable: [")
    with pytest.raises(TraceError, match=r"nodes.yaml:4: invalid YAML"):
        read_nodes(Source(tmp_path / "nodes.yaml"))
