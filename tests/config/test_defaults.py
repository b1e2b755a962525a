"""Settings that the user leaves out."""

from __future__ import annotations

import pytest
from support.schema_defaults import can_be_made, classes, own_defaults, shipped


@pytest.mark.parametrize("cls", [*classes("dagsim.config"), *classes("dagsim.model")], ids=lambda cls: cls.__name__)
def test_defaults_are_those_of_the_shipped_schema(cls: type) -> None:
    expected = shipped()[cls.__name__]
    for name, value in own_defaults(cls).items():
        assert expected.get(name, value) == value, name
    if can_be_made(cls):
        cls()  # they go together
