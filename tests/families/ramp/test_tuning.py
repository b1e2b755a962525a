"""``scripts/tune_ramp.py`` and ``teach_ramp.py`` play the episodes of the kernel."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import numpy as np
import pytest

from dagsim.families.ramp.api import RampScenario
from dagsim.families.ramp.policies import RoomWeights, Roomy


def _plain(name: str) -> ModuleType:
    """The script in plain Python: compiling it takes longer than the test."""
    numba = pytest.importorskip("numba")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numba.config, "DISABLE_JIT", True)
        patch.delitem(sys.modules, name, raising=False)
        module = importlib.import_module(name)
    sys.modules.pop(name)
    return module


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return _plain("tune_ramp")


def test_an_episode_turns_away_as_many_jobs_as_the_kernel(script: ModuleType) -> None:
    made_up = RampScenario().pool[:5]
    world = RampScenario(
        topology="ramp[groups=2,racks=2,servers_per_rack=2]", ddls=True, rules={"remembered": False}, jobs=40, gap_s=0.2
    ).drawing_from(made_up)
    rate = script.Blocking(world)
    numbers = np.random.default_rng(3).normal(0, 0.5, 81)
    numbers[-5:] = [-0.6, -0.3, -20, -0.1, -20]
    scarcity, blocks, degrees, away = script.weights_of(numbers, rate.counts)
    policy = Roomy()
    policy.weights = RoomWeights(
        scarcity,
        blocks,
        dict(zip(script.DEGREES, degrees.tolist(), strict=True)),
        {graph.model: float(worth) for graph, worth in zip(made_up, away, strict=True)},
    )
    kernel = world.kernel(1)
    kernel.run(policy)
    blocked = [outcome.reason is not None for outcome in kernel.outcomes]
    assert rate(numbers, [1]) == np.mean(blocked)
    assert 0 < np.mean(blocked) < 1
    assert len({outcome.degree for outcome in kernel.outcomes}) > 1


def test_the_teacher_places_jobs_where_first_fit_does() -> None:
    teacher = _plain("teach_ramp")
    world = RampScenario(topology="ramp[groups=2,racks=2,servers_per_rack=2]", ddls=True)
    model, planner = teacher.model_of(world), world.planner
    placements = 0
    for occupied in np.random.default_rng(1).integers(256, size=40).tolist():
        for of, graph in enumerate(world.pool):
            for place, degree in enumerate(teacher.DEGREES):
                placement = planner.place(planner.parts(graph, degree), occupied)
                servers = 0 if placement is None else sum(1 << server for server in placement.servers)
                assert teacher._servers(model.blocks, model.takes[of, place], np.uint64(occupied)) == servers
                placements += servers > 0
    assert placements > 100
