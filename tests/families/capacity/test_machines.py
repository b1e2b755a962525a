"""Machines that are added, taken away or bought: their nodes, prices and partitions."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from families.capacity.capacity_cases import CLUSTER

from dagsim.config.dumping import dump_config, plain
from dagsim.config.schema import Config, load_config
from dagsim.config.yaml import Setting
from dagsim.errors import ConfigError
from dagsim.families.capacity.machines import (
    GpuCount,
    Prices,
    joined,
    proportional,
    read_accept,
    read_gpus,
    read_on_demand,
    resized,
    with_memberships,
    with_nodes,
    with_on_demand,
)
from dagsim.families.capacity.size_search import gpus_of
from dagsim.model import GPU_TYPES
from dagsim.model.gpu import LIST_PRICES
from dagsim.systems.cluster.section import ClusterSection, NodeGroup


def shape(cluster: ClusterSection | None) -> list[tuple[str | None, int, int]]:
    assert cluster is not None
    return [(group.gpu, group.count, group.gpus) for group in cluster.groups]


def test_gpus_are_added_on_nodes_like_those_there_or_of_eight() -> None:
    assert shape(resized(CLUSTER, [GpuCount(8, "T4")]))[2:] == [("T4", 2, 4)]
    cluster = resized(CLUSTER, [GpuCount(20, "H200")])
    assert shape(cluster)[2:] == [("H200", 2, 8), ("H200", 1, 4)]
    assert [(group.cpus, group.memory_gb) for group in cluster.groups[2:]] == [(64, 512), (32, 256)]


def test_whole_nodes_are_taken_away_and_the_others_keep_their_names() -> None:
    assert shape(resized(CLUSTER, remove=[GpuCount(8, "T4")])) == [("A100-40", 2, 8), ("T4", 1, 4)]
    left = resized(CLUSTER, remove=[GpuCount(8, "A100-40"), GpuCount(12, "T4")])
    assert [group.nodes for group in left.groups] == [("ant01",)]
    for gpus, message in (
        (GpuCount(6, "T4"), "only whole nodes can be removed, and they have 4 GPUs"),
        (GpuCount(16, "T4"), "has only 12 GPUs of this type"),
        (GpuCount(4, "H100"), r"the cluster has no GPU of this type \(it has A100-40, T4\)"),
    ):
        with pytest.raises(ConfigError, match=message):
            resized(CLUSTER, remove=[gpus])
    with pytest.raises(ConfigError, match="would remove the whole cluster"):
        resized(CLUSTER, remove=[GpuCount(16, "A100-40"), GpuCount(12, "T4")])


def test_as_many_nodes_as_today_are_todays_cluster() -> None:
    assert with_nodes(CLUSTER, {"T4": 3}) == CLUSTER
    assert with_nodes(CLUSTER, {"T4": 3, "A100-40": 2, "H200": 0}) == CLUSTER
    assert proportional(CLUSTER, 5) == CLUSTER
    assert shape(with_nodes(CLUSTER, {"A100-40": 0, "H200": 1})) == [("T4", 3, 4), ("H200", 1, 8)]
    assert with_nodes(CLUSTER, {"A100-40": 0, "T4": 0}) is None


def test_one_node_more_takes_none_away() -> None:
    sizes = [{gpu: count for gpu, count, _ in shape(proportional(CLUSTER, nodes))} for nodes in range(1, 30)]
    totals = [sum(count for _, count, _ in shape(proportional(CLUSTER, nodes))) for nodes in range(1, 30)]
    assert totals == list(range(1, 30))
    assert all(gpus_of(proportional(CLUSTER, n)) < gpus_of(proportional(CLUSTER, n + 1)) for n in range(1, 29))
    assert sizes[9].keys() == {"A100-40", "T4"}


@pytest.mark.parametrize("text", ["H200", "0xH200", "-1xH200", "16 H200", "16x", "16x/etc", "99999999xH200"])
def test_numbers_of_gpus_are_read_in_one_form_only(text: str) -> None:
    assert read_gpus("16xA100") == GpuCount(16, "A100-40")
    with pytest.raises(ConfigError, match="such as 16xH200"):
        read_gpus(text)


def test_jobs_accept_another_type_at_its_own_speed_or_at_a_relative_one() -> None:
    accepted = read_accept(["A100=H200:1", "T4=A100:2.5,T4=H200"])
    assert accepted == {"A100-40": {"H200": 1.0}, "T4": {"A100-40": 2.5, "H200": None}}
    for text in ("A100=H200:0", "A100=H200:0.0", "A100=H200:1.2.3", "A100", "A100=H200:-1"):
        with pytest.raises(ConfigError, match=r"--accept .*expected two GPU types and optionally a relative speed"):
            read_accept([text])


def test_a_month_costs_all_gpus_for_730_hours() -> None:
    prices = Prices.read(["A100=2,T4=0.5"]).of([CLUSTER])
    assert prices.a_month(CLUSTER) == pytest.approx(730 * (16 * 2 + 12 * 0.5))
    for text in ("H200", "H200=x", "H200=-1", "=1", "A100=1,A100-40=2", "H200=nan", "none,A100=1"):
        with pytest.raises(ConfigError, match="--price"):
            Prices.read([text])


def test_machines_that_are_bought_are_written_off_over_their_years_by_the_hour(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("buy: {A100: 52560, T4: 8760}\nyears: 3\npower: 0.2\npue: 1.5\n", encoding="utf-8")
    prices = Prices.read([], file=file).of([CLUSTER])
    assert prices.per_gpu_h == {"A100-40": pytest.approx(2.0), "T4": pytest.approx(1 / 3)}  # 52,560 / (3 x 8,760 h)
    assert prices.source["T4"].startswith("bought, over 3 years")
    # Bought machines cost their price in as many months as they last: 3 x 12.
    assert 36 * prices.a_month(CLUSTER) == pytest.approx(16 * 52560 + 12 * 8760)
    assert prices.power_a_month(10.0) == pytest.approx(10.0 * 730 * 0.2 * 1.5)
    file.write_text("buy: {A100: 52560}\nrent: {T4: 0.75}\n", encoding="utf-8")
    default = Prices.read(["A100=9"], file=file).of([CLUSTER])
    assert default.per_gpu_h == {"A100-40": 9.0, "T4": 0.75}
    four_years = Prices.read([], file=file).of([CLUSTER])
    assert four_years.per_gpu_h["A100-40"] == pytest.approx(1.5)
    assert four_years.source["T4"].startswith("rented")


def test_a_price_is_the_users_own_else_the_configured_else_that_of_the_list() -> None:
    prices = Prices.read(["T4=0.5"], {"T4": 0.7, "A100": 1.25}).of([CLUSTER])
    assert prices.to_dict() == {
        "A100-40": {"per_gpu_h": 1.25, "source": "configuration"},
        "T4": {"per_gpu_h": 0.5, "source": "--price"},
    }
    listed = Prices.read([]).of([CLUSTER])
    assert listed.per_gpu_h == {"A100-40": LIST_PRICES["A100-40"].usd_per_h, "T4": 0.526}
    assert "T4 0.526 (list price, AWS g4dn.xlarge, 2024)" in listed.sentence()
    assert not Prices.read(["none"]).of([CLUSTER])


def test_a_type_without_a_price_leaves_no_cost_or_is_an_error_beside_own_prices() -> None:
    odd = ClusterSection(groups=(NodeGroup(name="r", gpu="RTX-2080Ti", gpus=4),))
    assert not Prices.read([]).of([CLUSTER, odd])
    with pytest.raises(ConfigError, match="no price for RTX-2080Ti"):
        Prices.read(["T4=1"]).of([CLUSTER, odd])


def test_every_list_price_is_of_a_known_type_and_says_source_and_year() -> None:
    assert set(LIST_PRICES) <= set(GPU_TYPES)
    assert {"H200", "B200", "GB200", "A100-80", "L4", "T4"} <= set(LIST_PRICES)
    for price in LIST_PRICES.values():
        assert 0.1 < price.usd_per_h < 30
        assert re.search(r", 20\d\d$", price.source)


def test_prices_of_a_configuration_are_checked_and_change_nothing_where_there_are_none(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("prices: {H200: 3.5}\n", encoding="utf-8")
    config = load_config(path)
    assert config.prices == {"H200": 3.5}
    assert "prices" in dump_config(config)
    assert "prices" not in dump_config(Config())
    path.write_text("prices: {H200: -1}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="prices"):
        load_config(path)


def with_queues(partitions: str) -> Config:
    """Nodes ant01, ant02 (A100-40) and t-0 to t-2 (T4), in partitions."""
    return with_memberships(
        load_config(None, [f"cluster={json.dumps(plain(CLUSTER))}", f"queues={{partitions: {partitions}}}"])
    )


BY_HOST = "[{name: gpu, nodes: ['ant[01-02]', t-0, t-1]}, {name: debug, nodes: [t-2]}]"


def partition_nodes(config: Config, cluster: ClusterSection) -> dict[str, tuple[str, ...]]:
    """The nodes of each partition on a changed cluster, as a run there sees them."""
    settings = [Setting("", "cluster", plain(cluster)), Setting("", "queues", plain(config.queues))]
    queues = load_config(None, settings).queues
    assert queues is not None
    return {part.name: part.nodes for part in queues.partitions}


def test_added_nodes_join_the_partitions_of_nodes_like_them_or_the_one_that_is_named() -> None:
    config = with_queues(BY_HOST)
    today = partition_nodes(config, config.cluster)
    assert today == {"gpu": ("ant01", "ant02", "t-0", "t-1"), "debug": ("t-2",)}
    more = resized(config.cluster, [read_gpus("8xA100-40"), read_gpus("4xT4:debug"), read_gpus("8xH200:gpu")])
    nodes = partition_nodes(config, more)
    assert nodes["gpu"] == (*today["gpu"], "added-a100-40-0", "added-h200-0")
    assert nodes["debug"] == ("t-2", "added-t4-0")
    assert joined(config.cluster, more)[0] == "New nodes (1 of 8 A100-40) are in partition gpu."
    part = joined(config.cluster, resized(config.cluster, [read_gpus("3xA100-40")]))
    assert part[0].startswith(
        "warning: the added A100-40 GPUs do not fill whole nodes: the last new node has only 3 GPUs"
    )
    with pytest.raises(ConfigError, match="name the partition for the new nodes, as in 16xH200:debug"):
        resized(config.cluster, [read_gpus("8xH200")])
    with pytest.raises(ConfigError, match="there is no partition 'gpus'; did you mean 'gpu'"):
        resized(config.cluster, [read_gpus("8xH200:gpus")])


def test_nodes_that_a_partition_names_can_be_taken_away() -> None:
    config = with_queues(BY_HOST)
    less = resized(config.cluster, remove=[read_gpus("8xA100-40"), read_gpus("4xT4:gpu")])
    assert partition_nodes(config, less) == {"gpu": ("ant01", "t-0"), "debug": ("t-2",)}
    with pytest.raises(ConfigError, match="has only 8 GPUs of this type"):
        resized(config.cluster, remove=[read_gpus("12xT4:gpu")])


def test_partitions_can_name_groups_whose_nodes_have_names_of_their_own() -> None:
    config = with_queues("[{name: big, nodes: [a]}, {name: all}]")
    assert partition_nodes(config, config.cluster)["big"] == ("ant01", "ant02")
    assert len(partition_nodes(config, config.cluster)["all"]) == 5


def test_a_plan_grows_partitions_in_proportion_and_leaves_none_empty() -> None:
    config = with_queues(BY_HOST)
    larger = proportional(config.cluster, 10)
    assert larger is not None
    assert {name: len(nodes) for name, nodes in partition_nodes(config, larger).items()} == {"gpu": 8, "debug": 2}
    assert proportional(config.cluster, 1) is None
    assert with_nodes(config.cluster, {"T4": 0}) is None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("16xH100,boot", "got 'boot'"),
        ("16xH100,boot=-3", "got 'boot=-3'"),
        ("16xH100,boot=3,boot=4", "got 'boot=4'"),
        ("16xH100,warm=3", "got 'warm=3'"),
        ("16xH100,trigger=always", "got 'trigger=always'"),
        ("16xH100@14d,boot=3", "leave out '14d'"),
        ("16xNOPE,boot=3", "unknown GPU type 'NOPE'"),
    ],
)
def test_a_wrong_group_of_nodes_on_demand_is_named(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        read_on_demand(spec)


def test_nodes_on_demand_are_like_those_there_and_as_many_as_can_be_up() -> None:
    asked = read_on_demand("20xH200,boot=200,price=3,trigger=pending")
    groups = with_on_demand(CLUSTER, asked).groups[2:]
    assert [(group.count, group.gpus) for group in groups] == [(2, 8), (1, 4)]
    assert [group.on_demand and group.on_demand.price_per_h for group in groups] == [24.0, 12.0]
    assert str(asked) == "20xH200,boot=200,idle=600,price=3,trigger=pending"
