"""Fragmentation gradient descent: score a node by how much less of its free GPUs typical pods could use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fgd.nodes import Flags, Ints, Nodes
from fgd.pods import GPU, Pod

_COVERED = 0.95


def typical(pods: Iterable[Pod]) -> dict[Pod, int]:
    """The most frequent demands that make up 95 % of the pods, memory left aside, and how many ask for each."""
    counts = Counter(pod._replace(memory=0) for pod in pods)
    kept: dict[Pod, int] = {}
    for pod in sorted(counts, key=lambda pod: (counts[pod], pod.cpu, pod.milli, pod.gpus, pod.models), reverse=True):
        if sum(kept.values()) >= _COVERED * counts.total():
            break
        kept[pod] = counts[pod]
    return kept


class Fgd:
    """A ``Choice``. Scores are kept per demand and renewed only for nodes that have changed.

    The fragmentation of a node is what is free on GPUs that a typical pod cannot use, expected over typical pods:
    everything where it does not fit (for pods without GPUs: everywhere), else the GPUs with less free than it asks of
    one. It is counted in whole thousandths times pods, so that ties are ties.
    """

    def __init__(self, nodes: Nodes, pods: Iterable[Pod]) -> None:
        weights = typical(pods)
        asking = [pod for pod in weights if pod.gpus]
        self._pods = sum(weights.values())
        self._weights: Ints = np.array([weights[pod] for pod in asking], np.int64)
        self._cpu: Ints = np.array([pod.cpu for pod in asking], np.int64)
        self._gpus: Ints = np.array([pod.gpus for pod in asking], np.int64)
        self._steps, self._step = np.unique(np.array([pod.milli for pod in asking], np.int64), return_inverse=True)
        allowed = np.array([nodes.allowed(pod.models) for pod in asking], np.bool_)
        self._allowed: Flags = allowed.reshape(len(asking), len(nodes)).T
        self._fragmented = self._fragmentation(np.arange(len(nodes)), nodes.cpu, nodes.free)
        self._seen = 0
        self._scores: dict[Pod, _Scores] = {}

    def __call__(self, nodes: Nodes, pod: Pod, room: Ints) -> tuple[int, int]:
        changed = np.unique(np.array(nodes.changes[self._seen :], np.int64))
        self._fragmented[changed] = self._fragmentation(changed, nodes.cpu[changed], nodes.free[changed])
        self._seen = len(nodes.changes)
        scores = self._scored(nodes, pod._replace(memory=0, models=""))
        node = int(room[scores.best[room].argmax()])
        return node, int(scores.gpu[node])

    def _scored(self, nodes: Nodes, pod: Pod) -> _Scores:
        """The scores of all nodes, meaningless where the pod does not fit."""
        scores = self._scores.get(pod)
        if scores is None:
            zeros = np.zeros(len(nodes), np.int64)
            scores = self._scores[pod] = _Scores(zeros, zeros.copy())
            stale = np.arange(len(nodes))
        else:
            stale = np.unique(np.array(nodes.changes[scores.seen :], np.int64))
        score = self._sharing if pod.shares else self._whole
        scores.best[stale], scores.gpu[stale] = score(nodes, pod, stale)
        scores.seen = len(nodes.changes)
        return scores

    def _sharing(self, nodes: Nodes, pod: Pod, stale: Ints) -> tuple[Ints, Ints]:
        """The best score of each node, and the first GPU that has it."""
        fits = nodes.free[stale] >= pod.milli
        which, gpus = np.nonzero(fits)
        after = nodes.free[stale[which]]
        after[np.arange(len(which)), gpus] -= pod.milli
        scores = np.full(fits.shape, -1, np.int64)
        scores[which, gpus] = self._score(stale[which], nodes.cpu[stale[which]] - pod.cpu, after)
        return scores.max(axis=1), scores.argmax(axis=1)

    def _whole(self, nodes: Nodes, pod: Pod, stale: Ints) -> tuple[Ints, Ints]:
        idle = nodes.free[stale] == GPU
        after = np.where(idle & (idle.cumsum(axis=1) <= pod.gpus), 0, nodes.free[stale])
        return self._score(stale, nodes.cpu[stale] - pod.cpu, after), np.zeros(len(stale), np.int64)

    def _score(self, at: Ints, cpu: Ints, free: Ints) -> Ints:
        """0 to 100, from what fragmentation would be lost in GPUs; 50 where it stays."""
        less = (self._fragmented[at] - self._fragmentation(at, cpu, free)) / (self._pods * GPU)
        return (1 / (1 + np.exp(-less)) * 100).astype(np.int64)

    def _fragmentation(self, at: Ints, cpu: Ints, free: Ints) -> Ints:
        """Thousandths of GPUs times typical pods, for states ``cpu`` and ``free`` of the nodes ``at``."""
        suffices = free[:, :, None] >= self._steps
        many = suffices.sum(axis=1)[:, self._step]
        usable = (free[:, :, None] * suffices).sum(axis=1)[:, self._step]
        runs = (many >= self._gpus) & (cpu[:, None] >= self._cpu) & self._allowed[at]
        fragmented: Ints = self._pods * free.sum(axis=1) - (usable * runs) @ self._weights
        return fragmented


@dataclass(slots=True)
class _Scores:
    best: Ints
    gpu: Ints
    seen: int = 0
