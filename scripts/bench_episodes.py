"""How fast episodes in the compiled engine are, beside those in the kernel, in one run.

    python scripts/bench_episodes.py [--seconds 1.5] [--workload heterogeneous-dag] [--train] [--json]

Decisions per CPU-second, and their ratio to ``Episode`` with the codec, the reward and random choices. The job
sequences are drawn before. ``--train`` adds whole iterations of PPO in both engines, whose weights must be equal, and
the share that torch takes (choices, evaluations, gradients and steps of the network), which bounds what is possible.
``--vector`` measures only 64 environments as a user steps them (first legal action, observations and masks copied,
new episodes included), beside CartPole in the vector environments of Gymnasium and of stable-baselines3. With a pool,
its sequences are built in the first seconds, so use ``--seconds 10``. The machine may be busy: read the ratios, and
repeat. Exits with 1 if random choices in 64 episodes are less than 10 times as fast as in the kernel, or if weights
differ.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from time import process_time
from typing import Any
from unittest.mock import patch

import command
import gymnasium
import numpy as np
import torch
from bench_env import codec, fresh_ppo

from dagsim.config.schema import load_config
from dagsim.families.episodes.episode_calls import EpisodeBatch
from dagsim.families.episodes.episode_state import EpisodeReward
from dagsim.families.episodes.side_by_side import CompiledEpisodes
from dagsim.families.learning.codecs.candidates import Candidates
from dagsim.families.learning.codecs.codec import CandidatesConfig
from dagsim.families.learning.environments.make_env import make_vector_env
from dagsim.families.learning.episode import Episode, RewardConfig
from dagsim.families.learning.training.rollouts import spared
from dagsim.systems.cluster.scenario import ClusterScenario, cluster_scenario_of

ASKED = {
    "random, 64 episodes": 25.0,
    "linear, 64 episodes": 14.0,
    "torch, 64 episodes": 12.0,
    "random, 1 episode": 6.0,
    "make_vec, 64 environments": 12.0,
    "forks": 50.0,
    "PPO": 3.5,
}
"""Ratios asked for: to an ``Episode``, a ``SyncVectorEnv``, ``view.fork()``, and PPO in the kernel."""
LEAST = 10.0
SEQUENCES = 32

Choose = Callable[[EpisodeBatch], np.ndarray]


def by_chance() -> Choose:
    """Choose any row."""
    rng = np.random.default_rng(0)
    return lambda batch: (rng.random(len(batch.context)) * np.diff(batch.first)).astype(np.int64)


def best_row(scores: np.ndarray, batch: EpisodeBatch) -> np.ndarray:
    """The row of each episode with the highest score, counted within it."""
    maxima = np.maximum.reduceat(scores, batch.first[:-1])
    hits = np.flatnonzero(scores == np.repeat(maxima, np.diff(batch.first)))
    chosen: np.ndarray = hits[np.searchsorted(hits, batch.first[:-1])] - batch.first[:-1]
    return chosen


def linear() -> Choose:
    """Choose by a weighted sum of the features."""
    weights = np.random.default_rng(5).normal(size=len(Candidates.token_features)).astype(np.float32)
    return lambda batch: best_row(batch.tokens @ weights, batch)


def mlp() -> Choose:
    """Choose by two hidden layers of 64 units in torch."""
    torch.manual_seed(0)
    parts = (torch.nn.Linear(len(Candidates.token_features), 64), torch.nn.Linear(64, 64), torch.nn.Linear(64, 1))
    net = torch.nn.Sequential(parts[0], torch.nn.ReLU(), parts[1], torch.nn.ReLU(), parts[2])

    def choose(batch: EpisodeBatch) -> np.ndarray:
        with torch.inference_mode():
            return best_row(net(torch.from_numpy(batch.tokens)).numpy()[:, 0], batch)

    return choose


def simulated(scenario: ClusterScenario, seconds: float) -> float:
    """Decisions per CPU-second of episodes in the kernel under random choices."""
    reward, decisions, began = RewardConfig({"shaped_job_seconds": 1.0}, 1000.0), 0, process_time()
    for seed in count():
        decisions += codec(scenario, range(seed % SEQUENCES, seed % SEQUENCES + 1), reward)
        if process_time() - began > seconds:
            break
    return decisions / (process_time() - began)


def compiled(scenario: ClusterScenario, number: int, choose: Choose, seconds: float) -> float:
    """Decisions per CPU-second of ``number`` compiled episodes, which begin again when they are over."""
    compiled = CompiledEpisodes(scenario, number, CandidatesConfig(), EpisodeReward(1.0, 1000.0))
    every, seeds = np.arange(number), count()
    for seed in range(SEQUENCES):
        compiled.begin(every[:1], [seed])
    compiled.begin(every, [next(seeds) % SEQUENCES for _ in range(number)])
    decisions, began = 0, process_time()
    while process_time() - began < seconds:
        for _ in range(20):
            _, over = compiled.advance(every, choose(compiled.observe(every)))
            if over.any():
                which = np.flatnonzero(over)
                compiled.begin(which, [next(seeds) % SEQUENCES for _ in which])
        decisions += 20 * number
    return decisions / (process_time() - began)


def vector(workload: str, engine: str, seconds: float) -> float:
    """Steps per CPU-second of 64 environments under random legal actions."""
    envs = make_vector_env(64, workload, [f"engine={engine}"])
    rng, steps = np.random.default_rng(0), 0
    _, infos = envs.reset(seed=0)
    began = process_time()
    while process_time() - began < seconds:
        legal = infos["action_mask"].astype(bool)
        place = (rng.random(64) * legal.sum(axis=1)).astype(int)
        _, _, _, _, infos = envs.step((legal.cumsum(axis=1) > place[:, None]).argmax(axis=1))
        steps += 64
    return steps / (process_time() - began)


def stepped(make: Callable[[], Any], seconds: float) -> float:
    """Steps per CPU-second of a vector environment under the first legal action, or action 0 without masks."""
    envs = make()
    _, infos = envs.reset(seed=0)
    steps, began = 0, None
    while began is None or process_time() - began < seconds:
        for _ in range(20):
            masks = infos.get("action_mask")
            actions = np.zeros(envs.num_envs, np.int64) if masks is None else masks.argmax(axis=1)
            _, _, _, _, infos = envs.step(actions)
        steps += 20 * envs.num_envs
        if began is None:
            steps, began = 0, process_time()
    return steps / (process_time() - began)


def vectors() -> dict[str, Callable[[], Any]]:
    """Vector environments of 64, by name."""
    ours = {
        f"{workload or 'default configuration'}, {'pool of 256' if pool else 'no pool'}": (
            lambda workload=workload, pool=pool: make_vector_env(64, workload, pool=pool)
        )
        for workload in ("heterogeneous-dag", None)
        for pool in (None, 256)
    }
    cart = {
        f"CartPole, {way}": (lambda way=way: gymnasium.make_vec("CartPole-v1", 64, vectorization_mode=way))
        for way in ("vector_entry_point", "sync")
    }
    return {**ours, **cart, "CartPole, stable-baselines3": DummyVector}


class DummyVector:
    """The vector environment of stable-baselines3, with the methods of Gymnasium's."""

    num_envs = 64

    def __init__(self) -> None:
        from stable_baselines3.common.vec_env import DummyVecEnv

        self._envs = DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * self.num_envs)

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        self._envs.seed(seed)
        return self._envs.reset(), {}

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        observations, rewards, dones, _ = self._envs.step(actions)
        return observations, rewards, dones, dones, {}


