"""``scripts/validate_span.py``: spans on an infinite cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "validate_span.py"


def validated(trace: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--trace", str(trace), "--json"], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_span_is_the_critical_path(tmp_path: Path) -> None:
    # M1 takes 10 s and M2 20 s side by side; R3 follows both and takes 5 s: 25 s.
    rows = ("M1,1,j_1,1,Terminated,100,110,50,0.1", "M2,1,j_1,1,Terminated,100,120,50,0.1")
    trace = tmp_path / "batch_task.csv"
    trace.write_text("\n".join((*rows, "R3_1_2,1,j_1,1,Terminated,120,125,50,0.1")) + "\n")
    assert validated(trace) | {"trace": ""} == {"trace": "", "jobs": 1, "mean_s": 25.0, "median_s": 25.0}


def test_a_missing_trace_is_said_without_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--trace", str(tmp_path / "none.csv")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "none.csv" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.data
def test_alibaba_2018_takes_95_seconds_on_average(data: Path) -> None:
    found = validated(data / "traces" / "alibaba-v2018" / "batch_task_random6600.csv.gz")
    assert found["jobs"] == 6535
    assert round(found["mean_s"], 1) == 95.4
    assert found["median_s"] == 6.0
