"""``scripts/tables.py``: published tables come out of their sweep files."""

from __future__ import annotations

import csv
import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest
import sweeps
import table_agents
import table_ramp
import tables

from dagsim.config import yaml
from dagsim.errors import InputError
from dagsim.experiment.ledger import Spending
from dagsim.experiment.sweep_grid import Axis, SweepGrid
from dagsim.seeds import REPORT
from dagsim.specs import Spec
from dagsim.systems.cluster.policies import POLICIES

RESULTS = Path(__file__).parents[2] / "results"
GRID = list(csv.DictReader((RESULTS / "baselines" / "grid.csv").read_text().splitlines()))


def narrowed(sweep: SweepGrid, **labels: list[str]) -> SweepGrid:
    """The sweep with only these values on some of its axes."""
    return replace(sweep, axes=tuple(_narrowed(axis, labels.get(axis.key.replace(".", "_"))) for axis in sweep.axes))


def _narrowed(axis: Axis, labels: list[str] | None) -> Axis:
    if labels is None:
        return axis
    places = [axis.labels.index(label) for label in labels]
    return replace(axis, values=tuple(axis.values[place] for place in places), labels=tuple(labels))


def options_for(folder: Path) -> Namespace:
    return Namespace(on="local:1", folder=folder, draw=False)


@pytest.mark.parametrize("name", [name for name, (seeds, _) in tables.TABLES.items() if seeds[0] in REPORT])
def test_a_table_has_as_many_seeds_as_the_ledger_gave(name: str) -> None:
    pool = yaml.read_yaml(RESULTS / "seeds.yaml").value.get(name)
    seeds = tables.TABLES[name][0]
    if name in tables.sweep_files() or name.startswith("agents/"):
        assert [seeds[0], seeds[-1] + 1] == pool["spent"][-1]["seeds"]
    elif pool is not None:  # the agents of ddls' rules were judged before there was a ledger
        first, end = pool["spent"][-1]["seeds"]
        assert len(seeds) == end - first


@pytest.mark.family("gavel", "tiresias")
def test_every_policy_is_in_the_grid() -> None:
    policies = [
        policy for name in ("grid", "grid-slow") for policy in tables.sweep_of(f"baselines/{name}").axes[0].values
    ]
    # The grid's jobs have no deadlines, so cheap-hours shifts nothing there, and no column has a price by the hour:
    # tests/systems/cluster/policies/test_cheap_hours.py compares it with the exact optimum.
    shifting = {"cheap-hours"}
    # believing decides as the policy that it is given where durations are known, as in the grid.
    hidden = {"believing"}
    rigid = {entry.name for entry in POLICIES.describe() if "elastic" not in entry.tags}  # the grid's jobs are
    assert {Spec.parse(policy).name for policy in policies} >= rigid - shifting - hidden
    assert set(policies) == {row["policy"] for row in GRID}


def _figures(row: dict[str, str]) -> dict[str, str]:
    """A row without the words of its verdict."""
    return {column: value for column, value in row.items() if column != "verdict"}


@pytest.mark.family("gavel")
def test_the_grids_files_come_out_to_the_last_digit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def small(name: str, seeds: range | None = None) -> SweepGrid:
        policies = ["sjf", "srtf"] if name == "baselines/grid" else ["sjf", "gavel-events"]
        cells = {"cluster_groups": ["homogeneous"], "workload": ["independent"], "estimates_kind": ["exact"]}
        return narrowed(sweep_of(name, seeds), policy=policies, workload_load=["0.5"], **cells)

    sweep_of = tables.sweep_of
    monkeypatch.setattr(tables, "sweep_of", small)
    spending = Spending("baselines/grid", range(3_020_000, 3_020_030), "a command", "c" * 40, "2026-11-22", 1)
    tables.write_grid(spending, options_for(tmp_path), lambda line: None)
    rows = csv.DictReader((tmp_path / "baselines" / "grid.csv").read_text().splitlines())
    published = [_figures(row) for row in GRID]
    assert all(_figures(row) in published for row in rows)
    assert "pool `baselines/grid`" in (tmp_path / "baselines" / "grid.md").read_text()
    assert "`gavel-events` ran on the first 5 of these only" in (tmp_path / "baselines" / "grid.md").read_text()
    assert (tmp_path / "baselines" / "grid.png").stat().st_size > 1000


