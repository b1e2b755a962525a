"""Pools of seeds for different purposes. They ensure that no result is reported on seeds that were
also used to choose a parameter, an agent or a policy.

Training draws its seeds from ``TRAIN``. Every choice (a parameter, a checkpoint, the best
heuristic) is made on ``VALIDATION``. ``REPORT`` is for final tables. Each published table and each
training run gets a separate part of this pool, which is used only once
(``dagsim.experiment.ledger``). ``dagsim eval`` uses other seeds (``replicate_seeds``).
"""

from __future__ import annotations

from dagsim.errors import ConfigError

TRAIN = range(1_000_000, 2_000_000)
VALIDATION = range(2_000_000, 3_000_000)
REPORT = range(3_000_000, 4_000_000)
WINDOWS = range(4_000_000, 5_000_000)
"""The numbers of a trace's windows in experiments on windows. No random seeds are taken from this
pool.
"""

_PARTS = {TRAIN: (0.0, 0.6), VALIDATION: (0.6, 0.8), REPORT: (0.8, 1.0)}


def part_of(seed: int) -> tuple[float, float]:
    """Return the part of a trace that belongs to the pool of ``seed``, as the fractions of the jobs
    at which it begins and ends.

    The first 60% are for training, the next 20% for validation and the last 20% for tests. Seeds of
    other experiments belong to no pool and use the whole trace.
    """
    return next((part for pool, part in _PARTS.items() if seed in pool), (0.0, 1.0))


def seeds_of(pool: range, count: int) -> tuple[int, ...]:
    """Return the first ``count`` seeds of a pool.

    Raises:
        ConfigError: ``count`` is less than 1, or the pool has fewer seeds.
    """
    if not 1 <= count <= len(pool):
        raise ConfigError(f"the number of seeds must be between 1 and {len(pool):,}, got {count:,}")
    return tuple(pool[:count])
