"""The compiled engine against the SimPy kernel, on random scenarios: logs, jobs and ends must be equal, byte for byte.

    python scripts/check_engine.py [--cases 1000] [--kinds orders ...] [--first 0] [--json]

Each case is drawn from its number alone, so that ``--first N --cases 1`` plays a single one again: a cluster of up to
12 nodes of up to three GPU types and CPU nodes, some with more GPUs than the log can name; up to 25 DAG jobs with
ties, zero lengths, instances, gangs over nodes, shares of GPUs, CPUs, memory and types allowed, some of them rejected;
a placement; exact or wrong estimates. Where a node has more GPUs than the log can name, shares are whole GPUs, since
the engine refuses others. ``NUMBA_DISABLE_JIT=1`` checks the same text as plain Python. Exits with 1 if any case
differs.
"""

from __future__ import annotations

import random
from typing import Any

import command
import numpy as np

from dagsim.families.compiled import drive as engine_drive
from dagsim.families.compiled import memory
from dagsim.families.compiled.jit import jitted
from dagsim.families.episodes.episode_state import EpisodeReward
from dagsim.families.episodes.side_by_side import CompiledEpisodes
from dagsim.families.learning.codecs.codec import CandidatesConfig, RelativeConfig
from dagsim.families.learning.episode import Episode, Reward, RewardConfig
from dagsim.model import Cluster, Job
from dagsim.model.log import Schedule
from dagsim.systems.cluster import Estimates, Preemption
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import drive
from dagsim.testing import engine_cases
from dagsim.workload.arrays import JobArrays

PLACEMENTS = ("best-fit", "best-fit", "first-fit", "worst-fit", "consolidate")


def case_of(rng: random.Random) -> tuple[Cluster, list[Job]]:
    """A cluster, and jobs that the compiled engine can play on it."""
    cluster, jobs = engine_cases.random_cluster(rng), engine_cases.jobs_of(rng)
    too_wide = any(node.gpus > memory.NAMED_GPUS for node in cluster.nodes)
    return cluster, [engine_cases.without_shares(job) for job in jobs] if too_wide else jobs


def policy_of(rng: random.Random, kind: str) -> str:
    """A policy of the kind with a placement."""
    name = rng.choice(engine_cases.KINDS[kind])
    more = ""
    if name == "priority":
        more = f",ageing={rng.choice((0.0, 0.01))}"
    elif name in engine_cases.KINDS["las"]:
        more = f",quantum_s={rng.choice((5, 10, 33.3, 60.0))}"
    return f"{name}[placement={rng.choice(PLACEMENTS)}{more}]"


def both(number: int, kind: str) -> tuple[Schedule, Schedule]:
    """Return the schedules of one case from the SimPy kernel and from the compiled engine."""
    rng = random.Random(f"{kind} {number}")
    (cluster, jobs), policy, begins_s = case_of(rng), policy_of(rng, kind), 0.0
    if kind.startswith("middle"):
        jobs, begins_s = engine_cases.in_the_middle(rng, cluster, jobs)
    estimates = Estimates(rng.choice(("exact", "exact", "noisy", "predicted", "hidden")))
    stops = Preemption(
        "resume" if policy.partition("[")[0] in engine_cases.KINDS["las"] else rng.choice(("resume", "restart"))
    )  # rounds that restart never end
    models: dict[str, Any] = {"estimates": estimates, "preemption": stops, "begins_s": begins_s}
    slow = drive(ClusterScenario(cluster, jobs, **models).kernel(number), POLICIES.create(policy))
    return slow, engine_cases.compiled_schedule(cluster, jobs, policy, seed=number, **models)


def episodes_of(number: int, relative: bool = False) -> tuple[Episode, CompiledEpisodes]:
    """The episode of one case, with the codec ``candidates`` or ``relative``, and the same in the compiled engine."""
    rng = random.Random(f"episodes {number}")
    (cluster, jobs), placement = case_of(rng), rng.choice(PLACEMENTS)
    jobs = list(JobArrays.of(jobs).jobs())  # which list the children of a task by number, as those of generators do
    estimates = Estimates(rng.choice(("exact", "exact", "noisy", "predicted", "hidden")))
    term, weight = rng.choice(("shaped_job_seconds", "job_seconds")), rng.choice((1.0, 0.3))
    scenario = ClusterScenario(cluster, jobs, estimates=estimates)
    kernel = scenario.kernel(number)
    reward = Reward(RewardConfig({term: weight}, 1000.0), kernel, scenario.terms)
    codec: CandidatesConfig | RelativeConfig = CandidatesConfig(placement=placement)
    if relative:
        codec = RelativeConfig(f"eft-wait[theta={rng.choice((0.3, 0.7, 1.0))},order=work]", placement)
    episode = Episode(kernel, codec.build(), reward)
    terms = EpisodeReward(weight, 1000.0, term == "shaped_job_seconds")
    return episode, CompiledEpisodes(scenario, 1, codec, terms, recorded=True)


def same_episode(number: int, relative: bool = False) -> bool:
    """True if random choices show the same on both sides: observations, rewards and times in every
    byte, and at the end the schedules.
    """
    episode, compiled = episodes_of(number, relative)
    one, draws = np.arange(1), np.random.default_rng(number)
    over = compiled.begin(one, [number])[0]
    while episode.observation is not None and not over:
        shown = compiled.observe(one)
        mine, theirs = (shown.tokens, shown.context[0], shown.gpus[0]), episode.observation
        if [part.tobytes() for part in mine] != [part.tobytes() for part in theirs]:
            return False
        choice = int(draws.integers(len(theirs.tokens)))
        episode.step(choice)
        rewards, ends = compiled.advance(one, np.array([choice]))
        over = ends[0]
        if (rewards[0], compiled.now_s[0]) != (episode.reward(), episode.now):
            return False
    return (
        bool(over) and episode.observation is None and engine_cases.equal(compiled.schedule(0), episode.kernel.schedule)
    )


def check(kind: str, first: int, cases: int) -> dict[str, object]:
    """Run the cases of one kind. Return the number of equal ones, and the numbers of the others."""
    numbers = range(first, first + cases)
    if kind in ("episodes", "relative"):
        different = [number for number in numbers if not same_episode(number, kind == "relative")]
    else:
        different = [number for number in numbers if not engine_cases.equal(*both(number, kind))]
    return {"cases": cases, "equal": cases - len(different), "different": different}


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    if options.tight:
        memory.SPARE = 1
        engine_drive.rows_at_first = lambda scene: len(scene.nodes.table) + 2
    results = {kind: check(kind, options.first, options.cases) for kind in options.kinds}
    say(results)
    return {"compiled": jitted(), "kinds": results}


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="cases per kind (default 1000)")
    parser.add_argument("--first", type=int, default=0, help="number of the first case (default 0)")
    parser.add_argument(
        "--kinds",
        nargs="+",
        choices=engine_cases.KINDS,
        default=list(engine_cases.KINDS),
        help="kinds of policies (default all)",
    )
    parser.add_argument("--tight", action="store_true", help="begin with as little space as possible, so that it grows")
    return command.run(parser, _work, holds=lambda of: not any(kind["different"] for kind in of["kinds"].values()))


if __name__ == "__main__":
    raise SystemExit(main())
