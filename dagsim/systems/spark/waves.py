"""Durations of Spark tasks: they depend on what its executor did before and on how many executors its job has.

The first task on a *fresh* executor loads code and data; an executor new to the stage (the *first* wave) fetches its
shuffle input; later tasks of the same stage (the *rest*) run fastest. More executors mean smaller shares of memory
bandwidth and network, so profiles are taken at several numbers of executors (Mao et al. 2019, section 5 and appendix
D).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from dagsim.errors import ModelError
from dagsim.model.arithmetic import ordered_sum

__all__ = ["FRESH", "LEVELS", "NEW", "SAME", "Waves", "bracket"]

LEVELS = (5, 10, 20, 40, 50, 60, 80, 100)
"""Numbers of executors that a profile is read at; between two of them chance decides."""

FRESH, NEW, SAME = 0, 1, 2
"""What an executor was before: idle or moving, at another stage of the job, at the same stage."""

Samples: TypeAlias = Mapping[int, Sequence[int]]
"""Observed durations in ms, by number of executors."""


def bracket(executors: int) -> tuple[int, int]:
    """The levels below and above a number of executors; twice the same where it is one, or lies outside."""
    if executors <= LEVELS[0]:
        return LEVELS[0], LEVELS[0]
    if executors >= LEVELS[-1]:
        return LEVELS[-1], LEVELS[-1]
    above = bisect_left(LEVELS, executors)
    return (LEVELS[above], LEVELS[above]) if LEVELS[above] == executors else (LEVELS[above - 1], LEVELS[above])


@dataclass(frozen=True, slots=True)
class Waves:
    """A stage's profile. ``at[level]`` holds three lists of durations in ms: fresh, first wave, rest.

    Raises:
        ModelError: No tasks, or a level at which nothing was observed.
    """

    tasks: int
    rough_ms: float
    """The mean of all that was observed; what policies see until a task of the stage has been seen."""
    at: Mapping[int, tuple[list[float], list[float], list[float]]] = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.tasks < 1:
            raise ModelError(f"a stage needs at least one task, got {self.tasks!r}")
        if missing := [level for level in LEVELS if not all(self.at.get(level, ((),)))]:
            raise ModelError(f"a stage has no durations at {missing[0]} executors")

    @classmethod
    def of(cls, first: Samples, rest: Samples, fresh: Samples, *, warmup_ms: float = 1000.0) -> Waves:
        """A profile from the samples of the three waves, by the rules of decima-sim and spark-sched-sim.

        What is fresh is taken out of the first wave; an empty first wave inherits from the next fewer executors; a
        fresh executor without samples needs ``warmup_ms`` more than the first wave; levels beyond the samples use the
        most executors there are.
        """
        clean = _without(first, fresh)
        every = [ms for wave in (fresh, clean, rest) for samples in wave.values() for ms in samples]
        if not every:
            raise ModelError("a stage needs at least one observed duration")
        at: dict[int, tuple[list[float], list[float], list[float]]] = {}
        for level in LEVELS:
            key = level if level in clean else max(clean)
            new = clean[key] or fresh.get(key) or ()
            cold: Sequence[float] = fresh.get(key) or [ms + warmup_ms for ms in clean[key]]
            at[level] = (list(cold), list(new), list(rest.get(key) or new))
        start = next(iter(first))
        return cls(len(first[start]) + len(rest.get(start, ())), ordered_sum(every) / len(every), at)


def _without(first: Samples, fresh: Samples) -> dict[int, list[int]]:
    """The first wave less the samples that are fresh, each as often as it is there; gaps inherit from fewer
    executors."""
    clean: dict[int, list[int]] = {}
    for key, samples in first.items():
        left = Counter(fresh.get(key, ()))
        clean[key] = []
        for ms in samples:
            if left[ms]:
                left[ms] -= 1
            else:
                clean[key].append(ms)
    last: list[int] = []
    for key in sorted(clean):
        last = clean[key] = clean[key] or last
    return clean
