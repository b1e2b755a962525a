"""A run: one attempt of some instances of a task, and the event of its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from simpy import Environment
from simpy.events import Event, Process

from dagsim.systems.cluster.network.base import Flow
from dagsim.systems.cluster.nodes import NodeState
from dagsim.systems.cluster.state import JobState, TaskState, hidden_truth

__all__ = ["Held", "Run"]

Held: TypeAlias = tuple[NodeState, int, int, tuple[int, ...]]
"""What a run holds on one machine: the machine, instances, the GPUs' bit mask and, where shared, the GPU of each
instance."""


class Run(Event):
    """Instances of one task that run together, and the SimPy event that ends their phase.

    Its phases are fetching inputs (where there is a network), set-up, computing; one without the first two is a single
    timeout. Everything but the waiting is plain data: ``computing_s`` is when it started to compute (``None`` before),
    ``ends_s`` when the present phase ends (``inf`` while only the network knows).
    """

    __slots__ = (
        "_ends_s",
        "_seconds",
        "computing_s",
        "flows",
        "held",
        "id",
        "instances",
        "process",
        "setup_s",
        "started_s",
        "task",
    )

    def __init__(
        self,
        env: Environment,
        id_: int,
        task: TaskState,
        instances: int,
        held: tuple[Held, ...],
        started_s: float,
    ) -> None:
        # What Event.__init__ does, already triggered: this is made once per run, in the innermost loop.
        self.env = env
        self._ok = True
        self._value = None
        self.id = id_
        self.task = task
        self.instances = instances
        self.held = held
        self._seconds = task._truth[held[0][0].type] * task.left
        """Its true computing time; as ``_ends_s`` for the kernel and rewards."""
        self.started_s = self._ends_s = started_s
        self.setup_s = 0.0
        self.computing_s: float | None = None
        self.flows: Sequence[Flow] = ()
        self.process: Process | None = None

    @property
    def job(self) -> JobState:
        """The job it belongs to."""
        return self.task.job

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes it runs on."""
        return tuple(machine.index for machine, *_ in self.held)

    @property
    def type(self) -> int:
        """The type of its machines, as a place in ``ClusterView.gpu_types``."""
        return self.held[0][0].type

    @property
    def gpus(self) -> float:
        """GPUs it holds, a fraction where it shares one."""
        return self.task.demand.demand.gpus * self.instances

    @property
    def seconds(self) -> float:
        """Its true computing time, for clairvoyant policies.

        Raises:
            IllegalDecision: The policy has not declared ``clairvoyant = True``.
        """
        if not self.task.job.shows_truth:
            raise hidden_truth("run.seconds", self.task, "run.estimate_s")
        return self._seconds

    @property
    def ends_s(self) -> float:
        """When its present phase ends (``inf`` while only the network knows), for clairvoyant policies.

        Raises:
            IllegalDecision: The policy has not declared ``clairvoyant = True``.
        """
        if not self.task.job.shows_truth:
            raise hidden_truth("run.ends_s", self.task, "run.estimated_end_s(view.now)")
        return self._ends_s

    @property
    def estimate_s(self) -> float:
        """The estimate of its computing time, for policies."""
        return self.task.seconds[self.held[0][0].type]

    def estimated_end_s(self, now: float) -> float:
        """The time when a policy may expect it to end; never before ``now``."""
        begun = self.computing_s if self.computing_s is not None else max(self.started_s + self.setup_s, now)
        return max(begun + self.estimate_s, now)
