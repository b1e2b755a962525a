"""The general agent's table: the references that the matrix chose, and the numbers of the page."""

from __future__ import annotations

from pathlib import Path

import pytest
import table_general
from command import read_rows

from dagsim.experiment.sweep_grid import read_grid
from dagsim.specs import Spec
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.policies.look_ahead import EftWait

AGENTS = Path(__file__).parents[2] / "results" / "agents"


def rows(name: str) -> list[dict[str, str]]:
    return read_rows(AGENTS / name)


def test_the_matrix_is_that_of_the_sweep_and_its_first_row_is_the_default() -> None:
    matrix = rows("matrix.csv")
    sweep = read_grid(AGENTS / "matrix.yaml")
    cells, policies = sweep.axes
    assert set(cells.labels) == set(table_general.CELLS)
    assert {row["policy"] for row in matrix} == set(policies.values)
    best, default = POLICIES.create(matrix[0]["policy"]), EftWait()
    assert (best.theta, best.order) == (default.theta, default.order)  # type: ignore[attr-defined]


def test_the_reference_of_a_cell_is_the_least_geometric_mean_over_its_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_general, "OUT", tmp_path)
    times = {"fifo": (2.0, 8.0), "sjf": (1.0, 8.0), "saf": (2.0, 2.0)}  # products 16, 8, 4
    lines = ["base,policy,seed,jct_s.mean"]
    for cell in table_general.CELLS:
        for policy, values in times.items():
            by = 3.0 if policy == "saf" and cell == "ali40" else 1.0
            lines += [f"{cell},{policy},{seed},{by * value}" for seed, value in enumerate(values)]
    (tmp_path / "results.csv").write_text("\n".join(lines))
    table_general.choose(tmp_path, lambda text: None)
    chosen = table_general.references()
    assert chosen.pop("ali40") == "sjf"
    assert set(chosen.values()) == {"saf"}
    first = read_rows(tmp_path / "matrix.csv")[0]
    assert first["policy"] == "saf"
    assert float(first["ali40"]) == pytest.approx(3 * (4 / 8) ** 0.5, rel=1e-4)


def test_the_page_has_the_numbers_of_the_file() -> None:
    page = (AGENTS / "general.md").read_text(encoding="utf-8")
    pages = dict(zip(("means", "exact", "noisy"), page.split("## ")[1:], strict=True))
    agent = [row for row in rows("general.csv") if row["policy"] == "agent"]
    assert len(agent) == 2 * len(table_general.CELLS)
    for row in agent:
        ratio, low, high = (float(row[name]) for name in ("ratio", "low", "high"))
        line = f"| {row['cell']} | **general agent** | {row['n']} | {ratio:.3f} | {low:.3f} to {high:.3f} |"
        assert line in pages[row["estimates"]]
        assert row["reference"] == table_general.references()[row["cell"]]
        assert Spec.parse(row["reference"]).name in POLICIES.names()
