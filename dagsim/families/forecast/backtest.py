"""Back-tests: make forecasts for past times from what was known then, and compare them with what
happened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from math import log1p, nan
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from dagsim.config.schema import Config
from dagsim.errors import InputError, SimulationError
from dagsim.families.forecast.calibration import Outcomes, calibrated, censoring_weights, pooled
from dagsim.families.forecast.futures import Player, policy_of, starts_by
from dagsim.families.forecast.job_log import JobLog, read_job_log
from dagsim.families.forecast.journal import HORIZONS
from dagsim.families.forecast.members import Forecaster, KnownPast, is_long
from dagsim.families.forecast.queue_rows import KINDS, SCORED, QueueLog, Rows, outcomes_of, read_queue_log
from dagsim.families.forecast.queue_state import QueueState
from dagsim.families.forecast.scores import CEILING, LEVELS, MEDIAN, Score, crps, log_wait, ratio, score
from dagsim.families.forecast.time_spans import HOUR_S
from dagsim.model.arithmetic import DAY_S, whole_sum
from dagsim.systems.cluster.scenario import cluster_scenario_of
from dagsim.traces import format_of, reader
from dagsim.workers import end_with_parent, kill_workers, leave_to_workers, starting
from dagsim.workload.accept import accepting
from dagsim.workload.array_tools import objects

BASELINES = ("slurm", "limits", "history", "history_account", "qbets", "limits_history")
_SIMPLE = ("limits", "history", "history_account", "qbets")
_MEMBERS = ("arrivals", "runs", "history_account")
_MOST_INSTANTS, _LEAST_EVERY_S = 72, 600.0
"""Defaults: the number of times at which forecasts are made, and the minimum number of seconds
between two of them."""
_WARM_UP, _LEAST_RESOLVED = 0.1, 40
"""Scoring begins after this share of the forecast times, and after this number of starts for which
there were forecasts."""
_MOST_CHUNK = 16
"""Maximum number of times that a process handles before it returns their forecasts."""
_REFUTED_S = 300.0
"""Once a job has waited for this long, a forecast that it starts immediately counts as wrong."""
_REFUTED_AGES_S = (2 * HOUR_S, 12 * HOUR_S)
"""Ages that divide these jobs into ranges of their own, which follow the ranges of the median forecast."""
_FIRST_REFUTED, _MOST_RANGES = 10, 100
"""Number of the first of these ranges, and a number that is larger than that of any range."""
_MANY_CENSORED = 0.05
"""If a larger share of the forecasts has no start, scores with inverse-censoring weights are
added."""
_NOW = log1p(60.0)
"""A wait of up to this many seconds counts as an immediate start."""
_HORIZONS = np.log1p([*HORIZONS.values()][:-1])
_LISTINGS = ("squeue.tsv.gz", "squeue.tsv")
"""File names of queue listings in a folder."""


def read_backtest(config: Config, path: Path, policy: str | None) -> tuple[JobLog, QueueLog | None, Player]:
    """Return the log that is the workload of a configuration, the listings of the queue if a folder
    contains them, and a player that simulates futures of the log. If ``policy`` is given, its
    simulated starts replace the starts in the log, unless the log is Slurm's.

    Raises:
        InputError: The log cannot be read, or has no starts.
    """
    scenario, file, queue = cluster_scenario_of(config), config.trace(), None
    log = read_job_log(path, file.options, file.format or format_of(path, file.options))
    if log is not None:
        listings = [listing for name in _LISTINGS if (listing := path / name).is_file()] if path.is_dir() else []
        queue = read_queue_log(listings[0]) if listings else None
    else:
        trace = file.open(scenario.cluster, scenario.runtime)
        jobs = trace.unscaled()
        start_s = None if policy is None else starts_by(scenario, policy, jobs)
        if policy is None and (waits := reader(trace.format).waits_s(trace.source)):
            start_s = jobs.arrival_s + [waits.get(id, nan) for id in jobs.ids.tolist()]
        log = JobLog.of(jobs, trace.meta["origin_s"], start_s)
    log = replace(log, jobs=accepting(log.jobs, scenario.accept, scenario.runtime, scenario.cluster.gpu_types))
    return log, queue, Player(scenario, policy or policy_of(config), log)


def instants_of(
    log: JobLog, queue: QueueLog | None, since_s: float, until_s: float, every_s: float | None
) -> list[float]:
    """Return the times of the forecasts in a back-test, from ``since_s`` to ``until_s`` but no
    later than the last submission. If there are listings of the queue, each of these times is
    replaced by that of the latest listing. By default, there are about 70 times, at least ten
    minutes apart.
    """
    first_s, last_s = float(log.submit_s[0]), float(log.submit_s[-1])
    until_s = min(until_s, last_s)
    if every_s is None:
        every_s = max(_LEAST_EVERY_S, (until_s - max(since_s, first_s)) / _MOST_INSTANTS)
    grid = np.arange(max(since_s, first_s + every_s), until_s + 1e-9, every_s).tolist()
    if queue is None:
        return grid
    places = [queue.latest(t) for t in grid]
    return [queue.times[place] for place in dict.fromkeys(places) if place >= 0 and queue.times[place] >= since_s]


@dataclass(frozen=True, slots=True)
class Forecasts:
    """The raw forecasts at several times: n rows in order of time."""

    t: np.ndarray
    job: np.ndarray
    """(n,) int64: number of each row's submission."""
    kind: np.ndarray
    age_s: np.ndarray
    partition: np.ndarray
    estimated: np.ndarray
    """(n,) bool: True if Slurm had an estimate."""
    seen_s: np.ndarray
    started: np.ndarray
    least_s: np.ndarray
    """(n,) float64: seconds until the begin time that the user requested, at least 0."""
    silent: np.ndarray
    """(m,) object: the submissions without a forecast, at each time."""
    silent_kind: np.ndarray
    """(m,) object: why they have none: they can ``never`` start, or wait for something ``outside``."""
    raw: dict[str, np.ndarray]

    @classmethod
    def joined(cls, several: Sequence[Forecasts]) -> Forecasts:
        """Concatenate forecasts, leaving out methods that some of them lack."""
        methods = [name for name in several[0].raw if all(name in part.raw for part in several)]
        columns = {
            name: np.concatenate([getattr(part, name) for part in several])
            for name in cls.__dataclass_fields__
            if name != "raw"
        }
        return cls(**columns, raw={name: np.concatenate([part.raw[name] for part in several]) for name in methods})


