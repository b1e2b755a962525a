"""Training jobs whose batches grow, so that their rates change from epoch to epoch."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, isfinite

from dagsim.errors import ModelError
from dagsim.model import Pace
from dagsim.model.arithmetic import ordered_sum

_WHOLE = 1e-9
"""Fraction of an epoch that does not count."""


@dataclass(frozen=True)
class EpochTraining:
    """The progress of a task in epochs, whose rate depends on the batch (``TrainingModel``).

    ``schedule`` maps the epochs in which the batch changes to the new batches (the first epoch is
    0). ``epoch_s[gpu][batch]`` contains the seconds per epoch of the whole gang on a GPU type. The
    task is done after ``epochs``, which may be fractional. When the batch changes, a running job
    writes a checkpoint and restarts with the new batch. Meanwhile, it pauses for ``change_s``
    seconds, or until it starts again.

    As in the authors' programs, a job that starts again counts its current epoch from the beginning
    of that epoch. The job keeps its work, but its batch changes later. At the change, the work done
    is rounded up to whole epochs.

    Raises:
        ModelError: ``epochs`` is not positive, the schedule does not begin with epoch 0, or the
            pause is negative.
    """

    epochs: float
    schedule: Mapping[int, int]
    epoch_s: Mapping[str, Mapping[int, float]]
    change_s: float = 0.0

    def __post_init__(self) -> None:
        if not (isfinite(self.epochs) and self.epochs > 0):
            raise ModelError(f"epochs must be positive, got {self.epochs!r}")
        if min(self.schedule, default=None) != 0:
            raise ModelError(f"a batch schedule must begin with epoch 0, got {dict(self.schedule)!r}")
        if not (isfinite(self.change_s) and self.change_s >= 0):
            raise ModelError(f"change_s must be 0 or more, got {self.change_s!r}")

    @property
    def changes(self) -> list[float]:
        """The epochs in which the batch changes, including epoch 0 and the end."""
        return [*[float(start) for start in sorted(self.schedule) if start < self.epochs], self.epochs]

    def alone_s(self, gpu: str) -> float:
        """Return how many seconds the whole training run takes on a GPU type, without interruption.

        Raises:
            ModelError: A batch was not measured on this type.
        """
        phases = pairwise(self.changes)
        return ordered_sum((end - start) * self.seconds(gpu, self.schedule[int(start)]) for start, end in phases)

    def seconds(self, gpu: str, batch: int) -> float:
        """Return how many seconds an epoch with this batch takes on a GPU type.

        Raises:
            ModelError: The batch was not measured on this type.
        """
        measured = self.epoch_s.get(gpu, {})
        if batch not in measured:
            raise ModelError(
                f"the duration of an epoch with batch {batch} on {gpu} was not measured; measured batches: "
                f"{sorted(measured)}"
            )
        return measured[batch]

    def start(self) -> EpochProgress:
        """Return the state before the first start."""
        return EpochProgress(self)


class EpochProgress:
    """The progress of a task with ``EpochTraining``. See ``TrainingState``."""

    def __init__(self, task: EpochTraining) -> None:
        self.task = task
        self.progress = 0.0
        self._epoch = 0.0
        """The current epoch of the job, as the job counts it."""
        self._changes = task.changes
        self._phase = 0
        self._pauses = False
        self._gpu: str | None = None

    @property
    def total(self) -> float:
        """The number of epochs after which the task is done."""
        return self.task.epochs

    @property
    def done(self) -> bool:
        """True if no epochs are left."""
        return self.progress >= self.task.epochs

    def place(self, placement: Sequence[int], gpu: str = "") -> None:
        """Move the task to GPUs of a type. The rates already account for the size of the gang."""
        self._gpu = gpu if placement else None
        self._pauses = False
        self._epoch = floor(self._epoch + _WHOLE)

    def pace(self, interference: float = 0.0) -> Pace:
        """Return the epochs per second with the current batch.

        Raises:
            ModelError: The task is not running or is done, or its batch was not measured on its
                GPUs.
        """
        if self._gpu is None or self.done:
            raise ModelError(f"the training job {'is done' if self.done else 'is not running'}, so it has no rate")
        batch = self.task.schedule[int(self._changes[self._phase])]
        rate = (1.0 - interference) / self.task.seconds(self._gpu, batch)
        if self._pauses:
            return Pace(0.0, self.progress, self.task.change_s)
        return Pace(rate, min(self.progress + self._to_change, self.task.epochs))

    @property
    def _to_change(self) -> float:
        """Epochs until the batch changes, or until the training run ends if that is earlier."""
        return self._changes[self._phase + 1] - self._epoch

    def advance(self, progress: float) -> None:
        """Add progress in epochs, but stop where the batch changes."""
        self.progress += progress
        self._epoch += progress

    def end_epoch(self) -> None:
        """Record that the task has reached the epoch in which its batch changes, the end of
        training, or the end of a pause."""
        if self._pauses:
            self._pauses = False
            return
        if self._phase + 2 == len(self._changes) or self.task.epochs - self.progress <= self._to_change:
            self.progress = self.task.epochs
            return
        self.progress = min(ceil(self.progress + self._to_change - _WHOLE), self.task.epochs)
        self._phase += 1
        self._epoch = self._changes[self._phase]
        self._pauses = self.task.change_s > 0 and not self.done

    def copy(self) -> EpochProgress:
        """Return an equal state that continues independently."""
        return copy.copy(self)
