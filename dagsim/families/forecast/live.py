"""Forecasts of the jobs that are waiting at one time, and of jobs that are only planned."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from dagsim.errors import InputError
from dagsim.families.forecast.backtest import Backtest, Forecasts, forecasts_of
from dagsim.families.forecast.future_jobs import Future
from dagsim.families.forecast.job_log import JobLog
from dagsim.families.forecast.journal import BASELINES
from dagsim.families.forecast.members import Forecaster, KnownPast
from dagsim.families.forecast.planned_jobs import PlannedJob, with_planned
from dagsim.families.forecast.queue_rows import KINDS, Listed, Rows
from dagsim.families.forecast.queue_state import QueueState
from dagsim.families.forecast.run_times import run_time_classes
from dagsim.families.forecast.scores import LEVELS, MEDIAN, log_wait, quantiles_of
from dagsim.families.forecast.time_spans import HOUR_S, WEEK_S
from dagsim.model import Cluster
from dagsim.model.arithmetic import DAY_S
from dagsim.systems.cluster.waits.wait_rules import NextStep

_INSTANTS = 24
"""Number of earlier times within a week at which forecasts are made to calibrate the current
ones."""
_LEAST_STEPS = 17
"""Minimum number of steps of the grid of earlier times."""
_FUTURES = 10
"""Number of futures at earlier times, which are used only for calibration."""
_BACK_S = WEEK_S
"""How far back the earlier times reach."""
_DRAWN = 500
"""Number of run times drawn for a planned job."""
_LEAST_WAITS = 8
"""Minimum number of starts in the log for past waits to count as a method."""


class Expected(NamedTuple):
    """The forecast for one waiting job, or for the next task of a waiting array."""

    job: str
    user: str
    partition: str
    kind: str
    """A kind of ``KINDS``."""
    waits_for: str
    """Slurm's reason where the snapshot has one, else the kind."""
    quantiles_s: tuple[float, ...]
    """The 19 quantiles of the seconds until the job starts; a week means a week or longer."""
    within_1h: float
    within_24h: float
    baselines_s: Mapping[str, float] = {}
    """The medians of simple forecasts for comparison, if they were requested."""

    def to_dict(self) -> dict[str, Any]:
        """Return the forecast as a dictionary for JSON."""
        named = _named(self.quantiles_s)
        row = {name: getattr(self, name) for name in ("job", "user", "partition", "kind", "waits_for")}
        chances = {"within_1h": self.within_1h, "within_24h": self.within_24h}
        return row | chances | {"median_s": self.quantiles_s[MEDIAN], "quantiles_s": named}


@dataclass(frozen=True, slots=True)
class ExpectedShape:
    """The forecast for a planned job: when it would start, and when it would end."""

    shape: PlannedJob
    starts_s: tuple[float, ...]
    """The 19 quantiles of the seconds until the job starts."""
    ends_s: tuple[float, ...]
    """The 19 quantiles of the seconds until the job ends."""
    within_1h: float
    within_24h: float
    cut: float
    """The probability that the job is ended by its limit."""

    def to_dict(self) -> dict[str, Any]:
        """Return the forecast as a dictionary for JSON."""
        chances = {"within_1h": self.within_1h, "within_24h": self.within_24h, "cut": self.cut}
        medians = {"start_s": self.starts_s[MEDIAN], "end_s": self.ends_s[MEDIAN]}
        quantiles = {"starts_s": _named(self.starts_s), "ends_s": _named(self.ends_s)}
        return {"shape": str(self.shape)} | self.shape.to_dict() | chances | medians | quantiles


class WithoutForecast(NamedTuple):
    """A waiting job or array without a forecast."""

    job: str
    user: str
    partition: str
    kind: str
    """``never`` or ``outside``, from ``KINDS``."""
    why: str

    @property
    def words(self) -> str:
        """The kind and the reason: ``never: QOSMaxCpuPerUser (96) < 144 ...``."""
        return f"{'never' if self.kind == 'never' else 'not known'}: {self.why}"

    def to_dict(self) -> dict[str, Any]:
        """Return the values as a dictionary for JSON."""
        return self._asdict()


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Prospect(Generic[T]):
    """An answer to a question: the forecasts that follow from some or all of the futures."""

    rows: list[T]
    futures: int
    """Number of futures from the current state. These are the first futures, so a run with only
    this number of futures gives the same forecasts.
    """
    instants: int
    """Number of earlier times at which forecasts were made to calibrate these."""
    without: Sequence[WithoutForecast] = ()
    """The waiting jobs that get no forecast."""

    @property
    def calibrated(self) -> bool:
        """True if these forecasts were calibrated by forecasts at earlier times."""
        return self.instants > 0


