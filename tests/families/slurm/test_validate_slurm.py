"""scripts/validate_slurm.py on the real runs of Slurm, and on a small log of our own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.scripting import run_script

ROOT = Path(__file__).parents[3]


def validated(folder: Path) -> Any:
    done = run_script("validate_slurm", "--run", folder, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_accounting_counts_every_attempt(tmp_path: Path) -> None:
    (tmp_path / "sacct-aDX.txt").write_bytes((ROOT / "workloads" / "samples" / "sacct" / "jobs.txt").read_bytes())
    # 500: 2 x 3600, 501_1: 3632, 503: 16 x 600, 505: 300 + 100 + 500, 507: 0, 508: 300 (a slice counts), 510: 990;
    # 503+1 and 509 hold no GPU; 5 array tasks and 506 never ran
    counts = validated(tmp_path)["accounting"]
    assert counts == {"jobs": 9, "attempts": 11, "attempt_gpu_seconds": 22622, "never_ran": 6}


@pytest.mark.data
@pytest.mark.parametrize(("run", "rows"), [("multifactor-fairtree-24.11", 150), ("multifactor-classic-22.05", 135)])
def test_priorities_are_those_that_slurmctld_logged(data: Path, run: str, rows: int) -> None:
    priorities = validated(data / "golden" / "slurm" / run)["priorities"]
    assert (priorities["rows"], priorities["wrong_totals"]) == (rows, 0)
    assert priorities["worst_factor"] < 1e-5
    assert priorities.get("worst_classic_fair_share", 0) < 0.07


@pytest.mark.data
def test_backfill_starts_jobs_in_the_order_of_slurm(data: Path) -> None:
    first = validated(data / "golden" / "slurm" / "backfill-nodes-24.11")["starts"]
    assert (first["jobs"], first["order_differs"], first["tie_rule"]) == (25, 0, "wait")
    assert first["worst_gap_s"] <= 4
    again = validated(data / "golden" / "slurm" / "backfill-nodes-again-24.11")["starts"]
    assert (again["jobs"], again["order_differs"], again["tie_rule"]) == (23, 0, "wait")
    assert again["worst_gap_s"] <= 6


@pytest.mark.data
@pytest.mark.parametrize(("run", "jobs"), [("multifactor-fairtree-24.11", 25), ("multifactor-classic-22.05", 29)])
def test_jobs_that_share_nodes_start_nearly_in_the_order_of_slurm(
    data: Path, run: str, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    import validate_slurm

    monkeypatch.setattr(validate_slurm, "_LAGS_S", (0.0, 0.5))
    monkeypatch.setattr(validate_slurm, "_TIES", ("wait",))
    starts = validate_slurm.starts(data / "golden" / "slurm" / run)
    assert starts["jobs"] == jobs
    assert starts["order_differs"] <= 2
    assert starts["median_gap_s"] <= 2
