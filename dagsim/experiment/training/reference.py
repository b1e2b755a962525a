"""The heuristic to beat: the best cheap non-preemptive one on validation seeds, tuned ones
included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dagsim.config.schema import Config
from dagsim.experiment.scenario import scenario_of
from dagsim.experiment.tune import candidates
from dagsim.metrics import summarize
from dagsim.model.log import Schedule
from dagsim.systems.cluster.policies.tunable import TUNABLE
from dagsim.systems.seam import Scenario, drive

__all__ = ["Runs", "best_heuristic", "contenders", "merit_of", "play_seeds"]

_FIRST = 10
"""Number of seeds in the first round, which all heuristics run on."""
_FINAL = 6
"""Number of heuristics in the second round, which uses all seeds."""
_COSTLY = "costly"
_TUNED_FOR_SPARK = ("srpt-cp[cap=5]", "srpt-cp[cap=16]", "weighted-fair[alpha=0.25,order=shortest]")
_TUNED_FOR_RAMP = (
    *(f"constant[degree={degree}]" for degree in (2, 8, 16)),
    *(f"on_time[least={degree}]" for degree in (2, 4, 8)),
    *(f"roomy[least={degree}]" for degree in (2, 4, 8)),
)


class Runs(NamedTuple):
    """A heuristic's runs, one per seed."""

    merit: np.ndarray
    """(seeds,) metric by which the system ranks policies."""
    jct_s: np.ndarray
    """(seeds,) mean completion time of the completed jobs."""


def contenders(scenario: Scenario) -> tuple[str, ...]:
    """All cheap heuristics of the system, with all their tuned variants.

    Preemptive ones are left out, because agents may not preempt.
    """
    described = scenario.policies.describe()
    names = [entry.name for entry in described if not {_COSTLY, "preemptive"} & set(entry.tags)]
    match scenario.system:
        case "cluster":
            tuned = [spec for name in TUNABLE if name in names for spec in candidates(name, TUNABLE[name])]
        case "spark":
            tuned = list(_TUNED_FOR_SPARK)
        case "ramp":
            tuned = list(_TUNED_FOR_RAMP)
        case _:
            tuned = []
    return tuple(dict.fromkeys((*names, *tuned)))


def best_heuristic(
    config: Config, seeds: Sequence[int], tell: Callable[[str, int, int], None] | None = None
) -> tuple[str, Runs]:
    """The heuristic with the lowest merit over ``seeds``, and its runs on them.

    All heuristics run on the first seeds, and the best of them on all. ``tell`` is called with the
    current heuristic, the number already done, and the total.
    """
    specs = contenders(scenario_of(config))
    first: dict[str, float] = {}
    for done, spec in enumerate(specs):
        if tell is not None:
            tell(spec, done, len(specs))
        mean = float(play_seeds(config, spec, seeds[:_FIRST]).merit.mean())
        first[spec] = mean if np.isfinite(mean) else np.inf
    ranked = sorted(first, key=lambda spec: first[spec])[:_FINAL]
    final = {spec: play_seeds(config, spec, seeds) for spec in ranked}
    best = min(final, key=lambda spec: float(final[spec].merit.mean()))
    return best, final[best]


def play_seeds(config: Config, policy: str, seeds: Sequence[int]) -> Runs:
    """Run a heuristic on the seeds."""
    scenario = scenario_of(config)
    merits, jcts = [], []
    for seed in seeds:
        schedule = drive(scenario.kernel(seed, record=False), scenario.policies.create(policy, seed=seed))
        merits.append(merit_of(scenario, schedule))
        jcts.append(summarize(schedule, unfinished="drop").jct_s.mean)
    return Runs(np.array(merits), np.array(jcts))


def merit_of(scenario: Scenario, schedule: Schedule) -> float:
    """The metric by which the system ranks policies; NaN if the schedule has none."""
    value = summarize(schedule).to_dict()[scenario.merit]
    return float("nan") if value is None else float(value)
