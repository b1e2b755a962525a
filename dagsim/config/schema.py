"""The configuration of an experiment: its keys, and how to load it from YAML and ``--set`` options.
All faults are reported together.

The sections for lower layers (runtime, network, estimates and others) are dataclasses in those
layers, and ``kind`` selects among them. Every key has a default, so every command runs without a
file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, ValidationError, ValidationInfo, field_validator
from pydantic import model_validator as after_all

from dagsim import services
from dagsim.config import yaml
from dagsim.config.bundled import spelled_out
from dagsim.config.dumping import plain
from dagsim.config.layers import is_visible, layered, ordered_settings
from dagsim.config.yaml import Setting
from dagsim.errors import CodeNotAllowed, ConfigError
from dagsim.metrics.own import value_name
from dagsim.metrics.summary import glossary
from dagsim.model import Cluster
from dagsim.sections import Foreign, Later, Registered, kind_of, unset_keys
from dagsim.spelling import nearest
from dagsim.systems import DEFAULT_SYSTEM, SYSTEMS
from dagsim.systems.default import DefaultSystem, TopKeys
from dagsim.systems.seam import Scenario, System

_WRITTEN_AFTER = {"policy": "failures", "prices": "queues"}
"""Keys that every system has, and the top-level key of the default system after which each of them
is written."""


class Config(TopKeys):
    """An experiment: a cluster, a workload, models of everything that takes time, a policy, and
    seeds.

    ``system`` selects what is simulated. The GPU cluster is described by top-level keys, whereas
    any other system has its keys inside ``system``.
    """

    rare_keys: ClassVar[tuple[str, ...]] = ("prices", "metrics", *TopKeys.rare_keys)
    system: Annotated[Any, Registered(SYSTEMS, DEFAULT_SYSTEM)] = DefaultSystem()
    """The system to simulate, with its settings: ``cluster`` (the default) or another system from
    ``dagsim list systems``.
    """
    policy: str = "fifo"
    """The scheduler: ``name``, ``name[param=value]`` or ``module:attr`` (``dagsim list policies``).
    If the system has no policy named ``fifo``, the default is the first policy that it lists.
    """
    prices: Mapping[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = {}
    """Price per GPU hour for each GPU type, for ``dagsim whatif`` and ``plan``. By default, the list price."""
    metrics: tuple[str, ...] = ()
    """Your own metrics, which are computed for each run in addition to those in ``dagsim list
    metrics``. Each is given as ``module:attr`` or as the name of an entry point
    (docs/own-system.md).
    """
    train: Annotated[Any, Later("train")] | None = None
    """Settings for ``dagsim train``. Default: those of the system."""
    seed: int = Field(default=0, ge=0)
    """Root seed, from which all random values are derived."""
    seeds: int = Field(default=20, ge=1)
    """Number of simulations, each with its own seed and jobs."""
    precision: float | None = Field(default=None, gt=0, lt=1)
    """Keep adding seeds until the confidence interval of each ratio extends at most this fraction
    to either side.
    Default: run ``seeds``.
    """

    @field_validator("workload", mode="before")
    @classmethod
    def _spelled_out(cls, workload: Any) -> Any:
        return spelled_out(workload)

    @field_validator("system")
    @classmethod
    def _of_the_seam(cls, system: Any) -> Any:
        if not isinstance(system, System | Foreign):
            raise ConfigError(
                f"{kind_of(system)} is not a Scenario, so derive the class from dagsim.systems.seam.Scenario"
            )
        return system

    @field_validator("train", mode="before")
    @classmethod
    def _trained_on_the_system(cls, train: Any, info: ValidationInfo) -> Any:
        system = info.data.get("system")
        if train is None or system is None:
            return train
        return train if (filled := services.training_filled.offered()) is None else filled(train, _system_of(system))

    @field_validator("metrics")
    @classmethod
    def _of_different_names(cls, metrics: tuple[str, ...]) -> tuple[str, ...]:
        terms = {term.name for term in glossary()}
        for place, name in enumerate(names := [value_name(spec) for spec in metrics]):
            if name in names[:place] or name in terms:
                raise ConfigError(f"metrics: {name!r} is already the name of another metric; rename the class")
        return metrics

    @field_validator("seeds")
    @classmethod
    def _countable(cls, seeds: int) -> int:
        if seeds > 1_000_000:
            raise ConfigError(f"seeds must be at most 1,000,000, got {seeds:,}")
        return seeds

    @after_all(mode="after")
    def _of_one_system(self) -> Config:
        if self.whole_system.has_top_keys:
            self.check_nodes()
            return self
        for key in _top_keys():
            if key in self.model_fields_set:
                raise ConfigError(
                    f"{key} belongs to the system {DEFAULT_SYSTEM!r}, but the system is {self.kind!r}; put its "
                    "settings under system"
                )
        if (
            "policy" not in self.model_fields_set
            and (names := self.whole_system.policies.names())
            and self.policy not in names
        ):
            # Write to __dict__ directly, because the section is frozen and rejects an assignment.
            self.__dict__["policy"] = names[0]
        return self

    @property
    def kind(self) -> str:
        """The name in ``system.kind``. Several such kinds may belong to the same system
        (``whole_system.system``).
        """
        return _name_of(self.system)

    @property
    def whole_system(self) -> System:
        """The system with all its settings, including those at the top level. Its ``scenario()`` is
        what is simulated.
        """
        return _system_of(self.system).of(self)

    def changed(self, source: str, parts: Mapping[str, Any]) -> Config:
        """Return a copy of this configuration with different values for top-level keys. The copy is
        validated, but no file is read.

        Raises:
            ConfigError: A value is wrong or contradicts another value. The message begins with
                ``source``.
        """
        return _validate(
            yaml.Document({name: getattr(self, name) for name in self.model_fields_set} | dict(parts), source)
        )

    def written_keys(self) -> list[str]:
        """Return the keys that are written to a file, in order. For a system that does not use
        them, the top-level keys of the GPU cluster are left out.
        """
        left_out = (*unset_keys(self), *(() if self.whole_system.has_top_keys else _top_keys()))
        return [name for name in _all_keys() if name not in left_out]

    def training(self) -> Any:
        """Return the section ``train`` or, if there is none, the system's defaults for it.

        Raises:
            UnknownName: The family ``learning`` is missing.
        """
        return self.train or services.training_defaults(self.whole_system)

    def build_cluster(self) -> Cluster:
        """Build the cluster described by the section ``cluster``.

        Raises:
            ConfigError: The system has no section ``cluster``, or the section takes its machines
                from a trace, but there is no trace or it lists no machines.
            TraceError: The list of machines cannot be read.
        """
        if not self.whole_system.has_top_keys:
            raise ConfigError(f"the system {self.kind!r} has no cluster section")
        return super().build_cluster()


def _name_of(system: Any) -> str:
    """Return the name by which a configuration refers to a system's class. For a user's own class,
    this is the place where it is found.
    """
    return str(getattr(system, "kind", None) or kind_of(system))


class _Unread(System):
    """A system whose class is outside dagsim and was not imported."""

    def __init__(self, name: str) -> None:
        self.system = name  # type: ignore[misc]

    def scenario(self) -> Scenario:
        """Raise an error, because the class of the system was not imported.

        Raises:
            CodeNotAllowed: Always.
        """
        raise CodeNotAllowed(f"the system {self.system!r} is code outside dagsim, which was not imported")


def _system_of(system: Any) -> System:
    return _Unread(system.kind) if isinstance(system, Foreign) else system


@cache
def _top_keys() -> tuple[str, ...]:
    """Return the keys of the default system, which are at the top level. Every other system has its
    keys under ``system``.
    """
    return tuple([key for key in TopKeys.model_fields if key not in TopKeys.shared_keys])


@cache
def _all_keys() -> tuple[str, ...]:
    """Return all keys in the order in which a configuration is written."""
    keys = ["system", *TopKeys.model_fields]
    for key, before in _WRITTEN_AFTER.items():
        keys.insert(keys.index(before) + 1, key)
    return tuple(dict.fromkeys((*keys, *Config.model_fields)))


def load_config(path: Path | None = None, settings: Iterable[str | Setting] = (), *, own: bool = True) -> Config:
    """Load the configuration from the YAML file ``path`` (or the defaults), and apply ``settings``
    (``a.b=value``) to it.

    With ``own=False``, no code outside dagsim is imported, and a part whose ``kind`` names such
    code becomes a ``Foreign``.

    Raises:
        ConfigError: The configuration is invalid. The message has one line per fault.
        CodeNotAllowed: The file names code that this process may not import.
    """
    settings = yaml.as_listed(settings)
    document = yaml.Document({}, "defaults") if path is None else yaml.read_yaml(path)
    if isinstance(document.value, dict) and "over" in document.value:
        keys = "base and over" if "base" in document.value else "the key over"
        raise ConfigError(f"{path}: this is a sweep (it has {keys}); run it with: dagsim sweep {path}")
    if path is not None and _is_foreign(document.value):
        raise ConfigError(
            f"{path}: not a configuration: it has none of the expected keys (policy, cluster, workload, ...); "
            "dagsim config show prints one"
        )
    return config_in(document, settings, own=own)


def _is_foreign(value: Any) -> bool:
    """Return True if a document is probably not a configuration. This is the case if it is a text,
    or if it has several keys and none of them resembles a known key.
    """
    if not isinstance(value, dict):
        return isinstance(value, str)
    if len(value) < 2 or any(key in Config.model_fields for key in value):
        return False
    known = json_schema()["properties"]
    return not any(key in known or nearest(str(key), known) for key in value)


def config_in(document: yaml.Document, settings: Iterable[str | Setting] = (), *, own: bool = True) -> Config:
    """Build the configuration that ``document`` describes, as ``load_config`` does."""
    applied = ordered_settings(settings)
    config = _with_settings(document, applied, own)
    for setting in applied:
        if not is_visible(setting, config):
            others = [other for other in applied if other.key != setting.key]
            if _without_effect(document, others, own, config):
                raise ConfigError(f"{setting.source}: has no effect: the configuration is the same without it")
    return config


def _without_effect(document: yaml.Document, others: list[Setting], own: bool, config: Config) -> bool:
    try:
        return _with_settings(document, others, own) == config
    except ConfigError:  # the other settings may be invalid without this one
        return False


def _with_settings(document: yaml.Document, settings: list[Setting], own: bool) -> Config:
    return _validate(layered(document, settings, _default_values(), own=own), own=own)


@cache
def _default_values() -> dict[str, Any]:
    return plain(Config())  # type: ignore[no-any-return]


def _validate(document: yaml.Document, *, own: bool = False) -> Config:
    value = {} if document.value is None else document.value
    gpus = value.get("gpu_types") if isinstance(value, dict) else None
    types = gpus if isinstance(gpus, list | tuple) else ()
    names = [gpu.get("name") if isinstance(gpu, dict) else getattr(gpu, "name", None) for gpu in types]
    context = {"gpu_types": [name for name in names if isinstance(name, str)], "own": own}
    try:
        return Config.model_validate(value, context=context)
    except ValidationError as error:
        from dagsim.config.faults import explain

        raise ConfigError(*explain(error, document, json_schema())) from None


@cache
def json_schema(*, described: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of the configuration for use in editors (``# yaml-language-server:
    $schema=...``). If ``described`` is True, the keys of dataclasses also have descriptions, which
    are read from the source code.
    """
    from dagsim.config.json_schema import schema_of

    return schema_of(Config, described=described)
