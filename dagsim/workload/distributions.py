"""Distributions from which arrivals, sizes, priorities and deadlines are drawn, described by plain
values.

``draw(rng, count)`` returns ``count`` numbers (float64). Distributions with ``low`` and ``high``
clip values outside this range.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import factorial, inf, isfinite, log
from typing import Annotated, Literal, TypeAlias

import numpy as np

from dagsim.errors import WorkloadError, require
from dagsim.model.arithmetic import ordered_sum
from dagsim.workload.tagged_union import TaggedUnion

_LOG2_E = 1.4426950408889634
# ln 2 as the sum of two parts, of which the first has so few digits that its multiples are exact
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
_TAYLOR = tuple([1.0 / factorial(power) for power in range(13, -1, -1)])


def exp(x: np.ndarray) -> np.ndarray:
    """Return the exponential of each element of ``x``, bit-identical on every machine and within 2
    units in the last place.

    NumPy has several implementations of this function and chooses one for the processor. Their
    results differ in the last bit, which is enough to make a job differ between two machines. This
    function therefore uses only additions and multiplications, for which IEEE 754 prescribes the
    rounding. Beyond the range of a float, the result is 0 or infinity.
    """
    x = np.minimum(np.maximum(x, -750.0), 750.0)
    doublings = np.rint(x * _LOG2_E)
    rest = (x - doublings * _LN2_HIGH) - doublings * _LN2_LOW
    power = np.zeros_like(rest)
    for term in _TAYLOR:
        power = power * rest + term
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(np.ldexp(power, doublings.astype(np.int32)))


_FORBID = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class Constant:
    """Every number is ``value``."""

    value: float = 0.0
    """The number."""
    kind: Literal["constant"] = "constant"

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        _finite(self.kind, "value", self.value)

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return np.full(count, float(self.value))

    def at(self, uniform: np.ndarray) -> np.ndarray:
        """Return the values at these probabilities."""
        return np.full(len(uniform), float(self.value))


@dataclass(frozen=True, slots=True)
class Uniform:
    """Numbers that are uniformly distributed between ``low`` and ``high``."""

    low: float = 0.0
    """The smallest number."""
    high: float = 1.0
    """The largest number."""
    kind: Literal["uniform"] = "uniform"

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        _range(self.kind, self.low, self.high, -inf)

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return rng.uniform(self.low, self.high, count)


@dataclass(frozen=True, slots=True)
class Whole:
    """Whole numbers that are uniformly distributed from ``low`` to ``high``."""

    low: int = 1
    """The smallest number."""
    high: int = 8
    """The largest number."""
    kind: Literal["whole"] = "whole"

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        _range(self.kind, self.low, self.high, -inf)

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return rng.integers(self.low, self.high, count, endpoint=True).astype(float)


@dataclass(frozen=True, slots=True)
class LogUniform:
    """Numbers between ``low`` and ``high`` whose logarithms are uniformly distributed."""

    low: float = 1.0
    """The smallest number."""
    high: float = 10.0
    """The largest number."""
    kind: Literal["log_uniform"] = "log_uniform"

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        _range(self.kind, self.low, self.high, 0.0)

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return self.low * exp(log(self.high / self.low) * rng.random(count))


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Numbers from a log-normal distribution: ``median`` times the exponential of a normal variable
    with standard deviation ``sigma``. Numbers outside ``low`` to ``high`` are clipped to these
    bounds.
    """

    median: float = 1.0
    """Median of the distribution before clipping."""
    sigma: float = 1.0
    """Standard deviation of the logarithm."""
    low: float = 0.0
    """Smallest number. Smaller numbers are replaced with it."""
    high: float | None = None
    """Largest number. Larger numbers are replaced with it."""
    kind: Literal["log_normal"] = "log_normal"

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        _positive(self.kind, "median", self.median)
        _positive(self.kind, "sigma", self.sigma)
        _clip(self.kind, self.low, self.high)

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return np.clip(self.median * exp(self.sigma * rng.standard_normal(count)), self.low, self.high)


@dataclass(frozen=True, slots=True)
class Pareto:
    """Numbers from a Pareto distribution: all numbers are at least ``scale``, and a number exceeds
    ``x`` with probability ``(scale / x) ** alpha``.
    """

    scale: float = 1.0
    """The smallest number."""
    alpha: float = 1.5
    """The smaller this value is, the heavier the tail. Without ``high``, the variance is infinite if
    it is at most 2, and the mean is infinite if it is at most 1.
    """
    high: float | None = None
    """Largest number. Larger numbers are replaced with it."""
    kind: Literal["pareto"] = "pareto"

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        _positive(self.kind, "scale", self.scale)
        _positive(self.kind, "alpha", self.alpha)
        _clip(self.kind, self.scale, self.high)

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return np.clip(self.scale * exp(rng.standard_exponential(count) / self.alpha), None, self.high)


