"""Codecs for Spark executors. They build the arrays that a network reads, and turn the network's
choices into decisions.

``stages`` is Decima's codec. A choice is a stage, together with a number of executors or a limit on
them.

Besides the five features of Mao et al. 2019, an observation contains work and critical paths on a
log scale, the rank of each job among the others, and how far the job is from a fair share. The best
heuristics base their decisions on these quantities.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np

from dagsim.errors import ConfigError
from dagsim.families.spark.view import Action, Commit, SparkView, StageGraph
from dagsim.registry import Entry, Registry

SPARK_CODECS: Registry[Any] = Registry(
    "codec",
    [Entry("stages", ".codecs:StagesConfig", "chooses a stage and a number of executors, as Decima does")],
    group="dagsim.spark_codecs",
    listing="dagsim list codecs",
    home="dagsim.families.spark",
    method="build",
)
"""Codecs of Spark executors, by name."""


STAGE = (
    "remaining", "seen", "work", "demand", "executing", "ready", "schedulable", "height", "path", "share of path",
    "head of path",
)  # fmt: skip
JOB = (
    "work", "path", "executors", "share of executors", "is source", "age", "rank", "is first", "inverse rank",
    "schedulable stages", "ready stages", "executing", "demand", "relative work", "equal share lacks",
    "larger share lacks", "smaller share lacks", "time left",
)  # fmt: skip
CONTEXT = ("jobs", "committable", "share committable", "common pool", "executors", "work", "schedulable jobs")
OPTION = (
    "added", "log added", "executors", "log executors", "share of cluster", "all that can go", "whole cluster",
    "equal share", "larger share", "smaller share", "time left",
)  # fmt: skip
"""Features of a number of executors for a stage; "executors" are the executors that its job would
then have."""


class StageObservation(NamedTuple):
    """One observation: N stages, M edges, J jobs, and S stages from which to choose. All float
    arrays are float32.
    """

    stages: np.ndarray  # shape (N, len(STAGE))
    jobs: np.ndarray  # shape (J, len(JOB))
    context: np.ndarray  # shape (len(CONTEXT),)
    job: np.ndarray  # shape (N,), int64: index of the stage's job
    height: np.ndarray  # shape (N,), int64: edges on the longest path to a sink
    edges: np.ndarray  # shape (M, 2), int64: parent and child, sorted by parent
    level: np.ndarray  # shape (M,), int64: height of the parent
    choices: np.ndarray  # shape (S,), int64: indices of the stages that can be chosen
    most: np.ndarray  # shape (S,), int64
    """Largest number of executors that an action can give to each stage (or, if actions set limits, to
    its job), from 1 to ``committable``."""
    has: np.ndarray  # shape (S,), int64: executors that the stage's job keeps, not counting those to be committed
    shares: np.ndarray  # shape (S, 3), float32
    """Executors that the job would get under equal, larger-first and smaller-first sharing."""
    work_s: np.ndarray  # shape (S,), float32: remaining work of the job
    executors: int
    action: Action = "executors"


def observe(graph: StageGraph, action: Action = "executors") -> StageObservation:
    """Encode ``graph`` for a policy. Depending on ``action``, the policy chooses a number of
    executors or a limit. The cost is O(stages + edges) in NumPy.
    """
    cluster, starts = graph.executors, graph.first[:-1]
    work = graph.remaining * graph.seen_ms * 1e-3
    edges, level = _by_level(graph)
    path = _paths(work, edges, level)
    choices = np.flatnonzero(graph.schedulable)
    job_work = np.add.reduceat(work, starts)
    job_path = np.maximum.reduceat(path, starts)
    open_ = np.add.reduceat(graph.schedulable, starts, dtype=np.int64)
    kept = graph.kept()
    shares = _shares(job_work, cluster)
    stage_rows = _stage_rows(graph, work, path, job_path)
    job_rows = _job_rows(graph, job_work, job_path, open_, kept, shares)
    committable = graph.committable
    context = {
        "jobs": np.log1p(len(starts)) / 3,
        "committable": np.log1p(committable) / 3,
        "share committable": committable / cluster,
        "common pool": graph.source < 0,
        "executors": np.log(cluster) / 4,
        "work": np.log1p(job_work.sum() / cluster) / 8,
        "schedulable jobs": np.count_nonzero(open_) / len(starts),
    }
    owner = graph.job[choices]
    return StageObservation(
        stages=stage_rows,
        jobs=job_rows,
        context=_rows_of(CONTEXT, context, 1)[0],
        job=graph.job,
        height=graph.height,
        edges=edges,
        level=level,
        choices=choices,
        most=np.minimum(graph.demand[choices] if action == "executors" else cluster - kept[owner], committable),
        has=kept[owner],
        shares=shares[owner].astype(np.float32),
        work_s=job_work[owner].astype(np.float32),
        executors=cluster,
        action=action,
    )


def _stage_rows(graph: StageGraph, work: np.ndarray, path: np.ndarray, job_path: np.ndarray) -> np.ndarray:
    """Return the features of each stage. Shape (stages, len(STAGE)), float32.

    ``work`` is how many seconds of work each stage has left, and ``path`` the largest sum of these
    on a path from the stage to the end of its job.
    """
    can = graph.schedulable
    columns = {
        "remaining": np.log1p(graph.remaining) / 6,
        "seen": np.log1p(graph.seen_ms * 1e-3) / 3,
        "work": np.log1p(work) / 8,
        "demand": np.log1p(np.maximum(graph.demand, 0)) / 6,
        "executing": graph.executing / graph.executors,
        "ready": graph.ready,
        "schedulable": can,
        "height": graph.height / 8,
        "path": np.log1p(path) / 8,
        "share of path": path / (job_path[graph.job] + 1e-3),
        "head of path": _heads(path, can, graph.ready, graph.first[:-1], graph.job),
    }
    return _rows_of(STAGE, columns, len(path))


def _job_rows(
    graph: StageGraph, work: np.ndarray, path: np.ndarray, open_: np.ndarray, kept: np.ndarray, shares: np.ndarray
) -> np.ndarray:
    """Return the features of each job. Shape (jobs, len(JOB)), float32.

    The arguments contain, for each job, the remaining seconds (in total and on the longest path),
    the number of stages that can take executors, the executors that the job keeps, and its fair
    shares.
    """
    can, cluster, starts = graph.schedulable, graph.executors, graph.first[:-1]
    jobs = len(starts)
    rank = np.empty(jobs, np.int64)
    order = np.lexsort((work, open_ == 0))  # sort by work, with jobs that can take executors first
    rank[order] = np.arange(jobs)
    lacks = np.clip((shares - kept[:, None]) / 8, -2.0, 2.0)
    columns = {
        "work": np.log1p(work) / 8,
        "path": np.log1p(path) / 8,
        "executors": np.log1p(np.maximum(kept, 0)) / 3,
        "share of executors": kept / cluster,
        "is source": np.arange(jobs) == graph.source,
        "age": np.log1p((graph.now_ms - graph.arrival_ms) * 1e-3) / 8,
        "rank": rank / jobs,
        "is first": rank == 0,
        "inverse rank": 1 / (1 + rank),
        "schedulable stages": np.minimum(open_, 8) / 4,
        "ready stages": np.add.reduceat(graph.ready & can, starts, dtype=np.int64) / 4,
        "executing": np.add.reduceat(graph.executing, starts) / cluster,
        "demand": np.log1p(np.add.reduceat(np.where(can, graph.demand, 0), starts)) / 6,
        "relative work": np.log((work + 1) / (work.mean() + 1)) / 3,
        "equal share lacks": lacks[:, 0],
        "larger share lacks": lacks[:, 1],
        "smaller share lacks": lacks[:, 2],
        "time left": np.log1p(work / np.maximum(kept, 1)) / 8,
    }
    return _rows_of(JOB, columns, jobs)


def _rows_of(names: Sequence[str], columns: Mapping[str, Any], rows: int) -> np.ndarray:
    """Stack the columns side by side in the order of their names. Shape (rows, len(names)), float32."""
    assert len(columns) == len(names)
    stacked = np.empty((rows, len(names)), np.float32)
    for place, name in enumerate(names):
        stacked[:, place] = columns[name]
    return stacked


def option_rows(
    added: np.ndarray, most: np.ndarray, has: np.ndarray, shares: np.ndarray, work_s: np.ndarray, cluster: np.ndarray
) -> np.ndarray:
    """Return the features of committing each number of executors in ``added``, (K,), to one stage.
    Shape (K, len(OPTION)), float32.
    """
    after = np.maximum(has + added, 1)
    beyond = np.clip((after[:, None] - shares) / 8, -2.0, 2.0)
    columns = {
        "added": added / 8,
        "log added": np.log(added) / 3,
        "executors": np.minimum(after, 16) / 8,
        "log executors": np.log(after) / 3,
        "share of cluster": after / cluster,
        "all that can go": added == most,
        "whole cluster": after >= cluster,
        "equal share": beyond[:, 0],
        "larger share": beyond[:, 1],
        "smaller share": beyond[:, 2],
        "time left": np.log1p(work_s / after) / 8,
    }
    return _rows_of(OPTION, columns, len(added))


def _by_level(graph: StageGraph) -> tuple[np.ndarray, np.ndarray]:
    level = graph.height[graph.edges[:, 0]]
    order = np.argsort(level, kind="stable")
    return graph.edges[order], level[order]


def _paths(work: np.ndarray, edges: np.ndarray, level: np.ndarray) -> np.ndarray:
    """Return, for each stage, the largest sum of work on a path from the stage (including the stage
    itself) to its sink. Shape (N,).
    """
    path = work.copy()
    if not len(level):
        return path
    parents, children = edges[:, 0], edges[:, 1]
    bounds = np.searchsorted(level, np.arange(1, level[-1] + 2)).tolist()
    for begin, end in pairwise(bounds):
        if begin < end:
            above = parents[begin:end]
            np.maximum.at(path, above, path[children[begin:end]] + work[above])
    return path


def _heads(path: np.ndarray, can: np.ndarray, ready: np.ndarray, starts: np.ndarray, job: np.ndarray) -> np.ndarray:
    """Return a mask of stages, (N,) bool, that selects in each job the stage with the longest path.
    Among the stages of a job, those that can run immediately are preferred.
    """
    worth = np.where(can, path + np.where(ready, 1e12, 0.0), -1.0)
    best = np.maximum.reduceat(worth, starts)
    heads: np.ndarray = can & (worth == best[job])
    return heads


def _shares(work: np.ndarray, cluster: int) -> np.ndarray:
    """Return how many executors each job gets if executors are shared in proportion to the jobs'
    work to the power 0, 0.25 and -0.75. Shape (J, 3).
    """
    weights = np.maximum(work, 1e-3)[:, None] ** np.array([0.0, 0.25, -0.75])
    shares: np.ndarray = weights * (cluster / weights.sum(axis=0))
    return shares


@dataclass(frozen=True, slots=True)
class StagesConfig:
    """Settings of Decima's codec. A choice consists of a stage and a number."""

    action: Action = "executors"
    """What the number means: the number of executors to add (``executors``), or a limit on the number
    of executors of the stage's job (``limit``, the parallelism limit of Mao et al. 2019, section
    5.2).
    """
    kind: Literal["stages"] = "stages"

    version: ClassVar[int] = 1

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.action not in get_args(Action):
            raise ConfigError(f"codec: action must be one of {', '.join(get_args(Action))}, got {self.action!r}")

    @property
    def features(self) -> dict[str, tuple[str, ...]]:
        """Names of the columns in each part of an observation."""
        return {"stages": STAGE, "jobs": JOB, "context": CONTEXT, "options": OPTION}

    def build(self) -> Stages:
        """Build a codec for one simulation."""
        return Stages(self.action)


