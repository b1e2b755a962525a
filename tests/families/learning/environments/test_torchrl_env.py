"""Compiled environments as TorchRL uses them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dagsim.envs import make_torchrl_env, make_vector_env
from dagsim.errors import ConfigError

torchrl = pytest.importorskip("torchrl")

SETTINGS = ["workload.count=6"]


def first_legal(td: Any) -> Any:
    td["action"] = td["action_mask"].int().argmax(-1)
    return td


@pytest.mark.parametrize("observation", ["flat", "candidates"])
def test_its_specifications_match_its_data(observation: str) -> None:
    from torchrl.envs.utils import check_env_specs

    check_env_specs(make_torchrl_env(3, config="heterogeneous", settings=SETTINGS, observation=observation))


@pytest.mark.parametrize("observation", ["flat", "candidates"])
def test_a_rollout_is_what_the_vector_environment_gives(observation: str) -> None:
    common: dict[str, Any] = {"config": "heterogeneous-dag", "settings": SETTINGS, "observation": observation}
    env = make_torchrl_env(3, **common)
    env.set_seed(11)
    steps = env.rollout(120, policy=first_legal, break_when_any_done=False)
    plain = make_vector_env(3, **common, autoreset_mode="SameStep")
    seen, infos = plain.reset(seed=11)
    ended_some = 0
    for number in range(120):
        now = steps[:, number]
        for name, part in (seen if isinstance(seen, dict) else {"observation": seen}).items():
            assert np.array_equal(now[name].numpy(), part.astype(bool) if name == "action_mask" else part)
        assert np.array_equal(now["action_mask"].numpy(), infos["action_mask"].astype(bool))
        seen, rewards, terminated, _, infos = plain.step(infos["action_mask"].argmax(axis=1))
        assert np.array_equal(now["next", "reward"][:, 0].numpy(), rewards.astype(np.float32))
        assert np.array_equal(now["next", "done"][:, 0].numpy(), terminated)
        for place in range(3):
            found = infos["final_obs"][place] if terminated[place] else seen
            for name, part in (found if isinstance(found, dict) else {"observation": found}).items():
                expected = part if terminated[place] else part[place]
                assert np.array_equal(
                    now["next", name][place].numpy(), np.asarray(expected, now["next", name].numpy().dtype)
                )
        ended_some += int(terminated.sum())
    assert ended_some > 3  # several episodes of each environment


def test_an_episode_that_has_not_ended_is_not_reset_alone() -> None:
    import torch
    from tensordict import TensorDict

    env = make_torchrl_env(2, config="heterogeneous", settings=SETTINGS, observation="flat")
    env.reset()
    with pytest.raises(ConfigError, match="its episode has ended"):
        env._reset(TensorDict({"_reset": torch.tensor([[True], [False]])}, [2]))


def test_environments_that_wait_with_their_reset_are_refused() -> None:
    from dagsim.families.learning.environments.torchrl_env import TorchRLEnv

    with pytest.raises(ConfigError, match="SameStep"):
        TorchRLEnv(make_vector_env(2, config="heterogeneous", settings=SETTINGS, observation="flat"))
