"""A closed form of what failures cost, and the simulation."""

from __future__ import annotations

import json

import pytest
from support.scripting import run_script


def test_a_ratio_of_training_time_agrees_with_the_closed_form() -> None:
    done = run_script("validate_failures", "--jobs", 500, "--json")
    result = json.loads(done.stdout)
    assert len(result["ratios"]) == 20
    assert result["ratio"] == pytest.approx(result["exact"], rel=0.01)
    assert result["first_order"] == pytest.approx(1 - 0.8 / 86_400 * (300 + 1800))
