"""Tetris: pack by alignment, and finish small jobs early."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from dagsim.model import Decision, Placement, Start
from dagsim.systems.cluster.api import ClusterView, NodeState, TaskState
from dagsim.systems.cluster.policies.orders.static import by_rank
from dagsim.systems.cluster.policies.placement.nodes import alignment, fill
from dagsim.systems.cluster.policies.support.job_queue import JobQueue
from dagsim.systems.cluster.policies.support.progress import WorkLeft

__all__ = ["Tetris"]

_NODES = 16
"""Nodes of a type that are looked at, emptiest first: what is free there has the largest dot products."""


class Tetris:
    """The pair of ready task and node with the most ``a - e p``: ``a`` the dot product of demand and what is free
    (GPUs, CPUs, memory, as fractions of the node), ``p`` the work left of its job, and ``e = srpt x mean a / mean p``
    over what could start now.

    Of each demand class the job with the least work left stands for all. Gangs go where best fit puts them. Clairvoyant
    (``srpt=0`` is not), not preemptive. O(demand classes x types) per decision (Grandl et al., SIGCOMM
    2014).
    """

    def __init__(self, srpt: float = 1.0) -> None:
        self.srpt = srpt

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        queue = view.index(Tetris, lambda: JobQueue(WorkLeft(), by_rank))
        queue.rank_again()
        fitting = [(task, *_most_aligned(view, task)) for task in queue.heads(view.machines.fits)]
        if not fitting:
            return
        work = [queue.job_key(task.job) for task, _, _ in fitting]
        price = self.srpt * sum(aligned for _, aligned, _ in fitting) / (sum(work) or 1.0)
        scores = [aligned - price * left for (_, aligned, _), left in zip(fitting, work, strict=True)]
        task, _, machine = fitting[scores.index(max(scores))]
        placement = _place(view, task, machine)
        if placement is not None:
            yield Start(task, placement)


def _most_aligned(view: ClusterView, task: TaskState) -> tuple[float, NodeState | None]:
    """The largest dot product of the task's demand with a node with room, and that node."""
    demand, machines = task.demand, view.machines
    best: tuple[float, NodeState | None] = (0.0, None)
    for type_ in demand.types:
        for index in islice(machines.candidates(demand, type_, True), _NODES):
            machine = machines.list[index]
            if machine.room(demand):
                aligned = alignment(machine, demand.demand.gpus, demand.cpus, demand.memory)
                if best[1] is None or aligned > best[0]:
                    best = aligned, machine
    return best


def _place(view: ClusterView, task: TaskState, machine: NodeState | None) -> Placement | None:
    """On the machine; by best fit for a gang, or where the machines looked at had no room."""
    if machine is None or task.demand.gang:
        return view.fit(task)
    return fill(task, [machine])
