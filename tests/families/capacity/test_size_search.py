"""The search for the least size that meets a target, and for the cheapest mix of types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from math import inf
from typing import Any

import pytest
from families.capacity.capacity_cases import CLUSTER, NOTHING, trial
from rich.console import Console

from dagsim.errors import ConfigError
from dagsim.families.capacity.answer_tables import plan_table
from dagsim.families.capacity.log_demand import Beginning
from dagsim.families.capacity.machines import (
    Prices,
    with_nodes,
)
from dagsim.families.capacity.size_search import Size, SizeSearch, Target, Targets, gpus_of, least_size
from dagsim.families.capacity.trials import Trial
from dagsim.systems.cluster.section import ClusterSection


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


def test_a_target_with_an_old_metric_names_the_new_one() -> None:
    with pytest.raises(ConfigError, match=r"'slowdown\.mean'; it is now called 'stretch\.mean'"):
        Target.read("slowdown.mean<2")
