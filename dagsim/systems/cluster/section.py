"""The keys of a configuration that describe the GPU cluster. They are at the top level of the
configuration, because this is the default system.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic import model_validator as after_all

from dagsim.errors import ConfigError, ModelError, TraceError
from dagsim.metrics.standings import Sample
from dagsim.model import (
    GPU_TYPES,
    Cluster,
    GpuType,
    Node,
    NodePartition,
    OnDemand,
    QueueTree,
    Request,
    canonical_json,
    gpu_type,
)
from dagsim.model.gpu import canonical
from dagsim.model.mig import MIG_TABLES
from dagsim.sections import Foreign, Later, Registered, Section
from dagsim.spelling import choices, nearest
from dagsim.systems.cluster import services
from dagsim.systems.cluster.models import COMMUNICATIONS, FAILURE_MODELS, RUNTIMES, SETUPS, SHARINGS, Models
from dagsim.systems.cluster.models.estimates import Estimates
from dagsim.systems.cluster.models.failures import Outages
from dagsim.systems.cluster.models.kept_work import Preemption
from dagsim.systems.cluster.models.runtime import Recorded, Throughput
from dagsim.systems.cluster.network import NETWORKS
from dagsim.systems.cluster.network.base import NO_CARRIER, Communication, HasRoutes
from dagsim.systems.cluster.scenario import ClusterScenario, GpuCluster, check_level
from dagsim.systems.seam import Engine, EngineUse
from dagsim.text import count_of
from dagsim.workload.presets import DEFAULT_WORKLOAD, PRESETS
from dagsim.workload.sessions import Sessions
from dagsim.workload.synthetic import Synthetic
from dagsim.workload.tagged_union import TaggedUnion

if TYPE_CHECKING:
    from dagsim.traces.trace_file import TraceFile

AnyRuntime: TypeAlias = Annotated[Any, Registered(RUNTIMES, "throughput")]
AnyWorkload: TypeAlias = Annotated[
    Synthetic | Sessions | Annotated[Any, Later("dagsim.traces.trace_file:TraceFile", "trace")],
    TaggedUnion("synthetic"),
]
AnyFailureModel: TypeAlias = Annotated[Any, Registered(FAILURE_MODELS, "node_failures")]


class NodeGroup(Section):
    """A group of ``count`` identical nodes, named ``<name>-0``, ``<name>-1`` and so on."""

    name: str
    """Prefix of the names of the group's nodes."""
    count: int = Field(default=1, ge=1)
    """Number of nodes in this group."""
    hosts: str | None = None
    """Names of the nodes in Slurm's notation, such as ``h[001-032]``. They replace the names
    ``<name>-0`` and so on. If ``count`` is also given, it must agree with the number of names.
    """
    gpu: str | None = None
    """GPU type, from ``dagsim list gpus`` or ``gpu_types``. Leave it out for machines without GPUs.
    """
    gpus: int = Field(default=0, ge=0)
    """GPUs per node."""
    cpus: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """CPU cores per node."""
    memory_gb: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Memory per node in GB."""
    features: tuple[str, ...] = ()
    """Features that jobs may require in a constraint."""
    weight: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """Weight in Slurm: nodes with a smaller weight are used first."""
    partitions: tuple[str, ...] = ()
    """Partitions in ``queues`` to which the group's nodes belong. If any group has this key, the
    ``nodes`` of all partitions are taken from the groups.
    """
    from_s: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Time at which the group's nodes are added to the cluster, in seconds after the beginning of
    the simulation.
    """
    mig_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Seconds that it takes to create a GPU partition (MIG). If this is set, tasks that request a
    fraction of a GPU get a partition from NVIDIA's table.
    """
    on_demand: OnDemand | None = None
    """When the group's nodes are powered up and down (docs/costs.md). Default: they are always
    up.
    """
    rare_keys: ClassVar[tuple[str, ...]] = ("partitions", "from_s", "on_demand", "manifest")
    manifest: Mapping[str, Any] = {}
    """Additional information about each node, in the form that the scheduler uses. For Kubernetes,
    these are ``metadata.labels``, ``spec.taints``, ``spec.unschedulable``, ``status.images`` and
    additional ``status.allocatable``.
    """

    @field_validator("mig_s")
    @classmethod
    def _partitioned(cls, mig_s: float | None, info: ValidationInfo) -> float | None:
        gpu = info.data.get("gpu")
        if mig_s is not None and (gpu is None or canonical(gpu) not in MIG_TABLES):
            raise ModelError(
                f"GPU type {gpu} does not support MIG; allowed: {', '.join(MIG_TABLES)}, or leave out mig_s"
            )
        return mig_s

    @field_validator("gpu")
    @classmethod
    def _known(cls, gpu: str | None, info: ValidationInfo) -> str | None:
        own = (info.context or {}).get("gpu_types")
        if gpu is None or own is None or gpu in own or canonical(gpu) in GPU_TYPES:
            return gpu
        names = [*own, *sorted(GPU_TYPES)]
        raise ModelError(
            f"unknown GPU type {gpu!r}{choices(gpu, names)} (dagsim list gpus); define others in gpu_types"
        )

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
            raise ModelError(f"hosts: {self.hosts[:80]!r} lists {len(self.nodes)} nodes, but count is {self.count}")
        if self.gpu is None and self.gpus:
            raise ModelError(f"gpus is {self.gpus}, but no type is named; add gpu (dagsim list gpus)")
        if self.gpu is not None and not self.gpus:
            raise ModelError("gpus must be 1 or more if gpu names a type")
        for key, most in _MOST.items():
            if getattr(self, key) > most:
                raise ModelError(f"{key} must be at most {most:,}, got {getattr(self, key):,}")
        return self


_MOST = {"count": 100_000, "gpus": 1_024, "cpus": 1_000_000, "memory_gb": 10_000_000}
"""Upper limits for a group of nodes, to catch typing errors."""


class ClusterSection(Section):
    """The cluster. Its machines are either groups of identical nodes or the machines in a trace."""

    name: str = "cluster"
    """Name of the cluster in tables."""
    from_trace: bool = False
    """Use the machines that the trace lists, including the times at which they are added and
    removed. Leave ``groups`` empty if you set this.
    """
    rare_keys: ClassVar[tuple[str, ...]] = ("accept",)
    groups: tuple[NodeGroup, ...] = (
        NodeGroup(name="a100-40", gpu="A100-40", gpus=8, cpus=96, memory_gb=1024),
        NodeGroup(name="v100-16", gpu="V100-16", gpus=8, cpus=96, memory_gb=1024),
        NodeGroup(name="t4", count=2, gpu="T4", gpus=8, cpus=96, memory_gb=1024),
    )
    """The groups of nodes."""
    accept: Mapping[str, Mapping[str, Annotated[float, Field(gt=0, allow_inf_nan=False)] | None]] = {}
    """Additional GPU types that jobs from a trace may use, with their relative speeds. For example,
    ``{A100-40: {H200: 1.8}}`` lets jobs that name an A100-40 run on an H200, 1.8 times as fast.
    With ``null``, the runtime model determines the speed.
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
            raise ModelError("groups: a cluster needs at least one group")
        names = [name for group in self.groups for name in group.nodes]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ModelError(f"groups: two nodes would have the name {twice!r}; give each group a different name")
        return self


