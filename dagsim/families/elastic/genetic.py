"""Pollux's policy (OSDI 2021): a genetic search for the allocation with the best mean speed-up.

A candidate gives each job (row) some replicas on each node (column). Its fitness is the harmonic
mean of the jobs' speed-ups relative to their fair share. If a job would restart, its speed-up is
reduced by the share of time that restarts have cost so far.

The fitness, the limits and the operators are those published for Pollux. The published search is
NSGA-II, with the size of the cluster as its second objective. Here, the size is fixed, so the
search has a single objective.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Protocol

import numpy as np

from dagsim.errors import require
from dagsim.families.elastic.goodput import BatchLimits, GoodputModel
from dagsim.families.elastic.training_jobs import ElasticJob

Allocations = dict[str, list[int]]
"""Node of each replica, by job. Jobs without replicas may be absent."""


class EqualNodes:
    """A cluster of equal nodes, and the current ``allocations``."""

    def __init__(self, nodes: int, gpus_per_node: int) -> None:
        self.nodes, self.gpus_per_node = nodes, gpus_per_node
        self.allocations: Allocations = {}

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return self.nodes * self.gpus_per_node

    def free_gpus(self, allocations: Allocations) -> Counter[int]:
        """Return the number of free GPUs on each node that has free GPUs, by node."""
        taken = Counter(node for replicas in allocations.values() for node in replicas)
        free = {node: self.gpus_per_node - taken[node] for node in range(self.nodes)}
        return Counter({node: count for node, count in free.items() if count > 0})


_RESTART_S = 30
_LEAST_SPEEDUP = 1e-3


class SearchedJob(Protocol):
    """The properties of a job that the search uses."""

    @property
    def arrival_s(self) -> float:
        """Arrival time of the job in seconds."""

    @property
    def restarts(self) -> int:
        """The number of restarts, or -1 before the first start."""

    @property
    def limits(self) -> BatchLimits:
        """The limits on the batch sizes of the job's application."""

    @property
    def goodput(self) -> GoodputModel | None:
        """The goodput model fitted to the job's runs so far, or None before the first start."""

    @property
    def largest_measured(self) -> int:
        """Largest number of replicas with which the job has run."""

    def most_replicas(self, batch: int) -> int:
        """Return the maximum number of GPUs for a batch."""


