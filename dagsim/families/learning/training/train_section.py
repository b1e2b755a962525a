"""The defaults of the section ``train`` of a configuration, and its check against the system."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from pydantic import TypeAdapter

from dagsim.errors import ConfigError, UnknownName
from dagsim.families.learning.episode import RewardConfig
from dagsim.families.learning.training.train_config import ALL_CODECS, TrainConfig
from dagsim.registry import Registry
from dagsim.sections import Registered
from dagsim.systems import all_systems
from dagsim.systems.seam import CodecSettings, Scenario, System


def section_for(system: System | type[System]) -> TrainConfig:
    """Return the default ``train`` section for a system."""
    section: TrainConfig = TypeAdapter(TrainConfig).validate_python(for_system({}, system))
    return section


def for_system(section: Any, system: System | type[System]) -> Any:
    """Fill in the defaults of the system where the section has no value."""
    if isinstance(section, TrainConfig):
        return {part.name: getattr(section, part.name) for part in fields(section)}
    if not isinstance(section, dict):
        return section
    filled = dict(section)
    for name, default in system.training.items():
        value = filled.get(name)
        if name not in filled:
            filled[name] = default
        elif isinstance(value, dict) and "kind" not in value and isinstance(default, str):
            filled[name] = {"kind": default, **value}
    codec = filled.get("codec")
    kind = codec.get("kind") if isinstance(codec, dict) else codec
    if isinstance(kind, str) and ":" not in kind and _is_its_own(kind, system):
        filled["codec"] = Registered(system.codecs).read({"kind": codec} if isinstance(codec, str) else codec)
    return filled


def _is_its_own(codec: str, system: System | type[System]) -> bool:
    """Return True if ``ALL_CODECS`` has no codec of this name, or that of another system. All other codecs
    are read with the section, whose messages name the key (``train.codec``).
    """
    if codec not in ALL_CODECS:
        return True
    own: Any = system.codecs
    if not isinstance(own, Registry):  # of a class whose objects state the codecs
        return False
    return codec in own and own.get(codec) is not ALL_CODECS.get(codec)


def check_training(train: TrainConfig, scenario: Scenario) -> None:
    """Check that a training configuration is compatible with its system.

    Raises:
        ConfigError: A codec or a reward term belongs to another system, or the system does not
            support growing episodes.
    """
    owner = _owner_of(train.codec, scenario)
    if owner != scenario.system:
        allowed = ", ".join(scenario.codecs.names()) or "one of your own (module:attr)"
        raise ConfigError(
            f"train.codec: {train.codec.kind!r} is a codec of the system {owner!r}, "  # type: ignore[attr-defined]
            f"but the system is {scenario.system!r}; allowed: {allowed}"
        )
    if "admit" in getattr(train.codec, "actions", ()) and not scenario.admission:
        raise ConfigError("train.codec: the action 'admit' requires jobs that wait for admission; set admission: true")
    try:
        RewardConfig(train.reward).check(scenario.terms)
    except UnknownName as error:
        raise ConfigError(f"train.reward: {error}") from None
    if scenario.varied:
        if train.reference == "best":
            raise ConfigError(
                "train.reference: each seed has its own cluster, so no heuristic is the best for all; name a policy"
            )
        if train.time_constant_s is not None:
            raise ConfigError(
                "train.time_constant_s cannot be used if clusters differ between seeds, because the discount must "
                "scale with each seed's JCT; set the algorithm's discount_jcts instead"
            )
    if train.first_jobs is not None and scenario.episode_jobs is None:
        raise ConfigError(f"train.first_jobs: episodes of the system {scenario.system!r} cannot be shortened")


def _owner_of(codec: CodecSettings, scenario: Scenario) -> str:
    """Return the system to which a codec belongs. This is the scenario's system, unless only other
    systems list the codec's class."""
    if type(codec) in _codec_classes(scenario):
        return scenario.system
    owners = [system.system for system in all_systems().values() if isinstance(codec, _codec_classes(system))]
    return scenario.system if not owners or scenario.system in owners else owners[0]


def _codec_classes(system: System | type[System]) -> tuple[type, ...]:
    classes = [system.codecs.get(name) for name in system.codecs.names()]
    return tuple([cls for cls in classes if isinstance(cls, type)])
