"""Fit a workload of sessions (``dagsim.workload.sessions``) to the jobs of a trace.

Consecutive jobs of one tenant form a session if they have equal demands, and each job arrives at
most ``TOGETHER_S`` after the previous one. The fit estimates:

- the rate of sessions by hour of the day and day of the week
- the log-Gaussian fluctuations of that rate (by moments of the hourly counts at lags up to four
  days)
- jobs per session, gaps, and demands of jobs
- quantiles of work by kind (the largest is set to give the right mean)
- the similarity between the jobs in a session
- the inequality between tenants (Zipf)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import log

import numpy as np

from dagsim.errors import WorkloadError
from dagsim.model import Job
from dagsim.model.arithmetic import whole_sum
from dagsim.workload.arrivals import Rates, Swing
from dagsim.workload.distributions import AnyDistribution, Choice, Constant, Quantiles
from dagsim.workload.load import ArrivalTimes
from dagsim.workload.sessions import SessionKind, Sessions
from dagsim.workload.shapes import Shape, Single

TOGETHER_S = 60.0
"""Maximum gap, in seconds, between jobs of a session: same tenant, same demand."""
_RARE = 0.002
"""Kinds with a smaller share of the jobs are merged into the nearest frequent one."""
_VALUES = 10
"""Maximum number of values kept for each demand of an instance."""
_FEW_HOURS, _MANY_HOURS = (1, 2, 3, 4, 6, 8, 12), (24, 48, 72, 120)
_LAGS = range(1, 97)
# fmt: off
_POINTS = (0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1)
# fmt: on


@dataclass(frozen=True, slots=True)
class TraceColumns:
    """The jobs of a trace as arrays, with one entry per job, in order of arrival."""

    arrival_s: np.ndarray
    works: tuple[tuple[float, ...], ...]
    """Work of each task of the job."""
    kinds: tuple[tuple[float, ...], ...]
    """Priority and width, which distinguish kinds. The width is the number of GPUs of all
    instances, where any share of one GPU counts as 0.5; without GPUs it is minus the number of
    digits of the instance count."""
    tenants: tuple[str, ...]
    demands: tuple[tuple[float, float, float, int, bool], ...]
    """GPUs, cores and GB per instance of the widest task, its instances, and whether it is a gang."""


def columns_of(jobs: Iterable[Job]) -> TraceColumns:
    """Convert jobs to columns.

    Raises:
        WorkloadError: There are too few jobs for a fit.
    """
    kept = list(jobs)
    if len(kept) < 100:
        raise WorkloadError(f"fitting a workload needs at least 100 jobs, got {len(kept)}")
    widest = [max(job.tasks, key=lambda task: task.instances) for job in kept]
    return TraceColumns(
        np.array([job.arrival_s for job in kept]),
        tuple(tuple(task.work for task in job.tasks) for job in kept),
        tuple((job.priority, _wide(job)) for job in kept),
        tuple(job.tenant for job in kept),
        tuple((task.gpus, task.cpus, task.memory_gb, task.instances, task.gang) for task in widest),
    )


def fit_sessions(trace: TraceColumns, shape: Shape | None = None, skip: float = 0.01) -> Sessions:
    """Fit the workload to the jobs, leaving out the first fraction ``skip`` of them, which may have
    arrived before the log began.
    """
    since = round(skip * len(trace.arrival_s))
    times = trace.arrival_s[since:] - trace.arrival_s[since]
    kinds = _joined(trace.kinds[since:])
    tenants, works = trace.tenants[since:], trace.works[since:]
    members = _sessions(times, [*zip(tenants, kinds, strict=True)])
    starts = np.array([times[own[0]] for own in members])
    names = sorted(set(kinds))
    of = {name: [own for own in members if kinds[own[0]] == name] for name in names}
    gaps = np.concatenate([np.diff(times[own]) for own in members if len(own) > 1] or [np.zeros(1)])
    shares = Counter(tenants[own[0]] for own in members)
    several = len(shares) > 1
    return Sessions(
        tuple(_kind(name, of[name], len(members), works, trace.demands[since:]) for name in names),
        fit_arrivals(starts),
        quantiles(gaps),
        _alike(members, _ranks(np.array([work[0] for work in works]), kinds)),
        len(shares) if several else 0,
        _zipf([count for _, count in shares.most_common()]) if several else 1.0,
        Single() if shape is None else shape,
    )


def fit_arrivals(starts: np.ndarray) -> Rates:
    """Fit rates to sorted arrival times in seconds: daily and weekly cycles, and the fluctuations
    around them.
    """
    counts = np.bincount((starts // 3600).astype(int)).astype(float)
    if len(counts) > 1:
        counts = counts[: len(counts) - 1]  # leave out the last hour, which is incomplete
    else:
        times = ArrivalTimes()
        times.add_all(starts)
        counts *= 3600 / times.period_s if times.period_s else 1.0
    hours = np.arange(len(counts))
    day = _means(counts, hours % 24, 24)
    week = _means(counts, hours // 24 % 7, 7)
    cycle = day[hours % 24] * week[hours // 24 % 7]
    swings = _swings(counts / np.maximum(cycle, 0.05), float(counts.mean()))
    return Rates(_rounded(counts.mean()), tuple(map(_rounded, day)), tuple(map(_rounded, week)), swings)


def quantiles(values: np.ndarray, *, whole: bool = False) -> Quantiles:
    """Return a table of the quantiles of ``values`` at fixed probabilities, with three digits each.
    The last value is chosen so that the mean is right.
    """
    ordered = np.sort(values)
    table = [_rounded(value) for value in np.quantile(ordered, _POINTS, method="inverted_cdf")]
    table = np.maximum.accumulate(table).tolist()
    grid = (np.arange(20_000) + 0.5) / 20_000

    def mean(last: float) -> float:
        return float(Quantiles(_points([*table[:-1], last]), whole).at(grid).mean())

    low, high = table[-2], max(10 * table[-1], table[-2])
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if mean(middle) < float(values.mean()) else (low, middle)
    return Quantiles(_points([*table[:-1], max(_rounded(high), table[-2])]), whole)


def _points(values: Sequence[float]) -> tuple[tuple[float, float], ...]:
    return tuple(zip(map(float, _POINTS), map(float, values), strict=True))


def _wide(job: Job) -> float:
    """Return the number of GPUs of the widest task. If the job has no GPUs, return minus the number
    of digits in its largest number of instances.
    """
    gpus = max(task.gpus * task.instances for task in job.tasks)
    if gpus == 0:
        return -float(len(str(max(task.instances for task in job.tasks) - 1))) if _several(job) else 0.0
    return 0.5 if gpus < 1 else gpus


def _several(job: Job) -> bool:
    return any(task.instances > 1 for task in job.tasks)


def _joined(kinds: Sequence[tuple[float, ...]]) -> list[tuple[float, ...]]:
    """Replace each rare kind with the nearest frequent kind, preferably one with the same priority.
    Return the resulting kinds.
    """
    counts = Counter(kinds)
    frequent = [kind for kind, count in counts.items() if count >= _RARE * len(kinds)]

    def nearest(kind: tuple[float, ...]) -> tuple[float, ...]:
        return min(frequent, key=lambda other: (other[0] != kind[0], abs(other[1] - kind[1]), other))

    home = {kind: kind if kind in frequent else nearest(kind) for kind in counts}
    return [home[kind] for kind in kinds]


def _sessions(times: np.ndarray, keys: Sequence[object]) -> list[list[int]]:
    """Return the indices of the jobs in each session, with sessions in order of their first job."""
    latest: dict[object, list[int]] = {}
    sessions = []
    for place, (time_s, key) in enumerate(zip(times.tolist(), keys, strict=True)):
        own = latest.get(key)
        if own is None or time_s - times[own[-1]] > TOGETHER_S:
            own = latest[key] = []
            sessions.append(own)
        own.append(place)
    return sessions


def _kind(
    name: tuple[float, ...],
    sessions: Sequence[list[int]],
    of: int,
    works: Sequence[tuple[float, ...]],
    demands: Sequence[tuple[float, float, float, int, bool]],
) -> SessionKind:
    jobs = [place for own in sessions for place in own]
    mine = [demands[place] for place in jobs]
    gpus, cpus, memory_gb, instances = (_values([demand[column] for demand in mine]) for column in range(4))
    lengths = np.array([len(own) for own in sessions], float)
    gang = whole_sum(demand[4] for demand in mine) > 0
    return SessionKind(
        share=_rounded(len(sessions) / of),
        work=quantiles(np.array([work for place in jobs for work in works[place]])),
        jobs=quantiles(lengths, whole=True),
        instances=instances,
        gang=gang,
        gpus=gpus,
        cpus=cpus,
        memory_gb=memory_gb,
        priority=name[0],
    )


def _values(drawn: Sequence[float]) -> AnyDistribution:
    """Return a distribution that describes the values ``drawn``. It is a constant if there is a
    single value. If most values are among the most frequent ones, it consists of these with their
    weights. Otherwise, it consists of quantiles.
    """
    common = Counter(map(float, drawn)).most_common(_VALUES)
    if len(common) == 1:
        return Constant(common[0][0])
    total = whole_sum(count for _, count in common)
    if total < 0.9 * len(drawn):
        return quantiles(np.array(drawn, float), whole=all(value == int(value) for value in drawn))
    return Choice(tuple(value for value, _ in common), tuple(_rounded(count / total) for _, count in common))


def _ranks(work: np.ndarray, kinds: Sequence[tuple[float, ...]]) -> np.ndarray:
    """Return the rank of each job's work within its kind, from 0 to 1. Jobs with equal work share a
    rank.
    """
    ranks = np.zeros(len(work))
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
    labels = np.array([numbers[kind] for kind in kinds])
    for label in numbers.values():
        mine = np.flatnonzero(labels == label)
        ordered = np.sort(work[mine])
        below, upto = np.searchsorted(ordered, work[mine], "left"), np.searchsorted(ordered, work[mine], "right")
        ranks[mine] = (below + upto) / 2 / len(mine)
    return ranks


def _alike(members: Sequence[list[int]], ranks: np.ndarray) -> float:
    """Return the fraction of jobs that take about as long as the other jobs in their session. Two
    successive jobs are correlated only if both are such jobs, so the fraction is the square root of
    their rank correlation.
    """
    before = [place for own in members for place in own[:-1]]
    after = [place for own in members for place in own[1:]]
    if len(before) < 10:
        return 0.0
    return _rounded(max(0.0, float(np.corrcoef(ranks[before], ranks[after])[0, 1])) ** 0.5)


def _zipf(counts: Sequence[int]) -> float:
    """Return the maximum-likelihood estimate of the exponent of Zipf's law for ``counts``, in steps
    of 0.05.
    """
    ranks = np.log(np.arange(1, len(counts) + 1))
    seen = np.array(counts, float)

    def likelihood(exponent: float) -> float:
        weights = -exponent * ranks
        return float((seen * (weights - log(np.exp(weights).sum()))).sum())

    return max((round(0.05 * step, 2) for step in range(81)), key=likelihood)


def _means(counts: np.ndarray, places: np.ndarray, size: int) -> np.ndarray:
    """Return the mean count at each position, divided by the mean over all positions, or 1 if the trace
    has no counts.
    """
    sums, seen = np.bincount(places, counts, size), np.bincount(places, minlength=size)
    means = np.where(seen > 0, sums / np.maximum(seen, 1), counts.mean())
    return np.asarray(means / means.mean() if means.mean() else np.ones(size))


def _swings(flat: np.ndarray, mean: float) -> tuple[Swing, ...]:
    """Return two fluctuations, over hours and over days, whose covariance best fits the covariance of
    the hourly counts.

    The counts of a log-Gaussian Cox process with variances v and times h have the covariance mean^2
    (exp(sum of v exp(-k / h)) - 1) at lag k.
    """
    if len(flat) < 2 * _LAGS.stop or mean <= 0:
        return ()
    off = flat / flat.mean() - 1
    covariance = np.array([float((off[lag:] * off[:-lag]).mean()) for lag in _LAGS])
    target = np.log(1 + np.maximum(covariance, -0.9))
    lags = np.array(_LAGS, float)
    fits = []
    for few, many in product(_FEW_HOURS, _MANY_HOURS):
        basis = np.stack([np.exp(-lags / few), np.exp(-lags / many)])
        variances = _nonnegative(basis, target)
        error = float(((variances @ basis - target) ** 2).sum())
        fits.append((error, ((float(variances[0]), few), (float(variances[1]), many))))
    _, swings = min(fits, key=lambda fit: fit[0])
    return tuple(Swing(_rounded(variance**0.5), float(hours)) for variance, hours in swings if variance > 1e-4)


def _nonnegative(basis: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Solve the non-negative least squares problem for two rows of ``basis``."""
    both = np.linalg.lstsq(basis.T, target, rcond=None)[0]
    if both.min() >= 0:
        return np.asarray(both)
    alone = np.maximum((basis @ target) / (basis**2).sum(axis=1), 0)
    errors = [float(((alone[row] * basis[row] - target) ** 2).sum()) for row in range(2)]
    alone[int(np.argmax(errors))] = 0.0
    return np.asarray(alone)


def _rounded(value: float) -> float:
    return float(f"{float(value):.3g}")
