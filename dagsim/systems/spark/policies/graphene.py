"""Troublesome stages first, after Graphene (Grandl et al. 2016), with weighted fair shares as in Mao et al. 2019.

For each job the stages are split at several thresholds into troublesome ones (long ones) and the rest. For each split a
schedule of the job alone is worked out in which whatever leads to a troublesome stage goes first; the one that ends
first gives the order. Graphene's fragmentation score does not apply: executors are the only resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dagsim.systems.spark.job import SparkJob
from dagsim.systems.spark.policies.weighted import WeightedFair
from dagsim.systems.spark.state import SparkJobState
from dagsim.systems.spark.view import Commit, SparkView

__all__ = ["Graphene", "planned_order", "span_ms"]

THRESHOLDS = (0.2, 0.4, 0.6, 0.8)
"""Of the longest stage; a stage above is troublesome."""


class Graphene:
    """Weighted fair shares between jobs (``alpha`` as there); within a job, stages by its planned order."""

    def __init__(self, alpha: float = -0.5) -> None:
        self._shares = WeightedFair(alpha)
        self._places: dict[SparkJobState, list[int]] = {}

    def decide(self, view: SparkView) -> Iterable[Commit]:
        commit = next(iter(self._shares.decide(view)), None)
        if commit is None:
            return ()
        places = self._planned(commit.stage.job, view)
        stage = min(view.schedulable(commit.stage.job), key=lambda each: (each.blockers > 0, places[each.index]))
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
    """The stages of ``job`` by priority: of all splits the order whose schedule ends first."""
    lengths = [each.rough_ms * -(-each.tasks // executors) for each in job.durations]
    longest = max(lengths)
    orders = [_order(job, [length >= share * longest for length in lengths]) for share in THRESHOLDS]
    return min(orders, key=lambda order: span_ms(job, executors, order))


def _order(job: SparkJob, troublesome: Sequence[bool]) -> list[int]:
    """The troublesome stages and their ancestors first, each group by the work on the path ahead."""
    graph = job.graph
    leads = list(troublesome)
    for index in reversed(graph.order):
        leads[index] = leads[index] or any(leads[child] for child in graph.children[index])
    rank = graph.upward_rank([each.rough_ms * each.tasks for each in job.durations])
    return sorted(range(len(rank)), key=lambda index: (not leads[index], -rank[index]))


def span_ms(job: SparkJob, executors: int, order: Sequence[int]) -> float:
    """The time that the job takes alone with executors in this order of stages. A task has at most one; fractions of a
    task count."""
    graph = job.graph
    left = [each.tasks * each.rough_ms for each in job.durations]
    missing = [len(parents) for parents in graph.parents]
    open_ = set(range(len(left)))
    now_ms = 0.0
    while open_:
        free, given = executors, {}
        for index in order:
            if index in open_ and not missing[index] and free:
                given[index] = min(free, job.durations[index].tasks)
                free -= given[index]
        step_ms = min(left[index] / number for index, number in given.items())
        now_ms += step_ms
        for index, number in given.items():
            left[index] -= number * step_ms
            if left[index] <= 1e-6:
                open_.remove(index)
                for child in graph.children[index]:
                    missing[child] -= 1
    return now_ms
