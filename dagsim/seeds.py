"""Pools of seeds by purpose, so that nothing is judged on what it was chosen by.

Training draws from ``TRAIN``, every choice (a parameter, a checkpoint, the best heuristic) is made on ``VALIDATION``,
and ``REPORT`` is touched once, for the final table: every published table and every training has a part of it
(``dagsim.experiment.ledger``). An experiment of ``dagsim eval`` has
seeds of its own (``run.replicate_seeds``).
"""

from __future__ import annotations

from dagsim.errors import ConfigError

__all__ = ["REPORT", "TRAIN", "VALIDATION", "WINDOWS", "part_of", "seeds_of"]

TRAIN = range(1_000_000, 2_000_000)
VALIDATION = range(2_000_000, 3_000_000)
REPORT = range(3_000_000, 4_000_000)
WINDOWS = range(4_000_000, 5_000_000)
"""Not drawn from: the windows of a trace, counted, in experiments on windows."""

_PARTS = {TRAIN: (0.0, 0.6), VALIDATION: (0.6, 0.8), REPORT: (0.8, 1.0)}


def part_of(seed: int) -> tuple[float, float]:
    """The part of a trace, between two fractions of its jobs, for the pool of ``seed``. Training has the first three
    fifths, validation and report a fifth each; the seeds of experiments have all of it."""
    return next((part for pool, part in _PARTS.items() if seed in pool), (0.0, 1.0))


def seeds_of(pool: range, count: int) -> tuple[int, ...]:
    """The first ``count`` seeds of a pool.

    Raises:
        ConfigError: It has not so many.
    """
    if not 1 <= count <= len(pool):
        raise ConfigError(f"seeds: allowed are 1 to {len(pool)}, got {count}")
    return tuple(pool[:count])
