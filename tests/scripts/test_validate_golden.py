"""Independent simulators and known optima, through the validation scripts."""

from __future__ import annotations

import csv
import gzip
import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from support.scripting import run_script


def run(script: str, *args: object) -> dict[str, Any]:
    done = run_script(script.removesuffix(".py"), *args, "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.data
def test_highest_level_first_against_the_optima_of_the_standard_task_graphs(data: Path, tmp_path: Path) -> None:
    # An independent highest-level-first; the optimum is never beaten. ``dagsim paper stg`` has the others.
    optimal = tmp_path / "Case50_4_OPT.csv"
    optimal.symlink_to(data / "traces/stg/optimal" / optimal.name)
    output = run("validate_stg.py", "--graphs", data / "traces/stg/stg-50.tar.gz", "--optimal", tmp_path)
    (row,) = output.values()
    assert (round(row["mean_ratio"], 4), row["hits"], row["below_optimum"]) == (1.0115, 97, 0)


@pytest.mark.data
def test_fcfs_and_easy_on_kth_agree_with_an_independent_simulator(data: Path) -> None:
    with (data / "golden/swf/independent_kth.csv").open(newline="") as file:
        golden = {row["scheduler"]: row for row in csv.DictReader(file)}
    output = run("validate_swf.py", "--trace", data / "traces/swf/KTH-SP2-1996-2.1-cln.swf.gz", "--processors", 100)
    for name in ("FCFS", "EASY"):
        for figure in ("mean_wait_s", "mean_bsld"):
            expected = float(golden[name][f"all_jobs_{figure}"])
            assert output[name.lower()][figure] == pytest.approx(expected, rel=1e-12)


@pytest.mark.data
def test_rlschedulers_tables_come_out_to_the_digits(data: Path) -> None:
    golden = json.loads((data / "golden/swf/rlscheduler_lublin1.json").read_text())["Lublin-1"]["bsld"]
    log = data / "traces/swf/lublin_256.swf.gz"
    output = run("validate_rlscheduler.py", "--trace", log, "--processors", 256, "--policies", "F1")
    for backfilling in ("bf0", "bf1"):
        expected = golden[backfilling]["mean"]["F1"]
        assert output[backfilling]["F1"] == pytest.approx(expected, rel=1e-12), backfilling


@pytest.mark.data
def test_rlschedulers_published_cells_on_hpc2n_come_out(data: Path) -> None:
    trace = data / "traces/swf/HPC2N-2002-2.2-cln.swf.gz"
    # ``dagsim paper rlscheduler`` has all of them; SJF takes the least time.
    output = run(
        "validate_rlscheduler.py", "--trace", trace, "--processors", 240, "--first", 10_000, "--policies", "SJF"
    )
    published = {"bf0": 157.71, "bf1": 122.04}
    for backfilling, cell in published.items():
        assert output[backfilling]["SJF"] == pytest.approx(cell, abs=0.005 + 1e-6), backfilling


@pytest.mark.data
def test_fcfs_and_easy_on_ctc_agree_with_a_plain_loop(data: Path, tmp_path: Path) -> None:
    # Its first 12,000 lines; ``validate_all.py`` plays all 77,222, and holds FCFS to a third simulator.
    trace = tmp_path / "ctc.swf.gz"
    with gzip.open(data / "traces/swf/CTC-SP2-1996-3.1-cln.swf.gz", "rt") as full, gzip.open(trace, "wt") as cut:
        cut.writelines(islice(full, 12_000))
    output, expected = (
        run(script, "--trace", trace, "--processors", 338) for script in ("validate_swf.py", "batch_loop.py")
    )
    for policy in ("fcfs", "easy"):
        for figure in ("mean_wait_s", "mean_bsld"):
            assert output[policy][figure] == pytest.approx(expected[policy][figure], rel=1e-12)


@pytest.mark.data
def test_workflows_take_their_critical_paths(data: Path, tmp_path: Path) -> None:
    # Every eighth file; ``validate_all.py`` runs all 167.
    folder, table = data / "traces/wfcommons", tmp_path / "stats.csv"
    head, *rows = (folder / "STATS.csv").read_text().splitlines(keepends=True)
    table.write_text("".join([head, *rows[::8]]))
    output = run("validate_wfcommons.py", "--traces", folder, "--stats", table)
    assert output["files"] == output["same_shape"] == 21
    assert output["largest_difference_s"] <= 0.05 + 1e-9  # the table is rounded to a tenth


@pytest.mark.data
def test_fifo_starts_every_job_of_cirrus_when_elastisim_does(data: Path) -> None:
    folder = data / "traces/epcc-cirrus"
    log, played = (folder / f"{name}.csv.gz" for name in ("2024_Q1_CPU-sacct-subset", "elastisim-rigid-job_statistics"))
    output = run("validate_cirrus.py", "--log", log, "--elastisim", played)
    assert (output["jobs"], output["starts_that_differ"]) == (1_069, 0)
    assert output["waits_s"]["fifo"] == output["waits_s"]["ElastiSim, FCFS"]
