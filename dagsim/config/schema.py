"""The configuration of an experiment. This module converts YAML and ``--set`` options to frozen
objects, and reports all faults together.

The sections for lower layers (runtime, network, estimates and others) are dataclasses in those
layers, and ``kind`` selects among them. Every key has a default, so every command runs without a
file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import fields, is_dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, Field, ValidationError, ValidationInfo, field_validator
from pydantic import model_validator as after_all

from dagsim import services
from dagsim.config import yaml
from dagsim.config.bundled import WORKLOADS, shipped
from dagsim.config.yaml import Setting as Setting
from dagsim.config.yaml import explain
from dagsim.errors import CodeNotAllowed, ConfigError, DagsimError, WorkloadError
from dagsim.files import is_there
from dagsim.metrics.own import value_name
from dagsim.metrics.summary import glossary
from dagsim.model import Cluster
from dagsim.registry import choices, nearest, nearest_file
from dagsim.sections import Foreign, Later, Registered, field_texts, kind_of
from dagsim.systems import DEFAULT_SYSTEM, SYSTEMS, system_named
from dagsim.systems.default import DefaultSystem, TopKeys
from dagsim.systems.seam import Scenario, System
from dagsim.workload.windows import parse_measure

_WRITTEN_AFTER = {"policy": "failures", "prices": "queues"}
"""Keys that every system has, and the top-level key of the default system after which each of them
is written."""


_PRESET = "workload.preset"


def _spelled_out(workload: Any) -> Any:
    """Replace the name of a workload with the preset or file that has this name. Apply any keys
    that were given with the name.
    """
    if isinstance(workload, str):
        workload = {"preset": workload}
    if isinstance(workload, dict) and isinstance(workload.get("measure"), str):
        workload = workload | {"measure": parse_measure(workload["measure"])}
    if not isinstance(workload, dict) or "preset" not in workload:
        return workload
    name, changes = str(workload["preset"]), {key: value for key, value in workload.items() if key != "preset"}
    if name in WORKLOADS:
        return plain(WORKLOADS[name].workload) | changes
    path = Path(name) if is_there(name) else shipped("workloads").get(name)
    if path is not None:
        return {"kind": "trace", "path": str(path)} | changes
    if "." in name or "/" in name:  # it looks like a file name
        raise WorkloadError(f"{name}: no such file{nearest_file(Path(name))} (or a name from dagsim list workloads)")
    raise WorkloadError(f"no workload {name!r}{choices(name, WORKLOADS)} (dagsim list workloads)")


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
        return _spelled_out(workload)

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
def _written_keys() -> tuple[str, ...]:
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
    applied = [setting if isinstance(setting, Setting) else Setting.parse(setting) for setting in settings]
    # A preset must be set first, because all other settings for the workload change it.
    applied.sort(key=lambda setting: setting.key != _PRESET)
    config = _with_settings(document, applied, own)
    for setting in applied:
        if setting.key != _PRESET and not _agrees(_part_at(config, setting.key), setting.value):
            others = [other for other in applied if other.key != setting.key]
            if _without_effect(document, others, own, config):
                raise ConfigError(f"{setting.source}: has no effect: the configuration is the same without it")
    return config


def _without_effect(document: yaml.Document, others: list[Setting], own: bool, config: Config) -> bool:
    try:
        return _with_settings(document, others, own) == config
    except ConfigError:  # the other settings may be invalid without this one
        return False


def _with_settings(document: yaml.Document, settings: Iterable[Setting], own: bool) -> Config:
    document = deepcopy(document)
    for source, key, value in settings:
        if key == _PRESET and isinstance(document.value, dict):
            match document.value.get("workload"):
                case {"preset": _}:
                    # Keep the keys that changed the old preset, so that they change the new one as
                    # well.
                    pass
                case _:
                    document.value["workload"] = {}
        document.put(key, value, source, _defaults(document, key, own))
    return _validate(document, own=own)


def _part_at(config: Any, key: str) -> Any:
    """Return the part of a configuration at ``a.b.0.c``, or ``...`` if there is no such part."""
    for word in key.split("."):
        match config:
            case Mapping():
                config = config.get(word, ...)
            case tuple() if word.isdigit() and int(word) < len(config):
                config = config[int(word)]
            case _:
                config = getattr(config, word, ...)
    return config


def _agrees(part: Any, value: Any) -> bool:
    """Return True if ``part`` of a configuration already has the ``value`` that a setting gives it."""
    match value:
        case dict():
            return all(_agrees(_part_at(part, key), below) for key, below in value.items())
        case list():
            return isinstance(part, tuple) and len(part) == len(value) and all(map(_agrees, part, value))
        case str() if not isinstance(part, str | int | float | None) and part is not ...:
            return True  # one text can stand for several values, such as "1000:-1000" or the name of a workload
    return bool(part == value)


def dump_config(config: Config) -> str:
    """Return the whole configuration as YAML. ``load_config`` reads an equal configuration from
    this text, and equal configurations give equal texts.
    """
    # Validate the configuration again. This turns a default that is written as 20 in the code into
    # 20.0, which is what a 20 in a file becomes.
    return yaml.dump(plain(Config.model_validate(plain(config), context={"own": not foreign_parts(config)})))


def foreign_parts(value: Any) -> list[str]:
    """Return the names of code outside dagsim in a configuration that was loaded with
    ``own=False``.
    """
    match value:
        case Foreign():
            return [value.kind]
        case BaseModel():
            parts: Iterable[Any] = [getattr(value, name) for name in type(value).model_fields]
        case tuple():
            parts = value
        case _ if is_dataclass(value):
            parts = [getattr(value, field.name) for field in fields(value)]
        case _:
            parts = ()
    return [name for part in parts for name in foreign_parts(part)]


def config_hash(config: Config) -> str:
    """Return the SHA-256 of ``dump_config``'s text as hex digits. It does not depend on comments
    and formatting in the file.
    """
    return sha256(dump_config(config).encode()).hexdigest()


@cache
def json_schema(*, described: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of the configuration for use in editors (``# yaml-language-server:
    $schema=...``). If ``described`` is True, the keys of dataclasses also have descriptions, which
    are read from the source code.
    """
    schema: dict[str, Any] = _any_of(Config.model_json_schema(schema_generator=_described(dataclasses=described)))
    for kind in ("Synthetic", "Sessions"):
        schema["$defs"][kind]["properties"]["preset"] = {
            "enum": list(WORKLOADS),
            "description": "The preset that the other keys change (``dagsim list workloads``).",
        }
    schema["$defs"]["Sessions"]["required"].remove("kinds")  # optional, because a preset provides them
    schema["properties"]["workload"]["anyOf"].append({"type": "string"})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _described(*, dataclasses: bool) -> Any:
    """Return a generator for JSON Schemas that describes the keys of sections with the strings
    below their fields. With ``dataclasses``, it also describes the fields of dataclasses.
    """
    from pydantic.json_schema import GenerateJsonSchema

    class Described(GenerateJsonSchema):
        def model_schema(self, schema: Any) -> dict[str, Any]:
            described = super().model_schema(schema)
            for name, text in field_texts(schema["cls"]).items():
                if name in described.get("properties", {}):
                    described["properties"][name].setdefault("description", text)
            return described

        def dataclass_schema(self, schema: Any) -> dict[str, Any]:
            described = super().dataclass_schema(schema)
            if not dataclasses:
                return described
            keys = described.get("properties", {})
            for name, text in field_texts(schema["cls"]).items():
                if name in keys:
                    keys[name].setdefault("description", text)
            if "const" in (kind := keys.get("kind", {})):
                kind.setdefault("description", f"Set this to ``{kind['const']}`` to use the settings in this section.")
            return described

    return Described


