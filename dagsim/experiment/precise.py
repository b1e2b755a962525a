"""Runs until the intervals are as narrow as asked: seeds are added between looks at the results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dagsim.config.schema import Config
from dagsim.errors import InputError
from dagsim.experiment.folder import RunFolder, RunLine
from dagsim.experiment.scenario import replicate_seeds
from dagsim.files import write_text
from dagsim.metrics.columns import Floats
from dagsim.metrics.precision import Ending, Look, Precision
from dagsim.metrics.standings import RunMetrics
from dagsim.seeds import WINDOWS, seeds_of
from dagsim.traces.trace_file import TraceFile

__all__ = ["Precise", "looks_at", "rule_for", "run_until_precise", "seeds_for"]


@dataclass(frozen=True, slots=True)
class Precise:
    """The lines of all seeds that were run, and the last look at each comparison."""

    lines: list[RunLine]
    looks: Mapping[str, Look]
    within: float

    def notes(self) -> Iterator[str]:
        """Sentences for people: how many comparisons are precise enough, and what the others would need."""
        enough = [name for name, look in self.looks.items() if look.ending in (Ending.ENOUGH, Ending.IDENTICAL)]
        n = max((look.n for look in self.looks.values()), default=0)
        of = f"{len(enough)} of {len(self.looks)} within" if len(self.looks) > 1 else "asked for within"
        yield f"precision: {of} {100 * self.within:g} % after {n} seeds"
        for name, look in self.looks.items():
            if len(self.looks) == 1 or name not in enough:
                yield f"precision of {name}: {look}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; what nobody can forecast is ``None``."""
        return {
            name: {
                "ending": str(look.ending),
                "n": look.n,
                "half_width": look.half_width if np.isfinite(look.half_width) else None,
                "needs": look.needs if np.isfinite(look.needs) else None,
            }
            for name, look in self.looks.items()
        }


def rule_for(config: Config) -> Precision:
    """The rule that ``config.precision`` asks for; on a trace it ends when its disjoint windows are used up.

    Raises:
        InputError: All of a trace is one sample, or there are too few windows to begin with.
    """
    if config.precision is None:
        raise InputError("precision: the configuration asks for none")
    workload = config.workload if config.system.kind == "cluster" else None
    if not isinstance(workload, TraceFile):
        return Precision(config.precision)
    if workload.window is None:
        raise InputError("precision: all of a trace is one sample; --window-jobs N makes windows of it")
    if workload.windows is not None:
        raise InputError("precision: finds the number of windows itself; leave --windows out")
    return Precision(config.precision, cap=min(500, workload.most_windows()))


def seeds_for(config: Config, count: int) -> tuple[int, ...]:
    """The first ``count`` seeds of the experiment; more begin with the same ones."""
    on_windows = config.system.kind == "cluster" and isinstance(config.workload, TraceFile)
    return seeds_of(WINDOWS, count) if on_windows else replicate_seeds(config.seed, count)


def run_until_precise(
    folder: RunFolder,
    config: Config,
    run: Callable[[Sequence[int]], list[RunLine]],
    metric: str = "jct_s.mean",
) -> Precise:
    """Add seeds until every comparison with the first policy is precise enough or cannot become so.

    ``run`` runs all policies on further seeds into ``folder`` and returns all lines so far. One policy alone is
    compared with nothing: the interval is that of its geometric mean.

    Raises:
        InputError: As ``rule_for``, or what ``run`` raises.
    """
    rule = rule_for(config)
    seeds = seeds_for(config, rule.cap)
    lines: list[RunLine] = []
    looks: dict[str, Look] = {}
    done, more = 0, rule.start
    while more:
        folder.mark("running")
        lines = run(seeds[done : done + more])
        done += more
        looks = looks_at(lines, rule, metric)
        more = max((look.more for look in looks.values()), default=0)
    folder.manifest["seeds"] = list(seeds[:done])
    write_text(folder.path / "manifest.json", json.dumps(folder.manifest, indent=2) + "\n")
    return Precise(lines, looks, rule.within)


def looks_at(
    lines: Sequence[RunMetrics], rule: Precision, metric: str = "jct_s.mean", reference: str | None = None
) -> dict[str, Look]:
    """A look at every policy against the reference, by default the first; those without a ratio are left out."""
    values: dict[str, dict[int, float]] = {}
    for line in lines:
        value = line.metrics.get(metric)
        values.setdefault(line.policy, {})[line.seed] = np.nan if value is None else float(value)
    logs = {policy: _logs(list(by_seed.values())) for policy, by_seed in values.items()}
    first = reference or next(iter(logs))
    if len(logs) == 1:
        return {first: rule.look(logs[first])} if np.isfinite(logs[first]).all() else {}
    return {
        policy: rule.look(mine - logs[first])
        for policy, mine in logs.items()
        if policy != first and np.isfinite(mine - logs[first]).all()
    }


def _logs(values: Sequence[float]) -> Floats:
    known = np.asarray(values, float)
    return np.log(np.where(known > 0, known, np.nan))
