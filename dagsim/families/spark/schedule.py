"""The result of an episode, and the schedule that is built from it for metrics and plots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np

from dagsim.families.spark.spark_executors import ExecutorMove, ExecutorType, Launch
from dagsim.families.spark.state import SparkJobState, StageState
from dagsim.model import GPU_TYPES, Cluster, GpuType, JobFacts, Kind, Node
from dagsim.model.arithmetic import whole_sum
from dagsim.model.gpu import canonical
from dagsim.model.log import LogRow, Schedule


@dataclass(slots=True)
class SparkEpisode:
    """The jobs in order of arrival, with their completion times. ``launches`` is set only if
    launches are recorded.
    """

    executors: tuple[ExecutorType, ...]
    jobs: list[SparkJobState] = field(default_factory=list)
    decisions: int = 0
    ended_ms: float = 0.0
    seed: int = 0
    launches: list[Launch] | None = None
    population: list[tuple[float, int]] = field(default_factory=list)
    """Pairs of a time (ms) and the number of jobs in the system from then on; one per arrival and
    completion."""

    @property
    def jct_s(self) -> np.ndarray:
        """The completion time of each completed job, (completed jobs,) float64, in order of
        arrival."""
        done = [(job.completed_ms - job.arrival_ms) / 1000 for job in self.jobs if job.completed_ms is not None]
        return np.array(done, float)

    @property
    def mean_jct_s(self) -> float:
        """Mean completion time of the completed jobs."""
        return float(self.jct_s.mean())

    @property
    def makespan_s(self) -> float:
        """The time at which the last job is complete."""
        return max((job.completed_ms or 0.0) for job in self.jobs) / 1000

    @property
    def tasks(self) -> int:
        """The number of tasks launched."""
        return whole_sum(stage.tasks - stage.remaining for job in self.jobs for stage in job.stages)


_BEFORE_STARTS = -1


@dataclass(slots=True)
class _Run:
    """A run that consists of ``tasks`` consecutive tasks of a stage on one executor. ``begun_ms``
    is when the executor began to move to the stage.
    """

    order: int
    begun_ms: float
    start_ms: float
    end_ms: float
    executor: int
    stage: StageState
    tasks: int = 1


def cluster_of(types: tuple[ExecutorType, ...]) -> Cluster:
    """Return a cluster with one node per executor. If the catalogue of GPU types contains the
    executor's type, its node has one GPU. Otherwise, the node has one CPU.
    """
    nodes = []
    for kind in types:
        gpu = _gpu(kind)
        for number in range(kind.count):
            name = f"{kind.name}-{number}"
            nodes.append(Node(name, None, 0, 1) if gpu is None else Node(name, gpu, 1))
    return Cluster(tuple(nodes), "executors")


def schedule_of(episode: SparkEpisode, *, merged: bool = True) -> Schedule:
    """Build the schedule of an episode. Without recorded launches, it contains only arrivals and
    completions.

    A task in the schedule is a stage, and an instance is a task of that stage. With
    ``merged=True``, all consecutive tasks of a stage on an executor become one run, which gives
    about 50 times fewer bars. The start-up delay of the run is the move of the executor. With
    ``merged=False``, each task becomes a run, and moves are left out.
    """
    launches = episode.launches or []
    held = [float(kind.count > 0 and _gpu(kind) is not None) for kind in episode.executors for _ in range(kind.count)]
    facts = list(_facts(episode, any(held)))
    schedule = Schedule(cluster_of(episode.executors), facts, seed=episode.seed, decisions=episode.decisions)
    schedule.ended_s = episode.ended_ms / 1000
    runs = list(_merged(launches) if merged else _single(launches))
    keyed: list[tuple[float, int, int, LogRow]] = []

    def add(time_ms: float, order: int, step: int, kind: Kind, *rest: float) -> None:
        keyed.append((time_ms, order, step, (int(kind), time_ms / 1000, *rest)))  # type: ignore[arg-type]

    last: dict[SparkJobState, _Run] = {}
    for number, run in enumerate(runs):
        job, gpus = run.stage.job, held[run.executor]
        rest = (job.number, run.stage.index, number, run.executor, run.tasks, int(gpus), gpus)
        add(run.begun_ms, run.order, 0, Kind.STARTED, *rest)
        if run.begun_ms < run.start_ms:
            add(run.start_ms, run.order, 0, Kind.COMPUTING, *rest[:-1], 0.0)
        add(run.end_ms, _end_order(run), 1, Kind.FINISHED, *rest)
        if job not in last or (run.end_ms, _end_order(run)) >= (last[job].end_ms, _end_order(last[job])):
            last[job] = run
    nobody = (-1, -1, -1, 0, 0, 0.0)
    for job in episode.jobs:
        add(job.arrival_ms, _BEFORE_STARTS, 3, Kind.ARRIVED, job.number, *nobody)
        if job.completed_ms is not None:
            add(
                job.completed_ms,
                _end_order(last[job]) if job in last else _BEFORE_STARTS,
                2,
                Kind.COMPLETED,
                job.number,
                *nobody,
            )
    for *_, row in sorted(keyed, key=itemgetter(0, 1, 2)):
        schedule.log.append(row)
    return schedule


def _gpu(kind: ExecutorType) -> GpuType | None:
    return GPU_TYPES.get(canonical(kind.name))


def _end_order(run: _Run) -> int:
    """Return a sort key. An end comes before simultaneous starts, but not before the start of the
    same run.
    """
    return _BEFORE_STARTS if run.end_ms > run.begun_ms else run.order


def _single(launches: list[Launch]) -> Iterator[_Run]:
    for order, (start_ms, length_ms, executor, target) in enumerate(launches):
        if not isinstance(target, ExecutorMove):
            yield _Run(order, start_ms, start_ms, start_ms + length_ms, executor.number, target)


def _merged(launches: list[Launch]) -> Iterator[_Run]:
    """Yield runs in the order in which they begin to process their tasks."""
    present: dict[int, _Run] = {}
    arrived: dict[int, tuple[float, float]] = {}
    ready_ms: dict[StageState, float] = {}
    runs: list[_Run] = []
    for order, (start_ms, length_ms, executor, target) in enumerate(launches):
        number = executor.number
        if isinstance(target, ExecutorMove):
            arrived[number] = start_ms, start_ms + length_ms
            present.pop(number, None)
            continue
        run = present.get(number)
        if run is not None and run.stage is target and run.end_ms == start_ms:
            run.tasks += 1
            run.end_ms += length_ms
        else:
            begun_ms, ended_ms = arrived.pop(number, (0.0, -1.0))
            ready = max((ready_ms[parent] for parent in target.parents), default=0.0)
            travelled = ended_ms == start_ms and begun_ms >= ready
            run = _Run(order, begun_ms if travelled else start_ms, start_ms, start_ms + length_ms, number, target)
            present[number] = run
            runs.append(run)
        ready_ms[target] = max(ready_ms.get(target, 0.0), run.end_ms)
    return iter(runs)


def _facts(episode: SparkEpisode, on_gpus: bool) -> Iterator[JobFacts]:
    """Yield the data that a schedule needs about each job. The ideal time is computed from the
    durations that occurred, on the fastest executors.
    """
    fastest = max(kind.speed for kind in episode.executors)
    longest: dict[StageState, float] = {}
    total: dict[SparkJobState, float] = dict.fromkeys(episode.jobs, 0.0)
    for _, length_ms, executor, target in episode.launches or ():
        if not isinstance(target, ExecutorMove):
            best_ms = length_ms * executor.speed / fastest
            longest[target] = max(longest.get(target, 0.0), best_ms)
            total[target.job] += best_ms
    for job in episode.jobs:
        graph = job.job.graph
        yield JobFacts(
            id=job.job.id,
            arrival_s=job.arrival_ms / 1000,
            priority=0.0,
            tenant="",
            deadline_s=None,
            weight=1.0,
            ideal_s=graph.critical_path([longest.get(stage, 0.0) for stage in job.stages]) / 1000,
            ideal_gpu_s=total[job] / 1000 if on_gpus else 0.0,
            gpus=float(max(stage.tasks for stage in job.stages)) if on_gpus else 0.0,
            tasks=graph.names,
            parents=graph.parents,
        )
