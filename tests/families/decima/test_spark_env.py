"""``dagsim/Decima-v0`` keeps Gymnasium's contract, and plays the same episodes as the simulation alone."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from dagsim.errors import ConfigError, IllegalDecision, InputError
from dagsim.families.decima.decima_env import DecimaEnv
from dagsim.families.spark.api import (
    SPARK_POLICIES,
    ExecutorType,
    RecordedDurations,
    SparkJob,
    SparkKernel,
    SparkView,
    sequence,
    synthetic_profiles,
)

POOL = synthetic_profiles()


def play(env: DecimaEnv, seed: int, policy: str) -> tuple[float, dict[str, object]]:
    """The sum of rewards and the last info of a heuristic that plays through the environment."""
    env.reset(seed=seed)
    heuristic, total = SPARK_POLICIES.create(policy), 0.0
    while True:
        assert env.view is not None
        action = env.action_of(next(iter(heuristic.decide(env.view)), None))
        seen, reward, terminated, truncated, info = env.step(action)
        assert env.observation_space.contains(seen)
        total += reward
        if terminated or truncated:
            return total, info


class Legal(DecimaEnv):
    """Turns any action into one that the masks allow, for a checker that knows no masks."""

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        rows, numbers = (np.flatnonzero(mask) for mask in self.codec.masks.values())
        return super().step(np.array([rows[action[0] % len(rows)], numbers[action[1] % len(numbers)]]))


def test_the_rest_can_be_left_idle_only_while_something_is_under_way() -> None:
    env = DecimaEnv(4, 3, pool=POOL)
    seen, _ = env.reset(seed=1)
    assert seen["action_mask"][-1] == 0
    seen, *_ = env.step(np.array([np.flatnonzero(seen["action_mask"])[0], 0]))
    assert seen["action_mask"][-1] == 0  # committed, but not dispatched yet
    while not seen["action_mask"][-1]:
        seen, *_ = env.step(np.array([np.flatnonzero(seen["action_mask"])[0], 0]))
    begun_ms = seen["context"][2] * 1000
    while seen["context"][2] * 1000 == begun_ms:  # every source is offered
        seen, *_ = env.step(np.array([env.most_stages, 0]))
    assert seen["context"][2] * 1000 > begun_ms


@pytest.mark.filterwarnings("ignore:.*Box observation space m")
def test_gymnasium_finds_nothing_wrong() -> None:
    assert isinstance(gymnasium.make("dagsim.envs:dagsim/Decima-v0", executors=5, jobs=3).unwrapped, DecimaEnv)
    check_env(Legal(5, 3, pool=POOL), skip_render_check=True)


def test_heuristic_through_the_environment_is_the_heuristic() -> None:
    total, info = play(DecimaEnv(10, 6, pool=POOL), 3, "srpt-cp[cap=4]")
    alone = SparkKernel(10, sequence(POOL, 3, jobs=6), seed=3).run(SPARK_POLICIES.create("srpt-cp[cap=4]"))
    assert info["mean_jct_s"] == alone.mean_jct_s
    assert -total / 6 == pytest.approx(alone.mean_jct_s)


def test_discounted_costs_are_smaller() -> None:
    whole, _ = play(DecimaEnv(10, 4, pool=POOL), 3, "fifo")
    less, _ = play(DecimaEnv(10, 4, pool=POOL, beta=0.01), 3, "fifo")
    assert whole < less < 0


def test_masks_are_in_three_places_and_agree() -> None:
    env = DecimaEnv(4, 3, pool=POOL, batch=3)
    seen, info = env.reset(seed=1)
    assert (seen["action_mask"] == info["action_mask"]).all()
    assert (np.concatenate([seen["action_mask"], seen["number_mask"]]) == env.action_masks()).all()
    assert seen["number_mask"].tolist() == [1, 1, 1, 1]
    assert isinstance(env.view, SparkView)
    assert seen["action_mask"].sum() == env.view.graph().schedulable.sum()


def test_few_rows_still_show_what_can_be_chosen() -> None:
    env = DecimaEnv(4, 6, pool=POOL, batch=6, most_stages=10, most_edges=4)
    seen, _ = env.reset(seed=1)
    assert env.observation_space.contains(seen)
    assert seen["action_mask"].sum() == 10


def test_forbidden_actions_are_refused() -> None:
    env = DecimaEnv(4, 3, pool=POOL)
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        env.step(np.array([0, 0]))
    seen, _ = env.reset(seed=1)
    with pytest.raises(IllegalDecision, match="action_mask"):
        env.step(np.array([int(np.flatnonzero(seen["action_mask"] == 0)[0]), 0]))


def test_time_limit_truncates_and_is_drawn_from_the_seed() -> None:
    env = DecimaEnv(4, 50, pool=POOL, mean_time_limit_s=100.0)
    ends = []
    for seed in (1, 1, 2):
        seen, _ = env.reset(seed=seed)
        truncated = False
        while not truncated:
            choice = np.array([np.flatnonzero(seen["action_mask"])[0], 0])
            seen, _, terminated, truncated, _ = env.step(choice)
            assert not terminated
        assert env.simulation is not None
        ends.append(env.simulation.episode.ended_ms)
    assert ends[0] == ends[1] != ends[2]


def test_it_can_be_read_and_seen() -> None:
    env = DecimaEnv(4, 2, pool=POOL, render_mode="ansi")
    play(env, 0, "fifo")
    env.reset(seed=0)
    assert "in the system" in env.render()
    env = DecimaEnv(4, 2, pool=POOL, render_mode="rgb_array")
    play(env, 0, "fifo")
    image = env.render()
    assert image.dtype == np.uint8
    assert image.shape[2] == 3
    assert image.std() > 0


def test_wrong_settings_are_said() -> None:
    for wrong in (
        {"executors": 0},
        {"beta": -1.0},
        {"mean_time_limit_s": 0.0},
        {"render_mode": "film"},
        {"action": "cores"},
    ):
        with pytest.raises(InputError):
            DecimaEnv(pool=POOL, **wrong)  # type: ignore[arg-type]


def test_executors_may_be_of_several_speeds() -> None:
    # one task of 8 s, one executor that is 4 times as fast as the other, and goes first: 2 s of work and 2 s of travel
    types = (ExecutorType("t4", 1), ExecutorType("a100", 1, speed=4.0))
    env = DecimaEnv(types, 1, pool=POOL)
    env.reset(seed=1, options={"jobs": [SparkJob.of("j", [RecordedDurations((8000.0,), 8000.0)])]})
    _, _, terminated, _, info = env.step(np.array([0, 0]))
    assert terminated
    assert info["mean_jct_s"] == 4.0
    with pytest.raises(ConfigError, match="parity"):
        DecimaEnv(types, 1, pool=POOL, parity=True)


def test_given_jobs_are_played() -> None:
    env = DecimaEnv(10, 99, pool=POOL)
    jobs = list(sequence(POOL, 5, jobs=2))
    env.reset(seed=5, options={"jobs": jobs})
    terminated = False
    while not terminated:
        assert env.view is not None
        *_, terminated, _, info = env.step(
            env.action_of(next(iter(SPARK_POLICIES.create("fair").decide(env.view)), None))
        )
    assert info["completed_jobs"] == 2


@pytest.mark.parametrize("policy", ["srpt-cp[cap=4]", "weighted-fair", "fifo"])
def test_heuristic_by_limits_is_the_heuristic(policy: str) -> None:
    _, info = play(DecimaEnv(10, 6, pool=POOL, action="limit"), 3, policy)
    alone = SparkKernel(10, sequence(POOL, 3, jobs=6), seed=3).run(SPARK_POLICIES.create(policy))
    assert info["mean_jct_s"] == alone.mean_jct_s


def test_limit_counts_what_the_job_has() -> None:
    # 6 executors, 2 jobs of one stage with 9 tasks: limit 4 gives the first 4; then limit 2 gives the second the rest
    jobs = [SparkJob.of(name, [RecordedDurations((1000.0,) * 9, 1000.0)]) for name in "ab"]
    env = DecimaEnv(6, 2, pool=POOL, action="limit")
    seen, info = env.reset(seed=1, options={"jobs": jobs})
    assert seen["number_mask"].tolist() == [1] * 6
    seen, _, _, _, info = env.step(np.array([0, 4 - 1]))
    assert (seen["jobs"][:2, 0].tolist(), info["kept"].tolist()) == ([4, 0], [4, 0])
    # 2 are left: with them b can have 1 or 2; a was chosen in this round, and is asked no more
    assert seen["number_mask"].tolist() == [1, 1, 0, 0, 0, 0]
    assert seen["action_mask"][:2].tolist() == [0, 1]
    with pytest.raises(IllegalDecision, match="number_mask"):
        env.step(np.array([1, 6 - 1]))
    seen, *_ = env.step(np.array([1, 2 - 1]))
    assert env.simulation is not None
    assert [job.supply for job in env.simulation.cluster.jobs] == [4, 2]
