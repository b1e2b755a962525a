"""Read the state of a cluster at one time, and simulate its future under the site's policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from math import floor, inf
from typing import Any

import numpy as np

from dagsim.config.schema import Config
from dagsim.errors import Stalled
from dagsim.experiment.simulate import make_policy
from dagsim.families.forecast import services
from dagsim.families.forecast.job_log import JobLog
from dagsim.families.forecast.past_waits import RunTimes, classes_of
from dagsim.families.forecast.time_spans import HOUR_S, WEEK_S
from dagsim.model import NodeReservation, QueueTree, Start, Wait
from dagsim.model.arithmetic import DAY_S
from dagsim.systems.cluster import services as cluster_services
from dagsim.systems.cluster.kernel import ClusterKernel
from dagsim.systems.cluster.models.estimates import Estimates
from dagsim.systems.cluster.past.from_log import jobs_at
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.cluster.state import TaskState
from dagsim.systems.cluster.view import ClusterView
from dagsim.systems.cluster.waits.present import Obstacles, Present
from dagsim.systems.cluster.waits.wait_rules import NextStep
from dagsim.systems.seam import Conversation, stated
from dagsim.workload.arrays import JobArrays, Labels, objects

_LEAST_LEFT_S = 60.0
"""Seconds left for a job that has reached its limit."""
_LEAST_HORIZON_S, _MOST_HORIZON_S = 12 * HOUR_S, WEEK_S
_YOUNG_S = 14 * DAY_S
"""Minimum length of a log for new arrivals to repeat those at the same hour of the week."""
_BLOCK_S = HOUR_S
_MANY_SEARCHES = 500_000
"""If the product of futures, jobs and nodes is at least this large, it pays off to load Slurm's
compiled backfill."""


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


@dataclass(frozen=True, slots=True)
class QueueState:
    """The jobs in the system at time ``t``: indices into the log, in order of submission."""

    log: JobLog
    t: float
    running: np.ndarray
    waiting: np.ndarray

    @classmethod
    def at(cls, log: JobLog, t: float) -> QueueState:
        """Return the jobs that were running and waiting at time ``t`` according to a log."""
        submitted = np.arange(int(np.searchsorted(log.submit_s, t, "right")))
        started = log.start_s[submitted] <= t
        gone = log.end_s[submitted] <= t
        return cls(log, t, submitted[started & ~gone], submitted[~started & ~gone])

    @property
    def eligible_s(self) -> np.ndarray:
        """(n,) float64: the time from which each waiting job could start, or infinity if it cannot
        start yet."""
        seen_s = self.log.eligible_s[self.waiting]
        return np.where(seen_s <= self.t, seen_s, inf)

    @property
    def age_s(self) -> np.ndarray:
        """(n,) float64: how long each waiting job has been eligible to start, or 0 if it is not
        eligible yet.
        """
        ages: np.ndarray = np.where(np.isinf(self.eligible_s), 0.0, self.t - self.eligible_s)
        return ages

    @property
    def horizon_s(self) -> float:
        """Length of a simulation: twice the longest wait among the jobs in the system and the last
        1,000 jobs that started, at least 12 h and at most a week."""
        log, t = self.log, self.t
        first = np.searchsorted(log.submit_s, t, "right")
        latest = slice(max(0, int(first) - 1000), int(first))
        until_s = np.where(log.start_s[latest] <= t, log.start_s[latest], np.where(log.end_s[latest] <= t, 0.0, t))
        longest_s = float(np.max(until_s - log.submit_s[latest], initial=0.0))
        return min(max(2 * longest_s, _LEAST_HORIZON_S), _MOST_HORIZON_S)


def run_times_at(log: JobLog, ended: Iterable[int], into: RunTimes) -> RunTimes:
    """Add the run times of ended jobs, which are given by their indices in the log, in order of
    their ends. Requeued runs are left out, because it is not known how long they would have run.
    """
    for job in ended:
        if log.requeued[job]:
            continue
        into.add(run_time_classes(log, job), float(log.run_s[job] / log.limit_s[job]))
    return into


def run_time_classes(log: JobLog, job: int) -> list[tuple[str, object]]:
    """Return the classes of run times to which a job belongs, from wide to narrow."""
    array = log.array[job]
    return classes_of(log.user[job], float(log.limit_s[job]), "" if array == log.jobs.ids[job] else array)


class Player:
    """An object that simulates the futures of a log's states, on a cluster under a policy."""

    def __init__(self, scenario: ClusterScenario, policy: str, log: JobLog) -> None:
        self._estimated = replace(scenario, estimates=Estimates("predicted"), engine="simpy", outages=False)
        self._policy = policy
        self._log = log
        self._obstacles: Obstacles | None = None
        self._hindered: dict[int, str] = {}
        queues = scenario.queues
        self._cycle_s = 0.0
        """Time between two cycles of the scheduler: a job that could start now but has not starts
        at the next cycle. Other policies decide immediately."""
        if queues and queues.scheduler and (settings_of := cluster_services.slurm_settings.offered()):
            self._cycle_s = float(settings_of(queues).bf_interval_s)
        self._usage: Any = None
        """The usage of users before the forecast, if the policy's priorities depend on it."""
        if queues and queues.scheduler and (past_usage := services.past_usage.offered()):
            self._usage = past_usage(log, scenario.cluster, queues)

    def of(self, log: JobLog) -> Player:
        """Return a copy of this player for another log."""
        return Player(self._estimated, self._policy, log)

    def obstacle(self, job: int, t: float) -> str:
        """Describe what prevents the job at an index of the log from ever starting after time
        ``t``, even if nothing else runs. The text is empty if nothing prevents it."""
        words = self._hindered.get(job)
        if words is None:
            self._obstacles = self._obstacles or Obstacles(self._estimated, self._policy)
            claimed = self._log.jobs.chosen(np.array([job]))
            if not self._log.limited[job]:
                claimed = replace(claimed, estimate=None)
            (asked,) = claimed.jobs()
            words = self._obstacles.of(asked, t)
            # A reservation ends, so the obstacles of a job in a reservation depend on ``t``: do not
            # cache them.
            if asked.request is None or not asked.request.reservation:
                self._hindered[job] = words
        return words

    def starts_alone(self, state: QueueState) -> bool:
        """Return True if every waiting job in the state would start within a week if it were the
        only waiting job.
        """
        starts = self.starts(state, Future.LIMITS, 1, RunTimes(), np.random.default_rng(0))
        return all(np.isfinite(starts_s).all() for starts_s in starts)

    def starts(
        self,
        state: QueueState,
        kind: Future,
        futures: int,
        run_times: RunTimes,
        rng: np.random.Generator,
        rows: Sequence[np.ndarray] | None = None,
    ) -> Iterator[np.ndarray]:
        """Simulate futures. For each future, yield the seconds from ``state.t`` to the start of
        each waiting job, (n,), which are infinite if the job does not start within the horizon. If
        ``rows`` (groups of waiting jobs) are given, a simulation ends when one job of each row has
        started.

        Each future has its own random numbers, so the first k futures do not depend on how many are
        simulated.
        """
        groups = [np.array([place]) for place in range(len(state.waiting))] if rows is None else rows
        if not len(groups):
            yield from (np.full(len(state.waiting), inf) for _ in range(futures))
            return
        if self._usage is not None and futures * len(groups) * len(self._estimated.cluster.nodes) > _MANY_SEARCHES:
            services.load_searches()
        scene = _Scene(self._estimated, state)
        horizon_s = _MOST_HORIZON_S if kind is not Future.ARRIVALS else state.horizon_s
        streams = rng.spawn(futures)
        run_s = scene.run_s(kind, run_times, streams)
        for number, own in enumerate(streams):
            jobs = scene.jobs(run_s[:, number], self._arrivals(scene, kind, horizon_s, run_times, own))
            yield self._play(scene, jobs, horizon_s, groups, kind, own)

    def _play(
        self,
        scene: _Scene,
        jobs: JobArrays,
        horizon_s: float,
        groups: Sequence[np.ndarray],
        kind: Future,
        rng: np.random.Generator,
    ) -> np.ndarray:
        watch, begins_s = self._watched(scene, jobs, horizon_s, groups, kind, rng), scene.begins_s
        return np.array([watch.started_s.get(id, inf) for id in scene.targets]) - begins_s

    def _watched(
        self,
        scene: _Scene,
        jobs: JobArrays,
        horizon_s: float,
        groups: Sequence[np.ndarray],
        kind: Future,
        rng: np.random.Generator,
    ) -> _Watch:
        """Simulate a future, and return the starts of jobs in it."""
        begins_s = scene.begins_s
        kernel, policy = self._begun(scene, jobs, inf if kind is Future.ORACLE else begins_s)
        watch = _Watch(
            policy, {scene.targets[place]: row for row, group in enumerate(groups) for place in group.tolist()}
        )
        cycle_s = self._cycle_s * (0.5 if kind is Future.ORACLE else rng.random())
        # A job that is held back by a rule may wait until the end of the simulation.
        with suppress(Stalled):
            talk = Conversation(kernel, begins_s + horizon_s)
            if talk.view is not None and talk.view.now == begins_s and cycle_s:
                talk.answer([Wait(begins_s + cycle_s)])
            while talk.view is not None and watch.left:
                talk.answer(watch.decide(talk.view))
        return watch

    def _begun(self, scene: _Scene, jobs: JobArrays, coarse_after_s: float = inf) -> tuple[ClusterKernel, Any]:
        """Return a kernel that begins with the state of a scene, and the policy that decides in it.
        After ``coarse_after_s``, the policy may decide less often.
        """
        queues = _on_clock(self._estimated.queues, scene.zero_s, scene.state.t)
        scenario = replace(self._estimated, workload=list(jobs.jobs()), begins_s=scene.begins_s, queues=queues)
        policy: Any = make_policy(scenario, self._policy, 0)
        if beginning := stated(policy, "beginning"):
            policy = beginning(scene.usage(self._usage), coarse_after_s)
        return scenario.kernel(0), policy

    def present(self, state: QueueState) -> tuple[Present, dict[str, TaskState], float]:
        """Return the reasons why the jobs in a state are waiting, the first task of each eligible
        job (by job id), and the time in the log at which the clock of these reasons begins."""
        scene = _Scene(self._estimated, state)
        run_s = scene.run_s(Future.LIMITS, RunTimes(), [np.random.default_rng(0)])
        kernel, policy = self._begun(scene, scene.jobs(run_s[:, 0], None))
        Conversation(kernel, scene.begins_s)
        view = ClusterView(kernel)
        tasks: dict[str, TaskState] = {}
        for task in view.ready:
            tasks.setdefault(task.job.job.id, task)
        return Present(view, policy, self._policy), tasks, scene.zero_s

    @cached_property
    def knows_queue(self) -> bool:
        """True if the policy decides about every waiting job, including jobs that never start but
        may block others.
        """
        policy = make_policy(self._estimated, self._policy, 0)
        return stated(policy, "decides_at_once") and stated(policy, "outlook") is not None

    def said(self, state: QueueState) -> dict[str, NextStep]:
        """Return the policy's current decision about each waiting job, by the job's id. The result
        is empty for policies whose first decisions in a snapshot differ from those of the real
        scheduler."""
        if not self.knows_queue or not len(state.waiting):
            return {}
        present, _, _ = self.present(state)
        standings = [one for one in present.standings if one.outcome is not None]
        return {one.task.job.job.id: one.outcome for one in standings if one.outcome is not None}

    def planned_start(self, state: QueueState, place: int) -> tuple[float, tuple[str, ...]]:
        """Return when the job at index ``place`` of ``state.waiting`` starts, in seconds from now,
        and on which nodes. The time is infinite if it does not start within a week. All jobs are
        assumed to run to their limits, and no other jobs to arrive."""
        scene, rng = _Scene(self._estimated, state), np.random.default_rng(0)
        jobs = scene.jobs(scene.run_s(Future.LIMITS, RunTimes(), [rng])[:, 0], None)
        watch = self._watched(scene, jobs, _MOST_HORIZON_S, [np.array([place])], Future.LIMITS, rng)
        id = scene.targets[place]
        names = [node.name for node in self._estimated.cluster.nodes]
        nodes = tuple(dict.fromkeys(names[node] for node in watch.nodes.get(id, ())))
        return watch.started_s.get(id, inf) - scene.begins_s, nodes

    def _arrivals(
        self, scene: _Scene, kind: Future, horizon_s: float, run_times: RunTimes, rng: np.random.Generator
    ) -> JobArrays | None:
        """Return the jobs that arrive in a future, on the clock of the scene."""
        log, t = self._log, scene.state.t
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
        arrival_s = at_s - scene.zero_s
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


