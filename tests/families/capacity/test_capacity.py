"""Other machines, and how many are enough."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from dagsim.cli import app
from dagsim.config.dumping import dump_config, plain
from dagsim.config.schema import Config, load_config
from dagsim.config.yaml import Setting
from dagsim.errors import ConfigError, InputError
from dagsim.experiment.cell_run import CellRun
from dagsim.families.capacity.answer_tables import plan_table
from dagsim.families.capacity.log_demand import Beginning, LogDemand, with_growth
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
from dagsim.families.capacity.planning import plan
from dagsim.families.capacity.size_search import Size, SizeSearch, Target, Targets, gpus_of, least_size
from dagsim.families.capacity.trials import Fit, Trial
from dagsim.metrics.series import JobSeries
from dagsim.model import GPU_TYPES, Job, Request, Task
from dagsim.model.gpu import LIST_PRICES
from dagsim.systems.cluster.section import ClusterSection, NodeGroup
from dagsim.workload.load import Load
from dagsim.workload.records import write_jobs

CLUSTER = ClusterSection(
    name="c",
    groups=(
        NodeGroup(name="a", hosts="ant[01-02]", count=2, gpu="A100-40", gpus=8, cpus=64, memory_gb=512),
        NodeGroup(name="t", count=3, gpu="T4", gpus=4, cpus=32, memory_gb=128),
    ),
)


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


def test_targets_are_read_and_checked() -> None:
    assert Target.read(" wait_s.p95 < 600 ") == Target("wait_s.p95", False, 600.0)
    assert Target.read("wait_s.p95<4h") == Target("wait_s.p95", False, 14400.0)
    assert Target.read("wait_s.p95<10m") == Target.read("wait_s.p95<10min") == Target("wait_s.p95", False, 600.0)
    assert Target.read("wait_s.p95 < 1.5 min").bound == 90
    assert Target.read("utilization>=0.5").above
    for text, message in (
        ("wait_s.p95", "expected a metric"),
        ("wait_s.p95<1e", "expected a metric"),
        ("wait.p95<600", "no metric 'wait.p95'"),
        ("wait_s.p95>600", "lower values of wait_s.p95 are better"),
        ("utilization<1", "higher values of utilization are better"),
        ("utilization>1h", "is not a time"),
    ):
        with pytest.raises(ConfigError, match=message):
            Target.read(text)


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


class World:
    """Clusters whose mean wait is 1000 / strength, where strength counts nodes by type."""

    strength = {"A100-40": 3.0, "T4": 1.0, "H200": 5.0}

    def __init__(self, *, needs: str | None = None) -> None:
        self.tried: list[str] = []
        self.needs = needs

    def run(self, label: str, cluster: ClusterSection) -> Trial:
        self.tried.append(label)
        total = sum(self.strength[str(group.gpu)] * group.count for group in cluster.groups)
        lost = int(self.needs is not None and self.needs not in {group.gpu for group in cluster.groups})
        metrics: dict[str, Any] = {"wait_s.mean": 1000 / total, "jobs_arrived": 10, "jobs_completed": 10 - lost}
        return trial(metrics)


NOTHING = Load(0.0, 0.0, 1.0, 10)


def trial(metrics: dict[str, Any]) -> Trial:
    return Trial(CellRun("p", 0, {}, metrics), JobSeries({"wait_s": np.zeros(0)}, np.zeros(0, np.int64), ()), NOTHING)


def planned(
    types: Sequence[str], bound: float, most: int = 400, prices: str = "", **settings: Any
) -> tuple[World, Size, SizeSearch]:
    world = World(**settings)
    answer = least_size(
        CLUSTER,
        types,
        most,
        Prices.read([prices or "none"]),
        world.run,
        Targets((Target("wait_s.mean", False, bound),)),
        lambda _: NOTHING,
    )
    return world, *answer


def test_bisection_finds_the_least_size_and_tries_few() -> None:
    # 2 A100 nodes are worth 6; T4 nodes 1 each: below 10 s takes more than 100 in all, so 95 T4 nodes, 396 GPUs.
    world, today, search = planned(["T4"], 10.0)
    assert search.best is not None
    assert (search.best.nodes, search.best.gpus) == ((95,), 396)
    assert not search.tried[(94,)].met.meets
    assert len(world.tried) < 2 * 9
    assert today.gpus == 28


def test_the_whole_cluster_shrinks_and_grows_in_proportion() -> None:
    _, _, search = planned([], 1000 / 8.5)
    assert search.best is not None
    assert search.best.nodes == (5,)  # today's is worth 9
    _, _, search = planned([], 500.0)
    assert search.best is not None
    assert search.best.gpus < 28


def test_no_size_up_to_the_cap_is_said_so() -> None:
    _, today, search = planned(["T4"], 1.0, most=100)
    assert search.best is None
    assert max(size.gpus for size in search.tried.values()) == 100  # the cap itself is tried
    target = Targets((Target("wait_s.mean", False, 1.0),))
    grid = plan_table(search, today, target, workload="w", prices=Prices(), demand=NOTHING, begins=Beginning())
    assert any("No size up to the cap" in note for note in grid.notes)
    with pytest.raises(ConfigError, match="every node of these types has more GPUs"):
        planned(["T4"], 1.0, most=3)


def test_an_interval_that_is_not_there_does_not_reach_over_the_bound() -> None:
    _, today, search = planned(["T4"], 50.0)  # the trials have no series of jobs
    target = Targets((Target("wait_s.mean", False, 50.0),))
    notes = plan_table(search, today, target, workload="w", prices=Prices(), demand=NOTHING, begins=Beginning()).notes
    assert search.best is not None
    assert any(note.startswith("No interval: ") for note in notes)
    assert not any("extends beyond" in note for note in notes)


def test_todays_row_has_its_figures_below_their_heads_with_several_types() -> None:
    _, today, search = planned(["H200", "T4"], 41.0)
    target = Targets((Target("wait_s.mean", False, 41.0),))
    grid = plan_table(search, today, target, workload="w", prices=Prices(), demand=NOTHING, begins=Beginning())
    row = dict(zip(grid.heads, grid.rows[-1], strict=True))
    assert (row["H200"], row["T4"], row["GPUs"]) == ("today", "", "28")


def test_the_cheapest_mix_is_the_cheapest_of_all() -> None:
    """Against every pair of numbers; an H200 node costs 8 times 6, a T4 node 4 times 2, for strengths 5 and 1."""
    prices = "H200=6,T4=2,A100-40=1"
    for bound in (20.0, 41.0, 55.0):
        _, _, search = planned(["H200", "T4"], bound, prices=prices)
        table = Prices.read([prices])
        costs = {
            (h, t): table.a_month(cluster)
            for h in range(12)
            for t in range(50)
            if (cluster := with_nodes(CLUSTER, {"H200": h, "T4": t})) is not None
            and 1000 / (6 + 5 * h + t) < bound
            and gpus_of(cluster) <= 400
        }
        assert search.best is not None
        assert search.best.cost == pytest.approx(min(costs.values()))


def test_a_mix_is_found_that_is_cheaper_than_any_type_alone() -> None:
    # More than 6 strengths are needed. An H200 node costs 32 for 5 of them, a T4 node 8 for one: 2 x 32 or 7 x 8 alone,
    # 32 + 2 x 8 together.
    _, _, search = planned(["H200", "T4"], 80.0, prices="H200=4,T4=2,A100-40=1")
    assert search.best is not None
    assert search.best.nodes == (1, 2)


def test_a_budget_that_no_node_of_the_first_type_fits_buys_nodes_of_the_others() -> None:
    # A month of an H200 node is 8 x 60 an hour, and of a T4 node 4 x 2: 30 an hour above the nodes that stay.
    prices = Prices.read(["H200=60,T4=2,A100-40=1"])
    kept = with_nodes(CLUSTER, {"H200": 0, "T4": 0})
    assert kept is not None
    budget = prices.a_month(kept) + 30 * 730
    target = Targets((Target("wait_s.mean", False, inf),))
    _, search = least_size(CLUSTER, ["H200", "T4"], 400, prices, World().run, target, lambda _: NOTHING, budget=budget)
    assert search.best is not None
    assert search.best.nodes == (0, 3)


def test_a_long_name_in_a_target_leaves_room_for_the_figures() -> None:
    _, today, search = planned([], 41.0)
    metric = f"user[{'a-very-long-name-' * 4}].wait_s.mean"
    met = replace(today.met, further=(today.met.value,))
    today, sizes = replace(today, met=met), [replace(size, met=met) for size in search.tried.values()]
    search = SizeSearch((), {size.nodes: size for size in sizes})
    target = Targets((Target("wait_s.mean", False, 41.0), Target(metric, False, 41.0)))
    grid = plan_table(search, today, target, workload="w", prices=Prices(), demand=NOTHING, begins=Beginning())
    console = Console(width=80, record=True, file=StringIO())
    console.print(grid)
    lines = console.export_text().splitlines()
    rows = [line for line in lines if line.startswith("today")]
    assert len(rows) == 1
    assert max(map(len, lines)) <= 80
    assert {"28", "no"} <= set(rows[0].split())


def test_a_cluster_that_turns_jobs_away_meets_nothing() -> None:
    _, _, search = planned(["T4", "H200"], 50.0, needs="T4")
    assert search.best is not None
    assert search.best.nodes[0] >= 1


def log(path: Path, jobs: int) -> Path:
    """Jobs of 2 GPUs and 95 s on average, one every 30 s: a load of .8 on 8 GPUs."""
    arrival_s = np.cumsum(np.random.default_rng(7).exponential(30.0, jobs))
    rows = [f"j{n},{at_s:.3f},{1 + n % 3},{60 + 7 * (n % 11)}" for n, at_s in enumerate(arrival_s.tolist())]
    path.write_text("\n".join(["id,arrival_s,gpus,duration_s", *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    log(tmp_path / "log.csv", 600)
    (tmp_path / "c.yaml").write_text("cluster: {groups: [{name: t, gpu: T4, gpus: 4, count: 2}]}\n", encoding="utf-8")
    return tmp_path


def answer_of(*arguments: str, code: int = 0, trace: str = "log.csv") -> dict[str, Any]:
    common = ["--trace", trace, "--cluster", "c.yaml", "--on", "local:1", "--json"]
    result = CliRunner().invoke(app, [*arguments, *common])
    assert result.exit_code == code, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_a_plan_from_python_invents_no_cluster_unless_it_is_asked_to(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the cluster is unknown, because the log does not list its machines"):
        plan(log(tmp_path / "log.csv", 20), "wait_s.p95<60")


def test_whatif_runs_clusters_and_policies_on_the_same_jobs(site: Path) -> None:
    answer = answer_of("whatif", "--add", "8xT4", "--policy", "fifo,sjf", "--price", "T4=0.5")
    rows = {(choice["cluster"], choice["policy"]): choice for choice in answer["choices"]}
    assert list(rows) == [("today", "fifo"), ("today", "sjf"), ("+8xT4", "fifo"), ("+8xT4", "sjf")]
    assert rows["today", "fifo"]["verdict"] == "reference"
    more = rows["+8xT4", "fifo"]
    assert more["ratio"] < 1
    assert more["n"] < 80
    assert (more["ratio_low"], more["verdict"]) == (None, "log too short")  # of 600 jobs
    assert more["wait_s"] < rows["today", "fifo"]["wait_s"]
    assert (rows["today", "fifo"]["cost_a_month"], more["cost_a_month"]) == (730 * 4.0, 730 * 8.0)
    events = [json.loads(line)["event"] for line in Path(answer["run"], "progress.jsonl").read_text().splitlines()]
    again = answer_of("whatif", "--add", "8xT4", "--policy", "fifo,sjf", "--price", "T4=0.5")
    assert again["choices"] == answer["choices"]
    more_events = Path(answer["run"], "progress.jsonl").read_text().splitlines()
    assert len(more_events) == len(events) + 2  # started, ended: nothing was run again


def test_without_the_writer_of_pages_whatif_answers_and_says_so(
    site: Path, without_families: Callable[..., None]
) -> None:
    without_families("web")
    words = ["--trace", "log.csv", "--cluster", "c.yaml", "--policy", "fifo", "--price", "none", "--out", "runs"]
    result = CliRunner().invoke(app, ["whatif", "--add", "8xT4", *words])
    assert result.exit_code == 0, result.output
    said = "no page is written, because the writer of pages belongs to the family web, which this installation lacks"
    assert said in " ".join(result.output.split())
    assert not list(Path("runs").rglob("report.html"))
    assert list(Path("runs").rglob("answer.json"))


def test_whatif_says_what_nodes_on_demand_would_cost_and_save(site: Path) -> None:
    spec = "8xT4,boot=120,idle=300,price=0.5"
    answer = answer_of("whatif", "--add", spec, "--add", "8xT4", "--policy", "fifo-fit", "--price", "T4=0.25")
    today, added, cloud = answer["choices"]
    assert [choice["cluster"] for choice in answer["choices"]] == ["today", "+8xT4", f"+{spec}"]
    assert "on_demand_a_month" not in today
    use = cloud["on_demand_a_month"]
    assert (use["nodes"], use["always_on_cost"]) == (2, 730 * 4.0)
    assert 0 < use["node_hours"] < 2 * 730
    assert use["cost"] == pytest.approx(use["node_hours"] * 4 * 0.5)
    assert cloud["cost_a_month"] == pytest.approx(today["cost_a_month"] + use["cost"])
    assert added["wait_s"] <= cloud["wait_s"] < today["wait_s"]  # the boots take time
    written = json.loads(Path(answer["run"], "answer.json").read_text())
    assert "on demand are up for" in " ".join(written["sentences"])
    free = answer_of("whatif", "--cloud", spec, "--policy", "fifo-fit", "--price", "none")
    assert free["choices"][1]["cost_a_month"] is None


def test_nodes_on_demand_have_a_cost_although_another_gpu_type_has_no_list_price(site: Path) -> None:
    own = "{name: a, gpu: A40, gpus: 4, on_demand: {boot_s: 60}}, {name: x, cpus: 8, on_demand: {boot_s: 60}}"
    (site / "c.yaml").write_text(f"cluster: {{groups: [{{name: t, gpu: T4, gpus: 4}}, {own}]}}\n", encoding="utf-8")
    answer = answer_of("whatif", "--add", "8xT4,boot=120,idle=300", "--policy", "fifo-fit")
    use = answer["choices"][1]["on_demand_a_month"]
    assert answer["choices"][1]["cost_a_month"] is None
    assert (use["nodes"], use["unpriced"]) == (4, 2)
    assert use["always_on_cost"] == pytest.approx(730 * 8 * LIST_PRICES["T4"].usd_per_h)
    assert 0 < use["cost"] < use["always_on_cost"]
    written = json.loads(Path(answer["run"], "answer.json").read_text())
    assert "without the 2 nodes that have no price" in " ".join(written["sentences"])
    assert "there is no list price for A40; give one (--price A40=PRICE)" in json.dumps(written)


def test_the_waits_of_whatif_are_those_of_the_jobs_of_the_log_and_begin_like_them(site: Path) -> None:
    """A job that waits for another for 900 s, and one whose start the log does not state."""
    after_a = Request(after=("a",))
    jobs = [
        Job.single("a", Task("t", 1000, gpus=1), 0, observed_start_s=0),
        Job.single("b", Task("t", 100, gpus=1), 100, observed_start_s=1000, eligible_s=1000, request=after_a),
        Job.single("c", Task("t", 100, gpus=1), 1500, observed_start_s=1550),
        Job.single("d", Task("t", 100, gpus=1), 1510),
        *[Job.single(f"e{n}", Task("t", 10, gpus=1), n, observed_start_s=n) for n in range(3000, 3900, 100)],
    ]
    write_jobs(site / "log.jsonl", jobs)
    (site / "c.yaml").write_text("cluster: {groups: [{name: n, gpu: T4, gpus: 1}]}\n")
    answer = answer_of("whatif", "--add", "1xT4", "--policy", "fifo", trace="log.jsonl")
    assert answer["fit"]["from_eligible"]
    written = json.loads(Path(answer["run"], "answer.json").read_text())
    log, today = written["grid"]["rows"][:2]
    assert (float(log[2]), float(today[2])) == (pytest.approx(50 / 12, rel=1e-3), 0)
    sentence = " ".join(written["sentences"])
    assert "from the time at which a job could start, over the jobs that start in both" in sentence


def test_plan_charges_nodes_on_demand_for_the_hours_in_which_they_are_up(site: Path) -> None:
    rule = "{boot_s: 60, idle_s: 300, price_per_h: 2}"
    groups = f"[{{name: t, gpu: T4, gpus: 4}}, {{name: c, gpu: T4, gpus: 4, on_demand: {rule}}}]"
    (site / "c.yaml").write_text(f"cluster: {{groups: {groups}}}\n", encoding="utf-8")
    asked = ("--target", "wait_s.p95<10h", "--max-gpus", "16", "--policy", "fifo-fit")
    today = answer_of("plan", *asked, "--price", "T4=0.25")["today"]
    own = 730 * 4 * 0.25
    assert own < today["cost"] < own + 730 * 2
    hours = answer_of("whatif", "--policy", "fifo-fit,sjf", "--price", "T4=0.25")["choices"][0]
    assert today["cost"] == pytest.approx(hours["cost_a_month"])


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


def test_plan_finds_a_size_draws_it_and_says_when_there_is_none(site: Path) -> None:
    answer = answer_of("plan", "--target", "wait_s.mean<30", "--plot", "curve.pdf")
    best, tried = answer["best"], {size["gpus"]: size for size in answer["tried"]}
    assert best["meets"]
    assert best["value"] < 30
    assert not tried[best["gpus"] - 4]["meets"]
    assert (site / "curve.pdf").read_bytes().startswith(b"%PDF")
    arguments = ("plan", "--trace", "log.csv", "--cluster", "c.yaml", "--target", "wait_s.mean<30")
    assert "drawn: curve.pdf\n" in CliRunner().invoke(app, [*arguments, "--plot", "curve.pdf"]).stdout
    none = answer_of("plan", "--target", "wait_s.mean<1e-9", "--most", "8", "--name", "none", code=1)
    assert none["best"] is None
    assert (Path(none["run"]) / "plots" / "plan.svg").exists()


def test_whatif_without_a_question_is_refused(site: Path) -> None:
    result = CliRunner().invoke(app, ["whatif", "--trace", "log.csv", "--cluster", "c.yaml"])
    assert result.exit_code == 2
    assert "whatif: there is nothing to compare" in result.output
    result = CliRunner().invoke(
        app, ["whatif", "--trace", "log.csv", "--cluster", "c.yaml", "--add", "4xT4", "--metric", "x"]
    )
    assert result.exit_code == 2
    with pytest.raises(InputError, match="no metric"):
        Target("x", False, 1.0).of(trial({"jobs_arrived": 1, "jobs_completed": 1}))


@pytest.mark.parametrize(
    ("when", "after_s"),
    [
        ("90s", 90),
        ("1.5min", 90),
        ("2h", 7200),
        ("0.5d", 43200),
        ("2023-11-15T00:00", 6400),  # 22:13:20 plus 1 h 46 min 40 s
        ("2023-11-17T22:13:20", 86400),  # one day after the end of the log: one day after the beginning of the run
    ],
)
def test_an_instant_of_a_run_is_a_time_after_its_beginning_or_a_date(tmp_path: Path, when: str, after_s: float) -> None:
    demand = dated(tmp_path, 1_700_000_000)  # 2023-11-14 22:13:20 UTC
    assert demand.arrival_s(when) == after_s


@pytest.mark.parametrize(
    ("origin_s", "when", "words"),
    [
        (0, "2023-11-15", "the log has no dates"),
        (1_700_000_000, "2d", "the time is 2.0 days after the beginning of a run that lasts 2.0 days"),
        (1_700_000_000, "2023-11-13", "the time is -1.9 days after"),
        (1_700_000_000, "soon", "expected a date, such as 2027-03-01, or a time, such as 14d"),
    ],
)
def test_an_instant_outside_of_the_run_is_refused(tmp_path: Path, origin_s: int, when: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        dated(tmp_path, origin_s).arrival_s(when)


def dated(folder: Path, origin_s: int) -> LogDemand:
    """A log of two days with three jobs."""
    rows = [f"j{day},{origin_s + day * 86400},60,1" for day in range(3)]
    (folder / "log.csv").write_text("\n".join(["id,arrival_s,duration_s,gpus", *rows]))
    trace = {"kind": "trace", "path": str(folder / "log.csv")}
    return LogDemand(Config.model_validate({"workload": trace, "cluster": plain(CLUSTER)}))


def test_growth_brings_the_same_jobs_closer_together(tmp_path: Path) -> None:
    grown = with_growth(dated(tmp_path, 0).config, 0.25)
    assert grown.trace().options.time_scale == pytest.approx(0.8)
    twice = with_growth(grown, 0.25)
    assert twice.trace().options.time_scale == pytest.approx(0.64)


@pytest.mark.parametrize(
    ("metric", "name", "observed", "simulated"),
    [
        ("wait_s.mean", "wait_s.mean", 100.0, 90.0),
        ("wait_s.p50", "wait_s.p50", 10.0, 30.0),
        ("jct_s.mean", "wait_s.p95", 400.0, 300.0),  # the one of mean and p95 that differs more
    ],
)
def test_today_is_compared_with_the_log_unless_its_time_is_scaled(
    metric: str, name: str, observed: float, simulated: float
) -> None:
    waits = {"observed_s": {"mean": 100.0, "median": 10.0, "p95": 400.0}, "jobs": 50}
    waits |= {"simulated_s": {"mean": 90.0, "median": 30.0, "p95": 300.0}}
    workload: dict[str, Any] = {"observed": {"total": waits, "missed": 2}, "trace": {"options": {"time_scale": 1}}}
    today = trial({})
    real = replace(today, run=replace(today.run, workload=workload))
    fit = Fit.of(real, metric)
    assert fit == Fit(name, observed, simulated, 100.0, 400.0, 50, 2)
    workload["trace"]["options"]["time_scale"] = 2
    assert Fit.of(real, metric) is None
    assert Fit.of(replace(today, run=replace(today.run, workload={"observed": None})), metric) is None


def test_a_target_with_an_old_metric_names_the_new_one() -> None:
    with pytest.raises(ConfigError, match=r"'slowdown\.mean'; it is now called 'stretch\.mean'"):
        Target.read("slowdown.mean<2")
