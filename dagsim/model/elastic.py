"""Elastic tasks, which have a range of GPUs and make progress at a rate that depends on the
placement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Protocol

from dagsim.errors import ModelError
from dagsim.model.arithmetic import check_whole


class Pace(NamedTuple):
    """Progress per second, valid until ``progress`` reaches ``until``.

    ``after_s`` is the number of seconds until then, if it differs from the remaining progress
    divided by the rate, as in simulators that count whole seconds.
    """

    rate: float
    until: float
    after_s: float | None = None


class TrainingState(Protocol):
    """A running elastic task. Progress is in the task's own unit: samples, iterations or epochs."""

    progress: float

    @property
    def total(self) -> float:
        """The progress at which it is done."""
        ...

    @property
    def done(self) -> bool:
        """True if nothing is left to do."""
        ...

    def place(self, placement: Sequence[int], gpu: str = "") -> None:
        """Take GPUs of a type, given as the number of instances on each node; empty to stop.

        Raises:
            ModelError: The placement is outside the range that the model covers.
        """
        ...

    def pace(self, interference: float = 0.0) -> Pace:
        """Return the current rate; ``interference`` is the fraction of it that is lost to other
        tasks.

        Raises:
            ModelError: The placement is outside the range that the model covers.
        """
        ...

    def advance(self, progress: float) -> None:
        """Add progress before ``Pace.until``."""
        ...

    def end_epoch(self) -> None:
        """Move on to ``Pace.until``, where the rate may change."""
        ...

    def copy(self) -> TrainingState:
        """Return an equal state that continues independently."""
        ...


class TrainingModel(Protocol):
    """The interface for the progress of elastic tasks."""

    def start(self) -> TrainingState:
        """Return the state before the first start."""
        ...


@dataclass(frozen=True, slots=True)
class Elastic:
    """A task may run as ``least`` to ``most`` instances, a number which the policy chooses and
    changes.

    ``training`` gives the progress. Each start, including the first one and those after a resize,
    begins with ``restart_s`` seconds during which the task holds its GPUs.

    Raises:
        ModelError: The range is empty or begins below 1, or the time is negative.
    """

    least: int
    most: int
    training: TrainingModel
    restart_s: float = 0.0

    def __post_init__(self) -> None:
        check_whole("least", self.least)
        check_whole("most", self.most)
        if not 1 <= self.least <= self.most:
            raise ModelError(f"an elastic task needs 1 <= least <= most instances, got {self.least} to {self.most}")
        if not 0 <= self.restart_s < inf:
            raise ModelError(f"restart_s must be 0 or more, got {self.restart_s!r}")
