"""The free resources of a node, and what tasks demand of nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import floor
from typing import NamedTuple

from dagsim.model import Demand, Job, Node
from dagsim.model.arithmetic import bits, whole_sum
from dagsim.model.log import RejectReason
from dagsim.model.mig import MIG_TABLES, MigLayout
from dagsim.systems.cluster.forks import COPIED, SAME, Fork, Forked
from dagsim.systems.cluster.resources.free_index import ALL, FreeIndex
from dagsim.systems.cluster.resources.site import Terms

__all__ = ["ALL", "Allotted", "DemandClass", "NodeState", "demand_words", "may_mix_types"]

_SLOT = 1 << 20
"""Factor for encoding the GPU and the start of a part as one number: ``gpu + (start + 1) *
_SLOT``."""
MICRO = 1_000_000
"""CPUs, memory and shares of a GPU are counted in whole millionths, so that taking and releasing
them leaves no rounding residue.
"""
NAMED_GPUS = 62
"""Maximum number of GPUs of a machine for which the log names the GPUs of each run (a signed 64-bit
mask).
"""

_MOST = 1e15
"""Upper bound for cores and GB, so that even an infinite amount can be counted in millionths."""
_RESIDUE = 1e-3
"""Maximum number of millionths by which rounding may leave an amount below a whole number of millionths."""


def _millionths(amount: float) -> int:
    return round(min(amount, _MOST) * MICRO)


def _needed(amount: float) -> int:
    """Return the amount in whole millionths. It is rounded in such a way that instances fit on a
    node if together they need exactly what the node has.
    """
    return floor(min(amount, _MOST) * MICRO + _RESIDUE)


class DemandClass(Forked):
    """A class of tasks with equal demands, prepared for one cluster. Either all tasks of a class
    fit somewhere, or none does.

    ``gang`` is the number of instances that must start together, or 0 if instances are independent.
    ``types`` contains the types that may run the tasks, as indices into ``ClusterState.types``.
    ``rejected`` is the reason why even the empty cluster could never run these tasks, if there is
    one. ``key`` is the key of the class in ``ClusterState.classes``. It stays the same in a fork.
    """

    __slots__ = {
        "blocked_at": SAME,
        "counted": SAME,
        "cpus": SAME,
        "demand": SAME,
        "gang": SAME,
        "key": SAME,
        "memory": SAME,
        "nodes": SAME,
        "number": SAME,
        "opened": SAME,
        "plain": SAME,
        "rejected": SAME,
        "roomy": SAME,
        "share": SAME,
        "sliced": SAME,
        "terms": SAME,
        "types": SAME,
        "whole": SAME,
        "width": SAME,
    }

    def __init__(
        self,
        demand: Demand,
        gang: int,
        types: tuple[int, ...],
        number: int,
        key: object,
        terms: Terms | None = None,
    ) -> None:
        self.demand = demand
        self.terms = terms
        self.nodes = self.opened = ALL if terms is None else terms.nodes
        """The nodes on which it may start now, as a bit set. ``opened`` changes with reservations
        and licences, and ``nodes`` is the part of it in the domain where a gang would be placed."""
        self.key = key
        self.gang = gang
        self.types = types
        self.number = number
        self.whole = int(demand.gpus) if demand.gpus >= 1 else 0
        self.share = round(demand.gpus * MICRO) if demand.gpus < 1 else 0
        self.width: float = demand.gpus * (gang or 1) or 1.0
        """Number of GPUs that start together: those of one instance or of the whole gang; 1 for
        tasks without GPUs."""
        self.cpus = _needed(demand.cpus)
        self.memory = _needed(demand.memory_gb)
        self.plain = bool(self.whole) and not (self.cpus or self.memory or gang or terms)
        """True if it needs only whole GPUs on any node, so that whether it fits depends only on
        idle GPUs."""
        self.counted = bool(gang and terms is not None and terms.counts)
        """True if it is a gang with counts of nodes in its constraint; each of its instances then
        takes a node."""
        self.rejected: RejectReason | None = None
        self.sliced: frozenset[str] = frozenset()
        """The GPU types of which it takes only partitions that it names (``A100-40-3g.20gb``)."""
        self.blocked_at = -1
        self.roomy = -1
        """The machine on which an instance last fitted, or -1."""

    def open_to(self, nodes: int) -> None:
        """Restrict the nodes on which tasks of this class may start to ``nodes`` (a bit set)."""
        self.nodes = self.opened = nodes

    def widen(self) -> None:
        """Undo the restriction to one domain, or to some nodes, which a search for a gang leaves."""
        self.nodes = self.opened

    @contextmanager
    def as_if_open_to(self, nodes: int) -> Iterator[None]:
        """Restrict the class to these nodes while the ``with`` block is running."""
        kept = self.nodes, self.opened
        self.open_to(nodes)
        try:
            yield
        finally:
            self.nodes, self.opened = kept

    @property
    def bound(self) -> bool:
        """True if the tasks are gangs that must be placed within one domain of the network."""
        return self.terms is not None and bool(self.terms.domains) and self.gang > 0


class NodeState(Forked):
    """One node and its free resources. ``idle`` GPUs are completely free (``free`` is their bit
    mask), and ``shares`` maps each partly used GPU to its free millionths. With ``mig``,
    ``layouts`` maps each partitioned GPU to its partitions, and ``remade`` is True if the last
    start had to create a partition.
    """

    __slots__ = {
        "bit": SAME,
        "cpus": SAME,
        "free": SAME,
        "gpus": SAME,
        "idle": SAME,
        "index": SAME,
        "layouts": COPIED,
        "levels": COPIED,
        "memory": SAME,
        "mig": SAME,
        "named": SAME,
        "node": SAME,
        "remade": SAME,
        "shares": COPIED,
        "type": SAME,
        "up": SAME,
    }

    def __init__(self, index: int, node: Node, type_: int) -> None:
        self.index = index
        self.bit = 1 << index
        self.node = node
        self.type = type_
        self.gpus = node.gpus
        self.named = node.gpus <= NAMED_GPUS
        self.levels = FreeIndex()
        """The index by idle GPUs, for its type, that contains this node."""
        self.idle = node.gpus
        self.free = (1 << node.gpus) - 1
        self.cpus = _millionths(node.cpus)
        self.memory = _millionths(node.memory_gb)
        self.shares: dict[int, int] = {}
        self.mig = None if node.mig_s is None or node.gpu is None else MIG_TABLES[node.gpu.name]
        self.layouts: dict[int, MigLayout] = {}
        self.remade = False
        self.up = True

    def room(self, demand: DemandClass, *, anywhere: bool = False) -> int:
        """Return the number of instances of ``demand`` that could start on this node now. With
        ``anywhere``, ignore which nodes are open to the demand, and the node counts in its
        constraint.
        """
        if demand.plain:
            return self.idle // demand.whole if self.up else 0
        if demand.nodes != ALL and not anywhere and not demand.nodes & self.bit:
            return 0
        if demand.whole:
            count = self.idle // demand.whole
        elif share := demand.share:
            if self.mig is not None:
                count = whole_sum([self.room_on(gpu, demand) for gpu in range(self.gpus)])
            elif demand.sliced and self.node.gpu is not None and self.node.gpu.name in demand.sliced:
                count = 0
            else:
                count = self.idle * (MICRO // share) + sum([free // share for free in self.shares.values()])
        else:
            count = 1 << 40
        if demand.cpus:
            count = min(count, self.cpus // demand.cpus)
        if demand.memory:
            count = min(count, self.memory // demand.memory)
        if count > 1 and demand.counted and not anywhere:
            count = 1
        return count if self.up else 0

    def room_on(self, gpu: int, demand: DemandClass) -> int:
        """Return the number of instances of a fractional ``demand`` that fit on the GPU ``gpu`` (0
        for other demands).
        """
        free = self.shares.get(gpu, MICRO if self.free >> gpu & 1 else 0)
        if self.mig is not None and demand.share:
            profile = self.mig.profile(demand.demand.gpus, demand.demand.gpu_types)
            return 0 if profile is None or not free else self.mig.room(self.layouts.get(gpu, ()), profile)
        return free // demand.share if demand.share else 0

    def gpu_for(self, demand: DemandClass, gpu: int | None) -> int:
        """Return the GPU for the next share. If no GPU is named, this is the fullest GPU on which
        the share fits. With MIG, GPUs that already have a suitable partition come first.
        """
        if (
            gpu is not None
            or self.mig is None
            or (profile := self.mig.profile(demand.demand.gpus, demand.demand.gpu_types)) is None
        ):
            return gpu or 0
        rooms = [gpu for gpu in range(self.gpus) if self.room_on(gpu, demand)]
        openings = {gpu: self.mig.opening(self.layouts.get(gpu, ()), profile) or (0, False) for gpu in rooms}
        return min(rooms, key=lambda gpu: (self.shares.get(gpu, MICRO), not openings[gpu][1], gpu))

    def part(self, demand: DemandClass) -> int:
        """Return how many millionths of a GPU an instance with a fractional demand occupies on this
        node.
        """
        profile = None if self.mig is None else self.mig.profile(demand.demand.gpus, demand.demand.gpu_types)
        if self.mig is None or profile is None:
            return demand.share
        return self.mig.profiles[profile].compute * MICRO // self.mig.compute

    def take_part(self, demand: DemandClass, gpu: int) -> int:
        """Occupy a part of the GPU. Return the GPU and the position of the part as one number, for
        ``give_part``. This does not update any index.
        """
        if self.mig is None:
            self._set_free(gpu, self.shares.get(gpu, MICRO) - demand.share)
            return gpu
        self._set_free(gpu, self.shares.get(gpu, MICRO) - self.part(demand))
        if (profile := self.mig.profile(demand.demand.gpus, demand.demand.gpu_types)) is None:
            return gpu
        layout = self.layouts.get(gpu, ())
        opening = self.mig.opening(layout, profile)
        assert opening is not None
        start, exists = opening
        self.remade = self.remade or not exists
        self.layouts[gpu] = self.mig.used(layout, start, profile)
        return gpu + (start + 1) * _SLOT

    @staticmethod
    def gpu_at(place: int) -> int:
        """Return the GPU that is encoded in a number from ``take``."""
        return place % _SLOT

    def give_part(self, demand: DemandClass, place: int) -> int:
        """Release a part that ``take_part`` occupied, and return its GPU. This does not update any
        index.
        """
        if self.mig is None:
            self._set_free(place, self.shares[place] + demand.share)
            return place
        after, gpu = divmod(place, _SLOT)
        self._set_free(gpu, self.shares[gpu] + self.part(demand))
        if after:
            self.layouts[gpu] = self.mig.freed(self.layouts[gpu], after - 1)
        return gpu

    def _set_free(self, gpu: int, free: int) -> None:
        if free == MICRO:
            self.idle += 1
            self.free |= 1 << gpu
            del self.shares[gpu]
            return
        if gpu not in self.shares:
            self.idle -= 1
            self.free ^= 1 << gpu
        self.shares[gpu] = free

    def after(self, demand: DemandClass, count: int, mask: int, on: tuple[int, ...]) -> NodeState:
        """Return a copy of the node as it will be after ``count`` instances have released their
        resources. Use the copy only to check what fits.
        """
        twin = self.copy()
        twin.vacate(demand, count, mask, on)
        return twin

    def vacate(self, demand: DemandClass, count: int, mask: int, on: tuple[int, ...]) -> None:
        """Release the resources of ``count`` instances on a copy of a node. This does not update any
        index.
        """
        if demand.whole:
            self.free |= mask
            self.idle += demand.whole * count
        for place in on:
            self.give_part(demand, place)
        self.cpus += demand.cpus * count
        self.memory += demand.memory * count

    def fill(self, demand: DemandClass, count: int, gpu: int | None = None) -> None:
        """Occupy resources for ``count`` instances on a copy of a node. Shares are placed on ``gpu``
        or, by default, on the first GPUs on which they fit. This does not update any index.
        """
        if demand.whole:
            self.free ^= self.take_whole(demand.whole * count)
            self.idle -= demand.whole * count
        self.cpus -= demand.cpus * count
        self.memory -= demand.memory * count
        for _ in range(count if demand.share else 0):
            room = (other for other in range(self.gpus) if self.room_on(other, demand))
            self.take_part(demand, next(room) if gpu is None else gpu)

    def take_whole(self, needed: int) -> int:
        """Return a bit set of ``needed`` idle GPUs for a task that needs whole GPUs. GPUs without
        partitions come first; the partitions of the others are removed.
        """
        gpus = sorted(bits(self.free), key=lambda gpu: (gpu in self.layouts, gpu))[:needed]
        for gpu in gpus:
            if self.layouts.pop(gpu, None) is not None:
                self.remade = True
        return whole_sum([1 << gpu for gpu in gpus])

    def emptied(self) -> NodeState:
        """Return the state that the node has when it is up and nothing runs on it."""
        return NodeState(self.index, self.node, self.type)

    def copy(self) -> NodeState:
        """Return an identical node that can be changed independently and belongs to no index of the
        cluster.
        """
        fork = Fork()
        fork.twins[id(self.levels)] = self.levels
        return fork.of(self)


class Allotted(NamedTuple):
    """A legal share of a placement: the machine, the number of instances, and the GPU if the share
    names one.
    """

    machine: NodeState
    instances: int
    gpu: int | None


def may_mix_types(job: Job, demand: Demand) -> bool:
    """Return True if a gang may combine nodes with different GPU types. A batch job may do this if
    it needs no GPUs, or if it needs GPUs of any type on each of several nodes.
    """
    return job.request is not None and (not demand.gpus or job.request.spread is True)


def demand_words(demand: Demand) -> str:
    """Describe the demand of an instance, for example ``4 GPUs (A100), 16 CPUs, 64 GB``."""
    types = "" if demand.gpu_types is None else f" ({' or '.join(demand.gpu_types)})"
    parts = [f"{demand.gpus:g} GPUs{types}"] if demand.gpus else []
    parts += [f"{demand.cpus:g} CPUs"] if demand.cpus else []
    parts += [f"{demand.memory_gb:g} GB"] if demand.memory_gb else []
    return ", ".join(parts) or "nothing"
