"""Gavel's policies. They compute which share of its time each job, or pair of jobs, should spend on
each GPU type (Narayanan et al., OSDI 2020, sections 4 and 5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import numpy as np

from dagsim.errors import ConfigError
from dagsim.families.gavel.gpu_prices import PUBLISHED_PRICES, price_of
from dagsim.families.gavel.linear_programs import ShareProgram, program_rows
from dagsim.families.gavel.round_ledger import Allocation, Allocator, GavelJob, JobOrPair, Situation
from dagsim.model.arithmetic import ordered_sum
from dagsim.spelling import choices

_PACKING_GAIN = 1.5
"""Sum of normalised rates above which FIFO packs two jobs."""
_REFERENCE = "V100-16"
"""Type whose rates stand for all types in policies that do not know the types."""
_BISECTION_RATIO = 1.05
"""Ratio of the bounds at which Gavel's bisection of the total duration ends."""
_DURATIONS_S = (100.0, 1e6)
"""Bounds of the total duration with which the bisection begins."""
_SLACK = 1e-9
"""Relative tolerance for rounding in a linear program that uses the level found by another one."""
_RHO_RATIO = 1e-7
"""Ratio of the bounds at which the search for the lowest rho ends."""
_SAME_SOLVE_S = 1e-3
"""Tolerance for the time of a given solve."""


class _Rule:
    """The default values of the flags of an ``Allocator``."""

    fixed_order = True
    needs_priority = False
    pairs = False


class Isolated(_Rule):
    """Gives each job an equal part of the GPUs of each type."""

    fixed_order = False

    def allocate(self, situation: Situation) -> Allocation:
        """Return the share of its time that each job should spend on each GPU type."""
        return {(job.number,): _isolated(situation, job) for job in situation.jobs.values()}


def _isolated(situation: Situation, job: GavelJob) -> dict[str, float]:
    share = {name: count / len(situation.jobs) / job.gpus for name, count in situation.gpus.items()}
    scale = max(1.0, ordered_sum(share.values()))
    return {name: part / scale for name, part in share.items()}


class Proportional(_Rule):
    """Gives each job the same shares, in proportion to the number of GPUs of each type."""

    fixed_order = False

    def allocate(self, situation: Situation) -> Allocation:
        """Return the share of its time that each job should spend on each GPU type."""
        return {(number,): _proportional(situation) for number in situation.jobs}


def _proportional(situation: Situation) -> dict[str, float]:
    share = {name: count / len(situation.jobs) for name, count in situation.gpus.items()}
    total = ordered_sum(share.values())
    return {name: part / total for name, part in share.items()}


class Fifo(_Rule):
    """First come, first served: each job gets the fastest type with enough free GPUs, which is
    chosen again at each solve. If ``pairs`` is True, waiting jobs then join the running jobs with
    which they run best.
    """

    needs_priority = True

    def __init__(self, pairs: bool = False) -> None:
        self.pairs = pairs

    def allocate(self, situation: Situation) -> Allocation:
        """Return the share of time of each job or pair on each GPU type, which is 0 or 1."""
        room: dict[str, float] = dict(situation.gpus)
        queue = list(situation.jobs.values())
        placed: dict[JobOrPair, str] = {}
        while queue and any(room.values()):
            job = queue.pop(0)
            types = [name for name, free in room.items() if free and free >= job.gpus]
            if not types:
                break  # this job blocks all later jobs
            best = max(types, key=lambda name: job.rate[name])
            if not job.rate[best]:
                continue  # this job waits, but blocks no other job
            placed[job.number,] = best
            room[best] -= job.gpus
        if self.pairs:
            self._pack(situation, queue, placed)
        keys = program_rows(situation, self.pairs)
        return {key: {name: float(placed.get(key) == name) for name in situation.gpus} for key in keys}

    def _pack(self, situation: Situation, queue: list[GavelJob], placed: dict[JobOrPair, str]) -> None:
        """Pair each job in the queue with a running job, in order. Stop at the first job for which there
        is no partner."""
        for job in queue:
            partner, best = None, _PACKING_GAIN
            for key, type_ in placed.items():
                host = situation.jobs[key[0]]
                if len(key) == 1 and host.gpus == job.gpus:
                    gain = _normalised(situation, host, job, type_)
                    if gain > best:
                        partner, best = host.number, gain
            if partner is None:
                return
            placed[min(partner, job.number), max(partner, job.number)] = placed.pop((partner,))


