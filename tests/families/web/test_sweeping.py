from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from dagsim.errors import InputError
from dagsim.experiment.carry_out import carry_out
from dagsim.experiment.executors import Local
from dagsim.experiment.plan import Plan
from dagsim.experiment.store import Store
from dagsim.experiment.sweep_grid import read_grid
from dagsim.families.web.charts import Packer
from dagsim.families.web.document import page
from dagsim.families.web.run_sections import SweepView

GRID = """
set: {workload.count: 8}
over:
  policy: [fifo, sjf]
  workload.load: [0.7, 0.9, 1.1]
seeds: 2
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Store:
    root = tmp_path_factory.mktemp("sweep")
    (root / "grid.yaml").write_text(GRID)
    plan = Plan.of_grid(read_grid(root / "grid.yaml"))
    folder = Store.begin(root / "results", plan, argv=["dagsim", "sweep"])
    carry_out(folder, plan, Local("1"), limit=11)  # one cell is missing
    return folder


def test_points_are_means_over_the_seeds_in_the_order_of_the_grid(swept: Store) -> None:
    kept: dict[int, np.ndarray] = {}

    class Kept(Packer):
        def add(self, values, dtype):
            place = super().add(values, dtype)
            kept[place] = np.asarray(values)
            return place

    view = SweepView(Store.read(swept.path))
    facts = view.facts(Kept())
    assert [(axis["name"], axis["labels"], axis["values"]) for axis in facts["axes"]] == [
        ("policy", ["fifo", "sjf"], None),
        ("load", ["0.7", "0.9", "1.1"], [0.7, 0.9, 1.1]),
    ]
    first = facts["metrics"][0]
    for place, (policy, load) in enumerate(
        (policy, load) for policy in ("fifo", "sjf") for load in ("0.7", "0.9", "1.1")
    ):
        mine = [
            line.metrics["jct_s.mean"]
            for line in view.lines
            if (line.at["policy"], line.at["workload.load"]) == (policy, load)
        ]
        folds = [float(fold(mine)) for fold in (np.mean, np.min, np.max)]
        assert [kept[first[name]][place] for name in ("mean", "low", "high")] == pytest.approx(folds)


def test_the_page_of_a_sweep_says_what_is_best_and_how_much_is_done(swept: Store) -> None:
    text = page([Store.read(swept.path)])
    verdict = re.search(r'<p class="verdict">(.*?)</p>', text)[1]
    assert re.fullmatch(r"(fifo|sjf) has the lowest mean JCT at [123] of 3 combinations\.", verdict)
    assert "11 of 12 cells are finished." in text
    assert "sweep grid" in text


def test_values_that_are_equally_good_are_named_together(tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text("set: {workload.count: 1}\nover: {policy: [fifo, sjf, srtf]}\nseeds: 1\n")
    plan = Plan.of_grid(read_grid(tmp_path / "grid.yaml"))
    folder = Store.begin(tmp_path / "results", plan, argv=["dagsim", "sweep"])
    carry_out(folder, plan, Local("1"))
    first, _ = SweepView(Store.read(folder.path)).verdict()
    assert first == "fifo and 2 more each have the lowest mean JCT on average."


def test_two_sweeps_need_pages_of_their_own(swept: Store) -> None:
    with pytest.raises(InputError, match="cannot share a page"):
        page([swept, swept])
