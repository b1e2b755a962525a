"""Jobs in a log that never started, because their partition refuses their account."""

from __future__ import annotations

from collections.abc import Iterator

from dagsim.families.slurm.scheduler.pending_jobs import PendingJobs
from dagsim.families.slurm.scheduler.slurm_rules import SlurmRules
from dagsim.systems.cluster.api import ClusterView, JobState, TaskState


class RefusedJobs:
    """Jobs that the scheduler examines although they never start. The log contains them, but the
    simulation does not.

    Each is listed among the pending jobs from its arrival until it leaves.
    """

    def __init__(self, rules: SlurmRules) -> None:
        self._rules = rules
        self._coming: list[tuple[JobState, float]] | None = None
        """Jobs that have not arrived yet, with the times at which they leave, in reverse order of
        arrival. None before the log is read.
        """
        self._leaves: list[tuple[float, TaskState]] = []
        """For each job that has arrived, the time at which it leaves, and its task."""

    def list_due(self, view: ClusterView, pending: PendingJobs) -> None:
        """List the jobs that have arrived by now, and remove those that have left by now."""
        if self._coming is None:
            self._coming = sorted(self._read(view), key=lambda entry: -entry[0].tasks[0].ready_s)
        while self._coming and self._coming[-1][0].tasks[0].ready_s <= view.now:
            active, until_s = self._coming.pop()
            self._rules.learn(view, active)
            for task in active.tasks:
                pending.list_task(task)
                self._leaves.append((until_s, task))
        for until_s, task in self._leaves:
            task.waiting = task.waiting if view.now < until_s else 0

    def _read(self, view: ClusterView) -> Iterator[tuple[JobState, float]]:
        unstarted = getattr(view.source, "unstarted", None) if self._rules.refuses_accounts else None
        refused = [entry for entry in (unstarted() if unstarted else ()) if self._rules.is_refused(entry.job)]
        for place, (job, until_s) in enumerate(refused):
            active = view.as_arrived(job, -1 - place)
            for task in active.tasks:
                task.ready_s = job.arrival_s if job.eligible_s is None else job.eligible_s
            yield active, until_s
