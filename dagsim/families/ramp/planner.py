"""The planner. It decides how a job is split, where its pieces run and in what order, and computes
how long a training step takes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple

from dagsim.errors import ConfigError
from dagsim.families.ramp.bounded import Bounded
from dagsim.families.ramp.decisions import OpPlacement, OpSchedule, Rules
from dagsim.families.ramp.fabric import Fabric, Lane
from dagsim.families.ramp.graph import ComputationGraph
from dagsim.families.ramp.lookahead import SHARED, Memo, StepTime, look_ahead
from dagsim.families.ramp.partition import PARTITIONERS, PartitionedGraph, partitioned
from dagsim.families.ramp.server_placement import PLACERS, Placer, check_placement, place_inside
from dagsim.families.ramp.timing import OP_SCHEDULES, TimedGraph, timed


class Outlook(NamedTuple):
    """The servers and times that a job would get at one degree if it started now."""

    parts: PartitionedGraph
    placement: OpPlacement
    step: StepTime
    steps: int

    @property
    def jct_s(self) -> float:
        """The job's completion time over all its training steps."""
        return self.steps * self.step.seconds

    @property
    def communication_s(self) -> float:
        """Seconds during which data is sent."""
        return self.steps * self.step.communication_s

    @property
    def computation_s(self) -> float:
        """Seconds during which an operation runs."""
        return self.steps * self.step.computation_s

    @property
    def busy_s(self) -> float:
        """Seconds of computation, summed over the servers."""
        return self.steps * self.step.busy_s


class Traffic(NamedTuple):
    """The number of bytes that a job sends per training step, and the number of channels that it
    uses."""

    flow_bytes: float
    channels: int


