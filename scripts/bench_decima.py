"""How fast the Spark simulation is: simulated tasks and decisions per CPU-second on a workload file.

    python scripts/bench_decima.py --workload FILE [--executors N] [--repeats 5] [--checkpoint FILE] [--json]

Fair and FIFO by spark-sched-sim's rules, directly and through the Gymnasium environment with its observations, and
Decima's network acting (``--checkpoint``; without one its weights are 0, which costs the same for each decision): the
episode alone is timed (``time.process_time``), with the workload read before; medians of the repeats. All run in turn,
so that a drift of the machine hits all.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import command
import torch
from clock import in_turn
from command import Say

from dagsim.errors import TraceError
from dagsim.families.decima.decima_env import DecimaEnv
from dagsim.families.decima.decima_settings import DecimaNetConfig
from dagsim.families.learning.agent_policy import AgentPolicy, load_agent
from dagsim.families.learning.checkpoint import Checkpoint
from dagsim.families.spark.api import SPARK_POLICIES, Dump, SparkEpisode, SparkPolicy, read_dump
from dagsim.families.spark.codecs import StagesConfig
from dagsim.families.spark.scenario import SparkScenario

POLICIES = ("fair", "fifo")


def direct(dump: Dump, executors: int, policy: SparkPolicy) -> SparkEpisode:
    """Run one episode."""
    delay_ms = 2000.0 if dump.moving_delay_ms is None else dump.moving_delay_ms
    scenario = SparkScenario(executors, moving_delay_s=delay_ms / 1000, parity=True)
    simulation = scenario.kernel(0, record=False, jobs=dump.jobs)
    return simulation.run(policy)


def through_environment(env: DecimaEnv, dump: Dump, policy: SparkPolicy) -> SparkEpisode:
    """Run one episode step by step, building every observation."""
    env.reset(seed=0, options={"jobs": dump.jobs})
    while env.view is not None:
        env.step(env.action_of(next(iter(policy.decide(env.view)), None)))
    assert env.simulation is not None
    episode: SparkEpisode = env.simulation.episode
    return episode


def measure(dump: Dump, executors: int, repeats: int, checkpoint: Path | None) -> dict[str, dict[str, float]]:
    """For each way of playing: tasks, decisions, CPU-seconds (median) and the two rates."""
    torch.set_num_threads(1)
    env = DecimaEnv(executors, parity=True)
    if checkpoint is None:
        codec, net = StagesConfig(), DecimaNetConfig()
        blank = Checkpoint("ppo", net, codec, net.build(codec).state_dict(), {}, None, "spark")
    agent = AgentPolicy(blank) if checkpoint is None else load_agent(checkpoint, system=SparkScenario)
    ways: dict[str, Callable[[], SparkEpisode]] = {}
    for policy in POLICIES:
        ways[policy] = lambda name=policy: direct(dump, executors, SPARK_POLICIES.create(name))  # type: ignore[misc]
        ways[f"{policy} through the environment"] = lambda name=policy: through_environment(  # type: ignore[misc]
            env, dump, SPARK_POLICIES.create(name)
        )
    ways["decima"] = lambda: direct(dump, executors, agent)
    last: dict[str, SparkEpisode] = {}
    spent_s = in_turn({way: lambda way=way: last.update({way: ways[way]()}) for way in ways}, repeats)  # type: ignore[misc]
    rows = {}
    for way, done in last.items():
        cpu_s = spent_s[way]
        rows[way] = {
            "tasks": done.tasks,
            "decisions": done.decisions,
            "cpu_s": cpu_s,
            "tasks_per_cpu_s": done.tasks / cpu_s,
            "decisions_per_cpu_s": done.decisions / cpu_s,
            "mean_jct_s": done.mean_jct_s,
        }
    return rows


def _work(options: Namespace, say: Say) -> dict[str, dict[str, float]]:
    dump = read_dump(options.workload)
    executors = options.executors if options.executors is not None else dump.executors
    if executors is None:
        raise TraceError(f"{options.workload}: the file does not name its number of executors; give --executors")
    rows = measure(dump, executors, options.repeats, options.checkpoint)
    for way, row in rows.items():
        say(
            f"{way}: {row['tasks_per_cpu_s']:,.0f} tasks and {row['decisions_per_cpu_s']:,.0f} decisions per"
            f" CPU-second ({row['tasks']:,} tasks, {row['decisions']:,} decisions, {row['cpu_s']:.3f} CPU-s)"
        )
    return rows


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--workload", type=Path, required=True, help="a workload file (.json or .json.gz)")
    parser.add_argument("--executors", type=int, help="number of executors, where the file does not name it")
    parser.add_argument("--repeats", type=command.at_least_one, default=5, help="runs of each policy (default 5)")
    parser.add_argument("--checkpoint", type=Path, help="a trained network, e.g. the best.pt of a run folder")
    return command.run(parser, _work)


if __name__ == "__main__":
    sys.exit(main())
