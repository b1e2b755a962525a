"""One scheduling decision of kube-scheduler. It either finds a node for a pod, or chooses the pods
to preempt so that the pod fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import inf
from typing import NamedTuple

import numpy as np

from dagsim.families.kubernetes.kube.node_columns import BoundPod, NodeColumns, PodKey
from dagsim.families.kubernetes.kube.objects import Pod
from dagsim.families.kubernetes.kube.plugins import Filters, total_scores
from dagsim.families.kubernetes.kube.profile import Profile
from dagsim.model.arithmetic import ordered_sum


class WaitingPod(NamedTuple):
    """A pod that is waiting for a node."""

    key: PodKey
    pod: Pod
    priority: float


class Victims(NamedTuple):
    """The pods on a node that preemption would evict, most important first."""

    node: int
    pods: Sequence[BoundPod]
    violations: int
    """Number of these pods that a budget protects."""


class PodCycle:
    """Makes decisions for one pod at a time on a snapshot, using the plugins of a profile."""

    def __init__(self, profile: Profile, snapshot: NodeColumns) -> None:
        self.profile = profile
        self.snapshot = snapshot
        self.filters = Filters(profile, snapshot)
        self.now = inf
        """The current time; pods that start now stay."""

    def feasible(self, waiting: WaitingPod) -> np.ndarray:
        """Return the indices of the nodes on which the pod can run. If the pod is nominated for a
        node, that node is tried first, and the others are tried only if the pod does not fit
        there."""
        nominated = self.snapshot.nomination(waiting.key)
        if nominated is not None and self.filters.passes_with_nominated(*self._asked(waiting), nominated):
            return np.array([nominated])
        passing = self.filters.passing(waiting.pod)
        for node in self.snapshot.nominated:
            if passing[node]:
                passing[node] = self.filters.passes_with_nominated(*self._asked(waiting), node)
        return np.flatnonzero(passing)

    def best(self, pod: Pod, nodes: np.ndarray) -> int:
        """Return the feasible node with the highest score. If several nodes have the same score,
        return the first of them. If only one node is feasible, no scores are needed."""
        if len(nodes) == 1:
            return int(nodes[0])
        return int(nodes[np.argmax(total_scores(self.profile, self.snapshot, pod, nodes))])

    def may_preempt(self, waiting: WaitingPod) -> bool:
        """Return True if the pod may preempt other pods now. Its policy must allow preemption, and
        no pods may already be terminating on its nominated node to make space for it."""
        if not (self.profile.preempts and waiting.pod.preempts):
            return False
        nominated = self.snapshot.nomination(waiting.key)
        if nominated is None or self.filters.verdicts(waiting.pod)[0][nominated] == 2:
            return True
        there = self.snapshot.pods[nominated].values()
        return not any(bound.priority < waiting.priority and bound.leaving for bound in there)

    def candidates(self, waiting: WaitingPod) -> list[Victims]:
        """Return the nodes on which preemption would help, best first, each with its victims."""
        nodes = len(self.snapshot.nodes)
        most = max(nodes * self.profile.candidates_percent // 100, self.profile.candidates_least, 1)
        looked_at = (self._victims_on(waiting, node) for node in np.flatnonzero(self._could_help(waiting)).tolist())
        return sorted(islice(filter(None, looked_at), most), key=_harm)

    def _could_help(self, waiting: WaitingPod) -> np.ndarray:
        """Return True for each node on which the pod would have enough of every resource if all
        pods of lower priority were gone. This quick test excludes most nodes.
        """
        snapshot, pod = self.snapshot, waiting.pod
        lower = [column for priority, column in snapshot.by_priority.items() if priority < waiting.priority]
        if not lower:
            return np.zeros(len(snapshot.nodes), bool)
        freed = np.sum(lower, axis=0)
        needs, known = snapshot.needs(pod)
        could = (self.filters.verdicts(pod)[0] == 1) & (freed[-1] > 0)
        if not known:
            could &= snapshot.is_open
        asked = needs > 0
        left = snapshot.allocatable[asked] - snapshot.requested[asked] + freed[:-1][asked]
        enough = left >= needs[asked][:, None]
        for row, name in enumerate([name for name, at in snapshot.row.items() if asked[at]]):
            if self.profile.ignores(name):
                enough[row] = True
        result: np.ndarray = could & enough.all(axis=0)
        return result

    def _victims_on(self, waiting: WaitingPod, node: int) -> Victims | None:
        """Return the pods that must be removed from the node for the pod to fit: as few as
        possible, and as unimportant as possible."""
        snapshot = self.snapshot
        lower = [
            bound
            for bound in snapshot.pods[node].values()
            if bound.priority < waiting.priority and bound.start_s < self.now
        ]
        if not lower:
            return None
        for bound in lower:
            snapshot.remove(node, bound.key)
        removed = {bound.key: bound for bound in lower}
        victims: list[BoundPod] = []
        violations = 0
        if self.filters.passes_with_nominated(*self._asked(waiting), node):
            lower.sort(key=_importance)
            protected = _protected(lower)
            # Put back each pod that need not be evicted. Begin with the pods that a disruption
            # budget protects. Within both groups, try the more important pods first.
            for bound in sorted(lower, key=lambda bound: bound.key not in protected):
                snapshot.add(node, removed.pop(bound.key))
                if not self.filters.passes_with_nominated(*self._asked(waiting), node):
                    removed[bound.key] = snapshot.remove(node, bound.key)
                    victims.append(bound)
                    violations += bound.key in protected
        for bound in removed.values():
            snapshot.add(node, bound)
        victims.sort(key=_importance)
        return Victims(node, victims, violations) if victims else None

    @staticmethod
    def _asked(waiting: WaitingPod) -> tuple[Pod, PodKey, float]:
        return waiting.pod, waiting.key, waiting.priority


def _importance(bound: BoundPod) -> tuple[float, float]:
    """Return a sort key that orders pods from the most to the least important: by priority, then by
    age."""
    return -bound.priority, bound.start_s


def _protected(bound_pods: Sequence[BoundPod]) -> set[PodKey]:
    """Return the pods whose removal would violate a disruption budget, if the pods were removed in
    this order."""
    left: dict[str, int] = {}
    protected = set()
    for bound in bound_pods:
        for name, allowed in bound.pod.budgets:
            left[name] = left.get(name, allowed) - 1
            if left[name] < 0:
                protected.add(bound.key)
    return protected


_BEYOND = 1 << 31


def _harm(victims: Victims) -> tuple[float, ...]:
    """Return a sort key that orders preemptions from best to worst. The criteria are, in turn:
    fewest violated budgets, lowest priority of the most important victim, smallest sum of
    priorities, fewest victims, latest start of the most important victims, and lowest number of the
    node."""
    pods = victims.pods
    if not pods:
        return (-inf,)
    highest = pods[0].priority
    earliest = min(bound.start_s for bound in pods if bound.priority == highest)
    return (
        victims.violations,
        highest,
        ordered_sum(bound.priority + _BEYOND for bound in pods),
        len(pods),
        -earliest,
        victims.node,
    )
