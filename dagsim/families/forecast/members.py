"""Make raw forecasts for the rows of a queue at one time, from simulations, from past waits, and
from Slurm's estimates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from dagsim.families.forecast.future_jobs import Future
from dagsim.families.forecast.futures import Player
from dagsim.families.forecast.job_log import JobLog
from dagsim.families.forecast.past_waits import History
from dagsim.families.forecast.queue_rows import SCORED, Rows
from dagsim.families.forecast.run_times import RunTimes, run_times_at
from dagsim.families.forecast.scores import LEVELS, log_wait, quantiles_of
from dagsim.model.arithmetic import DAY_S


@dataclass(slots=True)
class KnownPast:
    """The contents of a log up to a certain time: the run times of ended jobs, and the waits of
    started jobs. The time can only move forward.
    """

    log: JobLog
    baselines: bool = True
    """False to leave out the waits by partition, which only baselines use."""
    run_times: RunTimes = field(default_factory=RunTimes)
    account: History = field(default_factory=History)
    partition: History = field(default_factory=History)
    qbets: History = field(default_factory=lambda: History(bounds=True))
    estimates: list[float] = field(default_factory=list)
    """Slurm's latest estimates, as logarithms of waits."""
    _ends: list[int] = field(init=False)
    _starts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        ran = np.isfinite(self.log.run_s)
        for name, times_s, there in (
            ("_ends", self.log.end_s, ran),
            ("_starts", self.log.start_s, np.isfinite(self.log.start_s)),
        ):
            places = np.flatnonzero(there)
            setattr(self, name, places[np.argsort(-times_s[places], kind="stable")].tolist())

    def move(self, t: float) -> None:
        """Add what became known by time ``t``."""
        log, ended = self.log, []
        while self._ends and log.end_s[self._ends[-1]] <= t:
            ended.append(self._ends.pop())
        run_times_at(log, ended, self.run_times)
        while self._starts and log.start_s[self._starts[-1]] <= t:
            job = self._starts.pop()
            since_s = log.eligible_s[job]
            start_s = float(log.start_s[job])
            wait_s = start_s - (float(log.submit_s[job]) if np.isnan(since_s) else min(float(since_s), start_s))
            self.account.add(log.account[job], wait_s)
            if self.baselines:
                self.partition.add(log.partition[job], wait_s)
                self.qbets.add(log.partition[job], wait_s)


@dataclass(frozen=True, slots=True)
class Forecaster:
    """An object that makes raw forecasts for rows by several methods. The forecasts of a method are
    (n, 19), with one column per quantile."""

    player: Player
    futures: int = 25
    arrivals: int = 0
    """Number of futures with arrivals, which take most of the time."""
    seed: int = 0
    oracle: bool = False
    baselines: bool = True
    """False to leave out the forecasts that are used only for comparison."""

    def raw(
        self, rows: Rows, past: KnownPast, instant: int, played: Sequence[np.ndarray] | None = None
    ) -> dict[str, np.ndarray]:
        """Make the forecasts at the time with number ``instant``. ``past`` must have moved to that
        time.

        If ``played`` is given, it contains futures from ``waits``, which are used instead of new
        simulations. The forecast in which all jobs run to their limits is then made only if the
        pool includes it.
        """
        if self.oracle:
            return {"oracle": _spread(self.waits(Future.ORACLE, rows, past, instant))}
        methods = {"runs": _spread(self.waits(Future.RUNS, rows, past, instant) if played is None else played)}
        if (self.baselines and played is None) or is_long(past.log):
            methods["limits"] = _spread(self.waits(Future.LIMITS, rows, past, instant))
        if self.arrivals:
            methods["arrivals"] = _spread(self.waits(Future.ARRIVALS, rows, past, instant))
        waits = self.from_waits(rows, past)
        # Past waits contain no information about begin times and dependencies.
        simulated = ~np.isin(rows.kind, SCORED)
        waits["history_account"] = np.where(simulated[:, None], methods["runs"], waits["history_account"])
        return methods | waits

    def waits(self, kind: Future, rows: Rows, past: KnownPast, instant: int) -> Iterator[np.ndarray]:
        """Simulate futures of one kind. For each future, yield the seconds until each row starts,
        (n,). Simulating more futures does not change the earlier ones.
        """
        count = {Future.RUNS: self.futures, Future.ARRIVALS: self.arrivals}.get(kind, 1)
        rng = np.random.default_rng([self.seed, instant, list(Future).index(kind)])
        for starts_s in self.player.starts(rows.state, kind, count, past.run_times, rng, rows.members):
            yield rows.earliest(starts_s)

    def from_waits(self, rows: Rows, past: KnownPast) -> dict[str, np.ndarray]:
        """Return the forecasts of the methods that need no simulation."""
        log, first, ages = past.log, rows.first, rows.age_s
        methods = {"history_account": (past.account, log.account)}
        if self.baselines:
            methods |= {"history": (past.partition, log.partition), "qbets": (past.qbets, log.partition)}
        forecasts = {
            name: np.array(
                [history.quantiles(names[job], age) for job, age in zip(first.tolist(), ages.tolist(), strict=True)]
            ).reshape(-1, len(LEVELS))
            for name, (history, names) in methods.items()
        }
        if not self.baselines:
            return forecasts
        stated = log_wait(rows.estimate_s - rows.state.t)
        has_estimate = np.isfinite(rows.estimate_s)
        if has_estimate.any() or past.estimates:
            past.estimates = [*past.estimates, *stated[has_estimate].tolist()][-_ESTIMATES:]
            points = np.where(has_estimate, stated, np.median(past.estimates))
            forecasts["slurm"] = np.repeat(points[:, None], len(LEVELS), axis=1)
        return forecasts


_ESTIMATES = 5000
_MONTH_S = 30 * DAY_S


def is_long(log: JobLog) -> bool:
    """Return True for a log that covers more than a month. For such a log, the pool includes the
    forecast in which all jobs run to their limits.
    """
    return bool(len(log)) and float(log.submit_s[-1] - log.submit_s[0]) > _MONTH_S


def _spread(waits_s: Iterable[np.ndarray]) -> np.ndarray:
    """Return the quantiles, (n, 19), of the logarithms of the waits in all futures. There is one
    column per level in ``LEVELS``."""
    return quantiles_of(log_wait(np.stack(list(waits_s))))
