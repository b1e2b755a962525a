"""State of a running episode: jobs, stages, executors, and the work that a job has left."""

from __future__ import annotations

from collections.abc import Iterable

from dagsim.model.arithmetic import ordered_sum
from dagsim.systems.spark.job import RecordedDurations, SparkJob, Waves

__all__ = [
    "Executor",
    "ExecutorPool",
    "SparkJobState",
    "StageState",
    "critical_stage",
    "first_stage",
    "path_ms",
    "total_work_ms",
    "work_left_ms",
]


class ExecutorPool:
    """Executors in one place, and their commitments, in the order of the first commitment.

    The common pool has neither job nor stage. A job's pool holds its idle executors. A stage's pool
    holds those that run its tasks or have just finished one. A commitment to ``None`` leads to the
    common pool.
    """

    __slots__ = ("commitments", "committed", "executors", "job", "stage")

    def __init__(self, job: SparkJobState | None = None, stage: StageState | None = None) -> None:
        self.job = job
        self.stage = stage
        self.executors: set[int] = set()
        """Executors by number: parity relies on the iteration order of such a set."""
        self.commitments: dict[StageState | None, int] = {}
        self.committed = 0


class Executor:
    """An executor, which runs one task at a time.

    ``last`` is the stage of the task that it runs or ran last; ``None`` means that it is fresh.
    """

    __slots__ = ("job", "last", "number", "pool", "running", "speed", "type")

    def __init__(self, number: int, type_: int, speed: float, pool: ExecutorPool) -> None:
        self.number = number
        self.type = type_
        self.speed = speed
        self.pool: ExecutorPool | None = pool
        self.job: SparkJobState | None = None
        self.last: StageState | None = None
        self.running = False


class StageState:
    """A stage of a job in the system.

    ``remaining`` tasks are not launched, ``executing`` are running. ``inbound`` executors are
    committed or moving to it. ``seen_ms`` is the duration of a task, as far as policies may know
    it.
    """

    __slots__ = (
        "blockers",
        "children",
        "coins",
        "executing",
        "inbound",
        "index",
        "job",
        "parents",
        "pool",
        "remaining",
        "seen_ms",
        "selected",
        "tasks",
        "todo",
        "waiting",
        "waves",
    )

    def __init__(self, job: SparkJobState, index: int, durations: RecordedDurations | Waves) -> None:
        self.job = job
        self.index = index
        self.tasks = self.remaining = durations.tasks
        self.executing = 0
        self.inbound = 0
        self.blockers = 0
        """Parents that are not complete."""
        self.seen_ms = durations.rough_ms
        self.selected = False
        """True if it was already chosen in this round."""
        self.parents: list[StageState] = []
        self.children: list[StageState] = []
        self.pool = ExecutorPool(job, self)
        self.waiting: list[Executor] = []
        """Executors that were sent ahead and wait for the stage's parents (not in parity)."""
        self.todo: list[float] = []
        """Durations of the tasks still to start, the next one last; empty if durations are drawn."""
        self.waves: Waves | None = None
        self.coins: list[float] = []
        if isinstance(durations, RecordedDurations):
            self.todo = list(reversed(durations.ms))
        else:
            self.waves = durations

    @property
    def demand(self) -> int:
        """Number of executors it could use beyond those that run its tasks or are on their way."""
        return self.remaining - self.inbound

    @property
    def is_ready(self) -> bool:
        """True if its parents are complete: a task can run at once."""
        return not self.blockers

    @property
    def is_schedulable(self) -> bool:
        """True if it wants executors, was not chosen in this round, and no parent wants any. Parents may still run."""
        if self.remaining <= self.inbound or self.selected:
            return False
        for parent in self.parents:  # noqa: SIM110 (a generator costs twice the time)
            if parent.remaining > parent.inbound:
                return False
        return True


class SparkJobState:
    """A job in the system. ``stages`` holds all stages, ``active`` the incomplete ones, in order of
    index.

    ``supply`` counts its executors: at the job, moving to it, or committed to it from elsewhere.
    ``local`` counts only those at the job.
    """

    __slots__ = ("active", "completed_ms", "job", "local", "number", "pool", "stages", "supply")

    def __init__(self, number: int, job: SparkJob) -> None:
        self.number = number
        self.job = job
        self.stages = [StageState(self, index, durations) for index, durations in enumerate(job.durations)]
        for stage, parents, children in zip(self.stages, job.graph.parents, job.graph.children, strict=True):
            stage.parents = [self.stages[index] for index in parents]
            stage.children = [self.stages[index] for index in children]
            stage.blockers = len(parents)
        self.active = list(self.stages)
        self.pool = ExecutorPool(self)
        self.local = 0
        self.supply = 0
        self.completed_ms: float | None = None

    @property
    def arrival_ms(self) -> float:
        """Arrival time."""
        return self.job.arrival_ms

    @property
    def is_saturated(self) -> bool:
        """True if all tasks of all stages have been launched."""
        for stage in self.active:  # noqa: SIM110
            if stage.remaining:
                return False
        return True


def work_left_ms(job: SparkJobState) -> float:
    """Executor-milliseconds of the tasks that are not launched. O(incomplete stages)."""
    return ordered_sum([stage.remaining * stage.seen_ms for stage in job.active])


def total_work_ms(job: SparkJobState) -> float:
    """Executor-milliseconds of the whole job, as estimated when it arrived."""
    return job.job.work_ms


def first_stage(choice: Iterable[StageState]) -> StageState | None:
    """First stage of ``choice`` that can run at once, else the first of all; ``None`` if ``choice``
    is empty.
    """
    first = None
    for stage in choice:
        if not stage.blockers:
            return stage
        if first is None:
            first = stage
    return first


def critical_stage(choice: Iterable[StageState]) -> StageState | None:
    """First stage on the path with the most work left, among the stages of one job that can run at
    once.

    If none can run at once, all stages are considered. Returns ``None`` without a choice.
    """
    stages = list(choice)
    ready = [stage for stage in stages if not stage.blockers] or stages
    if len(ready) < 2:
        return ready[0] if ready else None
    return max(ready, key=path_ms(ready[0].job).__getitem__)


def path_ms(job: SparkJobState) -> dict[StageState, float]:
    """Largest work left on a path from each incomplete stage, itself included, to the end of the
    job. O(stages + edges).
    """
    longest: dict[StageState, float] = {}
    for index in reversed(job.job.graph.order):
        stage = job.stages[index]
        if stage.remaining or stage.executing:
            behind = 0.0
            for child in stage.children:
                if longest[child] > behind:
                    behind = longest[child]
            longest[stage] = behind + stage.remaining * stage.seen_ms
    return longest
