from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from dagsim.config.dumping import config_hash, dump_config
from dagsim.config.schema import Config, json_schema, load_config
from dagsim.errors import ConfigError
from dagsim.model import Cluster
from dagsim.systems.cluster.models.failures import Maintenance, NodeFailures
from dagsim.systems.cluster.models.runtime import Flops, Recorded, Throughput
from dagsim.systems.cluster.network import UniformNetwork
from dagsim.traces.trace_file import TraceFile
from dagsim.workload.arrivals import Bursty
from dagsim.workload.presets import PRESETS
from dagsim.workload.sizes import Correlated
from dagsim.workload.synthetic import Synthetic


def write(folder: Path, text: str) -> Path:
    path = folder / "x.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def faults(folder: Path, text: str, *settings: str) -> list[str]:
    path = write(folder, text)
    with pytest.raises(ConfigError) as refused:
        load_config(path, settings)
    return [line.removeprefix(f"{folder}/") for line in str(refused.value).splitlines()]


def test_an_empty_file_means_the_defaults(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, "# nothing\n")) == load_config() == Config()


def test_the_default_cluster_has_eight_a100_eight_v100_and_sixteen_t4() -> None:
    assert load_config().build_cluster() == Cluster.of({"A100-40": 8, "V100-16": 8, "T4": 16})


def test_groups_become_numbered_nodes(tmp_path: Path) -> None:
    text = "cluster:\n  groups:\n  - {name: big, count: 2, gpu: A100, gpus: 4, cpus: 32}\n  - {name: cpu, cpus: 64}\n"
    cluster = load_config(write(tmp_path, text)).build_cluster()
    assert [(node.name, node.gpus, node.cpus) for node in cluster.nodes] == [
        ("big-0", 4, 32),
        ("big-1", 4, 32),
        ("cpu-0", 0, 64),
    ]


def test_own_gpu_types_can_be_used(tmp_path: Path) -> None:
    text = (
        "gpu_types: [{name: X1, fp32_tflops: 5, memory_gb: 8, bandwidth_gb_s: 100, tdp_watts: 50, idle_watts: 5}]\n"
        "cluster: {groups: [{name: x, gpu: X1, gpus: 2}]}\n"
    )
    assert load_config(write(tmp_path, text)).build_cluster().gpus_by_type() == {"X1": 2}


def test_kind_chooses_the_model(tmp_path: Path) -> None:
    text = (
        "runtime: {kind: throughput, missing: flops}\n"
        "network: {bandwidth_gb_s: 1.25}\n"
        "failures: [{mean_up_s: 1e5, mean_down_s: 600}, {kind: maintenance, nodes: [0], start_s: 0, end_s: 9}]\n"
    )
    config = load_config(write(tmp_path, text))
    assert config.runtime == Throughput(missing="flops")
    assert config.network == UniformNetwork(1.25)
    assert config.failures == (NodeFailures(1e5, 600), Maintenance((0,), 0, 9))


def test_without_a_kind_the_default_model_is_meant(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, "runtime: {reference: T4}\n")).runtime == Throughput("T4")


def test_the_runtime_follows_the_workload(tmp_path: Path) -> None:
    text = "workload: {kind: trace, path: x.csv, options: {reference_gpu: P100}}\n"
    assert load_config(write(tmp_path, text)).runtime == Recorded("P100")
    assert load_config(write(tmp_path, text + "runtime: {kind: flops}\n")).runtime == Flops()
    assert load_config().runtime == Throughput()


def test_a_workload_can_be_named(tmp_path: Path) -> None:
    trace = write(tmp_path, "")
    assert load_config(None, ["workload=steady"]).workload == PRESETS["steady"].workload
    assert load_config(None, [f"workload={trace}"]).workload == TraceFile(str(trace))
    # sizes and all else as the preset has them
    assert load_config(None, ["workload=steady", "workload.load=0.5"]).workload == replace(
        PRESETS["steady"].workload, load=0.5
    )
    named = write(tmp_path, "workload: {preset: correlated, count: 7}\n")
    assert load_config(named).workload == replace(PRESETS["correlated"].workload, count=7)
    assert load_config(named, ["workload.sizes.most_gpus=4"]).workload == replace(
        PRESETS["correlated"].workload, count=7, sizes=Correlated(most_gpus=4)
    )


def test_a_setting_changes_one_key_of_what_is_shown() -> None:
    shown, changed = load_config().workload, load_config(None, ["workload.arrivals.bursts=8"]).workload
    assert isinstance(shown, Synthetic)
    assert isinstance(shown.arrivals, Bursty)
    assert changed == replace(shown, arrivals=replace(shown.arrivals, bursts=8))


def test_another_kind_drops_the_keys_of_the_old_one() -> None:
    assert load_config(None, ["runtime.kind=recorded", "runtime.scale=none"]).runtime == Recorded(scale="none")


