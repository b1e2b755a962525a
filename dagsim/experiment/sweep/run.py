"""Running a sweep into its folder: what is there is not run again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dagsim.errors import SimulationError
from dagsim.experiment.run import RunProgress, Watch, check
from dagsim.experiment.stopping import Stops
from dagsim.experiment.sweep.cells import Cell, code_digest, config_of
from dagsim.experiment.sweep.executors import SweepExecutor
from dagsim.experiment.sweep.folder import CellLine, SweepFolder
from dagsim.experiment.sweep.work import CellFailure, CellWork

__all__ = ["Swept", "check_cells", "run_cells"]


class Swept(NamedTuple):
    """The outcome of a sweep: its finished cells by id, those that failed, and how many are still to be run."""

    done: dict[str, CellLine]
    failures: list[CellFailure]
    left: int

    def raise_failures(self) -> None:
        """Nothing, if every cell could be run.

        Raises:
            SimulationError: A cell failed.
        """
        if self.failures:
            raise SimulationError(f"{len(self.failures)} runs failed; the first with {self.failures[0].error}")


def check_cells(cells: Sequence[Cell]) -> None:
    """Make what the cells need, and throw it away: every policy once.

    Raises:
        InputError: Something cannot be made.
        PluginError, PolicyFailed: The code of a policy cannot be imported, or raised something.
    """
    for cell in {cell.policy: cell for cell in reversed(cells)}.values():
        check(config_of(cell), [cell.policy])


def run_cells(
    folder: SweepFolder,
    cells: Sequence[Cell],
    executor: SweepExecutor,
    watch: Watch | None = None,
    limit: int | None = None,
) -> Swept:
    """Run those of the cells that ``folder`` lacks, at most ``limit``; keep each as soon as it is there.

    A cell that fails is noted, and the others go on; the folder's state is then ``failed``.

    Raises:
        KeyboardInterrupt: The user stopped it; what was finished is kept.
        DagsimError: No cell could be finished, or the executor was lost; what was finished is kept.
    """
    there = folder.done(cells)
    todo = [cell for cell in cells if cell.id not in there]
    given = todo if limit is None else todo[:limit]
    failures: list[CellFailure] = []
    try:
        folder.tell("started", cells=len(cells), done=len(there), to_run=len(given))
        with Stops() as stops:
            _run(folder, given, executor, _steps(given, len(there), len(cells), watch), failures, stops)
    except KeyboardInterrupt:
        folder.finish(cells, "interrupted")
        raise
    except Exception as error:
        folder.finish(cells, "failed", f"{type(error).__name__}: {error}")
        raise
    left = len(todo) - len(given)
    if failures:
        done = folder.finish(cells, "failed", f"{len(failures)} cells failed, the first with {failures[0].error}")
    elif left:
        done = folder.finish(cells, "interrupted", f"{left} cells are left to be run")
    else:
        done = folder.finish(cells, "done")
    if failures and not done:
        raise SimulationError(f"every cell failed; the first with {failures[0].error}")
    return Swept(done, failures, left)


def _run(
    folder: SweepFolder,
    cells: Sequence[Cell],
    executor: SweepExecutor,
    heard: Callable[[int, int, int], None] | None,
    failures: list[CellFailure],
    stops: Stops,
) -> None:
    by_id = {cell.id: cell for cell in cells}
    traces = {
        cell.trace: str(config_of(cell).trace_path())
        for cell in {cell.trace: cell for cell in cells}.values()
        if cell.trace is not None
    }
    work = CellWork(code_digest(), folder.sweep.keep, traces)
    for outcome in executor.run(work, cells, heard):
        stops.hold()
        if isinstance(outcome, CellFailure):
            failures.append(outcome)
            folder.fail(by_id[outcome.id], outcome)
        else:
            folder.keep(by_id[outcome.id], outcome)
        stops.release()


def _steps(
    cells: Sequence[Cell], before: int, total: int, watch: Watch | None
) -> Callable[[int, int, int], None] | None:
    if watch is None:
        return None

    def heard(index: int, done: int, jobs: int) -> None:
        watch(RunProgress(cells[index].label, cells[index].seed, before + done, total, jobs))

    return heard
