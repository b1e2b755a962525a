"""The mutable state of jobs in the system, of their tasks, and of runs."""

from __future__ import annotations

from collections.abc import Iterator, KeysView, Sequence
from math import floor, inf
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from simpy import Environment
from simpy.events import Event, Process

from dagsim.errors import IllegalDecision
from dagsim.model import OVERDUE_S, Job, JobFacts, Task, TrainingState
from dagsim.model.arithmetic import ordered_sum
from dagsim.systems.cluster.clock import Due
from dagsim.systems.cluster.forks import COPIED, EMPTY, SAME, Forked
from dagsim.systems.cluster.network.base import Flow
from dagsim.systems.cluster.resources.nodes import DemandClass, NodeState

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

_keys = dict.keys  # looking it up through ``super()`` would take as long as a short loop itself


class Live(dict[KeyT, ValueT]):
    """A dictionary that may change during an iteration, because each iteration visits a snapshot.

    Policies are generators, and the kernel carries out a decision before it requests the next one.
    The most natural loop, ``for task in view.ready: ... yield Start(...)``, therefore removes tasks
    from the dictionary that it iterates over. The kernel itself only looks up, adds and removes
    entries, which costs the same as in any dictionary.
    """

    __slots__ = ()

    def __iter__(self) -> Iterator[KeyT]:
        return iter(list(_keys(self)))

    def keys(self) -> KeysView[KeyT]:  # type: ignore[override]
        return dict.fromkeys(super().keys()).keys()

    def values(self) -> list[ValueT]:  # type: ignore[override]
        return list(super().values())

    def items(self) -> list[tuple[KeyT, ValueT]]:  # type: ignore[override]
        return list(super().items())


_MANY = 64
"""Minimum number of tasks for which a job caches the terms of its remaining work."""


class JobState(Forked):
    """A job in the system. ``number`` counts arrivals from 0."""

    __slots__ = {
        "_stale": EMPTY,
        "_terms": EMPTY,
        "_work_left_gpu_s": SAME,
        "has_limits": SAME,
        "ideal_s": SAME,
        "job": SAME,
        "number": SAME,
        "places": COPIED,
        "queued_s": SAME,
        "service_gpu_s": SAME,
        "shows_truth": SAME,
        "tasks": COPIED,
        "tasks_left": SAME,
    }

    def __init__(self, job: Job, number: int) -> None:
        self.job = job
        self.number = number
        self.tasks: list[TaskState] = []
        self.tasks_left = len(job.graph.tasks)
        self.ideal_s = 0.0
        """Its critical path according to the estimates, on arrival."""
        self.service_gpu_s = 0.0
        """GPU-seconds that its ended runs have held."""
        self.queued_s: float | None = None
        """When it began to wait only because of its array limit, or None if it never did."""
        self.has_limits = False
        """True if policies know the time limits of its tasks, but not the true durations."""
        self.shows_truth = False
        """True if the policy declared itself clairvoyant and may read true durations."""
        self._work_left_gpu_s: float | None = None
        self._terms: np.ndarray | None = None
        """The terms of this sum by task, which are stored only for jobs with at least ``_MANY`` tasks."""
        self._stale: list[int] = []
        """Tasks whose terms have to be computed again."""
        self.places: dict[int, dict[int, int]] = {}
        """For each finished task, the number of instances by node; kept only for a network."""

    def work_left_gpu_s(self) -> float:
        """Return the GPU-seconds of all unfinished instances on their fastest types, according to
        estimates. The sum is cached until something changes, because it may be requested for many
        tasks that become ready together.
        """
        if self._work_left_gpu_s is None:
            many = len(self.tasks) >= _MANY
            self._work_left_gpu_s = self._sum_of_many() if many else ordered_sum(map(_gpu_s_left, self.tasks))
        return self._work_left_gpu_s

    def _sum_of_many(self) -> float:
        """Compute ``work_left_gpu_s`` in one NumPy pass. It adds from left to right, so the sum is
        the same as that of a loop.
        """
        terms = self._terms
        if terms is None:
            terms = self._terms = np.array([_gpu_s_left(task) for task in self.tasks])
        for index in self._stale:
            terms[index] = _gpu_s_left(self.tasks[index])
        self._stale.clear()
        return float(np.add.accumulate(terms)[-1])

    def changed(self, index: int | None = None) -> None:
        """Discard cached sums, because the number of unfinished instances of task ``index`` has
        changed or, without ``index``, the estimates of all tasks.
        """
        self._work_left_gpu_s = None
        if index is None:
            self._terms = None
        elif self._terms is not None:
            self._stale.append(index)

    def rank(self) -> float:
        """Compute the ``rank_s`` of every task from the ``best_s`` of the tasks. Return the length
        of the job's critical path (``ideal_s``).
        """
        tasks = self.tasks
        if len(tasks) == 1:
            self.ideal_s = tasks[0].rank_s = tasks[0].best_s
            return self.ideal_s
        ranks = self.job.graph.upward_rank([task.best_s for task in tasks])
        for task, rank_s in zip(tasks, ranks, strict=True):
            task.rank_s = rank_s
        self.ideal_s = max(ranks)
        return self.ideal_s

    def facts(self) -> JobFacts:
        """Return the facts about the job that are stored after it has left the system. Call this
        before estimates replace true durations.
        """
        job, gpu_s, most = self.job, 0.0, 0.0
        for entry in self.tasks:
            if gpus := entry.task.gpus * entry.task.instances:
                gpu_s += gpus * entry.best_s
                if gpus > most:
                    most = gpus
        return JobFacts(
            id=job.id,
            arrival_s=job.arrival_s,
            priority=job.priority,
            tenant=job.tenant,
            deadline_s=job.deadline_s,
            weight=job.weight,
            ideal_s=self.ideal_s,
            ideal_gpu_s=gpu_s,
            gpus=float(most),
            tasks=job.graph.names,
            parents=job.graph.parents,
        )


