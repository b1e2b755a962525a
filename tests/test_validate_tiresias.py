"""``tiresias-events`` against Tiresias' own simulator, through the validation script."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from scripting import run_script

RUNS = [
    "x20_2_dlas-gpu",
    "x20_4_dlas-gpu-1",
    "x20_2_dlas",
    "x20_2_shortest-gpu",
    "out_4_sjf",
    "out_4_fjf",
    "x20_2_fifo",
]


@pytest.mark.data
@pytest.mark.parametrize("name", RUNS)
def test_every_job_starts_and_ends_when_it_did_in_tiresias_simulator(data: Path, name: str) -> None:
    jobs, nodes, schedule = name.split("_")
    inputs = data / "golden/elastic/inputs/tiresias"
    done = run_script(
        "validate_tiresias",
        *("--jobs", inputs / ("60_job.csv" if jobs == "out" else "60_job_x20.csv")),
        *("--cluster", inputs / f"c{nodes}.csv", "--schedule", schedule, "--json"),
    )
    assert done.returncode == 0, done.stderr
    with (data / f"golden/elastic/tiresias/{name}.csv").open() as file:
        rows = list(csv.DictReader(file))
    columns = {"start": "start_time", "end": "end_time", "preemptions": "preempt", "promotions": "promote"}
    expected = {row["job_id"]: {name: int(row[column]) for name, column in columns.items()} for row in rows}
    assert json.loads(done.stdout)["jobs"] == expected


def test_an_unknown_schedule_is_said_with_those_that_exist(tmp_path: Path) -> None:
    done = run_script("validate_tiresias", "--jobs", tmp_path, "--cluster", tmp_path, "--schedule", "gitins")
    assert done.returncode == 2
    assert "must be one of fifo, fjf" in done.stderr
