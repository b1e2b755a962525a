"""The family's policies play the schedules that were recorded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.policy_pins import names_of_family, schedules, specs

MORE = {
    # Not min_total_duration_perf: which of several optima of its program the solver returns depends on the processor.
    "gavel": [f"policy={name},round_s=2,gap_s=5" for name in ("isolated", "fifo_perf")],
    "gavel-events": ["round_s=2", "round_s=3,objective=makespan", "round_s=3,objective=cost", "round_s=3,window=2"],
}
FEW = {"gavel": 12, "gavel-events": 12}


@pytest.mark.parametrize(("spec", "cases"), specs(names_of_family("gavel"), MORE, FEW))
def test_a_policy_plays_the_schedules_that_were_recorded(spec: str, cases: int, pinned: Callable[..., None]) -> None:
    pinned(spec, schedules(spec, cases))
