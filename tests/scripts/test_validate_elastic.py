"""Pollux's model and simulator and Sia's program, through the validation scripts."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from statistics import fmean

import pytest
from support.scripting import run_script


@pytest.mark.data
def test_goodput_is_that_of_pollux(data: Path) -> None:
    golden = data / "golden/elastic"
    done = run_script(
        "validate_goodput",
        "--points",
        golden / "pollux/goodput_points.json.gz",
        "--inputs",
        golden / "inputs",
        "--json",
    )
    assert done.returncode == 0, done.stdout  # it ends with 1 if a difference is beyond its tolerance
    assert json.loads(done.stdout)["points"] == 704


@pytest.mark.data
@pytest.mark.parametrize("engine", [(), ("--kernel",)])
@pytest.mark.parametrize(("policy", "mean_s"), [("tiresias", 3469.69375), ("optimus", 5301.875)])
def test_every_job_of_workload_6_takes_the_time_it_took_in_polluxs_simulator(
    data: Path, policy: str, mean_s: float, engine: tuple[str, ...]
) -> None:
    golden = data / "golden/elastic"
    done = run_script(
        "validate_pollux",
        *("--workload", golden / "inputs/pollux/workloads/workloads_workload-6.csv.gz"),
        *("--inputs", golden / "inputs", "--policy", policy, "--json", *engine),
    )
    assert done.returncode == 0, done.stderr
    jobs = json.loads(done.stdout)["jobs"]
    with gzip.open(golden / f"pollux/jobload_{policy}-1.0.json.gz", "rt") as file:
        assert jobs == json.load(file)["jcts"]["workload-6"]
    assert fmean(jobs.values()) == mean_s


@pytest.mark.data
def test_sias_program_reaches_the_recorded_optima(data: Path) -> None:
    instances = data / "golden/elastic/sia/ilp_instances.json.gz"
    done = run_script("validate_sia", "--instances", instances, "--json")
    assert done.returncode == 0, done.stderr
    with gzip.open(instances, "rt") as file:
        recorded = [instance["objective"] for instance in json.load(file)]
    assert json.loads(done.stdout)["objectives"] == pytest.approx(recorded, abs=1e-6)