def test_settings_come_after_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "seed: 1\npolicy: sjf\n")
    config = load_config(path, ["seed=7", "network.latency_s=3e-4", "cluster.groups.0.count=4"])
    assert (config.seed, config.policy) == (7, "sjf")
    assert config.network == UniformNetwork(latency_s=3e-4)
    assert config.build_cluster().gpus_by_type() == {"A100-40": 32, "V100-16": 8, "T4": 16}


def test_all_faults_are_named_at_once(tmp_path: Path) -> None:
    text = """\
cluster:
  groups:
    - {name: big, count: two, gpu: A1000, gpus: 8}
    - name: small
      gpus: 4
    - gpu: T4
seed: -1
runtime: {kind: recorded, scale: fp23}
network: {bandwith_gb_s: 3}
failures:
  - {mean_up_s: 100}
  - {kind: maintenence, nodes: [0]}
estimates: {sigma: -1}
polcy: off
preemption: no
"""
    lines = faults(tmp_path, text, "seeds=many", "setup.kind=x")
    assert sorted(line for line in lines if "polcy" not in line) == sorted(
        [
            "x.yaml:3:26: cluster.groups.0.count: must be a whole number, got 'two'",
            "x.yaml:3:36: cluster.groups.0.gpu: unknown GPU type 'A1000'; did you mean 'A100-80'? (dagsim list gpus); "
            "define others in gpu_types",
            "x.yaml:5:13: cluster.groups.1.gpus: gpus is 4, but no type is named; add gpu (dagsim list gpus)",
            "x.yaml:6:7: cluster.groups.2.name: is missing (prefix of the names of the group's nodes); add name: TEXT",
            "x.yaml:7:7: seed: must be 0 or more, got -1",
            "x.yaml:8:34: runtime.scale: must be 'fp32', 'tf32', 'fp16' or 'none', got 'fp23'; did you mean 'fp32'?",
            "x.yaml:9:11: network.bandwith_gb_s: "
            "there is no such key; did you mean 'bandwidth_gb_s'? allowed: bandwidth_gb_s, kind, latency_s",
            "x.yaml:11:5: failures.0.mean_down_s: is missing; add mean_down_s: X",
            "x.yaml:12:12: failures.1.kind: "
            "unknown failure model 'maintenence'; did you mean 'maintenance'? (dagsim list failures)",
            "x.yaml:13:20: estimates.sigma: must be 0 or more, got -1.0",
            "x.yaml:15:13: preemption: must be a mapping of keys to values, got 'no'; its keys are "
            "checkpoint_interval_s, checkpoint_s_per_gb, checkpoint_write_s, on_failure, on_resume, restart_s",
            "--set seeds: must be a whole number, got 'many'",
            "--set setup.kind: unknown set-up 'x'; allowed: moving_delay (dagsim list setups)",
        ]
    )
    assert [
        line for line in lines if line.startswith("x.yaml:14:1: polcy: there is no such key; did you mean 'policy'?")
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[1, 2]\n", "x.yaml:1:1: the file: must be a mapping of keys to values, got [1, 2]"),
        (
            "cluster: {groups: []}\n",
            "x.yaml:1:19: cluster.groups: a cluster needs at least one",
        ),
        (
            "cluster: {groups: [{name: a, cpus: 1}, {name: a, cpus: 2}]}\n",
            "x.yaml:1:19: cluster.groups: two nodes would have the name 'a-0'; give each group a different name",
        ),
        (
            "workload: stedy\n",
            "x.yaml:1:11: workload: no workload 'stedy'; did you mean 'steady'? (dagsim list workloads)",
        ),
        ("workload: {preset: stedy, count: 3}\n", "x.yaml:1:20: workload.preset: no workload 'stedy'"),
        ("workload: {preset: [1]}\n", "x.yaml:1:1"),
        ("workload: {cuont: 3}\n", "x.yaml:1:12: workload.cuont: there is no such key; did you mean 'count'?"),
        ("workload: {preset: steady, arrivals: {kind: bursty, burst: 3}}\n", "x.yaml:1:53: workload.arrivals.burst: "),
        (
            "cluster: {groups: [{name: a, gpu_count: 8}]}\n",
            "x.yaml:1:30: cluster.groups.0.gpu_count: there is no such key; did you mean 'gpu', 'gpus' or 'count'?",
        ),
        ("workload: {load: 0}\n", "x.yaml:1:18: workload.load: must be above 0, got 0.0"),
        ("runtime: {reference: T5}\n", "x.yaml:1:22: runtime.reference: unknown GPU type 'T5'; "),
    ],
)
def test_a_fault_names_its_place(tmp_path: Path, text: str, fault: str) -> None:
    assert faults(tmp_path, text)[0].startswith(fault)


def test_what_is_dumped_is_read_back_equal(tmp_path: Path) -> None:
    text = (
        "cluster: {name: 'off', groups: [{name: '1e3', gpu: A100, gpus: 4}]}\n"
        "network: {latency_s: 1e-7}\n"
        "failures: [{kind: maintenance, nodes: [0], start_s: 0, end_s: 9}]\n"
        "policy: 'sjf[placement=spread]'\n"
    )
    config = load_config(write(tmp_path, text))
    assert load_config(write(tmp_path, dump_config(config))) == config


