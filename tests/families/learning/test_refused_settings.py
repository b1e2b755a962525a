"""Settings that cannot be."""

from __future__ import annotations

import pytest

from dagsim.errors import ConfigError
from dagsim.families.decima.decima_settings import DecimaNetConfig
from dagsim.families.learning.nets.net_settings import ScorerConfig
from dagsim.families.learning.off_policy import D3qnConfig, RainbowConfig, SacConfig
from dagsim.families.learning.on_policy import PpoConfig, ReinforceConfig


@pytest.mark.parametrize("cls", [ScorerConfig, DecimaNetConfig])
@pytest.mark.parametrize("hidden", [0, -1])
def test_a_net_without_units_is_refused(cls: type, hidden: int) -> None:
    with pytest.raises(ConfigError, match="hidden"):
        cls(hidden=hidden)


@pytest.mark.parametrize(
    ("cls", "names"),
    [
        (PpoConfig, "sequences lr epochs minibatch clip target_kl max_grad"),
        (ReinforceConfig, "sequences lr max_grad"),
        (D3qnConfig, "episodes lr updates minibatch replay n_step"),
        (SacConfig, "episodes lr updates minibatch replay n_step temperature"),
    ],
)
def test_an_algorithm_refuses_settings_that_are_not_positive(cls: type, names: str) -> None:
    for name in names.split():
        with pytest.raises(ConfigError, match=f"{name} must be positive, got 0"):
            cls(**{name: 0})


def test_a_distribution_of_returns_has_two_values_or_more() -> None:
    assert RainbowConfig(atoms=2).atoms == 2
    with pytest.raises(ConfigError, match="atoms must be 2 or more, got 1"):
        RainbowConfig(atoms=1)
    for support in ((1.0, 1.0), (2.0, -1.0)):
        with pytest.raises(ConfigError, match="support must be two values"):
            RainbowConfig(support=support)
