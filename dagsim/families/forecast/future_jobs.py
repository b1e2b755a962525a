"""The beginning of a simulation of the future: the jobs in a state of the queue, the jobs that
arrive later, and what is known about the queues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum
from math import floor, inf
from typing import Any

import numpy as np

from dagsim.families.forecast.job_log import JobLog
from dagsim.families.forecast.queue_state import QueueState
from dagsim.families.forecast.run_times import RunTimes, run_time_classes
from dagsim.families.forecast.time_spans import HOUR_S, WEEK_S
from dagsim.model import NodeReservation, QueueTree
from dagsim.model.arithmetic import DAY_S
from dagsim.systems.cluster.past.from_log import jobs_at
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.workload.array_tools import objects
from dagsim.workload.arrays import JobArrays, Labels

_LEAST_LEFT_S = 60.0
"""Seconds left for a job that has reached its limit."""
_YOUNG_S = 14 * DAY_S
"""Minimum length of a log for new arrivals to repeat those at the same hour of the week."""
_BLOCK_S = HOUR_S
"""Length of the blocks of arrivals from a shorter log."""
_OVER_S = 1e-3
"""End of reservations that were over before the clock begins, because jobs may still name them."""
_NEVER_S = 10 * WEEK_S
"""Delay of jobs that never become eligible."""


class Future(Enum):
    """The assumptions about run times and arrivals after the time of the forecast."""

    LIMITS = "limits"
    """Every job runs to its limit, and no further jobs arrive."""
    RUNS = "runs"
    """Run times are random, and no further jobs arrive."""
    ARRIVALS = "arrivals"
    """Run times and arrivals are random."""
    ORACLE = "oracle"
    """The true run times and arrivals."""


class FutureJobs:
    """The jobs in a state, on a clock that begins when the oldest of them was submitted, or a second
    before the time of the state if that is earlier."""

    def __init__(self, scenario: ClusterScenario, state: QueueState) -> None:
        self.state = state
        log, t = state.log, state.t
        self._numbers = numbers = np.sort(np.concatenate([state.running, state.waiting]))
        self.zero_s = min(float(log.submit_s[numbers].min()), t - 1.0)
        self.begins_s = t - self.zero_s
        self._is_running = np.isin(numbers, state.running)
        jobs = log.jobs.chosen(numbers)
        self.since_s = np.where(self._is_running, log.start_s[numbers] - self.zero_s, np.nan)
        eligible_s = np.full(len(numbers), np.nan)
        eligible_s[~self._is_running] = state.eligible_s
        self._eligible_s = np.where(np.isinf(eligible_s), np.nan, eligible_s) - self.zero_s
        self._releases = np.flatnonzero(np.isinf(eligible_s)).tolist()
        self.elapsed_s = np.where(self._is_running, self.begins_s - self.since_s, 0.0)
        stated = replace(
            jobs,
            arrival_s=log.submit_s[numbers] - self.zero_s,
            work=np.maximum(log.limit_s[numbers], self.elapsed_s + _LEAST_LEFT_S),
            observed_start_s=self.since_s,
            observed_nodes=log.nodes.chosen(numbers),
        )
        placed = jobs_at(stated, self.begins_s, inf, scenario.cluster, scenario.runtime, stated=True)
        self._jobs = replace(placed, observed_start_s=None, observed_nodes=None, begins_s=self.begins_s)
        if len(placed) < len(numbers):  # runs that fit on no node are left out of the simulation
            there = np.isin(jobs.ids.astype(str), placed.ids.astype(str))
            self._numbers, self._is_running = numbers[there], self._is_running[there]
            self.since_s, self.elapsed_s = self.since_s[there], self.elapsed_s[there]
            self._eligible_s = self._eligible_s[there]
            self._releases = np.flatnonzero(np.isinf(eligible_s[there])).tolist()
        self._before: Any = None
        self.targets = log.jobs.ids[state.waiting].tolist()

    def usage(self, usage: Any) -> Any:
        """Return the usage before the time of the state. It is computed only once."""
        if self._before is None and usage is not None:
            self._before = usage.before(self.state, self.zero_s)
        return self._before

    def run_s(self, kind: Future, run_times: RunTimes, streams: Sequence[np.random.Generator]) -> np.ndarray:
        """Return how long each of the n jobs in the system runs in total in each of R futures, in
        seconds, (n, R). Each future has its own random stream."""
        log, limit_s, futures = self.state.log, self.state.log.limit_s[self._numbers], len(streams)
        if kind is Future.LIMITS:
            run_s = np.repeat(limit_s[:, None], futures, axis=1)
        elif kind is Future.ORACLE:
            true_s = log.run_s[self._numbers]
            return np.repeat(np.where(np.isnan(true_s), limit_s, true_s)[:, None], futures, axis=1)
        else:
            levels = np.stack([own.random(len(self._numbers)) for own in streams], axis=1)
            drawn = [
                run_times.draw(level, run_time_classes(log, job), float(done))
                for job, level, done in zip(self._numbers.tolist(), levels, self.elapsed_s / limit_s, strict=True)
            ]
            run_s = np.array(drawn) * limit_s[:, None]
        least_s = np.where(self._is_running, self.elapsed_s + 1.0, 1.0)
        if kind is Future.LIMITS:
            least_s = np.where(self._is_running, self.elapsed_s + _LEAST_LEFT_S, 1.0)
        lasting_s: np.ndarray = np.maximum(run_s, least_s[:, None])
        return lasting_s

    def jobs(self, run_s: np.ndarray, arrivals: JobArrays | None) -> JobArrays:
        """Return the jobs of a future in which the jobs in the system run for ``run_s`` in total."""
        eligible_s = self._eligible_s.copy()
        log, numbers = self.state.log, self._numbers
        if self._releases:
            ends_s = np.where(self._is_running, self.since_s + run_s, self.begins_s + run_s)
            by_name: dict[str, float] = {}
            for job, end_s in zip(numbers.tolist(), ends_s.tolist(), strict=True):
                by_name[log.array[job]] = max(by_name.get(log.array[job], 0.0), end_s)
            for place in self._releases:
                job = int(numbers[place])
                own_s = [by_name[name] for name in log.parents[job] if name in by_name]
                eligible_s[place] = max(self.begins_s, log.begin_s[job] - self.zero_s, *own_s)
        jobs = replace(self._jobs, work=run_s, eligible_s=eligible_s)
        return jobs if arrivals is None else JobArrays.joined([jobs, replace(arrivals, begins_s=self.begins_s)])

    def arrivals(
        self, kind: Future, horizon_s: float, run_times: RunTimes, rng: np.random.Generator
    ) -> JobArrays | None:
        """Return the jobs that arrive in a future, on the same clock."""
        log, t = self.state.log, self.state.t
        if kind is Future.ORACLE:
            first, last = np.searchsorted(log.submit_s, [t, t + horizon_s], "right").tolist()
            chosen, at_s = np.arange(first, last), log.submit_s[first:last]
            block = np.zeros(len(chosen), int)
        elif kind is Future.ARRIVALS:
            chosen, at_s, block = _blocks(log, t, horizon_s, rng)
        else:
            return None
        if not len(chosen):
            return None
        run_s = log.run_s[chosen].copy()
        for place in np.flatnonzero(~((log.end_s[chosen] <= t) & (run_s >= 0)) & (kind is not Future.ORACLE)).tolist():
            job = int(chosen[place])
            run_s[place] = run_times.draw(rng.random(1), run_time_classes(log, job))[0] * log.limit_s[job]
        run_s = np.where(np.isnan(run_s), log.limit_s[chosen], run_s)
        order = np.argsort(at_s, kind="stable")
        chosen, at_s, block, run_s = chosen[order], at_s[order], block[order], run_s[order]
        jobs = log.jobs.chosen(chosen)
        delay_s = np.maximum(log.begin_s[chosen] - log.submit_s[chosen], 0.0)
        if kind is Future.ORACLE:
            eligible_s = log.eligible_s[chosen]
            delay_s = np.where(
                np.isnan(eligible_s),
                np.where(np.isnan(log.start_s[chosen]), _NEVER_S, 0.0),
                np.maximum(eligible_s - at_s, 0.0),
            )
        arrival_s = at_s - self.zero_s
        requests = jobs.request
        if requests is not None and kind is Future.ARRIVALS:
            requests = Labels.of(
                [
                    request if request is None or not request.array else replace(request, array=f"{request.array}#{b}")
                    for request, b in zip(requests.tolist(), block.tolist(), strict=True)
                ]
            )
        return replace(
            jobs,
            ids=objects([f"{id}#{number}" for number, id in enumerate(jobs.ids.tolist())]),
            arrival_s=arrival_s,
            eligible_s=arrival_s + delay_s,
            work=np.maximum(run_s, 1.0 if kind is not Future.ORACLE else 0.0),
            request=requests,
        )


def _blocks(
    log: JobLog, t: float, horizon_s: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return arrivals until the horizon as whole blocks of past submissions: the index, time and
    block of each arrival.

    A block is a day in one of the past four weeks that covers the same hours of the week. In a log
    shorter than two weeks, a block is a random hour.
    """
    submit_s, first_s = log.submit_s, float(log.submit_s[0])
    young = t - first_s < _YOUNG_S
    length_s = min(_BLOCK_S, max(t - first_s, 1.0)) if young else DAY_S
    chosen, at_s, block = [], [], []
    for number in range(int(np.ceil(horizon_s / length_s))):
        begins_s = t + number * length_s
        if young:
            back_s = begins_s - rng.uniform(first_s, max(t - length_s, first_s + 1e-6))
        else:
            back_s = rng.integers(1, 5) * WEEK_S
            back_s += np.ceil(max(0.0, begins_s + length_s - back_s - t) / WEEK_S) * WEEK_S
            while begins_s - back_s < first_s and back_s > WEEK_S and begins_s + length_s - back_s + WEEK_S <= t:
                back_s -= WEEK_S
        ends_s = min(begins_s + length_s - back_s, t)
        low, high = np.searchsorted(submit_s, [begins_s - back_s, ends_s], "right").tolist()
        chosen.append(np.arange(low, high))
        at_s.append(submit_s[low:high] + back_s)
        block.append(np.full(high - low, number))
    return np.concatenate(chosen), np.concatenate(at_s), np.concatenate(block)


