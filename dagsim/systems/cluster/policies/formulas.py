"""Formulas for policies, as functions of plain numbers.

Policies call these functions directly, and the compiled engine compiles them into its loops
(``jit.inner``), so each formula is written only once. The order of operations matters, because both
engines must compute bit-identical results. Only ``slowed`` accepts arrays.
"""

from __future__ import annotations

from typing import Any

EARLY = 1e-9
"""Relative margin by which a round is checked early, so that rounding never makes it late."""
CLOSE = 1e-12
"""Relative difference of the service of two jobs that rounding might undo until it has doubled."""
AHEAD = 24
"""Maximum number of tasks that ``BatchMode`` maps before one must start, which bounds the cost of a
decision."""
BLOCK = 512
"""Number of waiting tasks in a block of ``LongestWait``."""
ROUNDING = 1e-14
"""Upper bound on the rounding error of its products, relative to their factors."""


def instance_work(best_s: float, instances: int, gpus: float) -> float:
    """Return the work of some instances of a task on its fastest type. A task without GPUs counts
    as if it used one GPU.
    """
    return best_s * instances * (gpus or 1.0)


def served_after(served: float, rate: float, started_s: float, now: float) -> float:
    """Return the service that a job has received by ``now`` if a run has added ``rate`` per second
    since ``started_s``.
    """
    return served + rate * (now - started_s)


def slowed(ready_s: Any, now: float, per_second: Any) -> Any:
    """Return the negated slowdown so far: the waiting time times ``per_second``, which is 1 divided
    by the task's seconds. The arguments may be numbers or columns of numbers.
    """
    return (ready_s - now) * per_second
