"""Add seeds until the intervals of comparisons are narrow enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dagsim.config.schema import Config
from dagsim.errors import InputError
from dagsim.experiment.cell_run import CellRun
from dagsim.experiment.scenario import replicate_seeds, window_seeds
from dagsim.experiment.store import Store
from dagsim.metrics.columns import Floats
from dagsim.metrics.paired import Ending, Look, Precision
from dagsim.metrics.standings import (
    RunMetrics,
    Sample,
    largest_share,
    runs_by_policy,
)
from dagsim.text import count_of

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True)
class Precise:
    """The runs on all seeds used so far, and the latest result of each comparison."""

    lines: list[CellRun]
    looks: Mapping[str, Look]
    within: float

    def notes(self) -> Iterator[str]:
        """Yield sentences that state how many comparisons are precise enough, and how many seeds
        the other comparisons need.
        """
        enough = [name for name, look in self.looks.items() if look.ending in (Ending.ENOUGH, Ending.IDENTICAL)]
        n = max((look.n for look in self.looks.values()), default=0)
        of = f"{len(enough)} of {len(self.looks)} within" if len(self.looks) > 1 else "requested within"
        yield f"precision: {of} {100 * self.within:g}% after {count_of(n, 'seed')}"
        for name, look in self.looks.items():
            if len(self.looks) == 1 or name not in enough:
                yield f"precision of {name}: {look}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, with None for numbers that are not finite."""
        return {
            name: {
                "ending": str(look.ending),
                "n": look.n,
                "half_width": look.half_width if np.isfinite(look.half_width) else None,
                "needs": look.needs if np.isfinite(look.needs) else None,
                "approximate": look.approximate,
            }
            for name, look in self.looks.items()
        }


def rule_for(config: Config) -> Precision:
    """Return the stopping rule for ``config.precision``. On a trace, the rule also stops once all
    disjoint windows have been used.

    Raises:
        InputError: ``config`` sets no precision, runs a whole trace (which is only one sample), or
            has fewer windows than the rule starts with.
    """
    if config.precision is None:
        raise InputError("precision: the configuration sets no precision; set it with --precision")
    workload = config.trace_file
    if workload is None:
        return Precision(config.precision)
    if workload.window is None:
        raise InputError(
            "precision: a whole trace is only a single sample, so cut it into windows with --set workload.window=1000"
        )
    if workload.windows is not None:
        raise InputError("precision: --precision itself determines the number of windows, so leave out --windows")
    return Precision(config.precision, cap=min(500, workload.most_windows()), unit=Sample.WINDOW)


def seeds_for(config: Config, count: int) -> tuple[int, ...]:
    """Return the first ``count`` seeds of the experiment. With a larger count, the sequence begins
    with the same seeds."""
    return replicate_seeds(config.seed, count) if config.trace_file is None else window_seeds(config, count)


def run_until_precise(
    folder: Store,
    config: Config,
    run: Callable[[Sequence[int]], list[CellRun]],
    metric: str = "jct_s.mean",
) -> Precise:
    """Add seeds until every comparison with the first policy is precise enough or cannot become so.

    ``run`` runs all policies on additional seeds, stores the new runs in ``folder``, and returns
    all runs so far. If there is only one policy, the interval of its geometric mean has to become
    precise enough.

    Raises:
        InputError: As in ``rule_for``, or raised by ``run``.
    """
    rule = rule_for(config)
    seeds = seeds_for(config, rule.cap)
    lines: list[CellRun] = []
    looks: dict[str, Look] = {}
    done, more = 0, rule.start
    while more:
        folder.mark("running")
        lines = run(seeds[done : done + more])
        done += more
        looks = looks_at(lines, rule, metric)
        more = max((look.more for look in looks.values()), default=0)
    folder.note(seeds=list(seeds[:done]))
    return Precise(lines, looks, rule.within)


def looks_at(
    lines: Sequence[RunMetrics], rule: Precision, metric: str = "jct_s.mean", reference: str | None = None
) -> dict[str, Look]:
    """Compare every policy with the reference (default: the first policy). Policies without a ratio
    are left out.
    """
    runs = runs_by_policy(lines)
    logs = {policy: _logs([line.metrics.get(metric) for line in mine.values()]) for policy, mine in runs.items()}
    largest = {policy: largest_share(mine.values(), metric) for policy, mine in runs.items()}
    first = reference or next(iter(logs))
    if len(logs) == 1:
        return {first: rule.look(logs[first], largest[first])} if np.isfinite(logs[first]).all() else {}
    return {
        policy: rule.look(mine - logs[first], max(largest[policy], largest[first]))
        for policy, mine in logs.items()
        if policy != first and np.isfinite(mine - logs[first]).all()
    }


def _logs(values: Iterable[float | None]) -> Floats:
    numbers = np.array([np.nan if value is None else float(value) for value in values])
    return np.log(np.where(numbers > 0, numbers, np.nan))
