"""Workloads of Spark jobs: profiled queries, random sequences, synthetic queries, traces and
workload files.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from math import ceil, log
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dagsim.errors import ModelError, TraceError, WorkloadError, require
from dagsim.families.spark.spark_job import LEVELS, RecordedDurations, SparkJob, Waves
from dagsim.families.spark.state import SharedStream
from dagsim.files import parsed_json, replaced, why_unreadable
from dagsim.model.arithmetic import ordered_sum
from dagsim.model.streams import stream
from dagsim.traces import TraceOptions, open_trace

PROFILE_FILE = "tpch_dags.json.gz"
"""File that is searched for in a folder."""

QUERIES = 22
SIZES = ("2g", "5g", "10g", "20g", "50g", "80g", "100g")

_GZIP = b"\x1f\x8b"


def read_profiles(path: Path, *, warmup_ms: float = 1000.0) -> list[SparkJob]:
    """Read all profiled queries as jobs that arrive at time 0. They are sorted by query, and then
    by size in the order of ``SIZES``.

    Raises:
        TraceError: ``path`` cannot be read, or contains no such profiles.
    """
    file = path / PROFILE_FILE if path.is_dir() else path
    try:
        raw = file.read_bytes()
        document = parsed_json(gzip.decompress(raw) if raw.startswith(_GZIP) else raw)
        profiles = sorted(document, key=lambda query: (int(query["query"]), _size(query["size"])))
        jobs = [_job(query, warmup_ms) for query in profiles]
    except OSError as error:
        raise TraceError(f"{file}: {why_unreadable(error)}") from None
    except (ValueError, TypeError, KeyError, EOFError) as error:
        raise TraceError(f"{file}: cannot be read as Spark profiles ({type(error).__name__}: {error})") from None
    if not jobs:
        raise TraceError(f"{file}: the file contains no Spark profiles")
    return jobs


def _job(profile: Mapping[str, Any], warmup_ms: float) -> SparkJob:
    stages = []
    for stage in profile["stages"]:
        waves = Waves.of(
            *(_samples(stage[wave]) for wave in ("first_wave_ms", "rest_wave_ms", "fresh_ms")), warmup_ms=warmup_ms
        )
        if waves.tasks != stage.get("num_tasks", waves.tasks):
            raise ModelError(
                f"query {profile['query']!r}: a stage has {waves.tasks} durations, but its num_tasks is "
                f"{stage['num_tasks']}"
            )
        stages.append(waves)
    edges = [(parent, child) for parent, child in profile["edges"]]
    return SparkJob.of(f"tpch-{profile['query']}-{profile['size']}", stages, edges)


def _samples(by_executors: Mapping[str, list[int]]) -> dict[int, list[int]]:
    return {int(executors): samples for executors, samples in by_executors.items()}


def _size(text: object) -> tuple[int, str]:
    """Return a sort key. Known sizes come first, in their order. Other sizes follow by name."""
    name = str(text)
    return (SIZES.index(name), name) if name in SIZES else (len(SIZES), name)


MEAN_GAP_MS = 25_000.0
"""Mean gap between two arrivals; with 50 executors, TPC-H then loads the cluster to about 85%."""


def sequence(
    pool: Sequence[SparkJob],
    seed: int,
    *,
    jobs: int | None = None,
    mean_gap_ms: float = MEAN_GAP_MS,
    batch: int = 1,
    until_ms: float | None = None,
) -> Iterator[SparkJob]:
    """Draw jobs uniformly from ``pool``. The first ``batch`` jobs arrive at time 0, and the others
    arrive one at a time, with exponential gaps.

    The sequence ends after ``jobs`` jobs, or with the last job before ``until_ms``. Without a
    limit, it is endless. It is generated lazily. Jobs and arrivals are drawn from separate streams,
    so changing the gap does not change which jobs are drawn.

    Raises:
        WorkloadError: The pool is empty, the gap is not positive, or a count is below 1.
    """
    if not pool:
        raise WorkloadError("a sequence of Spark jobs needs at least one job to sample from")
    require(mean_gap_ms > 0, "mean_gap_ms must be positive", mean_gap_ms, WorkloadError)
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
    """The jobs in an episode of spark-sched-sim, and the source of their durations. The source
    continues with the same generator.
    """

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
    """Return the same episode as ``reset(seed)`` in spark-sched-sim, with the same jobs, arrivals
    and durations.

    ``pool`` contains the 154 TPC-H profiles in the order of ``read_profiles``.

    Raises:
        WorkloadError: ``pool`` has a different length, or the sequence is endless.
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


