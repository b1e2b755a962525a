"""Rainbow (Hessel et al. 2018) with any number of choices and in continuous time. It combines
double, duelling, n-step, prioritised, distributional (C51, Bellemare et al. 2017) and noisy
(Fortunato et al. 2018) Q-learning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dagsim.families.learning.nets.actor import ObservationBatch, ScoreNet, chosen_rows, sample, segment_mean
from dagsim.families.learning.nets.row_nets import Sizes, mean_rows
from dagsim.families.learning.off_policy import RainbowConfig
from dagsim.families.learning.off_policy.q_learning import QLearner
from dagsim.families.learning.off_policy.replay import Drawn
from dagsim.families.learning.training.learner import LearnerContext
from dagsim.systems.seam import CodecSettings

_SIGMA = 0.5


class NoisyLinear(nn.Module):
    """A linear layer with noisy weights: factorised Gaussian noise, whose scale is learned. There
    is no noise before the first call to ``draw``.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = inputs**-0.5
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((outputs, inputs), _SIGMA * bound))
        self.bias_sigma = nn.Parameter(torch.full((outputs,), _SIGMA * bound))
        self.noise_in: Tensor
        self.noise_out: Tensor
        self.register_buffer("noise_in", torch.zeros(inputs))
        self.register_buffer("noise_out", torch.zeros(outputs))

    def draw(self, rng: np.random.Generator | None) -> None:
        """Draw new noise. If ``rng`` is ``None``, remove the noise."""
        for noise in (self.noise_in, self.noise_out):
            normal = np.zeros(len(noise)) if rng is None else rng.normal(size=len(noise))
            noise.copy_(torch.from_numpy(np.sign(normal) * np.sqrt(np.abs(normal))))

    def forward(self, inputs: Tensor) -> Tensor:
        weight = self.weight + self.weight_sigma * torch.outer(self.noise_out, self.noise_in)
        return nn.functional.linear(inputs, weight, self.bias + self.bias_sigma * self.noise_out)


@dataclass(frozen=True, slots=True)
class RainbowNetConfig:
    """Settings of Rainbow's network, which are stored in its checkpoints."""

    hidden: int = 64
    atoms: int = 51
    low: float = -6.0
    high: float = 1.0

    def build(self, codec: CodecSettings) -> RainbowNet:
        """Build a new network for the codec's observations."""
        return RainbowNet(Sizes.of(codec, "rainbow"), self)


class RainbowNet(ScoreNet):
    """Predicts a distribution of the return for each row. The distribution has ``atoms`` values
    from ``low`` to ``high``. The score of a row is the mean of its distribution."""

    def __init__(self, sizes: Sizes, settings: RainbowNetConfig) -> None:
        super().__init__()
        hidden, atoms = settings.hidden, settings.atoms
        self.embed = nn.Sequential(nn.Linear(sizes.tokens, hidden), nn.ReLU())
        self.around = nn.Linear(hidden + sizes.context, hidden)
        self.own = nn.Linear(hidden, hidden, bias=False)
        self.advantage = nn.Sequential(NoisyLinear(hidden, hidden), nn.ReLU(), NoisyLinear(hidden, atoms))
        self.value = nn.Sequential(NoisyLinear(hidden, hidden), nn.ReLU(), NoisyLinear(hidden, atoms))
        self.support: Tensor
        self.register_buffer("support", torch.linspace(settings.low, settings.high, atoms))

    def log_distribution(self, batch: ObservationBatch) -> Tensor:
        """Return the log-probability of each atom for each row, computed from V + A - mean of A
        over the legal choices. Shape (N, atoms).
        """
        rows = self.embed(batch.tokens)
        around = self.around(torch.cat([mean_rows(rows, batch), batch.context], dim=1))
        advantage = self.advantage(torch.relu(self.own(rows) + around[batch.segment]))
        mean = segment_mean(advantage, batch.segment, batch.size)
        value = self.value(torch.relu(around))
        return torch.log_softmax((value - mean)[batch.segment] + advantage, dim=1)

    def forward(self, batch: ObservationBatch) -> Tensor:
        return torch.exp(self.log_distribution(batch)) @ self.support

    def draw_noise(self, rng: np.random.Generator | None) -> None:
        """Draw new noise in every layer. If ``rng`` is ``None``, remove the noise."""
        for layer in (*self.advantage, *self.value):
            if isinstance(layer, NoisyLinear):
                layer.draw(rng)

    def act(
        self, batch: ObservationBatch, rng: np.random.Generator | None, explore: float | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Choose the best action under newly drawn noise, which leads to exploration.
        Without ``rng``, there is no noise.
        """
        self.draw_noise(rng)
        return super().act(batch, rng, 0.0 if rng is not None else None)


def projected(log_p: Tensor, rewards: Tensor, discounts: Tensor, support: Tensor) -> Tensor:
    """Return the distribution of reward + discount x return, projected onto the atoms. Shape (B,
    atoms). ``log_p`` (B, atoms) is the distribution of the return (Bellemare et al. 2017, algorithm
    1).
    """
    low, high, atoms = float(support[0]), float(support[-1]), len(support)
    values = (rewards[:, None] + discounts[:, None] * support).clamp(low, high)
    place = (values - low) / (high - low) * (atoms - 1)
    below = place.floor().clamp(0, atoms - 2)
    share = place - below  # the fraction of the probability that goes to the next higher atom
    p = torch.exp(log_p)
    moved = torch.zeros_like(p)
    moved.scatter_add_(1, below.long(), p * (1 - share))
    moved.scatter_add_(1, below.long() + 1, p * share)
    return moved


def rainbow_loss(net: RainbowNet, target: RainbowNet, drawn: Drawn) -> tuple[Tensor, Tensor]:
    """Return the weighted cross-entropy between the prediction and the projected distribution of
    the target. Also return the cross-entropy (B,) of each transition.

    The online network selects the next choice, and the target network provides its distribution
    (double Q-learning).
    """
    log_p = net.log_distribution(drawn.batch)[drawn.batch.first + drawn.choices]
    with torch.no_grad():
        after = drawn.following
        next_choices = sample(net(after).cpu().numpy(), after.first.cpu().numpy())
        following = target.log_distribution(after)[chosen_rows(after, next_choices)]
        target_p = projected(following, drawn.rewards, drawn.discounts, target.support)
    errors = -(target_p * log_p).sum(dim=1)
    return (drawn.weights * errors).mean(), errors.detach()


class Rainbow(QLearner[RainbowConfig, RainbowNet]):
    """Runs episodes with the greedy choices under noise, and then learns from the replay buffer."""

    def __init__(self, context: LearnerContext) -> None:
        assert isinstance(context.config.algorithm, RainbowConfig)
        config = context.config.algorithm
        torch.manual_seed(context.seed)
        hidden = getattr(context.config.net, "hidden", 64)
        settings = RainbowNetConfig(hidden, config.atoms, *config.support)
        self.net = settings.build(context.config.codec).to(context.device)
        self.net.settings = settings
        super().__init__(context, config, self.net, self.net)

    def iterate(self, iteration: int, progress: float) -> dict[str, float]:
        context = self._context
        seeds = context.job_seeds(iteration, self.config.episodes)
        return self.learn(context.play(self.net, seeds, context.rng_key(iteration)), iteration, progress)

    def _loss(self, drawn: Drawn, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        self.net.draw_noise(rng)
        self.target.draw_noise(rng)
        return rainbow_loss(self.net, self.target, drawn)

    def state(self) -> dict[str, Any]:
        return {"net": self.net.state_dict(), **super().state()}

    def load(self, state: Mapping[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        super().load(state)
