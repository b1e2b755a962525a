"""Formulas of policies, as functions of plain numbers.

The policies call them as they are, and the loops of the compiled engine compile them (``jit.inner``), so each
is written once. The order of the operations is part of the result: both engines must compute the
same bits. Nothing here may be an array, except for ``slowed``.
"""

from __future__ import annotations

from typing import Any

EARLY = 1e-9
"""Relative margin by which a round is checked early, so that rounding never makes it late."""
CLOSE = 1e-12
"""Relative difference of the service of two jobs that rounding might undo until it has doubled."""


def instance_work(best_s: float, instances: int, gpus: float) -> float:
    """Return the work of some instances of a task on its fastest type; without GPUs it counts as
    one GPU."""
    return best_s * instances * (gpus or 1.0)


def served_after(served: float, rate: float, started_s: float, now: float) -> float:
    """Return the service of a job after a run since ``started_s``, which adds ``rate`` per
    second."""
    return served + rate * (now - started_s)


def slowed(ready_s: Any, now: float, per_second: Any) -> Any:
    """Slowdown so far, negative: the waiting time times ``per_second``, which is 1 / seconds of the
    task. Numbers, or columns of them.
    """
    return (ready_s - now) * per_second
