"""The policies of the Spark system, and their names.

- ``fair``, ``fifo``: give each job an equal number of executors, or serve jobs first come, first
  served, as in spark-sched-sim and decima-sim.
- ``weighted-fair``: shares in proportion to a power of the jobs' work (Mao et al. 2019, section
  7.1).
- ``sjf-cp``, ``srpt-cp``: the shortest job first, and within a job its critical path first.
- ``tetris``: packing (Grandl et al. 2014), with executors as the only resource.
- ``graphene``: troublesome stages first (Grandl et al. 2016), with weighted fair shares as in Mao
  et al. 2019. Each job is split at several thresholds into troublesome (long) stages and the rest.
  For each split, a schedule is computed for the job on its own, in which the ancestors of
  troublesome stages come first. The schedule that ends first determines the order. Graphene's
  fragmentation score does not apply, since executors are the only resource.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil
from typing import Literal

from dagsim.errors import ModelError, require
from dagsim.families.spark.spark_job import SparkJob
from dagsim.families.spark.state import SparkJobState, critical_stage, first_stage, total_work_ms, work_left_ms
from dagsim.families.spark.view import Commit, SparkPolicy, SparkView
from dagsim.model.arithmetic import ordered_sum, whole_sum
from dagsim.registry import Entry, Registry

SPARK_POLICIES: Registry[SparkPolicy] = Registry(
    "Spark policy",
    [
        Entry("fifo", ".policies:oldest_job", "oldest job first, with as many executors as it can use"),
        Entry(
            "fair",
            ".policies:FairShare",
            "equal shares of executors; a job keeps its executors as long as it can use them",
        ),
        Entry(
            "weighted-fair",
            ".policies:WeightedFair",
            "shares in proportion to work left ** alpha (0: equal); takes executors back",
        ),
        Entry(
            "naive-weighted-fair",
            ".policies:naive_weighted_fair",
            "shares in proportion to the work of the whole job",
        ),
        Entry(
            "sjf-cp",
            ".policies:smallest_job",
            "job with the least total work first, and within a job the critical path",
        ),
        Entry(
            "srpt-cp",
            ".policies:srpt_cp",
            "job with the least remaining work first, with a limit on its executors (cap)",
        ),
        Entry(
            "tetris",
            ".policies:SparkTetris",
            "stage that uses the most free executors first, jobs with little remaining work preferred",
        ),
        Entry("graphene", ".policies:Graphene", "weighted fair shares, with ancestors of long stages first"),
        Entry("random", ".policies:RandomJob", "a random job with a random number of executors"),
    ],
    group="dagsim.spark_policies",
    listing="dagsim list spark-policies",
    home="dagsim.families.spark",
    method="decide",
)


SharingJobs = Literal["active", "wanting"]


class FairShare:
    """Gives jobs executors up to an equal share, in order of arrival. A job that releases executors
    keeps all that it can use.

    The executors are shared among all jobs (``counts="active"``, as in spark-sched-sim), or only
    among the jobs with a stage that could use another executor (``counts="wanting"``, as in
    decima-sim). With ``dynamic=False``, the share of every job is the whole cluster, so jobs are
    served in order of arrival.
    """

    def __init__(self, counts: SharingJobs = "active", dynamic: bool = True) -> None:
        require(counts in ("active", "wanting"), "counts must be 'active' or 'wanting'", counts, ModelError)
        self.counts = counts
        self.dynamic = dynamic

    def decide(self, view: SparkView) -> Iterable[Commit]:
        source = view.source
        if source is not None:
            stage = first_stage(view.schedulable(source))
            if stage is not None:
                return (Commit(stage, view.committable),)
        share = self._share(view)
        for job in view.jobs:
            if job.supply < share and job is not source:
                stage = first_stage(view.schedulable(job))
                if stage is not None:
                    return (Commit(stage, min(view.committable, share - job.supply)),)
        return ()

    def _share(self, view: SparkView) -> int:
        if not self.dynamic:
            return view.executors
        jobs = len(view.jobs) if self.counts == "active" else whole_sum(map(_wants, view.jobs))
        return -(-view.executors // max(1, jobs))


def oldest_job() -> FairShare:
    """Return a policy that serves jobs first come, first served."""
    return FairShare(dynamic=False)


def _wants(job: SparkJobState) -> bool:
    return any(stage.remaining > stage.inbound for stage in job.active)


Order = Literal["deficit", "shortest"]


class WeightedFair:
    """Gives executors to jobs below their share. The share of a job is proportional to its remaining
    work to the power ``alpha``.

    ``order`` decides which of the jobs below their share comes first: the one with the largest
    deficit, or the one with the least work.

    A job that releases executors keeps them up to its share. The rest goes to the job that is
    furthest below its share (``order="deficit"``) or to the one with the least remaining work
    (``"shortest"``). Executors that no job below its share can use go to any other job that can use
    them. ``alpha=0`` is fair sharing, 1 favours large jobs, and -1 small ones. ``total=True`` uses
    the work of the whole job instead of the remaining work.
    """

    def __init__(self, alpha: float = 0.0, order: Order = "deficit", total: bool = False) -> None:
        require(order in ("deficit", "shortest"), "order must be 'deficit' or 'shortest'", order, ModelError)
        self.alpha = alpha
        self.order = order
        self.work = total_work_ms if total else work_left_ms

    def decide(self, view: SparkView) -> Iterable[Commit]:
        source, free = view.source, view.committable
        lacks = self._lacks(view)
        if source is not None and ceil(lacks.get(source, 0.0)) > 0:
            stage = first_stage(view.schedulable(source))
            if stage is not None:
                return (Commit(stage, min(free, ceil(lacks[source]))),)
        by = work_left_ms if self.order == "shortest" else lambda job: -lacks[job]
        jobs = sorted(view.jobs, key=by)
        for job in jobs:
            lack = ceil(lacks[job])
            if lack > 0:
                stage = first_stage(view.schedulable(job))
                if stage is not None:
                    return (Commit(stage, min(free, lack)),)
        for job in jobs if source is None else (source, *jobs):
            stage = first_stage(view.schedulable(job))
            if stage is not None:
                return (Commit(stage, free),)
        return ()

    def _lacks(self, view: SparkView) -> dict[SparkJobState, float]:
        """Return how many executors each job lacks to reach its share. For the job whose executors
        are to be committed now, these executors do not count.
        """
        weights = [max(self.work(job), 1.0) ** self.alpha for job in view.jobs]
        per_weight = view.executors / ordered_sum(weights)
        lacks = {job: weight * per_weight - job.supply for job, weight in zip(view.jobs, weights, strict=True)}
        if view.source in lacks:
            lacks[view.source] += view.committable
        return lacks


def naive_weighted_fair() -> WeightedFair:
    """Return a policy whose shares are proportional to the work of the whole job."""
    return WeightedFair(alpha=1.0, total=True)


class ShortestFirst:
    """Gives up to ``cap`` executors (``None``: no limit) to each job, least work first, to the stages
    on its critical path.

    All executors of the source are assigned again at each decision. Once all jobs have reached the
    cap, it no longer applies.
    """

    def __init__(self, work: Callable[[SparkJobState], float], cap: int | None = None) -> None:
        require(cap is None or cap >= 1, "cap must be at least 1", cap, ModelError)
        self.work = work
        self.cap = cap

    def decide(self, view: SparkView) -> Iterable[Commit]:
        source, free = view.source, view.committable
        cap = view.executors if self.cap is None else self.cap
        jobs = sorted(view.jobs, key=self.work)
        for job in jobs:
            room = cap - job.supply + (free if job is source else 0)
            if room > 0:
                stage = critical_stage(view.schedulable(job))
                if stage is not None:
                    return (Commit(stage, min(free, room)),)
        for job in jobs:
            stage = critical_stage(view.schedulable(job))
            if stage is not None:
                return (Commit(stage, free),)
        return ()


def smallest_job(cap: int | None = None) -> ShortestFirst:
    """Return a policy that orders jobs by total work, least first.

    A job has at most ``cap`` executors.
    """
    return ShortestFirst(total_work_ms, cap)


def srpt_cp(cap: int | None = None) -> ShortestFirst:
    """Return a policy that orders jobs by remaining work, least first.

    A job has at most ``cap`` executors.
    """
    return ShortestFirst(work_left_ms, cap)


class SparkTetris:
    """Picks the stage whose score ``a`` - ``weight`` x ``p`` x mean(``a``) / mean(``p``) is highest.
    Here, ``a`` is the share of the free executors that the stage fills, and ``p`` is its job's
    remaining work (Grandl et al. 2014, section 3.3.2, epsilon).

    ``cap`` limits the number of executors per job, unless all jobs have reached it.
    """

    def __init__(self, weight: float = 1.0, cap: int | None = None) -> None:
        require(weight >= 0, "weight must be 0 or more", weight, ModelError)
        require(cap is None or cap >= 1, "cap must be at least 1", cap, ModelError)
        self.weight = weight
        self.cap = cap

    def decide(self, view: SparkView) -> Iterable[Commit]:
        free, source = view.committable, view.source
        cap = view.executors if self.cap is None else self.cap
        room = {job: cap - job.supply + (free if job is source else 0) for job in view.jobs}
        below = self._best(view, [job for job in view.jobs if room[job] > 0])
        if below is not None:
            return (Commit(below.stage, min(free, room[below.stage.job])),)
        best = self._best(view, view.jobs)
        return () if best is None else (best,)

    def _best(self, view: SparkView, jobs: Iterable[SparkJobState]) -> Commit | None:
        free = view.committable
        choice = [
            (stage, min(stage.demand, free) / free, work_ms)
            for job, work_ms in [(job, work_left_ms(job)) for job in jobs]
            for stage in view.schedulable(job)
        ]
        if not choice:
            return None
        per_work = ordered_sum(filled for _, filled, _ in choice) / max(
            ordered_sum(work_ms for *_, work_ms in choice), 1.0
        )
        stage, *_ = max(choice, key=lambda option: option[1] - self.weight * per_work * option[2])
        return Commit(stage, free)


THRESHOLDS = (0.2, 0.4, 0.6, 0.8)
"""Thresholds as fractions of the longest stage; longer stages are troublesome."""


class Graphene:
    """Divides executors between jobs like ``WeightedFair`` with ``alpha``, and runs the stages of
    each job in the order that was planned for this job.
    """

    def __init__(self, alpha: float = -0.5) -> None:
        self._shares = WeightedFair(alpha)
        self._places: dict[SparkJobState, list[int]] = {}

    def decide(self, view: SparkView) -> Iterable[Commit]:
        commit = next(iter(self._shares.decide(view)), None)
        if commit is None:
            return ()
        places = self._planned(commit.stage.job, view)
        stage = min(view.schedulable(commit.stage.job), key=lambda stage: (stage.blockers > 0, places[stage.index]))
        return (Commit(stage, commit.executors),)

    def _planned(self, job: SparkJobState, view: SparkView) -> list[int]:
        places = self._places.get(job)
        if places is None:
            if len(self._places) > 2 * len(view.jobs) + 16:
                self._places = {job: self._places[job] for job in view.jobs if job in self._places}
            order = planned_order(job.job, view.executors)
            places = self._places[job] = [order.index(index) for index in range(len(order))]
        return places


def planned_order(job: SparkJob, executors: int) -> list[int]:
    """Return the stages of ``job`` by priority. This is the order, among those for all splits,
    whose schedule ends first.
    """
    lengths = [stage.rough_ms * -(-stage.tasks // executors) for stage in job.durations]
    longest = max(lengths)
    orders = [_order(job, [length >= share * longest for length in lengths]) for share in THRESHOLDS]
    return min(orders, key=lambda order: span_ms(job, executors, order))


def _order(job: SparkJob, troublesome: Sequence[bool]) -> list[int]:
    """Order the stages. Troublesome stages and their ancestors come first. Both groups are sorted
    by the work on the path ahead.
    """
    graph = job.graph
    leads = list(troublesome)
    for index in reversed(graph.order):
        leads[index] = leads[index] or any(leads[child] for child in graph.children[index])
    rank = graph.upward_rank([stage.rough_ms * stage.tasks for stage in job.durations])
    return sorted(range(len(rank)), key=lambda index: (not leads[index], -rank[index]))


def span_ms(job: SparkJob, executors: int, order: Sequence[int]) -> float:
    """Return how many milliseconds the job takes on its own if executors follow this order of
    stages.

    A task uses at most one executor, but executors may process fractions of tasks.
    """
    graph = job.graph
    left = [stage.tasks * stage.rough_ms for stage in job.durations]
    missing = [len(parents) for parents in graph.parents]
    open_ = set(range(len(left)))
    now_ms = 0.0
    while open_:
        free, started = executors, {}
        for index in order:
            if index in open_ and not missing[index] and free:
                started[index] = min(free, job.durations[index].tasks)
                free -= started[index]
        step_ms = min(left[index] / number for index, number in started.items())
        now_ms += step_ms
        for index, number in started.items():
            left[index] -= number * step_ms
            if left[index] <= 1e-6:
                open_.remove(index)
                for child in graph.children[index]:
                    missing[child] -= 1
    return now_ms


class RandomJob:
    """Chooses uniformly among the jobs that have an eligible stage, and then a uniform number of
    executors, as in spark-sched-sim.
    """

    def decide(self, view: SparkView) -> Iterable[Commit]:
        rng = view.stream("policy")
        jobs = list(view.jobs)
        while jobs:
            stage = first_stage(view.schedulable(jobs.pop(int(rng.integers(len(jobs))))))
            if stage is not None:
                return (Commit(stage, 1 + int(rng.integers(view.committable))),)
        return ()
