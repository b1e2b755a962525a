"""One update of every algorithm, against a reference that takes the choices one by one in float64.

What many updates end in depends on the instruction set of the CPU: float32 sums are rounded by the order in which they
are added, Adam divides by gradients near 0, and a rounded score can turn a choice. A single gradient does not: it
is compared here to a ten-thousandth of its largest part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from families.learning.two_jobs import begun
from torch import Tensor, nn

from dagsim.errors import ConfigError
from dagsim.families.decima.decima_net import DecimaNet, collate, options
from dagsim.families.decima.decima_settings import DecimaNetConfig
from dagsim.families.decima.fluid import differential, fluid_advantages
from dagsim.families.learning.advantages import discounts, replica_advantages, return_rms, returns
from dagsim.families.learning.codecs.codec import Observation
from dagsim.families.learning.episode import EpisodeFactory, RewardConfig
from dagsim.families.learning.nets.actor import ActorNet, ObservationBatch, stack
from dagsim.families.learning.off_policy import D3qnConfig, RainbowConfig, SacConfig
from dagsim.families.learning.off_policy.replay import Drawn
from dagsim.families.learning.on_policy import PpoConfig, ReinforceConfig
from dagsim.families.learning.training.learner import Learner, LearnerContext, WarmStart, clone, imitation, update_ema
from dagsim.families.learning.training.rollouts import EpisodeSteps, InProcessRollouts
from dagsim.families.learning.training.train_config import TrainConfig
from dagsim.families.spark.codecs import StagesConfig
from dagsim.families.spark.scenario import SparkScenario

JCT_S = 15.0
"""Mean completion time of the reference heuristic, as ``begun`` has it."""
PROGRESS = 0.25
ADAM = 0.1
"""The share of its first gradient that Adam keeps as its mean."""

Gradient = dict[str, Tensor]


def doubled(net: nn.Module) -> Any:
    return deepcopy(net).double()


def wide(observation: Any) -> Any:
    """The observation in float64."""
    parts = [part.astype(float) if getattr(part, "dtype", None) == np.float32 else part for part in observation]
    return type(observation)(*parts)


def stirred(net: nn.Module, std: float = 0.3, seed: int = 5) -> None:
    """Weights that are not 0 anywhere, so that every layer has a gradient."""
    rng = torch.Generator().manual_seed(seed)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=std, generator=rng)


def heads(net: ActorNet, observation: Any, choice: Any) -> list[tuple[Tensor, int]]:
    """By head, the log-probabilities of its choices, in float64, and the one that was made."""
    if not isinstance(net, DecimaNet):
        return [(torch.log_softmax(net(stack([wide(observation)])), 0), int(choice))]
    stage, number = choice
    embedded = net.embed(collate([wide(observation)]))
    numbers = options([observation], np.array([stage]))
    scores = net.number_scores(embedded[[stage]], numbers._replace(rows=numbers.rows.double()))
    return [
        (torch.log_softmax(net.stage_scores(embedded), 0), int(stage)),
        (torch.log_softmax(scores, 0), int(number) - 1),
    ]


def is_free(observation: Any) -> bool:
    return len(observation.tokens) > 1 if isinstance(observation, Observation) else int(observation.most.sum()) > 1


def gradient(net: nn.Module, loss: Tensor, max_norm: float | None) -> Gradient:
    """Of each weight, clipped as a whole to ``max_norm``."""
    net.zero_grad()
    loss.backward()
    parts = {name: weight.grad for name, weight in net.named_parameters() if weight.grad is not None}
    norm = float(torch.sqrt(torch.stack([(part**2).sum() for part in parts.values()]).sum()))
    scale = 1.0 if max_norm is None else min(1.0, max_norm / (norm + 1e-6))
    return {name: part * scale for name, part in parts.items()}


def kept_gradient(optimizer: torch.optim.Optimizer, net: nn.Module) -> Gradient:
    """The gradient that Adam's first step was made with."""
    state = optimizer.state
    return {name: state[weight]["exp_avg"] / ADAM for name, weight in net.named_parameters() if weight in state}


