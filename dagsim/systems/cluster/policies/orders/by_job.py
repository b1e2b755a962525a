"""Orders over jobs as wholes, the critical path first inside a job. Not preemptive.

What a job still needs is the estimate for all of its tasks that are not done, each on its fastest type; what a running
task has done so far is not taken off.
"""

from __future__ import annotations

from collections.abc import Iterator

from dagsim.model import Decision, Start
from dagsim.systems.cluster.api import ClusterView, JobState
from dagsim.systems.cluster.policies.orders.static import by_rank
from dagsim.systems.cluster.policies.placement.rule import PlacementRule, placing
from dagsim.systems.cluster.policies.support.job_queue import JobKey, JobQueue

__all__ = ["JobOrdered", "scpt", "sjf_cp", "srpt_work"]


class JobOrdered:
    """Start the first task by ``(job_key, longest path to the end)`` that fits, until none does. Jobs of which a run
    ended are ranked again, unless the key is ``fixed``. Cost per decision: O(demand classes + log tasks)."""

    def __init__(self, job_key: JobKey, placement: str | PlacementRule = "best-fit", *, fixed: bool = False) -> None:
        self._key = job_key
        self._fixed = fixed
        self._place = placing(placement).place

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        queue = view.index(self._key, lambda: JobQueue(self._key, by_rank, fixed=self._fixed))
        queue.rank_again()
        for task in queue.heads():
            placement = self._place(view, task) if view.fits(task) else None
            if placement is not None:
                yield Start(task, placement)
                return


def scpt(placement: str | PlacementRule = "best-fit") -> JobOrdered:
    """Shortest critical path first: the job with the shortest path left to its end. Clairvoyant. Cost:
    ``JobOrdered``."""
    return JobOrdered(by_path_left, placement)


def srpt_work(placement: str | PlacementRule = "best-fit") -> JobOrdered:
    """Shortest remaining work first: the job with the fewest GPU-seconds left. Clairvoyant. Cost: ``JobOrdered``."""
    return JobOrdered(by_work_left, placement)


def sjf_cp(placement: str | PlacementRule = "best-fit") -> JobOrdered:
    """Shortest job first by its total work, started or not, and inside it the critical path first (a baseline of
    Decima, Mao et al., SIGCOMM 2019). Clairvoyant. Cost: ``JobOrdered``."""
    return JobOrdered(by_total_work, placement, fixed=True)


def by_path_left(job: JobState) -> float:
    return max([task.rank_s for task in job.tasks if task.unfinished])


def by_work_left(job: JobState) -> float:
    return sum([task.best_s * task.unfinished * (task.task.gpus or 1.0) for task in job.tasks])


def by_total_work(job: JobState) -> float:
    return sum([task.best_s * task.task.instances * (task.task.gpus or 1.0) for task in job.tasks])
