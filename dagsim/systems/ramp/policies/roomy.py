"""The way to partition a job that leaves most room to those to come."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dagsim.errors import ConfigError
from dagsim.systems.ramp.decisions import Partition
from dagsim.systems.ramp.room import ARRIVALS, SIZES, Room, ways_in_time
from dagsim.systems.ramp.view import RampView

__all__ = ["RoomWeights", "Roomy", "tuned_weights"]

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
    found: dict[str, Any] = json.loads(
        files("dagsim.systems.ramp.policies").joinpath("roomy.json").read_text(encoding="utf-8")
    )
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
