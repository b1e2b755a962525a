"""``scripts/tables.py``: published tables come out of their sweep files."""

from __future__ import annotations

import csv
import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest
import tables

from dagsim.config import yaml
from dagsim.experiment.ledger import Spending
from dagsim.experiment.plan import Axis, SweepGrid
from dagsim.systems.cluster.policies import POLICIES

RESULTS = Path(__file__).parent.parent / "results"
GRID = list(csv.DictReader((RESULTS / "baselines" / "grid.csv").read_text().splitlines()))


def narrowed(sweep: SweepGrid, **labels: list[str]) -> SweepGrid:
    """The sweep with only these values on some of its axes."""
    return replace(sweep, axes=tuple(_narrowed(axis, labels.get(axis.key.replace(".", "_"))) for axis in sweep.axes))


def _narrowed(axis: Axis, labels: list[str] | None) -> Axis:
    if labels is None:
        return axis
    places = [axis.labels.index(label) for label in labels]
    return replace(axis, values=tuple(axis.values[place] for place in places), labels=tuple(labels))


@pytest.mark.parametrize("name", tables.tables())
def test_the_file_has_the_seeds_that_the_ledger_gave(name: str) -> None:
    pool = yaml.read_yaml(RESULTS / "seeds.yaml").value[name]
    seeds = tables.sweep_of(name).seeds
    assert isinstance(seeds, range)
    assert [seeds.start, seeds.stop] == pool["spent"][-1]["seeds"]


def test_every_policy_is_in_the_grid() -> None:
    policies = [
        policy for name in ("grid", "grid-slow") for policy in tables.sweep_of(f"baselines/{name}").axes[0].values
    ]
    assert set(policies) >= set(POLICIES.names())
    assert set(policies) == {row["policy"] for row in GRID}


def _figures(row: dict[str, str]) -> dict[str, str]:
    """A row without the words of its verdict."""
    return {column: value for column, value in row.items() if column != "verdict"}


def test_the_grids_files_come_out_to_the_last_digit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def small(name: str, seeds: range | None = None) -> SweepGrid:
        policies = ["sjf", "srtf"] if name == "baselines/grid" else ["sjf", "gavel"]
        cells = {"cluster_groups": ["homogeneous"], "workload": ["independent"], "estimates_kind": ["exact"]}
        return narrowed(sweep_of(name, seeds), policy=policies, workload_load=["0.5"], **cells)

    sweep_of = tables.sweep_of
    monkeypatch.setattr(tables, "sweep_of", small)
    spending = Spending("baselines/grid", range(3_020_000, 3_020_030), "a command", "c" * 40, "2026-11-22", 1)
    options = Namespace(on="local:1", folder=tmp_path, draw=False)
    tables.write_grid(spending, options, lambda line: None)
    rows = csv.DictReader((tmp_path / "baselines" / "grid.csv").read_text().splitlines())
    published = [_figures(row) for row in GRID]
    assert all(_figures(row) in published for row in rows)
    assert "pool `baselines/grid`" in (tmp_path / "baselines" / "grid.md").read_text()
    assert "`gavel` ran on the first 5 of these only" in (tmp_path / "baselines" / "grid.md").read_text()
    assert (tmp_path / "baselines" / "grid.png").stat().st_size > 1000


def test_decimas_table_comes_out_to_the_last_digit(tmp_path: Path) -> None:
    published = json.loads((RESULTS / "decima" / "held-out-synthetic.json").read_text())
    sweep = narrowed(tables.sweep_of("decima/synthetic", range(3_025_000, 3_025_001)), policy=["srpt-cp"])
    (line,) = tables.finished(sweep, "local:1", tmp_path)
    (row,) = (row for row in published["lines"] if row["policy"] == "srpt-cp")
    assert line.metrics["jct_s.mean"] == row["by_seed_s"][0]
