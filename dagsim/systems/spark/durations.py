"""Sources of the durations of tasks."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from dagsim.model.streams import stream
from dagsim.systems.spark.job import FRESH, NEW, SAME, Waves, bracket
from dagsim.systems.spark.state import Executor, SparkJobState, StageState

__all__ = ["DurationSource", "PairedStreams", "SharedStream"]


class DurationSource(Protocol):
    """Draws the durations of tasks from the profiles of their stages."""

    def admit(self, job: SparkJobState) -> None:
        """Take note of a new job; called in order of arrival."""
        ...

    def draw(self, stage: StageState, executor: Executor) -> float:
        """Duration (ms) of the task that ``executor`` launches now; ``stage.remaining`` still
        counts it.
        """
        ...


class PairedStreams:
    """A random stream for each job, so that all policies on one seed get the same draws.

    The n-th task of a stage to be launched gets the same draw, no matter what was launched before.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._brackets = [bracket(executors) for executors in range(101)]

    def admit(self, job: SparkJobState) -> None:
        rng = stream(self.seed, "durations", job.number)
        for stage in job.stages:
            if stage.waves is not None:
                stage.coins = rng.random(2 * stage.tasks).tolist()

    def draw(self, stage: StageState, executor: Executor) -> float:
        coins, waves = stage.coins, stage.waves
        assert waves is not None
        executors = executor.job.local  # type: ignore[union-attr]
        below, above = self._brackets[executors] if executors <= 100 else self._brackets[100]
        if below != above:
            share = (executors - below) / (above - below)
            if coins[2 * stage.remaining - 1] < share:
                below = above
        samples = waves.at[below][_wave(stage, executor)]
        return samples[int(coins[2 * stage.remaining - 2] * len(samples))]


class SharedStream:
    """All durations from one generator in launch order, equal to those of spark-sched-sim, bit for
    bit.

    Its choice between two profiled numbers of executors is the same, too: the closer the real
    number is to the upper one, the likelier is the lower one. The raw words of the generator are
    fetched in bulk and converted as in NumPy (PCG64; Lemire's method on half words for bounded
    integers). This costs 20 % of a call of ``Generator.integers``.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        bits = rng.bit_generator
        state = bits.state
        if state["bit_generator"] != "PCG64":
            raise ValueError(f"SharedStream reads only PCG64, got {state['bit_generator']}")
        self._fetch = bits.random_raw
        self._words: list[int] = []
        self._half: int | None = state["uinteger"] if state["has_uint32"] else None
        self._brackets = [bracket(executors) for executors in range(101)]

    def admit(self, job: SparkJobState) -> None:
        pass

    def draw(self, stage: StageState, executor: Executor) -> float:
        executors = executor.job.local  # type: ignore[union-attr]
        below, above = self._brackets[executors] if executors <= 100 else self._brackets[100]
        if below != above:
            point = 1 + int((self._word() >> 11) * 2.0**-53 * (above - below))
            if point > executors - below:
                below = above
        waves: Waves = stage.waves  # type: ignore[assignment]
        samples = waves.at[below][_wave(stage, executor)]
        return samples[self._below(len(samples))]

    def _below(self, count: int) -> int:
        """Draw a whole number in 0..count-1 (Lemire 2019); a single choice costs no random bits."""
        if count == 1:
            return 0
        product = self._half_word() * count
        low = product & 0xFFFFFFFF
        if low < count:
            threshold = (0x100000000 - count) % count
            while low < threshold:
                product = self._half_word() * count
                low = product & 0xFFFFFFFF
        return product >> 32

    def _half_word(self) -> int:
        """Draw 32 bits: the lower half of a word, then its upper half."""
        half = self._half
        if half is None:
            word = self._word()
            self._half = word >> 32
            return word & 0xFFFFFFFF
        self._half = None
        return half

    def _word(self) -> int:
        if not self._words:
            self._words = self._fetch(4096)[::-1].tolist()
        return self._words.pop()


def _wave(stage: StageState, executor: Executor) -> int:
    last = executor.last
    return FRESH if last is None else SAME if last is stage else NEW
