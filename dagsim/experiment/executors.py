"""Executors. They run cells in processes on this machine (``--executor local:4``), on a Ray
cluster, or as Slurm jobs.

An executor runs the cells, but it writes no files. The process that calls it does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from dagsim.config.schema import Config
from dagsim.errors import ConfigError, PluginError, RunFolderError, SimulationError
from dagsim.experiment.aside import log_of, played_from
from dagsim.experiment.cell import Cell
from dagsim.experiment.cell_run import CellRun, Keep, run_of
from dagsim.experiment.process_pool import OnProgress, in_order
from dagsim.experiment.provenance import code_digest
from dagsim.experiment.scenario import scenario_of
from dagsim.experiment.simulate import Played, play_policy
from dagsim.registry import Entry, Registry

Wanted: TypeAlias = Callable[[Cell], bool]
"""A function that returns False for a cell that is no longer needed."""


@dataclass(frozen=True, slots=True)
class CellWork:
    """A function object that runs cells. It is pickled and sent to workers, where traces must be at
    the configured paths.
    """

    keep: Keep = "log"
    raises: bool = False
    """True if an error in a policy is raised instead of being stored in the run."""
    named: bool = False
    """True if each run contains the id of the cell."""
    code: str | None = None
    """Digest of the simulation code, which must be the same in the worker, as must the files that a
    cell depends on. None skips these checks."""
    trace: str | None = None
    """Path of the trace on this machine, if it differs from the configured one."""
    aside: str | None = None
    """The folder in which the log of a finished simulation is saved if a later step of its run fails."""

    def __call__(self, cell: Cell, tell: Callable[[int], None]) -> CellRun:
        """Simulate ``cell``, and call ``tell`` from time to time with the number of jobs that have
        arrived.

        Raises:
            RunFolderError: The code here, or a file that the cell depends on, differs from the one of
                the calling process.
            InputError: As in ``run_policy``.
        """
        if self.code is not None:
            check_code(self.code)
        config, log = self._config(cell), None
        if self.code is not None and Cell(config, cell.policy, cell.seed, cell.label).id != cell.id:
            raise RunFolderError(
                "a file that the configuration or the policy names is missing on this worker, or differs from the one "
                "on the calling machine"
            )
        try:
            played = self._set_aside(cell) or play_policy(config, cell.policy, cell.seed, tell, name=cell.name)
            log = partial(log_of, played)
            run = run_of(played.outcome(config), self.keep)
        except Exception as error:
            lost = CellRun(cell.name, cell.seed) if log is None else log()
            if self.raises or not isinstance(error, SimulationError | PluginError):
                # Attach the log to the error, so that the code that catches the error can save it.
                error.__dict__["log"] = replace(lost, id=cell.id)
                raise
            run = replace(lost, error=f"{type(error).__name__}: {error}")
        return replace(run, at=cell.at, id=cell.id) if self.named else run

    def _set_aside(self, cell: Cell) -> Played | None:
        """Return the finished simulation of a cell if an earlier attempt saved its log. Otherwise,
        return None.
        """
        if self.aside is None or not Path(self.aside).is_dir():
            return None
        return played_from(Path(self.aside, cell.id), scenario_of(self._config(cell)).cluster)

    def _config(self, cell: Cell) -> Config:
        return cell.config if self.trace is None else with_trace_at(cell.config, self.trace)


def check_code(code: str) -> None:
    """Check by its digest that the simulation code is the same as on the calling machine.

    Raises:
        RunFolderError: The code differs.
    """
    if code != code_digest():
        raise RunFolderError("this worker and the calling machine have different versions of dagsim")


def with_trace_at(config: Config, path: str) -> Config:
    """Return ``config`` with its trace at another path, or ``config`` itself if it has no trace."""
    system = config.whole_system
    return config if system.trace_path is None else config.model_copy(update=system.read_from(path))


class CellExecutor(Protocol):
    """The interface of executors. An executor runs cells somewhere and returns the runs to the
    caller, in any order. It writes no files.
    """

    def run(
        self, work: CellWork, cells: Sequence[Cell], on_progress: OnProgress | None = None, wanted: Wanted | None = None
    ) -> Iterator[CellRun]:
        """Yield the run of every cell once, as it finishes. ``on_progress`` may be called for cells
        in progress. Cells that are no longer ``wanted`` may be left out.

        Raises:
            DagsimError: ``work`` raised this error, or all workers have been lost.
        """


EXECUTORS: Registry[Any] = Registry(
    "executor",
    [
        Entry("local", ".executors:Local", "processes on this machine: local, or local:4 for four processes"),
        Entry("ray", ".on_ray:OnRay", "a Ray cluster: ray, or ray://HOST:10001 (pip install -e '.[ray]')"),
        Entry("slurm", ".on_slurm:OnSlurm", "Slurm jobs: slurm, or slurm:partition=short,jobs=50 ('.[slurm]')"),
    ],
    group="dagsim.executors",
    home="dagsim.experiment",
    listing="dagsim list executors",
    method="run",
)
"""Every executor by name. It is called with the text that follows the name and a colon."""


def executor_for(text: str) -> CellExecutor:
    """Return the executor that ``--executor`` names.

    Raises:
        UnknownName: The executor does not exist.
        ConfigError: The text after the executor's name is wrong.
    """
    name, _, address = text.partition(":")
    make: Any = EXECUTORS.get(name)
    executor: CellExecutor = make(address)
    return executor


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Local:
    """An executor that runs cells in processes on this machine. ``address`` is the number of
    processes, by default one per core.

    Raises:
        ConfigError: ``address`` is not a number of processes.
    """

    def __init__(self, address: str = "") -> None:
        if address and not (address.isdecimal() and 1 <= int(address) <= 4096):
            raise ConfigError(f"--executor local:{address}: expected a number of processes from 1 to 4096")
        self.workers = int(address) if address else cores()

    def run(
        self, work: CellWork, cells: Sequence[Cell], on_progress: OnProgress | None = None, wanted: Wanted | None = None
    ) -> Iterator[CellRun]:
        """Yield the runs in the order of the cells."""
        return in_order(work, cells, self.workers, on_progress, wanted or (lambda cell: True))