def _hosts(text: str) -> tuple[str, ...]:
    from dagsim.traces.sites import hosts

    try:
        return hosts(text)
    except ValueError as error:
        raise ModelError(f"hosts: {error}") from None


class ClusterKeys(Section):
    """A cluster, its jobs, and the models of everything that takes time."""

    rare_keys: ClassVar[tuple[str, ...]] = ("communication", "request")
    shared_keys: ClassVar[tuple[str, ...]] = ("admission",)
    """Keys that configurations of other systems also have."""
    cluster: ClusterSection = ClusterSection()
    """The machines, as groups of identical nodes."""
    gpu_types: tuple[GpuType, ...] = ()
    """Your own GPU types for ``cluster``, in addition to the ones that ``dagsim list gpus`` shows.
    """
    workload: AnyWorkload = PRESETS[DEFAULT_WORKLOAD].workload
    """The jobs: a ``synthetic`` workload (described in full, or as changes to a ``preset``), a
    ``trace``, or the name of a workload.
    """
    runtime: AnyRuntime = Field(default_factory=lambda fields: _runtime_of(fields["workload"]))
    """How the work of a task is converted to its run time on each GPU type. By default, synthetic
    workloads use measured throughputs, and traces use the recorded seconds.
    """
    network: Annotated[Any, Registered(NETWORKS, "uniform")] | None = None
    """How the output of a task is sent to the nodes on which the next tasks run. By default, it
    arrives instantly.
    """
    setup: Annotated[Any, Registered(SETUPS, "moving_delay")] | None = None
    """Start-up time, during which a run occupies its GPUs but does not compute yet. Default: none.
    """
    sharing: Annotated[Any, Registered(SHARINGS, "pairs")] | None = None
    """How fast two tasks run when they share GPUs, for policies that let tasks share GPUs. Default:
    tasks do not share GPUs.
    """
    communication: Annotated[Any, Registered(COMMUNICATIONS, "models")] | None = None
    """The data that gangs send over a shared network in each step (docs/networks.md). Default:
    nothing."""
    elastic: Annotated[Any, Later("elastic")] | None = None
    """Ranges of GPUs and goodput models for training tasks (docs/elastic.md). Default: all tasks are rigid."""
    request: Request | None = None
    """Requests for all jobs that state none themselves. For example, ``{level: rack}`` keeps
    gangs within racks (docs/networks.md). Default: none.
    """
    preemption: Preemption = Preemption()
    """How much of its work a preempted run keeps, and the cost of resuming it."""
    admission: bool = False
    """If true, each arriving job waits until the policy admits or rejects it. Policies without
    admission control admit all jobs.
    """
    failures: tuple[AnyFailureModel, ...] = ()
    """Models of failures and maintenance, which take nodes out of service and bring them back."""
    estimates: Estimates = Estimates()
    """What policies know about the durations of tasks."""
    queues: QueueTree | None = None
    """Accounts, partitions and limits, for schedulers that use them (docs/reference/schedulers.md). Default:
    none.
    """
    engine: Engine = "auto"
    """The engine: ``simpy``, ``compiled`` (the same results byte for byte, but much faster; see
    docs/reference/engines.md), or ``auto``, which chooses one of them for each run.
    """

    @field_validator("queues", mode="after")
    @classmethod
    def _of_nodes_there_are(cls, queues: QueueTree | None, info: ValidationInfo) -> QueueTree | None:
        section = info.data.get("cluster")
        return queues if queues is None or section is None else queues_on(queues, section)

    def check_nodes(self) -> None:
        """If the nodes are already known, check that the network, the terms of jobs, elastic tasks
        and failures match them.

        Raises:
            ModelError: One of these does not match the nodes.
        """
        sends = "runtime" if self.communication is None else "communication"
        if getattr(self.network, "kind", "uniform") == "uniform" and isinstance(getattr(self, sends), Communication):
            raise ModelError(NO_CARRIER).below(sends)
        if self.cluster.from_trace or not ({"cluster"} & self.model_fields_set or self.trace_file is None):
            return
        names = [node for group in self.cluster.groups for node in group.nodes]
        if isinstance(self.network, HasRoutes):
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
        for place, model in enumerate(self.failures):
            try:
                if getattr(model, "nodes", None):
                    model.start(len(names), 0)
            except ModelError as error:
                raise error.below("failures", place) from None

    @property
    def trace_file(self) -> TraceFile | None:
        """The workload if it is a trace, otherwise None."""
        workload: Any = self.workload
        return workload if workload.kind == "trace" else None

    def trace(self) -> TraceFile:
        """Return the workload, which must be a trace.

        Raises:
            ConfigError: The workload is not a trace.
        """
        if self.trace_file is None:
            raise ConfigError("the workload is not a trace")
        return self.trace_file

    def late_nodes(self) -> tuple[tuple[int, float, float], ...]:
        """Return a window ``(node, 0, arrival in seconds)`` of absence for each node that is not
        present from the beginning.
        """
        arrivals_s = [group.from_s for group in self.cluster.groups for _ in range(group.count)]
        return tuple([(node, 0.0, from_s) for node, from_s in enumerate(arrivals_s) if from_s])

    def build_cluster(self) -> Cluster:
        """Build the cluster that the section describes.

        Raises:
            ConfigError: The section requests the machines in a trace, but there is no trace, or the
                trace lists no machines.
            TraceError: The machines cannot be read.
        """
        if self.cluster.from_trace:
            return self.trace().machines()
        own = {gpu.name: gpu for gpu in self.gpu_types}
        up = Counter[OnDemand]()
        """The nodes that are up at the beginning, by rule."""
        for group in self.cluster.groups:
            if group.on_demand is not None and group.on_demand.up:
                up[replace(group.on_demand, up=False)] += len(group.nodes)

        def powered(rule: OnDemand | None) -> OnDemand | None:
            """Return the on-demand rule for the next node of the group. The node starts powered up
            if fewer nodes with this rule than its minimum are up so far.
            """
            if rule is None or rule.up or up[rule] >= rule.min_nodes:
                return rule
            up[rule] += 1
            return replace(rule, up=True)

        return Cluster(
            tuple(
                Node(
                    name=name,
                    gpu=gpu,
                    gpus=group.gpus,
                    cpus=group.cpus,
                    memory_gb=group.memory_gb,
                    features=group.features,
                    weight=group.weight,
                    mig_s=group.mig_s,
                    manifest=manifest,
                    on_demand=powered(group.on_demand),
                )
                for group in self.cluster.groups
                for manifest in [canonical_json(group.manifest) if group.manifest else ""]
                for gpu in [None if group.gpu is None else own.get(group.gpu) or gpu_type(group.gpu)]
                for name in group.nodes
            ),
            self.cluster.name,
        )