def _validate(document: yaml.Document, *, own: bool = False) -> Config:
    value = {} if document.value is None else document.value
    gpus = value.get("gpu_types") if isinstance(value, dict) else None
    types = gpus if isinstance(gpus, list | tuple) else ()
    names = [gpu.get("name") if isinstance(gpu, dict) else getattr(gpu, "name", None) for gpu in types]
    context = {"gpu_types": [name for name in names if isinstance(name, str)], "own": own}
    try:
        return Config.model_validate(value, context=context)
    except ValidationError as error:
        raise ConfigError(*explain(error, document, json_schema())) from None


def _defaults(document: yaml.Document, key: str, own: bool) -> Any:
    """Return the defaults that are needed to set a value at ``key`` if ``document`` leaves out
    parts of the path.

    In ``document``, a workload given by name is replaced with a mapping that contains the name.
    """
    defaults = plain(Config())
    if key == _PRESET:
        del defaults["workload"]  # the preset provides all keys that the document leaves out
    if key.strip().startswith("train."):
        system = document.value.get("system") if isinstance(document.value, dict) else None
        kind = system.get("kind", DEFAULT_SYSTEM) if isinstance(system, dict) else system
        defaults["train"] = plain(services.training_defaults(_system_at(kind, own)))
    if isinstance(document.value, dict):
        if isinstance(document.value.get("workload"), str):
            document.value["workload"] = {"preset": document.value["workload"]}
        match document.value.get("workload"):
            case {"preset": str(name)} if name in WORKLOADS:
                defaults["workload"] = plain(WORKLOADS[name].workload)
    return defaults


