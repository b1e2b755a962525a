"""Choices with unit-free features. The features are the same for every cluster and every unit of
time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, log, log1p

import numpy as np

from dagsim.families.learning.codecs.belief import Belief, is_hidden
from dagsim.families.learning.codecs.candidates import Candidates, Offer, eta_of, log_ratio
from dagsim.families.learning.codecs.codec import CandidatesConfig, Floats32, Observation, RelativeConfig
from dagsim.families.learning.codecs.pool import UNITS, Pool, ReadyTask
from dagsim.model import Decision, Start
from dagsim.model.arithmetic import ordered_sum, whole_sum
from dagsim.systems.cluster.api import ClusterState, ClusterView, ExpectedFree, TaskState
from dagsim.systems.cluster.policies import POLICIES

_TYPE = ("free", "share", "pressure", "mean_slowdown", "ahead_1", "ahead_2", "ahead_4", "ahead_8")
_MEAN_SLOWDOWN = _TYPE.index("mean_slowdown")
TASK_FEATURES = (
    "log_seconds", "log_best", "slowdown", "log_rank", "is_best_type", "gpus", "gpus_of_type", "children", "job_tasks",
    "job_tasks_left", "age", "job_age", "eta_best", "finish_on_best", "finish_elsewhere", "shorter", "advantage",
    "log_work_left", "work_rank", "seconds_rank",
)  # fmt: skip
_COLUMNS = ("wait", *TASK_FEATURES, "proposed")
COLUMN = {name: place for place, name in enumerate(_COLUMNS)}
"""The place of each column of a row; the columns of the type follow."""
BELIEF_FEATURES = ("hidden", "limited", "served", "job_served", "served_rank", "typical", "alike", "restore")
"""Columns of ``RelativeConfig.beliefs``: what is known of the task's duration, the service that it and
its job have received (and the rank of the latter), the typical time of similar tasks and their number,
and the set-up that resuming it costs."""
_QUEUE = ("ready", "running", "jobs", "work")
_PROBES = (1.0, 2.0, 4.0, 8.0)
_CLIP = 4.0
"""Bound on the absolute value of logarithms."""
_SHORTEST_WORK = "srpt-work"


class Relative(Candidates):
    """The choices of the codec ``candidates``, with dimensionless features.

    Times are divided by the median number of seconds that waiting tasks take on their fastest
    types. Numbers of GPUs are divided by the total of the type or of the cluster. Other features
    are ranks among the choices and logarithms of ratios. Multiplying all times by a constant
    therefore changes no observation.

    Two tasks are always among the choices: the task that the heuristic ``reference`` would start,
    and the task whose job has the least work left. One choice starts as many instances of a task as
    fit on the type. Rows have the same columns for any number of GPU types.
    ``Observation.gpus`` has a single row, the mean over the types.

    The codec reads only estimates or, with ``beliefs``, a ``Belief``. An observation costs as much
    as with ``candidates``, plus a decision by each of two heuristics, O(rows log rows), and
    O(tasks) for each job among the choices.
    """

    token_features: tuple[str, ...] = (*_COLUMNS, *(f"type_{name}" for name in _TYPE))
    context_features: tuple[str, ...] = (*_QUEUE, *(f"mean_{name}" for name in _TYPE))
    gpu_features: tuple[str, ...] = _TYPE

    def __init__(self, config: RelativeConfig) -> None:
        super().__init__(CandidatesConfig(placement=config.placement))
        self.settings = config
        self._belief: Belief | None = None
        self.forks = not config.beliefs  # beliefs depend on past events, which a fork lacks
        self.token_features = self._row_features
        self._reference = POLICIES.create(config.reference)
        self._shortest_work = POLICIES.create(_SHORTEST_WORK)
        self._proposed: tuple[TaskState, int] | None = None

    def __deepcopy__(self, memo: object) -> Relative:
        """Build a codec for a fork. It needs no copy of the state, because it reads everything from
        the fork's view."""
        return Relative(self.settings)

    def encode(self, view: ClusterView) -> Observation | None:
        """Encode the choices. Return ``None`` if no ready task fits."""
        if self._belief is not None:
            self._belief.refresh()
        return super().encode(view)

    def decode(self, view: ClusterView, choice: int) -> Iterator[Decision]:
        """Start as many instances of the task as fit on the type. The row after all pairs stands
        for waiting."""
        if choice >= len(self.rows):
            return
        task, type_ = self.rows[choice]
        while task.waiting and (placement := self._place(view, task, type_)) is not None:
            yield Start(task, placement)
            if task.demand.gang or not view.machines.fits_on(task.demand, type_):
                return

    def _new_pool(self, view: ClusterView, capacity: list[float]) -> Pool:
        if not self.settings.beliefs:
            return Pool(capacity)
        self._belief = view.index((self, "belief"), lambda: Belief(view))
        self._belief.refresh()
        return Pool(capacity, self._belief.seconds)

    def _expected(self, view: ClusterView) -> ExpectedFree:
        return view.expected_free if self._belief is None else self._belief

    def _offers(self, view: ClusterView, machines: ClusterState, pool: Pool) -> list[Offer]:
        offers = super()._offers(view, machines, pool)
        self._proposed = None
        if offers:
            proposals = [self._known(proposal_of(policy, view)) for policy in (self._reference, self._shortest_work)]
            self._proposed = proposals[0]
            tasks = {ready.task for ready, _ in offers}
            for proposal in proposals:
                if proposal is not None and proposal[0] not in tasks:
                    tasks.add(proposal[0])
                    offers.append((pool.tasks[proposal[0]], machines.types_with_room(proposal[0].demand)))
        return offers

    def _known(self, proposal: tuple[TaskState, int] | None) -> tuple[TaskState, int] | None:
        """Return the task and the type that a heuristic proposes, or ``None`` if they may reveal
        how much is left of a stopped task whose duration is hidden.
        """
        hides = self._belief is not None and proposal is not None and proposal[0].piece and is_hidden(proposal[0])
        return None if hides else proposal

    def _observe(self, view: ClusterView, machines: ClusterState, pool: Pool, offers: list[Offer]) -> Observation:
        unit_s = self._unit_s(view, pool)
        types, context, gpus = self._present(view, machines, pool, unit_s)
        idle, expected = [levels.total() for levels in machines.by_gpus], self._expected(view)
        rows = self._rows(view, pool, offers, expected, idle, types, unit_s)
        if view.pending:
            rows.append(self._waits())
        return Observation(np.array(rows, np.float32), context, gpus)

    def _unit_s(self, view: ClusterView, pool: Pool, default_s: float = 1.0) -> float:
        """Return the unit of time: the median of the seconds that the waiting tasks take or, if
        none waits, the running tasks. Without any task, return ``default_s``.
        """
        believed = self._belief
        seconds = pool.best_s or sorted(
            [run.task.best_s if believed is None else min(believed.seconds(run.task)) for run in view.running.values()]
        )
        return seconds[len(seconds) // 2] if seconds else default_s

    def _waits(self) -> list[float]:
        """Return the row that represents waiting."""
        row = [0.0] * len(self._row_features)
        row[COLUMN["wait"]], row[COLUMN["proposed"]] = 1.0, float(self._proposed is None)
        return row

    @property
    def _row_features(self) -> tuple[str, ...]:
        """The names of the columns in a row that starts a task."""
        return Relative.token_features + (BELIEF_FEATURES if self.settings.beliefs else ())

    def _present(
        self, view: ClusterView, machines: ClusterState, pool: Pool, unit_s: float
    ) -> tuple[list[tuple[float, ...]], Floats32, Floats32]:
        """Return the ``_TYPE`` columns of each GPU type, the context, and the mean of these columns
        over the types.
        """
        idle = [levels.total() for levels in machines.by_gpus]
        types = self._type_rows(pool, self._expected(view), idle, unit_s)
        mean = [ordered_sum(column) / len(types) for column in zip(*types, strict=True)]
        queue = (
            log1p(8 * len(pool.tasks) / pool.gpus),
            len(view.running) / pool.gpus,
            log1p(8 * len(view.jobs) / pool.gpus),
            log_scale(whole_sum(pool.area) / UNITS / pool.gpus, unit_s),
        )
        return types, np.array([*queue, *mean], np.float32), np.array([mean], np.float32)

    def _type_rows(self, pool: Pool, expected: ExpectedFree, idle: list[int], unit_s: float) -> list[tuple[float, ...]]:
        """Return the ``_TYPE`` columns of each type."""
        waits, count = expected.free_in_each_s(_PROBES, idle, inf), max(len(pool.tasks), 1)
        return [
            (
                free / gpus,
                gpus / pool.gpus,
                log_scale(area / UNITS / gpus, unit_s),
                slower / UNITS / count,
                *(log_scale(wait_s, unit_s) for wait_s in waits[4 * type_ : 4 * type_ + 4]),
            )
            for type_, (free, gpus, area, slower) in enumerate(
                zip(idle, pool.capacity, pool.area, pool.slowdown, strict=True)
            )
        ]

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
        """Return the features of all pairs, one row per pair."""
        rows, works, seconds_here = [], [], []
        for ready, room in offers:
            task, seconds = ready.task, ready.seconds
            eta = eta_of(task.demand, room, expected, idle, inf)
            finish = [wait_s + here_s for wait_s, here_s in zip(eta, seconds, strict=True)]
            first_s, second_s = sorted([*finish, inf])[:2]
            on_best_s = finish[ready.best_type]
            scale, least_s, rank_s = 1.0, task.best_s, task.rank_s
            if self._belief is not None and is_hidden(
                task
            ):  # use the whole task, because the rest of a stopped task would reveal its remaining time
                whole = task.job.tasks[task.index]
                scale, least_s, rank_s = self._belief.typical_s(task), whole.best_s, whole.rank_s
            of_task = [0.0] * len(_COLUMNS)
            columns = {
                **features_of_task(view, ready, rank_s * scale, unit_s),
                "age": log_scale(view.now - task.ready_s, unit_s),
                "eta_best": log_scale(on_best_s - ready.best_s, unit_s),
                "shorter": pool.place_of(ready) / max(len(pool.tasks), 1),
            }
            write_features(of_task, columns)
            for type_ in room:
                here_s = seconds[type_]
                works.append(task.job.work_left_gpu_s() * scale + ready.wide * (here_s - least_s * scale))
                seconds_here.append(here_s)
                self.rows.append((task, type_))
                columns = {
                    **features_on_type(pool, ready, type_, here_s, unit_s),
                    "finish_on_best": log_ratio(on_best_s, here_s),
                    "finish_elsewhere": log_ratio(second_s if here_s == first_s else first_s, here_s),
                    "advantage": ready.slowdown[type_] - types[type_][_MEAN_SLOWDOWN],
                    "log_work_left": log_over(works[-1], unit_s),
                    "proposed": float((task, type_) == self._proposed),
                }
                rows.append([*of_task, *types[type_]])
                write_features(rows[-1], columns)
        for row, work_rank, seconds_rank in zip(rows, _ranks(works), _ranks(seconds_here), strict=True):
            row[COLUMN["work_rank"]], row[COLUMN["seconds_rank"]] = work_rank, seconds_rank
        if self._belief is not None:
            _add_beliefs(rows, [ready.task for ready, room in offers for _ in room], self._belief, unit_s)
        return rows


def features_of_task(view: ClusterView, ready: ReadyTask, rank_s: float, unit_s: float) -> dict[str, float]:
    """Return the columns of a task and its job that do not depend on the GPU type."""
    job, graph = ready.task.job, ready.task.job.job.graph
    return {
        "log_best": log_over(ready.best_s, unit_s),
        "log_rank": log_over(rank_s, unit_s),
        "gpus": log1p(ready.wide) / 2,
        "children": log1p(len(graph.children[ready.task.index])) / 2,
        "job_tasks": log1p(len(graph.tasks)) / 2,
        "job_tasks_left": log1p(job.tasks_left) / 2,
        "job_age": log_scale(view.now - job.job.arrival_s, unit_s),
    }


def features_on_type(pool: Pool, ready: ReadyTask, type_: int, here_s: float, unit_s: float) -> dict[str, float]:
    """Return the columns of a task on a GPU type, on which it takes ``here_s`` seconds."""
    return {
        "log_seconds": log_over(here_s, unit_s),
        "slowdown": ready.slowdown[type_],
        "is_best_type": float(type_ == ready.best_type),
        "gpus_of_type": ready.wide / pool.capacity[type_],
    }


def write_features(row: list[float], columns: Mapping[str, float]) -> None:
    """Write values into the columns of a row, by the names of the columns."""
    for name, value in columns.items():
        row[COLUMN[name]] = value


def _add_beliefs(rows: list[list[float]], tasks: list[TaskState], belief: Belief, unit_s: float) -> None:
    """Add ``BELIEF_FEATURES`` to the rows. ``tasks`` contains the task of each row."""
    served = {task.job.number: belief.job_served_gpu_s(task) for task in dict.fromkeys(tasks)}
    columns = {
        task: {
            "hidden": float(is_hidden(task)),
            "limited": float(task.job.has_limits),
            "served": log_scale(belief.served_s(task), unit_s),
            "job_served": log_scale(served[task.job.number], unit_s),
            "typical": log_over(belief.typical_s(task), unit_s),
            "alike": min(log1p(belief.alike(task)) / 4, 1.0),
            "restore": log_scale(task.restore_s, unit_s),
        }
        for task in dict.fromkeys(tasks)
    }
    ranks = _ranks([served[task.job.number] for task in tasks])
    for row, task, rank in zip(rows, tasks, ranks, strict=True):
        shown = {**columns[task], "served_rank": rank}
        row += [shown[name] for name in BELIEF_FEATURES]


def proposal_of(policy: object, view: ClusterView) -> tuple[TaskState, int] | None:
    """Return the task and the type that a heuristic would start now, or ``None`` if it would
    wait."""
    decision = next(iter(policy.decide(view)), None)  # type: ignore[attr-defined]
    if not isinstance(decision, Start):
        return None
    assert isinstance(decision.task, TaskState)
    return decision.task, view.machines.list[decision.placement[0].node].type


def log_over(seconds: float, unit_s: float) -> float:
    """Return the clipped logarithm of a time in units of ``unit_s``."""
    return max(-_CLIP, min(log(max(seconds, 1e-6 * unit_s) / unit_s), _CLIP)) / 2


def log_scale(seconds: float, unit_s: float) -> float:
    """Return the bounded logarithm of 1 + a time in units of ``unit_s``. It is 0 for 0 s."""
    return min(log1p(max(seconds, 0.0) / unit_s), _CLIP) / 2


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value, scaled to the range from 0 to 1. Equal values have equal
    ranks."""
    place = {value: number for number, value in enumerate(sorted(set(values)))}
    return [place[value] / max(len(place) - 1, 1) for value in values]
