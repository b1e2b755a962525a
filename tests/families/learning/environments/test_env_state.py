"""Environments can be copied, pickled, and brought back to an earlier moment."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from families.learning.environments.comparing import assert_same

import dagsim.envs  # noqa: F401
from dagsim.families.learning.cluster_rewards import Accrual
from dagsim.families.learning.codecs.further import FurtherColumns
from dagsim.families.learning.column_rewards import ColumnReward
from dagsim.families.learning.environments.make_env import make_env
from dagsim.families.learning.environments.scheduling_env import SchedulingEnv
from dagsim.model import Kind

ENVIRONMENTS = {
    "cluster": {"id": "dagsim/Scheduling-v0", "config": "heterogeneous-dag", "observation": "flat"},
    "decima": {"id": "dagsim/Decima-v0", "executors": 5, "jobs": 3},
    "partition": {"id": "dagsim/Partition-v0"},
}


def made(name: str) -> Any:
    return gymnasium.make(**ENVIRONMENTS[name]).unwrapped


def first_legal(env: Any) -> Any:
    masks = np.flatnonzero(env.action_masks())
    if isinstance(env.action_space, gymnasium.spaces.MultiDiscrete):
        stages = int(env.action_space.nvec[0])
        return np.array([masks[0], next(place for place in masks if place >= stages) - stages])
    return int(masks[0])


def played(env: Any, steps: int) -> list[tuple[float, float]]:
    """The rewards and times of the next steps."""
    seen = []
    for _ in range(steps):
        _, reward, terminated, truncated, _ = env.step(first_legal(env))
        seen.append((float(reward), float(env.simulation.now)))
        if terminated or truncated:
            break
    return seen


@pytest.mark.parametrize("name", [
    pytest.param("cluster"),
    pytest.param("decima", marks=pytest.mark.family("decima")),
    pytest.param("partition", marks=pytest.mark.family("pac_ml")),
])  # fmt: skip
def test_a_copy_goes_on_as_the_original_and_changes_nothing_in_it(name: str) -> None:
    env = made(name)
    env.reset(seed=7)
    played(env, 15)
    state = env.get_state()
    copied, pickled = copy.deepcopy(env), pickle.loads(pickle.dumps(env))
    expected = played(copied, 20)
    assert len(expected) > 5
    assert played(pickled, 20) == expected
    assert played(env, 20) == expected
    env.set_state(pickle.loads(pickle.dumps(state)))
    assert played(env, 20) == expected


class Squared(ColumnReward):
    columns = ("kind", "time_s", "arrival_s")

    def costs(self, **column: np.ndarray) -> np.ndarray:
        return (column["kind"] == Kind.COMPLETED) * (column["time_s"] - column["arrival_s"]) ** 2


class WithQueue(FurtherColumns):
    names = ("queue",)

    def columns(self, view: Any, rows: list[Any]) -> float:
        return len(view.ready) / 10


OWN = f"{__name__}:Squared"
KINDS = {
    "own parts": {"codec": WithQueue(), "reward": {OWN: 1.0}},
    "default": {},
    "rewards": {
        "reward": dict.fromkeys(
            ("weighted_job_seconds", "bounded_stretch", "makespan", "idle", "energy", "unfairness"), 1.0
        )
    },
    "graph": {"observation": "graph", "level": "task_type_par"},
    "relative": {"codec": {"kind": "relative"}},
    "stops": {
        "codec": {"kind": "relative", "actions": ["preempt", "migrate"]},
        "reward": {"lost_gpu_seconds": 1.0, "shaped_job_seconds": 1.0},
        "settings": ["preemption.restart_s=30", "failures=[{kind: node_failures, mean_up_s: 20000, mean_down_s: 600}]"],
    },
    "admission": {
        "codec": {"kind": "relative", "actions": ["admit"]},
        "reward": {"rejections": 1.0},
        "settings": ["admission=true", "workload.count=60"],
    },
    "noisy": {"settings": ["estimates={kind: noisy, sigma: 1.0}"], "slots": 8},
    "beliefs": {"codec": {"kind": "relative", "beliefs": True}, "settings": ["estimates.kind=hidden"]},
}


def whole(env: Any, actions: list[int] | None, rng: np.random.Generator) -> tuple[list[int], list[Any]]:
    """The actions (random where none are given), and everything that the rest of the episode returns."""
    taken, seen, over = [], [], False
    while not over:
        taken.append(int(rng.choice(np.flatnonzero(env.action_masks()))) if actions is None else actions[len(taken)])
        shown = env.step(taken[-1])
        seen.append(shown)
        over = shown[2] or shown[3]
    return taken, seen


@pytest.mark.parametrize("kind", KINDS)
def test_a_fork_shows_what_the_original_shows(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = dict(KINDS[kind])
    settings = ["workload.count=12", "workload.load=1.2", "engine=simpy", *changes.pop("settings", [])]
    env = make_env("heterogeneous-dag", settings, **changes)
    rng, repeated = np.random.default_rng(1), []
    env.reset(seed=7)
    for _ in range(25):
        env.step(int(rng.choice(np.flatnonzero(env.action_masks()))))
    choose = SchedulingEnv._choose
    monkeypatch.setattr(SchedulingEnv, "_choose", lambda self, *step: (repeated.append(self), choose(self, *step)))
    copied, state = copy.deepcopy(env), env.get_state()
    assert bool(repeated) == (kind == "beliefs")
    actions, expected = whole(env, None, rng)
    assert len(expected) > 20
    for again in range(2):
        assert_same(whole(copied, actions, rng)[1], expected)
        assert copied.simulation.schedule.log == env.simulation.schedule.log
        observation, info = copied.set_state(state)
        if not again:
            first, other = copied, make_env("heterogeneous-dag", settings, **changes)
            copied, shown = other, other.set_state(state)
            assert_same(shown, (observation, info))
            assert first.simulation is not other.simulation


def test_parts_that_cannot_be_forked_are_played_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Accrual, "fork")
    env = made("cluster")
    env.reset(seed=7)
    played(env, 15)
    copied = copy.deepcopy(env)
    assert env.get_state().episode is None
    assert played(copied, 20) == played(env, 20)


def test_later_episodes_of_a_copy_are_those_of_the_original() -> None:
    env = made("cluster")
    env.reset(seed=7)
    copied = copy.deepcopy(env)
    first, _ = env.reset()
    second, _ = copied.reset()
    assert np.array_equal(first, second)


def test_an_environment_that_has_not_begun_can_be_copied() -> None:
    copied = copy.deepcopy(made("cluster"))
    observation, _ = copied.reset(seed=1)
    assert np.array_equal(observation, made("cluster").reset(seed=1)[0])
