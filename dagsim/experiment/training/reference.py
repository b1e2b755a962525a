"""The heuristic to beat: the best of all, tuned ones included, chosen on validation seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dagsim.config.schema import Config
from dagsim.experiment.run import simulate
from dagsim.experiment.tune import candidates
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.policies.tunable import TUNABLE

__all__ = ["best_heuristic", "contenders", "mean_jcts"]

_FIRST = 10
"""Seeds of the first round, which all heuristics run on."""
_FINAL = 6
"""Heuristics of the second round, which runs on all seeds."""
_COSTLY = "costly"


def contenders() -> tuple[str, ...]:
    """All heuristics that cost little, and every tuned variant of them."""
    names = [entry.name for entry in POLICIES.describe() if _COSTLY not in entry.tags]
    tuned = [spec for name in TUNABLE if name in names for spec in candidates(name, TUNABLE[name])]
    return tuple(dict.fromkeys((*names, *tuned)))


def best_heuristic(
    config: Config, seeds: Sequence[int], tell: Callable[[str, int, int], None] | None = None
) -> tuple[str, np.ndarray]:
    """The heuristic with the least mean completion time over ``seeds``, and its mean on each of them; preemptive ones
    compete only where agents may preempt, which they may not, so they are left out.

    All run on the first seeds; those that came out best on all of them. ``tell`` hears who runs, and how far it is.
    """
    preemptive = {entry.name for entry in POLICIES.describe() if "preemptive" in entry.tags}
    specs = [spec for spec in contenders() if spec.partition("[")[0] not in preemptive]
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
    return np.array([simulate(config, policy, seed).summary.jct_s.mean for seed in seeds])