@dataclass(frozen=True, slots=True)
class ClusterSystem(GpuCluster):
    """The GPU cluster. This system has no keys of its own here, because its keys (``cluster``,
    ``workload`` and others) are at the top level of the configuration.
    """

    has_top_keys: ClassVar[bool] = True
    kind: Literal["cluster"] = "cluster"

    __pydantic_config__ = {"extra": "forbid"}

    def of(self, keys: ClusterKeys) -> DescribedCluster:
        """Return the GPU cluster that the keys describe."""
        return DescribedCluster(keys)


@dataclass(frozen=True, slots=True)
class DescribedCluster(GpuCluster):
    """A GPU cluster described by its keys."""

    has_top_keys: ClassVar[bool] = True
    keys: ClusterKeys

    def scenario(self) -> ClusterScenario:
        """Build the scenario.

        Raises:
            InputError: The cluster cannot be built.
        """
        keys, late = self.keys, self.keys.late_nodes()
        models = {part.name: getattr(keys, part.name) for part in fields(Models)}
        if late:
            models["failures"] = (*keys.failures, Outages(late))
        return ClusterScenario(
            keys.build_cluster(),
            keys.workload,
            **models,
            elastic=keys.elastic,
            outages=keys.cluster.from_trace,
            engine=keys.engine,
            accept=keys.cluster.accept,
            request=keys.request,
        )

    def label(self, named: Mapping[str, Any]) -> str:
        """Return a short description of the workload, such as ``heterogeneous, load 0.7`` or
        ``jobs.csv, windows of 200 jobs``.
        """
        workload = self.keys.workload
        if (trace := self.keys.trace_file) is not None:
            name = Path(trace.path).name
            return name if trace.window is None else f"{name}, windows of {count_of(trace.window, 'job')}"
        # The other presets are fits of sessions, which are slow to read and cannot resemble a
        # synthetic workload.
        presets = PRESETS if isinstance(workload, Synthetic) else named
        like = {name: preset.workload for name, preset in presets.items()}
        changes = {name: _changes(other, workload) for name, other in like.items() if type(other) is type(workload)}
        nearest = min(changes, key=lambda name: len(changes[name]))
        plain = {key: value for key, value in changes[nearest].items() if isinstance(value, int | float | str)}
        if len(plain) < len(changes[nearest]):
            return f"{workload.kind}, {count_of(workload.count, 'job')}, load {workload.load:g}"
        return ", ".join([nearest, *(f"{key} {_short(value)}" for key, value in plain.items())])

    @property
    def sample(self) -> Sample:
        """The kind of sample: a generated workload, a whole trace, or a window of a trace."""
        trace = self.keys.trace_file
        if trace is None:
            return Sample.SEED
        return Sample.TRACE if trace.window is None else Sample.WINDOW

    @property
    def trace_path(self) -> Path | None:
        """The path of the trace that contains the jobs, or None if they do not come from a trace."""
        trace = self.keys.trace_file
        return None if trace is None else trace.source.path

    def read_from(self, path: str) -> Mapping[str, Any]:
        """Return the keys of a configuration that change the path from which the trace is read."""
        file = self.keys.trace()
        return {"workload": replace(file, path=path + file.path.removeprefix(str(file.source.path)))}

    @property
    def measured(self) -> tuple[int, int | None] | None:
        """The range of jobs that metrics count, in order of arrival, or None if all jobs count."""
        measured: tuple[int, int | None] | None = self.keys.workload.measure
        return measured

    def faster_engine(self, policy: str, engine: EngineUse, wall_s: float) -> str:
        """Return a hint for the user if a long simulation could have run in the compiled engine.
        Otherwise, return an empty text.
        """
        hint = services.faster_engine.offered()
        return "" if hint is None else hint(self.scenario, policy, engine, wall_s)

    @property
    def knowledge(self) -> tuple[str, ...]:
        """The kind of estimates, which determines what policies know about durations."""
        return (self.keys.estimates.kind,)

    def told(self, estimates: str) -> Mapping[str, Any]:
        """Return keys of a configuration in which ``estimates`` determines the durations that
        policies know: ``exact``, ``noisy`` or ``hidden``.
        """
        return {"estimates": {"kind": estimates}}


