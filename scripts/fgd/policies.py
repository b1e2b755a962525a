"""The paper's baselines: each picks a node for a pod among those with room, and the GPU that it shares there.

Scores are whole numbers, as kube-scheduler has them; the first of the best nodes wins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from fgd.go_random import GoRandom
from fgd.nodes import Ints, Nodes
from fgd.pods import GPU, Pod

Choice: TypeAlias = Callable[[Nodes, Pod, Ints], tuple[int, int]]
"""The node among those with room, and the GPU of it, which matters only for a pod that shares one."""
Score: TypeAlias = Callable[[Nodes, Pod, Ints], Ints]

_BEST = 100
_MOST_CPU, _MOST_GPU = 128_000, 8_000  # the largest node of the paper, by which CPUs and GPUs are weighed


def by_score(score: Score) -> Choice:
    """The node with the highest score, and there the GPU with the least free that suffices."""

    def choose(nodes: Nodes, pod: Pod, room: Ints) -> tuple[int, int]:
        node = int(room[score(nodes, pod, room).argmax()])
        return node, nodes.tightest(node, pod.milli) if pod.shares else 0

    return choose


def at_random(rng: GoRandom) -> Choice:
    """Any node, and any GPU of it that suffices."""

    def choose(nodes: Nodes, pod: Pod, room: Ints) -> tuple[int, int]:
        node = int(room[rng.below(len(room))]) if len(room) > 1 else int(room[0])
        gpu = 0
        if pod.shares:
            for seen, candidate in enumerate(np.flatnonzero(nodes.free[node] >= pod.milli).tolist()):
                if rng.below(seen + 1) == 0:
                    gpu = candidate
        return node, gpu

    return choose


def best_fit(nodes: Nodes, pod: Pod, room: Ints) -> Ints:
    """The less CPUs and GPUs are left, the better, half and half."""
    cpu = (nodes.cpu[room] - pod.cpu) / _MOST_CPU
    gpu = (nodes.gpu_free[room] - pod.gpu_milli) / _MOST_GPU
    return ((1.0 - (cpu * 0.5 + gpu * 0.5)) * _BEST).astype(np.int64)


def dot_product(nodes: Nodes, pod: Pod, room: Ints) -> Ints:
    """The less the free CPUs and GPUs point in the direction of the demand, the better."""
    cpu = nodes.cpu[room] / _MOST_CPU * (pod.cpu / _MOST_CPU)
    gpu = nodes.gpu_free[room] / _MOST_GPU * (pod.gpu_milli / _MOST_GPU)
    return (_BEST * (1 - (cpu + gpu) / 2)).astype(np.int64)


def gpu_packing(nodes: Nodes, pod: Pod, room: Ints) -> Ints:
    """GPUs in use before idle GPUs of nodes in use, and these before idle nodes."""
    if not pod.gpus:
        return np.zeros(len(room), np.int64)
    idle = nodes.idle[room]
    if pod.shares:
        free = nodes.free[room]
        least = np.where(free >= pod.milli, free, GPU + 1).min(axis=1)
        used = np.where(least == GPU, _BEST // 2 - 1, _BEST - least * _BEST // GPU // 10)
    else:
        used = np.full(len(room), max(_BEST // 2 - pod.gpus, _BEST // 3))
    return np.where(idle == nodes.gpus[room], np.maximum(_BEST // 3 - idle, idle), used)


def gpu_clustering(nodes: Nodes, pod: Pod, room: Ints) -> Ints:
    """Nodes with pods of this kind only, then those with others too, idle ones, the others; the fullest of them."""
    if not pod.gpus:
        return np.zeros(len(room), np.int64)
    kinds = nodes.kinds[room]
    alike = np.where(kinds == 1, 75, 50)
    unlike = np.where(kinds == 0, 25, 0)
    rank = np.where(nodes.running(pod.kind)[room], alike, unlike)
    return rank + 25 * (_MOST_GPU - nodes.gpu_free[room]) // _MOST_GPU


SCORES: dict[str, Score] = {
    "DotProd": dot_product,
    "GpuClustering": gpu_clustering,
    "GpuPacking": gpu_packing,
    "BestFit": best_fit,
}
