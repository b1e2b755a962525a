"""Jobs as they were in Alibaba's 2018 trace, from its published distributions.

The population is that of Tian et al., SoCC 2019: 2,857,851 DAG jobs of 9,673,063 tasks. Their histograms
(All-less/trace-generator) give the points below; between them quantiles are interpolated. Instances, durations and
shapes are drawn independently of each other, which the real ones are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dagsim.workload.arrays import ranges
from dagsim.workload.distributions import Choice, Quantiles
from dagsim.workload.graphs import DagArrays

__all__ = ["CPUS", "DURATION_S", "INSTANCES", "TASKS", "Alibaba"]

# fmt: off
TASKS = Quantiles((
    (0, 1), (0.3833, 1), (0.5874, 2), (0.7150, 3), (0.7847, 4), (0.8385, 5), (0.8716, 6), (0.9069, 7), (0.9243, 8),
    (0.9383, 9), (0.9487, 10), (0.9573, 11), (0.9653, 12), (0.97, 13), (0.98, 16), (0.985, 17), (0.99, 20),
    (0.995, 24), (0.998, 31), (0.999, 36), (0.9998, 62), (1, 199)), whole=True)
"""Tasks per job: mean 3.385."""

DURATION_S = Quantiles((
    (0, 0), (0.0768, 0), (0.2415, 1), (0.3123, 2), (0.3962, 3), (0.4666, 4), (0.5094, 5), (0.6, 9), (0.7, 15),
    (0.75, 22), (0.8, 32), (0.85, 52), (0.9, 96), (0.92, 131), (0.94, 185), (0.95, 227), (0.96, 289), (0.975, 375),
    (0.985, 484), (0.99, 603), (0.995, 854), (0.998, 1376), (0.999, 2033), (0.9995, 2919), (0.9998, 4434),
    (0.9999, 5284), (0.99995, 7719), (0.99999, 20090), (1, 142749)), whole=True)
"""Seconds of a task: mean 44.8."""

INSTANCES = Quantiles((
    (0, 1), (0.6617, 1), (0.6805, 2), (0.7411, 3), (0.7533, 4), (0.7760, 5), (0.8, 8), (0.85, 17), (0.9, 47),
    (0.92, 73), (0.94, 129), (0.95, 176), (0.96, 241), (0.975, 367), (0.985, 588), (0.99, 844), (0.995, 1189),
    (0.9975, 1843), (0.998, 2131), (0.999, 3526), (0.9995, 6684), (0.9998, 11542), (0.9999, 14001), (0.99995, 18769),
    (0.99999, 24895), (1, 47476)), whole=True)
"""Instances per task: mean 43.1."""

CPUS = Choice((0.5, 1.0), (0.419, 0.581))
"""Cores per instance: mean 0.791."""

_DEEPER = (0.977, 0.874, 0.788, 0.674, 0.629, 0.658, 0.557, 0.507, 0.465, 0.451, 0.416, 0.439, 0.389, 0.375, 0.415,
           0.376, 0.362, 0.356, 0.340)
# fmt: on
"""How often a further task makes a job of 2, 3, ... 20 tasks one level deeper: (mean levels - 1) / (tasks - 1)."""

_CROWDED = 3
"""Further tasks lie at this power of a uniform number: 61 % in the first fifth of the levels, as in 6,600 real jobs."""


@dataclass(frozen=True, slots=True)
class Alibaba:
    """Tasks per job and levels as published: the levels of ``n`` tasks are 1 + a binomial of ``n - 1``.

    That matches the published mean per ``n``, and the spread within about a fifth (up to 16 tasks). Beyond one per
    level, tasks crowd on the first. A task waits for one of the level above, and where nobody waits for a task that is
    not on the last level, one of the next level does: of jobs with more than 2 tasks 59 % gather (some task has two
    parents) and 33 % scatter, against 65 % and 21 % of 6,600 real ones.
    """

    kind: Literal["alibaba"] = "alibaba"

    __pydantic_config__ = {"extra": "forbid"}

    def draw(self, rng: np.random.Generator, jobs: int) -> DagArrays:
        tasks = TASKS.draw(rng, jobs).astype(int)
        depth = 1 + rng.binomial(tasks - 1, _deeper(tasks))
        picks = rng.random((int(tasks.sum()), 3))
        level, owner = _levels(tasks, depth, picks[:, 0]), np.repeat(np.arange(jobs), tasks)
        firsts = np.flatnonzero((np.diff(owner, prepend=-1) != 0) | (np.diff(level, prepend=-1) != 0))  # of each level
        ends = np.append(firsts[1:], len(level))
        of = np.repeat(np.arange(len(firsts)), ends - firsts)  # the level of each task, over all jobs
        widths = ends - firsts

        child = np.flatnonzero(level > 0)
        above = of[child] - 1
        parent = firsts[above] + (picks[child, 1] * widths[above]).astype(np.int64)
        lonely = np.setdiff1d(np.flatnonzero(level < np.repeat(depth, tasks) - 1), parent)
        below = of[lonely] + 1
        adopted = firsts[below] + (picks[lonely, 2] * widths[below]).astype(np.int64)
        return DagArrays.of_edges(tasks, np.concatenate([parent, lonely]), np.concatenate([child, adopted]))


def _deeper(tasks: np.ndarray) -> np.ndarray:
    """The chance that a further task deepens a job of so many tasks; jobs above 20 have about 6 further levels."""
    known = np.array((0.0, 0.0, *_DEEPER))
    beyond = 6.0 / np.maximum(tasks - 1, 1)
    return np.asarray(np.where(tasks < len(known), known[np.minimum(tasks, len(known) - 1)], beyond))


def _levels(tasks: np.ndarray, depth: np.ndarray, picks: np.ndarray) -> np.ndarray:
    """(n,) int64: the level of each task, rising within a job: one task per level, the others on any."""
    level = ranges(np.zeros(len(tasks), np.int64), tasks)
    depth = np.repeat(depth, tasks)
    free = level >= depth
    power = np.array([pick**_CROWDED for pick in picks[free].tolist()])  # NumPy's own differs from machine to machine
    level[free] = (power * depth[free]).astype(np.int64)
    owner = np.repeat(np.arange(len(tasks)), tasks)
    return level[np.lexsort((level, owner))]