def _on_clock(queues: QueueTree | None, zero_s: float, t: float) -> QueueTree | None:
    """Return what is known about the queues at time ``t``, on a clock that begins at ``zero_s``.
    Reservations are known in advance. An outage is known when it has begun, but its end is
    unknown."""
    if queues is None:
        return None
    known = [period for period in queues.reservations if period.known_s is None or period.known_s <= t]
    reservations = [moved for period in known for moved in _moved(period, zero_s)]
    outages = [
        replace(period, start_s=max(period.start_s - zero_s, 0.0), end_s=None)
        for period in queues.outages
        if period.start_s <= t and (period.end_s is None or period.end_s > t)
    ]
    scheduler = queues.scheduler
    if scheduler.get("calc_phase_s") and (settings_of := cluster_services.slurm_settings.offered()):
        settings = settings_of(queues)
        scheduler = {**scheduler, "calc_phase_s": (settings.calc_phase_s - zero_s) % settings.calc_period_s}
    return replace(queues, reservations=tuple(reservations), outages=tuple(outages), scheduler=scheduler)


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


def policy_of(config: Config) -> str:
    """Return the policy that simulates futures. If the configuration names none, it is the policy
    of Kueue or Slurm if the configuration has their queues, and otherwise EASY.
    """
    if "policy" in config.model_fields_set:
        return config.policy
    queues = config.queues
    if queues is not None and queues.has_quota:
        return "kueue"
    return "slurm-multifactor" if queues is not None and (queues.scheduler or queues.partitions) else "easy"


