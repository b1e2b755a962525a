"""Named streams of random numbers from a single root seed, which are independent of each other.

Each purpose (arrivals, shapes, failures) draws from the stream with its name, so that a new stream
changes no other. Pass the number of an episode or worker as ``index``, never as ``root + index``.
"""

from __future__ import annotations

from zlib import crc32

import numpy as np

from dagsim.errors import InputError


def stream(root: int, name: str, index: int = 0) -> np.random.Generator:
    """Return the generator called ``name`` with number ``index`` under the seed ``root``. Equal
    arguments give equal numbers.

    Raises:
        InputError: ``root`` or ``index`` is negative.
    """
    if root < 0 or index < 0:
        raise InputError(f"a seed must be a whole number of 0 or more, got root {root!r}, index {index!r}")
    return np.random.default_rng([root, crc32(name.encode()), index])
