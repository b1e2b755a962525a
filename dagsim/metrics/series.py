"""Intervals from a single long run. The values of its jobs, in order of arrival, are divided into
blocks that are as long as the autocorrelation of the values requires.

A metric of jobs (``wait_s.p95``) is written as the mean of a series with one entry per job, its
*influences*. For a mean, these are the values themselves. For a quantile q of order p, they are q +
(1{x > q} - (1 - p)) / f, where f is the density at q (Bahadur 1966). The variance of that mean
follows from the means of blocks of consecutive jobs. A block is at least two integrated
autocorrelation times long (Sokal 1997, "Monte Carlo methods in statistical mechanics", section 3),
because shorter blocks are not independent.

A few busy weeks cause most of the waiting. The density at a percentile therefore often comes from a
single episode, and the influences do not show how different other periods are. A percentile varies
at least as much as the level of the values. Its standard error is therefore at least the standard
error of the log of their mean, which the jackknife over the same blocks gives (Quenouille 1956).
``scripts/validate_plan.py --coverage`` measures the coverage.

The interval of a change refers to the long-run ratio, over many logs like this one. A few long jobs
determine this ratio, and a log that happens to contain none of them varies too little. The interval
therefore has three parts (``_reach_of_change``). The first is the spread of blocks. The second is
the number of busy periods that cause the difference. The third is the number of jobs that dominate
the second moment of run times, on which mean waits depend (Pollaczek 1930, Kingman 1961). If one of
the two numbers is too small, there is no interval. There is also no interval if the log is short
compared with the time after which a queue at that load no longer depends on its past
(``_relaxation_times``), even if the values in the log hardly vary. The constants were chosen on
some seeds of M/G/c queues, and ``scripts/validate_coverage.py`` measures the coverage on other
seeds.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, inf, isfinite, log, log1p, nan, sqrt
from typing import Any, NamedTuple

import numpy as np

from dagsim.metrics.columns import AnySchedule, Flags, Floats, Ints, columns
from dagsim.metrics.jct import bounded_slowdown, bounded_stretch, jct, queueing, stretch, wait
from dagsim.metrics.student import t_quantile, two_sided_p

_VALUES = {
    "jct_s": jct,
    "wait_s": wait,
    "queueing_s": queueing,
    "bounded_slowdown": bounded_slowdown,
    "stretch": stretch,
    "bounded_stretch": bounded_stretch,
}
_ORDERS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_NAME = re.compile(
    rf"(?:(?P<kind>tenant|account|user|partition|qos)\[(?P<group>.*)\]\.)?(?P<values>{'|'.join(_VALUES)})\.(?P<part>mean|p50|p95|p99)"
)

_PIECES = 400
"""Number of parts into which the run is divided to measure autocorrelation."""
_TIMES = 2
"""Length of a block in integrated autocorrelation times. Neighbouring blocks are still correlated,
which makes the variance of their mean too small by about 1 / (2 x _TIMES); ``_half`` corrects that.
"""
_SOKAL = 4
"""Autocorrelations are summed up to this number of integrated autocorrelation times."""
_SHORT = 16
"""The variance of a run of n integrated autocorrelation times is multiplied by 1 + _SHORT / n,
because short runs miss the longest queues and therefore appear calmer than the system is. The
constant was measured on M/M/c queues.
"""
_WIDE = 2.0
"""An interval that extends further than this factor from its value is too wide to be
informative.
"""
_BLIND = 1000.0
"""An interval that extends further than this factor from its value is left out."""
_FEWEST, _MOST = 3, 16
"""Smallest and largest number of blocks. With fewer blocks, there is no interval. More blocks would
narrow the interval by less than 9%, but would be shorter.
"""


_PERIODS = 80
"""Minimum length of a run for an interval of a change, in integrated autocorrelation times and in
relaxation times of the run's queue. If the run is n times as long as this minimum, the interval is
widened by the factor 1 + 1 / n^2, because runs that look long by chance also look calm.
"""
_LONG_JOBS = 40
"""For an interval of a change, at least this many jobs must dominate the second moment of run
times."""
_ENOUGH_LONG_JOBS = 300
"""With at least this many such jobs, nothing is added for longer jobs that the log may have
missed.
"""
_CHANGE_BLOCKS = range(4, 17)
"""The numbers of blocks for which the spread of a change is computed. The largest spread is
used.
"""
_MOST_EPISODES = 100
"""Maximum number of blocks for counting busy periods."""
_SKEW = 1.6
"""Factor by which this spread is multiplied, because differences are skewed and neighbouring blocks
are correlated.
"""
_EPISODES = 2.0
"""Factor by which the uncertainty of the number of busy periods is multiplied, because busy periods
differ in size.
"""
_LEAST_REACH = 5e-3
"""An interval of a change always extends at least half a percent from its value, because logs in
which hardly any job waits cannot show smaller changes."""


class Period(NamedTuple):
    """The value of a metric in a run, and the interval for its value in the next period. The next
    period has the same length and the same demand as the run.
    """

    value: float
    low: float
    high: float
    """NaN without an interval."""
    blocks: int
    """Number of independent blocks in the run, or 0 if the metric has no series."""
    longer: float
    """How many times as long the run would have to be for an interval that extends at most a factor
    of 2 from the value. It is 1 if the run is long enough.
    """


class Change(NamedTuple):
    """The ratio of a metric to its value in another run of the same jobs, and the interval for the
    long-run ratio under the same demand.
    """

    ratio: float
    low: float
    high: float
    """NaN without an interval."""
    p: float
    """Two-sided p-value for a ratio of 1. It is below 0.05 if the interval excludes 1, and NaN
    without an interval."""
    blocks: int
    """The length of the run in integrated autocorrelation times, or 0 if the metric has no
    series.
    """
    longer: float
    """See ``Period.longer``."""


@dataclass(frozen=True, slots=True, eq=False)
class JobSeries:
    """The values of each job in a run, in order of arrival."""

    values: dict[str, Floats]
    """NaN for jobs that did not complete."""
    tenant: Ints
    tenants: tuple[str, ...]
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Other labels of each job, such as ``partition``. They are not part of the file."""
    goes_on: bool = True
    """False if all jobs were in the system at one moment, as in a snapshot. They contain no
    information about other periods, so there are no intervals. This value is not part of the file.
    """
    load: float = nan
    """The load that the jobs offer to the cluster, or NaN if unknown. It is not part of the
    file.
    """

    @classmethod
    def of(cls, source: AnySchedule) -> JobSeries:
        """Return the series for those jobs in a schedule that metrics count."""
        cols = columns(source)
        counted = cols.counted
        tenants, tenant = np.unique(np.array(cols.jobs.tenant, dtype=str)[counted], return_inverse=True)
        values = {name: np.where(cols.jobs.finished, of(cols), np.nan)[counted] for name, of in _VALUES.items()}
        return cls(values, tenant.astype(np.int64), tuple(tenants.tolist()))

    @classmethod
    def read(cls, content: bytes) -> JobSeries:
        """Read a series that ``to_bytes`` wrote.

        Raises:
            ValueError, KeyError, OSError: The content is damaged.
        """
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            return cls({name: file[name] for name in _VALUES}, file["tenant"], tuple(file["tenants"].tolist()))

    def to_bytes(self) -> bytes:
        """Pack the values into bytes. Equal values give equal bytes."""
        buffer = io.BytesIO()
        content: dict[str, Any] = {"tenant": self.tenant, "tenants": np.array(self.tenants, dtype=str), **self.values}
        np.savez_compressed(buffer, **content)
        return buffer.getvalue()

    def between(self, first: int, last: int | None) -> JobSeries:
        """Return the series for the jobs from ``first`` up to but not including ``last``, in order
        of arrival.
        """
        values = {name: column[first:last] for name, column in self.values.items()}
        labels = {kind: words[first:last] for kind, words in self.labels.items()}
        return replace(self, values=values, tenant=self.tenant[first:last], labels=labels)

    @property
    def completed(self) -> Flags:
        """True for the jobs that completed."""
        return np.isfinite(next(iter(self.values.values())))

    def where_completed(self, other: JobSeries) -> JobSeries:
        """Return the same series, with NaN for jobs that another run did not complete."""
        values = {name: np.where(other.completed, of, np.nan) for name, of in self.values.items()}
        return replace(self, values=values)

    def value(self, metric: str) -> float | None:
        """Return the metric over these jobs. It is None if the metric is not a mean or a percentile
        over jobs, and NaN if there are no jobs.
        """
        match = _NAME.fullmatch(metric)
        if match is None:
            return None
        values = self.values[match["values"]][self._counted(match)]
        if not len(values):
            return nan
        return float(values.mean() if match["part"] == "mean" else np.quantile(values, _ORDERS[match["part"]]))

    def unknown_group(self, metric: str) -> str:
        """Return a sentence if the metric refers to a group, such as a partition, to which no job
        belongs. The result is empty for all other metrics.
        """
        match = _NAME.fullmatch(metric)
        if match is None or (kind := match["kind"]) is None:
            return ""
        groups = sorted(set(self.labels.get(kind, self.tenants if kind == "tenant" else ())))
        if match["group"] in groups:
            return ""
        listed = f"the log has {', '.join(map(repr, groups[:20]))}" if groups else f"the log has no {kind}s"
        return f"there is no {kind} {match['group']!r}; {listed}"

    def _counted(self, match: re.Match[str]) -> Flags:
        """Return a mask of the jobs that a metric counts."""
        counted: Flags = np.isfinite(self.values[match["values"]])
        kind, group = match["kind"], match["group"]
        if kind in self.labels:
            counted &= np.array(self.labels[kind], dtype=object) == group
        elif kind == "tenant":
            counted &= self.tenant == (self.tenants.index(group) if group in self.tenants else -1)
        elif kind is not None:
            counted &= False
        return counted

    def run_s(self) -> Floats:
        """Return the seconds from the first start to the end of each completed job. If the series
        lacks these times, all values are equal."""
        if not {"jct_s", "wait_s"} <= self.values.keys():
            return np.ones(len(self.tenant))
        run_s = self.values["jct_s"] - self.values["wait_s"]
        run_s = np.maximum(run_s[np.isfinite(run_s)], 0.0)
        return run_s if run_s.any() else np.ones(len(run_s))

    def with_waits(self, metric: str) -> tuple[Floats, Floats]:
        """Return two arrays (jobs,) float64: the values that a metric counts, and the part of each
        value that comes from waiting. Both are 0 for jobs that the metric does not count.
        """
        match = _NAME.fullmatch(metric)
        assert match is not None
        values = np.where(self._counted(match), self.values[match["values"]], 0.0)
        if match["values"].endswith("_s"):
            part = "queueing_s" if match["values"] == "jct_s" else match["values"]
            waits = np.where(values > 0, self.values.get(part, self.values.get("wait_s", values)), 0.0)
        else:
            waits = np.maximum(values - 1.0, 0.0)
        return values, waits

    def influences(self, metric: str) -> Floats | None:
        """Return the influences of the jobs, (jobs,) float64, whose mean is the metric. For a job
        that the metric does not count, the influence is equal to the metric. Return None if the
        metric is not a mean or a percentile over jobs.
        """
        match = _NAME.fullmatch(metric)
        if match is None:
            return None
        values = self.values[match["values"]]
        counted = self._counted(match)
        if not counted.any():
            return None
        mine = values[counted]
        if match["part"] != "mean":
            mine = _of_quantile(mine, _ORDERS[match["part"]])
        centre = mine.mean()
        # Jobs without a value keep the influence ``centre``. Scale up the other influences, so that
        # the mean over all jobs has the same variance as the mean over the counted jobs.
        influences = np.full(len(values), centre)
        influences[counted] = centre + (mine - centre) * (len(values) / len(mine))
        return influences


