"""``scripts/stress.py``: every policy on random cases, and a policy that does wrong."""

from __future__ import annotations

import pytest
import stress


def test_every_policy_and_placement_keeps_every_promise_under_stress() -> None:
    specs = stress.specs()
    assert {spec.partition("[")[0] for spec in specs} >= {"easy-events", "rollout", "srtf", "plan-ahead"}
    assert any("placement=fgd" in spec for spec in specs)
    assert [(spec, case, messages) for spec, case, messages in stress.stress(len(specs), 5000, specs) if messages] == []


def test_the_stress_script_reports_what_a_policy_does_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    assert any("Stalled" in message for _, _, all_ in stress.stress(4, 0, [f"{__name__}:Idle"]) for message in all_)


class Idle:
    def decide(self, view: object) -> tuple[()]:
        return ()
