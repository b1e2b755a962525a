"""The family's policies and placements play the schedules that were recorded."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from support.policy_pins import names_of_family, outcome, placed, schedules, specs

from dagsim.families.fabric.collectives import StepTraffic
from dagsim.families.fabric.communication import ModelTraffic
from dagsim.families.fabric.explicit import Tree, TreeSwitch
from dagsim.families.fabric.shared_network import SharedNetwork
from dagsim.model import Request
from dagsim.testing.cases import Case, random_case

SPECS = [*specs(names_of_family("fabric")), *placed(names_of_family("fabric", "placements"))]
SEEDS = {1: (513, 520, 535, 539), 2: (502, 509, 514, 518, 535, 540, 543)}
"""Cases in which policies and rules differ, by the number of times that each node is there."""
TRAFFIC = ModelTraffic(default=StepTraffic(50.0, 1.0))


def in_racks(case: Case, copies: int) -> Case:
    """The case with two nodes in each rack and gangs that communicate, some of them in one rack or in segments."""
    nodes = tuple(
        replace(node, name=f"{node.name}-{copy}" if copy else node.name)
        for copy in range(copies)
        for node in case.cluster.nodes
    )
    names = [node.name for node in nodes]
    racks = [TreeSwitch(f"rack{at}", tuple(names[at : at + 2])) for at in range(0, len(names), 2)]
    tree = Tree((*racks, TreeSwitch("top", switches=tuple(rack.name for rack in racks))), levels_up=("rack",))
    terms = [
        {},
        {"level": "rack"},
        {"segment": 2},
        {},
        {},
        {"level": "rack", "level_required": False},
        {"segment": 2},
        {},
    ]
    jobs = []
    for at, job in enumerate(case.jobs):
        request = replace(job.request or Request(), **terms[at % len(terms)])  # type: ignore[arg-type]
        jobs.append(replace(job, request=request if request else None))
    models = case.models | {"network": SharedNetwork(tree), "communication": TRAFFIC}
    return replace(case, cluster=replace(case.cluster, nodes=nodes), jobs=jobs, models=models)


@cache
def cases_in_racks() -> list[Case]:
    return [in_racks(random_case(seed), copies) for copies, seeds in SEEDS.items() for seed in seeds]


@pytest.mark.parametrize(("spec", "cases"), SPECS)
def test_a_policy_plays_the_schedules_that_were_recorded(spec: str, cases: int, pinned: Callable[..., None]) -> None:
    pinned(spec, schedules(spec, cases))


@pytest.mark.parametrize("spec", [spec for spec, _ in SPECS])
def test_a_policy_plays_the_schedules_in_racks_that_were_recorded(spec: str, pinned: Callable[..., None]) -> None:
    pinned(f"{spec} in racks", " ".join([outcome(case, spec) for case in cases_in_racks()]))


def test_each_policy_and_rule_has_a_schedule_of_its_own_in_racks() -> None:
    kept = json.loads(Path(__file__).with_suffix(".json").read_text())
    digests = [digest for name, digest in kept.items() if name.endswith(" in racks")]
    assert len({*digests}) == len(digests) == len(SPECS)
