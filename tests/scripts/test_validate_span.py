"""``scripts/validate_span.py``: spans on an infinite cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.scripting import run_script


def validated(trace: Path) -> dict[str, float]:
    return json.loads(run_script("validate_span", "--trace", trace, "--json").stdout)


@pytest.mark.family("formats")
def test_span_is_the_critical_path(tmp_path: Path) -> None:
    # M1 takes 10 s and M2 20 s side by side; R3 follows both and takes 5 s: 25 s.
    rows = ("M1,1,j_1,1,Terminated,100,110,50,0.1", "M2,1,j_1,1,Terminated,100,120,50,0.1")
    trace = tmp_path / "batch_task.csv"
    trace.write_text("\n".join((*rows, "R3_1_2,1,j_1,1,Terminated,120,125,50,0.1")) + "\n")
    assert validated(trace) | {"trace": ""} == {"trace": "", "jobs": 1, "mean_s": 25.0, "median_s": 25.0}


@pytest.mark.family("formats")
@pytest.mark.data
def test_alibaba_2018_takes_95_seconds_on_average(data: Path) -> None:
    span = validated(data / "traces" / "alibaba-v2018" / "batch_task_random6600.csv.gz")
    assert span["jobs"] == 6535
    assert round(span["mean_s"], 1) == 95.4
    assert span["median_s"] == 6.0
