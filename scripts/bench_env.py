"""How fast learning is: decisions per CPU-second, and where the time goes.

    python scripts/bench_env.py [--episodes 20] [--repeats 3] [--workload heterogeneous] [--train] [--json]

Random legal actions play the candidates codec alone (on which our agents train), the Gymnasium environment with each
observation preset, and eight environments in a ``SyncVectorEnv``. The kernel's share of a decision is the cost of a
policy that looks at nothing (``sjf``); the codec's share is the rest of the first figure. ``--train`` adds samples per
CPU-second of PPO's whole iterations (playing and learning), and of sb3-contrib's MaskablePPO on the same environment if
that is installed. CPU time of one process with one torch thread, best of several passes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import command
import gymnasium
import numpy as np
import torch
from clock import timed

from dagsim.config.schema import Config, load_config
from dagsim.families.learning.codecs.candidates import Candidates
from dagsim.families.learning.environments.make_env import make_env
from dagsim.families.learning.episode import Episode, EpisodeFactory, Reward, RewardConfig
from dagsim.families.learning.on_policy import PpoConfig
from dagsim.families.learning.training.learner import LearnerContext
from dagsim.families.learning.training.rollouts import InProcessRollouts, play, spared
from dagsim.families.learning.training.train_config import TrainConfig
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario, cluster_scenario_of


def kernel(scenario: ClusterScenario, seeds: range) -> int:
    """Count the decisions of SJF, without a codec."""
    return sum(scenario.kernel(seed).run(POLICIES.create("sjf")).log.rows()["kind"].tolist().count(3) for seed in seeds)


def codec(scenario: ClusterScenario, seeds: range, reward: RewardConfig | None) -> int:
    """Play random choices on the candidates codec."""
    rng, count = np.random.default_rng(0), 0
    for seed in seeds:
        kernel = scenario.kernel(seed)
        rewarded = None if reward is None else Reward(reward, kernel, scenario.terms)
        episode = Episode(kernel, Candidates(), rewarded)
        while episode.observation is not None:
            episode.step(int(rng.integers(len(episode.observation.tokens))))
            episode.reward()
            count += 1
    return count


def network(scenario: ClusterScenario, seeds: range) -> int:
    """Play all episodes in parallel with an untrained network."""
    train = TrainConfig()
    factory = EpisodeFactory(scenario, train.codec, RewardConfig(train.reward))
    net = LearnerContext(train, InProcessRollouts(factory), 0, 1.0, seeds).net()
    played = play(net, [factory.episode(seed) for seed in seeds], np.random.default_rng(0))
    return sum(len(steps.choices) for steps in played)


def environment(config: Config, seeds: range, preset: str) -> int:
    """Play random legal actions through Gymnasium."""
    env, rng, count = make_env(config, observation=preset), np.random.default_rng(0), 0
    for seed in seeds:
        _, info = env.reset(seed=seed)
        over = False
        while not over:
            (legal,) = info["action_mask"].nonzero()
            _, _, over, _, info = env.step(int(legal[int(rng.random() * len(legal))]))
            count += 1
    return count


def vector(config: Config, steps: int) -> int:
    """Play random legal actions in eight environments at a time."""
    envs: Any = gymnasium.vector.SyncVectorEnv([lambda: make_env(config) for _ in range(8)])
    _, infos = envs.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        masks = infos["action_mask"]
        _, _, _, _, infos = envs.step(np.array([rng.choice(np.flatnonzero(m)) if m.any() else 0 for m in masks]))
    return 8 * steps


def ppo(config: Config) -> Callable[[], int]:
    """Run whole iterations of our PPO. Its first optimizer is built before timing, because torch
    then imports 800 modules.
    """
    learner = fresh_ppo(cluster_scenario_of(config))
    return lambda: int(sum(learner.iterate(number, number / 100)["samples"] for number in range(4)))


def fresh_ppo(scenario: ClusterScenario, *, compiled: bool = False) -> Any:
    """A new PPO with four job sequences per iteration."""
    train = TrainConfig(algorithm=PpoConfig(sequences=4))
    factory = EpisodeFactory(scenario, train.codec, RewardConfig(train.reward), compiled=compiled)
    context = LearnerContext(train, InProcessRollouts(factory), 0, 1500.0, range(1_000_000, 1_001_000))
    return train.algorithm.build(context)


def maskable(config: Config, steps: int) -> int:
    """Run sb3-contrib's MaskablePPO with its defaults."""
    from sb3_contrib import MaskablePPO

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MaskablePPO("MlpPolicy", make_env(config, observation="flat"), verbose=0)
        model.learn(steps)
    return steps


def rate(work: Callable[[], int], repeats: int) -> float:
    """Count of ``work`` per CPU-second. Best of ``repeats`` passes, because other processes can
    only slow it down.
    """
    passes = (timed(work) for _ in range(repeats))
    return max(count / spent_s for count, spent_s in passes)


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    torch.set_num_threads(1)
    config = load_config(None, [f"workload={options.workload}"])
    seeds, shaped = range(options.episodes), RewardConfig({"shaped_job_seconds": 1.0})
    cluster_scenario_of(config).kernel(0)

    def fresh() -> ClusterScenario:
        """Return a scenario that has not drawn its jobs yet, so that every pass includes drawing."""
        return cluster_scenario_of(config)

    work: dict[str, Callable[[], int]] = {
        "kernel alone (sjf)": lambda: kernel(fresh(), seeds),
        "candidates": lambda: codec(fresh(), seeds, None),
        "candidates and reward": lambda: codec(fresh(), seeds, shaped),
        "candidates, reward and network": lambda: network(fresh(), seeds),
        **{
            f"Gymnasium, {preset}": lambda preset=preset: environment(config, seeds, preset)  # type: ignore[misc]
            for preset in ("flat", "dict", "candidates", "graph")
        },
        "Gymnasium, 8 in a vector": lambda: vector(config, 200),
    }
    trainings: dict[str, Callable[[], int]] = {}
    if options.train:
        trainings = {"PPO, whole iterations": ppo(config), "MaskablePPO (sb3-contrib)": lambda: maskable(config, 4096)}
        work |= trainings
    rates: dict[str, float | None] = {}
    for name, way in work.items():
        try:
            with spared():  # as in a training session
                rates[name] = round(rate(way, 1 if name in trainings else options.repeats), 1)
        except ImportError:
            rates[name] = None
        value = "not installed" if rates[name] is None else f"{rates[name]:10,.0f} per CPU-second"
        say(f"{name:32} {value}")
    first, seen, all_ = (
        rates[name] or 1.0 for name in ("kernel alone (sjf)", "candidates", "candidates, reward and network")
    )
    shares = {"kernel": all_ / first, "codec": all_ / seen - all_ / first, "reward and network": 1 - all_ / seen}
    say("of a decision: " + ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items()))
    return {"rates": rates, "shares": shares}


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3, help="passes, of which the best counts (default 3)")
    parser.add_argument("--workload", default="heterogeneous")
    parser.add_argument("--train", action="store_true")
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())
