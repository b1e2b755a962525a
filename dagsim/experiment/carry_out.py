"""Carry out a plan: an executor runs the cells that are missing from the store, until all cells are
finished or the plan is stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dagsim.errors import SimulationError
from dagsim.experiment.cell import Cell
from dagsim.experiment.cell_run import CLOCKED, CellRun
from dagsim.experiment.executors import CellExecutor, CellWork, Wanted
from dagsim.experiment.plan import Plan
from dagsim.experiment.scenario import metric_of, sample_of
from dagsim.experiment.simulate import check
from dagsim.experiment.store import Store
from dagsim.files import write_text
from dagsim.metrics import to_csv
from dagsim.metrics.standings import PolicyResult, standings
from dagsim.stops import Stops
from dagsim.systems.seam import EngineUse
from dagsim.text import count_of


@dataclass(frozen=True, slots=True)
class RunProgress:
    """The progress of a plan."""

    policy: str
    seed: int
    done: int
    """Number of finished cells."""
    runs: int
    """Total number of cells."""
    jobs: int
    """Number of jobs that have arrived in the current run."""


Watch = Callable[[RunProgress], None]


def check_plan(plan: Plan) -> None:
    """Check a plan by building everything that its cells need, once for each policy.

    Raises:
        InputError: A part of the experiment cannot be built.
        PluginError, PolicyFailed: The code of a policy cannot be imported, or raised an exception.
            Outside a grid, this is not raised for one of several policies as long as another one
            works.
    """
    if plan.grid is None:
        check(plan.config, dict.fromkeys(cell.policy for cell in plan.cells), keep_going=len(plan.policies) > 1)
        return
    for cell in {cell.policy: cell for cell in reversed(plan.cells)}.values():
        check(cell.config, [cell.policy])


def carry_out(
    store: Store,
    plan: Plan,
    executor: CellExecutor,
    watch: Watch | None = None,
    limit: int | None = None,
    advise: Callable[[str], None] | None = None,
) -> dict[Cell, CellRun]:
    """Run the cells that are missing from ``store``, at most ``limit`` of them, and save each as
    soon as it is finished.

    Apart from times, the final contents of the store do not depend on the executor or on
    interruptions. If a cell of a grid fails, this is recorded, and the other cells continue. If one
    of several policies fails, its remaining cells are skipped. In both cases, the state of the
    store becomes ``failed``. The error of a single policy is raised.

    If the compiled engine could have executed a long run, ``advise`` is called with a sentence
    about this, at most once.

    Return the failed cells, which have an ``error``, and the finished cells, except those of
    policies that failed.

    Raises:
        KeyboardInterrupt: The user stopped the plan. Finished cells are kept.
        DagsimError: No cell could be finished, or the executor was lost. Finished cells are kept.
    """
    with _ending_recorded(store, plan):
        done, failed = store.done(plan.cells), dict[Cell, CellRun]()
        todo = [cell for cell in plan.cells if cell not in done]
        cells, before = todo[:limit], len(done)
        broken = {run.policy for run in store.failures()}
        store.started(len(plan.cells), before, len(cells))

        def report(index: int, count: int, jobs: int) -> None:
            assert watch is not None
            total = len(plan.cells) if plan.grid is not None else before + len(cells)
            watch(RunProgress(cells[index].label, cells[index].seed, before + count, total, jobs))

        def wanted(cell: Cell) -> bool:
            return cell.label not in broken

        work = CellWork(
            "log" if plan.grid is None else plan.grid.keep,
            raises=plan.grid is None and len(plan.policies) == 1,
            named=plan.grid is not None,
            aside=str(store.aside.path),
        )
        with Stops() as stops:
            runs = executor.run(work, cells, None if watch is None else report, wanted)
            for cell, run in _paired(cells, runs) if plan.grid is not None else _in_turn(cells, runs, wanted):
                stops.hold()
                if run.error:
                    failed[cell] = run
                    if plan.grid is None:
                        broken.add(cell.label)
                    store.fail(cell, run)
                else:
                    store.keep(cell, run)
                stops.release()
                if advise is not None and (sentence := _advice(cell, run)):
                    advise(sentence)
                    advise = None
        return _concluded(store, plan, failed, len(todo) - len(cells))


@contextmanager
def _ending_recorded(store: Store, plan: Plan) -> Iterator[None]:
    """If the user or an error stops the block, record this in the store."""
    try:
        yield
    except KeyboardInterrupt:
        store.finish("interrupted", None, plan)
        raise
    except Exception as error:
        if (log := getattr(error, "log", None)) is not None:
            store.aside.keep(log)
        store.finish("failed", f"{type(error).__name__}: {error}", plan)
        raise


def _concluded(store: Store, plan: Plan, failed: Mapping[Cell, CellRun], left: int) -> dict[Cell, CellRun]:
    """Record the state and the comparison in the store after the last cell has ended. Return the
    finished and the failed cells.

    Raises:
        SimulationError: No cell could be finished.
    """
    done = store.done(plan.cells)
    if plan.grid is None:
        broken = {run.policy for run in store.failures()}
        done = {cell: run for cell, run in done.items() if cell.label not in broken}
    what = "policy" if plan.grid is None else "cell"
    if failed and not done:
        raise SimulationError(f"every {what} failed; the first error is: {next(iter(failed.values())).error}")
    if plan.grid is None and len(plan.policies) > 1:
        store.ranked = standings(done.values(), metric_of(plan.config), sample=sample_of(plan.config))
    if len(store.ranked) > 1:
        write_comparison(store.ranked, store.path / "comparison.csv")
    if failed and plan.grid is None:
        names = ", ".join(dict.fromkeys(cell.label for cell in failed))
        store.finish("failed", f"{len(failed)} of the policies failed: {names}", plan)
    elif failed:
        first = next(iter(failed.values())).error
        store.finish("failed", f"{count_of(len(failed), 'cell')} failed; the first error is: {first}", plan)
    elif left:
        store.finish("interrupted", f"{left} cells are still to be run", plan)
    else:
        store.finish("done", None, plan)
    return done | dict(failed)


def _advice(cell: Cell, run: CellRun) -> str:
    """For a long run, return a sentence that names a faster engine, or an empty string if there is
    none.
    """
    if "engine" not in run.timing:
        return ""
    return cell.config.whole_system.faster_engine(cell.policy, EngineUse(**run.timing["engine"]), run.timing["wall_s"])


def _paired(cells: Sequence[Cell], runs: Iterator[CellRun]) -> Iterator[tuple[Cell, CellRun]]:
    """Yield each of the ``runs`` of a grid together with its cell, in the order in which the runs
    finish.
    """
    by_id = {cell.id: cell for cell in cells}
    return ((by_id[run.id], run) for run in runs)


def _in_turn(cells: Sequence[Cell], runs: Iterator[CellRun], wanted: Wanted) -> Iterator[tuple[Cell, CellRun]]:
    """Yield each run with its cell, in the order of the cells, because the tables have this order.
    A run that finishes early is held back until its turn.
    """
    early: dict[tuple[str, int], CellRun] = {}
    turn = 0
    for run in runs:
        early[run.policy, run.seed] = run
        while turn < len(cells):
            cell = cells[turn]
            mine = early.pop((cell.name, cell.seed), None)
            if mine is None and wanted(cell):
                break
            turn += 1
            if mine is not None and wanted(cell):
                yield cell, mine


def raise_failures(runs: Mapping[Cell, CellRun]) -> None:
    """Raise an error if a cell failed.

    Raises:
        SimulationError: A cell failed.
    """
    errors = [run.error for run in runs.values() if run.error]
    if errors:
        raise SimulationError(f"{len(errors)} runs failed; the first error is: {errors[0]}")


def write_comparison(ranked: Sequence[PolicyResult], path: Path) -> None:
    """Write the standings as CSV, atomically and without clock times, so that equal runs give equal
    bytes.

    Raises:
        InputError: The file cannot be written.
    """
    rows = [standing.to_dict() for standing in ranked]
    heads = [head for head in (rows[0] if rows else ()) if not head.startswith(CLOCKED)]
    write_text(path, to_csv({head: [row[head] for row in rows] for head in heads}))
