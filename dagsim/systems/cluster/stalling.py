"""Stalled simulations: time and reason: what waits, and what keeps it from going on."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from dagsim.systems.cluster.nodes import DemandClass, NodeState
from dagsim.systems.cluster.state import TaskState

if TYPE_CHECKING:
    from dagsim.systems.cluster.kernel import ClusterKernel

__all__ = ["is_hopeless", "why_stalled"]

_NAMED = 5
"""Nodes and runs that a message names."""


def is_hopeless(kernel: ClusterKernel) -> bool:
    """True if nothing that waits will ever have room. Nodes have left for good and nobody is to arrive: a policy that
    asks to be woken again and again would do so for ever. Only of a kernel where nothing runs."""
    ready = kernel.frontier.ready
    if kernel._jobs_left or kernel.applicants or not ready:
        return False
    lasting = kernel.lasting()
    return not any(_could_fit(kernel, demand, lasting) for demand in {task.demand for task in ready})


def _could_fit(kernel: ClusterKernel, demand: DemandClass, lasting: list[bool]) -> bool:
    """True if the nodes that are or will be up hold an instance. Of a gang they hold all."""
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
    """The message of ``Stalled``, from a kernel in which nothing will happen by itself."""
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
    pending = "nothing is pending" if not kernel.pending else "nothing that is pending helps"
    idle = f"at {kernel.now:g} s: {' and '.join(waiting)}, nothing runs and {pending}"
    if startable is not None or kernel.applicants:
        could = f", although {startable.name} could start" if startable is not None else ""
        return f"{idle}, but the policy decided nothing{could}"
    return f"{idle}: {_why_stuck(kernel, stuck)}" if stuck is not None else idle


def _why_stuck(kernel: ClusterKernel, task: TaskState) -> str:
    """The reason why there is no room for the task although nothing runs."""
    types = task.demand.types
    lasting = kernel.lasting()
    machines = [machine for machine in kernel.machines.list if machine.type in types]
    down = [machine.node.name for machine in machines if not lasting[machine.index]]
    asked = f"{task.name} asks {task.demand.gang or 1} x {tuple(task.demand.demand)}"
    return f"{asked}, which needs nodes that are down and are not to come back ({_some(down)})"


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