def next_period(series: JobSeries, metric: str, value: float) -> Period:
    """Return the interval of ``metric``, whose value in this run is ``value``, for the next period.

    This period's value and the next period's value have the same variance. The variance of the
    interval is the sum of the two.
    """
    influences = series.influences(metric) if series.goes_on else None
    if influences is None or not isfinite(value):
        return Period(value, nan, nan, 0, 1.0)
    if value <= 0:
        return Period(value, nan, nan, 0, 1.0)
    half, blocks, longer = _half(influences / value, series.influences(_mean_of(metric)))
    if not isfinite(half):
        return Period(value, nan, nan, blocks, longer)
    reach = sqrt(2) * half * t_quantile(0.95, blocks - 1)
    return Period(value, *_around(value, reach), blocks, _longer(reach))


def change_of(series: JobSeries, value: float, before: JobSeries, value_before: float, metric: str) -> Change:
    """Return the ratio of ``value`` to ``value_before``, the values of ``metric`` in two runs of
    the same jobs. If the runs did not complete the same jobs, the ratio covers the jobs that both
    runs completed, and is NaN for metrics that are not computed from jobs.
    """
    if not np.array_equal(series.completed, before.completed):
        series, before = series.where_completed(before), before.where_completed(series)
        value, value_before = (nan if (own := jobs.value(metric)) is None else own for jobs in (series, before))
    ours, theirs = series.influences(metric), before.influences(metric)
    if not (value > 0 and value_before > 0):
        return Change(nan, nan, nan, nan, 0, 1.0)
    ratio = value / value_before
    if ours is None or theirs is None or not series.goes_on:
        return Change(ratio, nan, nan, nan, 0, 1.0)
    reach, periods, longer = _reach_of_change(series, before, metric, ours / value - theirs / value_before)
    if not isfinite(reach):
        return Change(ratio, nan, nan, nan, periods, longer)
    df = _CHANGE_BLOCKS[-1] - 1
    p = nan if ratio == 1 else float(two_sided_p(log(ratio) / reach * t_quantile(0.95, df), df))
    return Change(ratio, *_around(ratio, reach), p, periods, _longer(reach))


