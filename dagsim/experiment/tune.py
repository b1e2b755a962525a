"""Tune a heuristic: try every combination of given values for its parameters, on validation seeds only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import isnan
from pathlib import Path

from dagsim.config.dumping import dump_config
from dagsim.config.schema import Config
from dagsim.errors import ConfigError, InputError
from dagsim.experiment.cell_run import CellRun
from dagsim.experiment.scenario import metric_of, sample_of
from dagsim.experiment.store import Store
from dagsim.files import write_text
from dagsim.metrics.standings import PolicyResult, standings
from dagsim.specs import Spec, scalar
from dagsim.systems.policy_spec import PolicySpec
from dagsim.text import count_of

MOST = 2000
"""Maximum number of combinations. More would probably be a mistake."""
TUNABLE: Mapping[str, Mapping[str, tuple[object, ...]]] = {
    "eft-wait": {"theta": (0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0), "order": ("task", "path", "work")},
    "weighted-fair": {"alpha": (-2.0, -1.5, -1.0, -0.75, -0.5, -0.25, 0.0, 0.5, 1.0)},
    "priority": {"ageing": (0.0, 1e-4, 1e-3, 1e-2)},
    "tiresias": {"thresholds": (900.0, 3600.0, 14_400.0), "quantum_s": (60.0, 300.0)},
    "2d-las": {"quantum_s": (30.0, 60.0, 300.0)},
    "round-robin": {"quantum_s": (30.0, 60.0, 300.0)},
}
"""The values that ``dagsim tune`` tries for the parameters of each policy."""


def grid_of(policy: str, texts: Sequence[str] = ()) -> dict[str, tuple[object, ...]]:
    """Return the values to try for each parameter. They are given by ``texts``
    (``param=value,value``) or, if there are none, by the default values for the policy.

    Raises:
        ConfigError: A text cannot be read, or there are no values to try.
    """
    if not texts:
        name = PolicySpec.parse(policy).name
        if name not in TUNABLE:
            tunable = ", ".join(TUNABLE)
            raise ConfigError(
                f"tune: {name!r} has no default values to try; give --param NAME=VALUE,VALUE (policies "
                f"with values: {tunable})"
            )
        return dict(TUNABLE[name])
    grid: dict[str, tuple[object, ...]] = {}
    for text in texts:
        param, equals, values = text.partition("=")
        if not equals or not param.strip() or not values.strip():
            raise ConfigError(
                f"tune: cannot read --param {text!r}: expected NAME=VALUE,VALUE, as in --param theta=0.7,0.8"
            )
        grid[param.strip()] = tuple(scalar(value.strip()) for value in values.split(","))
    return grid


def candidates(policy: str, grid: Mapping[str, Sequence[object]]) -> tuple[str, ...]:
    """Return ``policy`` itself, followed by ``policy`` with every combination of the values in
    ``grid``.

    Raises:
        ConfigError: There are more than ``MOST`` combinations.
    """
    name, fixed = PolicySpec.parse(policy).call
    specs = dict.fromkeys([policy])
    for values in product(*grid.values()):
        specs[str(Spec(name, fixed | dict(zip(grid, values, strict=True))))] = None
        if len(specs) > MOST:
            raise ConfigError(f"tune: more than {MOST} combinations; try fewer values of {', '.join(grid)}")
    return tuple(specs)


def tuning_of(store: Store, lines: Sequence[CellRun]) -> tuple[Sequence[PolicyResult], PolicyResult, list[Path]]:
    """Return all candidates in a run folder from best to worst, the best one, and the files in
    which the best one was saved.

    Raises:
        InputError: No candidate finished all jobs, or a file cannot be written.
    """
    plan, config = store.manifest["plan"], store.config
    metric = plan["metric"]
    ranked = store.ranked if metric == metric_of(config) else ()
    ranked = ranked or standings(lines, metric, sample=sample_of(config))
    best = best_of(ranked, metric)
    files = [store.path / "tuned.yaml", *([Path(plan["keep"])] if plan["keep"] else [])]
    for file in files:
        write_tuned(file, config, best, metric, store.manifest["seeds"])
    return ranked, best, files


def best_of(ranked: Sequence[PolicyResult], metric: str) -> PolicyResult:
    """Return the best candidate.

    Raises:
        InputError: No candidate finished all jobs.
    """
    if isnan(ranked[0].mean.value):
        raise InputError(f"tune: no candidate has a value of {metric} on every seed, because some jobs did not finish")
    return ranked[0]


def write_tuned(path: Path, config: Config, best: PolicyResult, metric: str, seeds: Sequence[int]) -> None:
    """Save ``config`` with the best candidate as its policy in a configuration file, atomically.

    Raises:
        InputError: The file cannot be written.
    """
    text = f"# {best.policy}, tuned for {metric} on {len(seeds)} validation seeds from {seeds[0]}\n"
    if best.pair is not None and not best.is_reference:
        pair = best.pair
        text += (
            f"# {pair.ratio:.4f} [{pair.low:.4f}, {pair.high:.4f}] times {config.policy}, {count_of(pair.n, 'seed')}\n"
        )
    write_text(path, text + dump_config(config.model_copy(update={"policy": best.policy})))
