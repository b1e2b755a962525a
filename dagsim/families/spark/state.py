"""The state of a running episode: jobs, stages, executors, the remaining work of a job, and the
sources of task durations.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from dagsim.families.spark.spark_job import FRESH, NEW, SAME, RecordedDurations, SparkJob, Waves, bracket
from dagsim.model.arithmetic import ordered_sum
from dagsim.model.streams import stream


class ExecutorPool:
    """Executors in one place, and their commitments. Targets are in the order of their first
    commitments.

    The common pool belongs to neither a job nor a stage. The pool of a job contains the idle
    executors of the job. The pool of a stage contains executors that are running tasks of the
    stage, or have just finished one. A commitment to ``None`` leads to the common pool.
    """

    __slots__ = ("commitments", "committed", "executors", "job", "stage")

    def __init__(self, job: SparkJobState | None = None, stage: StageState | None = None) -> None:
        self.job = job
        self.stage = stage
        self.executors: set[int] = set()
        """Executors by number; a set, because parity depends on its iteration order."""
        self.commitments: dict[StageState | None, int] = {}
        self.committed = 0


class Executor:
    """An executor. It runs one task at a time.

    ``last`` is the stage of its current or latest task. ``None`` means that the executor is fresh.
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

    ``remaining`` tasks have not been launched, and ``executing`` tasks are running. ``inbound``
    executors are committed to the stage or moving to it. ``seen_ms`` is the duration of a task as
    policies see it.
    """

    __slots__ = (
        "blockers", "children", "coins", "executing", "inbound", "index", "job", "parents", "pool", "remaining",
        "seen_ms", "selected", "tasks", "todo", "waiting", "waves",
    )  # fmt: skip

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
        """Durations of the tasks still to start, with the next one last. It is empty if durations
        are drawn."""
        self.waves: Waves | None = None
        self.coins: list[float] = []
        if isinstance(durations, RecordedDurations):
            self.todo = list(reversed(durations.ms))
        else:
            self.waves = durations

    @property
    def demand(self) -> int:
        """The number of executors that the stage could use in addition to those that are running
        its tasks or are on their way.
        """
        return self.remaining - self.inbound

    @property
    def is_ready(self) -> bool:
        """True if all parents of the stage are complete. Its tasks can then run immediately."""
        return not self.blockers

    @property
    def is_schedulable(self) -> bool:
        """True if the stage needs executors and was not chosen in this round, and if none of its
        parents needs executors. Parents may still be running.
        """
        if self.remaining <= self.inbound or self.selected:
            return False
        for parent in self.parents:  # noqa: SIM110 (a generator costs twice the time)
            if parent.remaining > parent.inbound:
                return False
        return True


class SparkJobState:
    """A job in the system. ``stages`` contains all stages, and ``active`` contains the incomplete
    ones, by index.

    ``supply`` is the number of the job's executors. They are at the job, on their way to it, or
    committed to it from elsewhere. ``local`` is the number of executors at the job.
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
        """The arrival time in milliseconds."""
        return self.job.arrival_ms

    @property
    def is_saturated(self) -> bool:
        """True if all tasks of all stages have been launched."""
        for stage in self.active:  # noqa: SIM110
            if stage.remaining:
                return False
        return True


def work_left_ms(job: SparkJobState) -> float:
    """Return the executor-milliseconds that the tasks not launched yet will take. The cost is
    O(incomplete stages).
    """
    return ordered_sum([stage.remaining * stage.seen_ms for stage in job.active])


def total_work_ms(job: SparkJobState) -> float:
    """Return the executor-milliseconds of the whole job, as estimated at its arrival."""
    return job.job.work_ms


def first_stage(choice: Iterable[StageState]) -> StageState | None:
    """Return the first stage in ``choice`` that can run immediately. If none can, return the first
    one. Return ``None`` if ``choice`` is empty.
    """
    first = None
    for stage in choice:
        if not stage.blockers:
            return stage
        if first is None:
            first = stage
    return first


def critical_stage(choice: Iterable[StageState]) -> StageState | None:
    """Return the stage with the longest remaining path, among the stages of one job that can run
    immediately.

    If none can run immediately, all stages are considered. Return ``None`` if ``choice`` is
    empty.
    """
    stages = list(choice)
    ready = [stage for stage in stages if not stage.blockers] or stages
    if len(ready) < 2:
        return ready[0] if ready else None
    return max(ready, key=path_ms(ready[0].job).__getitem__)