def assert_same(actual: Gradient, expected: Gradient) -> None:
    assert actual.keys() == expected.keys()
    most = max(float(part.abs().max()) for part in expected.values())
    assert most > 1e-3
    for name, part in expected.items():
        assert float((actual[name].double() - part).abs().max()) < 1e-4 * most, name


def assert_stepped(before: Gradient, after: Iterable[tuple[str, Tensor]], slope: Gradient, lr: float) -> None:
    """Adam's first step is by ``lr`` against every gradient that is large enough not to be rounded away."""
    most = max(float(part.abs().max()) for part in slope.values())
    for name, weight in after:
        clear = slope[name].abs() > 1e-2 * most
        step = (weight.detach() - before[name])[clear].double()
        assert torch.allclose(step, -lr * torch.sign(slope[name][clear]), rtol=0, atol=0.02 * lr), name


def weights(net: nn.Module) -> Gradient:
    return {name: weight.detach().clone() for name, weight in net.named_parameters()}


def played(learner: Learner, factory: EpisodeFactory, replicas: int, **more: Any) -> list[EpisodeSteps]:
    """Two job sequences, with noted likelihoods that the net no longer gives: two in three ratios are clipped."""
    seeds = [seed for seed in (0, 1) for _ in range(replicas)]
    episodes = InProcessRollouts(factory).play(learner.net, seeds, (1, 0), **more)
    rng = np.random.default_rng(2)
    for steps in episodes:
        steps.log_p = [old + float(rng.choice([-0.3, 0.0, 0.3])) for old in steps.log_p]
        last = steps.observations[-1]
        if isinstance(last, Observation):  # as if nothing else could have been chosen
            steps.observations[-1] = last._replace(tokens=last.tokens[steps.choices[-1] :][:1])
            steps.choices[-1] = 0
    return episodes


def ppo_loss(net: ActorNet, episodes: Sequence[EpisodeSteps], advantages: np.ndarray, config: PpoConfig) -> Tensor:
    """Equation 7 less the entropy, choice by choice."""
    total, scaled, rows = torch.zeros((), dtype=torch.float64), *over_free(episodes, advantages)
    for (observation, choice, old), advantage in zip(rows, scaled, strict=True):
        pairs = heads(net, observation, choice)
        ratio = torch.exp(sum(log_p[at] for log_p, at in pairs) - old)
        clipped = torch.clamp(ratio, 1 - config.clip, 1 + config.clip)
        entropy = -sum((torch.exp(log_p) * log_p).sum() for log_p, _ in pairs)
        total = total - torch.minimum(ratio * advantage, clipped * advantage)
        total = total - config.entropy * (1 - PROGRESS) * entropy
    return total / len(rows)


def reinforce_loss(
    net: ActorNet, episodes: Sequence[EpisodeSteps], advantages: np.ndarray, config: ReinforceConfig
) -> Tensor:
    total, scaled, rows = torch.zeros((), dtype=torch.float64), *over_free(episodes, advantages)
    for (observation, choice, _), advantage in zip(rows, scaled, strict=True):
        pairs = heads(net, observation, choice)
        entropy = -sum((torch.exp(log_p) * log_p).sum() for log_p, _ in pairs)
        total = total - sum(log_p[at] for log_p, at in pairs) * advantage - config.entropy * (1 - PROGRESS) * entropy
    return total / len(rows)


def over_free(episodes: Sequence[EpisodeSteps], advantages: np.ndarray) -> tuple[np.ndarray, list[Any]]:
    """The advantages where there was a choice, in deviations from their mean, and those choices."""
    rows = [row for steps in episodes for row in zip(steps.observations, steps.choices, steps.log_p, strict=True)]
    free = [at for at, (observation, _, _) in enumerate(rows) if is_free(observation)]
    assert 0 < len(free) < len(rows)
    there = advantages[free]
    return (there - there.mean()) / (there.std() + 1e-8), [rows[at] for at in free]


def compared(groups: Sequence[Sequence[EpisodeSteps]], time_constant_s: float) -> np.ndarray:
    return np.concatenate([advantages for group in groups for advantages in replica_advantages(group, time_constant_s)])