class PolluxSearch:
    """A genetic search that allocates GPUs and chooses batch sizes, so that goodput is high.

    A job may have at most twice as many replicas as it has run with. A node holds at most one job
    that runs on several nodes.

    Args:
        seed: Seed of the search.
        population: Candidates that survive a generation.
        generations: Number of generations.

    Raises:
        ConfigError: ``population`` or ``generations`` is not positive.
    """

    def __init__(self, seed: int = 0, population: int = 100, generations: int = 50) -> None:
        require(population > 0, "pollux: population must be positive", population)
        require(generations > 0, "pollux: generations must be positive", generations)
        self._random = np.random.default_rng(seed)
        self._population, self._generations = population, generations
        self._survivors: np.ndarray | None = None
        self._names: list[str] = []

    def batch(self, job: ElasticJob) -> int | None:
        """Return None, which lets a job choose the batch with the best goodput. The exception is
        the application ``ncf``, which runs on one GPU and has its largest batch from the start.
        """
        return job.profile.limits.largest if job.profile.name == "ncf" else None

    def allocate(self, now_s: int, jobs: Mapping[str, SearchedJob], cluster: EqualNodes) -> Allocations:
        """Search for the best allocation, starting from the current one and from the candidates
        that survived the last search.
        """
        present = np.zeros((len(jobs), cluster.nodes), np.int64)
        for row, name in enumerate(jobs):
            nodes = cluster.allocations.get(name, [])
            present[row] = np.bincount(np.array(nodes, np.int64), minlength=cluster.nodes)
        limits = np.array([self._limit(job) for job in jobs.values()])
        factors = np.array([_restart_factor(job, now_s) for job in jobs.values()])
        speedups = _speedups(list(jobs.values()), cluster, int(limits.max())) * (1 / cluster.gpus) * cluster.nodes
        candidates = self._repaired(self._carried_over(list(jobs), present), limits, cluster.gpus_per_node)
        candidates = np.unique(np.concatenate([present[None], candidates]), axis=0)
        fitness = _fitness(candidates, present, speedups, factors)
        for _ in range(self._generations):
            children = self._mutated(self._crossed(candidates, fitness), limits, cluster.gpus_per_node)
            children = self._repaired(children, limits, cluster.gpus_per_node)
            candidates = np.concatenate([candidates, children])
            fitness = np.concatenate([fitness, _fitness(children, present, speedups, factors)])
            # Equal candidates have equal fitness and are adjacent in this order, so only the first
            # of each is kept.
            order = np.argsort(-fitness, kind="stable")
            candidates, fitness = candidates[order], fitness[order]
            distinct = np.ones(len(order), bool)
            distinct[1:] = (fitness[1:] != fitness[:-1]) | (candidates[1:] != candidates[:-1]).any(axis=(1, 2))
            candidates, fitness = candidates[distinct][: self._population], fitness[distinct][: self._population]
        self._survivors, self._names = candidates, list(jobs)
        return {
            name: np.repeat(np.arange(cluster.nodes), row).tolist()
            for name, row in zip(jobs, candidates[0], strict=True)
            if row.any()
        }

    def _limit(self, job: SearchedJob) -> int:
        return min(max(2 * job.largest_measured, 1), job.most_replicas(job.limits.largest))

    def _carried_over(self, names: Sequence[str], present: np.ndarray) -> np.ndarray:
        """Return the candidates that survived the last search. In them, new jobs have their current
        allocation.
        """
        if self._survivors is None:
            return present[None]
        rows = {name: row for row, name in enumerate(self._names)}
        states = np.repeat(present[None], len(self._survivors), axis=0)
        for row, name in enumerate(names):
            if name in rows:
                states[:, row] = self._survivors[:, rows[name]]
        return states

    def _crossed(self, candidates: np.ndarray, fitness: np.ndarray) -> np.ndarray:
        """Return the children of tournament winners. Each child takes the jobs before a random
        position from one parent, and the other jobs from the other parent."""
        pairs = self._random.integers(len(candidates), size=(2, self._population, 2))
        winners = np.where(fitness[pairs[..., 0]] >= fitness[pairs[..., 1]], pairs[..., 0], pairs[..., 1])
        cut = self._random.integers(candidates.shape[1], size=(self._population, 1))
        first = np.arange(candidates.shape[1]) < cut
        children: np.ndarray = np.where(first[..., None], candidates[winners[0]], candidates[winners[1]])
        return children

    def _mutated(self, states: np.ndarray, limits: np.ndarray, gpus_per_node: int) -> np.ndarray:
        """Change each candidate at random. In one half of the candidates, change a few entries. In
        the other half, give one job a different number of replicas on free GPUs."""
        half, shape = len(states) // 2, states[: len(states) // 2].shape
        entries = self._random.random(shape[:2])[..., None] < 2 / shape[1]
        entries = entries & (self._random.random(shape) < 1 / shape[2])
        mutants = np.where(entries, self._random.integers(gpus_per_node + 1, size=shape), states[:half])
        moved, one = states[half:].copy(), np.arange(len(states) - half)
        row = self._random.integers(shape[1], size=len(moved))
        moved[one, row] = 0
        wanted = self._random.integers(limits[row] + 1)[:, None]
        # the parts that come from the two parents may together need more GPUs than a node has
        free = np.maximum(gpus_per_node - moved.sum(axis=1), 0)
        # Prefer the fullest node on which all replicas fit; otherwise, use the emptiest nodes
        # without another distributed job.
        fitting = np.where(free >= wanted, free, gpus_per_node + 1) + self._random.random(free.shape)
        single = (fitting.argmin(axis=1)[:, None] == np.arange(shape[2])) & (free >= wanted)
        taken = ((moved > 0) & ((moved > 0).sum(axis=2, keepdims=True) > 1)).any(axis=1)
        order = np.argsort(taken * 2.0 * gpus_per_node - free + self._random.random(free.shape), axis=1)
        spread = np.zeros_like(free)
        room = np.take_along_axis(np.where(taken, 0, free), order, axis=1)
        np.put_along_axis(spread, order, _clipped(room, wanted, axis=1), axis=1)
        moved[one, row] = np.where(single.any(axis=1, keepdims=True), single * wanted, spread)
        return np.concatenate([mutants, moved])

    def _repaired(self, states: np.ndarray, limits: np.ndarray, gpus_per_node: int) -> np.ndarray:
        """Remove replicas from the jobs of each candidate, in random order, until all limits are
        met.
        """
        order = self._random.permuted(np.tile(np.arange(states.shape[1]), (len(states), 1)), axis=1)
        states = np.take_along_axis(states, order[..., None], axis=1)
        distributed = (states > 0) & ((states > 0).sum(axis=2, keepdims=True) > 1)
        states = np.where(distributed & (distributed.cumsum(axis=1) > 1), 0, states)
        states = _clipped(states, limits[order][..., None], axis=2)
        states = _clipped(states, gpus_per_node, axis=1)
        back = np.argsort(order, axis=1)
        repaired: np.ndarray = np.take_along_axis(states, back[..., None], axis=1)
        return repaired


