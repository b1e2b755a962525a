"""The current state, on which a Spark policy bases its decisions, as objects and as a graph of
arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from dagsim.families.spark.spark_executors import ExecutorPools
from dagsim.families.spark.state import Executor, SparkJobState, StageState
from dagsim.model import TaskGraph

if TYPE_CHECKING:
    from dagsim.families.spark.kernel import SparkKernel


class StageGraph(NamedTuple):
    """The incomplete stages of all active jobs, in unscaled units. They are sorted by the arrival
    of the job, and then by index.

    There are N stages, M edges between them and J jobs. The caller may change the arrays.
    """

    remaining: np.ndarray  # shape (N,), int64: tasks that have not been launched
    seen_ms: np.ndarray  # shape (N,), float64: duration of a task, as policies see it.
    demand: np.ndarray  # shape (N,), int64
    """Number of additional executors that each stage could use, beyond those working for it or on
    their way to it. It may be negative."""
    executing: np.ndarray  # shape (N,), int64: running tasks
    ready: np.ndarray  # shape (N,), bool: True if all parents are complete
    schedulable: np.ndarray  # shape (N,), bool: True if the stage can be chosen now
    height: np.ndarray  # shape (N,), int64: edges on the longest path to a sink; smaller for every child
    job: np.ndarray  # shape (N,), int64: index of the stage's job in 0..J-1
    first: np.ndarray  # shape (J + 1,), int64: job j has the stages first[j]..first[j + 1]-1
    edges: np.ndarray  # shape (M, 2), int64: parent, child
    supply: np.ndarray  # shape (J,), int64: executors at the job, moving to it or committed to it
    arrival_ms: np.ndarray  # shape (J,), float64
    source: int  # index of the job whose executors are to be committed; -1 for the common pool
    committable: int
    executors: int  # number of executors in the cluster
    now_ms: float
    stages: tuple[StageState, ...]  # the stages by index, as targets for commitments

    def kept(self) -> np.ndarray:
        """Return how many executors each job keeps, without those to be committed now. Shape (J,),
        int64.
        """
        kept = self.supply.copy()
        if self.source >= 0:
            kept[self.source] -= self.committable
        return kept


class _Shape(NamedTuple):
    """The part of a job's graph that never changes."""

    edges: np.ndarray  # shape (m, 2), int64
    height: np.ndarray  # shape (n,), int64


@lru_cache(maxsize=4096)
def _heights(edges: tuple[tuple[int, int], ...], order: tuple[int, ...]) -> _Shape:
    height = [0] * len(order)
    children: list[list[int]] = [[] for _ in order]
    for parent, child in edges:
        children[parent].append(child)
    for index in reversed(order):
        for child in children[index]:
            height[index] = max(height[index], height[child] + 1)
    return _Shape(np.array(edges, np.int64).reshape(-1, 2), np.array(height, np.int64))


def _shape(graph: TaskGraph) -> _Shape:
    return _heights(tuple((edge.parent, edge.child) for edge in graph.edges), graph.order)


