"""The simulation of one cell, in whatever process and on whatever machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

from dagsim.config.schema import Config
from dagsim.errors import PluginError, RunFolderError, SimulationError
from dagsim.experiment.record import RunRecord, lines_of, run_record
from dagsim.experiment.run import run_policy
from dagsim.experiment.sweep.cells import Cell, code_digest, config_of
from dagsim.experiment.sweep.described import Keep
from dagsim.traces.trace_file import TraceFile

__all__ = ["CellFailure", "CellOutcome", "CellRecord", "CellWork"]


class CellRecord(NamedTuple):
    """A finished cell, ready to be written."""

    id: str
    line: dict[str, Any]
    """Policy, seed, workload and metrics, as a line of ``runs.jsonl``."""
    timing: dict[str, Any]
    files: dict[str, bytes]
    """What else is kept of it, by the ending of the file."""


class CellFailure(NamedTuple):
    """A cell whose policy failed; it is tried again by the next start."""

    id: str
    error: str


CellOutcome: TypeAlias = CellRecord | CellFailure


@dataclass(frozen=True, slots=True)
class CellWork:
    """Runs cells. It is sent to workers whole: the same code must be there, and the traces where it says."""

    code: str
    """The digest of the code that simulates, where the sweep was started."""
    keep: Keep = "summary"
    traces: Mapping[str, str] = field(default_factory=dict)
    """Paths of the traces by their SHA-256."""

    def __call__(self, cell: Cell, tell: Callable[[int], None]) -> CellOutcome:
        """Simulate ``cell``; ``tell`` is called with the number of jobs that arrived, now and then.

        Raises:
            RunFolderError: The code here is not that of where the sweep was started.
            InputError: As ``run_policy``.
        """
        if self.code != code_digest():
            raise RunFolderError("sweep: this worker has another version of dagsim than the machine that asks it")
        try:
            result = run_policy(self._config(cell), cell.policy, cell.seed, tell)
        except (SimulationError, PluginError) as error:
            return CellFailure(cell.id, f"{type(error).__name__}: {error}")
        line, timing = lines_of(result)
        return CellRecord(
            cell.id, line, timing, {} if self.keep == "summary" else _files(run_record(result), self.keep)
        )

    def _config(self, cell: Cell) -> Config:
        config, path = config_of(cell), self.traces.get(cell.trace or "")
        if path is None or not isinstance(config.workload, TraceFile):
            return config
        member = config.workload.path.removeprefix(str(config.workload.source.path))
        return config.model_copy(update={"workload": replace(config.workload, path=path + member)})


def _files(record: RunRecord, keep: Keep) -> dict[str, bytes]:
    tables = [head + rows for head, rows in zip(record.heads, record.rows, strict=True)]
    files = {"jobs.csv.gz": tables[0]}
    if keep == "jobs":
        return files
    schedule = {ending.removeprefix("."): content for ending, content in record.files}
    return files | {"tasks.csv.gz": tables[1]} | schedule
