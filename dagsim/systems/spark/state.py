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
    """Executors in one place, and where they are committed to go. In the order of the first commitment.

    The common pool has neither job nor stage; a job's pool holds its idle executors; a stage's pool those that run its
    tasks or have just finished one. A commitment to ``None`` leads to the common pool.
    """

    __slots__ = ("commitments", "committed", "executors", "job", "stage")

    def __init__(self, job: SparkJobState | None = None, stage: StageState | None = None) -> None:
        self.job = job
        self.stage = stage
        self.executors: set[int] = set()
        """By number: parity relies on the order that such a set has."""
        self.commitments: dict[StageState | None, int] = {}
        self.committed = 0


class Executor:
    """Runs one task at a time. ``last`` is the stage of the task it runs or ran last; ``None`` makes it fresh."""

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

    ``remaining`` tasks are not launched, ``executing`` are running; ``inbound`` executors are committed or moving to
    it. ``seen_ms`` is how long a task of it lasts, as far as policies may know.
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
        """Chosen in this round already."""
        self.parents: list[StageState] = []
        self.children: list[StageState] = []
        self.pool = ExecutorPool(job, self)
        self.waiting: list[Executor] = []
        """Executors that were sent ahead and wait for the stage's parents (not in parity)."""
        self.todo: list[float] = []
        """Durations to come, the next one last; empty where they are drawn."""
        self.waves: Waves | None = None
        self.coins: list[float] = []
        if isinstance(durations, RecordedDurations):
            self.todo = list(reversed(durations.ms))
        else:
            self.waves = durations

    @property
    def demand(self) -> int:
        """Executors it could use beside those that run its tasks or are on their way."""
        return self.remaining - self.inbound

    @property
    def is_ready(self) -> bool:
        """Its parents are complete: a task can run at once."""
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
    """A job in the system. ``stages`` are all of it, ``active`` those that are not complete, in order of index.

    ``supply`` counts its executors: at the job, moving to it, or committed to it from elsewhere; ``local`` only those
    at the job.
    """

    __slots__ = ("active", "completed_ms", "job", "local", "number", "pool", "stages", "supply")

    def __init__(self, number: int, job: SparkJob) -> None:
        self.number = number
        self.job = job
        self.stages = [StageState(self, index, each) for index, each in enumerate(job.durations)]
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
        """The time when it arrived."""
        return self.job.arrival_ms

    @property
    def is_saturated(self) -> bool:
        """All tasks of all stages have been launched."""
        for stage in self.active:  # noqa: SIM110
            if stage.remaining:
                return False
        return True


def work_left_ms(job: SparkJobState) -> float:
    """Executor-milliseconds of the tasks that are not launched. O(stages that are not complete)."""
    return ordered_sum([stage.remaining * stage.seen_ms for stage in job.active])


def total_work_ms(job: SparkJobState) -> float:
    """Executor-milliseconds of the whole job, as it was estimated when it arrived."""
    return job.job.work_ms


def first_stage(choice: Iterable[StageState]) -> StageState | None:
    """The first of ``choice`` that can run at once, else the first of all; ``None`` if there is none."""
    first = None
    for stage in choice:
        if not stage.blockers:
            return stage
        if first is None:
            first = stage
    return first


def critical_stage(choice: Iterable[StageState]) -> StageState | None:
    """The first stage on the path with the most work left; ``None`` without a choice. It is among stages of one job
    that can run at once, or among all if none can."""
    stages = list(choice)
    ready = [stage for stage in stages if not stage.blockers] or stages
    if len(ready) < 2:
        return ready[0] if ready else None
    return max(ready, key=path_ms(ready[0].job).__getitem__)


def path_ms(job: SparkJobState) -> dict[StageState, float]:
    """Per incomplete stage the largest work left on a path to the job's end. The stage itself is included. O(stages +
    edges)."""
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
