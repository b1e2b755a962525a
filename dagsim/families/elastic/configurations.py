"""Configurations of elastic tasks (GPU type, nodes and GPUs): the goodput on them, and placements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from dagsim.families.elastic.goodput import GoodputModel
from dagsim.families.elastic.resized_tasks import NodesByType, NodesOfType, ResizedTask, held_gpus, most_gpus_now
from dagsim.families.elastic.sia import Configuration
from dagsim.families.elastic.training_jobs import Training
from dagsim.model import Placement, Share
from dagsim.model.arithmetic import whole_sum
from dagsim.systems.cluster.api import ClusterView

UNKNOWN = 1e-4
"""Goodput in Sia's program of a configuration that a job may not have yet."""


def possible_configurations(nodes: NodesByType) -> tuple[Configuration, ...]:
    """Return the configurations on each type: those with a power-of-two number of GPUs on one node,
    and those with whole nodes."""
    options = []
    for type_, (size, free) in nodes.items():
        counts = [2**power for power in range(size.bit_length()) if 2**power < size] + [size]
        options += [Configuration(type_, 1, count) for count in counts]
        whole = sum(count == size for count in free.values())
        options += [Configuration(type_, count, count * size) for count in range(2, whole + 1)]
    return tuple(options)


@lru_cache(maxsize=4096)
def _model_goodputs(model: GoodputModel, options: tuple[Configuration, ...]) -> np.ndarray:
    """Return the goodput of ``model`` on each configuration, or 0 if even the model's largest batch
    is too small for it.
    """
    goodputs = np.zeros(len(options))
    allowed = [at for at, one in enumerate(options) if one.gpus * model.limits.local_min <= model.limits.largest]
    if allowed:
        counts = [(options[at].nodes, options[at].gpus) for at in allowed]
        goodputs[allowed] = model.best(*np.array(counts).T).goodput
    goodputs.setflags(write=False)
    return goodputs


def _largest_group(domains: Sequence[int], of_type: NodesOfType) -> int:
    """Return the largest number of nodes of a GPU type in any one domain."""
    return max([sum([domain >> node & 1 for node in of_type.free]) for domain in domains])


def goodputs_on(
    task: ResizedTask, options: tuple[Configuration, ...], nodes: NodesByType, *, sia: bool = False
) -> np.ndarray:
    """Return the goodput of the task on each configuration. It is 0 outside the task's range, on
    more GPUs per node than were measured, and on more nodes of a GPU type than a domain contains.

    If ``sia`` is True, goodputs are divided by the task's smallest goodput, and are very small for
    configurations that the task may not have yet.
    """
    training, goodputs = task.training, np.zeros(len(options))
    most = most_gpus_now(task) if sia else task.elastic.most
    for type_ in dict.fromkeys(option.type for option in options):
        model = training.model(type_)
        of_type = np.array([option.type == type_ for option in options])
        if model is not None:
            goodputs[of_type] = _model_goodputs(model, options)[of_type]
        elif training.runs_on(type_):  # nothing is measured yet, so assume linear speedup
            goodputs[of_type] = [option.gpus for option in options if option.type == type_]
    counts = np.array([option.gpus for option in options])
    goodputs[(counts < task.elastic.least) | (counts > most)] = 0.0
    if isinstance(task.training, Training):  # exclude placements that were not measured
        fullest = task.training.job.profile.per_node
        goodputs[[option.gpus > fullest * option.nodes for option in options]] = 0.0
    if task.domains:
        largest = {type_: _largest_group(task.domains, of_type) for type_, of_type in nodes.items()}
        goodputs[[option.nodes > largest[option.type] for option in options]] = 0.0
    if sia and goodputs.any():
        goodputs /= goodputs[goodputs > 0].min()
    return np.where(goodputs > 0, goodputs, UNKNOWN) if sia else goodputs


def present_option(task: ResizedTask, options: Sequence[Configuration], view: ClusterView) -> int | None:
    """Return the index of the task's configuration, or None if the task is waiting."""
    if task.run is None:
        return None
    gpu, held = view.gpu_types[task.run.type], held_gpus(task.run)
    have = Configuration("" if gpu is None else gpu.name, len(held), whole_sum(count for _, count in held))
    return options.index(have) if have in options else None


def moves_to(
    view: ClusterView,
    tasks: Sequence[ResizedTask],
    wanted: Mapping[int, Configuration | None],
    nodes: NodesByType,
) -> dict[int, Placement | None]:
    """Return the placements of all tasks whose configuration changes, or None for tasks that stop.
    A task that already has its configuration keeps its GPUs, unless the other tasks on its GPU type
    would then not fit.
    """
    moves: dict[int, Placement | None] = {}
    for type_, of_type in nodes.items():
        here = [task for task in tasks if (one := wanted[task.order]) is not None and one.type == type_]
        kept = {task.order for task in here if _has(view, task, wanted[task.order])}
        placements = _packed(here, wanted, kept, of_type)
        if placements is None:
            kept = {task.order for task in here if task.run is not None and task.run.started_s == view.now}
            placements = _packed(here, wanted, kept, of_type) or {}
        for task in here:
            if task.order in kept:
                continue
            placement = placements.get(task.order)
            if placement is None or task.run is None or set(placement) != {Share(*one) for one in held_gpus(task.run)}:
                moves[task.order] = placement
    for task in tasks:
        if wanted[task.order] is None and task.run is not None:
            moves[task.order] = None
    running = {task.order for task in tasks if task.run is not None}
    return {order: move for order, move in moves.items() if move or order in running}


def _together(domains: Sequence[int], nodes: list[int], count: int) -> list[int]:
    """Return ``count`` of the nodes, all in the smallest domain that has enough of them, or an
    empty list if there is no such domain."""
    groups = [[node for node in nodes if domain >> node & 1] for domain in domains] if domains else [nodes]
    return min([group for group in groups if len(group) >= count], key=len, default=[])[:count]


def _has(view: ClusterView, task: ResizedTask, wanted: Configuration | None) -> bool:
    return wanted is not None and present_option(task, [wanted], view) == 0


def _packed(
    tasks: Sequence[ResizedTask],
    wanted: Mapping[int, Configuration | None],
    kept: set[int],
    nodes: NodesOfType,
) -> dict[int, Placement] | None:
    """Place the tasks that do not keep their GPUs, largest first, on the fullest nodes on which
    they fit. Return None if a task does not fit."""
    size, free = nodes.size, dict(nodes.free)
    for task in tasks:
        if task.order in kept:
            for node, count in held_gpus(task.run):
                free[node] -= count
    placements: dict[int, Placement] = {}
    sizes = {order: one.gpus for order, one in wanted.items() if one is not None}
    for task in sorted(tasks, key=lambda task: (-sizes[task.order], task.order)):
        if task.order in kept:
            continue
        count, shares = sizes[task.order], []
        if count > size:
            empty = [node for node, count in free.items() if count == size]
            shares = [Share(node, size) for node in _together(task.domains, empty, count // size)]
            if not shares and task.domains:
                continue  # skip this task, which does not block the others
        elif fitting := [node for node in free if free[node] >= count]:
            shares = [Share(min(fitting, key=lambda node: (free[node], node)), count)]
        if sum(share.instances for share in shares) < count:
            return None
        for share in shares:
            free[share.node] -= share.instances
        placements[task.order] = tuple(shares)
    return placements
