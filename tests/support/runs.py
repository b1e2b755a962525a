"""Policies run over seeds for tests: their outcomes, or kept in a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dagsim.config.schema import Config
from dagsim.experiment.carry_out import Watch, carry_out
from dagsim.experiment.cell_run import CellRun
from dagsim.experiment.executors import Local
from dagsim.experiment.plan import Plan
from dagsim.experiment.scenario import experiment_seeds
from dagsim.experiment.simulate import Outcome, run_policy
from dagsim.experiment.store import Store


def outcomes(config: Config, policies: Sequence[str], seeds: Sequence[int] | None = None) -> Iterator[Outcome]:
    """Every policy on every seed, seed by seed."""
    for seed in seeds or experiment_seeds(config):
        for policy in policies:
            yield run_policy(config, policy, seed)


def kept(
    store: Store, config: Config, policies: Sequence[str], watch: Watch | None = None, workers: int = 1
) -> list[CellRun]:
    """Run the policies into the store; the runs that can be compared."""
    plan = Plan.of(store.manifest["command"], config, policies)
    runs = carry_out(store, plan, Local(str(workers)), watch)
    return [run for run in runs.values() if not run.error]


def let_go(store: Store) -> None:
    """Release the folder as the system does if the process that writes to it is killed."""
    store._lock.release()
