"""``gavel`` against Gavel's simulator, through the validation script."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from support.scripting import run_script

CELLS = [
    "artifact_evaluation_2-0-4_isolated_s0",
    "max_min_fairness_8-16-24_max_min_fairness_perf_s0",
    "minimize_makespan_8-16-24_fifo_perf_s0",
    "single16_2-2-2_allox_s0",
    "single16_2-2-2_fifo_packed_s0",
    "single16_2-2-2_finish_time_fairness_packed_s0",
    "single16_2-2-2_finish_time_fairness_perf_s0",
]
OTHER_PROGRAMS = {  # with known shares, a program of the same kind that dagsim does not solve plays alike
    "single16_2-2-2_max_min_fairness_perf_s0": "max_sum_throughput_normalized_by_cost_perf_SLOs",
    "artifact_evaluation_2-0-4_max_min_fairness_s0": "max_sum_throughput",
}


@pytest.mark.data
@pytest.mark.parametrize("cell", [*CELLS, *OTHER_PROGRAMS])
def test_every_job_completes_when_it_did_in_gavels_simulator(data: Path, tmp_path: Path, cell: str) -> None:
    with gzip.open(data / f"golden/elastic/gavel/{cell}.json.gz", "rt") as file:
        recorded = json.load(file)
    recorded["policy"] = OTHER_PROGRAMS.get(cell, recorded["policy"])
    expected = {job["job"]: job.pop("jct") for job in recorded["jobs"]}
    end_s, mean_s = recorded.pop("total_s"), recorded.pop("mean_jct_s")
    del recorded["rounds"], recorded["dropped"]
    (tmp_path / "cell.json").write_text(json.dumps(recorded))
    inputs = data / "golden/elastic/inputs"
    done = run_script("validate_gavel", "--cell", tmp_path / "cell.json", "--inputs", inputs, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert {row["job"]: row["jct"] for row in result["jobs"]} == pytest.approx(expected, abs=1e-6)
    assert result["mean_jct_s"] == pytest.approx(mean_s, abs=1e-6)
    assert result["end_s"] == pytest.approx(end_s, abs=1e-6)


@pytest.mark.data
@pytest.mark.parametrize("policy", ["max_min_fairness_perf", "finish_time_fairness_perf", "min_total_duration_perf"])
def test_own_shares_give_a_mean_within_3_percent(data: Path, policy: str) -> None:
    golden = data / "golden/elastic"
    cell = golden / f"gavel/artifact_evaluation_2-0-4_{policy}_s0.json.gz"
    done = run_script("validate_gavel", "--cell", cell, "--inputs", golden / "inputs", "--own")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_cell_that_lacks_its_policy_is_said_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "cell.json").write_text("{}")
    done = run_script("validate_gavel", "--cell", tmp_path / "cell.json", "--inputs", tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
