"""Run cells on a Ray cluster. Its machines do not need to share a disk."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from dagsim import services
from dagsim.config.schema import Config
from dagsim.errors import ConfigError, SimulationError, one_line
from dagsim.experiment.cell import Cell
from dagsim.experiment.cell_run import CellRun
from dagsim.experiment.executors import CellWork, Wanted
from dagsim.experiment.process_pool import OnProgress
from dagsim.experiment.provenance import code_digest

TRIES = 10
"""Number of retries of a cell whose worker or machine is lost."""
_AHEAD = 4
"""Number of cells for each core of the cluster that are submitted ahead."""
_MOST_BYTES = 2_000_000_000
"""Maximum size in bytes of a trace that is sent to workers."""
PATIENCE_S = 600.0
"""Seconds to wait for the first actor, or for a new actor after all others were lost."""


class OnRay:
    """An executor that runs cells on a Ray cluster. ``address`` (``ray://HOST:10001``) selects a
    remote cluster. Without it, the executor uses the cluster that ``RAY_ADDRESS`` names or that is
    running on this machine. If there is none, it starts a new one here.

    Every machine needs the same version of dagsim. Traces are sent to the machines, and results are
    sent back. Ray's usage statistics are switched off.

    Raises:
        ConfigError: Ray is not installed.
    """

    def __init__(self, address: str = "") -> None:
        # must be set before Ray is imported, so that Ray sends no usage statistics
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        try:
            import ray
        except ImportError:
            raise ConfigError("--executor ray needs Ray; run pip install -e '.[ray]' in the checkout") from None
        self._ray: Any = ray
        self.address = f"ray:{address}" if address else None

    def run(
        self, work: CellWork, cells: Sequence[Cell], on_progress: OnProgress | None = None, wanted: Wanted | None = None
    ) -> Iterator[CellRun]:
        """Yield the runs in order of completion. Cells whose worker or machine is lost are run
        again.

        Raises:
            SimulationError: The cluster cannot be reached, or was lost.
        """
        ray = self._ray
        ours = self._joined()
        try:
            traces = dict(trace for cell in cells if (trace := cell.trace()) is not None)
            ship = {sha: ray.put(bytes_of(path)) for sha, path in traces.items()}
            run = ray.remote(_run_remotely).options(num_cpus=1, max_retries=TRIES)
            most = _AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
            packed = ray.put(replace(work, code=code_digest()))
            left, done = iter(enumerate(cells)), 0
            pending: dict[Any, int] = {}
            while True:
                while len(pending) < most and (following := next(left, None)) is not None:
                    index, cell = following
                    if wanted is None or wanted(cell):
                        trace = cell.trace()
                        pending[run.remote(packed, cell, trace and trace[0], ship)] = index
                if not pending:
                    return
                (ready, *_), _ = ray.wait(list(pending), num_returns=1)
                index, done = pending.pop(ready), done + 1
                if on_progress is not None:
                    on_progress(index, done, 0)
                yield result(ray, ready)
        except ray.exceptions.RayError as error:
            raise SimulationError(f"--executor ray: {one_line(error)}") from None
        finally:
            if ours:
                with suppress(Exception):
                    ray.shutdown()

    @contextmanager
    def rollouts(self, config: Config, factory: Any, lockstep: int) -> Iterator[Any]:
        """Provide the roll-outs for a training run on a Ray cluster, with one actor for each core.

        Raises:
            SimulationError: The cluster cannot be reached.
        """
        ours = self._joined()
        rollouts = services.ray_rollouts(self._ray, config, factory, lockstep)
        try:
            yield rollouts
        finally:
            rollouts.end()
            if ours:
                with suppress(Exception):
                    self._ray.shutdown()

    def _joined(self) -> bool:
        """Connect to the cluster. Return True if the caller has to disconnect afterwards."""
        if self._ray.is_initialized():
            return False
        try:
            self._ray.init(address=self.address, include_dashboard=None if self.address else False, log_to_driver=False)
        except Exception as error:
            raise SimulationError(f"--executor ray: cannot connect to a cluster: {one_line(error)}") from None
        return True


def result(ray: Any, ready: Any) -> Any:
    try:
        run = ray.get(ready)
    except ray.exceptions.RayTaskError as error:
        raise error.cause if isinstance(error.cause, Exception) else SimulationError(str(error)) from None
    return run


def _run_remotely(work: CellWork, cell: Cell, trace: str | None, ship: Mapping[str, Any]) -> CellRun:
    """Run a cell on a worker. If the worker does not have the trace yet, it fetches the trace
    first.
    """
    if trace is not None:
        work = replace(work, trace=str(local_trace(trace, ship[trace])))
    return work(cell, lambda count: None)


_PLACED: dict[str, Path] = {}
"""The paths of traces that this worker already has, by SHA-256."""


def local_trace(sha: str, shipped: Any) -> Path:
    """Return the path of the trace on this worker, after writing the file if it is missing."""
    import ray

    if sha not in _PLACED:
        name, content = ray.get(shipped)
        if sha256(content).hexdigest() != sha:
            raise SimulationError(f"--executor ray: the trace {name!r} changed while it was being sent")
        path = Path(mkdtemp(prefix="dagsim-")) / Path(name).name
        path.write_bytes(content)
        _PLACED[sha] = path
    return _PLACED[sha]


def bytes_of(file: Path) -> tuple[str, bytes]:
    """Return the name and the content of a trace.

    Raises:
        ConfigError: The trace is a folder, or too large.
    """
    if not file.is_file() or file.stat().st_size > _MOST_BYTES:
        raise ConfigError(f"--executor ray: the trace {file} must be one file of at most {_MOST_BYTES:,} bytes")
    return file.name, file.read_bytes()