def played(
    log: JobLog,
    queue: QueueLog | None,
    forecaster: Forecaster,
    instants: Sequence[float],
    first: int = 0,
) -> Iterator[Forecasts]:
    """Yield the forecasts at each time. Times are numbered from ``first`` onwards, and a time's
    number is the seed for its random numbers.
    """
    past = KnownPast(log)
    for number, t in enumerate(instants, first):
        past.move(t)
        listing = None
        if queue is not None and (place := queue.latest(t)) >= 0:
            listing = queue.listings[place]
        rows = forecaster.player.rows(QueueState.at(log, t), listing)
        yield forecasts_of(rows, forecaster.raw(rows, past, number))


def forecasts_of(rows: Rows, raw: dict[str, np.ndarray]) -> Forecasts:
    """Combine rows and their raw forecasts (``Forecaster.raw``) with the outcomes of these rows in
    the log."""
    log, jobs = rows.state.log, rows.first
    seen_s, started = outcomes_of(log, rows)
    return Forecasts(
        t=np.full(len(rows), rows.state.t),
        job=jobs,
        kind=rows.kind,
        age_s=rows.age_s,
        partition=np.array([log.partition[job] for job in jobs.tolist()], object),
        estimated=np.isfinite(rows.estimate_s),
        seen_s=seen_s,
        started=started,
        least_s=np.maximum(log.begin_s[jobs] - rows.state.t, 0.0),
        silent=objects([silent.name for silent in rows.silent]),
        silent_kind=objects([KINDS[silent.kind] for silent in rows.silent]),
        raw=raw,
    )