def _gpu_s_left(task: TaskState) -> float:
    return task.demand.width * task.unfinished * task.best_s


class TaskState(Forked):
    """A task of a job in the system. It is *ready* once its parents are done (``missing`` is 0),
    and policies choose from the ready tasks.

    ``seconds[type]`` is the *estimated* remaining time of one instance on
    ``ClusterState.types[type]`` (``inf`` where it may not run), and ``best_s`` is the minimum of
    these times. ``rank_s`` is the estimated longest path from the start of this task to the end of
    its job, with every task on its fastest type. ``order`` is a sort key for first come, first
    served: by arrival of the job, then by index in its graph. Preempted instances return as a new
    *piece* of the task, with the fraction ``left`` of their work remaining.
    """

    __slots__ = {
        "best_s": SAME,
        "demand": COPIED,
        "failures": SAME,
        "index": SAME,
        "job": COPIED,
        "left": SAME,
        "missing": SAME,
        "order": SAME,
        "piece": SAME,
        "rank_s": SAME,
        "ready_s": SAME,
        "restore_s": SAME,
        "saved": SAME,
        "seconds": SAME,
        "task": SAME,
        "training": COPIED,
        "true_seconds": SAME,
        "unfinished": SAME,
        "waiting": SAME,
    }

    def __init__(
        self,
        job: JobState,
        index: int,
        task: Task,
        demand: DemandClass,
        truth: tuple[float, ...],
        missing: int,
    ) -> None:
        self.job = job
        self.index = index
        self.task = task
        self.demand = demand
        self.true_seconds = self.seconds = truth
        """``true_seconds`` is for the kernel and rewards only. Policies read ``truth``, which checks
        that they are clairvoyant.
        """
        self.best_s = truth[0] if len(truth) == 1 else min(truth)
        self.rank_s = self.best_s
        self.missing = missing
        """Number of parents not done yet."""
        self.unfinished = self.waiting = task.instances
        """Number of instances not finished, and of those among them that wait to be started."""
        self.order = job.number << 32 | index
        self.left = 1.0
        """The fraction of the work still to do."""
        self.restore_s = 0.0
        """Set-up seconds still to pay because of a preemption."""
        self.saved: tuple[float, tuple[tuple[int, int], ...]] | None = None
        """When preempted instances saved their state, and the nodes that still have it, each with the number
        of instances; None without a storage on the network.
        """
        self.ready_s = 0.0
        """When it became ready."""
        self.piece = 0
        """0 for the instances that became ready with the task."""
        self.failures = 0
        """Number of consecutive failures, each of which lost all work done since the previous one."""
        self.training: TrainingState | None = None
        """The progress of an elastic task."""

    @property
    def name(self) -> str:
        """``job/task``, for messages."""
        return f"{self.job.job.id}/{self.task.name}"

    @property
    def truth(self) -> tuple[float, ...]:
        """The true run time of a whole instance in seconds, by type. Only clairvoyant policies may
        read it.

        Raises:
            IllegalDecision: The policy has not declared ``clairvoyant = True``.
        """
        if not self.job.shows_truth:
            raise hidden_truth("task.truth", self, "the estimates in task.seconds")
        return self.true_seconds

    @property
    def expected_left(self) -> float:
        """The fraction of the task's work that remains according to what policies can see. If jobs
        have time limits, this is the unused fraction of the limit.
        """
        if not self.job.has_limits or self.left == 1.0:
            return self.left
        whole_s = self.job.tasks[self.index].best_s
        return self.best_s / whole_s if whole_s else 0.0

    def piece_of(self, piece: int, waiting: int, left: float, restore_s: float) -> TaskState:
        """Return a piece of ``waiting`` preempted instances of this task, with a fraction ``left``
        of the work and ``restore_s`` seconds of set-up before they compute.
        """
        twin: TaskState = TaskState._alike(self)
        twin.piece, twin.waiting, twin.restore_s = piece, waiting, restore_s
        if left != self.left:
            # Estimates shrink in proportion to the true durations. The remaining estimate of a
            # resumed piece thus tells a policy how much work is left, as a checkpoint would. Only
            # the task's own share of its rank shrinks, because the path through its children keeps
            # its length.
            kept = left / self.left
            twin.left = left
            if self.job.has_limits and self.training is None:
                twin.seconds = self.job.tasks[self.index].limit_left_s(left)
                twin.best_s = min(twin.seconds)
            else:
                twin.seconds = tuple([seconds * kept if seconds < inf else inf for seconds in self.seconds])
                twin.best_s *= kept
            twin.rank_s += twin.best_s - self.best_s
        return twin

    def limit_left_s(self, left: float) -> tuple[float, ...]:
        """Return the remaining time limit of a piece with a fraction ``left`` of the work, by type.
        It is the limit minus the time for which the piece has run, so it does not reveal how much
        work is truly left. It is rounded to whole microseconds, because the last bits of the
        elapsed time would depend on the true duration.
        """
        rests = []
        for limit_s, true_s in zip(self.seconds, self.true_seconds, strict=True):
            rest_s = inf if limit_s == inf else floor(1e6 * (limit_s - (1.0 - left) * true_s) + 0.5) / 1e6
            rests.append(max(rest_s, min(limit_s, OVERDUE_S)))
        return tuple(rests)

    def believe_estimate(self) -> None:
        """Use the estimate as the true duration from now on. Forks for look-ahead call this."""
        self.job.has_limits = False
        self.true_seconds = tuple([seconds / self.left for seconds in self.seconds]) if self.left else self.seconds

    def __lt__(self, other: TaskState) -> bool:
        return (self.order, self.piece) < (other.order, other.piece)

    def __repr__(self) -> str:
        return f"<TaskState {self.name}: {self.waiting} of {self.task.instances} waiting>"