def forks(scenario: ClusterScenario) -> tuple[float, float]:
    """Microseconds of a fork in the middle of an episode: in the kernel, and compiled."""
    kernel = scenario.kernel(0)
    episode = Episode(kernel, Candidates())
    compiled = CompiledEpisodes(scenario, 2, CandidatesConfig(), EpisodeReward())
    compiled.begin(np.arange(1), [0])
    for _ in range(300):
        episode.step(0)
        compiled.advance(np.arange(1), np.zeros(1, np.int64))
    times = []
    for fork, copies in ((lambda: episode.view.fork(), 300), (lambda: compiled.fork(0, 1), 10_000)):  # type: ignore[union-attr]
        fork()
        began = process_time()
        for _ in range(copies):
            fork()
        times.append((process_time() - began) / copies * 1e6)
    return times[0], times[1]


def ppo(scenario: ClusterScenario, in_engine: bool) -> tuple[float, bytes, float]:
    """Samples per CPU-second of whole iterations of PPO after the first one, the weights, and the share of torch."""
    learner = fresh_ppo(scenario, compiled=in_engine)
    learner.iterate(0, 0.0)
    torch_s = 0.0

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **settings: Any) -> Any:
            nonlocal torch_s
            began = process_time()
            value = call(*arguments, **settings)
            torch_s += process_time() - began
            return value

        return run

    with ExitStack() as stack:
        for of, name in (
            (learner.net, "act"),
            (learner.net, "evaluate"),
            (learner.optimizer, "step"),
            (torch.Tensor, "backward"),
        ):
            stack.enter_context(patch.object(of, name, counted(getattr(of, name))))
        samples, began = 0.0, process_time()
        for number in (1, 2, 3):
            samples += learner.iterate(number, number / 100)["samples"]
        spent_s = process_time() - began
    weights = b"".join(value.numpy().tobytes() for value in learner.net.state_dict().values())
    return samples / spent_s, weights, torch_s / spent_s