def path_ms(job: SparkJobState) -> dict[StageState, float]:
    """Return, for each incomplete stage, the largest amount of remaining work on a path from the
    stage to the end of the job. The stage itself counts. The cost is O(stages + edges).
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


class DurationSource(Protocol):
    """Draws the durations of tasks from the profiles of their stages."""

    def admit(self, job: SparkJobState) -> None:
        """Prepare for a new job. This is called for the jobs in order of arrival."""

    def draw(self, stage: StageState, executor: Executor) -> float:
        """Return the duration (ms) of the task that ``executor`` is launching now.
        ``stage.remaining`` still counts this task.
        """


class PairedStreams:
    """Draws durations from one random stream per job. All policies then get the same draws for a
    seed.

    The n-th task of a stage to be launched gets the same draw, regardless of what was launched
    before.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._brackets = [bracket(executors) for executors in range(101)]

    def admit(self, job: SparkJobState) -> None:
        rng = stream(self.seed, "durations", job.number)
        for stage in job.stages:
            if stage.waves is not None:
                stage.coins = rng.random(2 * stage.tasks).tolist()

    def draw(self, stage: StageState, executor: Executor) -> float:
        coins, waves = stage.coins, stage.waves
        assert waves is not None
        executors = executor.job.local  # type: ignore[union-attr]
        below, above = self._brackets[executors] if executors <= 100 else self._brackets[100]
        if below != above:
            share = (executors - below) / (above - below)
            if coins[2 * stage.remaining - 1] < share:
                below = above
        samples = waves.at[below][_wave(stage, executor)]
        return samples[int(coins[2 * stage.remaining - 2] * len(samples))]


class SharedStream:
    """Draws all durations from one generator in launch order, bit for bit as in spark-sched-sim.

    The choice between two profiled numbers of executors is also the same: the closer the actual
    number is to the upper one, the more likely the lower one is chosen. Raw words are fetched from
    the generator in bulk, and converted in the same way as in NumPy (PCG64; Lemire's method on half
    words for bounded integers). This takes a fifth of the time of calls to ``Generator.integers``.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        bits = rng.bit_generator
        state = bits.state
        if state["bit_generator"] != "PCG64":
            raise ValueError(f"SharedStream supports only PCG64 generators, got {state['bit_generator']}")
        self._fetch = bits.random_raw
        self._words: list[int] = []
        self._half: int | None = state["uinteger"] if state["has_uint32"] else None
        self._brackets = [bracket(executors) for executors in range(101)]

    def admit(self, job: SparkJobState) -> None:
        pass

    def draw(self, stage: StageState, executor: Executor) -> float:
        executors = executor.job.local  # type: ignore[union-attr]
        below, above = self._brackets[executors] if executors <= 100 else self._brackets[100]
        if below != above:
            point = 1 + int((self._word() >> 11) * 2.0**-53 * (above - below))
            if point > executors - below:
                below = above
        waves: Waves = stage.waves  # type: ignore[assignment]
        samples = waves.at[below][_wave(stage, executor)]
        return samples[self._below(len(samples))]

    def _below(self, count: int) -> int:
        """Draw a whole number from 0 to count-1 (Lemire 2019). If ``count`` is 1, this uses no
        random bits."""
        if count == 1:
            return 0
        product = self._half_word() * count
        low = product & 0xFFFFFFFF
        if low < count:
            threshold = (0x100000000 - count) % count
            while low < threshold:
                product = self._half_word() * count
                low = product & 0xFFFFFFFF
        return product >> 32

    def _half_word(self) -> int:
        """Draw 32 bits. The first call takes the lower half of a word, and the next call the upper
        half."""
        half = self._half
        if half is None:
            word = self._word()
            self._half = word >> 32
            return word & 0xFFFFFFFF
        self._half = None
        return half

    def _word(self) -> int:
        if not self._words:
            self._words = self._fetch(4096)[::-1].tolist()
        return self._words.pop()


def _wave(stage: StageState, executor: Executor) -> int:
    last = executor.last
    return FRESH if last is None else SAME if last is stage else NEW
