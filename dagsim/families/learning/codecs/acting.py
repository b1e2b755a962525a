"""The codec ``relative`` with additional actions: to stop runs so that a task can start, to migrate
a run, and to admit or reject a job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf, log1p
from typing import NamedTuple

import numpy as np

from dagsim.families.learning.codecs.candidates import Offer, log_ratio
from dagsim.families.learning.codecs.codec import Observation, RelativeConfig
from dagsim.families.learning.codecs.pool import Pool
from dagsim.families.learning.codecs.relative import (
    Relative,
    features_of_task,
    features_on_type,
    log_over,
    log_scale,
    write_features,
)
from dagsim.model import Admit, Decision, Migrate, Preempt, Reject, Start
from dagsim.model.arithmetic import ordered_sum
from dagsim.systems.cluster.api import ClusterView, ExpectedFree, JobState, Run, TaskState
from dagsim.systems.cluster.policies.orders import width
from dagsim.systems.cluster.policies.preemption import make_room

ACTION_FEATURES = ("stops", "moves", "admits", "rejects", "stopped_left", "price")
"""Columns after those of ``relative``: the number of runs that are stopped (as a logarithm), the
other effect of the row, the shortest time left of a stopped run divided by the seconds here (a
logarithm), and the GPU-seconds that stopping costs."""


class _TakeOver(NamedTuple):
    """Stop ``runs``, and start ``task`` on ``type`` instead."""

    task: TaskState
    type: int
    runs: tuple[Run, ...]


class _Move(NamedTuple):
    """Migrate a run to ``type``, where it will end earlier."""

    run: Run
    type: int


class Acting(Relative):
    """The choices of ``relative``, followed by the choices for the actions in
    ``RelativeConfig.actions``.

    - ``preempt``: for the shortest task that does not fit, and for the task whose job has the least
      work left, one choice per type: stop the runs with the most time left, provided that each of
      them has more time left than the task needs there, and start the task.
    - ``migrate``: migrate the run that would gain the most from idle GPUs of another type.
    - ``admit``: as long as jobs wait for admission, the only choices are to admit or to reject the
      first of them.

    A run that has just started is neither stopped nor moved, so the number of decisions at any one
    time is finite. The additional cost per observation is O(running x types).
    """

    def __init__(self, config: RelativeConfig) -> None:
        super().__init__(config)
        self.token_features = (*self._row_features, *ACTION_FEATURES)
        self._actions: list[_TakeOver | _Move] = []
        """What each row after the rows of starts represents."""
        self._applicant: JobState | None = None
        self._starts = 0

    def __deepcopy__(self, memo: object) -> Acting:
        """Build a codec for a fork. It needs no copy of the state, because it reads everything from
        the fork's view."""
        return Acting(self.settings)

    def encode(self, view: ClusterView) -> Observation | None:
        """Encode the choices. Return ``None`` if there is nothing to start, stop, move or admit."""
        pool = self._pool if self._pool is not None else self._bind(view)
        if self._belief is not None:
            self._belief.refresh()
        pool.drop_gone(view.ready)
        self._view, self.rows, self._actions, self._applicant = view, [], [], None
        if "admit" in self.settings.actions and view.applicants:
            self._applicant = next(iter(view.applicants.values()))
            return self._asked(view, pool, self._applicant)
        offers = self._offers(view, view.machines, pool)
        self._starts = sum(len(room) for _, room in offers)
        takeovers = self._takeovers(view, pool, offers) if "preempt" in self.settings.actions else []
        moves = self._moves(view) if "migrate" in self.settings.actions else []
        if not (offers or takeovers or moves):
            return None
        self._actions = [*takeovers, *moves]
        return self._observe(view, view.machines, pool, offers)

    def decode(self, view: ClusterView, choice: int) -> Iterator[Decision]:
        """Carry out the choice that row ``choice`` stands for. The last row stands for waiting."""
        if self._applicant is not None:
            yield (Admit if choice == 0 else Reject)(self._applicant.number)
            return
        action = self._action(choice)
        if action is None:
            yield from super().decode(view, choice)
        elif isinstance(action, _Move):
            placement = view.machines.fit(action.run.task.demand, action.type, action.run.instances)
            if placement is not None:
                yield Migrate(action.run.id, placement)
        else:
            for run in action.runs:
                yield Preempt(run.id)
            placement = self._place(view, action.task, action.type)
            if placement is not None:
                yield Start(action.task, placement)

    def choice_of(self, decisions: Iterable[Decision]) -> int | None:
        """Return the row that stands for the first decision. For a ``Preempt``, this is the first
        row that stops the run."""
        decision = next(iter(decisions), None)
        if self._applicant is not None:
            mine = isinstance(decision, Admit | Reject) and decision.job == self._applicant.number
            return int(isinstance(decision, Reject)) if mine else None
        if decision is None:
            return len(self.rows) + len(self._actions) if self._view is not None and self._view.pending else None
        for place, action in enumerate(self._actions, len(self.rows)):
            if isinstance(action, _Move):
                if isinstance(decision, Migrate) and decision.run == action.run.id:
                    return place
            elif isinstance(decision, Preempt) and decision.run in [run.id for run in action.runs]:
                return place
        return super().choice_of((decision,)) if isinstance(decision, Start) else None

    def _action(self, choice: int) -> _TakeOver | _Move | None:
        place = choice - len(self.rows)
        return self._actions[place] if 0 <= place < len(self._actions) else None

    def _takeovers(self, view: ClusterView, pool: Pool, offers: list[Offer]) -> list[_TakeOver]:
        """Return the choices that stop runs in order to start a task that does not fit now."""
        there = {ready.task for ready, _ in offers}
        blocked = [ready for group in pool.groups if group.short for ready in group.heads() if ready.task not in there]
        if not blocked:
            return []
        shortest = min(blocked, key=lambda ready: (ready.best_s, ready.task.order))
        least = min(blocked, key=lambda ready: (ready.task.job.work_left_gpu_s(), ready.task.order))
        victims = sorted(
            [(self._left_s(view, run), -run.id, run) for run in view.running.values() if run.started_s < view.now],
            reverse=True,
        )
        rows = []
        for ready in dict.fromkeys((shortest, least)):
            task = ready.task
            for type_ in task.demand.types:
                longer = [run for left_s, _, run in victims if run.type == type_ and left_s > ready.seconds[type_]]
                if stopped := make_room(view, task, longer):
                    rows.append(_TakeOver(task, type_, tuple([view.running[run] for run in stopped])))
        return rows

    def _left_s(self, view: ClusterView, run: Run) -> float:
        """Return the expected remaining seconds of a run."""
        return run.work_left_s(view.now) if self._belief is None else self._belief.left_s(run)

    def _moves(self, view: ClusterView) -> list[_Move]:
        """Return a list with the migration that shortens the remaining time of a run the most. The
        list is empty if none shortens it.
        """
        best, row = 1.0, None
        for run in view.running.values():
            if run.started_s == view.now or (run.instances > 1 and not run.task.demand.gang):
                continue
            left_s = self._left_s(view, run)
            for type_ in run.task.demand.types:
                if type_ != run.type and view.machines.fits_on(run.task.demand, type_):
                    ratio = self._moved_s(view, run, type_) / left_s if left_s else inf
                    if ratio < best:
                        best, row = ratio, _Move(run, type_)
        return [] if row is None else [row]

    def _moved_s(self, view: ClusterView, run: Run, type_: int) -> float:
        """Return in how many seconds the run would end on another type, including the cost of the
        move."""
        seconds = run.task.seconds if self._belief is None else self._belief.seconds(run.task)
        kept = view.preemption.on_resume == "resume"
        left = self._left_s(view, run) / seconds[run.type] if kept and seconds[run.type] else 1.0
        return left * seconds[type_] + view.preemption.cost_s(run.task.task.memory_gb, kept)

    def _rows(
        self,
        view: ClusterView,
        pool: Pool,
        offers: list[Offer],
        expected: ExpectedFree,
        idle: list[int],
        types: Sequence[tuple[float, ...]],
        unit_s: float,
    ) -> list[list[float]]:
        """Return the features of all starts, takeovers and moves, one row each."""
        taken = [(pool.tasks[action.task], [action.type]) for action in self._actions if isinstance(action, _TakeOver)]
        rows = super()._rows(view, pool, [*offers, *taken], expected, idle, types, unit_s)
        del self.rows[self._starts :]
        for row, action in zip(rows[self._starts :], self._actions, strict=False):
            assert isinstance(action, _TakeOver)
            here_s = pool.tasks[action.task].seconds[action.type]
            left_s = min([self._left_s(view, run) for run in action.runs])
            lost_s = ordered_sum([run.gpus * _lost_s(view, run) for run in action.runs])
            price_s = lost_s / max(width(action.task), 1e-9)
            row += [log1p(len(action.runs)) / 2, 0.0, 0.0, 0.0, log_ratio(left_s, here_s), log_scale(price_s, unit_s)]
        for row in rows[: self._starts]:
            row += [0.0] * len(ACTION_FEATURES)
        rows += [
            self._moved_row(view, pool, action, types, unit_s) for action in self._actions if isinstance(action, _Move)
        ]
        return rows

    def _moved_row(
        self, view: ClusterView, pool: Pool, move: _Move, types: Sequence[tuple[float, ...]], unit_s: float
    ) -> list[float]:
        run, type_ = move
        left_s = self._left_s(view, run)
        here_s, ready = self._moved_s(view, run, type_), pool.ready_task(run.task)
        row = [0.0] * len(self._row_features)
        columns = {
            **features_of_task(view, ready, run.task.rank_s, unit_s),
            **features_on_type(pool, ready, type_, here_s, unit_s),
            "age": log_scale(view.now - run.started_s, unit_s),
            "finish_on_best": log_ratio(left_s, here_s),
        }
        write_features(row, columns)
        first = len(Relative.token_features) - len(types[type_])
        row[first : len(Relative.token_features)] = types[type_]
        price_s = _lost_s(view, run)
        return [*row, 0.0, 1.0, 0.0, 0.0, log_ratio(left_s, here_s), log_scale(price_s, unit_s)]

    def _waits(self) -> list[float]:
        return [*super()._waits(), *[0.0] * len(ACTION_FEATURES)]

    def _asked(self, view: ClusterView, pool: Pool, applicant: JobState) -> Observation:
        """Return two rows: one to admit the job, and one to reject it."""
        unit_s = self._unit_s(view, pool, applicant.ideal_s)
        row = [0.0] * len(self._row_features)
        wide = max([width(task) for task in applicant.tasks])
        columns = {
            "log_best": log_over(applicant.ideal_s, unit_s),
            "gpus": log1p(wide) / 2,
            "job_tasks": log1p(len(applicant.tasks)) / 2,
            "job_tasks_left": log1p(applicant.tasks_left) / 2,
            "job_age": log_scale(view.now - applicant.job.arrival_s, unit_s),
            "log_work_left": log_over(applicant.work_left_gpu_s(), unit_s),
        }
        write_features(row, columns)
        rows = [[*row, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0], [*row, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]]
        _, context, gpus = self._present(view, view.machines, pool, unit_s)
        return Observation(np.array(rows, np.float32), context, gpus)


def _lost_s(view: ClusterView, run: Run) -> float:
    """Return how many seconds are lost if a run is stopped: its start-up delay when it resumes, and
    its work if the work is not kept.
    """
    return view.preemption.lost_s(run.task.task.memory_gb, run.done(view.now))
