"""The search for flavors, which determines which flavor provides each resource of a workload, and
at which price.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dagsim.families.kubernetes.kueue.amounts import text, unit
from dagsim.families.kubernetes.kueue.domains import PodPlacement, PodSetDemand, Requests, untolerated
from dagsim.families.kubernetes.kueue.kueue_objects import FlavorFungibility, PodSet
from dagsim.families.kubernetes.kueue.snapshot import ClusterQueueState, FlavorGroup, Snapshot
from dagsim.families.kubernetes.kueue.workloads import Assignment, FlavorChoice, Mode, SetAssignment, WorkloadState

NO_FIT, NO_CANDIDATES, PREEMPT, RECLAIM, FIT = range(5)
"""The prices of a flavor, worst first: impossible, nothing to preempt, preemption also in the
workload's own queue, reclaim only from other queues, free."""

_MODES = {NO_FIT: Mode.NO_FIT, NO_CANDIDATES: Mode.PREEMPT, PREEMPT: Mode.PREEMPT, RECLAIM: Mode.PREEMPT, FIT: Mode.FIT}


class Price(NamedTuple):
    """The price of a flavor: how the quota can be obtained (``cost``), and the height of the
    subtree of cohorts from which it is borrowed.
    """

    cost: int
    borrowing: int


Oracle = Callable[[WorkloadState, ClusterQueueState, int, int], Price]
"""A function that returns the price at which preemption frees an amount in a slot."""


def is_better(one: Price, other: Price, rules: FlavorFungibility) -> bool:
    """Return True if a price is better than another."""
    if NO_FIT in (one.cost, other.cost):
        return one.cost != NO_FIT
    if rules.preference == "PreemptionOverBorrowing":
        return (-one.borrowing, one.cost) > (-other.borrowing, other.cost)
    return (one.cost, -one.borrowing) > (other.cost, -other.borrowing)


def stops_search(price: Price, rules: FlavorFungibility) -> bool:
    """Return True if the search need not try later flavors."""
    if price.cost in (NO_FIT, NO_CANDIDATES):
        return False
    if price.cost in (PREEMPT, RECLAIM) and rules.when_can_preempt == "TryNextFlavor":
        return False
    return price.borrowing == 0 or rules.when_can_borrow == "MayStopSearch"


