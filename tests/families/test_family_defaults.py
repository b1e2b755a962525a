"""Settings of families that the user leaves out."""

from __future__ import annotations

import pytest
from support.schema_defaults import can_be_made, classes, own_defaults, shipped

NEED_A_CHOICE = {"ModelTraffic", "PairTable"}
"""Classes that need one of several optional fields."""


@pytest.mark.parametrize("cls", list(classes("dagsim.families")), ids=lambda cls: cls.__name__)
def test_defaults_are_those_of_the_shipped_schema(cls: type) -> None:
    expected = shipped()[cls.__name__]
    for name, value in own_defaults(cls).items():
        assert expected.get(name, value) == value, name
    if can_be_made(cls) and cls.__name__ not in NEED_A_CHOICE:
        cls()  # they go together
