"""The interface for networks, and the uniform network. The uniform network has no contention, and
every pair of nodes has the same bandwidth and latency.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from simpy.events import Event

from dagsim.errors import ModelError
from dagsim.model import Cluster, GpuType, Task
from dagsim.model.arithmetic import ordered_sum
from dagsim.spelling import nearest
from dagsim.systems.cluster.clock import Clock, Timer
from dagsim.systems.cluster.network.links import FabricLevel

NO_CARRIER = "gangs that communicate need a network that carries them: network {kind: shared}"


class Flow:
    """A transfer of bytes from one node to another. The carrier stores the progress of the flow in
    this object as plain data, so that a forked simulation can continue the flow.
    """

    __slots__ = ("destination", "ends_s", "parts", "size", "source")

    def __init__(self, source: int, destination: int, size: float) -> None:
        self.source = source
        self.destination = destination
        self.size = size
        self.ends_s: float | None = None
        """End of the flow, if it is known from the start."""
        self.parts: list[Any] | None = None
        """Its parts on shared links, as the carrier stores them; None before it is sent."""

    def sent(self, now: float) -> float:
        """Return the bytes that have crossed shared links by ``now``."""
        return self.size - ordered_sum([part.left(now) for part in self.parts]) if self.parts else 0.0

    def copy(self) -> Flow:
        twin = Flow(self.source, self.destination, self.size)
        twin.ends_s = self.ends_s
        twin.parts = None if self.parts is None else [part.copy() for part in self.parts]
        return twin


class Carrier(Protocol):
    """The network of a running simulation. It transports flows and contains the state of the links."""

    def fetch(self, flows: Sequence[Flow]) -> Generator[Event, object, None]:
        """Yield the events of a run's SimPy process until every flow has arrived. A forked
        simulation calls this again on copies of the same flows. The process may be interrupted at
        any event.
        """

    def fork(self, clock: Clock) -> Carrier:
        """Return a carrier for a forked simulation. It has no flows yet, because ``fetch`` adds
        them later.
        """


class Network(Protocol):
    """A description of a network, as in a configuration."""

    def carrier(self, clock: Clock, cluster: Cluster) -> Carrier:
        """Return the carrier for a new simulation.

        Raises:
            ModelError: The network does not match the cluster.
        """


@runtime_checkable
class HasLevels(Protocol):
    """A network whose nodes are grouped into racks, pods or similar domains."""

    def levels(self, names: Sequence[str]) -> tuple[FabricLevel, ...]:
        """Return the levels of the network above a node, such as racks and pods, narrowest first."""


@runtime_checkable
class HasRoutes(Protocol):
    """A network whose flows share links on routes between nodes."""

    def routing(self, names: Sequence[str]) -> object:
        """Return the links and routes between the nodes called ``names``.

        Raises:
            ModelError: The network does not match these nodes.
        """


@dataclass(frozen=True, slots=True)
class Storage:
    """Nodes that store data and checkpoints.

    Before a task computes, each of its nodes reads a share of the task's data, in proportion to the
    number of instances on this node. With ``checkpoints``, the storage also receives the states of
    instances, each as large as the instance's memory:

    - After ``Preemption.checkpoint_interval_s`` of work, a run pauses until its state has reached
      the storage.
    - A preempted run leaves its GPUs immediately, and its nodes send its state to the storage. When
      it starts again, it waits until this transfer has ended and then reads its state. If it starts
      again immediately (``Migrate``), its state is sent directly from its old nodes to the new
      ones.
    - A run that gets notice before its node leaves keeps its work if its state arrives in time.

    These flows replace ``Preemption.checkpoint_write_s`` and ``checkpoint_s_per_gb``.

    Raises:
        ModelError: There are no nodes, or an amount is negative.
    """

    nodes: tuple[str, ...]
    """Names of the nodes. Jobs are assigned to them in turn."""
    models: Mapping[str, float] = field(default_factory=dict)
    """Amount of data in GB that a task reads before it computes, by the name of its model."""
    default_gb: float = 0.0
    """The same amount for tasks whose model is not listed."""
    checkpoints: bool = True
    """True if checkpoints are written to and read from these nodes over the network."""

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if not self.nodes:
            raise ModelError("storage: nodes must name at least one node")
        for name, amount in (*self.models.items(), ("default_gb", self.default_gb)):
            if not 0 <= amount < inf:
                raise ModelError(f"storage: {name} must be 0 GB or more, got {amount!r}")

    def numbers(self, names: Sequence[str]) -> list[int]:
        """Return the indices of the storage nodes among the nodes ``names`` of the cluster.

        Raises:
            ModelError: A node does not exist in the cluster.
        """
        for name in self.nodes:
            if name not in names:
                raise ModelError(f"storage: the cluster has no node {name!r}{nearest(name, names)}").below(
                    "storage", "nodes"
                )
        return [names.index(name) for name in self.nodes]

    def load_bytes(self, model: str | None) -> float:
        """Return the bytes that a task with this model reads before it computes."""
        return 1e9 * self.models.get(model or "", self.default_gb)


def levels_in(network: Network | None, names: Sequence[str]) -> Sequence[FabricLevel] | None:
    """Return the levels of the network above the nodes ``names``, or None if it has no levels.

    Raises:
        ModelError: The network does not match the nodes.
    """
    return network.levels(names) if isinstance(network, HasLevels) else None


class StepOfGang(Protocol):
    """The computation and the traffic of a gang in each training step. Only the carrier interprets the
    traffic.
    """

    @property
    def step_s(self) -> float:
        """Seconds of computing per step, on the fastest GPU type in the cluster that may run the
        task.
        """


class Member(NamedTuple):
    """The part of a gang on one node: the number of its ranks there, and the indices of their GPUs
    (empty if unknown).
    """

    node: int
    ranks: int
    gpus: tuple[int, ...] = ()


@runtime_checkable
class Communication(Protocol):
    """A model of the communication of gangs. A runtime model may also implement this protocol."""

    def traffic(self, task: Task, gpu: GpuType | None) -> StepOfGang | None:
        """Return the traffic of a gang on a GPU type, or None if it sends nothing. ``gpu`` matters
        only if this is also the runtime model, in which case ``step_s`` is the time on ``gpu``.
        """


@runtime_checkable
class GangCarrier(Protocol):
    """A carrier that also transports what gangs send. A gang's rate stays constant until a flow
    starts or ends.
    """

    def gang(self, traffic: Any, step_s: float, members: Sequence[Member], gpu: GpuType | None) -> Any:
        """Return a gang on these nodes that computes for ``step_s`` seconds per step. The gang
        sends nothing yet.
        """

    def begin(self, gang: Any, tell: Callable[[float], None]) -> None:
        """Start the gang's traffic. ``tell`` is called with each new rate, including the first one,
        in seconds of computing per second.
        """

    def end(self, gang: Any) -> None:
        """Stop the gang's traffic."""

    def adopt(self, gang: Any, tell: Callable[[float], None]) -> Any:
        """Continue a copy of the gang's traffic in a forked simulation."""

    def expected(self, gang: Any) -> float:
        """Return the rate that a gang would have if its traffic started now."""


