"""Run cells, and play the episodes of a training, on a Ray cluster of one machine, or of several that
share no disk.
"""

from __future__ import annotations

import os
import pickle
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from dagsim.config.schema import Config
from dagsim.errors import ConfigError, SimulationError, one_line
from dagsim.experiment.executors import CellWork, OnProgress, Wanted, check_code, with_trace_at
from dagsim.experiment.kept_files import CellRun
from dagsim.experiment.plan import Cell
from dagsim.experiment.provenance import code_digest, digest
from dagsim.experiment.scenario import scenario_of

if TYPE_CHECKING:
    from dagsim.families.learning.episode import EpisodeFactory, WitnessFactory
    from dagsim.families.learning.nets.actor import ActorNet
    from dagsim.families.learning.rollouts import EpisodeSteps

_TRIES = 10
"""Number of retries of a cell whose worker or machine is lost."""
_AHEAD = 4
"""Number of cells submitted at once for each core of the cluster."""
_MOST_BYTES = 2_000_000_000
"""Maximum size in bytes of a trace that is sent to workers."""
_PATIENCE_S = 600.0
"""Seconds to wait for the first actor, or for one after all others were lost."""


class OnRay:
    """Runs cells on a Ray cluster: the one that runs here or that ``RAY_ADDRESS`` names, or else a
    new one on this machine. With ``address``, it is a remote one (``ray://HOST:10001``).

    Every machine needs the same version of dagsim. Traces are sent to the machines, and results are
    sent back. The usage statistics that Ray sends to its makers are switched off.

    Raises:
        ConfigError: Ray is not installed.
    """

    def __init__(self, address: str = "") -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # before it is imported: nothing is sent anywhere
        try:
            import ray
        except ImportError:
            raise ConfigError("--on ray: Ray is not installed: pip install -e '.[ray]' in the checkout") from None
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
            ship = {sha: ray.put(_bytes(path)) for sha, path in traces.items()}
            run = ray.remote(_run_remotely).options(num_cpus=1, max_retries=_TRIES)
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
                yield _result(ray, ready)
        except ray.exceptions.RayError as error:
            raise SimulationError(f"--on ray: {one_line(error)}") from None
        finally:
            if ours:
                with suppress(Exception):
                    ray.shutdown()

    @contextmanager
    def rollouts(self, config: Config, factory: EpisodeFactory, lockstep: int) -> Iterator[RayRollouts]:
        """Roll-outs of a training of ``config``, on one actor for each core of the cluster.

        Raises:
            SimulationError: The cluster cannot be reached.
        """
        ours = self._joined()
        rollouts = RayRollouts(self._ray, config, factory, lockstep)
        try:
            yield rollouts
        finally:
            rollouts.end()
            if ours:
                with suppress(Exception):
                    self._ray.shutdown()

    def _joined(self) -> bool:
        """Join the cluster; return true if the caller must leave it again."""
        if self._ray.is_initialized():
            return False
        try:
            self._ray.init(address=self.address, include_dashboard=None if self.address else False, log_to_driver=False)
        except Exception as error:
            raise SimulationError(f"--on ray: no cluster: {one_line(error)}") from None
        return True


def _result(ray: Any, ready: Any) -> Any:
    try:
        run = ray.get(ready)
    except ray.exceptions.RayTaskError as error:
        raise error.cause if isinstance(error.cause, Exception) else SimulationError(str(error)) from None
    return run


@dataclass(slots=True)
class RolloutTraffic:
    """Counts of what the roll-outs of a training have sent so far."""

    rollouts: int = 0
    parts: int = 0
    """Round trips: calls of an actor, each with its answer."""
    weight_bytes: int = 0
    """Weights, put into the cluster's store once per roll-out; each machine fetches them once."""
    answer_bytes: int = 0
    lost: int = 0
    """Parts that were played again because their actor was lost."""


