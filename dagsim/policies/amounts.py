"""What tasks take, runs hold and machines have, counted in GPUs, or in cores where no GPU is asked for."""

from __future__ import annotations

from dagsim.policies.orders import width
from dagsim.sim.frontier import ActiveTask
from dagsim.sim.machines import MICRO
from dagsim.sim.policy import View
from dagsim.sim.run import Run

__all__ = ["NEARLY", "free", "held", "size"]

NEARLY = 1e-9
"""Amounts nearer to each other are equal."""


def size(task: ActiveTask) -> float:
    """GPUs, or of what asks for none cores, that start together."""
    return width(task) if task.demand.demand.gpus else task.demand.cpus / MICRO * (task.demand.gang or 1)


def held(run: Run) -> float:
    """GPUs, or of what has none cores, that the run holds."""
    return run.gpus or run.task.demand.cpus / MICRO * run.instances


def free(view: View, task: ActiveTask) -> float:
    """GPUs, or cores, that are free on the types that may run the task."""
    machines, types = view.machines, set(task.demand.types)
    if task.demand.demand.gpus:
        return float(sum(machines.idle_gpus(type_) for type_ in types))
    return sum(machine.cpus for machine in machines.list if machine.type in types and machine.up) / MICRO
