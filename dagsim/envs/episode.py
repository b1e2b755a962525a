"""Episodes: simulations that stop wherever there is a choice, and their rewards. No torch, no Gymnasium."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol

from dagsim.errors import ConfigError, Stalled
from dagsim.registry import Registry, Spec
from dagsim.systems.seam import Codec, CodecSettings, Conversation, Kernel, RewardTerm, Scenario

__all__ = ["Episode", "EpisodeFactory", "Reward", "RewardConfig", "Witness", "WitnessFactory"]


class Witness(Protocol):
    """Notes about a simulation that an estimator of advantages needs, and no policy may see."""

    def note(self) -> Any:
        """The note on the present, just before a choice is carried out."""
        ...

    def hindsight(self) -> Any:
        """The note on the whole episode, when it is over."""
        ...


WitnessFactory = Callable[[Kernel[Any, Any]], Witness]


class Episode:
    """One simulation under way. ``observation`` is what there is to choose from now, ``None`` when it is over."""

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
        self._reward = reward
        self._conversation: Conversation[Any, Any] = Conversation(kernel, until_s)
        self._to_next_choice()
        self.reward()

    @property
    def view(self) -> Any | None:
        """The view that a heuristic would be shown now; ``None`` when the episode is over."""
        return self._conversation.view

    @property
    def now(self) -> float:
        """Seconds since the start of the simulation."""
        return self.kernel.now

    def reward(self) -> float:
        """The reward since this was last asked."""
        return 0.0 if self._reward is None else self._reward.step()

    def step(self, choice: Any) -> None:
        """Carry out the choice and go on to the next.

        Raises:
            Stalled: The choice waits for nothing; the episode is over.
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
    """All that makes episodes: a scenario, how its views are encoded, and a reward. Picklable where its parts are."""

    scenario: Scenario
    codec: CodecSettings
    reward: RewardConfig
    record: bool = False
    """Keep every run in the log, as reports need, also where that is slower."""

    def kernel(self, seed: int, jobs: int | None = None) -> Kernel[Any, Any]:
        """A kernel of the job sequence with that seed. It has the first ``jobs`` jobs where the system can do so."""
        more: dict[str, Any] = {} if jobs is None else {"jobs": jobs}
        return self.scenario.kernel(seed, record=self.record, **more)

    def episode(self, seed: int, jobs: int | None = None, witness: WitnessFactory | None = None) -> Episode:
        """A new episode on the job sequence with that seed."""
        kernel = self.kernel(seed, jobs)
        reward = Reward(self.reward, kernel, self.scenario.terms)
        return Episode(kernel, self.codec.build(), reward, witness=None if witness is None else witness(kernel))


@dataclass(frozen=True, slots=True)
class RewardConfig:
    """A weighted sum of terms to minimise, and a divisor.

    ``terms`` are names of the system's registry (with parameters in brackets), ``module:attr`` or names of entry
    points, each with its weight.

    Raises:
        ConfigError: No terms at all, or a scale that is not positive.
    """

    terms: Mapping[str, float]
    scale: float = 1.0

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if not self.terms:
            raise ConfigError("reward: needs at least one term")
        if not self.scale > 0:
            raise ConfigError(f"reward: scale must be positive, got {self.scale!r}")

    def check(self, registry: Registry[RewardTerm]) -> None:
        """Look up every term.

        Raises:
            UnknownName: There is no such term.
        """
        for name in self.terms:
            registry.get(Spec.parse(name).name)


class Reward:
    """The reward of one simulation, step by step. Rewards add up to minus the cost of the whole, whatever the steps."""

    def __init__(self, config: RewardConfig, kernel: Kernel[Any, Any], registry: Registry[RewardTerm]) -> None:
        self.config = config
        self.last: dict[str, float] = dict.fromkeys(config.terms, 0.0)
        """What each term (times its weight, over the scale) took off the last reward."""
        self._kernel = kernel
        schedule = kernel.schedule
        self._terms = {name: registry.create(name, kernel=kernel, schedule=schedule) for name in config.terms}
        self._takers = [taker for term in self._terms.values() if (taker := getattr(term, "take", None)) is not None]
        self._log = schedule.log
        self._read = 0

    def step(self) -> float:
        """The reward since the last call: minus what the terms have cost since then."""
        now, weights, scale = self._kernel.now, self.config.terms, self.config.scale
        if self._takers:
            rows = self._log.since(self._read)
            self._read += len(rows)
            for take in self._takers:
                for row in rows:
                    take(row)
        reward = 0.0
        for name, term in self._terms.items():
            self.last[name] = cost = term.cost(now) * weights[name] / scale
            reward -= cost
        return reward
