"""``scripts/check_inputs.py``: files of real tools are read as they were meant, or a note says why not."""

from __future__ import annotations

import json

import pytest
from support.scripting import run_script

pytestmark = pytest.mark.family("formats", "kubernetes", "pbs", "slurm")  # the script writes logs of each


def test_no_variant_differs_in_silence() -> None:
    done = run_script("check_inputs", "--count", 120, "--json")
    assert done.returncode == 0, done.stdout
    outcomes = json.loads(done.stdout)
    assert len(outcomes) >= 6
    for name, counts in outcomes.items():
        assert counts["equal"] > 0.6 * sum(counts.values()), name


def test_a_difference_that_no_note_tells_of_is_found(monkeypatch: object) -> None:
    import check_inputs

    truth = check_inputs.Known.of
    shifted = classmethod(lambda cls, job, seconds=None: truth(job, (seconds or job.work_s) + 1))
    monkeypatch.setattr(check_inputs.Known, "of", shifted)  # type: ignore[attr-defined]
    assert run_script("check_inputs", "--count", 6, "--json").returncode == 1