def queues_from(queues: QueueTree | None, zero_s: float, t: float) -> QueueTree | None:
    """Return what is known about the queues at time ``t``, on a clock that begins at ``zero_s``.
    Reservations are known in advance. An outage is known when it has begun, but its end is
    unknown."""
    if queues is None:
        return None
    announced = [period for period in queues.reservations if period.known_s is None or period.known_s <= t]
    reservations = [moved for period in announced for moved in _moved(period, zero_s)]
    outages = [
        replace(period, start_s=max(period.start_s - zero_s, 0.0), end_s=None)
        for period in queues.outages
        if period.start_s <= t and (period.end_s is None or period.end_s > t)
    ]
    return replace(queues, reservations=tuple(reservations), outages=tuple(outages))


def _moved(period: NodeReservation, zero_s: float) -> Iterator[NodeReservation]:
    """Yield a reservation on a clock that begins at ``zero_s``. If the reservation repeats, a
    period in progress becomes a separate reservation, because no period may begin before time 0."""
    start_s, end_s, every_s = period.start_s - zero_s, period.end_s - zero_s, period.every_s
    if every_s is not None and start_s < 0:
        over = 0 if end_s > 0 else floor(-end_s / every_s) + 1
        start_s, end_s = start_s + over * every_s, end_s + over * every_s
        if start_s < 0:
            yield replace(period, start_s=0.0, end_s=end_s, every_s=None, known_s=None)
            start_s, end_s = start_s + every_s, end_s + every_s
    yield replace(period, start_s=max(start_s, 0.0), end_s=max(end_s, _OVER_S), known_s=None)