@pytest.mark.family("kubernetes")
def test_rows_of_some_policies_are_made_again_among_those_that_stay(tmp_path: Path) -> None:
    cell = {"cluster_groups": ["homogeneous"], "workload": ["independent"], "estimates_kind": ["exact"]}
    sweep = tables.sweep_of("baselines/grid", range(3_020_000, 3_020_030))
    sweep = narrowed(sweep, policy=["sjf", "kueue"], workload_load=["0.9"], **cell)
    lines = tables.finished(sweep, options_for(tmp_path))
    here = [
        row for row in GRID if tuple(row[key] for key in tables.CELL) == ("homogeneous", "independent", "0.9", "exact")
    ]
    changed = [row | {"mean": "1", "ratio": "0.5", "verdict": ""} if row["policy"] == "kueue" else row for row in here]
    rows = [{key: str(value) for key, value in row.items()} for row in tables.again_rows(lines, changed)]
    assert sorted(map(str, rows)) == sorted(map(str, here))  # the verdict, too: Holm over the whole cell
    ratios = [float(row["ratio"]) for row in rows if row["n"] == "30"]
    assert ratios == sorted(ratios)
    reference = [row | {"mean": "1"} if row["policy"] == "sjf" else row for row in here]
    with pytest.raises(InputError, match="make it all again"):
        tables.again_rows(lines, reference)


@pytest.mark.family("spark")
def test_decimas_table_comes_out_to_the_last_digit(tmp_path: Path) -> None:
    published = json.loads((RESULTS / "decima" / "held-out-synthetic.json").read_text())
    sweep = narrowed(tables.sweep_of("decima/synthetic", range(3_025_000, 3_025_001)), policy=["srpt-cp"])
    (line,) = tables.finished(sweep, options_for(tmp_path))
    (row,) = (row for row in published["lines"] if row["policy"] == "srpt-cp")
    assert line.metrics["jct_s.mean"] == row["by_seed_s"][0]


def test_an_agents_table_has_its_references_first_and_the_agent_of_its_cell(tmp_path: Path) -> None:
    grid = table_agents.grid_of("dag-1.1", "noisy", range(3_011_020, 3_011_021), rollout=True)
    reference, rollout, agent = grid.axes[0].labels
    assert reference == "best cheap non-preemptive heuristic (eft-wait[theta=0.75,order=path])"
    assert rollout.startswith("roll-out (rollout[base=")
    assert agent == "agent (dag-1.1.pt)"
    config = grid.config()
    assert (config.estimates.kind, config.preemption.restart_s) == ("noisy", 100)
    published = [json.loads(line) for line in (RESULTS / "agents" / "cells.jsonl").read_text().splitlines()]
    exact = table_agents.grid_of("independent-0.9", "exact", range(3_011_020, 3_011_021), rollout=False)
    for run in sweeps.finished(narrowed(exact, policy=["sjf", "fifo"]), options_for(tmp_path)):
        (row,) = (
            row
            for row in published
            if (row["cell"], row["policy"], row["seed"]) == ("independent-0.9 exact", run.policy, run.seed)
        )
        assert run.metrics["jct_s.mean"] == row["metrics"]["jct_s.mean"]


@pytest.mark.data
def test_ramps_table_comes_out_to_the_last_digit(data: Path, tmp_path: Path) -> None:
    published = json.loads((RESULTS / "ramp" / "ddls.json").read_text())["D"]["max, first_fit"]
    sweep = narrowed(sweeps.sweep_of("ramp/ddls"), policy=["max"], system_placer=["first_fit"], system_beta=["D"])
    figures = table_ramp.figures_of(sweeps.finished(sweep, options_for(tmp_path)))
    assert table_ramp.rows_of(figures["D"])["max, first_fit"] == published


def test_an_agent_of_ramp_stands_beside_the_best_constant_and_the_best_smallest_degree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_ramp, "RESULTS", tmp_path)
    with pytest.raises(InputError, match=r"mixed-B-1\.pt is missing; train it"):
        table_ramp.grids_of("ramp/mixed-B", (1, 2))
    (tmp_path / "ramp" / "agents").mkdir(parents=True)
    (tmp_path / "ramp" / "agents" / "mixed-B-1.pt").touch()
    names = [
        f"{policy}, {grid.axes[0].labels[0]}"
        for grid in table_ramp.grids_of("ramp/mixed-B", (1, 2))
        for policy in grid.axes[1].labels
    ]
    published = json.loads((RESULTS / "ramp" / "judged" / "mixed-B.json").read_text())["policies"]
    assert {name for name in names if not name.startswith("agent")} == {
        name for name in published if not name.startswith("agent")
    }
    assert "agent 1, same_type" in names
