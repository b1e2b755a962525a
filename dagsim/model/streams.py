"""Named streams of random numbers, which are derived from a single root seed and independent of
each other.

Each purpose (arrivals, shapes, failures) has a separate stream with its own name. Adding a stream
therefore does not change the numbers in any other stream. Pass the number of an episode or worker
as ``index``; never add it to ``root``.
"""

from __future__ import annotations

from zlib import crc32

import numpy as np

from dagsim.errors import InputError


def stream(root: int, name: str, index: int = 0) -> np.random.Generator:
    """Return the random generator with a name and an ``index`` for the seed ``root``. Equal
    arguments give equal numbers.

    Raises:
        InputError: ``root`` or ``index`` is negative.
    """
    if root < 0 or index < 0:
        raise InputError(f"a seed must be a whole number of 0 or more, got root {root!r}, index {index!r}")
    return np.random.default_rng([root, crc32(name.encode()), index])
