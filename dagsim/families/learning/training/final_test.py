"""The runs with which the agent of a training run is compared: the search for the best heuristic,
and the final test.

Each of them is a plan of cells, which is stored as a sweep in the folder of the training run
(``sweep-reference`` and ``sweep-report``). A resumed training run therefore simulates only missing
cells.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dagsim.config.schema import Config
from dagsim.experiment.carry_out import RunProgress, carry_out, raise_failures
from dagsim.experiment.cell import Cell
from dagsim.experiment.cell_run import CellRun
from dagsim.experiment.executors import executor_for
from dagsim.experiment.plan import Plan
from dagsim.experiment.scenario import metric_of, scenario_of
from dagsim.experiment.simulate import run_policy
from dagsim.experiment.store import Store
from dagsim.experiment.sweep_grid import Axis, SweepGrid
from dagsim.experiment.tune import TUNABLE, candidates
from dagsim.files import write_text
from dagsim.metrics import summarize
from dagsim.model.arithmetic import rounded
from dagsim.systems.seam import Scenario

_FIRST = 10
"""Number of seeds in the first round, in which all heuristics run."""
_FINAL = 6
"""Number of heuristics in the second round, in which all seeds are used."""
_COSTLY = "costly"

OnRunDone = Callable[[str, int, int], None]
"""A function that is called with the name of a policy, the number of finished runs and the number
of all runs."""


class PolicyRuns:
    """Runs policies on seeds, and stores the runs as a sweep below ``folder``. Each pair of a
    policy and a seed is simulated only once. ``where`` is the executor, as with ``--executor``."""

    def __init__(self, folder: Path, config: Config, where: str = "local:1", tell: OnRunDone | None = None) -> None:
        self.config = config
        self._folder = folder
        self._executor = executor_for(where)
        self._tell = tell

    def run(self, name: str, policies: Mapping[str, str], seeds: Sequence[int]) -> list[CellRun]:
        """Run all policies on consecutive seeds. The policies are given by label, and the runs are
        returned by policy.

        Raises:
            InputError: A policy cannot be built.
            SimulationError: A run failed.
        """
        plan = self._plan(name, policies, range(seeds[0], seeds[-1] + 1))
        store = Store.begin(self._folder, plan, argv=["dagsim", *sys.argv[1:]])
        done = carry_out(store, plan, self._executor, self._tell and self._watch)
        raise_failures(done)
        return [replace(done[cell], policy=cell.label) for cell in plan.cells]

    def _plan(self, name: str, policies: Mapping[str, str], seeds: range) -> Plan:
        axis = Axis("policy", tuple(policies), tuple(policies.values()))
        grid = SweepGrid(name, None, (axis,), seeds=seeds, metrics=(metric_of(self.config),))
        configs = {label: self.config.model_copy(update={"policy": spec}) for label, spec in policies.items()}
        cells = [
            Cell(config, config.policy, seed, label, {"policy": label})
            for label, config in configs.items()
            for seed in seeds
        ]
        return Plan("sweep", self.config, tuple(cells), grid)

    def _watch(self, progress: RunProgress) -> None:
        assert self._tell is not None
        self._tell(progress.policy, progress.done, progress.runs)


def contenders(scenario: Scenario) -> tuple[str, ...]:
    """Return all fast heuristics for the system, including all their tuned variants.

    Preemptive heuristics are excluded, because agents may not preempt.
    """
    described = scenario.policies.describe()
    names = [entry.name for entry in described if not {_COSTLY, "preemptive"} & set(entry.tags)]
    tunable = [spec for name in TUNABLE if name in names for spec in candidates(name, TUNABLE[name])]
    return tuple(dict.fromkeys((*names, *(scenario.variants or tunable))))


def best_heuristic(trials: PolicyRuns, seeds: Sequence[int]) -> tuple[str, list[CellRun]]:
    """Find the heuristic with the lowest objective over ``seeds``. Return it together with its runs
    on these seeds.

    First, all heuristics run on a few seeds. Only the best of them then run on all seeds.
    """
    specs: Sequence[str] = contenders(scenario_of(trials.config))
    for most, chosen in ((_FINAL, seeds[:_FIRST]), (1, seeds)):
        runs = trials.run("reference", {spec: spec for spec in specs}, chosen)
        merits = {
            spec: rounded(_mean_merit(trials.config, [run for run in runs if run.policy == spec])) for spec in specs
        }
        specs = sorted(specs, key=lambda spec: merits[spec])[:most]
    return specs[0], [run for run in runs if run.policy == specs[0]]


class KeptReference(NamedTuple):
    """The best heuristic, and its mean completion time and mean objective on the validation
    seeds."""

    policy: str
    jct_s: float
    merit: float


class References:
    """Results of earlier searches by training runs in the same results folder. ``references/`` has
    one file per search. The name of a file is a hash of everything on which the search depends: the
    cells of all heuristics, and the seeds.
    """

    def __init__(self, results: Path, config: Config, seeds: Sequence[int]) -> None:
        cells = [Cell(config, spec, seeds[0], spec).id for spec in contenders(scenario_of(config))]
        key = sha256(json.dumps([cells, list(seeds), _FIRST, _FINAL]).encode()).hexdigest()[:16]
        self._path = results / "references" / f"{key}.json"

    def find(self) -> KeptReference | None:
        """Return the result of an identical search. Return ``None`` if there was none, or if its
        file is damaged.
        """
        try:
            return KeptReference(**json.loads(self._path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def keep(self, reference: KeptReference) -> None:
        """Store the result of the search."""
        self._path.parent.mkdir(exist_ok=True)
        write_text(self._path, json.dumps(reference._asdict()) + "\n")


def _mean_merit(config: Config, runs: Sequence[CellRun]) -> float:
    mean = float(np.mean([merit_in(run.metrics, metric_of(config)) for run in runs]))
    return mean if np.isfinite(mean) else np.inf


def merit_in(metrics: Mapping[str, Any], name: str) -> float:
    """Return the metric ``name`` of a run, or NaN if the run does not have this metric."""
    value = metrics[name]
    return float("nan") if value is None else float(value)


def completed_jct_s(config: Config, run: CellRun) -> float:
    """Return the mean completion time of the jobs that a run has completed. If the run did not
    complete all jobs, ``run`` does not contain this mean, so the simulation is repeated.
    """
    mean_s = run.metrics["jct_s.mean"]
    if mean_s is None:
        mean_s = summarize(run_policy(config, run.policy, run.seed).schedule, unfinished="drop").jct_s.mean
    return float(mean_s)