def _reach_of_change(series: JobSeries, before: JobSeries, metric: str, influences: Floats) -> tuple[float, int, float]:
    """Return three numbers. The first is how far the interval of a change reaches on each side, on
    a logarithmic scale. The second is the length of the run in integrated autocorrelation times.
    The third is how many times as long the run would have to be for a narrow interval. The first
    number is NaN if the run is too short.

    The spread of the influences between blocks misses rare events. Suppose that N busy periods
    cause the whole difference. Then N is the value of a Poisson variable, whose mean may plausibly
    be larger than N by some factor. In the long run, the waits under both policies may exceed the
    waits in the log by the same factor. N is (sum of d)^2 / (sum of d^2) of the absolute
    differences d between blocks. Even if the two runs are equal, one busy period may differ. Long
    jobs are counted in the same way, by the squares of their run times.
    """
    parts = min(_PIECES, len(influences))
    levels = [jobs.influences(_mean_of(metric)) for jobs in (series, before)]
    pieces = [_means(of, parts) for of in (influences, *levels) if of is not None]
    with_waits = [jobs.with_waits(metric) for jobs in (series, before)]
    slow = [*pieces, *[_means(waits, parts) for _, waits in with_waits]]
    periods = parts / max(map(_autocorrelation_time, slow))
    long_jobs = min(_equals(jobs.run_s() ** 2) for jobs in (series, before))
    relaxations = min(map(_relaxation_times, (series, before)))
    longer = max(_PERIODS / periods, _LONG_JOBS / long_jobs, _PERIODS / relaxations)
    if longer > 1:
        return nan, int(periods), longer
    spread = max(t_quantile(0.95, blocks - 1) * _spread(pieces, blocks) for blocks in _CHANGE_BLOCKS)
    blocks = min(int(periods), _MOST_EPISODES)
    (ours, our_waits), (theirs, waits) = ([_means(of, blocks) for of in both] for both in with_waits)
    further = _EPISODES * _more_than(_equals(np.abs(ours - theirs)))
    our_total, total, waiting = (float(of.sum()) for of in (ours, theirs, waits))
    longer_waits = log1p(further * float(our_waits.sum()) / our_total) - log1p(further * waiting / total)
    one_period = further * waiting / total / _equals(waits)
    reach = max(_SKEW * spread, abs(longer_waits), one_period)
    reach *= (1 + (_PERIODS / periods) ** 2) * max(_ENOUGH_LONG_JOBS / long_jobs, 1.0)
    return max(reach, _LEAST_REACH), int(periods), 1.0