_OVER_S = 1e-3
"""End of reservations that were over before the clock begins, because jobs may still name them."""
_NEVER_S = 10 * WEEK_S


def starts_by(scenario: ClusterScenario, policy: str, jobs: JobArrays) -> np.ndarray:
    """Return the times at which the jobs in a log start under a policy that uses their limits as
    estimates, in seconds, (n,). The time is NaN for a job that never starts.
    """
    limits = np.full(jobs.tasks, np.nan) if jobs.estimate is None else jobs.estimate
    asked = replace(jobs, estimate=np.where(np.isnan(limits), WEEK_S, limits), observed_start_s=None)
    whole = replace(scenario, workload=list(asked.jobs()), estimates=Estimates("predicted"), engine="simpy")
    kernel, decider = whole.kernel(0), make_policy(whole, policy, 0)
    watch = _Watch(decider, {id: number for number, id in enumerate(jobs.ids.tolist())})
    talk = Conversation(kernel)
    with suppress(Stalled):
        while talk.view is not None:
            talk.answer(watch.decide(talk.view))
    return np.array([watch.started_s.get(id, np.nan) for id in jobs.ids.tolist()])


class _Scene:
    """The jobs in a state, on a clock that begins a second before the oldest of them was submitted."""

    def __init__(self, scenario: ClusterScenario, state: QueueState) -> None:
        self.state = state
        log, t = state.log, state.t
        self._known = numbers = np.sort(np.concatenate([state.running, state.waiting]))
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
            self._known, self._is_running = numbers[there], self._is_running[there]
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
        log, limit_s, futures = self.state.log, self.state.log.limit_s[self._known], len(streams)
        if kind is Future.LIMITS:
            run_s = np.repeat(limit_s[:, None], futures, axis=1)
        elif kind is Future.ORACLE:
            true_s = log.run_s[self._known]
            return np.repeat(np.where(np.isnan(true_s), limit_s, true_s)[:, None], futures, axis=1)
        else:
            levels = np.stack([own.random(len(self._known)) for own in streams], axis=1)
            drawn = [
                run_times.draw(level, run_time_classes(log, job), float(done))
                for job, level, done in zip(self._known.tolist(), levels, self.elapsed_s / limit_s, strict=True)
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
        log, numbers = self.state.log, self._known
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


class _Watch:
    """A policy that passes on the decisions of another policy, and records when jobs first start.
    ``left`` contains the rows of jobs in which no job has started yet.
    """

    def __init__(self, policy: Any, row_of: dict[str, int]) -> None:
        self._policy = policy
        self._row_of = row_of
        self.left = set(row_of.values())
        self.started_s: dict[str, float] = {}
        self.nodes: dict[str, tuple[int, ...]] = {}
        """Numbers of the nodes of each first start."""

    def decide(self, view: Any) -> Iterator[Any]:
        now = view.now
        for decision in self._policy.decide(view):
            yield decision
            if isinstance(decision, Start):
                id = decision.task.job.job.id  # type: ignore[attr-defined]
                if id in self._row_of:
                    self.left.discard(self._row_of[id])
                    self.started_s.setdefault(id, now)
                    self.nodes.setdefault(id, tuple([share.node for share in decision.placement]))


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
