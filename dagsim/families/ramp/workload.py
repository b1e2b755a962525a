"""Training jobs, and the workload that draws their models, their arrivals, and their acceptable
completion times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite, sqrt

import numpy as np
from numpy.typing import NDArray

from dagsim.errors import ModelError, WorkloadError, require
from dagsim.families.ramp.graph import ComputationGraph
from dagsim.model.arithmetic import ordered_sum
from dagsim.model.streams import stream
from dagsim.registry import Entry, Registry


@dataclass(frozen=True, slots=True)
class RampJob:
    """A job with ``steps`` training steps of one graph. ``beta`` is the acceptable completion time,
    as a fraction of the time that the job takes on one GPU.

    Raises:
        ModelError: The arrival is negative, there are no steps, or ``beta`` is not positive.
    """

    id: str
    graph: ComputationGraph
    arrival_s: float = 0.0
    beta: float = 1.0
    steps: int = 50

    def __post_init__(self) -> None:
        if not (isfinite(self.arrival_s) and self.arrival_s >= 0):
            raise ModelError(f"job {self.id!r}: arrival_s must be 0 or more, got {self.arrival_s!r}")
        require(self.steps >= 1, f"job {self.id!r}: steps must be at least 1", self.steps, ModelError)
        require(isfinite(self.beta) and self.beta > 0, f"job {self.id!r}: beta must be above 0", self.beta, ModelError)

    @property
    def sequential_s(self) -> float:
        """The time that the job takes on one GPU of the profiled type, on which the operations run
        in sequence."""
        return self.steps * self.graph.step_s

    @property
    def acceptable_s(self) -> float:
        """The longest acceptable completion time in seconds."""
        return self.beta * self.sequential_s


Betas = Callable[[np.random.Generator, int], NDArray[np.float64]]
"""A function from a generator and a number of jobs to their betas."""

_SHAPE_DRAWS = 50_000
_SHAPE_BINS = 1000


class FixedBeta:
    """The same beta (acceptable time / time on one GPU) for all jobs.

    Raises:
        WorkloadError: The value is not positive.
    """

    def __init__(self, value: float = 1.0) -> None:
        require(value > 0, "beta must be above 0", value, WorkloadError)
        self.value = value

    def __call__(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Return the value ``count`` times."""
        return np.full(count, self.value)