def _relaxation_times(series: JobSeries) -> float:
    """Return the length of a run in relaxation times of its queue. After one relaxation time, the
    length of a queue hardly depends on its past. The result is infinite if the load is unknown, or
    if it is 1 or more, in which case there is no relaxation time.

    In heavy traffic, the backlog of work is a Brownian motion with drift. It relaxes within (load /
    (1 - load))^2 (1 + cv^2) arrivals, where cv is the coefficient of variation of run times (Abate
    and Whitt 1987, "Transient behavior of regulated Brownian motion I"). The log may have missed
    long jobs, so the load is assumed to be one standard error above the load in the log.
    """
    run_s = series.run_s()
    if not 0 < series.load < 1 or not len(run_s):
        return inf
    spread = 1 + float(run_s.var() / run_s.mean() ** 2)
    load = series.load * (1 + sqrt(spread / len(run_s)))
    load = load if load < 1 else series.load
    return len(run_s) * ((1 - load) / load) ** 2 / spread


def _spread(pieces: Sequence[Floats], blocks: int) -> float:
    """Return the standard error of the mean of the first series in ``pieces``, estimated from
    blocks. It is at least the standard error of the log of the mean of the second series or, if
    there is a third, of the ratio between these two (``_jackknife``).
    """
    first, *levels = [_means(of, blocks) for of in pieces]
    return float(np.fmax(first.std(ddof=1) / sqrt(blocks), _jackknife(levels)))


