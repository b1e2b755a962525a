"""Which seeds are for what, so that nothing is judged on what it was chosen by.

Training draws from ``TRAIN``, every choice (a parameter, a checkpoint, the best heuristic) is made on ``VALIDATION``,
and ``REPORT`` is touched once, for the final table. An experiment of ``dagsim eval`` has seeds of its own
(``run.replicate_seeds``).
"""

from __future__ import annotations

from dagsim.errors import ConfigError

__all__ = ["REPORT", "TRAIN", "VALIDATION", "seeds_of"]

TRAIN = range(1_000_000, 2_000_000)
VALIDATION = range(2_000_000, 3_000_000)
REPORT = range(3_000_000, 4_000_000)


def seeds_of(pool: range, count: int) -> tuple[int, ...]:
    """The first ``count`` seeds of a pool.

    Raises:
        ConfigError: It has not so many.
    """
    if not 1 <= count <= len(pool):
        raise ConfigError(f"seeds: allowed are 1 to {len(pool)}, got {count}")
    return tuple(pool[:count])