def _system_at(kind: Any, own: bool) -> type[System]:
    """Return the class named by ``system.kind``, or the default system if validation will reject
    this name.
    """
    if isinstance(kind, str) and (kind in SYSTEMS or (own and SYSTEMS.is_own(kind))):
        with suppress(DagsimError):
            system = system_named(kind)
            return system if isinstance(system, type) and issubclass(system, System) else DefaultSystem
    return DefaultSystem


def _left_out(config: Config) -> tuple[str, ...]:
    """Return the keys that ``plain`` omits: rare keys without a value and, for a system that does
    not use them, the top-level keys of the GPU cluster.
    """
    return (*_unset(config), *(() if config.whole_system.has_top_keys else _top_keys()))


def plain(value: Any) -> Any:
    """Convert models, dataclasses and tuples to values for YAML. For readability, the key ``kind``
    comes first.
    """
    match value:
        case BaseModel():
            whole = isinstance(value, Config)
            left_out = _left_out(value) if isinstance(value, Config) else _unset(value)
            keys = _written_keys() if whole else type(value).model_fields
            return {name: plain(getattr(value, name)) for name in keys if name not in left_out}
        case Mapping():
            return {str(key): plain(part) for key, part in value.items()}
        case tuple() | list():
            return [plain(part) for part in value]
        case Foreign():
            return plain(value.settings)
        case _ if is_dataclass(value):
            names = [field.name for field in fields(value) if field.init]
            own = kind_of(value)
            first = {} if own is None else {"kind": own}
            omitted = {*first, *_unset(value)}
            shown = [name for name in sorted(names, key="kind".__ne__) if name not in omitted]
            return first | {name: plain(getattr(value, name)) for name in shown}
    return value


def _unset(value: Any) -> tuple[str, ...]:
    """Return the rare keys of a part that ``plain`` omits, because they have no value."""
    return tuple([name for name in getattr(value, "rare_keys", ()) if not getattr(value, name)])


def _any_of(schema: Any) -> Any:
    """Replace ``oneOf`` with ``anyOf`` in a schema, because several branches may match if ``kind``
    is left out. Remove private fields, which no configuration can set.
    """
    match schema:
        case dict():
            public = {key: part for key, part in schema.items() if not key.startswith("_")}
            return {"anyOf" if key == "oneOf" else key: _any_of(part) for key, part in public.items()}
        case list():
            return [_any_of(part) for part in schema]
    return schema
