"""Raw forecasts of the rows of a queue at an instant: simulations, past waits and Slurm's estimates."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from time import monotonic

import numpy as np

from dagsim.forecast.futures import Future, Player, run_times_at
from dagsim.forecast.history import History, RunTimes
from dagsim.forecast.log import JobLog
from dagsim.forecast.rows import Rows
from dagsim.forecast.scores import LEVELS, log_wait, quantiles_of

__all__ = ["Forecaster", "Past"]


@dataclass(slots=True)
class Past:
    """Facts of a log until an instant: run times of ended jobs, waits of started ones. The instant
    only moves forward.
    """

    log: JobLog
    run_times: RunTimes = field(default_factory=RunTimes)
    account: History = field(default_factory=History)
    partition: History = field(default_factory=History)
    qbets: History = field(default_factory=lambda: History(bounds=True))
    estimates: list[float] = field(default_factory=list)
    """The latest estimates of Slurm, as logarithms of waits."""
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
        """Learn what became known until ``t``."""
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
            self.partition.add(log.partition[job], wait_s)
            self.qbets.add(log.partition[job], wait_s)


@dataclass(frozen=True, slots=True)
class Forecaster:
    """Makes the raw forecasts (n, 19) of rows, by name of the method."""

    player: Player
    futures: int = 25
    arrivals: int = 10
    """Number of futures with arrivals, which cost most."""
    seed: int = 0
    oracle: bool = False
    until_s: float = inf
    """When to end with fewer futures and without baselines, on the clock of ``time.monotonic``."""

    def raw(self, rows: Rows, past: Past, instant: int) -> dict[str, np.ndarray]:
        """The forecasts at the ``instant``-th time; ``past`` must be there."""
        methods: dict[str, np.ndarray] = {}
        if self.oracle:
            return {"oracle": self.simulated(Future.ORACLE, 1, rows, past, instant)}
        methods["runs"] = self.simulated(Future.RUNS, self.futures, rows, past, instant)
        if self.until_s == inf:
            methods["limits"] = self.simulated(Future.LIMITS, 1, rows, past, instant)
        if self.arrivals:
            methods["arrivals"] = self.simulated(Future.ARRIVALS, self.arrivals, rows, past, instant)
        return methods | self.from_waits(rows, past)

    def simulated(self, kind: Future, futures: int, rows: Rows, past: Past, instant: int) -> np.ndarray:
        """(n, 19) quantiles over futures of one kind."""
        rng = np.random.default_rng([self.seed, instant, list(Future).index(kind)])
        starts = self.player.starts(rows.state, kind, futures, past.run_times, rng, rows.members)
        played = []
        for start in starts:
            played.append(start)
            if monotonic() > self.until_s:
                break
        waits = rows.earliest(np.stack(played))
        return quantiles_of(log_wait(waits))

    def from_waits(self, rows: Rows, past: Past) -> dict[str, np.ndarray]:
        """(n, 19) forecasts that need no simulation."""
        log, first, ages = past.log, rows.first, rows.age_s
        methods = {
            "history_account": (past.account, log.account),
            "history": (past.partition, log.partition),
            "qbets": (past.qbets, log.partition),
        }
        forecasts = {
            name: np.array(
                [history.quantiles(names[job], age) for job, age in zip(first.tolist(), ages.tolist(), strict=True)]
            ).reshape(-1, len(LEVELS))
            for name, (history, names) in methods.items()
        }
        stated = log_wait(rows.estimate_s - rows.state.t)
        known = np.isfinite(rows.estimate_s)
        if known.any() or past.estimates:
            past.estimates = [*past.estimates, *stated[known].tolist()][-_ESTIMATES:]
            points = np.where(known, stated, np.median(past.estimates))
            forecasts["slurm"] = np.repeat(points[:, None], len(LEVELS), axis=1)
        return forecasts


_ESTIMATES = 5000
