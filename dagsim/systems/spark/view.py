"""The seam between the Spark simulation and policies: a view of the present, and what decides on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from dagsim.systems.spark.graph import StageGraph
from dagsim.systems.spark.state import Executor, SparkJobState, StageState

if TYPE_CHECKING:
    from dagsim.systems.spark.kernel import SparkKernel
    from dagsim.systems.spark.pools import ExecutorPools

__all__ = ["Action", "Commit", "SparkPolicy", "SparkView"]

Action: TypeAlias = Literal["executors", "limit"]
"""What a learned policy says beside a stage: the executors to add, or a limit on those its job has (parallelism limit,
Mao et al. 2019, section 5.2), up to which they are added."""


class Commit(NamedTuple):
    """Commit ``executors`` of the source to ``stage``; more than it wants is cut to that."""

    stage: StageState
    executors: int


class SparkPolicy(Protocol):
    """Decides where the executors of the source go next.

    A policy object serves one simulation at a time; ``decide`` may keep state about it.
    """

    def decide(self, view: SparkView) -> Iterable[Commit]:
        """Decisions of the present round, asked again while executors and stages are left; none ends the round and
        leaves the rest idle."""
        ...


class SparkView:
    """The present, as a policy may see it: live, read-only, O(1) to hand over."""

    __slots__ = ("_cluster", "_simulation")

    def __init__(self, simulation: SparkKernel) -> None:
        self._simulation = simulation
        self._cluster: ExecutorPools = simulation.cluster

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return self._cluster.now_ms / 1000

    @property
    def now_ms(self) -> float:
        """Milliseconds since the start: the clock of this system."""
        return self._cluster.now_ms

    @property
    def jobs(self) -> Sequence[SparkJobState]:
        """Jobs in the system, in order of arrival."""
        return self._cluster.jobs

    @property
    def executors(self) -> int:
        """All executors of the cluster."""
        return len(self._cluster.executors)

    @property
    def source(self) -> SparkJobState | None:
        """The job whose executors are to be committed; ``None`` for those of the common pool."""
        pool = self._cluster.source
        return pool.job if pool is not None else None

    @property
    def committable(self) -> int:
        """The number of executors that can be committed now; some of them may still run a task."""
        return self._cluster.committable

    @property
    def pending(self) -> bool:
        """Something is under way: a task runs, or an executor travels."""
        return bool(self._cluster.heap)

    @property
    def idle(self) -> list[Executor]:
        """Those of the source that run nothing, the next one to go first. O(executors of the source)."""
        pool = self._cluster.source
        return self._cluster.idle(pool) if pool is not None else []

    def schedulable(self, job: SparkJobState) -> Iterator[StageState]:
        """Stages of ``job`` that can be chosen now, in order of index."""
        return self._cluster.schedulable_in(job)

    def graph(self) -> StageGraph:
        """All stages that are not complete, as arrays. O(stages) in NumPy; only what has moved is looked at one by
        one."""
        return self._simulation.table.graph()

    def stream(self, name: str) -> np.random.Generator:
        """The named random stream of this simulation; each name has its own, whoever else draws."""
        return self._simulation.stream(name)
