"""A snapshot of the queue as rows: the jobs to forecast, and what happened to them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dagsim.errors import TraceError
from dagsim.families.forecast.job_log import JobLog
from dagsim.families.forecast.queue_state import QueueState
from dagsim.families.forecast.reasons import Fate, is_limit, verdict_of
from dagsim.files import open_lines
from dagsim.traces import Trace, reader


class RowKind(IntEnum):
    """A kind of rows. Rows of the first two kinds are scored; rows of the last two get no forecast."""

    PLAIN = 0
    LIMITED = 1
    DEPENDENT = 2
    BEGIN_LATER = 3
    RESERVATION = 4
    NEVER = 5
    OUTSIDE = 6


KINDS = tuple([kind.name.lower().replace("_", " ") for kind in RowKind])
"""The name of each kind."""
SCORED = (RowKind.PLAIN, RowKind.LIMITED)
_REASONS = {"Dependency": RowKind.DEPENDENT, "BeginTime": RowKind.BEGIN_LATER, "Reservation": RowKind.RESERVATION}
_WITHOUT = {Fate.NEVER: RowKind.NEVER, Fate.OUTSIDE: RowKind.OUTSIDE}


class Listed(NamedTuple):
    """A waiting job or array as listed by the scheduler."""

    reason: str
    estimate_s: float
    """The scheduler's own estimate of the start, or NaN without one."""
    user: str = ""
    partition: str = ""
    after: tuple[str, ...] = ()
    """Submissions for which the job still waits."""
    one_of: bool = False
    """True if the job only has to wait for one of them."""
    priority: float | None = None


class Silent(NamedTuple):
    """A waiting job or array without a forecast."""

    name: str
    kind: RowKind
    """``NEVER`` or ``OUTSIDE``."""
    why: str


@dataclass(frozen=True, slots=True)
class QueueLog:
    """Listings of a queue over time (``squeue.tsv.gz``)."""

    times: list[float]
    listings: list[dict[str, Listed]]
    """For each time, the waiting jobs by the number of the submission."""

    def latest(self, t: float) -> int:
        """Return the index of the last listing at or before time ``t``, or -1 if there is none."""
        return bisect_right(self.times, t) - 1


_COLUMNS = ("epoch", "jobid", "state", "reason", "start_or_estimate")


def read_queue_log(path: Path) -> QueueLog:
    """Read listings of a queue: one row per job and time, with columns separated by ``|``.

    Raises:
        TraceError: The header lacks a column, or a row cannot be read.
    """
    listings: dict[float, dict[str, Listed]] = {}
    with open_lines(path, TraceError) as stream:
        names = stream.readline().strip().split("|")
        if missing := [name for name in _COLUMNS if name not in names]:
            raise TraceError(f"{path}: the header lacks {', '.join(missing)}; it contains {', '.join(names)}")
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
            # for the tasks of an array, use the earliest estimate
            if (other := listing.get(name)) is not None:
                estimate_s = float(np.fmin(estimate_s, other.estimate_s))
            listing[name] = Listed(reason.partition(",")[0], estimate_s)
    times = sorted(listings)
    return QueueLog(times, [listings[time] for time in times])


def read_reasons(trace: Trace) -> dict[str, Listed]:
    """Read what a snapshot states about its waiting jobs. The keys are the names of jobs or, for
    tasks of an array, the name of the array.
    """
    listing: dict[str, Listed] = {}
    for job in reader(trace.format).waiting(trace.source, trace.options.zone()):
        other = listing.get(job.name)
        estimate_s = np.nan if job.start_s is None else job.start_s
        estimate_s = estimate_s if other is None else float(np.fmin(estimate_s, other.estimate_s))
        listing[job.name] = Listed(job.reason, estimate_s, job.user, job.partition, job.after, job.one_of, job.priority)
    return listing


