"""Executors, the pools in which they wait, and the operations on them: commit, fulfil, send,
launch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappush
from itertools import islice
from math import inf
from typing import TypeAlias

from dagsim.errors import ModelError, require
from dagsim.families.spark.state import DurationSource, Executor, ExecutorPool, SparkJobState, StageState


@dataclass(frozen=True, slots=True)
class ExecutorType:
    """``count`` executors on one kind of machine. With ``speed=2``, every task takes half as long.

    Raises:
        ModelError: The count is below 1, or the speed is not positive.
    """

    name: str
    """Name of the kind of machine."""
    count: int
    """The number of executors."""
    speed: float = 1.0
    """How many times faster tasks run on this kind of machine than recorded."""

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        require(self.count >= 1, f"executor type {self.name!r}: count must be at least 1", self.count, ModelError)
        require(0 < self.speed < inf, f"executor type {self.name!r}: speed must be positive", self.speed, ModelError)


def executor_types(executors: int | tuple[ExecutorType, ...]) -> tuple[ExecutorType, ...]:
    """Return the executor types. A plain number of executors becomes a single type."""
    return (ExecutorType("executor", executors),) if isinstance(executors, int) else executors


class ExecutorMove:
    """The move of an executor to ``stage``. The event loop treats it like a stage without tasks to
    launch."""

    __slots__ = ("stage",)
    remaining = 0

    def __init__(self, stage: StageState) -> None:
        self.stage = stage


ExecutorEvent: TypeAlias = tuple[float, int, Executor, "StageState | ExecutorMove", float]
"""An event: time (ms), number (first come, first served), executor, target, and duration."""

Launch: TypeAlias = tuple[float, float, Executor, "StageState | ExecutorMove"]
"""A task or a move: start (ms), length (ms), executor, target."""


class ExecutorPools:
    """All executors, and the jobs in the system in order of arrival."""

    def __init__(
        self, types: Iterable[ExecutorType], moving_delay_ms: float, draws: DurationSource, parity: bool, record: bool
    ) -> None:
        self.common = ExecutorPool()
        self.executors: list[Executor] = []
        for place, kind in enumerate(types):
            for _ in range(kind.count):
                self.executors.append(Executor(len(self.executors), place, kind.speed, self.common))
        self.common.executors = set(range(len(self.executors)))
        self.scaled = any(executor.speed != 1 for executor in self.executors)
        self.moving_delay_ms = moving_delay_ms
        self.parity = parity
        self.draws = draws
        self.jobs: list[SparkJobState] = []
        self.now_ms = 0.0
        self.heap: list[ExecutorEvent] = []
        self.ties = 0
        self.source: ExecutorPool | None = self.common
        """The pool whose executors are being committed."""
        self.selected: list[StageState] = []
        self.launches: list[Launch] | None = [] if record else None
        self.moved: set[StageState] | None = None
        """Stages that changed since this set was last emptied; kept only for a reader
        (``StageTable``)."""

    @property
    def committable(self) -> int:
        """The number of executors in the source that are not committed. Some of them may still be
        running a task.
        """
        source = self.source
        return len(source.executors) - source.committed if source is not None else 0

    def schedulable_in(self, job: SparkJobState) -> Iterator[StageState]:
        """Yield the stages of ``job`` to which executors in the source can be committed, by index."""
        source = self.source
        if job.supply < len(self.executors) or (source is not None and source.job is job):
            for stage in job.active:
                if stage.remaining > stage.inbound and stage.is_schedulable:
                    yield stage

    def any_schedulable(self) -> bool:
        """Return True if executors in the source can be committed to some stage."""
        source = self.source
        home = source.job if source is not None else None
        count = len(self.executors)
        for job in self.jobs:
            if job.supply < count or job is home:
                for stage in job.active:
                    if stage.remaining > stage.inbound and stage.is_schedulable:
                        return True
        return False

    def commit(self, stage: StageState, executors: int) -> None:
        """Commit executors in the source to ``stage``, but no more than the stage can use."""
        source = self.source
        assert source is not None
        number = min(executors, stage.remaining - stage.inbound)
        self.note(stage)
        source.commitments[stage] = source.commitments.get(stage, 0) + number
        source.committed += number
        stage.inbound += number
        if stage.job is not source.job:
            stage.job.supply += number
        stage.selected = True
        self.selected.append(stage)

    def end_round(self) -> None:
        """Commit the remaining executors of the source to the common pool, and move those that are
        idle."""
        source = self.source
        assert source is not None
        left = len(source.executors) - source.committed
        if left > 0:
            source.commitments[None] = source.commitments.get(None, 0) + left
            source.committed += left
        idle = iter(self.idle(source))
        for target, number in list(source.commitments.items()):
            for executor in islice(idle, number):
                self.fulfil(executor, target)
        for stage in self.selected:
            stage.selected = False
        self.selected.clear()
        self.source = None

    def fulfil(self, executor: Executor, target: StageState | None) -> None:
        """Send ``executor`` to ``target``. Its pool must have committed an executor to this
        target."""
        pool = executor.pool
        assert pool is not None
        left = pool.commitments[target] - 1
        if left:
            pool.commitments[target] = left
        else:
            del pool.commitments[target]
        pool.committed -= 1
        if target is None:
            self.retire(pool, [executor])
            return
        target.inbound -= 1
        self.note(target)
        if target.job is not pool.job:
            target.job.supply -= 1
        self.move(executor, target)

    def move(self, executor: Executor, stage: StageState) -> None:
        """Send ``executor`` to ``stage``. If ``stage`` no longer needs it, send it to another
        stage."""
        if not stage.remaining:
            self._fall_back(executor)
        elif executor.job is not stage.job:
            self._send(executor, stage)
        elif not stage.blockers:
            self._place(executor, stage.pool)
            self.launch(executor, stage)
        elif self.parity:  # drop the request, so that the stage will request executors again
            executor.last = None
            self._place(executor, stage.job.pool)
        else:
            executor.last = None
            self._place(executor, None)
            stage.waiting.append(executor)
            stage.inbound += 1
            self.note(stage)

    def arrive(self, executor: Executor, stage: StageState) -> None:
        """End the move of ``executor`` to ``stage``."""
        job = stage.job
        job.local += 1
        executor.job = job
        stage.inbound -= 1
        self.note(stage)
        self._place(executor, job.pool)
        self.move(executor, stage)

    def wake(self, stage: StageState) -> None:
        """Start the executors that were sent ahead to ``stage``, because the stage has become
        ready."""
        waiting, stage.waiting = stage.waiting, []
        self.note(stage)
        for executor in waiting:
            stage.inbound -= 1
            self._place(executor, stage.job.pool)
            self.move(executor, stage)

    def launch(self, executor: Executor, stage: StageState) -> None:
        """Start the next task in ``stage``."""
        length = stage.todo.pop() if stage.todo else self.draws.draw(stage, executor)
        if self.scaled:
            length /= executor.speed
        stage.remaining -= 1
        stage.executing += 1
        if self.parity:
            stage.seen_ms = length
        executor.last = stage
        executor.running = True
        self.note(stage)
        self._push(executor, stage, length)

    def retire(self, pool: ExecutorPool, executors: list[Executor]) -> None:
        """Move idle executors out of ``pool``. They go to the pool of the job or, if the job needs
        no more executors, to the common pool.
        """
        job = pool.job
        if job is None:
            return
        saturated = job.is_saturated
        if pool.stage is None and not saturated:
            return
        for executor in executors:
            self._place(executor, self.common if saturated else job.pool)
            if saturated:
                self._detach(executor)
                # Like spark-sched-sim, do not reduce the supply in parity mode, although the job
                # then appears to have too many executors.
                if not self.parity:
                    job.supply -= 1

    def idle(self, pool: ExecutorPool) -> list[Executor]:
        """Return the idle executors in ``pool``, by speed and then by number. The first one is the
        next to leave.
        """
        executors = self.executors
        # spark-sched-sim iterates over a CPython set, whose order depends on its history. Copy a
        # set in the same way to get the same order.
        if self.parity:
            return [
                executors[number]
                for number in {number for number in pool.executors.copy() if not executors[number].running}
            ]
        idle = [executors[number] for number in pool.executors if not executors[number].running]
        return sorted(idle, key=lambda executor: (-executor.speed, executor.number))

    def _fall_back(self, executor: Executor) -> None:
        """Send an executor whose stage has no tasks left to the first schedulable stage of its job.
        If the job has none, use a stage of another job. If there is no such stage either, the
        executor becomes idle.
        """
        own = executor.job
        assert own is not None
        stage = self._first((own,), own) or self._first([job for job in self.jobs if job is not own], own)
        if stage is not None:
            self.move(executor, stage)
            return
        assert executor.pool is not None
        self.retire(executor.pool, [executor])

    def _first(self, jobs: Iterable[SparkJobState], home: SparkJobState) -> StageState | None:
        """Return the first stage in ``jobs`` that needs executors. The job ``home`` may get an
        executor even if its supply equals the number of executors in the cluster.

        With ``parity``, as in spark-sched-sim, an empty ``jobs`` means all jobs, and job 0 never
        counts as ``home``.
        """
        away: SparkJobState | None = home
        if self.parity:
            jobs = jobs or self.jobs
            if home.number == 0:
                away = self.source.job if self.source is not None else None
        for job in jobs:
            if job is away or job.supply < len(self.executors):
                for stage in job.active:
                    if stage.is_schedulable:
                        return stage
        return None

    def _send(self, executor: Executor, stage: StageState) -> None:
        old = executor.pool.job if executor.pool is not None else None
        self._place(executor, None)
        stage.inbound += 1
        self.note(stage)
        stage.job.supply += 1
        if old is not None:
            old.supply -= 1
        if executor.job is not None:
            self._detach(executor)
        self._push(executor, ExecutorMove(stage), self.moving_delay_ms)

    def _detach(self, executor: Executor) -> None:
        assert executor.job is not None
        executor.job.local -= 1
        executor.job = None
        executor.last = None

    def _place(self, executor: Executor, pool: ExecutorPool | None) -> None:
        if executor.pool is not None:
            executor.pool.executors.remove(executor.number)
        executor.pool = pool
        if pool is not None:
            pool.executors.add(executor.number)

    def note(self, stage: StageState) -> None:
        """Record that ``stage`` has changed, so that the stage table is updated."""
        if self.moved is not None:
            self.moved.add(stage)

    def _push(self, executor: Executor, target: StageState | ExecutorMove, length: float) -> None:
        heappush(self.heap, (self.now_ms + length, self.ties, executor, target, length))
        self.ties += 1
        if self.launches is not None:
            self.launches.append((self.now_ms, length, executor, target))
