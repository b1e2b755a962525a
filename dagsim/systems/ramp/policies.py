"""Policies for RAMP: how far each arriving job is split, or whether it is turned away.

Policies of one degree for all jobs, or the nearest that is offered.

A degree drawn at random.

Split as little as the acceptable completion time allows.

The smallest degree that is in time by the look-ahead.

The way to partition a job that leaves most room to those to come."""

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

from dagsim.errors import ConfigError
from dagsim.registry import Entry, Registry
from dagsim.systems.ramp.decisions import Partition
from dagsim.systems.ramp.room import ARRIVALS, SIZES, Room, ways_in_time
from dagsim.systems.ramp.view import RampPolicy, RampView

__all__ = [
    "RAMP_POLICIES",
    "AcceptableJct",
    "ConstantDegree",
    "MaxParallelism",
    "MinParallelism",
    "NoParallelism",
    "OnTime",
    "RandomDegree",
    "RoomWeights",
    "Roomy",
    "SipMlDegree",
    "tuned_weights",
]


RAMP_POLICIES: Registry[RampPolicy] = Registry(
    "RAMP policy",
    (
        Entry("no", ".policies:NoParallelism", "every job on one GPU"),
        Entry("min", ".policies:MinParallelism", "every job split two ways where it can be"),
        Entry("max", ".policies:MaxParallelism", "every job split as far as it can be"),
        Entry("random", ".policies:RandomDegree", "a degree drawn among those offered, never 0"),
        Entry("sip_ml", ".policies:SipMlDegree", "as far as it can be, up to a number of ways"),
        Entry(
            "constant",
            ".policies:ConstantDegree",
            "a number of ways; a job that cannot is turned away",
        ),
        Entry(
            "acceptable_jct",
            ".policies:AcceptableJct",
            "as little as its deadline allows",
        ),
        Entry("roomy", ".policies:Roomy", "in time, on the servers that leave the most room"),
        Entry("on_time", ".policies:OnTime", "the smallest degree that is in time"),
    ),
    group="dagsim.ramp_policies",
    home="dagsim.systems.ramp",
    method="decide",
)
"""By name, or ``module:attr`` of a user's own."""


class NoParallelism:
    """Every job on one GPU; turned away where none is free."""

    def decide(self, view: RampView) -> Iterable[Partition]:
        """Degree 1, or 0."""
        return (Partition(view.number, min(1, view.degrees[-1])),)


class MinParallelism:
    """Every job split two ways where it can be, else on one GPU."""

    def decide(self, view: RampView) -> Iterable[Partition]:
        """Degree 2, 1 or 0."""
        return (Partition(view.number, max(degree for degree in view.degrees if degree <= 2)),)


class MaxParallelism:
    """Every job split as far as it can be ("Para_max" of PAC-ML)."""

    def decide(self, view: RampView) -> Iterable[Partition]:
        """The largest degree."""
        return (Partition(view.number, view.degrees[-1]),)


class SipMlDegree:
    """Split up to ``degree`` ways: the largest degree offered that is not above it (Khani et al. 2021).

    Raises:
        ConfigError: ``degree`` is below 1.
    """

    def __init__(self, degree: int = 8) -> None:
        self.degree = _checked(degree)

    def decide(self, view: RampView) -> Iterable[Partition]:
        """``degree`` or the next below it."""
        return (Partition(view.number, max(degree for degree in view.degrees if degree <= self.degree)),)


class ConstantDegree:
    """Split exactly ``degree`` ways, or turn the job away. Blocks of one power of two tile the fabric without gaps.

    Raises:
        ConfigError: ``degree`` is below 1.
    """

    def __init__(self, degree: int = 4) -> None:
        self.degree = _checked(degree)

    def decide(self, view: RampView) -> Iterable[Partition]:
        """``degree`` or 0."""
        return (Partition(view.number, self.degree if self.degree in view.degrees else 0),)


def _checked(degree: int) -> int:
    if degree < 1:
        raise ConfigError(f"degree must be at least 1, got {degree!r}")
    return degree


class RandomDegree:
    """A degree drawn among those offered, each as likely; 0 only where nothing else is."""

    def decide(self, view: RampView) -> Iterable[Partition]:
        """Draw from the simulation's stream ``policy``."""
        choices = view.degrees[1:]
        if not choices:
            return (Partition(view.number, 0),)
        return (Partition(view.number, int(view.stream("policy").choice(choices))),)


