"""Sequences of jobs: a mix drawn from a pool of jobs, arriving at once or as a Poisson process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np

from dagsim.errors import WorkloadError
from dagsim.model.streams import stream
from dagsim.systems.spark.durations import SharedStream
from dagsim.systems.spark.job import SparkJob
from dagsim.systems.spark.profiles import QUERIES, SIZES

__all__ = ["MEAN_GAP_MS", "ParitySequence", "parity_sequence", "sequence"]

MEAN_GAP_MS = 25_000.0
"""Between two arrivals, on average; with 50 executors TPC-H then loads the cluster to some 85 %."""


def sequence(
    pool: Sequence[SparkJob],
    seed: int,
    *,
    jobs: int | None = None,
    mean_gap_ms: float = MEAN_GAP_MS,
    batch: int = 1,
    until_ms: float | None = None,
) -> Iterator[SparkJob]:
    """Jobs drawn uniformly from ``pool``: the first ``batch`` at 0, then one by one with exponential gaps.

    Ends after ``jobs`` of them or with the last one before ``until_ms``; read lazily, endless without both. Which jobs
    come and when they come are streams of their own, so that another gap leaves the mix as it is.

    Raises:
        WorkloadError: An empty pool, a gap that is not positive, or counts below 1.
    """
    if not pool:
        raise WorkloadError("a sequence of Spark jobs needs at least one job to draw from")
    if not mean_gap_ms > 0:
        raise WorkloadError(f"mean_gap_ms must be positive, got {mean_gap_ms!r}")
    if batch < 1 or (jobs is not None and jobs < 1):
        raise WorkloadError(f"jobs and batch must be at least 1, got {jobs!r} and {batch!r}")
    return _drawn(pool, stream(seed, "mix"), stream(seed, "arrivals"), jobs, mean_gap_ms, batch, until_ms)


def _drawn(
    pool: Sequence[SparkJob],
    mix: np.random.Generator,
    gaps: np.random.Generator,
    jobs: int | None,
    mean_gap_ms: float,
    batch: int,
    until_ms: float | None,
) -> Iterator[SparkJob]:
    now_ms = 0.0
    for number in count() if jobs is None else range(jobs):
        if number >= batch:
            now_ms += float(gaps.exponential(mean_gap_ms))
        if until_ms is not None and now_ms >= until_ms:
            return
        drawn = pool[int(mix.integers(len(pool)))]
        yield drawn.at(now_ms, f"{number}:{drawn.id}")


class ParitySequence(NamedTuple):
    """The jobs of an episode of spark-sched-sim, and the generator that its durations go on with."""

    jobs: list[SparkJob]
    draws: SharedStream


def parity_sequence(
    pool: Sequence[SparkJob],
    seed: int,
    jobs: int | None,
    *,
    mean_gap_ms: float = MEAN_GAP_MS,
    until_ms: float = np.inf,
) -> ParitySequence:
    """The episode that spark-sched-sim makes of ``reset(seed)``: the same jobs at the same times, then the same
    durations.

    ``pool`` is the 154 TPC-H profiles in the order of ``read_profiles``.

    Raises:
        WorkloadError: ``pool`` is something else, or nothing ends the sequence.
    """
    if len(pool) != QUERIES * len(SIZES):
        raise WorkloadError(f"parity needs all {QUERIES * len(SIZES)} TPC-H profiles, got {len(pool)}")
    if jobs is None and until_ms == np.inf:
        raise WorkloadError("a sequence of Spark jobs needs a number of jobs or a time limit")
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    drawn: list[SparkJob] = []
    now_ms = 0.0
    while now_ms < until_ms and (jobs is None or len(drawn) < jobs):
        query, size = int(rng.integers(QUERIES)), int(rng.integers(len(SIZES)))
        job = pool[query * len(SIZES) + size]
        drawn.append(job.at(now_ms, f"{len(drawn)}:{job.id}"))
        now_ms += float(rng.exponential(mean_gap_ms))
    return ParitySequence(drawn, SharedStream(rng))
