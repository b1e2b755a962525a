"""Named streams of random numbers, which are derived from a single root seed and independent of
each other.

Each purpose (arrivals, shapes, failures) has a separate stream with its own name. Adding a stream
therefore does not change the numbers in any other stream. Pass the number of an episode or worker
as ``index``; never add it to ``root``.
"""

from __future__ import annotations

from copy import deepcopy
from zlib import crc32

import numpy as np

from dagsim.errors import InputError


def stream(root: int, name: str, index: int = 0) -> np.random.Generator:
    """Return the random generator for the stream ``name`` with this ``index``, derived from the
    seed ``root``. Equal arguments give equal numbers.

    Raises:
        InputError: ``root`` or ``index`` is negative.
    """
    if root < 0 or index < 0:
        raise InputError(f"a seed must be a whole number of 0 or more, got root {root!r}, index {index!r}")
    return np.random.default_rng([root, crc32(name.encode()), index])


class Streams:
    """The named random streams of one simulation. Each of them is created on first use, so draws
    from one stream do not affect the others.
    """

    __slots__ = ("by_name", "seed")

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.by_name: dict[str, np.random.Generator] = {}

    def of(self, name: str) -> np.random.Generator:
        """Return the stream called ``name``."""
        rng = self.by_name.get(name)
        if rng is None:
            rng = self.by_name[name] = stream(self.seed, name)
        return rng

    def copy(self) -> Streams:
        """Return a copy in the same state. Draws from one copy do not affect the other."""
        return deepcopy(self)
