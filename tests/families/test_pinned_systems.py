"""Systems play the episodes that were recorded: schedules, outcomes, observations and rewards.

Observations and rewards are compared as weighted sums to a few digits, since the last ones depend on the processor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import cos
from typing import Any

import numpy as np
import pytest
from support.pinning import digest, plain

from dagsim.families.decima.decima_env import DecimaEnv
from dagsim.families.learning.environments.scheduling_env import EnvConfig, SchedulingEnv
from dagsim.families.pac_ml.partition_env import PartitionEnv
from dagsim.families.ramp.api import RAMP_POLICIES, RampScenario
from dagsim.families.ramp.kpis import job_rows, kpis
from dagsim.families.spark.api import ExecutorType
from dagsim.families.spark.policies import SPARK_POLICIES
from dagsim.families.spark.scenario import SparkScenario
from dagsim.families.spark.workload import sequence, synthetic_profiles
from dagsim.metrics import summarize
from dagsim.model import Cluster
from dagsim.systems.cluster.learnable import TERMS as CLUSTER_TERMS
from dagsim.systems.cluster.models.runtime import Throughput
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import drive
from dagsim.workload.presets import PRESETS

Pinned = Callable[..., None]

RAMP = {
    "plain": RampScenario("ramp[groups=2,racks=2,servers_per_rack=2]", jobs=14, gap_s=0.02, max_degree=8),
    "ddls": RampScenario("ramp[groups=2,racks=2,servers_per_rack=2]", jobs=14, gap_s=0.02, max_degree=8, ddls=True),
    "torus": RampScenario("torus[shape=[2,4]]", jobs=10, gap_s=0.02, max_degree=8, placer="packed", beta="D"),
    "tree": RampScenario(
        "fat_tree[leaves=4,per_leaf=2,oversubscription=2]",
        jobs=10,
        gap_s=0.03,
        max_degree=4,
        placer="best_fit",
        beta="B",
    ),
    "switch": RampScenario(
        "switch[servers=8]", ("A100-80",) * 4 + ("T4",) * 4, jobs=10, gap_s=0.03, placer="same_type"
    ),
    "poisson": RampScenario(
        "ramp[groups=2,racks=2,servers_per_rack=2]", jobs=10, gap_s=0.05, poisson=True, beta="C", placer="random"
    ),
}
SPARK = {
    "plain": SparkScenario(10, 12),
    "types": SparkScenario((ExecutorType("slow", 4, 0.5), ExecutorType("fast", 3, 2.0)), 8, mean_gap_s=5.0, batch=3),
}
SPARK_SPECS = [
    *SPARK_POLICIES.names(),
    "weighted-fair[alpha=-1]",
    "weighted-fair[alpha=0.5]",
    "srpt-cp[cap=3]",
]
RAMP_SPECS = [*RAMP_POLICIES.names(), "sip_ml[degree=4]", "constant[degree=2]", "on_time[least=2]", "roomy[least=2]"]


def sums(values: Mapping[str, Any]) -> Iterator[float]:
    """A weighted sum of each part of an observation."""
    for part in values.values():
        flat = np.nan_to_num(np.asarray(part, float).ravel(), posinf=99, neginf=-99)
        yield float(flat @ np.cos(np.arange(len(flat))))


def played(env: Any, seed: int, steps: int = 60) -> list[float]:
    """Weighted sums of what an agent sees and gets that chooses at random among what is legal."""
    rng, totals = np.random.default_rng(seed), np.zeros(0)
    seen, info = env.reset(seed=seed)
    for step in range(steps):
        part = np.array([*sums(seen if isinstance(seen, dict) else {"all": seen}), info["action_mask"].sum()])
        totals = totals + part * cos(step) if totals.size else part
        masks = [info[name] for name in ("action_mask", "number_mask") if name in info]
        action = [int(rng.choice(np.flatnonzero(mask))) for mask in masks]
        seen, reward, terminated, truncated, info = env.step(action if len(action) > 1 else action[0])
        totals[-1] += reward * (1 + cos(step))
        if terminated or truncated:
            break
    return [*totals.tolist(), *(float(value) for key, value in sorted(info.items()) if isinstance(value, float | int))]


@pytest.mark.parametrize(
    ("world", "spec"), [(world, spec) for world in RAMP for spec in RAMP_SPECS if world == "plain" or "[" not in spec]
)
def test_ramp_plays_the_episodes_that_were_recorded(world: str, spec: str, pinned: Pinned) -> None:
    kernel = RAMP[world].kernel(3)
    schedule = drive(kernel, RAMP_POLICIES.create(spec, seed=3))
    rows = [plain(row) for row in schedule.log.since(0)]
    pinned(
        f"ramp {world} {spec}",
        {
            "log": digest(rows),
            "jobs": digest(list(job_rows(kernel))),
            "kpis": digest(kpis(kernel)),
            "blocked": sum(outcome.reason is not None for outcome in kernel.outcomes),
        },
    )


@pytest.mark.parametrize("spec", SPARK_SPECS)
@pytest.mark.parametrize("world", SPARK)
def test_spark_plays_the_episodes_that_were_recorded(world: str, spec: str, pinned: Pinned) -> None:
    kernel = SPARK[world].kernel(3)
    schedule = drive(kernel, SPARK_POLICIES.create(spec, seed=3))
    rows = [plain(row) for row in schedule.log.since(0)]
    summary = plain(summarize(schedule))
    mean = summary["jct_s"]["mean"]
    pinned(f"spark {world} {spec}", {"log": digest(rows), "summary": digest(summary), "jct_s": mean})


def test_synthetic_queries_of_spark_are_those_that_were_recorded(pinned: Pinned) -> None:
    profiles = synthetic_profiles(4, queries=5)
    pinned("profiles", [digest([job.id, job.graph, [vars_of(waves) for waves in job.durations]]) for job in profiles])
    drawn = sequence(profiles, 2, jobs=30, mean_gap_ms=700, batch=2)
    pinned("sequence", [[job.id, plain(job.arrival_ms)] for job in drawn])


def vars_of(value: Any) -> Any:
    """The fields of an object with slots."""
    return [getattr(value, name) for name in ("tasks", "rough_ms", "at")]


ENVS: dict[str, Callable[[], Any]] = {
    **{
        f"{level} {observation}": lambda level=level, observation=observation: cluster(level, observation)
        for level in ("job", "task", "task_type", "task_type_par")
        for observation in ("flat", "dict", "candidates", "graph")
        if observation == "candidates" or level == "task_type"
    },
    "stages": lambda: DecimaEnv(scenario=SPARK["plain"]),
    "stages types": lambda: DecimaEnv(scenario=SPARK["types"], action="limit", beta=0.01, mean_time_limit_s=400),
    "partition": lambda: PartitionEnv(RAMP["plain"]),
    "partition types": lambda: PartitionEnv(RAMP["switch"], outlooks=False, invalid_is_zero=True),
}


def cluster(level: Any = "task_type", observation: Any = "flat", **reward: float) -> SchedulingEnv:
    workload = replace(PRESETS["heterogeneous-dag"].workload, count=25, tenants=("a", "b"))
    nodes = Cluster.of({"A100-40": 4, "V100-16": 4, "T4": 8})
    scenario = ClusterScenario(nodes, workload, runtime=Throughput())
    return SchedulingEnv(scenario, EnvConfig(level, observation, slots=40, reward=reward or {"shaped_job_seconds": 1}))


@pytest.mark.parametrize("name", ENVS)
def test_an_agent_sees_and_gets_what_was_recorded(name: str, pinned: Pinned) -> None:
    pinned(name, played(ENVS[name](), 2), rel=1e-4)


@pytest.mark.parametrize("name", CLUSTER_TERMS.names())
def test_a_reward_of_the_cluster_is_that_which_was_recorded(name: str, pinned: Pinned) -> None:
    pinned(f"reward {name}", played(cluster(**{name: 1.0}), 3), rel=1e-4)


@pytest.mark.parametrize("name", RAMP["plain"].terms.names())
def test_a_reward_of_ramp_is_that_which_was_recorded(name: str, pinned: Pinned) -> None:
    pinned(f"reward {name}", played(PartitionEnv(RAMP["plain"], reward={name: 1.0}), 3), rel=1e-4)