class RayRollouts:
    """Plays episodes on actors of a Ray cluster; the result is that of ``InProcessRollouts``, bit for
    bit. Parts of an actor that is lost go to the others, and a new actor is asked for.

    The actors start with the first roll-out, so that cells can use the cores before.
    """

    def __init__(self, ray: Any, config: Config, factory: EpisodeFactory, lockstep: int) -> None:
        self.factory = factory
        self.traffic = RolloutTraffic()
        self._ray, self._config, self._lockstep = ray, config, lockstep
        self._starting: dict[Any, Any] = {}
        """Actors by the answer that says that they are ready."""
        self._idle: list[Any] = []
        self._start: Any = None
        self._count = 1
        self._losses = 0
        """Actors lost since the last answer."""

    def play(
        self,
        net: ActorNet,
        seeds: Sequence[int],
        rng_key: Sequence[int],
        *,
        explore: float | None = None,
        jobs: int | None = None,
        witness: WitnessFactory | None = None,
    ) -> list[EpisodeSteps]:
        """Play one episode per seed.

        Raises:
            SimulationError: No actor starts, or all are lost.
        """
        from dagsim.families.learning.rollouts import parts_of, weights_of

        ray, parts = self._ray, parts_of(seeds, rng_key, self._lockstep)
        try:
            self._begin()
            weights = weights_of(net)
            self.traffic.rollouts += 1
            self.traffic.weight_bytes += len(pickle.dumps(weights))
            sent = ray.put(weights)
            waiting = deque(range(len(parts)))
            pending: dict[Any, tuple[Any, int]] = {}
            played: dict[int, list[EpisodeSteps]] = {}
            while len(played) < len(parts):
                while self._idle and waiting:
                    actor, number = self._idle.pop(), waiting.popleft()
                    answer = actor.play.remote(sent, net.settings, explore, jobs, witness, parts[number])
                    pending[answer] = actor, number
                ready, _ = ray.wait(
                    [*pending, *self._starting], num_returns=1, timeout=None if pending else _PATIENCE_S
                )
                if not ready:
                    raise SimulationError(f"--on ray: no core was free for an actor within {_PATIENCE_S:.0f} s")
                actor, at = pending.pop(ready[0], None) or (self._starting.pop(ready[0]), None)
                try:
                    answer = _result(ray, ready[0])
                except ray.exceptions.RayError:
                    self._replace(actor)
                    if at is not None:
                        self.traffic.lost += 1
                        waiting.appendleft(at)
                    continue
                self._idle.append(actor)
                if at is not None:
                    self._losses = 0
                    self.traffic.parts += 1
                    self.traffic.answer_bytes += len(answer)
                    played[at] = pickle.loads(answer)
        except ray.exceptions.RayError as error:
            raise SimulationError(f"--on ray: {one_line(error)}") from None
        return [steps for number in range(len(parts)) for steps in played[number]]

    def _begin(self) -> None:
        if self._start is not None:
            return
        ray, path = self._ray, self._config.world.trace_path
        trace = None if path is None else (digest(path), ray.put(_bytes(path)))
        shared = ray.put((self.factory, self._config, code_digest()))
        actor = ray.remote(_RolloutActor).options(num_cpus=1)
        self._start = lambda: actor.remote(shared, trace)
        self._count = max(1, int(ray.cluster_resources().get("CPU", 1)))
        for _ in range(self._count):
            self._await(self._start())

    def _await(self, actor: Any) -> None:
        self._starting[actor.ready.remote()] = actor

    def _replace(self, lost: Any) -> None:
        """Ask for another actor; it starts if a core is free for it."""
        with suppress(Exception):
            self._ray.kill(lost)
        self._losses += 1
        if self._losses > _TRIES * self._count:
            raise SimulationError("--on ray: actors are lost again and again; check that there is enough memory")
        self._await(self._start())

    def end(self) -> None:
        """Stop all actors."""
        for actor in [*self._idle, *self._starting.values()]:
            with suppress(Exception):
                self._ray.kill(actor)


class _RolloutActor:
    """Plays parts of roll-outs on a worker."""

    def __init__(self, shared: tuple[EpisodeFactory, Config, str], trace: tuple[str, Any] | None) -> None:
        self._shared, self._trace = shared, trace
        self._player: Any = None

    def ready(self) -> None:
        """Load everything that the episodes need; errors here reach the caller as they are."""
        from dagsim.families.learning.rollouts import EpisodePlayer, one_thread

        factory, config, code = self._shared
        check_code(code)
        one_thread()
        if self._trace is not None:
            factory = replace(factory, scenario=scenario_of(with_trace_at(config, str(_placed(*self._trace)))))
        self._player = EpisodePlayer(factory)

    def play(self, weights: Mapping[str, Any], *arguments: Any) -> bytes:
        """Play one part by a net of these weights; return its pickled steps."""
        settings, *more, part = arguments
        played: list[EpisodeSteps] = self._player.play_weights(settings, weights, *more, part)
        return pickle.dumps(played)


def _run_remotely(work: CellWork, cell: Cell, trace: str | None, ship: Mapping[str, Any]) -> CellRun:
    """Run a cell on a worker, which first fetches the trace (by SHA-256) if it does not have it
    yet.
    """
    if trace is not None:
        work = replace(work, trace=str(_placed(trace, ship[trace])))
    return work(cell, lambda count: None)


_PLACED: dict[str, Path] = {}
"""Traces that this worker has, by SHA-256."""


def _placed(sha: str, shipped: Any) -> Path:
    """The trace as a file on this worker."""
    import ray

    if sha not in _PLACED:
        name, content = ray.get(shipped)
        if sha256(content).hexdigest() != sha:
            raise SimulationError(f"--on ray: the trace {name!r} changed while it was sent")
        path = Path(mkdtemp(prefix="dagsim-")) / Path(name).name
        path.write_bytes(content)
        _PLACED[sha] = path
    return _PLACED[sha]


def _bytes(file: Path) -> tuple[str, bytes]:
    """The name and the content of a trace.

    Raises:
        ConfigError: The trace is a folder, or too large.
    """
    if not file.is_file() or file.stat().st_size > _MOST_BYTES:
        raise ConfigError(f"--on ray: the trace {file} must be one file of at most {_MOST_BYTES:,} bytes")
    return file.name, file.read_bytes()
