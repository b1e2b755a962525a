"""An old name leads to the one that replaced it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagsim.config.schema import Config, load_config
from dagsim.errors import ConfigError
from dagsim.metrics import glossary
from dagsim.renamed import NEW_NAMES, new_name
from dagsim.spelling import nearest

METRICS = [term.name for term in glossary()]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("slowdown.mean", "stretch.mean"),
        ("bounded_slowdown_hpc.p99", "bounded_slowdown.p99"),
        ("queue_mean", "mean_queue_length"),
        ("jain", "jain_fairness_index"),
        ("tenant[ann].bounded_slowdown_hpc.mean", "tenant[ann].bounded_slowdown.mean"),
    ],
)
def test_an_error_about_an_old_metric_names_the_new_one(old: str, new: str) -> None:
    assert nearest(old, METRICS) == f"; it is now called {new!r}"


def test_no_old_name_is_a_name_still() -> None:
    stems = {name.partition(".")[0] for name in METRICS}
    assert not stems & NEW_NAMES.keys()
    assert not set(Config.model_fields) & NEW_NAMES.keys()


def test_an_old_name_of_something_else_leads_nowhere() -> None:
    assert new_name("slowdown", ["factor", "placement"]) is None
    assert new_name("jct_s.mean", METRICS) is None


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("disturbances: []\n", "failures"),
        ("workload: {load_is: exact}\n", "load_mode"),
        ("preemption: {interval_s: 60}\n", "checkpoint_interval_s"),
        ("workload: {sizes: {claim: 2}}\n", "requested_factor"),
    ],
)
def test_an_error_about_an_old_key_names_the_new_one(text: str, new: str, tmp_path: Path) -> None:
    file = tmp_path / "old.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=f"there is no such key; it is now called '{new}'"):
        load_config(file)


def test_upper_case_leads_to_the_name_in_lower_case() -> None:
    assert nearest("SJF", ["fifo", "sjf"]) == "; did you mean 'sjf'?"
    assert nearest("a100-40", ["A100-40", "T4"]) == "; did you mean 'A100-40'?"
