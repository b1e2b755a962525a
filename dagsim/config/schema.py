"""The configuration of an experiment: YAML and ``--set`` in, frozen objects out, all faults
reported at once.

Sections of lower floors (runtime, network, estimates and others) are dataclasses of those floors,
chosen by ``kind``. All defaults are here, so that every command runs without a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic import model_validator as after_all

from dagsim.config import yaml
from dagsim.config.bundled import WORKLOADS, shipped
from dagsim.config.registered import Foreign, Later, Registered, kind_of, system_name
from dagsim.config.yaml import explain
from dagsim.elastic.tasks import ElasticTasks
from dagsim.errors import ConfigError, ModelError, TraceError, WorkloadError
from dagsim.files import is_there
from dagsim.metrics.own import value_name
from dagsim.metrics.summary import glossary
from dagsim.model import GPU_TYPES, Cluster, GpuType, Node, NodePartition, QueueTree, Request, canonical_json, gpu_type
from dagsim.model.gpu import canonical
from dagsim.model.mig import MIG_TABLES
from dagsim.registry import nearest
from dagsim.systems import SYSTEMS
from dagsim.systems.cluster.choice import Engine
from dagsim.systems.cluster.models import COMMUNICATIONS, FAILURE_MODELS, RUNTIMES, SETUPS, SHARINGS
from dagsim.systems.cluster.models.failures import Preemption
from dagsim.systems.cluster.models.runtime import Estimates, Recorded, Throughput
from dagsim.systems.cluster.network import NETWORKS
from dagsim.systems.cluster.network.base import NO_CARRIER, Communication
from dagsim.systems.cluster.scenario import ClusterSystem, check_level
from dagsim.workload.distributions import TaggedUnion
from dagsim.workload.presets import DEFAULT_WORKLOAD, PRESETS
from dagsim.workload.sessions import Sessions
from dagsim.workload.synthetic import Synthetic
from dagsim.workload.windows import parse_measure

if TYPE_CHECKING:
    from dagsim.config.training import TrainSection
    from dagsim.traces.trace_file import TraceFile

_CLUSTER_ONLY = (
    "cluster",
    "gpu_types",
    "workload",
    "runtime",
    "network",
    "setup",
    "sharing",
    "communication",
    "elastic",
    "request",
    "preemption",
    "disturbances",
    "estimates",
    "queues",
    "engine",
)
"""Keys that describe the system ``cluster``. Every other system has its keys under ``system``."""

Runtime: TypeAlias = Annotated[Any, Registered(RUNTIMES, "throughput")]
Workload: TypeAlias = Annotated[
    Synthetic | Sessions | Annotated[Any, Later("dagsim.traces.trace_file:TraceFile", "trace")],
    TaggedUnion("synthetic"),
]
FailureModel: TypeAlias = Annotated[Any, Registered(FAILURE_MODELS, "node_failures")]


class Section(BaseModel):
    """A part of the configuration: frozen, and without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class NodeGroup(Section):
    """``count`` equal nodes, called ``<name>-0``, ``<name>-1`` and so on."""

    name: str
    """Prefix of the names of its nodes."""
    count: int = Field(default=1, ge=1)
    """Nodes of this group."""
    hosts: str | None = None
    """Names of the nodes in Slurm's notation, ``h[001-032]``, instead of ``<name>-0``; ``count``
    must agree or be left out.
    """
    gpu: str | None = None
    """GPU type, from ``dagsim list gpus`` or ``gpu_types``; leave it out for CPU machines."""
    gpus: int = Field(default=0, ge=0)
    """GPUs per node."""
    cpus: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """CPU cores per node."""
    memory_gb: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Memory per node in GB."""
    features: tuple[str, ...] = ()
    """Features that jobs may ask for by a constraint."""
    weight: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """Weight in Slurm: nodes of a smaller weight are used first."""
    partitions: tuple[str, ...] = ()
    """Partitions of ``queues`` that its nodes belong to. If a group names some, the ``nodes`` of
    all partitions follow from the groups.
    """
    from_s: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Seconds after the beginning at which its nodes arrive."""
    mig_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Seconds to make a part of a GPU (MIG). With it, fractions of GPUs are parts by NVIDIA's table."""
    manifest: Mapping[str, Any] = {}
    """What a scheduler reads of each node in its own form: for Kubernetes ``metadata.labels``,
    ``spec.taints``, ``spec.unschedulable``, ``status.images`` and further ``status.allocatable``.
    """

    @field_validator("mig_s")
    @classmethod
    def _partitioned(cls, mig_s: float | None, info: ValidationInfo) -> float | None:
        gpu = info.data.get("gpu")
        if mig_s is not None and (gpu is None or canonical(gpu) not in MIG_TABLES):
            raise ModelError(f"GPU type {gpu} has no MIG; allowed: {', '.join(MIG_TABLES)}, or leave mig_s out")
        return mig_s

    @field_validator("gpu")
    @classmethod
    def _known(cls, gpu: str | None, info: ValidationInfo) -> str | None:
        own = (info.context or {}).get("gpu_types")
        if gpu is None or own is None or gpu in own or canonical(gpu) in GPU_TYPES:
            return gpu
        names = [*own, *sorted(GPU_TYPES)]
        raise ModelError(f"unknown GPU type {gpu!r}{nearest(gpu, names)}; known: {', '.join(names)}")

    @model_validator(mode="before")
    @classmethod
    def _counted(cls, group: Any) -> Any:
        if isinstance(group, dict) and isinstance(group.get("hosts"), str) and "count" not in group:
            return group | {"count": max(1, len(_hosts(group["hosts"])))}
        return group

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes."""
        if self.hosts is not None:
            return _hosts(self.hosts)
        return tuple([f"{self.name}-{index}" for index in range(self.count)])

    @after_all(mode="after")
    def _whole(self) -> NodeGroup:
        if self.hosts is not None and len(self.nodes) != self.count:
            raise ModelError(f"hosts: {self.hosts[:80]!r} names {len(self.nodes)} nodes, and count is {self.count}")
        if (self.gpu is None) != (self.gpus == 0):
            raise ModelError("gpu (a type) and gpus (how many per node) belong together: give both or neither")
        for key, most in _MOST.items():
            if getattr(self, key) > most:
                raise ModelError(f"{key} must be at most {most:,}, got {getattr(self, key):,}")
        return self


_MOST = {"count": 100_000, "gpus": 1_024, "cpus": 1_000_000, "memory_gb": 10_000_000}
"""Upper limits for a group of nodes, to catch typing errors."""


class ClusterSection(Section):
    """The cluster: groups of equal nodes, or the machines of a trace."""

    name: str = "cluster"
    from_trace: bool = False
    """Use the machines that the trace lists, including when they come and leave; ``groups`` stay
    empty.
    """
    groups: tuple[NodeGroup, ...] = (
        NodeGroup(name="a100-40", gpu="A100-40", gpus=8, cpus=96, memory_gb=1024),
        NodeGroup(name="v100-16", gpu="V100-16", gpus=8, cpus=96, memory_gb=1024),
        NodeGroup(name="t4", count=2, gpu="T4", gpus=8, cpus=96, memory_gb=1024),
    )
    accept: Mapping[str, Mapping[str, Annotated[float, Field(gt=0, allow_inf_nan=False)] | None]] = {}
    """GPU types that jobs of a trace may use beside those that they name, with their relative speeds:
    ``{A100-40: {H200: 1.8}}``. ``null`` leaves the speed to the runtime model.
    """

    @model_validator(mode="before")
    @classmethod
    def _without_groups(cls, section: Any) -> Any:
        if isinstance(section, dict) and section.get("from_trace") is True:
            return section | {"groups": ()}
        return section

    @after_all(mode="after")
    def _distinct(self) -> ClusterSection:
        if not (self.groups or self.from_trace):
            raise ModelError("groups: a cluster needs at least one")
        names = [name for group in self.groups for name in group.nodes]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ModelError(f"groups: two nodes would be called {twice!r}; give each group a name of its own")
        return self


def _hosts(text: str) -> tuple[str, ...]:
    from dagsim.traces.sites import hosts

    try:
        return hosts(text)
    except ValueError as error:
        raise ModelError(f"hosts: {error}") from None


def _spelled_out(workload: Any) -> Any:
    """Spell out a workload given by name: the preset or file, with the keys beside it changed."""
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
    names = f"{nearest(name, WORKLOADS)}; allowed: {', '.join(WORKLOADS)}"
    raise WorkloadError(f"no workload {name!r}{names}, or a file (dagsim list workloads)")


class Config(Section):
    """An experiment: a cluster, a workload, the models of everything that takes time, a policy, and
    seeds.

    ``system`` chooses the kind of world. The keys beside it describe the GPU cluster; any other
    system has its keys inside ``system``.
    """

    system: Annotated[Any, Registered(SYSTEMS, "cluster")] = ClusterSystem()
    """The simulated world: ``cluster`` (the default) or another of ``dagsim list systems``, with its settings."""
    cluster: ClusterSection = ClusterSection()
    gpu_types: tuple[GpuType, ...] = ()
    """GPU types for use in ``cluster``, in addition to those of ``dagsim list gpus``."""
    workload: Annotated[Workload, BeforeValidator(_spelled_out)] = PRESETS[DEFAULT_WORKLOAD].workload
    """The jobs: ``synthetic`` (all of it, or changes to a ``preset``), a ``trace``, or the name of
    either.
    """
    runtime: Runtime = Field(default_factory=lambda fields: _runtime_of(fields["workload"]))
    """How work becomes seconds on each GPU type. Default: measured throughputs; for a trace, the
    recorded seconds.
    """
    network: Annotated[Any, Registered(NETWORKS, "uniform")] | None = None
    """How outputs reach the nodes of the next tasks. Default: instantly."""
    setup: Annotated[Any, Registered(SETUPS, "moving_delay")] | None = None
    """Time that a run occupies its GPUs before it computes. Default: none."""
    sharing: Annotated[Any, Registered(SHARINGS, "pairs")] | None = None
    """The rates of two tasks on the same GPUs, for policies that let tasks share. Default: they do not."""
    communication: Annotated[Any, Registered(COMMUNICATIONS, "models")] | None = None
    """What gangs send in each step over a shared network (docs/networks.md). Default: nothing."""
    elastic: ElasticTasks | None = None
    """Ranges of GPUs and goodput models for training tasks (docs/elastic.md). Default: all tasks are rigid."""
    request: Request | None = None
    """Terms of all jobs that state none themselves: ``{level: rack}`` keeps gangs within racks
    (docs/networks.md). Default: none.
    """
    preemption: Preemption = Preemption()
    """What a preempted run keeps, and what it costs to resume it."""
    admission: bool = False
    """Each job waits until the policy admits or rejects it. Policies that do not decide that admit all."""
    disturbances: tuple[FailureModel, ...] = ()
    """Failures and maintenance: what takes nodes down and brings them back."""
    policy: str = "fifo"
    """The scheduler: ``name``, ``name[param=value]`` or ``module:attr`` (``dagsim list policies``). A
    system without ``fifo`` uses its first policy by default.
    """
    estimates: Estimates = Estimates()
    """What the policy may know about durations."""
    queues: QueueTree | None = None
    """Accounts, partitions and limits, for schedulers that use them (docs/reference/schedulers.md). Default:
    none.
    """
    prices: Mapping[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = {}
    """Price of a GPU hour by type, for ``dagsim whatif`` and ``plan``. Default: the list price."""
    engine: Engine = "auto"
    """The engine: ``simpy``, ``compiled`` (same bytes, much faster; docs/reference/engines.md), or ``auto``,
    which picks one per run.
    """
    metrics: tuple[str, ...] = ()
    """Metrics of your own, computed for each run beside those of ``dagsim list metrics``: ``module:attr`` or
    names of entry points (docs/own-system.md).
    """
    train: Annotated[Any, Later("dagsim.config.training:TrainSection")] | None = None
    """How ``dagsim train`` trains an agent. Default: the defaults of the system."""
    seed: int = Field(default=0, ge=0)
    """Root of all randomness."""
    seeds: int = Field(default=20, ge=1)
    """Number of runs, each on a workload of its own."""
    precision: float | None = Field(default=None, gt=0, lt=1)
    """Add seeds until the intervals of the ratios extend at most this fraction to either side.
    Default: run ``seeds``.
    """

    @field_validator("train", mode="before")
    @classmethod
    def _trained_on_the_system(cls, train: Any, info: ValidationInfo) -> Any:
        system = info.data.get("system")
        if train is None or system is None:
            return train
        from dagsim.config.training import for_system

        return for_system(train, system_name(system), getattr(system, "codecs", None))

    @field_validator("queues", mode="after")
    @classmethod
    def _of_nodes_there_are(cls, queues: QueueTree | None, info: ValidationInfo) -> QueueTree | None:
        section = info.data.get("cluster")
        return queues if queues is None or section is None else queues_on(queues, section)

    @field_validator("metrics")
    @classmethod
    def _of_different_names(cls, metrics: tuple[str, ...]) -> tuple[str, ...]:
        terms = {term.name for term in glossary()}
        for place, name in enumerate(names := [value_name(spec) for spec in metrics]):
            if name in names[:place] or name in terms:
                raise ConfigError(f"metrics: {name!r} is the name of another metric; rename the class")
        return metrics

    @field_validator("seeds")
    @classmethod
    def _countable(cls, seeds: int) -> int:
        if seeds > 1_000_000:
            raise ConfigError(f"seeds must be at most 1,000,000, got {seeds:,}")
        return seeds

    @after_all(mode="after")
    def _of_one_system(self) -> Config:
        if self.system_kind == "cluster":
            self._check_nodes()
            return self
        for key in _CLUSTER_ONLY:
            if key in self.model_fields_set:
                raise ConfigError(
                    f"{key} describes the system 'cluster', but the system is {self.system_kind!r}; its settings are "
                    "keys of system"
                )
        policies = getattr(self.system, "policies", None)
        if policies is not None and "policy" not in self.model_fields_set and self.policy not in policies:
            self.__dict__["policy"] = policies.names()[0]  # the section is frozen
        return self

    def _check_nodes(self) -> None:
        """Check the network, terms of jobs, elastic tasks and failures against the nodes, if these
        are known yet.

        Raises:
            ModelError: They do not fit.
        """
        kind = getattr(self.network, "kind", "uniform")
        sends = "runtime" if self.communication is None else "communication"
        if kind == "uniform" and isinstance(getattr(self, sends), Communication):
            raise ModelError(NO_CARRIER).below(sends)
        if self.cluster.from_trace or not ({"cluster"} & self.model_fields_set or self.trace_file is None):
            return
        names = [node for group in self.cluster.groups for node in group.nodes]
        if self.network is not None and kind == "shared":
            try:
                self.network.routing(names)
            except ModelError as error:
                raise error.below("network") from None
        if self.request is not None:
            try:
                check_level(self.request, self.network, names)
            except ModelError as error:
                raise error.below("request") from None
        if self.elastic is not None:
            try:
                self.elastic.check(self.build_cluster())
            except ModelError as error:
                raise error.below("elastic") from None
        for place, model in enumerate(self.disturbances):
            try:
                if getattr(model, "nodes", None):
                    model.start(len(names), 0)
            except ModelError as error:
                raise error.below("disturbances", place) from None

    @property
    def system_kind(self) -> str:
        """The name of the system, as in ``system.kind``."""
        return system_name(self.system)

    def changed(self, source: str, parts: Mapping[str, Any]) -> Config:
        """This configuration with other values of top keys. It is checked, but not read again.

        Raises:
            ConfigError: A value is wrong, or does not fit the rest; the message begins with ``source``.
        """
        return _validate(
            yaml.Document({name: getattr(self, name) for name in self.model_fields_set} | dict(parts), source)
        )

    def training(self) -> TrainSection:
        """The section ``train``, or the defaults of the system."""
        from dagsim.config.training import section_for

        section: TrainSection = self.train or section_for(self.system_kind)
        return section

    @property
    def trace_file(self) -> TraceFile | None:
        """The workload of the GPU cluster if it is a trace, else None."""
        workload: Any = self.workload
        return workload if self.system_kind == "cluster" and workload.kind == "trace" else None

    def trace(self) -> TraceFile:
        """The workload, which must be a trace.

        Raises:
            ConfigError: The workload is not a trace.
        """
        if self.trace_file is None:
            raise ConfigError("the workload is not a trace")
        return self.trace_file

    def trace_path(self) -> Path | None:
        """Path of the trace that the jobs come from, or None."""
        if self.system_kind == "cluster":
            return None if self.trace_file is None else self.trace_file.source.path
        path = getattr(self.system, "trace", None)
        return None if path is None else Path(path)

    def late_nodes(self) -> tuple[tuple[int, float, float], ...]:
        """Windows ``(node, 0, arrival in seconds)`` of the nodes that are not there from the beginning."""
        arrivals_s = [group.from_s for group in self.cluster.groups for _ in range(group.count)]
        return tuple([(node, 0.0, from_s) for node, from_s in enumerate(arrivals_s) if from_s])

    def build_cluster(self) -> Cluster:
        """Build the cluster that the section describes.

        Raises:
            ConfigError: It asks for the machines of a trace, but there is no trace or it lists
                none.
            TraceError: The machines cannot be read.
        """
        if self.cluster.from_trace:
            return self.trace().machines()
        if self.system_kind != "cluster":
            raise ConfigError(f"the system {self.system_kind!r} has no cluster section")
        own = {gpu.name: gpu for gpu in self.gpu_types}
        return Cluster(
            tuple(
                Node(
                    name,
                    gpu,
                    group.gpus,
                    group.cpus,
                    group.memory_gb,
                    group.features,
                    group.weight,
                    group.mig_s,
                    manifest,
                )
                for group in self.cluster.groups
                for manifest in [canonical_json(group.manifest) if group.manifest else ""]
                for gpu in [None if group.gpu is None else own.get(group.gpu) or gpu_type(group.gpu)]
                for name in group.nodes
            ),
            self.cluster.name,
        )


def _spelled(nodes: tuple[str, ...], section: ClusterSection) -> tuple[str, ...]:
    """Nodes spelled out by name. A group whose nodes have names of their own is replaced by them."""
    named = {group.name: group.nodes for group in section.groups if group.hosts is not None}
    names = [name for text in nodes for name in _hosts(text)]
    return tuple(dict.fromkeys([node for name in names for node in named.get(name, (name,))]))


def queues_on(queues: QueueTree, section: ClusterSection) -> QueueTree:
    """Return the queues with the nodes of a cluster in their partitions, reservations and outages.

    Raises:
        ModelError: A partition names a node that the cluster lacks, or has none.
    """
    if section.from_trace:
        return queues
    reserved = tuple([replace(one, nodes=_spelled(one.nodes, section)) for one in queues.reservations])
    out = tuple([replace(one, nodes=_spelled(one.nodes, section)) for one in queues.outages])
    queues = replace(queues, reservations=reserved, outages=out)
    if any(group.partitions for group in section.groups):
        return replace(queues, partitions=tuple([_of_groups(part, section) for part in queues.partitions]))
    names = {name for group in section.groups for name in (group.name, *group.nodes)}
    names |= {name.partition(":")[0] for name in names}  # a node of several GPU types is one of each here
    for part in queues.partitions:
        for name in [host for text in part.nodes for host in _hosts(text)]:
            if name not in names:
                raise ModelError(
                    f"partition {part.name!r}: there is no node and no group {name!r}{nearest(name, names)}; "
                    f"groups: {', '.join(group.name for group in section.groups)}"
                )
    parts = [replace(part, nodes=_spelled(part.nodes, section)) for part in queues.partitions]
    return replace(queues, partitions=tuple(parts))


def _of_groups(part: NodePartition, section: ClusterSection) -> NodePartition:
    """The partition with the nodes of all groups that name it.

    Raises:
        ModelError: There are none.
    """
    nodes = [node for group in section.groups if part.name in group.partitions for node in group.nodes]
    if not nodes:
        raise ModelError(f"partition {part.name!r}: the cluster has no node of it")
    return replace(part, nodes=tuple(nodes))


def _runtime_of(workload: Synthetic | Sessions | TraceFile) -> Runtime:
    """Default runtime model: measured throughputs; for a trace, the seconds it recorded or the
    model saved with it.
    """
    if isinstance(workload, Synthetic):
        return Throughput()
    if isinstance(workload, Sessions):
        return Recorded()
    saved = workload.saved_with("runtime")
    if saved is None:
        return Recorded(workload.options.reference_gpu)
    try:
        runtime: Any = TypeAdapter(Runtime).validate_python(saved, context={"own": False})
    except ValidationError as error:
        raise TraceError(f"{workload.path}:1: the runtime that was saved with it: {error.errors()[0]['msg']}") from None
    if isinstance(runtime, Foreign):
        raise TraceError(
            f"{workload.path}:1: the runtime that was saved with it is code outside dagsim, {runtime.kind!r}; a data "
            f"file cannot have it imported. If you know it, name it yourself: --set runtime.kind={runtime.kind}"
        )
    return runtime


class Setting(NamedTuple):
    """One key set from the command line. ``source`` is the option as typed, ``key`` is as in
    ``--set``.
    """

    source: str
    key: str
    value: Any


def load_config(path: Path | None = None, settings: Iterable[str | Setting] = (), *, own: bool = True) -> Config:
    """Load the configuration in the YAML file ``path`` (or the defaults) and apply ``settings``
    (``a.b=value``).

    With ``own=False`` the file is only read: a part whose ``kind`` is code outside dagsim stays a
    ``Foreign``.

    Raises:
        ConfigError: Something is wrong; the message has one line per fault.
        CodeNotAllowed: The file names code that this process may not import.
    """
    return config_in(yaml.Document({}, "defaults") if path is None else yaml.read_yaml(path), settings, own=own)


def config_in(document: yaml.Document, settings: Iterable[str | Setting] = (), *, own: bool = True) -> Config:
    """Build the configuration that ``document`` holds; see ``load_config``."""
    for setting in settings:
        defaults = _defaults(document, setting if isinstance(setting, str) else setting.key)
        if isinstance(setting, str):
            document.override(setting, defaults)
        else:
            document.put(setting.key, setting.value, setting.source, defaults)
    return _validate(document, own=own)


def dump_config(config: Config) -> str:
    """Write the whole configuration as YAML. ``load_config`` reads it back equal, and equal
    configurations give equal text.
    """
    # Read again, so that a default that the code writes as 20 is 20.0 like one that was read from a file.
    return yaml.dump(plain(Config.model_validate(plain(config), context={"own": not foreign_parts(config)})))


def foreign_parts(value: Any) -> list[str]:
    """Names of code outside dagsim in a configuration that was read with ``own=False``."""
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
    """SHA-256 of ``dump_config`` as hex digits, so that comments and spelling do not matter."""
    return sha256(dump_config(config).encode()).hexdigest()


@cache
def json_schema() -> dict[str, Any]:
    """JSON Schema of the configuration, for editors (``# yaml-language-server: $schema=...``)."""
    schema: dict[str, Any] = _any_of(Config.model_json_schema())
    for kind in ("Synthetic", "Sessions"):
        schema["$defs"][kind]["properties"]["preset"] = {"enum": list(WORKLOADS)}
    schema["$defs"]["Sessions"]["required"].remove("kinds")  # a preset has them
    schema["properties"]["workload"]["anyOf"].append({"type": "string"})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _validate(document: yaml.Document, *, own: bool = False) -> Config:
    value = {} if document.value is None else document.value
    gpus = value.get("gpu_types") if isinstance(value, dict) else None
    types = gpus if isinstance(gpus, list | tuple) else ()
    names = [gpu.get("name") if isinstance(gpu, dict) else getattr(gpu, "name", None) for gpu in types]
    context = {"gpu_types": [name for name in names if isinstance(name, str)], "own": own}
    try:
        return Config.model_validate(value, context=context)
    except ValidationError as error:
        raise ConfigError(explain(error, document, json_schema())) from None


def _defaults(document: yaml.Document, key: str) -> Any:
    """Defaults of the parts that ``document`` leaves out, where ``key`` will be set.

    A workload given by name becomes a mapping with that name.
    """
    defaults = plain(Config())
    if key.strip().startswith("train"):
        from dagsim.config.training import section_for

        system = document.value.get("system") if isinstance(document.value, dict) else None
        kind = system.get("kind") if isinstance(system, dict) else system
        defaults["train"] = plain(section_for(kind if isinstance(kind, str) else "cluster"))
    if isinstance(document.value, dict):
        if isinstance(document.value.get("workload"), str):
            document.value["workload"] = {"preset": document.value["workload"]}
        match document.value.get("workload"):
            case {"preset": str(name)} if name in WORKLOADS:
                defaults["workload"] = plain(WORKLOADS[name].workload)
    return defaults


def _left_out(config: Config) -> tuple[str, ...]:
    """Keys that ``plain`` omits: those of other systems, and rare ones while they have no value."""
    rare = [name for name in ("prices", "communication", "metrics", "request") if not getattr(config, name)]
    return (*rare, *(_CLUSTER_ONLY if config.system_kind != "cluster" else ()))


def plain(value: Any) -> Any:
    """Convert models, dataclasses and tuples to YAML values, with ``kind`` first for readability."""
    match value:
        case BaseModel():
            left_out = _left_out(value) if isinstance(value, Config) else _unset(value)
            return {name: plain(getattr(value, name)) for name in type(value).model_fields if name not in left_out}
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
            shown = [name for name in sorted(names, key="kind".__ne__) if name not in first]
            return first | {name: plain(getattr(value, name)) for name in shown}
    return value


def _unset(value: BaseModel) -> tuple[str, ...]:
    """Rare keys of a cluster that ``plain`` omits while they have their defaults."""
    return tuple([name for name in ("partitions", "from_s", "accept", "manifest") if not getattr(value, name, True)])


def _any_of(schema: Any) -> Any:
    """Replace ``oneOf`` by ``anyOf`` in a schema: without ``kind``, several branches can match."""
    match schema:
        case dict():
            return {"anyOf" if key == "oneOf" else key: _any_of(part) for key, part in schema.items()}
        case list():
            return [_any_of(part) for part in schema]
    return schema