@pytest.mark.parametrize("kind", ["scorer", "mlp", "linear", "attention", "graph"])
def test_ppo_steps_along_the_gradient_of_its_clipped_surrogate(kind: str) -> None:
    from dagsim.families.learning.nets import NETS

    config = PpoConfig(sequences=2, replicas=3, epochs=1, minibatch=10_000, target_kl=1e9, min_lr=1e-4)
    learner: Any
    learner, factory = begun(config, NETS.create(f"{kind}[slots=6]" if kind == "mlp" else kind))
    stirred(learner.net, 0.1 if kind in ("graph", "mlp") else 0.3)
    episodes = played(learner, factory, 3)
    net, before = doubled(learner.net), weights(learner.net)
    rng = np.random.default_rng(0)
    metrics = learner.learn(episodes, PROGRESS, rng, rng)
    time_s = JCT_S * 10.0 * 4.0**PROGRESS
    advantages = compared([episodes[:3], episodes[3:]], time_s)
    slope = gradient(net, ppo_loss(net, episodes, advantages, config), config.max_grad)
    assert_same(kept_gradient(learner.optimizer, learner.net), slope)
    assert metrics["lr"] == pytest.approx(2e-3 * 0.75 + 1e-4)
    assert 0.3 < metrics["clipped"] < 0.9
    assert_stepped(before, learner.net.named_parameters(), slope, metrics["lr"])


def test_a_critic_is_fitted_to_the_returns() -> None:
    learner: Any
    learner, factory = begun(PpoConfig(advantage="critic[epochs=1,minibatch=10000]", sequences=2, replicas=1))
    stirred(learner.net)
    critic = learner.estimator.critic
    stirred(critic)
    episodes = played(learner, factory, 1)
    net, before = doubled(critic), weights(critic)
    store = learner.net.store([observation for steps in episodes for observation in steps.observations])
    learner.estimator.estimate(episodes, store, 40.0, np.random.default_rng(0))
    seen = [observation for steps in episodes for observation in steps.observations]
    values = torch.cat([net(stack([wide(observation)])) for observation in seen])
    targets = torch.from_numpy(np.concatenate([returns(steps, 40.0) for steps in episodes]) / JCT_S)
    slope = gradient(net, ((values - targets) ** 2).mean(), 1.0)
    assert_same(kept_gradient(learner.estimator.optimizer, critic), slope)
    assert_stepped(before, critic.named_parameters(), slope, 2e-3)


@pytest.mark.parametrize("minibatch", [None, 10_000])
def test_reinforce_steps_along_the_policy_gradient(minibatch: int | None) -> None:
    config = ReinforceConfig(sequences=2, replicas=3, minibatch=minibatch, max_grad=0.05)
    learner: Any
    learner, factory = begun(config)
    stirred(learner.net)
    episodes = played(learner, factory, 3)
    net = doubled(learner.net)
    rng = np.random.default_rng(0)
    learner.learn(episodes, PROGRESS, rng, rng)
    advantages = compared([episodes[:3], episodes[3:]], JCT_S * 2.0 * 10.0**PROGRESS)
    slope = gradient(net, reinforce_loss(net, episodes, advantages, config), config.max_grad)
    assert_same(kept_gradient(learner.optimizer, learner.net), slope)


SPARK: dict[str, Any] = {"sequences": 2, "replicas": 3, "minibatch": 10_000, "max_grad": 1.0}


