"""Elastic tasks. The number of GPUs on which such a task runs may change, and its rate of progress
depends on its placement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Protocol

from dagsim.errors import ModelError
from dagsim.model.arithmetic import store_whole


class Pace(NamedTuple):
    """The progress per second. It is valid until ``progress`` reaches ``until``.

    ``after_s`` is the number of seconds until then. It is only set if it differs from the remaining
    progress divided by the rate, as it does in simulators that count whole seconds.
    """

    rate: float
    until: float
    after_s: float | None = None


class TrainingState(Protocol):
    """The state of an elastic task. Progress is in the task's own unit: samples, iterations or
    epochs.
    """

    progress: float

    @property
    def total(self) -> float:
        """The progress at which the task is done."""

    @property
    def done(self) -> bool:
        """True if the task has nothing left to do."""

    def place(self, placement: Sequence[int], gpu: str = "") -> None:
        """Place the task on GPUs of a type. ``placement`` contains the number of instances on each
        node. It is empty if the task stops.

        Raises:
            ModelError: The placement is outside the range that the model covers.
        """

    def pace(self, interference: float = 0.0) -> Pace:
        """Return the current rate. ``interference`` is the fraction of the rate that is lost
        because of other tasks.

        Raises:
            ModelError: The placement is outside the range that the model covers.
        """

    def advance(self, progress: float) -> None:
        """Add progress, but not beyond ``Pace.until``."""

    def end_epoch(self) -> None:
        """Set the progress to ``Pace.until``. After this point, the rate may differ."""

    def copy(self) -> TrainingState:
        """Return a copy of the state that continues independently."""


class TrainingModel(Protocol):
    """The interface for the progress of elastic tasks."""

    def start(self) -> TrainingState:
        """Return the initial state of a task that has never run."""


@dataclass(frozen=True, slots=True)
class Elastic:
    """The sizes that an elastic task may have: it may run as ``least`` to ``most`` instances. The
    policy chooses and changes the number of instances.

    ``training`` determines how fast the task makes progress. Every start begins with ``restart_s``
    seconds in which the task uses its GPUs but makes no progress. This applies to the first start
    and to starts after a resize.

    Raises:
        ModelError: The range is empty or begins below 1, or the restart time is negative.
    """

    least: int
    most: int
    training: TrainingModel
    restart_s: float = 0.0

    def __post_init__(self) -> None:
        store_whole(self, "least")
        store_whole(self, "most")
        if not 1 <= self.least <= self.most:
            raise ModelError(f"an elastic task needs 1 <= least <= most instances, got {self.least} to {self.most}")
        if not 0 <= self.restart_s < inf:
            raise ModelError(f"restart_s must be 0 or more, got {self.restart_s!r}")