def hidden_truth(name: str, task: TaskState, instead: str) -> IllegalDecision:
    """Return the error for a policy that reads a value which no real scheduler would have."""
    return IllegalDecision(
        f"a policy reads {name} of {task.name}, which no scheduler can know in advance; use {instead}, or declare "
        "clairvoyant = True in the policy's class"
    )


HeldOnNode: TypeAlias = tuple[NodeState, int, int, tuple[int, ...]]
"""The resources that a run holds on one machine: the machine, instances, the GPUs' bit mask and, if
it shares GPUs, the GPU of each instance.
"""


class WorkProgress(Forked):
    """The work done by a run whose rate is not always 1, and its current rate.

    ``done`` is the work done until ``since_s``, in seconds at rate 1. An elastic task records its
    own progress. For such a task, ``done`` is therefore the number of seconds at a rate above 0.
    ``event`` happens at the end of the current phase and replaces the run's own event. It is None
    while the rate is 0.
    """

    __slots__ = {
        "checkpoint": SAME,
        "done": SAME,
        "event": EMPTY,
        "gang": EMPTY,
        "phase": SAME,
        "rate": SAME,
        "saved": SAME,
        "since_s": SAME,
        "state": COPIED,
        "until": SAME,
        "usual": SAME,
    }

    def __init__(self, since_s: float) -> None:
        self.done = 0.0
        self.rate = 1.0
        self.since_s = since_s
        self.usual = 1.0
        """The last rate above 0, for estimates while the run writes a checkpoint."""
        self.checkpoint = inf
        """Work at which it pauses to write the next checkpoint, over the network or of an elastic task."""
        self.saved = 0.0
        """Work in its last checkpoint."""
        self.until = inf
        """Progress of an elastic task at which its rate may change."""
        self.state: TrainingState | None = None
        """The last checkpoint of an elastic task."""
        self.phase: Literal["epoch", "work", "write"] = "epoch"
        """What ends with ``event`` for an elastic task: an epoch, work before a checkpoint, or its write."""
        self.event: Event | None = None
        self.gang: Any = None
        """Its communication, as stored by the network."""


