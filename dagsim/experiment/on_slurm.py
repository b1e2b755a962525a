"""Run cells as Slurm jobs, through ``submitit``. The machines must share this machine's disk."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from shutil import which
from typing import Any

from dagsim.errors import ConfigError, DagsimError, SimulationError, one_line
from dagsim.experiment.cell import Cell
from dagsim.experiment.cell_run import CellRun
from dagsim.experiment.executors import CellWork, Wanted
from dagsim.experiment.process_pool import OnProgress, portable
from dagsim.experiment.provenance import code_digest
from dagsim.spelling import nearest

_TRIES = 3
"""How many times a lost job is submitted again."""
_LISTEN_S = {"slurm": 5.0, "local": 0.1}
"""Seconds between two checks of the jobs. Each check may query Slurm's accounting."""


@dataclass(frozen=True, slots=True)
class SubmitSettings:
    """The settings after ``slurm:``, such as ``partition=short,jobs=50``."""

    cluster: str = "slurm"
    """``slurm``, or ``local`` to run the same jobs as processes on this machine, as a trial."""
    partition: str = ""
    account: str = ""
    qos: str = ""
    minutes: int = 240
    """Time limit of each job."""
    memory_gb: int = 4
    jobs: int = 100
    """Maximum number of jobs. Each job gets an equal share of the cells."""
    at_once: int = 100
    """Maximum number of simultaneously running jobs."""
    folder: str = "slurm-jobs"
    """Folder for the files that ``submitit`` writes: scripts, logs and results. All machines must
    have access to it."""

    @classmethod
    def parse(cls, text: str) -> SubmitSettings:
        """Parse settings such as ``partition=short,jobs=50``.

        Raises:
            ConfigError: A setting is unknown, or its value is wrong.
        """
        types: dict[str, Any] = {field.name: type(field.default) for field in fields(cls)}
        values: dict[str, Any] = {}
        for part in filter(None, text.split(",")):
            name, equals, value = part.partition("=")
            if name not in types or not equals or not value:
                raise ConfigError(
                    f"--executor slurm: expected settings NAME=VALUE separated by commas, got {part!r}"
                    + nearest(name, types, f"allowed: {', '.join(types)}")
                )
            if types[name] is int and not (value.isdecimal() and 1 <= int(value) <= 10**6):
                raise ConfigError(f"--executor slurm: {name}={value}: expected a number from 1 to 1000000")
            values[name] = types[name](value)
        if values.get("cluster", "slurm") not in _LISTEN_S:
            raise ConfigError(f"--executor slurm: cluster must be {' or '.join(_LISTEN_S)}, got {values['cluster']}")
        return cls(**values)


class OnSlurm:
    """An executor that runs cells as Slurm jobs. ``address`` is parsed by ``SubmitSettings``.

    Every machine needs the same version of dagsim, and must have the traces at the same paths. A
    job is lost if its node fails or if it reaches its time limit. It is then submitted again, up to
    three times.

    Raises:
        ConfigError: ``submitit`` or ``sbatch`` is not installed, or ``address`` is wrong.
    """

    def __init__(self, address: str = "") -> None:
        self.settings = SubmitSettings.parse(address)
        try:
            import submitit
        except ImportError:
            raise ConfigError(
                "--executor slurm needs submitit; run pip install -e '.[slurm]' in the checkout"
            ) from None
        if self.settings.cluster == "slurm" and which("sbatch") is None:
            raise ConfigError(
                "--executor slurm: this machine has no command sbatch; run dagsim on a login node, or try the "
                "same jobs on this machine with --executor slurm:cluster=local"
            )
        self._submitit: Any = submitit
        logging.getLogger("submitit").setLevel(logging.ERROR)

    def run(
        self, work: CellWork, cells: Sequence[Cell], on_progress: OnProgress | None = None, wanted: Wanted | None = None
    ) -> Iterator[CellRun]:
        """Yield the runs of each job once the job has ended.

        Raises:
            SimulationError: Slurm cannot be reached, or a job was lost repeatedly.
        """
        indices = [index for index, cell in enumerate(cells) if wanted is None or wanted(cell)]
        count = min(self.settings.jobs, len(indices))
        if not count:
            return
        executor = self._executor()
        packed = replace(work, code=code_digest())
        shares = [indices[number::count] for number in range(count)]
        tasks = [_Share(packed, tuple(cells[index] for index in share)) for share in shares]
        pending: dict[int, Any] = {}
        tries, done = [0] * count, 0
        try:
            pending = dict(enumerate(executor.map_array(_run_share, tasks)))
            while pending:
                ended = [number for number, job in pending.items() if job.done()]
                if not ended:
                    time.sleep(_LISTEN_S[self.settings.cluster])
                for number in ended:
                    job = pending.pop(number)
                    try:
                        runs = job.result()
                    except Exception as error:
                        tries[number] += 1
                        if tries[number] > _TRIES:
                            raise SimulationError(f"--executor slurm: {_lines_of(job, error)}") from None
                        pending[number] = executor.submit(_run_share, tasks[number])
                        continue
                    for index, run in zip(shares[number], runs, strict=False):
                        if isinstance(run, Exception):
                            raise run
                        done += 1
                        if on_progress is not None:
                            on_progress(index, done, 0)
                        yield run
        except DagsimError:
            raise
        except RuntimeError as error:  # sbatch is missing, or it rejected the job
            raise SimulationError(f"--executor slurm: {one_line(error)}") from None
        finally:
            for job in pending.values():
                with suppress(Exception):
                    job.cancel()

    def _executor(self) -> Any:
        settings = self.settings
        folder = Path(settings.folder).absolute()
        try:
            executor = self._submitit.AutoExecutor(folder=folder, cluster=settings.cluster)
        except RuntimeError as error:
            raise SimulationError(f"--executor slurm: {one_line(error)}") from None
        asked = {name: value for name in ("partition", "account", "qos") if (value := getattr(settings, name))}
        executor.update_parameters(
            name="dagsim",
            timeout_min=settings.minutes,
            mem_gb=settings.memory_gb,
            cpus_per_task=1,
            slurm_array_parallelism=min(settings.at_once, settings.jobs),
            **{f"slurm_{name}": value for name, value in asked.items()},
        )
        return executor


@dataclass(frozen=True, slots=True)
class _Share:
    """The cells that one Slurm job runs, and what is needed to run them."""

    work: CellWork
    cells: tuple[Cell, ...]


def _run_share(share: _Share) -> list[CellRun | Exception]:
    """Run the cells of a job, in order. Stop at the first error, because it ends the whole plan."""
    runs: list[CellRun | Exception] = []
    for cell in share.cells:
        try:
            runs.append(share.work(cell, lambda count: None))
        except Exception as error:
            return [*runs, portable(error)]
    return runs


def _lines_of(job: Any, error: Exception) -> str:
    """Describe why a job was lost, and where its log file is."""
    reason = next((line for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
    return f"job {job.job_id} was lost {_TRIES + 1} times: {reason.strip()[:200]}; its log is {job.paths.stderr}"
