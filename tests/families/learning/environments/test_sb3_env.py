"""Compiled environments as Stable-Baselines3 and Gymnasium use them."""

from __future__ import annotations

import copy
import pickle
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

import dagsim.envs
from dagsim.envs import make_env, make_sb3_env, make_vector_env
from dagsim.errors import ConfigError

SETTINGS = ["workload.count=6"]
COMMON: dict[str, Any] = {"config": "heterogeneous-dag", "settings": SETTINGS, "observation": "flat"}


def first_legal(masks: Any) -> np.ndarray:
    return np.argmax(np.stack(masks), axis=1)


def test_each_environment_gives_what_one_alone_gives() -> None:
    pytest.importorskip("stable_baselines3")
    envs = make_sb3_env(3, **COMMON)
    envs.seed(11)
    seen = envs.reset()
    alone = [make_env(**COMMON) for _ in range(3)]
    for number, env in enumerate(alone):
        assert np.array_equal(env.reset(seed=11 + number)[0], seen[number])
    ended = np.zeros(3, bool)
    while not ended.all():
        actions = first_legal(envs.env_method("action_masks"))
        seen, rewards, dones, infos = envs.step(actions)
        for number, env in enumerate(alone):
            if ended[number]:
                continue
            observation, reward, terminated, _, info = env.step(actions[number])
            last = infos[number]["terminal_observation"] if dones[number] else seen[number]
            assert np.array_equal(observation, last)
            assert (np.float32(reward), terminated) == (rewards[number], dones[number])
            if terminated:
                assert infos[number]["mean_jct_s"] == info["mean_jct_s"]
        ended |= dones


def test_maskable_ppo_learns_from_them() -> None:
    contrib = pytest.importorskip("sb3_contrib")
    envs = make_sb3_env(4, **COMMON)
    model = contrib.MaskablePPO("MlpPolicy", envs, n_steps=16, batch_size=32, n_epochs=1, seed=1, device="cpu")
    model.learn(128)
    assert model.num_timesteps == 128


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_dqn_learns_from_them() -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    model = sb3.DQN("MlpPolicy", make_sb3_env(2, **COMMON), learning_starts=16, buffer_size=200, device="cpu")
    model.learn(64)
    assert model.num_timesteps == 64


def test_environments_that_begin_anew_one_step_later_are_refused() -> None:
    pytest.importorskip("stable_baselines3")
    from dagsim.families.learning.environments.sb3_env import Sb3VecEnv

    with pytest.raises(ConfigError, match="SameStep"):
        Sb3VecEnv(make_vector_env(2, **COMMON))


def steps(envs: Any, count: int) -> list[Any]:
    """The rewards and first features of the next steps."""
    seen = []
    for _ in range(count):
        observations, rewards, *_ = envs.step(first_legal(envs.call("action_masks")))
        seen += [rewards.tolist(), observations[:, :9].tolist()]
    return seen


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_copies_of_a_vector_environment_go_on_as_the_original(mode: str) -> None:
    envs = make_vector_env(3, autoreset_mode=mode, **COMMON)
    envs.reset(seed=5)
    steps(envs, 60)  # some episodes are over, and new ones under way
    state = envs.get_state()
    copied, pickled = copy.deepcopy(envs), pickle.loads(pickle.dumps(envs))
    expected = steps(copied, 80)
    assert steps(pickled, 80) == expected
    assert steps(envs, 80) == expected
    envs.set_state(state)
    assert steps(envs, 80) == expected


def test_a_vector_environment_is_drawn_as_one_alone() -> None:
    envs = make_vector_env(2, render_mode="ansi", **COMMON)
    envs.reset(seed=3)
    steps(envs, 7)
    env = make_env(render_mode="ansi", **COMMON)
    _, info = env.reset(seed=3)
    for _ in range(7):
        *_, info = env.step(int(np.argmax(info["action_mask"])))
    assert envs.render()[0] == env.render()
    assert envs.get_attr("render_mode") == ("ansi", "ansi")
    assert isinstance(envs, gymnasium.vector.VectorEnv)


def test_episodes_of_a_pool_are_drawn_from_its_sequences() -> None:
    envs = make_vector_env(3, pool=2, **COMMON)
    envs.reset(seed=[1_000_000, 1_000_001, 7])
    seeds = set()
    for _ in range(300):
        envs.step(first_legal(envs.call("action_masks")))
        seeds |= {state.seed for state in envs.get_state()}
    assert seeds == {1_000_000, 1_000_001, 7}
    env = make_env(pool=2, **COMMON)
    env.reset(seed=7)
    assert {env.get_state().seed for _ in range(9) if env.reset()} == {1_000_000, 1_000_001}


@pytest.mark.parametrize("pool", [0, 1_000_001])
def test_a_pool_has_a_sensible_size(pool: int) -> None:
    with pytest.raises(ConfigError, match="pool must be from 1 to 1,000,000"):
        make_env(pool=pool, **COMMON)


@pytest.mark.parametrize(
    ("name", "library", "extra"), [("sb3", "stable_baselines3", "sb3"), ("torchrl", "torchrl", "torchrl")]
)
def test_a_library_that_is_not_installed_is_named_with_its_extra(
    name: str, library: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [module for module in sys.modules if module.partition(".")[0] in (library, "tensordict")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delitem(sys.modules, f"dagsim.families.learning.environments.{name}_env", raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setitem(sys.modules, "tensordict", None)
    with pytest.raises(ConfigError, match=rf"make_{name}_env needs .*\.\[{extra}\]"):
        getattr(dagsim.envs, f"make_{name}_env")(2, config="heterogeneous")
