"""What policies state beside ``decide``."""

from __future__ import annotations

import pytest

from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.seam import stated
from dagsim.testing.contract import misspelt


class Forgetful:
    forget = "its plans"
    note = "an own attribute of any other name is fine"


def test_a_policy_that_states_nothing_has_the_usual_values() -> None:
    assert stated(object(), "forgets") == ""
    assert stated(object(), "rehearses") is True
    assert stated(object(), "outlook") is None


def test_a_statement_that_nobody_may_make_is_refused() -> None:
    with pytest.raises(AttributeError, match="forget"):
        stated(Forgetful(), "forget")


def test_an_attribute_that_is_almost_a_statement_is_found() -> None:
    assert misspelt(Forgetful()) == {"forget": "forgets"}


@pytest.mark.parametrize("name", POLICIES.names())
def test_no_policy_misspells_a_statement(name: str) -> None:
    assert not misspelt(POLICIES.create(name))
