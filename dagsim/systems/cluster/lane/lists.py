"""List scheduling: the first ready task by its key starts, as long as one fits.

A policy is a column of keys: one per task, or one per task and type for orders that depend on where a task would run.
Smaller comes first, equal keys go first come, first served, then by type. Tasks of one demand class fit or do not fit
together, so that each class has a heap and only the first of each is looked at.
"""

from __future__ import annotations

import numpy as np

from dagsim.systems.cluster.lane.jit import inner, outer
from dagsim.systems.cluster.lane.kernel import DECIDE, MOVE, move_on, start, steps
from dagsim.systems.cluster.lane.placement import choose
from dagsim.systems.cluster.lane.queues import first_task, take_in
from dagsim.systems.cluster.lane.state import ENDED, PHASE, STARTS, STRICT, State

__all__ = ["advance_list"]


@outer
def advance_list(s: State, log: np.recarray) -> bool:
    """Go on until everything is done (False) or more space is needed (True). The space is that of the log or the
    state."""
    left = steps(s, log)
    while left > 0:
        if s.n[PHASE] == DECIDE:
            if not _decide(s, log):
                s.n[PHASE] = MOVE
        elif not move_on(s, log):
            return False
        left = left - 1 if left > 1 else steps(s, log)
    return True


@inner
def _decide(s: State, log: np.recarray) -> bool:
    """Start one task; False if none can."""
    s.n[ENDED] = 0
    s.n[STARTS] = 0
    take_in(s)
    task, only = first_task(s, s.n[STRICT] == 0)
    if task < 0:
        return False
    type_, node = choose(s, task, only)
    if node == -1:
        return False
    start(s, log, task, type_, node)
    return True
