"""``tiresias-events`` against Tiresias' own simulator, through the validation script."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from support.scripting import run_script

from dagsim.families.tiresias.simulator import tiresias_indices

RUNS = [
    "x20_2_dlas-gpu",
    "x20_4_dlas-gpu-1",
    "x20_2_dlas",
    "x20_2_dlas-gpu-gittins",
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
        *("--inputs", inputs.parent),
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


def test_gittins_without_a_distribution_is_refused_with_the_option_that_gives_it(tmp_path: Path) -> None:
    done = run_script("validate_tiresias", "--jobs", tmp_path, "--cluster", tmp_path, "--schedule", "dlas-gpu-gittins")
    assert done.returncode == 2
    assert "needs --inputs" in done.stderr


def test_the_gittins_index_weighs_the_chance_to_end_soon_against_the_service_it_takes() -> None:
    # Of the tasks 1,000, 2,000 and 9,000 GPU-seconds long, two of three end within 3,250 GPU-seconds from 999 on,
    # after (1,000 + 2,000 + 3,250) // 3 = 2,083 GPU-seconds on average.
    assert tiresias_indices((1000, 2000, 9000)) == [round(0.66667e6 / 2083, 4), round(0.5e6 / 2625, 4), 0.0]
