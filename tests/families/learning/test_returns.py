from __future__ import annotations

from math import exp, inf

import numpy as np
import pytest

from dagsim.families.learning.advantages import discounts, gae, replica_advantages, return_rms, returns
from dagsim.families.learning.codecs.codec import Observation
from dagsim.families.learning.off_policy.replay import ReplayBuffer
from dagsim.families.learning.training.rollouts import EpisodeSteps


def steps(times: list[float], rewards: list[float]) -> EpisodeSteps:
    seen = [
        Observation(np.full((2, 1), t, np.float32), np.zeros(1, np.float32), np.zeros((1, 1), np.float32))
        for t in times[:-1]
    ]
    return EpisodeSteps(seen, [0] * len(rewards), [0.0] * len(rewards), times, rewards)


def test_the_discount_is_that_of_the_time_that_passes() -> None:
    episode = steps([0.0, 10.0, 10.0, 40.0], [-1.0, -2.0, -3.0])
    assert discounts(episode, 10.0).tolist() == pytest.approx([exp(-1), 1.0, exp(-3)])
    assert returns(episode, inf).tolist() == [-6, -5, -3]
    assert returns(episode, 10.0).tolist() == pytest.approx([-1 + exp(-1) * -5, -5, -3])
    assert return_rms([episode], inf) == pytest.approx(np.sqrt((36 + 25 + 9) / 3))


def test_a_replica_is_compared_with_the_others_at_equal_time() -> None:
    # Returns: a 0 s: -10, 10 s: -4; b 0 s: -20, 20 s: 0. At 10 s b is interpolated: -10.
    a, b = steps([0.0, 10.0, 20.0], [-6.0, -4.0]), steps([0.0, 20.0, 30.0], [-20.0, 0.0])
    first, second = replica_advantages([a, b], inf)
    scale = (10 + 20) / 2
    assert first.tolist() == pytest.approx([10 / scale, 6 / scale])
    assert second.tolist() == pytest.approx([-10 / scale, 4 / scale])  # beyond a's last choice its return is -4


def test_equal_replicas_have_no_advantage() -> None:
    episode = steps([0.0, 5.0, 9.0], [-1.0, -1.0])
    assert all((advantages == 0).all() for advantages in replica_advantages([episode, episode, episode], 7.0))


def test_gae_lies_between_one_step_and_all() -> None:
    episode, values = steps([0.0, 10.0, 20.0], [-1.0, -2.0]), np.array([-2.0, -1.5])
    # deltas: -1 - 1.5 + 2 = -0.5; -2 + 1.5 = -0.5
    assert gae(episode, values, inf, 0.0).tolist() == pytest.approx([-0.5, -0.5])
    assert gae(episode, values, inf, 1.0).tolist() == pytest.approx((returns(episode, inf) - values).tolist())
    assert gae(episode, values, inf, 0.5).tolist() == pytest.approx([-0.75, -0.5])


def test_replay_keeps_discounted_sums_over_n_steps() -> None:
    episode = steps([0.0, 1.0, 2.0, 3.0], [-1.0, -2.0, -4.0])
    replay = ReplayBuffer(100)
    replay.add(episode, np.array([0.5, 0.5, 0.5]), n_step=2, scale=2.0)
    drawn = replay.draw(500, np.random.default_rng(0))
    transitions = {
        (float(at), float(reward), float(to), float(discount))
        for at, reward, to, discount in zip(
            drawn.batch.tokens[::2, 0], drawn.rewards, drawn.following.tokens[::2, 0], drawn.discounts, strict=True
        )
    }
    # From 0: -1 - 0.5 x 2, then at 2 with 0.25; from 1: -2 - 0.5 x 4, then over; from 2: -4, then over.
    assert transitions == {(0.0, -1.0, 2.0, 0.25), (1.0, -2.0, 2.0, 0.0), (2.0, -2.0, 2.0, 0.0)}


def test_replay_forgets_the_oldest_and_prefers_large_errors() -> None:
    replay = ReplayBuffer(2, priority=1.0, importance=1.0)
    replay.add(steps([0.0, 1.0, 2.0, 3.0], [-1.0, -2.0, -4.0]), np.ones(3), 1, 1.0)
    assert len(replay) == 2
    replay.update(np.array([0, 1]), np.array([0.0, 0.999]))
    drawn = replay.draw(2000, np.random.default_rng(0))
    assert np.mean(drawn.places == 1) == pytest.approx(0.999, abs=0.005)
    assert all(later.max() <= 1 for later in (drawn.weights,))


def test_replay_draws_evenly_unless_it_is_told_to_prefer() -> None:
    replay = ReplayBuffer(2)
    replay.add(steps([0.0, 1.0, 2.0], [-1.0, -2.0]), np.ones(2), 1, 1.0)
    replay.update(np.array([0, 1]), np.array([0.0, 99.0]))
    assert np.mean(replay.draw(2000, np.random.default_rng(0)).places) == pytest.approx(0.5, abs=0.05)
