"""Executors: where the cells of a sweep are run (``--on local:4``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from dagsim.errors import ConfigError, SimulationError
from dagsim.experiment.sweep.cells import Cell
from dagsim.experiment.sweep.work import CellOutcome, CellWork
from dagsim.experiment.workers import Heard, cores, in_order
from dagsim.registry import Entry, Registry

__all__ = ["EXECUTORS", "Local", "SweepExecutor", "executor_for"]

_KILLS = 3
"""So many workers may be killed, with no cell finished between, before it is no accident."""


class SweepExecutor(Protocol):
    """Runs cells somewhere. It writes nothing: outcomes come back to the process that asks, in any order."""

    def run(self, work: CellWork, cells: Sequence[Cell], heard: Heard | None = None) -> Iterator[CellOutcome]:
        """The outcomes of all cells, each once, lazily; ``heard`` may be told which one is under way.

        Raises:
            DagsimError: What ``work`` raised, or the workers are gone for good.
        """
        ...


EXECUTORS: Registry[Any] = Registry(
    "executor",
    [
        Entry("local", ".executors:Local", "processes of this machine: local, or local:4 for four of them"),
        Entry("ray", ".on_ray:OnRay", "a Ray cluster: ray, or ray://HOST:10001 (pip install 'dagsim[ray]')"),
    ],
    group="dagsim.executors",
    home="dagsim.experiment.sweep",
    listing="dagsim list executors",
)
"""Every executor by name; each is made of the text behind its name and colon."""


def executor_for(text: str) -> SweepExecutor:
    """The executor that ``--on`` means.

    Raises:
        UnknownName: There is no such executor.
        ConfigError: What stands behind its name is wrong.
    """
    name, _, address = text.partition(":")
    make: Any = EXECUTORS.get(name)
    made: SweepExecutor = make(address)
    return made


class Local:
    """Processes of this machine, as many as it has cores unless said otherwise.

    Raises:
        ConfigError: ``address`` is no number of processes.
    """

    def __init__(self, address: str = "") -> None:
        if address and not (address.isdecimal() and 1 <= int(address) <= 4096):
            raise ConfigError(f"--on local:{address}: expected a number of processes from 1 to 4096")
        self.workers = int(address) if address else cores()

    def run(self, work: CellWork, cells: Sequence[Cell], heard: Heard | None = None) -> Iterator[CellOutcome]:
        """The outcomes in the order of the cells; where a worker is killed, others go on with what is left."""
        done = kills = 0
        while done < len(cells):
            try:
                for outcome in in_order(work, cells[done:], self.workers, _counted(heard, done)):
                    done, kills = done + 1, 0
                    yield outcome
            except SimulationError:  # only that a worker was killed: a policy that fails is an outcome
                kills += 1
                if kills == _KILLS:
                    raise


def _counted(heard: Heard | None, before: int) -> Heard | None:
    """``heard``, told of places in the whole list."""
    if heard is None:
        return None
    return lambda index, done, count: heard(before + index, before + done, count)
