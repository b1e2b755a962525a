"""The default plugins of kube-scheduler 1.35. They determine on which nodes a pod may run, and the
scores of these nodes.

The sources are the documentation of the plugins (kubernetes.io, Scheduling Framework, Assigning
Pods to Nodes, Pod Topology Spread Constraints, Resource Bin Packing), and 12,643 decisions of the
real program, which also showed how it rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise
from math import log
from typing import TypeAlias

import numpy as np

from dagsim.families.kubernetes.api.terms import HOSTNAME, Selector
from dagsim.families.kubernetes.kube.node_columns import CPU, MEMORY, NodeColumns, PodKey, by_domain, matches_all
from dagsim.families.kubernetes.kube.objects import UNSCHEDULABLE, Pod, Spread
from dagsim.families.kubernetes.kube.profile import BalancedArguments, FitArguments, Profile
from dagsim.model.arithmetic import whole_sum

_FITS, _FOR_NOW, _FOR_GOOD = 0, 1, 2
"""Outcomes of a filter for a node: the node passes, fails but preemption might help, or fails and
preemption cannot help."""
_KEEPS_AWAY = ("NoSchedule", "NoExecute")
_MANY = 1 << 31
_Check: TypeAlias = tuple[str, np.ndarray, str, int]
"""A plugin, the nodes that fail its check, the reason, and their outcome."""


class Filters:
    """The filters of a profile, applied to a snapshot."""

    def __init__(self, profile: Profile, snapshot: NodeColumns) -> None:
        self._profile = profile
        self._snapshot = snapshot

    def verdicts(self, pod: Pod) -> tuple[np.ndarray, dict[str, int]]:
        """Return the outcome of all filters for each node: 0 if the node passes, 1 if preemption
        might help, and 2 otherwise. Also return the number of nodes for each reason, in the words
        of kube-scheduler. A node counts once for each resource that it lacks. Nominated pods are
        ignored."""
        static = self.static(pod)
        verdict = np.where(static == 0, _FITS, _FOR_GOOD)
        counts = {reason: int((static == number).sum()) for number, reason in enumerate(_STATIC, 1)}
        for plugin, checks in groupby(self._dynamic(pod, None), lambda check: check[0]):
            before = verdict == _FITS
            for _, fails, reason, outcome in checks:
                failed = fails & (before if plugin == "NodeResourcesFit" else verdict == _FITS)
                verdict[failed] = outcome
                counts[reason] = counts.get(reason, 0) + int(failed.sum())
        return verdict, {reason: count for reason, count in counts.items() if count}

    def passing(self, pod: Pod) -> np.ndarray:
        """Return True for each node that passes all filters. Nominated pods are ignored."""
        passing: np.ndarray = self.static(pod) == 0
        for _, fails, _, _ in self._dynamic(pod, None):
            passing &= ~fails
        return passing

    def passes(self, pod: Pod, node: int) -> bool:
        """Return True if the node passes all filters. Nominated pods are ignored."""
        if self.static(pod)[node]:
            return False
        return not any(bool(fails) for _, fails, _, _ in self._dynamic(pod, node))

    def passes_with_nominated(self, pod: Pod, key: PodKey, priority: float, node: int) -> bool:
        """Return True if the node passes all filters in both cases: with and without the other pods
        that are nominated for it and have at least the same priority.
        """
        snapshot = self._snapshot
        others = [
            bound
            for bound in snapshot.nominated.get(node, {}).values()
            if bound.priority >= priority and bound.key != key
        ]
        if others:
            with snapshot.trial() as add:
                for bound in others:
                    add(node, bound)
                if not self.passes(pod, node):
                    return False
        return self.passes(pod, node)

    def static(self, pod: Pod) -> np.ndarray:
        """Return, for each node, the number of the first filter that rejects the node because of
        its description alone, or 0 if there is none."""
        profile, nodes = self._profile, self._snapshot.nodes
        on = profile.filters

        def compute() -> np.ndarray:
            column = np.zeros(len(nodes), np.int8)
            for index, node in enumerate(nodes):
                if (
                    node.cordoned
                    and "NodeUnschedulable" in on
                    and not any(toleration.tolerates(UNSCHEDULABLE) for toleration in pod.tolerations)
                ):
                    column[index] = 1
                elif "TaintToleration" in on and node.untolerated(pod.tolerations, _KEEPS_AWAY):
                    column[index] = 2
                elif "NodeAffinity" in on and not (
                    node.selected(pod.node_terms) and (not profile.added_terms or node.selected(profile.added_terms))
                ):
                    column[index] = 3
            return column

        return self._snapshot.about_nodes(("static", pod.tolerations, pod.node_terms), compute)

    def _dynamic(self, pod: Pod, node: int | None) -> Iterator[_Check]:
        """Yield the verdicts of the filters that depend on more than the descriptions of nodes, for
        all nodes or for a single one.
        """
        on, snapshot = self._profile.filters, self._snapshot
        at: slice | int = slice(None) if node is None else node
        if pod.ports and "NodePorts" in on:
            where = range(len(snapshot.nodes)) if node is None else (node,)
            taken = np.array([snapshot.port_is_taken(index, pod.ports) for index in where], bool)
            yield "NodePorts", taken[0] if node is not None else taken, _PORTS, _FOR_NOW
        if "NodeResourcesFit" in on:
            yield from self._resources(pod, at)
        if "PodTopologySpread" in on and (constraints := _constraints(self._profile, pod, must=True)):
            for constraint in constraints:
                missing, skewed = self._skewed(pod, constraint, constraints)
                yield "PodTopologySpread", missing[at], f"{_SPREAD} (missing required label)", _FOR_GOOD
                yield "PodTopologySpread", skewed[at], _SPREAD, _FOR_NOW
        if "InterPodAffinity" in on:
            yield from self._pod_affinity(pod, at)

    def _resources(self, pod: Pod, at: slice | int) -> Iterator[_Check]:
        snapshot = self._snapshot
        yield "NodeResourcesFit", snapshot.count[at] >= snapshot.most_pods[at], "Too many pods", _FOR_NOW
        for name, size in pod.requests.items():
            if self._profile.ignores(name):
                continue
            row = snapshot.row.get(name)
            if row is None:
                yield "NodeResourcesFit", ~snapshot.is_open[at], f"Insufficient {name}", _FOR_NOW
            else:
                free = snapshot.allocatable[row, at] - snapshot.requested[row, at]
                yield "NodeResourcesFit", size > free, f"Insufficient {name}", _FOR_NOW

    def _skewed(self, pod: Pod, constraint: Spread, every: Sequence[Spread]) -> tuple[np.ndarray, np.ndarray]:
        """Return the nodes that lack the label of a spread constraint, and the nodes on which the
        pod would violate the constraint."""
        snapshot = self._snapshot
        domains = snapshot.domains(constraint.key)
        counted = eligible(snapshot, self._profile, pod, constraint)
        for other in every:
            counted = counted & (snapshot.domains(other.key) >= 0)
        column = snapshot.counts("spread", (constraint.selector, pod.namespace))
        sums = by_domain(domains, column, counted)
        there = np.unique(domains[counted])
        least = int(sums[counted].min()) if len(there) else _MANY
        if len(there) < constraint.min_domains:
            least = 0
        own = constraint.selector.matches(pod.labels)
        return domains < 0, (domains >= 0) & (sums + own - least > constraint.max_skew)

    def _pod_affinity(self, pod: Pod, at: slice | int) -> Iterator[_Check]:
        snapshot = self._snapshot
        if pod.affinity:
            column = snapshot.counts("terms", pod.affinity)
            everywhere = np.ones(len(snapshot.nodes), bool)[at]
            met, labelled, anywhere = everywhere, everywhere, False
            for term in pod.affinity:
                domains = snapshot.domains(term.key)
                sums = by_domain(domains, column)
                anywhere = anywhere or bool(sums.any())
                labelled = labelled & (domains[at] >= 0)
                met = met & (sums[at] > 0)
            # If the pods of a group require each other, the first of them finds no matching pod. It
            # may therefore run on any node.
            alone = not anywhere and matches_all(pod.affinity, pod)
            yield "InterPodAffinity", ~(labelled & (met | alone)), "node(s) didn't match pod affinity rules", _FOR_GOOD
        for term in pod.anti_affinity:
            sums = by_domain(snapshot.domains(term.key), snapshot.counts("terms", (term,)))
            yield "InterPodAffinity", sums[at] > 0, "node(s) didn't match pod anti-affinity rules", _FOR_NOW
        for term, _, column in snapshot.held("anti"):
            if term.matches(pod):
                sums = by_domain(snapshot.domains(term.key), column)
                yield "InterPodAffinity", sums[at] > 0, _OTHERS, _FOR_NOW


_STATIC = (
    "node(s) were unschedulable",
    "node(s) had untolerated taint(s)",
    "node(s) didn't match Pod's node affinity/selector",
)
_PORTS = "node(s) didn't have free ports for the requested pod ports"
_SPREAD = "node(s) didn't match pod topology spread constraints"
_OTHERS = "node(s) didn't satisfy existing pods anti-affinity rules"


def _constraints(profile: Profile, pod: Pod, *, must: bool) -> Sequence[Spread]:
    """Return the spread constraints of a pod: the required ones, or the soft ones. If the pod
    belongs to a Service and states no constraints, these are the constraints in the profile.
    """
    if pod.states_spread or not pod.service_labels:
        return pod.spread if must else pod.spread_soft
    selector = Selector(pod.service_labels)
    return [Spread(key, skew, selector) for key, skew, holds in profile.default_spread if holds == must]


def eligible(snapshot: NodeColumns, profile: Profile, pod: Pod, constraint: Spread) -> np.ndarray:
    """Return True for each node whose pods are counted by a spread constraint."""

    def affine() -> np.ndarray:
        return np.array(
            [
                node.selected(pod.node_terms) and (not profile.added_terms or node.selected(profile.added_terms))
                for node in snapshot.nodes
            ],
            bool,
        )

    def untainted() -> np.ndarray:
        return np.array([not node.untolerated(pod.tolerations, _KEEPS_AWAY) for node in snapshot.nodes], bool)

    counted = np.ones(len(snapshot.nodes), bool)
    if constraint.honours_affinity:
        counted = counted & snapshot.about_nodes(("affine", pod.node_terms), affine)
    if constraint.honours_taints:
        counted = counted & snapshot.about_nodes(("untainted", pod.tolerations), untainted)
    return counted


def scores(profile: Profile, snapshot: NodeColumns, pod: Pod, nodes: np.ndarray) -> dict[str, np.ndarray]:
    """Return the weighted scores of the feasible ``nodes`` (indices), by plugin."""
    return {name: weight * _SCORES[name](profile, snapshot, pod, nodes) for name, weight in profile.weights if weight}


def total_scores(profile: Profile, snapshot: NodeColumns, pod: Pod, nodes: np.ndarray) -> np.ndarray:
    """Return the sum of the weighted scores of the feasible ``nodes``."""
    sums = np.zeros(len(nodes), np.int64)
    for column in scores(profile, snapshot, pod, nodes).values():
        sums += column
    return sums


def _fit(profile: Profile, snapshot: NodeColumns, pod: Pod, nodes: np.ndarray) -> np.ndarray:
    arguments = profile.fit
    sums = np.zeros(len(nodes), np.int64)
    weights = np.zeros(len(nodes), np.int64)
    for name, weight in arguments.resources:
        row, asked = snapshot.row.get(name), pod.scored_requests.get(name, 0)
        if row is None or (asked == 0 and is_scalar(name)):
            continue
        capacity = snapshot.allocatable[row, nodes]
        in_use = snapshot.nonzero if row in (CPU, MEMORY) else snapshot.requested
        score = _utilization_score(arguments, in_use[row, nodes] + asked, capacity)
        # If the arguments have a shape, a resource that scores 0 is left out of the mean, together
        # with its weight.
        counts = (capacity > 0) & (score > 0) if arguments.shape else capacity > 0
        sums += np.where(counts, weight * score, 0)
        weights += np.where(counts, weight, 0)
    if arguments.shape:
        return np.where(weights > 0, np.floor(sums / np.maximum(weights, 1) + 0.5), 0).astype(np.int64)
    return sums // np.maximum(weights, 1)


def _utilization_score(arguments: FitArguments, allocated: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    size = np.maximum(capacity, 1)
    if arguments.strategy == "LeastAllocated":
        return np.where(allocated > capacity, 0, (capacity - allocated) * 100 // size)
    if arguments.strategy == "MostAllocated":
        return np.asarray(np.minimum(allocated, capacity) * 100 // size)
    used = np.where(allocated > capacity, 100, allocated * 100 // size)
    points = arguments.shape
    score = np.full(len(used), points[-1][1], np.int64)
    for (low, from_), (high, to) in reversed(list(pairwise(points))):
        rise = (to - from_) * (used - low)
        steps = np.abs(rise) // (high - low) * np.sign(rise)  # rounded towards 0
        score = np.where(used <= high, from_ + steps, score)
    return np.where(used <= points[0][0], points[0][1], score)


def is_scalar(resource: str) -> bool:
    """Return True for extended resources, huge pages and similar resources, which count only for
    pods that request them."""
    return resource not in ("cpu", "memory", "ephemeral-storage")


def _balanced(profile: Profile, snapshot: NodeColumns, pod: Pod, nodes: np.ndarray) -> np.ndarray:
    arguments: BalancedArguments = profile.balanced
    if not any(pod.requests.get(name, 0) for name, _ in arguments.resources):
        return np.zeros(len(nodes), np.int64)
    fractions, there = [], []
    for name, _ in arguments.resources:
        row, asked = snapshot.row.get(name), pod.requests.get(name, 0)
        if row is None or (asked == 0 and is_scalar(name)):
            continue
        capacity = snapshot.allocatable[row, nodes]
        fraction = (snapshot.requested[row, nodes] + asked) / np.maximum(capacity, 1)
        fractions.append(np.where(capacity > 0, np.minimum(fraction, 1.0), 0.0))
        there.append(capacity > 0)
    if not fractions:
        return np.full(len(nodes), 100, np.int64)
    count = np.sum(there, axis=0)
    mean = np.zeros(len(nodes))
    for fraction in fractions:
        mean = mean + fraction
    if len(fractions) == 2:
        deviation = np.where(count == 2, np.abs((fractions[0] - fractions[1]) / 2), 0.0)
    else:
        mean = mean / np.maximum(count, 1)
        squares = np.zeros(len(nodes))
        low, high = np.full(len(nodes), np.inf), np.zeros(len(nodes))
        for fraction, present in zip(fractions, there, strict=True):
            squares = squares + np.where(present, (fraction - mean) * (fraction - mean), 0.0)
            low, high = np.where(present, np.minimum(low, fraction), low), np.maximum(high, fraction)
        deviation = np.where(count > 2, np.sqrt(squares / np.maximum(count, 1)), 0.0)
        deviation = np.where(count == 2, np.abs((high - np.where(count == 2, low, 0.0)) / 2), deviation)
    return ((1 - deviation) * 100).astype(np.int64)


def _taints(profile: Profile, snapshot: NodeColumns, pod: Pod, nodes: np.ndarray) -> np.ndarray:
    del profile
    mild = tuple([toleration for toleration in pod.tolerations if toleration.effect in ("", "PreferNoSchedule")])

    def compute() -> np.ndarray:
        return np.array([node.untolerated(mild, ("PreferNoSchedule",)) for node in snapshot.nodes], np.int64)

    counts = snapshot.about_nodes(("mild", mild), compute)[nodes]
    return 100 - _normalized(counts)


def _node_affinity(profile: Profile, snapshot: NodeColumns, pod: Pod, nodes: np.ndarray) -> np.ndarray:
    preferred = (*pod.preferred_nodes, *profile.added_preferred)
    if not preferred:
        return np.zeros(len(nodes), np.int64)

    def compute() -> np.ndarray:
        return np.array(
            [whole_sum(weight for weight, term in preferred if node.selected((term,))) for node in snapshot.nodes],
            np.int64,
        )

    return _normalized(snapshot.about_nodes(("preferred", preferred), compute)[nodes])


def _normalized(column: np.ndarray) -> np.ndarray:
    most = int(column.max(initial=0))
    return column * 100 // most if most else np.zeros(len(column), np.int64)


def _images(profile: Profile, snapshot: NodeColumns, pod: Pod, nodes: np.ndarray) -> np.ndarray:
    del profile
    if not pod.images:
        return np.zeros(len(nodes), np.int64)

    def compute() -> np.ndarray:
        sums = np.zeros(len(snapshot.nodes), np.int64)
        for image in pod.images:
            there = [index for index, node in enumerate(snapshot.nodes) if image in node.images]
            if there:
                size = snapshot.nodes[there[0]].images[image]
                sums[there] += int(size * (len(there) / len(snapshot.nodes)))
        return sums

    least, most = 23 << 20, (1000 << 20) * max(pod.containers, 1)
    present = snapshot.about_nodes(("images", pod.images), compute)[nodes]
    return np.asarray(100 * (np.clip(present, least, most) - least) // (most - least))


def _spread(profile: Profile, snapshot: NodeColumns, pod: Pod, nodes: np.ndarray) -> np.ndarray:
    constraints = _constraints(profile, pod, must=False)
    if not constraints:
        return np.zeros(len(nodes), np.int64)
    needs_all = pod.states_spread or not profile.spread_is_built_in
    labelled = np.ones(len(snapshot.nodes), bool)
    if needs_all:
        for constraint in constraints:
            labelled &= snapshot.domains(constraint.key) >= 0
    scored = labelled[nodes]
    sums = np.zeros(len(nodes))
    for constraint in constraints:
        domains = snapshot.domains(constraint.key)
        column = snapshot.counts("spread", (constraint.selector, pod.namespace))
        there = domains[nodes]
        if constraint.key == HOSTNAME:
            size, matching = int(scored.sum()), column[nodes]
        else:
            size = len(np.unique(there[scored]))  # nodes without the label count as one domain
            counted = eligible(snapshot, profile, pod, constraint) & labelled
            matching = by_domain(domains, column, counted)[nodes]
        term = matching * log(size + 2) + (constraint.max_skew - 1)
        sums += np.where(there >= 0, term, 0.0)
    rounded = np.floor(sums + 0.5).astype(np.int64)
    if not scored.any():
        return np.zeros(len(nodes), np.int64)
    least, most = int(rounded[scored].min()), int(rounded[scored].max())
    score = np.full(len(nodes), 100, np.int64) if not most else 100 * (most + least - rounded) // most
    return np.where(scored, score, 0)


def _pod_affinity_score(profile: Profile, snapshot: NodeColumns, pod: Pod, nodes: np.ndarray) -> np.ndarray:
    sums = np.zeros(len(snapshot.nodes), np.int64)
    for weight, term in pod.preferred:
        sums += weight * by_domain(snapshot.domains(term.key), snapshot.counts("terms", (term,)))
    held = [(term, weight, column) for term, weight, column in snapshot.held("preferred")]
    if profile.ignores_preferred_of_others and not pod.preferred:
        return np.zeros(len(nodes), np.int64)
    held += [(term, profile.hard_affinity_weight, column) for term, _, column in snapshot.held("affinity")]
    for term, weight, column in held:
        if weight and term.matches(pod):
            sums += weight * by_domain(snapshot.domains(term.key), column)
    column = sums[nodes]
    least, spread = int(column.min()), int(column.max() - column.min())
    return (100.0 * ((column - least) / spread)).astype(np.int64) if spread else np.zeros(len(nodes), np.int64)


_SCORES: dict[str, Callable[[Profile, NodeColumns, Pod, np.ndarray], np.ndarray]] = {
    "TaintToleration": _taints,
    "NodeAffinity": _node_affinity,
    "NodeResourcesFit": _fit,
    "PodTopologySpread": _spread,
    "InterPodAffinity": _pod_affinity_score,
    "NodeResourcesBalancedAllocation": _balanced,
    "ImageLocality": _images,
}