def played_in_processes(
    log: JobLog, queue: QueueLog | None, forecaster: Forecaster, instants: Sequence[float], workers: int
) -> Iterator[Forecasts]:
    """Make the same forecasts as ``played``, but divide the forecast times among processes. The
    order of the forecasts may differ.
    """
    size = max(1, min(_MOST_CHUNK, -(-len(instants) // (4 * workers))))
    pool = ProcessPoolExecutor(workers, get_context("spawn"), end_with_parent)
    try:
        with starting():
            waiting = [
                pool.submit(_chunk, log, queue, forecaster, instants[first : first + size], first)
                for first in range(0, len(instants), size)
            ]
        leave_to_workers(pool)
        for chunk in as_completed(waiting):
            yield from chunk.result()
    except BrokenProcessPool:
        raise SimulationError(
            "a forecasting process was killed, perhaps for lack of memory; --workers 1 needs the least memory"
        ) from None
    finally:
        kill_workers(pool)


def _chunk(
    log: JobLog, queue: QueueLog | None, forecaster: Forecaster, instants: Sequence[float], first: int
) -> list[Forecasts]:
    return list(played(log, queue, forecaster, instants, first))


def run_backtest(
    log: JobLog, queue: QueueLog | None, forecaster: Forecaster, instants: Sequence[float], workers: int,
    progress: Callable[[Iterable[Forecasts]], Iterable[Forecasts]],
) -> Backtest:  # fmt: skip
    """Make the forecasts at all times and score them. Use up to ``workers`` processes, but no more
    than there are times. ``progress`` wraps the iterator of forecasts.

    Raises:
        InputError: There is nothing to forecast or to score.
    """
    if not instants:
        raise InputError(
            "no forecasts can be made, because no jobs are submitted between --forecast-from and --forecast-until"
        )
    count = min(workers, len(instants))
    forecasts = (
        played(log, queue, forecaster, instants)
        if count == 1
        else played_in_processes(log, queue, forecaster, instants, count)
    )
    parts = list(progress(forecasts))
    several = sorted([part for part in parts if len(part.t)], key=lambda part: float(part.t[0]))
    if not several:
        why = " that could have a forecast" if any(len(part.silent) for part in parts) else ""
        raise InputError(f"no job{why} is waiting at any of the {len(instants):,} forecast times")
    silent, kinds = (np.concatenate([getattr(part, name) for part in parts]) for name in ("silent", "silent_kind"))
    test = Backtest(replace(Forecasts.joined(several), silent=silent, silent_kind=kinds), log)
    if not test.counted.any():
        raise InputError(
            f"none of the forecasts for {len(instants):,} times could be scored, because scoring begins after a tenth "
            "of the forecast times and 40 starts of forecast jobs, and ends an hour before the last submission; make "
            "forecasts more often (a shorter --interval), or use a longer log"
        )
    return test


class Backtest:
    """Raw forecasts, the calibrated and pooled forecasts made from them, and the scores of all
    methods on the same rows."""

    def __init__(self, forecasts: Forecasts, log: JobLog) -> None:
        self.forecasts = forecasts
        self.outcomes = Outcomes(forecasts.t, _numbers(log, forecasts.job), forecasts.seen_s, forecasts.started)
        self.raw = dict(forecasts.raw)
        self.is_oracle = "oracle" in self.raw
        self._span_s = float(log.submit_s[-1] - log.submit_s[0])
        self._long = is_long(log)
        lag_s = DAY_S if self._long else HOUR_S
        self.calibrated: dict[str, np.ndarray] = {}
        if self.is_oracle:
            self.forecast = self.raw["oracle"]
        else:
            self.calibrated = {name: self._calibrated(quantiles) for name, quantiles in self.raw.items()}
            history = self.raw.get("history_account")
            key = None if history is None or not self._long else np.digitize(history[:, MEDIAN], _HORIZONS)
            members = [name for name in (*_MEMBERS, *(("limits",) if self._long else ())) if name in self.raw]
            self.members = members
            self.forecast = pooled(self.outcomes, [self.calibrated[name] for name in members], lag_s, key)
            if history is not None and "limits" in self.raw:
                pair = ("limits", "history_account")
                self.raw["limits_history"] = np.mean([self.raw[name] for name in pair], axis=0)
                self.calibrated["limits_history"] = pooled(
                    self.outcomes, [self.calibrated[name] for name in pair], lag_s
                )
        self.forecast = np.maximum(self.forecast, log_wait(forecasts.least_s)[:, None])
        self.scored = self._scored(log)
        silent = dict(zip(forecasts.silent.tolist(), forecasts.silent_kind.tolist(), strict=True))
        started = set(log.array[np.isfinite(log.start_s)].tolist())
        self.no_forecast: dict[str, int] = {
            kind: sum(other == kind for other in silent.values()) for kind in ("never", "outside")
        }
        """Submissions that had no forecast at the last time that lists them, by kind, and how many
        of those that could never start started nevertheless.
        """
        self.no_forecast["never_but_started"] = whole_sum(
            kind == "never" and name in started for name, kind in silent.items()
        )

    def _calibrated(self, quantiles: np.ndarray) -> np.ndarray:
        """Calibrate the forecasts of a method by earlier forecasts of the same class: the same range
        of the median (or of the age, if the job has waited longer than forecast), in the same
        partition or of the same kind.
        """
        rows = self.forecasts
        horizon = np.digitize(quantiles[:, MEDIAN], _HORIZONS)
        refuted = (quantiles[:, MEDIAN] <= _NOW) & (rows.age_s > _REFUTED_S)
        horizon = np.where(refuted, _FIRST_REFUTED + np.digitize(rows.age_s, _REFUTED_AGES_S), horizon)
        _, partition = np.unique(rows.partition.astype(str), return_inverse=True)
        classes = [
            horizon + _MOST_RANGES * partition,
            horizon + _MOST_RANGES * rows.kind,
            refuted.astype(int),
            np.zeros(len(horizon), int),
        ]
        return calibrated(self.outcomes, quantiles, classes)

    def _scored(self, log: JobLog) -> np.ndarray:
        """Return a mask of the rows whose forecasts are scored, (n,) bool. These are the rows after
        the warm-up whose kind is in ``SCORED``. If the log continues after the last submission, the
        rows in the last hour before that submission are left out.
        """
        rows = self.forecasts
        scored = np.isin(rows.kind, SCORED)
        if self.is_oracle or not len(rows.t):
            return scored
        first_s, last_s = rows.t[0], rows.t[-1]
        resolved = np.array([np.count_nonzero(rows.started & (rows.seen_s <= t)) for t in rows.t])
        scored &= (rows.t >= first_s + _WARM_UP * (last_s - first_s)) & (resolved >= _LEAST_RESOLVED)
        if log.ends_s - log.submit_s[-1] > HOUR_S:
            scored &= rows.t <= log.submit_s[-1] - HOUR_S
        return scored

    def scores(self, quantiles: np.ndarray, *, once: bool = False, where: np.ndarray | None = None) -> Score:
        """Score a method's forecasts for the scored rows whose jobs started. If ``once`` is True,
        each submission has the same weight."""
        rows = self.counted if where is None else self.counted & where
        weight = self._weight(rows) if once else None
        return score(quantiles[rows], self.outcomes.y[rows], weight, self._block[rows])

    @property
    def counted(self) -> np.ndarray:
        """(n,) bool: True for scored rows whose jobs started."""
        counted: np.ndarray = self.scored & self.forecasts.started
        return counted

    @property
    def _block(self) -> np.ndarray:
        blocks: np.ndarray = self.forecasts.t // (HOUR_S if self._span_s < 3 * DAY_S else DAY_S)
        return blocks

    def _weight(self, rows: np.ndarray) -> np.ndarray:
        _, place, counts = np.unique(self.outcomes.job[rows], return_inverse=True, return_counts=True)
        weights: np.ndarray = 1.0 / counts[place]
        return weights

    def ratio(self, theirs: np.ndarray, *, once: bool = False) -> tuple[float, float, float]:
        """Return the CRPS of the forecast divided by the CRPS of another method, with the interval
        of this ratio.
        """
        rows = self.counted
        weight = self._weight(rows) if once else np.ones(np.count_nonzero(rows))
        ours, other = (crps(rival[rows], self.outcomes.y[rows]) * weight for rival in (self.forecast, theirs))
        return ratio(ours, other, self._block[rows])

    def reliability(self) -> list[tuple[float, float]]:
        """Return, for each level, the share of scored rows that started no later than the quantile
        at that level.
        """
        rows = self.counted
        below = self.outcomes.y[rows, None] <= self.forecast[rows] + 1e-9
        return list(zip(LEVELS.tolist(), below.mean(axis=0).tolist() if rows.any() else [np.nan] * 19, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Return all scores by name, as ``dagsim eta --backtest --json`` prints them."""
        whole, once = self.scores(self.forecast), self.scores(self.forecast, once=True)
        rows, counted = self.forecasts, self.counted
        answer: dict[str, Any] = whole.to_dict() | {"once": once.to_dict()}
        answer["submissions"] = len(np.unique(self.outcomes.job[counted]))
        answer["never_started"] = never = int(np.count_nonzero(self.scored & ~rows.started))
        if never > _MANY_CENSORED * np.count_nonzero(self.scored):
            weights = np.zeros(len(rows.t))
            weights[self.scored] = censoring_weights((rows.seen_s - rows.t)[self.scored], rows.started[self.scored])
            weighted = score(self.forecast[counted], self.outcomes.y[counted], weights[counted])
            answer["censoring_weighted"] = weighted.to_dict()
        if "runs" in self.raw:
            answer["beyond_horizon"] = int(np.count_nonzero(self.raw["runs"][self.scored, MEDIAN] >= CEILING))
        answer["instants"] = len(np.unique(rows.t))
        answer["no_forecast"] = self.no_forecast
        baselines: dict[str, Any] = {}
        for name in BASELINES if not self.is_oracle else ():
            if name not in self.raw:
                continue
            entry: dict[str, Any] = {}
            for kind, methods in (("raw", self.raw), ("calibrated", self.calibrated)):
                quantiles = methods[name]
                entry[kind] = self.scores(quantiles).to_dict() | {
                    "once": self.scores(quantiles, once=True).to_dict(),
                    "ratio": list(self.ratio(quantiles)),
                    "ratio_once": list(self.ratio(quantiles, once=True)),
                }
            if name == "slurm":
                entry["raw"]["where_stated"] = self.scores(self.raw[name], where=rows.estimated).to_dict()
            baselines[name] = entry
        answer["baselines"] = baselines
        answer["best_baseline"] = self.best_baseline
        answer["by_partition"] = self._by(rows.partition.astype(str))
        answer["by_kind"] = {
            kind: self.scores_of_kind(number).to_dict()
            for number, kind in enumerate(KINDS)
            if (rows.kind == number).any()
        }
        number = np.digitize(self.forecast[:, MEDIAN], _HORIZONS)
        parts = self._by(np.array([*HORIZONS], object)[number].astype(str))
        answer["by_horizon"] = {name: parts[name] for name in HORIZONS if name in parts}
        now = counted & (self.forecast[:, MEDIAN] <= _NOW)
        started_s = (rows.seen_s - rows.t)[now]
        answer["starts_now"] = {
            "n": int(now.sum()),
            "within_60_s": float((started_s <= 60).mean()) if now.any() else None,
            "within_300_s": float((started_s <= 300).mean()) if now.any() else None,
        }
        answer["reliability"] = self.reliability()
        if not self.is_oracle:
            answer["members"] = {
                name: {
                    "raw": self.scores(self.raw[name]).to_dict(),
                    "calibrated": self.scores(self.calibrated[name]).to_dict(),
                }
                for name in self.members
            }
        return answer

    def scores_of_kind(self, kind: int) -> Score:
        """Score all rows of a kind whose jobs started. The other scores leave some of them out."""
        rows = (self.forecasts.kind == kind) & self.forecasts.started
        return score(self.forecast[rows], self.outcomes.y[rows])

    @property
    def best_baseline(self) -> str | None:
        """The simple baseline with the lowest raw CRPS, or None if there is none. Slurm's own
        estimates do not count as a simple baseline.
        """
        losses = {name: self.scores(self.raw[name]).crps_log for name in _SIMPLE if name in self.raw}
        return min(losses, key=losses.__getitem__, default=None) if self.counted.any() else None

    def _by(self, names: np.ndarray) -> dict[str, Any]:
        """Return the scores of groups of rows, each with the scores of Slurm's own estimates and of
        the best simple baseline.
        """
        beside = [name for name in ("slurm", self.best_baseline) if name is not None and name in self.raw]
        groups = {}
        for name in np.unique(names[self.counted]).tolist():
            mine = names == name
            rivals = {other: self.scores(self.raw[other], where=mine).to_dict() for other in beside}
            groups[name] = self.scores(self.forecast, where=mine).to_dict() | {"baselines": rivals}
        return groups


def _numbers(log: JobLog, jobs: np.ndarray) -> np.ndarray:
    """Return the number of the submission to which each of these jobs belongs."""
    _, numbers = np.unique(log.array.astype(str), return_inverse=True)
    submissions: np.ndarray = numbers[jobs]
    return submissions
