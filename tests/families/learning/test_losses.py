"""Each loss against a case computed by hand, its gradient included."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dagsim.families.learning.codecs.codec import Observation
from dagsim.families.learning.nets.actor import ObservationBatch, entropy, log_softmax, stack
from dagsim.families.learning.nets.row_nets import Sizes
from dagsim.families.learning.off_policy.d3qn import q_loss
from dagsim.families.learning.off_policy.q_learning import Duelling, follow
from dagsim.families.learning.off_policy.rainbow import (
    NoisyLinear,
    RainbowNet,
    RainbowNetConfig,
    projected,
    rainbow_loss,
)
from dagsim.families.learning.off_policy.replay import Drawn
from dagsim.families.learning.off_policy.sac import actor_loss, critic_loss, temperature_loss
from dagsim.families.learning.on_policy.learners import policy_gradient_loss, policy_loss


def batch_of(*rows: int) -> ObservationBatch:
    """Observations whose tokens are 0, 1, 2 ... down the batch."""
    begin, observations = 0, []
    for count in rows:
        tokens = np.arange(begin, begin + count, dtype=np.float32)[:, None]
        observations.append(Observation(tokens, np.zeros(1, np.float32), np.zeros((1, 1), np.float32)))
        begin += count
    return stack(observations)


class Table(nn.Module):
    """A score per token number."""

    def __init__(self, *scores: float) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.tensor(scores))

    def forward(self, batch: ObservationBatch) -> Tensor:
        return self.scores[batch.tokens[:, 0].long()]


def evaluated(scores: Tensor, choice: int) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy of one observation's choice."""
    batch = batch_of(len(scores))
    log_p = log_softmax(scores, batch.segment, 1)
    return log_p[choice : choice + 1], entropy(log_p, batch.segment, 1)


def ppo_gradient(old_p: float, advantage: float) -> list[float]:
    scores = torch.zeros(2, requires_grad=True)
    update = policy_loss(
        *evaluated(scores, 0),
        torch.tensor([np.log(old_p)]).float(),
        torch.tensor([advantage]),
        0.2,
        0.0,
    )
    update.loss.backward()
    assert scores.grad is not None
    return scores.grad.tolist()


def test_ppo_inside_the_clip_follows_the_ratio() -> None:
    # p = (1/2, 1/2), old p = 0.5: ratio 1. d(-r A)/ds = -A r (1 - p, -p) = -2 (0.5, -0.5)
    assert ppo_gradient(0.5, 2.0) == pytest.approx([-1.0, 1.0])
    # old p = 0.45: ratio 10/9 < 1.2
    assert ppo_gradient(0.45, 2.0) == pytest.approx([-10 / 9, 10 / 9])


def test_ppo_beyond_the_clip_does_not_push_further() -> None:
    assert ppo_gradient(0.25, 1.0) == [0.0, 0.0]  # ratio 2 > 1.2 and better than expected
    assert ppo_gradient(0.25, -1.0) == pytest.approx([1.0, -1.0])  # worse: it is pulled back, r = 2
    assert ppo_gradient(0.9, -1.0) == [0.0, 0.0]  # ratio 0.56 < 0.8


def test_ppo_tells_how_far_the_policy_moved() -> None:
    old_log_p = torch.tensor([float(np.log(0.25))])
    update = policy_loss(*evaluated(torch.zeros(2), 0), old_log_p, torch.ones(1), 0.2, 1.0)
    assert update.kl == pytest.approx((2 - 1) - np.log(2))
    assert update.clipped == 1.0
    assert float(update.loss) == pytest.approx(-1.2 - np.log(2))  # the clipped surrogate less the entropy


def test_reinforce_raises_what_did_better() -> None:
    scores = torch.zeros(2, requires_grad=True)
    policy_gradient_loss(*evaluated(scores, 1), torch.tensor([3.0]), 0.0).backward()
    assert scores.grad is not None
    assert scores.grad.tolist() == pytest.approx([1.5, -1.5])  # -A (onehot - p)


def drawn(reward: float, discount: float) -> Drawn:
    tokens = np.array([[2.0], [3.0]], np.float32)
    later = stack([Observation(tokens, np.zeros(1, np.float32), np.zeros((1, 1), np.float32))])
    rewards, discounts = torch.tensor([reward]), torch.tensor([discount])
    return Drawn(batch_of(2), torch.tensor([1]), rewards, later, discounts, torch.ones(1), np.zeros(1, np.int64))


def test_double_q_picks_with_one_network_and_values_with_the_other() -> None:
    online, target = Table(0.0, 1.0, 5.0, 4.0), Table(0.0, 0.0, 0.5, 9.0)
    # Online prefers token 2, worth 0.5 to the target: goal = 1 + 0.9 x 0.5 = 1.45; Q = 1; Huber = 0.45^2 / 2
    loss, errors = q_loss(online, target, drawn(1.0, 0.9))
    assert float(loss.detach()) == pytest.approx(0.45**2 / 2)
    assert errors.tolist() == pytest.approx([-0.45])
    loss.backward()
    assert online.scores.grad is not None
    assert online.scores.grad.tolist() == pytest.approx([0.0, -0.45, 0.0, 0.0])
    assert target.scores.grad is None


def test_an_episode_that_ended_is_worth_its_reward() -> None:
    _, errors = q_loss(Table(0.0, 1.0, 5.0, 4.0), Table(0.0, 0.0, 7.0, 9.0), drawn(1.0, 0.0))
    assert errors.tolist() == [0.0]


