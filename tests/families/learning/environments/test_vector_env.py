"""Environments in the compiled engine: the same as environments one after another."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import pytest
from families.learning.environments.comparing import assert_same
from gymnasium.vector import SyncVectorEnv

from dagsim.errors import ConfigError
from dagsim.families.compiled import jit
from dagsim.families.episodes.episode_state import EpisodeReward
from dagsim.families.episodes.side_by_side import CompiledEpisodes
from dagsim.families.learning.codecs.further import DerivedColumns
from dagsim.families.learning.column_rewards import ColumnReward
from dagsim.families.learning.environments.make_env import make_env, make_vector_env
from dagsim.families.learning.environments.vector_env import VectorSchedulingEnv
from dagsim.families.learning.episode import Episode
from dagsim.model import Kind

pytestmark = [
    pytest.mark.skipif(not jit.jitted(), reason="numba is not installed"),
    pytest.mark.timeout(600),  # the first run on a machine compiles
]

WORKLOAD = "heterogeneous-dag"
FEW = ["workload.count=6"]
MADE = "dagsim.envs:dagsim/Scheduling-v0"


class LateCompletions(ColumnReward):
    """The squared hours of completed jobs, and a fixed price for every start."""

    columns = ("kind", "time_s", "arrival_s", "instances")

    def costs(self, kind: Any, time_s: Any, arrival_s: Any, instances: Any) -> Any:
        hours = (time_s - arrival_s) / 3600
        return (kind == Kind.COMPLETED) * hours * hours + (kind == Kind.STARTED) * 0.01 * instances


OWN = f"{__name__}:LateCompletions"


@dataclass(frozen=True)
class Areas(DerivedColumns):
    """The area of a task relative to the work in the queue."""

    power: float = 0.5
    names = ("relative_area",)
    of = ("log_area", "work")

    def derive(self, log_area: Any, work: Any) -> Any:
        return np.exp(log_area) / (1 + work) ** np.float32(self.power)


class Nothing(DerivedColumns):
    names = ("nothing",)


class Pair(Areas):
    names = ("one", "two")


def both(count: int, mode: str = "NextStep", **changes: Any) -> tuple[Any, Any]:
    """Environments of a small workload: compiled, and one after another."""
    compiled = gymnasium.make_vec(MADE, num_envs=count, config=WORKLOAD, settings=FEW, autoreset_mode=mode, **changes)
    single = [lambda: make_env(WORKLOAD, [*FEW, "engine=simpy"], **changes)] * count
    return compiled, SyncVectorEnv(single, autoreset_mode=mode)


def chosen(mask: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """A legal action per environment, or an illegal one now and then; 0 where the episode is over."""
    legal = mask.astype(bool)
    place = (draws * legal.sum(axis=1)).astype(int)
    actions = (legal.cumsum(axis=1) > place[:, None]).argmax(axis=1)
    actions[draws > 0.97] = 62
    return actions


@pytest.mark.parametrize(
    ("mode", "changes"),
    [
        ("NextStep", {}),
        ("SameStep", {"observation": "dict"}),
        ("NextStep", {"observation": "flat", "slots": 5}),
        ("NextStep", {"max_steps": 20, "reward": {"job_seconds": 2.0}}),
        ("SameStep", {"horizon_s": 900.0}),
        ("SameStep", {"reward": {OWN: 2.0}}),
        ("NextStep", {"codec": {"kind": "relative"}}),
        ("NextStep", {"codec": Areas()}),
        ("SameStep", {"codec": Areas(1.0), "observation": "flat", "slots": 5}),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*is not legal now")  # actions are drawn at random
def test_compiled_environments_equal_those_played_one_after_another(mode: str, changes: dict[str, Any]) -> None:
    compiled, single = both(3, mode, **changes)
    assert isinstance(compiled.unwrapped, VectorSchedulingEnv)
    assert compiled.observation_space == single.observation_space
    assert compiled.action_space == single.action_space
    rng, ends = np.random.default_rng(0), 0
    mine, theirs = compiled.reset(seed=7), single.reset(seed=7)
    for _ in range(120):
        for one, other in zip(mine, theirs, strict=True):
            assert_same(one, other, in_order=False)
        actions = chosen(theirs[-1]["action_mask"], rng.random(3))
        mine, theirs = compiled.step(actions), single.step(actions)
        ends += int(theirs[2].sum() + theirs[3].sum())
    assert compiled.observation_space.contains(mine[0])
    assert ends >= 3


def test_episodes_that_are_over_wait_for_a_reset_if_automatic_resets_are_off() -> None:
    compiled, single = both(2, "Disabled", max_steps=2)
    compiled.reset(seed=[3, 4])
    single.reset(seed=[3, 4])
    for _ in range(2):
        last = compiled.step(np.zeros(2, int))
        single.step(np.zeros(2, int))
    assert last[3].all()
    with pytest.raises(ConfigError, match="reset_mask"):
        compiled.step(np.zeros(2, int))
    mask = np.array([True, True])
    mine = compiled.reset(seed=[5, 6], options={"reset_mask": mask})
    assert_same(mine[0], single.reset(seed=[5, 6], options={"reset_mask": mask})[0], in_order=False)


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        (["engine=simpy"], {}),
        (["failures=[{kind: node_failures, mean_up_s: 1e6, mean_down_s: 60}]"], {}),
        ([], {"level": "job"}),
        ([], {"observation": "graph"}),
        ([], {"reward": {"makespan": 1.0}}),
        ([], {"codec": {"kind": "candidates", "select": "oldest"}}),
        ([], {"codec": {"kind": "candidates", "placement": "fgd"}}),
    ],
    ids=str,
)
def test_what_is_not_compiled_is_played_one_after_another(settings: list[str], changes: dict[str, Any]) -> None:
    with nullcontext() if settings == ["engine=simpy"] else pytest.warns(UserWarning, match="because"):
        envs = make_vector_env(2, WORKLOAD, [*FEW, *settings], **changes)
    assert isinstance(envs, SyncVectorEnv)
    envs.reset(seed=1)


class OutOfColumns(ColumnReward):
    columns = ("kind", "colour")


class Single(ColumnReward):
    columns = ("kind",)

    def costs(self, kind: Any) -> Any:
        return 1.0


@pytest.mark.parametrize(
    ("name", "message"), [("OutOfColumns", "'colour' is not one of kind"), ("Single", "one per row")]
)
def test_an_own_reward_that_does_not_fit_is_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_vector_env(2, WORKLOAD, FEW, reward={f"{__name__}:{name}": 1.0}).reset(seed=1)


def test_own_columns_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="name at least one of wait, log_seconds"):
        Nothing()
    with pytest.raises(ConfigError, match=r"derive must return shape \(\d+, 2\)"):
        make_vector_env(2, WORKLOAD, FEW, codec=Pair()).reset(seed=1)


def test_agents_in_training_see_own_columns_in_the_compiled_engine() -> None:
    single = make_env(WORKLOAD, [*FEW, "engine=simpy"], codec=Areas())
    codec, scenario = Areas(), single.scenario
    episodes = CompiledEpisodes(scenario, 2, codec, EpisodeReward())
    episodes.begin(np.arange(2), [3, 4])
    batch = episodes.observe(np.arange(2))
    for number, seed in enumerate((3, 4)):
        seen = Episode(scenario.kernel(seed), codec.build()).observation
        np.testing.assert_array_equal(batch.tokens[batch.first[number] : batch.first[number + 1]], seen.tokens)


def test_the_compiled_engine_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match="engine compiled: only single reward terms are compiled"):
        make_vector_env(2, WORKLOAD, [*FEW, "engine=compiled"], reward={"makespan": 1.0})
    assert isinstance(make_vector_env(2, WORKLOAD, [*FEW, "engine=compiled"]), VectorSchedulingEnv)


@pytest.mark.parametrize("vectorization_mode", ["vector_entry_point", "sync"])
def test_a_loop_that_draws_from_the_mask_plays_over_the_ends_of_episodes(vectorization_mode: str) -> None:
    envs = gymnasium.make_vec(MADE, 3, vectorization_mode=vectorization_mode, config=WORKLOAD, settings=FEW)
    rng, ends = np.random.default_rng(0), 0
    _, infos = envs.reset(seed=7)
    for _ in range(120):
        actions = [rng.choice(np.flatnonzero(mask)) for mask in infos["action_mask"]]
        _, _, terminated, _, infos = envs.step(np.array(actions))
        ends += int(terminated.sum())
    assert ends >= 3
    assert infos["illegal_actions"].sum() == 0
