"""Gavel's ledger: the time that each job has spent on each GPU type, and the rounds that follow
from it (Narayanan et al., OSDI 2020; based on the simulator that the authors published with the
paper).

Nothing in this module depends on dagsim's kernel. Times are in seconds, work is in steps, and rates
are steps per second for a whole gang. Floating-point operations are in the same order as in Gavel.
Otherwise, a difference of one unit in the last place could swap two equal jobs, and each of them
would run one round earlier or later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import frexp, inf, ldexp, ulp
from random import Random
from typing import NamedTuple, Protocol, TypeAlias

from dagsim.model.arithmetic import ordered_sum

JobOrPair: TypeAlias = tuple[int, ...]
"""A job, or a pair of jobs on one GPU, lower number first."""
Allocation: TypeAlias = dict[JobOrPair, dict[str, float]]
"""The share of its time that each job or pair should spend on each GPU type."""

_MOST_FAILURES = 5
"""Number of failures in a row after which Gavel drops a job."""
_HUGE = 1e9
"""Factor of the priority on a type on which nobody has run since the last solve."""
_SHUFFLE_SEED = 5
"""Added to the seed of the run for the shuffling of GPU types."""
_PERIOD = 4
"""Number of equal rounds after which the increments of all sums repeat
(``GavelLedger.pass_rounds``)."""
_FOR_EVER = 1 << 62


class PairRates(Protocol):
    """The rates of two jobs when they share a GPU."""

    def __call__(self, first: GavelJob, second: GavelJob, type_: str) -> tuple[float, float]:
        """Return the steps per second of each of the two jobs on ``type_``, or zeros if they do not
        fit together.
        """


@dataclass(slots=True, eq=False)
class GavelJob:
    """A job in Gavel's ledger."""

    number: int
    rate: Mapping[str, float]
    """Steps per second of the gang on each GPU type, 0 where it cannot run."""
    gpus: float
    """Size of the gang (Gavel's scale factor)."""
    left: float
    """Steps left."""
    weight: float = 1.0
    arrival_s: float = 0.0
    kind: object = None
    """Key of the job in a table of pairs."""
    whole_steps: bool = True
    """True if only whole steps fit in a round."""
    failures: int = 0
    steps: float = field(init=False)
    """Steps at arrival."""

    def __post_init__(self) -> None:
        self.steps = self.left


class MicroTask(NamedTuple):
    """The work of a job, or of a pair of jobs, in one round."""

    key: JobOrPair
    type: str
    steps: tuple[float, ...]
    """Steps of each job in the round."""
    finish_s: float


class Situation(NamedTuple):
    """The state from which a policy computes shares."""

    jobs: Mapping[int, GavelJob]
    """The active jobs by number, in order of arrival."""
    gpus: Mapping[str, int]
    """Number of GPUs of each type in use, in alphabetical order of the types."""
    now_s: float
    pair_rates: PairRates | None = None


class Allocator(Protocol):
    """One of Gavel's policies. It computes the shares that the ledger turns into rounds."""

    fixed_order: bool
    """True if the types are visited in a fixed order (Gavel's policies with Perf or Packing in
    their names), false if they are shuffled in each round."""
    needs_priority: bool
    """True if a job without priority never runs, not even on idle GPUs (Gavel's FIFO)."""
    pairs: bool
    """True if two jobs may share a GPU."""

    def allocate(self, situation: Situation) -> Allocation:
        """Return the shares. A job that is missing gets no share, and may not use idle GPUs
        either."""