@dataclass(frozen=True, slots=True)
class Choice:
    """Each number is drawn from ``values``, with probabilities proportional to ``weights`` (by
    default, all values are equally likely).
    """

    values: tuple[float, ...]
    """The numbers to draw from."""
    weights: tuple[float, ...] = ()
    """The weight of each value. By default, all values are equally likely."""
    kind: Literal["choice"] = "choice"

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        if not self.values or not all(map(isfinite, self.values)):
            raise WorkloadError(f"choice: values must contain at least one number, got {self.values!r}")
        _weights(self.kind, self.weights or (1.0,) * len(self.values), len(self.values))

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return self.at(rng.random(count))

    def at(self, uniform: np.ndarray) -> np.ndarray:
        """Return the values at these probabilities, each in [0, 1)."""
        picked = _picked(self.weights or (1.0,) * len(self.values), uniform)
        return np.take(np.asarray(self.values, float), picked)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A distribution defined by published percentiles. Between two of them, interpolation is
    geometric if both values are positive, and otherwise linear.
    """

    points: tuple[tuple[float, float], ...]
    """Pairs of a probability and a value. The probabilities range from 0 to 1."""
    whole: bool = False
    """True to round values up to whole numbers. This suits counts, and keeps the values at the
    published probabilities as published.
    """
    kind: Literal["quantiles"] = "quantiles"

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        chances, values = [point[0] for point in self.points], [point[1] for point in self.points]
        if len(self.points) < 2 or chances[0] != 0 or chances[-1] != 1:
            raise WorkloadError(
                f"quantiles: points must begin with probability 0 and end with probability 1, got {self.points!r}"
            )
        if chances != sorted(chances) or values != sorted(values) or values[0] < 0 or values[-1] == inf:
            raise WorkloadError(
                f"quantiles: points must increase in probability and value, starting from 0, got {self.points!r}"
            )

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return self.at(rng.random(count))

    def at(self, uniform: np.ndarray) -> np.ndarray:
        """Return the values at these probabilities, each in [0, 1)."""
        chances, values, growth = _table(self.points)
        upper = np.searchsorted(chances[1:-1], uniform, "right") + 1
        part = (uniform - chances[upper - 1]) / (chances[upper] - chances[upper - 1])
        left, right = values[upper - 1], values[upper]
        geometric = np.minimum(np.maximum(left * exp(part * growth[upper - 1]), left), right)
        drawn = np.where(left > 0, geometric, part * right)
        return np.asarray(np.ceil(drawn - 1e-9) if self.whole else drawn)


@lru_cache(maxsize=256)
def _table(points: tuple[tuple[float, float], ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the probabilities and values of the points, and by how much the logarithm of the value
    grows from each point to the next.
    """
    chances, values = np.array(points, float).T
    growth = [log(high) - log(low) if low > 0 else 0.0 for low, high in pairwise(values.tolist())]
    return chances, values, np.array(growth)


Simple: TypeAlias = Annotated[
    Constant | Uniform | Whole | LogUniform | LogNormal | Pareto | Choice | Quantiles, TaggedUnion("constant")
]
"""Any distribution but a mixture."""


@dataclass(frozen=True, slots=True)
class Part:
    """A component of a mixture."""

    weight: float
    """The probability of this distribution, relative to the other weights."""
    of: Simple
    """The distribution from which a value is drawn."""

    __pydantic_config__ = _FORBID


@dataclass(frozen=True, slots=True)
class Mixture:
    """For each number, one of ``parts`` is chosen with a probability proportional to its weight,
    and the number is drawn from this part.
    """

    parts: tuple[Part, ...]
    """The distributions to choose from, each with its weight."""
    kind: Literal["mixture"] = "mixture"

    __pydantic_config__ = _FORBID

    def __post_init__(self) -> None:
        _weights(self.kind, tuple(part.weight for part in self.parts), len(self.parts))

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        picked = _picked(tuple(part.weight for part in self.parts), rng.random(count))
        drawn = np.empty(count)
        for number, part in enumerate(self.parts):
            mine = picked == number
            drawn[mine] = part.of.draw(rng, int(mine.sum()))
        return drawn


AnyDistribution: TypeAlias = Annotated[
    Constant | Uniform | Whole | LogUniform | LogNormal | Pareto | Choice | Quantiles | Mixture, TaggedUnion("constant")
]
"""Any distribution; in YAML, ``kind`` selects it (without it, ``value`` is a constant)."""


def _picked(weights: tuple[float, ...], uniform: np.ndarray) -> np.ndarray:
    """Return the index into ``weights`` that each probability selects."""
    bounds = np.cumsum(weights)
    return np.asarray(np.searchsorted(bounds, uniform * bounds[-1], "right"))


def _finite(kind: str, name: str, value: float) -> None:
    require(isfinite(value), f"{kind}: {name} must be a finite number", value, WorkloadError)


def _positive(kind: str, name: str, value: float) -> None:
    require(0 < value < inf, f"{kind}: {name} must be above 0", value, WorkloadError)


def _range(kind: str, low: float, high: float, above: float) -> None:
    if not (above < low <= high < inf):
        more = "" if above == -inf else f" and above {above:g}"
        raise WorkloadError(f"{kind}: low must be at most high{more}, got low {low!r} and high {high!r}")


def _clip(kind: str, low: float, high: float | None) -> None:
    if not 0 <= low < inf or not (high is None or low <= high < inf):
        raise WorkloadError(f"{kind}: high must be a number of at least {low:g} or left out, got {high!r}")


def _weights(kind: str, weights: tuple[float, ...], count: int) -> None:
    if len(weights) != count or not all(0 <= weight < inf for weight in weights) or not ordered_sum(weights) > 0:
        raise WorkloadError(f"{kind}: weights must be {count} numbers of 0 or more, not all 0, got {weights!r}")
