from __future__ import annotations

import pytest

from dagsim.errors import ConfigError
from dagsim.experiment.tune import TUNABLE, candidates, grid_of
from dagsim.seeds import REPORT, TRAIN, VALIDATION, seeds_of
from dagsim.systems.cluster.policies import POLICIES


def test_every_combination_is_tried_after_the_policy_itself() -> None:
    assert candidates("p[a=1]", {"b": (2, 3), "c": (True,)}) == ("p[a=1]", "p[a=1,b=2,c=true]", "p[a=1,b=3,c=true]")


def test_values_are_given_or_kept() -> None:
    assert grid_of("eft-wait", ["theta=0.5,1"]) == {"theta": (0.5, 1)}
    assert grid_of("eft-wait[theta=0.9]") == dict(TUNABLE["eft-wait"])
    with pytest.raises(ConfigError, match=r"'fifo' has no default values to try; give --param"):
        grid_of("fifo")
    with pytest.raises(ConfigError, match="expected NAME=VALUE,VALUE"):
        grid_of("eft-wait", ["theta"])


def test_too_many_combinations_are_a_mistake() -> None:
    with pytest.raises(ConfigError, match="more than 2000 combinations"):
        candidates("p", {"a": range(50), "b": range(50)})


@pytest.mark.parametrize("name", TUNABLE)
def test_every_value_kept_for_a_policy_makes_one(name: str) -> None:
    for spec in candidates(name, TUNABLE[name]):
        POLICIES.create(spec)


def test_seeds_of_one_purpose_serve_no_other() -> None:
    assert not set(TRAIN) & set(VALIDATION)
    assert not (set(TRAIN) | set(VALIDATION)) & set(REPORT)
    assert seeds_of(VALIDATION, 2) == (2_000_000, 2_000_001)
    with pytest.raises(ConfigError, match="between 1 and 1,000,000"):
        seeds_of(REPORT, 0)
