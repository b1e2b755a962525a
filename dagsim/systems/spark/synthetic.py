"""Queries like the profiled TPC-H ones, made up: Spark jobs for a machine without any data.

A query is a tree of stages: scans of tables at the leaves, joins and exchanges, one sink. The numbers below were fitted
to aggregate statistics of the 154 profiles of Mao et al. 2019 (22 queries at 7 input sizes): 2-18 stages per job (mean
9.2), on paths of up to 9 (mean 5.9), 3.5 scans; 1155 tasks per job; the largest 23 % of the jobs hold two thirds of the
work; and the work grows by a quarter from 5 to 50 executors, by two thirds to 100. ``tests/systems/spark``
holds the generator to them.
"""

from __future__ import annotations

from math import ceil, log

import numpy as np

from dagsim.errors import WorkloadError
from dagsim.model.arithmetic import ordered_sum
from dagsim.model.streams import stream
from dagsim.systems.spark.job import SparkJob
from dagsim.systems.spark.profiles import QUERIES, SIZES
from dagsim.systems.spark.waves import LEVELS, Waves

__all__ = ["synthetic_profiles"]

_PER_GB = (5.93, 1.33, 0.91, 0.19, 0.0)
"""Partitions per GB of input of the tables that are scanned, the largest first (at least 2 each)."""
_TABLE_SHARE = (0.27, 0.14, 0.06, 0.22, 0.31)
_SHUFFLE_TASKS = 200
"""Spark's default number of partitions after a shuffle."""
_SAMPLES = 24
"""Of every wave and level."""


def synthetic_profiles(seed: int = 0, *, queries: int = QUERIES) -> list[SparkJob]:
    """``queries`` queries at the seven input sizes, in the order of ``read_profiles``; all arrive at 0.

    Raises:
        WorkloadError: Less than one query.
    """
    if queries < 1:
        raise WorkloadError(f"queries must be at least 1, got {queries!r}")
    rng = stream(seed, "spark-profiles")
    strata = [(rng.permutation(queries) + rng.random(queries)) / queries for _ in range(2)]
    jobs = []
    for query in range(queries):
        shape = _Query(rng, *(each[query] for each in strata))
        for size in SIZES:
            stages = [_waves(rng, *stage) for stage in shape.stages(float(size.removesuffix("g")))]
            jobs.append(SparkJob.of(f"synthetic-{query + 1}-{size}", stages, shape.edges))
    return jobs


class _Query:
    """The constant part of a query at all input sizes: the tree, the tables scanned, and the growth of work."""

    def __init__(self, rng: np.random.Generator, stages_at: float, work_at: float) -> None:
        count = round(min(18, max(2, _quantile(stages_at))))
        scans = max(1, min((count + 1) // 2, round(0.3 * count + rng.random() * 1.6)))
        self.edges = _tree(rng, scans, count)
        self.scans = scans
        self.tables = rng.choice(len(_PER_GB), scans, p=_TABLE_SHARE)
        self.scan_ms = np.where(self.tables == 0, rng.normal(2000, 150, scans), 1500 * rng.lognormal(0, 0.5, scans))
        inner = count - scans
        spread = rng.normal(0, 0.8, inner) + 0.5 * _normal(work_at)
        self.inner_ms = 24 * np.exp(spread)
        self.growth = rng.choice([0.0, 0.1, 0.5, 0.9], inner, p=[0.35, 0.25, 0.2, 0.2])
        self.inner_tasks = np.where(rng.random(inner) < 0.95, _SHUFFLE_TASKS, 1)
        if inner:
            self.inner_tasks[-1] = rng.choice([1, 3, 5, 6, _SHUFFLE_TASKS], p=[0.45, 0.15, 0.1, 0.1, 0.2])

    def stages(self, gb: float) -> list[tuple[int, float, bool]]:
        """Per stage, scans first and the sink last: tasks, ms of a later task at few executors, whether it scans."""
        scans = [
            (max(2, ceil(_PER_GB[table] * gb)), float(ms), True)
            for table, ms in zip(self.tables, self.scan_ms, strict=True)
        ]
        inner = [
            (int(tasks), min(float(ms * (gb / 2) ** growth), 4000.0), False)
            for tasks, ms, growth in zip(self.inner_tasks, self.inner_ms, self.growth, strict=True)
        ]
        return [*scans, *inner]


def _tree(rng: np.random.Generator, scans: int, count: int) -> list[tuple[int, int]]:
    """Edges of a tree with ``scans`` leaves (stages 0..) and one sink (stage ``count - 1``); joins take two inputs, all
    else passes one on. Joins run along one branch, as in most query plans."""
    inner = list(range(scans, count))
    joins = scans - 1
    steps = [True] * joins + [False] * (len(inner) - joins)  # a join, or a stage behind another
    order = [bool(each) for each in rng.permutation(np.array(steps, bool))]
    waiting = list(range(1, scans))
    main, edges = 0, []
    for stage, is_join in zip(inner, order, strict=True):
        is_last = stage == count - 1
        if is_join:
            edges += [(main, stage), (waiting.pop(0), stage)]
            main = stage
        elif waiting and not is_last and rng.random() < 0.5:  # on the branch that joins next
            edges.append((waiting[0], stage))
            waiting[0] = stage
        else:
            edges.append((main, stage))
            main = stage
    return edges


def _waves(rng: np.random.Generator, tasks: int, same_ms: float, is_scan: bool) -> Waves:
    """A profile around the mean of a later task at few executors: what grows with their number, a shuffle fetched
    first, an executor warming up."""
    at, observed = {}, []
    for level in LEVELS:
        more = (level - LEVELS[0]) / (LEVELS[-1] - LEVELS[0])
        if is_scan:
            same = same_ms * (1 + 0.5 * more**1.3)
            means = (same + 1250 + 700 * min(1.0, 3 * more), 1.13 * same, same)
        else:
            same = same_ms * (1 + 0.3 * more**0.7) + 90 * more**1.2
            means = (same + 1130, same + 125, same)
        noise = rng.lognormal(0, (0.05, 0.1, 0.17), (_SAMPLES, 3))
        fresh, new, rest = (np.rint(means * noise).clip(1).T).tolist()
        at[level] = (fresh, new, rest)
        first = min(level, tasks)
        observed.append((first * means[0] + (tasks - first) * same) / tasks)
    return Waves(tasks, ordered_sum(observed) / len(observed), at)


def _quantile(share: float) -> float:
    """Of the number of stages: from 2.5 over 8.5 to 18."""
    return 2.5 + 10.6 * share + 5.5 * share**3


def _normal(share: float) -> float:
    """Roughly the normal quantile (logistic, scaled)."""
    share = min(max(share, 1e-3), 1 - 1e-3)
    return log(share / (1 - share)) / 1.7
