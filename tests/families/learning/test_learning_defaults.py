"""Settings that the user leaves out, and settings that cannot be."""

from __future__ import annotations

import pytest
from schema_defaults import can_be_made, classes, own_defaults, shipped

from dagsim.errors import ConfigError
from dagsim.families.decima.decima_settings import DecimaNetConfig
from dagsim.families.learning.nets.net_settings import ScorerConfig


@pytest.mark.parametrize("cls", list(classes("dagsim.families.learning")), ids=lambda cls: cls.__name__)
def test_defaults_are_those_of_the_shipped_schema(cls: type) -> None:
    expected = shipped()[cls.__name__]
    for name, value in own_defaults(cls).items():
        assert expected.get(name, value) == value, name
    if can_be_made(cls):
        cls()  # they go together


@pytest.mark.parametrize("cls", [ScorerConfig, DecimaNetConfig])
@pytest.mark.parametrize("hidden", [0, -1])
def test_a_net_without_units_is_refused(cls: type, hidden: int) -> None:
    with pytest.raises(ConfigError, match="hidden"):
        cls(hidden=hidden)
