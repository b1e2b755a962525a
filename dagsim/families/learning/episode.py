"""Episodes and their rewards. An episode is a simulation that stops at every choice. This module
imports neither torch nor Gymnasium."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol

from dagsim.errors import ConfigError, Stalled
from dagsim.model.log import Record
from dagsim.registry import Registry
from dagsim.specs import Spec
from dagsim.systems.seam import Codec, CodecSettings, Conversation, Kernel, RewardTerm, Scenario


class Witness(Protocol):
    """Takes notes about a simulation for an advantage estimator. Policies must not see these notes."""

    def note(self) -> Any:
        """Return a note on the current state. This is called just before a choice is carried
        out."""

    def hindsight(self) -> Any:
        """Return a note on the whole episode after it has ended."""


WitnessFactory = Callable[[Kernel[Any, Any]], Witness]


class Episode:
    """A simulation in progress. ``observation`` contains the current choices. After the end of the
    episode, it is ``None``."""

    def __init__(
        self,
        kernel: Kernel[Any, Any],
        codec: Codec,
        reward: Reward | None = None,
        *,
        until_s: float = inf,
        witness: Witness | None = None,
    ) -> None:
        self.kernel = kernel
        self.codec = codec
        self.witness = witness
        self.observation: Any | None = None
        self.accrued = reward
        """The reward of this episode, or None."""
        self._conversation: Conversation[Any, Any] = Conversation(kernel, until_s)
        self._to_next_choice()
        self.reward()

    @property
    def view(self) -> Any | None:
        """Return the view that a heuristic would see now, or ``None`` when the episode is over."""
        return self._conversation.view

    @property
    def now(self) -> float:
        """Return the current time in seconds since the start of the simulation."""
        return self.kernel.now

    def reward(self) -> float:
        """Return the reward since the previous call."""
        return 0.0 if self.accrued is None else self.accrued.step()

    def fork(self) -> Episode | None:
        """Return an identical episode that continues independently. Return None if the kernel, the
        codec or a term of the reward has no ``fork``.
        """
        if self.observation is None:
            return self  # an episode that is over never changes
        parts = (self.kernel, self.codec, *(() if self.accrued is None else self.accrued.terms.values()))
        if not all(hasattr(part, "fork") and getattr(part, "forks", True) for part in parts):
            return None
        twin = copy(self)
        twin.kernel = kernel = self.kernel.fork()  # type: ignore[attr-defined]
        twin._conversation = self._conversation.of_fork(kernel)
        twin.accrued = None if self.accrued is None else self.accrued.fork(kernel)
        twin.codec = self.codec.fork(twin.view)  # type: ignore[attr-defined]
        twin.observation = twin.codec.encode(twin.view)
        return twin

    def step(self, choice: Any) -> None:
        """Carry out the choice and advance to the next one.

        Raises:
            Stalled: The choice is to wait although there is nothing to wait for, or the episode is
                over.
        """
        conversation = self._conversation
        decisions = self.codec.decode(conversation.view, choice)
        try:
            conversation.answer(decisions)
            self._to_next_choice()
        except Stalled:
            self.observation = conversation.view = None
            raise

    def _to_next_choice(self) -> None:
        conversation, encode = self._conversation, self.codec.encode
        while (view := conversation.view) is not None:
            self.observation = encode(view)
            if self.observation is not None:
                return
            conversation.answer(())
        self.observation = None


@dataclass(frozen=True)
class EpisodeFactory:
    """Builds episodes from a scenario, a codec for its views, and a reward. The factory can be
    pickled if its parts can."""

    scenario: Scenario
    codec: CodecSettings
    reward: RewardConfig
    record: bool = False
    """True to keep every run in the log, which reports need but which is slower."""
    compiled: bool = False
    """True to simulate many episodes at once in the compiled engine (``vector_env``)."""

    def kernel(self, seed: int, jobs: int | None = None) -> Kernel[Any, Any]:
        """Build a kernel for the job sequence of this seed. If ``jobs`` is set and the system
        supports it, the kernel has only the first ``jobs`` jobs."""
        options: dict[str, Any] = {} if jobs is None else {"jobs": jobs}
        return self.scenario.kernel(seed, record=self.record, **options)

    def episode(self, seed: int, jobs: int | None = None, witness: WitnessFactory | None = None) -> Episode:
        """Begin an episode on the job sequence of this seed."""
        kernel = self.kernel(seed, jobs)
        reward = Reward(self.reward, kernel, self.scenario.terms)
        return Episode(kernel, self.codec.build(), reward, witness=None if witness is None else witness(kernel))


@dataclass(frozen=True, slots=True)
class RewardConfig:
    """A weighted sum of cost terms, and a number by which this sum is divided.

    ``terms`` are names from the registry of the system (with parameters in brackets),
    ``module:attr``, or entry points, each with a weight.

    Raises:
        ConfigError: There are no terms, or the scale is not positive.
    """

    terms: Mapping[str, float]
    scale: float = 1.0

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if not isinstance(self.terms, Mapping):
            raise ConfigError(f'reward: must map terms to weights, such as {{"job_seconds": 1.0}}; got {self.terms!r}')
        for name, weight in self.terms.items():
            if isinstance(weight, bool) or not isinstance(weight, int | float):
                raise ConfigError(f"reward: the weight of {name!r} must be a number, got {weight!r}")
        if not self.terms:
            raise ConfigError("reward: at least one term is needed")
        if not self.scale > 0:
            raise ConfigError(f"reward: scale must be positive, got {self.scale!r}")

    def check(self, registry: Registry[RewardTerm]) -> None:
        """Look up every term.

        Raises:
            UnknownName: A term does not exist.
        """
        for name in self.terms:
            registry.get(Spec.parse(name).name)


class Reward:
    """The reward of a single simulation, step by step. In total, the rewards are minus the total
    cost, however time is divided into steps."""

    def __init__(self, config: RewardConfig, kernel: Kernel[Any, Any], registry: Registry[RewardTerm]) -> None:
        self.config = config
        self.last: dict[str, float] = dict.fromkeys(config.terms, 0.0)
        """What each term contributed to the last reward: its weighted cost, divided by the scale."""
        self._kernel = kernel
        schedule = kernel.schedule
        self.terms = {name: registry.create(name, kernel=kernel, schedule=schedule) for name in config.terms}
        self._takers = self._takers_of()
        self._log = schedule.log
        self._read = 0

    def fork(self, kernel: Kernel[Any, Any]) -> Reward:
        """Return the same reward for a fork of the simulation. Every term must have a ``fork``."""
        twin = copy(self)
        twin._kernel, twin._log, twin.last = kernel, kernel.schedule.log, dict(self.last)
        twin.terms = {name: term.fork(self._kernel, kernel) for name, term in self.terms.items()}  # type: ignore[attr-defined]
        twin._takers = twin._takers_of()
        return twin

    def _takers_of(self) -> list[Callable[[Any], None]]:
        return [taker for term in self.terms.values() if (taker := getattr(term, "take", None)) is not None]

    def step(self) -> float:
        """Return the reward since the previous call, which is minus the cost since then."""
        now, weights, scale = self._kernel.now, self.config.terms, self.config.scale
        if self._takers:
            rows = list(map(Record._make, self._log.since(self._read)))
            self._read += len(rows)
            for take in self._takers:
                for row in rows:
                    take(row)
        reward = 0.0
        for name, term in self.terms.items():
            self.last[name] = cost = term.cost(now) * weights[name] / scale
            reward -= cost
        return reward