_PER_GB = (5.93, 1.33, 0.91, 0.19, 0.0)
"""Partitions per GB of input of the scanned tables, largest table first (at least 2 each)."""
_TABLE_SHARE = (0.27, 0.14, 0.06, 0.22, 0.31)
_SHUFFLE_TASKS = 200
"""Spark's default number of partitions after a shuffle."""
_SAMPLES = 24
"""Number of samples for every wave and level."""


def synthetic_profiles(seed: int = 0, *, queries: int = QUERIES) -> list[SparkJob]:
    """Build ``queries`` synthetic queries at the seven input sizes, in the order of
    ``read_profiles``. All of them arrive at time 0.

    Raises:
        WorkloadError: ``queries`` is less than 1.
    """
    require(queries >= 1, "queries must be at least 1", queries, WorkloadError)
    rng = stream(seed, "spark-profiles")
    strata = [(rng.permutation(queries) + rng.random(queries)) / queries for _ in range(2)]
    jobs = []
    for query in range(queries):
        shape = _Query(rng, *(quantiles[query] for quantiles in strata))
        for size in SIZES:
            stages = [_waves(rng, *stage) for stage in shape.stages(float(size.removesuffix("g")))]
            jobs.append(SparkJob.of(f"synthetic-{query + 1}-{size}", stages, shape.edges))
    return jobs


class _Query:
    """The properties that a query has for all input sizes: the tree, the scanned tables, and how
    the work grows with the input size.
    """

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
        """Return, for each stage, the number of tasks, how long a later task takes with few
        executors (ms), and whether the stage is a scan. Scans come first, and the sink comes last.
        """
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
    """Return the edges of a tree with ``scans`` leaves (stages 0..) and one sink (stage
    ``count - 1``).

    Joins have two parents, and other stages have one. All joins are on one branch, as in most query
    plans.
    """
    inner = list(range(scans, count))
    joins = scans - 1
    # Each step adds a stage: a join (True), or a stage with a single parent (False).
    steps = [True] * joins + [False] * (len(inner) - joins)
    order = [bool(parents) for parents in rng.permutation(np.array(steps, bool))]
    waiting = list(range(1, scans))
    main, edges = 0, []
    for stage, is_join in zip(inner, order, strict=True):
        is_last = stage == count - 1
        if is_join:
            edges += [(main, stage), (waiting.pop(0), stage)]
            main = stage
        # add the stage to the branch that is joined next
        elif waiting and not is_last and rng.random() < 0.5:
            edges.append((waiting[0], stage))
            waiting[0] = stage
        else:
            edges.append((main, stage))
            main = stage
    return edges


def _waves(rng: np.random.Generator, tasks: int, same_ms: float, is_scan: bool) -> Waves:
    """Build a profile around the mean duration of later tasks with few executors.

    Durations also grow with the number of executors. They include the time to fetch a shuffle, and
    to warm up an executor.
    """
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
    """Return how many stages the query at a quantile of the distribution has: 2.5 at quantile 0,
    8.5 at 0.5, and 18.6 at 1.
    """
    return 2.5 + 10.6 * share + 5.5 * share**3


def _normal(share: float) -> float:
    """Return an approximate quantile of the normal distribution. It is the quantile of a scaled
    logistic distribution.
    """
    share = min(max(share, 1e-3), 1 - 1e-3)
    return log(share / (1 - share)) / 1.7