class GavelLedger:
    """Gavel's ledger, which also chooses the jobs for each round.

    A simulation calls ``arrive`` and ``close_round`` at the end of each round, then ``next_round``.
    """

    def __init__(
        self,
        gpus: Mapping[str, int],
        allocator: Allocator,
        *,
        order: Sequence[str],
        seed: int = 0,
        round_s: float = 360.0,
        gap_s: float = 1920.0,
        pair_rates: PairRates | None = None,
    ) -> None:
        self.allocator = allocator
        self.round_s = round_s
        self.gap_s = gap_s
        self.gpus = {name: gpus[name] for name in sorted(gpus) if gpus[name]}
        self.pair_rates = pair_rates if allocator.pairs else None
        self.jobs: dict[int, GavelJob] = {}
        self.allocation: Allocation = {}
        self.round: list[MicroTask] = []
        """The micro-tasks in the current round, in the order in which they were chosen."""
        self._order = [name for name in order if name in self.gpus]
        self._shuffler = Random(seed + _SHUFFLE_SEED)
        self._had: dict[JobOrPair, dict[str, float]] = {}
        """Seconds of each job or pair on each type since the last solve, plus half a round."""
        self._deficit: dict[JobOrPair, dict[str, float]] = {}
        self._worked = dict.fromkeys(self.gpus, 0.0)
        """Seconds of all jobs on each type since the last solve."""
        self._settled_s = 0.0
        self._round_ended_s = 0.0
        self.must_solve = True

    def arrive(self, job: GavelJob) -> None:
        """Add a job, and its pairs with other jobs that have the same number of GPUs."""
        self.jobs[job.number] = job
        self._open((job.number,), self.round_s / 2)
        if self.pair_rates is not None:
            for other in self.jobs.values():
                if other is not job and other.gpus == job.gpus:
                    self._open((min(other.number, job.number), max(other.number, job.number)), 0.0)
        self.must_solve = True

    def leave(self, number: int) -> None:
        """Remove a job and its pairs. The job stays in the allocation until the next solve."""
        del self.jobs[number]
        for key in [key for key in self._had if number in key]:
            del self._had[key], self._deficit[key]
        self.must_solve = True

    def close_round(self, now_s: float, undone: Mapping[int, float] | None = None) -> list[tuple[int, float]]:
        """Book the micro-tasks in the round that is ending. Return the jobs that are done, each
        with the end of its last micro-task. ``undone`` contains the planned steps that jobs did not
        complete.
        """
        done = []
        for task in sorted(self.round, key=lambda task: (-task.finish_s, task.key)):
            ran_s = task.finish_s - self._round_ended_s
            failed = True
            for number, steps in zip(task.key, task.steps, strict=True):
                job = self.jobs[number]
                steps -= undone.get(number, 0.0) if undone else 0.0
                if steps <= 0 or ran_s <= 0 or (job.gpus > 1 and job.whole_steps and steps // job.gpus == 0):
                    self.must_solve = True
                    job.failures += 1
                    if job.failures == _MOST_FAILURES and job.whole_steps:
                        self.leave(number)
                        done.append((number, float("nan")))
                    continue
                failed = False
                job.failures = 0
                job.left -= steps
            if not failed:
                if task.key in self._had:
                    self._had[task.key][task.type] += ran_s
                self._worked[task.type] += ran_s
            for number in task.key:
                if number in self.jobs and self.jobs[number].left <= 0:
                    done.append((number, task.finish_s))
                    self.leave(number)
        if self.round:
            self._round_ended_s = now_s
        self.round = []
        return done

    def next_round(self, now_s: float, *, more_arrive: bool) -> list[MicroTask]:
        """Compute new shares if they are due, and choose the micro-tasks for the next round."""
        if self.must_solve and (now_s - self._settled_s >= self.gap_s or self._settled_s == 0):
            self._settle(now_s)
            situation = Situation(self.jobs, self.gpus, now_s, self.pair_rates)
            self.allocation = self.allocator.allocate(situation) if self.jobs and any(self.gpus.values()) else {}
            self.must_solve = False
        self.round = [self._micro_task(key, type_, now_s) for key, type_ in self._chosen()]
        if not self.round and not more_arrive:
            self._settled_s = 0.0
        return self.round

    def repeats(self) -> bool:
        """Return True if the following rounds choose the same jobs for the same types, regardless
        of their priorities, until a job arrives, is nearly done or leaves, or the number of GPUs
        changes.

        This is the case if no solve is due and, on each type in turn, all jobs that were not placed
        on earlier types fit. Rounds do not repeat if jobs compete, because they take turns and each
        turn is an event. They also do not repeat if types are shuffled in each round, because the
        random numbers have to be drawn one by one.
        """
        shuffled = not self.allocator.fixed_order and len(self._order) > 1
        if self.must_solve or self.pair_rates is not None or shuffled or len(self.round) < len(self.jobs):
            return False
        placed: dict[JobOrPair, str] = {}
        for type_ in self._order:
            keys = [key for key in self._had if key not in placed and self.rates(key, type_)[0] > 0]
            if self.allocator.needs_priority:
                keys = [key for key in keys if self.allocation.get(key, {}).get(type_, 0.0) > 0]
            sizes = [float(self.jobs[number].gpus) for (number,) in keys]
            rounding = 0.0 if all(map(float.is_integer, sizes)) else 1e-6
            if sizes and ordered_sum(sizes) > self.gpus[type_] - rounding:
                return False
            placed |= dict.fromkeys(keys, type_)
        return placed == {task.key: task.type for task in self.round}

    def pass_rounds(self, ends_s: float, until_s: float) -> float:
        """Close the current round, which ends at ``ends_s``, and all following rounds that end
        before ``until_s``. Return the end of the round that is then open. The rounds have to be
        equal (``repeats``), and every job must have at least the work of one round left in each of
        them.

        Every sum is bit for bit the same as if the rounds were closed one by one, but the cost
        grows only with the logarithm of the number of rounds. Within a binade (between two powers
        of two), a sum is a whole multiple m of one unit. The amount that a round adds depends on m
        only if the exact sum is halfway between two multiples, and then only on whether m is even.
        For the times of the rounds, the parity of m repeats with a period of at most two rounds.
        Every other sum depends only on these times and on itself, so its period is at most four
        rounds. Therefore, if four rounds have changed every m by an even number, the next four
        change it by the same number.
        """
        chosen = [(task.key, task.type) for task in self.round]
        if ends_s < until_s:  # A round that began after a pause is longer, so close it separately.
            self.close_round(ends_s)
            ends_s = self._reopen(chosen, ends_s)
        while ends_s < until_s:
            before = self._sums(ends_s)
            for _ in range(_PERIOD):
                self.close_round(ends_s)
                ends_s = self._reopen(chosen, ends_s)
                if ends_s >= until_s:
                    return ends_s
            after, steps = self._sums(ends_s), [task.steps[0] for task in self.round]
            others = len(after) - 1 - len(steps)
            low, high = [0.0] * (others + 1) + [2 * most for most in steps], [until_s] + [inf] * (others + len(steps))
            times = min(map(_repetitions, before, after, low, high))
            if times:
                self._set_sums([y + times * (y - x) for x, y in zip(before, after, strict=True)])
                ends_s = self._reopen(chosen, self._round_ended_s)
        return ends_s

    def _reopen(self, chosen: Sequence[tuple[JobOrPair, str]], now_s: float) -> float:
        """Open a round with these jobs, and return its end."""
        self.round = [self._micro_task(key, type_, now_s) for key, type_ in chosen]
        return max([task.finish_s for task in self.round])

    def _sums(self, ends_s: float) -> list[float]:
        """Return all sums that a round increases: its times, and the seconds and steps of its jobs."""
        had = [self._had[task.key][task.type] for task in self.round]
        left = [self.jobs[task.key[0]].left for task in self.round]
        return [ends_s, self._round_ended_s, *self._worked.values(), *had, *left]

    def _set_sums(self, sums: Sequence[float]) -> None:
        _, self._round_ended_s, *others = sums
        self._worked = dict(zip(self._worked, others, strict=False))
        others = others[len(self._worked) :]
        for task, had_s, left in zip(self.round, others, others[len(self.round) :], strict=False):
            self._had[task.key][task.type], self.jobs[task.key[0]].left = had_s, left

    def resize(self, gpus: Mapping[str, int]) -> None:
        """Set the number of GPUs of each type, which changes when nodes go down and come back."""
        now = {name: gpus.get(name, 0) for name in self.gpus}
        if now != self.gpus:
            self.gpus = now
            self.must_solve = True

    def rates(self, key: JobOrPair, type_: str) -> tuple[float, ...]:
        """Return the steps per second of the job, or of both jobs in a pair."""
        if len(key) == 1:
            return (self.jobs[key[0]].rate[type_],)
        assert self.pair_rates is not None
        return self.pair_rates(self.jobs[key[0]], self.jobs[key[1]], type_)

    def _open(self, key: JobOrPair, had_s: float) -> None:
        self._had[key] = dict.fromkeys(self.gpus, had_s)
        self._deficit[key] = dict.fromkeys(self.gpus, 0.0)

    def _settle(self, now_s: float) -> None:
        """Add to each deficit the time that is owed since the last solve, and reset the counts."""
        elapsed_s, half_s = now_s - self._settled_s, self.round_s / 2
        for type_ in self.gpus:
            self._worked[type_] = 0.0
            for key, had in self._had.items():
                share = self.allocation.get(key)
                owed_s = 0.0 if share is None else share[type_] * elapsed_s
                self._deficit[key][type_] += owed_s - (had[type_] - half_s)
                had[type_] = half_s
                self._worked[type_] += half_s
        self._settled_s = now_s

    def _priority(self, key: JobOrPair, type_: str) -> float:
        share = self.allocation.get(key, {}).get(type_, 0.0)
        if share == 0 or not all(self.rates(key, type_)):
            return 0.0
        worked_s = self._worked[type_]
        part = self._had[key][type_] / worked_s if worked_s else 0.0
        return share / part if part > 0 else share * _HUGE

    def _chosen(self) -> list[tuple[JobOrPair, str]]:
        """Choose jobs and pairs for the next round, and their types, highest priority first, as
        long as they fit. A job that was not in the last solve takes up GPUs but does not run.
        """
        order = list(self._order)
        if not self.allocator.fixed_order:
            self._shuffler.shuffle(order)
        queue: list[tuple[JobOrPair, str, float]] = []
        for type_ in order:
            rows = []
            for key in self._had:
                share = self.allocation.get(key, {}).get(type_, 0.0)
                rows.append((self._priority(key, type_), self._deficit[key][type_], share, key))
            rows.sort(key=lambda row: row[:3], reverse=True)
            queue.extend([(key, type_, priority) for priority, _, _, key in rows])
        room: dict[str, float] = dict(self.gpus)
        taken, chosen = set[int](), []
        for key, type_, priority in queue:
            gpus = self.jobs[key[0]].gpus
            if not room[type_] or not taken.isdisjoint(key) or min(self.rates(key, type_)) <= 0:
                continue
            if (self.allocator.needs_priority and priority <= 0) or gpus > room[type_]:
                continue
            room[type_] -= gpus
            taken.update(key)
            if key in self.allocation:
                chosen.append((key, type_))
        return chosen

    def _micro_task(self, key: JobOrPair, type_: str, now_s: float) -> MicroTask:
        rates = self.rates(key, type_)
        steps, finish_s = [], now_s
        for number, rate in zip(key, rates, strict=True):
            job = self.jobs[number]
            most = rate * self.round_s
            steps.append(min(int(most) if job.whole_steps else most, job.left))
            finish_s = max(finish_s, now_s + steps[-1] / rate)
        return MicroTask(key, type_, tuple(steps), finish_s)


def _repetitions(before: float, after: float, low: float, high: float) -> int:
    """Return how many times the change of a sum can be repeated exactly. The change must be an even
    multiple of the unit, and the sum must stay in its binade and between ``low`` and ``high``."""
    if before == after:
        return _FOR_EVER
    exponent = frexp(after)[1]
    if not before or frexp(before)[1] != exponent:
        return 0
    unit = ulp(after)
    now, change = int(after / unit), int((after - before) / unit)
    if change % 2:
        return 0
    if change > 0:
        return max(0, (int(min(high, ldexp(1.0, exponent)) / unit) - 1 - now) // change)
    return max(0, (now - int(max(low, ldexp(0.5, exponent)) / unit) - 1) // -change)