class StageTable:
    """Builds the ``StageGraph`` of a cluster.

    A graph costs O(stages of the active jobs) in NumPy, plus a few operations in Python for each
    stage that has changed.
    """

    _row: dict[StageState, int]
    """The row of each stage of the active jobs, complete stages included. There are n rows."""
    _starts: np.ndarray  # shape (J,), int64: first row of each job
    _job: np.ndarray  # shape (n,), int64, like all columns without another type
    _height: np.ndarray
    _edges: np.ndarray  # shape (m, 2), int64
    _remaining: np.ndarray
    _inbound: np.ndarray
    _executing: np.ndarray
    _blockers: np.ndarray
    _seen_ms: np.ndarray  # float64
    _live: np.ndarray  # bool: True if the stage is incomplete

    def __init__(self, cluster: ExecutorPools) -> None:
        self._cluster = cluster
        self._jobs: list[SparkJobState] = []
        self._rebuild()

    def graph(self) -> StageGraph:
        """Return the graph for the current state."""
        cluster = self._cluster
        if self._jobs != cluster.jobs:
            self._rebuild()
        else:
            self._refresh()
        live = self._live
        schedulable = self._schedulable()
        number = np.cumsum(live) - 1
        # Keep the edges whose parent is incomplete. Their children are also incomplete, because a
        # child never completes before its parents.
        kept = live[self._edges[:, 0]]
        counts = np.add.reduceat(live, self._starts, dtype=np.int64) if self._jobs else np.empty(0, np.int64)
        jobs = self._jobs
        home = cluster.source.job if cluster.source is not None else None
        return StageGraph(
            remaining=self._remaining[live],
            seen_ms=self._seen_ms[live],
            demand=(self._remaining - self._inbound)[live],
            executing=self._executing[live],
            ready=self._blockers[live] == 0,
            schedulable=schedulable[live],
            height=self._height[live],
            job=self._job[live],
            first=np.concatenate(([0], np.cumsum(counts))),
            edges=number[self._edges[kept]],
            supply=np.array([job.supply for job in jobs], np.int64),
            arrival_ms=np.array([job.job.arrival_ms for job in jobs], np.float64),
            source=jobs.index(home) if home is not None and home in jobs else -1,
            committable=cluster.committable,
            executors=len(cluster.executors),
            now_ms=cluster.now_ms,
            stages=tuple([stage for job in jobs for stage in job.active]),
        )

    def _schedulable(self) -> np.ndarray:
        """Return a mask of the rows of all stages, (rows,) bool. It selects stages for which
        ``StageState.is_schedulable`` is True and whose job may still get executors.
        """
        cluster = self._cluster
        wants = self._remaining > self._inbound
        mask = wants.copy()
        mask[self._edges[wants[self._edges[:, 0]], 1]] = False
        for stage in cluster.selected:
            mask[self._row[stage]] = False
        for place, job in enumerate(self._jobs):
            if job.supply >= len(cluster.executors) and (cluster.source is None or job is not cluster.source.job):
                mask[self._starts[place] : self._starts[place] + len(job.stages)] = False
        return mask

    def _refresh(self) -> None:
        """Write the values of the stages that have changed. A stage with a running task is written
        again at the next call, because it will have changed.
        """
        moved = self._cluster.moved
        assert moved is not None
        for stage in moved:
            row = self._row.get(stage)
            # Skip stages of a job that has left: they can still change while executors are moving
            # to the job.
            if row is not None:
                self._write(row, stage)
        self._cluster.moved = {stage for stage in moved if stage.executing}

    def _write(self, row: int, stage: StageState) -> None:
        self._remaining[row] = stage.remaining
        self._inbound[row] = stage.inbound
        self._executing[row] = stage.executing
        self._seen_ms[row] = stage.seen_ms
        self._blockers[row] = stage.blockers
        self._live[row] = stage.remaining > 0 or stage.executing > 0

    def _rebuild(self) -> None:
        """Rebuild everything after jobs have arrived or left."""
        jobs = self._jobs = list(self._cluster.jobs)
        stages = [stage for job in jobs for stage in job.stages]
        shapes = [_shape(job.job.graph) for job in jobs]
        sizes = [len(job.stages) for job in jobs]
        self._row = {stage: row for row, stage in enumerate(stages)}
        self._starts = np.cumsum([0, *sizes[:-1]]) if jobs else np.empty(0, np.int64)
        self._job = np.repeat(np.arange(len(jobs)), sizes)
        self._height = np.concatenate([shape.height for shape in shapes]) if jobs else np.empty(0, np.int64)
        offsets = [shape.edges + start for shape, start in zip(shapes, self._starts.tolist(), strict=True)]
        self._edges = np.concatenate(offsets) if jobs else np.empty((0, 2), np.int64)
        self._remaining = np.array([stage.remaining for stage in stages], np.int64)
        self._inbound = np.array([stage.inbound for stage in stages], np.int64)
        self._executing = np.array([stage.executing for stage in stages], np.int64)
        self._blockers = np.array([stage.blockers for stage in stages], np.int64)
        self._seen_ms = np.array([stage.seen_ms for stage in stages], np.float64)
        self._live = (self._remaining > 0) | (self._executing > 0)
        self._cluster.moved = {stage for stage in stages if stage.executing}


Action: TypeAlias = Literal["executors", "limit"]
"""Meaning of the number that a learned policy gives for a stage: executors to add, or a limit on
the executors of its job (parallelism limit, Mao et al. 2019, section 5.2)."""


class Commit(NamedTuple):
    """Commit up to ``executors`` executors of the source to ``stage``, but no more than the stage
    can use.
    """

    stage: StageState
    executors: int


class SparkPolicy(Protocol):
    """A policy. It decides where the executors of the source go next.

    A policy object serves one simulation at a time, and ``decide`` may store state about this
    simulation.
    """

    def decide(self, view: SparkView) -> Iterable[Commit]:
        """Return the decisions for the current round. An empty answer ends the round and leaves the
        remaining executors idle.

        The policy is called again as long as executors and stages are left.
        """


class SparkView:
    """The current state as a policy may see it. The view always shows the current state and is
    read-only. Passing it on costs O(1).
    """

    __slots__ = ("_cluster", "_simulation")

    def __init__(self, simulation: SparkKernel) -> None:
        self._simulation = simulation
        self._cluster: ExecutorPools = simulation.cluster

    @property
    def now(self) -> float:
        """Seconds since the start of the simulation."""
        return self._cluster.now_ms / 1000

    @property
    def now_ms(self) -> float:
        """Milliseconds since the start of the simulation, which is the unit of the system's
        clock."""
        return self._cluster.now_ms

    @property
    def jobs(self) -> Sequence[SparkJobState]:
        """Jobs in the system, in order of arrival."""
        return self._cluster.jobs

    @property
    def executors(self) -> int:
        """The number of executors in the cluster."""
        return len(self._cluster.executors)

    @property
    def source(self) -> SparkJobState | None:
        """The job whose executors are to be committed, or ``None`` for the executors in the common pool."""
        pool = self._cluster.source
        return pool.job if pool is not None else None

    @property
    def committable(self) -> int:
        """The number of executors that can be committed now. Some of them may still be running a
        task."""
        return self._cluster.committable

    @property
    def pending(self) -> bool:
        """True if a task is running or an executor is moving."""
        return bool(self._cluster.heap)

    @property
    def idle(self) -> list[Executor]:
        """The idle executors in the source. The first one is the next to leave. The cost is
        O(executors in the source).
        """
        pool = self._cluster.source
        return self._cluster.idle(pool) if pool is not None else []

    def schedulable(self, job: SparkJobState) -> Iterator[StageState]:
        """Yield the stages of ``job`` that can be chosen now, by index."""
        return self._cluster.schedulable_in(job)

    def graph(self) -> StageGraph:
        """Return all incomplete stages as arrays. The cost is O(stages) in NumPy. Only stages that
        have changed are visited one by one."""
        return self._simulation.table.graph()

    def stream(self, name: str) -> np.random.Generator:
        """Return a named random stream for this simulation. Streams are independent of each
        other."""
        return self._simulation.streams.of(name)
