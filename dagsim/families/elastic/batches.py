"""Training jobs with growing batches, so that their rates change from epoch to epoch.

The rules come from the 120 jobs that Shockwave's authors ran on 32 GPUs (Zheng et al., NSDI 2023).
The workloads are in their repository (MIT licence). They fix the epochs at which a batch changes,
instead of measuring gradients.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, isfinite
from typing import Any

from dagsim.errors import ModelError
from dagsim.model import Pace
from dagsim.model.arithmetic import ordered_sum

SAMPLES = {"ResNet-18": 50_000, "ResNet-50": 100_000, "Transformer": 10_000, "LM": 59_675, "Recommendation": 117_907}
"""Number of samples per epoch, by model."""
_LARGEST = {"ResNet-18": 256, "ResNet-50": 128, "LM": 80, "Recommendation": 8192}
"""Largest batch of each model whose batch grows."""
_DOUBLES: Mapping[str, Mapping[tuple[int, int], Sequence[int]]] = {
    "ResNet-18": {
        (16, 1): (31, 41, 51, 71),
        (32, 1): (21, 31, 51),
        (64, 1): (11, 31),
        (128, 1): (11,),
        (16, 2): (21, 31, 91, 111),
        (32, 2): (11, 21, 41),
        (64, 2): (21, 41),
        (128, 2): (41,),
        (16, 4): (11, 21, 81, 91),
        (32, 4): (21, 31, 61),
        (64, 4): (11, 61),
        (128, 4): (11,),
    },
    "ResNet-50": {(64, 1): (101,), (32, 2): (101, 111), (64, 2): (81,), (32, 4): (131, 221), (64, 4): (191,)},
    "LM": {
        (5, 1): (31, 41, 61, 71),
        (10, 1): (11, 21, 41),
        (20, 1): (11, 41),
        (40, 1): (11,),
        (5, 2): (31, 51, 61, 71),
        (10, 2): (11, 31, 41),
        (20, 2): (31, 41),
        (40, 2): (11,),
        (5, 4): (11, 31, 71, 91),
        (10, 4): (11, 31, 61),
        (20, 4): (11, 61),
        (40, 4): (61,),
    },
    "Recommendation": {(512, 1): (21, 41, 71, 91), (1024, 1): (21, 51, 91), (2048, 1): (21, 41), (4096, 1): (41,)},
}
"""With gradient noise: the epochs in which the batch doubles, by model, first batch and GPUs."""
_CRITICAL: Mapping[str, Mapping[int, int]] = {
    "ResNet-18": {16: 10, 32: 10, 64: 10, 128: 10, 256: 20},
    "ResNet-50": {16: 10, 32: 10, 64: 10, 128: 10},
    "LM": {5: 10, 10: 10, 20: 10, 40: 10, 80: 10},
    "Recommendation": {512: 30, 1024: 30, 2048: 40, 4096: 10, 8192: 10},
}
"""With Accordion: number of epochs at the beginning that keep the first batch, by model and
batch."""
_CRITICAL_PART = 0.3
"""With Accordion: the part of a job that keeps the first batch, whatever the model."""
_LATER_CRITICAL: Mapping[str, Sequence[tuple[int, int]]] = {
    "ResNet-18": ((150, 160), (250, 260)),
    "ResNet-50": tuple((start, start + 10) for start in range(30, 600, 30)),
    "LM": (),
    "Recommendation": ((60, 70), (80, 90)),
}
"""With Accordion: later epochs that return to the first batch."""
_WHOLE = 1e-9
"""Fraction of an epoch that does not count."""


def batch_schedule(model: str, batch: int, gpus: int, mode: str, epochs: int) -> dict[int, int]:
    """Return the batch sizes by the epochs from which they apply: {0: first batch, ...}.

    ``mode`` is ``static``, ``gns`` (the batch doubles as the gradient noise grows) or ``accordion``
    (the largest batch outside the critical phases).

    Raises:
        ModelError: There is no such mode.
    """
    largest = _LARGEST.get(model, batch)
    if mode == "gns":
        starts = [0, *_DOUBLES.get(model, {}).get((batch, gpus), ())]
        return {start: min(batch << place, largest) for place, start in enumerate(starts) if start < epochs}
    if mode == "accordion":
        if batch not in _CRITICAL.get(model, {}):
            return {0: batch}
        phases = [(0, max(_CRITICAL[model][batch], int(epochs * _CRITICAL_PART) + 1)), *_LATER_CRITICAL[model]]
        changes = {epoch for phase in phases for epoch in phase}
        schedule: dict[int, int] = {}
        for start in sorted(changes):
            present = batch if any(first <= start < end for first, end in phases) else largest
            if start < epochs and present != schedule.get(max(schedule, default=0)):
                schedule[start] = present
        return schedule
    if mode != "static":
        raise ModelError(f"the mode of a job must be static, gns or accordion, got {mode!r}")
    return {0: batch}


@dataclass(frozen=True)
class EpochTraining:
    """The progress of a task in epochs, whose rate depends on the batch (``TrainingModel``).

    ``schedule`` gives the batch by the epochs from which it applies (the first is 0);
    ``epoch_s[gpu][batch]`` are the seconds per epoch of the whole gang on a GPU type. The task is
    done after ``epochs``, which may be fractional. When the batch changes, a running job pauses for
    ``change_s`` seconds, or until it starts again, because it writes a checkpoint and restarts with
    the new batch.

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
        """The epochs in which the batch changes, from 0 to the end."""
        return [*[float(start) for start in sorted(self.schedule) if start < self.epochs], self.epochs]

    def alone_s(self, gpu: str) -> float:
        """Return the seconds that the whole training run takes on a GPU type, without interruption.

        Raises:
            ModelError: A batch was not measured on this type.
        """
        phases = pairwise(self.changes)
        return ordered_sum((end - start) * self.seconds(gpu, self.schedule[int(start)]) for start, end in phases)

    def seconds(self, gpu: str, batch: int) -> float:
        """Return the seconds per epoch.

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
        """All epochs."""
        return self.task.epochs

    @property
    def done(self) -> bool:
        """True if no epochs are left."""
        return self.progress >= self.task.epochs

    def place(self, placement: Sequence[int], gpu: str = "") -> None:
        """Take GPUs of a type; the rates already account for the size of the gang."""
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
        """Add epochs before the batch changes."""
        self.progress += progress
        self._epoch += progress

    def end_epoch(self) -> None:
        """Reach the epoch in which the batch changes, or the end, or the end of a pause."""
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


def epoch_table(rates: Mapping[str, Any], model: str, gpus: int) -> dict[int, float]:
    """Return the seconds per epoch by batch, from Gavel's table for one GPU type; batches without a
    rate are missing.

    Raises:
        ModelError: The number of samples of the model is not known.
    """
    if model not in SAMPLES:
        raise ModelError(f"the number of samples per epoch is unknown for {model!r}; known: {', '.join(SAMPLES)}")
    table = {}
    for key, row in rates.items():
        match = re.fullmatch(rf"\('{re.escape(model)} \(batch size (\d{{1,9}})\)', {gpus}\)", key)
        if match and float(row["null"]) > 0:
            table[int(match[1])] = ceil(SAMPLES[model] / int(match[1])) / float(row["null"])
    return table