@dataclass(frozen=True, slots=True)
class Rows:
    """The n rows of the queue at one time that get a forecast, and the jobs that get none. The
    waiting tasks of an array form one row, which starts when the next task starts.
    """

    state: QueueState
    """The running and waiting jobs. Jobs that get no forecast are left out, because no simulation
    starts them."""
    members: Sequence[np.ndarray]
    """Indices into ``state.waiting`` of each row's jobs."""
    kind: np.ndarray
    """(n,) int64: the ``RowKind``."""
    estimate_s: np.ndarray
    """(n,) float64: the scheduler's estimate of the start, or NaN without one."""
    silent: Sequence[Silent] = ()

    def __len__(self) -> int:
        return len(self.members)

    @property
    def first(self) -> np.ndarray:
        """(n,) int64: index in the log of the first job of each row."""
        return np.array([self.state.waiting[places[0]] for places in self.members], np.int64)

    @property
    def age_s(self) -> np.ndarray:
        """(n,) float64: how long the first job of each row has been eligible to start."""
        ages = self.state.age_s
        return np.array([ages[places].max() for places in self.members])

    def chosen(self, places: Sequence[int]) -> Rows:
        """Return the rows at these indices."""
        members = [self.members[place] for place in places]
        return replace(self, members=members, kind=self.kind[list(places)], estimate_s=self.estimate_s[list(places)])

    def earliest(self, starts: np.ndarray) -> np.ndarray:
        """Return the first start of each row, (..., n). The last axis of ``starts`` contains the
        starts of the waiting jobs."""
        if not self.members:
            return np.zeros((*starts.shape[:-1], 0))
        return np.stack([starts[..., places].min(axis=-1) for places in self.members], axis=-1)


def rows_of(
    state: QueueState,
    listing: dict[str, Listed] | None,
    obstacle: Callable[[int], str] | None = None,
    *,
    keeps_all: bool = False,
) -> Rows:
    """Return the rows of a state. If there is a listing of the queue, return only the rows in the
    listing.

    ``obstacle`` describes what prevents the job at an index of the log from ever starting. If
    ``keeps_all`` is True, the state also contains the jobs that get no forecast.
    """
    log = state.log
    places: dict[str, list[int]] = {}
    names_of_jobs = log.array[state.waiting].tolist()
    for place, name in enumerate(names_of_jobs):
        places.setdefault(name, []).append(place)
    eligible_s, listed = state.eligible_s, listing or {}
    kinds: dict[str, RowKind] = {}
    silent: dict[str, Silent] = {}
    for name, members in places.items():
        job, entry = int(state.waiting[members[0]]), listed.get(name)
        kinds[name] = _kind(state, job, eligible_s[members], entry)
        fate = verdict_of("" if entry is None else entry.reason).fate
        if obstacle is not None and fate is Fate.KNOWN and (words := obstacle(job)):
            silent[name] = Silent(name, RowKind.NEVER, words)
    for name, entry in listed.items():
        verdict = verdict_of(entry.reason)
        if verdict.fate is not Fate.KNOWN:
            silent[name] = Silent(name, _WITHOUT[verdict.fate], f"{entry.reason}: {verdict.words}")
        elif (
            name in places.keys() - silent.keys()
            and entry.reason == "BeginTime"
            and not states_begin(log, state.waiting[places[name]])
        ):
            silent[name] = Silent(name, RowKind.OUTSIDE, "BeginTime: the listing does not state its begin time")
    _follow(state, listed, places, kinds, silent)
    for name in sorted(
        listed.keys() - places.keys() - silent.keys()
    ):  # some readers leave out jobs that wait for others
        if listed[name].after:
            silent[name] = Silent(name, RowKind.OUTSIDE, f"{listed[name].reason}: on job {listed[name].after[0]}")
    kept = np.array([keeps_all or name not in silent for name in names_of_jobs], bool)
    number = np.cumsum(kept) - 1
    names = [name for name in places if name not in silent and (listing is None or name in listing)]
    return Rows(
        replace(state, waiting=state.waiting[kept]),
        [number[places[name]] for name in names],
        np.array([kinds[name] for name in names], np.int64),
        np.array([np.nan if listing is None else listing[name].estimate_s for name in names], float),
        list(silent.values()),
    )


