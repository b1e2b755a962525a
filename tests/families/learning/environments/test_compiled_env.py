"""A single environment in the compiled engine: the same as one in the kernel."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from families.learning.environments.comparing import assert_same

from dagsim.families.compiled import jit
from dagsim.families.episodes.side_by_side import CompiledEpisodes
from dagsim.families.learning.codecs.further import DerivedColumns
from dagsim.families.learning.column_rewards import ColumnReward
from dagsim.families.learning.environments.compiled_env import CompiledSchedulingEnv
from dagsim.families.learning.environments.make_env import make_env
from dagsim.families.learning.environments.scheduling_env import SchedulingEnv
from dagsim.model import Kind
from dagsim.systems.cluster.policies import POLICIES

pytestmark = [
    pytest.mark.family("episodes"),
    pytest.mark.skipif(not jit.jitted(), reason="numba is not installed"),
    pytest.mark.filterwarnings("ignore:.*is not legal now"),
    pytest.mark.timeout(600),  # the first run on a machine compiles
]

FEW = ["workload.count=8"]


def both(*settings: str, **changes: Any) -> tuple[CompiledSchedulingEnv, SchedulingEnv]:
    """The environment in the compiled engine, and in the kernel."""
    slow = make_env("heterogeneous-dag", [*FEW, *settings, "engine=simpy"], **changes)
    scenario = make_env("heterogeneous-dag", [*FEW, *settings], **changes).scenario
    return CompiledSchedulingEnv(scenario, slow.config, changes.get("render_mode")), slow


def steps(env: SchedulingEnv, other: SchedulingEnv, seed: int, most: int = 10_000) -> int:
    """Take the same random actions in both, a few of them illegal, and compare what they return."""
    rng = np.random.default_rng(seed)
    assert_same(env.reset(seed=seed), other.reset(seed=seed))
    for count in range(most):
        mask = other.action_masks()
        assert_same(env.action_masks(), mask)
        action = int(rng.choice(np.flatnonzero(mask))) if rng.random() < 0.95 else int(rng.integers(70))
        shown = env.step(action)
        assert_same(shown, other.step(action))
        if shown[2] or shown[3]:
            return count
    return most


class Derived(DerivedColumns):
    names = ("crowd", "wide")
    of = ("log_area", "running", "gpus")

    def derive(self, **column: np.ndarray) -> np.ndarray:
        return np.stack([np.exp(column["log_area"]) / (1 + column["running"]), np.log1p(column["gpus"])], axis=1)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"codec": Derived(), "slots": 12},
        {"codec": Derived(), "observation": "flat"},
        {"observation": "flat"},
        {"observation": "candidates", "reward": {"job_seconds": 2.0}, "reward_scale": 10.0},
        {"slots": 4, "max_steps": 15},
        {"horizon_s": 2000.0, "pool": 4},
        {"codec": {"kind": "relative"}},
    ],
    ids=lambda changes: ",".join(map(str, changes.values())),
)
def test_both_return_the_same(changes: dict[str, Any]) -> None:
    fast, slow = both(**changes)
    assert sum(steps(fast, slow, seed) for seed in range(3)) > 10
    assert not fast._in_kernel


def test_without_a_seed_both_draw_the_same_sequences() -> None:
    fast, slow = both()
    for env in (fast, slow):
        env.reset(seed=5)
    for _ in range(3):
        assert_same(fast.reset(), slow.reset())


def test_what_asks_for_the_simulation_gets_the_kernel_at_this_moment() -> None:
    fast, slow = both(render_mode="ansi")
    policy = POLICIES.create("sjf")
    for env in (fast, slow):
        env.reset(seed=3)
        for _ in range(6):
            env.step(int(np.flatnonzero(env.action_masks())[0]))
    assert fast.render() == slow.render()
    assert fast.view is not None
    assert slow.view is not None
    assert fast.simulation.schedule.log == slow.simulation.schedule.log
    over = False
    while not over:
        decision = next(iter(policy.decide(fast.view)), None)
        action = fast.action_of(decision)
        assert action == slow.action_of(next(iter(policy.decide(slow.view)), None))
        shown = fast.step(action)
        assert_same(shown, slow.step(action))
        over = shown[2]
    assert fast.view is None
    assert_same(fast.reset(seed=4), slow.reset(seed=4))
    assert not fast._in_kernel


class Squared(ColumnReward):
    columns = ("kind", "time_s", "arrival_s")

    def costs(self, **column: np.ndarray) -> np.ndarray:
        return (column["kind"] == Kind.COMPLETED) * (column["time_s"] - column["arrival_s"]) ** 2


@pytest.mark.parametrize("reward", ["shaped_job_seconds", f"{__name__}:Squared"], ids=["default", "own"])
def test_copies_continue_by_themselves(reward: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fast, slow = both(reward={reward: 1.0})
    steps(fast, slow, 1, 9)
    originals, repeated = [copy.deepcopy(slow) for _ in range(3)], []
    advance = CompiledEpisodes.advance
    monkeypatch.setattr(CompiledEpisodes, "advance", lambda *call: (repeated.append(call), advance(*call))[1])
    state, twins = fast.get_state(), [copy.deepcopy(fast), copy.deepcopy(fast)]
    assert_same(twins[1].set_state(state), originals[1].set_state(slow.get_state()))
    assert not repeated
    for original, twin in zip(originals, (*twins, pickle.loads(pickle.dumps(fast))), strict=True):
        assert_same(fast.step(0), slow.step(0))  # does not reach the copies
        over = False
        while not over:
            action = int(np.flatnonzero(original.action_masks())[-1])
            shown = original.step(action)
            assert_same(twin.step(action), shown)
            over = shown[2]
    assert_same(twins[0].set_state(state)[0], twins[1].set_state(state)[0])
    assert not twins[0]._in_kernel
    assert slow.view is not None
    other, expected = both(reward={reward: 1.0})[0], copy.deepcopy(slow)
    assert_same(other.set_state(slow.get_state()), expected.set_state(slow.get_state()))  # a state of the kernel
    assert_same(other.step(0), expected.step(0))
    assert_same(other.reset(seed=2), expected.reset(seed=2))
    assert not other._in_kernel


def test_after_the_end_only_a_reset_helps() -> None:
    fast, _ = both("workload.count=1")
    with pytest.raises(gymnasium.error.ResetNeeded):
        fast.step(0)
    fast.reset(seed=0)
    over = False
    while not over:
        over = fast.step(int(np.flatnonzero(fast.action_masks())[0]))[2]
    assert fast.action_masks().tolist()[-1]
    with pytest.raises(gymnasium.error.ResetNeeded):
        fast.step(0)


def test_a_placement_that_is_not_compiled_stays_in_the_kernel() -> None:
    fast, slow = both(codec={"kind": "candidates", "placement": "random"})
    assert steps(fast, slow, 1) > 5


def test_make_takes_it_if_the_code_is_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    for warm, kind in ((True, CompiledSchedulingEnv), (False, SchedulingEnv)):
        monkeypatch.setattr("dagsim.families.episodes.episode_calls.are_warm", lambda warm=warm: warm)
        assert type(make_env("heterogeneous", FEW)) is kind
    monkeypatch.setattr("dagsim.families.episodes.episode_calls.are_warm", lambda: True)
    assert type(make_env("heterogeneous", [*FEW, "engine=simpy"])) is SchedulingEnv
    assert type(make_env("heterogeneous", FEW, observation="graph")) is SchedulingEnv
