"""Policies for RAMP, which choose the degree to which each arriving job is split, or 0 to reject it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import ceil, inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dagsim.errors import ConfigError, require
from dagsim.families.ramp.decisions import Partition
from dagsim.families.ramp.view import ARRIVALS, SIZES, RampPolicy, RampView, Room, ways_in_time
from dagsim.registry import Entry, Registry

RAMP_POLICIES: Registry[RampPolicy] = Registry(
    "RAMP policy",
    (
        Entry("no", ".policies:NoParallelism", "every job on one GPU"),
        Entry("min", ".policies:MinParallelism", "every job split over two servers if possible"),
        Entry("max", ".policies:MaxParallelism", "every job split as far as possible"),
        Entry("random", ".policies:RandomDegree", "a random permitted degree other than 0"),
        Entry("sip_ml", ".policies:SipMlDegree", "every job split as far as possible, up to a maximum degree"),
        Entry("constant", ".policies:ConstantDegree", "a fixed number of ways; other jobs are rejected"),
        Entry(
            "acceptable_jct",
            ".policies:AcceptableJct",
            "the smallest degree that the deadline allows if splitting is free",
        ),
        Entry("roomy", ".policies:Roomy", "a placement that is in time and leaves the most space for later jobs"),
        Entry("on_time", ".policies:OnTime", "the smallest degree that is in time"),
    ),
    group="dagsim.ramp_policies",
    home="dagsim.families.ramp",
    method="decide",
)
"""RAMP policies by name, or ``module:attr``."""


class NoParallelism:
    """Runs every job on one GPU, or rejects it if none is free."""

    def decide(self, view: RampView) -> Iterable[Partition]:
        """Return degree 1, or 0 if no GPU is free."""
        return (Partition(view.number, min(1, view.degrees[-1])),)


class MinParallelism:
    """Splits every job two ways if possible, and otherwise runs it on one GPU."""

    def decide(self, view: RampView) -> Iterable[Partition]:
        """Return the largest of the degrees 2, 1 and 0 that may be chosen."""
        return (Partition(view.number, max(degree for degree in view.degrees if degree <= 2)),)


class MaxParallelism:
    """Splits every job as far as possible ("Para_max" of PAC-ML)."""

    def decide(self, view: RampView) -> Iterable[Partition]:
        """Return the largest degree that may be chosen."""
        return (Partition(view.number, view.degrees[-1]),)


class SipMlDegree:
    """Splits each job with the largest possible degree that is not above ``degree`` (Khani et al.
    2021).

    Raises:
        ConfigError: ``degree`` is below 1.
    """

    def __init__(self, degree: int = 8) -> None:
        self.degree = _checked(degree)

    def decide(self, view: RampView) -> Iterable[Partition]:
        """Return ``degree`` or, if it may not be chosen, the next smaller degree."""
        return (Partition(view.number, max(degree for degree in view.degrees if degree <= self.degree)),)


class ConstantDegree:
    """Splits each job with exactly the degree ``degree``, or rejects it. If ``degree`` is a power
    of two, the blocks tile the fabric without gaps.

    Raises:
        ConfigError: ``degree`` is below 1.
    """

    def __init__(self, degree: int = 4) -> None:
        self.degree = _checked(degree)

    def decide(self, view: RampView) -> Iterable[Partition]:
        """Return ``degree``, or 0 if it may not be chosen."""
        return (Partition(view.number, self.degree if self.degree in view.degrees else 0),)


def _checked(degree: int) -> int:
    require(degree >= 1, "degree must be at least 1", degree)
    return degree


class RandomDegree:
    """Samples uniformly from the degrees that may be chosen, and rejects the job only if there are
    none.
    """

    def decide(self, view: RampView) -> Iterable[Partition]:
        """Sample a degree from the simulation's random stream ``policy``."""
        choices = view.degrees[1:]
        if not choices:
            return (Partition(view.number, 0),)
        return (Partition(view.number, int(view.stream("policy").choice(choices))),)


class AcceptableJct:
    """Chooses the smallest degree with which the job would be in time if splitting had no overhead, or
    else the largest degree ("Para_min" of PAC-ML).
    """

    def decide(self, view: RampView) -> Iterable[Partition]:
        """Return the smallest degree that is at least sequential time / acceptable time."""
        wanted = ceil(view.job.sequential_s / view.job.acceptable_s) if view.job.acceptable_s else 1
        degree = next((degree for degree in view.degrees if degree >= wanted), view.degrees[-1])
        return (Partition(view.number, degree),)