def _normalised(situation: Situation, first: GavelJob, second: GavelJob, type_: str) -> float:
    """Return the sum of the rates of two jobs that share a GPU, each relative to its rate on its
    own."""
    assert situation.pair_rates is not None
    low, high = sorted((first, second), key=lambda job: job.number)
    gain = 0.0
    for job, rate in zip((low, high), situation.pair_rates(low, high, type_), strict=True):
        if rate > 0:
            gain += rate / job.rate[type_]
    return gain


class AlloXShares(_Rule):
    """AlloX as Gavel implements it: waiting jobs are assigned to positions in the queues of all
    GPUs, so that the sum of completion times is minimal. The first job in each queue starts, and
    keeps its GPU until it ends.

    With ``gangs``, a job that needs several GPUs also waits in the queue of a single GPU, as in the
    extension by Shockwave's authors. Once it has been placed for the first time, it gets the
    fraction 1 / GPUs of the time, and it is assigned again at each solve. To avoid starvation, only
    the fraction ``oldest`` of the waiting jobs (the oldest ones) competes, but at least as many
    jobs as there are free GPUs.

    Raises:
        ConfigError: A job has several GPUs, but ``gangs`` is not set.
    """

    def __init__(self, gangs: bool = False, oldest: float = 1.0) -> None:
        self._gangs = gangs
        self._oldest = oldest
        self._placed: dict[int, str] = {}
        self._shared: dict[int, str] = {}
        """Jobs with several GPUs that have been placed, each with its GPU type."""

    def allocate(self, situation: Situation) -> Allocation:
        """Return the shares, each of which is 0 or 1 (or 1 / GPUs for gangs)."""
        from scipy.optimize import linear_sum_assignment

        jobs, types = situation.jobs, list(situation.gpus)
        wide = next((job for job in jobs.values() if job.gpus != 1), None)
        if wide and not self._gangs:
            raise ConfigError(
                f"gavel: allox supports only jobs with one GPU, but job {wide.number} requests {wide.gpus}"
            )
        self._placed = {number: name for number, name in self._placed.items() if number in jobs}
        free = dict(situation.gpus)
        for name in self._placed.values():
            free[name] -= 1
        workers = [name for name in types for _ in range(free[name])]
        waiting = [job for job in jobs.values() if job.number not in self._placed]
        waiting = waiting[: max(int(self._oldest * len(waiting)), len(workers))]
        if workers and waiting:
            rates = np.array([[job.rate[name] for name in workers] for job in waiting])
            left = np.array([job.left for job in waiting])[:, None]
            ages_s = np.array([situation.now_s - job.arrival_s for job in waiting])[:, None]
            took_s = np.divide(left, rates, out=np.full(rates.shape, 1e15), where=rates > 0)
            cost = np.hstack([place * took_s + ages_s for place in range(1, len(waiting) + 1)])
            queues: dict[int, tuple[int, int]] = {}
            for row, column in zip(*linear_sum_assignment(cost), strict=True):
                place, worker = divmod(int(column), len(workers))
                # positions count from the end of the queue
                queues[worker] = max(queues.get(worker, (-1, -1)), (place, int(row)))
            for worker, (_, row) in sorted(queues.items()):
                if rates[row, worker] > 0:
                    placed = self._placed if waiting[row].gpus == 1 else self._shared
                    placed[waiting[row].number] = workers[worker]
        places = self._shared | self._placed
        return {
            (number,): {name: (places.get(number) == name) / job.gpus for name in types} for number, job in jobs.items()
        }


class MaxMin(_Rule):
    """Least attained service, which makes the lowest progress of any job as high as possible. A
    job's progress is its rate relative to the rate with proportional shares, divided by its weight
    and multiplied by its number of GPUs.
    """

    def __init__(self, perf: bool = True, pairs: bool = False) -> None:
        self.perf = perf
        self.pairs = pairs
        self.fixed_order = perf or pairs

    def allocate(self, situation: Situation) -> Allocation:
        """Return the share of its time that each job should spend on each GPU type."""
        program = ShareProgram(situation, self.pairs)
        _, shares, _ = program.highest(self.progress(situation, program), np.ones(len(program.jobs)))
        return program.allocation(shares)

    def progress(self, situation: Situation, program: ShareProgram) -> Any:
        """Return the progress of each job (row) per unit of each variable (column)."""
        fair = _proportional(situation)
        rates = program.rates if self.perf else program.present
        base = [
            ordered_sum((job.rate[name] if self.perf else 1.0) * fair[name] for name in fair) for job in program.jobs
        ]
        scale = [
            job.gpus / (job.weight * level) if level else 0.0 for job, level in zip(program.jobs, base, strict=True)
        ]
        return rates.multiply(np.array(scale)[:, None]).tocsr()


