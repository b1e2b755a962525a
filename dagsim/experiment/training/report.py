"""The report of a training: the agent and heuristics, on seeds that no other training uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dagsim.agents.checkpoint import Checkpoint
from dagsim.agents.rollouts import evaluate_greedy
from dagsim.config.schema import Config
from dagsim.envs.episode import EpisodeFactory, RewardConfig
from dagsim.experiment.scenario import scenario_of
from dagsim.experiment.simulate import run_policy
from dagsim.metrics import summarize

__all__ = ["ReportLine", "compare_agents"]


class ReportLine(NamedTuple):
    """The result of one policy on one report seed."""

    policy: str
    seed: int
    metrics: Mapping[str, Any]


def compare_agents(
    config: Config,
    agents: Mapping[str, Checkpoint],
    heuristics: Sequence[str],
    seeds: Sequence[int],
    tell: Callable[[str, int, int], None] | None = None,
) -> list[ReportLine]:
    """Run every agent (greedy) and heuristic on every seed. The first heuristic comes first,
    because it is the reference.
    """
    lines: list[ReportLine] = []
    for done, policy in enumerate(heuristics):
        if tell is not None:
            tell(policy, done, len(heuristics) + len(agents))
        lines += [ReportLine(policy, seed, run_policy(config, policy, seed).summary.to_dict()) for seed in seeds]
    scenario, reward = scenario_of(config), config.training().reward
    for done, (name, agent) in enumerate(agents.items(), len(heuristics)):
        if tell is not None:
            tell(name, done, len(heuristics) + len(agents))
        factory = EpisodeFactory(scenario, agent.codec, RewardConfig(reward), record=True)
        ran = evaluate_greedy(agent.network(), factory, seeds, agent.clipped)
        lines += [
            ReportLine(name, seed, summarize(simulation.schedule).to_dict())
            for seed, simulation in zip(seeds, ran, strict=True)
        ]
    return lines
