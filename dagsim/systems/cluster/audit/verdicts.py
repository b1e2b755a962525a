"""Check whether a task could run on the empty cluster and, if not, find the reason."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from dagsim.errors import ModelError
from dagsim.model import Cluster, Demand, QueueTree, Request
from dagsim.model.arithmetic import bits, whole_sum
from dagsim.model.mig import named_types, parted_types
from dagsim.systems.cluster.models.runtime import Runtime
from dagsim.systems.cluster.resources.nodes import DemandClass, NodeState
from dagsim.systems.cluster.resources.site import SiteState, nodes_by_counts
from dagsim.systems.cluster.waits.wait_rules import Excess
from dagsim.workload.arrays import TaskKind


class _EqualNodes:
    """A group of identical nodes: the empty state of one of them, and a bit set of all of them."""

    def __init__(self, machine: NodeState) -> None:
        self.machine = machine
        self.mask = 0


class _Asked(NamedTuple):
    """A task with the nodes that are open to it, and the words that describe these nodes."""

    demand: Demand
    gang: int
    """Number of instances that must run at once."""
    request: Request | None
    types: list[int]
    """Indices of the GPU types that may run the task."""
    nodes: int
    where: str


class EmptyCluster:
    """The empty cluster, which shows whether a task could ever run. Equal tasks are checked only
    once.
    """

    def __init__(
        self,
        cluster: Cluster,
        queues: QueueTree | None,
        site: SiteState,
        runtime: Runtime,
        partitions: Collection[str],
    ) -> None:
        self._types, self._site, self._runtime = cluster.gpu_types, site, runtime
        self._partitions, self._licences = partitions, {} if queues is None else dict(queues.licences)
        groups: dict[object, _EqualNodes] = {}
        place = {gpu: index for index, gpu in enumerate(self._types)}
        for index, node in enumerate(cluster.nodes):
            key = (node.gpu, node.gpus, node.cpus, node.memory_gb, node.mig_s)
            group = groups.setdefault(key, _EqualNodes(NodeState(0, node, place[node.gpu])))
            group.mask |= 1 << index
        self._groups = list(groups.values())
        self._verdicts: dict[object, str | None] = {}

    def verdict(self, kind: TaskKind, gang: int, partition: str, request: Request | None) -> str | None:
        """Return the reason why a task can never run, or None if it can run."""
        key = (kind, gang, partition, request)
        if key not in self._verdicts:
            nodes, where = self._open_nodes(partition, request)
            asked = _Asked(kind.demand, gang, request, self._open_types(kind), nodes, where)
            self._verdicts[key] = self._without_licences(request) or self._judged(asked)
        return self._verdicts[key]

    def _open_nodes(self, partition: str, request: Request | None) -> tuple[int, str]:
        """Return the nodes that are open to a task, and the words that describe them (empty if
        these are all nodes).
        """
        nodes, where = self._site.nodes_of(partition, request), ""
        within = nodes if request is None else self._site.nodes_of(partition, replace(request, constraint=""))
        if within != self._site.all_nodes and partition in self._partitions:
            where = f" of partition {partition}"
        if nodes != within and request is not None:
            where += f"{_FEATURES} {request.constraint}"
        return nodes, where

    def _open_types(self, kind: TaskKind) -> list[int]:
        """Return the indices of the GPU types that may run tasks of this kind."""
        demand, types = kind.demand, self._types
        allowed = None if demand.gpu_types is None else named_types(demand.gpu_types)
        chosen = [
            index
            for index, gpu in enumerate(types)
            if (gpu is not None or (demand.gpus == 0 and allowed is None))
            and (allowed is None or (gpu is not None and gpu.name in allowed))
        ]
        try:
            seconds = self._runtime.seconds(kind.task("", 1.0, 1), types)
        except ModelError:
            return chosen  # not reported here, because the simulation will report this error
        return [index for index in chosen if seconds[index] < inf]

    def _without_licences(self, request: Request | None) -> str | None:
        for name, count in () if request is None else request.licences:
            if count > self._licences.get(name, count):
                return Excess.of("", count, f" licences {name}, of which there are {self._licences[name]:,}")
        return None

    def _judged(self, asked: _Asked) -> str | None:
        groups = [group for group in self._groups if group.mask & asked.nodes]
        able = [group for group in groups if group.machine.type in asked.types]
        if not able:
            return _without_type(asked) if groups else f"no node{asked.where or ' is open to it'}"
        compiled = DemandClass(asked.demand, asked.gang, tuple(asked.types), 0, None)
        compiled.sliced = parted_types(asked.demand.gpu_types)
        rooms = [(group, group.machine.room(compiled)) for group in able]
        if not any(room for _, room in rooms):
            return _too_large(asked, able)
        return self._not_together(asked, rooms) or self._too_many(asked, rooms)

    def _not_together(self, asked: _Asked, rooms: Sequence[tuple[_EqualNodes, int]]) -> str | None:
        """Return a reason if no choice of nodes satisfies the node counts in the constraint of the
        task, and None otherwise.
        """
        if asked.gang <= 1 or asked.request is None or not (counts := self._site.counts(asked.request)):
            return None
        there = [node for group, room in rooms if room for node in bits(group.mask & asked.nodes)]
        if nodes_by_counts(sorted(there), asked.gang, counts) is not None:
            return None
        where = asked.where.partition(_FEATURES)[0]
        what = f" nodes that satisfy {asked.request.constraint} together, which no choice of nodes{where} does"
        return Excess.of("", asked.gang, what)

    def _too_many(self, asked: _Asked, rooms: Sequence[tuple[_EqualNodes, int]]) -> str | None:
        """Return a reason if the instances do not all fit at once, in one domain and on GPUs of one
        type, and None otherwise.
        """
        request, gang, domains = asked.request, asked.gang, [asked.nodes]
        if request is not None and request.level and request.level_required and request.segment is None and gang:
            domains = [asked.nodes & domain for domain in self._site.levels.get(request.level, (asked.nodes,))]
        alike = self._site.alike(request) if gang > 1 and request is not None else ()
        if alike:
            domains = [domain & part for domain in domains for part in alike]
        capacity = max(
            whole_sum((group.mask & domain).bit_count() * room for group, room in rooms if group.machine.type == type_)
            for domain in domains
            for type_ in asked.types
        )
        if capacity >= gang:
            return None
        level = ""
        if request is not None and len(domains) > 1:
            level = f" within a domain of the level {request.level}" if request.level else ""
            level += " that satisfy the same part of the constraint" if alike else ""
        return Excess.of("", gang, f" instances at once{level}, more than fit on the nodes{asked.where}")


_FEATURES = " with the features"


def _without_type(asked: _Asked) -> str:
    names = " or ".join(asked.demand.gpu_types or ())
    if not names:
        return f"no node{asked.where} has a GPU that it can use"
    renamed = "--read gpu_names=SITE=TYPE gives a type of the log another name, dagsim list gpus"
    return f"no node{asked.where} has a GPU of type {names}; {renamed}"


def _too_large(asked: _Asked, groups: Sequence[_EqualNodes]) -> str:
    demand, nodes = asked.demand, [group.machine.node for group in groups]
    for what, amount, there in (
        ("GPUs", demand.gpus, max(node.gpus for node in nodes)),
        ("CPUs", demand.cpus, max(node.cpus for node in nodes)),
        ("GB of memory", demand.memory_gb, max(node.memory_gb for node in nodes)),
    ):
        if amount > there:
            return Excess.of("", amount, f" {what} on one node, where the largest{asked.where} has {there:g}")
    return f"no node{asked.where} has all of the GPUs, CPUs and memory of an instance"
