"""Waits on the real cluster, from its log, compared with simulated waits of the same jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from dagsim.metrics.columns import Floats, ScheduleColumns, Source, columns

__all__ = ["ObservedWaits", "WaitPair", "Waits", "observed_against_simulated"]

_SLACK_S = 10.0
"""Added to both waits before their ratio is taken, because short waits are noise."""
_EARLY_S = 1.0
"""Slurm's clock counts whole seconds."""
_SIZES = ((0.0, "0 GPUs"), (0.999, "under 1 GPU"), (1.0, "1 GPU"), (4.0, "2-4 GPUs"), (8.0, "5-8 GPUs"),
          (32.0, "9-32 GPUs"), (np.inf, "over 32 GPUs"))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Waits:
    """Statistics of waits, in seconds."""

    mean: float
    median: float
    p95: float

    @classmethod
    def of(cls, waits: Floats) -> Waits:
        """Return mean and percentiles of ``waits`` (at least one). Percentiles interpolate
        linearly.
        """
        return cls(float(waits.mean()), *np.percentile(waits, [50, 95]).tolist())


@dataclass(frozen=True, slots=True)
class WaitPair:
    """Observed and simulated waits of the same jobs."""

    jobs: int
    observed_s: Waits
    simulated_s: Waits
    difference_s: float
    """Mean of simulated - observed. Above 0, jobs wait longer in the simulation."""


@dataclass(frozen=True, slots=True)
class ObservedWaits:
    """Waits of the jobs for which both are known: overall, by tenant, partition and number of GPUs."""

    total: WaitPair
    by_tenant: dict[str, WaitPair]
    by_partition: dict[str, WaitPair]
    by_size: dict[str, WaitPair]
    left_out: int
    """Number of jobs without an observed start, or that did not start in the simulation."""
    median_abs_log_ratio: float
    """Median over the jobs of |log((simulated + 10 s) / (observed + 10 s))|: 0.16 to 0.22 between two
    real runs of the same submissions.
    """
    early: int
    """Number of jobs that start in the simulation more than a second before they are eligible."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def observed_against_simulated(
    source: Source,
    observed_start_s: Sequence[float] | Floats,
    eligible_s: Sequence[float] | Floats,
    partitions: Sequence[str] = (),
    became_eligible_s: Mapping[int, float] = MappingProxyType({}),
) -> ObservedWaits | None:
    """Compare waits job by job. Returns None if no job has both.

    ``observed_start_s`` and ``eligible_s`` have an entry for each job in the order of
    ``Record.job``, NaN if unknown; so has ``partitions``, unless it is empty. Both waits count from
    the time when the job could start, or from its arrival if that is unknown. So neither includes
    delays that no scheduler can avoid: a dependency, a hold, the delay of a requeue.
    ``became_eligible_s`` has the jobs whose time in the simulation is another than in the log. Jobs that
    arrived before the simulation began are left out, as in all metrics.
    """
    cols = columns(source)
    jobs = cols.jobs
    since_s = np.fmax(jobs.arrival_s, np.asarray(eligible_s, float))
    observed = np.maximum(np.asarray(observed_start_s, float) - since_s, 0.0)
    for job, time_s in became_eligible_s.items():
        since_s[job] = time_s
    unclipped = _first_start_s(cols) - since_s
    simulated = np.maximum(unclipped, 0.0)
    both = np.flatnonzero(np.isfinite(observed) & np.isfinite(simulated) & cols.counted)
    if not len(both):
        return None
    observed, simulated = observed[both], simulated[both]
    ratios = np.abs(np.log((simulated + _SLACK_S) / (observed + _SLACK_S)))
    tenants = [jobs.tenant[index] for index in both]
    sizes = np.searchsorted([most for most, _ in _SIZES], jobs.gpus[both])
    return ObservedWaits(
        _pair(observed, simulated),
        _grouped(tenants, observed, simulated),
        _grouped([partitions[index] for index in both.tolist()], observed, simulated) if any(partitions) else {},
        _grouped([_SIZES[size][1] for size in sizes], observed, simulated, [name for _, name in _SIZES]),
        int(cols.counted.sum()) - len(both),
        float(np.median(ratios)),
        int((unclipped[both] < -_EARLY_S).sum()),
    )


def _first_start_s(cols: ScheduleColumns) -> Floats:
    first = np.full(len(cols.jobs), np.inf)
    np.minimum.at(first, cols.runs.job, cols.runs.start_s)
    first[np.isinf(first) | (first < cols.begins_s)] = np.nan
    return first


def _grouped(
    labels: list[str], observed: Floats, simulated: Floats, order: Sequence[str] | None = None
) -> dict[str, WaitPair]:
    by_label: dict[str, list[int]] = {}
    for index, label in enumerate(labels):
        by_label.setdefault(label, []).append(index)
    names = sorted(by_label) if order is None else [name for name in order if name in by_label]
    return {name: _pair(observed[by_label[name]], simulated[by_label[name]]) for name in names}


def _pair(observed: Floats, simulated: Floats) -> WaitPair:
    return WaitPair(len(observed), Waits.of(observed), Waits.of(simulated), float((simulated - observed).mean()))
