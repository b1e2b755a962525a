"""The heuristic to beat: the best cheap non-preemptive one, tuned ones included, chosen on validation seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dagsim.config.schema import Config
from dagsim.experiment.scenario import scenario_of
from dagsim.experiment.tune import candidates
from dagsim.metrics import summarize
from dagsim.systems.cluster.policies.tunable import TUNABLE
from dagsim.systems.seam import Scenario, drive

__all__ = ["best_heuristic", "contenders", "mean_jcts"]

_FIRST = 10
"""Seeds of the first round, which all heuristics run on."""
_FINAL = 6
"""Heuristics of the second round, which runs on all seeds."""
_COSTLY = "costly"
_TUNED_FOR_SPARK = ("srpt-cp[cap=5]", "srpt-cp[cap=16]", "weighted-fair[alpha=0.25,order=shortest]")


def contenders(scenario: Scenario) -> tuple[str, ...]:
    """All heuristics of the system that cost little, and every tuned variant of them.

    Preemptive ones are left out: agents may not preempt.
    """
    described = scenario.policies.describe()
    names = [entry.name for entry in described if not {_COSTLY, "preemptive"} & set(entry.tags)]
    match scenario.system:
        case "cluster":
            tuned = [spec for name in TUNABLE if name in names for spec in candidates(name, TUNABLE[name])]
        case "spark":
            tuned = list(_TUNED_FOR_SPARK)
        case _:
            tuned = []
    return tuple(dict.fromkeys((*names, *tuned)))


def best_heuristic(
    config: Config, seeds: Sequence[int], tell: Callable[[str, int, int], None] | None = None
) -> tuple[str, np.ndarray]:
    """The heuristic with the lowest mean completion time over ``seeds``, and its mean on each of them.

    All run on the first seeds; the best of them on all. ``tell`` is given the one that runs, how many are done, of how
    many.
    """
    specs = contenders(scenario_of(config))
    first: dict[str, float] = {}
    for done, spec in enumerate(specs):
        if tell is not None:
            tell(spec, done, len(specs))
        mean = float(mean_jcts(config, spec, seeds[:_FIRST]).mean())
        first[spec] = mean if np.isfinite(mean) else np.inf
    ranked = sorted(first, key=lambda spec: first[spec])[:_FINAL]
    final = {spec: mean_jcts(config, spec, seeds) for spec in ranked}
    best = min(final, key=lambda spec: float(final[spec].mean()))
    return best, final[best]


def mean_jcts(config: Config, policy: str, seeds: Sequence[int]) -> np.ndarray:
    """(seeds,) float64: the mean completion time on each seed."""
    scenario = scenario_of(config)
    return np.array(
        [
            summarize(
                drive(scenario.kernel(seed, record=False), scenario.policies.create(policy, seed=seed))
            ).jct_s.mean
            for seed in seeds
        ]
    )
