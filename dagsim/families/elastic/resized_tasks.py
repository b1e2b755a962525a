"""Elastic tasks in the system, as policies see them, and the nodes whose GPUs they may have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import NamedTuple

from dagsim.errors import ConfigError
from dagsim.families.elastic.goodput import BatchLimits
from dagsim.families.elastic.training_jobs import GoodputProgress, Training
from dagsim.model import Decision, Elastic, Placement, Preempt, Share, Start
from dagsim.model.arithmetic import whole_sum
from dagsim.systems.cluster.api import ClusterView, Run, TaskState


class ResizedTask:
    """An elastic task in the system, with the data that policies need.

    ``piece`` is the part of the task that is waiting or running. ``run`` is its run, or None while
    it is waiting. ``starts`` counts how often this policy has started the task.
    """

    def __init__(self, piece: TaskState, run: Run | None, starts: int) -> None:
        elastic = piece.task.elastic
        if elastic is None or not isinstance(piece.training, GoodputProgress | Training):
            raise ConfigError(f"elastic policies need a goodput model, but the elastic task {piece.name} has none")
        self.order = piece.order
        self.elastic: Elastic = elastic
        self.arrival_s = piece.job.job.arrival_s
        self.piece, self.run, self.starts = piece, run, starts

    @property
    def domains(self) -> tuple[int, ...]:
        """The sets of nodes, one of which must contain all of the task's GPUs. It is empty if the
        GPUs may be anywhere."""
        terms = self.piece.demand.terms
        return () if terms is None else tuple(terms.domains)

    @property
    def training(self) -> GoodputProgress | Training:
        training = self.piece.training
        assert isinstance(training, GoodputProgress | Training)
        return training

    @property
    def restarts(self) -> int:
        """The number of restarts, or -1 before the first start."""
        return self.starts - 1

    @property
    def limits(self) -> BatchLimits:
        """The limits on the batch sizes of the task's application."""
        training = self.training
        if isinstance(training, Training):
            return training.job.profile.limits
        return next(iter(training.task.models.values())).limits

    def most_replicas(self, batch: int) -> int:
        """Return the maximum number of GPUs for a batch."""
        return min(self.elastic.most, batch // self.limits.local_min)

    def restart_factor(self, now: float, restart_s: float) -> float:
        """Return the share of the task's time that would be productive if it restarted one more
        time, or 1 if the task arrived no more than ``restart_s`` ago.
        """
        age_s = now - self.arrival_s
        return max(age_s - max(self.restarts, 0) * restart_s, 0.0) / (age_s + restart_s) if age_s > restart_s else 1.0


class ResizedTasks:
    """The elastic tasks in the system. This class changes their GPUs, and records how often each
    task was started.
    """

    def __init__(self) -> None:
        self._starts: dict[int, int] = {}

    def read(self, view: ClusterView) -> list[ResizedTask]:
        """Return all tasks in order of arrival.

        Raises:
            ConfigError: A task has no goodput model.
        """
        runs = {run.task.order: run for run in view.running.values() if run.task.training is not None}
        pieces = {task.order: task for task in view.ready if task.training is not None}
        pieces |= {order: run.task for order, run in runs.items()}
        self._starts = {order: self._starts.get(order, 0) for order in sorted(pieces)}
        return [ResizedTask(pieces[order], runs.get(order), starts) for order, starts in self._starts.items()]

    def change(
        self, view: ClusterView, tasks: Sequence[ResizedTask], placements: Mapping[int, Placement | None]
    ) -> Iterator[Decision]:
        """Stop the running tasks in ``placements``, then start all tasks in it that have a
        placement."""
        for task in tasks:
            if task.order in placements and task.run is not None:
                yield Preempt(task.run.id)
        waiting = {task.order: task for task in view.ready}
        for order, placement in placements.items():
            piece = waiting.get(order)
            if piece and placement and all(_has_room(view, piece, share) for share in placement):
                self._starts[order] += 1
                yield Start(piece, placement)


def _has_room(view: ClusterView, task: TaskState, share: Share) -> bool:
    return view.machines.list[share.node].room(task.demand) >= share.instances


def most_gpus_now(task: ResizedTask) -> int:
    """Return the largest number of GPUs that the task may have now: at most twice as many as it has
    run with.
    """
    return min(task.elastic.most, max(2 * task.training.largest_measured, task.elastic.least))


def held_gpus(run: Run | None) -> list[tuple[int, int]]:
    """Return each node that a run holds, with the number of GPUs there."""
    return [] if run is None else [(machine.index, count) for machine, count, *_ in run.held]


class NodesOfType(NamedTuple):
    """The nodes of a GPU type: the number of GPUs on the largest node, and the GPUs on each node
    that elastic tasks hold or may take.
    """

    size: int
    free: dict[int, int]


NodesByType = dict[str, NodesOfType]


def elastic_nodes(view: ClusterView) -> NodesByType:
    """Return the nodes that are up, by GPU type."""
    held = Counter({machine.index: machine.idle for machine in view.machines.list})
    for run in view.running.values():
        if run.task.training is not None:
            held.update(dict(held_gpus(run)))
    nodes: NodesByType = {}
    for machine in view.machines.list:
        gpu = view.gpu_types[machine.type]
        if gpu is not None and machine.up:
            size, free = nodes.get(gpu.name, (0, {}))
            nodes[gpu.name] = NodesOfType(max(size, machine.gpus), free | {machine.index: held[machine.index]})
    return nodes


def elastic_capacity(view: ClusterView, nodes: NodesByType) -> dict[str, int]:
    """Return how many GPUs of each type elastic tasks may use. GPUs for which other tasks are
    waiting do not count.
    """
    capacity = {type_: whole_sum(one.free.values()) for type_, one in nodes.items()}
    for task in view.ready:
        gpu = view.gpu_types[task.seconds.index(task.best_s)]
        if task.training is None and gpu is not None and gpu.name in capacity:
            wanted = ceil(task.demand.demand.gpus * task.waiting)
            capacity[gpu.name] = max(0, capacity[gpu.name] - wanted)
    return capacity
