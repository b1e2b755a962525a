"""Every policy of the core plays the schedules that were recorded, on difficult random cases; families pin their own.

A number that changes anywhere in a policy, the kernel or a model shows as a difference here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.policy_pins import placed, schedules, specs

from dagsim.family import added_names, families
from dagsim.systems.cluster.policies import PLACEMENT_RULES, POLICIES

LEFT_OUT = ("recorded",)
"""It needs a trace."""
FEW = {
    "rollout": 6,
    "plan-ahead": 6,
    "peft": 12,
    "dls": 12,
}
"""Number of cases of policies that take long."""
MORE = {
    "2d-gittins": ["quantum_s=2,history=[1,2,8]"],
    "allox": ["window=2"],
    "energy-saver": ["slowdown=1.05", "slowdown=4"],
    "plan-ahead": ["window=3,slots=2"],
    "power-cap": ["watts=300", "watts=900"],
    "priority": ["ageing=0.5"],
    "qssf": ["memory=0.2"],
    "tetris": ["srpt=0", "srpt=4"],
    "2d-las": ["quantum_s=2", "quantum_s=2,lead=0.5"],
    "committed": ["score=sjf", "score=f1,backfill=true"],
    "drf": ["by=job"],
    "eft-wait": ["theta=0.5", "order=work", "order=path,theta=0.8"],
    "las": ["quantum_s=2", "quantum_s=2,lead=0.5"],
    "max-min-fair": ["by=job"],
    "rollout": ["base=sjf,width=2"],
    "round-robin": ["quantum_s=2"],
    "tiresias": ["quantum_s=1,thresholds=3", "quantum_s=2,thresholds=[2,6],promote=2"],
    "weighted-fair": ["alpha=-1", "alpha=0.5,by=tenant"],
}
NAMES = [name for name in POLICIES.names() if name not in (*LEFT_OUT, *added_names("policies"))]
RULES = [rule for rule in PLACEMENT_RULES.names() if rule not in added_names("placements")]


@pytest.mark.parametrize(("spec", "cases"), [*specs(NAMES, MORE, FEW), *placed(RULES)])
def test_a_policy_plays_the_schedules_that_were_recorded(spec: str, cases: int, pinned: Callable[..., None]) -> None:
    pinned(spec, schedules(spec, cases))


def test_every_policy_is_pinned() -> None:
    assert set(LEFT_OUT) < set(POLICIES.names())
    adding = [name for name, family in families().items() if {"policies", "placements"} & family.adds.keys()]
    folder = Path(__file__).parents[3] / "families"
    assert [name for name in adding if not (folder / name / "test_pinned_policies.py").is_file()] == []
