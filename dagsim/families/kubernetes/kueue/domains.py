"""Topology-aware scheduling: the choice of nodes for the pods of a workload in a tree of domains.

The *capacity* of a domain is the number of pods that still fit into it, and the number of slices
(groups of pods that must stay within one domain of the slice level). A pod set with few pods may be
the *leader* of the workers in another pod set. Both are then placed in the same domain. The rules
are those of Kueue's KEP 2724. Rules that the KEP does not state were inferred from Kueue's
decisions (docs/kubernetes.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dagsim.families.kubernetes.api.terms import HOSTNAME, Taint, Toleration
from dagsim.families.kubernetes.kueue.amounts import unit, whole
from dagsim.families.kubernetes.kueue.kueue_objects import (
    KueueTopology,
    PodSet,
    ResourceFlavor,
    TopologyNode,
    TopologyRequest,
)

Requests: TypeAlias = tuple[tuple[str, int], ...]
"""Amounts for one pod by resource, sorted."""

PodPlacement: TypeAlias = list[tuple["Domain", int]]
"""Lowest domains with their numbers of pods, in the order of the domains."""

_HARD_EFFECTS = ("NoSchedule", "NoExecute")


def untolerated(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """Return the first taint that keeps the pods away."""
    for taint in taints:
        if taint.effect in _HARD_EFFECTS and not any(toleration.tolerates(taint) for toleration in tolerations):
            return taint
    return None


@dataclass(frozen=True, slots=True)
class PodSetDemand:
    """The pods of one pod set that have to be placed. ``implied`` is set if the pod set requests no
    topology, but its queue has only flavors with one."""

    pod_set: PodSet
    requests: Requests
    count: int
    implied: bool

    @property
    def request(self) -> TopologyRequest:
        """Return the request of the pod set."""
        return self.pod_set.topology or TopologyRequest()


class Domain:
    """A node in the tree of domains. ``pods`` and ``slices`` first contain the domain's capacity,
    and later the numbers that are assigned to it. ``*_beside`` is the capacity that is left if a
    leader is placed there as well. ``leaders`` is 1 if a leader fits into the domain."""

    __slots__ = (
        "children", "free", "labels", "leaders", "number", "pods", "pods_beside", "slices", "slices_beside", "taints",
        "used", "values",
    )  # fmt: skip

    def __init__(self, values: tuple[str, ...]) -> None:
        self.values = values
        self.children: list[Domain] = []
        self.pods = self.slices = self.pods_beside = self.slices_beside = self.leaders = 0
        self.number = 0
        """Its index among the lowest domains."""
        self.free: dict[str, int] = {}
        self.used: dict[str, int] = {}
        self.labels: Mapping[str, str] = {}
        self.taints: tuple[Taint, ...] = ()


class TopologyTree:
    """The domains of one flavor and the pods in them."""

    def __init__(self, flavor: ResourceFlavor, topology: KueueTopology, nodes: Iterable[TopologyNode]) -> None:
        self.name, self.keys = topology.name, topology.levels
        self._tolerations = flavor.tolerations
        self.by_host = bool(self.keys) and self.keys[-1] == HOSTNAME
        domains: dict[tuple[str, ...], Domain] = {}
        for node in nodes:
            in_flavor = all(node.labels.get(key) == value for key, value in flavor.node_labels.items())
            if not in_flavor or not all(key in node.labels for key in self.keys):
                continue
            values = tuple([node.labels[key] for key in self.keys])
            leaf = domains.setdefault(values, Domain(values))
            leaf.labels, leaf.taints = node.labels, node.taints
            for resource, amount in node.allocatable.items():
                leaf.free[resource] = leaf.free.get(resource, 0) + whole(resource, amount)
        self.leaves = [domains[values] for values in sorted(domains)]
        for number, leaf in enumerate(self.leaves):
            leaf.number = number
        self.levels: list[list[Domain]] = [[] for _ in self.keys]
        for leaf in self.leaves:
            child: Domain | None = leaf
            for depth in range(len(self.keys), 0, -1):
                new = depth == len(self.keys) or leaf.values[:depth] not in domains
                domain = domains.setdefault(leaf.values[:depth], Domain(leaf.values[:depth]))
                if child is not None and child is not domain:
                    domain.children.append(child)
                if new:
                    self.levels[depth - 1].append(domain)
                child = domain if new else None
                if not new:
                    break
        self._by_address = {self.address(leaf): leaf for leaf in self.leaves}
        self.changed: list[int] = []
        """Numbers of the lowest domains whose usage changed, in the order of the changes."""
        self._counts: dict[Requests, tuple[list[int], int]] = {}
        """By request: the number of pods that fit into each lowest domain, and how many changes
        were taken into account."""

    def address(self, leaf: Domain) -> tuple[str, ...]:
        """Return the label values that identify a lowest domain in an assignment. For a host, this
        is only its name.
        """
        return leaf.values[-1:] if self.by_host else leaf.values

    def find(self, address: Sequence[str]) -> Domain | None:
        """Return the lowest domain with the given address, or None if it does not exist."""
        return self._by_address.get(tuple(address))

    def add(self, leaf: Domain, requests: Requests, pods: int) -> None:
        """Add pods to a domain, or remove them if the number is negative."""
        for resource, amount in requests:
            leaf.used[resource] = leaf.used.get(resource, 0) + amount * pods
        leaf.used["pods"] = leaf.used.get("pods", 0) + unit("pods") * pods
        self.changed.append(leaf.number)

    def fits(self, leaf: Domain, requests: Requests, pods: int) -> bool:
        """Return True if the pods fit into the domain, apart from any limit on the number of
        pods."""
        return _pods_in({resource: leaf.free[resource] - leaf.used.get(resource, 0) for resource in leaf.free},
                        requests) >= pods  # fmt: skip

    def has_levels(self, request: TopologyRequest) -> bool:
        """Return True if this tree has all levels of the request."""
        level = self._level_of(request, implied=False)
        return level in self.keys and (not request.slice_level or request.slice_level in self.keys)

    # Placement.

    def place(
        self, demands: Sequence[PodSetDemand], *, empty: bool = False, exact: bool = True
    ) -> dict[str, PodPlacement] | tuple[str, str]:
        """Return a placement for each pod set, by name. If one does not fit, return its name and
        the reason instead. With ``empty``, pods that are already on the nodes are ignored. With
        ``exact``, the full reason is returned.
        """
        groups: dict[str, list[PodSetDemand]] = {}
        for number, demand in enumerate(demands):
            groups.setdefault(demand.request.group or f"{number}", []).append(demand)
        placements: dict[str, PodPlacement] = {}
        assumed: dict[int, dict[str, int]] = {}
        for group in groups.values():
            leader, workers = None, group[0]
            if len(group) > 1:
                leader = group[1]
                if leader.count > workers.count:
                    leader, workers = workers, leader
            placed = self._place_group(workers, leader, assumed, empty=empty, exact=exact)
            if isinstance(placed, str):
                return group[0].pod_set.name, placed
            placements |= placed
            for demand in group if len(groups) > 1 else ():
                for leaf, pods in placed[demand.pod_set.name]:
                    beside = assumed.setdefault(leaf.number, {})
                    for resource, amount in demand.requests:
                        beside[resource] = beside.get(resource, 0) + amount * pods
        return placements

    def _level_of(self, request: TopologyRequest, *, implied: bool) -> str:
        if request.required or request.preferred:
            return request.required or request.preferred
        if request.slice_level:
            return self.keys[0]
        return self.keys[-1] if request.unconstrained or implied else ""

    def _place_group(
        self, workers: PodSetDemand, leader: PodSetDemand | None, assumed: Mapping[int, Mapping[str, int]],
        *, empty: bool, exact: bool,
    ) -> dict[str, PodPlacement] | str:  # fmt: skip
        request = workers.request
        size = request.slice_size if request.slice_level else 1
        if not size:
            return "slice topology requested, but slice size not provided"
        key, slice_key = self._level_of(request, implied=workers.implied), request.slice_level or self.keys[-1]
        if not key:
            return "topology level not specified"
        for wanted, kind in ((key, ""), (slice_key, " for slices")):
            if wanted not in self.keys:
                return f"no requested topology level{kind}: {wanted}"
        level, slice_level = self.keys.index(key), self.keys.index(slice_key)
        if level > slice_level:
            return f"podset slice topology {slice_key} is above the podset topology {key}"
        only_slices = bool(request.slice_level) and not request.required and not request.preferred
        spread = _Spread(
            workers.count,
            int(leader is not None),
            size,
            least_free=request.unconstrained or workers.implied or only_slices,
        )
        shut_out = self._fill(workers, leader, assumed, slice_level, size, empty=empty)
        chosen = self._choose(level, spread, required=bool(request.required))
        if isinstance(chosen, int):
            return self._no_fit(workers, chosen, spread, shut_out if exact else None)
        level, domains = chosen
        domains = spread.hand_out(domains, spread.count, spread.leaders, size, by_slices=True)
        while level < min(len(self.levels) - 1, slice_level):
            below = spread.sorted([child for domain in domains for child in domain.children])
            domains = spread.hand_out(below, spread.count, spread.leaders, size, by_slices=True)
            level += 1
        while level < len(self.levels) - 1:
            domains = [
                child
                for domain in domains
                for child in spread.hand_out(
                    spread.sorted(domain.children), domain.pods, domain.leaders, 1, by_slices=False
                )
            ]
            level += 1
        domains.sort(key=lambda domain: domain.values)
        placed = {workers.pod_set.name: [(domain, domain.pods) for domain in domains if domain.pods]}
        if leader is not None:
            placed[leader.pod_set.name] = [(domain, domain.leaders) for domain in domains if domain.leaders > 0]
        return placed

    def _fill(
        self, workers: PodSetDemand, leader: PodSetDemand | None, assumed: Mapping[int, Mapping[str, int]],
        slice_level: int, size: int, *, empty: bool,
    ) -> dict[str, int]:  # fmt: skip
        """Compute the capacity of each domain. For each reason, return the number of lowest domains
        into which not even one pod fits.
        """
        pod = (*workers.requests, ("pods", unit("pods")))
        lead = None if leader is None else (*leader.requests, ("pods", unit("pods")))
        shut_out: dict[str, int] = {}
        pod_set = workers.pod_set
        picky = self.by_host and (pod_set.node_selector or pod_set.affinity or any(leaf.taints for leaf in self.leaves))
        tolerations = (*pod_set.tolerations, *self._tolerations)
        counts = self._counted(pod, empty=empty)
        for leaf, count in zip(self.leaves, counts, strict=True):
            leaf.leaders = 0
            if picky and (reason := _kept_away(leaf, pod_set, tolerations)):
                leaf.pods = leaf.pods_beside = 0
                shut_out[reason] = shut_out.get(reason, 0) + 1
                continue
            beside = assumed.get(leaf.number)
            if beside is None and lead is None:
                leaf.pods = leaf.pods_beside = count
                continue
            left = dict(leaf.free)
            for taken in () if beside is None else (beside,):
                for resource, amount in taken.items():
                    left[resource] = left.get(resource, 0) - amount
            if not empty:
                for resource, amount in leaf.used.items():
                    left[resource] = left.get(resource, 0) - amount
            leaf.pods = _pods_in(left, pod)
            if lead is not None and _pods_in(left, lead) > 0:
                leaf.leaders = 1
                for resource, amount in lead:
                    left[resource] = left.get(resource, 0) - amount
            leaf.pods_beside = _pods_in(left, pod)
        for depth in range(len(self.levels) - 1, -1, -1):
            for domain in self.levels[depth]:
                children = domain.children
                if children:
                    domain.pods = domain.slices = domain.leaders = 0
                    less_pods = less_slices = 1 << 62
                    for child in children:
                        domain.pods += child.pods
                        domain.slices += child.slices
                        if child.pods - child.pods_beside < less_pods:
                            less_pods = child.pods - child.pods_beside
                        if child.slices - child.slices_beside < less_slices:
                            less_slices = child.slices - child.slices_beside
                        if child.leaders > domain.leaders:
                            domain.leaders = child.leaders
                    domain.pods_beside, domain.slices_beside = domain.pods - less_pods, domain.slices - less_slices
                else:
                    domain.slices = domain.slices_beside = 0
                if depth == slice_level:
                    domain.slices, domain.slices_beside = domain.pods // size, domain.pods_beside // size
        return shut_out

    def _counted(self, pod: Requests, *, empty: bool) -> list[int]:
        """Return how many pods fit into each lowest domain. Only domains that have changed are
        counted again.
        """
        if empty:
            return [_pods_in(leaf.free, pod) for leaf in self.leaves]
        counts, seen = self._counts.get(pod, ([], -1))
        if len(self._counts) > 256:
            self._counts.clear()
        if seen < 0 or len(self.changed) - seen > len(self.leaves):
            numbers: Iterable[int] = range(len(self.leaves))
            counts = [0] * len(self.leaves)
        else:
            numbers = self.changed[seen:]
        for number in numbers:
            leaf, fewest = self.leaves[number], 1 << 31
            for resource, amount in pod:
                if amount:
                    free = leaf.free.get(resource)
                    room = 0 if free is None else _quotient(free - leaf.used.get(resource, 0), amount)
                    if room < fewest:
                        fewest = room
            counts[number] = fewest
        self._counts[pod] = (counts, len(self.changed))
        return counts

    def _choose(self, level: int, spread: _Spread, *, required: bool) -> tuple[int, list[Domain]] | int:
        """Return the level and the domains for the pod set. If too few slices fit, return the
        number of slices that fit instead.
        """
        count, leaders = spread.count // spread.size, spread.leaders
        domains = self.levels[level]
        if not domains:
            return 0
        ordered = spread.sorted_for_leaders(domains)
        first = ordered[0]
        if not spread.least_free and first.slices_beside >= count and first.leaders >= leaders:
            first = _best_fit(ordered, count, "slices_beside" if leaders else "slices")
        if spread.least_free:
            for domain in ordered:
                if domain.slices >= count:
                    return level, [domain]
            if required:
                return ordered[-1].pods
        if first.slices_beside >= count and first.leaders >= leaders:
            return level, [first]
        if required:
            return first.slices
        if level > 0 and not spread.least_free:
            return self._choose(level - 1, spread, required=required)
        return self._several(level, ordered, spread, count)

    def _several(
        self, level: int, ordered: list[Domain], spread: _Spread, count: int
    ) -> tuple[int, list[Domain]] | int:
        """Fill the domains in turn: first those into which a leader fits, then those with the
        largest capacity for workers.
        """
        taken: list[Domain] = []
        left, leaders, at = count, spread.leaders, 0
        while leaders > 0 and at < len(ordered) and ordered[at].leaders > 0:
            domain = ordered[at]
            if not spread.least_free and domain.slices_beside >= left:
                domain = _best_fit(ordered[at:], left, "slices_beside")
            taken.append(domain)
            leaders -= domain.leaders
            left -= domain.slices_beside
            at += 1
        if leaders > 0:
            return spread.leaders - leaders
        rest = spread.sorted(ordered[at:])
        for at, domain in enumerate(rest):
            if left <= 0:
                break
            if not spread.least_free and domain.slices >= left:
                domain = _best_fit(rest[at:], left, "slices")
            taken.append(domain)
            left -= domain.slices
        return count - left if left > 0 else (level, taken)

    def _no_fit(self, workers: PodSetDemand, fitting: int, spread: _Spread, shut_out: dict[str, int] | None) -> str:
        kind, count = "pod" if spread.size == 1 else "slice", spread.count // spread.size
        some = f"allows to fit only {fitting} out of {count}" if fitting else f"doesn't allow to fit any of {count}"
        text = f'topology "{self.name}" {some} {kind}(s)'
        if shut_out is None:
            return text
        for leaf in self.leaves:
            if leaf.pods == 0 and (scarce := _scarcest(leaf, workers.requests)):
                reason = f'resource "{scarce}"'
                shut_out[reason] = shut_out.get(reason, 0) + 1
        if shut_out:
            reasons = ", ".join(sorted(f"{reason}: {times}" for reason, times in shut_out.items()))
            text += f". Total nodes: {len(self.leaves)}; excluded: {reasons}"
        return text


@dataclass(slots=True)
class _Spread:
    """The rule by which the pods of one group are distributed over domains. With ``least_free``,
    domains with the smallest capacity are filled first. Otherwise, domains are chosen by best fit.
    """

    count: int
    leaders: int
    size: int
    least_free: bool

    def sorted(self, domains: Iterable[Domain]) -> list[Domain]:
        """Sort domains by their capacity for workers."""
        sign = 1 if self.least_free else -1
        return sorted(domains, key=lambda domain: (sign * domain.slices, domain.pods, domain.values))

    def sorted_for_leaders(self, domains: Iterable[Domain]) -> list[Domain]:
        """Sort domains. Those into which a leader fits come first, ordered by the capacity for
        workers that is left next to the leader.
        """
        sign = 1 if self.least_free else -1
        return sorted(
            domains,
            key=lambda domain: (-domain.leaders, sign * domain.slices_beside, domain.pods_beside, domain.values),
        )

    def hand_out(self, domains: list[Domain], count: int, leaders: int, size: int, *, by_slices: bool) -> list[Domain]:
        """Assign pods to the domains in order. The last domain is chosen by best fit. If the
        capacity is insufficient, return no domains at all, because Kueue does so.
        """
        room, room_beside = ("slices", "slices_beside") if by_slices else ("pods", "pods_beside")
        left = count // size if by_slices else count
        taken: list[Domain] = []
        for at, domain in enumerate(domains):
            if leaders > 0:
                if not self.least_free and getattr(domain, room_beside) >= left and domain.leaders >= leaders:
                    domain = _best_fit(domains[at:], left, room_beside)
                beside = getattr(domain, room_beside)
                if beside >= left and domain.leaders >= leaders:
                    setattr(domain, room, left)
                    domain.leaders, domain.pods = leaders, left * (size if by_slices else 1)
                    return [*taken, domain]
                if by_slices:
                    beside = min(beside, left)
                    domain.slices_beside, domain.leaders = beside, min(domain.leaders, leaders)
                    domain.pods = beside * size
                    leaders -= domain.leaders
                    left -= beside
                else:
                    left -= beside
                    leaders -= domain.leaders
                    domain.pods_beside, domain.leaders = min(beside, left), min(domain.leaders, leaders)
                taken.append(domain)
                continue
            if not self.least_free and getattr(domain, room) >= left:
                domain = _best_fit(domains[at:], left, room)
            domain.leaders = 0
            taken.append(domain)
            if getattr(domain, room) >= left:
                setattr(domain, room, left)
                domain.pods = left * (size if by_slices else 1)
                return taken
            left -= getattr(domain, room)
            if by_slices:
                domain.pods = domain.slices * size
        return []


def _best_fit(domains: Sequence[Domain], needed: int, room: str) -> Domain:
    """Return the domain with the smallest capacity that is sufficient. If none is sufficient,
    return the first domain.
    """
    best, least = domains[0], getattr(domains[0], room)
    for domain in domains:
        there = getattr(domain, room)
        if needed <= there < least:
            best, least = domain, there
    return best


def _pods_in(free: Mapping[str, int], requests: Requests) -> int:
    fewest: int = 1 << 31
    for resource, amount in requests:
        if amount:
            there = free.get(resource)
            if there is None:
                return 0
            fewest = min(fewest, _quotient(there, amount))
    return fewest


def _quotient(amount: int, divisor: int) -> int:
    """Divide and round towards zero, like Go."""
    return amount // divisor if amount >= 0 else -(-amount // divisor)


def _scarcest(leaf: Domain, requests: Requests) -> str:
    """Return the resource that allows the fewest pods in a domain."""
    fewest, scarce = 1 << 31, ""
    for resource, amount in sorted((*requests, ("pods", unit("pods")))):
        if amount:
            if resource not in leaf.free:
                return resource
            room = _quotient(leaf.free[resource] - leaf.used.get(resource, 0), amount)
            if room < fewest:
                fewest, scarce = room, resource
    return scarce


def _kept_away(leaf: Domain, pod_set: PodSet, tolerations: Sequence[Toleration]) -> str:
    """Return Kueue's message that states why a pod set cannot use a node, or an empty string if it
    can."""
    if (taint := untolerated(leaf.taints, tolerations)) is not None:
        return f'taint "{taint_text(taint)}"'
    if any(leaf.labels.get(key) != value for key, value in pod_set.node_selector.items()):
        return "nodeSelector"
    if pod_set.affinity and not any(all(one.holds(leaf.labels) for one in term) for term in pod_set.affinity):
        return "affinity"
    return ""


def taint_text(taint: Taint) -> str:
    """Write a taint as Kubernetes does."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"