def _equals(values: Floats) -> float:
    """Return the number of equal values that would have the same sum and the same sum of squares as
    ``values``, but at least 1. No value may be negative.
    """
    return max(float(values.sum() ** 2 / (values**2).sum()), 1.0) if values.any() else 1.0


def _more_than(number: float) -> float:
    """Return by how much the mean number of events may exceed the observed ``number``, as a
    fraction of ``number``, at a level of 2.5% (Byar's approximation, Breslow and Day 1987,
    "Statistical methods in cancer research II", section 2.3).
    """
    following = number + 1
    return following * (1 - 1 / (9 * following) + 1.96 / (3 * sqrt(following))) ** 3 / number - 1


def _around(value: float, reach: float) -> tuple[float, float]:
    """Return the interval from ``reach`` below to ``reach`` above a value, on a logarithmic scale.
    The ends are NaN if the interval is too wide to be useful.
    """
    return (value / exp(reach), value * exp(reach)) if reach <= log(_BLIND) else (nan, nan)


def _longer(reach: float) -> float:
    """Return how many times as long a run would have to be for a narrow interval. ``reach`` is the
    distance of the ends on a logarithmic scale, which shrinks with the square root of the length.
    """
    return max((reach / log(_WIDE)) ** 2, 1.0)


def _mean_of(metric: str) -> str:
    """Return the name of the metric that is the mean of the same values. It is needed because a
    percentile changes as slowly as the queue does, although only few jobs exceed it.
    """
    return f"{metric.rpartition('.')[0]}.mean"


