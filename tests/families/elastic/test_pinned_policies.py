"""The family's policies play the schedules that were recorded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.policy_pins import names_of_family, schedules, specs


@pytest.mark.parametrize(("spec", "cases"), specs(names_of_family("elastic")))
def test_a_policy_plays_the_schedules_that_were_recorded(spec: str, cases: int, pinned: Callable[..., None]) -> None:
    pinned(spec, schedules(spec, cases))