@pytest.mark.parametrize(
    ("config", "action"),
    [
        (PpoConfig(advantage="fluid", epochs=1, target_kl=1e9, **SPARK), "executors"),
        (PpoConfig(advantage="fluid", epochs=1, target_kl=1e9, **SPARK), "limit"),
        (ReinforceConfig(advantage="fluid[differential=true]", **SPARK), "executors"),
    ],
    ids=["ppo", "ppo with limits", "reinforce"],
)
def test_decima_learns_with_both_heads(config: PpoConfig | ReinforceConfig, action: Any) -> None:
    codec, scenario = StagesConfig(action), SparkScenario(executors=5, jobs=6)
    factory = EpisodeFactory(scenario, codec, RewardConfig({"job_seconds": 1.0}))
    train = TrainConfig(algorithm=config, net=DecimaNetConfig(), codec=codec, time_constant_s=(100.0, 400.0))
    torch.set_num_threads(1)
    learner: Any = config.build(LearnerContext(train, InProcessRollouts(factory), 0, 1.0, range(9)))
    stirred(learner.net)
    episodes = played(learner, factory, 3, jobs=4, witness=learner.estimator.witness)
    net, copies = doubled(learner.net), deepcopy(episodes)
    rng = np.random.default_rng(0)
    learner.learn(episodes, PROGRESS, rng, rng)
    groups, time_s = [copies[:3], copies[3:]], 100.0 * 4.0**PROGRESS
    by_rate = isinstance(config, ReinforceConfig)
    if by_rate:
        differential(groups)
    advantages = np.concatenate(fluid_advantages(groups, time_s, 0.5 * time_s, discounted=not by_rate))
    loss = reinforce_loss if by_rate else ppo_loss
    slope = gradient(net, loss(net, copies, advantages, config), config.max_grad)  # type: ignore[arg-type]
    assert_same(kept_gradient(learner.optimizer, learner.net), slope)


REPLAY: dict[str, Any] = {"episodes": 3, "updates": 1, "minibatch": 32, "n_step": 1}


def replayed(learner: Any, factory: EpisodeFactory, **more: Any) -> tuple[Drawn, np.random.Generator]:
    """The minibatch that the first update of an equal learner draws, and the generator after that."""
    episodes = InProcessRollouts(factory).play(learner.net, [0, 1, 2], (1, 0), **more)
    time_s = JCT_S * 0.5
    for steps in episodes:
        learner.replay.add(steps, discounts(steps, time_s), 1, return_rms(episodes, time_s))
    rng = np.random.default_rng([1, 0, 5])
    return learner.replay.draw(32, rng), rng


def apart(batch: ObservationBatch) -> list[ObservationBatch]:
    """Each observation of the batch alone, in float64."""
    ends = [*batch.first.tolist()[1:], len(batch.tokens)]
    return [
        ObservationBatch(
            batch.tokens[begin:end].double(),
            batch.context[at : at + 1].double(),
            batch.gpus[at : at + 1].double(),
            torch.zeros(end - begin, dtype=torch.int64),
            torch.zeros(1, dtype=torch.int64),
        )
        for at, (begin, end) in enumerate(zip(batch.first.tolist(), ends, strict=True))
    ]


def transitions(drawn: Drawn) -> Iterable[tuple[ObservationBatch, int, float, ObservationBatch, float, float]]:
    numbers = zip(
        apart(drawn.batch),
        drawn.choices.tolist(),
        drawn.rewards.tolist(),
        apart(drawn.following),
        drawn.discounts.tolist(),
        drawn.weights.tolist(),
        strict=True,
    )
    assert 0 < sum(discount > 0 for discount in drawn.discounts.tolist()) < 32
    return numbers


def duel(q: Any, batch: ObservationBatch) -> Tensor:
    """Q of each row: V + A less the mean of A (Wang et al. 2016, equation 9)."""
    advantage = q.advantage(batch)
    return q.value(batch) + advantage - advantage.mean()


def huber(error: Tensor) -> Tensor:
    return 0.5 * error**2 if float(error.detach().abs()) < 1 else error.abs() - 0.5


def equal_learners(config: Any) -> tuple[Any, Any, EpisodeFactory]:
    """Two that stir the same weights, one to learn and one to look at."""
    (learner, factory), (twin, _) = begun(config), begun(config)
    for model in (learner, twin):
        for seed, part in enumerate(vars(model).values()):
            if isinstance(part, nn.Module):
                stirred(part, seed=seed)
    return learner, twin, factory


def test_d3qn_steps_along_the_gradient_of_the_double_q_error() -> None:
    learner, twin, factory = equal_learners(D3qnConfig(**REPLAY))
    drawn, _ = replayed(twin, factory, explore=0.5)
    q, target, before = doubled(twin.q), doubled(twin.target), weights(twin.target)
    loss = torch.zeros((), dtype=torch.float64)
    for batch, choice, reward, following, discount, weight in transitions(drawn):
        best = int(duel(q, following).argmax())
        value = float(duel(target, following)[best].detach())
        loss = loss + weight * huber(duel(q, batch)[choice] - (reward + discount * value))
    metrics = learner.iterate(0, 0.0)
    assert metrics["loss"] == pytest.approx(float(loss.detach()) / 32, rel=1e-4)
    assert metrics["exploration"] == 0.5
    slope = gradient(q, loss / 32, 10.0)
    assert_same(kept_gradient(learner.optimizer, learner.q), slope)
    for name, old in before.items():  # the target follows the updated net
        new = dict(learner.q.named_parameters())[name].detach()
        assert torch.allclose(dict(learner.target.named_parameters())[name], old + 0.02 * (new - old), atol=1e-6)