IsDue = Callable[[int], bool]
"""Called after each future with the number of futures; True if an answer should be shown now."""


def _named(quantiles_s: Sequence[float]) -> dict[str, float]:
    return {f"q{round(100 * level):02}": wait for level, wait in zip(LEVELS, quantiles_s, strict=True)}


ListedById = dict[str, Listed]


class _Raw(NamedTuple):
    """The raw forecasts at one time."""

    rows: dict[str, int]
    """The place of each row, by the id of its first job."""
    quantiles: dict[str, np.ndarray]
    """The forecasts of each method."""


class EarlierForecasts:
    """The raw forecasts at earlier times, kept from one snapshot of a queue to the next.

    The earlier times are on a fixed grid. Most of them are also needed for the next snapshot, and
    no time is simulated twice.
    """

    def __init__(self) -> None:
        self._kept: dict[float, _Raw] = {}
        """The forecasts at each time."""

    def keep(self, grid: Sequence[float]) -> None:
        """Drop all times that are not on the grid."""
        self._kept = {t: self._kept[t] for t in grid if t in self._kept}

    def at(self, rows: Rows, forecaster: Forecaster, past: KnownPast) -> Forecasts:
        """Return the forecasts for these rows at the time of their state. If forecasts for that
        time have already been made, leave out rows that were not forecast then.
        """
        t, ids = rows.state.t, rows.state.log.jobs.ids[rows.first].tolist()
        if t not in self._kept:
            quantiles = forecaster.raw(rows, past, abs(int(t // 60)))
            self._kept[t] = _Raw({id: place for place, id in enumerate(ids)}, quantiles)
        raw = self._kept[t]
        chosen = [number for number, id in enumerate(ids) if id in raw.rows]
        order = [raw.rows[ids[number]] for number in chosen]
        return forecasts_of(rows.chosen(chosen), {name: values[order] for name, values in raw.quantiles.items()})


def expected(
    log: JobLog, forecaster: Forecaster, t: float, instants: int = _INSTANTS, listing: ListedById | None = None,
    jobs: Collection[str] = (), early: IsDue | None = None, kept: EarlierForecasts | None = None,
) -> Iterator[Prospect[Expected]]:  # fmt: skip
    """Yield the forecasts at time ``t`` for the given jobs (default: all waiting jobs), with
    increasing accuracy. Preliminary forecasts come from some of the futures, whenever ``early``
    returns True. The next forecast comes from all futures. The last two are calibrated by forecasts
    at earlier times in the log, first at a third of these times and then at all of them. ``kept``
    contains the forecasts at earlier times that were made for an earlier snapshot of the same
    queue.

    Raises:
        InputError: One of the given jobs is not waiting. In that case, nothing has been simulated.
    """
    past = KnownPast(log, baselines=forecaster.baselines)
    past.move(t)
    player = forecaster.player
    rows = player.rows(QueueState.at(log, t), listing)
    if jobs:
        rows = rows.chosen([place for place, job in enumerate(rows.first.tolist()) if log.array[job] in jobs])
    without = [job for job in _without(log, rows, listing) if not jobs or job.job in jobs]
    if missing := sorted(set(jobs) - {log.array[job] for job in rows.first.tolist()} - {job.job for job in without}):
        raise InputError(f"job {missing[0]} is not waiting in this snapshot; without job ids, eta lists waiting jobs")
    said = forecaster.player.said(rows.state)
    played: list[np.ndarray] = []
    for waits_s in forecaster.waits(Future.RUNS, rows, past, instants):
        played.append(waits_s)
        if len(played) == forecaster.futures or (early is not None and early(len(played))):
            present = forecasts_of(rows, forecaster.raw(rows, past, instants, played))
            yield Prospect(_shown(log, [present], listing, said), len(played), 0, without)
    for earlier in _earlier(log, forecaster, t, instants, kept):
        yield Prospect(_shown(log, [*earlier, present], listing, said), len(played), len(earlier), without)


def expected_shapes(
    log: JobLog, forecaster: Forecaster, t: float, shapes: Sequence[PlannedJob], cluster: Cluster,
    instants: int = _INSTANTS, listing: ListedById | None = None, early: IsDue | None = None,
) -> Iterator[Prospect[ExpectedShape]]:  # fmt: skip
    """Yield forecasts for planned jobs that would be submitted at time ``t``, with increasing
    accuracy as in ``expected``. Each job is forecast as if it were the only planned job. Leave out
    shapes that could not start even on an idle cluster.

    Raises:
        InputError: None of the shapes could start.
    """
    several = with_planned(log, list(shapes), t, cluster)
    player = forecaster.player.of(several)
    forecaster = replace(forecaster, player=player)
    state, count = QueueState.at(several, t), len(several) - len(log)
    ids = {id: place for place, id in enumerate(several.jobs.ids.tolist())}
    places = [ids[f"planned-{number}"] for number in range(1, count + 1)]
    alone = [replace(state, running=state.running[:0], waiting=np.array([place])) for place in places]
    kept = [
        number
        for number, shape in enumerate(alone)
        if not player.obstacle(places[number], t) and player.starts_alone(shape)
    ]
    if not kept:
        why = player.obstacle(places[0], t) or "it does not start within a week in any of the simulated futures"
        raise InputError(f"--job: {shapes[0]} could never start, even on the idle cluster: {why}")
    queue = player.rows(state, listing).state
    others = queue.waiting[~np.isin(queue.waiting, places)]
    rows = [
        Rows(
            replace(state, waiting=np.append(others, places[number])),
            [np.array([len(others)])],
            np.zeros(1, np.int64),
            np.full(1, np.nan),
        )
        for number in kept
    ]
    past = KnownPast(several, baselines=False)
    past.move(t)
    levels = np.random.default_rng(forecaster.seed).random(_DRAWN)
    share = past.run_times.draw(levels, run_time_classes(several, places[0]))
    runs_s = np.minimum(share, 1.0) * shapes[0].limit_s
    drawn = [
        (shape, runs_s if shape is shapes[0] else shape.run_s(runs_s, shapes[0])) for shape in (shapes[n] for n in kept)
    ]
    played: list[tuple[np.ndarray, ...]] = []
    for waits_s in zip(*[forecaster.waits(Future.RUNS, row, past, instants) for row in rows], strict=True):
        played.append(waits_s)
        if len(played) == forecaster.futures or (early is not None and early(len(played))):
            present = [
                forecasts_of(shape_rows, forecaster.raw(shape_rows, past, instants, futures))
                for shape_rows, futures in zip(rows, zip(*played, strict=True), strict=True)
            ]
            yield Prospect(_shapes(several, present, drawn), len(played), 0)
    for earlier in _earlier(several, forecaster, t, instants):
        yield Prospect(_shapes(several, [*earlier, *present], drawn), len(played), len(earlier))


def _earlier(
    log: JobLog, forecaster: Forecaster, t: float, instants: int, kept: EarlierForecasts | None = None
) -> Iterator[list[Forecasts]]:
    """Yield forecasts at a third of the earlier times, then at all of them. Yield nothing if no job
    has ended before ``t``.
    """
    first_s = max(float(log.submit_s[0]), t - _BACK_S)
    if not instants or not np.count_nonzero(log.end_s <= t) or t <= first_s:
        return
    grid, kept = _grid(first_s, t, instants), kept or EarlierForecasts()
    kept.keep(grid)
    fewer = replace(forecaster, futures=min(forecaster.futures, _FUTURES), baselines=False)
    parts: dict[int, Forecasts] = {}
    for places in (range(1, len(grid), 3), [place for place in range(len(grid)) if place % 3 != 1]):
        past = KnownPast(log, baselines=False)
        for place in places:
            past.move(grid[place])
            parts[place] = kept.at(forecaster.player.rows(QueueState.at(log, grid[place])), fewer, past)
        yield [parts[place] for place in sorted(parts) if len(parts[place].t)]


def _grid(first_s: float, t: float, instants: int) -> list[float]:
    """Return the earlier times, which are multiples of a step. The step is a week divided by
    ``instants``, halved until at least ``_LEAST_STEPS`` steps fit between ``first_s`` and ``t``.
    """
    step_s = _BACK_S / instants
    while (t - first_s) / step_s < _LEAST_STEPS:
        step_s /= 2
    return [step_s * number for number in range(floor(first_s / step_s) + 1, ceil(t / step_s))]


def _test(log: JobLog, several: Sequence[Forecasts], count: int) -> np.ndarray:
    """Return the calibrated forecasts for the last ``count`` rows, with a column for each quantile,
    (count, 19). If there are too few past waits, the history is not pooled.
    """
    joined = Forecasts.joined([part for part in several if len(part.t)])
    if np.count_nonzero(log.start_s <= joined.t[-1]) < _LEAST_WAITS:
        joined = replace(joined, raw={name: values for name, values in joined.raw.items() if name != "history_account"})
    forecast = Backtest(joined, log).forecast
    return forecast[len(forecast) - count :]


def _shown(
    log: JobLog, several: Sequence[Forecasts], listing: ListedById | None, said: Mapping[str, NextStep]
) -> list[Expected]:
    """Return the forecasts for the last rows. ``said`` contains the policy's current decisions
    about jobs, which explain their waits. If the policy starts a job immediately in every future,
    the forecast is that the job starts now, regardless of past waits."""
    present = several[-1]
    if not len(present.t):
        return []
    forecasts = []
    tested = _test(log, several, len(present.t))
    if said:
        tested = np.where((present.raw["runs"] == 0).all(axis=1)[:, None], 0.0, tested)
    stated = [name for name in BASELINES if name in present.raw]
    for row, (logs, job, kind) in enumerate(zip(tested, present.job.tolist(), present.kind, strict=True)):
        within = _chance(logs, HOUR_S), _chance(logs, DAY_S)
        name, kind_name = log.array[job], KINDS[kind]
        listed = None if listing is None else listing.get(name)
        reason = kind_name if listed is None or listed.reason in ("", "None") else listed.reason
        if (outcome := said.get(str(log.jobs.ids[job]))) is not None:
            reason = outcome.brief
        waits_s = tuple(np.expm1(logs).tolist())
        own = log.user[job], log.partition[job]
        baselines_s = {other: float(np.expm1(present.raw[other][row, MEDIAN])) for other in stated}
        forecasts.append(Expected(name, *own, kind_name, reason, waits_s, *within, baselines_s))
    return sorted(forecasts, key=lambda forecast: forecast.quantiles_s[MEDIAN])


def _without(log: JobLog, rows: Rows, listing: ListedById | None) -> list[WithoutForecast]:
    """Return the jobs without a forecast, beginning with those that can never start."""
    places = {name: place for place, name in enumerate(log.array.tolist())}
    jobs = []
    for name, kind, why in rows.silent:
        listed, place = (listing or {}).get(name) or Listed("", np.nan), places.get(name)
        own = ("", "") if place is None else (log.user[place], log.partition[place])
        jobs.append(WithoutForecast(name, listed.user or own[0], listed.partition or own[1], KINDS[kind], why))
    return sorted(jobs, key=lambda job: (job.kind, job.job))


def _shapes(
    log: JobLog, several: Sequence[Forecasts], drawn: Sequence[tuple[PlannedJob, np.ndarray]]
) -> list[ExpectedShape]:
    """Return the forecasts for planned jobs. ``drawn`` contains each shape with its simulated run
    times."""
    answers = []
    for (shape, runs_s), logs in zip(drawn, _test(log, several, len(drawn)), strict=True):
        starts_s = np.expm1(logs)
        ends = quantiles_of(log_wait((starts_s[:, None] + runs_s).reshape(-1, 1)))[0]
        hour, day = (_chance(logs, span_s) for span_s in (HOUR_S, DAY_S))
        cut = float(np.mean(runs_s >= shape.limit_s))
        answers.append(ExpectedShape(shape, tuple(starts_s.tolist()), tuple(np.expm1(ends).tolist()), hour, day, cut))
    return answers


def _chance(logs: np.ndarray, span_s: float) -> float:
    """Return the probability of a start within a span. It is interpolated between the levels of the
    nearest quantiles. If the span is below or above all quantiles, it is 2.5% or 97.5%.
    """
    if not logs.any():
        return 1.0
    return float(np.interp(np.log1p(span_s), logs, LEVELS, left=0.025, right=0.975))
