"""Simulation of how gangs communicate while they compute, and of the resulting compute rates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from dagsim.errors import ModelError
from dagsim.model import GpuType, Placement, Task
from dagsim.model.arithmetic import bits
from dagsim.systems.cluster.forks import COPIED, SAME, Forked
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.models.runtime import Runtime
from dagsim.systems.cluster.network.base import (
    NO_CARRIER,
    Carrier,
    Communication,
    GangCarrier,
    Member,
)
from dagsim.systems.cluster.resources.nodes import NodeState
from dagsim.systems.cluster.state import Run, TaskState, WorkProgress


class Gangs(Forked):
    """The communication of all gangs in a kernel, and the resulting compute rates. The network,
    which is called the carrier here, transports the traffic while the gangs compute.
    """

    __slots__ = {"_carrier": COPIED, "_communication": SAME, "_runtime": SAME, "_types": SAME}

    def __init__(
        self, carrier: GangCarrier, communication: Communication, runtime: Runtime, types: tuple[GpuType | None, ...]
    ) -> None:
        self._carrier = carrier
        self._communication = communication
        self._runtime = runtime
        self._types = types

    @classmethod
    def of(cls, models: Models, types: tuple[GpuType | None, ...], carrier: Carrier | None) -> Gangs | None:
        """Create the communication of a kernel's gangs, as described by its communication model, or
        by its runtime model if that also describes communication. Return None if gangs send
        nothing.

        Raises:
            ModelError: There are two models, or there is a model that the network or the other
                models do not support.
        """
        runtime, communication = models.runtime, models.communication
        if isinstance(runtime, Communication):
            if communication is not None:
                raise ModelError(
                    "the runtime model already describes what gangs send, so leave out the key communication"
                )
            communication = runtime
        if communication is None:
            return None
        if not isinstance(carrier, GangCarrier):
            raise ModelError(NO_CARRIER)
        if models.sharing is not None:
            raise ModelError(
                "communicating gangs cannot share GPUs, so remove the key 'sharing' from the configuration"
            )
        return cls(carrier, communication, runtime, types)

    def begin(self, run: Run, now: float, set_rate: Callable[[float], None]) -> bool:
        """Start the traffic of a computing run's gang. Return False if the gang sends
        nothing. ``set_rate`` is called with each new rate, including the first one.

        Raises:
            ModelError: The model has no entry for the run's task.
        """
        gang = self._gang(run.task, run.type, [held[:3] for held in run.held], now)
        if gang is None:
            return False
        if run.progress is None:
            run.progress = WorkProgress(now if run.computing_s is None else run.computing_s)
        run.progress.gang = gang
        self._carrier.begin(gang, set_rate)
        return True

    def end(self, progress: WorkProgress) -> None:
        """Stop the communication of a run's gang, if there is any."""
        if progress.gang is not None:
            self._carrier.end(progress.gang)
            progress.gang = None

    def adopt(self, progress: WorkProgress, gang: Any, set_rate: Callable[[float], None]) -> None:
        """In a fork, continue the communication of the original run's gang."""
        if gang is not None:
            progress.gang = self._carrier.adopt(gang, set_rate)

    def expected_rate(self, task: TaskState, placement: Placement, machines: Sequence[NodeState], now: float) -> float:
        """See ``ClusterView.expected_rate``."""
        held = []
        for node, count, _ in placement:
            mask, free = 0, machines[node].free
            for _ in range(count * task.demand.whole):
                mask |= free & -free
                free &= free - 1
            held.append((machines[node], count, mask))
        gang = self._gang(task, held[0][0].type, held, now) if held else None
        return 1.0 if gang is None else self._carrier.expected(gang)

    def _gang(self, task: TaskState, type_: int, placement: Iterable[tuple[NodeState, int, int]], now: float) -> Any:
        """Return the traffic of a task on the machines of a placement, or None if the task sends
        nothing. Each machine is given with its number of instances and the bit mask of their GPUs.
        """
        held = [(machine.index, count, mask) for machine, count, mask in placement]
        try:
            step = gang_step(self._communication, self._runtime, task.task, self._types, self._types[type_], held)
            return None if step is None else self._carrier.gang(*step)
        except ModelError as error:
            raise ModelError(f"at {now:g} s: {task.name}: {error}") from None


class GangStep(NamedTuple):
    """One training step of a gang on certain nodes. The fields are the arguments of
    ``GangCarrier.gang``.
    """

    traffic: Any
    """The traffic of the gang, which only its carrier reads."""
    step_s: float
    """Seconds of compute."""
    members: list[Member]
    gpu: GpuType | None
    """The GPUs that NVLink connects, or None if each rank has less than one GPU."""


def gang_step(
    communication: Communication,
    runtime: Runtime,
    task: Task,
    types: tuple[GpuType | None, ...],
    gpu: GpuType | None,
    held: Iterable[tuple[int, int, int]],
) -> GangStep | None:
    """Return the step of a task on nodes with GPUs of one type, or None if the task sends nothing.
    ``types`` are the GPU types in the cluster. ``held`` lists each node with its number of
    instances and the bit mask of their GPUs (0 if unknown).
    """
    if not task.gang and task.gpus < 2:
        return None
    traffic = communication.traffic(task, gpu)
    if traffic is None:
        return None
    ranks = int(task.gpus) or 1
    members = [Member(node, (count if task.gang else 1) * ranks, tuple(bits(mask))) for node, count, mask in held]
    step_s = traffic.step_s
    if not isinstance(runtime, Communication):
        seconds = runtime.seconds(task, types)
        if len(seconds) > 1 and min(seconds) > 0:
            step_s *= seconds[types.index(gpu)] / min(seconds)
    return GangStep(traffic, step_s, members, gpu if task.gpus >= 1 else None)
