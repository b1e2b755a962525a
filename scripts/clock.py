"""The clock of the benchmarks: processor time of this process, measured after garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from statistics import median
from time import process_time
from typing import TypeVar

T = TypeVar("T")


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """The value of one call, and its processor seconds, excluding the collection of earlier garbage."""
    gc.collect()
    gc.freeze()
    began = process_time()
    value = work()
    spent_s = process_time() - began
    gc.unfreeze()
    return value, spent_s


def cpu_s(work: Callable[[], object]) -> float:
    """Processor seconds of one call."""
    return timed(work)[1]


def median_s(work: Callable[[], object], repeats: int) -> float:
    """Median processor seconds of some calls."""
    return median(cpu_s(work) for _ in range(repeats))


def in_turn(ways: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median processor seconds of each function. They run in turn, so that a drift of the machine
    affects all equally.
    """
    rounds = [{name: cpu_s(way) for name, way in ways.items()} for _ in range(repeats)]
    return {name: median(spent_s[name] for spent_s in rounds) for name in ways}
