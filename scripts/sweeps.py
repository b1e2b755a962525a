"""The cells of published tables: their sweep files, and the seeds that they run on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import command

from dagsim.experiment.carry_out import carry_out, raise_failures
from dagsim.experiment.cell_run import CellRun
from dagsim.experiment.executors import executor_for
from dagsim.experiment.ledger import Ledger, Spending
from dagsim.experiment.plan import Plan
from dagsim.experiment.provenance import code_commit
from dagsim.experiment.scenario import scenario_of
from dagsim.experiment.store import Store
from dagsim.experiment.sweep_grid import SweepGrid, read_grid
from dagsim.families.ramp.api import RampScenario
from dagsim.report.terminal import progress
from dagsim.seeds import REPORT

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
FILES = Path(__file__).parent / "tables"


def sweep_of(name: str, seeds: Sequence[int] | None = None) -> SweepGrid:
    """Return the sweep of a table's file, on as many of the ``seeds`` as the file has."""
    sweep = read_grid(FILES / f"{name}.yaml", name.replace("/", "-"))
    assert isinstance(sweep.seeds, Sequence)
    return sweep if seeds is None else replace(sweep, seeds=seeds[: len(sweep.seeds)])


def world_of(name: str, beta: str, placer: str) -> RampScenario:
    """The scenario of a sweep on RAMP, with one distribution of beta and one placer."""
    sweep = sweep_of(name)
    world = scenario_of(
        replace(sweep, settings={**sweep.settings, "system.beta": beta, "system.placer": placer}).config()
    )
    assert isinstance(world, RampScenario)
    return world


def finished(sweep: SweepGrid, options: command.Options) -> list[CellRun]:
    """Return the cells of the sweep in the order of the grid. With ``options.draw``, only those that
    are finished.

    Raises:
        SimulationError: A cell failed.
    """
    plan = Plan.of_grid(sweep, "table")
    folder = Store.begin(options.folder, plan, argv=sys.argv)
    if options.draw:
        runs = folder.done(plan.cells)
    else:
        with progress(wanted=True) as watch:
            runs = carry_out(folder, plan, executor_for(options.on), watch)
        raise_failures(runs)
    return [runs[cell] for cell in plan.cells if cell in runs]


def spend(name: str, seeds: Sequence[int], options: command.Options, windows_of: str | None = None) -> Spending:
    """Take the seeds of a table from the ledger: as many of its pool as ``seeds`` has. Seeds outside
    the report pools stay as they are.

    Args:
        name: The table, which is also its pool.
        seeds: The seeds in the table's file.
        options: ``fresh`` and ``again``, as in ``Ledger.spend``.
        windows_of: The part of a trace whose windows the seeds number. They are their own pool.
    """
    text = " ".join(
        [f"python scripts/tables.py {name}", *[f"--only {one}" for one in getattr(options, "only", None) or ()]]
    )
    if seeds[0] not in REPORT:
        commit = code_commit(ROOT) or "unknown"
        return Spending(name, seeds, text, commit, datetime.now(UTC).strftime("%Y-%m-%d"), 1)  # type: ignore[arg-type]
    pool = None if windows_of is None else range(seeds[0], seeds[-1] + 1)
    fresh, again = options.fresh, options.again
    return Ledger(RESULTS / "seeds.yaml").spend(
        name, len(seeds), text, fresh=fresh, again=again, pool=pool, windows_of=windows_of
    )


def origin(spending: Spending, method: str, unit: str = "report seeds", n: int | None = None) -> str:
    """The line below a table: command, commit, seeds and method."""
    if spending.seeds[0] in REPORT:
        return spending.sentence(method, unit, n)
    seeds = ", ".join(map(str, spending.seeds))
    return (
        f"Made by `{spending.command}` at commit {spending.commit[:12]} on {spending.on}; n = {len(spending.seeds)} "
        f"seeds, not report seeds ({seeds}); {method}."
    )
