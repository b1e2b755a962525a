"""The section ``train`` of a configuration: a ``TrainConfig`` whose parts are chosen from
registries.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from pydantic import TypeAdapter

from dagsim.agents.config import ALGORITHMS, TrainConfig
from dagsim.agents.nets import NETS
from dagsim.agents.nets.config import ScorerConfig
from dagsim.agents.on_policy import PpoConfig
from dagsim.config.registered import Registered
from dagsim.envs.episode import RewardConfig
from dagsim.errors import ConfigError, UnknownName
from dagsim.registry import Entry, Registry
from dagsim.systems.cluster.codecs.codec import CandidatesConfig, RelativeConfig
from dagsim.systems.ramp.codecs import PartitionConfig
from dagsim.systems.seam import Scenario
from dagsim.systems.spark.codecs import StagesConfig

_ALL_CODECS: Registry[Any] = Registry(
    "codec",
    [
        Entry("candidates", "dagsim.systems.cluster.codecs.codec:CandidatesConfig"),
        Entry("relative", "dagsim.systems.cluster.codecs.codec:RelativeConfig"),
        Entry("stages", "dagsim.systems.spark.codecs:StagesConfig"),
        Entry("partition", "dagsim.systems.ramp.codecs:PartitionConfig"),
    ],
    group="dagsim.codecs",
    listing="dagsim list codecs",
    method="build",
)
"""Codecs of all systems; ``check_training`` refuses those of another system."""

_DEFAULTS: dict[str, dict[str, Any]] = {
    "spark": {
        "codec": "stages",
        "net": "decima",
        "reward": {"job_seconds": 1.0},
        "rivals": ["fifo", "fair", "weighted-fair"],
        "linear_iterations": 0,
    },
    "ramp": {
        "codec": "partition",
        "net": "pac_ml",
        "reward": {"job_acceptance": 1.0},
        "rivals": ["max", "acceptable_jct", "on_time"],
        "linear_iterations": 0,
    },
}
"""Defaults of a training by system. A part that has a ``kind`` is given by its kind."""


@dataclass(frozen=True, slots=True)
class TrainSection(TrainConfig):
    """A training: what learns, with which reward, for how long, and how it is judged."""

    algorithm: Annotated[Any, Registered(ALGORITHMS, "ppo")] = field(default_factory=PpoConfig)
    """How it learns (``dagsim list algorithms``)."""
    net: Annotated[Any, Registered(NETS, "scorer")] = field(default_factory=ScorerConfig)
    """The neural net (``dagsim list nets``)."""
    codec: Annotated[Any, Registered(_ALL_CODECS, "candidates")] = field(default_factory=CandidatesConfig)
    """How the agent observes and decides (``dagsim list codecs``)."""

    __pydantic_config__ = {"extra": "forbid"}


def section_for(system: str) -> TrainSection:
    """Default section of a system."""
    section: TrainSection = TypeAdapter(TrainSection).validate_python(for_system({}, system))
    return section


def for_system(section: Any, system: str, codecs: Registry[Any] | None = None) -> Any:
    """Fill in the system's defaults where the section has no value.

    ``codecs`` are the codecs of the system; their names must not occur in any other registry.
    """
    if isinstance(section, TrainConfig):
        return {part.name: getattr(section, part.name) for part in fields(section)}
    if not isinstance(section, dict):
        return section
    filled = dict(section)
    for name, default in _DEFAULTS.get(system, {}).items():
        value = filled.get(name)
        if name not in filled:
            filled[name] = default
        elif isinstance(value, dict) and "kind" not in value and isinstance(default, str):
            filled[name] = {"kind": default, **value}
    codec = filled.get("codec")
    kind = codec.get("kind") if isinstance(codec, dict) else codec
    if codecs is not None and isinstance(kind, str) and ":" not in kind and kind not in _ALL_CODECS:
        filled["codec"] = Registered(codecs).read({"kind": codec} if isinstance(codec, str) else codec)
    return filled


def check_training(train: TrainConfig, scenario: Scenario) -> None:
    """Check that a training fits its system.

    Raises:
        ConfigError: A codec or a reward term belongs to another system, or episodes cannot grow.
    """
    for other, cls in (
        ("cluster", CandidatesConfig | RelativeConfig),
        ("spark", StagesConfig),
        ("ramp", PartitionConfig),
    ):
        if isinstance(train.codec, cls) and other != scenario.system:
            allowed = ", ".join(scenario.codecs.names()) or "one of your own (module:attr)"
            raise ConfigError(
                f"train.codec: {train.codec.kind!r} is a codec of the system {other!r}, "
                f"but the system is {scenario.system!r}; allowed: {allowed}"
            )
    if "admit" in getattr(train.codec, "actions", ()) and not getattr(scenario, "admission", False):
        raise ConfigError("train.codec: the action 'admit' needs jobs that wait for it; set admission: true")
    try:
        RewardConfig(train.reward).check(scenario.terms)
    except UnknownName as error:
        raise ConfigError(f"train.reward: {error}") from None
    if getattr(scenario, "varied", False):
        if train.reference == "best":
            raise ConfigError(
                "train.reference: seeds with clusters of their own have no best heuristic in common; name one"
            )
        if train.time_constant_s is not None:
            raise ConfigError(
                "train.time_constant_s: every seed has a unit of time of its own; set discount_jcts of the algorithm"
            )
    if train.first_jobs is not None and not isinstance(getattr(scenario, "jobs", None), int):
        raise ConfigError(f"train.first_jobs: episodes of the system {scenario.system!r} cannot be shortened")
