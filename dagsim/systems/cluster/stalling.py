"""Why a simulation has stalled: what waits, and what keeps it from going on."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from dagsim.systems.cluster.state import TaskState

if TYPE_CHECKING:
    from dagsim.systems.cluster.kernel import ClusterKernel

__all__ = ["why_stalled"]

_NAMED = 5
"""Nodes and runs that a message names."""


def why_stalled(kernel: ClusterKernel) -> str:
    """The message of ``Stalled``, from the state of a kernel in which nothing will happen by itself."""
    ready = kernel.frontier.ready
    first = next(iter(ready), None)
    waiting = [f"{len(ready)} ready tasks wait" + (f", {first.name} among them" if first else "")]
    if kernel.applicants:
        waiting.append(f"{len(kernel.applicants)} jobs wait to be admitted")
    endless = [f"{run.id} of {run.task.name}" for run in kernel.running.values() if run.ends_s == inf]
    if endless:
        return f"at {kernel.now:g} s: {' and '.join(waiting)}, and nothing is due: run {_some(endless)} never ends"
    stuck = next((task for task in ready if not kernel.machines.fits(task.demand)), None)
    startable = next((task for task in ready if kernel.machines.fits(task.demand)), None)
    idle = f"at {kernel.now:g} s: {' and '.join(waiting)}, nothing runs and nothing is pending"
    if startable is not None or kernel.applicants:
        could = f", although {startable.name} could start" if startable is not None else ""
        return f"{idle}, but the policy decided nothing{could}"
    return f"{idle}: {_why_stuck(kernel, stuck)}" if stuck is not None else idle


def _why_stuck(kernel: ClusterKernel, task: TaskState) -> str:
    """Why there is no room for the task although nothing runs."""
    types = task.demand.types
    down = [machine.node.name for machine in kernel.machines.list if machine.type in types and not machine.up]
    asked = f"{task.name} asks {task.demand.gang or 1} x {tuple(task.demand.demand)}"
    return f"{asked}, which needs nodes that are down and are not to come back ({_some(down)})"


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