def _changes(preset: Synthetic | Sessions, workload: Synthetic | Sessions) -> dict[str, Any]:
    """Return the fields in which ``workload`` differs from ``preset``, with the values in
    ``workload``.
    """
    mine = {field.name: getattr(workload, field.name) for field in fields(workload)}
    return {name: value for name, value in mine.items() if value != getattr(preset, name)}


def _short(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _spelled(nodes: tuple[str, ...], section: ClusterSection) -> tuple[str, ...]:
    """Return the names of all nodes, with ranges expanded. Nodes with their own names are listed
    under these, and not under the name of their group.
    """
    named = {group.name: group.nodes for group in section.groups if group.hosts is not None}
    names = [name for text in nodes for name in _hosts(text)]
    return tuple(dict.fromkeys([node for name in names for node in named.get(name, (name,))]))


def queues_on(queues: QueueTree, section: ClusterSection) -> QueueTree:
    """Return the queues with the names of the cluster's nodes in their partitions, reservations and
    outages.

    Raises:
        ModelError: A partition has no nodes, or names a node that the cluster lacks.
    """
    if section.from_trace:
        return queues
    reserved = tuple([replace(one, nodes=_spelled(one.nodes, section)) for one in queues.reservations])
    out = tuple([replace(one, nodes=_spelled(one.nodes, section)) for one in queues.outages])
    queues = replace(queues, reservations=reserved, outages=out)
    if any(group.partitions for group in section.groups):
        return replace(queues, partitions=tuple([_of_groups(part, section) for part in queues.partitions]))
    names = {name for group in section.groups for name in (group.name, *group.nodes)}
    # A machine with several GPU types is modelled as one node per type (``name:type``), so its
    # plain name is also valid.
    names |= {name.partition(":")[0] for name in names}
    for part in queues.partitions:
        for name in [host for text in part.nodes for host in _hosts(text)]:
            if name not in names:
                groups = f"groups: {', '.join(group.name for group in section.groups)}"
                raise ModelError(
                    f"partition {part.name!r}: there is no node or group {name!r}{nearest(name, names, groups)}"
                )
    parts = [replace(part, nodes=_spelled(part.nodes, section)) for part in queues.partitions]
    return replace(queues, partitions=tuple(parts))


def _of_groups(part: NodePartition, section: ClusterSection) -> NodePartition:
    """Return the partition with the nodes of all groups that name it.

    Raises:
        ModelError: No group names the partition.
    """
    nodes = [node for group in section.groups if part.name in group.partitions for node in group.nodes]
    if not nodes:
        raise ModelError(f"partition {part.name!r}: none of the partition's nodes are in the cluster")
    return replace(part, nodes=tuple(nodes))


def _runtime_of(workload: Synthetic | Sessions | TraceFile) -> AnyRuntime:
    """Return the default runtime model. For a synthetic workload, this is the model of measured
    throughputs; for a trace, it is the recorded seconds or the model saved with the trace.
    """
    if isinstance(workload, Synthetic):
        return Throughput()
    if isinstance(workload, Sessions):
        return Recorded()
    saved = workload.saved_with("runtime")
    if saved is None:
        return Recorded(workload.options.reference_gpu)
    try:
        runtime: Any = TypeAdapter(AnyRuntime).validate_python(saved, context={"own": False})
    except ValidationError as error:
        raise TraceError(
            f"{workload.path}:1: the runtime model saved in this file is invalid: {error.errors()[0]['msg']}"
        ) from None
    if isinstance(runtime, Foreign):
        raise TraceError(
            f"{workload.path}:1: the runtime model saved in this file is code outside dagsim, "
            f"{runtime.kind!r}, which a data file may not import. If you trust that code, set it "
            f"explicitly: --set runtime.kind={runtime.kind}"
        )
    return runtime
