"""The batches of the 120 jobs that Shockwave's authors ran on 32 GPUs, and the speeds at which these jobs train.

The rules come from the workloads in their repository (Zheng et al., NSDI 2023; MIT licence), which fix the epochs at
which a batch changes, instead of measuring gradients.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from dagsim.errors import ModelError

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