def _vectors(seconds: float, say: command.Say) -> dict[str, Any]:
    rates = dict[str, float]()
    with spared():
        for name, make in vectors().items():
            try:
                rates[name] = stepped(make, seconds)
            except ImportError:
                say(f"{name:42} not installed")
                continue
            say(f"{name:42} {rates[name]:10,.0f} steps per CPU-second")
    return {"rates": rates, "ratios": {}, "weights_equal": True}


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    torch.set_num_threads(1)
    if options.vector:
        return _vectors(options.seconds, say)
    scenario = cluster_scenario_of(load_config(None, [f"workload={options.workload}"]))
    for seed in range(SEQUENCES):
        list(scenario.jobs(seed))
    seconds, rates, ratios = options.seconds, dict[str, float](), dict[str, float]()

    def beside(name: str, run: Callable[[], float], base: Callable[[], float]) -> None:
        """Measure both between two runs of the base, because the machine's speed changes."""
        before, rates[name] = base(), run()
        ratios[name] = 2 * rates[name] / (before + base())
        say(f"{name:28} {rates[name]:10,.0f} per CPU-second, {ratios[name]:5.1f} times (asked {ASKED[name]:g})")

    with spared():
        for name, number, choose in (
            ("random, 64 episodes", 64, by_chance()),
            ("linear, 64 episodes", 64, linear()),
            ("torch, 64 episodes", 64, mlp()),
            ("random, 1 episode", 1, by_chance()),
        ):
            beside(
                name,
                lambda number=number, choose=choose: compiled(scenario, number, choose, seconds),  # type: ignore[misc]
                lambda: simulated(scenario, seconds / 2),
            )
        beside(
            "make_vec, 64 environments",
            lambda: vector(options.workload, "auto", seconds),
            lambda: vector(options.workload, "simpy", seconds),
        )
        slow_us, fast_us = forks(scenario)
        ratios["forks"] = slow_us / fast_us
        say(f"forks                        {fast_us:.1f} us, view.fork() {slow_us:.0f} us, {ratios['forks']:.0f} times")
        same = True
        if options.train:
            (slow, weights, _), (fast, others, share) = ppo(scenario, False), ppo(scenario, True)
            rates["PPO"], ratios["PPO"], same = fast, fast / slow, weights == others
            say(f"PPO {fast:,.0f} samples per CPU-second, {fast / slow:.1f} times; weights equal: {same}")
            rates["torch"] = fast / share
            say(f"torch takes {100 * share:.0f} % of it: {fast / share:,.0f} per CPU-second if nothing else took time")
    return {"rates": rates, "ratios": ratios, "asked": ASKED, "weights_equal": same}


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=1.5, help="CPU-seconds of each measurement (default 1.5)")
    parser.add_argument("--workload", default="heterogeneous-dag")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--vector", action="store_true")
    return command.run(
        parser, _work, holds=lambda of: of["ratios"].get("random, 64 episodes", LEAST) >= LEAST and of["weights_equal"]
    )


if __name__ == "__main__":
    raise SystemExit(main())
