"""Helpers of policies that play an instant event by event, as simulators of batch systems do: the ready tasks by
arrival, and what tasks take, runs hold and machines have, in GPUs, or in cores where no GPU is asked for."""

from __future__ import annotations

from typing import TypeAlias

from dagsim.systems.cluster.api import MICRO, ClusterView, Run, TaskState
from dagsim.systems.cluster.policies.orders.static import width

__all__ = ["NEARLY", "Key", "Ready", "free", "held", "size"]

Key: TypeAlias = tuple[int, int]
"""Order and piece of a task."""

NEARLY = 1e-9
"""Amounts nearer to each other are equal."""


class Ready:
    """The ready tasks by arrival."""

    def __init__(self) -> None:
        self.tasks: dict[Key, TaskState] = {}

    def push(self, task: TaskState) -> None:
        """Take in a task that has become ready."""
        self.tasks[task.order, task.piece] = task


def size(task: TaskState) -> float:
    """GPUs, or of what asks for none cores, that start together."""
    return width(task) if task.demand.demand.gpus else task.demand.cpus / MICRO * (task.demand.gang or 1)


def held(run: Run) -> float:
    """GPUs, or of what has none cores, that the run holds."""
    return run.gpus or run.task.demand.cpus / MICRO * run.instances


def free(view: ClusterView, task: TaskState) -> float:
    """GPUs, or cores, that are free on the types that may run the task."""
    machines, types = view.machines, set(task.demand.types)
    if task.demand.demand.gpus:
        return float(sum(machines.idle_gpus(type_) for type_ in types))
    return sum(machine.cpus for machine in machines.list if machine.type in types and machine.up) / MICRO
