"""Policies of the Spark simulation, learned ones among them, on the same job sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

import numpy as np

from dagsim.agents.decima_workload import Workload
from dagsim.errors import ConfigError
from dagsim.metrics import paired
from dagsim.registry import Spec
from dagsim.systems.spark import SPARK_POLICIES, SparkJob, SparkPolicy

__all__ = ["DecimaLine", "compare", "mean_jcts", "numbers", "plain", "policy_of", "table"]

_AT_ONCE = 20
"""Episodes that a network plays side by side."""


@dataclass(frozen=True, slots=True)
class DecimaLine:
    """Mean completion times in seconds, and their ratio to the reference's with its interval."""

    policy: str
    mean_s: float
    sd_s: float
    ratio: tuple[float, float, float]
    by_seed_s: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def compare(
    policies: Sequence[str],
    workload: Workload,
    seeds: Sequence[int],
    reference: str,
    told: Callable[[DecimaLine], None] | None = None,
) -> list[DecimaLine]:
    """A line per policy, the reference first. ``decima[checkpoint=FILE]`` is a network, greedy, and with
    ``sampled=true`` one that draws its decisions."""
    pool = workload.pool()
    lines: list[DecimaLine] = []
    for policy in dict.fromkeys((reference, *policies)):
        values = mean_jcts(policy, workload, pool, seeds)
        pair = paired(values, lines[0].by_seed_s if lines else values)
        spread = stdev(values) if len(values) > 1 else 0.0
        line = DecimaLine(policy, fmean(values), spread, (pair.ratio, pair.low, pair.high), tuple(values))
        lines.append(line)
        if told is not None:
            told(line)
    return lines


def mean_jcts(policy: str, workload: Workload, pool: Sequence[SparkJob], seeds: Sequence[int]) -> list[float]:
    """The mean completion time of each episode."""
    if Spec.parse(policy).name != "decima":
        return [workload.simulation(pool, seed).run(SPARK_POLICIES.create(policy)).mean_jct_s for seed in seeds]
    from dagsim.agents.decima_play import DecimaPolicy, play

    agent = policy_of(policy)
    assert isinstance(agent, DecimaPolicy)
    found: list[float] = []
    for at in range(0, len(seeds), _AT_ONCE):
        part = seeds[at : at + _AT_ONCE]
        rng = np.random.default_rng(list(part)) if agent.sampled else None
        episodes = play(agent.net, [workload.simulation(pool, seed) for seed in part], rng)
        found += [steps.mean_jct_s for steps in episodes]
    return found


def policy_of(spec: str) -> SparkPolicy:
    """The heuristic or the network that ``spec`` names.

    Raises:
        DagsimError: There is no such policy, or its parameters or its file are wrong.
    """
    if Spec.parse(spec).name != "decima":
        return SPARK_POLICIES.create(spec)
    return SPARK_POLICIES.create(spec.replace("decima", "dagsim.agents.decima_file:load_decima", 1))


def numbers(text: str) -> list[int]:
    """Whole numbers from ``1,2,3`` or ``10-19``, or both.

    Raises:
        ConfigError: It is something else.
    """
    found: list[int] = []
    for part in text.split(","):
        low, dash, high = part.partition("-")
        if not low.strip().isdecimal() or (dash and not high.strip().isdecimal()):
            raise ConfigError(f"seeds must be whole numbers as 1,2,3 or 10-19, got {text!r}")
        found += range(int(low), int(high or low) + 1)
    return found


def plain(lines: Sequence[DecimaLine], workload: Workload, seeds: Sequence[int]) -> dict[str, Any]:
    """Everything about a comparison, for JSON: as the files in ``results/decima/``."""
    return {"workload": asdict(workload), "seeds": list(seeds), "lines": [line.to_dict() for line in lines]}


def table(lines: Sequence[DecimaLine]) -> str:
    """As Markdown."""
    rows = [f"| policy | mean [s] | sd [s] | ratio to {lines[0].policy} |", "| --- | --- | --- | --- |"]
    for line in lines:
        value, low, high = line.ratio
        rows.append(
            f"| `{line.policy}` | {line.mean_s:.1f} | {line.sd_s:.1f} | {value:.3f} ({low:.3f} to {high:.3f}) |"
        )
    return "\n".join(rows)