def test_rainbow_steps_along_the_gradient_of_its_cross_entropy() -> None:
    learner, twin, factory = equal_learners(RainbowConfig(atoms=7, **REPLAY))
    drawn, rng = replayed(twin, factory)
    twin.net.draw_noise(rng)
    twin.target.draw_noise(rng)
    net, target = doubled(twin.net), doubled(twin.target)
    support = np.linspace(-6.0, 1.0, 7)
    loss = torch.zeros((), dtype=torch.float64)
    for batch, choice, reward, following, discount, weight in transitions(drawn):
        best = int((torch.exp(net.log_distribution(following)) @ net.support).argmax())
        chances = torch.exp(target.log_distribution(following)[best]).detach().numpy()
        goal = np.zeros(7)
        for value, chance in zip(np.clip(reward + discount * support, -6.0, 1.0), chances, strict=True):
            place = (value + 6.0) / 7.0 * 6
            below = min(int(place), 5)
            goal[below] += chance * (below + 1 - place)
            goal[below + 1] += chance * (place - below)
        loss = loss - weight * (torch.from_numpy(goal) * net.log_distribution(batch)[choice]).sum()
    metrics = learner.iterate(0, 0.0)
    assert metrics["loss"] == pytest.approx(float(loss.detach()) / 32, rel=1e-4)
    assert_same(kept_gradient(learner.optimizer, learner.net), gradient(net, loss / 32, 10.0))


def test_soft_actor_critic_steps_along_its_three_gradients() -> None:
    config = SacConfig(temperature=0.2, target_entropy=0.5, **REPLAY)
    learner, twin, factory = equal_learners(config)
    drawn, _ = replayed(twin, factory)
    net, qs, targets = (doubled(part) for part in (twin.net, twin.q, twin.targets))
    metrics = learner.iterate(0, 0.0)
    new_qs = doubled(learner.q)  # the policy is improved on the critics as they are after their own step
    critic, actor = (torch.zeros((), dtype=torch.float64) for _ in range(2))
    short = 0.0
    for batch, choice, reward, following, discount, _ in transitions(drawn):
        log_p = torch.log_softmax(net(following), 0).detach()
        least = torch.minimum(*(duel(target, following) for target in targets)).detach()
        goal = reward + discount * float((torch.exp(log_p) * (least - 0.2 * log_p)).sum())
        critic = critic + sum((duel(q, batch)[choice] - goal) ** 2 for q in qs)
        log_p = torch.log_softmax(net(batch), 0)
        least = torch.minimum(*(duel(q, batch) for q in new_qs)).detach()
        actor = actor + (torch.exp(log_p) * (0.2 * log_p - least)).sum()
        entropy = -float((torch.exp(log_p) * log_p).sum().detach())
        short += entropy - 0.5 * np.log(len(batch.tokens))
    of_actor, of_critics, of_temperature = learner.optimizers
    assert metrics["loss"] == pytest.approx(float(critic.detach()) / 32, rel=1e-4)
    assert_same(kept_gradient(of_critics, learner.q), gradient(qs, critic / 32, None))
    assert_same(kept_gradient(of_actor, learner.net), gradient(net, actor / 32, None))
    (kept,) = of_temperature.state.values()
    assert float(kept["exp_avg"]) / ADAM == pytest.approx(0.2 * short / 32, rel=1e-3)


