"""``scripts/validate_site.py`` on real runs of Slurm, and on a site of our own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.scripting import run_script

ROOT = Path(__file__).parents[3]


def validated(folder: Path, code: int = 0) -> Any:
    done = run_script("validate_site", "--run", folder, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)[folder.name]


def relative(pair: Any) -> float:
    return float(pair["simulated_s"]["mean"] / pair["observed_s"]["mean"] - 1)


@pytest.mark.family("benchmark", "slurm")
@pytest.mark.data
def test_an_imported_site_waits_as_long_as_its_log(data: Path) -> None:
    waits = validated(data / "golden" / "slurm" / "site-A")
    assert waits["total"]["jobs"] == 742
    assert abs(relative(waits["total"])) <= 0.10
    large = {name: relative(pair) for name, pair in waits["by_tenant"].items() if pair["jobs"] > 100}
    assert sorted(large) == ["bio", "chem", "nlp", "vision"]
    assert max(map(abs, large.values())) <= 0.25
    assert waits["median_abs_log_ratio"] <= 0.25
    assert waits["early"] == 0


@pytest.mark.family("benchmark", "slurm")
def test_a_site_that_misses_its_gates_ends_with_1(tmp_path: Path) -> None:
    # The log of this sample comes from EASY, not from Slurm
    for name in ("sacct.txt.gz", "nodes.txt"):
        shutil.copy(ROOT / "workloads" / "site" / name, tmp_path / name)
    (tmp_path / "slurm.conf").write_text("ClusterName=sample\nPartitionName=gpu Nodes=ALL Default=YES\n")
    waits = validated(tmp_path, code=1)
    assert (waits["total"]["jobs"], waits["early"]) == (500, 0)
    assert max(abs(relative(pair)) for pair in waits["by_tenant"].values() if pair["jobs"] > 100) > 0.25