class FlavorSearch:
    """Assigns flavors to workloads, based on one snapshot."""

    def __init__(self, snapshot: Snapshot, oracle: Oracle, *, fair: bool, exact: bool) -> None:
        self._snapshot, self._oracle, self._fair, self._exact = snapshot, oracle, fair, exact
        self._suitable: dict[tuple[str, int, int, int], list[str]] = {}

    def assign(
        self, workload: WorkloadState, queue: ClusterQueueState, counts: Sequence[int] | None = None
    ) -> Assignment:
        """Assign flavors and topology domains. ``counts`` contains the number of pods in each set
        if fewer pods than requested are to be admitted."""
        if workload.tried and queue.generation > workload.tried_generation:
            workload.tried = ()
        pod_sets = workload.spec.pod_sets
        assignment = Assignment()
        groups: dict[str, list[int]] = {}
        for number, pod_set in enumerate(pod_sets):
            together = pod_set.topology.group if pod_set.topology is not None else ""
            groups.setdefault(together or f"{number}", []).append(number)
        for members in groups.values():
            sets = [self._set(workload, queue, number, counts) for number in members]
            self._choose(workload, queue, members, sets, assignment)
            failed = False
            for one in sets:
                assignment.sets.append(one)
                for name, choice in one.choices.items():
                    assignment.borrowing = max(assignment.borrowing, choice.borrowing)
                    assignment.usage[choice.slot] = assignment.usage.get(choice.slot, 0) + one.totals[name]
                failed = failed or bool(one.totals and not one.choices)
            if failed:
                return assignment
        assignment.mode = min([one.mode for one in assignment.sets], default=Mode.NO_FIT)
        if assignment.mode is not Mode.NO_FIT and queue.trees:
            self._place(workload, queue, assignment)
        return assignment

    def _set(
        self, workload: WorkloadState, queue: ClusterQueueState, number: int, counts: Sequence[int] | None
    ) -> SetAssignment:
        pod_set = workload.spec.pod_sets[number]
        count = pod_set.count if counts is None else counts[number]
        totals = {name: amount * count for name, amount in workload.requests[number]}
        if "pods" in queue.group_of:
            totals["pods"] = unit("pods") * count
        return SetAssignment(pod_set.name, count, totals)

    def _choose(
        self,
        workload: WorkloadState,
        queue: ClusterQueueState,
        members: list[int],
        sets: list[SetAssignment],
        so_far: Assignment,
    ) -> None:
        """Choose one flavor per resource group for pod sets that have to stay together."""
        requests: dict[str, int] = {}
        for one in sets:
            for name, amount in one.totals.items():
                requests[name] = requests.get(name, 0) + amount
        choices: dict[str, FlavorChoice] = {}
        reasons: list[str] = []
        for name in sorted(requests):
            if name in choices or (not requests[name] and name not in queue.group_of):
                continue
            if name not in queue.group_of:
                choices, reasons = {}, [f"resource {name} unavailable in ClusterQueue"]
                break
            found, why = self._search(workload, queue, members, requests, name, so_far)
            if not found:
                choices, reasons = {}, why
                break
            choices |= found
            reasons += why
        for one in sets:
            one.choices = {name: choice for name, choice in choices.items() if name in one.totals}
            one.reasons = list(reasons)

    def _search(
        self, workload: WorkloadState, queue: ClusterQueueState, members: list[int], requests: dict[str, int],
        resource: str, so_far: Assignment,
    ) -> tuple[dict[str, FlavorChoice], list[str]]:  # fmt: skip
        """Search the flavors of a group. Return the best flavor for each resource, and the reasons
        why the other flavors do not fit."""
        number = queue.group_of[resource]
        group, rules = queue.groups[number], queue.spec.flavor_fungibility
        wanted = sorted((name, amount) for name, amount in requests.items() if name in group.resources)
        best: dict[str, FlavorChoice] = {}
        best_price = Price(NO_FIT, 1 << 30)
        reasons: list[str] = []
        at = -1
        unsuitable = self._unsuitable(workload, queue, members, number, group)
        for at in range(self._first(workload, members[0], resource), len(group.flavors)):
            flavor = group.flavors[at]
            if unsuitable[at]:
                reasons.append(unsuitable[at])
                continue
            price, choices = Price(FIT, 0), {}
            for name, amount in wanted:
                slot = self._snapshot.slots[flavor, name]
                one = self._price(workload, queue, slot, so_far.usage.get(slot, 0), amount, reasons)
                if is_better(price, one, rules):
                    price = one
                if price.cost == NO_FIT:
                    break
                choices[name] = FlavorChoice(flavor, slot, _MODES[one.cost], one.borrowing)
            if stops_search(price, rules):
                best, best_price = choices, price
                break
            if is_better(price, best_price, rules):
                best, best_price = choices, price
        for choice in best.values():
            choice.tried = -1 if at == len(group.flavors) - 1 else at
        return best, [] if best_price.cost == FIT else reasons

    def _first(self, workload: WorkloadState, number: int, resource: str) -> int:
        if number < len(workload.tried):
            for name, tried in workload.tried[number]:
                if name == resource:
                    return tried + 1
        return 0

    def _price(
        self, workload: WorkloadState, queue: ClusterQueueState, slot: int, before: int, amount: int, reasons: list[str]
    ) -> Price:
        """Return the price of an amount in a slot. ``before`` is the amount that other pod sets of
        the workload already take."""
        node, total = queue.node, before + amount
        flavor, resource = self._snapshot.names[slot]
        if total > node.most[slot]:
            reasons.append(
                f"insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests "
                f"({text(resource, before)}) + current podset request ({text(resource, amount)}) > maximum capacity "
                f"({text(resource, node.most[slot])})"
            )
            return Price(NO_FIT, 0)
        borrowing, below_root = node.height_that_fits(slot, total)
        available = max(0, node.available(slot))
        if total <= available:
            return Price(FIT, borrowing)
        missing = text(resource, total - available)
        reasons.append(f"insufficient unused quota for {resource} in flavor {flavor}, {missing} more needed")
        preemption = queue.spec.preemption
        while_borrowing = preemption.borrow_within_cohort.policy != "Never" or (
            self._fair and preemption.reclaim_within_cohort != "Never"
        )
        if total <= node.nominal[slot] or below_root or while_borrowing:
            return self._oracle(workload, queue, slot, total)
        return Price(NO_FIT, borrowing)

    def _unsuitable(
        self, workload: WorkloadState, queue: ClusterQueueState, members: list[int], number: int, group: FlavorGroup
    ) -> list[str]:
        """Return, for each flavor, the reason why the pods cannot run there, or an empty string if
        they can."""
        key = (queue.name, number, workload.shape, members[0])
        reasons = self._suitable.get(key)
        if reasons is None:
            pod_sets = [workload.spec.pod_sets[member] for member in members]
            requests = [workload.requests[member] for member in members]
            reasons = [
                next(
                    filter(
                        None, map(lambda one, each: self._why_not(queue, group, flavor, one, each), pod_sets, requests)
                    ),
                    "",
                )
                for flavor in group.flavors
            ]
            self._suitable[key] = reasons
        return reasons

    def _why_not(
        self, queue: ClusterQueueState, group: FlavorGroup, name: str, pod_set: PodSet, requests: Requests
    ) -> str:
        flavor = self._snapshot.flavors[name]
        explicit = pod_set.topology is not None and pod_set.topology.explicit
        if explicit:
            if not flavor.topology_name:
                if group.resources & {resource for resource, _ in requests}:
                    return f'Flavor "{name}" does not support TopologyAwareScheduling'
            elif name not in queue.trees:
                return f'Flavor "{name}" information missing in TAS cache'
            elif pod_set.topology is not None and not queue.trees[name].has_levels(pod_set.topology):
                return f'Flavor "{name}" does not contain the requested level'
        elif not queue.topology_only and flavor.topology_name:
            return f'Flavor "{name}" supports only TopologyAwareScheduling'
        taint = untolerated(flavor.node_taints, (*pod_set.tolerations, *flavor.tolerations))
        if taint is not None:
            return f"untolerated taint {{{taint.key} {taint.value} {taint.effect} <nil>}} in flavor {name}"
        if name in pod_set.excluded or not _selected(pod_set, group.label_keys, flavor.node_labels):
            return f"flavor {name} doesn't match node affinity"
        return ""

    # Topology.

    def demands(
        self, workload: WorkloadState, queue: ClusterQueueState, assignment: Assignment
    ) -> dict[str, list[PodSetDemand]]:
        """Return the pod sets that have to be placed, by flavor."""
        demands: dict[str, list[PodSetDemand]] = {}
        for number, one in enumerate(assignment.sets):
            pod_set = workload.spec.pod_sets[number]
            explicit = pod_set.topology is not None and pod_set.topology.explicit
            if not explicit and not queue.topology_only:
                continue
            flavors = {choice.flavor for choice in one.choices.values() if choice.flavor in queue.trees}
            if len(flavors) == 1 and one.placement is None:
                demand = PodSetDemand(pod_set, workload.requests[number], one.count, implied=not explicit)
                demands.setdefault(flavors.pop(), []).append(demand)
        return demands

    def place(
        self,
        queue: ClusterQueueState,
        assignment: Assignment,
        demands: dict[str, list[PodSetDemand]],
        *,
        empty: bool = False,
    ) -> tuple[str, str] | None:
        """Place all demands. Return the first pod set that does not fit, and the reason. Return
        None if all fit.
        """
        placements: dict[str, PodPlacement] = {}
        for flavor, asked in demands.items():
            placed = queue.trees[flavor].place(asked, empty=empty, exact=self._exact)
            if isinstance(placed, tuple):
                return placed
            placements |= placed
        for one in assignment.sets:
            one.placement = placements.get(one.name, one.placement)
        assignment.pods = self.pods_of(queue, assignment)
        return None

    def _place(self, workload: WorkloadState, queue: ClusterQueueState, assignment: Assignment) -> None:
        demands = self.demands(workload, queue, assignment)
        by_name = {one.name: one for one in assignment.sets}
        if assignment.mode is Mode.FIT:
            failure = self.place(queue, assignment, demands)
            if failure is None:
                return
            by_name[failure[0]].reasons.append(failure[1])
            _set_mode(by_name[failure[0]], Mode.PREEMPT)
            assignment.mode = Mode.PREEMPT
        trial = {flavor: queue.trees[flavor].place(asked, empty=True, exact=False) for flavor, asked in demands.items()}
        failure = next((placed for placed in trial.values() if isinstance(placed, tuple)), None)
        if failure is not None:
            _set_mode(by_name[failure[0]], Mode.NO_FIT)
            assignment.mode = Mode.NO_FIT
            return
        for asked in demands.values():
            for demand in asked:
                _set_mode(by_name[demand.pod_set.name], Mode.PREEMPT)

    @staticmethod
    def pods_of(queue: ClusterQueueState, assignment: Assignment) -> list[tuple[str, int, Requests, int]]:
        """Return the topology usage of an assignment during its cycle. Like Kueue, count the usage
        once for each resource that the flavor provides. After the cycle, it is counted only once.
        """
        pods = []
        for one in assignment.sets:
            in_topology = {name: choice.flavor for name, choice in one.choices.items() if choice.flavor in queue.trees}
            each = tuple(sorted((name, one.totals[name] // one.count) for name in in_topology)) if one.count else ()
            for leaf, count in one.placement or ():
                pods += [(flavor, leaf.number, each, count) for flavor in in_topology.values()]
        return pods


def _set_mode(one: SetAssignment, mode: Mode) -> None:
    for choice in one.choices.values():
        choice.mode = mode


def _selected(pod_set: PodSet, keys: frozenset[str], labels: Mapping[str, str]) -> bool:
    """Return True if the node selector and the affinity allow the labels. Only keys that occur in
    some flavor of the group count. An alternative without such a key allows every flavor."""
    if any(key in keys and labels.get(key) != value for key, value in pod_set.node_selector.items()):
        return False
    terms = [[one for one in term if one.key in keys] for term in pod_set.affinity]
    return not terms or not all(terms) or any(all(one.holds(labels) for one in term) for term in terms)