class Stages:
    """A codec whose choices are pairs: the index of a stage among those that can be chosen, and a
    number from 1 to the maximum of this stage.
    """

    def __init__(self, action: Action = "executors") -> None:
        self.action: Action = action
        self._graph: StageGraph | None = None
        self._observation: StageObservation | None = None

    def encode(self, view: SparkView) -> StageObservation:
        """Encode the graph of all incomplete stages. The cost is O(stages)."""
        self._graph = view.graph()
        self._observation = observe(self._graph, self.action)
        return self._observation

    def decode(self, view: SparkView, choice: tuple[int, int]) -> tuple[Commit, ...]:
        """Commit the chosen number of executors to the stage."""
        assert self._graph is not None
        assert self._observation is not None
        stage, number = choice
        return (Commit(self._graph.stages[self._observation.choices[stage]], int(number)),)

    def choice_of(self, decisions: Iterable[Commit]) -> tuple[int, int] | None:
        """Return the choice that stands for the first decision, with at most as many executors as
        the stage can use.

        Return ``None`` if there is no such choice. The cost is O(stages).
        """
        decision = next(iter(decisions), None)
        if decision is None:
            return None
        assert self._graph is not None
        assert self._observation is not None
        place = self._graph.stages.index(decision.stage)
        stage = int(np.searchsorted(self._observation.choices, place))
        return stage, int(min(decision.executors, self._observation.most[stage]))
