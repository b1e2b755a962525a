"""Runs on RAMP in a report: causes of blocking, times and speed-up, by agent and by beta."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.runs import outcomes

from dagsim.config.schema import load_config
from dagsim.experiment.run_store import RunStore
from dagsim.experiment.store import Store
from dagsim.families.ramp.scenario import RampScenario
from dagsim.families.web.blocking_sections import blocking_grids
from dagsim.families.web.chosen import choose_runs
from dagsim.families.web.document import page

WORLD = "{kind: ramp, jobs: 12, gap_s: 0.02, max_degree: 4, topology: 'ramp[groups=2,racks=2,servers_per_rack=1]'}"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Store]:
    stores = []
    for beta in ("A", "D"):
        config = load_config(None, [f"system={WORLD}", f"system.beta={beta}", "policy=max", "seeds=2"])
        root, policies = tmp_path_factory.mktemp(beta), ("max", "no")
        folder = RunStore.create(root, "baseline", config, argv=[], policies=policies)
        for result in outcomes(config, policies):
            folder.add(result)
        folder.mark("done")
        stores.append(folder)
    return stores


def test_every_agent_has_a_row_for_each_beta(folders: list[Store]) -> None:
    blocked, speed = blocking_grids(choose_runs(folders).runs, RampScenario.blocked_by)  # type: ignore[arg-type]
    assert {row[:3] for row in blocked.rows} == {(beta, name, "2") for beta in "AD" for name in ("max", "no")}
    assert [row[0] for row in speed.rows] == ["A", "A", "D", "D"]


def test_causes_add_up_to_the_blocking_rate(folders: list[Store], tmp_path: Path) -> None:
    config = load_config(None, [f"system={WORLD}", "system.horizon_s=0.2", "policy=max", "seeds=2"])
    cut_short = RunStore.create(tmp_path, "baseline", config, argv=[], policies=("max", "no"))
    for result in outcomes(config, ("max", "no")):
        cut_short.add(result)
    cut_short.mark("done")
    early, _ = blocking_grids(choose_runs([cut_short]).runs, RampScenario.blocked_by)  # type: ignore[arg-type]
    assert any(float(row[8]) > 0 for row in early.rows)
    blocked, _ = blocking_grids(choose_runs(folders[:1]).runs, RampScenario.blocked_by)  # type: ignore[arg-type]
    for row in [*blocked.rows, *early.rows]:
        rate, causes = float(row[3]), [float(cell) for cell in row[5:9]]
        assert rate == pytest.approx(sum(causes), abs=0.002)
    too_slow = {row[1]: float(row[7]) for row in blocked.rows}
    assert too_slow["no"] > too_slow["max"]


def test_times_are_those_of_the_jobs_that_completed(folders: list[Store]) -> None:
    folder = folders[0]
    _, speed = blocking_grids(choose_runs([folder]).runs, RampScenario.blocked_by)  # type: ignore[arg-type]
    row = next(row for row in speed.rows if row[1] == "max")
    lines = [line for line in folder.lines() if line.policy == "max"]
    assert float(row[4]) == pytest.approx(np.mean([line.metrics["jct_s.mean"] for line in lines]), rel=1e-2)
    assert 1 < float(row[6]) <= float(row[7]) <= 4


def test_the_page_has_the_tables_only_for_ramp(folders: list[Store], tmp_path: Path) -> None:
    text = page(folders[:1])
    assert "Jobs blocked, by cause" in text
    assert "speed-up" in text
    assert "blocking_rate" in text
    spark = load_config(None, ["system={kind: spark, jobs: 2, executors: 3}", "seeds=1"])
    folder = RunStore.create(tmp_path, "eval", spark, argv=[], policies=("fifo",))
    for result in outcomes(spark, ("fifo",)):
        folder.add(result)
    assert "by cause" not in page([folder])
