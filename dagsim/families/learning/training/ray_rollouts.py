"""Training episodes on a Ray cluster."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dagsim.config.schema import Config
from dagsim.errors import SimulationError, one_line
from dagsim.experiment.executors import check_code, with_trace_at
from dagsim.experiment.on_ray import PATIENCE_S, TRIES, bytes_of, local_trace, result
from dagsim.experiment.provenance import code_digest, digest
from dagsim.experiment.scenario import scenario_of

if TYPE_CHECKING:
    from dagsim.families.learning.episode import EpisodeFactory, WitnessFactory
    from dagsim.families.learning.nets.actor import ActorNet
    from dagsim.families.learning.training.rollouts import EpisodeSteps


@dataclass(slots=True)
class RolloutTraffic:
    """Counts of the messages that a training run has sent for its roll-outs so far."""

    rollouts: int = 0
    parts: int = 0
    """Round trips: calls of an actor, each with its reply."""
    weight_bytes: int = 0
    """Weights, put into the cluster's store once per roll-out; each machine fetches them once."""
    answer_bytes: int = 0
    lost: int = 0
    """Parts that were repeated because their actor was lost."""


class RayRollouts:
    """Runs episodes on actors in a Ray cluster. The result is the same as with
    ``InProcessRollouts``, bit for bit. If an actor is lost, the other actors take over its parts,
    and another actor is requested.

    The actors are started for the first roll-out. Until then, cells can use the cores.
    """

    def __init__(self, ray: Any, config: Config, factory: EpisodeFactory, lockstep: int) -> None:
        self.factory = factory
        self.traffic = RolloutTraffic()
        self._ray, self._config, self._lockstep = ray, config, lockstep
        self._starting: dict[Any, Any] = {}
        """Starting actors, by the reply that reports them ready."""
        self._idle: list[Any] = []
        self._start: Any = None
        self._count = 1
        self._losses = 0
        """Number of actors lost since the last reply."""

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
        """Run one episode per seed.

        Raises:
            SimulationError: No actor starts, or all actors are lost.
        """
        from dagsim.families.learning.training.rollouts import parts_of_rollout, weights_of

        ray, parts = self._ray, parts_of_rollout(seeds, rng_key, self._lockstep)
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
                ready, _ = ray.wait([*pending, *self._starting], num_returns=1, timeout=None if pending else PATIENCE_S)
                if not ready:
                    raise SimulationError(f"--executor ray: no core was free for an actor within {PATIENCE_S:.0f} s")
                actor, at = pending.pop(ready[0], None) or (self._starting.pop(ready[0]), None)
                try:
                    answer = result(ray, ready[0])
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
            raise SimulationError(f"--executor ray: {one_line(error)}") from None
        return [steps for number in range(len(parts)) for steps in played[number]]

    def _begin(self) -> None:
        if self._start is not None:
            return
        ray, path = self._ray, self._config.whole_system.trace_path
        trace = None if path is None else (digest(path), ray.put(bytes_of(path)))
        shared = ray.put((self.factory, self._config, code_digest()))
        actor = ray.remote(_RolloutActor).options(num_cpus=1)
        self._start = lambda: actor.remote(shared, trace)
        self._count = max(1, int(ray.cluster_resources().get("CPU", 1)))
        for _ in range(self._count):
            self._await(self._start())

    def _await(self, actor: Any) -> None:
        self._starting[actor.ready.remote()] = actor

    def _replace(self, lost: Any) -> None:
        """Request another actor. It starts when there is a free core for it."""
        with suppress(Exception):
            self._ray.kill(lost)
        self._losses += 1
        if self._losses > TRIES * self._count:
            raise SimulationError("--executor ray: actors have been lost repeatedly; check that there is enough memory")
        self._await(self._start())

    def end(self) -> None:
        """Stop all actors."""
        for actor in [*self._idle, *self._starting.values()]:
            with suppress(Exception):
                self._ray.kill(actor)


class _RolloutActor:
    """The actor, which runs parts of roll-outs on a worker."""

    def __init__(self, shared: tuple[EpisodeFactory, Config, str], trace: tuple[str, Any] | None) -> None:
        self._shared, self._trace = shared, trace
        self._player: Any = None

    def ready(self) -> None:
        """Load everything that the episodes need now, so that loading errors reach the caller
        unchanged."""
        from dagsim.families.learning.training.rollouts import EpisodePlayer, one_thread

        factory, config, code = self._shared
        check_code(code)
        one_thread()
        if self._trace is not None:
            factory = replace(factory, scenario=scenario_of(with_trace_at(config, str(local_trace(*self._trace)))))
        self._player = EpisodePlayer(factory)

    def play(self, weights: Mapping[str, Any], *arguments: Any) -> bytes:
        """Run one part with a network that has these weights. Return the steps in pickled form."""
        settings, *more, part = arguments
        played: list[EpisodeSteps] = self._player.play_weights(settings, weights, *more, part)
        return pickle.dumps(played)
