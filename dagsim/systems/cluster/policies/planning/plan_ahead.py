"""Plan-ahead: which tasks start now and which later, on which type, by a small integer program."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import nsmallest

import numpy as np

from dagsim.errors import ConfigError
from dagsim.model import Decision
from dagsim.systems.cluster.api import ClusterView, TaskState
from dagsim.systems.cluster.policies.orders.static import width
from dagsim.systems.cluster.policies.placement.rule import PlacementRule, placing
from dagsim.systems.cluster.policies.planning.batch_mode import free_times, start_those

__all__ = ["PlanAhead", "plan_slots"]


class PlanAhead:
    """Plans the ``window`` shortest ready tasks over the next ``slots`` times. Those are now and the next expected ends
    of runs: each task starts at most once, on one type, the GPUs held at each of the times are no more than will be
    free, and the sum of completion times is least (those left out count as ending after everything else). What the plan
    starts now is started; the rest is planned anew when something changes.

    This is TetriSched's plan-ahead with exact start times of the value function "the sooner the better" in place of
    its space-time language (Tumanov et al., EuroSys 2016). Clairvoyant, not preemptive. Costly by definition: an
    integer program of window x types x slots choices, some 10 ms.

    Raises:
        ConfigError: ``window`` or ``slots`` is less than 1.
    """

    def __init__(self, window: int = 10, slots: int = 5, placement: str | PlacementRule = "best-fit") -> None:
        if window < 1 or slots < 1:
            raise ConfigError(f"plan-ahead: window and slots must be 1 or more, got {window!r} and {slots!r}")
        self.window = window
        self.slots = slots
        self._place = placing(placement).place

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        if not any(view.fits(task) for task in view.ready):
            return
        tasks = nsmallest(self.window, view.ready, key=lambda task: (task.best_s, task.order, task.piece))
        yield from start_those(view, self._now(view, tasks), self._place)

    def _now(self, view: ClusterView, tasks: list[TaskState]) -> Iterator[tuple[TaskState, int]]:
        times = free_times(view)
        ends = sorted({time - view.now for each in times for time in each})
        starts = np.array(ends[: self.slots] if ends and ends[0] == 0 else [0.0, *ends[: self.slots - 1]])
        free = np.array([[sum(time - view.now <= at for time in each) for at in starts] for each in times], float)
        seconds = np.array([task.seconds for task in tasks])
        gpus = np.array([width(task) if task.demand.demand.gpus else 0.0 for task in tasks])
        for task, type_, slot in plan_slots(seconds, gpus, starts, free):
            if slot == 0:
                yield tasks[task], type_


def plan_slots(
    seconds: np.ndarray, gpus: np.ndarray, starts: np.ndarray, free: np.ndarray
) -> list[tuple[int, int, int]]:
    """Triples of task, type and slot with the least sum of completion times. The shortest tasks come first.

    ``seconds`` (tasks, types) float64, ``inf`` where a task may not run; ``gpus`` (tasks,) asked for at once;
    ``starts`` (slots,) rising times; ``free`` (types, slots) GPUs that are free then if nothing is started.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    choices = [
        (task, type_, slot)
        for task in range(len(seconds))
        for type_ in range(seconds.shape[1])
        for slot in range(len(starts))
        if np.isfinite(seconds[task, type_]) and gpus[task] <= free[type_, slot]
    ]
    if not choices:
        return []
    ends = np.array([starts[slot] + seconds[task, type_] for task, type_, slot in choices])
    late = 2 * ends.max() + 1.0
    rows, columns, values = [], [], []
    for column, (task, type_, slot) in enumerate(choices):
        rows.append(task)
        columns.append(column)
        values.append(1.0)
        for at in range(slot, len(starts)):
            if gpus[task] and starts[at] < ends[column]:
                rows.append(len(seconds) + type_ * len(starts) + at)
                columns.append(column)
                values.append(gpus[task])
    most = np.concatenate([np.ones(len(seconds)), free.ravel()])
    matrix = csr_array((values, (rows, columns)), shape=(len(most), len(choices)))
    with _silence():
        found = milp(
            ends - late,
            constraints=LinearConstraint(matrix, ub=most),
            integrality=np.ones(len(choices)),
            bounds=Bounds(0, 1),
            options={"mip_rel_gap": 1e-3, "node_limit": 200},
        )
    if found.x is None:
        return []
    chosen = [column for column, value in enumerate(found.x) if value > 0.5]
    return [choices[column] for column in sorted(chosen, key=lambda column: (ends[column], column))]


@contextmanager
def _silence() -> Iterator[None]:
    """HiGHS sometimes writes to standard output although it was told not to; it goes nowhere."""
    sys.stdout.flush()
    kept = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
