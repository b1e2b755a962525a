"""Sia's policy, which solves an integer program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dagsim.errors import ConfigError
from dagsim.families.elastic.configurations import (
    UNKNOWN,
    goodputs_on,
    moves_to,
    possible_configurations,
    present_option,
)
from dagsim.families.elastic.resized_tasks import ResizedTask, elastic_capacity, elastic_nodes
from dagsim.families.elastic.resizing import Resizing
from dagsim.families.elastic.sia import choose_configurations
from dagsim.model import Decision
from dagsim.systems.cluster.api import ClusterView


class Sia(Resizing):
    """Every ``interval_s`` seconds, the policy solves Sia's integer program, which gives each task
    at most one configuration of GPU type, nodes and GPUs (``choose_configurations``; Jayaram
    Subramanya et al., SOSP 2023).

    In the objective, each task without GPUs costs ``waiting_cost``. ``power`` is the exponent of
    the goodputs in the objective, and is negative. Smaller values favour the tasks with the lowest
    goodput.

    The policy is for elastic tasks (the key ``elastic``); other tasks start first, oldest first. A
    configuration is either a power-of-two number of GPUs on one node, or a number of whole nodes. A
    task may have at most twice as many GPUs as it has run on. A restarting task keeps its
    configuration. The integer program is solved again when a task arrives, ends or may have more
    GPUs than before, and otherwise every ``renew_s`` seconds. The policy is preemptive. It is based
    on Sia, and ``scripts/validate_sia.py`` checks its program.

    Raises:
        ConfigError: A time or ``power`` has the wrong sign.
    """

    def __init__(
        self, interval_s: float = 60.0, renew_s: float = 600.0, power: float = -0.5, waiting_cost: float = 1.1
    ) -> None:
        super().__init__("sia", interval_s, renew_s)
        if not power < 0:
            raise ConfigError(f"sia: power must be negative, got {power!r}")
        if not waiting_cost >= 0:
            raise ConfigError(f"sia: waiting_cost must be 0 or more, got {waiting_cost!r}")
        self.power, self.waiting_cost = power, waiting_cost

    def _state(self, view: ClusterView, tasks: Sequence[ResizedTask]) -> object:
        return super()._state(view, tasks), [_restarts(task) for task in tasks]

    def _allocate(self, view: ClusterView, tasks: list[ResizedTask]) -> Iterator[Decision]:
        nodes = elastic_nodes(view)
        options = possible_configurations(nodes)
        goodputs = np.array([goodputs_on(task, options, nodes, sia=True) for task in tasks])
        present = [present_option(task, options, view) for task in tasks]
        choice = choose_configurations(
            goodputs,
            options,
            elastic_capacity(view, nodes),
            present=present,
            restart_factors=[task.restart_factor(view.now, task.elastic.restart_s) for task in tasks],
            locked=[row for row, task in enumerate(tasks) if _restarts(task) and present[row] is not None],
            power=self.power,
            waiting_cost=self.waiting_cost,
        )
        # If a task may not yet use the configuration that was chosen for it, it gets no GPUs.
        chosen = [None if at is None or goodputs[row, at] <= UNKNOWN else at for row, at in enumerate(choice.chosen)]
        wanted = {task.order: None if at is None else options[at] for task, at in zip(tasks, chosen, strict=True)}
        yield from self._tasks.change(view, tasks, moves_to(view, tasks, wanted, nodes))


def _restarts(task: ResizedTask) -> bool:
    """Return True if the task is restarting, so that it holds GPUs but is not training yet."""
    return task.run is not None and task.run.computing_s is None