def _clipped(states: np.ndarray, most: np.ndarray | int, axis: int) -> np.ndarray:
    """Reduce the entries along ``axis`` so that their cumulative sum never exceeds ``most``."""
    sums = np.minimum(states.cumsum(axis=axis), most)
    return np.diff(sums, axis=axis, prepend=0)


def _restart_factor(job: SearchedJob, now_s: int) -> float:
    """Return the share of the job's time that would be productive if it restarted one more time."""
    age_s = now_s - job.arrival_s
    return max(age_s - max(job.restarts, 0) * _RESTART_S, 0.0) / (age_s + _RESTART_S)


def _speedups(jobs: Sequence[SearchedJob], cluster: EqualNodes, most: int) -> np.ndarray:
    """Return speed-ups, (jobs, 2, most + 1) float64: the goodput divided by the goodput with a fair
    share of the GPUs. The second index is 0 for one node and 1 for several, and the third is the
    number of replicas.

    The model distinguishes only between one node and several nodes.
    """
    fair = ceil(cluster.gpus / len(jobs))
    table = np.zeros((len(jobs), 2, most + 1))
    for row, job in enumerate(jobs):
        model = job.goodput
        if model is None:
            table[row] = np.arange(most + 1) / fair
            continue
        replicas = np.arange(1, min(most, job.most_replicas(model.limits.largest)) + 1)
        fair_goodput = float(model.best(1, min(fair, model.limits.largest // model.limits.local_min)).goodput)
        table[row, 0, replicas] = model.best(1, replicas).goodput / fair_goodput
        if len(replicas) > 1:
            table[row, 1, replicas[1:]] = model.best(2, replicas[1:]).goodput / fair_goodput
    return table


def _fitness(states: np.ndarray, present: np.ndarray, speedups: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Return the fitness of each candidate, which is the harmonic mean of its jobs' speed-ups."""
    spread = ((states > 0).sum(axis=2) > 1).astype(np.int64)
    gains = speedups[np.arange(states.shape[1]), spread, states.sum(axis=2)]
    gains = np.where((states != present).any(axis=2), gains * factors, gains)
    fitness: np.ndarray = 1 / (1 / (gains + _LEAST_SPEEDUP)).mean(axis=1)
    return fitness