def test_cloning_steps_along_the_gradient_of_the_smoothed_cross_entropy() -> None:
    learner, factory = begun(PpoConfig())
    stirred(learner.net)
    observations, choices = imitation(factory, "eft-wait", range(20))
    net, before = doubled(learner.net), weights(learner.net)
    how = WarmStart("eft-wait", epochs=1, minibatch=10_000, lr=1e-3, smoothing=0.2)
    mean = clone(learner.net, observations, choices, how, np.random.default_rng(0))
    loss = torch.zeros((), dtype=torch.float64)
    for observation, choice in zip(observations, choices, strict=True):
        log_p = torch.log_softmax(net(stack([wide(observation)])), 0)
        loss = loss - 0.8 * log_p[choice] - 0.2 * log_p.mean()
    assert mean == pytest.approx(float(loss.detach()) / len(choices), rel=1e-5)
    assert_stepped(before, learner.net.named_parameters(), gradient(net, loss / len(choices), None), 1e-3)


def context(**settings: Any) -> LearnerContext:
    return LearnerContext(TrainConfig(**settings), None, 3, 20.0, range(100, 110), 9)  # type: ignore[arg-type]


def test_every_job_sequence_is_learned_on_before_one_comes_again() -> None:
    assert context().job_seeds(0, 4) == [100, 101, 102, 103]
    assert context().job_seeds(2, 4) == [108, 109, 100, 101]


def test_a_curriculum_reaches_all_jobs_half_way() -> None:
    begins = context(first_jobs=3)
    assert [begins.jobs_at(progress) for progress in (0.0, 0.25, 0.5, 1.0)] == [3, 6, 9, 9]
    assert context().jobs_at(0.0) is None


def test_the_time_constant_grows_by_equal_factors() -> None:
    assert context().time_constant_s((10.0, 40.0), 0.0) == 200.0
    assert context().time_constant_s((10.0, 40.0), 0.5) == pytest.approx(400.0)  # 20 s x sqrt(10 x 40)
    assert context(time_constant_s=(1.0, 9.0)).time_constant_s((10.0, 40.0), 0.5) == pytest.approx(3.0)


def test_the_averaged_net_keeps_its_share() -> None:
    one, other = (begun(PpoConfig())[0].net for _ in range(2))
    stirred(one)
    before = weights(one)
    update_ema(one, other, 0.75)
    for (name, mean), new in zip(one.named_parameters(), other.parameters(), strict=True):
        assert torch.allclose(mean, 0.75 * before[name] + 0.25 * new, atol=1e-6)


def test_the_rate_of_cloning_falls_evenly_from_epoch_to_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, factory = begun(PpoConfig())
    observations, choices = imitation(factory, "eft-wait", range(2))
    rates: list[float] = []

    class Noting(torch.optim.Adam):
        def step(self, *args: Any, **kwargs: Any) -> Any:
            rates.append(self.param_groups[0]["lr"])
            return super().step(*args, **kwargs)

    monkeypatch.setattr(torch.optim, "Adam", Noting)
    for final_lr, expected in ((None, [0.01] * 4), (0.001, [0.011, 0.0085, 0.006, 0.0035])):
        rates.clear()
        how = WarmStart("eft-wait", epochs=4, minibatch=10_000, lr=0.01, final_lr=final_lr)
        clone(learner.net, observations, choices, how, np.random.default_rng(0))
        assert rates == pytest.approx(expected)


def test_cloning_limits_the_norm_of_its_gradients() -> None:
    learner, factory = begun(PpoConfig())
    observations, choices = imitation(factory, "eft-wait", range(20))
    limits: list[float] = []
    clip = torch.nn.utils.clip_grad_norm_
    for max_grad in (None, 1e-3):
        how = WarmStart("eft-wait", epochs=1, minibatch=10_000, max_grad=max_grad)
        clone(learner.net, observations, choices, how, np.random.default_rng(0))
        limits.append(float(clip(learner.net.parameters(), 1e9)))  # the gradients of the last step are kept
    assert limits[0] > 1e-2
    assert limits[1] == pytest.approx(1e-3, rel=1e-3)


def test_nothing_to_clone_is_an_error_in_words() -> None:
    learner, _ = begun(PpoConfig())
    with pytest.raises(ConfigError, match=r"train\.warm_start: train\.codec offers none of the decisions"):
        clone(learner.net, [], [], WarmStart("eft-wait"), np.random.default_rng(0))