def _kind(state: QueueState, job: int, eligible_s: np.ndarray, entry: Listed | None) -> RowKind:
    """Return the kind of an array (or of a single job) by its first job, and by when its jobs are
    eligible."""
    reason = "" if entry is None else entry.reason
    kind = _REASONS.get(reason, RowKind.LIMITED if is_limit(reason) else RowKind.PLAIN)
    if kind == RowKind.PLAIN and np.isinf(eligible_s).all():
        is_later = state.log.begin_s[job] > state.t
        return RowKind.BEGIN_LATER if is_later else RowKind.DEPENDENT if entry is None else RowKind.PLAIN
    return kind


def states_begin(log: JobLog, jobs: np.ndarray) -> bool:
    """Return True if the listing of one of these jobs contains a begin time, even if that time has
    passed.
    """
    return bool((np.fmax(log.begin_s[jobs], log.eligible_s[jobs]) > log.submit_s[jobs]).any())


def _follow(
    state: QueueState, listing: Mapping[str, Listed], places: Mapping[str, list[int]], kinds: Mapping[str, RowKind],
    silent: dict[str, Silent],
) -> None:  # fmt: skip
    """Find the jobs that wait for a job without a forecast, for an unknown job, or for an unstated
    cause, and add them to ``silent``.
    """
    log, t = state.log, state.t
    running = dict(zip(log.array[state.running].tolist(), state.running.tolist(), strict=True))
    waiting = {*places, *listing}
    ended = set(log.array[: int(np.searchsorted(log.submit_s, t, "right"))].tolist()) - waiting - running.keys()

    def hurdle(other: str) -> tuple[RowKind, str] | None:
        """Return the kind and the reason if the end of a job is unknown, or None if the simulation
        determines it.
        """
        if other in silent:
            kind = silent[other].kind
            return kind, f"job {other}, which {'never starts' if kind == RowKind.NEVER else 'has no forecast either'}"
        if other not in waiting and other not in running:
            how = "has ended in another way" if other in ended else "neither runs nor waits here"
            return RowKind.OUTSIDE, f"job {other}, which {how}"
        if (job := running.get(other)) is not None and not log.limited[job]:
            return RowKind.OUTSIDE, f"job {other}, which has no time limit"
        return None

    needs = {}
    for name in waiting - silent.keys():
        entry = listing.get(name)
        if (entry.reason == "Dependency") if entry is not None else kinds[name] == RowKind.DEPENDENT:
            needs[name] = _needed(state, entry, places.get(name), ended)
    found = True
    while found:
        found = False
        for name, (others, one_of) in list(needs.items()):
            hurdles = [hurdle(other) for other in others]
            blocked = [one for one in hurdles if one is not None]
            if not others:
                silent[name] = Silent(name, RowKind.OUTSIDE, "Dependency: nobody states on which job")
            elif blocked and not (one_of and None in hurdles):
                kind, why = min(blocked)
                silent[name] = Silent(name, kind, f"Dependency: on {why}")
            else:
                continue
            found = True
            del needs[name]


def _needed(
    state: QueueState, entry: Listed | None, members: Sequence[int] | None, ended: Collection[str]
) -> tuple[tuple[str, ...], bool]:
    """Return the submissions for which a job waits, and True if one of them is enough. Submissions
    that have ended are returned only if the request names no others.
    """
    if entry is not None and entry.after:
        return entry.after, entry.one_of
    if members is None:
        return (), False
    log, job = state.log, int(state.waiting[members[0]])
    request = None if log.jobs.request is None else log.jobs.request.words[log.jobs.request.place[job]]
    parents = log.parents[job]
    return tuple([parent for parent in parents if parent not in ended]) or parents, bool(request and request.after_one)


def outcomes_of(log: JobLog, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Return the time at which each row's outcome is known, (n,), and True where the outcome is a
    start, (n,).
    """
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
