"""Every system can be trained on, and has agents and an environment."""

from __future__ import annotations

from dataclasses import replace

import pytest
from systems.worlds import SETTINGS, scenario

from dagsim.config.schema import load_config
from dagsim.errors import ConfigError
from dagsim.experiment.simulate import make_policy
from dagsim.families.learning.agents import shipped_agents
from dagsim.families.learning.environments.make_env import make_env
from dagsim.families.learning.training.train_section import check_training
from dagsim.systems import system_named
from dagsim.systems.seam import drive
from dagsim.testing import check_env

TRAINED = [
    "cluster",
    "mixture",
    pytest.param("ramp", marks=pytest.mark.family("pac_ml")),
    pytest.param("spark", marks=pytest.mark.family("decima")),
]
"""Systems, of which some have nets and environments in families of their own."""


@pytest.mark.parametrize("system", TRAINED)
def test_a_training_of_every_system_has_defaults_that_fit_it(system: str) -> None:
    config = load_config(None, SETTINGS[system][0])
    train = replace(config.training(), reference=SETTINGS[system][1])
    check_training(train, scenario(system))
    assert train.codec.kind in config.whole_system.codecs  # type: ignore[attr-defined]
    assert set(train.rivals) <= set(config.whole_system.policies.names())
    for other in SETTINGS:
        if system_named(other).system != config.whole_system.system:
            with pytest.raises(ConfigError, match=f"is a codec of the system '{config.whole_system.system}'"):
                check_training(train, scenario(other))


@pytest.mark.parametrize("system", TRAINED)
def test_the_agents_that_ship_with_a_system_decide_in_it(system: str) -> None:
    world = scenario(system)
    for name in shipped_agents(world):
        drive(world.kernel(1), make_policy(world, name), 2000.0)


@pytest.mark.parametrize("system", TRAINED)
def test_every_system_has_an_environment_that_keeps_gymnasium_s_contract(system: str) -> None:
    codec = {"codec": "relative"} if system == "mixture" else {}
    check_env(lambda: make_env(load_config(None, SETTINGS[system][0]), **codec))


def test_an_environment_needs_a_codec_that_fits_all_worlds_of_a_mixture() -> None:
    with pytest.raises(
        ConfigError, match="in this scenario every seed has its own GPU types; use the codec 'relative'"
    ):
        make_env(load_config(None, SETTINGS["mixture"][0]))
