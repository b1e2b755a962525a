"""The nodes and the pods on them, in columns with one entry per node. Filters and scores work on
these columns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

import numpy as np

from dagsim.families.kubernetes.api.terms import Selector
from dagsim.families.kubernetes.kube.objects import HostPort, NodeObject, Pod, Term
from dagsim.model.arithmetic import whole_sum

PodKey: TypeAlias = Hashable
"""Identifies a pod."""

_NO_LIMIT = 1 << 40
CPU, MEMORY = 0, 1
"""Rows of these resources."""


class BoundPod(NamedTuple):
    """A pod on a node."""

    key: PodKey
    pod: Pod
    priority: float
    start_s: float
    leaving: bool = False
    """True if the pod is terminating but still holds its node."""


Query: TypeAlias = tuple[str, object]
"""A kind of query about pods, and its subject (see ``NodeColumns.counts``)."""


class NodeColumns:
    """The cluster state on which kube-scheduler bases its decisions. Each array has one entry per
    node.

    Once the number of pods that match a selector or have a term has been requested, it is kept up
    to date. A decision then takes only a few operations on arrays, however many pods there are.
    """

    def __init__(self, nodes: Sequence[NodeObject]) -> None:
        self.nodes = list(nodes)
        self.row: dict[str, int] = {"cpu": CPU, "memory": MEMORY}
        """Row of each resource in ``allocatable`` and ``requested``."""
        for node in self.nodes:
            for name in node.allocatable:
                self.row.setdefault(name, len(self.row))
        shape = len(self.row), len(self.nodes)
        self.allocatable = np.zeros(shape, np.int64)
        self.requested = np.zeros(shape, np.int64)
        self.nonzero = np.zeros((2, len(self.nodes)), np.int64)
        """CPU and memory in use, including what is assumed for containers that request none."""
        self.pods: list[dict[PodKey, BoundPod]] = [{} for _ in self.nodes]
        self.count = np.zeros(len(self.nodes), np.int64)
        self.most_pods = np.full(len(self.nodes), _NO_LIMIT, np.int64)
        self.is_open = np.array([node.is_open for node in self.nodes], bool)
        self.nominated: dict[int, dict[PodKey, BoundPod]] = {}
        """Nominated pods by node."""
        self.by_priority: dict[float, np.ndarray] = {}
        """Requested amounts of the pods with each priority; the last row holds their number."""
        self._counts: dict[Query, np.ndarray] = {}
        self._answers: dict[tuple[Query, Pod], int] = {}
        self._held: dict[tuple[str, Term, int], np.ndarray] = {}
        self._about_nodes: dict[object, np.ndarray] = {}
        self._needs: dict[Pod, tuple[np.ndarray, bool]] = {}
        for index, node in enumerate(self.nodes):
            self._describe(index, node)

    def change(self, index: int, node: NodeObject) -> None:
        """Replace the description of a node. A resource that no node had before gets a new row."""
        self.nodes[index] = node
        for name in node.allocatable:
            if name not in self.row:
                self.row[name] = len(self.row)
                blank = np.zeros((1, len(self.nodes)), np.int64)
                self.allocatable = np.concatenate([self.allocatable, blank])
                self.requested = np.concatenate([self.requested, blank])
                for at, bound_pods in enumerate(self.pods):
                    self.requested[-1, at] = whole_sum(bound.pod.requests.get(name, 0) for bound in bound_pods.values())
                self.by_priority.clear()
                self._needs.clear()
                for at, bound_pods in enumerate(self.pods):
                    for bound in bound_pods.values():
                        self._count_priority(at, bound, 1)
        self._describe(index, node)
        self._about_nodes.clear()

    def _describe(self, index: int, node: NodeObject) -> None:
        missing = _NO_LIMIT if node.is_open else 0
        self.allocatable[:, index] = [node.allocatable.get(name, missing) for name in self.row]
        self.is_open[index] = node.is_open
        self.most_pods[index] = _NO_LIMIT if node.most_pods is None else node.most_pods

    def needs(self, pod: Pod) -> tuple[np.ndarray, bool]:
        """Return the row and the amount of each resource that the pod requests, and whether all
        these resources exist."""
        known = self._needs.get(pod)
        if known is None:
            amounts = np.zeros(len(self.row), np.int64)
            for name, row in self.row.items():
                amounts[row] = pod.requests.get(name, 0)
            known = self._needs[pod] = amounts, all(name in self.row for name in pod.requests)
        return known

    def add(self, index: int, bound: BoundPod) -> None:
        """Put a pod on a node."""
        self.pods[index][bound.key] = bound
        self._change(index, bound, 1)

    def remove(self, index: int, key: PodKey) -> BoundPod:
        """Remove a pod from its node."""
        bound = self.pods[index].pop(key)
        self._change(index, bound, -1)
        return bound

    @contextmanager
    def trial(self) -> Iterator[Callable[[int, BoundPod], None]]:
        """Return a function that puts pods on nodes until the end of the block. Their keys do not
        matter.
        """
        there: list[tuple[int, PodKey]] = []

        def add(index: int, bound: BoundPod) -> None:
            key = object()
            self.add(index, bound._replace(key=key))
            there.append((index, key))

        try:
            yield add
        finally:
            for index, key in there:
                self.remove(index, key)

    def _change(self, index: int, bound: BoundPod, sign: int) -> None:
        pod = bound.pod
        self.requested[:, index] += sign * self.needs(pod)[0]
        self.nonzero[CPU, index] += sign * pod.nonzero[CPU]
        self.nonzero[MEMORY, index] += sign * pod.nonzero[MEMORY]
        self.count[index] += sign
        self._count_priority(index, bound, sign)
        for query, column in self._counts.items():
            answer = self._answer(query, bound)
            if answer:
                column[index] += sign * answer
        for kind, terms in _held_by(pod):
            for weight, term in terms:
                column = self._held.setdefault((kind, term, weight), np.zeros(len(self.nodes), np.int64))
                column[index] += sign

    def _count_priority(self, index: int, bound: BoundPod, sign: int) -> None:
        column = self.by_priority.get(bound.priority)
        if column is None:
            column = self.by_priority[bound.priority] = np.zeros((len(self.row) + 1, len(self.nodes)), np.int64)
        column[:-1, index] += sign * self.needs(bound.pod)[0]
        column[-1, index] += sign

    def counts(self, kind: str, subject: tuple[Term, ...] | tuple[Selector, str]) -> np.ndarray:
        """Count pods on each node. With the ``kind`` ``terms``, these are the pods that match all
        terms in ``subject``. With ``spread``, they are the pods that match a selector in a
        namespace, without terminating pods.
        """
        query = kind, subject
        column = self._counts.get(query)
        if column is None:
            column = np.zeros(len(self.nodes), np.int64)
            for index, bound_pods in enumerate(self.pods):
                for bound in bound_pods.values():
                    column[index] += self._answer(query, bound)
            self._counts[query] = column
        return column

    def _answer(self, query: Query, bound: BoundPod) -> int:
        kind, subject = query
        if bound.leaving and kind == "spread":
            return 0
        pod = bound.pod
        known = self._answers.get((query, pod))
        if known is None:
            if kind == "terms":
                known = int(matches_all(subject, pod))  # type: ignore[arg-type]
            else:
                selector: Selector = subject[0]  # type: ignore[index]
                namespace: str = subject[1]  # type: ignore[index]
                known = int(namespace == pod.namespace and bool(selector.requirements) and selector.matches(pod.labels))
            self._answers[query, pod] = known
        return known

    def held(self, kind: str) -> Iterable[tuple[Term, int, np.ndarray]]:
        """Return the terms that pods on nodes have, each with its weight and the number of pods per
        node that have the term. ``kind`` selects terms of required affinity (``affinity``), terms
        of required anti-affinity (``anti``), or preferred terms (``preferred``).
        """
        return [(term, weight, column) for (of, term, weight), column in self._held.items() if of == kind]

    @property
    def has_anti_affinity(self) -> bool:
        """True if pods on nodes may keep other pods away because of the labels of those pods."""
        return any(kind == "anti" for kind, *_ in self._held)

    def domains(self, label: str) -> np.ndarray:
        """Return the index of the domain of each node for a label. The index is -1 for nodes
        without the label."""

        def number() -> np.ndarray:
            values: dict[str, int] = {}
            return np.array(
                [
                    values.setdefault(value, len(values)) if (value := node.labels.get(label)) is not None else -1
                    for node in self.nodes
                ],
                np.int64,
            )

        return self.about_nodes(("domains", label), number)

    def about_nodes(self, key: object, compute: Callable[[], np.ndarray]) -> np.ndarray:
        """Return a column that depends only on the descriptions of the nodes. It is computed once,
        and stored until a description changes."""
        column = self._about_nodes.get(key)
        if column is None:
            column = self._about_nodes[key] = compute()
        return column

    def nominate(self, index: int, bound: BoundPod) -> None:
        """Record that a pod is nominated for a node."""
        self.nominated.setdefault(index, {})[bound.key] = bound

    def withdraw(self, key: PodKey) -> None:
        """Remove the nomination of a pod if it has one."""
        for index in [index for index, bound_pods in self.nominated.items() if key in bound_pods]:
            del self.nominated[index][key]
            if not self.nominated[index]:
                del self.nominated[index]

    def nomination(self, key: PodKey) -> int | None:
        """Return the node for which a pod is nominated."""
        return next((index for index, bound_pods in self.nominated.items() if key in bound_pods), None)

    def port_is_taken(self, index: int, ports: Iterable[HostPort]) -> bool:
        """Return True if a pod on the node occupies one of the ports."""
        return any(
            port.collides(other) for bound in self.pods[index].values() for other in bound.pod.ports for port in ports
        )


def _held_by(pod: Pod) -> Iterable[tuple[str, Iterable[tuple[int, Term]]]]:
    if pod.affinity:
        yield "affinity", [(1, term) for term in pod.affinity]
    if pod.anti_affinity:
        yield "anti", [(1, term) for term in pod.anti_affinity]
    if pod.preferred:
        yield "preferred", pod.preferred


def matches_all(terms: Iterable[Term], pod: Pod) -> bool:
    """Return True if the pod matches every term."""
    return all(term.matches(pod) for term in terms)


def by_domain(domains: np.ndarray, column: np.ndarray, among: np.ndarray | None = None) -> np.ndarray:
    """Return the sum of a column over the domain of each node, or 0 for a node without a domain.
    ``among`` restricts the sum to some nodes.
    """
    if not len(domains) or domains.max() < 0:
        return np.zeros(len(domains), np.int64)
    there = domains >= 0 if among is None else (domains >= 0) & among
    sums = np.bincount(domains[there], column[there], int(domains.max()) + 1).astype(np.int64)
    return np.where(domains >= 0, sums[domains], 0)
