"""The memory of an episode.

An episode consists of an *arena*, which contains the bytes of all changing arrays, and a row of
``tables``, which contains the addresses and lengths of all its arrays (``pointers``). A sequence of
jobs has an ``Image``: the arena before the first event, and the constants. A new episode or a fork
is therefore created by copying bytes once. Compiled code receives the addresses of the tables.
Episodes may have different sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dagsim.families.compiled import jit
from dagsim.families.compiled.jit import outer
from dagsim.families.compiled.memory import BEST, State
from dagsim.families.compiled.reading import EngineScenario, read_scenario
from dagsim.families.episodes.episode_state import EpisodeCodec, EpisodeReward, EpisodeState, new_episode, scratch
from dagsim.families.episodes.play import prepare
from dagsim.model import Cluster, Job, Task
from dagsim.systems.cluster.models.estimates import Estimates
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.workload.arrays import JobArrays

_LINE_B = 64
"""Arrays begin at multiples of this many bytes."""
_STATE_CONSTANTS = {"past", "tasks", "child", "truth", "seconds", "key", "classes", "may", "by_type", "queues", "ready"}
_STATE_MOVES = frozenset(State._fields) - _STATE_CONSTANTS - {"origin", "work_left"}
_CONSTANTS = {"facts", "slowdown", "slowdown_units", "fixed", "ideal_s"}
_MOVES = frozenset(EpisodeState._fields) - _CONSTANTS - {"state", "log"}
"""The fields that change during an episode."""


def example_episode() -> EpisodeState:
    """Build a small episode, from which numba infers the type of all episodes."""
    jobs = JobArrays.of([Job.single("j", Task("t", 1.0))])
    scene = read_scenario(Cluster.of({"V100": 1}), jobs, Recorded(), Estimates(), 0)
    return new_episode(scene, EpisodeCodec(BEST), EpisodeReward(), scratch(1))


episode_at, by_address = jit.at_address(example_episode)
"""Turns the address of a table into its episode, in compiled code; and all episodes by address, in plain Python."""


@outer
def begin_episode(e: EpisodeState) -> None:
    """Compute the constants of a new episode."""
    prepare(e)


class Image:
    """A sequence of jobs, prepared for episodes."""

    def __init__(
        self,
        cluster: Cluster,
        scene: EngineScenario,
        codec: EpisodeCodec,
        terms: EpisodeReward,
        log: np.recarray,
        recorded: bool,
    ) -> None:
        self.cluster, self.scene, self.recorded = cluster, scene, recorded
        self.state = new_episode(scene, codec, terms, log)
        self.state.tally.recorded = recorded
        begin = jit.BoundCall(begin_episode, self.state)
        begin()
        self.words = np.array(begin.words, np.int64)
        moving = [value for value, moves in _members(self.state) if moves]
        pieces = [value.tobytes() for value in moving]
        sizes = [-(-len(piece) // _LINE_B) * _LINE_B for piece in pieces]
        self.offset = np.cumsum([0, *sizes[:-1]])
        self.places = dict(zip(_NAMES_OF_MOVES, zip(self.offset.tolist(), moving, strict=True), strict=True))
        padded = bytearray().join(piece.ljust(size, b"\0") for piece, size in zip(pieces, sizes, strict=True))
        self.bytes = np.frombuffer(padded, np.uint8)

    def table(self, arena: np.ndarray, log: np.recarray) -> np.ndarray:
        """Return the words of the table for an episode whose changing arrays are in ``arena``."""
        words = self.words.copy()
        words[_MOVING] = self.offset + arena.ctypes.data
        words[_LOG_WORD] = log.ctypes.data
        words[_LOG_WORD + 1] = len(log)
        return words

    def part(self, arenas: np.ndarray, name: str) -> np.ndarray:
        """Return one of the changing arrays for all episodes in ``arenas``, (..., bytes). The
        result has the shape (..., rows). ``name`` is the name of the field, with the prefix
        ``state.`` for fields of ``State``. A single record is an array without axes.
        """
        begin, value = self.places[name]
        shape = (*arenas.shape[:-1], *np.shape(value))
        strides = (*arenas.strides[:-1], *getattr(value, "strides", ()))
        return np.ndarray(shape, value.dtype, arenas, begin, strides)

    def on(self, arena: np.ndarray, log: np.recarray) -> EpisodeState:
        """Return the episode as named tuples that use the arrays in ``arena``."""
        offsets = iter(self.offset.tolist())
        values = []
        for value, moves in _members(self.state):
            if moves:
                begin = next(offsets)
                there = arena[begin : begin + value.nbytes].view(value.dtype)
                if not isinstance(value, np.ndarray):
                    value = there.view(np.recarray)[0]
                else:
                    value = there.reshape(value.shape).view(type(value))
            values.append(value)
        count = len(State._fields)
        return EpisodeState(State(*values[:count]), *values[count:])._replace(log=log)


def _members(e: EpisodeState) -> Iterator[tuple[Any, bool]]:
    """Yield all arrays and records in the order of the table, and whether they change."""
    for name, value in zip(e.state._fields, e.state, strict=True):
        yield value, name in _STATE_MOVES
    for name, value in zip(e._fields[1:], e[1:], strict=True):
        yield value, name in _MOVES


_NAMES_OF_MOVES = (
    *(f"state.{name}" for name in State._fields if name in _STATE_MOVES),
    *(name for name in EpisodeState._fields[1:] if name in _MOVES),
)

_LENGTHS = [1 + (value.ndim if isinstance(value, np.ndarray) else 0) for value, _ in _members(example_episode())]
"""Number of words of each member in a table."""
_BEGINS = np.cumsum([0, *_LENGTHS[:-1]])
_MOVING = _BEGINS[[moves for _, moves in _members(example_episode())]]
"""Indices of the words with the addresses of the changing arrays."""
_LOG_WORD = int(_BEGINS[len(State._fields)])
"""Index of the word with the address of the log, which follows the state."""


def put_at(image: Image, arenas: np.ndarray, log: np.recarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the tables of the episodes in ``arenas`` (episodes, bytes), which all have the same
    image, and the addresses of the tables.
    """
    tables = np.tile(image.table(arenas[0], log), (len(arenas), 1))
    tables[:, _MOVING] += arenas.shape[1] * np.arange(len(arenas))[:, None]
    addresses = tables.ctypes.data + tables.strides[0] * np.arange(len(arenas))
    if not jit.jitted():
        by_address.update(
            (address, image.on(arena, log)) for address, arena in zip(addresses.tolist(), arenas, strict=True)
        )
    return tables, addresses


def aligned(size: int) -> np.ndarray:
    """Return an array of bytes whose address is a multiple of ``_LINE_B``."""
    array = np.zeros(size + _LINE_B, np.uint8)
    return array[-array.ctypes.data % _LINE_B :][:size]