class AcceptableJct:
    """The smallest degree in time if splitting were free, else the largest. It is "Para_min" of PAC-ML."""

    def decide(self, view: RampView) -> Iterable[Partition]:
        """The smallest degree of at least sequential / acceptable time."""
        wanted = ceil(view.job.sequential_s / view.job.acceptable_s) if view.job.acceptable_s else 1
        degree = next((degree for degree in view.degrees if degree >= wanted), view.degrees[-1])
        return (Partition(view.number, degree),)


class OnTime:
    """The smallest degree of at least ``least`` that is in time where it can be placed now. None: turned away.

    A larger ``least`` ends jobs sooner and keeps blocks of one size, which fragment the fabric less.

    Raises:
        ConfigError: ``least`` is below 1.
    """

    def __init__(self, least: int = 1, placer: str | None = None) -> None:
        if least < 1:
            raise ConfigError(f"least must be at least 1, got {least!r}")
        self.least = least
        self.placer = placer

    def decide(self, view: RampView) -> Iterable[Partition]:
        """The degree, by one look-ahead for each that is tried."""
        limit_s = view.job.acceptable_s * (1 + view.rules.tolerance)
        for degree in view.degrees:
            if degree >= self.least:
                outlook = view.outlook(degree, self.placer)
                if outlook is not None and outlook.jct_s <= limit_s:
                    return (Partition(view.number, degree, self.placer),)
        return (Partition(view.number, 0),)


_SHAPE = (len(ARRIVALS), len(SIZES))


@dataclass(frozen=True, slots=True)
class RoomWeights:
    """The worth of room: of its scarcity, of each block, and of degrees."""

    scarcity: NDArray[np.float64]  # (arrivals, sizes): of 1 / (1 + free blocks)
    blocks: NDArray[np.float64]  # (arrivals, sizes): of each free block
    degrees: dict[int, float]
    """What a degree is worth by itself; of others 0."""
    away: dict[str, float]
    """What a job of a model must be worth to be let in; of others anything will do."""

    @classmethod
    def even(cls) -> RoomWeights:
        """All scarcities alike, and nothing else."""
        return cls(np.ones(_SHAPE), np.zeros(_SHAPE), {}, {})


class Roomy:
    """The way in time after which the fewest sizes of blocks are scarce. It looks at all degrees and free blocks, and
    at the next arrivals (``dagsim.systems.ramp.room``). None in time: turned away.

    Degrees below ``least`` are taken only where no other is in time. ``tuned`` names weights of ``roomy.json``, found
    by ``scripts/tune_ramp.py``; ``least`` has no effect then.

    Raises:
        ConfigError: ``least`` is below 1, or no weights of that name.
    """

    def __init__(self, least: int = 1, tuned: str | None = None) -> None:
        if least < 1:
            raise ConfigError(f"least must be at least 1, got {least!r}")
        self.least = 1 if tuned else least
        self.weights = _tuned(tuned) if tuned else RoomWeights.even()

    def decide(self, view: RampView) -> Iterable[Partition]:
        """The degree and its block. O(degrees x blocks^2) bits."""
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
        """(...) of numbers of free blocks (..., arrivals, sizes)."""
        weights = self.weights
        worth: NDArray[np.float64] = (weights.blocks * free - weights.scarcity / (1 + free)).sum(axis=(-2, -1))
        return worth


@cache
def tuned_weights() -> dict[str, Any]:
    """The contents of ``roomy.json``: what ``tune_ramp.py`` found, by setting and beta."""
    found: dict[str, Any] = json.loads(files("dagsim.systems.ramp").joinpath("roomy.json").read_text(encoding="utf-8"))
    return found


@cache
def _tuned(name: str) -> RoomWeights:
    known = tuned_weights()
    if name not in known:
        raise ConfigError(f"roomy: there are no weights {name!r}; tuned: {', '.join(known)}")
    said = known[name]
    degrees = {int(degree): float(worth) for degree, worth in said["degrees"].items()}
    scarcity, blocks = (np.array(said[part], np.float64).reshape(_SHAPE) for part in ("scarcity", "blocks"))
    return RoomWeights(scarcity, blocks, degrees, {model: float(worth) for model, worth in said["away"].items()})
