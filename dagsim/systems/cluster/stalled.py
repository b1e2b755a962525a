"""Simulations that cannot go on: who waits, and why. Nothing here changes anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagsim.systems.cluster.nodes import DemandClass, NodeState
from dagsim.systems.cluster.state import TaskState

if TYPE_CHECKING:
    from dagsim.systems.cluster.kernel import ClusterKernel

_NAMED = 5
"""Maximum number of nodes and runs that a message names."""


def is_hopeless(kernel: ClusterKernel) -> bool:
    """True if no waiting task will ever have room: nodes have left for good and no job is still to
    arrive. A policy that asks to be woken would otherwise continue forever. Asked only while nothing
    runs.
    """
    ready = kernel.frontier.ready
    if kernel.upcoming.any_left or kernel.applicants or (kernel.life is not None and kernel.life.pending) or not ready:
        return False
    lasting = kernel.lasting()
    return not any(_could_fit(kernel, demand, lasting) for demand in {task.demand for task in ready})


def _could_fit(kernel: ClusterKernel, demand: DemandClass, lasting: list[bool]) -> bool:
    """True if the nodes that are or will be up can hold an instance (a gang: all of it)."""
    for type_ in demand.types:
        empty = (
            NodeState(machine.index, machine.node, type_)
            for machine in kernel.machines.list
            if machine.type == type_ and lasting[machine.index]
        )
        if sum(machine.room(demand) for machine in empty) >= max(demand.gang, 1):
            return True
    return False


def why_stalled(kernel: ClusterKernel) -> str:
    """The message of ``Stalled``, for a kernel in which nothing will happen without a decision."""
    ready, fits = kernel.frontier.ready, kernel.machines.fits
    first = next(iter(ready), None)
    waiting = [f"{len(ready)} ready tasks wait" + (f", {first.name} among them" if first else "")]
    if kernel.applicants:
        waiting.append(f"{len(kernel.applicants)} jobs wait to be admitted")
    endless = [f"{run.id} of {run.task.name}" for run in kernel.running.values() if run.is_endless]
    if endless:
        return f"at {kernel.now:g} s: {' and '.join(waiting)}, and nothing is due: run {_some(endless)} never ends"
    stuck = next((task for task in ready if not fits(task.demand)), None)
    startable = next((task for task in ready if fits(task.demand)), None)
    pending = "nothing is pending" if not kernel.pending else "nothing that is pending helps"
    idle = f"at {kernel.now:g} s: {' and '.join(waiting)}, nothing runs and {pending}"
    if startable is not None or kernel.applicants:
        could = f", although {startable.name} could start" if startable is not None else ""
        return f"{idle}, but the policy decided nothing{could}"
    return f"{idle}: {_why_stuck(kernel, stuck)}" if stuck is not None else idle


def _why_stuck(kernel: ClusterKernel, task: TaskState) -> str:
    """The reason why there is no room for the task although nothing runs."""
    lasting = kernel.lasting()
    machines = [machine for machine in kernel.machines.list if machine.type in task.demand.types]
    down = [machine.node.name for machine in machines if not lasting[machine.index]]
    asked = f"{task.name} asks {task.demand.gang or 1} x {tuple(task.demand.demand)}"
    return f"{asked}, which needs nodes that are down and are not to come back ({_some(down)})"


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
