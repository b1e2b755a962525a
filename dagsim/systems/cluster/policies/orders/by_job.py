"""Orders over jobs as wholes, the critical path first inside a job. Not preemptive.

What a job still needs is the estimate for all of its tasks that are not done, each on its fastest type; what a running
task has done so far is not taken off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dagsim.model import Decision, Start
from dagsim.systems.cluster.api import ClusterView, JobState
from dagsim.systems.cluster.policies.orders.static import by_rank
from dagsim.systems.cluster.policies.placement.rule import PlacementRule, placing
from dagsim.systems.cluster.policies.support.job_queue import JobKey, JobQueue
from dagsim.systems.cluster.policies.support.progress import PathLeft, WorkLeft

__all__ = ["JobOrdered", "scpt", "sjf_cp", "srpt_work"]


class JobOrdered:
    """Start the first task by ``(job key, longest path to the end)`` that fits, until none does. ``make_key`` makes the
    key for one simulation. Jobs of which a run ended are ranked again, unless the key is ``fixed``. Cost per decision:
    O(demand classes + log tasks)."""

    def __init__(
        self, make_key: Callable[[], JobKey], placement: str | PlacementRule = "best-fit", *, fixed: bool = False
    ) -> None:
        self._make_key = make_key
        self._fixed = fixed
        self._place = placing(placement).place

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        queue = view.index(self._make_key, lambda: JobQueue(self._make_key(), by_rank, fixed=self._fixed))
        queue.rank_again()
        for task in queue.heads(view.machines.fits):
            placement = self._place(view, task)
            if placement is not None:
                yield Start(task, placement)
                return


def scpt(placement: str | PlacementRule = "best-fit") -> JobOrdered:
    """Shortest critical path first: the job with the shortest path left to its end. Clairvoyant. Cost:
    ``JobOrdered``."""
    return JobOrdered(PathLeft, placement)


def srpt_work(placement: str | PlacementRule = "best-fit") -> JobOrdered:
    """Shortest remaining work first: the job with the fewest GPU-seconds left. Clairvoyant. Cost: ``JobOrdered``."""
    return JobOrdered(WorkLeft, placement)


def sjf_cp(placement: str | PlacementRule = "best-fit") -> JobOrdered:
    """Shortest job first by its total work, and inside it the critical path first. Work counts whether started or not
    (a baseline of Decima, Mao et al., SIGCOMM 2019). Clairvoyant. Cost: ``JobOrdered``."""
    return JobOrdered(_total_work, placement, fixed=True)


def _total_work() -> JobKey:
    return by_total_work


def by_total_work(job: JobState) -> float:
    return sum([task.best_s * task.task.instances * (task.task.gpus or 1.0) for task in job.tasks])