def test_the_hash_follows_values_not_spelling(tmp_path: Path) -> None:
    one = load_config(write(tmp_path, "seed: 3 # three\nruntime: {kind: throughput}\n"))
    assert config_hash(one) == config_hash(load_config(None, ["seed=3"])) != config_hash(Config())


def test_the_schema_accepts_kinds_and_refuses_other_keys() -> None:
    schema = json_schema()
    assert schema["additionalProperties"] is False
    kinds = {branch["properties"]["kind"]["const"] for branch in schema["properties"]["runtime"]["anyOf"]}
    assert kinds == {"throughput", "recorded", "flops", "llm", "fed"}
    assert schema["properties"]["policy"]["description"].startswith("The scheduler")


def test_a_wrong_key_lists_the_keys_of_its_own_kind(tmp_path: Path) -> None:
    (line,) = faults(tmp_path, "runtime: {kind: flops, reference: H100}\n")
    assert line == (
        "x.yaml:1:24: runtime.reference: there is no such key; "
        "allowed: cpu_tflops_per_core, efficiency, kind, precision"
    )
    (line,) = faults(tmp_path, "runtime: {refrence: H100}\n")
    assert line.endswith("did you mean 'reference'? allowed: batch, kind, missing, reference, table")
    (line,) = faults(tmp_path, "system: {kind: ramp, jbs: 3}\n")
    assert "did you mean 'jobs'?" in line
    assert "_made" not in line


@pytest.mark.parametrize("digits", ["9" * 5000, "0x" + "f" * 5000, "0o" + "7" * 6000])
def test_an_integer_of_thousands_of_digits_is_a_fault_like_others(digits: str, tmp_path: Path) -> None:
    (line,) = faults(tmp_path, f"seeds: {digits}\n")
    assert re.match(r"x\.yaml:1:8: seeds: .* whole number", line)
    with pytest.raises(ConfigError, match=r"--set seeds: must be .*whole number"):
        load_config(None, [f"seeds={digits}"])


@pytest.mark.family("decima")
def test_the_codecs_of_a_system_of_ones_own_are_known_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "world_with_codecs.py").write_text(
        "from dataclasses import dataclass, field\n"
        "from dagsim.registry import Entry, Registry\n"
        "from dagsim.families.spark.codecs import StagesConfig\n"
        "from dagsim.families.spark.scenario import SparkScenario\n"
        "@dataclass(frozen=True)\n"
        "class Rows(StagesConfig):\n"
        "    kind: str = 'rows'\n"
        "@dataclass(frozen=True)\n"
        "class World(SparkScenario):\n"
        "    kind: str = 'world'\n"
        "    @property\n"
        "    def codecs(self):\n"
        "        return Registry('codec', [Entry('rows', Rows)], method='build')\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    config = load_config(None, ["system=world_with_codecs:World", "train.codec=rows"])
    assert type(config.training().codec).__name__ == "Rows"
    assert load_config(write(tmp_path, dump_config(config))).training().codec == config.training().codec
    with pytest.raises(ConfigError, match="unknown codec 'row'; did you mean 'rows'"):
        load_config(None, ["system=world_with_codecs:World", "train.codec=row"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("elastic: {least: 64}", "elastic: least is 64, but no GPU type in the cluster has more than 16 GPUs"),
        (
            "failures: [{kind: spot, mean_up_s: 100, mean_down_s: 10, nodes: [9]}]",
            r"failures\.0: spot: nodes must be from 0 to 3, got \(9,\)",
        ),
        pytest.param(
            "sharing: {default: 2}",
            r"sharing\.default: must be above 0 and at most 1, got 2",
            marks=pytest.mark.family("sharing"),
        ),
    ],
)
def test_what_no_node_can_hold_and_nodes_that_are_not_there_name_their_line(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "c.yaml").write_text(f"seeds: 2\n{text}\n")
    with pytest.raises(ConfigError, match=rf"c\.yaml:2:\d+: {message}"):
        load_config(tmp_path / "c.yaml")


def test_of_the_names_of_nodes_the_one_that_is_there_twice_is_named(tmp_path: Path) -> None:
    group = "  - {{name: {}, hosts: '{}', count: 2, cpus: 4}}\n"
    text = "cluster:\n  groups:\n" + group.format("a", "n[1-2]") + group.format("b", "n[2-3]")
    with pytest.raises(ConfigError, match="two nodes would have the name 'n2'"):
        load_config(write(tmp_path, text))


def test_a_file_whose_name_looks_like_an_option_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("--seed = over.seed").write_text("seed: -1\n")
    with pytest.raises(ConfigError, match=r"^--seed = over\.seed:1:7: seed: must be"):
        load_config(Path("--seed = over.seed"))