class WaterFilling(MaxMin):
    """Repeats max-min fairness: the jobs that limit the level stay at that level, and the level of
    the other jobs rises.
    """

    def allocate(self, situation: Situation) -> Allocation:
        """Return the share of its time that each job should spend on each GPU type."""
        program = ShareProgram(situation, False)
        progress = self.progress(situation, program)
        free, floors = np.ones(len(program.jobs)), np.zeros(len(program.jobs))
        shares = np.zeros(progress.shape[1])
        while free.any():
            level, best, prices = program.highest(progress, free, floors * (1 - _SLACK))
            if level == -inf:
                break
            shares = best
            held = (prices > _SLACK) & (free > 0)
            if not held.any():
                break
            floors[held], free[held] = level, 0.0
        return program.allocation(shares)


class FinishTimeFairness(_Rule):
    """Makes the largest rho of any job as low as possible, where rho is the job's time in the
    system divided by its time on a private part of the cluster (based on Themis, NSDI 2020).
    """

    def __init__(self, perf: bool = True, pairs: bool = False) -> None:
        self.perf = perf
        self.pairs = pairs
        self.fixed_order = perf or pairs
        self._isolated_s: dict[int, float] = {}
        """Seconds that each job's work up to the last solve would have taken on the job's own
        part."""
        self._last: dict[int, tuple[float, float]] = {}
        """Remaining steps at the last solve, and the job's rate on its own part at that time."""

    def allocate(self, situation: Situation) -> Allocation:
        """Return the share of its time that each job should spend on each GPU type."""
        situation = situation if self.perf else _on_reference(situation)
        program = ShareProgram(situation, self.pairs)
        age_s, alone_s, left = [], [], []
        for job in program.jobs:
            share = _isolated(situation, job)
            rate = ordered_sum(job.rate[name] * share[name] for name in share)
            had_left, had_rate = self._last.get(job.number, (job.left, 1.0))
            past_s = self._isolated_s.get(job.number, 0.0) + (had_left - job.left) / had_rate
            self._isolated_s[job.number] = past_s
            self._last[job.number] = job.left, rate
            age_s.append(situation.now_s - job.arrival_s)
            alone_s.append(past_s + job.left / rate)
            left.append(job.left)
        return program.allocation(_least_rho(program, np.array(age_s), np.array(alone_s), np.array(left)))