def trace_jobs(
    path: Path, format: str | None = None, *, limit: int | None = None, most_tasks: int | None = None
) -> list[SparkJob]:
    """Read the jobs in a trace, in order of arrival. ``format`` is its format, such as
    ``"alibaba2018"``, or ``None`` to detect the format.

    A task in the trace becomes a stage, and its instances become the tasks of the stage. All of
    them have the recorded duration (at least a second, the resolution of most traces). Jobs with
    more than ``most_tasks`` tasks are left out. ``sequence`` can use the list as a pool. If the
    list is simulated directly, jobs arrive as recorded.

    Raises:
        TraceError: The trace cannot be read, or none of its jobs remains.
    """
    trace = open_trace(path, format, TraceOptions(limit=limit, floor_s=1.0))
    jobs = [
        SparkJob.of_job(job)
        for job in trace.jobs()
        if most_tasks is None or sum(task.instances for task in job.tasks) <= most_tasks
    ]
    if not jobs:
        raise TraceError(f"{path}: no jobs are left to simulate")
    return jobs


class Dump(NamedTuple):
    """The contents of a workload file: the jobs in order of arrival, and the cluster for which they
    were made (``None`` if the file does not state it).
    """

    jobs: list[SparkJob]
    executors: int | None
    moving_delay_ms: float | None


def read_dump(path: Path) -> Dump:
    """Read a workload file.

    Raises:
        TraceError: ``path`` cannot be read, or is not a workload of this format.
    """
    try:
        raw = path.read_bytes()
        document = parsed_json(gzip.decompress(raw) if raw.startswith(_GZIP) else raw)
        jobs = [_dumped_job(record) for record in document["jobs"]]
        meta = document.get("meta", {})
        executors, delay_ms = meta.get("num_executors"), meta.get("moving_delay_ms")
        dump = Dump(
            sorted(jobs, key=lambda job: job.arrival_ms),
            None if executors is None else int(executors),
            None if delay_ms is None else float(delay_ms),
        )
    except OSError as error:
        raise TraceError(f"{path}: {why_unreadable(error)}") from None
    except (ValueError, TypeError, KeyError, AttributeError, EOFError) as error:
        raise TraceError(f"{path}: cannot be read as a Spark workload ({type(error).__name__}: {error})") from None
    if not dump.jobs:
        raise TraceError(f"{path}: the Spark workload has no jobs")
    return dump


def write_dump(path: Path, jobs: Sequence[SparkJob], executors: int, moving_delay_ms: float = 2000.0) -> None:
    """Write jobs with recorded durations to a file. The file is compressed if ``path`` ends in
    ``.gz``.

    Raises:
        ModelError: A job's durations are drawn, not recorded.
    """
    document = {
        "meta": {"num_executors": executors, "moving_delay_ms": moving_delay_ms},
        "jobs": [_written(job) for job in jobs],
    }
    text = json.dumps(document).encode()
    with replaced(path) as temporary:
        temporary.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def _dumped_job(record: Any) -> SparkJob:
    stages = []
    for stage in record["stages"]:
        durations = tuple(stage["durations"])
        if stage.get("num_tasks", len(durations)) != len(durations):
            raise ModelError(
                f"job {record['id']!r}: a stage has {len(durations)} durations, but its num_tasks is "
                f"{stage['num_tasks']}"
            )
        rough_ms = stage.get("rough_duration_ms")
        stages.append(
            RecordedDurations(durations, ordered_sum(durations) / len(durations) if rough_ms is None else rough_ms)
        )
    edges = [(parent, child) for parent, child in record.get("edges", ())]
    return SparkJob.of(str(record["id"]), stages, edges, record["arrival_ms"])


def _written(job: SparkJob) -> dict[str, object]:
    stages = []
    for place, durations in enumerate(job.durations):
        if not isinstance(durations, RecordedDurations):
            raise ModelError(
                f"job {job.id!r}: the durations of its stages are random instead of recorded, so the job cannot "
                "be written"
            )
        stages.append(
            {
                "id": place,
                "num_tasks": durations.tasks,
                "durations": list(durations.ms),
                "rough_duration_ms": durations.rough_ms,
            }
        )
    return {
        "id": job.id,
        "arrival_ms": job.arrival_ms,
        "stages": stages,
        "edges": [[edge.parent, edge.child] for edge in job.graph.edges],
    }
