"""Slurm's power saving: what slurm.conf says, and the documented order of events under slurm-multifactor."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.log_reading import start_times

from dagsim.config.schema import load_config
from dagsim.config.yaml import Setting
from dagsim.errors import TraceError
from dagsim.families.site.cluster_file import import_site
from dagsim.families.slurm.site.slurm_power import power_rules
from dagsim.model import Cluster, Job, Kind, Node, OnDemand, PowerState, Task, gpu_type
from dagsim.model.queues import NodePartition, QueueTree
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario, cluster_scenario_of
from dagsim.testing import violations

PROGRAMS = {"suspendprogram": "/sbin/off", "resumeprogram": "/sbin/on"}
STATES = {f"n{at}": "UNKNOWN" for at in range(1, 5)} | {"c1": "CLOUD", "c2": "CLOUD"}
PARTITIONS = {
    "batch": {"nodes": "n[1-4]"},
    "cloud": {"nodes": "c[1-2]", "suspendtime": "120", "resumetimeout": "900", "suspendtimeout": "40"},
}


def rules(
    conf: dict[str, str], boot_s: float | None = 200.0, partitions: dict[str, dict[str, str]] = PARTITIONS
) -> tuple[dict[str, OnDemand], list[str]]:
    dropped: list[str] = []
    return power_rules(PROGRAMS | conf, partitions, STATES, boot_s, dropped.append), dropped


def test_a_partition_has_times_of_its_own_and_cloud_nodes_begin_off() -> None:
    found, dropped = rules({"suspendtime": "600 sec"})
    assert found["n1"] == OnDemand(200.0, 600.0, 30.0, up=True, timeout_s=60.0)
    assert found["c1"] == OnDemand(200.0, 120.0, 40.0, up=False, timeout_s=900.0)
    assert not dropped


def test_without_a_log_a_boot_takes_the_timeout_and_that_is_said() -> None:
    found, dropped = rules({"suspendtime": "600", "resumetimeout": "300", "resumerate": "2"}, None)
    assert (found["n1"].boot_s, found["c1"].boot_s) == (300.0, 900.0)
    assert [what.partition(":")[0] for what in dropped] == ["resumetimeout=900 s"]


@pytest.mark.parametrize(
    ("conf", "kept"),
    [
        ({"suspendexcnodes": "n[1-2],n4"}, {"n3"}),
        ({"suspendexcnodes": "n[1-4]:3"}, {"n4"}),
        ({"suspendexcparts": "batch:1"}, {"n2", "n3", "n4"}),
        ({"suspendexcparts": "batch"}, set()),
    ],
)
def test_excluded_nodes_stay_up_as_many_as_the_list_says(conf: dict[str, str], kept: set[str]) -> None:
    assert {name for name in rules({"suspendtime": "600"} | conf)[0] if name.startswith("n")} == kept


def test_a_cloud_node_that_is_never_suspended_still_boots_once() -> None:
    found, _ = rules({"suspendtime": "600", "suspendexcnodes": "c[1-2]"})
    assert found["c1"].idle_s is None
    endless = {"cloud": PARTITIONS["cloud"] | {"suspendtime": "INFINITE"}, "batch": PARTITIONS["batch"]}
    assert set(rules({"suspendtime": "-1"}, partitions=endless)[0]) == {"c1", "c2"}


def test_states_that_last_keep_their_nodes_up_and_others_are_not_modelled() -> None:
    found, dropped = rules({"suspendtime": "600", "suspendexcstates": "CLOUD,DRAIN down"})
    assert (found["c1"].idle_s, found["n1"].idle_s) == (None, 600.0)
    assert dropped == ["suspendexcstates: DOWN, DRAIN, as nodes leave these states"]
    assert rules({"suspendtime": "600", "suspendexcstates": "(null)"})[1] == []


def test_a_node_in_several_partitions_has_their_largest_time_and_idle_power_down_is_at_once() -> None:
    more = PARTITIONS | {"long": {"nodes": "c[1-2]", "suspendtime": "700"}}
    assert rules({"suspendtime": "600"}, partitions=more)[0]["c1"].idle_s == 700.0
    at_once = PARTITIONS | {"cloud": PARTITIONS["cloud"] | {"powerdownonidle": "YES"}}
    assert rules({"suspendtime": "600"}, partitions=at_once)[0]["c1"].idle_s == 0.0


def test_power_saving_needs_its_programs_and_numbers() -> None:
    dropped: list[str] = []
    assert power_rules({"suspendtime": "600"}, PARTITIONS, STATES, None, dropped.append) == {}
    assert "needs SuspendProgram and ResumeProgram" in dropped[0]
    assert rules({}, partitions={"batch": {"nodes": "ALL"}})[0] == {}
    with pytest.raises(TraceError, match=r"slurm.conf: suspendtimeout 'soon' is not a number of seconds"):
        rules({"suspendtime": "600", "suspendtimeout": "soon"}, partitions={"batch": {"nodes": "ALL"}})


def test_an_imported_site_has_the_rules_of_its_slurm_conf(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(
        "ClusterName=t\nSuspendProgram=/off\nResumeProgram=/on\nSuspendTime=300\nSuspendTimeout=20\nResumeTimeout=240\n"
        "SuspendExcNodes=own[1-2]\nNodeName=own[1-2] CPUs=8 State=UNKNOWN\nNodeName=far[1-3] CPUs=8 State=CLOUD\n"
        "PartitionName=all Nodes=ALL Default=YES\n"
    )
    said = import_site([tmp_path / "slurm.conf"], tmp_path / "site.yaml")
    nodes = {node.name: node.on_demand for node in load_config(tmp_path / "site.yaml").build_cluster().nodes}
    assert nodes == dict.fromkeys(["own1", "own2"]) | dict.fromkeys(
        ["far1", "far2", "far3"], OnDemand(240.0, 300.0, 20.0, timeout_s=240.0)
    )
    assert any("resumetimeout=240 s: used as the time that every boot takes" in line for line in said)


def test_slurm_allocates_at_once_counts_the_limit_from_the_start_and_prefers_nodes_that_are_up() -> None:
    rule = OnDemand(boot_s=200, idle_s=300, shutdown_s=60)
    nodes = [Node(name, gpu_type("T4"), 1, 8.0, 32.0, on_demand=rule) for name in ("a", "b")]
    nodes.append(Node("c", gpu_type("T4"), 1, 8.0, 32.0))
    task = Task("t", 100.0, gpus=1.0, estimate=100.0)
    work = [Job.single(f"j{at}", task, at_s) for at, at_s in enumerate((0.0, 0.0, 150.0, 1_000.0))]
    work.append(Job.single("long", Task("t", 500.0, gpus=1.0, estimate=60.0), 1_001.0))
    queues = QueueTree(partitions=(NodePartition("p"),), scheduler={"kill": "limit", "place": "best"})
    scenario = ClusterScenario(Cluster(tuple(nodes)), work, queues=queues)
    schedule = scenario.kernel(0).run(POLICIES.create("slurm-multifactor"))
    started = {row.job: (row.time_s, row.node) for row in schedule.log if row.kind == Kind.STARTED}
    assert started[0] == (0.0, 2)  # the node that is up
    assert started[1] == (pytest.approx(200.0, abs=2), 0)
    assert started[2][1] == 2
    ends = {row.job: row.time_s for row in schedule.log if row.kind in (Kind.COMPLETED, Kind.REJECTED)}
    assert ends[1] == started[1][0] + 100.0  # it was not killed, though it was allocated 300 s before its end
    assert ends[4] - started[4][0] == pytest.approx(60.0, abs=2)  # it was killed at its limit, from its start on
    assert violations(schedule, work, whole=False) == []


def test_nobody_is_charged_while_nodes_boot() -> None:
    nodes = [Node("a", gpu_type("T4"), 1, 8.0, 32.0, on_demand=OnDemand(boot_s=400))]
    nodes.append(Node("c", gpu_type("T4"), 1, 8.0, 32.0))

    def job(user: str, at_s: float, seconds: float, part: str) -> Job:
        task = Task("t", seconds, gpus=1.0, estimate=seconds)
        return Job.single(f"{user}{at_s:g}", task, at_s, account="lab", user=user, partition=part)

    work = [job("ada", 0, 100, "cloud"), job("bo", 0, 300, "own"), job("cy", 1, 400, "own")]
    work += [job("bo", 310, 10, "own"), job("ada", 311, 10, "own")]
    parts = NodePartition("cloud", nodes=("a",)), NodePartition("own", nodes=("c",))
    scenario = ClusterScenario(Cluster(tuple(nodes)), work, queues=QueueTree(partitions=parts))
    schedule = scenario.kernel(0).run(POLICIES.create("slurm-multifactor[fair_share=1000,age=0]"))
    started = start_times(schedule)
    assert (started["ada0"], started["cy1"]) == ([400.0], [300.0])
    # at 600 s, ada has used 100 s and bo 300 s; ada's node was allocated for 500 s
    assert started["ada311"] < started["bo310"]


@pytest.mark.data
def test_the_cloud_nodes_of_a_real_site_boot_about_as_often_as_they_did(tmp_path: Path, data: Path) -> None:
    folder = data / "golden" / "slurm" / "site-C"
    import_site([folder], tmp_path / "site.yaml")
    jobs = {"kind": "trace", "path": str(folder), "format": "sacct"}
    scenario = cluster_scenario_of(load_config(tmp_path / "site.yaml", [Setting("the log", "workload", jobs)]))
    rules = {node.name: node.on_demand for node in scenario.cluster.nodes}
    assert {name for name, rule in rules.items() if rule is not None} == {f"x00{number}" for number in range(1, 5)}
    rule = rules["x001"]
    assert rule is not None
    assert 180 <= rule.mean_boot_s <= 212  # as the site's own description says
    assert (rule.idle_s, rule.shutdown_s, rule.up) == (900.0, 120.0, False)
    kernel = scenario.kernel(0)
    kernel.run(POLICIES.create("slurm-multifactor"))
    rows = kernel.schedule.log.rows()
    boots = int(((rows["kind"] == Kind.POWER) & (rows["value"] == PowerState.BOOTING)).sum())
    assert abs(boots - (folder / "power.log").read_text().count("booted")) <= 8


@pytest.mark.parametrize(("rate", "kept"), [("1", 1), ("3", 3), ("0", 0), ("300", 0)])
def test_a_rate_that_holds_nodes_back_is_kept(rate: str, kept: int) -> None:
    """Slurm powers up and down that many nodes per minute; 0 means any number."""
    found, dropped = rules({"suspendtime": "600", "resumerate": f"{rate} nodes", "suspendrate": f"{rate} nodes"})
    assert {(rule.boots_a_minute, rule.stops_a_minute) for rule in found.values()} == {(kept, kept)}
    assert not dropped
