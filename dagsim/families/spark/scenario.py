"""The scenario for Spark executors. Only scenarios build kernels."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, floor, inf
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Literal

from dagsim.errors import ConfigError, require
from dagsim.families.spark.codecs import SPARK_CODECS
from dagsim.families.spark.kernel import SparkKernel
from dagsim.families.spark.policies import SPARK_POLICIES
from dagsim.families.spark.rewards import SPARK_TERMS
from dagsim.families.spark.schedule import cluster_of
from dagsim.families.spark.spark_executors import ExecutorType, executor_types
from dagsim.families.spark.spark_job import SparkJob
from dagsim.families.spark.state import DurationSource
from dagsim.families.spark.view import SparkPolicy
from dagsim.families.spark.workload import parity_sequence, read_profiles, sequence, synthetic_profiles, trace_jobs
from dagsim.model import Cluster
from dagsim.model.arithmetic import ordered_sum
from dagsim.model.streams import stream
from dagsim.registry import Registry
from dagsim.systems.seam import CountedJobs, Kernel, RewardTerm, Scenario


class _Pool:
    """The pool from which jobs are drawn. It is read on first use, once in each process."""

    def __init__(self, jobs: Sequence[SparkJob] | None = None) -> None:
        self._jobs = None if jobs is None else list(jobs)
        self._work_s: float | None = None

    def __reduce__(self) -> tuple[type[_Pool], tuple[()]]:
        return _Pool, ()

    def get(self, make: Callable[[], list[SparkJob]]) -> list[SparkJob]:
        if self._jobs is None:
            self._jobs = make()
        return self._jobs

    def mean_work_s(self, make: Callable[[], list[SparkJob]]) -> float:
        """Return the mean work of a job in executor-seconds, as policies estimate it."""
        if self._work_s is None:
            self._work_s = fmean(job.work_ms for job in self.get(make)) / 1000
        return self._work_s


@dataclass(frozen=True)
class SparkScenario(Scenario):
    """Spark jobs that run on executors (Mao et al. 2019). The settings describe the pool of jobs,
    their arrivals, and the executors.

    If the number of executors or the gap between arrivals is a range, [smallest, largest], it is
    drawn for every seed, uniformly on a log scale.
    """

    system: ClassVar[str] = "spark"
    policies: ClassVar[Registry[SparkPolicy]] = SPARK_POLICIES
    codecs: ClassVar[Registry[Any]] = SPARK_CODECS
    terms: ClassVar[Registry[RewardTerm]] = SPARK_TERMS
    training: ClassVar[Mapping[str, Any]] = {
        "codec": "stages",
        "net": "decima",
        "reward": {"job_seconds": 1.0},
        "rivals": ["fifo", "fair", "weighted-fair"],
        "linear_iterations": 0,
    }
    variants: ClassVar[tuple[str, ...]] = (
        "srpt-cp[cap=5]",
        "srpt-cp[cap=16]",
        "weighted-fair[alpha=0.25,order=shortest]",
    )
    executors: int | tuple[int, int] | tuple[ExecutorType, ...] = 50
    """Number of executors, a range from which it is drawn, or a list of executor types with their
    names, counts and speeds.
    """
    jobs: int = 200
    """Jobs per episode."""
    mean_gap_s: float | tuple[float, float] = 25.0
    """Mean number of seconds between two arrivals, or a range from which this mean is drawn."""
    load: float | tuple[float, float] | None = None
    """Work that arrives (a job's mean work, as policies estimate it, divided by the mean gap) per
    executor, or a range from which it is drawn. Executors are then drawn among those whose mean
    gap lies in the range ``mean_gap_s``, and the gap follows from them and the load.
    """
    batch: int = 1
    """Number of jobs that arrive together at the start."""
    moving_delay_s: float = 2.0
    """Time in seconds for which an executor is unavailable when it moves to another job."""
    parity: bool = False
    """Reproduce spark-sched-sim bit for bit, with its rules and its random numbers (requires
    ``profiles``).
    """
    profiles: str | None = None
    """File or folder of TPC-H profiles from which jobs are drawn. Default: jobs are synthetic
    queries.
    """
    trace: str | None = None
    """Trace of DAG jobs from which jobs are drawn, if there are no profiles."""
    max_tasks: int | None = None
    """Jobs in the trace with more tasks than this are left out."""
    kind: Literal["spark"] = "spark"
    _pool: Any = field(default_factory=_Pool, init=False, repr=False, compare=False)

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        for name in ("jobs", "batch"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1", getattr(self, name))
        if isinstance(self.load, float | int):
            require(0 < self.load < float("inf"), "load must be positive and finite", self.load)
        for name in ("executors", "mean_gap_s", "load"):
            if (limits := _range(getattr(self, name))) and not 0 < limits[0] <= limits[1] < float("inf"):
                raise ConfigError(f"{name} must be [smallest, largest], both positive and finite, got {list(limits)}")
        if self.load is not None and _range(self.mean_gap_s) is None:
            raise ConfigError("load determines the mean gap, so mean_gap_s must be a range, [smallest, largest]")
        # Loads are known only after the pool has been read, so check the limits of everything that
        # depends on them.
        if self.load is None or _range(self.executors) is None:
            executor_types(self.executors_of(0))
        checked = {"mean_gap_s": self.mean_gap_s_of(0)} if self.load is None else {}
        for name, value in (checked | {"moving_delay_s": self.moving_delay_s}).items():
            if not 0 <= value < float("inf"):
                raise ConfigError(f"{name} must be 0 or more and finite, got {value!r}")
        if not self.mean_gap_s:
            raise ConfigError("mean_gap_s must be positive, got 0; to make jobs arrive simultaneously, set batch")
        if self.trace is not None and (self.parity or self.profiles is not None):
            raise ConfigError("a trace cannot be combined with profiles or with parity")
        if self.parity and (self.batch != 1 or not (_range(self.executors) or isinstance(self.executors, int))):
            raise ConfigError("parity supports neither batches nor executors with different speeds")

    @property
    def varied(self) -> bool:
        """True if executors or arrivals differ between seeds. In this case, the unit of time also
        differs."""
        return bool(_range(self.executors) or _range(self.mean_gap_s))

    @property
    def episode_jobs(self) -> int:
        """The number of jobs per episode. A kernel can also simulate only the first jobs."""
        return self.jobs

    @property
    def trace_path(self) -> Path | None:
        """The path of the trace from which jobs are drawn."""
        return None if self.trace is None else Path(os.path.expandvars(self.trace))

    def read_from(self, path: str) -> Mapping[str, Any]:
        """Return the configuration keys, with a different path for the trace."""
        return {"system": replace(self, trace=path)}

    @property
    def cluster(self) -> Cluster:
        """A cluster with one node per executor. If the number of executors is a range, this is the
        cluster for the first seed."""
        return cluster_of(executor_types(self.executors_of(0)))

    @property
    def most_executors(self) -> int:
        """The largest number of executors that a seed can draw."""
        limits = _range(self.executors)
        return int(limits[1]) if limits else len(self.cluster.nodes)

    def executors_of(self, seed: int) -> int | tuple[ExecutorType, ...]:
        """Return the executors for a seed, as a number or as types."""
        match self.executors:
            case (int() as least, int() as largest):
                if self.load is not None:  # leave out numbers for which the gap would be out of range
                    soonest_s, latest_s = _range(self.mean_gap_s) or (0.0, inf)
                    rate = self._pool.mean_work_s(self._read) / self._load_of(seed)
                    least = min(max(least, ceil(rate / latest_s)), largest)
                    largest = max(min(largest, floor(rate / soonest_s)), least)
                return round(_drawn(least, largest, seed, "executors"))
            case executors:
                return executors

    def mean_gap_s_of(self, seed: int) -> float:
        """Return the mean time between two arrivals for a seed, in seconds."""
        match self.mean_gap_s:
            case (least, largest) if self.load is None:
                return _drawn(least, largest, seed, "mean-gap")
            case (least, largest):
                speed = ordered_sum(kind.count * kind.speed for kind in executor_types(self.executors_of(seed)))
                gap_s = self._pool.mean_work_s(self._read) / self._load_of(seed) / speed
                return float(min(max(gap_s, least), largest))
            case gap_s:
                return gap_s

    def _load_of(self, seed: int) -> float:
        """Return the load of a seed, if loads are given."""
        assert self.load is not None
        limits = _range(self.load)
        return float(self.load) if limits is None else _drawn(*limits, seed, "load")  # type: ignore[arg-type]

    @property
    def pool(self) -> Sequence[SparkJob]:
        """The jobs from which episodes are drawn.

        Raises:
            WorkloadError, TraceError: The jobs cannot be read.
        """
        jobs: list[SparkJob] = self._pool.get(self._read)
        return jobs

    def drawing_from(self, pool: Sequence[SparkJob]) -> SparkScenario:
        """Return the same scenario with a different pool of jobs."""
        scenario = replace(self)
        object.__setattr__(scenario, "_pool", _Pool(pool))
        return scenario

    def kernel(
        self,
        seed: int,
        *,
        record: bool = True,
        on_arrivals: Callable[[int], None] | None = None,
        jobs: int | Sequence[SparkJob] | None = None,
    ) -> SparkKernel:
        """Build a kernel. The same seed gives the same jobs and durations.

        Without ``record``, the log contains only arrivals and completions. ``jobs`` is either a
        number, to simulate only the first jobs of the episode, or the jobs themselves, in order of
        arrival.

        Raises:
            WorkloadError, TraceError: The jobs cannot be read.
        """
        source: Iterable[SparkJob]
        draws: DurationSource | None = None
        count, gap_ms = jobs if isinstance(jobs, int) else self.jobs, self.mean_gap_s_of(seed) * 1000
        if jobs is not None and not isinstance(jobs, int):
            source = jobs
        elif self.parity:
            drawn = parity_sequence(self.pool, seed, count, mean_gap_ms=gap_ms)
            source, draws = drawn.jobs, drawn.draws
        else:
            source = sequence(self.pool, seed, jobs=count, mean_gap_ms=gap_ms, batch=self.batch)
        return SparkKernel(
            self.executors_of(seed),
            source if on_arrivals is None else CountedJobs(source, on_arrivals),
            moving_delay_ms=self.moving_delay_s * 1000,
            parity=self.parity,
            draws=draws,
            record=record,
            seed=seed,
        )

    def facts(self, kernel: Kernel[Any, Any]) -> Mapping[str, Any]:
        """Return the number of jobs that arrived, and the time that their arrivals span."""
        assert isinstance(kernel, SparkKernel)
        jobs = kernel.episode.jobs
        span_s = (jobs[-1].arrival_ms - jobs[0].arrival_ms) / 1000 if jobs else 0.0
        return {
            "cluster": ", ".join(map(_counted, kernel.episode.executors)),
            "jobs": len(jobs),
            "span_s": span_s,
            "gpu_load": None,
            "cpu_load": None,
            "warning": None,
        }

    def check(self) -> None:
        """Read the jobs from which episodes are drawn.

        Raises:
            WorkloadError, TraceError: The jobs cannot be read.
        """
        if not self.pool:
            raise ConfigError("there are no jobs to sample from")

    def _read(self) -> list[SparkJob]:
        if self.trace_path is not None:
            return trace_jobs(self.trace_path, most_tasks=self.max_tasks)
        if self.profiles is not None:
            return read_profiles(Path(os.path.expandvars(self.profiles)))
        return synthetic_profiles()


def _range(value: object) -> tuple[float, float] | None:
    """Return the limits of a range, or ``None`` for a number or for executor types."""
    match value:
        case (float() | int() as least, float() | int() as largest):
            return least, largest
    return None


def _drawn(least: float, largest: float, seed: int, name: str) -> float:
    """Draw a number uniformly on a log scale, from a separate random stream."""
    return float(min(largest, least * (largest / least) ** stream(seed, name).random()))


def _counted(kind: ExecutorType) -> str:
    """Describe the executors: ``50 executors``, or ``8 executors fast`` for a named type."""
    return f"{kind.count} executors" + ("" if kind.name == "executor" else f" {kind.name}")