def _of_quantile(values: Floats, order: float) -> Floats:
    """Return the influences on a quantile. The density there is estimated from the slope of the
    neighbouring empirical quantiles."""
    near = min(0.02, (1 - order) / 2)
    low, quantile, high = np.quantile(values, [order - near, order, order + near])
    influences: Floats = quantile + ((values > quantile) - (1 - order)) * ((high - low) / (2 * near))
    return influences


def _half(influences: Floats, *levels: Floats | None) -> tuple[float, int, float]:
    """Return the standard error of the mean of a stationary series, estimated from its blocks. Also
    return the number of blocks, and the factor by which the series would have to be longer to have
    enough blocks. The standard error is NaN if there are too few blocks.

    ``levels`` are up to two further series. Blocks are long enough for the series with the longest
    autocorrelation. The result is at least the standard error of the logarithm of the mean of the
    first of ``levels`` or, with two of them, of the logarithm of their ratio.
    """
    parts = min(_PIECES, len(influences))
    pieces = _means(influences, parts)
    if not np.ptp(pieces) > 1e-12 * np.abs(pieces).max():
        return 0.0, _FEWEST, 1.0
    slow = [_means(level, parts) for level in levels if level is not None]
    needed = _TIMES * max(map(_autocorrelation_time, [pieces, *slow]))
    blocks = min(int(len(pieces) / needed), _MOST)
    if blocks < _FEWEST:
        return nan, blocks, _FEWEST * needed / len(pieces)
    half = float(_means(pieces, blocks).std(ddof=1)) / sqrt(blocks)
    level = _jackknife([_means(level, blocks) for level in slow])
    if not isfinite(level):
        return nan, blocks, _FEWEST
    half = max(half, level)
    return half * sqrt((1 + _SHORT * needed / (_TIMES * len(pieces))) / (1 - 1 / (2 * _TIMES))), blocks, 1.0


def _jackknife(levels: Sequence[Floats]) -> float:
    """Return the jackknife standard error of the log of a mean. ``levels`` contains the means of
    the blocks of one series, or of two series. With two, the result is the standard error of the
    log of the ratio of their means. The result is NaN if a single block contains the whole sum.
    """
    others = [level.sum() - level for level in levels]
    if not all((other > 0).all() for other in others):
        return nan
    logs, *rest = [np.log(other) for other in others]
    for other in rest:
        logs = logs - other
    return float(logs.std() * sqrt(len(logs) - 1))


def _autocorrelation_time(values: Floats) -> float:
    """Return 1 + 2 x the sum of the autocorrelations, but at least 1. The sum is truncated after a
    lag of ``_SOKAL`` times the result.

    The mean is estimated from the series itself, which biases the autocorrelations of a short
    series downwards. For a sum of w autocorrelations, the factor 1 + (2 w + 1) / n corrects this
    (Wolff 2004, "Monte Carlo errors with less errors", equation 49).
    """
    centred, n = values - values.mean(), len(values)
    if not np.ptp(values) > 0:
        return 1.0
    spectrum = np.fft.rfft(centred, 2 * n)
    covariances = np.fft.irfft(spectrum * np.conj(spectrum))[:n]
    times = 1 + 2 * np.cumsum(covariances[1:] / covariances[0])
    enough = np.flatnonzero(np.arange(1, n) >= _SOKAL * times)
    if not len(enough):
        return float(n)
    window = int(enough[0]) + 1
    return max(float(times[enough[0]]) * (1 + (2 * window + 1) / n), 1.0)


def _means(values: Floats, parts: int) -> Floats:
    """Return the means of consecutive parts of almost equal length."""
    return np.array([part.mean() for part in np.array_split(values, parts)])
