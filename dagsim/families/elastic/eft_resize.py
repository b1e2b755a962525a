"""dagsim's own policy for elastic tasks, which gives GPUs to the tasks that gain most from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import inf

import numpy as np

from dagsim.errors import ConfigError
from dagsim.families.elastic.configurations import goodputs_on, moves_to, possible_configurations, present_option
from dagsim.families.elastic.goodput import GoodputModel
from dagsim.families.elastic.resized_tasks import NodesByType, ResizedTask, elastic_capacity, elastic_nodes
from dagsim.families.elastic.resizing import Resizing
from dagsim.families.elastic.sia import Configuration
from dagsim.model import Decision
from dagsim.systems.cluster.api import ClusterView

_LEAST_GAP_S = 1e-3


class EftResize(Resizing):
    """dagsim's own policy for elastic tasks: EFT-wait with a choice of the number of GPUs.

    The policy predicts when each task would finish on each configuration of GPU type, nodes and
    GPUs, from the goodput and the estimate of the remaining work; a change of the configuration
    includes the delay of a restart. A configuration is either a power-of-two number of GPUs on one
    node, or a number of whole nodes. All tasks begin without GPUs. The next GPUs always go to the
    task for which the reciprocal of the remaining time grows most per GPU, until no GPUs are left
    or no task would finish sooner. Short tasks therefore come first, and get more GPUs only as long
    as these help them more than they would help another task. The policy makes decisions at events
    that are at least ``gap_s`` seconds apart. A task keeps its GPUs unless another configuration is
    better by at least the fraction ``hold``.

    The policy is for elastic tasks (the key ``elastic``); other tasks start first, oldest first. It
    uses estimates, and is preemptive.

    Raises:
        ConfigError: A parameter is negative.
    """

    polls = False

    def __init__(self, gap_s: float = 60.0, hold: float = 0.1) -> None:
        for name, number in (("gap_s", gap_s), ("hold", hold)):
            if not number >= 0:
                raise ConfigError(f"elastic-eft-wait: {name} must be 0 or more, got {number!r}")
        super().__init__("elastic-eft-wait", max(gap_s, _LEAST_GAP_S), inf)
        self.hold = hold

    def _allocate(self, view: ClusterView, tasks: list[ResizedTask]) -> Iterator[Decision]:
        nodes = elastic_nodes(view)
        options = possible_configurations(nodes)
        present = [present_option(task, options, view) for task in tasks]
        pairs = zip(tasks, present, strict=True)
        values = np.array([self._values(view, task, options, nodes, at) for task, at in pairs])
        chosen = _best_per_gpu(values, options, elastic_capacity(view, nodes))
        wanted = {task.order: None if at is None else options[at] for task, at in zip(tasks, chosen, strict=True)}
        yield from self._tasks.change(view, tasks, moves_to(view, tasks, wanted, nodes))

    def _values(
        self,
        view: ClusterView,
        task: ResizedTask,
        options: tuple[Configuration, ...],
        nodes: NodesByType,
        present: int | None,
    ) -> np.ndarray:
        """Return, for each configuration, the reciprocal of the time in which the task would end
        there, or 0 if it may not run there."""
        speeds, names = goodputs_on(task, options, nodes), [None if gpu is None else gpu.name for gpu in view.gpu_types]
        asked = task.piece.task.instances
        left_s = np.array([task.piece.seconds[names.index(option.type)] for option in options])
        if task.run is not None and task.run.progress is not None:
            left_s *= task.run.work_left_s(view.now) / max(task.run.estimate_s, 1e-9)
        asked_speeds = {type_: _asked_goodput(task, type_, asked, options) for type_ in {one.type for one in options}}
        speeds /= np.array([asked_speeds[option.type] for option in options])
        with np.errstate(divide="ignore", invalid="ignore"):
            taken_s = left_s / speeds
            restarted = np.full(len(options), task.elastic.restart_s)
            if present is not None:
                taken_s *= 1 + self.hold
                taken_s[present] /= 1 + self.hold
                assert task.run is not None
                restarted[present] = 0.0
            values: np.ndarray = 1 / np.maximum(taken_s + restarted, 1e-9)
        values[~np.isfinite(values) | (speeds <= 0)] = 0.0
        return values


def _asked_goodput(task: ResizedTask, type_: str, asked: int, options: Sequence[Configuration]) -> float:
    """Return the goodput on the requested number of GPUs, on as few nodes of a type as possible, or
    infinity if the task cannot run there."""
    model = task.training.model(type_)
    if model is None:
        return float(asked) if task.training.runs_on(type_) else inf
    size = max(option.gpus for option in options if option.type == type_ and option.nodes == 1)
    return _goodput_of(model, -(-asked // size), asked) or inf


@lru_cache(maxsize=4096)
def _goodput_of(model: GoodputModel, nodes: int, gpus: int) -> float:
    return float(model.best(nodes, gpus).goodput)


def _best_per_gpu(values: np.ndarray, options: Sequence[Configuration], gpus: Mapping[str, int]) -> list[int | None]:
    """Return the index of the configuration that each task gets. The next GPUs always go to the
    task whose value grows most per GPU, until no GPUs are left or no value grows. A task may move
    to a better type if this has free GPUs. ``values`` has the shape (tasks, options).
    """
    tasks = len(values)
    chosen: list[int | None] = [None] * tasks
    counts = np.array([option.gpus for option in options], float)
    types = list(gpus)
    of_type = np.array([types.index(option.type) for option in options])
    free = np.array([gpus[type_] for type_ in types], float)
    value, count, type_of = np.zeros(tasks), np.zeros(tasks), np.full(tasks, -1)
    while tasks and options:
        more = counts[None] - count[:, None]
        here = type_of[:, None] == of_type
        fits = np.where(here, more, counts[None]) <= free[of_type][None]
        gains = np.where(fits, (values - value[:, None]) / np.maximum(more, 1.0), 0.0)
        best = int(gains.argmax())
        if gains.flat[best] <= 0:
            break
        row, option = divmod(best, len(options))
        if type_of[row] >= 0:
            free[type_of[row]] += count[row]
        free[of_type[option]] -= counts[option]
        chosen[row], type_of[row] = option, of_type[option]
        value[row], count[row] = values[row, option], counts[option]
    return chosen
