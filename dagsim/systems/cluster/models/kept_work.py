"""The work that a stopped run keeps, and the costs of stopping and resuming it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import ceil, inf
from typing import Literal

from dagsim.errors import ModelError

_ROUNDING = 1e-9
"""Fraction of an interval by which work may exceed a whole number of intervals, because division
rounds."""


class KeptWork(Enum):
    """The part of its work that a run keeps when it is stopped."""

    NOTHING = 0
    CHECKPOINT = 1
    """The work in its last checkpoint."""
    ALL = 2


@dataclass(frozen=True, slots=True)
class Preemption:
    """The costs of preemption. With ``on_resume="resume"``, a preempted run writes a checkpoint and
    keeps its work. With ``"restart"``, it loses its work.

    By default, runs that a node failure has stopped start over, because nothing could be saved in
    time. Measured restart costs are 25 to 250 s, depending on the model (Sia, SOSP 2023, artifact).

    With ``checkpoint_interval_s``, a run that is stopped by a failure loses only the work since its
    last checkpoint. No checkpoint is written at the end of a run. Estimates do not include the time
    for writing checkpoints. If the network has storage for checkpoints, transferring the
    checkpoints over the network takes the place of ``checkpoint_write_s`` and
    ``checkpoint_s_per_gb``.

    Raises:
        ModelError: A mode is unknown, a cost is negative, or an interval is not positive.
    """

    on_resume: Literal["resume", "restart"] = "resume"
    """Whether a preempted run keeps its work (``resume``) or starts over (``restart``)."""
    on_failure: Literal["resume", "restart"] = "restart"
    """The same for runs that a node failure has stopped."""
    restart_s: float = 0.0
    """Seconds of set-up that a run needs first when it is resumed or restarted."""
    checkpoint_s_per_gb: float = 0.0
    """Seconds that a resumed run needs in addition, per GB of its task's memory, to save and load
    the checkpoint.
    """
    checkpoint_interval_s: float | None = None
    """Seconds of work after which each run writes a checkpoint. None means that runs write no
    periodic checkpoints.
    """
    checkpoint_write_s: float = 0.0
    """Seconds that it takes to write one of these checkpoints."""

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.checkpoint_interval_s is not None and not 0 < self.checkpoint_interval_s < inf:
            raise ModelError(f"preemption: checkpoint_interval_s must be positive, got {self.checkpoint_interval_s!r}")
        for name in ("on_resume", "on_failure"):
            if getattr(self, name) not in ("resume", "restart"):
                raise ModelError(f"preemption: {name} must be 'resume' or 'restart', got {getattr(self, name)!r}")
        for name in ("restart_s", "checkpoint_s_per_gb", "checkpoint_write_s"):
            if not getattr(self, name) >= 0:
                raise ModelError(f"preemption: {name} must be 0 or more, got {getattr(self, name)!r}")

    @property
    def kept_on_preemption(self) -> KeptWork:
        """The work that a preempted run keeps."""
        return KeptWork.ALL if self.on_resume == "resume" else KeptWork.NOTHING

    @property
    def kept_on_failure(self) -> KeptWork:
        """The work that a run keeps if it is killed by a node failure without notice."""
        if self.on_failure == "resume":
            return KeptWork.ALL
        return KeptWork.NOTHING if self.checkpoint_interval_s is None else KeptWork.CHECKPOINT

    def cost_s(self, memory_gb: float, kept: bool) -> float:
        """Return the set-up time (s) of an instance that restarts after a failure. ``kept`` states
        whether it has kept its work.
        """
        return self.restart_s + (self.checkpoint_s_per_gb * memory_gb if kept else 0.0)

    def lost_s(self, memory_gb: float, done_s: float) -> float:
        """Return the seconds that an instance loses if it is stopped. It loses the time for set-up
        when it returns and, if its work is not kept, the work done so far (``done_s``).
        """
        kept = self.on_resume == "resume"
        return self.cost_s(memory_gb, kept) + (0.0 if kept else done_s)

    def with_writes_s(self, work_s: float) -> float:
        """Return the total time in seconds for ``work_s`` seconds of computing and the checkpoint writes in between."""
        if self.checkpoint_interval_s is None or not work_s:
            return work_s
        return work_s + self.checkpoint_write_s * max(0, ceil(work_s / self.checkpoint_interval_s - _ROUNDING) - 1)

    def next_checkpoint_s(self, saved_s: float, work_s: float) -> float:
        """Return the amount of work after which a run writes its next checkpoint, given that it
        wrote the last one at ``saved_s`` and has ``work_s`` seconds of work in total. Return
        ``inf`` if the run ends before its next checkpoint.
        """
        if self.checkpoint_interval_s is None:
            return inf
        after_s = saved_s + self.checkpoint_interval_s
        return after_s if work_s > after_s + _ROUNDING * self.checkpoint_interval_s else inf

    def worked_s(self, passed_s: float, *, saved: bool = False) -> float:
        """Return how many of ``passed_s`` seconds were spent on computing, not on writing
        checkpoints. With ``saved``, count only work that is stored in a checkpoint.
        """
        if self.checkpoint_interval_s is None:
            return passed_s
        written, rest_s = divmod(passed_s, self.checkpoint_interval_s + self.checkpoint_write_s)
        return written * self.checkpoint_interval_s + (0.0 if saved else min(rest_s, self.checkpoint_interval_s))