def test_advantages_of_the_legal_choices_average_to_nothing() -> None:
    class Constant(nn.Module):
        def forward(self, batch: ObservationBatch) -> Tensor:
            return torch.tensor([10.0, 20.0])

    q = Duelling(Table(1.0, 3.0, 7.0), Constant())  # type: ignore[arg-type]
    assert q(batch_of(2, 1)).tolist() == [9.0, 11.0, 20.0]


def test_the_target_network_follows_slowly() -> None:
    target, net = Table(0.0), Table(10.0)
    follow(target, net, 0.1)
    assert target.scores.tolist() == pytest.approx([1.0])


def test_a_distribution_is_moved_onto_the_atoms() -> None:
    # atoms -2, -1, 0; all mass on -1, reward -0.25, discount 0.5: -0.75 is a quarter of the way from 0 to -1
    log_p = torch.log(torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    moved = projected(log_p, torch.tensor([-0.25, -9.0]), torch.tensor([0.5, 0.5]), torch.tensor([-2.0, -1.0, 0.0]))
    assert moved.tolist() == [pytest.approx([0.0, 0.75, 0.25]), [1.0, 0.0, 0.0]]  # beyond the last: all on it


class Distributions(Table):
    """A score per token number, and a distribution over the atoms 0, 1, 2."""

    def __init__(self, *chances: tuple[float, float, float], scores: tuple[float, ...]) -> None:
        super().__init__(*scores)
        self.log_p = torch.log(torch.tensor(chances))
        self.support = torch.tensor([0.0, 1.0, 2.0])

    def log_distribution(self, batch: ObservationBatch) -> Tensor:
        return self.log_p[batch.tokens[:, 0].long()]


def test_rainbow_picks_with_one_network_and_takes_the_distribution_of_the_other() -> None:
    # Online prefers token 2, which is surely worth 1 to the target: 0.5 + 0.5 x 1 is the atom 1, that the online net
    # gives token 1 half: -ln 0.5. Token 3, or token 2 by the online net, would be worth 2: 1.5 lies between two atoms.
    low, one, two, spread = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (0.25, 0.5, 0.25)
    online = Distributions(low, spread, two, two, scores=(0.0, 0.0, 5.0, 4.0))
    target = Distributions(low, low, one, two, scores=(0.0, 0.0, 1.0, 2.0))
    loss, errors = rainbow_loss(online, target, drawn(0.5, 0.5)._replace(weights=torch.tensor([2.0])))  # type: ignore[arg-type]
    assert errors.tolist() == pytest.approx([np.log(2)])
    assert float(loss) == pytest.approx(2 * np.log(2))


def test_noise_is_drawn_and_silenced() -> None:
    torch.manual_seed(0)
    layer, inputs = NoisyLinear(3, 2), torch.ones(1, 3)
    still = layer(inputs)
    layer.draw(np.random.default_rng(0))
    assert not torch.allclose(layer(inputs), still)
    layer.draw(None)
    assert torch.equal(layer(inputs), still)


def test_noisy_layers_begin_within_their_bound_on_either_side() -> None:
    torch.manual_seed(0)
    layer = NoisyLinear(16, 32)
    for drawn in (layer.weight.detach(), layer.bias.detach()):
        assert -0.25 <= float(drawn.min()) < -0.1
        assert 0.1 < float(drawn.max()) <= 0.25


def test_rainbow_explores_by_its_noise_alone() -> None:
    # Without noise in its layers it takes the best choice every time, told to explore or not.
    torch.manual_seed(0)
    net = RainbowNet(Sizes(1, 1, 1), RainbowNetConfig(hidden=8, atoms=5))
    for layer in (*net.advantage, *net.value):
        if isinstance(layer, NoisyLinear):
            nn.init.zeros_(layer.weight_sigma)
            nn.init.zeros_(layer.bias_sigma)
    batch = batch_of(4)
    best = int(net(batch).argmax())
    rng = np.random.default_rng(0)
    assert {int(net.act(batch, rng)[0][0]) for _ in range(20)} == {best}
    assert int(net.act(batch, None)[0][0]) == best


def test_soft_actor_weighs_every_choice_by_its_probability() -> None:
    # p = (1/2, 1/2), Q = (1, 3), temperature 0.5: E[0.5 ln p - Q] = -0.5 ln 2 - 2
    scores = torch.zeros(2, requires_grad=True)
    loss, spread = actor_loss(scores, batch_of(2), torch.tensor([1.0, 3.0]), 0.5)
    assert float(loss.detach()) == pytest.approx(-0.5 * np.log(2) - 2)
    assert spread.tolist() == pytest.approx([np.log(2)])
    loss.backward()
    assert scores.grad is not None
    # d/ds_i sum p_j (T ln p_j - Q_j) = p_i (T ln p_i - Q_i - loss): (1/2)(-1 + 2), (1/2)(-3 + 2)
    assert scores.grad.tolist() == pytest.approx([0.5, -0.5])


def test_soft_critic_is_fitted_to_the_goal() -> None:
    q = Table(0.0, 1.0)
    loss = critic_loss(q, drawn(0.0, 0.0), torch.tensor([3.0]))
    loss.backward()
    assert float(loss.detach()) == pytest.approx(4.0)
    assert q.scores.grad is not None
    assert q.scores.grad.tolist() == pytest.approx([0.0, -4.0])


def test_too_little_entropy_raises_the_temperature() -> None:
    log_t = torch.tensor(0.0, requires_grad=True)
    temperature_loss(log_t, torch.tensor([0.1, 0.3]), torch.tensor([0.5, 0.5])).backward()
    assert log_t.grad is not None
    assert float(log_t.grad) == pytest.approx(-0.3)  # descending the loss raises it
