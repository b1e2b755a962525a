"""Carrying out a plan into a run folder, to its end or until it is stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from dagsim.config.schema import Config
from dagsim.errors import PluginError, SimulationError
from dagsim.experiment.executors import CellFailure, CellWork, SweepExecutor, in_order
from dagsim.experiment.kept_files import RunRecord, run_record
from dagsim.experiment.plan import Cell, code_digest, config_of
from dagsim.experiment.scenario import experiment_seeds, metric_of, sample_of
from dagsim.experiment.simulate import PolicyRun, Result, RunProgress, Watch, check, progress_of, run_policy, runs_of
from dagsim.experiment.stopping import Stops
from dagsim.experiment.store import CellLine, Failure, RunFolder, RunLine, SweepFolder
from dagsim.files import write_text
from dagsim.metrics import to_csv
from dagsim.metrics.standings import PolicyResult, standings

__all__ = ["Swept", "check_cells", "evaluate_policies", "run_cells", "run_into", "write_comparison"]


def run_into(
    folder: RunFolder,
    config: Config,
    policies: Sequence[str],
    watch: Watch | None = None,
    seeds: Sequence[int] | None = None,
    *,
    workers: int = 1,
    keep_going: bool = False,
) -> list[RunLine]:
    """Run the policies and keep each result in ``folder`` as soon as it is there; its state says how it ended.

    What the folder holds already is not run again. The number of ``workers`` (processes) changes nothing that is
    written. With ``keep_going`` a policy that fails is noted and left out, and the others go on; the folder's state is
    then ``failed``, too. Returns the runs of the policies that did not fail.

    Raises:
        KeyboardInterrupt: The user stopped it; what was finished is kept.
        DagsimError: As ``evaluate_policies``; what was finished is kept. With ``keep_going`` only where all fail.
    """
    try:
        with Stops() as stops:
            _run(folder, config, policies, watch, seeds, workers, keep_going, stops)
        lines = _ended(folder)
    except KeyboardInterrupt:
        folder.finish("interrupted")
        raise
    except Exception as error:
        folder.finish("failed", f"{type(error).__name__}: {error}")
        raise
    return lines


def _run(
    folder: RunFolder,
    config: Config,
    policies: Sequence[str],
    watch: Watch | None,
    seeds: Sequence[int] | None,
    workers: int,
    keep_going: bool,
    stops: Stops,
) -> None:
    """Run what the folder does not hold yet."""
    there = {(line.policy, line.seed) for line in folder.lines()}
    todo = [run for run in runs_of(policies, seeds or experiment_seeds(config)) if run not in there]
    failed: set[str] = set()
    work: Callable[[PolicyRun, Callable[[int], None]], RunRecord | Failure] = partial(_outcome, config, keep_going)
    heard = None if watch is None else progress_of(todo, watch, len(there))
    for outcome in in_order(work, todo, workers, heard, lambda run: run.policy not in failed):
        stops.hold()
        if isinstance(outcome, Failure):
            failed.add(outcome.policy)
            folder.fail(outcome)
        else:
            folder.add(outcome)
        stops.release()


def _outcome(config: Config, keep_going: bool, run: PolicyRun, tell: Callable[[int], None]) -> RunRecord | Failure:
    """A run, ready to be written, in whatever process."""
    try:
        return run_record(run_policy(config, run.policy, run.seed, tell))
    except (SimulationError, PluginError) as error:
        if not keep_going:
            raise
        return Failure(run.policy, run.seed, f"{type(error).__name__}: {error}")


def _ended(folder: RunFolder) -> list[RunLine]:
    """Write what sums up all runs; the runs that can be compared.

    Raises:
        SimulationError: Every policy failed.
    """
    lines, failures = folder.whole(), folder.failures()
    if failures and not lines:
        raise SimulationError(f"every policy failed; the first with {failures[0].error}")
    if len({line.policy for line in lines}) > 1:
        write_comparison(
            standings(lines, metric_of(folder.config), sample=sample_of(folder.config)), folder.path / "comparison.csv"
        )
    if failures:
        names = ", ".join(dict.fromkeys(failure.policy for failure in failures))
        folder.finish("failed", f"{len(failures)} of the policies failed: {names}")
    else:
        folder.finish("done")
    return lines


def write_comparison(ranked: Sequence[PolicyResult], path: Path) -> None:
    """Write the standings as CSV, whole or not at all.

    Raises:
        InputError: The file cannot be written.
    """
    rows = [standing.to_dict() for standing in ranked]
    table = {head: [row[head] for row in rows] for head in rows[0]} if rows else {}
    write_text(path, to_csv(table))


def evaluate_policies(
    config: Config,
    policies: Sequence[str],
    watch: Watch | None = None,
    seeds: Sequence[int] | None = None,
    *,
    workers: int = 1,
) -> Iterator[Result]:
    """Run each policy on each seed, lazily; all policies see the same jobs. ``watch`` is told how far it is.

    ``seeds`` are those of the configuration unless given. With several ``workers`` (processes) the results are the
    same, in the same order.

    Raises:
        InputError, SimulationError: As ``check`` and ``run_policy``.
    """
    runs = runs_of(policies, seeds or experiment_seeds(config))
    heard = None if watch is None else progress_of(runs, watch)
    yield from in_order(partial(_simulated, config), runs, workers, heard)


def _simulated(config: Config, run: PolicyRun, tell: Callable[[int], None]) -> Result:
    return run_policy(config, run.policy, run.seed, tell)


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
            _run_cells(folder, given, executor, _steps(given, len(there), len(cells), watch), failures, stops)
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


def _run_cells(
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
