"""The free resources of all nodes, with indexes that find nodes for a task without scanning the
cluster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import chain
from math import inf
from operator import or_

from dagsim.model import Cluster, Demand, GpuType, Job, Placement, Share, Task
from dagsim.model.arithmetic import bits
from dagsim.model.log import RejectReason
from dagsim.model.mig import named_types, parted_types
from dagsim.systems.cluster.forks import COPIED, EMPTY, SAME, Forked
from dagsim.systems.cluster.resources.free_index import ALL, EnoughIndex, FreeIndex, ShareIndex
from dagsim.systems.cluster.resources.nodes import MICRO, DemandClass, NodeState
from dagsim.systems.cluster.resources.site import SiteState, Terms, nodes_by_counts

_LOOK_BACK = 8
"""If a demand class did not fit and at most this many releases have happened since then, only the
machines of these releases are checked. After more releases, all machines are searched again."""


class ClusterState(Forked):
    """All machines in a cluster, the indexes over these machines, and the demand classes compiled
    for the cluster.
    """

    __slots__ = {
        "_alone": SAME,
        "_enough_cpus": COPIED,
        "_enough_memory": COPIED,
        "_held_on": EMPTY,
        "_judged_on": SAME,
        "_shapes": SAME,
        "asleep": SAME,
        "by_cpus": COPIED,
        "by_gpus": COPIED,
        "by_share": COPIED,
        "classes": COPIED,
        "downs": SAME,
        "judged": EMPTY,
        "list": COPIED,
        "recent": COPIED,
        "released": SAME,
        "reopen_s": SAME,
        "returned_s": SAME,
        "shared": COPIED,
        "site": COPIED,
        "types": SAME,
    }

    def __init__(self, cluster: Cluster, site: SiteState | None = None) -> None:
        self.site = site
        """The rules of the site, if it has any."""
        self.asleep = 0
        """The nodes that are off and would have to boot, as a bit set; others are used first."""
        self.reopen_s = inf
        """The next time at which the site's rules open nodes to a task or close them."""
        self.judged: dict[DemandClass, bool] = {}
        """For the classes checked since nodes last opened or closed, whether they will ever fit on
        the nodes ``_judged_on`` (``hopeless``).
        """
        self._judged_on = -1
        self._held_on: dict[tuple[DemandClass, int], bool] = {}
        """Cached results of ``holds``, because recurring reservations open and close the same nodes often."""
        self.types: tuple[GpuType | None, ...] = cluster.gpu_types
        place = {gpu: index for index, gpu in enumerate(self.types)}
        self.list = [NodeState(index, node, place[node.gpu]) for index, node in enumerate(cluster.nodes)]
        shapes: dict[tuple[object, ...], int] = {}
        for machine in self.list:
            shape = (machine.type, machine.gpus, machine.cpus, machine.memory, machine.node.mig_s)
            shapes[shape] = shapes.get(shape, 0) | machine.bit
        self._shapes = tuple(
            [tuple([nodes for shape, nodes in shapes.items() if shape[0] == type_]) for type_ in place.values()]
        )
        """For each type, the bit sets of machines that are equal when empty."""
        self.by_gpus = [FreeIndex() for _ in self.types]
        """For each type, the machines by number of completely idle GPUs."""
        self.shared = [0] * len(self.types)
        """For each type, the bit set of machines with a partly used GPU."""
        self.by_share = [ShareIndex() for _ in self.types]
        """For each type, the machines with partly used GPUs, by the free amounts on these GPUs."""
        self._enough_cpus, self._enough_memory = EnoughIndex(), EnoughIndex()
        self.by_cpus: list[FreeIndex] | None = None
        """For each type, the machines by number of whole free CPU cores (up to a limit). Created
        for the first CPU-only task."""
        self.released = 0
        """Number of releases. A demand class that did not fit need not be tried again until it
        changes.
        """
        self.downs = 0
        """Number of times that a machine was taken down."""
        self.returned_s = -inf
        """The latest time at which a node came back, or opened to a task."""
        self.recent: deque[NodeState] = deque(maxlen=_LOOK_BACK)
        """The machines of the last releases, latest last; demands that did not fit before can fit
        only on these machines.
        """
        self.classes: dict[object, DemandClass] = {}
        self._alone: tuple[Placement, ...] = tuple([(Share(index),) for index in range(len(self.list))])
        for machine in self.list:
            machine.levels = self.by_gpus[machine.type]
            machine.levels.add(machine.bit, machine.idle)

    def compile(self, demand: Demand, gang: int, terms: Terms | None = None) -> DemandClass:
        """Return the demand class of ``demand``. ``gang`` is the number of instances that start
        together, or 0 if they are independent.
        """
        key: object = (demand, gang) if gang else demand
        if terms is not None:
            key = (key, terms)
        compiled = self.classes.get(key)
        if compiled is None:
            compiled = self.classes[key] = self._compile(demand, gang, self._allowed(demand), key, terms)
        return compiled

    def demand_of(self, task: Task, terms: Terms | None = None) -> DemandClass:
        """Return the demand class of a task."""
        return self.compile(task.demand, task.instances if task.gang else 0, terms)

    def narrowed(self, demand: DemandClass, seconds: Sequence[float]) -> DemandClass:
        """Return the class without the types on which an instance would never end. Often, the
        result is ``demand`` itself. ``seconds`` contains the duration on each type.
        """
        types = tuple([type_ for type_ in demand.types if seconds[type_] < inf])
        if types == demand.types:
            return demand
        key = (demand.demand, demand.gang, types, demand.terms)
        compiled = self.classes.get(key)
        if compiled is None:
            compiled = self.classes[key] = self._compile(demand.demand, demand.gang, types, key, demand.terms)
        return compiled

    def fits(self, demand: DemandClass) -> bool:
        """Return True if one instance (or the whole gang) could start now. The result False is
        cached until resources are released.
        """
        if demand.blocked_at == self.released:
            return False
        if demand.plain:
            by_gpus, whole = self.by_gpus, demand.whole
            for type_ in demand.types:
                if by_gpus[type_].used >> whole:
                    return True
        elif demand.roomy >= 0 and self.list[demand.roomy].room(demand):
            return True
        elif not demand.gang and demand.blocked_at >= 0 and (since := self.released - demand.blocked_at) <= _LOOK_BACK:
            for machine in list(self.recent)[-since:]:
                if machine.type in demand.types and machine.room(demand):
                    demand.roomy = machine.index
                    return True
        elif demand.gang:
            if any(self.fits_on(demand, type_) for type_ in demand.types):
                return True
        else:
            for type_ in demand.types:
                machine_index = self.best(demand, type_)
                if machine_index >= 0:
                    demand.roomy = machine_index
                    return True
        demand.blocked_at = self.released
        return False

    def fits_on(self, demand: DemandClass, type_: int) -> bool:
        """Return True if one instance (or the whole gang) could start now on machines of
        ``type_``."""
        if demand.gang:
            return self._fits_gang(demand, type_)
        if demand.plain:
            return self.by_gpus[type_].used >> demand.whole != 0
        return self.best(demand, type_) >= 0

    def types_with_room(self, demand: DemandClass) -> list[int]:
        """Return the types on which one instance (or the whole gang) could start now. If there are
        none, this result is cached, as in ``fits``.
        """
        if demand.blocked_at == self.released:
            return []
        if demand.gang:
            room = [type_ for type_ in demand.types if self._fits_gang(demand, type_)]
        elif demand.plain:
            by_gpus, whole = self.by_gpus, demand.whole
            room = [type_ for type_ in demand.types if by_gpus[type_].used >> whole]
        else:
            room = [type_ for type_ in demand.types if self.best(demand, type_) >= 0] if self.fits(demand) else []
        if not room:
            demand.blocked_at = self.released
        return room

    def best(self, demand: DemandClass, type_: int) -> int:
        """Return the best fit: of the machines of ``type_`` on which one instance fits, the one
        with the least free resources. Return -1 if there is none.
        """
        if demand.plain and not self.asleep:
            return self.by_gpus[type_].first(demand.whole)
        if demand.share:
            return self._best_share(demand, type_)
        return next((machine.index for machine in self.with_room(demand, type_)), -1)

    def with_room(self, demand: DemandClass, type_: int, most_free_first: bool = False) -> Iterator[NodeState]:
        """Yield the machines of ``type_`` on which one instance fits, starting with those that have
        the fewest (or most) free resources. Machines with too few CPUs or too little memory are
        skipped without being visited.
        """
        machines = self.list
        if demand.terms is not None and demand.gang:
            if demand.bound:
                self._focus(demand, type_)
            if demand.counted:
                self._choose(demand, type_)
        for among in self.awake_first(self._enough(demand)):
            for index in self._candidates(demand, type_, most_free_first, among):
                machine = machines[index]
                if machine.room(demand):
                    yield machine

    def candidates(self, demand: DemandClass, type_: int, most_free_first: bool = False) -> Iterator[int]:
        """Return the machines of ``type_`` on which one instance may fit, starting with those that
        have the fewest (or most) free resources. For GPU demands, the machines are sorted by idle
        GPUs, and for CPU-only demands by free cores. For a fractional demand, machines with a
        partly used GPU come first. CPUs and memory are not checked, so use ``NodeState.room`` for
        that.
        """
        sets = self.awake_first(demand.nodes)
        return chain(*[self._candidates(demand, type_, most_free_first, among) for among in sets])

    def awake_first(self, nodes: int) -> tuple[int, ...]:
        """Split a bit set of nodes into those that are powered up and those that would have to
        boot.
        """
        return (nodes & ~self.asleep, nodes & self.asleep) if self.asleep else (nodes,)

    def candidate_set(self, demand: DemandClass, type_: int) -> int:
        """Return the same machines as ``candidates``, but as a bit set."""
        if demand.whole:
            return demand.nodes & self.by_gpus[type_].having(demand.whole)
        if demand.share:
            return demand.nodes & (self.shared[type_] | self.by_gpus[type_].having(1))
        return demand.nodes & self._cpu_levels()[type_].having(_cores(demand.cpus))

    def fit(self, demand: DemandClass, type_: int, waiting: int) -> Placement | None:
        """Return a placement on ``type_`` by best fit, or ``None`` if nothing fits. As many
        independent instances as fit are placed on a single machine. A gang is placed on the fullest
        machine that can hold all of it, or else on as few machines as possible.
        """
        # ``best`` is inlined here, because most starts use this function
        if demand.plain and not self.asleep:
            levels = self.by_gpus[type_]
            used = levels.used >> demand.whole << demand.whole
            if not used:
                return None
            machines = levels.sets[(used & -used).bit_length() - 1]
            index = (machines & -machines).bit_length() - 1
        elif demand.gang:
            return self._fit_gang(demand, type_)
        else:
            index = self.best(demand, type_)
            if index < 0:
                return None
        if waiting == 1:
            return self._alone[index]
        return (Share(index, min(waiting, self.list[index].room(demand))),)

    def take(self, machine: NodeState, demand: DemandClass, count: int, gpu: int | None) -> tuple[int, tuple[int, ...]]:
        """Occupy resources of ``machine`` for ``count`` instances, which must fit
        (``NodeState.room``). Return the bit mask of the GPUs that are now held. For a fractional
        demand, also return the GPU of each instance and, with MIG, the partition.
        """
        mask: int = 0
        on: tuple[int, ...] = ()
        machine.remade = False
        if demand.whole:
            needed = demand.whole * count
            free = machine.free
            mask = free & -free
            if needed == machine.idle:
                mask = free
            elif needed > 1:
                for _ in range(needed - 1):
                    mask |= (free ^ mask) & -(free ^ mask)
            if machine.layouts:
                mask = machine.take_whole(needed)
            machine.free = free ^ mask
            self._set_idle(machine, machine.idle - needed)
            if demand.plain:
                return mask, on
        elif demand.share:
            on = tuple([self._take_share(machine, demand, gpu) for _ in range(count)])
            for place in on:
                mask |= 1 << NodeState.gpu_at(place)
        if demand.cpus or demand.memory:
            self._set_cpus(machine, machine.cpus - demand.cpus * count)
            self._set_memory(machine, machine.memory - demand.memory * count)
        return mask, on

    def give(self, machine: NodeState, demand: DemandClass, count: int, mask: int, on: tuple[int, ...]) -> None:
        """Release the resources that ``take`` occupied."""
        self.released += 1
        self.recent.append(machine)
        if demand.whole:
            machine.free |= mask
            self._set_idle(machine, machine.idle + demand.whole * count)
            if demand.plain:
                return
        elif demand.share:
            for place in on:
                self._give_share(machine, demand, place)
        if demand.cpus or demand.memory:
            self._set_cpus(machine, machine.cpus + demand.cpus * count)
            self._set_memory(machine, machine.memory + demand.memory * count)

    def join(self, machine: NodeState, demand: DemandClass, count: int) -> None:
        """Occupy only CPUs and memory, because the GPUs belong to another run."""
        if demand.cpus or demand.memory:
            self._set_cpus(machine, machine.cpus - demand.cpus * count)
            self._set_memory(machine, machine.memory - demand.memory * count)

    def leave(self, machine: NodeState, demand: DemandClass, count: int) -> None:
        """Release only CPUs and memory, because another run keeps the GPUs."""
        self.released += 1
        self.recent.append(machine)
        self.join(machine, demand, -count)

    def lend_cpus(self, machine: NodeState, cpus: int) -> None:
        """Free CPUs (in millionths) of a run that keeps its other resources. If the number is
        negative, occupy them again.
        """
        self.released += 1
        self.recent.append(machine)
        self._set_cpus(machine, machine.cpus + cpus)

    def take_down(self, machine: NodeState) -> None:
        """Remove a machine from every index. The caller has to end the runs on the machine."""
        bit = 1 << machine.index
        self.downs += 1
        self.by_gpus[machine.type].remove(bit, machine.idle)
        self.shared[machine.type] &= ~bit
        for free in set(machine.shares.values()):
            self.by_share[machine.type].remove(bit, free)
        if self.by_cpus is not None:
            self.by_cpus[machine.type].remove(bit, _cores(machine.cpus))
        machine.up = False

    def bring_up(self, machine: NodeState, now: float) -> None:
        """Add a repaired machine to the indexes again."""
        bit = 1 << machine.index
        machine.up, self.returned_s = True, now
        self.released += 1
        self.recent.append(machine)
        self.by_gpus[machine.type].add(bit, machine.idle)
        if machine.shares:
            self.shared[machine.type] |= bit
        for free in set(machine.shares.values()):
            self.by_share[machine.type].add(bit, free)
        if self.by_cpus is not None:
            self.by_cpus[machine.type].add(bit, _cores(machine.cpus))

    def idle_gpus(self, type_: int) -> int:
        """Return the number of completely idle GPUs of one type on all machines that are up."""
        return self.by_gpus[type_].total()

    def restricted(self, job: Job, task: Task, limit_s: float, now: float) -> DemandClass | None:
        """Return the class of a task to which rules of the site apply, with the nodes on which it
        may start ``now``. Return None if no rule applies.
        """
        gang = task.instances if task.gang else 0
        terms = None if self.site is None else self.site.terms(job, limit_s, gang)
        if self.site is None or terms is None:
            return None
        demand = self.compile(task.demand, gang, terms)
        demand.open_to(self.site.open(demand.terms or terms, now))
        self.reopen_s = min(self.reopen_s, self.site.next_s(terms, now))
        return demand

    def reopen(self, now: float) -> None:
        """Update the nodes on which each restricted class may start at ``now``."""
        self.reopen_s, site = inf, self.site
        if site is None:
            return
        self.judged.clear()
        self.returned_s = now
        self.released += _LOOK_BACK + 1  # demand classes that did not fit must search all nodes again
        for demand in self.classes.values():
            if demand.terms is not None:
                demand.open_to(site.open(demand.terms, now))
                self.reopen_s = min(self.reopen_s, site.next_s(demand.terms, now))

    def hopeless(self, now: float, lasting: int) -> set[DemandClass]:
        """Return the classes that will never fit again. ``lasting`` is a bit set of the nodes that
        are up or will come back. The result is cached until this set changes, or until the site's
        rules open or close nodes.
        """
        site = self.site
        if lasting != self._judged_on:
            self.judged.clear()
            self._judged_on = lasting
        for demand in self.classes.values():
            if demand not in self.judged:
                nodes = lasting if site is None else site.lasting(demand.terms, now) & lasting
                self.judged[demand] = self.holds(demand, nodes)
        return {demand for demand, fits in self.judged.items() if not fits}

    @contextmanager
    def within(self, demand: DemandClass, nodes: int) -> Iterator[None]:
        """Restrict the placement of tasks of a class to these nodes (a bit set) while the ``with`` block is running."""
        kept = demand.blocked_at, demand.roomy
        demand.blocked_at = demand.roomy = -1
        try:
            with demand.as_if_open_to(demand.opened & nodes):
                yield
        finally:
            demand.blocked_at, demand.roomy = kept

    def hold(self, demand: DemandClass, sign: int, now: float) -> None:
        """Take the licences for a start (if ``sign`` is 1), or return them (if it is -1)."""
        if self.site is not None and demand.terms is not None and demand.terms.licences:
            self.site.take(demand.terms.licences, sign)
            self.released += _LOOK_BACK + 1 if sign < 0 else 0
            for other in self.classes.values():
                if other.terms is not None and other.terms.licences:
                    other.open_to(self.site.open(other.terms, now))

    def _allowed(self, demand: Demand) -> tuple[int, ...]:
        """Return the types that ``demand`` names. If it names none, return all types on which it
        may run.
        """
        types = list(range(len(self.types)))
        if demand.gpus > 0:
            types = [index for index in types if self.types[index] is not None]
        if demand.gpu_types is not None:
            allowed = named_types(demand.gpu_types)
            types = [index for index in types if (gpu := self.types[index]) is not None and gpu.name in allowed]
        return tuple(types)

    def _compile(
        self, demand: Demand, gang: int, types: tuple[int, ...], key: object, terms: Terms | None
    ) -> DemandClass:
        compiled = DemandClass(demand, gang, types, len(self.classes), key, terms)
        compiled.sliced = parted_types(demand.gpu_types)
        if compiled.counted and not any(self._could_count(compiled, (index,)) for index in types):
            # Most policies run a gang on a single type. If only several types together can satisfy
            # the counts, such a policy checks only that each node has one of the counted features.
            # The counts are kept for policies that mix types.
            compiled.counted = not self._could_count(compiled, types)
            if not compiled.counted and terms is not None:
                parts = reduce(or_, [count.nodes for count in terms.counts])
                compiled.terms = terms._replace(nodes=terms.nodes & parts)
                compiled.open_to(compiled.nodes & parts)
        if not types:
            compiled.rejected = RejectReason.NO_SUCH_GPU
        elif not self.holds(compiled, compiled.nodes):
            compiled.rejected = RejectReason.TOO_LARGE
        if compiled.cpus:
            self._enough_cpus.ask(compiled.cpus, ((machine.bit, machine.cpus) for machine in self.list))
        if compiled.memory:
            self._enough_memory.ask(compiled.memory, ((machine.bit, machine.memory) for machine in self.list))
        return compiled

    def holds(self, demand: DemandClass, nodes: int) -> bool:
        """Return True if an instance, or the whole gang, would fit on these nodes (a bit set) if
        they were empty. Whether a task can ever start depends only on this method and on the rules
        of the policy.
        """
        fits = self._held_on.get((demand, nodes))
        if fits is None:
            with demand.as_if_open_to(nodes):
                fits = any(self._largest(demand, type_) >= max(demand.gang, 1) for type_ in demand.types)
            self._held_on[demand, nodes] = fits
        return fits

    def capacity(self, demand: DemandClass, type_: int, *, now: float | None = None) -> int:
        """Return how many instances would fit on all machines of ``type_`` together if these
        machines were empty. Machines that are closed to these instances now are included. A gang
        must be placed within one of its domains. If ``now`` is given, only the machines that are
        ``usable`` at that time count.
        """
        everywhere = ALL if demand.terms is None else demand.terms.nodes
        with demand.as_if_open_to(everywhere if now is None else self.usable(now, demand.terms)):
            return self._largest(demand, type_)

    def usable(self, now: float, terms: Terms | None = None) -> int:
        """Return a bit set of the nodes that are up and not permanently closed to a task with these
        terms.
        """
        up = sum(machine.bit for machine in self.list if machine.up)
        return up if self.site is None else up & self.site.lasting(terms, now)

    def room_on_idle(self, demand: DemandClass, type_: int) -> int:
        """Return how many instances would fit on all machines of ``type_`` that are open to them,
        if these machines were empty.
        """
        room = 0
        if demand.counted and not self._could_count(demand, (type_,)):
            return 0
        for equal in self._shapes[type_]:
            if open_ := equal & demand.nodes:
                first = (open_ & -open_).bit_length() - 1
                room += open_.bit_count() * self.list[first].emptied().room(demand)
        return room

    def _largest(self, demand: DemandClass, type_: int) -> int:
        """Return how many instances of a gang would fit on the machines of a type within one of its
        domains if these machines were empty.
        """
        if not demand.bound:
            return self.room_on_idle(demand, type_)
        rooms = [0]
        for domain in demand.terms.domains:  # type: ignore[union-attr]
            demand.nodes = demand.opened & domain
            rooms.append(self.room_on_idle(demand, type_))
        demand.widen()
        return max(rooms)

    def _could_count(self, demand: DemandClass, types: tuple[int, ...]) -> bool:
        """Return True if nodes of these types, when empty, could satisfy the node counts of a gang."""
        empty = [
            machine.index
            for machine in self.list
            if machine.type in types and machine.bit & demand.nodes and machine.emptied().room(demand)
        ]
        return nodes_by_counts(empty, demand.gang, demand.terms.counts) is not None  # type: ignore[union-attr]

    def _choose(self, demand: DemandClass, type_: int) -> None:
        """Choose as many nodes as the gang has instances, so that the nodes satisfy the gang's node
        counts, and store them in ``demand.nodes``. If this is impossible, store an empty set.
        """
        if not demand.bound:
            demand.widen()
        there = [
            index
            for index in self._candidates(demand, type_, False, self._enough(demand))
            if self.list[index].room(demand)
        ]
        chosen = nodes_by_counts(there, demand.gang, demand.terms.counts)  # type: ignore[union-attr]
        demand.nodes = sum([1 << index for index in chosen or ()])

    def _focus(self, demand: DemandClass, type_: int) -> None:
        """Store in ``demand.nodes`` the tightest domain in which the gang fits. If it fits in no
        domain, store an empty set.
        """
        best, chosen = 0, 0
        for domain in demand.terms.domains:  # type: ignore[union-attr]
            demand.nodes = domain & demand.opened
            indexes = self._candidates(demand, type_, False, self._enough(demand))
            room = sum([self.list[index].room(demand) for index in indexes])
            if room >= demand.gang and (not chosen or room < best):
                best, chosen = room, demand.nodes
        demand.nodes = chosen

    def _enough(self, demand: DemandClass) -> int:
        """Return a bit set that contains all machines with enough CPUs and memory for one instance.
        The set may also contain other machines.
        """
        enough = demand.nodes
        if demand.cpus:
            enough &= self._enough_cpus.having(demand.cpus)
        return enough & self._enough_memory.having(demand.memory) if demand.memory else enough

    def _candidates(self, demand: DemandClass, type_: int, most_free_first: bool, among: int) -> Iterator[int]:
        if demand.whole:
            levels, least = self.by_gpus[type_], demand.whole
        elif demand.share:
            return self._share_candidates(type_, most_free_first, among)
        else:
            levels, least = self._cpu_levels()[type_], _cores(demand.cpus)
        return levels.from_most(least, among) if most_free_first else levels.from_least(least, among)

    def _fits_gang(self, demand: DemandClass, type_: int) -> bool:
        needed, whole = demand.gang, demand.whole
        if whole and demand.nodes == ALL:
            has_room = self.by_gpus[type_].has_room(whole, needed)
            if not has_room or not (demand.cpus or demand.memory):
                return has_room
        for machine in self.with_room(demand, type_):
            needed -= machine.room(demand)
            if needed <= 0:
                return True
        return False

    def _fit_gang(self, demand: DemandClass, type_: int) -> Placement | None:
        if demand.whole and demand.nodes == ALL and not (demand.cpus or demand.memory or self.asleep):
            packed = self.by_gpus[type_].packed(demand.whole, demand.gang)
            return None if packed is None else tuple([Share(index, instances) for index, instances in packed])
        whole, total = demand.whole * demand.gang, 0
        roomy: list[tuple[bool, int, int]] = []
        for machine in self.with_room(demand, type_):
            room, asleep = machine.room(demand), bool(machine.bit & self.asleep)
            if asleep and total >= demand.gang:
                break
            if room >= demand.gang and machine.idle >= whole:
                return (Share(machine.index, demand.gang),)
            roomy.append((asleep, -room, machine.index))
            total += room
        roomy.sort()
        needed, shares = demand.gang, []
        for _, room, index in roomy:
            shares.append(Share(index, min(needed, -room)))
            needed -= shares[-1].instances
            if not needed:
                return tuple(shares)
        return None

    def _best_share(self, demand: DemandClass, type_: int) -> int:
        """Return the machine with the partly used GPU on which the share would leave the least
        free. If the share fits on no partly used GPU, return the first machine with an idle GPU, or
        -1.
        """
        machines = self.list
        for among in self.awake_first(self._enough(demand)):
            partly = self.shared[type_] & among
            if partly:
                for index in self.by_share[type_].tightest(demand.share, partly):
                    if machines[index].room(demand):
                        return index
            for index in self._with_idle_gpu(type_, among):
                if machines[index].room(demand):
                    return index
        return -1

    def _with_idle_gpu(self, type_: int, among: int) -> Iterator[int]:
        """Yield the machines with a completely idle GPU. Machines that also have a partly used GPU
        come first, by number. The others follow, starting with those that have the fewest idle
        GPUs.
        """
        levels, partly = self.by_gpus[type_], self.shared[type_]
        yield from bits(partly & among & ~levels.sets.get(0, 0))
        yield from levels.from_least(1, among & ~partly)

    def _share_candidates(self, type_: int, most_free_first: bool, among: int) -> Iterator[int]:
        levels, partly = self.by_gpus[type_], self.shared[type_]
        if most_free_first:
            yield from levels.from_most(1, among)
            yield from bits(partly & among & levels.sets.get(0, 0))
        else:
            yield from bits(partly & among)
            yield from levels.from_least(1, among & ~partly)

    def _set_idle(self, machine: NodeState, idle: int) -> None:
        if machine.up:
            levels, sets, bit, was = machine.levels, machine.levels.sets, machine.bit, machine.idle
            left = sets[was] = sets[was] ^ bit
            if not left:
                levels.used ^= 1 << was
            there = sets.get(idle)
            if there:
                sets[idle] = there | bit
            else:
                sets[idle] = bit
                levels.used |= 1 << idle
        machine.idle = idle

    def _set_cpus(self, machine: NodeState, cpus: int) -> None:
        if self.by_cpus is not None and machine.up and (was := _cores(machine.cpus)) != (will := _cores(cpus)):
            levels = self.by_cpus[machine.type]
            levels.remove(machine.bit, was)
            levels.add(machine.bit, will)
        self._enough_cpus.moved(machine.bit, machine.cpus, cpus)
        machine.cpus = cpus

    def _set_memory(self, machine: NodeState, memory: int) -> None:
        self._enough_memory.moved(machine.bit, machine.memory, memory)
        machine.memory = memory

    def _cpu_levels(self) -> list[FreeIndex]:
        if self.by_cpus is None:
            self.by_cpus = [FreeIndex() for _ in self.types]
            for machine in self.list:
                if machine.up:
                    self.by_cpus[machine.type].add(machine.bit, _cores(machine.cpus))
        return self.by_cpus

    def _take_share(self, machine: NodeState, demand: DemandClass, gpu: int | None) -> int:
        """Occupy a share of a GPU. If no GPU is named, use the fullest partly used GPU on which the
        share fits, or else an idle GPU. With MIG, GPUs that already have the partition are
        preferred among equally full GPUs.
        """
        shares = machine.shares
        if machine.mig is not None:
            gpu = machine.gpu_for(demand, gpu)
        elif gpu is None:
            room = [(free, index) for index, free in shares.items() if free >= demand.share]
            gpu = min(room)[1] if room else (machine.free & -machine.free).bit_length() - 1
        was, idle = shares.get(gpu), machine.idle
        place = machine.take_part(demand, gpu)
        self._part_moved(machine, was, shares.get(gpu), idle)
        return place

    def _give_share(self, machine: NodeState, demand: DemandClass, place: int) -> None:
        gpu = place if machine.mig is None else machine.gpu_at(place)
        was, idle = machine.shares[gpu], machine.idle
        machine.give_part(demand, place)
        self._part_moved(machine, was, machine.shares.get(gpu), idle)

    def _part_moved(self, machine: NodeState, was: int | None, now: int | None, idle: int) -> None:
        """Update the indexes after a part of a GPU was occupied or released. ``was`` and ``now`` are
        the GPU's free millionths, or None if it is idle. Before, the node had ``idle`` idle GPUs.
        """
        shares, type_ = machine.shares, machine.type
        if machine.up:
            if was is not None and was not in shares.values():
                self.by_share[type_].remove(machine.bit, was)
            if now is not None:
                self.by_share[type_].add(machine.bit, now)
            self.shared[type_] = self.shared[type_] | machine.bit if shares else self.shared[type_] & ~machine.bit
        if idle != machine.idle:
            machine.idle, idle = idle, machine.idle
            self._set_idle(machine, idle)


def _cores(cpus: int) -> int:
    """Return the level of a machine with ``cpus`` free: its number of whole free cores. Each level
    is one bit of an integer, so all amounts above 4,095 share the last level.
    """
    return min(cpus // MICRO, 4095)
