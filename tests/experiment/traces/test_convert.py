"""Converting a trace keeps its jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagsim.errors import ConfigError
from dagsim.experiment.traces.convert import convert
from dagsim.workload.jsonl import read_jobs
from dagsim.workload.readers import open_trace

SAMPLES = Path(__file__).parents[3] / "workloads" / "samples"


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz"])
def test_the_jobs_are_those_of_the_trace(tmp_path: Path, ending: str) -> None:
    source = next(path for path in sorted((SAMPLES / "swf").iterdir()) if ".swf" in path.name)
    report = convert(source, tmp_path / f"out{ending}", "swf")
    jobs = list(read_jobs(tmp_path / f"out{ending}"))
    assert jobs == list(open_trace(source, "swf").jobs())
    assert report.jobs == len(jobs) > 0


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="jsonl"):
        convert(SAMPLES / "swf", tmp_path / "out.csv")
