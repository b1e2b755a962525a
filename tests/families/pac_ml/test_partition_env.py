"""``dagsim/Partition-v0``: the same episodes as everywhere, with masks that know what is free."""

from __future__ import annotations

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from dagsim.errors import ConfigError, IllegalDecision
from dagsim.families.pac_ml.partition_env import PartitionEnv
from dagsim.families.ramp.api import RAMP_POLICIES, RampScenario

WORLD = RampScenario(topology="ramp[groups=2,racks=2,servers_per_rack=2]", jobs=12, gap_s=0.02, max_degree=8)


def partition_env(**settings: object) -> PartitionEnv:
    env = gymnasium.make("dagsim.envs:dagsim/Partition-v0", scenario=WORLD, **settings).unwrapped
    assert isinstance(env, PartitionEnv)
    return env


def test_it_is_a_gymnasium_environment() -> None:
    check_env(partition_env(invalid_is_zero=True), skip_render_check=True)


def test_a_heuristic_played_through_it_does_what_it_does_directly() -> None:
    env, policy = partition_env(), RAMP_POLICIES.create("on_time[least=2]")
    _, info = env.reset(seed=5)
    total, over = 0.0, False
    while not over:
        assert env.view is not None
        action = env.action_of(next(iter(policy.decide(env.view)), None))
        assert action is not None
        assert info["action_mask"][action]
        _, reward, terminated, truncated, info = env.step(action)
        total, over = total + reward, terminated or truncated
    direct = WORLD.kernel(5)
    direct.run(RAMP_POLICIES.create("on_time[least=2]"))
    assert env.simulation is not None
    assert env.simulation.schedule.log == direct.schedule.log
    blocked = sum(outcome.reason is not None for outcome in direct.outcomes)
    assert (info["jobs_blocked"], info["blocking_rate"]) == (blocked, blocked / 12)
    # jobs that nothing could be done about before the first choice are not in the return
    assert total == 12 - 2 * blocked
    assert terminated
    assert not truncated


def test_the_mask_knows_what_is_occupied() -> None:
    env = partition_env(outlooks=False)
    _, info = env.reset(seed=1)
    assert np.flatnonzero(info["action_mask"]).tolist() == [0, 1, 2, 4, 8]
    seen, _, _, _, info = env.step(4)
    assert np.flatnonzero(info["action_mask"]).tolist() == [0, 1, 2, 4]
    assert seen["action_mask"].tolist() == info["action_mask"].tolist() == env.action_masks().astype(int).tolist()
    with pytest.raises(IllegalDecision, match="action 8 is masked; allowed: 0, 1, 2, 4"):
        env.step(8)


def test_a_blocked_job_has_its_cause() -> None:
    env = partition_env(outlooks=False)
    env.reset(seed=1)
    assert env.step(0)[4]["cause"] == "declined"
    causes = set()
    over = False
    while not over:
        *_, terminated, truncated, info = env.step(1)
        over = terminated or truncated
        causes.add(info["cause"])
    assert causes == {None, "too_slow"}


def test_a_masked_action_can_turn_the_job_away() -> None:
    env = partition_env(invalid_is_zero=True)
    env.reset(seed=1)
    _, reward, _, _, info = env.step(3)
    assert (reward, info["cause"], info["illegal_actions"]) == (-1.0, "declined", 1)


def test_a_horizon_truncates() -> None:
    short = RampScenario(topology=WORLD.topology, jobs=12, gap_s=0.02, max_degree=8, horizon_s=0.07)
    env = PartitionEnv(short)
    env.reset(seed=1)
    over = False
    while not over:
        *_, terminated, truncated, _ = env.step(0)
        over = terminated or truncated
    assert truncated
    assert not terminated
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)


def test_an_episode_that_ends_while_accepted_jobs_run_is_truncated() -> None:
    """All jobs have arrived and been placed or turned away, and one of them still runs."""
    direct = WORLD.kernel(1)
    direct.run(RAMP_POLICIES.create("min"))
    last_s = max(outcome.completed_s for outcome in direct.outcomes if outcome.completed_s is not None)
    ends_s = (direct.outcomes[-1].job.arrival_s + last_s) / 2
    env = PartitionEnv(replace(WORLD, horizon_s=ends_s))
    _, info = env.reset(seed=1)
    over = False
    while not over:
        assert env.view is not None
        action = env.action_of(next(iter(RAMP_POLICIES.create("min").decide(env.view)), None))
        *_, terminated, truncated, info = env.step(action)
        over = terminated or truncated
    assert info["jobs_arrived"] == len(direct.outcomes)
    assert truncated
    assert not terminated


def test_equal_seeds_begin_equally_and_others_do_not() -> None:
    env = partition_env()
    first, again, other = (env.reset(seed=seed)[0] for seed in (3, 3, 4))
    assert all((first[name] == again[name]).all() for name in first)
    assert any((first[name] != other[name]).any() for name in first)


def test_it_renders_a_line_and_refuses_other_modes() -> None:
    env = partition_env(render_mode="ansi")
    assert env.render() == "not begun"
    env.reset(seed=1)
    assert "0 jobs on 0 of 8 servers" in env.render()
    with pytest.raises(ConfigError, match="render_mode must be one of"):
        PartitionEnv(WORLD, render_mode="film")


def test_pictures_show_the_servers_that_a_job_runs_on() -> None:
    env = partition_env(render_mode="rgb_array")
    env.reset(seed=1)
    empty = env.render()
    for _ in range(20):
        env.step(int(np.flatnonzero(env.action_masks())[:2][-1]))  # split as little as may be: slow jobs
        if env.simulation.running:
            break
    held = env.render()
    assert empty.shape == held.shape == (540, 960, 3)
    colour = [np.ptp(image[74:410, 200:].astype(int), axis=2).max() for image in (empty, held)]
    assert colour[0] < 20 < 100 < colour[1]  # grey cells at first, then those of a job


def test_a_graph_that_is_too_large_is_named() -> None:
    env = PartitionEnv(WORLD, most_ops=4)
    with pytest.raises(ConfigError, match="does not fit into most_ops=4"):
        env.reset(seed=1)
