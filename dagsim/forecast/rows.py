"""Rows of the queue at an instant: what is forecast, and what became of it."""

from __future__ import annotations

import gzip
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dagsim.errors import TraceError
from dagsim.forecast.futures import QueueState
from dagsim.forecast.log import JobLog
from dagsim.traces.formats.kubernetes import waiting_workloads
from dagsim.traces.slurm_queue import is_squeue, waiting_reasons
from dagsim.traces.source import Source

KINDS = ("plain", "limited", "dependent", "begin later", "reservation", "never")
"""Kinds of rows. The first two are scored; the last gets no forecast."""
_PLAIN, _LIMITED, _DEPENDENT, _LATER, _RESERVED, _NEVER = range(len(KINDS))
_REASONS = {
    "Dependency": _DEPENDENT,
    "BeginTime": _LATER,
    "Reservation": _RESERVED,
    "DependencyNeverSatisfied": _NEVER,
    "JobHeldUser": _NEVER,
    "JobHeldAdmin": _NEVER,
}


_HELD_BACK = re.compile("Limit|Max|Grp|^quota$")


class Listed(NamedTuple):
    """A waiting job or array, as Slurm showed it."""

    reason: str
    estimate_s: float
    """Slurm's own estimate of the start, NaN if it had none."""


@dataclass(frozen=True, slots=True)
class QueueLog:
    """Listings of a queue over time (``squeue.tsv.gz``)."""

    times: list[float]
    listings: list[dict[str, Listed]]
    """For each time, the waiting jobs by the number of their submission."""

    def latest(self, t: float) -> int:
        """Place of the last listing at or before ``t``; -1 if there is none."""
        return bisect_right(self.times, t) - 1


_COLUMNS = ("epoch", "jobid", "state", "reason", "start_or_estimate")


def read_queue_log(path: Path) -> QueueLog:
    """Read listings of a queue, one row per job and time, with columns between ``|``.

    Raises:
        TraceError: The header lacks a column, or a row cannot be read.
    """
    listings: dict[float, dict[str, Listed]] = {}
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as stream:
        names = stream.readline().strip().split("|")
        if missing := [name for name in _COLUMNS if name not in names]:
            raise TraceError(f"{path}: the header lacks {', '.join(missing)}; it has {', '.join(names)}")
        at = [names.index(name) for name in _COLUMNS]
        for number, line in enumerate(stream, 2):
            fields = line.rstrip("\n").split("|")
            try:
                epoch, job, state, reason, start = (fields[place] for place in at)
                listing = listings.setdefault(float(epoch), {})
            except (IndexError, ValueError):
                raise TraceError(f"{path}:{number}: expected {', '.join(_COLUMNS)}, got {line.strip()!r}") from None
            if state not in ("PD", "PENDING"):
                continue
            estimate_s = float(start) if start.isdigit() else np.nan
            name = job.partition("_")[0]
            if (other := listing.get(name)) is not None:  # tasks of an array: the earliest counts
                estimate_s = float(np.fmin(estimate_s, other.estimate_s))
            listing[name] = Listed(reason.partition(",")[0], estimate_s)
    times = sorted(listings)
    return QueueLog(times, [listings[time] for time in times])


def read_reasons(source: Source) -> dict[str, Listed]:
    """Read what a snapshot says of its waiting jobs, by their names (of arrays: the array's)."""
    if not is_squeue(source):
        return {name: Listed(reason, np.nan) for name, reason in waiting_workloads(source)}
    listing: dict[str, Listed] = {}
    for name, reason, start_s in waiting_reasons(source):
        other = listing.get(name)
        estimate_s = np.nan if start_s is None else start_s
        listing[name] = Listed(reason, estimate_s if other is None else float(np.fmin(estimate_s, other.estimate_s)))
    return listing


@dataclass(frozen=True, slots=True)
class Rows:
    """The n rows of the queue at an instant. The waiting tasks of an array are one row, whose start
    is that of the next of them.
    """

    state: QueueState
    members: Sequence[np.ndarray]
    """Indices into ``state.waiting`` of the jobs of each row."""
    kind: np.ndarray
    """(n,) int64: index in ``KINDS``."""
    estimate_s: np.ndarray
    """(n,) float64: Slurm's estimate of the start, NaN without one."""

    def __len__(self) -> int:
        return len(self.members)

    @property
    def first(self) -> np.ndarray:
        """(n,) int64: index in the log of the first job of each row."""
        return np.array([self.state.waiting[places[0]] for places in self.members], np.int64)

    @property
    def age_s(self) -> np.ndarray:
        """(n,) float64: how long the first job of each row could have started."""
        ages = self.state.age_s
        return np.array([ages[places].max() for places in self.members])

    def chosen(self, places: Sequence[int]) -> Rows:
        """The rows at these places."""
        members = [self.members[place] for place in places]
        return Rows(self.state, members, self.kind[list(places)], self.estimate_s[list(places)])

    def eligible(self) -> Rows:
        """The rows of jobs that can become eligible: only these get a forecast."""
        return self.chosen(np.flatnonzero(self.kind != _NEVER).tolist())

    def earliest(self, starts: np.ndarray) -> np.ndarray:
        """(..., n) first starts of each row, from those of the waiting jobs in the last axis."""
        if not self.members:
            return np.zeros((*starts.shape[:-1], 0))
        return np.stack([starts[..., places].min(axis=-1) for places in self.members], axis=-1)


def rows_of(state: QueueState, listing: dict[str, Listed] | None) -> Rows:
    """The rows of a state; with a listing of the queue, those that it shows."""
    log = state.log
    places: dict[str, list[int]] = {}
    for place, name in enumerate(log.array[state.waiting].tolist()):
        if listing is None or name in listing:
            places.setdefault(name, []).append(place)
    eligible_s, kinds, estimates = state.eligible_s, [], []
    for name, listed in places.items():
        job = state.waiting[listed[0]]
        kind, estimate_s = _PLAIN, np.nan
        if np.isinf(eligible_s[listed]).all():
            kind = _LATER if log.begin_s[job] > state.t else _DEPENDENT
        if listing is not None:
            reason, estimate_s = listing[name]
            kind = _REASONS.get(reason, _LIMITED if _HELD_BACK.search(reason) else _PLAIN)
        kinds.append(kind)
        estimates.append(estimate_s)
    return Rows(
        state,
        [np.array(listed) for listed in places.values()],
        np.array(kinds, np.int64),
        np.array(estimates, float),
    )


def outcomes_of(log: JobLog, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """When the outcome of each row is known (n,), and whether it is a start (n,)."""
    seen_s, started = np.zeros(len(rows)), np.zeros(len(rows), bool)
    for number, places in enumerate(rows.members):
        jobs = rows.state.waiting[places]
        begin_s = log.start_s[jobs]
        started[number] = np.isfinite(begin_s).any()
        if started[number]:
            seen_s[number] = np.nanmin(begin_s)
        else:
            end_s = log.end_s[jobs]
            seen_s[number] = log.ends_s if np.isnan(end_s).any() else end_s.max()
    return seen_s, started
