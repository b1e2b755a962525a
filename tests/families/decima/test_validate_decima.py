"""``scripts/validate_decima.py`` and ``bench_decima.py``: a workload file in, completion times and rates out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.scripting import run_script

from dagsim.families.spark.api import RecordedDurations, SparkJob, write_dump


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    """Two jobs on one executor: 2 s travel and 1 + 1 s, then 2 s travel and 0.5 s."""
    path = tmp_path / "w.json.gz"
    jobs = [
        SparkJob.of("0", [RecordedDurations((1000.0, 1000.0), 1)]),
        SparkJob.of("1", [RecordedDurations((500.0,), 1)]),
    ]
    write_dump(path, jobs, 1)
    return path


def test_completion_times_are_printed_by_policy(workload: Path) -> None:
    result = run_script("validate_decima", "--workload", workload, "--json")
    row = {"mean_jct_s": 5.25, "jct_s": [4.0, 6.5]}
    assert json.loads(result.stdout) == {"fair": row, "fifo": row}


def test_a_difference_fails_and_is_printed(workload: Path, tmp_path: Path) -> None:
    expected = tmp_path / "expected.json"
    expected.write_text(run_script("validate_decima", "--workload", workload, "--json").stdout)
    same = run_script("validate_decima", "--workload", workload, "--expected", expected)
    assert same.returncode == 0
    assert "largest difference 0 s" in same.stdout
    expected.write_text(expected.read_text().replace("6.5", "6.75"))
    other = run_script("validate_decima", "--workload", workload, "--expected", expected)
    assert other.returncode == 1
    assert "largest difference 0.25 s" in other.stdout


def test_the_number_of_executors_can_be_given(workload: Path) -> None:
    result = run_script("validate_decima", "--workload", workload, "--executors", 3, "--json")
    assert json.loads(result.stdout)["fifo"]["jct_s"] == [3.0, 2.5]


@pytest.mark.parametrize("script", ["validate_decima", "bench_decima"])
def test_a_missing_workload_is_said_without_a_traceback(tmp_path: Path, script: str) -> None:
    result = run_script(script, "--workload", tmp_path / "none.json")
    assert result.returncode == 2
    assert "none.json" in result.stderr
    assert "Traceback" not in result.stderr


def test_rates_are_printed_by_policy(workload: Path) -> None:
    rates = json.loads(run_script("bench_decima", "--workload", workload, "--repeats", 1, "--json").stdout)
    assert rates["fair"]["tasks"] == rates["fifo"]["tasks"] == 3
    assert rates["fair"]["tasks_per_cpu_s"] > 0
    assert rates["fifo"]["mean_jct_s"] == 5.25