class OnTime:
    """Chooses the smallest degree from ``least`` on that can be placed now and with which the job
    is in time. If no degree meets both conditions, the policy rejects the job.

    ``placer`` is the rule that places operations.

    With a larger ``least``, jobs end sooner and more blocks have the same size, which fragments the
    fabric less.

    Raises:
        ConfigError: ``least`` is below 1.
    """

    def __init__(self, least: int = 1, placer: str | None = None) -> None:
        require(least >= 1, "least must be at least 1", least)
        self.least = least
        self.placer = placer

    def decide(self, view: RampView) -> Iterable[Partition]:
        """Return the smallest degree with which the job is in time, or 0. Each degree that is tried
        costs one look-ahead.
        """
        limit_s = view.rules.limit_s(view.job.acceptable_s)
        for degree in view.degrees:
            if degree >= self.least:
                outlook = view.outlook(degree, self.placer)
                if outlook is not None and outlook.jct_s <= limit_s:
                    return (Partition(view.number, degree, self.placer),)
        return (Partition(view.number, 0),)


_SHAPE = (len(ARRIVALS), len(SIZES))


@dataclass(frozen=True, slots=True)
class RoomWeights:
    """Weights for the value of the blocks that remain free. There are weights for their scarcity,
    for their number, and for degrees.
    """

    scarcity: NDArray[np.float64]  # shape (arrivals, sizes): mean of 1 / (1 + free blocks)
    blocks: NDArray[np.float64]  # shape (arrivals, sizes): mean number of free blocks
    degrees: dict[int, float]
    """Additional value of a degree; 0 for degrees without an entry."""
    away: dict[str, float]
    """Minimum value at which a job of a model is accepted; jobs of models without an entry are
    always accepted."""

    @classmethod
    def even(cls) -> RoomWeights:
        """Return equal weights for all scarcities and no other weights."""
        return cls(np.ones(_SHAPE), np.zeros(_SHAPE), {}, {})


class Roomy:
    """Chooses, among the ways in which the job would be in time, the one that leaves the fewest
    block sizes scarce. If there is no such way, the policy rejects the job.

    All combinations of a degree and a free block are compared by the blocks that will be free at
    the next arrivals (``dagsim.families.ramp.view``). Degrees below ``least`` are only used if the
    job would be too slow with every other degree. ``tuned`` is the name of weights in
    ``roomy.json`` that ``scripts/tune_ramp.py`` has found. If it is given, ``least`` has no effect.

    Raises:
        ConfigError: ``least`` is below 1, or there are no weights with that name.
    """

    def __init__(self, least: int = 1, tuned: str | None = None) -> None:
        require(least >= 1, "least must be at least 1", least)
        self.least = 1 if tuned else least
        self.weights = _tuned(tuned) if tuned else RoomWeights.even()

    def decide(self, view: RampView) -> Iterable[Partition]:
        """Return the degree and its block. The cost is O(degrees x blocks^2) bit operations."""
        ways = list(ways_in_time(view))
        if not ways:
            return (Partition(view.number, 0),)
        ways = [way for way in ways if way.degree >= self.least] or ways
        room, weights = Room(view), self.weights
        left = room.after([way.servers for way in ways], [view.now + way.jct_s for way in ways])
        worth = self._worth(left) - self._worth(room.before)
        worth += [weights.degrees.get(way.degree, 0.0) for way in ways]
        best = ways[int(np.argmax(worth))]
        if worth.max() <= weights.away.get(view.job.graph.model, -inf):
            return (Partition(view.number, 0),)
        return (Partition(view.number, best.degree, servers=best.servers),)

    def _worth(self, free: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return a score for each set of numbers of free blocks. ``free`` has the shape (...,
        arrivals, sizes), and the result has the shape (...).
        """
        weights = self.weights
        worth: NDArray[np.float64] = (weights.blocks * free - weights.scarcity / (1 + free)).sum(axis=(-2, -1))
        return worth


@cache
def tuned_weights() -> dict[str, Any]:
    """Return the contents of ``roomy.json``, which are the weights that ``tune_ramp.py`` found, by
    setting and by beta.
    """
    weights: dict[str, Any] = json.loads(
        files("dagsim.families.ramp").joinpath("roomy.json").read_text(encoding="utf-8")
    )
    return weights


@cache
def _tuned(name: str) -> RoomWeights:
    tuned = tuned_weights()
    if name not in tuned:
        raise ConfigError(f"roomy: there are no tuned weights called {name!r}; available: {', '.join(tuned)}")
    weights = tuned[name]
    degrees = {int(degree): float(worth) for degree, worth in weights["degrees"].items()}
    scarcity, blocks = (np.array(weights[part], np.float64).reshape(_SHAPE) for part in ("scarcity", "blocks"))
    return RoomWeights(scarcity, blocks, degrees, {model: float(worth) for model, worth in weights["away"].items()})