class Run(Due, Forked):
    """Instances of one task that run together. A run is itself the SimPy event at the end of its
    current phase.

    Its phases are fetching inputs (with a network), set-up and computing. A run that only computes
    is a single timeout. Everything except the SimPy event is plain data. ``computing_s`` is the
    time at which it started to compute (``None`` before), and ``ends_s`` is the end of the current
    phase (``inf`` while that depends on the network).
    """

    # Each attribute has a slot, including those of an Event, so runs need no ``__dict__``.
    __slots__ = {
        "beside": SAME,
        "callbacks": EMPTY,
        "computing_s": SAME,
        "env": COPIED,
        "flows": COPIED,
        "held": COPIED,
        "id": SAME,
        "instances": SAME,
        "process": EMPTY,
        "progress": COPIED,
        "scheduled_end_s": SAME,
        "setup_s": SAME,
        "started_s": SAME,
        "suspended_s": SAME,
        "suspended_since_s": SAME,
        "task": COPIED,
        "true_seconds": SAME,
    }

    def __init__(
        self,
        env: Environment,
        id_: int,
        task: TaskState,
        instances: int,
        held: tuple[HeldOnNode, ...],
        started_s: float,
    ) -> None:
        # ``Event.__init__`` is inlined here, because this is the innermost loop
        self.env = env
        self.callbacks: list[Any] = []
        self.id = id_
        self.task = task
        self.instances = instances
        self.held = held
        truth = task.true_seconds
        seconds = truth[held[0][0].type] if len(held) == 1 else max([truth[machine.type] for machine, *_ in held])
        self.true_seconds = seconds * task.left
        """Its true computing time, which only the kernel and rewards may read."""
        self.started_s = self.scheduled_end_s = started_s
        """``scheduled_end_s`` is the end of the current phase, which only the kernel and rewards may
        read. Policies read ``ends_s``, which checks that they are clairvoyant.
        """
        self.setup_s = 0.0
        self.computing_s: float | None = None
        self.flows: Sequence[Flow] = ()
        """The transfers that it reads before it computes, or writes in a checkpoint."""
        self.process: Process | None = None
        """Waits for these flows."""
        self.progress: WorkProgress | None = None
        """None while its rate has always been 1."""
        self.beside: tuple[int, ...] = ()
        """The runs that share its GPUs."""
        self.suspended_s = 0.0
        """Total number of seconds for which it has been suspended."""
        self.suspended_since_s: float | None = None
        """Start of the current suspension. None if it is not suspended."""

    @property
    def job(self) -> JobState:
        """The job to which the run belongs."""
        return self.task.job

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes that the run uses."""
        return tuple(machine.index for machine, *_ in self.held)

    @property
    def type(self) -> int:
        """The GPU type of the run's machines, as an index into ``ClusterView.gpu_types``."""
        return self.held[0][0].type

    @property
    def gpus(self) -> float:
        """Number of GPUs that the run holds, which is a fraction if it shares a GPU."""
        return self.task.demand.demand.gpus * self.instances

    @property
    def rate(self) -> float:
        """The current rate of the run: seconds of work per second or, for an elastic task, progress
        per second.
        """
        return 1.0 if self.progress is None else self.progress.rate

    @property
    def boots(self) -> bool:
        """True while the run holds its nodes but waits for them to boot, so that it has neither an
        event nor a process yet.
        """
        return self.computing_s is None and not self.callbacks and self.process is None

    @property
    def seconds(self) -> float:
        """The true compute time of the run, for clairvoyant policies.

        Raises:
            IllegalDecision: The policy has not declared ``clairvoyant = True``.
        """
        if not self.task.job.shows_truth:
            raise hidden_truth("run.seconds", self.task, "run.estimate_s")
        return self.true_seconds

    @property
    def ends_s(self) -> float:
        """The end of the run's current phase (``inf`` while that depends on the network), for
        clairvoyant policies.

        Raises:
            IllegalDecision: The policy has not declared ``clairvoyant = True``.
        """
        if not self.task.job.shows_truth:
            raise hidden_truth("run.ends_s", self.task, "run.estimated_end_s(view.now)")
        return self.scheduled_end_s

    @property
    def estimate_s(self) -> float:
        """The estimated compute time of the run, which policies may read."""
        return self.task.seconds[self.held[0][0].type]

    def estimated_end_s(self, now: float) -> float:
        """Return the expected end of the run at its current rate, which policies may read. It is
        never before ``now``.
        """
        if self.progress is not None:
            return max(self._paced_end_s(self.progress), now)
        begun = self.computing_s if self.computing_s is not None else max(self.started_s + self.setup_s, now)
        return max(begun + self.estimate_s, now)

    def done(self, now: float) -> float:
        """Return the work done until ``now``, in seconds at rate 1. For an elastic task, return its
        progress in its own unit, including the progress in earlier runs.
        """
        progress, training = self.progress, self.task.training
        if progress is None:
            before = 0.0 if training is None else training.progress
            return before if self.computing_s is None or training is not None else now - self.computing_s
        before = progress.done if training is None else training.progress
        return before + (now - progress.since_s) * progress.rate

    def work_left_s(self, now: float) -> float:
        """Return the estimated remaining compute time at rate 1."""
        progress = self.progress
        if progress is None:
            return max(self.estimated_end_s(now) - now, 0.0)
        training = self.task.training
        if training is not None:
            return self.estimate_s / self.task.left * max(1.0 - self.done(now) / training.total, 0.0)
        return max(self.estimate_s - self.done(now), 0.0)

    def _paced_end_s(self, progress: WorkProgress) -> float:
        training = self.task.training
        left = self.estimate_s - progress.done if training is None else training.total - training.progress
        return progress.since_s + left / progress.usual if progress.usual else inf

    @property
    def moves(self) -> bool:
        """True if the state of the run comes directly from the nodes of an earlier run, False if it
        comes from the storage.
        """
        saved = self.task.saved
        return saved is not None and bool(saved[1]) and saved[0] == self.started_s

    # Steps in the life of a run, called by the kernel.

    def compute(self, now: float) -> float:
        """Start to compute now at rate 1, and return the time of the end."""
        self.computing_s = now
        self.scheduled_end_s = ends_s = now + self.true_seconds
        return ends_s

    def phase_until(self, ends_s: float) -> float:
        """Set the end of the current phase, and return it. The end is ``inf`` if it depends on the
        network.
        """
        self.scheduled_end_s = ends_s
        return ends_s

    def resume(self, now: float) -> None:
        """Continue after a suspension. The time at which the run began to compute is shifted by the
        length of the suspension.
        """
        assert self.suspended_since_s is not None
        assert self.computing_s is not None
        paused_s = now - self.suspended_since_s
        self.suspended_s += paused_s
        self.computing_s += paused_s
        self.suspended_since_s = None

    def take(self, seconds: float) -> None:
        """Set the compute time of the run to ``seconds`` instead of the task's duration."""
        self.true_seconds = seconds

    @property
    def is_endless(self) -> bool:
        """True if it is unknown when the current phase ends."""
        return self.scheduled_end_s == inf

    def left(self, now: float) -> float:
        """Return the fraction of the task's work that is left if the run stops now, after computing
        at rate 1.
        """
        now = now if self.suspended_since_s is None else self.suspended_since_s
        passed_s = 0.0 if self.computing_s is None else now - self.computing_s
        return self.task.left * max(0.0, 1.0 - (passed_s / self.true_seconds if self.true_seconds else 0.0))

    def believe_estimate(self, now: float) -> None:
        """Use the estimate as the true compute time from now on. Forks for look-ahead call this."""
        self.true_seconds = self.estimate_s
        pauses = self.progress is not None and self.progress.checkpoint < self.true_seconds
        if self.computing_s is not None and self.task.training is None and not pauses:
            self.scheduled_end_s = self.estimated_end_s(now)

    def disarm(self) -> None:
        """Cancel the effects of the run's scheduled events."""
        self.callbacks = []
        if self.progress is not None and self.progress.event is not None:
            self.progress.event.callbacks = []
            self.progress.event = None

    def halt(self) -> None:
        """Cancel the effects of the run's scheduled events, and interrupt its process."""
        self.disarm()
        if self.process is not None and self.process.is_alive:
            self.process.interrupt()