class UniformBeta:
    """A uniform distribution over a grid from ``least`` to ``most`` in steps of 10 ** -``decimals``.

    Raises:
        WorkloadError: A limit is not positive, or ``least`` exceeds ``most``.
    """

    def __init__(self, least: float = 0.1, most: float = 1.0, decimals: int = 2) -> None:
        _check(least, most)
        self.least, self.most, self.decimals = least, most, decimals

    def __call__(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Draw ``count`` values from the grid."""
        scale = 10**self.decimals
        steps = rng.integers(round(self.least * scale), round(self.most * scale), count, endpoint=True)
        return np.asarray(steps / scale, np.float64)


class ListedBeta:
    """A distribution over listed values. The values and their weights are given as two tuples.

    Raises:
        WorkloadError: The tuples differ in length, or no weight is positive.
    """

    def __init__(self, values: tuple[float, ...], weights: tuple[float, ...]) -> None:
        if not values or len(values) != len(weights):
            raise WorkloadError(f"there must be as many values as weights, got {len(values)} and {len(weights)}")
        if not (min(values) > 0 and min(weights) >= 0 and ordered_sum(weights) > 0):
            raise WorkloadError("values must be positive, and weights must be 0 or more with at least one above 0")
        self.values, self.weights = values, weights

    def __call__(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Draw ``count`` values from the list."""
        weights = np.array(self.weights, np.float64)
        return rng.choice(np.array(self.values, np.float64), count, p=weights / weights.sum())


class SkewedBeta:
    """A skew normal distribution that is stretched to the range 0 .. ``most``; values below ``least``
    become ``least``.

    As in ddls, the stretch uses the smallest and the largest of 50,000 draws. The draws are the
    same for every seed of the jobs, so all episodes have the same distribution. ``shape`` is the
    seed of the draws. With the default, the means are closest to those of the streams that ddls
    drew.

    Raises:
        WorkloadError: The limits are not positive, or in the wrong order.
    """

    def __init__(
        self, skewness: float, least: float = 0.1, most: float = 1.0, decimals: int = 2, shape: int = 7
    ) -> None:
        _check(least, most)
        self.decimals = decimals
        self.values, self.weights = _skewed(skewness, least, most, shape)

    def __call__(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Draw ``count`` values, rounded."""
        return np.round(rng.choice(self.values, count, p=self.weights), self.decimals)


@lru_cache(maxsize=64)
def _skewed(skewness: float, least: float, most: float, shape: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the upper edges of the bins of the stretched distribution, and the weight of each bin."""
    rng = stream(shape, "ramp beta")
    delta = skewness / sqrt(1 + skewness**2)
    one, other = rng.standard_normal((2, _SHAPE_DRAWS))
    draws = delta * np.abs(one) + sqrt(1 - delta**2) * other  # skew-normal draws, by the method of Azzalini (1985)
    draws = (draws - draws.min()) / (draws.max() - draws.min()) * most
    counts, edges = np.histogram(np.maximum(draws, least), bins=_SHAPE_BINS)
    return edges[1:], counts / counts.sum()


_HERE = "dagsim.families.ramp.workload"

BETAS: Registry[Betas] = Registry(
    "distribution of beta",
    (
        Entry("fixed", f"{_HERE}:FixedBeta", "the same value for all jobs"),
        Entry("uniform", f"{_HERE}:UniformBeta", "all values on a grid are equally likely"),
        Entry("listed", f"{_HERE}:ListedBeta", "listed values, with weights"),
        Entry("skewed", f"{_HERE}:SkewedBeta", "a skew normal distribution, stretched and cut off"),
    ),
    method="__call__",
)

PAPER_BETAS: Mapping[str, str] = {
    "A": "uniform[least=0.1,most=1.0,decimals=2]",
    "B": "skewed[skewness=5]",
    "C": "skewed[skewness=0]",
    "D": "skewed[skewness=-5]",
}
"""The four distributions of PAC-ML."""


@dataclass(frozen=True, slots=True)
class RampWorkload:
    """Jobs that use the graphs in random order. All graphs are used equally often, up to a
    difference of one job.

    One job arrives every ``gap_s`` seconds, the first at 0. ``poisson=True`` draws the gaps from an
    exponential distribution with that mean. ``beta`` is the name of a distribution, or one of the
    letters in ``PAPER_BETAS``.

    Raises:
        WorkloadError: There are no graphs or no jobs, or the gap is not positive.
    """

    graphs: tuple[ComputationGraph, ...]
    jobs: int = 1001
    beta: str = "A"
    gap_s: float = 1000.0
    poisson: bool = False
    steps: int = 50

    def __post_init__(self) -> None:
        if not self.graphs:
            raise WorkloadError("a RAMP workload needs at least one computation graph")
        require(self.jobs >= 1, "jobs must be at least 1", self.jobs, WorkloadError)
        require(self.gap_s > 0, "gap_s must be positive", self.gap_s, WorkloadError)

    def draw(self, seed: int) -> tuple[RampJob, ...]:
        """Draw the jobs for one episode. Models, arrivals and betas each have their own random
        stream.
        """
        rounds = -(-self.jobs // len(self.graphs))
        order = stream(seed, "ramp models").permutation(np.tile(np.arange(len(self.graphs)), rounds))[: self.jobs]
        gaps = np.full(self.jobs - 1, self.gap_s)
        if self.poisson:
            gaps = stream(seed, "ramp arrivals").exponential(self.gap_s, self.jobs - 1)
        arrivals = np.concatenate([[0.0], np.cumsum(gaps)])
        betas = BETAS.create(PAPER_BETAS.get(self.beta, self.beta))(stream(seed, "ramp betas"), self.jobs)
        return tuple(
            RampJob(str(number), self.graphs[graph], float(at), float(beta), self.steps)
            for number, (graph, at, beta) in enumerate(zip(order.tolist(), arrivals, betas, strict=True))
        )


def _check(least: float, most: float) -> None:
    if not 0 < least <= most:
        raise WorkloadError(
            f"the limits for beta must be positive, with the smaller one first, got {least!r} and {most!r}"
        )