def _least_rho(program: ShareProgram, age_s: np.ndarray, alone_s: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Return the shares that minimise the largest rho, (age + left / rate) / alone. For a given
    rho, each job needs a rate of left / (rho x alone - age). Bisection finds the lowest rho for
    which a linear program gives all jobs these rates.
    """
    # ``low`` is infeasible, because some job would need an infinite rate
    low, high, bounded = float(np.max(age_s / alone_s)), 1.0, False
    high = max(high, 2.0 * low)
    while True:
        rho = (low + high) / 2 if bounded else high
        needs = left / np.maximum(rho * alone_s - age_s, 1e-12)
        ended = bounded and high - low <= _RHO_RATIO * high
        if ended:
            needs = left / np.maximum(high * alone_s - age_s, 1e-12)
        level, shares, _ = program.highest(program.rates, needs / needs.max(), middle=ended)
        if ended:
            return shares
        if level >= needs.max():
            high, bounded = rho, True
        elif bounded:
            low = rho
        else:
            low, high = rho, 2.0 * high


class TotalDuration(_Rule):
    """Minimises the time until all jobs have ended, to within the ratio of Gavel's bisection
    (5%)."""

    def __init__(self, perf: bool = True, pairs: bool = False) -> None:
        self.perf = perf
        self.pairs = pairs
        self.fixed_order = perf or pairs

    def allocate(self, situation: Situation) -> Allocation:
        """Return the share of its time that each job should spend on each GPU type."""
        situation = situation if self.perf else _on_reference(situation)
        program = ShareProgram(situation, self.pairs)
        left = np.array([job.left for job in program.jobs])
        level, shares, _ = program.highest(program.rates, left / left.max())
        if level > 0:
            shortest_s = float(left.max()) / level
            spread = program.spread(left / _bisected(shortest_s))
            shares = shares if spread is None else spread
        return program.allocation(shares)


def _bisected(shortest_s: float) -> float:
    """Return the total duration at which Gavel's bisection ends if the shortest possible duration
    is ``shortest_s``.
    """
    low, high = _DURATIONS_S
    while high < shortest_s:
        high *= 10.0
    while high > _BISECTION_RATIO * low:
        middle = (low + high) / 2
        low, high = (low, middle) if middle >= shortest_s else (middle, high)
    return high


class SumOfRates(_Rule):
    """Maximises the sum of steps per second, or of steps per dollar with ``cost``."""

    def __init__(self, perf: bool = True, cost: bool = False) -> None:
        self.perf = perf
        self.cost = cost
        self.fixed_order = perf

    def allocate(self, situation: Situation) -> Allocation:
        """Return the share of its time that each job should spend on each GPU type."""
        situation = situation if self.perf else _on_reference(situation)
        program = ShareProgram(situation, False)
        gain = np.asarray(program.rates.sum(axis=0)).ravel()
        if self.cost:
            gain = gain / np.tile([price_of(name, PUBLISHED_PRICES) for name in program.types], len(program.keys))
        shares = program.best(gain)
        return program.allocation(np.zeros(len(gain)) if shares is None else shares)


class GivenShares(_Rule):
    """An allocator with shares that were computed elsewhere, one set per solve. Rows that contain
    only zeros may be missing."""

    def __init__(self, like: Allocator, solves: Iterable[tuple[float, Allocation]]) -> None:
        self.fixed_order, self.needs_priority, self.pairs = like.fixed_order, like.needs_priority, like.pairs
        self._solves = iter(solves)

    def allocate(self, situation: Situation) -> Allocation:
        """Return the next set of shares.

        Raises:
            ConfigError: There are no more shares, or they were computed for another time.
        """
        at_s, rows = next(self._solves, (inf, {}))
        if abs(at_s - situation.now_s) > _SAME_SOLVE_S:
            raise ConfigError(
                f"gavel: the next recorded allocation is for {at_s!r} s, but the simulation needs one at "
                f"{situation.now_s!r} s"
            )
        zeros = dict.fromkeys(situation.gpus, 0.0)
        return {key: {**zeros, **rows.get(key, {})} for key in program_rows(situation, self.pairs)}


def _on_reference(situation: Situation) -> Situation:
    """Return the situation for a policy that does not distinguish types: each job's rate on every
    type is its rate on the reference type."""
    jobs = {}
    for number, job in situation.jobs.items():
        rate = job.rate.get(_REFERENCE) or max(job.rate.values())
        jobs[number] = replace(job, rate=dict.fromkeys(job.rate, rate))
    return situation._replace(jobs=jobs)


GAVEL_POLICIES: Mapping[str, Callable[[], Allocator]] = {
    "isolated": Isolated,
    "proportional": Proportional,
    "fifo_perf": Fifo,
    "fifo_packed": partial(Fifo, pairs=True),
    "allox": AlloXShares,
    "allox_gangs": partial(AlloXShares, gangs=True, oldest=0.2),
    "max_min_fairness": partial(MaxMin, perf=False),
    "max_min_fairness_perf": MaxMin,
    "max_min_fairness_packed": partial(MaxMin, pairs=True),
    "max_min_fairness_water_filling": partial(WaterFilling, perf=False),
    "max_min_fairness_water_filling_perf": WaterFilling,
    "finish_time_fairness": partial(FinishTimeFairness, perf=False),
    "finish_time_fairness_perf": FinishTimeFairness,
    "finish_time_fairness_packed": partial(FinishTimeFairness, pairs=True),
    "min_total_duration": partial(TotalDuration, perf=False),
    "min_total_duration_perf": TotalDuration,
    "min_total_duration_packed": partial(TotalDuration, pairs=True),
    "max_sum_throughput_perf": SumOfRates,
    "max_sum_throughput_normalized_by_cost_perf": partial(SumOfRates, cost=True),
}
"""Gavel's policies by the names that its authors gave them."""


def allocator(name: str) -> Allocator:
    """Build the policy that has this name in Gavel.

    Raises:
        ConfigError: There is no such policy.
    """
    make = GAVEL_POLICIES.get(name)
    if make is None:
        hint = choices(name, GAVEL_POLICIES)
        raise ConfigError(f"gavel: there is no policy {name!r}{hint}")
    return make()
