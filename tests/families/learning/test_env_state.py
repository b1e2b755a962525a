"""Environments can be copied, pickled, and brought back to an earlier moment."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest

import dagsim.envs  # noqa: F401

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