@runtime_checkable
class ForeseeingCarrier(Protocol):
    """A carrier that can also predict how long flows would take."""

    def expected_s(self, groups: Sequence[Sequence[Flow]]) -> list[float]:
        """Return, for each group, the seconds until all its flows would have arrived. Assume that
        all groups are sent now, that they compete with the current flows, and that no further flows
        begin.
        """


@dataclass(frozen=True, slots=True)
class UniformNetwork:
    """A network in which every flow takes ``latency_s + size / bandwidth``, regardless of other
    flows. Flows to the same run are sent in parallel, and nothing is sent within a node.
    """

    bandwidth_gb_s: float = 12.5
    """Bandwidth of each flow in GB/s."""
    latency_s: float = 0.0
    """Latency of each flow in seconds."""
    kind: Literal["uniform"] = "uniform"

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if not self.bandwidth_gb_s > 0:
            raise ModelError(f"uniform network: bandwidth_gb_s must be positive, got {self.bandwidth_gb_s!r}")
        if not self.latency_s >= 0:
            raise ModelError(f"uniform network: latency_s must be 0 or more, got {self.latency_s!r}")

    def carrier(self, clock: Clock, cluster: Cluster) -> _Uniform:
        return _Uniform(self, clock)


class _Uniform(NamedTuple):
    network: UniformNetwork
    clock: Clock

    def fetch(self, flows: Sequence[Flow]) -> Generator[Event, object, None]:
        """Wait for the slowest flow."""
        now, network = self.clock.now, self.network
        for flow in flows:
            if flow.ends_s is None:
                flow.ends_s = now + network.latency_s + flow.size / (network.bandwidth_gb_s * 1e9)
        yield Timer(self.clock, max(flow.ends_s or 0.0 for flow in flows))

    def expected_s(self, groups: Sequence[Sequence[Flow]]) -> list[float]:
        """See ``ForeseeingCarrier``."""
        latency_s, bytes_s = self.network.latency_s, self.network.bandwidth_gb_s * 1e9
        return [max([latency_s + flow.size / bytes_s for flow in flows], default=0.0) for flows in groups]

    def fork(self, clock: Clock) -> _Uniform:
        return _Uniform(self.network, clock)
