"""Simulate the future of a queue under the site's policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import numpy as np

from dagsim.config.schema import Config
from dagsim.errors import Stalled
from dagsim.experiment.simulate import make_policy
from dagsim.families.forecast.future_jobs import Future, FutureJobs, queues_from
from dagsim.families.forecast.job_log import JobLog
from dagsim.families.forecast.queue_rows import Listed, Rows, rows_of
from dagsim.families.forecast.queue_state import MOST_HORIZON_S, QueueState
from dagsim.families.forecast.run_times import RunTimes
from dagsim.families.forecast.time_spans import WEEK_S
from dagsim.model import Start, Wait
from dagsim.systems.cluster.kernel import ClusterKernel
from dagsim.systems.cluster.models.estimates import Estimates
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.cluster.state import TaskState
from dagsim.systems.cluster.view import ClusterView
from dagsim.systems.cluster.waits.present import Obstacles, Present
from dagsim.systems.cluster.waits.wait_rules import NextStep, rules_of
from dagsim.systems.seam import Conversation, stated
from dagsim.workload.arrays import JobArrays

_MANY_SEARCHES = 500_000
"""If the product of futures, jobs and nodes is larger than this, it pays off to load the policy's
compiled code."""


class Player:
    """An object that simulates the futures of a log's states, on a cluster under a policy."""

    def __init__(self, scenario: ClusterScenario, policy: str, log: JobLog) -> None:
        self._estimated = replace(scenario, estimates=Estimates("predicted"), engine="simpy", outages=False)
        self._policy = policy
        self._log = log
        self._obstacles: Obstacles | None = None
        self._hindered: dict[int, str] = {}
        self._decider = decider = make_policy(self._estimated, policy, 0)
        self.knows_queue: bool = stated(decider, "decides_at_once") and stated(decider, "outlook") is not None
        """True if the policy decides about every waiting job, including jobs that never start but
        may block others."""
        cycle_s, past_usage = stated(decider, "cycle_s"), stated(decider, "past_usage")
        self.cycle_s: float = 0.0 if cycle_s is None else cycle_s(scenario.queues)
        """Time between two cycles of the policy: a job that could start now but has not starts at
        the next cycle. It is 0 if the policy decides at every change."""
        self._usage = None if past_usage is None else past_usage(log, scenario.cluster, scenario.queues)
        """The usage of users before the forecast, if the policy's priorities depend on it."""
        self._load_searches = stated(decider, "load_searches")

    def of(self, log: JobLog) -> Player:
        """Return a copy of this player for another log."""
        return Player(self._estimated, self._policy, log)

    def obstacle(self, job: int, t: float) -> str:
        """Describe what prevents the job at an index of the log from ever starting after time
        ``t``, even if nothing else runs. The text is empty if nothing prevents it."""
        words = self._hindered.get(job)
        if words is None:
            self._obstacles = self._obstacles or Obstacles(self._estimated, partial(rules_of, self._decider))
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

    def rows(self, state: QueueState, listing: dict[str, Listed] | None = None) -> Rows:
        """Return the rows of a state that get a forecast (``rows_of``). Jobs that can never start
        are left out of the state, unless the policy decides about them, too."""
        return rows_of(state, listing, partial(self.obstacle, t=state.t), keeps_all=self.knows_queue)

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
        searches = futures * len(groups) * len(self._estimated.cluster.nodes)
        if self._load_searches is not None and searches > _MANY_SEARCHES:
            self._load_searches()
        basis = FutureJobs(self._estimated, state)
        horizon_s = MOST_HORIZON_S if kind is not Future.ARRIVALS else state.horizon_s
        streams = rng.spawn(futures)
        run_s = basis.run_s(kind, run_times, streams)
        for number, own in enumerate(streams):
            jobs = basis.jobs(run_s[:, number], basis.arrivals(kind, horizon_s, run_times, own))
            started_s = self._watched(basis, jobs, horizon_s, groups, kind, own).started_s
            yield np.array([started_s.get(id, inf) for id in basis.targets]) - basis.begins_s

    def _watched(
        self,
        basis: FutureJobs,
        jobs: JobArrays,
        horizon_s: float,
        groups: Sequence[np.ndarray],
        kind: Future,
        rng: np.random.Generator,
    ) -> _Watch:
        """Simulate a future, and return the starts of jobs in it."""
        begins_s = basis.begins_s
        kernel, policy = self._begun(basis, jobs, inf if kind is Future.ORACLE else begins_s)
        watch = _Watch(
            policy, {basis.targets[place]: row for row, group in enumerate(groups) for place in group.tolist()}
        )
        cycle_s = self.cycle_s * (0.5 if kind is Future.ORACLE else rng.random())
        # A job that is held back by a rule may wait until the end of the simulation.
        with suppress(Stalled):
            talk = Conversation(kernel, begins_s + horizon_s)
            if talk.view is not None and talk.view.now == begins_s and cycle_s:
                talk.answer([Wait(begins_s + cycle_s)])
            while talk.view is not None and watch.left:
                talk.answer(watch.decide(talk.view))
        return watch

    def _begun(self, basis: FutureJobs, jobs: JobArrays, coarse_after_s: float = inf) -> tuple[ClusterKernel, Any]:
        """Return a kernel for these jobs, and the policy that decides in it.
        After ``coarse_after_s``, the policy may decide less often.
        """
        queues = queues_from(self._estimated.queues, basis.zero_s, basis.state.t)
        scenario = replace(self._estimated, workload=list(jobs.jobs()), begins_s=basis.begins_s, queues=queues)
        policy: Any = make_policy(scenario, self._policy, 0)
        if beginning := stated(policy, "beginning"):
            policy = scenario.fitted(beginning(basis.usage(self._usage), coarse_after_s, basis.zero_s))
        return scenario.kernel(0), policy

    def present(self, state: QueueState) -> tuple[Present, dict[str, TaskState], float]:
        """Return the reasons why the jobs in a state are waiting, the first task of each eligible
        job (by job id), and the time in the log at which the clock of these reasons begins."""
        basis = FutureJobs(self._estimated, state)
        run_s = basis.run_s(Future.LIMITS, RunTimes(), [np.random.default_rng(0)])
        kernel, policy = self._begun(basis, basis.jobs(run_s[:, 0], None))
        Conversation(kernel, basis.begins_s)
        view = ClusterView(kernel)
        tasks: dict[str, TaskState] = {}
        for task in view.ready:
            tasks.setdefault(task.job.job.id, task)
        return Present(view, policy), tasks, basis.zero_s

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
        basis, rng = FutureJobs(self._estimated, state), np.random.default_rng(0)
        jobs = basis.jobs(basis.run_s(Future.LIMITS, RunTimes(), [rng])[:, 0], None)
        watch = self._watched(basis, jobs, MOST_HORIZON_S, [np.array([place])], Future.LIMITS, rng)
        id = basis.targets[place]
        names = [node.name for node in self._estimated.cluster.nodes]
        nodes = tuple(dict.fromkeys(names[node] for node in watch.nodes.get(id, ())))
        return watch.started_s.get(id, inf) - basis.begins_s, nodes


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