class Planner:
    """Partitions, places, orders and times jobs on one fabric, and caches the results.

    ``partitioner``, ``placer`` and ``op_schedule`` are names in their registries, e.g.
    ``"best_fit"``.

    Raises:
        UnknownName: There is no partitioner, placer or schedule with that name.
        ConfigError: The flow schedule is neither ``srpt`` nor ``fifo``.
    """

    def __init__(
        self,
        fabric: Fabric,
        rules: Rules,
        *,
        partitioner: str = "sip_ml",
        placer: str = "first_fit",
        op_schedule: str = "srpt",
        flow_schedule: str = "srpt",
        memo: Memo | None = None,
    ) -> None:
        if flow_schedule not in ("srpt", "fifo"):
            raise ConfigError(f"unknown flow schedule {flow_schedule!r}; allowed: srpt, fifo")
        self.fabric = fabric
        self.rules = rules
        self.memo = SHARED if memo is None else memo
        self._partition = PARTITIONERS.create(partitioner)
        self._order = OP_SCHEDULES.create(op_schedule)
        self.placer = placer
        self.shortest_first = flow_schedule == "srpt"
        self._said = (fabric.name, rules.of_steps, op_schedule, flow_schedule)
        self._placers: dict[str, Placer] = {placer: PLACERS.create(placer)}
        self._splits: dict[tuple[str, int], tuple[int, ...]] = {}
        self._parts: dict[tuple[str, tuple[int, ...]], PartitionedGraph] = {}
        self._shortest: dict[str, float] = {}
        """These three are by graph, and a workload has few graphs. The others are also by the
        servers that are free or used."""
        self._placements: Bounded[tuple[str, tuple[int, ...], int, str], OpPlacement | None] = Bounded()
        self._inside: Bounded[tuple[str, tuple[int, ...], int], OpPlacement | None] = Bounded()
        self._seconds: Bounded[tuple[str, int, int], float | None] = Bounded()
        self._traffic: Bounded[tuple[str, tuple[int, ...], OpPlacement], Traffic] = Bounded()
        self._steps: Bounded[tuple[str, tuple[int, ...], OpPlacement], StepTime] = Bounded()

    def parts(self, graph: ComputationGraph, degree: int) -> PartitionedGraph:
        """Split the graph into pieces according to a degree."""
        splits = self._splits.get((graph.digest, degree))
        if splits is None:
            splits = self._splits[graph.digest, degree] = self._partition(graph, degree, self.rules)
        parts = self._parts.get((graph.digest, splits))
        if parts is None:
            parts = self._parts[graph.digest, splits] = partitioned(graph, splits, self.rules)
        return parts

    def place(self, parts: PartitionedGraph, occupied: int, placer: str | None = None) -> OpPlacement | None:
        """Return a placement for a partitioned job, or None if the job does not fit. The placement
        has the job number 0.

        Raises:
            IllegalDecision: The placer returned servers that it may not use.
        """
        name = placer or self.placer
        key = (parts.graph.digest, parts.splits, occupied, name)
        if key not in self._placements:
            placement = self.made_placer(name).place(0, parts, self.fabric, occupied, self.rules)
            if placement is not None:
                check_placement(placement, parts, self.fabric, occupied, name)
            self._placements[key] = placement
        return self._placements[key]

    def place_on(self, parts: PartitionedGraph, servers: int) -> OpPlacement | None:
        """Return a placement for a partitioned job within these servers (a bit mask), or None if
        the job does not fit there. The placement has the job number 0.
        """
        key = (parts.graph.digest, parts.splits, servers)
        if key not in self._inside:
            self._inside[key] = place_inside(servers, 0, parts, self.fabric, self.rules)
        return self._inside[key]

    def step_s(self, graph: ComputationGraph, degree: int, servers: int) -> float | None:
        """Return how many seconds a training step takes on these servers (a bit mask), or None if
        the job cannot be placed there."""
        key = (graph.digest, degree, servers)
        if key not in self._seconds:
            parts = self.parts(graph, degree)
            placement = self.place_on(parts, servers)
            self._seconds[key] = None if placement is None else self.step(parts, placement).seconds
        return self._seconds[key]

    def made_placer(self, name: str) -> Placer:
        """Return the placer with this name. Each placer is built once.

        Raises:
            UnknownName: There is no such placer.
        """
        placer = self._placers.get(name)
        if placer is None:
            placer = self._placers[name] = PLACERS.create(name)
        return placer

    def shortest_step_s(self, graph: ComputationGraph) -> float:
        """Return the length in seconds of the critical path of a training step on the fastest GPUs,
        if the graph is split as finely as allowed and transfers take no time.
        """
        seconds = self._shortest.get(graph.digest)
        if seconds is None:
            seconds = self._shortest[graph.digest] = self._critical_path_s(graph)
        return seconds

    def step(self, parts: PartitionedGraph, placement: OpPlacement) -> StepTime:
        """Return the time of a training step with this placement, from the memo or by look-ahead."""
        near = (parts.graph.digest, parts.splits, placement)
        step = self._steps.get(near)
        if step is None:
            key = self.key(parts, placement)
            step = self.memo.get(key)
            if step is None:
                step = self.look_ahead(parts, placement)
                self.memo.put(key, step)
            self._steps[near] = step
        return step

    def schedule(self, parts: PartitionedGraph) -> OpSchedule:
        """Return the order in which each server runs its operations."""
        return self._order(0, parts, self.fabric)

    def look_ahead(self, parts: PartitionedGraph, placement: OpPlacement) -> StepTime:
        """Simulate a training step with this placement, without the memo."""
        return look_ahead(
            timed(parts, placement, self.fabric, self.rules),
            self.schedule(parts),
            self.fabric,
            self.rules,
            shortest_flow_first=self.shortest_first,
        )

    def key(self, parts: PartitionedGraph, placement: OpPlacement) -> Hashable:
        """Return a key that contains everything that affects the time of a training step."""
        return (
            *self._said,
            parts.graph.digest,
            parts.splits,
            self.fabric.pattern(placement.blocks),
            placement.block_of,
        )

    def traffic(self, parts: PartitionedGraph, placement: OpPlacement) -> Traffic:
        """Return the traffic over channels with this placement."""
        near = (parts.graph.digest, parts.splits, placement)
        traffic = self._traffic.get(near)
        if traffic is None:
            traffic = self._traffic[near] = self._sent(parts, placement)
        return traffic

    def timed(self, parts: PartitionedGraph, placement: OpPlacement) -> TimedGraph:
        """Return the graph with the transfer time of every dependency."""
        return timed(parts, placement, self.fabric, self.rules)

    def _critical_path_s(self, graph: ComputationGraph) -> float:
        degree = max(degree for degree in self.rules.degrees if self.fabric.blocks(degree))
        parts, count = self.parts(graph, degree), len(graph)
        costs = [graph.costs(gpu.name) for gpu in self.fabric.types]
        fastest = [min(cost[op] for cost in costs) / parts.pieces[op] for op in range(2 * count)]
        ends = [0.0] * (2 * count)
        into: list[list[int]] = [[] for _ in ends]
        for edge in parts.edges:
            into[edge.target].append(edge.source)
        for op in (*graph.order, *(count + op for op in reversed(graph.order))):
            ends[op] = max((ends[source] for source in into[op]), default=0.0) + fastest[op]
        return max(ends)

    def _sent(self, parts: PartitionedGraph, placement: OpPlacement) -> Traffic:
        total, channels = 0.0, 0
        for lane, size in self._flows(parts, placement):
            total += size * sum(map(len, lane.targets))
            channels |= lane.all_channels
        return Traffic(total, channels.bit_count())

    def _flows(self, parts: PartitionedGraph, placement: OpPlacement) -> Iterator[tuple[Lane, float]]:
        """Yield the lanes on which data is sent, and the bytes of each dependency on them."""
        count = len(parts.graph)
        crossings = [
            (self.fabric.crossing(placement.block(edge.source % count), placement.block(edge.target % count)), edge[2])
            for edge in parts.edges
        ]
        crossings += [(self.fabric.exchange(placement.block(op)), size) for op, size in enumerate(parts.sync_bytes)]
        return ((lane, size) for crossing, size in crossings if size for lane in crossing.lanes if not lane.local)
